//! Snapshots copied between stores and into archives: they arrive whole, once each, and damaged data are rejected.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::*;
use futures::TryStreamExt;
use futures::executor::block_on;
use lmc_store::testing::{Faults, Faulty, Memory};
use lmc_store::{
    At, BasePolicy, Cancel, CopyOptions, Error, ErrorKind, GcOptions, Input, Keep, Location, MetaValue, Metadata,
    RebaseOptions, SaveOptions, Snapshot, Store, StoreOptions,
};
use object_store::{ObjectStore, ObjectStoreExt};

/// Six snapshots; "head" changes in each, and "embed" in every second one.
fn run(objects: &Arc<dyn ObjectStore>) -> (Store, Vec<Vec<u8>>) {
    let store = new_store(objects);
    let (mut tensors, mut files) = (model(), vec![]);
    let mut o = SaveOptions::default();
    (o.base, o.anchor_every) = (BasePolicy::Previous, 4);
    for n in 0..6 {
        tensors[2].train(n);
        if n % 2 == 0 {
            tensors[0].train(n);
        }
        files.push(safetensors(&tensors));
        save_with(&store, 10 * n, &files[n as usize], &o).unwrap();
    }
    (store, files)
}

fn check(store: &Store, steps: &[u64], files: &[Vec<u8>]) {
    let snapshots = store.snapshots().unwrap();
    assert_eq!(snapshots.iter().map(|s| s.step.get()).collect::<Vec<_>>(), steps);
    for s in &snapshots {
        assert!(restored(store, s.step.get()).unwrap() == files[s.step.get() as usize / 10], "step {}", s.step);
    }
    let verified = store.verify(&snapshots, true, 1).unwrap();
    assert!(verified.problems.is_empty(), "{verified:?}");
}

fn bytes(objects: &Arc<dyn ObjectStore>, under: &str) -> u64 {
    let listed = objects.list(Some(&under.into())).try_fold(0, async |sum, o| Ok(sum + o.size));
    // Clients of servers need its threads.
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(listed).unwrap()
}

#[test]
fn copies_are_the_same_and_cost_the_same_on_each_backend() {
    on_each_backend(|objects| {
        let from = memory();
        let (run, files) = run(&from);
        let snapshots = run.snapshots().unwrap();
        let store = store_like(&run, &objects);
        let copied = store.copy_from(&run, &snapshots, CopyOptions::default()).unwrap();
        assert_eq!((copied.snapshots.len(), copied.skipped), (6, 0));
        check(&store, &[0, 10, 20, 30, 40, 50], &files);
        assert_eq!(bytes(&objects, "data"), bytes(&from, "data"));
        for (copy, s) in copied.snapshots.iter().zip(&snapshots) {
            assert_eq!((copy.id, copy.time, &copy.metadata, copy.raw_size), (s.id, s.time, &s.metadata, s.raw_size));
            assert_eq!(copy.new_size, s.new_size);
        }
        let costs =
            |of: &Store, s: &[Snapshot]| of.costs(s).unwrap().into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(costs(&store, &copied.snapshots), costs(&run, &snapshots));
        // A repeated copy does nothing.
        let again = store.copy_from(&run, &snapshots, CopyOptions::default()).unwrap();
        assert_eq!((again.snapshots.len(), again.skipped), (0, 6));
        // Later saves use the copied sets as bases.
        let mut tensors = model();
        tensors[2].train(99);
        let next = save(&store, 60, &safetensors(&tensors));
        assert!(next.new_size < copied.snapshots[0].new_size);
    });
}

