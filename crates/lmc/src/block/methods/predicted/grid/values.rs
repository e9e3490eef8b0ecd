//! The different elements of a group. On a grid they are few, however large the group is: each is examined once.

use std::ops::Range;

/// A value, and how many elements have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) bits: u32,
    pub(super) count: u32,
}

/// Values of a group that are kept. A grid has 256 at most; others are those of elements that are not on it.
const MOST: usize = 1024;
/// The index that [`Values::each`] gives for elements whose value is not kept.
const NONE: u16 = MOST as u16;
/// Slots of the hash table.
const LOG_SLOTS: u32 = 12;
/// Slots that are probed for a value: crafted values may all have neighbouring ones.
const MOST_PROBES: usize = 64;
/// 2^32 over the golden ratio.
const GOLDEN: u32 = 0x9e37_79b9;

/// Collects values, keeping its memory.
pub(super) struct Values {
    slots: Vec<Slot>,
    /// The number of this collection: slots of others are free.
    round: u16,
    values: Vec<Value>,
    of_elements: Vec<u16>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    bits: u32,
    round: u16,
    value: u16,
}

impl Values {
    pub(super) fn new() -> Self {
        Self { slots: vec![Slot::default(); 1 << LOG_SLOTS], round: 0, values: vec![], of_elements: vec![] }
    }

    /// The values of some elements, in the order in which they first occur; if there are very many, some of them.
    pub(super) fn collect(&mut self, elements: &[u32], group: impl Iterator<Item = Range<usize>>) -> &[Value] {
        self.values.clear();
        self.of_elements.clear();
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.slots.fill(Slot::default());
            self.round = 1;
        }
        for range in group {
            for &bits in &elements[range] {
                let value = self.add(bits);
                self.of_elements.push(value);
            }
        }
        &self.values
    }

    #[inline(always)]
    fn add(&mut self, bits: u32) -> u16 {
        let first = (bits.wrapping_mul(GOLDEN) >> (32 - LOG_SLOTS)) as usize;
        for probe in 0..MOST_PROBES {
            let slot = &mut self.slots[(first + probe) % (1 << LOG_SLOTS)];
            if slot.round != self.round {
                if self.values.len() == MOST {
                    return NONE;
                }
                *slot = Slot { bits, round: self.round, value: self.values.len() as u16 };
                self.values.push(Value { bits, count: 1 });
                return slot.value;
            }
            if slot.bits == bits {
                self.values[usize::from(slot.value)].count += 1;
                return slot.value;
            }
        }
        NONE
    }

    /// Calls `each` with every element of the group that was collected, and the index of its value if that is kept.
    pub(super) fn each(&self, group: impl Iterator<Item = Range<usize>>, mut each: impl FnMut(usize, Option<usize>)) {
        let mut of_elements = self.of_elements.iter();
        for range in group {
            for (i, &value) in range.zip(&mut of_elements) {
                each(i, (value != NONE).then_some(value.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_test_inputs::Random;
    use std::iter::once;

    #[test]
    fn values_with_one_hash_are_not_searched_for_long() {
        let hash = |bits: &u32| bits.wrapping_mul(GOLDEN) >> (32 - LOG_SLOTS);
        let elements: Vec<u32> = (0..).filter(|bits| hash(bits) == 4095).take(500).collect();
        let mut values = Values::new();
        assert_eq!(values.collect(&elements, once(0..500)).len(), MOST_PROBES);
        let mut kept = 0;
        values.each(once(0..500), |i, value| {
            assert_eq!(value, (i < MOST_PROBES).then_some(i));
            kept += 1;
        });
        assert_eq!(kept, 500);
    }

    #[test]
    fn values_are_counted_and_those_of_other_groups_forgotten() {
        let (mut values, mut r) = (Values::new(), Random::new(3));
        let elements: Vec<u32> = (0..5000).map(|i| if i < 2000 { r.below(300) } else { r.u64() } as u32).collect();
        // More rounds than there are numbers of them.
        for round in 0..70_000usize {
            let from = round % 300;
            values.collect(&elements, once(from..from + 20));
        }
        for group in [&[(0, 0)][..], &[(0, 1), (5, 900)], &[(1000, 2000), (3000, 3100)], &[(0, 5000)]] {
            let ranges = || group.iter().map(|&(from, to)| from..to);
            let found = values.collect(&elements, ranges()).to_vec();
            let mut expected: Vec<Value> = vec![];
            let mut others = 0;
            for i in ranges().flatten() {
                let bits = elements[i];
                match expected.iter().position(|v| v.bits == bits) {
                    Some(at) => expected[at].count += 1,
                    None if expected.len() < MOST => expected.push(Value { bits, count: 1 }),
                    None => others += 1,
                }
            }
            assert_eq!(found, expected);
            let mut seen = vec![];
            values.each(ranges(), |i, value| {
                assert!(value.is_none_or(|v| expected[v].bits == elements[i]));
                others -= usize::from(value.is_none());
                seen.push(i);
            });
            assert!(others == 0 && seen.into_iter().eq(ranges().flatten()));
        }
    }
}
