//! Data, shards, records and markers that are lost: nothing new depends on them, and nothing else is lost with them.

use std::sync::Arc;

use crate::support::*;
use bytes::Bytes;
use futures::executor::block_on;
use lmc_store::testing::{Faults, Faulty, Memory};
use lmc_store::{
    At, BasePolicy, CopyOptions, ErrorKind, GcOptions, Input, Keep, Location, RebaseOptions, SaveOptions, Saved, Store,
    StoreOptions, VerifyOptions,
};
use object_store::ObjectStoreExt;

fn open(objects: &Arc<Memory>) -> lmc_store::Result<Store> {
    Store::open_on(objects.clone(), options(1))
}

/// Deletes the objects under a prefix; returns them.
fn lose(objects: &Memory, under: &str) -> Vec<(String, Bytes)> {
    let lost: Vec<String> = needs::keys(objects).into_iter().filter(|k| k.starts_with(under)).collect();
    let take = |key: String| {
        let bytes = block_on(async { objects.get(&key[..].into()).await.unwrap().bytes().await.unwrap() });
        block_on(objects.delete(&key[..].into())).unwrap();
        (key, bytes)
    };
    lost.into_iter().map(take).collect()
}

/// The data objects that were written since there were only those of `before`.
fn data(objects: &Memory, before: &[String]) -> Vec<String> {
    needs::keys(objects).into_iter().filter(|k| k.starts_with("data/") && !before.contains(k)).collect()
}

fn shard_key(store: &Store, n: u64) -> String {
    format!("shards/{}.json.zst", store.find(At::Step(step(n))).unwrap().shards[0])
}

fn with(base: BasePolicy) -> SaveOptions<'static> {
    let mut o = SaveOptions::default();
    (o.base, o.threads) = (base, 2);
    o
}

/// Without deltas.
fn without_bases() -> SaveOptions<'static> {
    let mut o = with(BasePolicy::Auto);
    o.anchor_every = 1;
    o
}

fn saved(store: &Store, n: u64, file: &[u8], o: &SaveOptions) -> lmc_store::Result<Saved> {
    let saved = store.save_shard(&[Input::new("m.safetensors", &file)], step(n), o)?;
    store.publish(step(n), Default::default(), &[saved.shard])?;
    Ok(saved)
}

fn keep(last: usize, damaged: &[u64]) -> Keep {
    let mut keep = Keep::default();
    (keep.last, keep.damaged) = (last, damaged.iter().map(|&n| step(n)).collect());
    keep
}

fn prune(store: &Store, keep: &Keep) -> lmc_store::Result<lmc_store::Pruned> {
    store.prune(&store.plan_prune(keep)?, &RebaseOptions::default())
}

fn steps(store: &Store) -> Vec<u64> {
    store.snapshots().unwrap().iter().map(|s| s.step.get()).collect()
}

/// Steps of everything that is wrong.
fn wrong(store: &Store) -> Vec<u64> {
    let mut o = VerifyOptions::default();
    o.deep = true;
    store.verify_all(&o).unwrap().problems.iter().map(|p| p.step.get()).collect()
}

/// Three snapshots, each a delta of the one before; their files.
fn trained(store: &Store) -> Vec<Vec<u8>> {
    let mut tensors = model();
    let files = (1..=3).map(|n| {
        tensors[2].train(n);
        let file = safetensors(&tensors);
        save_with(store, n, &file, &with(BasePolicy::Previous)).unwrap();
        file
    });
    files.collect()
}

