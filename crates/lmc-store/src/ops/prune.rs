//! Pruning: which snapshots stay, and how the others end (`docs/store.md` §6).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::str::FromStr;

use futures::stream::{self, StreamExt, TryStreamExt};

use crate::chunks::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{SaveId, ShardId, Step, TagName};
use crate::format::manifest::record::{Record, RecordId, Seen};
use crate::objects::remote::CONCURRENT;
use crate::ops::rebase::RebaseOptions;
use crate::ops::states::{self, DropStates};
use crate::ops::verify::Problem;
use crate::records::history::{DamagedRecord, next_generation, remedy_of, to_name};
use crate::records::listing::Current;
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;
use crate::records::tags::{Tag, Tags};

/// Which snapshots to keep: those that match any of these rules or have a tag, and are not dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Keep {
    /// This many snapshots, of the largest steps.
    pub last: usize,
    /// One of every this many steps: for each multiple of this, the first from it on, before the next multiple; for 0 itself, only step 0.
    /// They are the same whatever an earlier pruning left.
    pub every: Option<u64>,
    /// Those that were saved at most this many seconds ago, by the store's clock.
    pub within: Option<u64>,
    /// Those with the best numbers in their metadata.
    pub best: Vec<Best>,
    /// Those of these steps.
    pub steps: Vec<Step>,
    /// Snapshots that would go stay without the states of their optimizers, if their files have tensors with such names.
    pub drop_state: bool,
    /// Those of these steps go, whatever else matches them. Without a rule of the others, all others stay.
    pub drop: Vec<Step>,
    /// Steps whose snapshots cannot be restored, to be ended for good: their records or shards cannot be read, or their
    /// data are not what was saved. Without another rule, all others stay.
    pub damaged: Vec<Step>,
}

/// Selects the snapshots with the best numbers under a key of their metadata. Those without a number there are left out. Of equal ones, the
/// later is better.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Best {
    /// The key.
    pub key: String,
    /// Whether a larger number is better.
    pub largest: bool,
    /// How many snapshots.
    pub count: usize,
}

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

impl Best {
    /// `count` snapshots with the smallest or the largest number.
    pub fn new(key: String, largest: bool, count: usize) -> Self {
        Self { key, largest, count }
    }

    /// The steps that it selects of snapshots by step.
    fn select(&self, records: &[&Record]) -> Result<HashSet<Step>> {
        let Self { key, largest, count } = self;
        if *count == 0 {
            return Err(Error::usage(format!("of the best by {key:?}, 0 are to be kept: keep at least one")));
        }
        let number = |r: &&Record| Some((r.metadata.get(key)?.number()?, r.step));
        let mut found: Vec<(f64, Step)> = records.iter().filter_map(number).collect();
        if found.is_empty() && !records.is_empty() {
            return Err(Error::not_found(format!("no snapshot of the store has a number {key:?} in its metadata")));
        }
        let better = |a: f64, b: f64| if *largest { b.total_cmp(&a) } else { a.total_cmp(&b) };
        // Zeros are equal, whatever their signs.
        found.sort_by(|a, b| better(a.0 + 0.0, b.0 + 0.0).then(b.1.cmp(&a.1)));
        Ok(found.into_iter().take(*count).map(|(_, step)| step).collect())
    }
}

impl FromStr for Best {
    type Err = Error;

    /// Parses `KEY=min`, `KEY=max`, `KEY=min:N` or `KEY=max:N`.
    fn from_str(s: &str) -> Result<Self> {
        let wrong =
            || Error::usage(format!("{s:?} is not KEY=min or KEY=max, with :N behind it to keep N, as loss=min:3"));
        let (key, rest) = s.rsplit_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(wrong)?;
        let (which, count) = rest.split_once(':').unwrap_or((rest, "1"));
        let largest = match which {
            "min" => false,
            "max" => true,
            _ => return Err(wrong()),
        };
        let count = count.parse().ok().filter(|&count: &usize| count > 0).ok_or_else(wrong)?;
        Ok(Self::new(key.to_owned(), largest, count))
    }
}

