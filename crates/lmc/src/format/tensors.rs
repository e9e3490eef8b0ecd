//! Tensors one after the other, as the index and tensor lists have them: names without what they share with the one before, shapes only
//! where they change.

use super::varint::{Cursor, put, put_string, string};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::segment::{MAX_RANK, Shape};

/// Set in the byte of a dtype where the shape is that of the tensor before.
const SAME_SHAPE: u8 = 0x80;

/// A tensor, or opaque bytes.
pub(crate) struct Entry<'a> {
    /// `None` for opaque bytes.
    pub(crate) dtype: Option<Dtype>,
    /// Length of opaque bytes.
    pub(crate) len: u64,
    pub(crate) name: &'a str,
    /// Bytes of the name that are those of the name before.
    pub(crate) shared: usize,
    pub(crate) shape: &'a Shape,
    /// Whether the shape is said to be that of the tensor before.
    pub(crate) same_shape: bool,
}

/// Puts opaque bytes.
pub(crate) fn put_opaque(table: &mut Vec<u8>, len: u64) {
    table.push(0);
    put(table, len);
}

/// Puts a tensor after one named `last`. Without a shape it has that of the one before.
pub(crate) fn put_tensor(table: &mut Vec<u8>, last: &str, name: &str, dtype: Dtype, shape: Option<&[u64]>) {
    table.push(dtype.code() | if shape.is_none() { SAME_SHAPE } else { 0 });
    let shared = shared(last, name);
    put(table, shared as u64);
    put_string(table, &name[shared..]);
    if let Some(shape) = shape {
        put(table, shape.len() as u64);
        shape.iter().for_each(|&d| put(table, d));
    }
}

/// Bytes of the characters that both begin with.
fn shared(a: &str, b: &str) -> usize {
    let words = a.as_bytes().as_chunks::<8>().0.iter().zip(b.as_bytes().as_chunks::<8>().0);
    let start = 8 * words.take_while(|(a, b)| a == b).count();
    let rest = a.bytes().zip(b.bytes()).skip(start).take_while(|(a, b)| a == b).count();
    (0..=start + rest).rev().find(|&n| b.is_char_boundary(n)).unwrap_or(0)
}

/// Goes through a number of entries and as many of them.
pub(crate) fn walk(c: &mut Cursor<'_>, mut each: impl FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
    let n = c.varint()?;
    let (mut name, mut shape) = (String::new(), Shape::default());
    let (mut is_first, none) = (true, Shape::default());
    for _ in 0..n {
        let kind = c.u8()?;
        if kind == 0 {
            let (len, shape) = (c.varint()?, &none);
            each(Entry { dtype: None, len, name: "", shared: 0, shape, same_shape: false })?;
            continue;
        }
        let dtype = Dtype::from_code(kind & !SAME_SHAPE)
            .ok_or_else(|| Error::unsupported("a tensor has a dtype that this lmc does not know; a newer one may"))?;
        let shared = c.size(name.len(), "what a tensor's name shares with the one before")?;
        if !name.is_char_boundary(shared) {
            return Err(Error::damaged("the name of a tensor is not UTF-8"));
        }
        name.truncate(shared);
        name.push_str(string(c)?);
        let same_shape = kind & SAME_SHAPE != 0;
        if !same_shape {
            let rank = c.size(MAX_RANK, "a tensor's rank")?;
            shape.clear();
            for _ in 0..rank {
                shape.push(c.varint()?);
            }
        } else if is_first {
            return Err(Error::damaged("the first tensor of a list has the shape of one before it").in_tensor(&name));
        }
        is_first = false;
        each(Entry { dtype: Some(dtype), len: 0, name: &name, shared, shape: &shape, same_shape })?;
    }
    Ok(())
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
