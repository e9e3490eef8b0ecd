//! Pruning, re-basing and collecting: the deleted and the kept objects, and the cost.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::*;
use lmc_store::testing::Memory;
use lmc_store::{BasePolicy, ErrorKind, GcOptions, Input, Keep, Location, RebaseOptions, SaveOptions, Store};
use object_store::ObjectStoreExt;

const AUTO: (BasePolicy, u32) = (BasePolicy::Auto, 16);
const PREVIOUS: (BasePolicy, u32) = (BasePolicy::Previous, 16);
/// Without deltas.
const ALONE: (BasePolicy, u32) = (BasePolicy::Previous, 1);

/// Saves some steps of a training run; returns their files.
fn train(
    store: &Store,
    steps: std::ops::Range<u64>,
    tensors: &mut [Tensor],
    policy: (BasePolicy, u32),
) -> Vec<Vec<u8>> {
    let mut o = SaveOptions::default();
    o.threads = 1;
    (o.base, o.anchor_every) = policy;
    steps
        .map(|n| {
            tensors.iter_mut().for_each(|t| t.train(n));
            let file = safetensors(tensors);
            save_with(store, n, &file, &o).unwrap();
            file
        })
        .collect()
}

fn small() -> Vec<Tensor> {
    vec![Tensor::new("a", 70, 1000, 1), Tensor::new("b", 3, 50, 2)]
}

fn keep(last: usize, every: Option<u64>, steps: &[u64]) -> Keep {
    let mut keep = Keep::default();
    (keep.last, keep.every, keep.steps) = (last, every, steps.iter().map(|&n| step(n)).collect());
    keep
}

fn steps(store: &Store) -> Vec<u64> {
    store.snapshots().unwrap().iter().map(|s| s.step.get()).collect()
}

/// Collects once everything is old enough; exactly the needed objects stay.
fn collect_all(objects: &Memory, store: &Store) {
    objects.advance(GRACE + 1);
    let needed = needs::needed(objects);
    let garbage = store.gc(&GcOptions::default()).unwrap();
    assert!(garbage.young.is_empty(), "{garbage:?}");
    assert_eq!(needs::keys(objects), needed);
    assert!(store.gc(&GcOptions::default()).unwrap().orphans.is_empty());
}

fn data_size(objects: &Memory) -> u64 {
    let size = |key: String| futures::executor::block_on(objects.head(&key.into())).unwrap().size;
    needs::keys(objects).into_iter().filter(|k| k.starts_with("data/")).map(size).sum()
}

fn deep(store: &Store) -> lmc_store::Verified {
    let verified = store.verify(&store.snapshots().unwrap(), true, 1).unwrap();
    assert!(verified.problems.is_empty(), "{verified:?}");
    verified
}

#[test]
fn a_plan_changes_nothing_and_is_then_done() {
    let (objects, store) = new();
    let files = train(&store, 0..8, &mut small(), AUTO);
    let before = needs::keys(&*objects);
    let plan = store.plan_prune(&keep(2, Some(3), &[1])).unwrap();
    let of = |s: &[lmc_store::Snapshot]| s.iter().map(|s| s.step.get()).collect::<Vec<_>>();
    assert_eq!((of(&plan.keep), of(&plan.prune)), (vec![0, 1, 3, 6, 7], vec![2, 4, 5]));
    assert_eq!((needs::keys(&*objects), plan.before), (before, data_size(&objects)));
    let done = store.prune(&plan, &RebaseOptions::default()).unwrap();
    assert_eq!(done.pruned.iter().map(|s| s.get()).collect::<Vec<_>>(), [2, 4, 5]);
    assert!(done.changed.is_empty());
    assert_eq!(steps(&store), [0, 1, 3, 6, 7]);
    for n in steps(&store) {
        assert!(restored(&store, n).unwrap() == files[n as usize]);
    }
    assert_eq!(restored(&store, 4).unwrap_err().kind(), ErrorKind::NotFound);
    // An older plan has nothing left to do.
    let again = store.prune(&plan, &RebaseOptions::default()).unwrap();
    assert_eq!((again.pruned.len(), again.changed.len()), (3, 0));
    for (bad, kind) in [
        (keep(0, None, &[]), ErrorKind::Usage),
        (keep(1, Some(0), &[]), ErrorKind::Usage),
        (keep(1, None, &[4]), ErrorKind::NotFound),
    ] {
        assert_eq!(store.plan_prune(&bad).unwrap_err().kind(), kind, "{bad:?}");
    }
}

