//! Encoding clusters.
//!
//! rANS divides by multiplication ([`Row`]). In a coarse table, f = 1 needs no `more`: its quotient is then one too low, which its start
//! corrects; at most one other frequency, above 64, may need it. Symbols are first renamed to their rank among the at most 128 of the
//! table, so that every other column is a 128-entry look-up.

use super::super::super::job::EncodeJob;
use super::super::avx2;
use super::emit::emit;
use super::merge::{self, ANY_8, ANY_16, ANY_32, BYTE_16, BYTES_32};
use super::{
    AHEAD, COARSE, COARSE_MORE, HUFFMAN, RANKED, WINDOW, expect, fine, index, load, load_states, split, store,
    store_states,
};
use crate::cluster::RUN;
use crate::entropy::SETS;
use crate::entropy::lanes::{LaneWriter, LiteralWriter};
use crate::entropy::rans::COARSE_BITS;
use crate::entropy::table::{EncodeKind, EncodeTable, Row};
use crate::inline::{Each, array};
use std::arch::x86_64::*;

/// Columns by symbol (256 entries) or, for tables of rANS, by rank (128 entries).
struct Columns {
    /// Huffman: code length, with bit 7 set for escaped symbols. rANS: the symbol's rank, with the same bit 7.
    first: [__m512i; 4],
    code: [__m512i; 4],
    /// 128 − f, and the start, which is added to the state.
    gap: [__m512i; 2],
    start: [__m512i; 2],
    shift: [__m512i; 2],
    /// The four bytes of M.
    reciprocal: [[__m512i; 2]; 4],
    /// The gap of the frequency whose reciprocal is rounded down.
    more: __m512i,
    /// Fine tables: the eight bytes of a [`Row`] by rank.
    row: [[__m512i; 2]; 8],
}

/// What rANS needs of 64 symbols: bytes in symbol order, and M of each state register's lanes.
struct Looked {
    gap: __m512i,
    start: __m512i,
    shift: __m512i,
    reciprocal: [__m512i; 4],
}

/// Pushes a chunk: first its second half, then its first, as a decoder reads them the other way round. These are macros because the states
/// must stay in registers, and the compiler does not inline functions of this size with several callers.
macro_rules! push {
    ($coder:expr, $e:expr, $t:expr, $x:ident, $lane:expr, $literals:expr) => {{
        let (e, t, lane): ([__m512i; 2], &Columns, &mut LaneWriter) = ($e, $t, $lane);
        let first = [by_symbol(&t.first, e[0]), by_symbol(&t.first, e[1])];
        put_literals(first[1], e[1], $literals);
        put_literals(first[0], e[0], $literals);
        if $coder == RANKED {
            lane.pos -= ranked_half!(t, first[1], $x, window(lane));
            lane.pos -= ranked_half!(t, first[0], $x, window(lane));
        } else {
            lane.pos -= coarse!($coder, e, first, t, $x, window(lane));
        }
    }};
}

/// The words that a chunk took.
macro_rules! coarse {
    ($coder:expr, $e:ident, $first:ident, $t:ident, $x:ident, $words:expr) => {{
        let (e, first, t, words) = ($e, $first, $t, $words);
        let mut taken = 0;
        if $coder == COARSE || $coder == COARSE_MORE {
            let l = [ranked(t, first[0]), ranked(t, first[1])];
            rans_register!($coder, 3, l, t, $x, words, taken);
            rans_register!($coder, 2, l, t, $x, words, taken);
            rans_register!($coder, 1, l, t, $x, words, taken);
            rans_register!($coder, 0, l, t, $x, words, taken);
        } else {
            let code = [by_symbol(&t.code, e[0]), by_symbol(&t.code, e[1])];
            let seven = _mm512_set1_epi8(0x7f);
            let len = _mm512_and_si512(first[0], seven);
            let both = _mm512_add_epi8(len, _mm512_and_si512(first[1], seven));
            huffman_register!(3, len, both, code, $x, words, taken);
            huffman_register!(2, len, both, code, $x, words, taken);
            huffman_register!(1, len, both, code, $x, words, taken);
            huffman_register!(0, len, both, code, $x, words, taken);
        }
        taken
    }};
}

