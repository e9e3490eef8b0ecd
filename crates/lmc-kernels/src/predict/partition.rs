//! Residuals by context and back, in plain Rust: the reference of every kernel, and compiled for several of them.

use super::job::{
    Model, Overflow, Place, Rank, RowTerms, Streams, TILE, most_overflows, places, places_by_width, trim,
};
use super::select::{Selection, nth_one};
use super::{Contexts, MAX_BOUNDARIES, residual};
use crate::cluster::element::{Element, with_element};
use crate::inline::zip;

/// The number of elements of every context.
#[inline(always)]
pub(crate) fn count(m: &Model<'_>) -> Vec<usize> {
    let Some(finder) = Finder::new(m) else { return vec![m.len] };
    // Several counters of each, so that increments for equal neighbouring keys do not depend on each other.
    let mut seen = [[0usize; 256]; 4];
    let mut keys = [0; TILE];
    for i in (0..m.len).step_by(TILE) {
        for four in finder.keys(i, TILE.min(m.len - i), &mut keys).chunks(4) {
            zip(&mut seen, four, |n, &key| n[usize::from(key)] += 1);
        }
    }
    let mut counts = vec![0; finder.contexts];
    for (key, &context) in finder.table.iter().enumerate() {
        counts[usize::from(context)] += seen.iter().fold(0, |all, n| all + n[key]);
    }
    counts
}

/// Appends the rank of each of the elements `at`, which rise; returns the number of elements of every context.
#[inline(always)]
pub(crate) fn rank(m: &Model<'_>, at: &[u32], ranks: &mut Vec<Rank>) -> Vec<usize> {
    let finder = Finder::new(m).expect("there are contexts");
    // Several counters of each, so that increments for neighbours of one context do not depend on each other.
    let mut seen = [[0u32; CONTEXTS]; 4];
    let mut keys = [0; TILE];
    let mut left = at;
    for i in (0..m.len).step_by(TILE) {
        let n = TILE.min(m.len - i);
        let keys = finder.keys(i, n, &mut keys);
        let mut done = 0;
        for e in of_tile(&mut left, i, n) {
            add_contexts(&keys[done..e], &finder.table, &mut seen);
            let context = finder.table[usize::from(keys[e])];
            ranks
                .push(Rank { context, before: seen.iter().fold(0, |all, n| all + n[usize::from(context) % CONTEXTS]) });
            done = e;
        }
        add_contexts(&keys[done..], &finder.table, &mut seen);
    }
    (0..finder.contexts).map(|c| seen.iter().map(|n| n[c] as usize).sum()).collect()
}

/// Finds elements by their ranks in their contexts.
#[inline(always)]
pub(crate) fn select(m: &Model<'_>, selections: &mut [Selection<'_>]) {
    let finder = Finder::new(m).expect("there are contexts");
    let mut keys = [0; TILE];
    for i in (0..m.len).step_by(TILE) {
        for (e, &key) in finder.keys(i, TILE.min(m.len - i), &mut keys).iter().enumerate() {
            selections[usize::from(finder.table[usize::from(key)])].step((i + e) as u32, [1], nth_one);
        }
    }
}

#[inline(always)]
fn add_contexts(keys: &[u8], table: &[u8; 256], seen: &mut [[u32; CONTEXTS]; 4]) {
    for four in keys.chunks(4) {
        zip(seen, four, |n, &key| n[usize::from(table[usize::from(key)]) % CONTEXTS] += 1);
    }
}

/// Takes those of `left` that are in a tile of `n` elements, from element `i` on; returns their indices in the tile.
#[inline(always)]
pub(crate) fn of_tile<'a>(left: &mut &'a [u32], i: usize, n: usize) -> impl Iterator<Item = usize> + use<'a> {
    let most = &left[..left.len().min(n)];
    let (here, rest) = left.split_at(most.partition_point(|&e| (e as usize) < i + n));
    *left = rest;
    here.iter().map(move |&e| e as usize - i)
}

