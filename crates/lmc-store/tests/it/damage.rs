//! Objects with flipped bits, truncated, missing or swapped: found, named, and harmless to snapshots that do not need them.

use std::sync::Arc;

use crate::support::*;
use futures::TryStreamExt;
use futures::executor::block_on;
use lmc_store::{BasePolicy, ErrorKind, SaveOptions, Store};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

fn keys(objects: &dyn ObjectStore, under: &str) -> Vec<Path> {
    let mut keys: Vec<Path> = block_on(objects.list(Some(&under.into())).map_ok(|o| o.location).try_collect()).unwrap();
    keys.sort();
    keys
}

/// Two snapshots that share everything but "head", which is a delta in the second; and a third one of another model.
fn stored() -> (Arc<dyn ObjectStore>, Store) {
    let objects = memory();
    let store = Store::create_on(objects.clone(), options(0)).unwrap();
    let mut tensors = model();
    save(&store, 1, &safetensors(&tensors));
    tensors[2].train(1);
    save(&store, 2, &safetensors(&tensors));
    save(&store, 3, &noise(1000, 1));
    (objects, store)
}

/// Step and tensor of everything reported as lost.
fn lost(store: &Store, deep: bool) -> Vec<(u64, String)> {
    let found = store.verify(&store.snapshots().unwrap(), deep, 0).unwrap();
    let name = |t: &Option<String>| t.clone().unwrap_or_default();
    let of = |p: &lmc_store::Problem| {
        assert!(p.message.contains("data/"), "{}", p.message);
        p.lost.iter().map(|(_, t)| (p.step.get(), name(t))).collect::<Vec<_>>()
    };
    let mut lost: Vec<_> = found.problems.iter().flat_map(of).collect();
    lost.sort();
    lost
}

#[test]
fn every_flipped_byte_is_found_and_costs_only_what_depends_on_it() {
    let (objects, store) = stored();
    assert!(lost(&store, true).is_empty());
    let data = keys(&*objects, "data");
    assert_eq!(data.len(), 3);
    let whole = get(&*objects, &data[0]);
    let mut seen = std::collections::BTreeSet::new();
    for at in (0..whole.len()).step_by(whole.len() / 60).chain([whole.len() - 1]) {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        put(&*objects, &data[0], bad);
        assert!(lost(&store, false).is_empty());
        let lost = lost(&store, true);
        let tensors: Vec<&str> = lost.iter().filter(|(n, _)| *n == 1).map(|(_, t)| &t[..]).collect();
        // The same tensors in both snapshots: the unchanged ones are shared, and "head" is a delta.
        assert_eq!(lost.iter().filter(|(n, _)| *n == 2).map(|(_, t)| &t[..]).collect::<Vec<_>>(), tensors);
        assert!(!tensors.is_empty() && lost.iter().all(|(n, _)| *n < 3), "{lost:?}");
        for n in [1, 2] {
            let reader = reader(&store, n);
            for t in model() {
                let read = reader.read_tensor(t.0);
                if tensors.contains(&t.0) {
                    let e = read.unwrap_err();
                    assert_eq!(e.kind(), ErrorKind::Damaged);
                    assert!(e.to_string().contains(data[0].as_ref()), "{e}");
                } else {
                    assert_eq!(read.unwrap().len(), t.3.len());
                }
            }
            assert_eq!(restored(&store, n).unwrap_err().kind(), ErrorKind::Damaged);
        }
        restored(&store, 3).unwrap();
        seen.insert(tensors.join(" "));
    }
    assert!(seen.contains("embed") && seen.contains("head"), "{seen:?}");
}

#[test]
fn what_is_missing_or_cut_short_is_found_without_reading_it() {
    for spoil in [0, 1, 2] {
        let (objects, store) = stored();
        let data = keys(&*objects, "data");
        let whole = get(&*objects, &data[1]);
        match spoil {
            0 => block_on(objects.delete(&data[1])).unwrap(),
            1 => put(&*objects, &data[1], whole[..whole.len() - 1].to_vec()),
            _ => put(&*objects, &data[1], get(&*objects, &data[2])),
        }
        for deep in [false, true] {
            assert_eq!(lost(&store, deep), [(2, String::new()), (2, "head".into())][1..], "{spoil}");
        }
        restored(&store, 1).unwrap();
        restored(&store, 3).unwrap();
        assert!(reader(&store, 2).read_tensor("embed").is_ok());
        assert_eq!(reader(&store, 2).read_tensor("head").unwrap_err().kind(), ErrorKind::Damaged);
    }
}

#[test]
fn shards_and_records_are_what_they_were() {
    let (objects, store) = stored();
    let shards = keys(&*objects, "shards");
    assert_eq!(shards.len(), 3);
    let problems = || {
        let found = store.verify(&store.snapshots().unwrap(), true, 0).unwrap();
        found.problems.iter().map(|p| (p.step.get(), p.message.clone())).collect::<Vec<_>>()
    };
    for (i, key) in shards.iter().enumerate() {
        let whole = get(&*objects, key);
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for bad in [flipped, whole[1..].to_vec(), get(&*objects, &shards[(i + 1) % 3]), vec![]] {
            put(&*objects, key, bad);
            let found = problems();
            assert!(!found.is_empty() && found.iter().all(|(_, m)| m.contains(key.as_ref())), "{found:?}");
            // The third snapshot needs none of the others' data.
            let third = found.iter().any(|(n, _)| *n == 3);
            assert_eq!(restored(&store, 3).is_err(), third);
        }
        block_on(objects.delete(key)).unwrap();
        assert!(!problems().is_empty());
        put(&*objects, key, whole);
        assert!(problems().is_empty());
    }
}

#[test]
fn many_snapshots_are_verified_some_at_a_time() {
    let objects = memory();
    let store = Store::create_on(objects.clone(), options(0)).unwrap();
    let mut o = SaveOptions::default();
    (o.base, o.anchor_every) = (BasePolicy::Previous, 20);
    let mut tensor = Tensor::new("w", 30, 100, 1);
    for n in 0..70 {
        tensor.train(n);
        save_with(&store, n, &safetensors(std::slice::from_ref(&tensor)), &o).unwrap();
    }
    for deep in [false, true] {
        let found = store.verify(&store.snapshots().unwrap(), deep, 0).unwrap();
        // A set of each tensor, and the header that all share.
        assert_eq!((found.objects, found.block_sets, found.problems.len()), (70, 71, 0), "{found:?}");
    }
    // One chain goes on where the first half ends.
    let bad = keys(&*objects, "data").remove(30);
    let mut flipped = get(&*objects, &bad);
    *flipped.last_mut().unwrap() ^= 1;
    put(&*objects, &bad, flipped);
    let expected: Vec<(u64, String)> = (30..40).map(|n| (n, "w".to_owned())).collect();
    assert_eq!((lost(&store, false), lost(&store, true)), (vec![], expected.clone()));
    block_on(objects.delete(&bad)).unwrap();
    assert_eq!((lost(&store, false), lost(&store, true)), (expected.clone(), expected));
}
