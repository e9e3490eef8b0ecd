//! Parts of flat 32-bit tensors that 16-bit tensors are rounded from.
//!
//! Optimisers keep the 32-bit weights of many parameters one after the other in one tensor without names, cut over
//! files at any element (DeepSpeed's ZeRO, and flat parameters in general). Which parameter is where is found by
//! values: [`search`] follows the flat tensors, one parameter after the other, by one look-up each; [`grid`] finds
//! where to go on after something unknown. A wrong part costs ratio, never correctness.

mod compare;
mod grid;
mod part;
mod search;

use compare::Elements;
use lmc::Dtype;
use lmc::Segment;
use lmc_kernels::predict::Conversion;
use part::LEAST;
pub(super) use part::RoundedPart;
use search::Search;

/// Fewer elements are no flat tensor.
const FLAT: u64 = 1 << 12;
/// Most flat tensors; more than the ranks, groups of parameters and moments of one optimiser.
const MOST: usize = 1 << 13;
/// How often a model is searched for again, for copies of tensors that were found.
const LAYERS: usize = 3;

/// Finds the parts of flat 32-bit tensors that 16-bit tensors are rounded from. Each group of 16-bit tensors, by their indices, is a model
/// of its own, so that several may be rounded from the same flat tensors; others of the group are ignored. `read` fills a buffer from an
/// offset on, of the same kind as the tensors' offsets.
///
/// Tensors are found where they follow each other in a flat tensor, in any order, and with up to 256 elements in between; from its
/// beginning on, or from a tensor of 2^16 elements or more on. Those that are constant are only found behind another one.
///
/// # Errors
/// Those of `read`.
pub(super) fn rounded_parts<E>(
    tensors: &[Segment],
    groups: &[Vec<usize>],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Vec<RoundedPart>, E> {
    let is_flat = |s: &Segment| s.dtype == Some(Dtype::F32) && s.shape.len() == 1 && s.len / 4 >= FLAT;
    let flats: Vec<usize> = (0..tensors.len()).filter(|&i| is_flat(&tensors[i])).take(MOST).collect();
    let mut parts = Vec::new();
    if flats.is_empty() {
        return Ok(parts);
    }
    let flat_elements: u64 = flats.iter().map(|&i| tensors[i].len / 4).sum();
    for (dtype, conversion) in [(Dtype::Bf16, Conversion::NarrowBf16), (Dtype::F16, Conversion::NarrowF16)] {
        let mut grid = None;
        for group in groups {
            let is_one = |i: &&usize| tensors[**i].dtype == Some(dtype) && tensors[**i].len / 2 >= LEAST;
            let narrow: Vec<usize> = group.iter().filter(is_one).copied().collect();
            if narrow.iter().map(|&i| tensors[i].len / 2).sum::<u64>() < FLAT {
                continue;
            }
            let reads = 64 * (narrow.len() + flats.len()) as u64 + flat_elements / grid::EVERY + (1 << 20);
            let mut elements = Elements::new(tensors, conversion, reads, &mut read);
            let mut rests = search::whole(&narrow, tensors);
            for layer in 0..LAYERS {
                let mut search = Search::new(&mut elements, &flats, rests)?;
                search.run(&mut grid)?;
                let found = search.parts.len();
                parts.extend(search.parts.into_iter().map(|part| RoundedPart { layer, ..part }));
                rests = search.rests;
                if found == 0 {
                    break;
                }
            }
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests;