/// The words that half a chunk took.
macro_rules! ranked_half {
    ($t:ident, $ranks:expr, $x:ident, $words:expr) => {{
        let (words, ranks) = ($words, $ranks);
        let byte = |i: usize| _mm512_permutex2var_epi8($t.row[i][0], ranks, $t.row[i][1]);
        let reciprocals = transposed([byte(0), byte(1), byte(2), byte(3)]);
        let uppers = transposed([byte(4), byte(5), byte(6), byte(7)]);
        let rows = |z: usize| {
            let odd = _mm512_srli_epi64::<32>(reciprocals[z]);
            fine::Rows { reciprocals: [reciprocals[z], odd], upper: uppers[z] }
        };
        let taken = fine::push(rows(3), &mut $x[3], words, 0);
        let taken = fine::push(rows(2), &mut $x[2], words, taken);
        let taken = fine::push(rows(1), &mut $x[1], words, taken);
        fine::push(rows(0), &mut $x[0], words, taken)
    }};
}

macro_rules! rans_register {
    ($coder:expr, $z:literal, $l:ident, $t:ident, $x:ident, $words:ident, $taken:ident) => {{
        let full = _mm512_set1_epi32(128);
        let gap = [lane_byte::<$z>($l[0].gap), lane_byte::<$z>($l[1].gap)];
        let freq = [_mm512_sub_epi32(full, gap[0]), _mm512_sub_epi32(full, gap[1])];
        // x ≥ f1·f2·2^18
        let top = _mm512_slli_epi32::<18>(_mm512_madd_epi16(freq[0], freq[1]));
        let due = _mm512_cmpge_epu32_mask($x[$z], top);
        $taken = emit(due, &mut $x[$z], $words, $taken);
        for h in [1, 0] {
            let m = $l[h].reciprocal[$z];
            let mut dividend = $x[$z];
            if $coder == COARSE_MORE {
                let more = _mm512_cmpeq_epi32_mask(gap[h], $t.more);
                dividend = _mm512_mask_add_epi32(dividend, more, dividend, _mm512_set1_epi32(1));
            }
            let even = _mm512_mul_epu32(dividend, m);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(dividend), _mm512_srli_epi64::<32>(m));
            let high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64::<32>(even), odd);
            let q = _mm512_srlv_epi32(high, lane_byte::<$z>($l[h].shift));
            let start = lane_byte::<$z>($l[h].start);
            $x[$z] = _mm512_add_epi32(_mm512_add_epi32($x[$z], start), _mm512_mullo_epi32(q, gap[h]));
        }
    }};
}

macro_rules! huffman_register {
    ($z:literal, $len:ident, $both:ident, $code:ident, $x:ident, $words:ident, $taken:ident) => {{
        let first = lane_byte::<$z>($code[0]);
        let second = _mm512_sllv_epi32(lane_byte::<$z>($code[1]), lane_byte::<$z>($len));
        let both = lane_byte::<$z>($both);
        let over = _mm512_srlv_epi32($x[$z], _mm512_sub_epi32(_mm512_set1_epi32(32), both));
        let due = _mm512_test_epi32_mask(over, over);
        $taken = emit(due, &mut $x[$z], $words, $taken);
        $x[$z] = _mm512_or_si512(_mm512_sllv_epi32($x[$z], both), _mm512_or_si512(first, second));
    }};
}

