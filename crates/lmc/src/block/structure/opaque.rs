//! Opaque bytes that look like elements: arrays in pickles and in files of unknown formats.

use std::ops::Range;

use lmc_kernels::cluster::RUN;
use lmc_kernels::cluster::element::with_element;
use lmc_kernels::cluster::runs::{RunStats, count_run, run_stats};
use lmc_kernels::entropy::cost;
use lmc_kernels::entropy::histogram::{Histogram, sum_of};
use lmc_kernels::inline::{array, zip, zip3};
use lmc_kernels::map::Map;

/// Least bytes that are examined.
const LEAST: usize = 4096;
/// Bytes of the widest elements.
pub(in crate::block) const WIDEST: usize = 8;
/// Groups of bytes whose positions are counted.
const SAMPLE: usize = 2048;
/// Bits by which the entropy of the byte after an element's last one is higher: of noise and text all are alike.
const RISE: u64 = cost::BIT;
/// Rises that differ less than this do not show where elements begin: narrow ones begin at several of the eight positions.
const ALIKE: u64 = cost::BIT / 2;

/// The bytes before the first whole element, and after the last one, if elements do not begin at the first byte, or do not fill the
/// bytes: less than eight each.
///
/// The last byte of an element has its sign and its exponent, or the zeros of an integer, and the next one the lowest bits of another.
fn edges(bytes: &[u8]) -> Option<(usize, usize)> {
    if bytes.len() < LEAST {
        return None;
    }
    let groups = bytes.as_chunks::<WIDEST>().0;
    let mut counts: [Histogram; WIDEST] = [[0; 256]; WIDEST];
    let mut sampled = 0;
    for group in groups.iter().step_by((groups.len() / SAMPLE).max(1)) {
        counts.iter_mut().zip(group).for_each(|(h, &b)| h[usize::from(b)] += 1);
        sampled += 1;
    }
    let bits: [u64; WIDEST] = array(|i| cost::entropy(&counts[i]) / sampled);
    let rise = |last: usize| bits[(last + 1) % WIDEST].saturating_sub(bits[last]);
    let (last, most) = (0..WIDEST).map(|last| (last, rise(last))).max_by_key(|r| r.1)?;
    if most < RISE {
        return None;
    }
    let head = if rise(WIDEST - 1) + ALIKE >= most { 0 } else { last + 1 };
    let tail = (bytes.len() - head) % WIDEST;
    (head + tail > 0).then_some((head, tail))
}

/// A part of opaque bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::block) struct Part {
    pub(in crate::block) place: Range<usize>,
    /// Bytes of an element, if it consists of whole ones, otherwise 0.
    pub(in crate::block) width: usize,
}

/// Bytes of a window in which the places of elements are the same.
const WINDOW: usize = 4096;
/// A window has this many more equal last bytes of elements than twice those of first bytes.
const CONTRAST: u32 = 24;
/// Of other bytes of elements at most one in this many is equal. Tables in programs have more: the zeros of addresses.
const NOISY: u32 = 32;
/// Windows without elements that elements may surround as if they were some.
const GAP: usize = 8;
/// Windows of the shortest elements that are found.
const FEWEST: usize = 2;
/// How far behind their first and last windows elements may begin and end, in windows.
const REACH: usize = 4;
/// Windows from which the usual last bytes of elements are known.
const USUAL: usize = 3;

/// Divides opaque bytes where elements begin at other places than before, modulo their width: tensors in pickles and messages have names and
/// lengths between them.
///
/// Unless `divide`, there is one place at most.
pub(in crate::block) fn parts(bytes: &[u8], divide: bool) -> Vec<Part> {
    let spans = spans(bytes);
    let windows = bytes.len() / WINDOW;
    let one_place = match &spans[..] {
        [] => true,
        [one] => one.first <= GAP && one.last + 1 + GAP >= windows,
        _ => false,
    };
    let found = if one_place || !divide { vec![] } else { elements(bytes, &spans) };
    if !found.is_empty() {
        return with_others(found, bytes.len());
    }
    let width = spans.first().filter(|_| one_place).map_or(WIDEST, |s| s.width);
    match edges(bytes) {
        Some((head, tail)) => with_others(vec![Part { place: head..bytes.len() - tail, width }], bytes.len()),
        None => vec![Part { place: 0..bytes.len(), width: if spans.is_empty() || !one_place { 0 } else { width } }],
    }
}

/// Whether parts are more than elements and the bytes at their edges, less than an element each.
pub(in crate::block) fn is_divided(parts: &[Part]) -> bool {
    parts.iter().filter(|p| p.width > 0 || p.place.len() >= WIDEST).count() > 1
}

