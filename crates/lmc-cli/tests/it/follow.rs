//! `lmc follow`: new versions as they are saved, commands that run for them, kills and full disks.

use serde_json::json;

use crate::support::{Dir, Moments, kill_after, may_mount, new_store, noise, safetensors, wait_until, weights};

const FILES: [&str; 2] = ["w", "sub/v"];

/// A file of the model at a step.
fn file(name: &str, n: u64) -> Vec<u8> {
    let mut data = weights(40_000, name.len() as u64);
    for i in 0..n {
        data.iter_mut().step_by(2).zip(noise(40_000, i)).for_each(|(w, m)| *w ^= m & 3);
    }
    safetensors(&[("t", "BF16", &[40_000], &data), ("n", "I64", &[], &n.to_le_bytes())])
}

fn save(dir: &Dir, n: u64) {
    save_to(dir, "s", n);
}

fn save_to(dir: &Dir, store: &str, n: u64) {
    FILES.iter().for_each(|name| _ = dir.write(&format!("d/{name}"), &file(name, n)));
    dir.run(["-q", "snapshot", "save", store, "d", "--step", &n.to_string()]).silent();
}

/// Saves a step, and moves its data to `new`.
fn save_apart(dir: &Dir, n: u64) {
    dir.shell("ls s/data > before").ok();
    save(dir, n);
    dir.shell("mkdir new; for d in $(ls s/data); do grep -qx $d before || mv s/data/$d new/; done; ls new/*").ok();
}

/// A store with one snapshot.
fn stored() -> Dir {
    stored_in("s")
}

fn stored_in(store: &str) -> Dir {
    let dir = Dir::new();
    std::fs::create_dir_all(dir.path("d/sub")).unwrap();
    save_to(&dir, store, 0);
    dir
}

/// The step that a directory has, if all of its files are of one.
fn step(dir: &Dir, of: &str) -> Option<u64> {
    let files = FILES.map(|name| dir.read(&format!("{of}/current/{name}")));
    (0..9).find(|&n| FILES.iter().zip(&files).all(|(name, there)| *there == file(name, n)))
}

#[test]
fn the_newest_version_is_followed_and_told_about_until_that_succeeds() {
    let dir = stored();
    // A store that was created, and has no version.
    let location = lmc_store::Location::directory(dir.path("empty")).unwrap();
    drop(lmc_store::Store::create(&location, lmc_store::StoreOptions::default()).unwrap());
    dir.run(["follow", "empty", "none", "--once"]).fails(&["empty: has no version yet"]);
    let first = dir.run(["follow", "s", "m", "--once"]);
    assert!(first.ok().stderr().contains("m/current : step 0, the first one, "), "{first:?}");
    dir.run(["follow", "s", "m", "--once"]).silent();
    assert_eq!(step(&dir, "m"), Some(0));
    save(&dir, 1);
    let calls = ["follow", "s", "m", "--once", "--json", "--exec", "echo $LMC_STEP $LMC_PATH >> calls; test -e works"];
    let failed = dir.run(calls);
    failed.fails(&["step 1: exit status: 1"]);
    let next = &failed.json()[0];
    assert_eq!((&next["step"], &next["from"], &next["linked_size"]), (&json!(1), &json!(0), &json!(0)));
    assert_eq!(next["written_size"], next["raw_size"]);
    assert!(next["fetched_size"].as_u64().unwrap() < next["raw_size"].as_u64().unwrap() / 2, "{next}");
    assert_eq!(step(&dir, "m"), Some(1));
    dir.run(calls).fails(&["exit status"]);
    dir.write("works", b"");
    (0..2).for_each(|_| dir.run(calls).silent());
    let path = std::fs::canonicalize(dir.path("m/current")).unwrap();
    assert_eq!(String::from_utf8(dir.read("calls")).unwrap(), format!("1 {}\n", path.display()).repeat(3));
    // While it runs, a second one is refused.
    let child = dir.in_background(["follow", "s", "m", "--interval", "0.01"], "said");
    save(&dir, 2);
    wait_until("step 2 is followed", || step(&dir, "m") == Some(2));
    dir.run(["follow", "s", "m", "--once"]).fails(&["another process follows into it"]);
    drop(child);
    dir.run(["follow", "s", "m", "--once"]).silent();
}

