//! The order of versions: gaps, other runs, and runs that were rewound.

use std::fs;
use std::path::Path;

use lmc_store::interchange::InterchangeOptions;
use lmc_store::{ErrorKind, FollowOptions, Follower};

use super::{Run, follow, follow_with, is, refused};
use crate::support::step;

#[test]
fn versions_out_of_order_and_other_bases_are_refused() {
    let run = Run::of_three(InterchangeOptions::default(), 100);
    assert_eq!(follow(&run, "m").unwrap(), Some(3));
    // A version between is missing.
    let mut o = FollowOptions::default();
    fs::rename(run.version(2), run.to("gone")).unwrap();
    refused(follow(&run, "n"), ErrorKind::Damaged, "against version 2, which is not there: give the checkpoint");
    // A checkpoint is that version if it is said to be, and nothing is there before it, also nothing unfinished.
    let base = run.checkpoint("base", 2);
    let with = |to: &str, path: &Path, n| follow_with(&run.versions(), &run.to(to), Some((path, n)), o);
    refused(with("n", &base, 0), ErrorKind::Damaged, "is given as version 0: if it is version 2, say so");
    refused(with("n", &base, 2), ErrorKind::Damaged, "and weight_v000001 is: a checkpoint stands only for");
    let index = fs::read(run.index(1)).unwrap();
    fs::remove_file(run.index(1)).unwrap();
    refused(with("n", &base, 2), ErrorKind::Damaged, "and weight_v000001 is");
    fs::rename(run.version(1), run.to("first")).unwrap();
    assert_eq!(with("n", &base, 2).unwrap(), Some(3));
    assert!(run.is_at("n", 3) && run.to("n").join("current/optimizer.pt").exists());
    let other = run.checkpoint("other", 1);
    refused(with("o", &other, 2), ErrorKind::Damaged, "is not version 3's base");
    assert!(!run.to("o").join("current").exists());
    fs::rename(run.to("first"), run.version(1)).unwrap();
    fs::write(run.index(1), index).unwrap();
    fs::rename(run.to("gone"), run.version(2)).unwrap();
    // Back to an earlier one.
    fs::rename(run.version(3), run.to("gone")).unwrap();
    refused(follow(&run, "m"), ErrorKind::Usage, "has step 3");
    o.rewind = true;
    assert_eq!(follow_with(&run.versions(), &run.to("m"), None, o).unwrap(), Some(2));
    assert!(run.is_at("m", 2));
    // Another run with the same numbers.
    let mut again = Run::of_three(InterchangeOptions::default(), 100);
    again.models[2].train(&["head"], 9);
    again.save(again.models[2].clone()).unwrap();
    let another = follow_with(&again.versions(), &run.to("m"), None, FollowOptions::default());
    refused(another, ErrorKind::Usage, "is not the version 2 that is followed");
    assert!(run.is_at("m", 2));
    let mut two = Run::new(InterchangeOptions::default(), 100);
    two.train(&["norm"]);
    let another = follow_with(&two.versions(), &run.to("m"), None, FollowOptions::default());
    refused(another, ErrorKind::Usage, "another snapshot of step 2");
    // A chain that leaves out the followed version.
    fs::rename(run.to("gone"), run.version(3)).unwrap();
    run.rewrite(3, r#""base_version":"000002""#, r#""base_version":"000001""#);
    refused(follow(&run, "m"), ErrorKind::Usage, "comes from version 1, and version 2 is followed");
    refused(follow(&run, "p"), ErrorKind::Damaged, "is not version 3's base");
}

#[test]
fn versions_with_the_same_index_are_told_apart() {
    // As others write them: nothing in an index depends on the weights.
    let o = InterchangeOptions::default();
    let (run, mut other) = (Run::of_three(o, 100), Run::new(o, 100));
    let mut model = other.models[0].clone();
    model.train(&["embed", "head"], 40);
    other.save(model).unwrap();
    other.train(&["embed", "norm", "count"]);
    other.train(&["norm"]);
    fs::rename(other.version(4), other.to("fourth")).unwrap();
    for n in [2, 3] {
        [&run, &other].iter().for_each(|run| run.without_own(n, true));
        assert_eq!(fs::read(run.index(n)).unwrap(), fs::read(other.index(n)).unwrap());
    }
    assert_eq!(follow(&run, "m").unwrap(), Some(3));
    let to = run.to("m");
    let mut follower = Follower::open_interchange(&other.versions(), None, &to, FollowOptions::default()).unwrap();
    assert!(follower.newest().unwrap().is_some());
    drop(follower);
    let none = FollowOptions::default();
    refused(follow_with(&other.versions(), &to, None, none), ErrorKind::Usage, "another snapshot of step 3");
    fs::rename(other.to("fourth"), other.version(4)).unwrap();
    refused(follow_with(&other.versions(), &to, None, none), ErrorKind::Usage, "is not the version 3 that is followed");
    assert!(run.is_at("m", 3));
    // Full versions without checksums are distinguished by their time of writing.
    let (a, b) = (Run::new(o, 50), Run::new(o, 50));
    [&a, &b].iter().for_each(|run| run.without_own(1, false));
    follower = Follower::open_interchange(&a.versions(), None, &a.to("m"), none).unwrap();
    let first = follower.newest().unwrap().unwrap();
    let staged = follower.stage(&first, &mut |_| Ok(())).unwrap();
    follower.commit(staged).unwrap();
    assert!(follower.newest().unwrap().is_none());
    let file = a.version(1).join("model-0.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    assert!(follower.newest().unwrap().is_some_and(|s| s.id != first.id));
}

#[test]
fn what_is_written_while_it_is_copied_is_not_followed() {
    type Case = (&'static str, Option<&'static str>, bool);
    let cases: [Case; 7] = [
        // A full version without checksums: its weights, what is beside them, its index, and all of it.
        ("model-1.safetensors", None, false),
        ("config.json", None, false),
        ("model.safetensors.index.json", None, false),
        ("", None, false),
        // What has checksums and hashes is compared with these.
        ("optimizer.pt", None, true),
        // A checkpoint that others are deltas against.
        ("model-0.safetensors", Some("base"), false),
        ("config.json", Some("base"), false),
    ];
    for (name, base, followed) in cases {
        let mut run = Run::new(InterchangeOptions::default(), 2000);
        let based = base.map(|base| run.checkpoint(base, 1));
        match &based {
            None => run.without_own(1, false),
            Some(_) => {
                run.train(&["head"]);
                fs::remove_dir_all(run.version(1)).unwrap();
            }
        }
        let from = based.clone().unwrap_or_else(|| run.version(1));
        let base = based.as_deref().map(|base| (base, step(1)));
        let o = FollowOptions::default();
        let mut follower = Follower::open_interchange(&run.versions(), base, &run.to("m"), o).unwrap();
        let newest = follower.newest().unwrap().unwrap();
        let mut written = false;
        let staged = follower.stage(&newest, &mut |_| {
            if !std::mem::replace(&mut written, true) {
                match name {
                    // Another version in its place.
                    "" => {
                        fs::rename(&from, run.to("old")).unwrap();
                        fs::create_dir(&from).unwrap();
                        for file in fs::read_dir(run.to("old")).unwrap() {
                            let file = file.unwrap();
                            fs::copy(file.path(), from.join(file.file_name())).unwrap();
                        }
                    }
                    _ => {
                        let mut bytes = fs::read(from.join(name)).unwrap_or_default();
                        bytes.push(b' ');
                        fs::write(from.join(name), bytes).unwrap();
                    }
                }
            }
            Ok(())
        });
        assert!(written, "{name}");
        match followed {
            true => _ = follower.commit(staged.unwrap()).unwrap(),
            false => {
                refused(staged, ErrorKind::Damaged, "changed while it was read");
                assert!(follower.current().is_none() && !run.to("m/current").exists(), "{name}");
            }
        }
    }
}

#[test]
fn a_version_that_is_a_link_is_followed_only_inside_of_its_directory() {
    let run = Run::of_three(InterchangeOptions::default(), 100);
    let moved = |to: &Path| {
        fs::rename(run.version(2), to).unwrap();
        std::os::unix::fs::symlink(to, run.version(2)).unwrap();
    };
    moved(&run.to("outside"));
    refused(follow(&run, "m"), ErrorKind::Damaged, "weight_v000002: is a link to ");
    fs::remove_file(run.version(2)).unwrap();
    fs::rename(run.to("outside"), run.version(2)).unwrap();
    moved(&run.versions().join("inside"));
    assert_eq!(follow(&run, "m").unwrap(), Some(3));
    assert!(run.is_at("m", 3));
}

#[test]
fn a_version_that_is_changed_before_it_is_committed_is_not_the_current_one() {
    let run = Run::of_three(InterchangeOptions::default(), 100);
    let o = FollowOptions::default();
    let mut follower = Follower::open_interchange(&run.versions(), None, &run.to("m"), o).unwrap();
    let newest = follower.newest().unwrap().unwrap();
    for change in
        [&(|path: &Path| fs::remove_file(path).unwrap()) as &dyn Fn(&Path), &|path| fs::write(path, "x").unwrap()]
    {
        let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
        change(&staged.version.path.join("config.json"));
        refused(follower.commit(staged).map(|_| ()), ErrorKind::Damaged, "was changed since it was written");
        assert!(follower.current().is_none());
    }
    let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
    follower.commit(staged).unwrap();
    assert!(run.is_at("m", 3));
}

#[test]
fn a_run_that_was_rewound_is_followed_when_asked_for() {
    let o = InterchangeOptions::default();
    let mut run = Run::of_three(o, 100);
    run.train(&["head"]);
    assert_eq!(follow(&run, "m").unwrap(), Some(4));
    // The run goes back to 2, and has other versions 3, 4 and 5.
    let mut again = Run::new(o, 100);
    again.train(&["embed", "head"]);
    for _ in 0..3 {
        again.train(&["norm"]);
    }
    let mut rewind = FollowOptions::default();
    let followed = |o| follow_with(&again.versions(), &run.to("m"), None, o);
    refused(followed(rewind), ErrorKind::Usage, "is not the version 4 that is followed");
    rewind.rewind = true;
    assert_eq!(followed(rewind).unwrap(), Some(5));
    assert!(is(&run.to("m/current"), &again.models[4]));
    // Also where only the checkpoint before them has a whole model.
    assert_eq!(follow(&run, "n").unwrap(), Some(4));
    fs::remove_dir_all(again.version(1)).unwrap();
    let base = again.checkpoint("base", 1);
    let based = |o| follow_with(&again.versions(), &run.to("n"), Some((&base, 1)), o);
    refused(based(FollowOptions::default()), ErrorKind::Usage, "is not the version 4 that is followed");
    assert_eq!(based(rewind).unwrap(), Some(5));
    assert!(is(&run.to("n/current"), &again.models[4]));
}

#[test]
fn versions_of_another_run_are_not_gone_on_with() {
    let mut run = Run::new(InterchangeOptions::default(), 100);
    run.train(&["embed"]);
    let other = Run::new(InterchangeOptions::default(), 100);
    refused(run.open().unwrap().check(&other.store), ErrorKind::Usage, "holds versions of another run, up to 2");
    run.open().unwrap().check(&run.store).unwrap();
    other.open().unwrap().check(&run.store).unwrap();
}

#[test]
fn deltas_are_applied_once() {
    let mut run = Run::new(InterchangeOptions::default(), 100);
    let mut follower =
        Follower::open_interchange(&run.versions(), None, &run.to("m"), FollowOptions::default()).unwrap();
    let first = follower.newest().unwrap().unwrap();
    let staged = follower.stage(&first, &mut |_| Ok(())).unwrap();
    follower.commit(staged).unwrap();
    run.train(&["embed"]);
    let second = follower.newest().unwrap().unwrap();
    for _ in 0..2 {
        let staged = follower.stage(&second, &mut |_| Ok(())).unwrap();
        let version = staged.version.path.clone();
        assert!(is(&version, &run.models[1]) && run.is_at("m", 1));
    }
    let staged = follower.stage(&second, &mut |_| Ok(())).unwrap();
    follower.commit(staged.clone()).unwrap();
    follower.commit(staged).unwrap();
    assert!(run.is_at("m", 2) && follower.newest().unwrap().is_none());
    drop(follower);
    // A changed file is no base: it is restored from the full version.
    let file = run.to("m").join("current/model-0.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, &bytes).unwrap();
    run.train(&["head"]);
    assert_eq!(follow(&run, "m").unwrap(), Some(3));
    assert!(run.is_at("m", 3));
    fs::write(run.to("m").join("current/model-0.safetensors"), &bytes).unwrap();
    run.train(&["head"]);
    fs::remove_dir_all(run.version(1)).unwrap();
    refused(follow(&run, "m"), ErrorKind::Damaged, "was changed and cannot be the base");
}
