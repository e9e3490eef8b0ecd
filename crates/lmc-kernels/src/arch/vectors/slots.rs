//! The decoder's tables by slot.
//!
//! Most clusters have at most 16 symbols. Their slots are first looked up as the rank of a symbol, so that every column
//! of the table is one shuffle. The rank itself takes three or four shuffles, because most slots need only four of
//! their seven bits (the low ones for Huffman, whose codes are read from the bottom, the high ones for rANS, whose
//! slots are in the order of symbols): such a *prefix* has one symbol or, for rANS, two and a border between them. Up to
//! two prefixes may be mixed; they get a table of eight entries each, for the other three bits.

use crate::entropy::rans::{COARSE, COARSE_BITS};
use crate::inline::{Each, array};

/// Ranks and prefixes.
pub(in crate::arch) const SHORT: usize = 16;
/// Not an index: a shuffle makes it 0.
const NONE: u8 = 0x80;

/// A table by slot, and by rank where it can be.
pub(in crate::arch) struct Slots {
    pub(in crate::arch) huffman: bool,
    pub(in crate::arch) entries: Entries,
    pub(in crate::arch) by_rank: Option<ByRank>,
}

/// Columns by slot, or by rank.
pub(in crate::arch) struct Entries {
    pub(in crate::arch) symbol: [u8; COARSE],
    pub(in crate::arch) freq: [u8; COARSE],
    /// What to subtract from the slot to get the offset; not used for Huffman.
    pub(in crate::arch) start: [u8; COARSE],
}

pub(in crate::arch) struct ByRank {
    pub(in crate::arch) entries: Entries,
    /// By prefix: the rank of its first slot, 0 if it is mixed.
    pub(in crate::arch) first: [u8; SHORT],
    /// By prefix: the last slot with that rank, 127 if all have it.
    pub(in crate::arch) border: [u8; SHORT],
    /// By prefix: where its entries in `rest` begin, `NONE` if it is not mixed.
    pub(in crate::arch) mixed: [u8; SHORT],
    /// Ranks of the slots of mixed prefixes.
    pub(in crate::arch) rest: [u8; SHORT],
}

impl Slots {
    pub(in crate::arch) fn new(slots: &[u32; COARSE]) -> Self {
        let (symbol, freq, offset) =
            (slots.each(|e| e as u8), slots.each(|e| (e >> 8) as u8), slots.each(|e| (e >> 20) as u8));
        // Kernels multiply by them in as many bits as that takes.
        assert!(freq.iter().all(|&f| f < 128), "frequencies were checked");
        let huffman = (0..COARSE).all(|slot| {
            let len = COARSE_BITS - freq[slot].ilog2();
            freq[slot].is_power_of_two() && usize::from(offset[slot]) == slot >> len
        });
        let start = array(|slot| (slot as u8).wrapping_sub(offset[slot]));
        let entries = Entries { symbol, freq, start };
        Self { huffman, by_rank: entries.ranked(huffman), entries }
    }
}

impl Entries {
    fn ranked(&self, huffman: bool) -> Option<ByRank> {
        let mut r = ByRank {
            entries: Self { symbol: [0; COARSE], freq: [0; COARSE], start: [0; COARSE] },
            first: [0; SHORT],
            border: [127; SHORT],
            mixed: [NONE; SHORT],
            rest: [0; SHORT],
        };
        let e = &mut r.entries;
        let mut rank = [0u8; COARSE];
        let mut ranks = 0;
        for (slot, rank) in rank.iter_mut().enumerate() {
            let entry = (self.symbol[slot], self.freq[slot], self.start[slot]);
            let same = |i: &usize| entry.0 == e.symbol[*i] && (huffman || entry.2 == e.start[*i]);
            let found = (0..ranks).rev().find(same).unwrap_or(ranks);
            if found == ranks {
                ranks += 1;
                (e.symbol[found], e.freq[found], e.start[found]) = entry;
            }
            *rank = found as u8;
        }
        let mut mixed = 0;
        for p in 0..SHORT {
            let slots: [usize; 8] = array(|q| if huffman { p | q << 4 } else { p << 3 | q });
            let a = rank[slots[0]];
            let border = slots.iter().take_while(|&&s| rank[s] == a).count();
            if border == 8 {
                r.first[p] = a;
            } else if !huffman && slots[border..].iter().all(|&s| rank[s] == a + 1) {
                r.first[p] = a;
                r.border[p] = slots[border] as u8 - 1;
            } else {
                let entries = r.rest.as_chunks_mut::<8>().0.get_mut(mixed)?;
                *entries = slots.each(|s| rank[s]);
                r.mixed[p] = 8 * mixed as u8;
                mixed += 1;
            }
        }
        (ranks <= SHORT).then_some(r)
    }
}
