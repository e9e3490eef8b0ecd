//! Structural check of a pickle before Python's unpickler gets it.
//!
//! The unpickler allocates the length that an opcode declares before it checks that the data exists: twenty bytes can
//! take gigabytes. Accepted are opcodes that protocols 2 to 5 write for plain data and objects; each must be complete,
//! and memo indices must be consecutive.

use pyo3::prelude::*;

use crate::errors::{Failure, Result};
use crate::work::detached;

/// The argument of an opcode.
enum Argument {
    None,
    /// This many bytes.
    Bytes(usize),
    /// A length in this many bytes, and as many bytes as it says.
    Counted(usize),
    /// A memo index in this many bytes.
    Keep(usize),
    /// Lines of text.
    Lines(usize),
}

/// `None` for opcodes that metadata never contain: text opcodes, persistent ids, extensions, out-of-band buffers.
fn argument(opcode: u8) -> Option<Argument> {
    Some(match opcode {
        b'(' | b')' | b'0' | b'1' | b'2' | b'N' | b'R' | b']' | b'}' | b'a' | b'b' | b'd' | b'e' | b'l' | b's'
        | b't' | b'u' => Argument::None,
        // NEWOBJ, TUPLE1 to TUPLE3, NEWTRUE, NEWFALSE; EMPTY_SET to MEMOIZE.
        0x81 | 0x85..=0x89 | 0x8f..=0x94 => Argument::None,
        // PROTO, BININT1; BININT2; BININT; BINFLOAT, FRAME.
        0x80 | b'K' => Argument::Bytes(1),
        b'M' => Argument::Bytes(2),
        b'J' => Argument::Bytes(4),
        b'G' | 0x95 => Argument::Bytes(8),
        // LONG1, SHORT_BINUNICODE, SHORT_BINBYTES; LONG4, BINUNICODE, BINBYTES; their long forms, and BYTEARRAY8.
        0x8a | 0x8c | b'C' => Argument::Counted(1),
        0x8b | b'X' | b'B' => Argument::Counted(4),
        0x8d | 0x8e | 0x96 => Argument::Counted(8),
        // BINGET, LONG_BINGET; BINPUT, LONG_BINPUT.
        b'h' => Argument::Bytes(1),
        b'j' => Argument::Bytes(4),
        b'q' => Argument::Keep(1),
        b'r' => Argument::Keep(4),
        // GLOBAL.
        b'c' => Argument::Lines(2),
        _ => return None,
    })
}

const MEMOIZE: u8 = 0x94;
const STOP: u8 = b'.';

/// The offset of a pickle's end.
fn end(data: &[u8]) -> Result<usize, String> {
    let (mut at, mut kept) = (0, 0);
    loop {
        let cut = || format!("the pickle is truncated at byte {at}");
        let opcode = *data.get(at).ok_or_else(cut)?;
        if opcode == STOP {
            return Ok(at + 1);
        }
        let argument = argument(opcode)
            .ok_or_else(|| format!("byte {at} of the pickle is {opcode:#04x}, which no checkpoint's metadata has"))?;
        let rest = &data[at + 1..];
        let number = |width: usize| {
            let bytes = rest.get(..width).ok_or_else(cut)?;
            Ok::<_, String>(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
        };
        let len = match argument {
            Argument::None => 0,
            Argument::Bytes(n) => n,
            Argument::Counted(width) => {
                usize::try_from(number(width)?).ok().and_then(|n| n.checked_add(width)).ok_or_else(cut)?
            }
            Argument::Keep(width) => {
                let index = number(width)?;
                if index > kept {
                    return Err(format!("byte {at} of the pickle stores memo {index}, not {kept}"));
                }
                kept += 1;
                width
            }
            Argument::Lines(n) => {
                let mut ends = rest.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1);
                ends.nth(n - 1).ok_or_else(cut)?
            }
        };
        if len > rest.len() {
            return Err(cut());
        }
        kept += u64::from(opcode == MEMOIZE);
        at += 1 + len;
    }
}

/// Checks that a pickle is complete, and that it allocates no more memory than it fills. Does not check the names in
/// it.
///
/// Raises `lmc.FormatError` if it is not.
#[pyfunction]
pub(crate) fn check_pickle(py: Python<'_>, data: &[u8]) -> Result<()> {
    detached(py, || end(data).map(drop).map_err(|why| Failure::Other("FormatError", why)))
}
