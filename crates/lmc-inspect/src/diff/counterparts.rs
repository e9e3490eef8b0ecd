//! The counterparts of a file's tensors in its bases, as the matcher finds them.

use std::collections::{HashMap, HashSet};

use lmc::internals::{DerivedFrom, Fit, Matcher, SourceRange, read_base};
use lmc::{Base, ReadAt, Result, Segment};
use lmc_kernels::predict::derived::Number;
use lmc_kernels::predict::{Conversion, convert};
use lmc_layout::Layout;
use lmc_layout::io::read_at;

/// How a tensor came from its counterpart in a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Relation {
    /// The one of the same name, shape and dtype, whatever its elements are; of opaque bytes, those at the same place.
    /// As a state ([`SegmentDiff::state`](super::SegmentDiff::state)): with the same bytes.
    Same,
    /// As a state: so matched, with other bytes.
    Changed,
    /// The one of the same name, but for wrappers, and dtype, with as many elements in another shape.
    Reshaped,
    /// The one of the same name with more or fewer elements. Whole rows that both have are compared.
    Resized,
    /// The one of the same name, but for wrappers, in another dtype. Elements are compared after conversion, if there is one.
    Retyped,
    /// One of another name: of the same shape and dtype, and the same name but for wrappers like `model.`, or with elements that are alike.
    Renamed,
    /// One in another precision, from which its elements are computed: codes, scales, blocks. They are compared with those.
    Derived,
    /// It has none.
    New,
}

impl Relation {
    /// All, in the order in which they are listed.
    pub(crate) const ALL: [Self; 8] = [
        Self::Same,
        Self::Changed,
        Self::Reshaped,
        Self::Resized,
        Self::Retyped,
        Self::Renamed,
        Self::Derived,
        Self::New,
    ];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Changed => "changed",
            Self::Reshaped => "reshaped",
            Self::Resized => "resized",
            Self::Retyped => "retyped",
            Self::Renamed => "renamed",
            Self::Derived => "derived",
            Self::New => "new",
        }
    }

    /// Its name in words.
    pub fn words(self) -> &'static str {
        if self == Self::Retyped { "re-typed" } else { self.name() }
    }
}

/// Where the counterpart of a segment is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counterpart {
    /// Which base, and which of its segments.
    pub(crate) place: (usize, usize),
    pub(crate) relation: Relation,
    conversion: Conversion,
    /// Bytes of the segment, from its beginning on, that have one; whole elements.
    pub(crate) len: u64,
    /// Where theirs are in the base.
    offset: u64,
    /// How they are computed, if they are; its sources are the bases, from 1.
    pub(crate) derived: Option<DerivedFrom>,
}

