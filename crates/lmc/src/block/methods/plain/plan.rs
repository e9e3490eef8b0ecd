//! Plans plain columns: elements as they are, by a palette, or behind a mask.

use super::palette::palette;
use crate::block::stream::Palette;
use crate::block::stream::plan::Planner;
use crate::block::stream::planned::StreamPlan;
use lmc_kernels::map::Map;

/// Most bytes of a plan that is short, and least bytes of the column for each.
const TINY: u64 = 64;

/// Whether a plan of `len` bytes is so short that no other is worth a search: one of constants.
pub(in crate::block) fn is_tiny(plan: &StreamPlan, len: usize) -> bool {
    plan.chunks() == 0 && plan.estimate <= TINY && plan.estimate * TINY < len as u64
}

impl Planner {
    /// The shortest stream of whole elements, at least one, and their number of values if that was found to be small; `few` says that it
    /// may be.
    pub(in crate::block) fn plan_plain(
        &mut self,
        (width, map): (usize, Map),
        few: bool,
        bytes: &[u8],
    ) -> (StreamPlan, Option<usize>) {
        let mut best = self.plan(width, map, bytes);
        if !few || is_tiny(&best, bytes.len()) {
            return (best, None);
        }
        let palette = palette(width, bytes);
        let count = palette.as_ref().map(|(values, _)| values.len());
        if let Some((values, of_elements)) = palette {
            let mut plan = self.plan(width, Map::Identity, &of_elements);
            plan.estimate += (values.len() * width) as u64;
            if plan.estimate < best.estimate {
                plan.stream.palette = Some(Palette { values });
                best = plan.owning(of_elements);
            }
        }
        let best = match self.plan_masked(width, map, bytes) {
            Some((plan, of_mask)) if plan.estimate < best.estimate => plan.owning(of_mask),
            _ => best,
        };
        (best, count)
    }
}
