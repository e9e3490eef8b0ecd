//! The cost of restoring, determined without restoring anything; and of looking for snapshots.

use std::sync::Arc;

use crate::support::*;
use lmc_store::testing::{Faults, Faulty};
use lmc_store::{At, BasePolicy, ErrorKind, Keep, RebaseOptions, SaveOptions, Snapshot, Store};

#[test]
fn chains_and_what_they_read_are_told() {
    let objects = Arc::new(Faulty::new(memory(), 0, Faults::default()));
    let store = Store::create_on(objects.clone(), options(0)).unwrap();
    let mut o = SaveOptions::default();
    (o.base, o.anchor_every) = (BasePolicy::Previous, 3);
    let mut t = Tensor::new("t", 300, 400, 1);
    let saved: Vec<_> = (0..7)
        .map(|n| {
            t.train(n);
            save_with(&store, n, &safetensors(std::slice::from_ref(&t)), &o).unwrap()
        })
        .collect();
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
    // The listing, and the records that were written last.
    assert_eq!(latest(49), 1 + 32);
    assert_eq!((latest(49), next(50)), (1, 1));
    // One that may come is looked for among these, too.
    assert_eq!(is_missing(50), 2);
    save(&other, 60, b"f");
    assert_eq!((latest(60), next(61), is_missing(61)), (2, 1, 2));
    // One before others may be lost: all are read.
    assert_eq!(is_missing(50), 2 + 51);
    // Superseded ones are read again.
    let mut drop = Keep::default();
    drop.drop = vec![step(60)];
    other.prune(&other.plan_prune(&drop).unwrap(), &RebaseOptions::default()).unwrap();
    assert_eq!((latest(49), next(50)), (2, 1));
    // Many pruned ones are read several at once, and only as far as needed.
    let mut keep = Keep::default();
    keep.steps = vec![step(5)];
    other.prune(&other.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    assert!(latest(5) <= 1 + 32 + 16 && latest(5) <= 1 + 16);
}