/// Adds the bytes before, between and after parts.
fn with_others(parts: Vec<Part>, len: usize) -> Vec<Part> {
    let mut all = Vec::with_capacity(2 * parts.len() + 1);
    let mut end = 0;
    for part in parts {
        all.extend((part.place.start > end).then_some(Part { place: end..part.place.start, width: 0 }));
        end = part.place.end;
        all.push(part);
    }
    all.extend((end < len).then_some(Part { place: end..len, width: 0 }));
    all
}

/// The elements of spans, to their first and last bytes.
fn elements(bytes: &[u8], spans: &[Span]) -> Vec<Part> {
    let mut found: Vec<Part> = Vec::new();
    for (i, span) in spans.iter().enumerate() {
        let before = i.checked_sub(1).map_or(0, |i| spans[i].last * WINDOW);
        let after = spans.get(i + 1).map_or(bytes.len(), |next| (next.first + 1) * WINDOW);
        let start = span.start(bytes, before);
        // Where two spans could have the same bytes, they are those of the first.
        let start = start.max(found.last().map_or(0, |e| span.at_or_after(e.place.end)));
        let end = span.end(bytes, after);
        if start + WINDOW <= end {
            found.push(Part { place: start..end, width: span.width });
        }
    }
    found
}

/// Windows in which elements begin at the same places.
struct Span {
    /// The first and the last window.
    first: usize,
    last: usize,
    width: usize,
    /// The place of the first byte of an element, modulo the width.
    phase: usize,
    counts: [u32; WIDEST],
}

impl Span {
    fn windows(&self) -> usize {
        self.last - self.first + 1
    }

    /// Whether elements of another width and phase may be the same.
    fn agrees(&self, (width, phase): (usize, usize)) -> bool {
        let width = width.min(self.width);
        self.phase % width == phase % width
    }

    /// The first place of an element that is not before `at`.
    fn at_or_after(&self, at: usize) -> usize {
        at + (self.phase + self.width - at % self.width) % self.width
    }

    /// Where the elements begin that reach into the first window, not before `least`.
    fn start(&self, bytes: &[u8], least: usize) -> usize {
        let inside = self.at_or_after((self.first + 1) * WINDOW);
        let usual = self.usual(bytes, self.first + 1);
        let least = self.at_or_after(least.max(self.first.saturating_sub(REACH) * WINDOW));
        let elements = bytes[least.min(inside)..inside].rchunks_exact(self.width);
        inside - self.width * usual.longest(elements)
    }

    /// Where the elements end that reach into the last window, not after `most`.
    fn end(&self, bytes: &[u8], most: usize) -> usize {
        let inside = self.at_or_after(self.last * WINDOW);
        let usual = self.usual(bytes, (self.last + 1).saturating_sub(USUAL).max(self.first));
        let most = most.min((self.last + 1 + REACH) * WINDOW).min(bytes.len());
        inside + self.width * usual.longest(bytes[inside..most.max(inside)].chunks_exact(self.width))
    }

    /// The last bytes that elements of some windows have, from one on.
    fn usual(&self, bytes: &[u8], window: usize) -> Usual {
        let window = window.min(self.last);
        let from = self.at_or_after(window * WINDOW);
        let to = ((self.last + 1).min(window + USUAL) * WINDOW).min(bytes.len());
        let mut counts: Histogram = [0; 256];
        let mut n = 0;
        for element in bytes[from..to].chunks_exact(self.width) {
            counts[usize::from(element[self.width - 1])] += 1;
            n += 1;
        }
        // Twice as often as any byte of noise.
        Usual(array(|i| 128 * u64::from(counts[i]) > n))
    }
}

/// The last bytes that many elements have.
struct Usual([bool; 256]);

impl Usual {
    /// How many elements, from the first one on, are most likely of their kind: each unusual one counts as much as two others.
    fn longest<'a>(&self, elements: impl Iterator<Item = &'a [u8]>) -> usize {
        let (mut score, mut best) = (0i32, (0, 0));
        for (i, e) in elements.enumerate() {
            score += if self.0[usize::from(e[e.len() - 1])] { 1 } else { -2 };
            if score > best.0 {
                best = (score, i + 1);
            }
        }
        best.1
    }
}

