//! Records that are lost, damaged, replaced or foreign: verification reports them, and other snapshots stay usable.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::support::*;
use futures::executor::block_on;
use lmc_store::testing::Memory;
use lmc_store::{
    At, CopyOptions, ErrorKind, GcOptions, Keep, Location, RebaseOptions, SaveOptions, Store, StoreOptions, Verified,
    VerifyOptions,
};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

fn record(n: u64, generation: u32) -> Path {
    Path::from(record_key(n, generation))
}

fn delete(objects: &Memory, key: &Path) {
    block_on(objects.delete(key)).unwrap();
}

fn open(objects: &Arc<Memory>) -> Store {
    Store::open_on(objects.clone(), StoreOptions::default()).unwrap()
}

/// The files of steps.
fn file(n: u64) -> Vec<u8> {
    let mut tensor = Tensor::new("w", 30, 100, 1);
    (0..n).for_each(|i| tensor.train(i));
    safetensors(&[tensor])
}

fn trained(steps: impl IntoIterator<Item = u64>) -> (Arc<Memory>, Store) {
    let (objects, store) = new();
    for n in steps {
        objects.advance(1);
        save(&store, n, &file(n));
    }
    (objects, store)
}

fn keep(last: usize, steps: &[u64]) -> Keep {
    let mut keep = Keep::default();
    (keep.last, keep.steps) = (last, steps.iter().map(|&n| step(n)).collect());
    keep
}

fn prune(store: &Store, keep: &Keep) -> lmc_store::Result<lmc_store::Pruned> {
    store.prune(&store.plan_prune(keep)?, &RebaseOptions::default())
}

fn verify(store: &Store, expect: &[u64]) -> Verified {
    let mut o = VerifyOptions::default();
    o.expect = expect.iter().map(|&n| step(n)).collect();
    store.verify_all(&o).unwrap()
}

/// The steps that have problems.
fn wrong(store: &Store) -> Vec<u64> {
    let mut steps: Vec<u64> = verify(store, &[]).problems.iter().map(|p| p.step.get()).collect();
    steps.dedup();
    steps
}

fn steps(store: &Store) -> Vec<u64> {
    store.snapshots().unwrap().iter().map(|s| s.step.get()).collect()
}

#[test]
fn a_bad_record_stops_nothing_but_what_needs_it() {
    for bad in [vec![], b"{}".to_vec(), b"\xff\xfe".to_vec(), vec![b' '; (1 << 24) + 1]] {
        let (objects, store) = trained(1..=3);
        let whole = get(&objects, &record(3, 0));
        put(&objects, &record(3, 0), bad);
        assert_eq!(wrong(&store), [3]);
        let listing = store.list().unwrap();
        assert_eq!((steps(&store), listing.damaged.len()), (vec![1, 2], 1));
        let damaged = &listing.damaged[0];
        assert_eq!((damaged.step.get(), &damaged.key[..]), (3, record(3, 0).as_ref()));
        // Never silently an older one.
        let latest = store.find(At::Latest).unwrap_err();
        for part in [record(3, 0).as_ref(), "step 3", "--at STEP", "from a copy", "prune --damaged 3"] {
            assert!(latest.to_string().contains(part), "{latest}");
        }
        store.find(At::Step(step(3))).unwrap_err();
        assert_eq!(restored(&store, 2).unwrap(), file(2));
        assert!(matches!(latest.kind(), ErrorKind::Damaged | ErrorKind::Limit));
        // The snapshot's data is unknown.
        objects.advance(3 * GRACE);
        let before = needs::keys(&*objects);
        let e = store.gc(&GcOptions::default()).unwrap_err().to_string();
        assert!(e.contains("nothing was deleted") && e.contains("prune --damaged 3"), "{e}");
        assert_eq!(needs::keys(&*objects), before);
        // A run continues after the damaged one, with deltas of the one before.
        let next = store.save(
            &[lmc_store::Input::new("m.safetensors", &file(4))],
            None,
            BTreeMap::new(),
            &SaveOptions::default(),
        );
        let next = next.unwrap();
        assert_eq!(next.step.get(), 4);
        assert!(next.new_size * 2 < next.raw_size, "{next:?}");
        save_with(&store, 3, &file(3), &SaveOptions::default()).unwrap_err();
        assert_eq!(store.find(At::Latest).unwrap().step.get(), 4);
        let copy = store_like(&store, &memory());
        assert_eq!(
            copy.copy_from(&store, &store.snapshots().unwrap(), CopyOptions::default()).unwrap().snapshots.len(),
            3
        );
        store.export(&store.snapshots().unwrap(), std::io::sink()).unwrap();
        let plan = store.plan_prune(&keep(2, &[])).unwrap();
        assert_eq!((plan.left_out.len(), plan.damaged.len(), plan.prune.len()), (1, 0, 1));
        store.prune(&plan, &RebaseOptions::default()).unwrap();
        assert_eq!(steps(&store), [2, 4]);
        // Once the record is put back, all is as before.
        put(&objects, &record(3, 0), whole);
        assert!(wrong(&store).is_empty());
        assert_eq!((steps(&store), restored(&store, 3).unwrap()), (vec![2, 3, 4], file(3)));
        store.gc(&GcOptions::default()).unwrap();
    }
}