kernels! {
    pub(in crate::arch) fn cluster(job: &mut EncodeJob<'_>) {
        match merge::way(job.width, &job.shape) {
            Some(BYTE_16) => with_way::<BYTE_16>(job),
            Some(BYTES_32) => with_way::<BYTES_32>(job),
            Some(ANY_8) => with_way::<ANY_8>(job),
            Some(ANY_16) => with_way::<ANY_16>(job),
            Some(ANY_32) => with_way::<ANY_32>(job),
            _ => avx2::encode::cluster(job),
        }
    }

    fn with_way<const WAY: u8>(job: &mut EncodeJob<'_>) {
        match job.table {
            None => {
                let raw_len = job.shape.raw_len(RUN);
                for (i, &run) in job.runs.iter().enumerate() {
                    let elements = run_of(job.elements, job.width, run);
                    for h in 0..2 {
                        split::half::<WAY>(&job.shape, h, elements, &mut job.raw[i * raw_len..][..raw_len]);
                    }
                }
            }
            Some(t) => match kind_of(t) {
                Some(HUFFMAN) => chunks::<WAY, HUFFMAN>(job, t),
                Some(COARSE) => chunks::<WAY, COARSE>(job, t),
                Some(COARSE_MORE) => chunks::<WAY, COARSE_MORE>(job, t),
                Some(_) => chunks::<WAY, RANKED>(job, t),
                None => avx2::encode::cluster(job),
            },
        }
    }

    fn chunks<const WAY: u8, const TABLE: u8>(job: &mut EncodeJob<'_>, table: &EncodeTable) {
        let columns = columns(table);
        let raw_len = job.shape.raw_len(RUN);
        // Variables of their own for each set: an array that is indexed in a loop would live in memory.
        let [lane0, lane1] = &mut *job.lanes;
        let (mut x0, mut x1) = (load_states(&lane0.x), load_states(&lane1.x));
        macro_rules! chunk {
            ($x:ident, $lane:ident, $i:expr) => {{
                let i = $i;
                if let Some(ahead) = i.checked_sub(AHEAD) {
                    expect::<_MM_HINT_T0>(run_of(job.elements, job.width, job.runs[ahead]));
                    expect::<_MM_HINT_ET0>(&job.raw[ahead * raw_len..][..raw_len]);
                }
                let elements = run_of(job.elements, job.width, job.runs[i]);
                let raw = &mut job.raw[i * raw_len..][..raw_len];
                let e0 = split::half::<WAY>(&job.shape, 0, elements, raw);
                let e1 = split::half::<WAY>(&job.shape, 1, elements, raw);
                push!(TABLE, [e0, e1], &columns, $x, $lane, job.literals);
            }};
        }
        // From the last chunk to the first. Without its pair the last one belongs to set 0.
        let mut i = job.runs.len();
        if i % SETS == 1 {
            i -= 1;
            chunk!(x0, lane0, i);
        }
        while i > 0 {
            i -= SETS;
            chunk!(x1, lane1, i + 1);
            chunk!(x0, lane0, i);
        }
        store_states(&mut lane0.x, &x0);
        store_states(&mut lane1.x, &x1);
    }

    fn columns(t: &EncodeTable) -> Columns {
        let wide = |c: &[u8; 256]| -> [__m512i; 4] { array(|i| load(c[64 * i..].first_chunk().expect("256 entries"))) };
        let narrow = |c: &[u8; 128]| -> [__m512i; 2] { array(|i| load(c[64 * i..].first_chunk().expect("128 entries"))) };
        let escaped = |s: usize| if t.kept[s] { 0 } else { 0x80u8 };
        let zero = [_mm512_setzero_si512(); 2];
        let none = [_mm512_setzero_si512(); 4];
        let columns = |first: &[u8; 256]| Columns {
            first: wide(first), code: none, gap: zero, start: zero, shift: zero, reciprocal: [zero; 4], more: zero[0], row: [zero; 8],
        };
        match &t.kind {
            EncodeKind::Huffman(codes) => {
                Columns { code: wide(&codes.code), ..columns(&array(|s| codes.len[s] | escaped(s))) }
            }
            EncodeKind::Coarse(rows) => {
                let (mut gap, mut start, mut shift) = ([0u8; 128], [0u8; 128], [0u8; 128]);
                let mut m = [[0u8; 128]; 4];
                let (rank, symbols) = ranks(&t.kept);
                // Without an escape, all symbols that occur are in the table.
                for (r, row) in symbols.into_iter().map(|s| rows[s]).enumerate().filter(|(_, row)| row.freq() > 0) {
                    let to_all = (1 << COARSE_BITS) - row.freq();
                    (gap[r], start[r], shift[r]) = (to_all as u8, row.start() as u8, row.shift() as u8);
                    if row.freq() == 1 {
                        start[r] += gap[r];
                    }
                    row.reciprocal().to_le_bytes().into_iter().zip(&mut m).for_each(|(byte, column)| column[r] = byte);
                }
                let m = m.each(|m| narrow(&m));
                let more = rounded_down(rows).map_or(0, |row| (1 << COARSE_BITS) - row.freq());
                Columns { gap: narrow(&gap), start: narrow(&start), shift: narrow(&shift), reciprocal: m, more: _mm512_set1_epi32(more as i32), ..columns(&rank) }
            }
            EncodeKind::Fine(rows) => {
                let (rank, symbols) = ranks(&t.kept);
                let mut row = [[0u8; 128]; 8];
                for (r, s) in symbols.into_iter().enumerate() {
                    rows[s].0.to_le_bytes().into_iter().zip(&mut row).for_each(|(byte, column)| column[r] = byte);
                }
                Columns { row: row.each(|c| narrow(&c)), ..columns(&rank) }
            }
        }
    }

    /// A look-up in 256 entries.
    fn by_symbol(t: &[__m512i; 4], s: __m512i) -> __m512i {
        let low = _mm512_permutex2var_epi8(t[0], s, t[1]);
        let high = _mm512_permutex2var_epi8(t[2], s, t[3]);
        _mm512_mask_blend_epi8(_mm512_movepi8_mask(s), low, high)
    }

    /// Transposes 4 x 4 bytes in every four dwords: byte z of dword i of register j becomes byte j of dword i of register z.
    fn transposed(m: [__m512i; 4]) -> [__m512i; 4] {
        let even = _mm512_set1_epi16(0xff);
        let pair = |a: __m512i, b: __m512i| {
            (
                _mm512_ternarylogic_epi32::<0xca>(even, a, _mm512_slli_epi16::<8>(b)),
                _mm512_ternarylogic_epi32::<0xca>(even, _mm512_srli_epi16::<8>(a), b),
            )
        };
        let (low_even, low_odd) = pair(m[0], m[1]);
        let (high_even, high_odd) = pair(m[2], m[3]);
        let low = |a: __m512i, b: __m512i| _mm512_mask_blend_epi16(0xaaaa_aaaa, a, _mm512_slli_epi32::<16>(b));
        let high = |a: __m512i, b: __m512i| _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(a), b);
        [low(low_even, high_even), low(low_odd, high_odd), high(low_even, high_even), high(low_odd, high_odd)]
    }

    /// Look-ups by rank; bit 7 of a rank, the escape's mark, is not part of an index.
    fn ranked(t: &Columns, rank: __m512i) -> Looked {
        let look = |c: &[__m512i; 2]| _mm512_permutex2var_epi8(c[0], rank, c[1]);
        let reciprocal = transposed(array(|i| look(&t.reciprocal[i])));
        Looked { gap: look(&t.gap), start: look(&t.start), shift: look(&t.shift), reciprocal }
    }

    /// Writes the literals among 64 symbols in front of those written before. Branchless, as when decoding; bytes that the store leaves in
    /// front of them are overwritten later or not used.
    fn put_literals(rank: __m512i, symbols: __m512i, literals: &mut LiteralWriter) {
        let escaped = _mm512_movepi8_mask(rank);
        let n = escaped.count_ones();
        let packed = _mm512_maskz_compress_epi8(escaped, symbols);
        // To the end of the register.
        let packed = _mm512_permutexvar_epi8(_mm512_add_epi8(index(IOTA), _mm512_set1_epi8(n as i8)), packed);
        store(literals.bytes[..literals.pos].last_chunk_mut().expect("the job was checked"), packed);
        literals.pos -= n as usize;
    }

    /// Byte Z of every dword.
    fn lane_byte<const Z: usize>(v: __m512i) -> __m512i {
        let byte = _mm512_set1_epi32(0xff);
        match Z {
            0 => _mm512_and_si512(v, byte),
            1 => _mm512_and_si512(_mm512_srli_epi32::<8>(v), byte),
            2 => _mm512_and_si512(_mm512_srli_epi32::<16>(v), byte),
            _ => _mm512_srli_epi32::<24>(v),
        }
    }
}

