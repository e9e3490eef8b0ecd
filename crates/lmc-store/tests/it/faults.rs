//! Saving, pruning, re-basing and collecting while requests fail and processes die: everything acknowledged exists, bit
//! for bit, and beyond that at most operations in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::adam::training;
use crate::support::world::{Action, World};
use crate::support::*;
use lmc_store::testing::{Faults, Faulty};
use lmc_store::{ErrorKind, Keep, SaveOptions, Store};
use lmc_testing::{cases, exhaustive, thorough};

/// Seeds to try; `LMC_STORE_TEST_SEEDS` overrides the number.
fn seeds(usual: u64) -> u64 {
    std::env::var("LMC_STORE_TEST_SEEDS").map_or(usual, |n| n.parse().expect("LMC_STORE_TEST_SEEDS is a number"))
}

fn keep(last: usize, every: Option<u64>) -> Keep {
    let mut keep = Keep::default();
    (keep.last, keep.every) = (last, every);
    keep
}

/// Saves, prunes, re-bases and collects a few snapshots, each step by a process with random faults. Returns how many processes had faults,
/// and the outcomes.
fn live(seed: u64) -> BTreeMap<&'static str, (u64, u64)> {
    let mut world = World::new(seed);
    let mut ended = BTreeMap::new();
    for n in 0..12 {
        let random = world.random();
        let action = match random.below(10) {
            0..5 => Action::Save(n),
            5..7 => Action::Prune(keep(random.below(3) as usize, Some(1 + random.below(4)))),
            7 => Action::Rebase,
            _ => Action::Collect,
        };
        let mut faults = Faults::default();
        match random.below(5) {
            0 | 1 => {}
            2 => faults.dies_after = 1 + random.below(40),
            3 => (faults.refused, faults.answer_lost, faults.late, faults.short) = (100, 100, 100, 100),
            _ => (faults.answer_lost, faults.late) = (20, 20),
        }
        let (pace, pause) = ([0, 2, GRACE / 50][random.below(3) as usize], random.below(5));
        // Pruning an empty store does nothing; keeping nothing of a non-empty one is refused.
        let steps = world.steps();
        if let Action::Prune(keep) = &action
            && keep.last == 0
            && steps.iter().all(|n| *n != 0 && *n < keep.every.unwrap())
        {
            continue;
        }
        let (_, ok) = world.run(&action, faults, pace);
        let name = match action {
            Action::Save(_) => "save",
            Action::Prune(_) => "prune",
            Action::Rebase => "rebase",
            Action::Collect => "collect",
        };
        let (good, bad): &mut (u64, u64) = ended.entry(name).or_default();
        *(if ok { good } else { bad }) += 1;
        world.advance([0, GRACE / 4, GRACE / 2 + 1, GRACE, 2 * GRACE][pause as usize]);
    }
    ended
}