impl Keep {
    /// For each snapshot (by step), what keeps it; `None` if it goes. `now`: the store's time, which [`Self::within`] takes.
    fn select(&self, records: &[&Record], tags: &Tags, now: u64) -> Result<Vec<Option<Vec<String>>>> {
        let steps: Vec<Step> = records.iter().map(|r| r.step).collect();
        let all = self.has_no_rule();
        if all && self.drop.is_empty() {
            if !self.damaged.is_empty() {
                return Ok(vec![Some(vec![]); steps.len()]);
            }
            return Err(Error::usage("nothing says which snapshots to keep"));
        }
        if self.every == Some(0) {
            return Err(Error::usage("one of every 0 steps is none: keep one of every 1 or more"));
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
        // What is dropped takes no place of a rule.
        let others: Vec<&Record> = records.iter().copied().filter(|r| !self.drop.contains(&r.step)).collect();
        let last: HashSet<Step> = others.iter().rev().take(self.last).map(|r| r.step).collect();
        let mut firsts = HashMap::new();
        if let Some(n) = self.every {
            let counted = others.iter().map(|r| r.step).filter(|step| step.get() == 0 || step.get() >= n);
            counted.rev().for_each(|step| _ = firsts.insert(step.get() / n, step));
        }
        let every: HashSet<Step> = firsts.into_values().collect();
        let best = self.best.iter().map(|best| Ok((best, best.select(&others)?))).collect::<Result<Vec<_>>>()?;
        let why = |r: &&Record| {
            let names = tags.of(r.step, r.id);
            if self.drop.contains(&r.step) {
                return names.first().map_or(Ok(None), |tag| Err(has_tag(r.step, tag)));
            }
            let rule = |name: &str, keeps: bool| keeps.then(|| name.to_owned());
            let recent = self.within.is_some_and(|seconds| r.time.saturating_add(seconds) >= now);
            let rules = [
                rule("last", last.contains(&r.step)),
                rule("every", every.contains(&r.step)),
                rule("within", recent),
                rule("step", self.steps.contains(&r.step)),
            ];
            let best =
                best.iter().filter(|(_, steps)| steps.contains(&r.step)).map(|(best, _)| format!("best {}", best.key));
            let mut why: Vec<String> = rules.into_iter().flatten().chain(best).collect();
            why.extend(names.into_iter().map(|name| format!("tag {name}")));
            Ok((all || !why.is_empty()).then_some(why))
        };
        let stays: Vec<Option<Vec<String>>> = records.iter().map(why).collect::<Result<_>>()?;
        if !steps.is_empty() && stays.iter().all(Option::is_none) && !self.drop_state {
            return Err(Error::usage("no snapshot would stay: keep at least one"));
        }
        Ok(stays)
    }

    fn has_no_rule(&self) -> bool {
        let Self { last, every, within, best, steps, .. } = self;
        *last == 0 && every.is_none() && within.is_none() && best.is_empty() && steps.is_empty()
    }
}

/// The error for a snapshot that is to be ended, although it has a tag.
fn has_tag(step: Step, tag: &TagName) -> Error {
    Error::usage(format!("step {step} has the tag {tag}: delete that first (lmc snapshot tag STORE {tag} --delete)"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::manifest::metadata::MetaValue;

    /// Records of steps, which were saved at the time of their step, with a number each if it is no NaN.
    fn records(of: &[(u64, f64)]) -> Vec<Record> {
        let record = |&(n, loss): &(u64, f64)| {
            let metadata = (!loss.is_nan()).then(|| ("loss".to_owned(), MetaValue::Float(loss)));
            Record::kept(Step::new(n).unwrap(), SaveId::new([n as u8; 16]), n, metadata.into_iter().collect())
        };
        of.iter().map(record).collect()
    }

    fn select(keep: &Keep, records: &[Record], tags: &Tags) -> Result<Vec<(u64, Vec<String>)>> {
        let stays = keep.select(&records.iter().collect::<Vec<_>>(), tags, 1000)?;
        let steps = records.iter().map(|r| r.step.get());
        Ok(steps.zip(stays).filter_map(|(step, why)| Some((step, why?))).collect())
    }

    fn kept(keep: &Keep, records: &[Record]) -> Vec<u64> {
        select(keep, records, &Tags::default()).unwrap().into_iter().map(|(step, _)| step).collect()
    }

    fn steps(of: &[u64]) -> Vec<Step> {
        of.iter().map(|&n| Step::new(n).unwrap()).collect()
    }

    #[test]
    fn rules_add_up() {
        let all = records(&[0, 5, 10, 15, 20, 21].map(|n| (n, f64::NAN)));
        let keep = |last, every, named: &[u64]| Keep { last, every, steps: steps(named), ..Keep::default() };
        let without = |keep: Keep, dropped: &[u64]| Keep { drop: steps(dropped), ..keep };
        assert_eq!(kept(&keep(2, None, &[]), &all), [20, 21]);
        assert_eq!(kept(&keep(9, None, &[]), &all).len(), 6);
        assert_eq!(kept(&keep(0, Some(10), &[]), &all), [0, 10, 20]);
        assert_eq!(kept(&keep(1, Some(15), &[5]), &all), [0, 5, 15, 21]);
        assert_eq!(kept(&keep(0, Some(8), &[]), &all), [0, 10, 20]);
        assert_eq!(kept(&keep(0, Some(8), &[]), &all[1..]), [10, 20]);
        assert_eq!(kept(&without(keep(0, None, &[]), &[10, 21]), &all), [0, 5, 15, 20]);
        assert_eq!(kept(&without(keep(2, Some(10), &[]), &[10, 21]), &all), [0, 15, 20]);
        let why = select(&keep(1, Some(20), &[21]), &all, &Tags::default()).unwrap();
        let texts = |of: &[&str]| of.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(why, [(0, texts(&["every"])), (20, texts(&["every"])), (21, texts(&["last", "step"]))]);
        for (bad, kind) in [
            (keep(0, None, &[]), ErrorKind::Usage),
            (keep(1, Some(0), &[]), ErrorKind::Usage),
            (Keep { drop: steps(&[0]), ..keep(0, Some(22), &[]) }, ErrorKind::Usage),
            (keep(1, None, &[6]), ErrorKind::NotFound),
            (without(keep(0, None, &[]), &[6]), ErrorKind::NotFound),
            (without(keep(0, None, &[5]), &[5]), ErrorKind::Usage),
            (without(keep(0, None, &[0]), &[5, 0]), ErrorKind::Usage),
            (without(keep(0, None, &[]), &[0, 5, 10, 15, 20, 21]), ErrorKind::Usage),
            (Keep { within: Some(9), ..Keep::default() }, ErrorKind::Usage),
        ] {
            assert_eq!(select(&bad, &all, &Tags::default()).unwrap_err().kind(), kind);
        }
        assert!(kept(&keep(3, None, &[]), &[]).is_empty());
    }

    #[test]
    fn one_of_every_so_many_steps_stays_the_same() {
        let keep = Keep { last: 2, every: Some(1000), ..Keep::default() };
        let mut there: Vec<u64> = vec![];
        for n in 0..50 {
            // Counted from zero: no step is a multiple.
            there.push(100 * n + 99);
            there = kept(&keep, &records(&there.iter().map(|&n| (n, f64::NAN)).collect::<Vec<_>>()));
        }
        assert_eq!(there, [1099, 2099, 3099, 4099, 4899, 4999]);
    }

    #[test]
    fn times_and_numbers_select() {
        let all = records(&[(100, 2.5), (200, 2.0), (300, f64::NAN), (990, 2.0), (1000, 3.0), (2000, 0.0)]);
        let within = |seconds| Keep { within: Some(seconds), ..Keep::default() };
        // The last one is of a clock that is ahead.
        assert_eq!(kept(&within(0), &all), [1000, 2000]);
        assert_eq!(kept(&within(10), &all), [990, 1000, 2000]);
        assert_eq!(kept(&within(u64::MAX), &all).len(), 6);
        let best =
            |rules: &[&str]| Keep { best: rules.iter().map(|r| r.parse().unwrap()).collect(), ..Keep::default() };
        assert_eq!(kept(&best(&["loss=min"]), &all), [2000]);
        assert_eq!(kept(&best(&["loss=min:2"]), &all), [990, 2000]);
        assert_eq!(kept(&best(&["loss=min:3"]), &all), [200, 990, 2000]);
        assert_eq!(kept(&best(&["loss=max:2"]), &all), [100, 1000]);
        assert_eq!(kept(&best(&["loss=max", "loss=min"]), &all), [1000, 2000]);
        assert_eq!(kept(&best(&["loss=max:99"]), &all), [100, 200, 990, 1000, 2000]);
        let dropped = Keep { drop: steps(&[2000]), ..best(&["loss=min"]) };
        assert_eq!(kept(&dropped, &all), [990]);
        let e = select(&best(&["lss=min"]), &all, &Tags::default()).unwrap_err();
        assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains("\"lss\""), "{e}");
        let zeros = records(&[(1, -0.0), (2, 0.0), (3, -0.0)]);
        assert_eq!((kept(&best(&["loss=min"]), &zeros), kept(&best(&["loss=max"]), &zeros)), (vec![3], vec![3]));
        assert_eq!("a=b=max:7".parse::<Best>().unwrap(), Best::new("a=b".into(), true, 7));
        for bad in
            ["", "loss", "=min", "loss=", "loss=low", "loss=min:", "loss=min:0", "loss=min:-1", "loss=min:x", "min"]
        {
            assert_eq!(bad.parse::<Best>().unwrap_err().kind(), ErrorKind::Usage, "{bad}");
        }
    }
}