/// Writes the residuals of `elements` to `streams`, and truncates these. False if a context has no room, or more than [`most_overflows`]
/// residuals exceed a stream's elements; the contents of `streams` are then unspecified.
#[inline(always)]
#[must_use]
pub(crate) fn partition(m: &Model<'_>, elements: &[u8], streams: &mut Streams) -> bool {
    let Some(finder) = Finder::new(m) else {
        residual::residuals(m.width, elements, m.prediction, streams.get_mut(0));
        return true;
    };
    let (bytes, streams, overflows) = streams.raw_parts_mut();
    let mut places = places(bytes.len(), streams, finder.contexts, m.width);
    let mut cursors = cursors(&places);
    let mut keys = [0; TILE];
    let mut residuals = [0; 8 * TILE];
    for (i, elements) in elements.chunks(TILE * m.width).enumerate() {
        let residuals = &mut residuals[..elements.len()];
        residual::residuals(m.width, elements, m.predictions(i * TILE, elements.len()), residuals);
        let keys = finder.keys(i * TILE, elements.len() / m.width, &mut keys);
        let there =
            with_element!(m.width, E => scatter::<E>(keys, &finder.table, residuals, bytes, &mut cursors, overflows));
        if !there || overflows.len() > most_overflows(m.len) {
            return false;
        }
    }
    for (place, c) in places.iter_mut().zip(&cursors) {
        place.next = c.next;
    }
    trim(streams, &places);
    // Recorded by their place in the buffer of all streams.
    overflows.iter_mut().for_each(|o| o.at -= places[usize::from(o.context)].first);
    true
}

/// The inverse of [`partition`]. False if the length of a stream is not that of its context; the contents of `out` are then unspecified.
#[inline(always)]
#[must_use]
pub(crate) fn restore(m: &Model<'_>, streams: &Streams, out: &mut [u8]) -> bool {
    let Some(finder) = Finder::new(m) else {
        out.copy_from_slice(streams.get(0));
        restore_in_place(m, out);
        return true;
    };
    let (bytes, streams) = streams.raw_parts();
    let mut cursors = cursors(&places(bytes.len(), streams, finder.contexts, m.width));
    let mut keys = [0; TILE];
    for (i, out) in out.chunks_mut(TILE * m.width).enumerate() {
        let keys = finder.keys(i * TILE, out.len() / m.width, &mut keys);
        if !with_element!(m.width, E => gather::<E>(keys, &finder.table, bytes, &mut cursors, out)) {
            return false;
        }
        residual::restore(m.width, m.predictions(i * TILE, out.len()), out);
    }
    cursors.iter().all(|c| c.next == c.end)
}

/// [`restore`] with a kernel: `gather(i, n, bytes, places, to)` puts the residuals of `n` elements, from element `i`
/// on, into `to`, which has room for a tile of elements of up to four bytes. It may take more from streams than they
/// have, all else is checked here.
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))),
    expect(dead_code, reason = "for kernels")
)]
#[inline(always)]
#[must_use]
pub(crate) fn restore_tiles(
    m: &Model<'_>,
    contexts: usize,
    streams: &Streams,
    out: &mut [u8],
    mut gather: impl FnMut(usize, usize, &[u8], &mut [Vec<Place>; 2], &mut [u8]),
) -> bool {
    let (bytes, streams) = streams.raw_parts();
    let mut places = places_by_width(bytes.len(), streams, contexts, m.width);
    let mut last = [0; 4 * TILE];
    for (i, out) in out.chunks_mut(TILE * m.width).enumerate() {
        let (i, n) = (i * TILE, out.len());
        let whole = n == TILE * m.width;
        gather(i, n / m.width, bytes, &mut places, if whole { &mut *out } else { &mut last });
        if !are_within(&places) {
            return false;
        }
        if !whole {
            out.copy_from_slice(&last[..n]);
        }
        residual::restore(m.width, m.predictions(i, n), out);
    }
    places.iter().flatten().all(|p| p.next == p.end)
}

/// Whether no place is beyond its end. It is enough to look after each tile: behind the end of a stream there is room
/// for one.
#[inline(always)]
pub(crate) fn are_within(places: &[Vec<Place>; 2]) -> bool {
    places.iter().flatten().all(|p| p.next <= p.end)
}

/// Replaces the residuals of the only context by their elements.
#[inline(always)]
pub(crate) fn restore_in_place(m: &Model<'_>, out: &mut [u8]) {
    residual::restore(m.width, m.prediction, out);
}

/// Finds the keys of predictions, and their contexts.
pub(crate) struct Finder<'a> {
    prediction: &'a [u8],
    pub(crate) width: usize,
    pub(crate) terms: Option<RowTerms<'a>>,
    pub(crate) contexts: usize,
    #[cfg_attr(
        not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))),
        expect(dead_code, reason = "for kernels")
    )]
    pub(crate) boundaries: &'a [u8],
    table: [u8; 256],
}

