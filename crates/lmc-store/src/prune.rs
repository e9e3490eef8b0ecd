//! Pruning: which snapshots stay, and how the others end (`docs/store.md` §6).

use std::collections::{BTreeSet, HashSet};

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::history::{DamagedRecord, next_generation, remedy_of, to_name};
use crate::ids::{SaveId, ShardId, Step};
use crate::manifest::record::{Record, RecordId, Seen};
use crate::rebase::RebaseOptions;
use crate::records::Current;
use crate::remote::CONCURRENT;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::verify::Problem;

/// Which snapshots to keep: those that match any of these rules, and are not dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keep {
    /// This many snapshots, of the largest steps.
    pub last: usize,
    /// Those with a step that is a multiple of this.
    pub every: Option<u64>,
    /// Those of these steps.
    pub steps: Vec<Step>,
    /// Those of these steps go, whatever else matches them. Without a rule of the others, all others stay.
    pub drop: Vec<Step>,
    /// Steps whose snapshots cannot be restored, to be ended for good: their records or shards cannot be read, or their
    /// data are not what was saved. Without another rule, all others stay.
    pub damaged: Vec<Step>,
}

/// The plan of a pruning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrunePlan {
    /// Snapshots that stay, by step.
    pub keep: Vec<Snapshot>,
    /// Snapshots that go, by step.
    pub prune: Vec<Snapshot>,
    /// Snapshots to be given up, as [`Keep::damaged`] asks: those of unreadable records, and others, each with what is wrong.
    pub damaged: Vec<DamagedRecord>,
    /// Unreadable records that are left as they are.
    pub left_out: Vec<DamagedRecord>,
    /// Snapshots that stay and are re-based.
    pub rebase: Vec<Step>,
    /// Bytes of data that all snapshots need now.
    pub before: u64,
    /// Bytes of data that the remaining snapshots will need; an estimate if some are re-based.
    pub after: u64,
    /// Why the bytes that snapshots need are unknown, if they are. Pruning is possible all the same.
    pub obstacle: Option<String>,
    /// What is wrong with snapshots that stay. [`Store::prune`] refuses to prune others as long as there is something.
    pub broken: Vec<Problem>,
    /// The records that count of `prune`, and of those of `damaged` that can be read.
    records: Vec<Current>,
}

/// The result of a pruning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Snapshots that were pruned.
    pub pruned: Vec<Step>,
    /// Snapshots that were re-based, in their new state.
    pub rebased: Vec<Snapshot>,
    /// Snapshots that were to be re-based, but were changed by another process meanwhile: left as they are.
    pub changed: Vec<Step>,
}

/// A snapshot to be pruned, and its record that counts, if readable.
struct End<'p> {
    step: Step,
    id: SaveId,
    generation: u32,
    current: Option<&'p Current>,
}

impl<'p> End<'p> {
    fn of(current: &'p Current) -> Self {
        let Record { step, id, .. } = current.record;
        Self { step, id, generation: current.generation, current: Some(current) }
    }
}

impl Keep {
    /// For each of `steps` (ascending), whether it stays.
    fn select(&self, steps: &[Step]) -> Result<Vec<bool>> {
        let all = self.last == 0 && self.every.is_none() && self.steps.is_empty();
        if all && self.drop.is_empty() {
            if !self.damaged.is_empty() {
                return Ok(vec![true; steps.len()]);
            }
            return Err(Error::usage("nothing says which snapshots to keep"));
        }
        if self.every == Some(0) {
            return Err(Error::usage("no step is a multiple of 0"));
        }
        if let Some(step) = self.steps.iter().find(|s| !steps.contains(s)) {
            return Err(Error::not_found(format!("the store has no snapshot of step {step} to keep")));
        }
        if let Some(step) = self.drop.iter().find(|s| !steps.contains(s)) {
            return Err(Error::not_found(format!("the store has no snapshot of step {step} to drop")));
        }
        if let Some(step) = self.drop.iter().find(|s| self.steps.contains(s)) {
            return Err(Error::usage(format!("step {step} is to be kept, and dropped: decide for one")));
        }
        let last = steps.iter().rev().filter(|step| !self.drop.contains(step)).take(self.last).min();
        let of = |step: &Step| {
            let matches = all
                || last.is_some_and(|last| step >= last)
                || self.every.is_some_and(|n| step.get().is_multiple_of(n))
                || self.steps.contains(step);
            matches && !self.drop.contains(step)
        };
        let stays: Vec<bool> = steps.iter().map(of).collect();
        if !steps.is_empty() && !stays.contains(&true) {
            return Err(Error::usage("no snapshot would stay: keep at least one"));
        }
        Ok(stays)
    }
}