#[test]
fn a_save_says_what_it_passes_over() {
    let save = |store: &Store| {
        let bytes = file(50);
        let inputs = [lmc_store::Input::new("m.safetensors", &bytes)];
        store.save_shard(&inputs, step(50), &SaveOptions::default())
    };
    let (objects, store) = trained(1..=3);
    put(&objects, &record(3, 0), vec![]);
    let saved = save(&store).unwrap();
    assert_eq!((saved.base, saved.notes.len()), (Some(step(2)), 1));
    for part in ["step 3: cannot be the base: ", record(3, 0).as_ref(), "prune --damaged 3"] {
        assert!(saved.notes[0].contains(part), "{saved:?}");
    }
    // A newer lmc could use it.
    put(&objects, &record(3, 0), br#"{"format": "lmc-snapshot", "version": 2}"#.to_vec());
    let e = save(&store).unwrap_err();
    assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("step 3: "), "{e}");
    // Without all of the shards, not every snapshot is tried.
    let (objects, store) = trained(1..=40);
    needs::keys(&*objects).iter().filter(|k| k.starts_with("shards/")).for_each(|k| delete(&objects, &k[..].into()));
    let saved = save(&store).unwrap();
    assert_eq!((saved.base, saved.notes.len()), (None, 1));
    assert!(saved.notes[0].starts_with("step 40 and 31 more: cannot be the base: "), "{saved:?}");
}

#[test]
fn a_record_that_is_damaged_for_good_is_ended_by_name() {
    for lost in [false, true] {
        let (objects, store) = trained(1..=4);
        match lost {
            false => put(&objects, &record(3, 0), vec![]),
            true => delete(&objects, &record(3, 0)),
        }
        assert_eq!(wrong(&store), [3]);
        let mut end = Keep::default();
        end.damaged = vec![step(2)];
        assert_eq!(store.plan_prune(&end).unwrap_err().kind(), ErrorKind::Usage);
        end.damaged = vec![step(3)];
        let plan = store.plan_prune(&end).unwrap();
        assert_eq!((plan.damaged.len(), plan.left_out.len(), plan.keep.len()), (1, 0, 3));
        assert_eq!(prune(&store, &end).unwrap().pruned, [step(3)]);
        assert!(wrong(&store).is_empty());
        assert!(store.list().unwrap().damaged.is_empty());
        // Until then, saves that began before may still need its data.
        if !lost {
            let e = store.gc(&GcOptions::default()).unwrap_err().to_string();
            assert!(e.contains("grace period"), "{e}");
            assert!(verify(&store, &[]).notes[0].contains("superseded"));
        }
        objects.advance(2 * GRACE);
        store.gc(&GcOptions::default()).unwrap();
        assert!(verify(&store, &[]).notes.is_empty() && wrong(&store).is_empty());
        for n in [1, 2, 4] {
            assert_eq!(restored(&store, n).unwrap(), file(n));
        }
        save(&store, 3, &file(3));
        assert!(wrong(&store).is_empty());
    }
}