#[test]
fn no_snapshot_refers_to_data_that_are_lost() {
    for o in [with(BasePolicy::Auto), with(BasePolicy::Previous), without_bases()] {
        for cut in [None, Some(1)] {
            let (objects, store) = new();
            let mut tensors = model();
            let file = safetensors(&tensors);
            let first = saved(&store, 1, &file, &o).unwrap();
            assert!(first.notes.is_empty());
            for (key, bytes) in lose(&objects, "data/") {
                if let Some(n) = cut {
                    put(&objects, &key, bytes.slice(..bytes.len() - n));
                }
            }
            // The same file, and one that would be a delta.
            let again = saved(&store, 2, &file, &o).unwrap();
            assert_eq!((again.new_size, again.base), (first.new_size, None));
            let said = if cut.is_some() { "were written" } else { "is missing" };
            assert!(again.notes.len() == 1 && again.notes[0].contains(said), "{again:?}");
            assert!(restored(&store, 2).unwrap() == file);
            tensors[0].train(1);
            let changed = safetensors(&tensors);
            saved(&store, 3, &changed, &o).unwrap();
            assert!(restored(&store, 3).unwrap() == changed);
            assert_eq!(wrong(&store), [1]);
            // What is there is shared as before.
            let last = saved(&store, 4, &changed, &o).unwrap();
            assert_eq!((last.new_size, last.notes.len()), (0, 0));
        }
    }
}

#[test]
fn only_what_depends_on_lost_data_is_stored_again() {
    let (objects, store) = new();
    let mut tensors = model();
    save(&store, 1, &safetensors(&tensors));
    let before = data(&objects, &[]);
    tensors[2].train(1);
    let file = safetensors(&tensors);
    let delta = saved(&store, 2, &file, &with(BasePolicy::Auto)).unwrap();
    let new = data(&objects, &before);
    assert_eq!((delta.base, new.len()), (Some(step(1)), 1));
    lose(&objects, &new[0]);
    let again = saved(&store, 3, &file, &with(BasePolicy::Auto)).unwrap();
    // "head" stands alone; the rest is shared with the first.
    assert!(again.new_size > 100_000 && again.new_size < 400_000, "{again:?}");
    assert!(again.notes[0].starts_with(&new[0]), "{again:?}");
    assert!(restored(&store, 3).unwrap() == file);
    assert_eq!(wrong(&store), [2]);
}

#[test]
fn a_save_looks_at_what_its_own_files_need() {
    let (objects, store) = new();
    let requests = |n: u64, work: &dyn Fn(&Store)| {
        let faulty = Arc::new(Faulty::new(objects.clone(), 0, Faults::default()));
        work(&Store::open_on(faulty.clone(), options(n)).unwrap());
        faulty.requests()
    };
    let mut tensors = model();
    let mut counts = vec![];
    for n in 1..=5 {
        tensors[2].train(n);
        let file = safetensors(&tensors);
        counts.push(requests(n, &|store| drop(saved(store, n, &file, &with(BasePolicy::Previous)).unwrap())));
    }
    // Each time one more data object to look at, one more block set in it to decode, one more shard, which is read again
    // to publish, and one more record.
    assert_eq!([counts[2] - counts[1], counts[3] - counts[2], counts[4] - counts[3]], [5, 5, 5], "{counts:?}");
    // A snapshot of two processes: each looks at what its own file needs.
    let (ours, other) = (noise(200_000, 1), noise(200_000, 2));
    let save_both = |store: &Store, n: u64| {
        let shard =
            |name, file: &Vec<u8>| store.save_shard(&[Input::new(name, file)], step(n), &with(BasePolicy::Auto));
        let shards = [shard("ours", &ours).unwrap(), shard("other", &other).unwrap()];
        store.publish(step(n), Default::default(), &[shards[0].shard, shards[1].shard]).unwrap();
        shards
    };
    let before = data(&objects, &[]);
    let written = save_both(&store, 6);
    assert!(written.iter().all(|s| s.new_size > 0));
    let new = data(&objects, &before);
    assert_eq!(new.len(), 2);
    for (i, key) in new.iter().enumerate() {
        let lost = lose(&objects, key);
        let notes = save_both(&store, 7 + i as u64).map(|s| (s.notes.len(), s.new_size > 0));
        assert!(notes == [(1, true), (0, false)] || notes == [(0, false), (1, true)], "{notes:?}");
        lost.into_iter().for_each(|(key, bytes)| put(&objects, &key, bytes));
    }
}