impl Store {
    /// Plans a pruning, and changes nothing.
    ///
    /// Looks whether what stays can be restored, as [`Self::verify`] does without `deep`, if something is pruned. Reads the data of a
    /// snapshot that is given up if nothing else is wrong with it.
    ///
    /// # Errors
    /// `Usage` when nothing would stay, or when nothing is wrong with a step given as damaged; `NotFound` when a step to keep or to drop has no
    /// snapshot; and those of [`Self::snapshots`].
    pub fn plan_prune(&self, keep: &Keep) -> Result<PrunePlan> {
        let history = self.history()?;
        let (mut damaged, left_out): (Vec<_>, Vec<_>) =
            history.damaged().cloned().partition(|bad| keep.damaged.contains(&bad.step));
        if let Some(bad) = left_out.iter().find(|bad| keep.steps.iter().chain(&keep.drop).any(|step| *step == bad.step))
        {
            return Err(bad.error(""));
        }
        if let Some(bad) = damaged.iter().find(|bad| bad.is_of_other_version()) {
            return Err(bad.error("it is not damaged"));
        }
        let given_up: HashSet<Step> =
            keep.damaged.iter().copied().filter(|&s| damaged.iter().all(|bad| bad.step != s)).collect();
        let (lost, records): (Vec<_>, Vec<_>) =
            history.into_kept().into_iter().partition(|c| given_up.contains(&c.record.step));
        for &step in &given_up {
            let Some(current) = lost.iter().find(|c| c.record.step == step) else {
                return Err(Error::not_found(format!("the store has no snapshot of step {step} to give up")));
            };
            let Some(fault) = self.fault(&current.record)? else {
                return Err(Error::usage(format!("step {step} is not damaged: prune it like others")));
            };
            if fault.remedy.is_none() {
                return Err(Error::unsupported(format!("step {step}: {}; it is not damaged", fault.message)));
            }
            damaged.push(DamagedRecord::beyond(current.id(), fault.message));
        }
        damaged.sort_by_key(|bad| bad.step);
        let steps: Vec<Step> = records.iter().map(|c| c.record.step).collect();
        let mut plan = PrunePlan {
            keep: vec![],
            prune: vec![],
            damaged,
            left_out,
            rebase: vec![],
            before: 0,
            after: 0,
            obstacle: None,
            broken: vec![],
            records: lost,
        };
        for (current, stays) in records.into_iter().zip(keep.select(&steps)?) {
            if stays {
                plan.keep.push(Snapshot::of(current.record));
            } else {
                plan.prune.push(Snapshot::of(current.record.clone()));
                plan.records.push(current);
            }
        }
        let mut read = Catalog::default();
        match self.plan_sizes(&mut plan, &mut read) {
            Err(e) if e.kind() != ErrorKind::Store => plan.obstacle = Some(e.to_string()),
            done => done?,
        }
        if !plan.prune.is_empty() || !plan.damaged.is_empty() || !plan.rebase.is_empty() {
            plan.broken = self.verify_beside(&plan.keep, false, 0, &read)?.problems;
            plan.broken.retain(|p| !p.intact);
            plan.rebase.retain(|step| plan.broken.iter().all(|p| p.step != *step));
        }
        Ok(plan)
    }