#[test]
fn foreign_files_are_noted_and_passed_over() {
    let (objects, store) = trained(1..=2);
    let foreign = [
        Path::from("snapshots/.DS_Store"),
        Path::parse(record_key(2, 0) + "~").unwrap(),
        Path::from(record_key(2, 0) + "/x"),
        Path::from("snapshots/9007/readme"),
        Path::from("snapshots/00000000000000000099/readme"),
    ];
    for key in &foreign {
        put(&objects, key, vec![]);
    }
    let found = verify(&store, &[]);
    assert!(found.problems.is_empty(), "{found:?}");
    for key in &foreign {
        assert!(found.notes.iter().any(|n| n.contains(key.as_ref())), "{found:?}");
    }
    assert!(store.list().unwrap().damaged.is_empty());
    assert_eq!(store.find(At::Latest).unwrap().step.get(), 2);
    store.gc(&GcOptions::default()).unwrap();
    save(&store, 3, &file(3));
    prune(&store, &keep(1, &[])).unwrap();
    assert_eq!(steps(&store), [3]);
}

#[test]
fn every_record_that_counts_is_missed_but_the_last() {
    // Saved out of order, pruned, saved again, re-based and collected.
    let (objects, store) = trained([1, 5, 3, 2, 4, 9, 7, 8]);
    let check = |last: u64| {
        assert!(wrong(&store).is_empty(), "{:?}", verify(&store, &[]));
        let mut highest: BTreeMap<u64, Path> = BTreeMap::new();
        for key in needs::keys(&*objects).into_iter().filter(|k| k.starts_with("snapshots/")) {
            highest.insert(step_of(&key), key.into());
        }
        for (n, key) in highest {
            let other = Arc::new(objects.fork());
            delete(&other, &key);
            let store = open(&other);
            if n == last {
                assert!(wrong(&store).is_empty(), "{n}");
                let asked = verify(&store, &[n, 2]);
                assert!(
                    asked.problems.iter().any(|p| p.step.get() == n && p.message.contains("expected")),
                    "{asked:?}"
                );
                continue;
            }
            let found = verify(&store, &[]);
            assert!(
                found.problems.iter().any(|p| p.step.get() == n && p.message.contains(key.as_ref())),
                "{n}: {found:?}"
            );
            other.advance(3 * GRACE);
            assert!(store.gc(&GcOptions::default()).unwrap_err().to_string().contains("is missing"), "{n}");
            // It may be any of them, or pruned, but no other snapshot is taken for it.
            assert!(store.list().unwrap().damaged.iter().any(|bad| bad.step.get() == n));
            assert!(store.step(None).unwrap().get() > 9);
        }
    };
    check(8);
    objects.advance(5);
    prune(&store, &keep(0, &[1, 2, 4, 9, 8])).unwrap();
    objects.advance(5);
    save(&store, 6, &file(6));
    check(6);
    save(&store, 5, &file(5));
    check(5);
    let rebased = store.rebase(&[step(9), step(8)], &RebaseOptions::default()).unwrap();
    objects.advance(1);
    save(&store, 10, &file(10));
    check(10);
    // Collected records are not reported as lost.
    objects.advance(2 * GRACE);
    let collected = store.gc(&GcOptions::default()).unwrap().orphans;
    assert!(collected.iter().filter(|o| o.key.starts_with("snapshots/")).count() > rebased.snapshots.len());
    check(10);
    assert!(verify(&store, &[1, 2, 4, 5, 6, 8, 9, 10]).problems.is_empty());
    assert_eq!(verify(&store, &[3]).problems.len(), 1);
}

