//! The kernels of each instruction set, and the only place where they are dispatched.

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
#[allow(unsafe_code)]
mod aarch64;
#[cfg(test)]
mod conformance;
pub mod job;
mod portable;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod vectors;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86;

use crate::cluster::element::with_element;
use crate::cluster::runs::{RunStats, run_ors, run_stats};
use crate::entropy::lanes::{LaneReader, LaneWriter, LiteralReader, LiteralWriter};
use crate::entropy::table::{DecodeTable, EncodeTable};
use crate::entropy::{CHUNK, CHUNK_WORDS, LANES};
use crate::isa::{Isa, Kind};
use crate::map::Map;
use crate::predict::changes::{self, Changes, Compared};
use crate::predict::job::{Model, Rank, Streams};
use crate::predict::select::Selection;
use crate::predict::{Contexts, partition};
use job::{DecodeJob, EncodeJob};
use lmc_layout::error::Result;

/// Calls the kernel of an instruction set, or does the same with the portable loops. NEON has a kernel only if `Neon` is named.
macro_rules! dispatch {
    ($isa:expr, $module:ident::$kernel:ident $args:tt, $portable:expr $(, $neon:ident)?) => {
        match $isa.kind() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` of a kind exists only where the features that its kernels are compiled for were detected.
            Kind::Avx512 => unsafe { x86::avx512::$module::$kernel $args },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Kind::Avx2 => unsafe { x86::avx2::$module::$kernel $args },
            $(
                #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                // SAFETY: as above.
                Kind::$neon => unsafe { aarch64::neon::$module::$kernel $args },
            )?
            _ => $portable,
        }
    };
}

#[allow(unsafe_code)]
impl Isa {
    /// Decodes the whole runs of a cluster.
    pub fn decode_cluster(self, mut job: DecodeJob<'_, '_>) -> Result<()> {
        job.check();
        dispatch!(self, decode::cluster(&mut job), portable::decode_cluster(&mut job), Neon)
    }

    /// Encodes the whole runs of a cluster.
    pub fn encode_cluster(self, mut job: EncodeJob<'_>) {
        job.check();
        dispatch!(self, encode::cluster(&mut job), portable::encode_cluster(&mut job), Neon)
    }

    /// Appends the statistics of the runs of a column.
    pub fn run_stats(self, width: usize, map: Map, elements: &[u8], stats: &mut RunStats) {
        dispatch!(
            self,
            stats::run_stats(width, map, elements, stats),
            with_element!(width, E => run_stats::<E>(map, elements, stats))
        )
    }
}

/// The predict stage.
#[allow(unsafe_code)]
impl Isa {
    /// Finds the elements that differ from those they are compared with. False if they are more than `most`; the result is then invalid.
    #[must_use]
    pub fn changes(self, c: &Compared<'_>, most: usize, found: &mut Changes) -> bool {
        c.check();
        dispatch!(self, changes::find(c, most, found), changes::find(c, most, found))
    }

    /// Appends the OR of each run of elements of `width` bytes.
    pub fn run_ors(self, width: usize, elements: &[u8], ors: &mut Vec<u64>) {
        dispatch!(self, stats::run_ors(width, elements, ors), with_element!(width, E => run_ors::<E>(elements, ors)))
    }

    /// The number of elements of every context.
    pub fn count_contexts(self, m: &Model<'_>) -> Vec<usize> {
        m.check();
        dispatch!(self, predict::count(m), partition::count(m))
    }

    /// Appends the rank of each of the elements `at`, which rise. Returns the counts of [`Self::count_contexts`].
    pub fn rank_in_contexts(self, m: &Model<'_>, at: &[u32], ranks: &mut Vec<Rank>) -> Vec<usize> {
        m.check();
        assert!(m.contexts.is_some() && u32::try_from(m.len).is_ok(), "there are contexts, and ranks fit");
        assert!(at.is_sorted_by(|a, b| a < b) && at.last().is_none_or(|&e| (e as usize) < m.len), "rising elements");
        dispatch!(self, predict::rank(m, at, ranks), partition::rank(m, at, ranks))
    }

    /// Finds elements by context and rank, with one selection per context. Afterwards [`Selection::seen`] is the number of elements of
    /// each context.
    pub fn select_in_contexts(self, m: &Model<'_>, selections: &mut [Selection<'_>]) {
        m.check();
        assert_eq!(m.contexts.map(Contexts::count), Some(selections.len()), "a selection for each context");
        assert!(u32::try_from(m.len).is_ok(), "ranks fit");
        dispatch!(self, predict::select(m, selections), partition::select(m, selections))
    }

    /// Writes the residuals of `elements` to `streams`, and truncates these. False if a context has no room, or too many residuals exceed a
    /// byte-wide stream; the contents of `streams` are then unspecified.
    #[must_use]
    pub fn partition(self, m: &Model<'_>, elements: &[u8], streams: &mut Streams) -> bool {
        m.check();
        assert_eq!(elements.len(), m.len * m.width, "all elements");
        dispatch!(self, predict::scatter(m, elements, streams), partition::partition(m, elements, streams))
    }

    /// The inverse of [`Self::partition`]. False if the length of a stream is not that of its context; the contents of `out` are then
    /// unspecified.
    #[must_use]
    pub fn restore(self, m: &Model<'_>, streams: &Streams, out: &mut [u8]) -> bool {
        m.check();
        assert_eq!(out.len(), m.len * m.width, "all elements");
        dispatch!(self, predict::gather(m, streams, out), partition::restore(m, streams, out), Neon)
    }

    /// [`Self::restore`] for a single context; `out` holds its stream.
    pub fn restore_in_place(self, m: &Model<'_>, out: &mut [u8]) {
        m.check();
        assert!(m.contexts.is_none(), "there is one context");
        assert_eq!(out.len(), m.len * m.width, "all elements");
        dispatch!(self, predict::undo(m, out), partition::restore_in_place(m, out))
    }
}

/// Decodes one chunk: the partial run of a cluster.
pub fn decode_chunk(
    table: &DecodeTable,
    lane: &mut LaneReader<'_>,
    literals: &mut LiteralReader<'_>,
    out: &mut [u8; CHUNK],
) -> Result<()> {
    portable::decode_chunk(table, lane, literals, &mut [0; LANES], out)
}

/// Encodes one chunk: the partial run of a cluster.
pub fn encode_chunk(table: &EncodeTable, lane: &mut LaneWriter, literals: &mut LiteralWriter, symbols: &[u8; CHUNK]) {
    assert!(lane.pos >= CHUNK_WORDS && literals.pos >= CHUNK, "room for a chunk");
    portable::encode_chunk(table, lane, literals, symbols);
}
