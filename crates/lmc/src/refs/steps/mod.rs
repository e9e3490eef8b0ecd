//! Finds tensors of a training state that follow from those of the snapshot before by a step of Adam: second moments from the
//! averages of gradients before and after, weights from the moments after it.

mod fit;

use std::collections::BTreeMap;
use std::iter;

use crate::block::{Reference, Step, Stepped};
use crate::refs::base::Base;
use crate::refs::matching::Matcher;
use fit::Samples;
use lmc_kernels::predict::Conversion;
use lmc_layout::Layout;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::roles::{self, Role, role};
use lmc_layout::segment::Segment;

/// Elements of all tensors that the constants are fitted to: one in this many, at least and at most; and those in a row.
const SAMPLE_ONE_IN: u64 = 256;
const SAMPLE: [u64; 2] = [1 << 12, 1 << 16];
const WINDOW: u64 = 1 << 10;
/// Most parameters that are sampled.
const PARAMETERS: usize = 64;

/// A tensor after the step.
#[derive(Clone, Copy)]
struct Tensor {
    /// The base that has it, by index among the given ones; none if the file itself has it.
    beside: Option<usize>,
    /// Index of its segment there.
    segment: usize,
    /// Its first byte there.
    offset: u64,
    /// The same tensor before the step, if it is known: index among the given bases, and its first byte there.
    before: Option<(usize, u64)>,
}

/// The tensors of a parameter.
#[derive(Clone, Copy, Default)]
struct Parameter {
    w: Option<Tensor>,
    m: Option<Tensor>,
    v: Option<Tensor>,
    len: u64,
}

/// For every segment the step that predicts it, if there is one; empty if none has one. `read` fills a buffer with
/// raw bytes of the file from an offset on.
pub(crate) fn find(
    layout: &Layout,
    matcher: &mut Matcher<'_>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Vec<Option<Stepped>> {
    let parameters = parameters(&layout.segments, matcher);
    if parameters.is_empty() {
        return vec![];
    }
    let samples = sample(&parameters, matcher.given(), &mut read);
    let (moment, weight) = (fit::moment(&samples), fit::weight(&samples));
    if moment.is_none() && weight.is_none() {
        return vec![];
    }
    let mut found = vec![None; layout.segments.len()];
    for p in &parameters {
        let (Some(m), Some(v)) = (p.m, p.v) else { continue };
        if let (Some(step), None, Some(_), Some(m0)) = (moment, v.beside, v.before, m.before)
            && m.is_known_before(v.offset, p.len)
        {
            let others = [Some(before(matcher, m0)), Some(after(matcher, m)), None];
            found[v.segment] = Some(Stepped { step: Step::Moment(step), others });
        }
        if let (Some(step), Some(w)) = (weight, p.w.filter(|w| w.beside.is_none() && w.before.is_some()))
            && [m, v].iter().all(|of| of.is_known_before(w.offset, p.len))
            && (step.s0 == 0.0 || m.before.is_some())
        {
            let m0 = m.before.filter(|_| step.s0 != 0.0).map(|m0| before(matcher, m0));
            let others = [Some(after(matcher, m)), Some(after(matcher, v)), m0];
            found[w.segment] = Some(Stepped { step: Step::Weight(step), others });
        }
    }
    if found.iter().all(Option::is_none) {
        found.clear();
    }
    found
}

impl Tensor {
    /// Whether it can be read once everything before `offset` of the file is there.
    fn is_known_before(&self, offset: u64, len: u64) -> bool {
        self.beside.is_some() || self.offset + len <= offset
    }
}

fn before(matcher: &mut Matcher<'_>, (given, offset): (usize, u64)) -> Reference {
    Reference { source: matcher.source(given), offset, conversion: Conversion::None }
}

fn after(matcher: &mut Matcher<'_>, tensor: Tensor) -> Reference {
    let source = tensor.beside.map_or(0, |given| matcher.source(given));
    Reference { source, offset: tensor.offset, conversion: Conversion::None }
}

