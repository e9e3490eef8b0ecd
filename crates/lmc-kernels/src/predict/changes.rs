//! Finds the elements that differ from their predictions, or from 0, where they are few.

use crate::cluster::element::{Element, with_element};
use crate::inline::array;

/// Most elements that are found in one step.
pub(crate) const STEP: usize = 64;

/// Elements, and the values that they are compared with.
#[derive(Clone, Copy)]
pub struct Compared<'a> {
    /// Bytes of an element.
    pub width: usize,
    /// Whole elements.
    pub elements: &'a [u8],
    /// The predictions of all elements; empty for zeros.
    pub prediction: &'a [u8],
    /// The bits that are compared; the low ones of elements shorter than 64 bits.
    pub bits: u64,
}

impl<'a> Compared<'a> {
    /// Elements and their predictions, to the bit.
    pub fn with(prediction: &'a [u8], width: usize, elements: &'a [u8]) -> Self {
        Self { width, elements, prediction, bits: u64::MAX }
    }

    /// Elements and 0.
    pub fn with_zero(width: usize, elements: &'a [u8]) -> Self {
        Self::with(&[], width, elements)
    }

    /// The bounds that every kernel relies on; holds in release builds too.
    pub(crate) fn check(&self) {
        let Self { width, elements, prediction, .. } = self;
        assert!(prediction.is_empty() || prediction.len() == elements.len(), "a prediction for every element");
        let whole = elements.len().is_multiple_of(*width);
        assert!(whole && u32::try_from(elements.len() / width).is_ok(), "whole elements");
    }
}

/// Elements that differ from their predictions.
#[derive(Default)]
pub struct Changes {
    len: usize,
    width: usize,
    /// With room behind the last one, as the other fields.
    at: Vec<u32>,
    elements: Vec<u8>,
    predictions: Vec<u8>,
}

/// The buffers that kernels write to.
pub(crate) struct Room<'a> {
    pub(crate) len: &'a mut usize,
    pub(crate) at: &'a mut [u32],
    pub(crate) elements: &'a mut [u8],
    pub(crate) predictions: &'a mut [u8],
}

impl Changes {
    /// Their indices in the column, rising.
    pub fn at(&self) -> &[u32] {
        &self.at[..self.len]
    }

    /// The elements themselves.
    pub fn elements(&self) -> &[u8] {
        &self.elements[..self.len * self.width]
    }

    /// Their predictions.
    pub fn predictions(&self) -> &[u8] {
        &self.predictions[..self.len * self.width]
    }

    /// Clears all, and makes room for `most` elements of `width` bytes and [`STEP`] more.
    pub(crate) fn reset(&mut self, width: usize, most: usize) -> Room<'_> {
        (self.len, self.width) = (0, width);
        let room = most + STEP;
        if self.at.len() < room {
            self.at.resize(room, 0);
        }
        for v in [&mut self.elements, &mut self.predictions] {
            if v.len() < room * width {
                v.resize(room * width, 0);
            }
        }
        Room { len: &mut self.len, at: &mut self.at, elements: &mut self.elements, predictions: &mut self.predictions }
    }
}

/// Finds the elements that differ. False if they are more than `most`; the result is then invalid.
#[inline(always)]
#[must_use]
pub(crate) fn find(c: &Compared<'_>, most: usize, found: &mut Changes) -> bool {
    with_element!(c.width, E => find_as::<E>(c, &mut found.reset(c.width, most), most))
}

/// Bytes that are compared at once.
const BYTES: usize = 32;

#[inline(always)]
fn find_as<E: Element>(c: &Compared<'_>, room: &mut Room<'_>, most: usize) -> bool {
    let Compared { elements, prediction, bits, .. } = *c;
    let bits = (0..64 / E::BITS).fold(0, |all, i| all | E::cut(bits).wide() << (i * E::BITS));
    let (whole, rest) = elements.as_chunks::<BYTES>();
    let predicted = prediction.as_chunks::<BYTES>().0;
    let at = |i: usize| i * (BYTES / E::BYTES);
    for (i, e) in whole.iter().enumerate() {
        if !find_in::<E>(bits, e, predicted.get(i).unwrap_or(&[0; BYTES]), at(i), room, most) {
            return false;
        }
    }
    let (mut e, mut p) = ([0; BYTES], [0; BYTES]);
    e[..rest.len()].copy_from_slice(rest);
    if !prediction.is_empty() {
        p[..rest.len()].copy_from_slice(&prediction[whole.len() * BYTES..]);
    }
    find_in::<E>(bits, &e, &p, at(whole.len()), room, most)
}

/// Finds those of a few elements, from element `first` on; `bits` is repeated to fill a word.
#[inline(always)]
fn find_in<E: Element>(
    bits: u64,
    e: &[u8; BYTES],
    p: &[u8; BYTES],
    first: usize,
    room: &mut Room<'_>,
    most: usize,
) -> bool {
    let word = |b: &[u8; BYTES], i: usize| u64::from_le_bytes(b.as_chunks().0[i]);
    let words: [u64; BYTES / 8] = array(|i| (word(e, i) ^ word(p, i)) & bits);
    if words.iter().fold(0, |all, w| all | w) == 0 {
        return true;
    }
    for (w, &word) in words.iter().enumerate() {
        let mut differing = word;
        while differing != 0 {
            if *room.len == most {
                return false;
            }
            let i = differing.trailing_zeros() / E::BITS;
            let from = 8 * w + i as usize * E::BYTES;
            let to = *room.len * E::BYTES;
            room.at[*room.len] = (first + from / E::BYTES) as u32;
            E::load(&e[from..]).store(&mut room.elements[to..]);
            E::load(&p[from..]).store(&mut room.predictions[to..]);
            *room.len += 1;
            differing &= u64::MAX.unbounded_shl((i + 1) * E::BITS);
        }
    }
    true
}
