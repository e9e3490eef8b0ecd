//! How training moves weights: norms of tensors and of their updates, and the angle between one update and the next.

use std::collections::HashMap;

use lmc::internals::read_base;
use lmc::{Base, Dtype, Result, Segment};

use super::names::order_for;
use super::result::Course;
use super::spikes::spikes;
use crate::diff::counterparts::Relation;
use crate::diff::pieces::Piece;
use crate::element::{load, with_width};

/// Sums that are computed side by side: additions of one wait for each other.
const LANES: usize = 8;
/// Elements that are converted at a time.
const TOGETHER: usize = 256;

/// Sums of squares and products of some floats, w, their updates Δ since the checkpoint before, and the updates Δ' before those.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Norms {
    /// How many are finite.
    elements: u64,
    weights: f64,
    /// The same of their counterparts.
    old: u64,
    before: f64,
    /// How many of both are finite, and their updates.
    moved: u64,
    updates: f64,
    /// Those with an update before: Δ·Δ', Δ², Δ'².
    turned: [f64; 3],
    compared: u64,
    changed: u64,
}

impl Norms {
    /// Counts a piece; `older` has as many bytes of the checkpoint before the one before.
    pub(super) fn of(piece: &Piece<'_>, changed: u64, older: Option<&[u8]>) -> Self {
        let compared = piece.compared.len();
        let of_all = (compared / piece.dtype.map_or(1, Dtype::coding_width)) as u64;
        let Some(dtype) = piece.dtype.filter(|&d| is_counted(d)) else {
            return Self { compared: of_all, changed, ..Self::default() };
        };
        let (new, rest) = piece.elements.split_at(compared);
        let mut all = with_width!(dtype.coding_width(), sums(dtype, new, piece.old.unwrap_or_default(), older));
        all.add(&with_width!(dtype.coding_width(), sums(dtype, rest, &[], None)));
        (all.compared, all.changed) = (of_all, changed);
        all
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.elements += other.elements;
        self.weights += other.weights;
        self.old += other.old;
        self.before += other.before;
        self.moved += other.moved;
        self.updates += other.updates;
        self.turned.iter_mut().zip(other.turned).for_each(|(a, b)| *a += b);
        self.compared += other.compared;
        self.changed += other.changed;
    }
}

/// Floats of 16 or more bits: narrower ones mean little without their scales.
fn is_counted(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::C64 | Dtype::Bf16 | Dtype::F16)
}

/// A float's value.
#[inline(always)]
fn value<const WIDTH: usize>(dtype: Dtype, element: u64) -> f64 {
    match WIDTH {
        8 => f64::from_bits(element),
        4 => f32::from_bits(element as u32).into(),
        _ if dtype == Dtype::Bf16 => f32::from_bits((element as u32) << 16).into(),
        // The exponent of F16, moved to that of F32; what is not finite stays so.
        _ => {
            let (sign, magnitude) = ((element as u32 & 0x8000) << 16, (element as u32 & 0x7fff) << 13);
            let wide = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
            let wide = if magnitude >= 0x0f80_0000 { f32::INFINITY } else { wide };
            f64::from(f32::from_bits(wide.to_bits() | sign))
        }
    }
}

fn sums<const WIDTH: usize>(dtype: Dtype, new: &[u8], old: &[u8], older: Option<&[u8]>) -> Norms {
    // A loop for each number of checkpoints, and of each dtype.
    match (dtype == Dtype::F16, old.is_empty(), older) {
        (false, true, _) => sums_of::<WIDTH, 1>(Dtype::Bf16, [new; 3]),
        (false, false, None) => sums_of::<WIDTH, 2>(Dtype::Bf16, [new, old, old]),
        (false, false, Some(older)) => sums_of::<WIDTH, 3>(Dtype::Bf16, [new, old, older]),
        (true, true, _) => sums_of::<WIDTH, 1>(Dtype::F16, [new; 3]),
        (true, false, None) => sums_of::<WIDTH, 2>(Dtype::F16, [new, old, old]),
        (true, false, Some(older)) => sums_of::<WIDTH, 3>(Dtype::F16, [new, old, older]),
    }
}

