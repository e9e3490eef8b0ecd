//! Saving while requests fail and processes die: what was acknowledged is there, bit for bit, and at most the one save more whose answer was lost.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use lmc_store::testing::{Faults, Faulty};
use lmc_store::{ErrorKind, Input, SaveOptions, Store};
use object_store::ObjectStore;
use support::*;

/// The snapshots that are there are those acknowledged, or those and the ones in flight; all are restored bit for bit.
fn check(objects: &Arc<dyn ObjectStore>, acknowledged: &BTreeMap<u64, Vec<u8>>, in_flight: &BTreeMap<u64, Vec<u8>>) {
    let store = Store::create_on(objects.clone(), options(u64::MAX)).unwrap();
    let found = store.snapshots().unwrap();
    let steps: Vec<u64> = found.iter().map(|s| s.step.get()).collect();
    for n in acknowledged.keys() {
        assert!(steps.contains(n), "step {n} was acknowledged, and is not there: {steps:?}");
    }
    for n in steps {
        let file = acknowledged.get(&n).or_else(|| in_flight.get(&n)).expect("nobody saved it");
        assert!(restored(&store, n).unwrap() == *file, "step {n}");
    }
    let verified = store.verify(&found, true, 1).unwrap();
    assert!(verified.problems.is_empty(), "{verified:?}");
}

/// Saves a few snapshots, each by a process of its own with its own bad luck.
fn run(seed: u64, faults: Faults, tensors: &mut [Tensor]) -> (u64, u64) {
    let objects = memory();
    let (mut acknowledged, mut in_flight) = (BTreeMap::new(), BTreeMap::new());
    let (mut requests, mut failed) = (0, 0);
    for n in 0..5 {
        tensors.iter_mut().for_each(|t| t.train(seed + n));
        let file = safetensors(tensors);
        let faulty = Arc::new(Faulty::new(objects.clone(), seed * 100 + n, faults));
        let saved = Store::create_on(faulty.clone(), options(seed * 100 + n)).and_then(|store| {
            let mut o = SaveOptions::default();
            (o.threads, o.anchor_every) = (1, 3);
            store.save(&[Input::new("m.safetensors", &file)], Some(step(n)), BTreeMap::new(), &o)
        });
        requests += faulty.requests();
        match saved {
            Ok(_) => acknowledged.insert(n, file),
            Err(e) => {
                assert!(matches!(e.kind(), ErrorKind::Store), "{e:?}");
                failed += 1;
                in_flight.insert(n, file)
            }
        };
        check(&objects, &acknowledged, &in_flight);
    }
    // Whatever happened, the next save works.
    let store = Store::create_on(objects.clone(), options(seed * 100 + 99)).unwrap();
    let file = safetensors(tensors);
    save(&store, 1000, &file);
    acknowledged.insert(1000, file);
    check(&objects, &acknowledged, &in_flight);
    (requests, failed)
}

fn small() -> Vec<Tensor> {
    vec![Tensor::new("a", 70, 1000, 1), Tensor::new("b", 3, 50, 2)]
}

#[test]
fn requests_fail_at_random() {
    let mut failed = 0;
    for seed in 0..300 {
        let mut faults = Faults::default();
        (faults.refused, faults.answer_lost, faults.short) = (40, 40, 40);
        failed += run(seed, faults, &mut small()).1;
    }
    // Enough of both.
    assert!((300..1200).contains(&failed), "{failed}");
}

#[test]
fn the_process_dies_at_every_request() {
    let requests = run(0, Faults::default(), &mut small()).0;
    assert!(requests >= 50, "{requests}");
    for after in 1..requests / 5 + 5 {
        for seed in 0..6 {
            let mut faults = Faults::default();
            faults.dies_after = after;
            let failed = run(seed, faults, &mut small()).1;
            // Of the first save there is less to read: it may be through already.
            assert!(after > 8 || failed >= 4, "{after} {seed} {failed}");
        }
    }
}

#[test]
fn uploads_in_parts_fail() {
    let mut failed = 0;
    for seed in 0..12 {
        let mut faults = Faults::default();
        (faults.refused, faults.answer_lost) = (30, 30);
        failed += run(seed, faults, &mut [Tensor::new("large", 3000, 1024, 1)]).1;
    }
    assert!(failed > 5, "{failed}");
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
