//! Eight writers, eight readers, a pruner and a collector at once on one store, and followers, in files and in memory, of a run that is
//! saved and pruned; on every backend (see `support::on_each_backend`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use crate::support::*;
use lmc::{Dtype, ReadAt};
use lmc_store::{
    At, ErrorKind, FollowOptions, Follower, GcOptions, Input, Keep, RebaseOptions, SaveOptions, Store, StoreOptions,
    TensorFollower, TensorSpec,
};
use object_store::ObjectStore;

const WRITERS: u64 = 8;
const READERS: u64 = 8;
/// Steps that each writer saves; a neighbour competes for every other one.
const SAVES: u64 = 6;

/// A writer's file of a step: a tensor that differs a little between steps, and a line that names the writer.
fn file(n: u64, writer: u64) -> Vec<u8> {
    let mut tensor = Tensor::new("w", 10, 100, 1);
    tensor.train(n);
    [&safetensors(&[tensor])[..], format!("step {n} of writer {writer}").as_bytes()].concat()
}

struct Run {
    objects: Arc<dyn ObjectStore>,
    /// The writer whose save of each step succeeded.
    won: Mutex<BTreeMap<u64, u64>>,
    /// Steps that may have been pruned.
    pruned: Mutex<BTreeSet<u64>>,
    writing: AtomicUsize,
    reads: AtomicUsize,
    rebased: AtomicUsize,
    stop: AtomicBool,
}

impl Run {
    fn open(&self) -> Store {
        Store::open_on(self.objects.clone(), StoreOptions::default()).unwrap()
    }

    fn write(&self, writer: u64) {
        let store = self.open();
        for i in 0..SAVES {
            let n = i * WRITERS + if i % 2 == 0 { writer } else { writer / 2 };
            let file = file(n, writer);
            let mut o = SaveOptions::default();
            o.threads = 1;
            match store.save(&[Input::new("f", &file)], Some(step(n)), BTreeMap::new(), &o) {
                Ok(saved) => {
                    assert_eq!(saved.step, step(n));
                    let before = self.won.lock().unwrap().insert(n, writer);
                    // An earlier winner was pruned in between.
                    assert!(before.is_none() || self.pruned.lock().unwrap().contains(&n), "two won step {n}");
                }
                Err(e) => assert!(e.kind() == ErrorKind::Exists && i % 2 == 1, "step {n}: {e:?}"),
            }
        }
        self.writing.fetch_sub(1, Ordering::Relaxed);
    }

    fn read(&self) {
        let store = self.open();
        loop {
            // Once more after that, so that a thread that was never scheduled has read something, too.
            let last = self.stop.load(Ordering::Relaxed);
            for s in store.snapshots().unwrap() {
                let mut out = vec![];
                // Once found it stays readable, even if it is pruned now.
                store.open_snapshot(&s).unwrap().with_threads(1).read_file("f", &mut out).unwrap();
                let is_whole = (0..WRITERS).any(|w| out == file(s.step.get(), w));
                assert!(is_whole, "step {}", s.step);
                self.reads.fetch_add(1, Ordering::Relaxed);
            }
            if last {
                return;
            }
        }
    }

    fn prune(&self) {
        let store = self.open();
        let mut keep = Keep::default();
        (keep.last, keep.every) = (10, Some(5));
        loop {
            // As `read` does.
            let last = self.writing.load(Ordering::Relaxed) == 0;
            let plan = store.plan_prune(&keep).unwrap();
            self.pruned.lock().unwrap().extend(plan.prune.iter().map(|s| s.step.get()));
            let pruned = store.prune(&plan, &RebaseOptions::default()).unwrap();
            let steps: Vec<_> = store.snapshots().unwrap().iter().map(|s| s.step).collect();
            let done = store.rebase(&steps, &RebaseOptions::default()).unwrap();
            self.rebased.fetch_add(pruned.rebased.len() + done.snapshots.len(), Ordering::Relaxed);
            if last {
                return;
            }
        }
    }

    fn collect(&self) {
        let store = self.open();
        while self.writing.load(Ordering::Relaxed) > 0 {
            let garbage = store.gc(&GcOptions::default()).unwrap();
            assert!(garbage.orphans.is_empty(), "a day has not passed: {garbage:?}");
        }
    }
}

