//! Patches of a stream: corrections of elements that do not fit their cluster (`docs/format.md` §3.3.3).

use super::body::Body;
use super::{Mask, Numbers, Patches, Stream};
use lmc_kernels::bits::{BitReader, BitWriter};
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::entropy::hybrid_uint::{HybridUint, HybridUintReader, HybridUintWriter};
use lmc_kernels::map::Map;
use lmc_kernels::predict::changes::Changes;
use lmc_layout::error::{Error, Result};

/// Patches that are collected, in the order of their elements.
#[derive(Default)]
pub(in crate::block) struct PatchList {
    gaps: Vec<u64>,
    changes: Vec<u64>,
    /// The element after the last one.
    next: usize,
}

impl PatchList {
    pub(in crate::block) fn with_capacity(n: usize) -> Self {
        Self { gaps: Vec::with_capacity(n), changes: Vec::with_capacity(n), next: 0 }
    }

    /// The elements of `width` bytes that are not 0, to be listed.
    pub(in crate::block) fn of(width: usize, map: Map, nonzero: &Changes) -> Self {
        let mut list = Self::with_capacity(nonzero.at().len());
        with_element!(width, E => {
            for (&i, e) in nonzero.at().iter().zip(E::all(nonzero.elements())) {
                list.push(i as usize, E::from_bytes(*e).map(map).wide());
            }
        });
        list
    }

    /// Appends a patch: the element, above all before, and the value, not 0, that its mapped value is XORed with.
    #[inline(always)]
    pub(in crate::block) fn push(&mut self, element: usize, change: u64) {
        debug_assert!(element >= self.next && change != 0);
        self.gaps.push((element - self.next) as u64);
        self.changes.push(change);
        self.next = element + 1;
    }

    pub(in crate::block) fn clear(&mut self) {
        self.gaps.clear();
        self.changes.clear();
        self.next = 0;
    }

    /// The list of elements, and the bytes of its gaps and of its values; `None` if there is nothing.
    pub(in crate::block) fn list(&mut self) -> Option<(Mask, [Vec<u8>; 2])> {
        if self.gaps.is_empty() {
            return None;
        }
        self.changes.iter_mut().for_each(|y| *y -= 1);
        let [(gaps, of_gaps), (values, of_values)] = [numbers(&self.gaps), numbers(&self.changes)];
        Some((Mask::List { selected: self.gaps.len(), gaps, values }, [of_gaps, of_values]))
    }

    /// Their description in the head, and their coded bytes. No change has any of the `low` lowest bits. Overwrites the changes.
    pub(in crate::block) fn encode(&mut self, low: u32) -> (Option<Patches>, Vec<u8>) {
        if self.gaps.is_empty() {
            return (None, Vec::new());
        }
        self.changes.iter_mut().for_each(|y| *y = (*y >> low) - 1);
        let (gaps, changes) = (HybridUint::build(&self.gaps), HybridUint::build(&self.changes));
        let (gap, change) = (HybridUintWriter::new(&gaps), HybridUintWriter::new(&changes));
        let mut bits = BitWriter::default();
        for (&g, &y) in self.gaps.iter().zip(&self.changes) {
            gap.put(g, &mut bits);
            change.put(y, &mut bits);
        }
        let bytes = bits.finish();
        (Some(Patches { count: self.gaps.len(), low, gaps, changes, len: bytes.len() }), bytes)
    }
}

/// Numbers, and their bytes.
fn numbers(numbers: &[u64]) -> (Numbers, Vec<u8>) {
    let code = HybridUint::build(numbers);
    let writer = HybridUintWriter::new(&code);
    let mut bits = BitWriter::default();
    numbers.iter().for_each(|&n| writer.put(n, &mut bits));
    let bytes = bits.finish();
    (Numbers { code, len: bytes.len() }, bytes)
}

/// Reads numbers.
pub(in crate::block) struct NumberReader<'a> {
    code: HybridUintReader,
    bits: BitReader<'a>,
    len: usize,
}

impl<'a> NumberReader<'a> {
    /// Takes the numbers' bytes from the body.
    pub(in crate::block) fn new(numbers: &Numbers, body: &mut Body<'a>) -> Result<Self> {
        let (code, bytes) = (HybridUintReader::new(&numbers.code)?, body.take_bulk(numbers.len)?);
        Ok(Self { code, bits: BitReader::new(bytes), len: numbers.len })
    }

    #[inline(always)]
    fn take(&mut self) -> u64 {
        self.code.take(&mut self.bits)
    }
}

