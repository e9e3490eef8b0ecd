//! What a save, a follower and a reader of the last snapshots ask of a store does not depend on the number of its snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use lmc_store::testing::{Faults, Faulty, Memory};
use lmc_store::{At, Follower, Input, Keep, RebaseOptions, SaveOptions, Snapshot, Store};
use lmc_testing::thorough;
use object_store::ObjectStore;

/// A record of a snapshot, sealed, that names the record of the step before.
fn record(s: &Snapshot, n: u64, before: Option<&str>) -> String {
    let seen =
        before.map(|hash| format!(r#"{{"key":"{}","hash":"{hash}"}}"#, record_key(n - 1, 0))).unwrap_or_default();
    let text = format!(
        r#"{{"format":"lmc-snapshot","version":1,"step":{n},"id":"{n:032x}","time":{},"state":"kept","metadata":{{}},"shards":["{}"],"raw_size":{},"new_size":{},"seen":[{seen}]}}"#,
        s.time, s.shards[0], s.raw_size, s.new_size
    );
    let check = blake3::hash(text.as_bytes());
    format!(r#"{},"check":"{check}"}}"#, &text[..text.len() - 1])
}

/// Adds snapshots of the steps 1 to `last` to a store that has that of step 0.
fn fill(objects: &dyn ObjectStore, store: &Store, last: u64) {
    let first = store.find(At::Step(step(0))).unwrap();
    let mut hash = blake3::hash(&get(objects, &record_key(0, 0))).to_string();
    for n in 1..=last {
        let text = record(&first, n, Some(&hash));
        hash = blake3::hash(text.as_bytes()).to_string();
        put(objects, &record_key(n, 0), text.into_bytes());
    }
}

/// Requests, and entries that were listed, of each operation on a store of so many snapshots.
fn costs(snapshots: u64) -> BTreeMap<&'static str, (u64, u64)> {
    let objects = Arc::new(Memory::default());
    let file = noise(1000, 1);
    let made = Store::create_on(objects.clone(), options(1)).unwrap();
    save(&made, 0, &file);
    fill(&*objects, &made, snapshots - 1);
    let dir = tempfile::tempdir().unwrap();
    let mut found = BTreeMap::new();
    let mut cost = |name, act: &dyn Fn(&Store)| {
        let counted = Arc::new(Faulty::new(objects.clone(), 0, Faults::default()));
        let store = Store::open_on(counted.clone(), options(2)).unwrap();
        let before = (counted.requests(), objects.listed());
        act(&store);
        found.insert(name, (counted.requests() - before.0, objects.listed() - before.1));
    };
    cost("latest", &|store| {
        let last = store.find(At::Latest).unwrap();
        assert_eq!(last.step, step(snapshots - 1));
        let mut out = vec![];
        store.open_snapshot(&last).unwrap().read_file("m.safetensors", &mut out).unwrap();
        assert!(out == file);
    });
    cost("a step", &|store| assert_eq!(store.find(At::Step(step(snapshots / 2))).unwrap().step, step(snapshots / 2)));
    cost("log", &|store| {
        let listing = store.list_last(20).unwrap();
        let steps: Vec<u64> = listing.snapshots.iter().map(|s| s.step.get()).collect();
        assert!(steps.iter().copied().eq(snapshots - 20..snapshots) && listing.damaged.is_empty(), "{steps:?}");
        assert!(store.costs(&listing.snapshots).unwrap().iter().all(Result::is_ok));
        assert_eq!(store.needed_size(&listing).unwrap(), listing.snapshots[0].new_size);
    });
    cost("follow", &|store| {
        let mut follower =
            Follower::open(store.clone(), &dir.path().join(snapshots.to_string()), Default::default()).unwrap();
        let newest = follower.newest().unwrap().unwrap();
        assert_eq!(newest.step, step(snapshots - 1));
        let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
        follower.commit(staged).unwrap();
        assert_eq!(follower.newest().unwrap(), None);
    });
    cost("later steps", &|store| assert_eq!(store.steps(step(snapshots - 3)).unwrap().len(), 3));
    // These add records.
    cost("save", &|store| {
        let saved = store.save(&[Input::new("f", &noise(900, 2))], None, BTreeMap::new(), &SaveOptions::default());
        assert_eq!(saved.unwrap().step, step(snapshots));
    });
    // Of this step there is no record, and none near it names one.
    let mut drop = Keep::default();
    drop.drop = vec![step(snapshots / 2)];
    made.prune(&made.plan_prune(&drop).unwrap(), &RebaseOptions::default()).unwrap();
    cost("save in between", &|store| _ = save(store, snapshots / 2, &noise(900, 3)));
    found
}

#[test]
fn the_cost_does_not_depend_on_the_number_of_snapshots() {
    let (few, many) = (costs(100), costs(if thorough() { 100_000 } else { 2000 }));
    println!("{few:?}");
    assert_eq!(few, many);
    // Three bounded listings, and as many records as heads are looked for among.
    let (requests, listed) = few["save"];
    assert!(requests < 32 + 40 && listed < 4 * 40, "{few:?}");
}

#[test]
fn the_last_snapshots_are_found_behind_pruned_and_damaged_ones() {
    let (objects, store) = new();
    (0..100).for_each(|n| _ = save(&store, n, b"f"));
    let steps = |n| store.list_last(n).unwrap().snapshots.iter().map(|s| s.step.get()).collect::<Vec<_>>();
    assert_eq!(steps(3), [97, 98, 99]);
    assert_eq!((steps(1000).len(), steps(100).len()), (100, 100));
    let mut keep = Keep::default();
    keep.steps = [5, 50, 51].map(step).into();
    store.prune(&store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    assert_eq!((steps(1), steps(2), steps(3)), (vec![51], vec![50, 51], vec![5, 50, 51]));
    assert_eq!((store.find(At::Latest).unwrap().step, store.step(None).unwrap()), (step(51), step(52)));
    put(&*objects, &record_key(51, 0), vec![]);
    let listing = store.list_last(1).unwrap();
    assert_eq!((listing.snapshots[0].step, listing.damaged[0].step), (step(50), step(51)));
    store.find(At::Latest).unwrap_err();
    // The sizes of some are not those of all.
    assert!(store.list_last(1).unwrap().needed_size().is_none());
}

#[test]
fn records_of_out_of_order_saves_name_each_other() {
    let (objects, store) = new();
    (100..200).for_each(|n| _ = save(&store, n, b"f"));
    // Far below the highest steps.
    (0..10).for_each(|n| _ = save(&store, n, b"f"));
    for n in [0, 4, 8, 120, 198] {
        let other = Arc::new(objects.fork());
        futures::executor::block_on(object_store::ObjectStoreExt::delete(&*other, &record_key(n, 0).into())).unwrap();
        let store = Store::open_on(other, options(7)).unwrap();
        let found = store.verify_all(&Default::default()).unwrap();
        assert!(found.problems.iter().any(|p| p.step == step(n)), "{n}: {found:?}");
    }
}
