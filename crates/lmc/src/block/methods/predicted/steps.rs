//! Operands that follow from the step of an optimizer (`docs/format.md` §3.9): multiples, second moments, weights.

use super::operand::Operand;
use crate::block::ranges::{NamedRanges, Ranges, read_to};
use crate::block::{Origin, Step};
use crate::format::bases::SourceRange;
use lmc_kernels::inline::array;
use lmc_kernels::predict::optimizer::{MomentStep, WeightStep};
use lmc_kernels::varint::Cursor;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::scratch;

/// Multiples of other data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaled {
    /// The factor; finite.
    pub factor: f32,
    /// The data.
    pub base: NamedRanges,
}

/// Second moments, from those before and the averages of gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The constants; finite.
    pub step: MomentStep,
    /// The second moments before, and the averages before and after.
    pub operands: [NamedRanges; 3],
}

/// Weights, from those before and the moments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// The constants; finite.
    pub step: WeightStep,
    /// The weights before, the average of gradients after, and the second moment after.
    pub operands: [NamedRanges; 3],
    /// The average of gradients before, if it is used.
    pub before: Option<NamedRanges>,
}

impl Scaled {
    pub(super) fn parse(c: &mut Cursor<'_>, width: usize, n: usize, ranges: &mut Ranges) -> Result<Self> {
        if !matches!(width, 2 | 4) {
            return Err(Error::damaged(format!("a column of {width}-byte elements has a scaled operand")));
        }
        let [factor] = constants(c)?;
        Ok(Self { factor, base: operand(c, n * width, ranges)? })
    }

    pub(super) fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        put_constants([self.factor], out);
        self.base.put(ranges, out);
    }
}

impl Moment {
    pub(super) fn parse(c: &mut Cursor<'_>, width: usize, n: usize, ranges: &mut Ranges) -> Result<Self> {
        check_width(width)?;
        let [b, h, a, c_] = constants(c)?;
        let step = MomentStep { b, h, a, c: c_ };
        Ok(Self { step, operands: operands(c, n * width, ranges)? })
    }

    pub(super) fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        let MomentStep { b, h, a, c } = self.step;
        put_constants([b, h, a, c], out);
        self.operands.iter().for_each(|operand| operand.put(ranges, out));
    }
}

impl Weight {
    pub(super) fn parse(c: &mut Cursor<'_>, width: usize, n: usize, ranges: &mut Ranges) -> Result<Self> {
        check_width(width)?;
        let [a, s1, s0, e] = constants(c)?;
        let step = WeightStep { a, s1, s0, e };
        let operands = operands(c, n * width, ranges)?;
        let before = ranges.parse(c)?;
        let has_before = before.count() > 0;
        if has_before == (s0.to_bits() == 0) {
            return Err(Error::damaged(format!(
                "a weight's step has the factor {:#010x} of the average before it, and {} ranges of that",
                s0.to_bits(),
                before.count()
            )));
        }
        if has_before {
            check_len(&before, n * width, ranges)?;
        }
        Ok(Self { step, operands, before: has_before.then_some(before) })
    }

    pub(super) fn put(&self, ranges: &[SourceRange], out: &mut Vec<u8>) {
        let WeightStep { a, s1, s0, e } = self.step;
        put_constants([a, s1, s0, e], out);
        self.operands.iter().for_each(|operand| operand.put(ranges, out));
        self.before.unwrap_or_default().put(ranges, out);
    }
}

/// The operand of a step, whose ranges are set when the block is assembled.
pub(super) fn operand_of(step: Step) -> Operand {
    let operands = [NamedRanges::default(); 3];
    match step {
        Step::Moment(constants) => Operand::Moment(Box::new(Moment { step: moment_step(constants), operands })),
        Step::Weight(constants) => {
            let step = weight_step(constants);
            let before = (step.s0.to_bits() != 0).then(NamedRanges::default);
            Operand::Weight(Box::new(Weight { step, operands, before }))
        }
    }
}

fn moment_step(constants: [u32; 4]) -> MomentStep {
    let [b, h, a, c] = constants.map(f32::from_bits);
    MomentStep { b, h, a, c }
}

fn weight_step(constants: [u32; 4]) -> WeightStep {
    let [a, s1, s0, e] = constants.map(f32::from_bits);
    WeightStep { a, s1, s0, e }
}

/// Fills `out` with the predictions of a step, from the elements of its first operand and the ranges of the others; `buf` is
/// working memory.
pub(in crate::block) fn predict(
    step: Step,
    first: &[u8],
    others: &[Vec<SourceRange>; 3],
    origin: &dyn Origin,
    buf: &mut Vec<u8>,
    out: &mut [u8],
) -> Result<()> {
    let len = out.len();
    let bytes = scratch(buf, others.len() * len);
    for (list, to) in others.iter().zip(bytes.chunks_exact_mut(len)).filter(|(list, _)| !list.is_empty()) {
        read_to(list, origin, to)?;
    }
    let [second, third, fourth] = array(|i| &bytes[i * len..][..len]);
    match step {
        Step::Moment(constants) => moment_step(constants).predict(first, second, third, out),
        Step::Weight(constants) => {
            let before = (!others[2].is_empty()).then_some(fourth);
            weight_step(constants).predict(first, second, third, before, out);
        }
    }
    Ok(())
}

fn check_width(width: usize) -> Result<()> {
    if width == 4 {
        return Ok(());
    }
    Err(Error::damaged(format!("a column of {width}-byte elements has an operand that is a step of an optimizer")))
}

fn constants<const N: usize>(c: &mut Cursor<'_>) -> Result<[f32; N]> {
    let mut constants = [0.0; N];
    for constant in &mut constants {
        *constant = f32::from_bits(u32::from_le_bytes(c.array()?));
        if !constant.is_finite() {
            return Err(Error::damaged(format!(
                "an operand has the constant {:#010x}, which is not finite",
                constant.to_bits()
            )));
        }
    }
    Ok(constants)
}

fn put_constants<const N: usize>(constants: [f32; N], out: &mut Vec<u8>) {
    constants.iter().for_each(|constant| out.extend_from_slice(&constant.to_le_bytes()));
}

fn operands<const N: usize>(c: &mut Cursor<'_>, len: usize, ranges: &mut Ranges) -> Result<[NamedRanges; N]> {
    let mut operands = [NamedRanges::default(); N];
    for to in &mut operands {
        *to = operand(c, len, ranges)?;
    }
    Ok(operands)
}

fn operand(c: &mut Cursor<'_>, len: usize, ranges: &mut Ranges) -> Result<NamedRanges> {
    let named = ranges.parse(c)?;
    check_len(&named, len, ranges)?;
    Ok(named)
}

/// Checks that ranges have the bytes of an operand.
pub(super) fn check_len(named: &NamedRanges, len: usize, ranges: &Ranges) -> Result<()> {
    let bytes = named.bytes(&ranges.all);
    if named.count() > 0 && bytes == len as u64 {
        return Ok(());
    }
    Err(Error::damaged(format!("an operand has {} ranges with {bytes} bytes, not of {len}", named.count())))
}
