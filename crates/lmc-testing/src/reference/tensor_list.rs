//! Tensor lists (§3.8).

use super::bytes::Bytes;
use super::faults::{Faults, must};
use super::tensors::{Tensors, text};

/// The column of `length` bytes that a list describes.
pub(super) fn column(list: &[u8], length: usize, faults: &mut Faults) -> Result<Vec<u8>, String> {
    let header_length = length.checked_sub(8).ok_or(TOO_LONG)?;
    let header = header(list, header_length, faults)?;
    must(header.len() == header_length, "a tensor list gives fewer bytes than the column's length")?;
    Ok([&(header_length as u64).to_le_bytes(), &header[..]].concat())
}

/// The column's bytes after the length, at most `most` bytes.
pub(super) fn header(list: &[u8], most: usize, faults: &mut Faults) -> Result<Vec<u8>, String> {
    let mut list = Bytes::new(list);
    let mut out = Text { bytes: Vec::new(), most };
    out.push(text(&mut list, faults)?)?;

    let count = list.varint()?;
    faults.must(count >= 1, "a tensor list has no tensors");
    let mut tensors = Tensors::default();
    let mut begin = 0u64;
    for i in 0..count {
        let kind = list.u8()?;
        let tensor = tensors.next(kind, &mut list, faults)?;
        if i > 0 {
            out.push(b",")?;
        }
        out.push(b"\"")?;
        out.push(tensor.name)?;
        out.push(b"\":{\"dtype\":\"")?;
        out.push(tensor.dtype.as_bytes())?;
        out.push(b"\",\"shape\":[")?;
        for (j, &dimension) in tensor.shape.iter().enumerate() {
            if j > 0 {
                out.push(b",")?;
            }
            out.number(dimension)?;
        }
        out.push(b"],\"data_offsets\":[")?;
        out.number(begin)?;
        out.push(b",")?;
        let (end, overflow) = begin.overflowing_add(tensor.length);
        faults.must(!overflow, "the lengths of a list's tensors exceed 64 bits");
        out.number(end)?;
        out.push(b"]}")?;
        begin = end;
    }

    out.push(text(&mut list, faults)?)?;
    faults.must(list.rest().is_empty(), "something follows the back of a tensor list");
    Ok(out.bytes)
}

const TOO_LONG: &str = "a tensor list gives more bytes than the column's length";

/// Text that must not grow beyond a length.
struct Text {
    bytes: Vec<u8>,
    most: usize,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        must(bytes.len() <= self.most - self.bytes.len(), TOO_LONG)?;
        self.bytes.extend(bytes);
        Ok(())
    }

    fn number(&mut self, number: u64) -> Result<(), String> {
        self.push(number.to_string().as_bytes())
    }
}