#[test]
fn many_that_were_pruned_at_once_are_missed() {
    let (objects, store) = trained(1..=60);
    objects.advance(1);
    prune(&store, &keep(3, &[])).unwrap();
    objects.advance(1);
    save(&store, 99, &file(1));
    objects.advance(2 * GRACE);
    store.gc(&GcOptions::default()).unwrap();
    // Each step has one record: pruned, re-based, or original.
    let records: Vec<Path> =
        needs::keys(&*objects).into_iter().filter(|k| k.starts_with("snapshots/")).map(Path::from).collect();
    assert_eq!(records.len(), 61);
    for key in &records[1..] {
        let n = step_of(key.as_ref());
        let other = Arc::new(objects.fork());
        delete(&other, key);
        assert_eq!(wrong(&open(&other)), [n]);
        let size = get(&objects, key).len();
        // The first record after many parallel ones names the ends of all their chains.
        assert!(size < 4096, "{key} has {size} bytes");
    }
}

#[test]
fn every_flipped_bit_of_every_record_is_seen() {
    let (objects, store) = trained(1..=3);
    prune(&store, &keep(0, &[1, 3])).unwrap();
    let records = needs::keys(&*objects).into_iter().filter(|k| k.starts_with("snapshots/")).map(Path::from);
    for key in records {
        let whole = get(&objects, &key);
        let superseded = key == record(2, 0);
        for bit in (0..8 * whole.len()).step_by(3) {
            let mut bad = whole.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            put(&objects, &key, bad);
            let found = verify(&store, &[]);
            let seen =
                if superseded { &found.notes } else { &found.problems.iter().map(|p| p.message.clone()).collect() };
            assert!(seen.iter().any(|m| m.contains(key.as_ref())), "{key} bit {bit}: {found:?}");
        }
        put(&objects, &key, whole);
    }
    // Another valid record in its place.
    let (mut other, whole) = (None, get(&objects, &record(1, 0)));
    let (elsewhere, store_there) = new();
    save(&store_there, 1, &file(2));
    other.replace(get(&elsewhere, &record(1, 0)));
    put(&objects, &record(1, 0), other.unwrap());
    assert_eq!(wrong(&store)[0], 1);
    put(&objects, &record(1, 0), whole);
    assert!(wrong(&store).is_empty());
}

/// A record's text with its checksum.
fn sealed(mut text: String) -> Vec<u8> {
    let check = blake3::hash(text.as_bytes());
    text.pop();
    (text + &format!(",\"check\":\"{check}\"}}")).into_bytes()
}

#[test]
fn sizes_are_those_of_the_shards() {
    let (objects, store) = trained(1..=2);
    let text = String::from_utf8(get(&objects, &record(2, 0))).unwrap();
    let text = format!("{}}}", text.rsplit_once(",\"check\"").unwrap().0);
    let s = store.find(At::Step(step(2))).unwrap();
    for (field, value) in [("raw_size", s.raw_size), ("new_size", s.new_size)] {
        let field = format!("\"{field}\":{value}");
        assert!(text.contains(&field));
        put(&objects, &record(2, 0), sealed(text.replace(&field, &format!("{field}0"))));
        let found = verify(&store, &[]).problems;
        assert!(found.len() == 1 && found[0].intact && found[0].message.contains("the record gives"), "{found:?}");
        assert_eq!(restored(&store, 2).unwrap(), file(2));
    }
    // Without a checksum the record is damaged, whatever its contents.
    put(&objects, &record(2, 0), text.into_bytes());
    assert_eq!(wrong(&store), [2]);
}

