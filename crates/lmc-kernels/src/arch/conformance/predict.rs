//! The predict stage: every instruction set of this machine, portable included, against the definition.

use super::others;
use crate::cluster::element::{Element, with_element};
use crate::isa::Isa;
use crate::predict::changes::{Changes, Compared};
use crate::predict::job::{Model, Rank, RowTerms, Streams, most_overflows};
use crate::predict::optimizer::Rows;
use crate::predict::select::Selection;
use crate::predict::{Contexts, MAX_BOUNDARIES, residual};
use lmc_test_inputs::{Random, thorough};

const WIDTHS: [usize; 4] = [1, 2, 4, 8];
/// More than any kernel processes at once, with and without a remainder.
const LARGE: [usize; 8] = [511, 512, 1000, 1023, 1024, 1025, 2047, 5003];

/// Numbers of elements: up to `end`, or of these only those beside whole tiles of kernels, and larger ones.
fn lengths(end: usize) -> impl Iterator<Item = usize> {
    (0..=end).filter(|n| thorough() || matches!(n % 16, 0 | 1 | 15)).chain(LARGE)
}

fn all() -> Vec<Isa> {
    others().into_iter().chain([Isa::PORTABLE]).collect()
}

/// A column with its prediction.
struct Case {
    width: usize,
    len: usize,
    elements: Vec<u8>,
    prediction: Vec<u8>,
    contexts: Option<Contexts>,
    /// Rows and their terms.
    terms: Option<(Rows, Vec<u8>)>,
}

impl Case {
    fn new(r: &mut Random, width: usize, len: usize, classed: bool) -> Self {
        let mut elements = values(r, width, len);
        let prediction = values(r, width, len);
        if r.below(2) == 0 {
            // Elements near their predictions.
            with_element!(width, E => {
                for (u, p) in elements.chunks_exact_mut(E::BYTES).zip(prediction.chunks_exact(E::BYTES)) {
                    E::load(p).add(E::cut(r.below(9))).sub(E::cut(4)).store(u);
                }
            });
        }
        let contexts = classed.then(|| contexts(r));
        let terms = (classed && r.below(3) == 0).then(|| {
            let most = [4, 100, 3000][r.below(3) as usize];
            let row = 1 + r.below(most);
            let rows = Rows { len: row, position: r.below(row) };
            let terms = (0..rows.count(len)).map(|_| r.below(30) as u8).collect();
            (rows, terms)
        });
        Self { width, len, elements, prediction, contexts, terms }
    }

    fn model(&self) -> Model<'_> {
        Model {
            width: self.width,
            len: self.len,
            prediction: &self.prediction,
            contexts: self.contexts.as_ref(),
            terms: self.terms.as_ref().map(|(rows, terms)| RowTerms { rows: *rows, terms }),
        }
    }

    /// The context of an element as the format defines it.
    fn context(&self, i: usize) -> usize {
        self.contexts.as_ref().map_or(0, |c| {
            let key = with_element!(self.width, E => {
                E::load(&self.prediction[i * E::BYTES..]).rotl1().wide() >> (E::BITS - 8)
            });
            let term = |(rows, terms): &(Rows, Vec<u8>)| terms[((rows.position + i as u64) / rows.len) as usize];
            let key = (key as u8).wrapping_sub(self.terms.as_ref().map_or(0, term));
            c.boundaries.iter().filter(|&&b| b <= key).count()
        })
    }

    /// The streams, element by element.
    fn streams(&self) -> Vec<Vec<u8>> {
        let mut streams = vec![vec![]; self.contexts.as_ref().map_or(1, Contexts::count)];
        for i in 0..self.len {
            let context = self.context(i);
            with_element!(self.width, E => {
                let element = |from: &[u8]| E::load(&from[i * E::BYTES..]);
                let mut e = [0; 8];
                residual::of(element(&self.elements), element(&self.prediction)).store(&mut e);
                streams[context].extend_from_slice(&e[..E::BYTES]);
            });
        }
        streams
    }

    fn name(&self, isa: Isa) -> String {
        let Self { width, len, contexts, terms, .. } = self;
        let rows = terms.as_ref().map(|t| t.0);
        format!("{}: {len} elements of {width} bytes, {contexts:?}, {rows:?}", isa.name())
    }

    /// Every instruction set computes the defined streams, and inverts them.
    fn check(&self, streams: &mut Streams) {
        let m = self.model();
        let want = self.streams();
        let counts: Vec<usize> = want.iter().map(|s| s.len() / self.width).collect();
        let most = |s: &[u8]| s.chunks_exact(self.width).filter(|e| e[1..].iter().any(|&b| b != 0)).count();
        for (isa, roomy) in all().into_iter().flat_map(|isa| [(isa, false), (isa, true)]) {
            assert_eq!(isa.count_contexts(&m), counts, "{}", self.name(isa));
            // Byte-wide where nearly all residuals fit; overflows complete the others.
            let single = |s: &Vec<u8>| self.contexts.is_some() && 64 * want.len() * most(s) <= self.len;
            // Old contents must not matter.
            streams.raw_parts_mut().0.fill(0xa5);
            // The least room, or room for all elements.
            let room = |s: &[u8]| if roomy { self.len } else { s.len() / self.width };
            streams.reset(want.iter().map(|s| (room(s), if single(s) { 1 } else { self.width })));
            assert!(isa.partition(&m, &self.elements, streams), "{}: too many overflows", self.name(isa));
            streams.widen(self.width);
            for (context, want) in want.iter().enumerate() {
                let narrow: Vec<u8>;
                let want = if streams.width(context) < self.width {
                    narrow = want.iter().step_by(self.width).copied().collect();
                    &narrow
                } else {
                    want
                };
                assert!(streams.get(context) == want, "{}: context {context}", self.name(isa));
            }
            let mut out = vec![0x5a; self.elements.len()];
            assert!(isa.restore(&m, streams, &mut out), "{}: refused", self.name(isa));
            assert!(out == self.elements, "{}: restored otherwise", self.name(isa));
            if self.contexts.is_none() {
                let mut out = want[0].clone();
                isa.restore_in_place(&m, &mut out);
                assert!(out == self.elements, "{}: restored otherwise in place", self.name(isa));
            }
        }
    }
}