#[test]
fn a_copy_refers_to_nothing_that_is_lost() {
    let (_, run) = new();
    let files = trained(&run);
    let objects = Arc::new(Memory::default());
    let mut o = options(2);
    o.run = Some(run.run());
    let store = Store::create_on(objects.clone(), o).unwrap();
    let copy = |n: u64| store.copy_from(&run, &[run.find(At::Step(step(n))).unwrap()], CopyOptions::default());
    copy(1).unwrap();
    lose(&objects, "data/");
    for n in [2, 3] {
        let notes = copy(n).unwrap().notes;
        assert!(
            if n == 2 { notes.len() == 1 && notes[0].contains("is missing") } else { notes.is_empty() },
            "{notes:?}"
        );
        assert!(restored(&store, n).unwrap() == files[n as usize - 1]);
    }
    assert_eq!(wrong(&store), [1]);
    assert!(store.snapshots().unwrap()[2].new_size < 200_000);
}

#[test]
fn a_copy_goes_on_after_a_snapshot_that_is_lost() {
    let (objects, run) = new();
    let files = trained(&run);
    save(&run, 4, &noise(1000, 1));
    let data: Vec<String> =
        run.snapshots().unwrap().iter().map(|s| s.shards[0]).map(|id| format!("shards/{id}.json.zst")).collect();
    lose(&objects, &data[1]);
    let store = store_like(&run, &memory());
    let mut o = CopyOptions::default();
    let all = run.snapshots().unwrap();
    assert_eq!(store.copy_from(&run, &all, o).unwrap_err().kind(), ErrorKind::Damaged);
    o.skip_damaged = true;
    let copied = store.copy_from(&run, &all, o).unwrap();
    assert_eq!((copied.skipped, copied.snapshots.len()), (1, 1));
    let damaged: Vec<u64> = copied.damaged.iter().map(|(step, _)| step.get()).collect();
    assert_eq!(damaged, [2, 3]);
    assert!(copied.damaged.iter().all(|(_, why)| why.contains(&data[1])), "{copied:?}");
    assert_eq!(steps(&store), [1, 4]);
    assert!(restored(&store, 1).unwrap() == files[0] && wrong(&store).is_empty());
    // An error of the destination is not one of a snapshot.
    let theirs = memory();
    let other = store_like(&run, &theirs);
    block_on(theirs.delete(&"lmc-store.json".into())).unwrap();
    assert!(other.copy_from(&run, &all, o).is_err());
}

#[test]
fn a_lost_shard_is_passed_over() {
    // The last that can be opened is the base, if there is one.
    for (lost, base, others) in [(3, Some(step(2)), ""), (2, Some(step(1)), "and 1 more"), (1, None, "and 2 more")] {
        let (objects, store) = new();
        let mut files = trained(&store);
        let key = shard_key(&store, lost);
        lose(&objects, &key);
        let mut tensors = model();
        tensors[0].train(9);
        files.push(safetensors(&tensors));
        let last = saved(&store, 4, &files[3], &with(BasePolicy::Previous)).unwrap();
        assert_eq!((last.base, last.notes.len()), (base, 1));
        assert!(last.notes[0].contains("step 3") && last.notes[0].contains(others), "{last:?}");
        assert!(last.notes[0].contains(&key) && last.notes[0].contains("prune --damaged 3"), "{last:?}");
        assert!(restored(&store, 4).unwrap() == files[3]);
        let copies = store_like(&store, &memory());
        copies.copy_from(&store, &[store.find(At::Step(step(4))).unwrap()], CopyOptions::default()).unwrap();
        // Those that need it are given up, and no others.
        let bad: Vec<u64> = (lost..=3).collect();
        assert_eq!(wrong(&store), bad);
        let e = store.plan_prune(&keep(0, &[4])).unwrap_err();
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("step 4 is not damaged"), "{e}");
        for &n in &bad {
            let plan = store.plan_prune(&keep(0, &[n])).unwrap();
            assert!(plan.damaged[0].message.contains(&key) && plan.prune.is_empty(), "{plan:?}");
            assert_eq!(prune(&store, &keep(0, &[n])).unwrap().pruned, [step(n)]);
        }
        assert!(wrong(&store).is_empty());
        // Its data may be needed until the grace period has passed.
        let e = store.gc(&GcOptions::default()).unwrap_err().to_string();
        assert!(
            e.contains(&key) && e.contains("nothing was deleted") && e.contains("the grace period has passed"),
            "{e}"
        );
        objects.advance(GRACE + 1);
        store.gc(&GcOptions::default()).unwrap();
        assert_eq!(needs::keys(&*objects), needs::needed(&*objects));
        let kept: Vec<u64> = (1..lost).chain([4]).collect();
        assert_eq!(steps(&store), kept);
        assert!(kept.iter().all(|&n| restored(&store, n).unwrap() == files[n as usize - 1]));
    }
}

