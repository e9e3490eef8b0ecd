//! Following a store: the directory always holds a whole version, and fetches only changes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::support::{Tensor, data_objects, memory, model, new_store, on_each_backend, options, safetensors, step};
use lmc_store::{CopyOptions, ErrorKind, FollowOptions, Follower, Input, RebaseOptions, SaveOptions, Staged, Store};
use object_store::{ObjectStore, ObjectStoreExt};

/// The files of a model directory by name: two of weights, and one that never changes.
type Files = Vec<(&'static str, Vec<u8>)>;

pub(crate) struct Run {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) store: Store,
    parts: [Vec<Tensor>; 2],
    pub(crate) saved: Vec<Files>,
    options: SaveOptions<'static>,
}

impl Run {
    fn on(objects: Arc<dyn ObjectStore>) -> Self {
        let store = new_store(&objects);
        let other = vec![Tensor::new("other", 300, 300, 9)];
        let mut run = Self { objects, store, parts: [model(), other], saved: vec![], options: SaveOptions::default() };
        run.save(&[]);
        run
    }

    pub(crate) fn new() -> Self {
        Self::on(memory())
    }

    /// Trains some of the parts, and saves all files as the next step.
    pub(crate) fn save(&mut self, trained: &[usize]) {
        let n = self.saved.len() as u64;
        trained.iter().for_each(|&i| self.parts[i].iter_mut().for_each(|t| t.train(n)));
        let [a, b] = &self.parts;
        let config = br#"{"hidden_size": 200}"#.repeat(10);
        let files = vec![("a.safetensors", safetensors(a)), ("sub/b.safetensors", safetensors(b)), ("config", config)];
        let inputs: Vec<Input<'_>> = files.iter().map(|(name, bytes)| Input::new(*name, bytes)).collect();
        self.store.save(&inputs, Some(step(n)), BTreeMap::new(), &self.options).unwrap();
        self.saved.push(files);
    }

    pub(crate) fn follower(&self, directory: &Path, o: FollowOptions) -> lmc_store::Result<Follower> {
        let store = Store::open_on(self.objects.clone(), options(1))?;
        Follower::open(store, directory, o)
    }

    /// Follows to the newest snapshot.
    pub(crate) fn follow(&self, directory: &Path) -> lmc_store::Result<Option<Staged>> {
        let mut follower = self.follower(directory, FollowOptions::default())?;
        let Some(newest) = follower.newest()? else { return Ok(None) };
        let staged = follower.stage(&newest, &mut |_| Ok(()))?;
        follower.commit(staged.clone())?;
        Ok(Some(staged))
    }

