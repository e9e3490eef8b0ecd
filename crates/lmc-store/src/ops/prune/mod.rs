//! Pruning: how the snapshots end that no rule keeps (`docs/store.md` §6).

mod keep;

use std::collections::{BTreeSet, HashSet};

use futures::stream::{self, StreamExt, TryStreamExt};

use self::keep::has_tag;
pub use self::keep::{Best, Keep};
use crate::chunks::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{SaveId, ShardId, Step};
use crate::format::manifest::record::{Record, RecordId, Seen};
use crate::objects::remote::CONCURRENT;
use crate::ops::rebase::RebaseOptions;
use crate::ops::states::{self, DropStates};
use crate::ops::verify::Problem;
use crate::records::history::{DamagedRecord, next_generation, remedy_of, to_name};
use crate::records::listing::Current;
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;
use crate::records::tags::Tag;

/// The plan of a pruning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrunePlan {
    /// Snapshots that stay, by step.
    pub keep: Vec<Snapshot>,
    /// For each of them what keeps it, if not the lack of any rule: `last`, `every`, `within`, `step`, `best KEY` and `tag NAME`.
    pub why: Vec<Vec<String>>,
    /// Snapshots that go, by step.
    pub prune: Vec<Snapshot>,
    /// Snapshots that stay without the states of their optimizers, as [`Keep::drop_state`] asks, by step.
    pub states: Vec<DropStates>,
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
    /// Snapshots that lost the states of their optimizers, in their new state. They have new ids.
    pub reduced: Vec<Snapshot>,
    /// Snapshots that were to be re-based, but were changed by another process meanwhile: left as they are.
    pub changed: Vec<Step>,
}

impl PrunePlan {
    /// Whether nothing would be done.
    pub fn is_empty(&self) -> bool {
        self.prune.is_empty() && self.damaged.is_empty() && self.rebase.is_empty() && self.states.is_empty()
    }
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

impl Store {
    /// Plans a pruning, and changes nothing.
    ///
    /// Looks whether what stays can be restored, as [`Self::verify`] does without `deep`, if something is pruned. Reads the data of a
    /// snapshot that is given up if nothing else is wrong with it.
    ///
    /// # Errors
    /// `Usage` when nothing would stay, when what is to go has a tag, or when nothing is wrong with a step given as damaged; `NotFound` when a
    /// step to keep or to drop has no snapshot, or none a number by which the best are to be kept; `Damaged` when a tag cannot be read; and
    /// those of [`Self::snapshots`].
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
                return Err(Error::no_snapshot(step, " to give up"));
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
        let tags = self.readable_tags()?;
        if let Some(tag) = tags.tags.iter().find(|tag| damaged.iter().any(|bad| bad.step == tag.step)) {
            return Err(has_tag(tag.step, &tag.name));
        }
        let now = if keep.within.is_some() { self.begin()? } else { 0 };
        let stays = keep.select(&records.iter().map(|c| &c.record).collect::<Vec<_>>(), &tags, now)?;
        let mut plan = PrunePlan {
            keep: vec![],
            why: vec![],
            prune: vec![],
            states: vec![],
            damaged,
            left_out,
            rebase: vec![],
            before: 0,
            after: 0,
            obstacle: None,
            broken: vec![],
            records: lost,
        };
        for (current, why) in records.into_iter().zip(stays) {
            if let Some(why) = why {
                plan.keep.push(Snapshot::of(current.record));
                plan.why.push(why);
            } else if keep.drop_state {
                let snapshot = Snapshot::of(current.record);
                // A run that drops states as it saves has many that lost them before: they need not be read.
                if snapshot.dropped == 0 {
                    plan.states.extend(self.plan_states(&snapshot)?);
                }
                plan.keep.push(snapshot);
                plan.why.push(vec!["weights".to_owned()]);
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
        if !plan.is_empty() {
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
            // These are re-based when they lose their states.
            plan.rebase.retain(|step| plan.states.iter().all(|s| s.step != *step));
        }
        plan.before = Self::estimate_rebase(whole?, &all)?.0.before;
        plan.after = plan.after.saturating_sub(states::freed(read, &plan.keep, &plan.states)?);
        Ok(())
    }

    /// Executes a plan: re-bases snapshots that stay, ends others, then drops states. Readers of pruned snapshots have at least a grace period to
    /// finish. After an error part of it is done, and a new plan covers the rest.
    ///
    /// # Errors
    /// `Damaged` or `Unsupported` when a snapshot that would stay cannot be restored, `NotFound` when none of those that would stay is there
    /// any more, `Usage` when one that would go got a tag: no other is pruned. `Store` when requests fail. Those of [`Self::rebase`], after the others were pruned.
    pub fn prune(&self, plan: &PrunePlan, o: &RebaseOptions) -> Result<Pruned> {
        let mut done = Pruned::default();
        if let Some(p) = plan.broken.first().filter(|_| !plan.prune.is_empty() || !plan.states.is_empty()) {
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
            let ended = |tag: &&Tag| {
                ends.iter().any(|end| end.step == tag.step && end.current.is_none_or(|c| c.record.id == tag.id))
            };
            if let Some(tag) = self.readable_tags()?.tags.iter().find(ended) {
                return Err(has_tag(tag.step, &tag.name).and("; nothing was pruned"));
            }
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
        if failed.is_none() && !plan.states.is_empty() {
            let tags = self.readable_tags()?.tags;
            let loses = |tag: &&Tag| plan.states.iter().any(|s| s.id == tag.id);
            if let Some(tag) = tags.iter().find(loses) {
                return Err(has_tag(tag.step, &tag.name).and("; no states were dropped"));
            }
            let dropped = self.drop_states(&plan.states, o)?;
            done.reduced = dropped.snapshots;
            done.changed.extend(dropped.changed);
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
