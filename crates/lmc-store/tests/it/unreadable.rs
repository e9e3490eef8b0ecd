//! Records and shards that this lmc cannot read: what may be given up, what is not saved or copied in their place.

use std::sync::Arc;

use crate::support::*;
use futures::executor::block_on;
use lmc_store::testing::Memory;
use lmc_store::{
    At, CopyOptions, ErrorKind, GcOptions, Input, Keep, Location, Metadata, RebaseOptions, SaveOptions, Store,
    StoreOptions, VerifyOptions,
};
use object_store::ObjectStoreExt;
use object_store::path::Path;

/// A store of these steps, each with a small file.
fn saved(steps: impl IntoIterator<Item = u64>) -> (Arc<Memory>, Store) {
    saved_in(steps, options(0))
}

/// Such a store, of the run of another one.
fn saved_like(other: &Store, steps: impl IntoIterator<Item = u64>) -> Store {
    let mut o = options(0);
    o.run = Some(other.run());
    saved_in(steps, o).1
}

fn saved_in(steps: impl IntoIterator<Item = u64>, o: StoreOptions) -> (Arc<Memory>, Store) {
    let objects = Arc::new(Memory::default());
    let store = Store::create_on(objects.clone(), o).unwrap();
    for n in steps {
        objects.advance(1);
        save(&store, n, &noise(1000, n));
    }
    (objects, store)
}

fn record(n: u64) -> Path {
    Path::from(record_key(n, 0))
}

fn give_up(n: u64) -> Keep {
    let mut keep = Keep::default();
    keep.damaged = vec![step(n)];
    keep
}

#[test]
fn a_record_of_a_newer_lmc_is_not_given_up() {
    let (objects, store) = saved(1..=3);
    let text = String::from_utf8(get(&objects, &record(3))).unwrap();
    put(&objects, &record(3), text.replace("\"version\":1", "\"version\":2").into_bytes());
    let newer = |e: lmc_store::Error| {
        let text = e.to_string();
        assert!(e.kind() == ErrorKind::Unsupported && text.contains("or a newer one"), "{e:?}");
        assert!(!text.contains("--damaged") && !text.contains("put "), "{e}");
        text
    };
    assert!(newer(store.plan_prune(&give_up(3)).unwrap_err()).ends_with("it is not damaged"));
    assert!(newer(store.find(At::Latest).unwrap_err()).ends_with("restore another one (--at STEP)"));
    assert!(newer(store.gc(&GcOptions::default()).unwrap_err()).ends_with("nothing was deleted"));
    newer(store.find(At::Step(step(3))).unwrap_err());
    let problems = store.verify_all(&VerifyOptions::default()).unwrap().problems;
    assert_eq!((problems.len(), problems[0].step, &problems[0].remedy), (1, step(3), &None));
    // What is no document of any version is given up.
    put(&objects, &record(3), text.replace("\"version\":1", "\"version\":x").into_bytes());
    assert_eq!(store.plan_prune(&give_up(3)).unwrap().damaged.len(), 1);
}

#[test]
fn the_step_of_a_lost_record_is_not_saved_again() {
    let (objects, store) = saved(1..=40);
    block_on(objects.delete(&record(20))).unwrap();
    let before = needs::keys(&*objects);
    let save =
        |n| store.save(&[Input::new("x", &noise(9, n))], Some(step(n)), Default::default(), &SaveOptions::default());
    let e = save(20).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("save under another step"), "{e}");
    assert_eq!(needs::keys(&*objects), before);
    // Nor is it copied.
    let other = saved_like(&store, [19, 20]);
    let mut o = CopyOptions::default();
    o.skip_damaged = true;
    let copied = store.copy_from(&other, &[other.find(At::Step(step(20))).unwrap()], o).unwrap();
    assert_eq!((copied.snapshots.len(), copied.left_out[0].step), (0, step(20)));
    save(41).unwrap();
    let prune = |keep: &Keep| store.prune(&store.plan_prune(keep).unwrap(), &RebaseOptions::default()).unwrap();
    prune(&give_up(20));
    save(20).unwrap();
    assert!(store.verify_all(&VerifyOptions::default()).unwrap().problems.is_empty());
    // One that only records far from it and from the last ones name is found by reading all of them.
    block_on(objects.delete(&record(5))).unwrap();
    assert_eq!(store.find(At::Step(step(5))).unwrap_err().kind(), ErrorKind::Damaged);
    save(5).unwrap();
    let problems = store.verify_all(&VerifyOptions::default()).unwrap().problems;
    assert!(problems.len() == 1 && problems[0].message.contains("differs from the record that"), "{problems:?}");
}