/// Elements of one of several kinds: noise, one value, two alternating values, few values, or floats of a model.
fn values(r: &mut Random, width: usize, n: usize) -> Vec<u8> {
    match r.below(6) {
        0 => r.bytes(n * width),
        1 => r.bytes(width).repeat(n),
        2 => r.bytes(2 * width).into_iter().cycle().take(n * width).collect(),
        3 => {
            let few: Vec<Vec<u8>> = (0..5).map(|_| r.bytes(width)).collect();
            (0..n).flat_map(|_| few[r.below(5) as usize].clone()).collect()
        }
        // Exponents that are halved in number with each step down, and random mantissas.
        _ => (0..n)
            .flat_map(|_| {
                let exponent = 124 - u64::from((r.u64() | 1 << 40).trailing_zeros());
                let float = r.below(2) << 63 | exponent << 55 | r.u64() >> 9;
                float.to_be_bytes().into_iter().take(width).rev().collect::<Vec<u8>>()
            })
            .collect(),
    }
}

/// From one boundary to the most.
fn contexts(r: &mut Random) -> Contexts {
    let boundaries: Vec<u8> = match r.below(5) {
        0 => vec![[1, 255, 128, 100][r.below(4) as usize]],
        // Around the exponents of `values`.
        1 | 2 => (115..=124).collect(),
        3 => (0..1 + r.below(15)).map(|_| 1 + r.below(255) as u8).collect(),
        _ => (0..MAX_BOUNDARIES as u8).map(|i| 16 * i + 1 + r.below(16) as u8).collect(),
    };
    let mut c = Contexts { boundaries };
    c.boundaries.sort_unstable();
    c.boundaries.dedup();
    c
}

/// Elements are found by their ranks. Ranks that a context does not have are not found, and do not hide others.
fn check_selection(m: &Model<'_>, isa: Isa, at: &[u32], ranks: &[Rank], counts: &[usize], name: &str) {
    for beyond in [None, Some(0), Some(77)] {
        let by_context = |context: usize| {
            let of_context = ranks.iter().zip(at).filter(move |(r, _)| usize::from(r.context) == context);
            let (mut ranks, mut want): (Vec<_>, Vec<_>) = of_context.map(|(r, &at)| (r.before, at)).unzip();
            ranks.extend(beyond.map(|n| counts[context] as u32 + n));
            want.extend(beyond.map(|_| u32::MAX));
            let found = vec![u32::MAX; ranks.len()];
            (ranks, want, found)
        };
        let mut contexts: Vec<_> = (0..counts.len()).map(by_context).collect();
        let mut selections: Vec<_> = contexts.iter_mut().map(|(r, _, found)| Selection::new(r, found)).collect();
        isa.select_in_contexts(m, &mut selections);
        assert!(selections.iter().map(Selection::seen).eq(counts.iter().copied()), "{name}: numbers of elements");
        assert!(contexts.iter().all(|(_, want, found)| want == found), "{name}: elements {at:?} by their ranks");
    }
}

