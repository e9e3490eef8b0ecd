//! The tensors of the index: a name omits the prefix that it shares with the one before, a shape is
//! stored where it changes.

use super::limits::{MAX_NAME, MAX_WRITTEN_OUT, OF_SEGMENT};
use lmc_kernels::varint::{Cursor, put, put_string, string};
use lmc_layout::dtype::{Dtype, NAMED, NamedDtype};
use lmc_layout::error::{Error, Result};
use lmc_layout::segment::{MAX_RANK, Shape};

/// Flag in the dtype's byte: the shape is that of the tensor before.
const SAME_SHAPE: u8 = 0x80;

/// A tensor, or opaque bytes.
pub(crate) struct Entry<'a> {
    /// `None` for opaque bytes.
    pub(crate) dtype: Option<Dtype>,
    /// Length of opaque bytes.
    pub(crate) len: u64,
    pub(crate) name: &'a str,
    pub(crate) shape: &'a Shape,
}

/// Appends opaque bytes.
pub(crate) fn put_opaque(table: &mut Vec<u8>, len: u64) {
    table.push(0);
    put(table, len);
}

/// Appends a tensor after one named `last`. `None`: the shape is that of the one before.
pub(crate) fn put_tensor(table: &mut Vec<u8>, last: &str, name: &str, dtype: Dtype, shape: Option<&[u64]>) {
    table.push(dtype.code() | if shape.is_none() { SAME_SHAPE } else { 0 });
    if let Dtype::Named(named) = dtype {
        put_string(table, named.name());
        put(table, dtype.bits().into());
    }
    let shared = shared(last, name);
    put(table, shared as u64);
    put_string(table, &name[shared..]);
    if let Some(shape) = shape {
        put(table, shape.len() as u64);
        shape.iter().for_each(|&d| put(table, d));
    }
}

/// Length in bytes of the longest common prefix of whole characters.
fn shared(a: &str, b: &str) -> usize {
    let words = a.as_bytes().as_chunks::<8>().0.iter().zip(b.as_bytes().as_chunks::<8>().0);
    let start = 8 * words.take_while(|(a, b)| a == b).count();
    let rest = a.bytes().zip(b.bytes()).skip(start).take_while(|(a, b)| a == b).count();
    (0..=start + rest).rev().find(|&n| b.is_char_boundary(n)).unwrap_or(0)
}

/// Reads a number of entries and passes each to `each`.
pub(crate) fn walk(c: &mut Cursor<'_>, mut each: impl FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
    let n = c.size((MAX_WRITTEN_OUT / OF_SEGMENT) as usize, "the number of segments")?;
    let (mut name, mut shape) = (String::new(), Shape::default());
    let (mut is_first, none) = (true, Shape::default());
    for _ in 0..n {
        let kind = c.u8()?;
        if kind == 0 {
            let (len, shape) = (c.varint()?, &none);
            if len == 0 {
                return Err(Error::damaged("an opaque segment in the index has no bytes"));
            }
            each(Entry { dtype: None, len, name: "", shape })?;
            continue;
        }
        let code = kind & !SAME_SHAPE;
        if code == 0 {
            return Err(Error::damaged("an opaque segment has bit 7 set: it has no shape"));
        }
        let dtype = match code {
            NAMED => named(c)?,
            _ => Dtype::from_code(code).ok_or_else(|| Error::unknown_code("dtype", code))?,
        };
        let shared = c.size(name.len(), "the length of a tensor name's shared prefix")?;
        if !name.is_char_boundary(shared) {
            return Err(Error::damaged(format!(
                "a tensor's name shares {shared} bytes with {name:?}, which ends within a character"
            )));
        }
        name.truncate(shared);
        name.push_str(string(c)?);
        if name.len() > MAX_NAME {
            let (len, start) = (name.len(), name.chars().take(40).collect::<String>());
            return Err(Error::damaged(format!(
                "a tensor's name has {len} bytes and begins with {start:?}; it can have {MAX_NAME}"
            )));
        }
        if kind & SAME_SHAPE == 0 {
            let rank = c.size(MAX_RANK, "a tensor's rank")?;
            shape.clear();
            for _ in 0..rank {
                shape.push(c.varint()?);
            }
        } else if is_first {
            return Err(Error::damaged("the first tensor of a list has no shape of its own").in_tensor(&name));
        }
        is_first = false;
        each(Entry { dtype: Some(dtype), len: 0, name: &name, shape: &shape })?;
    }
    Ok(())
}

/// A dtype without a code.
fn named(c: &mut Cursor<'_>) -> Result<Dtype> {
    let (name, bits) = (string(c)?, c.varint()?);
    let named = u32::try_from(bits).ok().and_then(|bits| NamedDtype::new(name, bits));
    named.map(Dtype::Named).ok_or_else(|| {
        Error::damaged(format!(
            "dtype {name:?} of {bits} bits: the name of a dtype without a code must have 1 to 31 printable ASCII characters without \
             blanks, and be that of none with a code, and an element must have 1 to 65536 bits"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_share_whole_characters() {
        for (a, b, n) in [
            ("", "a", 0),
            ("ab", "ac", 1),
            ("ä", "ö", 0),
            ("xä", "xäy", 3),
            ("same", "same", 4),
            ("layers.0", "layers.0", 8),
            ("layers.1", "layers.0.weight", 7),
            ("layers.0.weight", "layers.0.weigh", 14),
            ("layers.ä", "layers.ö", 7),
        ] {
            assert_eq!((shared(a, b), shared(b, a)), (n, n));
        }
    }
}