#[test]
fn some_are_copied_with_what_they_need_alone() {
    let (from, to) = (memory(), memory());
    let (run, files) = run(&from);
    let store = store_like(&run, &to);
    let of = |n| run.find(At::Step(step(n))).unwrap();
    store.copy_from(&run, &[of(50), of(20)], CopyOptions::default()).unwrap();
    check(&store, &[20, 50], &files);
    assert!(bytes(&to, "data") < bytes(&from, "data"));
    // A snapshot copied in between shares sets with its neighbour.
    let before = bytes(&to, "data");
    store.copy_from(&run, &[of(30)], CopyOptions::default()).unwrap();
    check(&store, &[20, 30, 50], &files);
    assert!(bytes(&to, "data") - before < of(0).new_size / 2);
    save(&store, 40, &files[1]);
    let e = store.copy_from(&run, &[of(40)], CopyOptions::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Exists);
}

#[test]
fn what_several_processes_saved_is_copied() {
    let (from, o) = (new_store(&memory()), SaveOptions::default());
    let files: Vec<Vec<u8>> =
        (0..3).map(|i| safetensors(&[Tensor::new("w", 300, 300, i), model()[3].clone()])).collect();
    let shards: Vec<_> = (0..)
        .zip(&files)
        .map(|(rank, f)| from.save_shard(&[Input::new(format!("rank{rank}"), f)], step(1), &o).unwrap().shard)
        .collect();
    let metadata = Metadata::from([("loss".to_owned(), MetaValue::Float(2.5)), ("note".to_owned(), "2.5".into())]);
    let s = from.publish(step(1), metadata.clone(), &shards).unwrap();
    let store = store_like(&from, &memory());
    let copy = store.copy_from(&from, &[s], CopyOptions::default()).unwrap().snapshots.remove(0);
    assert_eq!((copy.shards.len(), copy.metadata), (1, metadata));
    for (rank, f) in files.iter().enumerate() {
        let mut out = vec![];
        reader(&store, 1).read_file(&format!("rank{rank}"), &mut out).unwrap();
        assert!(out == *f);
    }
}

#[test]
fn runs_are_not_mixed() {
    let (run, files) = run(&memory());
    let first = [run.find(At::Step(step(0))).unwrap()];
    let objects = memory();
    let store = new_store(&objects);
    let refused = |e: lmc_store::Error, text: String| {
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains(&text), "{e}");
    };
    let (is, of) = (store.run(), run.run());
    // Empty or not, it is the store of another run.
    for there in [&[][..], &[10]] {
        let e = store.copy_from(&run, &first, CopyOptions::default()).unwrap_err();
        refused(e, format!("is of run {is}, and the snapshots to be copied are of run {of}"));
        check(&store, there, &files);
        if there.is_empty() {
            save(&store, 10, &files[1]);
        }
    }
    // An existing store keeps its run.
    let mut o = options(1);
    o.run = Some(of);
    refused(Store::create_on(objects, o).unwrap_err(), format!("the store that is here is of run {is}, not of {of}"));
    // The source was deleted, and made anew, since it was opened.
    let objects = memory();
    let run = new_store(&objects);
    let store = store_like(&run, &memory());
    block_on(objects.delete(&"lmc-store.json".into())).unwrap();
    let now = new_store(&objects).run();
    let e = store.copy_from(&run, &[], CopyOptions::default()).unwrap_err();
    refused(e, format!("the snapshots to be copied are of run {now}"));
}

#[test]
fn a_copy_that_is_interrupted_anywhere_goes_on() {
    let (run, files) = run(&memory());
    let snapshots = run.snapshots().unwrap();
    let mut interrupted = 0;
    for after in (1..100).step_by(7) {
        let objects = memory();
        drop(store_like(&run, &objects));
        let mut faults = Faults::default();
        faults.dies_after = after;
        let faulty = Arc::new(Faulty::new(objects.clone(), after, faults));
        let dying =
            Store::open_on(faulty, options(after)).and_then(|s| s.copy_from(&run, &snapshots, CopyOptions::default()));
        interrupted += u64::from(dying.is_err());
        let store = new_store(&objects);
        // Whole snapshots, or none.
        let there: Vec<u64> = store.snapshots().unwrap().iter().map(|s| s.step.get()).collect();
        check(&store, &there, &files);
        let copied = store.copy_from(&run, &snapshots, CopyOptions::default()).unwrap();
        assert_eq!(copied.skipped, there.len());
        check(&store, &[0, 10, 20, 30, 40, 50], &files);
    }
    assert!(interrupted > 10, "{interrupted}");
}

