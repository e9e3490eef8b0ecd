//! A store in memory used by processes with random faults, and its invariants at any moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use lmc_store::testing::{Faults, Faulty, Memory, Random};
use lmc_store::{
    BasePolicy, ErrorKind, GcOptions, Input, Keep, RebaseOptions, SaveOptions, Snapshot, Step, Store, VerifyOptions,
};

use super::adam::step_of_adam;
use super::{GRACE, Tensor, needs, options, safetensors, step};

/// The files of a snapshot.
type Files = Vec<Vec<u8>>;

/// An operation of a process.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Save(u64),
    Prune(Keep),
    Rebase,
    Collect,
}

pub(crate) struct World {
    objects: Arc<Memory>,
    /// The existing snapshots.
    kept: BTreeMap<u64, Files>,
    tensors: Vec<Tensor>,
    random: Random,
    /// Number of processes so far.
    processes: u64,
}

fn save(store: &Store, n: u64, files: &Files, random: &mut Random) -> lmc_store::Result<Snapshot> {
    let inputs: Vec<Input<'_>> = files.iter().enumerate().map(|(i, f)| Input::new(format!("f{i}"), f)).collect();
    let mut o = SaveOptions::default();
    (o.threads, o.alternatives) = (1, random.below(2) == 0);
    (o.base, o.anchor_every) =
        [(BasePolicy::Auto, 5), (BasePolicy::Previous, 5), (BasePolicy::Previous, 1)][random.below(3) as usize];
    store.save(&inputs, Some(step(n)), BTreeMap::new(), &o)
}

/// A process may have died before any record was written.
fn collect(dry_run: bool) -> GcOptions {
    let mut o = GcOptions::default();
    (o.dry_run, o.without_records, o.rewindable) = (dry_run, true, 2);
    o
}

fn restore(store: &Store, snapshot: &Snapshot) -> lmc_store::Result<Files> {
    let reader = store.open_snapshot(snapshot)?.with_threads(1);
    let read = |f: &lmc_store::FileInfo| {
        let mut out = vec![];
        reader.read_file(&f.name, &mut out).map(|()| out)
    };
    reader.files().iter().map(read).collect()
}

impl World {
    /// An empty store, and a small model to be saved in it.
    pub(crate) fn new(seed: u64) -> Self {
        Self::of(seed, vec![Tensor::new("a", 30, 100, 1), Tensor::new("b", 1, 50, 2), Tensor::new("c", 5, 200, 3)])
    }

    pub(crate) fn of(seed: u64, tensors: Vec<Tensor>) -> Self {
        let objects = Arc::new(Memory::default());
        let mut o = options(seed);
        o.grace_seconds = GRACE;
        drop(Store::create_on(objects.clone(), o).unwrap());
        Self { objects, kept: BTreeMap::new(), tensors, random: Random::new(seed), processes: 0 }
    }

    /// A copy with an equal state.
    pub(crate) fn fork(&self) -> Self {
        let (kept, tensors, random) = (self.kept.clone(), self.tensors.clone(), self.random.clone());
        Self { objects: Arc::new(self.objects.fork()), kept, tensors, random, processes: self.processes }
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.objects.advance(seconds);
    }

    pub(crate) fn steps(&self) -> Vec<u64> {
        self.kept.keys().copied().collect()
    }

    fn files(&self) -> Files {
        self.tensors.iter().map(|t| safetensors(std::slice::from_ref(t))).collect()
    }