/// The counterparts of the segments of a file; `raw` has the bytes of the file.
pub(crate) fn find(
    layout: &Layout,
    segments: &[Segment],
    raw: &dyn ReadAt,
    bases: &[Base<'_>],
) -> Result<Vec<Option<Counterpart>>> {
    let mut matcher = Matcher::with_derived(layout, bases, &mut |at, buf| read_at(raw, "the input", buf, at));
    let names = names(bases);
    let tail = layout.segments.len();
    let (lengths, mut constants) = (lengths(bases), HashSet::new());
    let mut found = Vec::with_capacity(segments.len());
    for (i, segment) in segments.iter().enumerate() {
        // A tensor that the file does not hold whole, and bytes behind the tail, have none.
        let known = layout.segments.get(i).map_or(i == tail, |s| s == segment);
        let related = match known && segment.len > 0 {
            true => matcher.relate(layout, i, raw, segment.len)?,
            false => None,
        };
        let named = matcher.named(i).filter(|_| known);
        let width = segment.dtype.map_or(1, |d| d.coding_width() as u64);
        let derived = matcher.derived(i).filter(|_| known);
        let counterpart = match (named, related) {
            _ if derived.is_some() => derived.map(|d| {
                let base = matcher.number(d.source);
                let at = bases[base].segments().partition_point(|s| s.end() <= d.offset);
                Counterpart {
                    place: (base, at),
                    relation: Relation::Derived,
                    conversion: Conversion::None,
                    len: segment.len,
                    offset: d.offset,
                    derived: Some(DerivedFrom { source: base as u32 + 1, ..d }),
                }
            }),
            (Some(n), _) => Some(Counterpart {
                place: (n.base, n.segment),
                relation: match n.fit {
                    Fit::Same if segment.name != bases[n.base].segments()[n.segment].name => Relation::Renamed,
                    Fit::Same => Relation::Same,
                    Fit::Reshaped => Relation::Reshaped,
                    Fit::Retyped => Relation::Retyped,
                    Fit::Resized => Relation::Resized,
                },
                conversion: n.conversion,
                len: n.len,
                offset: bases[n.base].segments()[n.segment].offset,
                derived: None,
            }),
            (None, Some(r)) => {
                let base = matcher.number(r.reference.source);
                let theirs = bases[base].segments();
                let at = theirs.partition_point(|s| s.end() <= r.reference.offset);
                let relation = match segment.name.is_some() && theirs[at].name.is_some() {
                    true if segment.name != theirs[at].name => Relation::Renamed,
                    // Those of files whose tensor has no name.
                    true if segment.shape != theirs[at].shape => Relation::Reshaped,
                    _ => Relation::Same,
                };
                Some(Counterpart {
                    place: (base, at),
                    relation,
                    conversion: r.reference.conversion,
                    len: r.len.min(segment.len),
                    offset: r.reference.offset,
                    derived: None,
                })
            }
            (None, None) => {
                let place = segment.name.as_deref().and_then(|n| names.get(n));
                let constant = if known { constant(segment, raw, bases, &lengths, &mut constants)? } else { None };
                constant.or_else(|| place.map(|&place| incomparable(segment, place, bases)))
            }
        };
        found.push(counterpart.map(|c| Counterpart { len: c.len - c.len % width, ..c }));
    }
    Ok(found)
}

/// The first tensor of each name in the bases, where it is.
fn names<'b>(bases: &'b [Base<'_>]) -> HashMap<&'b str, (usize, usize)> {
    let mut names = HashMap::new();
    for (base, b) in bases.iter().enumerate() {
        for (i, s) in b.segments().iter().enumerate() {
            if let Some(name) = s.name.as_deref().filter(|n| !n.is_empty()) {
                names.entry(name).or_insert((base, i));
            }
        }
    }
    names
}

/// A tensor of the same name whose elements cannot be compared, or that has none.
fn incomparable(segment: &Segment, place: (usize, usize), bases: &[Base<'_>]) -> Counterpart {
    let theirs = &bases[place.0].segments()[place.1];
    let relation = match theirs.dtype == segment.dtype {
        true if theirs.shape == segment.shape && theirs.len == segment.len => Relation::Same,
        true if theirs.len == segment.len => Relation::Reshaped,
        true => Relation::Resized,
        false => Relation::Retyped,
    };
    Counterpart { place, relation, conversion: Conversion::None, len: 0, offset: theirs.offset, derived: None }
}

/// The tensors in the bases, by their numbers of elements.
fn lengths(bases: &[Base<'_>]) -> HashMap<u64, Vec<(usize, usize)>> {
    let mut lengths: HashMap<u64, Vec<_>> = HashMap::new();
    for (base, b) in bases.iter().enumerate() {
        for (i, s) in b.segments().iter().enumerate() {
            if let Some(dtype) = s.dtype.filter(|d| !d.is_block()) {
                lengths.entry(s.len / dtype.coding_width() as u64).or_default().push((base, i));
            }
        }
    }
    lengths
}

/// A counterpart of a tensor whose elements are all the same, of which no window tells anything: one with as many of them, and
/// one that is not `taken` yet if there is any.
fn constant(
    segment: &Segment,
    raw: &dyn ReadAt,
    bases: &[Base<'_>],
    lengths: &HashMap<u64, Vec<(usize, usize)>>,
    taken: &mut HashSet<(usize, usize)>,
) -> Result<Option<Counterpart>> {
    // Of many scalars not every one is compared with every other one.
    const TRIED: usize = 64;
    let own = |at: u64, to: &mut [u8]| read_at(raw, "the input", to, at);
    let Some(dtype) = segment.dtype.filter(|d| !d.is_block()) else { return Ok(None) };
    let width = dtype.coding_width();
    let Some(element) = repeated(segment, width, &mut |_| true, &own)? else { return Ok(None) };
    let each = || lengths.get(&(segment.len / width as u64)).into_iter().flatten().copied();
    let untaken = each().filter(|place| !taken.contains(place));
    for place in untaken.chain(each().filter(|place| taken.contains(place))).take(TRIED) {
        let theirs = &bases[place.0].segments()[place.1];
        let numbers = theirs.dtype.and_then(Number::of).zip(Number::of(dtype));
        let conversion = match theirs.dtype {
            Some(d) if d == dtype => Some(Conversion::None),
            _ => numbers.and_then(|(from, to)| Conversion::between(from, to)),
        };
        let Some(conversion) = conversion else { continue };
        let Some(source) = conversion.source_width(width) else { continue };
        if theirs.len / source as u64 != segment.len / width as u64 {
            continue;
        }
        let mut converted = Vec::new();
        let mut is_it = |first: &[u8]| {
            convert(conversion, first, &mut converted);
            converted == element
        };
        let read = |at: u64, to: &mut [u8]| read_base(&bases[place.0], at, to);
        if repeated(theirs, source, &mut is_it, &read)?.is_some() {
            taken.insert(place);
            let relation = if conversion == Conversion::None { Relation::Renamed } else { Relation::Retyped };
            let (len, offset) = (segment.len, theirs.offset);
            return Ok(Some(Counterpart { place, relation, conversion, len, offset, derived: None }));
        }
    }
    Ok(None)
}

/// The element that a segment has and no other one, if `is_it`.
fn repeated(
    segment: &Segment,
    width: usize,
    is_it: &mut dyn FnMut(&[u8]) -> bool,
    read: &dyn Fn(u64, &mut [u8]) -> Result<()>,
) -> Result<Option<Vec<u8>>> {
    const TOGETHER: u64 = 1 << 16;
    if segment.len < width as u64 || !segment.len.is_multiple_of(width as u64) {
        return Ok(None);
    }
    let mut bytes = vec![0; width];
    read(segment.offset, &mut bytes)?;
    if !is_it(&bytes) {
        return Ok(None);
    }
    let element = bytes.clone();
    for at in (0..segment.len).step_by(TOGETHER as usize) {
        bytes.resize(TOGETHER.min(segment.len - at) as usize, 0);
        read(segment.offset + at, &mut bytes)?;
        if bytes.chunks(width).any(|e| e != element) {
            return Ok(None);
        }
    }
    Ok(Some(element))
}

impl Counterpart {
    /// The bytes of the base that correspond to `len` bytes from byte `pos` of the segment on, converted; whole
    /// elements within [`Self::len`]. It is in one of the buffers.
    pub(crate) fn read<'b>(
        &self,
        segment: &Segment,
        pos: u64,
        len: usize,
        (own, bases): (&Base<'_>, &[Base<'_>]),
        buf: &'b mut Vec<u8>,
        converted: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        if let Some(derived) = &self.derived {
            let mut read = |range: &SourceRange, to: &mut [u8]| match range.source {
                0 => read_base(own, range.offset, to),
                source => read_base(&bases[source as usize - 1], range.offset, to),
            };
            derived.bytes(segment.dtype, pos, len, &mut read, buf)?;
            return Ok(buf);
        }
        let width = segment.dtype.map_or(1, |d| d.coding_width());
        let source = self.conversion.source_width(width).unwrap_or(width);
        buf.resize(len / width * source, 0);
        read_base(&bases[self.place.0], self.offset + pos / width as u64 * source as u64, buf)?;
        Ok(match self.conversion {
            Conversion::None => buf,
            c => {
                convert(c, buf, converted);
                converted
            }
        })
    }
}