/// Spans of windows, in order.
fn spans(bytes: &[u8]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for first in 0..bytes.len() / WINDOW {
        let counts = equal_in_eight(&bytes[first * WINDOW..]);
        let Some((width, phase)) = place_of(&counts, 1) else { continue };
        loop {
            match spans.last_mut() {
                Some(s) if s.agrees((width, phase)) && first - s.last <= GAP => {
                    zip(&mut s.counts, &counts, |sum, n| *sum += n);
                    s.last = first;
                    (s.width, s.phase) = place_of(&s.counts, s.windows()).unwrap_or((s.width, s.phase));
                    break;
                }
                // Of two tensors at once, or chance.
                Some(s) if s.windows() < FEWEST => drop(spans.pop()),
                _ => {
                    spans.push(Span { first, last: first, width, phase, counts });
                    break;
                }
            }
        }
    }
    spans.retain(|s| s.windows() >= FEWEST);
    spans
}

/// How many bytes of a window are those eight bytes behind them, by their place modulo eight.
fn equal_in_eight(bytes: &[u8]) -> [u32; WIDEST] {
    // Wide enough for vectors; no count exceeds a byte.
    const LANES: usize = 64;
    const { assert!(WINDOW / LANES <= u8::MAX as usize) }
    let n = WINDOW.min(bytes.len() - WIDEST);
    let mut lanes = [0u8; LANES];
    for (a, b) in bytes[..n].as_chunks::<LANES>().0.iter().zip(bytes[WIDEST..].as_chunks::<LANES>().0) {
        zip3(&mut lanes, a, b, |count, a, b| *count += u8::from(a == b));
    }
    array(|i| lanes.iter().skip(i).step_by(WIDEST).map(|&n| u32::from(n)).sum())
}

/// The width and the phase of elements with these counts of equal bytes in some windows; `None` unless they are like weights: noise, but for
/// their last bytes.
fn place_of(counts: &[u32; WIDEST], windows: usize) -> Option<(usize, usize)> {
    let rise: [u32; WIDEST] = array(|i| counts[i].saturating_sub(counts[(i + 1) % WIDEST]));
    let last = (0..WIDEST).max_by_key(|&i| rise[i])?;
    let at = |behind: usize| rise[(last + behind) % WIDEST];
    let width = if 2 * at(4) < at(0) {
        8
    } else if 2 * (at(2) + at(6)) < at(0) + at(4) {
        4
    } else {
        2
    };
    let sum = |first: usize| (first..first + WIDEST).step_by(width).map(|i| counts[i % WIDEST]).sum::<u32>();
    let most = (windows * WINDOW / WIDEST) as u32 / NOISY;
    let noise = (0..WIDEST).all(|i| (WIDEST + i - last).is_multiple_of(width) || counts[i] <= most);
    (noise && sum(last) >= 2 * sum(last + 1) + CONTRAST).then_some((width, (last + 1) % width))
}