const IOTA: [u8; 64] = {
    let mut t = [0; 64];
    let mut i = 0;
    while i < 64 {
        t[i] = i as u8;
        i += 1;
    }
    t
};

/// The kind of a table; `None` for a fine one with more symbols than registers hold.
fn kind_of(t: &EncodeTable) -> Option<u8> {
    match &t.kind {
        EncodeKind::Huffman(_) => Some(HUFFMAN),
        EncodeKind::Coarse(rows) if rounded_down(rows).is_some() => Some(COARSE_MORE),
        EncodeKind::Coarse(_) => Some(COARSE),
        EncodeKind::Fine(_) => (ranks(&t.kept).1.len() <= 128).then_some(RANKED),
    }
}

/// The row of a coarse table whose reciprocal is rounded down, but for those of frequency 1. Frequencies up to 64 have none.
fn rounded_down(rows: &[Row; 256]) -> Option<Row> {
    rows.iter().copied().find(|row| row.freq() > 1 && row.more())
}

/// The rank of every symbol among those in the table, and the symbols by rank. Symbols that are not in the table have
/// the last rank, with bit 7 set; one of them represents all.
fn ranks(kept: &[bool; 256]) -> ([u8; 256], Vec<usize>) {
    let mut symbols: Vec<usize> = (0..256).filter(|&s| kept[s]).collect();
    let mut rank = [0x80 | symbols.len() as u8; 256];
    symbols.iter().enumerate().for_each(|(r, &s)| rank[s] = r as u8);
    symbols.extend(kept.iter().position(|k| !k));
    (rank, symbols)
}

/// The place of the next words.
#[inline(always)]
fn window(lane: &mut LaneWriter) -> &mut [u16; WINDOW] {
    lane.words[..lane.pos].last_chunk_mut().expect("the job was checked")
}

/// The elements of a run.
#[inline(always)]
fn run_of(elements: &[u8], width: usize, run: u32) -> &[u8] {
    &elements[run as usize * RUN * width..][..RUN * width]
}