#[test]
fn nothing_is_pruned_in_favour_of_a_snapshot_that_is_lost() {
    for o in [without_bases(), with(BasePolicy::Previous)] {
        let (objects, store) = new();
        let mut tensors = model();
        let mut files = vec![];
        let mut before = vec![];
        for n in 1..=6 {
            tensors.iter_mut().for_each(|t| t.train(n));
            files.push(safetensors(&tensors));
            before = data(&objects, &[]);
            save_with(&store, n, &files[n as usize - 1], &o).unwrap();
        }
        let key = data(&objects, &before).remove(0);
        let bytes = lose(&objects, &key).remove(0).1;
        let records = needs::keys(&*objects);
        let plan = store.plan_prune(&keep(1, &[])).unwrap();
        assert!(plan.broken.iter().all(|p| p.step == step(6)) && !plan.broken.is_empty(), "{plan:?}");
        let e = store.prune(&plan, &RebaseOptions::default()).unwrap_err();
        let says = |text: &str| e.to_string().contains(text);
        assert!(e.kind() == ErrorKind::Damaged && says("step 6") && says(&key) && says("nothing was pruned"), "{e}");
        assert_eq!(needs::keys(&*objects), records);
        assert!((1..=5).all(|n| restored(&store, n).unwrap() == files[n as usize - 1]));
        // Of the right length, but other bytes: what is re-based is read before anything is pruned.
        let mut other = bytes.to_vec();
        let middle = other.len() / 2;
        other[middle] ^= 1;
        put(&objects, &key, other);
        if o.base == BasePolicy::Previous {
            let plan = store.plan_prune(&keep(1, &[])).unwrap();
            assert_eq!((plan.broken.len(), &plan.rebase[..]), (0, &[step(6)][..]));
            let e = store.prune(&plan, &RebaseOptions::default()).unwrap_err();
            assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("nothing was pruned"), "{e}");
            assert_eq!(steps(&store), [1, 2, 3, 4, 5, 6]);
        }
        // It is given up by name, for data that are damaged, too.
        assert_eq!(prune(&store, &keep(1, &[6])).unwrap().pruned, [1, 2, 3, 4, 6].map(step));
        assert!(restored(&store, 5).unwrap() == files[4] && wrong(&store).is_empty());
    }
}

