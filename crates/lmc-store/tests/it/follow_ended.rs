//! Work that its caller ends, by an error of `progress`.

use std::fs;

use crate::follow::Run;
use crate::support::options;
use lmc::Dtype;
use lmc_store::{Error, ErrorKind, FollowOptions, Result, Store, TensorFollower, TensorSpec};

fn end(_: u64) -> Result<()> {
    Err(Error::new(ErrorKind::Limit, "it takes too long"))
}

fn has_ended<T: std::fmt::Debug>(done: Result<T>) {
    let e = done.unwrap_err();
    assert!(e.kind() == ErrorKind::Limit && e.to_string().contains("it takes too long"), "{e}");
}

#[test]
fn a_directory_stays_at_its_version() {
    let mut run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    run.save(&[0, 1]);
    let mut follower = run.follower(dir.path(), FollowOptions::default()).unwrap();
    let newest = follower.newest().unwrap().unwrap();
    let versions = || fs::read_dir(dir.path().join("versions")).unwrap().count();
    let before = versions();
    has_ended(follower.stage(&newest, &mut end));
    // What was read locally is not fetched instead, whatever the error.
    let mut ends = 0;
    let mut end_in_the_middle = |done| {
        if done < run.saved[1][0].1.len() as u64 / 2 {
            return Ok(());
        }
        ends += 1;
        Err(Error::new(ErrorKind::Io, "stopped"))
    };
    let e = follower.stage(&newest, &mut end_in_the_middle).unwrap_err();
    assert!(e.kind() == ErrorKind::Io && ends == 1, "{ends}: {e}");
    run.check(dir.path(), 0);
    assert_eq!(versions(), before, "nothing is left over");
    let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
    follower.commit(staged).unwrap();
    run.check(dir.path(), 1);
}

#[test]
fn a_repair_replaces_nothing() {
    let run = Run::new();
    let dir = tempfile::tempdir().unwrap();
    run.follow(dir.path()).unwrap();
    let config = dir.path().join("current/config");
    fs::remove_file(&config).unwrap();
    let mut follower = run.follower(dir.path(), FollowOptions::default()).unwrap();
    has_ended(follower.repair(&mut end));
    assert!(!config.exists());
    assert_eq!(follower.repair(&mut |_| Ok(())).unwrap().files, ["config"]);
    run.check(dir.path(), 0);
}

#[test]
fn tensors_hold_nothing_or_what_they_held() {
    let mut run = Run::new();
    let spec = TensorSpec { name: "other".into(), dtype: Dtype::F32, shape: vec![300, 300], first_row: None };
    let store = Store::open_on(run.objects.clone(), options(1)).unwrap();
    let mut follower = TensorFollower::new(store, vec![spec], FollowOptions::default()).unwrap();
    let mut memory = vec![0; 4 * 300 * 300];
    let first = follower.newest().unwrap().unwrap();
    has_ended(follower.load(&first, &mut [&mut memory], &mut end));
    assert_eq!(follower.current(), None);
    follower.load(&first, &mut [&mut memory], &mut |_| Ok(())).unwrap();
    run.save(&[1]);
    let second = follower.newest().unwrap().unwrap();
    has_ended(follower.stage(&second, &[&memory], &mut end));
    assert_eq!(follower.current(), Some((first.step, first.id)));
    let staged = follower.stage(&second, &[&memory], &mut |_| Ok(())).unwrap();
    follower.commit(&staged, &mut [&mut memory]).unwrap();
    assert!(run.saved[1][1].1.ends_with(&memory));
}