impl Stream {
    /// Calls `each` with the place and the mapped value of each listed element, in order, of `n`.
    pub(in crate::block) fn each_listed(
        &self,
        body: &mut Body<'_>,
        n: usize,
        each: impl FnMut(usize, u64),
    ) -> Result<()> {
        let Mask::List { selected, gaps, values } = &self.mask else { return Ok(()) };
        let selected = *selected;
        let (mut gaps, mut values) = (NumberReader::new(gaps, body)?, NumberReader::new(values, body)?);
        each_pair(refused_in_list, selected, n, Patches::ones(self.width, 0), || (gaps.take(), values.take()), each)?;
        used_up(&gaps.bits, "gaps", selected, gaps.len)?;
        used_up(&values.bits, "values", selected, values.len)
    }
}

/// Elements of a list that are decoded at once.
pub(in crate::block) const AT_ONCE: usize = 256;

impl Stream {
    /// [`Self::each_listed`], for up to [`AT_ONCE`] elements at a time: what is done with them does not wait for the next ones.
    pub(in crate::block) fn each_batch(
        &self,
        body: &mut Body<'_>,
        n: usize,
        mut each: impl FnMut(&[u32], &[u64]) -> Result<()>,
    ) -> Result<()> {
        let Mask::List { selected, gaps, values } = &self.mask else { return Ok(()) };
        let selected = *selected;
        let (mut gaps, mut values) = (NumberReader::new(gaps, body)?, NumberReader::new(values, body)?);
        let take = match gaps.code.at_once().min(values.code.at_once()) {
            3.. => take_pairs::<3>,
            2 => take_pairs::<2>,
            _ => take_single_pairs,
        };
        let (mut places, mut between, mut numbers) = ([0; AT_ONCE], [0; AT_ONCE], [0; AT_ONCE]);
        let most = Patches::ones(self.width, 0);
        let (mut next, mut left) = (0, selected);
        while left > 0 {
            let len = AT_ONCE.min(left);
            let (places, between, numbers) = (&mut places[..len], &mut between[..len], &mut numbers[..len]);
            take([&mut gaps, &mut values], [between, numbers]);
            next = places_after(next, n as u64, most, between, numbers, places)?;
            left -= len;
            each(places, numbers)?;
        }
        used_up(&gaps.bits, "gaps", selected, gaps.len)?;
        used_up(&values.bits, "values", selected, values.len)
    }
}

/// Turns gaps into places of elements, from element `next` of `n` on, and numbers below `most` into values, which are one more.
/// Returns the element after the last one. It does the work of [`each_pair`], with one check for all.
fn places_after(
    mut next: u64,
    n: u64,
    most: u64,
    gaps: &[u64],
    numbers: &mut [u64],
    places: &mut [u32],
) -> Result<u64> {
    const LOW: u64 = u32::MAX as u64;
    let first = next;
    let (mut high, mut highest) = (0, 0);
    for ((place, &gap), number) in places.iter_mut().zip(gaps).zip(&mut *numbers) {
        // Sums of so few numbers below 2^32 do not overflow.
        next += gap & LOW;
        *place = next as u32;
        next += 1;
        high |= gap & !LOW;
        highest = highest.max(*number);
        *number = number.wrapping_add(1);
    }
    if high != 0 || next > n || highest >= most {
        let mut pairs = gaps.iter().zip(&*numbers).map(|(&gap, &value)| (gap, value.wrapping_sub(1)));
        let pair = || pairs.next().expect("as many as are checked");
        each_pair(refused_in_list, gaps.len(), (n - first) as usize, most, pair, |_, _| ())?;
    }
    Ok(next)
}

