//! Opaque bytes that look like elements: arrays in pickles and in files of unknown formats.

use crate::cluster::RUN;
use crate::cluster::element::with_element;
use crate::cluster::runs::{RunStats, count_run, run_stats};
use crate::entropy::cost;
use crate::entropy::histogram::{Histogram, sum_of};
use crate::inline::array;
use crate::map::Map;

/// Least bytes that are examined.
const LEAST: usize = 4096;
/// Bytes of the widest elements.
pub(super) const WIDEST: usize = 8;
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
pub(super) fn edges(bytes: &[u8]) -> Option<(usize, usize)> {
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

/// The width and map under which opaque bytes look like floats or integers, if any.
pub(super) fn detect_width(bytes: &[u8]) -> Option<(usize, Map)> {
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
        let n = (stats.len() * RUN) as u64;
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
    fn noise_and_text_have_no_elements() {
        assert_eq!(edges(&Random::new(5).bytes(100_001)), None);
        let text = b"The quick brown fox jumps over the lazy dog. ".repeat(999);
        assert_eq!(edges(&text), None);
        assert_eq!(edges(&floats(4, 1000)[1..]), None);
    }
}