fn spec(Tensor(name, rows, columns, _): &Tensor) -> TensorSpec {
    TensorSpec { name: (*name).into(), dtype: Dtype::F32, shape: vec![*rows, *columns], first_row: None }
}

fn slices(memory: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    memory.iter_mut().map(|m| &mut m[..]).collect()
}

#[test]
fn writers_readers_a_pruner_and_a_collector() {
    // On all backends together: how many there are depends on when the pruner runs.
    let rebased = AtomicUsize::new(0);
    on_each_backend(|objects| {
        drop(new_store(&objects));
        let run = Run {
            objects,
            won: Mutex::default(),
            pruned: Mutex::default(),
            writing: AtomicUsize::new(WRITERS as usize),
            reads: AtomicUsize::new(0),
            rebased: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            let run = &run;
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(|| run.read())).collect();
            let others = [scope.spawn(|| run.prune()), scope.spawn(|| run.collect())];
            let writers: Vec<_> = (0..WRITERS).map(|w| scope.spawn(move || run.write(w))).collect();
            let ended: Vec<_> = writers.into_iter().chain(others).map(|t| t.join()).collect();
            run.stop.store(true, Ordering::Relaxed);
            readers.into_iter().map(|t| t.join()).chain(ended).for_each(|t| t.unwrap());
        });
        assert!(run.reads.load(Ordering::Relaxed) > 0);
        rebased.fetch_add(run.rebased.load(Ordering::Relaxed), Ordering::Relaxed);
        let store = run.open();
        let there: BTreeSet<u64> = store.snapshots().unwrap().iter().map(|s| s.step.get()).collect();
        let (won, pruned) = (run.won.into_inner().unwrap(), run.pruned.into_inner().unwrap());
        // Each step has a winner. Steps not pruned exist as their winner saved them.
        let steps = (0..SAVES).map(|i| if i % 2 == 0 { WRITERS } else { WRITERS / 2 }).sum::<u64>();
        assert_eq!(won.len() as u64, steps);
        for (&n, &writer) in &won {
            assert!(there.contains(&n) || pruned.contains(&n), "step {n}");
            if !pruned.contains(&n) {
                let reader = store.open_snapshot(&store.find(At::Step(step(n))).unwrap()).unwrap();
                let mut out = vec![];
                reader.read_file("f", &mut out).unwrap();
                assert!(out == file(n, writer), "step {n}");
            }
        }
        assert!(there.iter().all(|n| won.contains_key(n)) && !pruned.is_empty());
        assert!(store.verify(&store.snapshots().unwrap(), true, 1).unwrap().problems.is_empty());
    });
    assert!(rebased.into_inner() > 0);
}