#[test]
fn a_command_that_fails_is_said_beside_another_failure() {
    let dir = stored();
    let calls = ["follow", "s", "m", "--once", "-q", "--exec", "exit 3"];
    dir.run(calls).fails(&["step 0: exit status: 3"]);
    save_apart(&dir, 1);
    dir.run(calls).fails(&["lmc: s: ", "data/", "; and --exec ", "step 0: exit status: 3"]);
}

#[test]
fn errors_that_may_pass_do_not_end_it_and_are_said_once() {
    let dir = stored();
    dir.run(["-q", "follow", "s", "m", "--once"]).silent();
    save_apart(&dir, 1);
    let following = dir.in_background(["follow", "s", "m", "--interval", "0.01"], "said");
    wait_until("the error is said", || dir.read("said").ends_with(b"\n"));
    // Every try makes and removes a directory.
    let changed = || std::fs::metadata(dir.path("m/versions")).unwrap().modified().unwrap();
    for _ in 0..4 {
        let before = changed();
        wait_until("it is tried again", || changed() != before);
    }
    assert_eq!(step(&dir, "m"), Some(0));
    // At once, so that no try finds a part of it.
    dir.shell("mv new/* s/data/").ok();
    wait_until("step 1 is followed", || step(&dir, "m") == Some(1));
    drop(following);
    let said = String::from_utf8(dir.read("said")).unwrap();
    assert_eq!(said.matches("lmc: ").count(), 1, "{said}");
    assert!(said.contains("data/"), "{said}");
    // A step that goes back is refused at once.
    dir.run(["-q", "snapshot", "save", "other", "d", "--step", "0"]).silent();
    dir.run(["follow", "other", "m"]).is_misused(&[
        "has versions of run",
        "the store is of run",
        "(--rewind, rewind=True)",
    ]);
    dir.run(["-q", "snapshot", "copy", "s", "copy", "--at", "0"]).ok();
    dir.run(["follow", "copy", "m"]).is_misused(&["has step 1", "of step 0", "(--rewind, rewind=True)"]);
    dir.run(["-q", "follow", "other", "m", "--once", "--rewind"]).silent();
    dir.run(["follow", "s", "s/m", "--once"]).is_misused(&["is in the store s"]);
    for bad in ["0", "1e9", "x"] {
        let misused = dir.run(["follow", "s", "m", "--interval", bad]);
        assert!(misused.stderr().contains("invalid value") && misused.stderr().contains("--interval"), "{misused:?}");
    }
}

#[test]
fn what_cannot_be_removed_does_no_harm() {
    let dir = stored();
    dir.run(["-q", "follow", "s", "m", "--once"]).silent();
    let old = std::fs::read_link(dir.path("m/current")).unwrap();
    // Deeper than directories may be open: neither an old version nor what is unfinished can be removed.
    let deep = "d/".repeat(300);
    let stuck = [format!("m/{}", old.display()), "m/versions/unfinished".to_owned()];
    stuck.iter().for_each(|of| std::fs::create_dir_all(dir.path(format!("{of}/{deep}"))).unwrap());
    let limited = |n: u64| {
        save(&dir, n);
        for _ in 0..2 {
            dir.shell("ulimit -n 150; exec $LMC -q follow s m --once").silent();
            assert_eq!(step(&dir, "m"), Some(n));
            assert!(stuck.iter().all(|of| dir.path(format!("{of}/{deep}")).is_dir()), "step {n}");
        }
    };
    limited(1);
    limited(2);
    // Later they can.
    save(&dir, 3);
    dir.run(["-q", "follow", "s", "m", "--once"]).silent();
    let versions = std::fs::read_dir(dir.path("m/versions")).unwrap().map(|e| e.unwrap().file_name());
    let current = std::fs::read_link(dir.path("m/current")).unwrap();
    let name = current.file_name().unwrap().to_str().unwrap();
    let mut versions: Vec<_> = versions.map(|name| name.into_string().unwrap()).collect();
    versions.sort();
    // This version and the one before, each with its list of files.
    assert!(versions.len() == 4 && versions[2..] == [name.to_owned(), format!("{name}.json")], "{versions:?}");
}