/// Ranks of elements in their contexts, and back: none, a few, those at the edges of kernels' tiles, and all.
#[test]
fn ranks_in_contexts() {
    let mut r = Random::new(16);
    for width in WIDTHS {
        for len in lengths(130) {
            let c = Case::new(&mut r, width, len, true);
            let m = c.model();
            let mut counts = vec![0; c.contexts.as_ref().unwrap().count()];
            let of_element: Vec<Rank> = (0..len)
                .map(|i| {
                    let context = c.context(i);
                    counts[context] += 1;
                    Rank { context: context as u8, before: counts[context] as u32 - 1 }
                })
                .collect();
            let share = 1 + r.below(100);
            let random: Vec<u32> = (0..len as u32).filter(|_| r.below(share) == 0).collect();
            let ends = (0..len as u32).filter(|i| matches!(i % 32, 0 | 31)).collect();
            for at in [vec![], random, ends, (0..len as u32).collect()] {
                let want: Vec<Rank> = at.iter().map(|&i| of_element[i as usize]).collect();
                for isa in all() {
                    let mut ranks = vec![];
                    assert_eq!(isa.rank_in_contexts(&m, &at, &mut ranks), counts, "{}", c.name(isa));
                    assert!(ranks == want, "{}: ranks of {at:?}", c.name(isa));
                    check_selection(&m, isa, &at, &want, &counts, &c.name(isa));
                }
            }
        }
    }
}

#[test]
fn residuals_by_context_and_back() {
    let mut r = Random::new(11);
    let mut streams = Streams::default();
    for width in WIDTHS {
        for classed in [false, true] {
            for len in lengths(300) {
                Case::new(&mut r, width, len, classed).check(&mut streams);
            }
        }
    }
}

/// Every number of contexts, which elements have in turns, in runs or at random: a group of a kernel has all of them,
/// or one only. Every other context has small residuals, and so a stream of bytes.
#[test]
fn every_number_of_contexts() {
    let mut r = Random::new(12);
    let mut streams = Streams::default();
    for width in WIDTHS {
        for n in 1..=MAX_BOUNDARIES {
            let boundaries: Vec<u8> = (1..=n as u8).map(|i| i * (255 / n as u8)).collect();
            let keys = [&[0], &boundaries[..]].concat();
            for (len, run) in
                [17, 33, 700, 1041].into_iter().flat_map(|len| [None, Some(1), Some(40)].map(|run| (len, run)))
            {
                let mut c = Case::new(&mut r, width, len, false);
                for i in 0..len {
                    let context = match run {
                        None => r.below(n as u64 + 1) as usize,
                        Some(run) => i / run % (n + 1),
                    };
                    with_element!(width, E => {
                        let p = E::cut(u64::from(keys[context])).shl(E::BITS - 8).rotr1();
                        p.store(&mut c.prediction[i * E::BYTES..]);
                        let u = if context % 2 == 0 { p.add(E::cut(r.below(9))) } else { E::cut(r.u64()) };
                        u.store(&mut c.elements[i * E::BYTES..]);
                    });
                }
                c.contexts = Some(Contexts { boundaries: boundaries.clone() });
                c.check(&mut streams);
            }
        }
    }
}

/// A context with one element more than its room, and residuals that mostly exceed a byte.
#[test]
fn what_has_no_room_is_refused() {
    let mut r = Random::new(14);
    let mut streams = Streams::default();
    let (mut short, mut large) = (0, 0);
    for width in WIDTHS {
        for len in [1, 63, 64, 65, 1000, 1024, 3000].repeat(24) {
            let c = Case::new(&mut r, width, len, true);
            let m = c.model();
            let counts = Isa::PORTABLE.count_contexts(&m);
            let context = counts.iter().position(|&n| n > 0).unwrap();
            let over = c.streams().concat().chunks_exact(width).filter(|e| e[1..].iter().any(|&b| b != 0)).count();
            for isa in all() {
                streams.reset(counts.iter().enumerate().map(|(i, &n)| (n - usize::from(i == context), width)));
                assert!(!isa.partition(&m, &c.elements, &mut streams), "{}", c.name(isa));
                // Unused room is truncated.
                streams.reset(counts.iter().map(|&n| (n + 100, width)));
                assert!(isa.partition(&m, &c.elements, &mut streams) && streams.counts() == counts, "{}", c.name(isa));
                streams.reset(counts.iter().map(|&n| (n, 1)));
                let fits = isa.partition(&m, &c.elements, &mut streams);
                assert_eq!(fits, over <= most_overflows(len), "{}: {over} overflows", c.name(isa));
                large += usize::from(!fits);
            }
            short += 1;
        }
    }
    assert!(short > 300 && large > 200 * all().len(), "{short} short, {large} large");
}