    /// Compares all files of the current version with those of a step.
    pub(crate) fn check(&self, directory: &Path, n: usize) {
        let current = directory.join("current");
        assert!(fs::read_link(&current).unwrap().to_str().unwrap().starts_with(&format!("versions/{n}-")));
        for (name, bytes) in &self.saved[n] {
            assert!(fs::read(current.join(name)).unwrap() == *bytes, "{name} of step {n}");
        }
        assert_eq!(fs::read_dir(&current).unwrap().count(), 3);
    }
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn versions_cost_what_changed_on_each_backend() {
    on_each_backend(|objects| {
        let mut run = Run::on(objects);
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("new/model");
        let first = run.follow(&at).unwrap().unwrap();
        let raw: u64 = run.saved[0].iter().map(|f| f.1.len() as u64).sum();
        assert_eq!((first.from, first.linked_size, first.written_size), (None, 0, raw));
        run.check(&at, 0);
        assert_eq!(run.follow(&at).unwrap(), None);
        // One file changes: the others are links.
        let inode = |name: &str| fs::metadata(at.join("current").join(name)).unwrap().ino();
        let before = ["sub/b.safetensors", "config"].map(inode);
        run.save(&[0]);
        let next = run.follow(&at).unwrap().unwrap();
        run.check(&at, 1);
        assert_eq!(next.written_size, run.saved[1][0].1.len() as u64);
        assert_eq!((next.from, next.linked_size), (Some(step(0)), raw - next.written_size));
        assert!(next.fetched_size < first.fetched_size / 3, "{} of {}", next.fetched_size, first.fetched_size);
        assert_eq!(before, ["sub/b.safetensors", "config"].map(inode));
        // Three versions at once, in which both models change.
        (0..3).for_each(|_| run.save(&[0, 1]));
        let last = run.follow(&at).unwrap().unwrap();
        run.check(&at, 4);
        assert!(last.from == Some(step(1)) && last.fetched_size < first.fetched_size);
        // The version before stays, no other.
        let versions = names(&at.join("versions"));
        assert_eq!(versions.len(), 4, "{versions:?}");
        assert!(versions[0].starts_with("1-") && versions[2].starts_with("4-"), "{versions:?}");
    });
}

#[test]
fn what_was_rebased_or_deleted_in_the_store_is_still_held() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    (0..2).for_each(|_| run.save(&[0, 1]));
    let mut keep = lmc_store::Keep::default();
    keep.steps = [step(2)].into();
    run.store.prune(&run.store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    run.follow(dir.path()).unwrap().unwrap();
    run.check(dir.path(), 2);
    run.save(&[1]);
    let next = run.follow(dir.path()).unwrap().unwrap();
    run.check(dir.path(), 3);
    assert!(next.fetched_size < run.saved[3][1].1.len() as u64 / 2, "{next:?}");
}

#[test]
fn where_a_chain_starts_files_are_made_from_what_changed() {
    for alternatives in [false, true] {
        let mut run = Run::new();
        (run.options.anchor_every, run.options.alternatives) = (3, alternatives);
        let dir = tempfile::tempdir().unwrap();
        let first = run.follow(dir.path()).unwrap().unwrap();
        for n in 1..=7 {
            run.save(&[0, 1]);
            // Also two at once.
            if n % 4 != 1 {
                let next = run.follow(dir.path()).unwrap().unwrap();
                run.check(dir.path(), n);
                let most = first.fetched_size * if n % 4 == 2 { 2 } else { 1 } / 3;
                let is_small = next.fetched_size < most;
                assert_eq!(is_small, alternatives || ![3, 6].contains(&n), "step {n}: {next:?}");
            }
        }
    }
}

#[test]
fn files_that_somebody_changed_are_not_believed() {
    for same_time in [false, true] {
        let mut run = Run::new();
        let dir = tempfile::tempdir().unwrap();
        run.follow(dir.path()).unwrap();
        let current = dir.path().join("current");
        for name in ["a.safetensors", "sub/b.safetensors"] {
            let path = current.join(name);
            let time = fs::metadata(&path).unwrap().modified().unwrap();
            let mut bytes = fs::read(&path).unwrap();
            let n = bytes.len();
            bytes[n / 2..n / 2 + 100].fill(0);
            let file = fs::File::options().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
            let time = if same_time { time } else { time - std::time::Duration::from_secs(7) };
            file.set_modified(time).unwrap();
        }
        run.save(&[0]);
        // With the old time the file that did not change is linked, unless all is to be verified.
        let mut o = FollowOptions::default();
        o.verify = same_time;
        let mut follower = run.follower(dir.path(), o).unwrap();
        let newest = follower.newest().unwrap().unwrap();
        let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
        assert_eq!(staged.linked_size, if same_time { 0 } else { run.saved[1][2].1.len() as u64 });
        assert_eq!(follower.commit(staged).unwrap().step, step(1));
        run.check(dir.path(), 1);
    }
}

#[test]
fn a_damaged_snapshot_leaves_the_version_before() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    let there: Vec<_> = data_objects(&run.objects).into_iter().map(|o| o.0).collect();
    run.save(&[0, 1]);
    let new: Vec<_> = data_objects(&run.objects).into_iter().filter(|o| !there.contains(&o.0)).collect();
    for (key, bytes) in &new {
        let mut bad = bytes.to_vec();
        let n = bad.len();
        bad[n / 2] ^= 1;
        futures::executor::block_on(run.objects.put(&(&key[..]).into(), bad.into())).unwrap();
    }
    for _ in 0..2 {
        let e = run.follow(dir.path()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged, "{e}");
        run.check(dir.path(), 0);
        assert_eq!(names(&dir.path().join("versions")).len(), 2);
    }
    for (key, bytes) in new {
        futures::executor::block_on(run.objects.put(&(&key[..]).into(), bytes.into())).unwrap();
    }
    run.follow(dir.path()).unwrap().unwrap();
    run.check(dir.path(), 1);
}

