//! Plans columns that a step of an optimizer predicts.

use super::{Moment, Weight};
use crate::block::methods::predicted::operand::Operand;
use crate::block::ranges::{NamedRanges, read_to};
use crate::block::{Origin, Step};
use crate::format::bases::SourceRange;
use lmc_kernels::inline::array;
use lmc_kernels::predict::optimizer::{MomentStep, WeightStep};
use lmc_layout::error::Result;
use lmc_layout::io::scratch;

/// The operand of a step, whose ranges are set when the block is assembled.
pub(in crate::block) fn operand_of(step: Step) -> Operand {
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