/// Elements that differ in some bits from their predictions, or from 0: all are found, and nothing else.
#[test]
fn changes_are_found() {
    let mut r = Random::new(17);
    let mut found = Changes::default();
    for width in WIDTHS {
        for n in lengths(300) {
            // From none to all, side by side and apart; only one bit may differ.
            let share = [0, 1, 20, 100][r.below(4) as usize];
            let mut elements = values(&mut r, width, n);
            let mut prediction = elements.clone();
            for p in prediction.chunks_exact_mut(width) {
                if r.below(100) < share {
                    p[r.below(width as u64) as usize] ^= 1 << r.below(8);
                }
            }
            if r.below(3) == 0 {
                elements.iter_mut().zip(&prediction).for_each(|(e, p)| *e ^= p);
                prediction.clear();
            }
            let bits = [u64::MAX, u64::MAX << r.below(8 * width as u64), r.u64()][r.below(3) as usize];
            let expected =
                |i: usize| if prediction.is_empty() { &[0; 8][..width] } else { &prediction[i * width..][..width] };
            let differs = |i: usize| {
                let pairs = elements[i * width..][..width].iter().zip(expected(i));
                pairs.zip(bits.to_le_bytes()).any(|((e, p), bits)| (e ^ p) & bits != 0)
            };
            let at: Vec<u32> = (0..n as u32).filter(|&i| differs(i as usize)).collect();
            let those = |of: &dyn Fn(usize) -> Vec<u8>| at.iter().flat_map(|&i| of(i as usize)).collect::<Vec<u8>>();
            let compared = Compared { width, elements: &elements, prediction: &prediction, bits };
            for isa in all() {
                let name = format!("{}: {n} elements of {width} bytes", isa.name());
                for most in [at.len(), at.len() + 1, n] {
                    assert!(isa.changes(&compared, most, &mut found), "{name}: too many");
                    assert_eq!(found.at(), at, "{name}");
                    assert_eq!(found.elements(), those(&|i| elements[i * width..][..width].to_vec()), "{name}");
                    assert_eq!(found.predictions(), those(&|i| expected(i).to_vec()), "{name}");
                }
                for most in at.len().saturating_sub(70)..at.len() {
                    assert!(!isa.changes(&compared, most, &mut found), "{name}: {most} are enough");
                }
            }
        }
    }
}

/// ORs of runs.
#[test]
fn runs_agree() {
    let mut r = Random::new(15);
    for width in WIDTHS {
        for n in [1, 7, 127, 128, 129, 255, 256, 1000, 5000] {
            let elements = values(&mut r, width, n);
            let or =
                |run: &[u8]| with_element!(width, E => run.chunks_exact(width).fold(0, |or, e| or | E::load(e).wide()));
            let want: Vec<u64> = elements.chunks(128 * width).map(or).collect();
            for isa in all() {
                let mut ors = vec![3];
                isa.run_ors(width, &elements, &mut ors);
                assert_eq!(ors, [&[3], &want[..]].concat(), "{}: {n} elements of {width} bytes", isa.name());
            }
        }
    }
}

/// Streams whose lengths are not those of their contexts, as in a damaged file.
#[test]
fn wrong_counts_are_refused() {
    let mut r = Random::new(13);
    let mut streams = Streams::default();
    let mut refused = 0;
    for width in WIDTHS {
        for len in [1, 2, 63, 64, 65, 130, 1024, 1500, 5003].repeat(16) {
            let c = Case::new(&mut r, width, len, true);
            let m = c.model();
            let right = Isa::PORTABLE.count_contexts(&m);
            for _ in 0..8 {
                let mut counts = right.clone();
                let from = r.below(counts.len() as u64) as usize;
                let to = r.below(counts.len() as u64) as usize;
                let moved = match r.below(3) {
                    0 => counts[from].min(1),
                    1 => counts[from],
                    _ => r.below(counts[from] as u64 + 1) as usize,
                };
                counts[from] -= moved;
                // Mostly the sum stays right.
                if r.below(8) > 0 {
                    counts[to] += moved;
                }
                if counts == right {
                    continue;
                }
                streams.reset(counts.iter().enumerate().map(|(i, &n)| (n, if i % 2 == 0 { width } else { 1 })));
                for isa in all() {
                    let mut out = vec![0; c.elements.len()];
                    assert!(!isa.restore(&m, &streams, &mut out), "{}: {counts:?}, not {right:?}", c.name(isa));
                }
                refused += 1;
            }
        }
    }
    assert!(refused > 1000, "{refused} refused");
}
