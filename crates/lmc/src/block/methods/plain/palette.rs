//! Palettes: elements with few values are indices of these.

use crate::block::stream::Palette;
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_layout::error::{Error, Result};

/// Multiplies values for their hashes.
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// Most values of a palette, and elements of a sample.
const VALUES: usize = 256;
const SAMPLE: usize = 1024;
/// Places of a set of values: those of two bytes have one each.
const PLACES: usize = 1 << 16;

/// The values of elements, rising, and for each element its index, if there are few; elements have at least 2 bytes.
pub(crate) fn palette(width: usize, bytes: &[u8]) -> Option<(Vec<u64>, Vec<u8>)> {
    with_element!(width, E => palette_of::<E>(bytes))
}

fn palette_of<E: Element>(bytes: &[u8]) -> Option<(Vec<u64>, Vec<u8>)> {
    let elements = E::all(bytes);
    let value = |e: &E::Bytes| E::from_bytes(*e).wide();
    let mut sample: Vec<u64> = elements.iter().step_by((elements.len() / SAMPLE).max(1)).map(value).collect();
    sample.sort_unstable();
    sample.dedup();
    let mut found = Values::new();
    for value in sample {
        found.number::<E>(value)?;
    }
    let mut indices = vec![0; bytes.len()];
    for (e, to) in elements.iter().zip(E::all_mut(&mut indices)) {
        *to = E::cut(found.number::<E>(value(e))?.into()).to_bytes();
    }
    let mut values = found.values[..found.count].to_vec();
    if !values.is_sorted() {
        // The sample has missed some.
        let numbered = values.clone();
        values.sort_unstable();
        let index = |v| values.binary_search(v).expect("it is one") as u64;
        let indices_of: Vec<u64> = numbered.iter().map(index).collect();
        E::all_mut(&mut indices).iter_mut().for_each(|i| *i = E::cut(indices_of[value(i) as usize]).to_bytes());
    }
    Some((values, indices))
}

/// A set of at most [`VALUES`] values, numbered in the order in which they came.
struct Values {
    values: [u64; VALUES],
    count: usize,
    /// The number of a value, and one more, at its place, or further on if that is taken; 0 where there is none.
    numbers: Box<[u16; PLACES]>,
}

impl Values {
    fn new() -> Self {
        // Zeros from the system: most pages are never touched.
        let numbers = vec![0; PLACES].into_boxed_slice().try_into().expect("it has this length");
        Self { values: [0; VALUES], count: 0, numbers }
    }

    /// The number of a value of an element, which may be new; `None` if there is no room for it.
    #[inline(always)]
    fn number<E: Element>(&mut self, value: u64) -> Option<u8> {
        let mut at = if E::BYTES == 2 { value as u16 } else { (value.wrapping_mul(HASH) >> 48) as u16 };
        loop {
            let number = self.numbers[usize::from(at)];
            if number == 0 {
                return self.add(value, at);
            }
            let number = (number - 1) as u8;
            if E::BYTES == 2 || self.values[usize::from(number)] == value {
                return Some(number);
            }
            at = at.wrapping_add(1);
        }
    }

    #[cold]
    fn add(&mut self, value: u64, at: u16) -> Option<u8> {
        *self.values.get_mut(self.count)? = value;
        self.count += 1;
        self.numbers[usize::from(at)] = self.count as u16;
        Some((self.count - 1) as u8)
    }
}

/// Replaces indices by the values of a palette.
pub(super) fn look_up<E: Element>(palette: &Palette, out: &mut [u8]) -> Result<()> {
    let count = palette.values.len();
    let mut values = [E::default(); 256];
    palette.values.iter().zip(&mut values).for_each(|(&v, to)| *to = E::cut(v));
    let mut largest = 0;
    for e in E::all_mut(out) {
        let index = E::from_bytes(*e).wide();
        largest = largest.max(index);
        *e = values[(index & 255) as usize].to_bytes();
    }
    if largest < count as u64 {
        return Ok(());
    }
    Err(Error::damaged(format!("an element has index {largest} in a palette of {count} values")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn palettes_hold_all_values() {
        for n in [1u32, 2, 255, 256] {
            let values: Vec<u32> = (0..n).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
            let bytes: Vec<u8> = (0..5000u32).flat_map(|i| values[(i * i % n) as usize].to_le_bytes()).collect();
            let (values, indices) = palette(4, &bytes).unwrap();
            let back: Vec<u8> = u32::all(&indices)
                .iter()
                .flat_map(|i| (values[u32::from_le_bytes(*i) as usize] as u32).to_le_bytes())
                .collect();
            assert_eq!(back, bytes);
        }
        // A value that the sample misses is below the others.
        let rare: Vec<u8> = (0..5000u16).flat_map(|i| [0x3f80u16, 1][usize::from(i == 4999)].to_le_bytes()).collect();
        let (values, indices) = palette(2, &rare).unwrap();
        assert_eq!((values, indices.iter().filter(|&&i| i == 1).count(), indices[9998]), (vec![1, 0x3f80], 4999, 0));
        let many: Vec<u8> = (0..257u32).cycle().take(5000).flat_map(u32::to_le_bytes).collect();
        assert!(palette(4, &many).is_none());
    }
}
