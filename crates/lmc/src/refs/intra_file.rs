//! Tensors of one file that predict each other: equal ones, and 16-bit weights rounded from a 32-bit tensor.
//!
//! They are found by sampled values alone, with one look-up per tensor: thousands of tensors cost no more than their samples. A wrong pair
//! costs ratio, never correctness: residuals are lossless with any prediction.

use std::collections::{HashMap, HashSet};

use crate::block::Reference;
use lmc_kernels::predict::{Conversion, convert};
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::segment::Segment;

/// Smaller tensors would save less than finding them costs.
const MIN_ELEMENTS: u64 = 4096;
/// The same for whole tensors of other files, which cost nothing where they are found; no fewer than samples reach.
const MIN_ROUNDED: u64 = 256;
/// Sampled elements of a tensor: in windows, so that a file is read at few places.
const STRETCHES: u64 = 8;
const STRETCH: usize = 8;

/// The key of similar tensors: number of elements, and a sample converted to one dtype.
#[derive(PartialEq, Eq, Hash)]
struct Look {
    dtype: Dtype,
    elements: u64,
    sample: Vec<u8>,
}

impl Look {
    /// The key of a tensor; `None` if it is small, constant (constants look like each other, and need no prediction) or
    /// no tensor at all.
    fn of<E>(
        segment: &Segment,
        least: u64,
        read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Option<Self>, E> {
        let Some(dtype) = segment.dtype else { return Ok(None) };
        let width = dtype.coding_width();
        let elements = segment.len / width as u64;
        if elements < least || !segment.len.is_multiple_of(width as u64) {
            return Ok(None);
        }
        let sample = sample(segment.offset, elements, width, read)?;
        let constant = sample.chunks_exact(width).all(|e| e == &sample[..width]);
        Ok((!constant).then_some(Self { dtype, elements, sample }))
    }

    /// The key of the tensor rounded to 16 bits.
    fn rounded(&self, conversion: Conversion, dtype: Dtype) -> Self {
        let mut sample = Vec::new();
        convert(conversion, &self.sample, &mut sample);
        Self { dtype, sample, ..*self }
    }
}

/// The 16-bit dtypes that fp32 tensors are rounded to.
const ROUNDED: [(Conversion, Dtype); 2] = [(Conversion::NarrowBf16, Dtype::Bf16), (Conversion::NarrowF16, Dtype::F16)];

/// For every segment, an earlier one that it can be predicted from. `read` fills a buffer with raw bytes of the file from an offset on.
pub(crate) fn find(segments: &[Segment], mut read: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Vec<Option<Reference>> {
    let mut references = vec![None; segments.len()];
    // Earlier tensors, by their own key or by that of their rounding.
    let mut seen: HashMap<Look, Reference> = HashMap::new();
    for (segment, reference) in segments.iter().zip(&mut references) {
        // A header may promise more than the file has; the existing bytes are compressed.
        let Ok(Some(look)) = Look::of(segment, MIN_ELEMENTS, &mut read) else { continue };
        let here = |conversion| Reference { source: 0, offset: segment.offset, conversion };
        // Equal tensors first: their residual is nothing.
        *reference = seen.get(&look).copied();
        if look.dtype == Dtype::F32 {
            if reference.is_none() {
                // A 16-bit tensor that may be this one, rounded.
                *reference = seen
                    .get(&look.rounded(Conversion::NarrowBf16, Dtype::Bf16))
                    .filter(|l| l.conversion == Conversion::None)
                    .map(|l| Reference { conversion: Conversion::WidenBf16, ..*l });
            }
            for (conversion, dtype) in ROUNDED {
                seen.entry(look.rounded(conversion, dtype)).or_insert(here(conversion));
            }
        }
        seen.entry(look).or_insert(here(Conversion::None));
    }
    references
}

/// Finds the 16-bit tensors that are a rounded 32-bit one: for each tensor the index of that one. Order and names do not matter.
/// `read` fills a buffer from an offset on, of the same kind as the tensors' offsets.
///
/// They are found by sampled values. A wrong pair costs a delta ratio, never correctness.
///
/// # Errors
/// Those of `read`.
pub fn rounded_from<E>(
    tensors: &[Segment],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Vec<Option<usize>>, E> {
    // Only tensors with lengths of both kinds are read.
    let lengths = |wide: bool| -> HashSet<u64> {
        let elements = |s: &Segment| match s.dtype? {
            Dtype::F32 if wide => Some(s.len / 4),
            Dtype::Bf16 | Dtype::F16 if !wide => Some(s.len / 2),
            _ => None,
        };
        tensors.iter().filter_map(elements).collect()
    };
    let (of_wide, of_narrow) = (lengths(true), lengths(false));
    let mut wide: HashMap<Look, usize> = HashMap::new();
    let mut narrow = Vec::new();
    for (i, tensor) in tensors.iter().enumerate() {
        let both = match tensor.dtype {
            Some(Dtype::F32) => of_narrow.contains(&(tensor.len / 4)),
            Some(Dtype::Bf16 | Dtype::F16) => of_wide.contains(&(tensor.len / 2)),
            _ => false,
        };
        if !both {
            continue;
        }
        match Look::of(tensor, MIN_ROUNDED, &mut read)? {
            Some(look) if look.dtype == Dtype::F32 => ROUNDED.iter().for_each(|&(conversion, dtype)| {
                wide.entry(look.rounded(conversion, dtype)).or_insert(i);
            }),
            Some(look) => narrow.push((i, look)),
            None => {}
        }
    }
    let mut found = vec![None; tensors.len()];
    narrow.into_iter().for_each(|(i, look)| found[i] = wide.get(&look).copied());
    Ok(found)
}

/// Samples a tensor, at places that depend on its number of elements alone.
fn sample<E>(
    offset: u64,
    elements: u64,
    width: usize,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let mut sample = vec![0; STRETCHES as usize * STRETCH * width];
    for (i, to) in (0..STRETCHES).zip(sample.chunks_exact_mut(STRETCH * width)) {
        // Not at the start of rows, which may be alike.
        let at = elements / STRETCHES * i + elements / STRETCHES / 3;
        read(offset + at * width as u64, to)?;
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize, seed: u32) -> Vec<u8> {
        (0..n as u32).flat_map(|i| ((i ^ seed).wrapping_mul(2654435761) as f32 * 1e-9 - 1.0).to_le_bytes()).collect()
    }

    fn narrow(f: &[u8], conversion: Conversion) -> Vec<u8> {
        let mut to = vec![];
        convert(conversion, f, &mut to);
        to
    }

    fn file(tensors: &[(Dtype, Vec<u8>)]) -> (Vec<u8>, Vec<Segment>) {
        let raw: Vec<u8> = tensors.iter().flat_map(|t| t.1.clone()).collect();
        let mut at = 0;
        let segment = |(i, (dtype, bytes)): (usize, &(Dtype, Vec<u8>))| {
            let n = bytes.len() as u64;
            at += n;
            let shape = [n / dtype.coding_width() as u64].into();
            Segment::tensor((*format!("{i}")).into(), *dtype, shape, at - n, n)
        };
        let segments = tensors.iter().enumerate().map(segment).collect();
        (raw, segments)
    }

    fn references(tensors: &[(Dtype, Vec<u8>)]) -> Vec<Option<Reference>> {
        let (raw, segments) = file(tensors);
        find(&segments, |offset, buf| {
            buf.copy_from_slice(&raw[offset as usize..][..buf.len()]);
            Ok(())
        })
    }

    #[test]
    fn rounded_and_equal_tensors_are_found() {
        use Conversion::{NarrowBf16, NarrowF16, None as Same, WidenBf16};
        let (a, b) = (noise(5000, 1), noise(5000, 77));
        let (a16, b16, ah) = (narrow(&a, NarrowBf16), narrow(&b, NarrowBf16), narrow(&a, NarrowF16));
        let l = references(&[
            (Dtype::F32, a.clone()),
            (Dtype::Bf16, b16.clone()),
            (Dtype::Bf16, a16.clone()),
            (Dtype::F16, ah),
            (Dtype::F32, b.clone()),
            (Dtype::Bf16, b16),
            (Dtype::F32, a.clone()),
            (Dtype::F32, noise(5000, 5)),
            (Dtype::F32, noise(4000, 1)),
            (Dtype::F32, noise(4000, 1)),
            (Dtype::Bf16, vec![0; 9000]),
            (Dtype::Bf16, vec![0; 9000]),
        ]);
        let at = |offset, conversion| Some(Reference { source: 0, offset, conversion });
        assert_eq!(l[..4], [None, None, at(0, NarrowBf16), at(0, NarrowF16)]);
        assert_eq!(l[4..7], [at(20_000, WidenBf16), at(20_000, Same), at(0, Same)]);
        assert_eq!(l[7..], [None; 5], "new, small, and constant ones have no reference");
    }

    #[test]
    fn rounded_tensors_are_found_in_any_order() {
        use Conversion::{NarrowBf16, NarrowF16};
        let (a, b) = (noise(5000, 1), noise(5000, 77));
        let tensors = [
            (Dtype::Bf16, narrow(&b, NarrowBf16)),
            (Dtype::F32, a.clone()),
            (Dtype::F16, narrow(&a, NarrowF16)),
            (Dtype::F32, b.clone()),
            (Dtype::Bf16, narrow(&noise(5000, 5), NarrowBf16)),
            (Dtype::F32, b),
            (Dtype::Bf16, narrow(&a, NarrowBf16)),
            (Dtype::Bf16, vec![0; 10_000]),
            (Dtype::F32, vec![0; 20_000]),
            (Dtype::U8, vec![7; 5000]),
        ];
        let (raw, segments) = file(&tensors);
        let found = rounded_from(&segments, |offset, buf| {
            buf.copy_from_slice(&raw[offset as usize..][..buf.len()]);
            Ok::<(), ()>(())
        });
        let none = None;
        assert_eq!(found, Ok(vec![Some(3), none, Some(1), none, none, none, Some(1), none, none, none]));
        assert_eq!(rounded_from(&segments, |_, _| Err("no")), Err("no"));
    }
}
