//! Saving with a cache of the newest snapshot: the stored bytes are the same, and nothing is decoded.

use std::sync::Arc;

use crate::support::*;
use futures::executor::block_on;
use lmc_store::{BasePolicy, Cache, Input, SaveOptions, Store};
use object_store::{ObjectStore, ObjectStoreExt};

fn open(objects: &Arc<dyn ObjectStore>, seed: u64, cache: &Cache) -> Store {
    let mut o = options(seed);
    o.cache = cache.clone();
    Store::create_on(objects.clone(), o).unwrap()
}

fn policies() -> impl Iterator<Item = SaveOptions<'static>> {
    [(BasePolicy::Auto, 4), (BasePolicy::Previous, 4), (BasePolicy::Previous, 1)].into_iter().map(|policy| {
        let mut o = SaveOptions::default();
        (o.base, o.anchor_every) = policy;
        o
    })
}

/// Trains a model in which one tensor stays unchanged for a while; some files are saved.
fn files() -> Vec<Vec<u8>> {
    let mut tensors = model();
    let file = |n: u64| {
        tensors[2].train(n);
        if n.is_multiple_of(3) {
            tensors[0].train(n);
        }
        safetensors(&tensors)
    };
    (0..7).map(file).collect()
}

#[test]
fn what_is_written_does_not_depend_on_the_cache() {
    let files = files();
    let dir = tempfile::tempdir().unwrap();
    for (i, o) in policies().enumerate() {
        let directory = |budget| Cache::Directory { path: dir.path().join(format!("{i}-{budget}")), budget };
        let caches = [
            Cache::Nowhere,
            Cache::Memory { budget: 1 << 30 },
            Cache::Memory { budget: 500_000 },
            Cache::Memory { budget: 0 },
            directory(1 << 30),
            directory(500_000),
        ];
        let mut wrote = vec![];
        for cache in caches {
            let objects = memory();
            let store = open(&objects, 1, &cache);
            for (n, f) in (0..).zip(&files) {
                save_with(&store, n, f, &o).unwrap();
            }
            for (n, f) in (0..).zip(&files) {
                assert!(restored(&store, n).unwrap() == *f, "{cache:?} {o:?}");
            }
            wrote.push(data_objects(&objects));
        }
        assert!(wrote.windows(2).all(|w| w[0] == w[1]), "{o:?}");
    }
}

#[test]
fn nothing_is_read_of_what_is_kept() {
    let files = files();
    let dir = tempfile::tempdir().unwrap();
    for (i, o) in policies().enumerate() {
        let path = dir.path().join(i.to_string());
        for (kept, cache) in [
            (true, Cache::Memory { budget: 1 << 30 }),
            (true, Cache::Directory { path, budget: 1 << 30 }),
            (o.anchor_every == 1, Cache::Nowhere),
        ] {
            let objects = memory();
            let mut store = open(&objects, 1, &cache);
            for (n, f) in (0..).zip(&files) {
                let saved = store.save_shard(&[Input::new("m.safetensors", f)], step(n), &o).unwrap();
                store.publish(step(n), Default::default(), &[saved.shard]).unwrap();
                // A base that is read turns out to be damaged.
                assert_eq!(saved.notes.is_empty(), kept || n == 0, "{cache:?} {o:?} step {n}: {saved:?}");
                // They are there, with their lengths. The next reader will notice.
                for (key, bytes) in data_objects(&objects) {
                    block_on(objects.put(&key.as_str().into(), vec![0; bytes.len()].into())).unwrap();
                }
                if matches!(cache, Cache::Directory { .. }) {
                    store = open(&objects, n + 2, &cache);
                }
                if !saved.notes.is_empty() {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_was_spoiled_is_decoded_instead() {
    let files = files();
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::Directory { path: dir.path().into(), budget: 1 << 30 };
    let store = open(&memory(), 1, &cache);
    for (n, f) in (0..).zip(&files) {
        save(&store, n, f);
        for entry in std::fs::read_dir(dir.path().join("lmc-cache")).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("CACHEDIR.TAG") {
                continue;
            }
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[0] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
        assert!(restored(&store, n).unwrap() == *f);
    }
}

#[test]
fn nothing_is_deleted_but_what_a_cache_wrote() {
    let files = files();
    let dir = tempfile::tempdir().unwrap();
    let (here, own) = (dir.path(), dir.path().join("lmc-cache"));
    // Names as a cache of models or an editor uses.
    let blob = "e".repeat(64);
    let foreign = |dir: &std::path::Path| ["thesis.tmp", ".editor.tmp", "keep.txt", &blob].map(|name| dir.join(name));
    let unfinished = format!("{blob}.tmp");
    for path in foreign(here) {
        std::fs::write(path, "mine").unwrap();
    }
    for budget in [1 << 30, 1000, 0] {
        let cache = Cache::Directory { path: here.into(), budget };
        let objects = memory();
        let store = open(&objects, 1, &cache);
        // It recognises foreign files in its directory.
        std::fs::write(own.join("thesis.tmp"), "mine").unwrap();
        std::fs::write(own.join(&unfinished), "mine").unwrap();
        drop(store);
        let store = open(&objects, 2, &cache);
        for (n, f) in (0..).zip(&files) {
            save(&store, n, f);
        }
        let mine = foreign(here).into_iter().chain([own.join("thesis.tmp"), own.join(&unfinished)]);
        for path in mine {
            assert_eq!(std::fs::read(&path).unwrap(), b"mine", "{}", path.display());
        }
    }
}
