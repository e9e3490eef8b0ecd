//! Fine tables in registers: a slot is first looked up as the rank of its symbol, among at most 128.
//!
//! A *cell* is 32 slots. Most have one symbol, or two with a border between them: their entry is the rank of the first.
//! Rare symbols share cells; up to sixteen cells may be *mixed*, and have a table of 32 ranks. Everything is a permute of
//! 128 bytes for 64 lanes at a time, which is twice as fast as gathering from 16 KiB.

use super::{States, load, low_bytes};
use crate::entropy::rans::{FINE, FINE_BITS};
use crate::inline::Each;
use std::arch::x86_64::*;

/// Slots of a cell, cells, and entries of a column.
const CELL: usize = 32;
const ENTRIES: usize = FINE / CELL;
/// Cells that may be mixed, and tables for their slots.
const MIXED: usize = 16;
const RESTS: usize = MIXED * CELL / ENTRIES;

/// Flag of a mixed cell in its entry; bits 5 and 6 are then the lower bits of its number.
const IS_MIXED: u8 = 0x80;

/// A table by rank.
pub(super) struct Ranks {
    cells: [u8; ENTRIES],
    /// The first slot of a cell's second symbol, `CELL` if there is none. In mixed cells, bits 6 and 7 are the upper bits of their number.
    borders: [u8; ENTRIES],
    /// Ranks of the slots of mixed cells.
    rests: [[u8; ENTRIES]; RESTS],
    symbol: [u8; ENTRIES],
    /// Lower and upper bytes.
    freq: [[u8; ENTRIES]; 2],
    start: [[u8; ENTRIES]; 2],
}

/// [`Ranks`] in registers.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    cells: [__m512i; 2],
    borders: [__m512i; 2],
    rests: [[__m512i; 2]; RESTS],
    symbol: [__m512i; 2],
    freq: [[__m512i; 2]; 2],
    start: [[__m512i; 2]; 2],
}

impl Ranks {
    /// The table with these slots, if there is room for its symbols and mixed cells.
    pub(super) fn new(slots: &[u32; FINE]) -> Option<Self> {
        let mut r = Self {
            cells: [0; ENTRIES],
            borders: [CELL as u8; ENTRIES],
            rests: [[0; ENTRIES]; RESTS],
            symbol: [0; ENTRIES],
            freq: [[0; ENTRIES]; 2],
            start: [[0; ENTRIES]; 2],
        };
        // First slots of the symbols, and the number that begin inside of a cell.
        let mut starts = [FINE as u16; ENTRIES + 1];
        let mut inside = [0u8; ENTRIES];
        let (mut rank, mut start) = (0, 0);
        while start < FINE {
            if rank == ENTRIES {
                return None;
            }
            let entry = slots[start];
            let freq = entry >> 8 & 0xfff;
            r.symbol[rank] = entry as u8;
            [r.freq[0][rank], r.freq[1][rank], ..] = freq.to_le_bytes();
            [r.start[0][rank], r.start[1][rank], ..] = start.to_le_bytes();
            starts[rank] = start as u16;
            let end = start + freq as usize;
            r.cells[start.div_ceil(CELL)..end.div_ceil(CELL)].fill(rank as u8);
            if start % CELL != 0 {
                inside[start / CELL] += 1;
                if inside[start / CELL] == 1 {
                    r.borders[start / CELL] = (start % CELL) as u8;
                }
            }
            start = end;
            rank += 1;
        }
        for (mixed, cell) in (0..ENTRIES).filter(|&c| inside[c] > 1).enumerate() {
            if mixed == MIXED {
                return None;
            }
            let mut rank = usize::from(r.cells[cell]);
            for (i, rest) in r.rests.as_flattened_mut()[CELL * mixed..][..CELL].iter_mut().enumerate() {
                rank += usize::from(usize::from(starts[rank + 1]) == CELL * cell + i);
                *rest = rank as u8;
            }
            r.cells[cell] = IS_MIXED | (mixed % 4 * CELL) as u8;
            r.borders[cell] = ((mixed / 4) as u8) << 6;
        }
        Some(r)
    }
}

