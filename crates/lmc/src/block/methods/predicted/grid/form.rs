//! The ways in which weights are quantised.

use super::codebook::{self, Codebook};
use super::lattice::Lattice;
use lmc_kernels::predict::grid::{GridModel, Terms};

/// The kind of levels, and the terms that each group has.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// The levels of a format; a scale.
    Scaled(&'static Codebook),
    /// Integers from 0 on; a scale and an offset.
    Affine,
}

/// With an offset, levels are 0 … this.
pub(super) const TOP: usize = 31;

/// The level of an element: its index among those of its sign.
#[derive(Clone, Copy, Default)]
pub(super) struct LevelIndex {
    pub(super) at: u8,
    pub(super) negative: bool,
}

impl Form {
    /// All forms that are searched for, those that fit the fewest elements first.
    pub(super) fn all() -> impl Iterator<Item = Form> {
        codebook::ALL.iter().map(Form::Scaled).chain([Form::Affine])
    }

    /// Terms of each group.
    pub(super) fn terms(self) -> usize {
        if let Form::Affine = self { 2 } else { 1 }
    }

    /// The level of an element that is nearest for some terms, and whether it becomes the element.
    #[inline(always)]
    pub(super) fn level(self, lattice: Lattice, terms: Terms, bits: u32) -> (LevelIndex, bool) {
        let Form::Scaled(book) = self else { return affine_level(lattice, terms, bits) };
        let (magnitude, negative) = (lattice.magnitude(bits), lattice.is_negative(bits));
        let side = book.side(negative);
        let at = side.nearest(lattice.value(magnitude) / f32::from_bits(terms.scale));
        let level = side.level(at).to_bits();
        (LevelIndex { at: at as u8, negative }, GridModel::element(lattice.0, terms, level) == magnitude)
    }

    /// The value of a level.
    pub(super) fn value(self, LevelIndex { at, negative }: LevelIndex) -> f32 {
        match self {
            Form::Affine => at.into(),
            Form::Scaled(book) if negative => -book.side(true).level(at.into()),
            Form::Scaled(book) => book.side(false).level(at.into()),
        }
    }
}

/// The bits of the element that a level becomes.
#[inline(always)]
pub(super) fn affine_element(lattice: Lattice, terms: Terms, level: usize) -> u32 {
    GridModel::element(lattice.0, terms, (level as f32).to_bits())
}

/// [`Form::level`] with an offset.
#[inline(always)]
pub(super) fn affine_level(lattice: Lattice, terms: Terms, bits: u32) -> (LevelIndex, bool) {
    let offset = f32::from_bits(terms.offset.unwrap_or(0));
    let above = (lattice.signed_value(bits) - offset) / f32::from_bits(terms.scale);
    // No number becomes 0.
    let nearest = ((above + 0.5) as usize).min(TOP);
    // A number that is rounded to an element may be nearer to another level.
    let near = [nearest, nearest.saturating_sub(1), (nearest + 1).min(TOP)];
    let found = near.into_iter().find(|&at| affine_element(lattice, terms, at) == bits);
    (LevelIndex { at: found.unwrap_or(nearest) as u8, negative: false }, found.is_some())
}
