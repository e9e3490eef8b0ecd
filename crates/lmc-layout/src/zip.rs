//! Zip archives: the places of their entries (PKWARE's APPNOTE.TXT). Only the central directory counts: torch writes local headers without
//! sizes.

use super::suggestion::Whole;
use crate::error::Result;

/// Most bytes of a central directory: enough for some hundred thousand entries.
const MAX_DIRECTORY: u64 = 1 << 25;
/// The end record of an archive without a comment, which no writer of tensors adds.
const END: u64 = 22;
/// The end record of zip64 and its locator, which come before the other one.
const END64: u64 = 56;
const LOCATOR: u64 = 20;
/// A file header in the central directory, and a local one, without names and extra fields.
const HEADER: usize = 46;
const LOCAL: u64 = 30;

/// An archive that is part of a file.
pub(super) struct Archive {
    /// Its first byte in the file.
    pub(super) start: u64,
    pub(super) entries: Vec<Entry>,
}

/// A file of an archive.
pub(super) struct Entry {
    pub(super) name: String,
    /// Its data in the file.
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Whether the data is stored as it is: neither compressed nor encrypted.
    pub(super) stored: bool,
}

impl Entry {
    /// Its bytes, if it has at most `most` of them and is stored as it is.
    pub(super) fn read(&self, file: Whole<'_>, most: u64) -> Result<Option<Vec<u8>>> {
        if !self.stored || self.len > most {
            return Ok(None);
        }
        file.bytes(self.offset, self.len as usize)
    }
}

impl Archive {
    /// The archive that ends where the first `end` bytes of the file do; `None` if there is none, or it is not sound. It may begin anywhere:
    /// its own offsets count from its first byte.
    pub(super) fn ending_at(file: Whole<'_>, end: u64) -> Result<Option<Self>> {
        let Some(directory) = Directory::ending_at(file, end)? else { return Ok(None) };
        directory.archive(file)
    }
}

/// The place of a central directory.
struct Directory {
    /// First byte of the archive in the file.
    start: u64,
    /// Offset in the archive, length in bytes, number of headers.
    offset: u64,
    len: u64,
    headers: u64,
}

impl Directory {
    fn ending_at(file: Whole<'_>, end: u64) -> Result<Option<Self>> {
        // An archive of zip64 has two more records before the last one.
        let tail = end.min(END64 + LOCATOR + END);
        let Some(bytes) = file.bytes(end - tail, tail as usize)? else { return Ok(None) };
        let Some((before, record)) = bytes.split_last_chunk::<{ END as usize }>() else { return Ok(None) };
        // A comment would follow the record.
        if !record.starts_with(b"PK\x05\x06") || u16_at(record, 20) != 0 {
            return Ok(None);
        }
        let mut directory = Self {
            start: 0,
            offset: u32_at(record, 16).into(),
            len: u32_at(record, 12).into(),
            headers: u16_at(record, 10).into(),
        };
        let mut ends = end - END;
        let saturated =
            directory.offset.max(directory.len) == u64::from(u32::MAX) || directory.headers == u64::from(u16::MAX);
        let zip64 = before.len() as u64 == END64 + LOCATOR && before.starts_with(b"PK\x06\x06");
        if zip64 && before[END64 as usize..].starts_with(b"PK\x06\x07") {
            ends -= END64 + LOCATOR;
            directory.headers = u64_at(before, 32);
            directory.len = u64_at(before, 40);
            directory.offset = u64_at(before, 48);
        } else if saturated {
            return Ok(None);
        }
        let length = directory.offset.checked_add(directory.len);
        let Some(start) = length.and_then(|length| ends.checked_sub(length)) else { return Ok(None) };
        directory.start = start;
        Ok(Some(directory))
    }