#[test]
fn a_dropped_step_is_free_again() {
    let (objects, store) = new();
    let files = train(&store, 0..4, &mut small(), AUTO);
    let mut rules = Keep::default();
    rules.drop = vec![step(1), step(3)];
    let plan = store.plan_prune(&rules).unwrap();
    assert_eq!(plan.prune.iter().map(|s| s.step.get()).collect::<Vec<_>>(), [1, 3]);
    store.prune(&plan, &RebaseOptions::default()).unwrap();
    assert_eq!(steps(&store), [0, 2]);
    // Two saves choose the step after the last snapshot, and the one that is late takes the next.
    let free = store.step(None).unwrap();
    assert_eq!(free, step(3));
    let saves = [1, 3].map(|n: usize| {
        let o = SaveOptions::default();
        (n, store.save_shard(&[Input::new("m.safetensors", &files[n])], free, &o).unwrap().shard)
    });
    for ((n, shard), there) in saves.into_iter().zip([3, 4]) {
        assert_eq!(store.publish_next(free, BTreeMap::new(), &[shard]).unwrap().step, step(there));
        assert!(restored(&store, there).unwrap() == files[n]);
    }
    collect_all(&objects, &store);
    deep(&store);
}

#[test]
fn a_step_before_all_others_shares_their_data() {
    let (_, store) = new();
    let files = train(&store, 5..7, &mut small(), AUTO);
    let o = SaveOptions::default();
    let saved = store.save_shard(&[Input::new("m.safetensors", &files[0])], step(1), &o).unwrap();
    assert_eq!((saved.new_size, saved.base, saved.shares), (0, Some(step(5)), Some(step(5))));
    store.publish(step(1), BTreeMap::new(), &[saved.shard]).unwrap();
    store.prune(&store.plan_prune(&keep(0, None, &[1])).unwrap(), &RebaseOptions::default()).unwrap();
    assert!(restored(&store, 1).unwrap() == files[0]);
}

#[test]
fn what_only_pruned_snapshots_need_goes_after_the_grace_period() {
    let (objects, store) = new();
    let files = train(&store, 0..3, &mut small(), ALONE);
    let old = store.find(lmc_store::At::Step(step(1))).unwrap();
    let reader = store.open_snapshot(&old).unwrap();
    let plan = store.plan_prune(&keep(0, None, &[0, 2])).unwrap();
    assert!(plan.rebase.is_empty());
    store.prune(&plan, &RebaseOptions::default()).unwrap();
    objects.advance(GRACE);
    let before = needs::keys(&*objects);
    let young = store.gc(&GcOptions::default()).unwrap();
    // Its first record, its shard and its data; readers continue.
    assert_eq!((young.orphans.len(), young.young.len()), (0, 3), "{young:?}");
    assert_eq!(needs::keys(&*objects), before);
    let mut out = vec![];
    reader.read_file("m.safetensors", &mut out).unwrap();
    assert!(out == files[1]);
    objects.advance(1);
    let garbage = unneeded(&store).unwrap();
    assert_eq!((&garbage.orphans, garbage.young.len()), (&young.young, 0));
    assert_eq!(needs::keys(&*objects), before);
    assert_eq!(store.gc(&GcOptions::default()).unwrap(), garbage);
    assert_eq!(reader.read_file("m.safetensors", &mut out).unwrap_err().kind(), ErrorKind::Damaged);
    // The record of the pruned step stays: its generations only increase.
    let records = || {
        needs::keys(&*objects)
            .into_iter()
            .filter(|k| k.starts_with("snapshots/") && step_of(k) == 1)
            .collect::<Vec<_>>()
    };
    assert_eq!(records(), [record_key(1, 1)]);
    save(&store, 1, &files[0]);
    assert_eq!(records()[1], record_key(1, 2));
    collect_all(&objects, &store);
    assert!(restored(&store, 1).unwrap() == files[0] && restored(&store, 2).unwrap() == files[2]);
}