/// The next numbers of two sequences: `N` of each at a time, for which the bits ahead are loaded once. They are read by turns, so that the
/// two wait for memory at the same time.
fn take_pairs<const N: usize>([a, b]: [&mut NumberReader<'_>; 2], [to_a, to_b]: [&mut [u64]; 2]) {
    let ((to_a, rest_a), (to_b, rest_b)) = (to_a.as_chunks_mut::<N>(), to_b.as_chunks_mut::<N>());
    let (mut of_a, mut of_b) = (a.bits, b.bits);
    for (to_a, to_b) in to_a.iter_mut().zip(to_b) {
        a.code.take_some(&mut of_a, to_a);
        b.code.take_some(&mut of_b, to_b);
    }
    (a.bits, b.bits) = (of_a, of_b);
    take_single_pairs([a, b], [rest_a, rest_b]);
}

fn take_single_pairs([a, b]: [&mut NumberReader<'_>; 2], [to_a, to_b]: [&mut [u64]; 2]) {
    for (to_a, to_b) in to_a.iter_mut().zip(to_b) {
        (*to_a, *to_b) = (a.take(), b.take());
    }
}

/// Reads `count` gaps between elements, of `n`, and numbers below `most`; calls `each` with the places and with the values, one more than
/// the numbers. `refused` says what is wrong with a gap and a number before `left` elements.
#[inline(always)]
fn each_pair(
    refused: impl Fn([u64; 2], u64, u64) -> String,
    count: usize,
    n: usize,
    most: u64,
    mut next: impl FnMut() -> (u64, u64),
    mut each: impl FnMut(usize, u64),
) -> Result<()> {
    let mut left = n as u64;
    for _ in 0..count {
        let (gap, number) = next();
        if gap >= left || number >= most {
            return Err(Error::damaged(refused([gap, number], left, most)));
        }
        let element = n - left as usize + gap as usize;
        left -= gap + 1;
        each(element, number + 1);
    }
    Ok(())
}

fn refused_in_list([gap, value]: [u64; 2], left: u64, most: u64) -> String {
    if gap >= left {
        return format!("a mask has a gap of {gap}, where {left} elements follow");
    }
    format!("a listed element has value {value}; values are below {most}")
}

fn refused_patch([gap, change]: [u64; 2], left: u64, most: u64) -> String {
    format!("a patch has gap {gap} and change {change}, where {left} elements follow and changes are below {most}")
}

fn used_up(bits: &BitReader<'_>, what: &str, count: usize, len: usize) -> Result<()> {
    if bits.is_used_up() {
        return Ok(());
    }
    Err(Error::damaged(format!("{count} {what} do not take the {len} bytes that the head gives them")))
}

impl Patches {
    /// Calls `apply` with each patch of a stream of `n` elements of `width` bytes, in order: the element, and the value that its mapped
    /// value is XORed with.
    pub(in crate::block) fn each(
        &self,
        bytes: &[u8],
        n: usize,
        width: usize,
        mut apply: impl FnMut(usize, u64),
    ) -> Result<()> {
        let (gaps, changes) = (HybridUintReader::new(&self.gaps)?, HybridUintReader::new(&self.changes)?);
        let mut bits = BitReader::new(bytes);
        let next = || (gaps.take(&mut bits), changes.take(&mut bits));
        let most = Self::ones(width, self.low);
        each_pair(refused_patch, self.count, n, most, next, |i, change| apply(i, change << self.low))?;
        used_up(&bits, "patches", self.count, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_single_pairs() {
        let mut random = lmc_test_inputs::Random::new(5);
        for round in 0..2000 {
            let (n, most, next) = (1 + random.below(1 << 22), 1 + random.below(1 << 16), random.below(100));
            let count = 1 + random.below(AT_ONCE as u64) as usize;
            let mut gaps: Vec<u64> = (0..count).map(|_| random.below(2 * n / count as u64 + 1)).collect();
            let mut values: Vec<u64> = (0..count).map(|_| random.below(most)).collect();
            let at = random.below(count as u64) as usize;
            match round % 8 {
                0 => gaps[at] = u64::MAX - random.below(3),
                1 => gaps[at] = (1 << 32) + random.below(n),
                2 => gaps[at] = u64::from(u32::MAX) - random.below(3),
                3 => values[at] = most + random.below(2),
                4 => values[at] = u64::MAX,
                _ => {}
            }
            let n = next + n;
            let mut one_by_one = Vec::new();
            let mut pairs = gaps.iter().copied().zip(values.iter().copied());
            let expected = each_pair(
                refused_in_list,
                count,
                (n - next) as usize,
                most,
                || pairs.next().unwrap(),
                |i, x| {
                    one_by_one.push((next as u32 + i as u32, x));
                },
            );
            let mut places = vec![0; count];
            match (places_after(next, n, most, &gaps, &mut values, &mut places), expected) {
                (Ok(after), Ok(())) => {
                    assert!(places.iter().copied().zip(values).eq(one_by_one));
                    assert_eq!(after, u64::from(places[count - 1]) + 1);
                }
                (Err(e), Err(same)) => assert_eq!(e.to_string(), same.to_string()),
                (is, expected) => panic!("{is:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn patches_come_back() {
        for width in [1, 2, 4, 8] {
            let ones = u64::MAX >> (64 - 8 * width);
            for low in [0, 3] {
                for list in [vec![], vec![(0, ones)], vec![(0, 8), (1, 16), (9, ones), (999, 8)]] {
                    let list: Vec<(usize, u64)> = list.into_iter().map(|(i, x)| (i, x >> low << low)).collect();
                    let mut patches = PatchList::default();
                    list.iter().for_each(|&(i, x)| patches.push(i, x));
                    let (head, bytes) = patches.encode(low);
                    let Some(head) = head else {
                        assert!(list.is_empty() && bytes.is_empty());
                        continue;
                    };
                    let mut back = vec![];
                    head.each(&bytes, 1000, width, |i, x| back.push((i, x))).unwrap();
                    assert_eq!(back, list);
                    let last = list.last().unwrap().0;
                    assert!(head.each(&bytes, last, width, |_, _| ()).is_err());
                    assert!(head.each(&bytes[1..], 1000, width, |_, _| ()).is_err());
                }
            }
        }
    }
}