impl Columns {
    kernels! {
        pub(super) fn new(r: &Ranks) -> Self {
            let pair = |c: &[u8; ENTRIES]| {
                let [a, b] = c.as_chunks::<64>().0.first_chunk::<2>().expect("128 entries");
                [load(a), load(b)]
            };
            Self {
                cells: pair(&r.cells),
                borders: pair(&r.borders),
                rests: [pair(&r.rests[0]), pair(&r.rests[1]), pair(&r.rests[2]), pair(&r.rests[3])],
                symbol: pair(&r.symbol),
                freq: [pair(&r.freq[0]), pair(&r.freq[1])],
                start: [pair(&r.start[0]), pair(&r.start[1])],
            }
        }

        /// For a coder without such a table.
        pub(super) fn none() -> Self {
            let none = [_mm512_setzero_si512(); 2];
            Self { cells: none, borders: none, rests: [none; RESTS], symbol: none, freq: [none; 2], start: [none; 2] }
        }
    }
}

kernels! {
    /// Decodes one symbol per lane: 64 symbols in order.
    pub(super) fn step(x: &mut States, t: &Columns) -> __m512i {
        let look_up = |c: &[__m512i; 2], index: __m512i| _mm512_permutex2var_epi8(c[0], index, c[1]);
        let cell = bytes_from_bit_5(x);
        let place = _mm512_and_si512(low_bytes(x), _mm512_set1_epi8(CELL as i8 - 1));
        let entry = look_up(&t.cells, cell);
        let border = look_up(&t.borders, cell);
        let second = _mm512_cmpge_epu8_mask(place, border);
        let plain = _mm512_mask_sub_epi8(entry, second, entry, _mm512_set1_epi8(-1));
        // (entry & 0x60) | place
        let index = _mm512_ternarylogic_epi32::<0xf8>(place, entry, _mm512_set1_epi8(0x60));
        let rests = t.rests.each(|rest| look_up(&rest, index));
        let odd = _mm512_test_epi8_mask(border, _mm512_set1_epi8(0x40));
        let upper = _mm512_movepi8_mask(border);
        let rest = _mm512_mask_blend_epi8(
            upper,
            _mm512_mask_blend_epi8(odd, rests[0], rests[1]),
            _mm512_mask_blend_epi8(odd, rests[2], rests[3]),
        );
        let rank = _mm512_mask_blend_epi8(_mm512_movepi8_mask(entry), plain, rest);
        let freq = dwords([look_up(&t.freq[0], rank), look_up(&t.freq[1], rank)]);
        let start = dwords([look_up(&t.start[0], rank), look_up(&t.start[1], rank)]);
        for (z, x) in x.iter_mut().enumerate() {
            let slot = _mm512_and_si512(*x, _mm512_set1_epi32(FINE as i32 - 1));
            let scaled = _mm512_mullo_epi32(_mm512_srli_epi32::<FINE_BITS>(*x), freq[z]);
            *x = _mm512_add_epi32(scaled, _mm512_sub_epi32(slot, start[z]));
        }
        look_up(&t.symbol, rank)
    }

    /// Bits 5 to 12 of every state, in the order of lanes.
    fn bytes_from_bit_5(x: &States) -> __m512i {
        // Every byte of a dword those bits of it.
        let at = _mm512_set1_epi64(0x2525_2525_0505_0505);
        let v = _mm512_multishift_epi64_epi8(at, x[0]);
        let v = _mm512_mask_multishift_epi64_epi8(v, 0x2222_2222_2222_2222, at, x[1]);
        let v = _mm512_mask_multishift_epi64_epi8(v, 0x4444_4444_4444_4444, at, x[2]);
        _mm512_mask_multishift_epi64_epi8(v, 0x8888_8888_8888_8888, at, x[3])
    }

    /// The dwords of every state register, from their lower and upper bytes.
    fn dwords(bytes: [__m512i; 2]) -> [__m512i; 4] {
        let [low, high] = bytes;
        let lower = _mm512_set1_epi16(0xff);
        let word = _mm512_set1_epi32(0xffff);
        let even = _mm512_ternarylogic_epi32::<0xca>(lower, low, _mm512_slli_epi16::<8>(high));
        let odd = _mm512_ternarylogic_epi32::<0xca>(lower, _mm512_srli_epi16::<8>(low), high);
        [
            _mm512_and_si512(even, word),
            _mm512_and_si512(odd, word),
            _mm512_srli_epi32::<16>(even),
            _mm512_srli_epi32::<16>(odd),
        ]
    }
}