/// Some values, and what follows from them; 0 where it is not finite.
struct Group {
    /// Of each checkpoint, the newest first.
    values: [[f64; TOGETHER]; 3],
    /// Δ, the same where there is a Δ', and Δ'.
    update: [f64; TOGETHER],
    turned: [f64; TOGETHER],
    earlier: [f64; TOGETHER],
}

#[inline(always)]
fn sums_of<const WIDTH: usize, const OF: usize>(dtype: Dtype, bytes: [&[u8]; 3]) -> Norms {
    let [new, old, older] = bytes.map(|b| b.chunks(TOGETHER * WIDTH));
    let zeros = [0.0; TOGETHER];
    let mut g = Group { values: [zeros; 3], update: zeros, turned: zeros, earlier: zeros };
    let mut sums = Norms::default();
    for ((new, old), older) in new.zip(old).zip(older) {
        let mut all_finite = true;
        for (values, bytes) in g.values.iter_mut().zip([new, old, older]).take(OF) {
            let (elements, _) = bytes.as_chunks::<WIDTH>();
            for (x, e) in values.iter_mut().zip(elements) {
                *x = value::<WIDTH>(dtype, load::<WIDTH>(e));
                all_finite &= x.is_finite();
            }
        }
        g.add_to::<OF>(new.len() / WIDTH, all_finite, &mut sums);
    }
    sums
}

impl Group {
    /// Adds the sums of `n` values of `OF` checkpoints.
    #[inline(always)]
    fn add_to<const OF: usize>(&mut self, n: usize, all_finite: bool, sums: &mut Norms) {
        let Self { values: [a, b, c], update, turned, earlier } = self;
        if OF > 1 {
            update.iter_mut().zip(a.iter().zip(b.iter())).for_each(|(d, (a, b))| *d = a - b);
        }
        if OF > 2 {
            earlier.iter_mut().zip(b.iter().zip(c.iter())).for_each(|(d, (b, c))| *d = b - c);
        }
        let mut counts = [n as u64; 3];
        if !all_finite {
            (*turned, counts) = (*update, [0; 3]);
            for i in 0..n {
                let are = [a[i], b[i], c[i]].map(f64::is_finite);
                let all = [are[0], are[1], are[0] && are[1]];
                counts.iter_mut().zip(all).for_each(|(count, is)| *count += u64::from(is));
                let only = |x: &mut f64, is: bool| *x = if is { *x } else { 0.0 };
                [&mut a[i], &mut b[i], &mut update[i]].into_iter().zip(all).for_each(|(x, is)| only(x, is));
                [&mut turned[i], &mut earlier[i]].into_iter().for_each(|x| only(x, all[2] && are[2]));
            }
        }
        let [a, b, update, turned, earlier] = [a, b, update, turned, earlier].map(|of| &of[..n]);
        sums.elements += counts[0];
        sums.weights += dot(a, a);
        if OF > 1 {
            sums.old += counts[1];
            sums.before += dot(b, b);
            sums.moved += counts[2];
            let squares = dot(update, update);
            sums.updates += squares;
            if OF > 2 {
                let (turned, squares) = if all_finite { (update, squares) } else { (turned, dot(turned, turned)) };
                let products = [dot(turned, earlier), squares, dot(earlier, earlier)];
                sums.turned.iter_mut().zip(products).for_each(|(sum, of)| *sum += of);
            }
        }
    }
}

/// The sum of products.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// Where the tensors of a file are in the checkpoint before the one before.
pub(super) struct Older<'a> {
    files: &'a [Base<'a>],
    /// For each segment, which file, and where in it.
    places: Vec<Option<(usize, u64)>>,
}