#[test]
fn a_chain_of_pruned_snapshots_is_cut_off() {
    let (objects, store) = new();
    let file = train(&store, 0..12, &mut small(), PREVIOUS).pop().unwrap();
    let last = store.find(Default::default()).unwrap();
    let plan = store.plan_prune(&keep(1, None, &[])).unwrap();
    assert_eq!(plan.rebase, [step(11)]);
    let done = store.prune(&plan, &RebaseOptions::default()).unwrap();
    assert_eq!(steps(&store), [11]);
    let [new] = &done.rebased[..] else { panic!("{done:?}") };
    // It is the same snapshot.
    assert_eq!((new.id, new.time, &new.metadata, new.raw_size), (last.id, last.time, &last.metadata, last.raw_size));
    assert_eq!(new, &store.find(Default::default()).unwrap());
    let mut out = vec![];
    // Readers that found it before use the old shards, until they are collected.
    store.open_snapshot(&last).unwrap().read_file("m.safetensors", &mut out).unwrap();
    assert!(out == file && restored(&store, 11).unwrap() == file);
    collect_all(&objects, &store);
    assert!(restored(&store, 11).unwrap() == file);
    let verified = deep(&store);
    assert_eq!((verified.objects, data_size(&objects)), (1, new.new_size));
    // As large as it is alone, as estimated.
    let alone = train(&new_other(), 0..1, &mut small(), ALONE);
    assert_eq!(alone[0].len(), file.len());
    assert!(plan.after.abs_diff(new.new_size) * 20 < new.new_size, "{} {}", plan.after, new.new_size);
    assert!(plan.before > 2 * plan.after);
    // Nothing is left to do.
    assert!(store.rebase(&[step(11)], &RebaseOptions::default()).unwrap().snapshots.is_empty());
    assert_eq!(store.rebase(&[step(3)], &RebaseOptions::default()).unwrap_err().kind(), ErrorKind::NotFound);
}

fn new_other() -> Store {
    Store::create(&Location::Memory, options(7)).unwrap()
}

#[test]
fn links_that_are_left_out_of_a_chain() {
    let (objects, store) = new();
    let files = train(&store, 0..12, &mut small(), PREVIOUS);
    let first = store.find(lmc_store::At::Step(step(0))).unwrap();
    let plan = store.plan_prune(&keep(2, None, &[0])).unwrap();
    assert_eq!(plan.rebase, [step(10), step(11)]);
    let done = store.prune(&plan, &RebaseOptions::default()).unwrap();
    // Step 10 is a delta of step 0, and the sets of step 11 are copied verbatim.
    let (ten, eleven) = (&done.rebased[0], &done.rebased[1]);
    assert!(ten.new_size < first.new_size / 2, "{} {}", ten.new_size, first.new_size);
    assert!(eleven.new_size < ten.new_size + 1000);
    collect_all(&objects, &store);
    for n in [0, 10, 11] {
        assert!(restored(&store, n).unwrap() == files[n as usize], "{n}");
    }
    assert_eq!(deep(&store).objects, 3);
    assert_eq!(data_size(&objects), first.new_size + ten.new_size + eleven.new_size);
}

#[test]
fn what_did_not_change_is_moved_out_of_what_goes() {
    let (objects, store) = new();
    // An unchanged tensor beside a much larger one that changes.
    let mut tensors = vec![Tensor::new("large", 300, 1000, 1), Tensor::new("still", 70, 1000, 2)];
    let first = safetensors(&tensors);
    let mut o = SaveOptions::default();
    o.anchor_every = 1;
    save_with(&store, 0, &first, &o).unwrap();
    tensors[0].train(1);
    let second = safetensors(&tensors);
    let kept = save_with(&store, 1, &second, &o).unwrap();
    let plan = store.plan_prune(&keep(1, None, &[])).unwrap();
    assert_eq!(plan.rebase, [step(1)]);
    let done = store.prune(&plan, &RebaseOptions::default()).unwrap();
    collect_all(&objects, &store);
    assert!(restored(&store, 1).unwrap() == second);
    // Its new sets stay where they were.
    assert_eq!(data_size(&objects), kept.new_size + done.rebased[0].new_size);
    assert_eq!(data_size(&objects), plan.after);
}

#[test]
fn what_would_free_little_is_left_alone() {
    let (objects, store) = new();
    let files = train(&store, 0..2, &mut small(), PREVIOUS);
    let plan = store.plan_prune(&keep(1, None, &[])).unwrap();
    assert!(plan.rebase.is_empty() && plan.after == plan.before);
    store.prune(&plan, &RebaseOptions::default()).unwrap();
    collect_all(&objects, &store);
    assert!(restored(&store, 1).unwrap() == files[1]);
    // A caller can ask for it all the same.
    let done = store.rebase(&[step(1)], &RebaseOptions::default()).unwrap();
    assert_eq!(done.snapshots.len(), 1);
    collect_all(&objects, &store);
    assert!(restored(&store, 1).unwrap() == files[1]);
    assert_eq!(deep(&store).objects, 1);
}

