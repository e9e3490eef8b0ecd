//! A writer that reuses old objects, while others prune its base and collect garbage at every moment of the save.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::support::*;
use lmc_store::testing::{Faults, Faulty, Memory};
use lmc_store::{
    At, BasePolicy, ErrorKind, GcOptions, Input, Keep, RebaseOptions, SaveOptions, Snapshot, Store, VerifyOptions,
};
use lmc_testing::{exhaustive, thorough};
use object_store::ObjectStoreExt;

/// A snapshot's files: one unchanged, one changed, one new.
fn files(n: u64) -> Vec<Vec<u8>> {
    let mut moving = Tensor::new("w", 20, 100, 1);
    (0..n).for_each(|i| moving.train(i));
    vec![safetensors(&[Tensor::new("still", 5, 100, 2)]), safetensors(&[moving]), noise(500, n)]
}

fn save(store: &Store, n: u64) -> lmc_store::Result<Snapshot> {
    let files = files(n);
    let inputs: Vec<Input<'_>> = files.iter().enumerate().map(|(i, f)| Input::new(format!("f{i}"), f)).collect();
    let mut o = SaveOptions::default();
    (o.threads, o.base) = (1, BasePolicy::Previous);
    store.save(&inputs, Some(step(n)), BTreeMap::new(), &o)
}

fn check(store: &Store, n: u64) {
    let reader = store.open_snapshot(&store.find(At::Step(step(n))).unwrap()).unwrap();
    for (i, file) in files(n).iter().enumerate() {
        let mut out = vec![];
        reader.read_file(&format!("f{i}"), &mut out).unwrap();
        assert!(out == *file);
    }
}

/// A store with steps 1 and 2, the second a delta of the first.
fn begun(seed: u64) -> Arc<Memory> {
    let objects = Arc::new(Memory::default());
    let mut o = options(seed);
    o.grace_seconds = GRACE;
    let store = Store::create_on(objects.clone(), o).unwrap();
    save(&store, 1).unwrap();
    save(&store, 2).unwrap();
    objects
}