/// The width and map under which opaque bytes look like floats or integers, if any.
pub(in crate::block) fn detect_width(bytes: &[u8]) -> Option<(usize, Map)> {
    const SAMPLE_RUNS: usize = 24;
    if bytes.len() < LEAST {
        return None;
    }
    let mut best: Option<(u64, (usize, Map))> = None;
    for (width, map) in [(1, Map::Identity), (2, Map::Rotate), (4, Map::Rotate), (8, Map::Rotate)] {
        if !bytes.len().is_multiple_of(width) {
            continue;
        }
        let run = RUN * width;
        let runs = bytes.len() / run;
        let step = (runs / SAMPLE_RUNS).max(1);
        // Only the top byte of mapped elements is coded by a table; constant bytes below it are dropped. A noisy byte costs eight bits.
        let mut top: [Histogram; 4] = [[0; 256]; 4];
        let mut stats = RunStats::default();
        let shift = 8 * (width - 1) as u32;
        for r in (0..runs).step_by(step) {
            let run = &bytes[r * run..][..run];
            with_element!(width, E => {
                count_run::<E>(map, shift, run, &mut top);
                run_stats::<E>(map, run, &mut stats);
            });
        }
        let varying = stats.or.iter().fold(0, |or, r| or | r) ^ stats.and.iter().fold(u64::MAX, |and, r| and & r);
        let noisy = (0..width - 1).filter(|plane| (varying >> (8 * plane)) as u8 != 0).count() as u64;
        let n = (stats.runs() * RUN) as u64;
        let top: Histogram = array(|s| sum_of(&top, s));
        let bits = cost::estimate(&top, 7).min(8 * cost::BIT * n) + noisy * 8 * cost::BIT * n;
        let score = bits * 1000 / (n * width as u64).max(1);
        if best.is_none_or(|b| score * 100 < b.0 * 99) {
            best = Some((score, (width, map)));
        }
    }
    best.filter(|b| b.0 < 7900 * cost::BIT).map(|b| b.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_test_inputs::Random;

    /// Floats of `width` bytes.
    fn floats(width: usize, n: usize) -> Vec<u8> {
        let mut random = Random::new(3);
        let float = |_| (random.u64() as u32 as f32 / 4e9 - 0.5) * (random.u64() as u32 as f32 / 4e10);
        (0..n)
            .map(float)
            .flat_map(|f| match width {
                2 => f.to_bits().to_le_bytes()[2..].to_vec(),
                4 => f.to_le_bytes().to_vec(),
                _ => (f64::from(f) * std::f64::consts::PI).to_le_bytes().to_vec(),
            })
            .collect()
    }

    #[test]
    fn elements_begin_anywhere() {
        let mut random = Random::new(4);
        let integers: Vec<u8> = (0..3000).flat_map(|_| (random.u64() % 50_000).to_le_bytes()).collect();
        for (elements, width) in [(floats(2, 9000), 2), (floats(4, 5000), 4), (floats(8, 3000), 8), (integers, 8)] {
            for (before, after) in [(0, 0), (1, 0), (2, 1), (3, 5), (4, 4), (7, 7)] {
                let bytes = [&vec![7; before], &elements[..], &vec![9; after]].concat();
                let (head, tail) = edges(&bytes).unwrap_or_default();
                assert!(head < 8 && tail < 8 && (head + 8 - before).is_multiple_of(width), "{width}, {before}: {head}");
                assert!((bytes.len() - head - tail).is_multiple_of(8));
                let found = detect_width(&bytes[head..bytes.len() - tail]).map(|d| d.0);
                assert_eq!(found, Some(width), "{before}, {after}");
            }
        }
    }

    #[test]
    fn tensors_are_divided_where_they_begin() {
        let mut random = Random::new(6);
        let noise = random.bytes(50_000);
        // A name before each tensor, of another length.
        let tensors = [(floats(4, 20_000), 4), (floats(2, 30_000), 2), (floats(8, 9000), 8), (floats(4, 6000), 4)];
        let mut raw = noise.clone();
        let mut places = vec![];
        for (i, (tensor, width)) in tensors.iter().enumerate() {
            // Of an odd length: neighbours of other widths whose places agree are one part.
            raw.extend_from_slice(&b"a name of a tensor, and its length ..."[..31 + 2 * i]);
            places.push((raw.len()..raw.len() + tensor.len(), *width));
            raw.extend_from_slice(tensor);
        }
        raw.extend_from_slice(&noise);
        let parts = parts(&raw, true);
        assert!(parts.is_sorted_by(|a, b| a.place.end == b.place.start));
        assert_eq!((parts[0].place.start, parts.last().unwrap().place.end), (0, raw.len()));
        let found: Vec<_> = parts.iter().filter(|p| p.width > 0).collect();
        assert_eq!(found.len(), places.len(), "{parts:?}");
        for (part, (place, width)) in found.iter().zip(&places) {
            assert!(part.width == *width && part.place.len().is_multiple_of(*width), "{part:?} {place:?}");
            let (a, b) = (part.place.start.abs_diff(place.start), part.place.end.abs_diff(place.end));
            // By chance a few more or less have a usual last byte.
            assert!(a.is_multiple_of(*width) && a <= 10 * width && b <= 10 * width, "{part:?} {place:?}");
        }
        assert!(is_divided(&parts) && !is_divided(&super::parts(&raw, false)));
    }

    #[test]
    fn bytes_of_one_kind_are_not_divided() {
        let text = b"The quick brown fox jumps over the lazy dog. ".repeat(9999);
        // Addresses in a program.
        let table: Vec<u8> =
            (0..40_000u64).flat_map(|i| (0x55d0_0000_0000 + 8 * (i * i % 9999)).to_le_bytes()).collect();
        let half_table = [&text[..], &table].concat();
        for bytes in
            [&Random::new(5).bytes(300_001), &text, &table, &half_table, &floats(4, 70_000), &floats(2, 70_000)]
        {
            assert!(!is_divided(&parts(bytes, true)));
        }
        assert_eq!(parts(&floats(4, 70_000), true), [Part { place: 0..280_000, width: 4 }]);
        let odd = [&b"odd"[..], &floats(4, 70_000)].concat();
        assert_eq!(parts(&odd, true)[1], Part { place: 3..280_003, width: 4 });
        for few in 0..20 {
            assert_eq!(parts(&odd[..few], true).iter().map(|p| p.place.len()).sum::<usize>(), few);
        }
    }

    #[test]
    fn noise_and_text_have_no_elements() {
        assert_eq!(edges(&Random::new(5).bytes(100_001)), None);
        let text = b"The quick brown fox jumps over the lazy dog. ".repeat(999);
        assert_eq!(edges(&text), None);
        assert_eq!(edges(&floats(4, 1000)[1..]), None);
    }
}
