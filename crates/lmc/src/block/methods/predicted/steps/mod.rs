//! Operands that follow from the step of an optimizer (`docs/format.md` §3.9): multiples, second moments, weights.

pub(in crate::block) mod plan;

use crate::block::ranges::{NamedRanges, Ranges};
use crate::format::bases::SourceRange;
use lmc_kernels::predict::optimizer::{MomentStep, WeightStep};
use lmc_kernels::varint::Cursor;
use lmc_layout::error::{Error, Result};

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

fn check_width(width: usize) -> Result<()> {
    if width == 4 {
        return Ok(());
    }
    Err(Error::damaged(format!("a column of {width}-byte elements has an operand that is a step of an optimizer")))
}

pub(super) fn constants<const N: usize>(c: &mut Cursor<'_>) -> Result<[f32; N]> {
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
