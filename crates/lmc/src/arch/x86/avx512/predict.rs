//! The predict stage: residuals by class and back.
//!
//! 64 elements are taken at once, with their classes in one register, of which every class makes a mask. To deal residuals,
//! the numbers of the lanes in the mask are compressed, as bytes whatever the elements' width, and name the residuals that
//! go to the end of the class's section: most often these fit into one register. To collect them, they are expanded from
//! there. Whole registers are stored and loaded: behind every section there is room for one. Where a section has single
//! bytes of wider elements, those bytes themselves are compressed and expanded, 64 at once.
//!
//! On Zen 5 a compress waits for its destination even where the mask zeroes it: those here keep what was in their source,
//! so that both are one register. Measured and not taken: class by class through a tile, with the section's end in a
//! register (5 GB/s where this has 8); skipping classes that have none of the 64 elements (6 GB/s where 4 of 11 are rare);
//! collecting into one sorted register and permuting that (as fast, at most).

use super::super::super::{Isa, Kind};
use super::{AHEAD, every, expect, in_register, index, load, store};
use crate::group::RUN;
use crate::group::element::with_element;
use crate::predict::job::{Model, Overflow, Place, Rank, Sections, most_overflows, places_by_width, trim};
use crate::predict::partition::{self as portable, CLASSES, TILE, note_overflows, of_tile};
use crate::predict::residual;
use crate::predict::select::Selection;
use crate::predict::unchanged::differing;
use std::arch::x86_64::*;

/// Elements taken at once.
const STEP: usize = 64;
/// Cache lines of a section between asking for one and using it.
const AHEAD_LINES: usize = 4;
/// The class of what is no element.
const NO_CLASS: u8 = u8::MAX;

pub(in crate::arch) fn count_classes(isa: Isa, m: &Model<'_>) -> Vec<usize> {
    assert_eq!(isa.0, Kind::Avx512);
    // SAFETY: an `Isa` of this kind exists only where the features were detected.
    unsafe { count(m) }
}

pub(in crate::arch) fn rank_in_classes(isa: Isa, m: &Model<'_>, at: &[u32], ranks: &mut Vec<Rank>) -> Vec<usize> {
    assert_eq!(isa.0, Kind::Avx512);
    // SAFETY: as above.
    unsafe { rank(m, at, ranks) }
}

pub(in crate::arch) fn select_in_classes(isa: Isa, m: &Model<'_>, selections: &mut [Selection<'_>]) {
    assert_eq!(isa.0, Kind::Avx512);
    // SAFETY: as above.
    unsafe { select(m, selections) }
}

pub(in crate::arch) fn partition(isa: Isa, m: &Model<'_>, elements: &[u8], sections: &mut Sections) -> bool {
    assert_eq!(isa.0, Kind::Avx512);
    // SAFETY: as above.
    unsafe { deal(m, elements, sections) }
}

pub(in crate::arch) fn restore(isa: Isa, m: &Model<'_>, sections: &Sections, out: &mut [u8]) -> bool {
    assert_eq!(isa.0, Kind::Avx512);
    // SAFETY: as above.
    unsafe { collect(m, sections, out) }
}

pub(in crate::arch) fn restore_in_place(isa: Isa, m: &Model<'_>, out: &mut [u8]) {
    assert_eq!(isa.0, Kind::Avx512);
    // SAFETY: as above.
    unsafe { undo(m, out) }
}

pub(in crate::arch) fn unchanged_runs(isa: Isa, width: usize, elements: &[u8], prediction: &[u8], map: &mut Vec<u8>) {
    assert_eq!(isa.0, Kind::Avx512);
    // SAFETY: as above.
    unsafe { unchanged(width, elements, prediction, map) }
}

/// What finds the classes of elements.
struct Finder<'a> {
    context: &'a [u8],
    width: usize,
    /// The class of every key.
    table: [__m512i; 4],
    /// An element of the context, rotated left by one and shifted right by the classes' shift, is what comes of these two shifts.
    right: __m128i,
    left: __m128i,
    classes: usize,
}

/// The classes of the elements of a tile, in whole steps.
#[repr(align(64))]
struct Ids([u8; TILE]);

