//! Snapshots that several processes saved: one document for all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::{GRACE, Tensor, get, needs, new, safetensors, step};
use lmc_store::testing::Memory;
use lmc_store::{At, GcOptions, Input, Keep, RebaseOptions, SaveOptions, Snapshot, Store};
use lmc_testing::thorough;
use object_store::ObjectStore;

/// The files of a run of some ranks: each has a part of the model, and all the same small tensor.
struct Run {
    ranks: Vec<Vec<Tensor>>,
}

impl Run {
    fn new(ranks: usize) -> Self {
        let of_rank = |rank| {
            vec![Tensor::new(format!("part{rank}").leak(), 300, 100, rank as u64), Tensor::new("norm", 1, 300, 9)]
        };
        Self { ranks: (0..ranks).map(of_rank).collect() }
    }

    fn train(&mut self) {
        self.ranks.iter_mut().flatten().for_each(|t| t.train(5));
    }

    fn files(&self) -> Vec<Vec<u8>> {
        self.ranks.iter().map(|tensors| safetensors(tensors)).collect()
    }

    /// Saves and publishes a step; the ranks may have other numbers than before.
    fn save(&self, store: &Store, n: u64, first: usize) -> Snapshot {
        let name = |i: usize| format!("rank{}.safetensors", (i + first) % self.ranks.len());
        let files = self.files();
        let save = |(i, file): (usize, &Vec<u8>)| {
            store.save_shard(&[Input::new(name(i), file)], step(n), &SaveOptions::default()).unwrap().shard
        };
        let shards: Vec<_> = files.iter().enumerate().map(save).collect();
        let published = store.publish(step(n), BTreeMap::new(), &shards).unwrap();
        let reader = store.open_snapshot(&published).unwrap();
        for (i, file) in files.iter().enumerate() {
            let mut out = vec![];
            reader.read_file(&name(i), &mut out).unwrap();
            assert!(out == *file, "step {n}, {}", name(i));
        }
        published
    }
}

fn is_whole(store: &Store) {
    let verified = store.verify(&store.snapshots().unwrap(), true, 0).unwrap();
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
}

fn collect(objects: &Arc<Memory>, store: &Store) {
    objects.advance(3 * GRACE);
    store.gc(&GcOptions::default()).unwrap();
    assert_eq!(keys(objects), needs::needed(&**objects));
}

fn keys(objects: &Arc<Memory>) -> BTreeSet<String> {
    needs::keys(&**objects as &dyn ObjectStore)
}

#[test]
fn one_document_for_all_ranks() {
    let (objects, store) = new();
    let mut run = Run::new(5);
    let mut sizes = vec![];
    for n in 0..6 {
        // Each rank finds what another one saved.
        let saved = run.save(&store, n, n as usize);
        assert_eq!(saved.shards.len(), 1, "step {n}");
        assert_eq!(saved.raw_size, run.files().iter().map(|f| f.len() as u64).sum::<u64>());
        sizes.push(saved.new_size);
        run.train();
    }
    assert!(sizes[1..].iter().all(|&size| size < sizes[0] / 2), "{sizes:?}");
    is_whole(&store);
    // The documents of the ranks are garbage, and their data are not.
    collect(&objects, &store);
    assert_eq!(keys(&objects).iter().filter(|key| key.starts_with("shards/")).count(), 6);
    is_whole(&store);
    // A re-based snapshot, and a copy, have what it had.
    let mut keep = Keep::default();
    keep.last = 1;
    store.prune(&store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    is_whole(&store);
    collect(&objects, &store);
    is_whole(&store);
    run.save(&store, 9, 0);
}

#[test]
fn a_rank_without_data_of_its_own() {
    let (objects, store) = new();
    let mut run = Run::new(3);
    run.save(&store, 0, 0);
    // The first rank, the last one, and all of them have changed nothing.
    for (n, changed) in [(1, 1..3), (2, 0..2), (3, 1..2), (4, 0..0)] {
        changed.for_each(|rank| run.ranks[rank][0].train(5));
        run.save(&store, n, 0);
    }
    is_whole(&store);
    collect(&objects, &store);
    is_whole(&store);
}

/// Documents that refer to each other stay apart: a save found the first of two, which another record names.
#[test]
fn shards_that_refer_to_each_other() {
    let (_, store) = new();
    let mut tensor = vec![Tensor::new("w", 300, 100, 1)];
    let mut save = |n: u64, name: &str| {
        let file = safetensors(&tensor);
        tensor[0].train(5);
        store.save_shard(&[Input::new(name, &file)], step(n), &SaveOptions::default()).unwrap().shard
    };
    let first = save(0, "a");
    store.publish(step(0), BTreeMap::new(), &[first]).unwrap();
    let second = save(1, "b");
    let both = store.publish(step(1), BTreeMap::new(), &[first, second]).unwrap();
    assert_eq!(both.shards, [first, second]);
    is_whole(&store);
    assert_eq!(store.open_snapshot(&store.find(At::Step(step(1))).unwrap()).unwrap().files().len(), 2);
}

/// As many ranks as the largest runs have: a snapshot is opened with the same requests.
#[test]
fn thousands_of_ranks() {
    let ranks = if thorough() { 10_000 } else { 300 };
    let (objects, store) = new();
    let small = |rank: usize, n: u64| safetensors(&[Tensor::new(format!("part{rank}").leak(), 2, 40, rank as u64 + n)]);
    // One process opens the document that has all ranks for each of its saves: few of them in the second step.
    for (n, ranks) in [(0, ranks), (1, 50)] {
        let save = |rank| {
            let file = small(rank, n);
            let name = format!("rank{rank}.safetensors");
            store.save_shard(&[Input::new(name, &file)], step(n), &SaveOptions::default()).unwrap().shard
        };
        let shards: Vec<_> = (0..ranks).map(save).collect();
        let published = store.publish(step(n), BTreeMap::new(), &shards).unwrap();
        assert_eq!(published.shards.len(), 1);
    }
    let last = store.find(At::Latest).unwrap();
    let stored = get(&*objects, &format!("shards/{}.json.zst", last.shards[0]));
    let document: serde_json::Value = serde_json::from_slice(&zstd::decode_all(&stored[..]).unwrap()).unwrap();
    assert_eq!(document["shards"].as_array().unwrap().len(), 1, "the one of the snapshot before");
    let reader = store.open_snapshot(&last).unwrap();
    let mut out = vec![];
    reader.read_file("rank49.safetensors", &mut out).unwrap();
    assert!(out == small(49, 1));
    let reader = store.open_snapshot(&store.find(At::Step(step(0))).unwrap()).unwrap();
    assert_eq!(reader.files().len(), ranks);
    reader.read_file(&format!("rank{}.safetensors", ranks - 1), &mut out).unwrap();
    assert!(out == small(ranks - 1, 0));
}
