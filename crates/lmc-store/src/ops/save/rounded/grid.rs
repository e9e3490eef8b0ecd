//! Windows of flat tensors at regular distances: a tensor that is as long as these has one of them, wherever it begins.

use std::collections::HashMap;

use super::compare::{Elements, Key, WINDOW, is_constant, key};

/// Elements from one window to the next.
pub(super) const EVERY: u64 = 1 << 16;

/// Windows, and where they are.
pub(super) struct Grid {
    places: HashMap<Key, (usize, u64)>,
    /// Bits that are set for the windows: they exclude most others without a look-up.
    filter: Vec<u64>,
}

impl Grid {
    /// The grid of flat tensors; places give the index of a tensor in `flats`.
    pub(super) fn new<E, R>(elements: &mut Elements<'_, R>, flats: &[usize]) -> Result<Self, E>
    where
        R: FnMut(u64, &mut [u8]) -> Result<(), E>,
    {
        let mut places = HashMap::new();
        for (number, &flat) in flats.iter().enumerate() {
            let end = elements.tensors[flat].len / 4 - WINDOW;
            for at in (0..=end).step_by(EVERY as usize) {
                let key = key(elements.of_flat(flat, at, WINDOW)?);
                if !is_constant(key) {
                    places.entry(key).or_insert((number, at));
                }
            }
        }
        let mut filter = vec![0; (places.len() / 4).next_power_of_two()];
        for &key in places.keys() {
            let (word, bit) = slot(key, filter.len());
            filter[word] |= bit;
        }
        Ok(Self { places, filter })
    }

    /// Where windows of 16-bit elements are: the first element of each, and the number of the flat tensor and the element there.
    pub(super) fn hits(&self, elements: &[u8]) -> impl Iterator<Item = (u64, usize, u64)> {
        elements.windows(2 * WINDOW as usize).step_by(2).zip(0..).filter_map(|(window, i)| {
            let key = key(window);
            let (word, bit) = slot(key, self.filter.len());
            if self.filter[word] & bit == 0 {
                return None;
            }
            self.places.get(&key).map(|&(number, at)| (i, number, at))
        })
    }
}

/// The bit of a window: word and mask.
fn slot(key: Key, words: usize) -> (usize, u64) {
    let mixed = (key as u64 ^ ((key >> 64) as u64).rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 32) as usize & (words - 1), 1 << (mixed >> 26 & 63))
}