#[test]
fn nor_is_the_last_step_if_recent_records_name_it() {
    let (objects, store) = saved(1..=3);
    let mut keep = Keep::default();
    keep.last = 1;
    store.prune(&store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    block_on(objects.delete(&record(3))).unwrap();
    let before = needs::keys(&*objects);
    let e = store
        .save(&[Input::new("x", &noise(9, 3))], Some(step(3)), Default::default(), &SaveOptions::default())
        .unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("save under another step"), "{e}");
    assert_eq!(needs::keys(&*objects), before);
    // A copy goes on after it.
    let other = saved_like(&store, 3..=4);
    let mut o = CopyOptions::default();
    o.skip_damaged = true;
    let copied = store.copy_from(&other, &other.snapshots().unwrap(), o).unwrap();
    assert_eq!((copied.snapshots.len(), copied.left_out[0].step), (1, step(3)), "{copied:?}");
}

#[test]
fn a_copy_goes_on_after_a_record_that_the_destination_lost() {
    let (_, run) = saved(1..=4);
    let all = run.snapshots().unwrap();
    for lost in [false, true] {
        let objects = Arc::new(Memory::default());
        let mut o = options(9);
        o.run = Some(run.run());
        let store = Store::create_on(objects.clone(), o).unwrap();
        store.copy_from(&run, &all[..3], CopyOptions::default()).unwrap();
        match lost {
            true => block_on(objects.delete(&record(2))).unwrap(),
            false => put(&objects, &record(2), vec![]),
        }
        let e = store.copy_from(&run, &all, CopyOptions::default()).unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("--damaged 2"), "{e}");
        let mut o = CopyOptions::default();
        o.skip_damaged = true;
        let copied = store.copy_from(&run, &all, o).unwrap();
        let left_out: Vec<u64> = copied.left_out.iter().map(|bad| bad.step.get()).collect();
        assert_eq!((copied.skipped, copied.snapshots[0].step, &left_out[..]), (2, step(4), &[2][..]), "{copied:?}");
        assert!(copied.damaged.is_empty() && copied.snapshots.len() == 1, "{copied:?}");
    }
}

#[test]
fn what_is_too_large_for_a_shard_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&Location::Directory(dir.path().join("st")), StoreOptions::default()).unwrap();
    for n in 1..=2 {
        save(&store, n, &noise(1000, n));
    }
    let key = format!("shards/{}.json.zst", store.find(At::Step(step(2))).unwrap().shards[0]);
    let file = std::fs::File::create(dir.path().join("st").join(&key)).unwrap();
    file.set_len((1 << 28) + 1).unwrap();
    let problems = store.verify(&store.snapshots().unwrap(), false, 1).unwrap().problems;
    assert!(
        problems.len() == 1 && problems[0].message.starts_with(&key) && problems[0].remedy.is_some(),
        "{problems:?}"
    );
    // A save passes over it, and it can be given up.
    save(&store, 3, &noise(1000, 3));
    store.prune(&store.plan_prune(&give_up(2)).unwrap(), &RebaseOptions::default()).unwrap();
    assert!(store.verify_all(&VerifyOptions::default()).unwrap().problems.is_empty());
}

#[test]
fn metadata_that_no_record_can_hold_are_refused_before_anything_is_stored() {
    let (objects, store) = saved([1]);
    let before = needs::keys(&*objects);
    let metadata = [("a".to_owned(), "x".repeat(1 << 24).into())].into();
    let e = store.save(&[Input::new("x", &noise(9, 1))], None, metadata, &SaveOptions::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Limit, "{e}");
    assert_eq!(needs::keys(&*objects), before);
    // With a little less, it can: as large as one of the shards of 200,000 processes.
    let large: Metadata = [("a".to_owned(), "x".repeat((1 << 24) - 1000).into())].into();
    for n in 2..5 {
        store.save(&[Input::new("x", &noise(9, n))], None, large.clone(), &SaveOptions::default()).unwrap();
    }
    let store = Store::open_on(objects, options(3)).unwrap();
    let found = store.find(At::Latest).unwrap();
    assert!((found.step, &found.metadata) == (step(4), &large) && store.list_last(3).unwrap().snapshots.len() == 3);
}