#[test]
fn snapshots_of_several_processes_are_re_based() {
    let (objects, store) = new();
    let mut o = SaveOptions::default();
    o.base = BasePolicy::Previous;
    let mut ranks = [Tensor::new("w", 100, 700, 1), Tensor::new("w", 100, 700, 2), Tensor::new("w", 100, 700, 1)];
    let mut files = vec![];
    for n in 0..8 {
        // The third one equals the first one.
        ranks[..2].iter_mut().for_each(|t| t.train(n));
        ranks[2] = ranks[0].clone();
        files = ranks.iter().map(|t| safetensors(std::slice::from_ref(t))).collect::<Vec<_>>();
        let save = |(i, f): (usize, &Vec<u8>)| {
            store.save_shard(&[Input::new(format!("rank{i}"), f)], step(n), &o).unwrap().shard
        };
        let shards: Vec<_> = files.iter().enumerate().map(save).collect();
        store.publish(step(n), BTreeMap::new(), &shards).unwrap();
    }
    let plan = store.plan_prune(&keep(1, None, &[])).unwrap();
    assert_eq!(plan.rebase, [step(7)]);
    let done = store.prune(&plan, &RebaseOptions::default()).unwrap();
    assert_eq!(done.rebased[0].shards.len(), 1);
    collect_all(&objects, &store);
    let reader = reader(&store, 7);
    for (rank, f) in files.iter().enumerate() {
        let mut out = vec![];
        reader.read_file(&format!("rank{rank}"), &mut out).unwrap();
        assert!(out == *f);
    }
    // Equal bytes are written once.
    assert_eq!(deep(&store).objects, 1);
}

#[test]
fn a_step_that_was_saved_again_since_the_plan_is_left_alone() {
    let (_, store) = new();
    let mut tensors = small();
    train(&store, 0..6, &mut tensors, PREVIOUS);
    let plan = store.plan_prune(&keep(0, None, &[0, 5])).unwrap();
    // Step 2 is re-based, which does not change the snapshot; step 3 is replaced by another one; step 5 is pruned.
    assert_eq!(
        store.prune(&store.plan_prune(&keep(0, None, &[0, 2, 4, 5])).unwrap(), &Default::default()).unwrap().pruned,
        [step(1), step(3)]
    );
    assert_eq!(store.rebase(&[step(2)], &RebaseOptions::default()).unwrap().snapshots.len(), 1);
    let other = safetensors(&tensors);
    save(&store, 3, &other);
    let done = store.prune(&plan, &RebaseOptions::default()).unwrap();
    assert_eq!(done.pruned, [1, 2, 3, 4].map(step));
    assert_eq!(steps(&store), [0, 3, 5]);
    assert!(restored(&store, 3).unwrap() == other);
}

#[test]
fn nothing_is_deleted_when_it_cannot_be_told_what_is_needed() {
    let (objects, store) = new();
    let files = train(&store, 0..3, &mut small(), ALONE);
    store.prune(&store.plan_prune(&keep(0, None, &[0, 1])).unwrap(), &RebaseOptions::default()).unwrap();
    objects.advance(GRACE + 1);
    let shard = format!("shards/{}.json.zst", store.find(lmc_store::At::Step(step(1))).unwrap().shards[0]);
    let before = needs::keys(&*objects);
    futures::executor::block_on(objects.put(&(&shard[..]).into(), b"{}".to_vec().into())).unwrap();
    for e in [store.gc(&GcOptions::default()).unwrap_err(), unneeded(&store).unwrap_err()] {
        assert!(
            e.kind() == ErrorKind::Damaged
                && e.to_string().contains(&shard)
                && e.to_string().contains("nothing was deleted"),
            "{e}"
        );
    }
    assert_eq!(needs::keys(&*objects), before);
    // The snapshot is lost; without it the store is sound again.
    let plan = store.plan_prune(&keep(0, None, &[0])).unwrap();
    assert!(plan.obstacle.as_ref().unwrap().contains(&shard), "{plan:?}");
    store.prune(&plan, &RebaseOptions::default()).unwrap();
    collect_all(&objects, &store);
    assert!(restored(&store, 0).unwrap() == files[0]);
}

