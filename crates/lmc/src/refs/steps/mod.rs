//! Finds tensors of a training state that follow from those of the snapshot before by a step of Adam: second moments from the
//! averages of gradients before and after, weights from the moments after it.

mod fit;

use std::collections::BTreeMap;

use crate::block::{Reference, Step, Stepped};
use crate::refs::base::Base;
use crate::refs::matching::Matcher;
use fit::Samples;
use lmc_kernels::predict::Conversion;
use lmc_layout::Layout;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;
use lmc_layout::roles::{Role, parameter, role};
use lmc_layout::segment::Segment;

/// Elements of all tensors that the constants are fitted to: one in this many, at least and at most; and of one tensor.
const SAMPLE_ONE_IN: u64 = 256;
const SAMPLE: [u64; 2] = [1 << 12, 1 << 16];
const WINDOW: u64 = 1 << 10;
/// Most parameters that are sampled.
const PARAMETERS: usize = 64;

/// The tensors of a parameter: indices of segments.
#[derive(Default)]
struct Parameter {
    w: Option<usize>,
    m: Option<usize>,
    v: Option<usize>,
}

/// For every segment the step that predicts it, if there is one; empty if none has one. `read` fills a buffer with
/// raw bytes of the file from an offset on.
pub(crate) fn find(
    layout: &Layout,
    matcher: &Matcher<'_>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Vec<Option<Stepped>> {
    let segments = &layout.segments;
    let parameters = parameters(segments);
    if parameters.is_empty() {
        return vec![];
    }
    let mut before: Vec<Option<Reference>> = vec![None; segments.len()];
    for i in parameters.iter().flat_map(|p| [p.w, p.m, p.v]).flatten() {
        // What is found by content may be another tensor.
        let related = matcher.related(i).filter(|r| r.len == segments[i].len && r.reference.source > 0);
        before[i] = related.map(|r| r.reference).filter(|r| r.conversion == Conversion::None);
    }
    let samples = sample(segments, &parameters, &before, matcher, &mut read);
    let moment = if samples.v[0].is_empty() { None } else { fit::moment(&samples) };
    // Second moments tell first whether these are the snapshots of one training: weights are fitted several steps later, too.
    let weight = if samples.w[0].is_empty() { None } else { fit::weight(&samples) };
    let mut found = vec![None; segments.len()];
    for p in &parameters {
        let (Some(m), Some(v)) = (p.m, p.v) else { continue };
        let own = |i: usize| Some(Reference { source: 0, offset: segments[i].offset, conversion: Conversion::None });
        let is_before = |i: usize, of: usize| segments[i].end() <= segments[of].offset;
        if let (Some(step), Some(_), Some(m0)) = (moment, before[v], before[m])
            && is_before(m, v)
        {
            found[v] = Some(Stepped { step: Step::Moment(step), others: [Some(m0), own(m), None] });
        }
        if let (Some(step), Some(w)) = (weight, p.w)
            && before[w].is_some()
            && is_before(m, w)
            && is_before(v, w)
            && (step.s0 == 0.0 || before[m].is_some())
        {
            let m0 = before[m].filter(|_| step.s0 != 0.0);
            found[w] = Some(Stepped { step: Step::Weight(step), others: [own(m), own(v), m0] });
        }
    }
    if found.iter().all(Option::is_none) {
        found.clear();
    }
    found
}

/// The parameters that have moments of single precision, in the order of their names.
fn parameters(segments: &[Segment]) -> Vec<Parameter> {
    let mut parameters: BTreeMap<(String, u64), Parameter> = BTreeMap::new();
    for (i, segment) in segments.iter().enumerate() {
        let (Some(Dtype::F32), Some(name)) = (segment.dtype, segment.name.as_deref()) else { continue };
        if segment.len == 0 {
            continue;
        }
        let role = role(name);
        let parameter = parameters.entry((parameter(name), segment.len)).or_default();
        match role {
            Role::ExpAvg => parameter.m = parameter.m.or(Some(i)),
            Role::ExpAvgSq => parameter.v = parameter.v.or(Some(i)),
            // A copy that the optimizer updates is what the step is of.
            Role::Master => parameter.w = Some(i),
            Role::Weights => parameter.w = parameter.w.or(Some(i)),
        }
    }
    parameters.into_values().filter(|p| p.m.is_some() && p.v.is_some()).collect()
}

/// Windows of some parameters, evenly spread.
fn sample(
    segments: &[Segment],
    parameters: &[Parameter],
    before: &[Option<Reference>],
    matcher: &Matcher<'_>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Samples {
    let elements: u64 = parameters.iter().filter_map(|p| p.v).map(|v| segments[v].len / 4).sum();
    let most = (elements / SAMPLE_ONE_IN).clamp(SAMPLE[0], SAMPLE[1]);
    let count = parameters.len().min(PARAMETERS);
    let of_each = (most / count as u64).clamp(1, WINDOW);
    let mut samples = Samples::default();
    for p in parameters.iter().step_by(parameters.len().div_ceil(count)) {
        let both = |i: Option<usize>| i.and_then(|i| Some((i, before[i]?)));
        let (Some(m), Some(v)) = (both(p.m), both(p.v)) else { continue };
        let of_file = segments[v.0].len / 4;
        let n = of_each.min(of_file);
        let at = (of_file - n) / 2 * 4;
        let mut read_both = |(i, old): (usize, Reference)| -> Result<[Vec<f32>; 2]> {
            let mut bytes = vec![0; 4 * n as usize];
            read_base(matcher.bases(), old, at, &mut bytes)?;
            let old = floats(&bytes);
            read(segments[i].offset + at, &mut bytes)?;
            Ok([old, floats(&bytes)])
        };
        // A header may promise more than the file has. What cannot be read now is noticed when it is needed.
        let (Ok(of_m), Ok(of_v)) = (read_both(m), read_both(v)) else { continue };
        let of_w = both(p.w).and_then(|w| read_both(w).ok());
        extend(&mut samples.m, of_m);
        extend(&mut samples.v, of_v);
        if let Some(of_w) = of_w {
            extend(&mut samples.w, of_w);
        }
    }
    // Elements of one place are compared: weights that some parameters lack are of no use.
    if samples.w[0].len() != samples.v[0].len() {
        samples.w = Default::default();
    }
    samples
}

fn read_base(bases: &[&Base<'_>], reference: Reference, at: u64, bytes: &mut [u8]) -> Result<()> {
    bases[reference.source as usize - 1].read(reference.offset + at, bytes)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn extend(to: &mut [Vec<f32>; 2], from: [Vec<f32>; 2]) {
    to.iter_mut().zip(from).for_each(|(to, from)| to.extend(from));
}