    /// Runs an operation whose requests take up to `pace` seconds each, with `faults`. If it succeeds, its effect is complete; after an
    /// error it has happened or not. Returns the number of requests, and whether it succeeded.
    pub(crate) fn run(&mut self, action: &Action, faults: Faults, pace: u64) -> (u64, bool) {
        self.processes += 1;
        let (seed, clock) = (self.random.u64(), self.objects.clone());
        let times = std::sync::Mutex::new(Random::new(seed));
        let before_each = move |_| clock.advance(times.lock().unwrap().below(pace + 1));
        let faulty = Arc::new(Faulty::with_hook(self.objects.clone(), seed, faults, before_each));
        let mut files = Files::new();
        if let Action::Save(_) = action {
            if self.tensors[0].0.starts_with("exp_avg.") {
                step_of_adam(&mut self.tensors, self.processes + 4);
            }
            for t in self.tensors.iter_mut().filter(|t| !t.0.ends_with(".a")) {
                // Some tensors change and some do not.
                if self.random.below(3) > 0 {
                    t.train(seed);
                }
            }
            files = self.files();
        }
        let ids = options(seed ^ self.processes);
        let done = Store::open_on(faulty.clone(), ids).and_then(|store| self.act(&store, action, &files));
        faulty.settle();
        // Snapshots that may exist, and those that may not.
        let (mut may, mut must) = (self.kept.clone(), self.kept.clone());
        match action {
            Action::Save(n) => {
                may.entry(*n).or_insert(files);
            }
            Action::Prune(keep) => {
                let steps = self.steps();
                let goes = |i: usize, n: &u64| {
                    steps.len() - i > keep.last
                        // Not the first one from a multiple on.
                        && keep.every.is_none_or(|k| *n != 0 && (*n < k || i > 0 && steps[i - 1] / k == n / k))
                        && keep.steps.iter().all(|s| s.get() != *n)
                };
                for n in steps.iter().enumerate().filter(|(i, n)| goes(*i, n)).map(|(_, n)| n) {
                    must.remove(n);
                }
            }
            Action::Rebase | Action::Collect => {}
        }
        let ok = match done {
            Ok(()) if matches!(action, Action::Save(_)) => {
                must.clone_from(&may);
                true
            }
            Ok(()) => {
                may.clone_from(&must);
                true
            }
            Err(e) => {
                let exists = matches!(action, Action::Save(n) if self.kept.contains_key(n));
                let expected = if exists { ErrorKind::Exists } else { ErrorKind::Expired };
                assert!(e.kind() == ErrorKind::Store || e.kind() == expected, "{action:?}: {e:?}");
                false
            }
        };
        self.kept = self.check(&must, &may);
        (faulty.requests(), ok)
    }

    fn act(&mut self, store: &Store, action: &Action, files: &Files) -> lmc_store::Result<()> {
        let mut o = RebaseOptions::default();
        o.threads = 1;
        match action {
            Action::Save(n) => save(store, *n, files, &mut self.random).map(|_| ()),
            Action::Prune(keep) => {
                let plan = store.plan_prune(keep)?;
                let done = store.prune(&plan, &o)?;
                assert!(done.changed.is_empty(), "no other process ran: {done:?}");
                Ok(())
            }
            Action::Rebase => {
                let steps: Vec<Step> = self.kept.keys().map(|&n| step(n)).collect();
                let done = store.rebase(&steps, &o)?;
                assert!(done.changed.is_empty(), "no other process ran: {done:?}");
                Ok(())
            }
            Action::Collect => store.gc(&collect(false)).map(|_| ()),
        }
    }

    /// Checks that all required snapshots exist and no others, and restore bit for bit; that all garbage is found and can be collected; and
    /// that the next save works.
    fn check(&self, must: &BTreeMap<u64, Files>, may: &BTreeMap<u64, Files>) -> BTreeMap<u64, Files> {
        let store = Store::open_on(self.objects.clone(), options(u64::MAX)).unwrap();
        let kept = Self::restore_all(&store);
        for (n, files) in must {
            assert!(kept.get(n) == Some(files), "step {n} is lost");
        }
        for (n, files) in &kept {
            assert!(may.get(n) == Some(files), "step {n} is not what was saved");
        }
        drop(store);
        let later = self.fork();
        later.advance(GRACE + 1);
        let store = Store::open_on(later.objects.clone(), options(u64::MAX - 1)).unwrap();
        let (all, needed) = (needs::keys(&*later.objects), needs::needed(&*later.objects));
        let garbage = store.gc(&collect(true)).unwrap();
        let orphans: Vec<&String> = garbage.orphans.iter().map(|o| &o.key).collect();
        assert_eq!(orphans, all.difference(&needed).collect::<Vec<_>>());
        assert!(garbage.young.is_empty(), "{garbage:?}");
        assert_eq!(store.gc(&collect(false)).unwrap().orphans, garbage.orphans);
        let mut there = needs::keys(&*later.objects);
        if let Some(floor) = there.difference(&needed).next().cloned() {
            // A new floor: what it allows is deleted a grace period later.
            assert!(floor.starts_with("floors/") && there.remove(&floor), "{floor}");
            later.advance(GRACE + 1);
            let rest = needs::needed(&*later.objects);
            store.gc(&collect(false)).unwrap();
            assert_eq!(needs::keys(&*later.objects), rest);
        }
        assert_eq!(there, needed);
        let found = store.verify_all(&VerifyOptions::default()).unwrap();
        assert!(found.problems.is_empty(), "{found:?}");
        save(&store, u64::from(u32::MAX), &self.files(), &mut self.random.clone()).unwrap();
        let mut after = Self::restore_all(&store);
        assert!(after.remove(&u64::from(u32::MAX)) == Some(self.files()));
        assert!(after == kept);
        kept
    }

    fn restore_all(store: &Store) -> BTreeMap<u64, Files> {
        let snapshots = store.snapshots().unwrap();
        snapshots.iter().map(|s| (s.step.get(), restore(store, s).unwrap())).collect()
    }
}