impl<'a> Older<'a> {
    /// Finds tensors of the same name, dtype and shape.
    pub(super) fn new<'s>(
        file: &Base<'_>,
        segments: impl Iterator<Item = (&'s Segment, Relation)>,
        files: &'a [Base<'a>],
    ) -> Self {
        let mut named: HashMap<&str, (usize, &Segment)> = HashMap::new();
        for at in order_for(file, files) {
            for segment in files[at].segments() {
                segment.name.as_deref().into_iter().for_each(|name| _ = named.entry(name).or_insert((at, segment)));
            }
        }
        let place = |(segment, relation): (&Segment, Relation)| {
            let (at, old) = named.get(segment.name.as_deref()?)?;
            let same = relation == Relation::Same && (old.dtype, &old.shape) == (segment.dtype, &segment.shape);
            same.then_some((*at, old.offset))
        };
        Self { files, places: if files.is_empty() { vec![] } else { segments.map(place).collect() } }
    }

    /// The bytes that were at those of a piece.
    pub(super) fn read<'b>(&self, piece: &Piece<'_>, buf: &'b mut Vec<u8>) -> Result<Option<&'b [u8]>> {
        let place = self.places.get(piece.segment).copied().flatten();
        let Some((file, offset)) = place.filter(|_| piece.old.is_some() && piece.dtype.is_some_and(is_counted)) else {
            return Ok(None);
        };
        buf.resize(piece.compared.len(), 0);
        read_base(&self.files[file], offset + piece.at, buf)?;
        Ok(Some(buf))
    }
}

/// How some floats moved so far: what does not exist is no number.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    norm: Vec<f32>,
    rms: Vec<f32>,
    update_norm: Vec<f32>,
    update_rms: Vec<f32>,
    ratio: Vec<f32>,
    cosine: Vec<f32>,
    changed: Vec<f32>,
}

impl Track {
    /// Adds the sums of a checkpoint: at least those of its floats.
    pub(super) fn add(&mut self, checkpoint: usize, n: &Norms) {
        self.fill(checkpoint);
        let root = |squares: f64, of: u64| if of > 0 { (squares / of as f64).sqrt() as f32 } else { f32::NAN };
        let norm = |squares: f64, of: u64| if of > 0 { squares.sqrt() as f32 } else { f32::NAN };
        if let Some(last) = checkpoint.checked_sub(1).filter(|&last| self.norm[last].is_nan()) {
            (self.norm[last], self.rms[last]) = (norm(n.before, n.old), root(n.before, n.old));
        }
        self.norm.push(norm(n.weights, n.elements));
        self.rms.push(root(n.weights, n.elements));
        if checkpoint > 0 {
            self.update_norm.push(norm(n.updates, n.moved));
            self.update_rms.push(root(n.updates, n.moved));
            let quotient = |a: f64, b: f64| if b > 0.0 { (a / b) as f32 } else { f32::NAN };
            self.ratio.push(quotient(n.updates.sqrt(), n.before.sqrt()));
            self.cosine.push(quotient(n.turned[0], (n.turned[1] * n.turned[2]).sqrt()));
            self.changed.push(quotient(n.changed as f64, n.compared as f64));
        }
    }

    /// How many points it has, of any curve.
    pub(super) fn len(&self) -> usize {
        self.norm.len()
    }

    /// So many checkpoints, the last ones without figures if they are missing.
    fn fill(&mut self, checkpoints: usize) {
        [&mut self.norm, &mut self.rms].into_iter().for_each(|of| of.resize(checkpoints, f32::NAN));
        let pairs = checkpoints.saturating_sub(1);
        let Self { update_norm, update_rms, ratio, cosine, changed, .. } = self;
        [update_norm, update_rms, ratio, cosine, changed].into_iter().for_each(|of| of.resize(pairs, f32::NAN));
    }

    /// The course over all checkpoints; empty if nothing is known.
    pub(super) fn course(mut self, checkpoints: usize) -> Course {
        self.fill(checkpoints);
        if self.norm.iter().chain(&self.changed).all(|x| x.is_nan()) {
            return Course::default();
        }
        let points = |of: Vec<f32>| of.into_iter().map(|x| (!x.is_nan()).then(|| digits(x))).collect::<Vec<_>>();
        let ratio = points(self.ratio);
        Course {
            norm: points(self.norm),
            rms: points(self.rms),
            update_norm: points(self.update_norm),
            update_rms: points(self.update_rms),
            spikes: spikes(&ratio),
            ratio,
            cosine: points(self.cosine),
            changed: points(self.changed),
        }
    }
}

/// Six significant digits: more would take space.
fn digits(x: f32) -> f32 {
    format!("{x:.5e}").parse().unwrap_or(x)
}

