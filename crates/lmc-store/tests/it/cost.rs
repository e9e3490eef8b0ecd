//! The cost of restoring, determined without restoring anything; and of looking for snapshots.

use std::sync::Arc;

use crate::support::*;
use lmc_store::testing::{Faults, Faulty};
use lmc_store::{At, BasePolicy, CopyOptions, ErrorKind, Input, Keep, RebaseOptions, SaveOptions, Snapshot, Store};
use object_store::ObjectStore;

/// A store, and its objects, which count requests.
fn counted() -> (Arc<Faulty>, Store) {
    let objects = Arc::new(Faulty::new(memory(), 0, Faults::default()));
    (objects.clone(), Store::create_on(objects, options(0)).unwrap())
}

/// Saves steps of a tensor that is trained, each as a delta of the one before.
fn trained(store: &Store, mut t: Tensor, steps: u64, anchor_every: u32) -> Vec<Snapshot> {
    let mut o = SaveOptions::default();
    (o.base, o.anchor_every) = (BasePolicy::Previous, anchor_every);
    let save = |n| {
        t.train(n);
        save_with(store, n, &safetensors(std::slice::from_ref(&t)), &o).unwrap()
    };
    (0..steps).map(save).collect()
}

#[test]
fn chains_and_what_they_read_are_counted() {
    let (objects, store) = counted();
    let saved = trained(&store, Tensor::new("t", 300, 400, 1), 7, 3);
    let before = objects.requests();
    let all = |of: &[Snapshot]| store.costs(of).unwrap().into_iter().collect::<lmc_store::Result<Vec<_>>>().unwrap();
    let costs = all(&saved);
    // Every shard is read once, even if several snapshots need it.
    assert_eq!(objects.requests() - before, 7);
    assert_eq!(costs.iter().map(|c| c.longest_chain).collect::<Vec<_>>(), [1, 2, 3, 1, 2, 3, 1]);
    // The shared header, and the tensor's chain.
    assert_eq!(costs.iter().map(|c| c.block_sets).collect::<Vec<_>>(), [2, 3, 4, 2, 3, 4, 2]);
    let new: Vec<u64> = saved.iter().map(|s| s.new_size).collect();
    assert_eq!(costs[0].stored_size, new[0]);
    assert_eq!(costs[2].stored_size, new[..3].iter().sum::<u64>());
    let header = costs[3].stored_size - new[3];
    assert!((1..1000).contains(&header));
    assert_eq!(costs[5].stored_size, header + new[3..6].iter().sum::<u64>());
    assert_eq!(all(&saved[5..]), costs[5..]);
    // So does a verification, which looks at every object.
    let before = objects.requests();
    let verified = store.verify(&saved, false, 1).unwrap();
    assert_eq!((objects.requests() - before, verified.problems.len()), (7 + verified.objects, 0));
}

#[test]
fn planning_a_prune_reads_each_document_once() {
    let (objects, store) = counted();
    (0..4).for_each(|n| _ = save(&store, n, &noise(1000, n)));
    let mut keep = Keep::default();
    keep.last = 2;
    let before = objects.requests();
    let plan = store.plan_prune(&keep).unwrap();
    let requests = objects.requests() - before;
    assert!(plan.keep.len() == 2 && plan.prune.len() == 2 && plan.broken.is_empty() && plan.obstacle.is_none());
    let objects = store.verify(&plan.keep, false, 1).unwrap().objects;
    // The listings of records and of tags, the records, the documents, and a look at each data object of what stays.
    assert_eq!((requests, objects), (2 + 4 + 4 + objects, 2));
}

/// Why it does not go on in the next part is said where the parts are made (`catalog.rs`).
#[test]
fn a_deep_verification_decodes_a_chain_once_in_each_part() {
    let (objects, store) = counted();
    let saved = trained(&store, Tensor::new("t", 20, 20, 1), 70, 64);
    // Block sets, and how many of them are read.
    let read = |of: &[Snapshot]| {
        let requests = |deep| {
            let before = objects.requests();
            let found = store.verify(of, deep, 1).unwrap();
            assert!(found.problems.is_empty(), "{found:?}");
            (objects.requests() - before, found.block_sets)
        };
        let ((shallow, _), (deep, sets)) = (requests(false), requests(true));
        (sets, deep - shallow)
    };
    // The header is one, too.
    assert_eq!(read(&saved[..64]), (1 + 64, 1 + 64));
    // Two parts of 35: the chain of the first goes on in the second.
    assert_eq!(read(&saved), (1 + 70, 1 + 70 + 35));
}