#[test]
fn what_was_staged_before_a_crash_is_used_and_the_rest_removed() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    run.save(&[0]);
    let mut follower = run.follower(dir.path(), FollowOptions::default()).unwrap();
    let newest = follower.newest().unwrap().unwrap();
    let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
    run.check(dir.path(), 0);
    drop(follower);
    let versions = dir.path().join("versions");
    fs::create_dir_all(versions.join(".staging/sub")).unwrap();
    for leftover in [".staging/sub/x", "5-00000000000000000000000000000000.json", "x.json.new", "y"] {
        fs::write(versions.join(leftover), "x").unwrap();
    }
    fs::create_dir(versions.join("6-00000000000000000000000000000000")).unwrap();
    std::os::unix::fs::symlink("versions/nowhere", dir.path().join(".current.new")).unwrap();
    let again = run.follow(dir.path()).unwrap().unwrap();
    assert_eq!((again.version, again.written_size), (staged.version, 0));
    run.check(dir.path(), 1);
    let versions = names(&versions);
    assert!(versions.len() == 4 && versions[0].starts_with("0-") && versions[2].starts_with("1-"), "{versions:?}");
}

#[test]
fn a_version_that_is_changed_before_it_is_committed_is_not_the_current_one() {
    let run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    let mut follower = run.follower(dir.path(), FollowOptions::default()).unwrap();
    let newest = follower.newest().unwrap().unwrap();
    for change in
        [&(|path: &Path| fs::remove_file(path).unwrap()) as &dyn Fn(&Path), &|path| fs::write(path, "x").unwrap()]
    {
        let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
        change(&staged.version.path.join("config"));
        let e = follower.commit(staged).unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("was changed since it was written"), "{e}");
        assert!(follower.current().is_none());
    }
    let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
    // Nothing changes when it is committed twice.
    follower.commit(staged.clone()).unwrap();
    follower.commit(staged).unwrap();
    run.check(dir.path(), 0);
}

#[test]
fn steps_that_go_back_must_be_asked_for() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    (0..2).for_each(|_| run.save(&[0]));
    run.follow(dir.path()).unwrap();
    let other = Run::new();
    let e = other.follow(dir.path()).unwrap_err();
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("has versions of run "), "{e}");
    let first = run.store.find(lmc_store::At::Step(step(0))).unwrap();
    let mut follower = run.follower(dir.path(), FollowOptions::default()).unwrap();
    let e = follower.stage(&first, &mut |_| Ok(())).unwrap_err();
    assert!(
        e.kind() == ErrorKind::Usage
            && e.to_string().contains("has step 2, and what is to follow is a snapshot of step 0"),
        "{e}"
    );
    drop(follower);
    run.check(dir.path(), 2);
    let mut o = FollowOptions::default();
    o.rewind = true;
    let mut follower = other.follower(dir.path(), o).unwrap();
    let newest = follower.newest().unwrap().unwrap();
    let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
    follower.commit(staged).unwrap();
    other.check(dir.path(), 0);
}