#[test]
fn processes_with_bad_luck_lose_nothing() {
    let mut ended: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let count = seeds(if exhaustive() { 1000 } else { cases(100) as u64 });
    for seed in 0..count {
        let lived = std::panic::catch_unwind(|| live(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        for (name, (good, bad)) in lived {
            let (all_good, all_bad) = ended.entry(name).or_default();
            (*all_good, *all_bad) = (*all_good + good, *all_bad + bad);
        }
    }
    println!("{count} seeds; ended well and badly: {ended:?}");
    // Every case occurred often enough.
    for name in ["save", "prune", "rebase", "collect"] {
        let (good, bad) = ended[name];
        assert!(good > count / 8 && bad > count / 16, "{ended:?}");
    }
}

/// A store with garbage of every kind, snapshots pruned recently and long ago, and some to be pruned and re-based.
fn eventful() -> World {
    let mut world = World::new(1);
    let mut good = |action: Action| assert!(world.run(&action, Faults::default(), 1).1);
    (0..4).for_each(|n| good(Action::Save(n)));
    good(Action::Prune(keep(1, Some(3))));
    world.advance(GRACE + 1);
    let mut dies = Faults::default();
    dies.dies_after = 14;
    world.run(&Action::Save(10), dies, 1);
    world.advance(GRACE + 1);
    (4..9).for_each(|n| assert!(world.run(&Action::Save(n), Faults::default(), 1).1));
    world
}

#[test]
fn the_process_dies_at_every_request() {
    let world = eventful();
    let actions = [Action::Save(11), Action::Prune(keep(2, None)), Action::Rebase, Action::Collect];
    for (first, action) in actions.into_iter().enumerate() {
        let (requests, ok) = world.fork().run(&action, Faults::default(), 0);
        assert!(ok && requests >= 10, "{action:?}: {requests}");
        // The quick tests take every fifth moment.
        for after in (1..=requests).filter(|after| thorough() || after % 5 == first as u64 + 1) {
            for seed in 0..if exhaustive() { 4 } else { 2 } {
                let mut world = world.fork();
                // Whether the last request took effect is random.
                (0..seed).for_each(|_| _ = world.random().u64());
                let mut faults = Faults::default();
                faults.dies_after = after;
                let (_, ok) = world.run(&action, faults, 0);
                // What follows the record of a save cannot undo it.
                assert!(!ok || after + 4 > requests, "{action:?} {after} of {requests}");
                // Another process continues.
                assert!(world.run(&action.clone(), Faults::default(), 0).1 || matches!(action, Action::Save(_)));
            }
        }
    }
}

/// Of states whose tensors tell each other.
#[test]
fn a_process_with_states_of_an_optimizer_dies() {
    let mut world = World::of(1, training());
    (0..3).for_each(|n| assert!(world.run(&Action::Save(n), Faults::default(), 1).1));
    for action in [Action::Save(11), Action::Prune(keep(1, None)), Action::Rebase] {
        let (requests, _) = world.fork().run(&action, Faults::default(), 0);
        for after in (1..=requests).filter(|after| thorough() || after % 5 == 0) {
            let mut world = world.fork();
            let mut faults = Faults::default();
            faults.dies_after = after;
            world.run(&action, faults, 0);
            assert!(world.run(&action, Faults::default(), 0).1 || matches!(action, Action::Save(_)));
        }
    }
}

#[test]
fn uploads_in_parts_fail() {
    let mut failed = 0;
    for seed in 0..6 {
        let mut world = World::of(seed, vec![Tensor::new("large", 3000, 1024, 1)]);
        let mut faults = Faults::default();
        (faults.refused, faults.answer_lost) = (30, 30);
        for n in 0..3 {
            failed += u64::from(!world.run(&Action::Save(n), faults, 1).1);
        }
    }
    assert!(failed > 3, "{failed}");
}

#[test]
fn writers_of_one_step_with_bad_luck() {
    for seed in 0..40 {
        let objects = memory();
        drop(new_store(&objects));
        let files: Vec<Vec<u8>> = (0..4).map(|i| noise(5000, seed * 10 + i)).collect();
        let saved: Vec<_> = std::thread::scope(|scope| {
            let spawn = |i: usize| {
                let file = &files[i];
                let mut faults = Faults::default();
                (faults.refused, faults.answer_lost) = (50, 25);
                let faulty = Arc::new(Faulty::new(objects.clone(), seed * 10 + i as u64, faults));
                scope.spawn(move || {
                    let store = Store::create_on(faulty, options(seed * 10 + i as u64))?;
                    save_with(&store, 7, file, &SaveOptions::default())
                })
            };
            let writers: Vec<_> = (0..files.len()).map(spawn).collect();
            writers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        let won: Vec<usize> = (0..4).filter(|&i| saved[i].is_ok()).collect();
        assert!(won.len() <= 1, "{won:?}");
        let store = new_store(&objects);
        match (restored(&store, 7), won.first()) {
            (Ok(there), Some(&i)) => assert!(there == files[i]),
            (Ok(there), None) => assert!(files.contains(&there)),
            (Err(e), won) => assert!(e.kind() == ErrorKind::NotFound && won.is_none(), "{e:?} {won:?}"),
        }
    }
}