    /// Why a snapshot cannot be restored. Its data are read if all of them are there.
    fn fault(&self, record: &Record) -> Result<Option<Problem>> {
        let snapshot = [Snapshot::of(record.clone())];
        for deep in [false, true] {
            let found = self.verify(&snapshot, deep, 0)?.problems.into_iter().filter(|p| !p.intact);
            // One that a newer lmc could restore is given up all the same if something else is lost.
            let found = found.min_by_key(|p| p.remedy.is_none());
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Plans sizes and re-basing. `read` gets the documents of what stays.
    fn plan_sizes(&self, plan: &mut PrunePlan, read: &mut Catalog) -> Result<()> {
        let shards = |of: &[Snapshot]| -> Vec<Vec<ShardId>> { of.iter().map(|s| s.shards.clone()).collect() };
        let (keep, prune) = (shards(&plan.keep), shards(&plan.prune));
        let stay: Vec<&[ShardId]> = keep.iter().map(|p| &p[..]).collect();
        let all: Vec<&[ShardId]> = keep.iter().chain(&prune).map(|p| &p[..]).collect();
        // What goes need not be readable.
        let whole = self.load_all(&all);
        *read = whole.as_ref().map_or_else(|_| self.load_all(&stay), |whole| Ok(whole.clone()))?;
        let (estimate, moves) = Self::estimate_rebase(read.clone(), &stay)?;
        plan.after = estimate.before;
        if estimate.pays() {
            plan.after = estimate.after;
            plan.rebase = plan.keep.iter().zip(moves).filter(|(_, moves)| *moves).map(|(s, _)| s.step).collect();
        }
        plan.before = Self::estimate_rebase(whole?, &all)?.0.before;
        Ok(())
    }

    /// Executes a plan: re-bases snapshots that stay, then ends the others. Readers of pruned snapshots have at least a grace period to
    /// finish. After an error part of it is done, and a new plan covers the rest.
    ///
    /// # Errors
    /// `Damaged` or `Unsupported` when a snapshot that would stay cannot be restored, `NotFound` when none of those that would stay is there
    /// any more: no other is pruned. `Store` when requests fail. Those of [`Self::rebase`], after the others were pruned.
    pub fn prune(&self, plan: &PrunePlan, o: &RebaseOptions) -> Result<Pruned> {
        let mut done = Pruned::default();
        if let Some(p) = plan.broken.first().filter(|_| !plan.prune.is_empty()) {
            let steps: BTreeSet<Step> = plan.broken.iter().filter(|p| p.remedy.is_some()).map(|p| p.step).collect();
            let advice = match steps.is_empty() {
                true => String::new(),
                false => format!("; {}", remedy_of("it", steps)),
            };
            return Err(Error::new(
                p.kind(),
                format!(
                    "step {}: would stay, but cannot be restored: {}; nothing was pruned{advice}",
                    p.step, p.message
                ),
            ));
        }
        let mut failed = None;
        // What stays needs nothing of the others before these end.
        if !plan.rebase.is_empty() {
            self.begin()?;
            let mut steps = plan.rebase.clone();
            let there: Vec<Step> = self.snapshots()?.into_iter().map(|s| s.step).collect();
            steps.retain(|s| there.contains(s));
            let ends: HashSet<SaveId> = plan.records.iter().map(|c| c.record.id).collect();
            match self.rebase_without(&steps, &ends, o) {
                Ok(rebased) => (done.rebased, done.changed) = (rebased.snapshots, rebased.changed),
                Err(e) if matches!(e.kind(), ErrorKind::Damaged | ErrorKind::Unsupported) => {
                    return Err(e.and("; nothing was pruned; lmc snapshot verify --deep shows what can be done"));
                }
                // Nothing becomes unreadable without it, and on a full disk pruning makes room.
                Err(e) => failed = Some(e.and("; not all was re-based")),
            }
        }
        let mut ends: Vec<End> = plan.records.iter().map(End::of).collect();
        for bad in plan.damaged.iter().filter(|bad| plan.records.iter().all(|c| c.record.step != bad.step)) {
            // The snapshot of a damaged record is unknown.
            ends.push(End { step: bad.step, id: self.fresh_id()?, generation: bad.generation, current: None });
        }
        if !ends.is_empty() {
            self.check_keeps(plan)?;
            let (time, heads) = (self.begin()?, self.recent(None)?.heads());
            // In parallel; each record names the one before it on its way.
            let ways = ends.len().min(CONCURRENT);
            let ended = stream::iter(0..ways)
                .map(async |way| {
                    let (mut steps, mut heads) = (vec![], heads.clone());
                    for end in ends.iter().skip(way).step_by(ways) {
                        self.remote().check()?;
                        steps.push(end.step);
                        let ours = self.end(end, time, &mut heads).await?;
                        heads.extend(ours);
                    }
                    Ok::<_, Error>(steps)
                })
                .buffer_unordered(CONCURRENT);
            done.pruned = self.remote().wait(ended.try_concat())?;
            done.pruned.sort_unstable();
        }
        let others = if done.pruned.is_empty() { "" } else { ", and the others were pruned all the same" };
        failed.map_or(Ok(done), |e| Err(e.and(others)))
    }

    /// Fails if nothing is left of what stays: other processes may have pruned it since it was planned.
    fn check_keeps(&self, plan: &PrunePlan) -> Result<()> {
        let mut unreadable = None;
        for s in plan.keep.iter().rev() {
            match self.newest_or_damaged(s.step)? {
                Some(Ok(now)) if now.is_kept() && now.record.id == s.id => return Ok(()),
                Some(Err(bad)) => unreadable = unreadable.or(Some(bad)),
                _ => {}
            }
        }
        match unreadable {
            _ if plan.keep.is_empty() => Ok(()),
            Some(bad) => Err(bad.error("nothing was pruned; ")),
            None => {
                Err(Error::not_found("no snapshot that stays is there any more; nothing was pruned: plan it again"))
            }
        }
    }

    /// Ends a snapshot. The new record names `heads` and takes their place.
    async fn end(&self, end: &End<'_>, time: u64, heads: &mut Vec<Seen>) -> Result<Option<Seen>> {
        let mut record = Record::pruned(end.step, end.id, time);
        let mut superseded = end.current.map(Current::brief);
        let mut generation = end.generation;
        loop {
            generation = next_generation(end.step, generation)?;
            record.seen = to_name(heads, superseded.as_ref());
            let ours = self.create_record(generation, &record).await?;
            if ours.is_some() {
                heads.clear();
                return Ok(ours);
            }
            // If the other process pruned the snapshot, we are done; if it re-based it, its new record is superseded.
            let there = self.record(RecordId { step: end.step, generation }).await?;
            if !there.is_kept() {
                return Ok(None);
            }
            superseded = Some(there.brief());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_add_up() {
        let steps: Vec<Step> = [0, 5, 10, 15, 20, 21].map(|n| Step::new(n).unwrap()).into();
        let kept = |keep: &Keep| -> Vec<u64> {
            let stays = keep.select(&steps).unwrap();
            steps.iter().zip(stays).filter(|(_, stays)| *stays).map(|(s, _)| s.get()).collect()
        };
        let keep = |last, every, named: &[u64]| Keep {
            last,
            every,
            steps: named.iter().map(|&n| Step::new(n).unwrap()).collect(),
            ..Keep::default()
        };
        let without = |keep: Keep, dropped: &[u64]| Keep {
            drop: dropped.iter().map(|&n| Step::new(n).unwrap()).collect(),
            ..keep
        };
        assert_eq!(kept(&keep(2, None, &[])), [20, 21]);
        assert_eq!(kept(&keep(9, None, &[])).len(), 6);
        assert_eq!(kept(&keep(0, Some(10), &[])), [0, 10, 20]);
        assert_eq!(kept(&keep(1, Some(15), &[5])), [0, 5, 15, 21]);
        assert_eq!(kept(&without(keep(0, None, &[]), &[10, 21])), [0, 5, 15, 20]);
        assert_eq!(kept(&without(keep(2, Some(10), &[]), &[10, 21])), [0, 15, 20]);
        for (bad, kind) in [
            (keep(0, None, &[]), ErrorKind::Usage),
            (keep(1, Some(0), &[]), ErrorKind::Usage),
            (keep(1, None, &[6]), ErrorKind::NotFound),
            (without(keep(0, None, &[]), &[6]), ErrorKind::NotFound),
            (without(keep(0, None, &[5]), &[5]), ErrorKind::Usage),
            (without(keep(0, None, &[0]), &[5, 0]), ErrorKind::Usage),
            (without(keep(0, None, &[]), &[0, 5, 10, 15, 20, 21]), ErrorKind::Usage),
        ] {
            assert_eq!(bad.select(&steps).unwrap_err().kind(), kind);
        }
        assert_eq!(keep(0, Some(8), &[]).select(&steps[1..]).unwrap_err().kind(), ErrorKind::Usage);
        assert!(keep(3, None, &[]).select(&[]).unwrap().is_empty());
    }
}