#[test]
fn versions_of_another_run_must_be_asked_for() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    // A later step of another run, and one of the same run in a copy of the store.
    let mut other = Run::new();
    other.save(&[0]);
    assert_ne!(run.store.run(), other.store.run());
    let (was, is) = (run.store.run(), other.store.run());
    let refused = |e: lmc_store::Error| {
        let text = format!("has versions of run {was}, and the store is of run {is}");
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains(&text), "{e}");
    };
    refused(other.follow(dir.path()).unwrap_err());
    let newest = other.store.find(lmc_store::At::Latest).unwrap();
    refused(other.follower(dir.path(), FollowOptions::default()).unwrap().stage(&newest, &mut |_| Ok(())).unwrap_err());
    run.check(dir.path(), 0);
    run.save(&[0]);
    let mut o = options(7);
    o.run = Some(was);
    let objects = memory();
    let copy = Store::create_on(objects.clone(), o).unwrap();
    copy.copy_from(&run.store, &run.store.snapshots().unwrap(), CopyOptions::default()).unwrap();
    run.objects = objects;
    run.follow(dir.path()).unwrap();
    run.check(dir.path(), 1);
    // The store is deleted, and made anew, while a process follows.
    let mut follower = run.follower(dir.path(), FollowOptions::default()).unwrap();
    assert_eq!(follower.newest().unwrap(), None);
    let keys: Vec<_> = crate::support::needs::keys(&*run.objects).into_iter().collect();
    for key in keys {
        futures::executor::block_on(run.objects.delete(&key.as_str().into())).unwrap();
    }
    assert_eq!(follower.newest().unwrap_err().kind(), ErrorKind::NotFound);
    let mut o = options(8);
    o.run = Some(is);
    Store::create_on(run.objects.clone(), o).unwrap();
    refused(follower.newest().unwrap_err());
    refused(follower.stage(&newest, &mut |_| Ok(())).unwrap_err());
    drop(follower);
    // With leave; after that it follows the other one.
    let mut o = FollowOptions::default();
    o.rewind = true;
    let mut follower = other.follower(dir.path(), o).unwrap();
    let newest = follower.newest().unwrap().unwrap();
    let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
    follower.commit(staged).unwrap();
    drop(follower);
    other.save(&[1]);
    other.follow(dir.path()).unwrap();
    other.check(dir.path(), 2);
}

#[test]
fn a_version_of_another_run_that_was_not_committed_changes_nothing() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    let mut other = Run::new();
    other.save(&[0]);
    let before = fs::read_link(dir.path().join("current")).unwrap();
    let mut o = FollowOptions::default();
    o.rewind = true;
    let mut follower = other.follower(dir.path(), o).unwrap();
    let newest = follower.newest().unwrap().unwrap();
    let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
    follower.commit(staged).unwrap();
    drop(follower);
    // As if the process had ended between the note and the link.
    fs::remove_file(dir.path().join("current")).unwrap();
    std::os::unix::fs::symlink(before, dir.path().join("current")).unwrap();
    assert_eq!(other.follow(dir.path()).unwrap_err().kind(), ErrorKind::Usage);
    run.save(&[0]);
    run.follow(dir.path()).unwrap().unwrap();
    run.check(dir.path(), 1);
}

#[test]
fn versions_of_an_unknown_run_must_be_the_stores() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    let marker = dir.path().join(".lmc-follow.json");
    // As after a crash between the note and the link, if no version was to stay beside the new one.
    let mut unknown: serde_json::Value = serde_json::from_slice(&fs::read(&marker).unwrap()).unwrap();
    unknown["committed"] = serde_json::json!([]);
    fs::write(&marker, unknown.to_string()).unwrap();
    let mut other = Run::new();
    other.save(&[0]);
    let e = other.follow(dir.path()).unwrap_err();
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("is not from this store"), "{e}");
    run.save(&[0]);
    run.follow(dir.path()).unwrap().unwrap();
    run.check(dir.path(), 1);
    let e = other.follow(dir.path()).unwrap_err();
    assert!(e.to_string().contains("has versions of run "), "{e}");
}

