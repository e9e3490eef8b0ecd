//! Conversions between float types, in integers: the same on every machine (`docs/format.md` §3.7).

use super::Conversion;
use super::derived::cast;
use super::halves::{bf16, f16};
use crate::inline::zip;

/// Replaces `out` by `source`, converted.
///
/// # Panics
/// If `source` is not a whole number of elements.
pub fn convert(conversion: Conversion, source: &[u8], out: &mut Vec<u8>) {
    match conversion {
        Conversion::None => {
            out.clear();
            out.extend_from_slice(source);
        }
        Conversion::NarrowBf16 => narrow(source, out, bf16),
        Conversion::NarrowF16 => narrow(source, out, f16),
        Conversion::WidenBf16 => {
            let (elements, rest) = source.as_chunks::<2>();
            assert!(rest.is_empty(), "whole elements");
            out.resize(2 * source.len(), 0);
            zip(out.as_chunks_mut::<4>().0, elements, |to, e| {
                *to = (u32::from(u16::from_le_bytes(*e)) << 16).to_le_bytes();
            });
        }
        Conversion::Cast(from, to) => {
            out.resize(source.len() / from.width() * to.width(), 0);
            cast(from, to, source, out);
        }
    }
}

#[inline(always)]
fn narrow(source: &[u8], out: &mut Vec<u8>, f: impl Fn(u32) -> u16) {
    let (elements, rest) = source.as_chunks::<4>();
    assert!(rest.is_empty(), "whole elements");
    out.resize(source.len() / 2, 0);
    zip(out.as_chunks_mut::<2>().0, elements, |to, e| *to = f(u32::from_le_bytes(*e)).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths() {
        let mut out = vec![];
        convert(Conversion::WidenBf16, &[0x80, 0x3f, 1, 2], &mut out);
        assert_eq!(out, [0, 0, 0x80, 0x3f, 0, 0, 1, 2]);
        convert(Conversion::NarrowBf16, &out.clone(), &mut out);
        assert_eq!(out, [0x80, 0x3f, 1, 2]);
        convert(Conversion::NarrowF16, &1.0f32.to_le_bytes(), &mut out);
        assert_eq!(out, 0x3c00u16.to_le_bytes());
        convert(Conversion::None, &[1, 2, 3], &mut out);
        assert_eq!(out, [1, 2, 3]);
    }
}
