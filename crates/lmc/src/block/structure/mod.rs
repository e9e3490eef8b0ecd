//! Finds tensors that are not noise: few values, or distant repeats. Most tensors are noise, so the search must cost
//! almost nothing.

pub(super) mod opaque;

use std::convert::Infallible;

use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::inline::{array, zip};

/// The structure of elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Structure {
    /// Elements near each other are often equal.
    pub(crate) few: bool,
    /// The top bytes of elements repeat, row by row or further apart.
    pub(crate) repeats: bool,
    /// Elements rise or fall by nearly equal steps, as integers.
    pub(crate) steps: bool,
}

impl Structure {
    pub(crate) fn is_noise(self) -> bool {
        self == Self::default()
    }
}

/// Least bytes in which structure is searched for; and steps, which are found at once.
pub(crate) const LEAST: usize = 32 << 10;
pub(crate) const STEPS_LEAST: usize = 4 << 10;

/// Windows of elements whose values are counted: their number and their length, and the largest share of different
/// values, in sixteenths, that counts as few. Of 128 weights in bf16 some 120 differ, of those that have 6 bits in
/// groups of 16 some 108; of 512 in fp32 nearly all.
const NARROW: Windows = Windows { count: 8, len: 128, sixteenths: 14 };
const WIDE: Windows = Windows { count: 1, len: 512, sixteenths: 14 };

#[derive(Clone, Copy)]
struct Windows {
    count: usize,
    len: usize,
    sixteenths: usize,
}

/// Top bytes that a key has, and that must be equal where keys are.
const KEY: usize = 16;
const EQUAL: usize = 64;
/// Least changes from one top byte to the next of those that are equal.
const CHANGES: usize = 8;
/// Parts into which elements are divided; each may have structure of its own.
pub(crate) const PARTS: usize = 16;
/// How thoroughly repeats are searched for.
#[derive(Clone, Copy)]
struct Effort {
    /// One element in this many belongs to the windows whose keys are known.
    known: usize,
    /// Bytes for one probe.
    step: usize,
}

/// For a block: almost none of its time. For a block that is long because repeats were found. For a file, where each
/// probe may be a request.
const USUAL: Effort = Effort { known: 256, step: 8 << 10 };
const LONG: Effort = Effort { known: 128, step: 8 << 10 };
const FILE: Effort = Effort { known: 128, step: 32 << 10 };
/// Bytes of a long block.
const LONG_LEAST: usize = 2 << 20;
/// Windows whose keys are known, and most elements of each.
const KNOWN_WINDOWS: usize = 4;
const KNOWN_MOST: usize = 1 << 12;
/// Least and most probes.
const PROBES: [usize; 2] = [8, 256];
/// Equal places that show a repeat.
const HITS: usize = 1;

/// Finds structure, keeping its working memory.
#[derive(Default)]
pub(crate) struct Finder {
    /// Places in the window by their keys, from 1 on.
    places: Vec<u16>,
    tops: Vec<u8>,
    bytes: Vec<u8>,
    /// Probes of each part that were found elsewhere.
    hits: [usize; PARTS],
}

impl Finder {
    /// The structure of elements of `width` bytes.
    pub(crate) fn find(&mut self, width: usize, bytes: &[u8]) -> Structure {
        let steps = width > 1 && bytes.len() >= STEPS_LEAST && with_element!(width, E => has_steps::<E>(bytes));
        if bytes.len() < LEAST {
            return Structure { steps, ..Structure::default() };
        }
        let few = is_few(width, bytes);
        let tops = |at: usize, tops: &mut [u8]| {
            with_element!(width, E => top_bytes::<E>(&bytes[at * width..], tops));
            Ok::<_, Infallible>(())
        };
        let effort = if bytes.len() > LONG_LEAST { LONG } else { USUAL };
        let Ok(repeats) = self.repeats(bytes.len() / width, effort.probes(bytes.len()), effort, tops);
        Structure { few, repeats, steps }
    }

