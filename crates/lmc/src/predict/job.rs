//! What the kernels of the predict stage are given.

use super::{Classes, Predictor};

/// What an element's class is found by.
#[derive(Clone, Copy)]
pub(crate) enum Context<'a> {
    /// There is one class.
    None,
    /// By the prediction.
    Prediction,
    /// By elements of this width in bytes.
    Other(&'a [u8], usize),
}

/// A part, or what becomes one, and what its elements are predicted from.
#[derive(Clone, Copy)]
pub(crate) struct Model<'a> {
    /// Bytes of an element.
    pub(crate) width: usize,
    /// Elements of the part.
    pub(crate) len: usize,
    pub(crate) predictor: Predictor,
    /// As many elements as the part has; empty for [`Predictor::None`].
    pub(crate) prediction: &'a [u8],
    pub(crate) context: Context<'a>,
    /// There where there is a context.
    pub(crate) classes: Option<&'a Classes>,
}

impl<'a> Model<'a> {
    /// The context's elements and their width.
    pub(crate) fn context(&self) -> Option<(&'a [u8], usize)> {
        match self.context {
            Context::None => None,
            Context::Prediction => Some((self.prediction, self.width)),
            Context::Other(bytes, width) => Some((bytes, width)),
        }
    }

    /// The predictions of `len` bytes of elements, from element `first` on; empty for [`Predictor::None`].
    pub(crate) fn predictions(&self, first: usize, len: usize) -> &'a [u8] {
        let at = first * self.width;
        if self.predictor == Predictor::None { &[] } else { &self.prediction[at..at + len] }
    }

    /// The bounds that every kernel relies on; holds in release builds too.
    pub(crate) fn check(&self) {
        let predicted = if self.predictor == Predictor::None { 0 } else { self.len * self.width };
        assert_eq!(self.prediction.len(), predicted, "a prediction for every element");
        assert_eq!(self.context().is_some(), self.classes.is_some(), "classes have a context");
        if let (Some((bytes, width)), Some(classes)) = (self.context(), self.classes) {
            assert_eq!(bytes.len(), self.len * width, "a context for every element");
            assert!(matches!(width, 1 | 2 | 4 | 8) && classes.shift + 8 <= 8 * width as u32, "keys lie in the context");
            assert!(classes.count() <= super::MAX_BOUNDARIES + 1 && classes.boundaries.is_sorted_by(|a, b| a < b));
        }
    }
}

/// Bytes behind every section that vector loads and stores may touch.
pub(crate) const SLACK: usize = 64;

/// The sections of a part: elements of one class after the other, each class with [`SLACK`] behind it.
#[derive(Default)]
pub(crate) struct Sections {
    bytes: Vec<u8>,
    /// Where each class starts, and how many bytes it has.
    places: Vec<(usize, usize)>,
}

impl Sections {
    /// Makes room for classes of these numbers of elements. Contents are whatever was there.
    pub(crate) fn reset(&mut self, width: usize, counts: &[usize]) {
        self.places.clear();
        let mut at = 0;
        for n in counts {
            self.places.push((at, n * width));
            at += n * width + SLACK;
        }
        if self.bytes.len() < at {
            self.bytes.resize(at, 0);
        }
    }

    pub(crate) fn get(&self, class: usize) -> &[u8] {
        let (at, len) = self.places[class];
        &self.bytes[at..at + len]
    }

    pub(crate) fn get_mut(&mut self, class: usize) -> &mut [u8] {
        let (at, len) = self.places[class];
        &mut self.bytes[at..at + len]
    }

    /// All bytes, and where each class starts and how many it has.
    pub(crate) fn parts_mut(&mut self) -> (&mut [u8], &[(usize, usize)]) {
        (&mut self.bytes, &self.places)
    }

    pub(crate) fn parts(&self) -> (&[u8], &[(usize, usize)]) {
        (&self.bytes, &self.places)
    }
}

/// Where a class goes on in its section, and where that ends.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) next: usize,
    pub(crate) end: usize,
}

/// The places of so many classes, in a buffer of `len` bytes: kernels rely on it that behind every end there are [`SLACK`] of them.
pub(crate) fn places(len: usize, of: &[(usize, usize)], classes: usize) -> [Place; super::MAX_BOUNDARIES + 1] {
    assert_eq!(of.len(), classes, "a section for every class");
    let mut places = [Place::default(); super::MAX_BOUNDARIES + 1];
    for (place, &(at, n)) in places.iter_mut().zip(of) {
        assert!(at <= len && n <= len - at && SLACK <= len - at - n, "sections have slack");
        *place = Place { next: at, end: at + n };
    }
    places
}