#[test]
fn copies_and_archives_miss_their_records_too() {
    let (_, store) = trained(1..=3);
    prune(&store, &keep(0, &[1, 3])).unwrap();
    save(&store, 4, &file(4));
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("run.tar");
    store.export(&store.snapshots().unwrap(), std::fs::File::create(&archive).unwrap()).unwrap();
    let exported = Store::open(&Location::Directory(archive), StoreOptions::default()).unwrap();
    assert!(wrong(&exported).is_empty(), "{:?}", verify(&exported, &[]));
    assert_eq!(steps(&exported), [1, 3, 4]);
    let objects = Arc::new(Memory::default());
    let there: Arc<dyn ObjectStore> = objects.clone();
    let copy = store_like(&exported, &there);
    copy.copy_from(&exported, &exported.snapshots().unwrap(), CopyOptions::default()).unwrap();
    assert!(wrong(&copy).is_empty());
    for n in [1, 3] {
        let other = Arc::new(objects.fork());
        delete(&other, &record(n, 0));
        assert_eq!(wrong(&open(&other)), [n]);
    }
}

/// A store in a directory with three steps, and the path of one's record.
fn in_directory(root: &std::path::Path, n: u64) -> (Store, PathBuf) {
    let store = Store::create(&Location::Directory(root.into()), options(1)).unwrap();
    for i in 1..=3 {
        save(&store, i, &file(i));
    }
    (store, root.join(record(n, 0).as_ref()))
}

#[test]
fn what_takes_the_place_of_a_record_is_seen() {
    for n in 1..=3 {
        for what in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let (store, path) = in_directory(&dir.path().join("st"), n);
            assert!(wrong(&store).is_empty());
            std::fs::remove_file(&path).unwrap();
            match what {
                0 => {}
                1 => std::fs::create_dir(&path).unwrap(),
                2 => std::os::unix::fs::symlink("nowhere", &path).unwrap(),
                _ => fifo(&path),
            }
            // No record names the last one.
            let found = verify(&store, &[n]);
            assert!(
                !found.problems.is_empty() && found.problems.iter().all(|p| p.step.get() == n),
                "{what}: {found:?}"
            );
            if what > 0 || n < 3 {
                store.gc(&GcOptions::default()).unwrap_err();
                assert_eq!(store.list().unwrap().damaged.len(), 1);
            }
            assert_eq!(store.step(None).unwrap().get(), if what == 0 && n == 3 { 3 } else { 4 });
        }
    }
}

pub(crate) fn fifo(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn fifos_are_refused_without_being_opened() {
    let dir = tempfile::tempdir().unwrap();
    for under in ["lmc-store.json", "shards", "data", "probes"] {
        let root = dir.path().join(under);
        let (store, _) = in_directory(&root, 1);
        let mut files: Vec<PathBuf> = vec![root.join(under)];
        while let Some(i) = files.iter().position(|f| f.is_dir()) {
            let inside = std::fs::read_dir(files.swap_remove(i)).unwrap();
            files.extend(inside.map(|e| e.unwrap().path()));
        }
        for path in &files {
            std::fs::remove_file(path).unwrap();
            fifo(path);
        }
        if under == "probes" {
            fifo(&root.join("probes").join("0".repeat(32)));
        }
        let opened = Store::open(&Location::Directory(root.clone()), StoreOptions::default());
        if under == "lmc-store.json" {
            let e = opened.unwrap_err();
            assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("is a FIFO"), "{e}");
        }
        let mut o = VerifyOptions::default();
        o.deep = true;
        let problems = store.verify_all(&o).unwrap().problems;
        let of_data = matches!(under, "shards" | "data");
        assert_eq!(problems.len(), if of_data { 3 } else { 0 }, "{under}: {problems:?}");
        assert!(problems.iter().all(|p| p.message.contains("FIFO")), "{problems:?}");
        assert_eq!(restored(&store, 1).is_err(), of_data);
        // Writers read the marker each time; what they save needs nothing of the rest.
        let saved = save_with(&store, 4, &file(4), &SaveOptions::default());
        assert_eq!(saved.is_err(), under == "lmc-store.json", "{under}: {saved:?}");
        if saved.is_ok() {
            assert!(restored(&store, 4).unwrap() == file(4));
        }
        assert_eq!(store.gc(&GcOptions::default()).is_err(), under == "shards" || under == "lmc-store.json");
    }
}