#[test]
fn what_is_rebased_or_pruned_meanwhile_is_copied_as_it_is() {
    let objects = Arc::new(Memory::default());
    let run = Store::create_on(objects.clone(), options(1)).unwrap();
    let (mut tensors, mut files) = (model(), vec![]);
    let mut o = SaveOptions::default();
    o.base = BasePolicy::Previous;
    for n in 1..=4 {
        tensors.iter_mut().for_each(|t| t.train(n));
        files.push(safetensors(&tensors));
        save_with(&run, n, &files[n as usize - 1], &o).unwrap();
    }
    let listed = run.snapshots().unwrap();
    let mut keep = Keep::default();
    keep.last = 1;
    let pruned = run.prune(&run.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    assert_eq!(pruned.rebased.len(), 1);
    objects.advance(2 * 86_400);
    run.gc(&GcOptions::default()).unwrap();
    let store = store_like(&run, &memory());
    assert_eq!(store.copy_from(&run, &listed, CopyOptions::default()).unwrap_err().kind(), ErrorKind::Damaged);
    let mut o = CopyOptions::default();
    o.skip_damaged = true;
    let copied = store.copy_from(&run, &listed, o).unwrap();
    assert_eq!((copied.snapshots.len(), copied.damaged.len()), (1, 0), "{copied:?}");
    assert!(restored(&store, 4).unwrap() == files[3]);
}

#[test]
fn what_a_source_loses_meanwhile_was_not_pruned() {
    let objects = memory();
    let (run, _) = run(&objects);
    let all = run.snapshots().unwrap();
    let store = store_like(&run, &memory());
    let lose = || {
        for key in needs::keys(&*objects) {
            block_on(objects.delete(&key.as_str().into())).unwrap();
        }
        Ok(())
    };
    let mut o = CopyOptions::default();
    (o.skip_damaged, o.cancel) = (true, Cancel::new(&lose));
    let copied = store.copy_from(&run, &all, o).unwrap();
    assert_eq!(copied.snapshots.len() + copied.damaged.len(), all.len(), "{copied:?}");
    assert!(copied.damaged.len() > 1, "{copied:?}");
}

#[test]
fn an_interrupted_copy_leaves_nothing_of_a_snapshot() {
    let (run, files) = run(&memory());
    let (objects, left) = (memory(), AtomicUsize::new(9));
    let store = store_like(&run, &objects);
    let check = || match left.fetch_sub(1, Ordering::Relaxed) {
        0 => Err(Error::new(ErrorKind::Io, "interrupted")),
        _ => Ok(()),
    };
    let all = run.snapshots().unwrap();
    let mut o = CopyOptions::default();
    o.cancel = Cancel::new(&check);
    let e = store.copy_from(&run, &all, o).unwrap_err();
    assert_eq!((e.kind(), e.to_string()), (ErrorKind::Io, "interrupted".to_owned()));
    let there: Vec<u64> = store.snapshots().unwrap().iter().map(|s| s.step.get()).collect();
    assert!(!there.is_empty() && there.len() < all.len(), "{there:?}");
    check_needed(&objects);
    assert_eq!(store.copy_from(&run, &all, CopyOptions::default()).unwrap().skipped, there.len());
    self::check(&store, &[0, 10, 20, 30, 40, 50], &files);
}

/// There are no data objects but those that snapshots need.
fn check_needed(objects: &Arc<dyn ObjectStore>) {
    let needed = needs::needed(&**objects);
    assert!(data_objects(objects).iter().all(|(key, _)| needed.contains(key)));
}

#[test]
fn damage_is_not_copied() {
    let from = memory();
    let (run, _) = run(&from);
    let key = block_on(from.list(Some(&"data".into())).try_collect::<Vec<_>>()).unwrap().remove(0).location;
    let mut bad = block_on(async { from.get(&key).await.unwrap().bytes().await.unwrap().to_vec() });
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    block_on(from.put(&key, bad.into())).unwrap();
    let store = store_like(&run, &memory());
    let e = store.copy_from(&run, &run.snapshots().unwrap(), CopyOptions::default()).unwrap_err();
    let of_source = format!("{from}: {key}: ");
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().starts_with(&of_source), "{e}");
    for s in store.snapshots().unwrap() {
        assert!(store.verify(&[s], true, 1).unwrap().problems.is_empty());
    }
}