    /// The parts that repeat, of elements that repeat: all parts, unless some repeat in most places and others rarely.
    pub(crate) fn parts(&self, bytes: &[u8]) -> [bool; PARTS] {
        let probes = (USUAL.probes(bytes.len()) / PARTS).max(1);
        if self.hits.iter().all(|&hits| 4 * hits < 3 * probes) {
            return [true; PARTS];
        }
        array(|i| 4 * self.hits[i] >= probes)
    }

    /// [`Self::find`] for repeats alone, in `len` bytes of a file that `read` gives.
    pub(crate) fn find_repeats<R>(
        &mut self,
        width: usize,
        len: usize,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<(), R>,
    ) -> Result<bool, R> {
        if len < LEAST {
            return Ok(false);
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        let found = self.repeats(len / width, FILE.probes(len), FILE, |at, tops| {
            bytes.resize(tops.len() * width, 0);
            read(at * width, &mut bytes)?;
            with_element!(width, E => top_bytes::<E>(&bytes, tops));
            Ok(())
        });
        self.bytes = bytes;
        found
    }

    /// Whether the top bytes of elements repeat, which `read` gives from an element on: keys of windows are compared with those of probes.
    fn repeats<R>(
        &mut self,
        elements: usize,
        probes: usize,
        effort: Effort,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<(), R>,
    ) -> Result<bool, R> {
        let known = (elements / effort.known / KNOWN_WINDOWS).clamp(2 * EQUAL, KNOWN_MOST);
        let first: [usize; KNOWN_WINDOWS] = array(|i| place(i as u64 + 1, elements - known));
        self.hits = [0; PARTS];
        self.tops.resize(KNOWN_WINDOWS * known, 0);
        for (first, window) in first.iter().zip(self.tops.chunks_exact_mut(known)) {
            read(*first, window)?;
        }
        let log = (2 * self.tops.len()).next_power_of_two().trailing_zeros();
        self.places.clear();
        self.places.resize(1 << log, 0);
        for start in (0..KNOWN_WINDOWS).map(|w| w * known) {
            for (i, tops) in (start..).zip(self.tops[start..][..known].windows(KEY).take(known - EQUAL + 1)) {
                if let Some(key) = key(tops) {
                    self.places[(key >> (64 - log)) as usize] = i as u16 + 1;
                }
            }
        }
        let mut hits = 0;
        for i in 0..probes as u64 {
            let (at, mut tops) = (place(i, elements - EQUAL), [0; EQUAL]);
            read(at, &mut tops[..KEY])?;
            let Some(key) = key(&tops[..KEY]) else { continue };
            let Some(place) = usize::from(self.places[(key >> (64 - log)) as usize]).checked_sub(1) else { continue };
            if first[place / known] + place % known == at || self.tops[place..][..KEY] != tops[..KEY] {
                continue;
            }
            read(at, &mut tops)?;
            // Nearly constant ones are equal by chance: what is sparse, or a mask.
            let changes = tops.windows(2).filter(|pair| pair[0] != pair[1]).count();
            if changes >= CHANGES && self.tops[place..][..EQUAL] == tops {
                hits += 1;
                self.hits[at * PARTS / elements] += 1;
            }
        }
        Ok(hits >= HITS)
    }
}

impl Effort {
    fn probes(self, len: usize) -> usize {
        (len / self.step).clamp(PROBES[0], PROBES[1])
    }
}

/// The top bytes of the first elements.
#[inline(always)]
fn top_bytes<E: Element>(bytes: &[u8], tops: &mut [u8]) {
    let elements = &E::all(bytes)[..tops.len()];
    zip(tops, elements, |to, e| *to = E::from_bytes(*e).shr(E::BITS - 8).wide() as u8);
}

/// The place of a probe or a window below `n`: steps of the golden ratio, which no row length divides.
fn place(i: u64, n: usize) -> usize {
    ((u128::from(i.wrapping_mul(GOLDEN)) * n as u128) >> 64) as usize
}

/// 2^64 over the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of top bytes; `None` if all are the same.
fn key(tops: &[u8]) -> Option<u64> {
    let [a, b] = *tops.as_chunks::<8>().0 else { return None };
    let (a, b) = (u64::from_le_bytes(a), u64::from_le_bytes(b));
    let constant = a == b && a == (a & 0xff) * 0x0101_0101_0101_0101;
    (!constant).then(|| (a ^ b.rotate_left(29)).wrapping_mul(GOLDEN))
}

/// Whether elements near each other are often equal; they have at least 2 bytes.
pub(crate) fn is_few(width: usize, bytes: &[u8]) -> bool {
    width > 1 && bytes.len() >= LEAST && with_element!(width, E => is_few_of::<E>(bytes))
}

fn is_few_of<E: Element>(bytes: &[u8]) -> bool {
    let elements = E::all(bytes);
    // Half of the bits of a wide float are 0 if it was cast from 16: many of those are equal by chance.
    let some = elements.iter().step_by(elements.len() / NARROW.len);
    let low = some.fold(E::default(), |or, e| or.or(E::from_bytes(*e).and(E::cut(0xffff))));
    let w = if E::BYTES > 2 && low != E::default() { WIDE } else { NARROW };
    let (mut different, mut seen) = (0, [0u64; WIDE.len / 2]);
    // One bit for each of 32 hashes an element.
    let seen = &mut seen[..w.len / 2];
    for i in 0..w.count {
        seen.fill(0);
        for e in elements[elements.len() / w.count * i..].iter().take(w.len) {
            let h = E::from_bytes(*e).wide().wrapping_mul(GOLDEN) >> 32;
            let h = (h * (64 * seen.len() as u64)) >> 32;
            seen[(h >> 6) as usize] |= 1 << (h & 63);
        }
        different += seen.iter().map(|s| s.count_ones() as usize).sum::<usize>();
    }
    different * 16 <= w.count * w.len * w.sixteenths
}

/// Windows of elements whose steps are compared, the elements of each, how much two steps in turn may differ (results of products are
/// rounded), and the share of steps that must not, in quarters.
const STEP_WINDOWS: usize = 8;
const STEP_WINDOW: usize = 16;
const STEP_SLACK: u64 = 4;
const STEP_QUARTERS: usize = 3;

/// Whether most elements rise or fall by the step of the one before, as `arange` and `linspace` make them: of floats, the steps of their bits
/// are equal between two powers of two. Noise has a step like that once in thousands.
fn has_steps<E: Element>(bytes: &[u8]) -> bool {
    let elements = E::all(bytes);
    let (mut equal, mut all) = (0, 0);
    for w in 0..STEP_WINDOWS {
        let window = elements[elements.len() / STEP_WINDOWS * w..].iter().take(STEP_WINDOW);
        let values: Vec<u64> = window.map(|e| E::from_bytes(*e).wide()).collect();
        for of in values.windows(3) {
            let step = of[1].wrapping_sub(of[0]);
            let difference = of[2].wrapping_sub(of[1]).wrapping_sub(step);
            all += 1;
            equal += usize::from(step != 0 && difference.wrapping_add(STEP_SLACK) <= 2 * STEP_SLACK);
        }
    }
    4 * equal >= STEP_QUARTERS * all
}

/// Rows of a window down a column. Of its elements 13/16 differ at most if they are few; of 128 weights in bf16
/// some 110 do.
const DOWN: usize = 128;
/// Columns with a window. In one of many columns of ordinary weights as few differ by chance.
const DOWN_COLUMNS: u64 = 4;

/// Whether elements below each other in a matrix with rows of `row` elements are often equal.
pub(crate) fn is_few_down(width: usize, bytes: &[u8], row: u64) -> bool {
    let rows = (bytes.len() / width) as u64 / row;
    if rows < DOWN as u64 / 2 {
        return false;
    }
    let is_few = |begin: u64| {
        let mut seen: Vec<u64> = with_element!(width, E => {
            let column = E::all(bytes).iter().skip(begin as usize).step_by(row as usize);
            column.take(DOWN).map(|e| E::from_bytes(*e).wide()).collect()
        });
        let n = seen.len();
        seen.sort_unstable();
        seen.dedup();
        16 * seen.len() <= 13 * n
    };
    (0..DOWN_COLUMNS).all(|i| is_few(row / 2 + i * row / (2 * DOWN_COLUMNS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_test_inputs::Random;

    fn noise(n: usize, seed: u64) -> Vec<u8> {
        let mut r = Random::new(seed);
        (0..n)
            .flat_map(|_| ((r.u64() as u32 as f32 / 4e9 - 0.5) * (r.u64() as u32 as f32 / 4e9)).to_le_bytes())
            .collect()
    }

    #[test]
    fn noise_has_no_structure() {
        let bytes = noise(1 << 18, 1);
        assert!(Finder::default().find(4, &bytes).is_noise());
        let narrow: Vec<u8> = bytes.as_chunks::<4>().0.iter().flat_map(|e| [e[2], e[3]]).collect();
        assert!(Finder::default().find(2, &narrow).is_noise());
    }

    #[test]
    fn few_values_down_one_column_are_chance() {
        let (row, width) = (384, 2);
        let mut bytes: Vec<u8> = noise(row * 300, 3).as_chunks::<4>().0.iter().flat_map(|e| [e[2], e[3]]).collect();
        let elements = bytes.as_chunks_mut::<2>().0;
        for r in 0..300 {
            elements[r * row + row / 2] = [(r % 16) as u8, 0x3c];
        }
        assert!(!is_few_down(width, &bytes, row as u64));
        // Columns of 16 levels.
        let elements = bytes.as_chunks_mut::<2>().0;
        for (i, e) in elements.iter_mut().enumerate() {
            *e = [(i / row * 7 % 16 * 16) as u8 + (i % row % 13) as u8, 0x3c];
        }
        assert!(is_few_down(width, &bytes, row as u64));
    }

    #[test]
    fn steps_are_found() {
        let find = |bytes: &[u8]| Finder::default().find(4, bytes).steps;
        for n in [1 << 10, 1 << 18] {
            let float = |f: fn(u32) -> f32| (0..n).flat_map(|i| f(i).to_le_bytes()).collect::<Vec<u8>>();
            assert!(find(&float(|i| i as f32)) && find(&float(|i| i as f32 * -0.1)));
            assert!(!find(&float(|_| 1.0)) && !find(&float(|i| (i as f32).sin())) && !find(&noise(n as usize, 5)));
        }
    }

    #[test]
    fn what_is_nearly_constant_does_not_repeat() {
        let mut r = Random::new(4);
        let weight = |r: &mut Random| if r.below(100) == 0 { (r.u64() as u32 & 0x7f_ffff) | 0x3c00_0000 } else { 0 };
        let sparse: Vec<u8> = (0..1 << 20).flat_map(|_| weight(&mut r).to_le_bytes()).collect();
        let mask: Vec<u8> = (0..1 << 20).flat_map(|i| f32::from(u8::from(i % 1024 > i >> 10)).to_le_bytes()).collect();
        for bytes in [sparse, mask] {
            assert!(!Finder::default().find(4, &bytes).repeats);
        }
    }

    #[test]
    fn repeats_are_found_at_any_distance() {
        for (row, len) in [(100, 1 << 20), (2048, 1 << 20), (50_000, 4 << 20)] {
            let bytes = noise(row, 2).repeat(len / row / 4 + 3);
            let found = Finder::default().find(4, &bytes);
            assert!(found.repeats, "{row}");
        }
    }
}
