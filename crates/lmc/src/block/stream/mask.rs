//! Masks of bits: which elements of a stream are coded; the others are 0.

use super::Mask;
use super::plan::Planner;
use super::planned::{Item, StreamPlan};
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::entropy::cost;
use lmc_kernels::map::Map;
use lmc_layout::error::{Error, Result};

/// One in this many bytes of a mask of residuals must be 0, or it costs more than it saves.
const EMPTY: usize = 64;
/// One in this many elements of a plain column must be 0 for a mask to be tried.
const ZEROS: usize = 16;

/// A bit for each element, 1 if it is selected, and their number.
pub(in crate::block) struct Selected {
    pub(in crate::block) bits: Vec<u8>,
    pub(in crate::block) count: usize,
}

impl Selected {
    /// The residuals other than 0, where many zeros are next to each other.
    pub(in crate::block) fn of_residuals(width: usize, elements: &[u8]) -> Option<Self> {
        let selected = with_element!(width, E => select::<E>(elements, |e| e != E::default()));
        let empty = selected.bits.iter().filter(|&&b| b == 0).count();
        (selected.count > 0 && empty * EMPTY >= selected.bits.len()).then_some(selected)
    }

    /// Moves the selected elements to the front, in order.
    pub(in crate::block) fn compact(&self, width: usize, elements: &mut [u8]) {
        with_element!(width, E => compact::<E>(&self.bits, elements));
    }
}

impl Planner {
    /// The stream of a mask, if there are zeros, and the elements that its clusters code.
    pub(in crate::block) fn plan_masked(
        &mut self,
        width: usize,
        map: Map,
        elements: &[u8],
    ) -> Option<(StreamPlan, Vec<u8>)> {
        let n = elements.len() / width;
        let zeros = with_element!(width, E => zeros::<E>(map, elements));
        if (zeros.positive + zeros.negative) * ZEROS < n {
            return None;
        }
        // A few zeros of the other sign are elements like others.
        let signs = 8 * zeros.negative > zeros.positive;
        let (selected, of_signs) = with_element!(width, E => select_plain::<E>(map, signs, elements));
        if selected.count == 0 {
            return None;
        }
        let mut coded = elements.to_vec();
        selected.compact(width, &mut coded);
        coded.truncate(selected.count * width);
        if signs {
            with_element!(width, E => clear_signs::<E>(map, &mut coded));
        }
        let mut plan = self.plan_clusters(width, map, &coded);
        let ((bytes, item), bits) = self.plan_cluster_map(selected.bits);
        plan.estimate += bits / (8 * cost::BIT) + 8 + of_signs.len() as u64;
        let mask = Mask::Bits { selected: selected.count, signs, bytes: Box::new(bytes) };
        plan.set_mask(mask, [item, Item::Bytes(of_signs)]);
        Some((plan, coded))
    }
}

struct Zeros {
    positive: usize,
    negative: usize,
}

fn zeros<E: Element>(map: Map, elements: &[u8]) -> Zeros {
    // 32-bit counters, which the compiler vectorises; no column has more elements.
    let count = |value: E| E::all(elements).iter().fold(0, |n, e| n + u32::from(E::from_bytes(*e) == value)) as usize;
    let negative = if map == Map::Rotate { count(E::cut(1).unmap(map)) } else { 0 };
    Zeros { positive: count(E::default()), negative }
}

/// Selects elements, and gives the signs of all if they are stored apart.
fn select_plain<E: Element>(map: Map, signs: bool, elements: &[u8]) -> (Selected, Vec<u8>) {
    let sign = if signs { E::cut(1).unmap(map) } else { E::default() };
    let selected = select::<E>(elements, |e| e.or(sign) != sign);
    let of_signs = if signs { select::<E>(elements, |e| e.and(sign) != E::default()).bits } else { vec![] };
    (selected, of_signs)
}

fn clear_signs<E: Element>(map: Map, elements: &mut [u8]) {
    for e in E::all_mut(elements) {
        let v = E::from_bytes(*e).map(map);
        *e = v.xor(v.and(E::cut(1))).unmap(map).to_bytes();
    }
}

