//! The rules of a pruning: which snapshots stay, and why.

use std::collections::{HashMap, HashSet};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::format::ids::{Step, TagName};
use crate::format::manifest::record::Record;
use crate::records::tags::Tags;

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
    pub(super) fn select(&self, records: &[&Record], tags: &Tags, now: u64) -> Result<Vec<Option<Vec<String>>>> {
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
            return Err(Error::no_snapshot(step, " to keep"));
        }
        if let Some(step) = self.drop.iter().find(|s| !steps.contains(s)) {
            return Err(Error::no_snapshot(step, " to drop"));
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
pub(super) fn has_tag(step: Step, tag: &TagName) -> Error {
    Error::usage(format!("step {step} has the tag {tag}: delete that first (lmc snapshot tag STORE {tag} --delete)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::format::ids::SaveId;
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
