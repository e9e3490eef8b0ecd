//! Figures that are added up over tensors.

use super::result::{Change, Figures};
use crate::diff::changes::Changes;

/// The counts of some elements; in bits in total, not in bits an element.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) tensors: u64,
    pub(crate) elements: u64,
    pub(crate) raw_size: u64,
    pub(crate) lmc_size: u64,
    pub(crate) zeros: u64,
    pub(crate) not_finite: u64,
    pub(crate) sign_bits: f64,
    pub(crate) exponent_bits: f64,
    pub(crate) mantissa_bits: f64,
    /// Which exponents occur, a bit each.
    pub(crate) exponents: Vec<u64>,
    /// Of one tensor with elements of 8 or 16 bits: how many different values they have.
    pub(crate) values: Option<u64>,
    /// Of one tensor: the narrower type that holds all of it.
    pub(crate) fits: Option<&'static str>,
    /// Of one tensor: equal for equal ones.
    pub(crate) fingerprint: u64,
}

impl Sums {
    /// Adds those of other elements. Figures of a single tensor are not kept.
    pub(crate) fn add(&mut self, other: &Self) {
        self.tensors += other.tensors;
        self.elements += other.elements;
        self.raw_size += other.raw_size;
        self.lmc_size += other.lmc_size;
        self.zeros += other.zeros;
        self.not_finite += other.not_finite;
        self.sign_bits += other.sign_bits;
        self.exponent_bits += other.exponent_bits;
        self.mantissa_bits += other.mantissa_bits;
        if self.exponents.len() < other.exponents.len() {
            self.exponents.resize(other.exponents.len(), 0);
        }
        self.exponents.iter_mut().zip(&other.exponents).for_each(|(a, b)| *a |= b);
    }

    pub(crate) fn distinct_exponents(&self) -> u64 {
        self.exponents.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }

    pub(crate) fn figures(&self) -> Figures {
        let each = |bits: f64| if self.elements > 0 { rounded(bits / self.elements as f64) } else { 0.0 };
        Figures {
            tensors: self.tensors,
            elements: self.elements,
            raw_size: self.raw_size,
            lmc_size: self.lmc_size,
            element_bits: each(8.0 * self.raw_size as f64),
            lmc_bits: each(8.0 * self.lmc_size as f64),
            sign_entropy: each(self.sign_bits),
            exponent_entropy: each(self.exponent_bits),
            mantissa_entropy: each(self.mantissa_bits),
            zeros: self.zeros,
            not_finite: self.not_finite,
            distinct_exponents: self.distinct_exponents(),
        }
    }
}

/// How many floats have a magnitude from 2^e to below 2^(e + 1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Magnitudes {
    /// The e of the first count.
    pub(crate) lowest: i32,
    /// From the first that is not 0 to the last.
    pub(crate) counts: Vec<u64>,
}

impl Magnitudes {
    /// Those of counts that may begin and end with 0.
    pub(crate) fn new(lowest: i32, counts: &[u64]) -> Self {
        let Some(first) = counts.iter().position(|&n| n > 0) else { return Self::default() };
        let last = counts.iter().rposition(|&n| n > 0).unwrap_or(first);
        // A block may have many small tensors: no room for counts that are 0.
        Self { lowest: lowest + first as i32, counts: counts[first..=last].to_vec() }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if self.counts.is_empty() {
            self.clone_from(other);
            return;
        }
        if other.counts.is_empty() {
            return;
        }
        let before = (self.lowest - other.lowest).max(0);
        self.counts.splice(..0, std::iter::repeat_n(0, before as usize));
        self.lowest -= before;
        let first = (other.lowest - self.lowest) as usize;
        self.counts.resize(self.counts.len().max(first + other.counts.len()), 0);
        self.counts[first..].iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
    }
}

/// The changes of some elements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    pub(crate) tensors: u64,
    pub(crate) unchanged_tensors: u64,
    pub(crate) raw_size: u64,
    pub(crate) delta_size: u64,
    pub(crate) lmc_size: u64,
    pub(crate) changes: Changes,
    /// For each bit from the lowest, in how many elements it changed.
    pub(crate) flips: Vec<u64>,
}

impl Moves {
    pub(crate) fn add(&mut self, other: &Self) {
        self.tensors += other.tensors;
        self.unchanged_tensors += other.unchanged_tensors;
        self.raw_size += other.raw_size;
        self.delta_size += other.delta_size;
        self.lmc_size += other.lmc_size;
        self.changes.add(&other.changes);
        self.add_flips(&other.flips);
    }

    pub(crate) fn add_flips(&mut self, flips: &[u64]) {
        if self.flips.len() < flips.len() {
            self.flips.resize(flips.len(), 0);
        }
        self.flips.iter_mut().zip(flips).for_each(|(a, b)| *a += b);
    }

    pub(crate) fn change(&self) -> Change {
        Change {
            tensors: self.tensors,
            unchanged_tensors: self.unchanged_tensors,
            raw_size: self.raw_size,
            delta_size: self.delta_size,
            lmc_size: self.lmc_size,
            compared: self.changes.compared,
            changed: self.changes.changed,
            distances: self.changes.levels.clone(),
            largest_distance: self.changes.largest,
        }
    }
}

/// Six decimals: more would be noise, and would take space.
pub(crate) fn rounded(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magnitudes_are_added_at_their_places() {
        let of = Magnitudes::new;
        assert_eq!(of(-3, &[0, 0, 5, 0, 1, 0]), Magnitudes { lowest: -1, counts: vec![5, 0, 1] });
        assert_eq!(of(4, &[0, 0]), Magnitudes::default());
        for (a, b, sum) in [
            (of(0, &[]), of(3, &[1]), of(3, &[1])),
            (of(3, &[1]), of(0, &[]), of(3, &[1])),
            (of(-2, &[1, 2]), of(1, &[4]), of(-2, &[1, 2, 0, 4])),
            (of(1, &[4]), of(-2, &[1, 2]), of(-2, &[1, 2, 0, 4])),
            (of(0, &[1, 1, 1, 1]), of(1, &[5, 6]), of(0, &[1, 6, 7, 1])),
        ] {
            let mut all = a.clone();
            all.add(&b);
            assert_eq!(all, sum, "{a:?} and {b:?}");
        }
    }
}
