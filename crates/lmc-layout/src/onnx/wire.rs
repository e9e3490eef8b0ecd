//! Protobuf's wire format: keys, varints and lengths, read from a file in small windows.

use std::ops::Range;

use crate::error::Error;
use crate::suggestion::Whole;

/// Most bytes that are read of a file, all between its tensors.
pub(super) const MAX_READ: u64 = 1 << 26;

/// Bytes that are read at a time.
const WINDOW: u64 = 1 << 12;

/// Why a walk stops.
pub(super) enum Stop {
    /// The bytes are no fields of the message, or too many.
    Invalid,
    /// Reading failed.
    Failed(Error),
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Varint(u64),
    /// Four or eight bytes, skipped.
    Fixed,
    /// The bytes from the place of the walk up to this offset in the file. The caller reads them or skips them.
    Bytes(u64),
}

/// A walk through a file, forwards.
pub(super) struct Wire<'a> {
    file: Whole<'a>,
    at: u64,
    /// Bytes of the file from `start` on.
    window: Vec<u8>,
    start: u64,
    /// Bytes that may still be read.
    left: u64,
}

impl<'a> Wire<'a> {
    pub(super) fn new(file: Whole<'a>) -> Self {
        Self { file, at: 0, window: Vec::new(), start: 0, left: MAX_READ }
    }

    /// The place of the walk, as an offset in the file.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Goes on at `offset`.
    pub(super) fn skip_to(&mut self, offset: u64) {
        self.at = offset;
    }

    /// The number and the value of the next field of a message that ends at `end`; `None` at its end.
    pub(super) fn field(&mut self, end: u64) -> Result<Option<(u64, Value)>, Stop> {
        if self.at == end {
            return Ok(None);
        }
        let key = self.varint(end)?;
        let (number, kind) = (key >> 3, key & 7);
        if !(1..1 << 29).contains(&number) {
            return Err(Stop::Invalid);
        }
        let within = |offset: Option<u64>| offset.filter(|&offset| offset <= end).ok_or(Stop::Invalid);
        let value = match kind {
            0 => Value::Varint(self.varint(end)?),
            1 | 5 => {
                self.at = within(self.at.checked_add(if kind == 1 { 8 } else { 4 }))?;
                Value::Fixed
            }
            2 => {
                let len = self.varint(end)?;
                Value::Bytes(within(self.at.checked_add(len))?)
            }
            _ => return Err(Stop::Invalid),
        };
        Ok(Some((number, value)))
    }

    /// A varint that ends before `end`.
    pub(super) fn varint(&mut self, end: u64) -> Result<u64, Stop> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            if self.at == end {
                break;
            }
            let byte = u64::from(self.byte()?);
            // The tenth byte has one bit of 64.
            if shift == 63 && byte > 1 {
                break;
            }
            value |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Stop::Invalid)
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let mut pos = self.at.wrapping_sub(self.start);
        if pos >= self.window.len() as u64 {
            let len = WINDOW.min(self.file.size() - self.at);
            self.window = self.read(self.at, len)?;
            self.start = self.at;
            pos = 0;
        }
        self.at += 1;
        self.window.get(pos as usize).copied().ok_or(Stop::Invalid)
    }

    /// Bytes of the file that the walk has passed, most often those of the window.
    pub(super) fn bytes(&mut self, range: Range<u64>) -> Result<Vec<u8>, Stop> {
        let len = range.end - range.start;
        let pos = range.start.checked_sub(self.start);
        if let Some(pos) = pos.filter(|&pos| pos <= self.window.len() as u64)
            && let Some(bytes) = self.window[pos as usize..].get(..len as usize)
        {
            return Ok(bytes.to_vec());
        }
        self.read(range.start, len)
    }

    fn read(&mut self, offset: u64, len: u64) -> Result<Vec<u8>, Stop> {
        self.left = self.left.checked_sub(len).ok_or(Stop::Invalid)?;
        self.file.bytes(offset, len as usize).map_err(Stop::Failed)?.ok_or(Stop::Invalid)
    }
}