#[test]
fn what_is_saved_or_copied_to_a_step_is_looked_for_in_one_listing() {
    let objects = Arc::new(Faulty::new(memory(), 0, Faults::default()));
    let run = Store::create_on(objects.clone(), options(0)).unwrap();
    (1..=3).for_each(|n| _ = save(&run, n, &noise(1000, n)));
    let requests = |objects: &Faulty, look: &dyn Fn()| {
        let before = objects.requests();
        look();
        objects.requests() - before
    };
    // A listing, and the recent records; these are known then.
    let free = || assert_eq!(run.step(Some(step(4))).unwrap(), step(4));
    assert!(requests(&objects, &free) <= 1 + 3);
    assert_eq!(requests(&objects, &free), 1);
    // As the record of one that is there.
    let taken = || assert_eq!(run.step(Some(step(2))).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(requests(&objects, &taken), 1);
    let file = noise(1000, 4);
    let shard = run.save_shard(&[Input::new("f", &file)], step(4), &SaveOptions::default()).unwrap().shard;
    // The shard, two listings, the marker, three for the time, and the record.
    let publish = || _ = run.publish(step(4), Default::default(), &[shard]).unwrap();
    assert_eq!(requests(&objects, &publish), 1 + 2 + 1 + 3 + 1);
    let copies = Arc::new(Faulty::new(memory(), 0, Faults::default()));
    let to = store_like(&run, &(copies.clone() as Arc<dyn ObjectStore>));
    let all = run.snapshots().unwrap();
    to.copy_from(&run, &all, CopyOptions::default()).unwrap();
    // For one that is there, its record is found without those of others.
    let again = || assert_eq!(to.copy_from(&run, &all[..1], CopyOptions::default()).unwrap().skipped, 1);
    assert_eq!(requests(&copies, &again), 2);
}

#[test]
fn a_look_that_finds_nothing_new_reads_no_record() {
    let objects = Arc::new(Faulty::new(memory(), 0, Faults::default()));
    let [store, other] = [0, 1].map(|seed| Store::create_on(objects.clone(), options(seed)).unwrap());
    (0..50).for_each(|n| _ = save(&other, n, b"f"));
    let requests = |look: &dyn Fn()| {
        let before = objects.requests();
        look();
        objects.requests() - before
    };
    let latest = |n| requests(&|| assert_eq!(store.find(At::Latest).unwrap().step, step(n)));
    let next = |n| requests(&|| assert_eq!(store.step(None).unwrap(), step(n)));
    let is_missing =
        |n| requests(&|| assert_eq!(store.find(At::Step(step(n))).unwrap_err().kind(), ErrorKind::NotFound));
    // The listing, and the records of the highest steps.
    assert_eq!(latest(49), 1 + 32);
    assert_eq!((latest(49), next(50)), (1, 1));
    // One that may come is looked for among these, too.
    assert_eq!(is_missing(50), 2);
    save(&other, 60, b"f");
    assert_eq!((latest(60), next(61), is_missing(61)), (2, 1, 2));
    // One before others may be lost: all are listed, and read.
    assert_eq!(is_missing(50), 3 + 51);
    // Superseded ones are read again, and all of the one that is the last now.
    let mut drop = Keep::default();
    drop.drop = vec![step(60)];
    other.prune(&other.plan_prune(&drop).unwrap(), &RebaseOptions::default()).unwrap();
    assert_eq!((latest(49), next(50)), (3, 1));
    // Many pruned ones are read several at once, and only as far as needed.
    let mut keep = Keep::default();
    keep.steps = vec![step(5)];
    other.prune(&other.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    assert!(latest(5) <= 2 + 32 + 17 && latest(5) <= 2 + 17);
}