/// For `LMC_FOLLOW_SECONDS`, or for a moment. With 200 or more, data are also deleted: the grace period is a minute.
#[test]
fn followers_see_whole_versions_while_a_run_is_saved_and_pruned() {
    let seconds = std::env::var("LMC_FOLLOW_SECONDS").map_or(3, |n| n.parse().unwrap());
    on_each_backend(|objects| {
        let mut o = options(7);
        o.grace_seconds = 60;
        let store = Store::create_on(objects.clone(), o).unwrap();
        let saved: Mutex<Vec<Vec<u8>>> = Mutex::default();
        let (done, versions) = (AtomicBool::new(false), AtomicUsize::new(0));
        let follow = |directory: &Path| -> lmc_store::Result<()> {
            let store = Store::open_on(objects.clone(), options(1))?;
            let mut follower = Follower::open(store, directory, FollowOptions::default())?;
            let mut problems = vec![];
            loop {
                let last = done.load(Ordering::SeqCst);
                let newest = follower.newest();
                match newest.and_then(|s| s.map(|s| follower.stage(&s, &mut |_| Ok(()))).transpose()) {
                    Ok(Some(staged)) => {
                        let version = follower.commit(staged)?;
                        let file = fs::read(version.path.join("m")).unwrap();
                        let n = version.step.get() as usize;
                        assert!(file == saved.lock().unwrap()[n], "step {n}");
                        versions.fetch_add(1, Ordering::Relaxed);
                        problems.clear();
                    }
                    Ok(None) if last => return Ok(()),
                    Ok(None) => {}
                    // The newest version may be gone; then the next one exists.
                    Err(e) => problems.push(e),
                }
                assert!(problems.len() < 10, "{problems:?}");
            }
        };
        let in_memory = AtomicUsize::new(0);
        let follow_in_memory = || -> lmc_store::Result<()> {
            let store = Store::open_on(objects.clone(), options(1))?;
            let mut memory: Vec<Vec<u8>> = model().into_iter().map(|t| vec![0; t.3.len()]).collect();
            let mut follower = TensorFollower::new(store, model().iter().map(spec).collect(), Default::default())?;
            let mut problems = vec![];
            loop {
                let last = done.load(Ordering::SeqCst);
                let newest = follower.newest();
                let holds = follower.current().is_some();
                // The first version is loaded, later ones are staged.
                let found = newest.and_then(|newest| {
                    let Some(s) = newest else { return Ok(None) };
                    let staged = if holds {
                        let tensors: Vec<&dyn ReadAt> = memory.iter().map(|m| m as &dyn ReadAt).collect();
                        Some(follower.stage(&s, &tensors, &mut |_| Ok(()))?)
                    } else {
                        follower.load(&s, &mut slices(&mut memory), &mut |_| Ok(()))?;
                        None
                    };
                    Ok(Some(staged))
                });
                match found {
                    Ok(Some(staged)) => {
                        if let Some(staged) = staged {
                            follower.commit(&staged, &mut slices(&mut memory))?;
                        }
                        let n = follower.current().unwrap().0.get() as usize;
                        // The file is a header and these tensors.
                        assert!(saved.lock().unwrap()[n].ends_with(&memory.concat()), "step {n} in memory");
                        in_memory.fetch_add(1, Ordering::Relaxed);
                        problems.clear();
                    }
                    Ok(None) if last => {
                        let at = follower.current().map(|(step, _)| step.get() + 1);
                        assert_eq!(at, Some(saved.lock().unwrap().len() as u64));
                        return Ok(());
                    }
                    Ok(None) => {}
                    Err(e) => problems.push(e),
                }
                assert!(problems.len() < 10, "{problems:?}");
            }
        };
        let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
        // Ends the followers, also if something fails.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        thread::scope(|scope| {
            let ends = Ends(&done);
            let mut followers: Vec<_> = dirs.iter().map(|dir| scope.spawn(|| follow(dir.path()))).collect();
            followers.extend((0..2).map(|_| scope.spawn(follow_in_memory)));
            let start = Instant::now();
            let mut tensors = model();
            for n in 0.. {
                // Deltas of every other step are lists of few changes.
                match n % 2 {
                    0 => tensors.iter_mut().for_each(|t| t.train(n)),
                    _ => tensors.iter_mut().for_each(|t| t.3.iter_mut().step_by(400).for_each(|b| *b ^= 1)),
                }
                saved.lock().unwrap().push(safetensors(&tensors));
                let file = saved.lock().unwrap()[n as usize].clone();
                let mut o = SaveOptions::default();
                o.level = lmc::Level::Fast;
                store.save(&[Input::new("m", &file)], Some(step(n)), BTreeMap::new(), &o).unwrap();
                let mut keep = Keep::default();
                keep.last = 2;
                store.prune(&store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
                store.gc(&GcOptions::default()).unwrap();
                // However slow the machine is, versions are seen.
                let seen = n > 0 && versions.load(Ordering::Relaxed) >= 8 && in_memory.load(Ordering::Relaxed) >= 4;
                let failed = followers.iter().any(|f| f.is_finished());
                if failed || (seen && start.elapsed().as_secs() >= seconds) {
                    break;
                }
            }
            drop(ends);
            followers.into_iter().for_each(|f| f.join().unwrap().unwrap());
        });
        let (last, seen) = (saved.lock().unwrap().len() - 1, versions.load(Ordering::Relaxed));
        for dir in dirs {
            let current = fs::read_link(dir.path().join("current")).unwrap();
            assert!(current.to_str().unwrap().starts_with(&format!("versions/{last}-")), "{current:?}, step {last}");
        }
        let in_memory = in_memory.load(Ordering::Relaxed);
        println!("4 followers in files saw {seen} versions, 2 in memory {in_memory}, of {} steps", last + 1);
    });
}
