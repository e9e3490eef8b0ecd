//! The predict stage: residuals by context and back.
//!
//! A tile's contexts are found first, as on AVX2; scattering and gathering it is in [`scatter`](super::scatter).

use super::super::avx2::contexts::{ContextFinder, Ids, NO_CONTEXT, find, finder};
pub(in crate::arch) use super::super::avx2::predict::{count, rank, select, undo};
use super::scatter::{Ahead, Bytes, Elements, STEP, gather_tile, scatter_tile};
use crate::predict::job::{Model, Streams, TILE, most_overflows, places_by_width, trim};
use crate::predict::partition as portable;
use crate::predict::residual;

kernels! {
    pub(in crate::arch) fn scatter(m: &Model<'_>, elements: &[u8], streams: &mut Streams) -> bool {
        let Some(f) = finder(m) else { return portable::partition(m, elements, streams) };
        let (bytes, streams, overflows) = streams.raw_parts_mut();
        let mut places = places_by_width(bytes.len(), streams, f.keys.contexts, m.width);
        let mut ids = [NO_CONTEXT; TILE];
        let mut residuals = Elements([0; 8 * TILE]);
        let mut lowest = Bytes([0; TILE]);
        let tile = TILE * m.width;
        for (i, of_tile) in elements.chunks(tile).enumerate() {
            let n = of_tile.len();
            let predictions = of_next(m.prediction, i * TILE, m.width);
            let ahead = Ahead { elements: of_next(elements, i * TILE, m.width), predictions };
            residual::residuals(m.width, of_tile, m.predictions(i * TILE, n), &mut residuals.0[..n]);
            let ids = contexts(&f, i * TILE, n / m.width, &mut ids);
            let residuals = residuals.0.as_chunks().0;
            let there = match m.width {
                1 => scatter_tile::<1>(ids, residuals, &mut lowest, bytes, &mut places, overflows, ahead),
                2 => scatter_tile::<2>(ids, residuals, &mut lowest, bytes, &mut places, overflows, ahead),
                4 => scatter_tile::<4>(ids, residuals, &mut lowest, bytes, &mut places, overflows, ahead),
                _ => scatter_tile::<8>(ids, residuals, &mut lowest, bytes, &mut places, overflows, ahead),
            };
            if !there || overflows.len() > most_overflows(m.len) {
                return false;
            }
        }
        trim(streams, places.iter().flatten());
        true
    }

    pub(in crate::arch) fn gather(m: &Model<'_>, streams: &Streams, out: &mut [u8]) -> bool {
        let Some(f) = finder(m) else { return portable::restore(m, streams, out) };
        let (bytes, streams) = streams.raw_parts();
        let mut places = places_by_width(bytes.len(), streams, f.keys.contexts, m.width);
        let mut ids = [NO_CONTEXT; TILE];
        let mut last = Elements([0; 8 * TILE]);
        let mut lowest = Bytes([0; TILE]);
        let tile = TILE * m.width;
        for i in 0..m.len.div_ceil(TILE) {
            let (out, rest) = out[i * tile..].split_at_mut(tile.min(m.len * m.width - i * tile));
            let predictions = of_next(m.prediction, i * TILE, m.width);
            let ahead = Ahead { elements: &rest[..tile.min(rest.len())], predictions };
            let n = out.len();
            let ids = contexts(&f, i * TILE, n / m.width, &mut ids);
            let whole = n == tile;
            let to = if whole { &mut *out } else { &mut last.0 }.as_chunks_mut().0;
            let there = match m.width {
                1 => gather_tile::<1>(ids, &mut lowest, bytes, &mut places, to, ahead),
                2 => gather_tile::<2>(ids, &mut lowest, bytes, &mut places, to, ahead),
                4 => gather_tile::<4>(ids, &mut lowest, bytes, &mut places, to, ahead),
                _ => gather_tile::<8>(ids, &mut lowest, bytes, &mut places, to, ahead),
            };
            if !there {
                return false;
            }
            if !whole {
                out.copy_from_slice(&last.0[..n]);
            }
            residual::restore(m.width, m.predictions(i * TILE, n), out);
        }
        places.iter().flatten().all(|p| p.next == p.end)
    }

    /// The bytes of the tile after that of element `i`, in an array with some bytes per element.
    fn of_next(bytes: &[u8], i: usize, width: usize) -> &[u8] {
        bytes.get((i + TILE) * width..).map_or(&[], |next| &next[..next.len().min(TILE * width)])
    }

    /// The contexts of `n` elements, from element `i` on; behind the last one [`NO_CONTEXT`].
    fn contexts<'k>(f: &ContextFinder<'_>, i: usize, n: usize, ids: &'k mut Ids) -> &'k [[u8; STEP]] {
        find(f, i, n, ids);
        let steps = &mut ids.as_chunks_mut().0[..n.div_ceil(STEP)];
        steps.as_flattened_mut()[n..].fill(NO_CONTEXT);
        steps
    }
}