/// Kills at as many moments as `LMC_KILLS` says.
#[test]
fn after_a_kill_there_is_one_whole_version_on_each_backend() {
    let store = &new_store()[..];
    let dir = stored_in(store);
    dir.run(["-q", "follow", store, "origin", "--once"]).silent();
    save_to(&dir, store, 1);
    let moments = Moments::of(40, 7, || dir.run(["-q", "follow", store, "whole", "--once"]).silent());
    let mut versions = [0, 0];
    for moment in moments.iter() {
        // Links: a copy would have other inodes than were recorded.
        dir.shell("rm -rf m && cp -al origin m").ok();
        let mut child = dir.command(["-q", "follow", store, "m", "--once"]).spawn().unwrap();
        kill_after(&mut child, moment);
        let found = step(&dir, "m").expect("one whole version");
        versions[found as usize] += 1;
        dir.run(["-q", "follow", store, "m", "--once"]).silent();
        assert_eq!(step(&dir, "m"), Some(1));
        assert_eq!(std::fs::read_dir(dir.path("m/versions")).unwrap().count(), 4, "{moment:?}");
        assert!(!dir.has("m/.current.new"));
    }
    println!("{store}: {versions:?} of {} kills left the version before, or the new one", moments.count());
    assert!(moments.count() < 20 || versions[0] > 0, "{versions:?}");
}

#[test]
fn the_current_version_is_told_about_if_the_next_one_is_bad() {
    let dir = stored();
    dir.run(["-q", "follow", "s", "m", "--once"]).silent();
    save_apart(&dir, 1);
    let calls = ["-q", "follow", "s", "m", "--once", "--exec", "echo $LMC_STEP >> calls"];
    dir.run(calls).fails(&["step 1", "data/"]);
    assert_eq!(dir.read("calls"), b"0\n");
    dir.shell("cp -r new/* s/data/").ok();
    dir.run(calls).silent();
    assert_eq!(dir.read("calls"), b"0\n1\n");
}

#[test]
fn it_waits_for_a_store() {
    let dir = Dir::new();
    let child = dir.in_background(["follow", "s", "m", "--interval", "0.01"], "said");
    wait_until("it has looked", || dir.read("said").ends_with(b"\n"));
    std::fs::create_dir_all(dir.path("d/sub")).unwrap();
    save(&dir, 0);
    wait_until("step 0 is followed", || dir.has("m/current") && step(&dir, "m") == Some(0));
    drop(child);
}

#[test]
fn many_files_need_few_descriptors() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("d")).unwrap();
    for n in 0..2 {
        (0..200).for_each(|i| _ = dir.write(&format!("d/{i}"), &[n; 200]));
        dir.run(["-q", "snapshot", "save", "s", "d"]).silent();
        dir.shell("ulimit -n 64; exec $LMC -q follow s m --once").silent();
        assert_eq!(dir.read("m/current/199"), [n; 200]);
    }
}

#[test]
fn the_current_version_is_verified_at_the_beginning() {
    let dir = stored();
    let calls = ["follow", "s", "m", "--once", "--verify", "--exec", "echo $LMC_STEP >> calls"];
    dir.run(calls).ok();
    dir.run(calls).silent();
    // Bits that changed on the disk: neither length nor time say so.
    dir.shell(
        "cp -p m/current/w w; printf XXXX | dd of=m/current/w bs=1 seek=4000 conv=notrunc && touch -r w m/current/w",
    )
    .ok();
    std::fs::remove_file(dir.path("m/current/sub/v")).unwrap();
    dir.run(["follow", "s", "m", "--once"]).silent();
    assert_eq!(dir.read("m/current/w")[4000..4004], *b"XXXX");
    let restored = dir.run(calls);
    let said: Vec<&str> = restored.ok().stderr().lines().collect();
    let what = |name| format!("lmc: m/current/{name}: was not what was published, and was restored");
    assert_eq!(said, [what("sub/v"), what("w")]);
    assert_eq!(step(&dir, "m"), Some(0));
    // The command runs again.
    assert_eq!(dir.read("calls"), b"0\n0\n");
    dir.run(calls).silent();
    dir.write("m/current/w", b"something else");
    let restored = dir.run(["-q", "follow", "s", "m", "--once", "--verify", "--json"]);
    let [object] = &restored.ok().json()[..] else { panic!("{restored:?}") };
    assert_eq!((&object["step"], &object["restored"]), (&json!(0), &json!(["w"])));
    assert_eq!(object["written_size"], json!(file("w", 0).len()));
    assert_eq!(step(&dir, "m"), Some(0));
    // What cannot be restored is an error, as long as that is so.
    dir.write("m/current/w", b"something else");
    dir.shell("mv s/data data").ok();
    dir.run(["follow", "s", "m", "--once", "--verify"]).fails(&["step 0, w", "data/"]);
    assert_eq!(dir.read("m/current/w"), b"something else");
    dir.shell("mv data s/data").ok();
    dir.run(["-q", "follow", "s", "m", "--once", "--verify"]).silent();
    assert_eq!(step(&dir, "m"), Some(0));
    let left = std::fs::read_dir(dir.path("m/versions")).unwrap().count();
    assert_eq!(left, 2, "a version and its description");
}