/// The layer of a tensor: the word before the first number in its name, and that; its module's name if there is none.
pub(super) fn layer(name: &str) -> (String, Option<u64>) {
    let parts: Vec<&str> = name.split(['.', '/']).collect();
    let (_, modules) = parts.split_last().unwrap_or((&"", &[]));
    for (i, part) in modules.iter().enumerate() {
        let word = part.trim_end_matches(|c: char| c.is_ascii_digit());
        if let Ok(number) = part[word.len()..].parse() {
            let before = if word.is_empty() { i.checked_sub(1).map_or("", |i| modules[i]) } else { word };
            return (before.trim_end_matches(['_', '-']).to_owned(), Some(number));
        }
    }
    (modules.last().copied().unwrap_or(name).to_owned(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_names() {
        for (name, word, number) in [
            ("model.layers.10.mlp.up.weight", "layers", Some(10)),
            ("transformer.h.3.ln_1.bias", "h", Some(3)),
            ("params/layer_7/kernel", "layer", Some(7)),
            ("lm_head.weight", "lm_head", None),
            ("model.embed_tokens.weight", "embed_tokens", None),
            ("w", "w", None),
            ("w7", "w7", None),
            ("3.weight", "", Some(3)),
        ] {
            assert_eq!(layer(name), (word.to_owned(), number), "{name}");
        }
    }

    #[test]
    fn what_is_not_finite_is_not_counted() {
        // Lengths with rests, and groups with and without such elements.
        for n in [0, 1, 3, 255, 256, 257, 1030] {
            for marked in [usize::MAX, 0, 2, 700] {
                let at = |times: usize, i: usize| if i == marked { f32::NAN } else { (times * i % 17) as f32 - 8.0 };
                let [a, b, c] = [3, 5, 7].map(|times| (0..n).map(|i| at(times, i)).collect::<Vec<_>>());
                let [new, old, older] =
                    [&a, &b, &c].map(|of| of.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
                let norms = sums::<4>(Dtype::F32, &new, &old, Some(&older));
                let finite =
                    || (0..n).filter(|&i| i != marked).map(|i| (f64::from(a[i]), f64::from(b[i]), f64::from(c[i])));
                let sum = |of: fn((f64, f64, f64)) -> f64| finite().map(of).sum::<f64>();
                let count = finite().count() as u64;
                assert_eq!((norms.elements, norms.old, norms.moved), (count, count, count), "{n} {marked}");
                // Small integers: sums are exact in any order.
                assert_eq!(
                    [norms.weights, norms.before, norms.updates],
                    [sum(|(a, _, _)| a * a), sum(|(_, b, _)| b * b), sum(|(a, b, _)| (a - b) * (a - b)),]
                );
                assert_eq!(
                    norms.turned,
                    [
                        sum(|(a, b, c)| (a - b) * (b - c)),
                        sum(|(a, b, _)| (a - b) * (a - b)),
                        sum(|(_, b, c)| (b - c) * (b - c)),
                    ]
                );
            }
        }
        // Each of the three may be the one.
        let of = |x: f32, y: f32| [x, y].map(f32::to_le_bytes).concat();
        let norms = sums::<4>(Dtype::F32, &of(1.0, f32::INFINITY), &of(f32::NAN, 2.0), Some(&of(3.0, 4.0)));
        assert_eq!((norms.elements, norms.old, norms.moved), (1, 1, 0));
        assert_eq!((norms.weights, norms.before, norms.updates, norms.turned), (1.0, 4.0, 0.0, [0.0; 3]));
        let norms = sums::<4>(Dtype::F32, &of(1.0, 5.0), &of(3.0, 2.0), Some(&of(f32::NAN, 4.0)));
        assert_eq!((norms.moved, norms.updates, norms.turned), (2, 13.0, [-6.0, 9.0, 4.0]));
    }

    #[test]
    fn values_of_all_widths() {
        for (bits, expected) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x0001, 2f64.powi(-24)),
            (0x7bff, 65504.0),
            (0x83ff, -1023.0 * 2f64.powi(-24)),
        ] {
            assert_eq!(value::<2>(Dtype::F16, bits), expected, "{bits:#x}");
        }
        for bits in [0x7c00, 0xfc00, 0x7e01] {
            assert!(!value::<2>(Dtype::F16, bits).is_finite(), "{bits:#x}");
        }
        assert_eq!(value::<2>(Dtype::Bf16, 0xbf80), -1.0);
        assert_eq!(value::<8>(Dtype::F64, 1e300f64.to_bits()), 1e300);
    }
}