    fn archive(&self, file: Whole<'_>) -> Result<Option<Archive>> {
        if self.len > MAX_DIRECTORY || self.headers > self.len / HEADER as u64 {
            return Ok(None);
        }
        let Some(bytes) = file.bytes(self.start + self.offset, self.len as usize)? else { return Ok(None) };
        let mut rest = &bytes[..];
        let mut entries = Vec::with_capacity(self.headers as usize);
        for _ in 0..self.headers {
            let Some((mut entry, after)) = entry(rest) else { return Ok(None) };
            rest = after;
            let Some(at) = self.start.checked_add(entry.offset) else { return Ok(None) };
            entry.offset = at;
            entries.push(entry);
        }
        // In the order of the file, so that nothing of it is read twice.
        let mut in_order: Vec<&mut Entry> = entries.iter_mut().collect();
        in_order.sort_unstable_by_key(|entry| entry.offset);
        let mut locals = LocalHeaders { file, at: 0, bytes: Vec::new() };
        let mut end = self.start;
        for entry in in_order {
            let at = entry.offset;
            let Some(local) = locals.get(at, entry.len)?.filter(|local| local.starts_with(b"PK\x03\x04")) else {
                return Ok(None);
            };
            entry.offset = at + LOCAL + u64::from(u16_at(local, 26)) + u64::from(u16_at(local, 28));
            let Some(next) = entry.offset.checked_add(entry.len).filter(|_| at >= end) else { return Ok(None) };
            end = next;
        }
        let sound = rest.is_empty() && end <= self.start + self.offset;
        Ok(sound.then_some(Archive { start: self.start, entries }))
    }
}

/// Reads local headers: one by one, or those of many small entries together.
struct LocalHeaders<'a> {
    file: Whole<'a>,
    /// The bytes read last, and their offset.
    at: u64,
    bytes: Vec<u8>,
}

impl LocalHeaders<'_> {
    /// Bytes that are read for a small entry behind another one.
    const WINDOW: u64 = 1 << 16;
    /// Data of a small entry.
    const SMALL: u64 = 1 << 14;

    /// The header at an offset, without its name, of an entry with `len` bytes of data; `None` if the file ends before.
    fn get(&mut self, at: u64, len: u64) -> Result<Option<&[u8]>> {
        let skip = match at.checked_sub(self.at) {
            Some(skip) if skip.saturating_add(LOCAL) <= self.bytes.len() as u64 => skip as usize,
            distance => {
                let follows = !self.bytes.is_empty() && distance.is_some_and(|bytes| bytes < Self::WINDOW);
                let window = if follows && len < Self::SMALL { Self::WINDOW } else { LOCAL };
                let left = self.file.size().saturating_sub(at);
                self.bytes.resize(window.min(left).max(LOCAL) as usize, 0);
                self.at = at;
                if !self.file.read(&mut self.bytes, at)? {
                    return Ok(None);
                }
                0
            }
        };
        Ok(Some(&self.bytes[skip..][..LOCAL as usize]))
    }
}

/// The entry of the first header of a central directory, with its offset in the archive and the length of its data; and
/// the rest of the directory.
fn entry(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    if !header.starts_with(b"PK\x01\x02") {
        return None;
    }
    let (name, rest) = rest.split_at_checked(u16_at(header, 28).into())?;
    let (mut extra, rest) = rest.split_at_checked(u16_at(header, 30).into())?;
    let (_comment, rest) = rest.split_at_checked(u16_at(header, 32).into())?;
    let (mut packed, mut len, mut offset) =
        (u32_at(header, 20).into(), u32_at(header, 24).into(), u32_at(header, 42).into());
    while let Some((field, after)) = extra.split_at_checked(4) {
        let (mut numbers, after) = after.split_at_checked(u16_at(field, 2).into())?;
        if u16_at(field, 0) == 1 {
            // Zip64: the numbers that do not fit the header.
            for number in [&mut len, &mut packed, &mut offset] {
                if *number == u64::from(u32::MAX) {
                    let first;
                    (first, numbers) = numbers.split_at_checked(8)?;
                    *number = u64_at(first, 0);
                }
            }
        }
        extra = after;
    }
    let encrypted = u16_at(header, 8) & 1 != 0;
    let stored = u16_at(header, 10) == 0 && packed == len && !encrypted;
    let entry = Entry { name: String::from_utf8(name.to_vec()).ok()?, offset, len: packed, stored };
    Some((entry, rest))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}