/// The residuals of a tile, of any width.
#[repr(align(64))]
struct Residuals([u8; 8 * TILE]);

kernels! {
    fn unchanged(width: usize, elements: &[u8], prediction: &[u8], map: &mut Vec<u8>) {
        let run = RUN * width;
        for (i, (e, p)) in elements.chunks(run).zip(prediction.chunks(run)).enumerate() {
            // Nearly the first time that a block is looked at.
            let ahead = (i + AHEAD) * run..(i + AHEAD + 1) * run;
            expect::<_MM_HINT_T0>(elements.get(ahead.clone()).unwrap_or_default());
            expect::<_MM_HINT_T0>(prediction.get(ahead).unwrap_or_default());
            map.push(u8::from(differing(e, p) == 0));
        }
    }

    fn count(m: &Model<'_>) -> Vec<usize> {
        let Some(f) = finder(m) else { return vec![m.len] };
        let mut counts = vec![0; f.classes];
        let mut ids = Ids([NO_CLASS; TILE]);
        for i in (0..m.len).step_by(TILE) {
            let ids = find(&f, i, TILE.min(m.len - i), &mut ids);
            for (class, count) in (0..).zip(&mut counts) {
                let class = _mm512_set1_epi8(class);
                for ids in ids {
                    *count += _mm512_cmpeq_epi8_mask(load(ids), class).count_ones() as usize;
                }
            }
        }
        counts
    }

    fn rank(m: &Model<'_>, at: &[u32], ranks: &mut Vec<Rank>) -> Vec<usize> {
        let Some(f) = finder(m) else { return portable::rank(m, at, ranks) };
        let mut counts = vec![0; f.classes];
        let mut ids = Ids([NO_CLASS; TILE]);
        // By class: how many there are before each step of a tile.
        let mut before = [[0; TILE / STEP]; CLASSES];
        let mut left = at;
        for i in (0..m.len).step_by(TILE) {
            let n = TILE.min(m.len - i);
            let ids = find(&f, i, n, &mut ids);
            for (class, (count, before)) in (0..).zip(counts.iter_mut().zip(&mut before)) {
                let class = _mm512_set1_epi8(class);
                for (ids, before) in ids.iter().zip(before) {
                    *before = *count as u32;
                    *count += _mm512_cmpeq_epi8_mask(load(ids), class).count_ones() as usize;
                }
            }
            for e in of_tile(&mut left, i, n) {
                let (step, lane) = (e / STEP, e % STEP);
                let class = ids[step][lane];
                let mask = _mm512_cmpeq_epi8_mask(load(&ids[step]), _mm512_set1_epi8(class.cast_signed()));
                let before = before[usize::from(class)][step] + (mask & ((1 << lane) - 1)).count_ones();
                ranks.push(Rank { class, before });
            }
        }
        counts
    }

    fn select(m: &Model<'_>, selections: &mut [Selection<'_>]) {
        let Some(f) = finder(m) else { return portable::select(m, selections) };
        let mut ids = Ids([NO_CLASS; TILE]);
        for i in (0..m.len).step_by(TILE) {
            let ids = find(&f, i, TILE.min(m.len - i), &mut ids);
            for (class, selection) in (0..).zip(&mut *selections) {
                let class = _mm512_set1_epi8(class);
                for (i, ids) in (i as u32..).step_by(STEP).zip(ids) {
                    let mask = _mm512_cmpeq_epi8_mask(load(ids), class);
                    if !selection.pass(mask.count_ones()) {
                        selection.step(i, [mask]);
                    }
                }
            }
        }
    }

    fn deal(m: &Model<'_>, elements: &[u8], sections: &mut Sections) -> bool {
        let Some(f) = finder(m) else { return portable::partition(m, elements, sections) };
        let (bytes, sections, overflows) = sections.parts_mut();
        let mut places = places_by_width(bytes.len(), sections, f.classes, m.width);
        let mut ids = Ids([NO_CLASS; TILE]);
        let mut residuals = Residuals([0; 8 * TILE]);
        let tile = TILE * m.width;
        for (i, of_tile) in elements.chunks(tile).enumerate() {
            let n = of_tile.len();
            expect::<_MM_HINT_T0>(elements.get((i + 1) * tile..(i + 2) * tile).unwrap_or_default());
            residual::residuals(m.width, m.predictor, of_tile, m.predictions(i * TILE, n), &mut residuals.0[..n]);
            let ids = find(&f, i * TILE, n / m.width, &mut ids);
            let residuals = residuals.0.as_chunks().0;
            let there = match m.width {
                1 => deal_tile::<1>(ids, residuals, bytes, &mut places, overflows),
                2 => deal_tile::<2>(ids, residuals, bytes, &mut places, overflows),
                4 => deal_tile::<4>(ids, residuals, bytes, &mut places, overflows),
                _ => deal_tile::<8>(ids, residuals, bytes, &mut places, overflows),
            };
            if !there || overflows.len() > most_overflows(m.len) {
                return false;
            }
        }
        trim(sections, places.iter().flatten());
        true
    }

    fn deal_tile<const WIDTH: usize>(
        ids: &[[u8; STEP]], residuals: &[[u8; 64]], bytes: &mut [u8], places: &mut [Vec<Place>; 2], overflows: &mut Vec<Overflow>
    ) -> bool {
        let iota = index(std::array::from_fn(|i| i as u8));
        let lanes = 64 / WIDTH;
        let [single, whole] = places;
        let has_single = singles(single);
        for (step, of_step) in ids.iter().zip(residuals.as_chunks::<WIDTH>().0) {
            let ids = load(step);
            let residuals: [__m512i; WIDTH] = std::array::from_fn(|j| load(&of_step[j]));
            if !single.is_empty() {
                let lowest = lowest_bytes(&residuals);
                // The numbers of classes end at 64; what is no element has a number above.
                let fits = !_mm512_movepi8_mask(_mm512_permutexvar_epi8(ids, has_single)) | _mm512_movepi8_mask(ids);
                if large(&residuals) & !fits != 0 {
                    with_element!(WIDTH, E => note_overflows::<E>(step, of_step.as_flattened(), single, overflows));
                }
                for place in &mut *single {
                    let mask = _mm512_cmpeq_epi8_mask(ids, _mm512_set1_epi8(place.class.cast_signed()));
                    let at = place.next;
                    place.next += mask.count_ones() as usize;
                    if place.next > place.end {
                        return false;
                    }
                    expect_line::<_MM_HINT_ET0>(bytes, at + AHEAD_LINES * 64);
                    let packed = _mm512_mask_compress_epi8(lowest, mask, lowest);
                    // SAFETY: `at` is at most `place.end`, behind which there are 64 bytes: `places` made sure.
                    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().add(at).cast(), packed) };
                }
            }
            for place in &mut *whole {
                let mask = _mm512_cmpeq_epi8_mask(ids, _mm512_set1_epi8(place.class.cast_signed()));
                let n = mask.count_ones() as usize;
                let at = place.next;
                place.next += WIDTH * n;
                if place.next > place.end {
                    return false;
                }
                expect_line::<_MM_HINT_ET0>(bytes, at + AHEAD_LINES * 64);
                let mut order = _mm512_mask_compress_epi8(iota, mask, iota);
                // SAFETY: `at` is at most `place.end`, behind which there are 64 bytes: `places` made sure.
                let to = unsafe { bytes.as_mut_ptr().add(at) };
                // SAFETY: as above.
                unsafe { _mm512_storeu_si512(to.cast(), pick(&residuals, order)) };
                let mut done = lanes;
                while n > done {
                    order = next_lanes::<WIDTH>(order);
                    // SAFETY: `done` of the elements up to `place.end` went before.
                    unsafe { _mm512_storeu_si512(to.add(WIDTH * done).cast(), pick(&residuals, order)) };
                    done += lanes;
                }
            }
        }
        true
    }

    /// Asks for the cache line of byte `at`, if there is one: classes are many streams, more than the processor itself looks ahead in.
    fn expect_line<const HINT: i32>(bytes: &[u8], at: usize) {
        _mm_prefetch::<HINT>(bytes.as_ptr().wrapping_add(at).cast());
    }

    /// Bit 7 of byte `c` says whether class `c` has one of these places.
    fn singles(places: &[Place]) -> __m512i {
        let mut of = [0; 64];
        places.iter().for_each(|p| of[usize::from(p.class)] = 0x80);
        index(of)
    }

    /// The lowest byte of each element.
    fn lowest_bytes<const WIDTH: usize>(v: &[__m512i; WIDTH]) -> __m512i {
        match WIDTH {
            1 => v[0],
            2 => _mm512_permutex2var_epi8(v[0], index(every(2, 0)), v[1]),
            4 => {
                let pair = |i: usize| _mm512_castsi512_si256(_mm512_permutex2var_epi8(v[i], index(every(4, 0)), v[i + 1]));
                _mm512_inserti64x4::<1>(_mm512_castsi256_si512(pair(0)), pair(2))
            }
            _ => {
                let pair = |i: usize| _mm512_castsi512_si128(_mm512_permutex2var_epi8(v[i], index(every(8, 0)), v[i + 1]));
                let v = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(pair(0)), pair(2));
                _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(v, pair(4)), pair(6))
            }
        }
    }

    /// The elements that a byte does not hold.
    fn large<const WIDTH: usize>(v: &[__m512i; WIDTH]) -> u64 {
        v.iter().enumerate().fold(0, |all, (i, &v)| {
            let large = match WIDTH {
                1 => 0,
                2 => u64::from(_mm512_test_epi16_mask(v, _mm512_set1_epi16(!0xff))),
                4 => u64::from(_mm512_test_epi32_mask(v, _mm512_set1_epi32(!0xff))),
                _ => u64::from(_mm512_test_epi64_mask(v, _mm512_set1_epi64(!0xff))),
            };
            all | large << (64 / WIDTH * i)
        })
    }

    /// Each of 64 bytes as an element.
    fn widened<const WIDTH: usize>(v: __m512i) -> [__m512i; WIDTH] {
        std::array::from_fn(|i| match (WIDTH, i) {
            (1, _) => v,
            (2, 0) => _mm512_cvtepu8_epi16(_mm512_castsi512_si256(v)),
            (2, _) => _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64::<1>(v)),
            (4, 0) => _mm512_cvtepu8_epi32(_mm512_castsi512_si128(v)),
            (4, 1) => _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32::<1>(v)),
            (4, 2) => _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32::<2>(v)),
            (4, _) => _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32::<3>(v)),
            (_, i) => {
                let eight = _mm512_maskz_compress_epi64(1 << i, v);
                _mm512_cvtepu8_epi64(_mm512_castsi512_si128(eight))
            }
        })
    }

    /// The elements that the lowest bytes of `order` name, of the elements in `v`.
    pub(super) fn pick<const WIDTH: usize>(v: &[__m512i; WIDTH], order: __m512i) -> __m512i {
        match WIDTH {
            2 => _mm512_permutex2var_epi16(v[0], _mm512_cvtepu8_epi16(_mm512_castsi512_si256(order)), v[1]),
            4 => {
                let i = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(order));
                let a = _mm512_permutex2var_epi32(v[0], i, v[1]);
                let b = _mm512_permutex2var_epi32(v[2], i, v[3]);
                _mm512_mask_blend_epi32(_mm512_test_epi32_mask(i, _mm512_set1_epi32(32)), a, b)
            }
            _ => {
                let i = _mm512_cvtepu8_epi64(_mm512_castsi512_si128(order));
                let second = _mm512_test_epi64_mask(i, _mm512_set1_epi64(16));
                let a = _mm512_mask_blend_epi64(
                    second,
                    _mm512_permutex2var_epi64(v[0], i, v[1]),
                    _mm512_permutex2var_epi64(v[2], i, v[3]),
                );
                let b = _mm512_mask_blend_epi64(
                    second,
                    _mm512_permutex2var_epi64(v[4], i, v[5]),
                    _mm512_permutex2var_epi64(v[6], i, v[7]),
                );
                _mm512_mask_blend_epi64(_mm512_test_epi64_mask(i, _mm512_set1_epi64(32)), a, b)
            }
        }
    }

    /// Moves the bytes behind those that [`pick`] takes to the bottom.
    pub(super) fn next_lanes<const WIDTH: usize>(order: __m512i) -> __m512i {
        match WIDTH {
            2 => _mm512_shuffle_i64x2::<0b11_10>(order, order),
            4 => _mm512_shuffle_i64x2::<0b11_10_01>(order, order),
            _ => _mm512_alignr_epi64::<1>(order, order),
        }
    }

    fn collect(m: &Model<'_>, sections: &Sections, out: &mut [u8]) -> bool {
        let Some(f) = finder(m) else { return portable::restore(m, sections, out) };
        let (bytes, sections) = sections.parts();
        let mut places = places_by_width(bytes.len(), sections, f.classes, m.width);
        let mut ids = Ids([NO_CLASS; TILE]);
        let mut last = Residuals([0; 8 * TILE]);
        for (i, out) in out.chunks_mut(TILE * m.width).enumerate() {
            let n = out.len();
            let ids = find(&f, i * TILE, n / m.width, &mut ids);
            let whole = n == TILE * m.width;
            let to = if whole { &mut *out } else { &mut last.0 }.as_chunks_mut().0;
            let there = match m.width {
                1 => collect_tile::<1>(ids, bytes, &mut places, to),
                2 => collect_tile::<2>(ids, bytes, &mut places, to),
                4 => collect_tile::<4>(ids, bytes, &mut places, to),
                _ => collect_tile::<8>(ids, bytes, &mut places, to),
            };
            if !there {
                return false;
            }
            if !whole {
                out.copy_from_slice(&last.0[..n]);
            }
            residual::restore(m.width, m.predictor, m.predictions(i * TILE, n), out);
        }
        places.iter().flatten().all(|p| p.next == p.end)
    }

    fn collect_tile<const WIDTH: usize>(
        ids: &[[u8; STEP]], bytes: &[u8], places: &mut [Vec<Place>; 2], to: &mut [[u8; 64]]
    ) -> bool {
        let [single, whole] = places;
        for (ids, to) in ids.iter().zip(to.as_chunks_mut::<WIDTH>().0) {
            let ids = load(ids);
            let mut lowest = _mm512_setzero_si512();
            for place in &mut *single {
                let mask = _mm512_cmpeq_epi8_mask(ids, _mm512_set1_epi8(place.class.cast_signed()));
                let at = place.next;
                place.next += mask.count_ones() as usize;
                if place.next > place.end {
                    return false;
                }
                expect_line::<_MM_HINT_T0>(bytes, at + AHEAD_LINES * 64);
                // SAFETY: `at` is at most `place.next` and that at most `place.end`, behind which there are 64 bytes: `places` made sure.
                let from = in_register(unsafe { _mm512_loadu_si512(bytes.as_ptr().add(at).cast()) });
                lowest = _mm512_or_si512(lowest, _mm512_maskz_expand_epi8(mask, from));
            }
            let mut residuals = widened::<WIDTH>(lowest);
            for place in &mut *whole {
                let mut mask = _mm512_cmpeq_epi8_mask(ids, _mm512_set1_epi8(place.class.cast_signed()));
                let mut at = place.next;
                place.next += WIDTH * mask.count_ones() as usize;
                if place.next > place.end {
                    return false;
                }
                expect_line::<_MM_HINT_T0>(bytes, at + AHEAD_LINES * 64);
                for v in &mut residuals {
                    // SAFETY: as above.
                    let from = in_register(unsafe { _mm512_loadu_si512(bytes.as_ptr().add(at).cast()) });
                    let (expanded, n) = expand::<WIDTH>(mask, from);
                    *v = _mm512_or_si512(*v, expanded);
                    at += WIDTH * n as usize;
                    mask = mask.checked_shr(64 / WIDTH as u32).unwrap_or(0);
                }
            }
            to.iter_mut().zip(residuals).for_each(|(to, v)| store(to, v));
        }
        true
    }

    /// Puts elements where the lowest bits of a mask are, and zeros elsewhere; and how many there are.
    fn expand<const WIDTH: usize>(mask: u64, v: __m512i) -> (__m512i, u32) {
        match WIDTH {
            2 => (_mm512_maskz_expand_epi16(mask as u32, v), (mask as u32).count_ones()),
            4 => (_mm512_maskz_expand_epi32(mask as u16, v), (mask as u16).count_ones()),
            _ => (_mm512_maskz_expand_epi64(mask as u8, v), (mask as u8).count_ones()),
        }
    }

    fn undo(m: &Model<'_>, out: &mut [u8]) {
        portable::restore_in_place(m, out);
    }

    /// `None` if there is but one class.
    fn finder<'a>(m: &Model<'a>) -> Option<Finder<'a>> {
        let (context, width) = m.context()?;
        let classes = m.classes?;
        let table = classes.table();
        let bits = 8 * width as i64;
        // A shift by all bits leaves nothing.
        let (right, left) = if classes.shift == 0 { (bits - 1, 1) } else { (i64::from(classes.shift) - 1, bits) };
        Some(Finder {
            context,
            width,
            table: std::array::from_fn(|i| load(&table.as_chunks().0[i])),
            right: _mm_cvtsi64_si128(right),
            left: _mm_cvtsi64_si128(left),
            classes: classes.count(),
        })
    }

    /// The classes of `n` elements, from element `i` on; behind the last one [`NO_CLASS`].
    fn find<'k>(f: &Finder<'_>, i: usize, n: usize, ids: &'k mut Ids) -> &'k [[u8; STEP]] {
        let (context, rest) = f.context[i * f.width..].split_at(n * f.width);
        // Decoders look at it for the first time.
        expect::<_MM_HINT_T0>(rest.get(..context.len()).unwrap_or_default());
        let steps = &mut ids.0.as_chunks_mut().0[..n.div_ceil(STEP)];
        match f.width {
            1 => find_as::<1>(f, context, steps),
            2 => find_as::<2>(f, context, steps),
            4 => find_as::<4>(f, context, steps),
            _ => find_as::<8>(f, context, steps),
        }
        steps.as_flattened_mut()[n..].fill(NO_CLASS);
        steps
    }

    fn find_as<const WIDTH: usize>(f: &Finder<'_>, context: &[u8], ids: &mut [[u8; STEP]]) {
        let steps = context.as_chunks::<64>().0.as_chunks::<WIDTH>().0;
        let [a, b, c, d] = f.table;
        let classes = |context: &[[u8; 64]; WIDTH]| {
            let keys = keys::<WIDTH>(f, std::array::from_fn(|j| load(&context[j])));
            let (low, high) = (_mm512_permutex2var_epi8(a, keys, b), _mm512_permutex2var_epi8(c, keys, d));
            _mm512_mask_blend_epi8(_mm512_movepi8_mask(keys), low, high)
        };
        for (ids, context) in ids.iter_mut().zip(steps) {
            store(ids, classes(context));
        }
        if let Some(ids) = ids.get_mut(steps.len()) {
            let mut last = [[0; 64]; WIDTH];
            let rest = &context[steps.len() * 64 * WIDTH..];
            last.as_flattened_mut()[..rest.len()].copy_from_slice(rest);
            store(ids, classes(&last));
        }
    }

    /// The keys of 64 elements.
    fn keys<const WIDTH: usize>(f: &Finder<'_>, v: [__m512i; WIDTH]) -> __m512i {
        let (r, l) = (f.right, f.left);
        match WIDTH {
            // There is but one shift for bytes, 0: they are rotated by one.
            1 => {
                let twice = _mm512_add_epi8(v[0], v[0]);
                _mm512_mask_sub_epi8(twice, _mm512_movepi8_mask(v[0]), twice, _mm512_set1_epi8(-1))
            }
            2 => lowest_bytes(&v.map(|v| _mm512_or_si512(_mm512_srl_epi16(v, r), _mm512_sll_epi16(v, l)))),
            4 => lowest_bytes(&v.map(|v| _mm512_or_si512(_mm512_srl_epi32(v, r), _mm512_sll_epi32(v, l)))),
            _ => lowest_bytes(&v.map(|v| _mm512_or_si512(_mm512_srl_epi64(v, r), _mm512_sll_epi64(v, l)))),
        }
    }
}
