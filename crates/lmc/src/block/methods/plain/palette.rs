//! Palettes: elements with few values are indices of these.

use crate::block::stream::Palette;
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_layout::error::{Error, Result};

/// Multiplies values for their hashes.
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
/// Most values of a palette, and elements of a sample.
const VALUES: usize = 256;
const SAMPLE: usize = 1024;

/// The values of elements, rising, and for each element its index, if there are few; elements have at least 2 bytes.
pub(crate) fn palette(width: usize, bytes: &[u8]) -> Option<(Vec<u64>, Vec<u8>)> {
    with_element!(width, E => palette_of::<E>(bytes))
}

fn palette_of<E: Element>(bytes: &[u8]) -> Option<(Vec<u64>, Vec<u8>)> {
    let elements = E::all(bytes);
    let mut found = Values::new();
    let sample = elements.iter().step_by((elements.len() / SAMPLE).max(1));
    if !sample.chain(elements).all(|e| found.add(E::from_bytes(*e).wide())) {
        return None;
    }
    let mut values: Vec<u64> = found.slots.iter().flatten().copied().collect();
    values.sort_unstable();
    let index: Vec<u64> =
        found.slots.iter().map(|v| v.map_or(0, |v| values.binary_search(&v).expect("it is one") as u64)).collect();
    let mut indices = vec![0; bytes.len()];
    for (e, to) in elements.iter().zip(E::all_mut(&mut indices)) {
        *to = E::cut(index[found.slot(E::from_bytes(*e).wide())]).to_bytes();
    }
    Some((values, indices))
}

/// A set of at most [`VALUES`] values.
struct Values {
    slots: Vec<Option<u64>>,
    count: usize,
}

impl Values {
    fn new() -> Self {
        Self { slots: vec![None; 4 * VALUES], count: 0 }
    }

    /// The slot that has a value, or is free for it.
    fn slot(&self, value: u64) -> usize {
        let mut at = (value.wrapping_mul(HASH) >> 54) as usize;
        while self.slots[at].is_some_and(|v| v != value) {
            at = (at + 1) % self.slots.len();
        }
        at
    }

    /// False if there is no room for another value.
    fn add(&mut self, value: u64) -> bool {
        let at = self.slot(value);
        if self.slots[at].is_none() {
            self.slots[at] = Some(value);
            self.count += 1;
        }
        self.count <= VALUES
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
        let many: Vec<u8> = (0..257u32).cycle().take(5000).flat_map(u32::to_le_bytes).collect();
        assert!(palette(4, &many).is_none());
    }
}