fn select<E: Element>(elements: &[u8], is_selected: impl Fn(E) -> bool) -> Selected {
    let (mut bits, mut count) = (Vec::with_capacity((elements.len() / E::BYTES).div_ceil(8)), 0);
    for some in E::all(elements).chunks(64) {
        // A byte for each, in a loop that the compiler vectorises; a product moves the bits of eight together.
        let mut bytes = [0; 64];
        bytes.iter_mut().zip(some).for_each(|(to, e)| *to = u8::from(is_selected(E::from_bytes(*e))));
        for eight in &bytes.as_chunks::<8>().0[..some.len().div_ceil(8)] {
            let eight = (u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
            count += eight.count_ones() as usize;
            bits.push(eight);
        }
    }
    Selected { bits, count }
}

fn compact<E: Element>(bits: &[u8], elements: &mut [u8]) {
    let elements = E::all_mut(elements);
    let mut to = 0;
    for (first, &bits) in (0..).step_by(8).zip(bits) {
        // Zeros are often next to each other.
        if bits == 0 {
            continue;
        }
        let Some(&eight) = elements[first..].first_chunk::<8>() else {
            for i in first..elements.len() {
                elements[to] = elements[i];
                to += usize::from(bits >> (i - first) & 1);
            }
            break;
        };
        let room = elements[to..].first_chunk_mut::<8>().expect("no more elements than were read");
        let mut n = 0;
        for (i, e) in eight.into_iter().enumerate() {
            room[n & 7] = e;
            n += usize::from(bits >> i & 1);
        }
        to += n;
    }
}

/// Checks a mask of `n` elements, or their signs: unused bits are 0.
pub(in crate::block) fn check_bits(bits: &[u8], n: usize, what: &str) -> Result<()> {
    match bits.last() {
        Some(last) if !n.is_multiple_of(8) && last >> (n % 8) != 0 => {
            Err(Error::damaged(format!("unused bits of a stream's {what} are not 0")))
        }
        _ => Ok(()),
    }
}

/// Fills `out` with the selected elements in their places, and zeros between them; then applies the signs. Behind the selected elements is one
/// of any value, so that no element takes a branch.
pub(in crate::block) fn expand<E: Element>(
    bits: &[u8],
    signs: Option<&[u8]>,
    map: Map,
    selected: &[u8],
    out: &mut [u8],
) {
    let (out, selected) = (E::all_mut(out), E::all(selected));
    let mut from = 0;
    for (eight, &bits) in out.chunks_mut(8).zip(bits) {
        for (i, e) in eight.iter_mut().enumerate() {
            let bit = bits >> i & 1;
            *e = E::from_bytes(selected[from]).and(E::cut(0u64.wrapping_sub(u64::from(bit)))).to_bytes();
            from += usize::from(bit);
        }
    }
    let Some(signs) = signs else { return };
    for (i, e) in out.iter_mut().enumerate() {
        let sign = E::cut(u64::from(signs[i / 8] >> (i % 8) & 1));
        *e = E::from_bytes(*e).map(map).xor(sign).unmap(map).to_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::level::Level;
    use lmc_kernels::isa::Isa;
    use lmc_test_inputs::Random;

    #[test]
    fn selected_elements_come_back() {
        let mut r = Random::new(5);
        for n in [1, 7, 8, 9, 1000] {
            let elements: Vec<u8> = (0..n).flat_map(|_| (r.u64() as u16 * (r.below(2) as u16)).to_le_bytes()).collect();
            let all = select::<u16>(&elements, |e| e != 0);
            let mut coded = elements.clone();
            all.compact(2, &mut coded);
            coded.extend([7, 7]);
            let mut back = vec![1; elements.len()];
            check_bits(&all.bits, n, "mask").unwrap();
            expand::<u16>(&all.bits, None, Map::Rotate, &coded[..2 * all.count + 2], &mut back);
            assert_eq!(back, elements);
        }
        assert!(check_bits(&[0x10], 4, "mask").is_err() && check_bits(&[0x10], 5, "mask").is_ok());
    }

    #[test]
    fn zeros_of_both_signs_take_signs() {
        let mut r = Random::new(6);
        let mut planner = Planner::new(Isa::detect().unwrap(), Level::Default);
        let mut pruned = |signed: bool| -> Vec<u8> {
            let value = |r: &mut Random| (r.u64() as u16 & 0xbfff) | 0x3000;
            let keep = |v: u16, kept: bool| if kept { v } else { v & if signed { 0x8000 } else { 0 } };
            (0..10_000).flat_map(|_| keep(value(&mut r), r.below(2) == 0).to_le_bytes()).collect()
        };
        for signed in [false, true] {
            let elements = pruned(signed);
            let (plan, coded) = planner.plan_masked(2, Map::Rotate, &elements).unwrap();
            let Mask::Bits { selected, signs, .. } = plan.stream.mask else { panic!("it is a mask of bits") };
            assert_eq!((signs, 2 * selected), (signed, coded.len()));
        }
    }
}
