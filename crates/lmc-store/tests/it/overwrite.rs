//! A step that is saved again: with the same contents, or to replace what it has.

use std::collections::BTreeMap;

use crate::support::*;
use lmc_store::{At, ErrorKind, Input, SaveOptions, ShardId, Store, VerifyOptions};

fn shard(store: &Store, n: u64, name: &str, file: &[u8]) -> ShardId {
    store.save_shard(&[Input::new(name, &file)], step(n), &SaveOptions::default()).unwrap().shard
}

/// The model after some steps of training.
fn trained(steps: u64) -> Vec<u8> {
    let mut tensors = model();
    (0..steps).for_each(|n| tensors.iter_mut().for_each(|t| t.train(n)));
    safetensors(&tensors)
}

#[test]
fn the_same_contents_are_known() {
    let objects = memory();
    let store = new_store(&objects);
    save(&store, 1, &trained(0));
    let (a, b) = (shard(&store, 2, "a", &trained(1)), shard(&store, 2, "b", &trained(2)));
    let saved = store.publish(step(2), BTreeMap::new(), &[a, b]).unwrap();
    // Another process, and another order.
    let other = store_like(&store, &objects);
    let again = [shard(&other, 2, "b", &trained(2)), shard(&other, 2, "a", &trained(1))];
    assert!(other.has_shards(&saved, &again).unwrap() && store.has_shards(&saved, &[a, b]).unwrap());
    assert!(!store.has_shards(&saved, &[a]).unwrap() && !store.has_shards(&saved, &[]).unwrap());
    let mut changed = trained(2);
    *changed.last_mut().unwrap() ^= 1;
    for (name, file) in [("b", &changed), ("c", &trained(2))] {
        assert!(!store.has_shards(&saved, &[a, shard(&store, 2, name, file)]).unwrap(), "{name}");
    }
    let gone = "0".repeat(64).parse().unwrap();
    let e = store.has_shards(&saved, &[a, gone]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Expired, "{e}");
}

#[test]
fn a_snapshot_is_replaced_on_each_backend() {
    // Alone in the store, and with one before and one after that share data with it.
    for others in [false, true] {
        on_each_backend(|objects| {
            let store = new_store(&objects);
            let before = save(&store, 10, &trained(1));
            if others {
                save(&store, 9, &trained(0));
                save(&store, 11, &trained(2));
            }
            let new = shard(&store, 10, "new", &trained(7));
            assert_eq!(store.publish(step(10), BTreeMap::new(), &[new]).unwrap_err().kind(), ErrorKind::Exists);
            let saved = store.overwrite(step(10), BTreeMap::from([("loss".into(), "2".into())]), &[new]).unwrap();
            assert_eq!(store.find(At::Step(step(10))).unwrap(), saved);
            assert!(saved.id != before.id && saved.metadata["loss"] == "2".into());
            let mut out = vec![];
            store.open_snapshot(&saved).unwrap().read_file("new", &mut out).unwrap();
            assert!(out == trained(7));
            if others {
                assert!(restored(&store, 9).unwrap() == trained(0) && restored(&store, 11).unwrap() == trained(2));
            }
            assert_eq!(store.verify_all(&VerifyOptions::default()).unwrap().problems, []);
            // Of a step without a snapshot it is a save.
            let first = shard(&store, 20, "first", b"first");
            assert_eq!(store.overwrite(step(20), BTreeMap::new(), &[first]).unwrap().shards, [first]);
        });
    }
}

/// It may refer to data that are gone: the snapshot that is there stays.
#[test]
fn a_save_that_took_too_long_replaces_nothing() {
    let (objects, store) = new();
    let before = save(&store, 1, &trained(0));
    let new = shard(&store, 1, "new", b"new");
    objects.advance(GRACE / 2 + 2);
    assert_eq!(store.overwrite(step(1), BTreeMap::new(), &[new]).unwrap_err().kind(), ErrorKind::Expired);
    assert_eq!(store.find(At::Latest).unwrap(), before);
}
