//! Streams whose residuals fit one byte. Their bodies do not depend on the width of an element, and elements of one byte halve the
//! memory traffic, or better.

use super::{Cluster, Mask, Stream};
use lmc_kernels::entropy::coder::Coder;
use lmc_kernels::map::Map;

impl Stream {
    /// The stream with elements of one byte, if all elements fit.
    pub(in crate::block) fn byte_wide(&self) -> Option<Self> {
        let beyond = 8 * self.width as u32 - 8;
        let byte_wide = |g: &Cluster| {
            let mut g = Cluster { constant: u64::from(u8::try_from(g.constant).ok()?), ..g.clone() };
            if g.coder == Coder::None && g.raw_bits == 0 {
                (g.low, g.high) = (8, 0);
            } else {
                g.high = g.high.checked_sub(beyond)?;
            }
            Some(g)
        };
        if self.patches.is_some() || matches!(self.mask, Mask::List { .. }) || self.map != Map::Identity {
            return None;
        }
        let clusters = self.clusters.iter().map(byte_wide).collect::<Option<_>>()?;
        Some(Self { width: 1, clusters, ..self.clone() })
    }

    /// The stream with elements of `width` bytes, zero above its own.
    pub(in crate::block) fn widened(&self, width: usize) -> Self {
        let beyond = 8 * (width - self.width) as u32;
        let clusters = self.clusters.iter().map(|g| Cluster { high: g.high + beyond, ..g.clone() }).collect();
        Self { width, clusters, ..self.clone() }
    }

    /// Bytes of an element in a decoder's memory.
    pub(crate) fn least_width(&self) -> usize {
        self.byte_wide().map_or(self.width, |g| g.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::stream::patches::PatchList;
    use lmc_kernels::entropy::entries::Entries;
    use lmc_kernels::entropy::rans::{COARSE_BITS, Rans};

    fn stream(width: usize, clusters: Vec<Cluster>) -> Stream {
        Stream { clusters, ..Stream::empty(width, Map::Identity) }
    }

    fn cluster(low: u32, high: u32, raw_bits: u32, constant: u64) -> Cluster {
        let coder = Coder::Rans(Box::new(Rans { log_slots: COARSE_BITS, freqs: Entries::none() }));
        Cluster { low, high, raw_bits, sign_plane: false, constant, coder }
    }

    #[test]
    fn streams_that_fit_a_byte_are_narrowed_and_widened() {
        let g = stream(4, vec![cluster(0, 24, 0, 0), cluster(1, 27, 2, 255)]);
        let byte_wide = stream(1, vec![cluster(0, 0, 0, 0), cluster(1, 3, 2, 255)]);
        assert_eq!(g.byte_wide().as_ref(), Some(&byte_wide));
        assert_eq!((g.least_width(), byte_wide.widened(4)), (1, g));
        // A cluster of one value has no symbols and no raw bits, however its dropped bits are split.
        let constant = |low, high| Cluster { coder: Coder::None, ..cluster(low, high, 0, 7) };
        for (low, high) in [(16, 0), (0, 16), (9, 7)] {
            assert_eq!(stream(2, vec![constant(low, high)]).byte_wide(), Some(stream(1, vec![constant(8, 0)])));
        }
    }

    #[test]
    fn other_streams_stay() {
        for g in [cluster(0, 7, 0, 0), cluster(0, 8, 0, 256), cluster(0, 0, 8, 0)] {
            assert_eq!(stream(2, vec![cluster(0, 8, 0, 0), g.clone()]).byte_wide(), None, "{g:?}");
        }
        let good = || stream(2, vec![cluster(0, 8, 0, 0)]);
        assert!(good().byte_wide().is_some());
        assert_eq!(Stream { map: Map::Zigzag, ..good() }.byte_wide(), None);
        let mut patches = PatchList::default();
        patches.push(3, 1);
        assert_eq!(Stream { patches: patches.encode(0).0, ..good() }.byte_wide(), None);
        assert_eq!(Stream { map: Map::Zigzag, ..good() }.least_width(), 2);
    }
}