#[test]
fn a_store_without_records_is_not_emptied() {
    let (objects, store) = new();
    let verify = || store.verify_all(&VerifyOptions::default());
    assert!(verify().unwrap().problems.is_empty());
    trained(&store);
    let records = lose(&objects, "snapshots/");
    let (there, size) = (needs::keys(&*objects), |key: &String| block_on(objects.head(&key[..].into())).unwrap().size);
    let bytes: u64 = there.iter().filter(|k| k.contains('/')).map(size).sum();
    let e = verify().unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains(&format!("6 objects of {bytes} bytes")), "{e}");
    // Nothing is old enough; then all of it is.
    assert_eq!(store.gc(&GcOptions::default()).unwrap().young.len(), 6);
    objects.advance(GRACE + 1);
    for e in [unneeded(&store).unwrap_err(), store.gc(&GcOptions::default()).unwrap_err()] {
        let says = |text: &str| e.to_string().contains(text);
        assert!(e.kind() == ErrorKind::Damaged && says("not one record") && says("nothing was deleted"), "{e}");
    }
    assert_eq!(needs::keys(&*objects), there);
    // With one record it is known what is needed, and which others are lost.
    put(&objects, &records[0].0, records[0].1.clone());
    assert_eq!(wrong(&store), [2]);
    assert!(store.gc(&GcOptions::default()).unwrap_err().to_string().contains("step 2"));
    lose(&objects, "snapshots/");
    let mut o = GcOptions::default();
    (o.dry_run, o.without_records) = (true, true);
    assert_eq!(store.gc(&o).unwrap().orphans.len(), 6);
    o.dry_run = false;
    store.gc(&o).unwrap();
    assert_eq!(needs::keys(&*objects).into_iter().collect::<Vec<_>>(), ["lmc-store.json"]);
    assert!(verify().unwrap().problems.is_empty());
    // What a first save left that died before its shard was written goes without being asked for.
    put(&objects, &format!("data/{}/000000", "0".repeat(32)), vec![1]);
    objects.advance(GRACE + 1);
    assert_eq!(store.gc(&GcOptions::default()).unwrap().orphans.len(), 1);
}

#[test]
fn a_step_without_its_record_is_not_said_to_have_none() {
    let (objects, store) = new();
    trained(&store);
    let e = |n: u64| store.find(At::Step(step(n))).unwrap_err();
    let key = record_key(2, 0);
    let bytes = lose(&objects, &key).remove(0).1;
    let (lost, remedy) = (e(2), "lmc snapshot prune --damaged 2");
    assert!(lost.kind() == ErrorKind::Damaged && lost.to_string().contains("is missing, although"), "{lost}");
    put(&objects, &key, vec![]);
    let empty = e(2);
    for e in [lost, empty] {
        let text = e.to_string();
        assert!(text.starts_with(&format!("step 2: {key}: ")) && text.ends_with(remedy), "{e}");
    }
    put(&objects, &key, bytes);
    prune(&store, &keep(1, &[])).unwrap();
    assert_eq!(
        (e(2).kind(), e(2).to_string()),
        (
            ErrorKind::NotFound,
            "the store has no snapshot of step 2: it was pruned; lmc snapshot list shows those that are there"
                .to_owned()
        )
    );
    assert_eq!(e(9).to_string(), "the store has no snapshot of step 9; lmc snapshot list shows those that are there");
}

#[test]
fn a_store_without_its_marker_is_not_made_anew() {
    let (objects, store) = new();
    trained(&store);
    let marker = lose(&objects, "lmc-store.json").remove(0);
    let there = needs::keys(&*objects);
    let create = || Store::create_on(objects.clone(), StoreOptions::default());
    for spoiled in [None, Some(&b""[..]), Some(&marker.1[..20])] {
        if let Some(bytes) = spoiled {
            put(&objects, &marker.0, bytes.to_vec());
        }
        for opened in [open(&objects), create()] {
            let e = opened.unwrap_err();
            let says = e.to_string().starts_with("lmc-store.json: ") && e.to_string().contains("put it back");
            assert!(e.kind() == ErrorKind::Damaged && says, "{e}");
        }
        lose(&objects, "lmc-store.json");
        assert_eq!(needs::keys(&*objects), there);
    }
    // Any marker makes it usable, as the book says; one from a copy has the same run.
    let (run, text) = ("0".repeat(32), String::from_utf8(marker.1.to_vec()).unwrap());
    put(
        &objects,
        &marker.0,
        format!(r#"{{"format": "lmc-store", "version": 1, "run": "{run}", "grace_seconds": 86400}}"#),
    );
    assert!(wrong(&open(&objects).unwrap()).is_empty());
    put(&objects, &marker.0, text);
    assert_eq!(open(&objects).unwrap().run(), store.run());
    // Folders of the same name are no store's.
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("snapshots/0123abcd")).unwrap();
    std::fs::write(dir.path().join("snapshots/0123abcd/config.json"), b"{}").unwrap();
    let place = Location::Directory(dir.path().into());
    assert_eq!(Store::open(&place, StoreOptions::default()).unwrap_err().kind(), ErrorKind::NotFound);
    Store::create(&place, StoreOptions::default()).unwrap();
}