fn open(path: &Path) -> lmc_store::Result<Store> {
    Store::open(&Location::Directory(path.into()), StoreOptions::default())
}

#[test]
fn an_archive_is_a_store() {
    let (run, files) = run(&memory());
    let dir = tempfile::tempdir().unwrap();
    let (all, one) = (dir.path().join("all.tar"), dir.path().join("one.tar"));
    run.export(&run.snapshots().unwrap(), std::fs::File::create(&all).unwrap()).unwrap();
    run.export(&[run.find(At::Step(step(20))).unwrap()], std::fs::File::create(&one).unwrap()).unwrap();
    check(&open(&all).unwrap(), &[0, 10, 20, 30, 40, 50], &files);
    check(&open(&one).unwrap(), &[20], &files);
    assert_eq!(open(&all).unwrap().snapshots().unwrap(), run.snapshots().unwrap());
    // Unpacked, it is a writable store.
    tar::Archive::new(std::fs::File::open(&all).unwrap()).unpack(dir.path().join("store")).unwrap();
    let store = open(&dir.path().join("store")).unwrap();
    check(&store, &[0, 10, 20, 30, 40, 50], &files);
    save(&store, 60, &files[0]);
    // It can be copied from one store into another.
    let objects = memory();
    let store = store_like(&run, &objects);
    assert_eq!(
        store
            .copy_from(&open(&one).unwrap(), &open(&one).unwrap().snapshots().unwrap(), CopyOptions::default())
            .unwrap()
            .skipped,
        0
    );
    let copied = store.copy_from(&open(&all).unwrap(), &run.snapshots().unwrap(), CopyOptions::default()).unwrap();
    assert_eq!((copied.skipped, copied.snapshots.len()), (1, 5));
    check(&store, &[0, 10, 20, 30, 40, 50], &files);
    let e = save_with(&open(&all).unwrap(), 70, &files[0], &SaveOptions::default()).unwrap_err();
    assert!(e.kind() == ErrorKind::Store && e.to_string().contains("read-only"), "{e}");
    let e = run.export(&[], vec![]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Usage);
}

#[test]
fn an_archive_has_each_snapshot_once_and_by_step() {
    let (run, files) = run(&memory());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tar");
    let of = |n| run.find(At::Step(step(n))).unwrap();
    run.export(&[of(50), of(20), run.find(At::Latest).unwrap()], std::fs::File::create(&path).unwrap()).unwrap();
    check(&open(&path).unwrap(), &[20, 50], &files);
    let store = store_like(&run, &memory());
    let copied = store.copy_from(&run, &[of(50), of(50)], CopyOptions::default()).unwrap();
    assert_eq!((copied.snapshots.len(), copied.skipped), (1, 0));
    // Another snapshot of a step, as another store may have it.
    let other = new_store(&memory());
    let both = [save(&other, 20, &files[0]), of(20)];
    for e in [run.export(&both, vec![]), store.copy_from(&run, &both, CopyOptions::default()).map(|_| ())] {
        let e = e.unwrap_err();
        let (a, b) = (both[0].id, both[1].id);
        assert_eq!((e.kind(), e.to_string().contains("step 20 is given as two snapshots, ")), (ErrorKind::Usage, true));
        assert!([a, b].iter().all(|id| e.to_string().contains(&id.to_string())), "{e}");
    }
    check(&store, &[50], &files);
}

