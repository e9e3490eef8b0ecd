//! Files of the current version that are no longer what was published.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use crate::follow::Run;
use crate::support::{data_objects, step};
use lmc_store::{At, ErrorKind, FollowOptions, Keep, RebaseOptions, Repaired};
use object_store::ObjectStoreExt;

fn repair(run: &Run, directory: &Path) -> lmc_store::Result<Repaired> {
    let mut follower = run.follower(directory, FollowOptions::default())?;
    let mut read = 0;
    let repaired = follower.repair(&mut |n| {
        read = n;
        Ok(())
    })?;
    assert_eq!(read, run.saved.last().unwrap().iter().map(|f| f.1.len() as u64).sum::<u64>());
    Ok(repaired)
}

/// Flips a bit of a file, and leaves its time.
fn damage(path: &Path, at: u64) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.set_modified(time).unwrap();
}

#[test]
fn what_differs_is_restored_and_nothing_else() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        run.follower(dir.path(), FollowOptions::default()).unwrap().repair(&mut |_| Ok(())).unwrap().files.len(),
        0
    );
    run.follow(dir.path()).unwrap();
    run.save(&[0]);
    run.follow(dir.path()).unwrap();
    let current = fs::canonicalize(dir.path().join("current")).unwrap();
    let description = current.with_file_name(format!("{}.json", current.file_name().unwrap().to_str().unwrap()));
    let inodes =
        || ["a.safetensors", "sub/b.safetensors", "config"].map(|f| fs::metadata(current.join(f)).unwrap().ino());
    let (before, noted) = (inodes(), fs::metadata(&description).unwrap().ino());
    // All is well: nothing is fetched or written.
    assert_eq!(repair(&run, dir.path()).unwrap(), Repaired::default());
    assert_eq!((inodes(), fs::metadata(&description).unwrap().ino()), (before, noted));
    // Every part of a file: its header, tensors, and what shares a block set with other files.
    for (name, index) in [("a.safetensors", 0), ("sub/b.safetensors", 1), ("config", 2)] {
        let len = run.saved[1][index].1.len() as u64;
        for at in [0, len / 2, len - 1] {
            damage(&current.join(name), at);
            let repaired = repair(&run, dir.path()).unwrap();
            assert_eq!((&repaired.files[..], repaired.written_size), (&[name.to_owned()][..], len), "byte {at}");
            run.check(dir.path(), 1);
        }
        assert_eq!(inodes()[index + 1..], before[index + 1..], "files that were sound");
    }
    // The next one is made from sound files.
    run.save(&[1]);
    let next = run.follow(dir.path()).unwrap().unwrap();
    assert_eq!(next.linked_size, [0, 2].map(|i| run.saved[2][i].1.len() as u64).iter().sum::<u64>());
    run.check(dir.path(), 2);
}

#[test]
fn whatever_is_in_the_place_of_a_file_is_replaced() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    let current = fs::canonicalize(dir.path().join("current")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let a = elsewhere.path().join("a");
    fs::rename(current.join("a.safetensors"), &a).unwrap();
    symlink(&a, current.join("a.safetensors")).unwrap();
    fs::remove_dir_all(current.join("sub")).unwrap();
    fs::remove_file(current.join("config")).unwrap();
    fs::create_dir_all(current.join("config/x")).unwrap();
    // A marker that says what was announced is no longer true.
    let mut follower = run.follower(dir.path(), FollowOptions::default()).unwrap();
    follower.announce().unwrap();
    let repaired = follower.repair(&mut |_| Ok(())).unwrap();
    assert!(!follower.is_announced());
    drop(follower);
    assert_eq!(repaired.files, ["a.safetensors", "sub/b.safetensors", "config"]);
    run.check(dir.path(), 0);
    assert!(fs::symlink_metadata(current.join("a.safetensors")).unwrap().is_file() && a.is_file());
    // A link in the place of a directory, whether it leads to the same bytes or to others; and a file.
    let b = elsewhere.path().join("b.safetensors");
    for content in [fs::read(current.join("sub/b.safetensors")).unwrap(), b"others".to_vec()] {
        fs::write(&b, &content).unwrap();
        fs::remove_dir_all(current.join("sub")).unwrap();
        symlink(elsewhere.path(), current.join("sub")).unwrap();
        assert_eq!(repair(&run, dir.path()).unwrap().files, ["sub/b.safetensors"]);
        run.check(dir.path(), 0);
        assert!(fs::symlink_metadata(current.join("sub")).unwrap().is_dir() && fs::read(&b).unwrap() == content);
    }
    fs::remove_dir_all(current.join("sub")).unwrap();
    fs::write(current.join("sub"), "a file").unwrap();
    assert_eq!(repair(&run, dir.path()).unwrap().files, ["sub/b.safetensors"]);
    run.check(dir.path(), 0);
    // Only the time of a file changed: it is believed again, without being written.
    let touched = current.join("sub/b.safetensors");
    let was = fs::metadata(&touched).unwrap();
    let time = was.modified().unwrap() - std::time::Duration::from_secs(9);
    File::options().write(true).open(&touched).unwrap().set_modified(time).unwrap();
    assert_eq!(repair(&run, dir.path()).unwrap().files.len(), 0);
    assert_eq!(fs::metadata(&touched).unwrap().ino(), was.ino());
    run.save(&[0]);
    let next = run.follow(dir.path()).unwrap().unwrap();
    assert_eq!(next.linked_size, [1, 2].map(|i| run.saved[1][i].1.len() as u64).iter().sum::<u64>());
    // Without the description nothing is known, and everything is compared with the store.
    let description = fs::read_link(dir.path().join("current")).unwrap();
    fs::remove_file(dir.path().join(format!("{}.json", description.to_str().unwrap()))).unwrap();
    damage(&dir.path().join("current/config"), 3);
    let repaired = repair(&run, dir.path()).unwrap();
    assert_eq!(repaired.files, ["config"]);
    run.check(dir.path(), 1);
    assert_eq!(repair(&run, dir.path()).unwrap(), Repaired::default());
}

#[test]
fn what_cannot_be_restored_is_an_error_and_left() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    let path = dir.path().join("current/a.safetensors");
    damage(&path, 5000);
    let damaged = fs::read(&path).unwrap();
    let objects = data_objects(&run.objects);
    for (key, _) in &objects {
        futures::executor::block_on(run.objects.delete(&(&key[..]).into())).unwrap();
    }
    for _ in 0..2 {
        let e = repair(&run, dir.path()).unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("step 0, a.safetensors"), "{e}");
        assert!(fs::read(&path).unwrap() == damaged);
        assert_eq!(fs::read_dir(dir.path().join("versions")).unwrap().count(), 2);
    }
    for (key, bytes) in objects {
        futures::executor::block_on(run.objects.put(&(&key[..]).into(), bytes.into())).unwrap();
    }
    assert_eq!(repair(&run, dir.path()).unwrap().files, ["a.safetensors"]);
    run.check(dir.path(), 0);
    // The store has it no longer.
    run.save(&[0]);
    let mut keep = Keep::default();
    keep.steps = [step(1)].into();
    run.store.prune(&run.store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    assert_eq!(run.store.find(At::Step(step(0))).unwrap_err().kind(), ErrorKind::NotFound);
    let e = repair(&run, dir.path()).unwrap_err();
    assert!(
        e.kind() == ErrorKind::NotFound && e.to_string().contains("cannot be verified: the store has no snapshot"),
        "{e}"
    );
    let e = repair(&Run::new(), dir.path()).unwrap_err();
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("has versions of run"), "{e}");
}
