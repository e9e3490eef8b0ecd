//! The account of a file: the tensors that it declares, those that were found and those that were not.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::strided::{Elements, TensorView};
use crate::segment::{Segment, Shape};

/// Most tensors that are missing by name, and most other files that are named: the rest are counted.
const MAX_NAMED: usize = 1 << 16;

/// A tensor that a file declares, and whose elements cannot be given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// Its name; empty if it has none, or if this is a fault of the file.
    pub name: String,
    /// The reason, in words that begin with "its" or "it", or a sentence about the file.
    pub why: Cow<'static, str>,
    /// The bytes of the file that it has, if that is known.
    pub place: Option<Range<u64>>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name[..] {
            "" => f.write_str(&self.why),
            name => write!(f, "tensor {name:?}: {}", self.why),
        }
    }
}

/// The tensors that a file declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tensors {
    /// The format that declares them, named as in `lmc::Reader::layout`.
    pub format: String,
    /// Those whose elements are in the file, under each of their names. Several may have the same elements.
    pub found: Vec<TensorView>,
    /// Those that cannot be given. A file that its format's own library would refuse has at least one.
    pub missing: Vec<Missing>,
    /// How many more are missing.
    pub more_missing: u64,
    /// Files beside this one that have some of the missing ones, as this file calls them.
    pub files: Vec<String>,
}

impl Tensors {
    /// Whether every tensor was found.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// What a format says of a file besides its segments. Compression ignores it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    missing: Vec<Missing>,
    more: u64,
    files: Vec<String>,
    /// Offsets of the tensors whose first dimension is the innermost one: their segments have the reversed shape.
    fortran: Vec<u64>,
    /// Whether programs that read the format refuse bytes of no tensor, except for the header.
    without_gaps: bool,
}

impl Account {
    pub(super) fn missing(&mut self, name: impl Into<String>, why: impl Into<Cow<'static, str>>) {
        self.missing_at(name, why, None);
    }

    /// The same, of a tensor whose bytes are known.
    pub(super) fn missing_at(
        &mut self,
        name: impl Into<String>,
        why: impl Into<Cow<'static, str>>,
        place: Option<Range<u64>>,
    ) {
        match self.missing.len() {
            MAX_NAMED => self.more += 1,
            _ => self.missing.push(Missing { name: name.into(), why: why.into(), place }),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Says that every byte behind the header has to be one of a tensor.
    pub(super) fn without_gaps(&mut self) {
        self.without_gaps = true;
    }

    pub(super) fn fortran(&mut self, offset: u64) {
        self.fortran.push(offset);
    }

    /// Notes another file that has tensors.
    pub(super) fn file(&mut self, name: &str) {
        // Most often it is the one noted last.
        if self.files.len() < MAX_NAMED && self.files.last().is_none_or(|last| last != name) {
            self.files.push(name.to_owned());
        }
    }

    /// The tensors with names that begin with `prefix`, of a file with these segments.
    pub(super) fn tensors(mut self, format: &str, segments: &[Segment], prefix: &str) -> Tensors {
        let gaps = segments.iter().skip(1).filter(|s| self.without_gaps && s.dtype.is_none());
        for (from, to) in gaps.map(|s| (s.offset, s.end())).collect::<Vec<_>>() {
            let why = format!("no tensor has the bytes {from} to {to}: programs that read {format} refuse such a file");
            self.missing("", why);
        }
        let end = segments.last().map_or(0, Segment::end);
        let Self { mut missing, more, mut files, mut fortran, .. } = self;
        fortran.sort_unstable();
        files.sort_unstable();
        files.dedup();
        let view = |s: &Segment| {
            let view = TensorView::of_segment(s).filter(|view| view.name.starts_with(prefix))?;
            Some(if fortran.binary_search(&s.offset).is_ok() { turned(view) } else { view })
        };
        missing.retain(|m| m.name.is_empty() || m.name.starts_with(prefix));
        for m in &mut missing {
            m.place = m.place.take().map(|place| place.start..place.end.min(end)).filter(|place| !place.is_empty());
        }
        let found = segments.iter().filter_map(view).collect();
        Tensors { format: format.to_owned(), found, missing, more_missing: more, files }
    }
}

/// A tensor whose elements are in Fortran's order.
fn turned(view: TensorView) -> TensorView {
    let reversed: Shape = view.shape.iter().rev().copied().collect();
    let mut next = 1u64;
    let mut strides = Shape::default();
    for &n in &reversed[..] {
        strides.push(next);
        next = next.saturating_mul(n);
    }
    let strides = (!super::strided::is_contiguous(&reversed, &strides)).then_some(strides);
    let elements = Elements { strides, ..view.elements };
    TensorView { shape: reversed, elements, ..view }
}