impl<'a> Finder<'a> {
    /// `None` if there is a single context.
    pub(crate) fn new(m: &Model<'a>) -> Option<Self> {
        let contexts = m.contexts?;
        Some(Self {
            prediction: m.prediction,
            width: m.width,
            terms: m.terms,
            contexts: contexts.count(),
            boundaries: &contexts.boundaries,
            table: contexts.table(),
        })
    }

    /// The predictions of `n` elements, from element `i` on.
    #[inline(always)]
    pub(crate) fn predictions(&self, i: usize, n: usize) -> &'a [u8] {
        &self.prediction[i * self.width..(i + n) * self.width]
    }

    /// Their keys.
    #[inline(always)]
    pub(crate) fn keys<'k>(&self, i: usize, n: usize, keys: &'k mut [u8; TILE]) -> &'k [u8] {
        let keys = &mut keys[..n];
        keys_of(self.width, self.predictions(i, n), keys);
        if let Some(terms) = self.terms {
            terms.subtract(i, keys);
        }
        keys
    }
}

/// The keys of predictions, without terms.
#[inline(always)]
pub(crate) fn keys_of(width: usize, prediction: &[u8], keys: &mut [u8]) {
    with_element!(width, E => {
        zip(keys, E::all(prediction), |key, p| *key = Contexts::key(E::from_bytes(*p)));
    });
}

/// Most contexts.
pub(crate) const CONTEXTS: usize = MAX_BOUNDARIES + 1;

/// The places by context, of a size that makes finding one a shift.
type Cursors = [Cursor; CONTEXTS];

#[derive(Clone, Copy, Default)]
struct Cursor {
    next: usize,
    end: usize,
    /// Bytes of an element.
    width: usize,
    /// The largest residual that fits.
    most: u64,
}

fn cursors(places: &[Place]) -> Cursors {
    let mut cursors = [Cursor::default(); CONTEXTS];
    zip(&mut cursors, places, |c, p| *c = Cursor { next: p.next, end: p.end, width: p.width, most: p.most });
    cursors
}

/// Stores whole elements; in a byte-wide stream, the next one overwrites all but the lowest byte.
#[inline(always)]
fn scatter<E: Element>(
    keys: &[u8],
    table: &[u8; 256],
    residuals: &[u8],
    bytes: &mut [u8],
    cursors: &mut Cursors,
    overflows: &mut Vec<Overflow>,
) -> bool {
    let residuals = &E::all(residuals)[..keys.len()];
    for (i, &key) in keys.iter().enumerate() {
        let context = table[usize::from(key)];
        let c = &mut cursors[usize::from(context) % CONTEXTS];
        if c.next == c.end {
            return false;
        }
        let e = E::from_bytes(residuals[i]);
        e.store(&mut bytes[c.next..]);
        let residual = e.wide();
        if residual > c.most {
            overflows.push(Overflow { context, at: c.next, residual });
        }
        c.next += c.width;
    }
    true
}

/// Records the residuals that exceed a byte, of the next elements in `places`; contexts without a place here are skipped.
#[cold]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for kernels of x86-64"))]
pub(crate) fn note_overflows<E: Element>(
    ids: &[u8],
    residuals: &[u8],
    places: &[Place],
    overflows: &mut Vec<Overflow>,
) {
    for (i, (&context, e)) in ids.iter().zip(residuals.chunks_exact(E::BYTES)).enumerate() {
        let Some(place) = places.iter().find(|p| p.context == context) else { continue };
        let residual = E::load(e).wide();
        if residual > place.most {
            let before = ids[..i].iter().filter(|&&id| id == context).count();
            overflows.push(Overflow { context, at: place.next - place.first + before, residual });
        }
    }
}

/// False where the buffer ends. Elements taken from the following stream by mistake are detected at the end.
#[inline(always)]
fn gather<E: Element>(keys: &[u8], table: &[u8; 256], bytes: &[u8], cursors: &mut Cursors, out: &mut [u8]) -> bool {
    let out = &mut E::all_mut(out)[..keys.len()];
    for (i, &key) in keys.iter().enumerate() {
        let c = &mut cursors[usize::from(table[usize::from(key)]) % CONTEXTS];
        let Some(from) = bytes.get(c.next..c.next + E::BYTES) else { return false };
        out[i] = E::load(from).and(E::cut(c.most)).to_bytes();
        c.next += c.width;
    }
    true
}