#[test]
fn what_is_not_the_stores_is_left_alone() {
    let (objects, store) = new();
    train(&store, 0..1, &mut small(), AUTO);
    let probe = format!("probes/{}x", "0".repeat(32));
    let foreign =
        ["data/readme", "data/x/000000", "shards/notes.json", "elsewhere/000000", "probes/notes", "probes/x/y", &probe];
    for key in foreign {
        futures::executor::block_on(objects.put(&key.into(), vec![].into())).unwrap();
    }
    objects.advance(GRACE + 1);
    assert!(store.gc(&GcOptions::default()).unwrap().orphans.is_empty());
    assert!(foreign.iter().all(|k| needs::keys(&*objects).contains(*k)));
}

/// Sets the time of a file or directory to one long ago.
fn make_old(path: &Path) {
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn what_is_not_the_stores_is_left_alone_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&Location::Directory(dir.path().into()), options(0)).unwrap();
    save(&store, 0, &noise(1000, 1));
    let save = store.snapshots().unwrap()[0].id;
    let files = [
        "notes#1",
        "data/notes#1",
        "data/x/000000#1",
        "shards/notes.json#1",
        "snapshots/x#1",
        "probes/notes",
        "probes/x/y#1",
        "other/x#1",
        &format!("data/{save}/notes#1"),
        "snapshots/9007/199/254/740/notes#1",
    ];
    let empty =
        ["data/empty", "data/x/y", "snapshots/7", "probes/empty", "shards/empty", &format!("data/{save}/empty")];
    for file in files {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, b"").unwrap();
    }
    empty.iter().for_each(|d| fs::create_dir_all(dir.path().join(d)).unwrap());
    files.iter().chain(&empty).for_each(|path| make_old(&dir.path().join(path)));
    let garbage = store.gc(&GcOptions::default()).unwrap();
    assert_eq!((garbage.orphans, garbage.young), (vec![], vec![]));
    assert!(files.iter().chain(&empty).all(|path| dir.path().join(path).exists()));
}

#[test]
fn a_store_is_collected_where_it_was_opened() {
    let dir = tempfile::tempdir().unwrap();
    let [here, elsewhere, link] = ["here", "elsewhere", "link"].map(|name| dir.path().join(name));
    let leftover = |root: &Path| root.join(format!("data/{}/000000#1", "0".repeat(32)));
    for root in [&here, &elsewhere] {
        fs::create_dir_all(leftover(root).parent().unwrap()).unwrap();
        fs::write(leftover(root), b"").unwrap();
        make_old(&leftover(root));
    }
    std::os::unix::fs::symlink(&here, &link).unwrap();
    let store = Store::create(&Location::Directory(link.clone()), options(0)).unwrap();
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    assert_eq!(store.gc(&GcOptions::default()).unwrap().orphans.len(), 1);
    assert!(!leftover(&here).exists() && leftover(&elsewhere).exists());
}

#[test]
fn what_dead_writers_left_in_a_directory_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("run");
    let store = Store::create(&Location::Directory(root.clone()), options(0)).unwrap();
    let file = noise(1000, 1);
    save(&store, 0, &file);
    let write = |name: &str, old: bool| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"").unwrap();
        if old {
            make_old(&path);
        }
        path
    };
    let dead = "0".repeat(32);
    let old = [write(&format!("data/{dead}/000000#1"), true), write(&format!("{}#2", record_key(7, 0)), true)];
    let new = [write(&format!("data/{dead}/000001#1"), false), write(&format!("data/{dead}/000002"), false)];
    let data = write(&format!("data/{dead}/000003"), true);
    let garbage = store.gc(&GcOptions::default()).unwrap();
    let mut keys: Vec<String> = garbage.orphans.iter().map(|o| o.key.clone()).collect();
    keys.sort();
    let want = [&old[0], &data, &old[1]].map(|p| p.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
    assert_eq!(keys, want);
    let young = ["000001#1", "000002"].map(|name| format!("data/{dead}/{name}"));
    assert_eq!(garbage.young.iter().map(|o| &o.key[..]).collect::<Vec<_>>(), young);
    assert!(old.iter().chain([&data]).all(|p| !p.exists()) && new.iter().all(|p| p.exists()));
    assert!(restored(&store, 0).unwrap() == file);
}