/// Kills at as many moments as `LMC_KILLS` says, and when the first file was restored.
#[test]
fn after_a_kill_a_file_is_the_damaged_one_or_restored() {
    let dir = stored();
    dir.run(["-q", "follow", "s", "origin", "--once"]).silent();
    let damaged = FILES.map(|name| [&b"XXXX"[..], &file(name, 0)].concat());
    FILES.iter().zip(&damaged).for_each(|(name, bytes)| _ = dir.write(&format!("origin/current/{name}"), bytes));
    let repair = ["-q", "follow", "s", "m", "--once", "--verify"];
    let copy = || _ = dir.shell("rm -rf m && cp -a origin m").ok();
    let is_restored = |name: &str| dir.read(&format!("m/current/{name}")) == file(name, 0);
    copy();
    let moments = Moments::of(40, 7, || dir.run(repair).silent());
    assert_eq!(step(&dir, "m"), Some(0));
    for moment in moments.iter().map(Some).chain([None]) {
        copy();
        let mut child = dir.command(repair).spawn().unwrap();
        if moment.is_none() {
            wait_until("a file is restored", || FILES.iter().any(|name| is_restored(name)));
        }
        kill_after(&mut child, moment.unwrap_or_default());
        for (name, damaged) in FILES.iter().zip(&damaged) {
            assert!(is_restored(name) || dir.read(&format!("m/current/{name}")) == *damaged, "{name}, {moment:?}");
        }
        dir.run(repair).silent();
        assert_eq!(step(&dir, "m"), Some(0));
        assert_eq!(std::fs::read_dir(dir.path("m/versions")).unwrap().count(), 2, "{moment:?}");
    }
}

#[test]
fn a_full_disk_leaves_the_version_before() {
    let dir = stored();
    dir.run(["-q", "follow", "s", "m", "--once"]).silent();
    save(&dir, 1);
    for blocks in [0, 1, 50, 100] {
        dir.shell(&format!("ulimit -f {blocks}; exec $LMC follow s m --once")).fails(&["cannot write"]);
        assert_eq!(step(&dir, "m"), Some(0), "{blocks}");
        assert_eq!(std::fs::read_dir(dir.path("m/versions")).unwrap().count(), 2, "{blocks}");
    }
    dir.run(["-q", "follow", "s", "m", "--once"]).silent();
    assert_eq!(step(&dir, "m"), Some(1));
}

/// Space for one page more each time, until there is enough.
#[test]
fn a_file_system_without_space_leaves_the_version_before_on_each_backend() {
    if !may_mount() {
        return;
    }
    let store = new_store();
    let dir = stored_in(&store);
    dir.run(["-q", "follow", &store, "origin", "--once"]).silent();
    save_to(&dir, &store, 1);
    let seen_from_full = if dir.has(&store) { format!("../{store}") } else { store };
    let sweep = dir.full_disk(
        "cp -a origin full/m",
        &format!(r#""$LMC" -q follow {seen_from_full} m --once"#),
        "cmp m/current/w ../origin/current/w && cmp m/current/sub/v ../origin/current/sub/v && test ! -e m/versions/.staging",
    );
    // The last try succeeded, and none left anything behind.
    assert_eq!(step(&dir, "left/m"), Some(1));
    assert_eq!(std::fs::read_dir(dir.path("left/m/versions")).unwrap().count(), 4);
    assert!(sweep.failures > 2 * 80_000 / 4096, "{sweep:?}");
}
