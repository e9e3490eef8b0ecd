//! Finds tensors that are copies of a base's in another precision (`docs/format.md` §3.10). Which one, and how, is found by trial:
//! a few windows of the tensor are computed from each tensor of as many elements. Names and ranks say which one is tried first.

mod copies;
mod scales;
mod trial;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::block::{DerivedFrom, Interleaved, Recipe, Reference};
use crate::refs::base::Base;
pub use copies::copied_from;
use lmc_kernels::predict::Conversion;
use lmc_kernels::predict::derived::{BLOCK, BlockType, Codes, Number};
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::segment::Segment;
pub use scales::{LARGEST_CODES, stem};
use scales::{OfCodes, Scaled};
use trial::{Outcome, Trial};

/// What a tensor of the file follows from.
pub(crate) enum Found {
    /// The elements of another one, converted.
    Cast(Reference),
    /// Other recipes.
    Derived(DerivedFrom),
}

/// Least bytes of a tensor that is searched for.
const LEAST: u64 = 256;
/// Most trials for one file, and more for each tensor that is found: bases that have nothing to do with it cost little.
const TRIALS: usize = 1 << 9;
const TRIALS_MORE: usize = 1 << 8;
/// Least elements of a row that may stand in another place: each is a range.
const ROW_LEAST: u64 = 128;
/// Halves of attention heads, in rows.
const HALVES: [u64; 12] = [64, 32, 48, 128, 40, 16, 80, 96, 24, 36, 56, 112];

/// A tensor that others may be derived from.
#[derive(Clone, Copy)]
struct Candidate<'b> {
    base: usize,
    segment: &'b Segment,
    number: Number,
}