#[test]
fn what_is_damaged_is_not_exported() {
    let objects = memory();
    let (run, _) = run(&objects);
    let snapshots = run.snapshots().unwrap();
    run.export(&snapshots, vec![]).unwrap();
    for (key, bytes) in data_objects(&objects) {
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1;
            futures::executor::block_on(objects.put(&key[..].into(), flipped.into())).unwrap();
            let e = run.export(&snapshots, vec![]).unwrap_err();
            assert!(e.kind() == ErrorKind::Damaged && e.to_string().starts_with(&key), "{e}");
        }
        futures::executor::block_on(objects.put(&key[..].into(), bytes.into())).unwrap();
    }
    run.export(&snapshots, vec![]).unwrap();
}

/// An archive of files.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(vec![]);
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        // Bypasses the checks of `set_path`.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        tar.append(&header, *bytes).unwrap();
    }
    tar.into_inner().unwrap()
}

#[test]
fn an_archive_says_how_large_its_files_are_and_nobody_reads_them_for_that() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tar");
    // Fills the archive with zeros, sparsely.
    let len = 7 << 30;
    let mut header = tar::Header::new_ustar();
    header.set_path("lmc-store.json").unwrap();
    header.set_size(len);
    header.set_cksum();
    std::fs::write(&path, header.as_bytes()).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(512 + len + 1024).unwrap();
    assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::Limit);
}

#[test]
fn archives_are_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tar");
    let open_bytes = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        open(&path)
    };
    let objects = memory();
    let store = new_store(&objects);
    save(&store, 1, &safetensors(&[Tensor::new("t", 40, 50, 1)]));
    let mut whole = vec![];
    store.export(&store.snapshots().unwrap(), &mut whole).unwrap();
    drop(open_bytes(&whole).unwrap());
    // Truncated anywhere it is not a store, except within the zeros that fill the last block.
    for len in (0..whole.len()).step_by(97).chain([whole.len() - 1]) {
        match open_bytes(&whole[..len]) {
            Ok(archive) => assert!(len > whole.len() - 512 && restored(&archive, 1).is_ok(), "{len}"),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Damaged, "{len}: {e}"),
        }
    }
    let e = open_bytes(&[7; 20_000]).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("is a file, not a store: use lmc list"), "{e}");
    let marker = block_on(async { objects.get(&"lmc-store.json".into()).await.unwrap().bytes().await.unwrap() });
    for (files, part) in [
        (&[("lmc-store.json", &marker[..]), ("../x", b"")][..], "is not a key"),
        (&[("lmc-store.json", &marker), ("a//b", b"")], "is not a key"),
        (&[("lmc-store.json", &marker), ("./lmc-store.json", &marker)], "two files"),
        (&[("x", b"")], "no store here"),
        (&[("lmc-store.json", b"{}")], "lmc-store.json"),
    ] {
        let e = open_bytes(&archive(files)).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
    }
    drop(open_bytes(&archive(&[("./lmc-store.json", &marker)])).unwrap());
    // Every flipped byte is noticed or harmless: the copies equal the saved files.
    let snapshots = store.snapshots().unwrap();
    let file = restored(&store, 1).unwrap();
    let mut noticed = 0;
    for at in (0..whole.len()).step_by(61) {
        let mut bad = whole.clone();
        bad[at] ^= 0x04;
        let copy = store_like(&store, &memory());
        match open_bytes(&bad).and_then(|from| copy.copy_from(&from, &snapshots, CopyOptions::default())) {
            Ok(_) => assert!(restored(&copy, 1).unwrap() == file, "byte {at}"),
            Err(e) => {
                assert!(!matches!(e.kind(), ErrorKind::Io | ErrorKind::Usage), "byte {at}: {e:?}");
                noticed += 1;
            }
        }
    }
    assert!(noticed > whole.len() / 61 / 2, "{noticed}");
}