/// Another process prunes all but step 1: only the grace period protects a writer that builds on step 2.
fn prune(objects: &Arc<Memory>, seed: u64) {
    let store = Store::open_on(objects.clone(), options(seed)).unwrap();
    let mut keep = Keep::default();
    keep.steps = vec![step(1)];
    store.prune(&store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
}

fn collect(objects: &Arc<Memory>, seed: u64) -> usize {
    Store::open_on(objects.clone(), options(seed)).unwrap().gc(&GcOptions::default()).unwrap().orphans.len()
}

/// Saves step 3 while others prune step 2 before the request `prune_at`, which is then delayed, and collect before the request
/// `collect_at`, which was delayed. Returns the result of the save, and its number of requests.
fn race(world: &Memory, prune_at: u64, collect_at: u64, waits: [u64; 2]) -> (Option<ErrorKind>, u64) {
    let objects = Arc::new(world.fork());
    let others = objects.clone();
    let asked = Mutex::new((false, 0));
    let before_each = move |request| {
        // The second and last request for the time starts the quarter in which the record must appear.
        let probing = needs::keys(&*others).iter().any(|k| k.starts_with("probes/"));
        let (was_probing, times) = &mut *asked.lock().unwrap();
        *times += u64::from(probing && !*was_probing);
        *was_probing = probing;
        let wait = |seconds: u64| others.advance(if *times < 2 { seconds } else { seconds.min(GRACE / 8) });
        if request == prune_at {
            prune(&others, 100);
            wait(waits[0]);
        }
        if request == collect_at {
            wait(waits[1]);
            collect(&others, 101);
        }
    };
    let faulty = Arc::new(Faulty::with_hook(objects.clone(), 0, Faults::default(), before_each));
    let saved = Store::open_on(faulty.clone(), options(102)).and_then(|store| save(&store, 3));
    let store = Store::open_on(objects.clone(), options(103)).unwrap();
    let check_all = || {
        check(&store, 1);
        if saved.is_ok() {
            check(&store, 3);
        }
    };
    check_all();
    // Once every writer must have finished.
    objects.advance(2 * GRACE);
    collect(&objects, 104);
    check_all();
    assert_eq!(store.snapshots().unwrap().len(), 1 + usize::from(prune_at == 0) + usize::from(saved.is_ok()));
    let needed = needs::needed(&*objects);
    assert_eq!(needs::keys(&*objects), needed);
    (saved.err().map(|e| e.kind()), faulty.requests())
}

#[test]
fn a_collector_at_every_moment_of_a_save() {
    let world = begun(1);
    let (ok, requests) = race(&world, 0, 0, [0, 0]);
    assert!(ok.is_none() && requests > 15, "{requests}");
    let mut ended: BTreeMap<String, u64> = BTreeMap::new();
    for prune_at in 1..=requests {
        for collect_at in prune_at..=requests {
            // Delays: within the half that a save has; in the other half, which is for requests in flight; later; and in time, if the save
            // starts after the pruning of step 2.
            let waits = [[0, GRACE / 2 - 1], [0, GRACE - 1], [0, GRACE + 1], [0, 3 * GRACE], [GRACE - 1, GRACE / 4]];
            // Alternating two of the delays at each pair of moments: neighbouring moments differ by a single request.
            let of_pair = |&i: &usize| {
                let turn = i as u64 + 2 * prune_at + collect_at;
                exhaustive() || turn % 5 < 2 && (thorough() || turn % 35 < 5)
            };
            for waits in (0..waits.len()).filter(of_pair).map(|i| waits[i]) {
                let (e, _) = race(&world, prune_at, collect_at, waits);
                assert!(
                    matches!(e, None | Some(ErrorKind::Expired | ErrorKind::NotFound | ErrorKind::Damaged)),
                    "{prune_at} {collect_at} {waits:?}: {e:?}"
                );
                *ended.entry(format!("{e:?}")).or_default() += 1;
            }
        }
    }
    println!("{ended:?}");
    // Some were in time, and some were refused.
    let least = if thorough() { 50 } else { 7 };
    assert!(ended["None"] > 2 * least && ended["Some(Expired)"] > least, "{ended:?}");
}

#[test]
fn a_store_that_was_made_anew_is_another_one() {
    let objects = memory();
    let file = vec![1u8; 100];
    let a = new_store(&objects);
    let shard = a.save_shard(&[Input::new("x", &file)], step(1), &SaveOptions::default()).unwrap();
    // Another process deletes the store, and makes one at the same place.
    futures::executor::block_on(objects.delete(&"lmc-store.json".into())).unwrap();
    let b = new_store(&objects);
    assert_ne!(a.run(), b.run());
    let refused = |e: lmc_store::Error| {
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("replaced by another one"), "{e}");
    };
    refused(a.publish(step(1), Default::default(), &[shard.shard]).unwrap_err());
    refused(save_with(&a, 1, &file, &SaveOptions::default()).unwrap_err());
    refused(a.rebase(&[], &Default::default()).unwrap_err());
    refused(a.gc(&GcOptions::default()).unwrap_err());
    assert!(b.snapshots().unwrap().is_empty());
    // And one of the same run with another grace period.
    let mut o = lmc_store::StoreOptions::default();
    (o.run, o.grace_seconds) = (Some(a.run()), 100);
    futures::executor::block_on(objects.delete(&"lmc-store.json".into())).unwrap();
    Store::create_on(objects, o).unwrap();
    refused(a.publish(step(1), Default::default(), &[shard.shard]).unwrap_err());
}

#[test]
fn two_prunes_leave_a_snapshot() {
    let objects = begun(1);
    let open = |seed| Store::open_on(objects.clone(), options(seed)).unwrap();
    let (ours, theirs) = (open(2), open(3));
    let (mut last, mut first) = (Keep::default(), Keep::default());
    (last.last, first.drop) = (1, vec![step(2)]);
    let plan = ours.plan_prune(&last).unwrap();
    theirs.prune(&theirs.plan_prune(&first).unwrap(), &RebaseOptions::default()).unwrap();
    let e = ours.prune(&plan, &RebaseOptions::default()).unwrap_err();
    assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains("plan it again"), "{e}");
    assert_eq!(ours.snapshots().unwrap().len(), 1);
    check(&ours, 1);
}

#[test]
fn a_first_save_is_no_loss_of_records() {
    let objects = Arc::new(Memory::default());
    let store = Store::create_on(objects.clone(), options(1)).unwrap();
    let shard = store.save_shard(&[Input::new("x", &noise(9, 1))], step(1), &SaveOptions::default()).unwrap().shard;
    let verify = |store: &Store| store.verify_all(&VerifyOptions::default());
    let e = verify(&store).unwrap_err();
    assert!(
        e.kind() == ErrorKind::Damaged && e.to_string().contains("unless its first snapshot is being saved"),
        "{e}"
    );
    // It is published after the records were listed: the marker is the first request, the records are the second.
    let publish = move |number| {
        if number == 3 {
            store.publish(step(1), BTreeMap::new(), &[shard]).unwrap();
        }
    };
    let seen = Arc::new(Faulty::with_hook(objects, 1, Faults::default(), publish));
    let found = verify(&Store::open_on(seen.clone(), options(2)).unwrap()).unwrap();
    assert!(found.problems.is_empty() && seen.requests() > 3, "{found:?}");
}
