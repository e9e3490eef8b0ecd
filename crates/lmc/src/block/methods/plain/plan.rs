//! Plans plain columns: elements as they are, by a palette, or behind a mask.

use super::palette::palette;
use crate::block::stream::Palette;
use crate::block::stream::plan::Planner;
use crate::block::stream::planned::StreamPlan;
use lmc_kernels::map::Map;

impl Planner {
    /// The shortest stream of whole elements, at least one; `few` says that they have few values.
    pub(in crate::block) fn plan_plain(&mut self, (width, map): (usize, Map), few: bool, bytes: &[u8]) -> StreamPlan {
        let mut best = self.plan(width, map, bytes);
        if !few {
            return best;
        }
        if let Some((values, of_elements)) = palette(width, bytes) {
            let mut plan = self.plan(width, Map::Identity, &of_elements);
            plan.estimate += (values.len() * width) as u64;
            if plan.estimate < best.estimate {
                plan.stream.palette = Some(Palette { values });
                best = plan.owning(of_elements);
            }
        }
        match self.plan_masked(width, map, bytes) {
            Some((plan, of_mask)) if plan.estimate < best.estimate => plan.owning(of_mask),
            _ => best,
        }
    }
}