/// The parameters that have moments of single precision, in the order of their names, unless all of their tensors are beside the file.
fn parameters(own: &[Segment], matcher: &Matcher<'_>) -> Vec<Parameter> {
    let mut parameters: BTreeMap<(String, u64), Parameter> = BTreeMap::new();
    let given = matcher.given();
    let beside = (0..given.len()).filter(|&i| given[i].is_beside()).map(|i| (Some(i), given[i].segments()));
    let tensors = iter::once((None, own)).chain(beside).flat_map(|(beside, segments)| {
        let floats = segments.iter().enumerate().filter(|(_, s)| s.dtype == Some(Dtype::F32) && s.len > 0);
        floats.filter_map(move |(i, s)| Some((beside, i, s, s.name.as_deref()?)))
    });
    let tensors: Vec<_> = tensors.collect();
    let names = roles::parameters(tensors.iter().map(|&(_, _, s, name)| (name, &s.shape[..])));
    for ((beside, segment, s, name), parameter) in tensors.into_iter().zip(names) {
        let before = match beside {
            // What is found by content may be another tensor.
            None => {
                let related = matcher.related(segment).filter(|r| r.len == s.len);
                let before = related.map(|r| r.reference).filter(|r| r.conversion == Conversion::None);
                before.map(|r| (matcher.number(r.source), r.offset))
            }
            Some(_) => of_name(given, name, s.len),
        };
        let tensor = Tensor { beside, segment, offset: s.offset, before };
        let parameter = parameters.entry((parameter, s.len)).or_default();
        parameter.len = s.len;
        match role(name) {
            Role::ExpAvg => parameter.m = parameter.m.or(Some(tensor)),
            Role::ExpAvgSq => parameter.v = parameter.v.or(Some(tensor)),
            // A copy that the optimizer updates is what the step is of.
            Role::Master => parameter.w = Some(tensor),
            Role::Weights => parameter.w = parameter.w.or(Some(tensor)),
        }
    }
    let predicts = |p: &Parameter| p.m.is_some() && p.v.is_some_and(|v| v.beside.is_none() || p.w.is_some());
    parameters.into_values().filter(predicts).collect()
}

/// The tensor of single precision with a name in what was before.
fn of_name(given: &[Base<'_>], name: &str, len: u64) -> Option<(usize, u64)> {
    let mut tensors = given
        .iter()
        .enumerate()
        .filter(|(_, base)| !base.is_beside())
        .flat_map(|(i, base)| base.segments().iter().map(move |s| (i, s)));
    let is_it = |s: &Segment| s.name.as_deref() == Some(name) && s.dtype == Some(Dtype::F32) && s.len == len;
    tensors.find_map(|(i, s)| is_it(s).then_some((i, s.offset)))
}

/// Windows of some parameters, evenly spread.
fn sample(
    parameters: &[Parameter],
    given: &[Base<'_>],
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Samples {
    let elements: u64 = parameters.iter().map(|p| p.len / 4).sum();
    let most = (elements / SAMPLE_ONE_IN).clamp(SAMPLE[0], SAMPLE[1]);
    let count = parameters.len().min(PARAMETERS);
    let of_each = (most / count as u64).max(1);
    let mut samples = Samples::default();
    for p in parameters.iter().step_by(parameters.len().div_ceil(count)) {
        let (Some(m), Some(v)) = (p.m, p.v) else { continue };
        let of_tensor = p.len / 4;
        let windows = of_each.min(of_tensor).div_ceil(WINDOW);
        let n = (of_each.min(of_tensor) / windows.max(1)).max(1);
        for at in (0..windows).map(|i| (of_tensor - n) * (2 * i + 1) / (2 * windows) * 4) {
            let mut bytes = vec![0; 4 * n as usize];
            // A header may promise more than the file has. What cannot be read now is noticed when it is needed.
            let mut both = |tensor: Tensor| -> Option<[Vec<f32>; 2]> {
                match tensor.beside {
                    None => read(tensor.offset + at, &mut bytes).ok()?,
                    Some(i) => given[i].read(tensor.offset + at, &mut bytes).ok()?,
                }
                let new = floats(&bytes);
                let Some((i, offset)) = tensor.before else { return tensor.beside.map(|_| [vec![], new]) };
                given[i].read(offset + at, &mut bytes).ok()?;
                Some([floats(&bytes), new])
            };
            let (Some(of_m), Some(of_v)) = (both(m), both(v)) else { continue };
            let of_w = p.w.and_then(both).unwrap_or_default();
            for (all, new) in [(&mut samples.w, of_w), (&mut samples.m, of_m), (&mut samples.v, of_v)] {
                all.iter_mut().zip(new).for_each(|(all, new)| all.extend(new));
            }
        }
    }
    // Elements of one place are compared: what some parameters lack is of no use.
    let n = samples.v[1].len();
    for all in [&mut samples.w, &mut samples.m, &mut samples.v].into_iter().flatten().filter(|all| all.len() != n) {
        all.clear();
    }
    samples
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