#[test]
fn the_size_of_what_is_needed_is_that_of_its_objects() {
    let size = |objects: &Memory| -> u64 {
        let needed = needs::needed(objects).into_iter().filter(|k| k.starts_with("data/"));
        needed.map(|k| block_on(objects.head(&k.into())).unwrap().size).sum()
    };
    for o in [without_bases(), with(BasePolicy::Previous)] {
        let (objects, store) = new();
        let check = |of: &Store| assert_eq!(of.needed_size(&of.list().unwrap()).unwrap(), size(&objects));
        check(&store);
        let mut tensors = model();
        for n in 1..=4 {
            tensors[2].train(n);
            save_with(&store, n, &safetensors(&tensors), &o).unwrap();
            check(&store);
        }
        // What the second one shares with the first is not free.
        let mut rest = Keep::default();
        rest.steps = vec![step(2), step(4)];
        prune(&store, &rest).unwrap();
        assert!(size(&objects) > store.snapshots().unwrap().iter().map(|s| s.new_size).sum());
        check(&store);
        store.rebase(&[step(2), step(4)], &RebaseOptions::default()).unwrap();
        check(&store);
        // In an archive, the records say what the saves stored, which is not what is there.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        store.export(&store.snapshots().unwrap(), std::fs::File::create(&path).unwrap()).unwrap();
        check(&Store::open(&Location::Directory(path), StoreOptions::default()).unwrap());
        lose(&objects, &shard_key(&store, 2));
        assert_eq!(store.needed_size(&store.list().unwrap()).unwrap_err().kind(), ErrorKind::Damaged);
    }
}

#[test]
fn the_last_one_that_is_whole_is_found() {
    let (objects, store) = new();
    let mut added = vec![];
    let mut before = needs::keys(&*objects);
    let s: Vec<_> = (1..4)
        .map(|n| {
            let saved = save(&store, n, &noise(3000, n));
            let now = needs::keys(&*objects);
            added.push(now.difference(&before).cloned().collect::<Vec<String>>());
            before = now;
            saved
        })
        .collect();
    let key = |n: usize, prefix: &str| added[n - 1].iter().find(|key| key.starts_with(prefix)).unwrap()[..].into();
    let write = |key: &object_store::path::Path, text: &'static str| block_on(objects.put(key, text.into())).unwrap();
    let passed = || {
        let (found, passed) = store.find_whole().unwrap();
        (found.step.get(), passed.into_iter().map(|(step, why)| (step.get(), why)).collect::<Vec<_>>())
    };
    assert_eq!(passed(), (3, vec![]));
    block_on(objects.delete(&key(3, "data/"))).unwrap();
    let (found, why) = passed();
    assert!(found == 2 && why.len() == 1 && why[0].0 == 3 && why[0].1.contains("is missing"), "{why:?}");
    // Part of it can still be restored.
    assert_eq!(store.find(At::Latest).unwrap(), s[2]);
    write(&key(2, "snapshots/"), "");
    let (found, why) = passed();
    assert_eq!((found, why.iter().map(|(step, _)| *step).collect::<Vec<_>>()), (1, vec![2, 3]));
    write(&key(3, "snapshots/"), "");
    assert_eq!((store.find(At::Latest).unwrap_err().kind(), passed().0), (ErrorKind::Damaged, 1));
    block_on(objects.delete(&key(1, "shards/"))).unwrap();
    assert_eq!(store.find_whole().unwrap_err().kind(), ErrorKind::Damaged);
    // Another lmc can read it.
    write(&key(3, "snapshots/"), r#"{"format": "lmc-snapshot", "version": 2}"#);
    assert_eq!(store.find_whole().unwrap_err().kind(), ErrorKind::Unsupported);
}