#[test]
fn a_directory_is_the_followers_own_or_refused() {
    let run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("mine")).unwrap();
    fs::write(at("mine/thesis"), "all of it").unwrap();
    let e = run.follow(&at("mine")).unwrap_err();
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("holds \"thesis\""), "{e}");
    assert_eq!(names(&at("mine")), ["thesis"]);
    let first = run.follower(&at("two"), FollowOptions::default()).unwrap();
    let e = run.follower(&at("two"), FollowOptions::default()).unwrap_err();
    assert!(e.kind() == ErrorKind::Exists && e.to_string().contains("another process follows into it"), "{e}");
    drop(first);
    run.follow(&at("two")).unwrap().unwrap();
    for (marker, kind) in [
        (r#"{"format":"lmc-follow","version":1,"committed":[],"announced":null}"#, "version 1"),
        (r#"{"format":"other","version":2,"committed":[],"announced":null}"#, "format \"other\""),
        ("{", "is not what this lmc writes"),
    ] {
        fs::write(at("two/.lmc-follow.json"), marker).unwrap();
        let e = run.follow(&at("two")).unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains(kind), "{e}");
    }
    // A `current` that lmc did not write.
    run.follow(&at("three")).unwrap().unwrap();
    fs::remove_file(at("three/current")).unwrap();
    std::os::unix::fs::symlink(at("mine"), at("three/current")).unwrap();
    let e = run.follow(&at("three")).unwrap_err();
    assert!(e.to_string().contains("which lmc did not write"), "{e}");
    // Links in the place of files that are written or removed.
    for (link, refused) in [("versions", true), (".lmc-follow.json.new", false)] {
        let place = at(&format!("link-{refused}"));
        fs::create_dir(&place).unwrap();
        std::os::unix::fs::symlink(if refused { at("mine") } else { at("mine/thesis") }, place.join(link)).unwrap();
        if refused {
            // The marker of a follower, so that the directory is not refused for its contents.
            fs::copy(at("three/.lmc-follow.json"), place.join(".lmc-follow.json")).unwrap();
            let e = run.follow(&place).unwrap_err();
            assert!(e.to_string().contains("versions is not a directory"), "{e}");
        } else {
            run.follow(&place).unwrap().unwrap();
            run.check(&place, 0);
        }
        assert_eq!(fs::read(at("mine/thesis")).unwrap(), b"all of it");
    }
    // An empty store has nothing to follow.
    let empty = Follower::open(new_store(&memory()), &at("four"), FollowOptions::default()).unwrap();
    assert!(empty.newest().unwrap().is_none() && empty.current().is_none() && empty.is_announced());
}

#[test]
fn what_was_announced_is_remembered() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    let mut follower = run.follower(dir.path(), FollowOptions::default()).unwrap();
    assert!(!follower.is_announced());
    follower.announce().unwrap();
    assert!(follower.is_announced());
    drop(follower);
    assert!(run.follower(dir.path(), FollowOptions::default()).unwrap().is_announced());
    run.save(&[0]);
    run.follow(dir.path()).unwrap();
    assert!(!run.follower(dir.path(), FollowOptions::default()).unwrap().is_announced());
    // Nor is the one before, if it comes back.
    let mut o = FollowOptions::default();
    o.rewind = true;
    let mut follower = run.follower(dir.path(), o).unwrap();
    let first = run.store.find(lmc_store::At::Step(step(0))).unwrap();
    let staged = follower.stage(&first, &mut |_| Ok(())).unwrap();
    assert_eq!((staged.written_size, staged.linked_size), (0, 0));
    follower.commit(staged).unwrap();
    run.check(dir.path(), 0);
    assert!(!follower.is_announced());
}

#[test]
fn the_version_before_stays_in_the_order_of_commits() {
    let mut run = Run::new();
    (0..5).for_each(|_| run.save(&[1]));
    let dir = tempfile::tempdir().unwrap();
    let mut o = FollowOptions::default();
    o.rewind = true;
    let mut follower = run.follower(dir.path(), o).unwrap();
    let stage = |follower: &mut Follower, n: u64| {
        let snapshot = run.store.find(lmc_store::At::Step(step(n))).unwrap();
        follower.stage(&snapshot, &mut |_| Ok(())).unwrap()
    };
    let there = || -> Vec<String> {
        let all = names(&dir.path().join("versions"));
        all.iter().filter(|n| !n.ends_with(".json")).map(|n| n.split('-').next().unwrap().to_owned()).collect()
    };
    for n in [3, 4, 1] {
        let staged = stage(&mut follower, n);
        follower.commit(staged).unwrap();
    }
    assert_eq!(there(), ["1", "4"]);
    // A version that is only staged is removed first.
    let (other, two) = (stage(&mut follower, 5), stage(&mut follower, 2));
    assert_eq!(there(), ["1", "2", "4", "5"]);
    follower.commit(two.clone()).unwrap();
    assert_eq!(there(), ["1", "2"]);
    let e = follower.commit(other).unwrap_err();
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("is no version that was staged in"), "{e}");
    run.check(dir.path(), 2);
    let again = stage(&mut follower, 2);
    assert_eq!(again.version, two.version);
    follower.commit(again).unwrap();
    assert_eq!(there(), ["1", "2"]);
}
