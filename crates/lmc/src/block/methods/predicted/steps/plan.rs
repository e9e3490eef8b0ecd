//! Plans columns that a step of an optimizer predicts.

use super::{Moment, Weight};
use crate::block::methods::predicted::operand::Operand;
use crate::block::ranges::{NamedRanges, read_each};
use crate::block::{Origin, Step};
use crate::format::bases::SourceRange;
use lmc_layout::error::Result;

/// The operand of a step, whose ranges are set when the block is assembled.
pub(in crate::block) fn operand_of(step: Step) -> Operand {
    let operands = [NamedRanges::default(); 3];
    match step {
        Step::Moment(step) => Operand::Moment(Box::new(Moment { step, operands })),
        Step::Weight(step) => {
            let before = (step.s0.to_bits() != 0).then(NamedRanges::default);
            Operand::Weight(Box::new(Weight { step, operands, before }))
        }
    }
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
    let [second, third, fourth] = read_each(others.each_ref().map(|list| &list[..]), out.len(), origin, buf)?;
    match step {
        Step::Moment(step) => step.predict(first, second, third, out),
        Step::Weight(step) => step.predict(first, second, third, (!others[2].is_empty()).then_some(fourth), out),
    }
    Ok(())
}