/// The tensors that `is_open`, with what they are derived from; sources are numbered as the given bases, from 1. `read` fills a buffer
/// with raw bytes of the file from an offset on.
pub(crate) fn find(
    segments: &[Segment],
    bases: &[&Base<'_>],
    is_open: impl Fn(usize) -> bool,
    read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
) -> BTreeMap<usize, Found> {
    let mut open: Vec<usize> =
        (0..segments.len()).filter(|&i| is_open(i) && forms(&segments[i]).next().is_some()).collect();
    if open.is_empty() {
        return BTreeMap::new();
    }
    // The scales of rows are as many as the weights of norms, and follow from none of these: they would take all trials.
    open.sort_by_key(|&i| Reverse(segments[i].len));
    let mut of_count: BTreeMap<u64, Vec<Candidate<'_>>> = BTreeMap::new();
    let mut named: BTreeMap<(u64, &str), usize> = BTreeMap::new();
    for (base, b) in bases.iter().enumerate().filter(|(_, b)| !b.is_beside()) {
        for segment in b.segments() {
            let number = segment.dtype.and_then(Number::of).filter(|n| Number::FLOATS.contains(n));
            let Some(number) = number else { continue };
            let elements = segment.len / number.width() as u64;
            let candidates = of_count.entry(elements).or_default();
            if let Some(name) = segment.name.as_deref() {
                named.entry((elements, stem(name))).or_insert(candidates.len());
            }
            candidates.push(Candidate { base, segment, number });
        }
    }
    let scales = OfCodes::new(segments);
    let mut search = Search { segments, bases, of_count, named, next: BTreeMap::new(), scales, trials: TRIALS, read };
    let mut found: BTreeMap<usize, Found> = open.iter().filter_map(|&i| Some((i, search.find(i)?))).collect();
    let derived: Vec<Scaled> =
        found.values().filter_map(|f| if let Found::Derived(from) = f { Scaled::of(*from) } else { None }).collect();
    for scaled in derived {
        if let Some(i) = search.scales.segment_at(scaled.scales_at()).filter(|&i| is_open(i))
            && !found.contains_key(&i)
            && let Some(recipe) = scaled.find(segments, i, bases, search.read)
        {
            found.insert(i, Found::Derived(recipe));
        }
    }
    found
}

/// What elements a tensor may have: their type, and how many there are.
#[derive(Clone, Copy)]
enum Form {
    Number(Number),
    Blocks(BlockType),
}

/// The forms that a tensor may have, each with its number of elements.
fn forms(segment: &Segment) -> impl Iterator<Item = (Form, u64)> {
    let len = segment.len;
    let dtype = segment.dtype.filter(|_| len >= LEAST);
    let of_blocks = dtype.filter(|d| d.is_block()).and_then(|d| {
        let (blocks, _) = BlockType::ALL.into_iter().find(|t| t.1 == d.name())?;
        let of_block = u64::from(d.bits() / 8);
        len.is_multiple_of(of_block).then_some((Form::Blocks(blocks), len / of_block * BLOCK as u64))
    });
    let number = match dtype {
        // Bytes that are pairs of codes.
        Some(Dtype::U8) => Some(Number::F4),
        dtype => dtype.and_then(Number::of).filter(|&n| n != Number::E8m0),
    };
    let of_numbers = number.map(|number| {
        let n = if number == Number::F4 { 2 * len } else { len / number.width() as u64 };
        (Form::Number(number), n)
    });
    of_blocks.into_iter().chain(of_numbers)
}

struct Search<'s> {
    segments: &'s [Segment],
    bases: &'s [&'s Base<'s>],
    /// The tensors of each number of elements.
    of_count: BTreeMap<u64, Vec<Candidate<'s>>>,
    /// The first of them with a name, without its last part.
    named: BTreeMap<(u64, &'s str), usize>,
    /// The candidate after the one that was found last, of this number of elements.
    next: BTreeMap<u64, usize>,
    scales: OfCodes<'s>,
    /// Trials that are left.
    trials: usize,
    read: &'s mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
}

impl Search<'_> {
    fn find(&mut self, i: usize) -> Option<Found> {
        let segment = &self.segments[i];
        forms(segment).find_map(|(form, elements)| self.find_as(segment, form, elements))
    }

    fn find_as(&mut self, segment: &Segment, form: Form, elements: u64) -> Option<Found> {
        let candidates = self.of_count.get(&elements)?;
        let of_scales = match form {
            Form::Number(number) => self.scales.of(segment, number, elements, self.read),
            Form::Blocks(_) => vec![],
        };
        // One with the same name first, then in order from the one after the last that was found.
        let next = self.next.get(&elements).copied().unwrap_or(0);
        let named = segment.name.as_deref().and_then(|name| self.named.get(&(elements, stem(name))).copied());
        let order = named.into_iter().chain(next..candidates.len()).chain(0..next);
        let mut trial = Trial::new(segment, self.bases, self.read);
        let mut best: Option<(u64, usize, DerivedFrom)> = None;
        'search: for at in order {
            let c = &candidates[at];
            for recipe in recipes(form, c.number, &of_scales) {
                if self.trials == 0 {
                    break 'search;
                }
                self.trials -= 1;
                let from = DerivedFrom {
                    recipe,
                    source: c.base as u32 + 1,
                    offset: c.segment.offset,
                    interleaved: None,
                    element: 0,
                };
                match trial.compare(&from) {
                    Outcome::Other => {}
                    Outcome::Same => {
                        best = Some((0, at, from));
                        break 'search;
                    }
                    Outcome::Near(apart) => {
                        if best.as_ref().is_none_or(|b| apart < b.0) {
                            best = Some((apart, at, from));
                        }
                    }
                    Outcome::Begins => {
                        if let Some(from) = interleaved(&mut trial, from, c.segment) {
                            best = Some((0, at, from));
                            break 'search;
                        }
                    }
                }
            }
        }
        let (_, at, from) = best?;
        self.trials += TRIALS_MORE;
        self.next.insert(elements, (at + 1) % candidates.len());
        Some(match from {
            // What has the same elements is found by their names or contents.
            DerivedFrom { recipe: Recipe::Cast(Conversion::None), interleaved: None, .. } => return None,
            DerivedFrom { recipe: Recipe::Cast(conversion), source, offset, interleaved: None, .. } => {
                Found::Cast(Reference { source, offset, conversion })
            }
            from => Found::Derived(from),
        })
    }
}

/// The recipes for a form from elements of this type, the most frequent first.
fn recipes(form: Form, from: Number, of_scales: &[Recipe]) -> Vec<Recipe> {
    match form {
        Form::Blocks(blocks) => vec![Recipe::Blocks(blocks, from)],
        Form::Number(to) => {
            let of_scales = of_scales.iter().filter_map(|recipe| match *recipe {
                Recipe::Codes { codes, groups, scales, in_column } => {
                    // Precisions other than that of the elements are of no use.
                    let fits = codes.precision == Number::F32 || codes.precision == from;
                    let codes = Codes { from, ..codes };
                    fits.then_some(Recipe::Codes { codes, groups, scales, in_column })
                }
                _ => None,
            });
            of_scales.chain(Conversion::between(from, to).map(Recipe::Cast)).collect()
        }
    }
}

/// How the rows of a tensor stand that begins like the one it is derived from.
fn interleaved(trial: &mut Trial<'_>, from: DerivedFrom, data: &Segment) -> Option<DerivedFrom> {
    let [rows, row] = data.shape[..] else { return None };
    if matches!(from.recipe, Recipe::Codes { .. }) || row < ROW_LEAST {
        return None;
    }
    HALVES.into_iter().filter(|half| rows.is_multiple_of(2 * half)).find_map(|half| {
        let from = DerivedFrom { interleaved: Some(Interleaved { row, head: 2 * half }), ..from };
        let is_second = trial.is_at(&from, row);
        (is_second && matches!(trial.compare(&from), Outcome::Same | Outcome::Near(_))).then_some(from)
    })
}
