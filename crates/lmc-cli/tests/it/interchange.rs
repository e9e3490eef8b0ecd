//! `lmc publish --interchange` and `lmc follow` of its output.

use serde_json::json;

use crate::support::{Dir, Moments, kill_after, noise, safetensors, wait_until, weights};

const TENSORS: usize = 40_000;

/// The weights of a step.
fn model(n: u64) -> Vec<u8> {
    let mut data = weights(TENSORS, 1);
    (0..n).for_each(|i| {
        data.iter_mut().step_by(2).zip(noise(TENSORS, i)).filter(|(_, m)| m % 30 == 0).for_each(|(w, m)| *w ^= m)
    });
    safetensors(&[("t", "BF16", &[40_000], &data), ("n", "I64", &[], &n.to_le_bytes())])
}

fn write(dir: &Dir, n: u64) {
    std::fs::create_dir_all(dir.path("v/.new")).unwrap();
    dir.write("v/.new/model.safetensors", &model(n));
    dir.write("v/.new/config.json", b"{}");
    std::fs::rename(dir.path("v/.new"), dir.path(format!("v/step-{n}"))).unwrap();
}

const PUBLISH: [&str; 9] = ["publish", "s", "v", "--once", "--settle", "0", "--interchange", "out", "--json"];

/// The step that a directory has, by its tensors.
fn step(dir: &Dir, of: &str) -> Option<u64> {
    let there = dir.read(&format!("{of}/current/model.safetensors"));
    // The header of a full version has checksums, which the followed files lack.
    let data = |file: &[u8]| file[file.len() - 2 * TENSORS - 8..].to_vec();
    (0..9).find(|&n| data(&there) == data(&model(n)))
}

#[test]
fn versions_are_written_beside_the_store_and_followed_without_it() {
    let dir = Dir::new();
    // Of the earlier snapshots of the store, only the newest is written.
    (1..=2).for_each(|n| write(&dir, n));
    dir.run(["-q", "publish", "s", "v", "--once", "--settle", "0"]).silent();
    (3..=4).for_each(|n| write(&dir, n));
    let json = dir.run(PUBLISH);
    let written: Vec<_> = json.ok().json().into_iter().filter(|j| j["interchange"].is_string()).collect();
    let of = |key: &str| written.iter().map(|j| j[key].clone()).collect::<Vec<_>>();
    assert_eq!(
        (of("version"), of("base")),
        (vec![json!(2), json!(3), json!(4)], vec![json!(null), json!(2), json!(3)])
    );
    assert!(written[1]["written_size"].as_u64().unwrap() < written[0]["written_size"].as_u64().unwrap() / 5);
    assert_eq!(of("tensors"), [2, 2, 2]);
    let first = dir.run(["follow", "out", "m", "--once", "--exec", "test $LMC_STEP = 4"]);
    assert!(first.ok().stderr().contains("m/current : step 4, the first one, "), "{first:?}");
    assert_eq!((step(&dir, "m"), dir.read("m/current/config.json")), (Some(4), b"{}".to_vec()));
    dir.run(["follow", "out", "m", "--once"]).silent();
    write(&dir, 7);
    let gap = dir.run(["publish", "s", "v", "--once", "--settle", "0", "--interchange", "out"]);
    let said = gap.ok().stderr();
    assert!(said.contains("out/weight_v000007 : from version 4, ") && said.contains("not one apart"), "{said}");
    let followed = dir.run(["follow", "out", "m", "--once", "--json"]);
    let followed = &followed.ok().json()[0];
    assert_eq!((&followed["step"], &followed["from"], step(&dir, "m")), (&json!(7), &json!(4), Some(7)));
    assert!(followed["fetched_size"].as_u64().unwrap() < followed["raw_size"].as_u64().unwrap() / 5, "{followed}");
    // A delta alone is no version to begin with.
    dir.shell("mkdir other && cp -r out/weight_v000007 other/").ok();
    dir.run(["follow", "other", "n", "--once"]).fails(&["against version 4, which is not there"]);
    dir.run(["publish", "s", "v", "--once", "--interchange", "v"]).is_misused(&["is where the run writes"]);
    dir.run(["publish", "s", "v", "--once", "--interchange", "s/x"]).is_misused(&["is in the store s"]);
}

#[test]
fn what_a_follower_waits_for_is_said_once() {
    let dir = Dir::new();
    write(&dir, 1);
    dir.run(PUBLISH).ok();
    std::fs::create_dir(dir.path("out/weight_v000009")).unwrap();
    let follower = dir.in_background(["follow", "out", "m", "--interval", "0.01"], "said");
    let said = || String::from_utf8(dir.read("said")).unwrap();
    wait_until("it is said", || {
        said().contains("out/weight_v000009: is waited for: it has no model.safetensors.index.json")
    });
    write(&dir, 2);
    dir.run(PUBLISH).ok();
    let there = "m/current/model.safetensors";
    wait_until("step 2 is followed", || dir.has(there) && step(&dir, "m") == Some(2));
    drop(follower);
    assert_eq!(said().matches("is waited for").count(), 1, "{}", said());
}

#[test]
fn what_cannot_be_a_version_is_reported_and_left_out() {
    let dir = Dir::new();
    write(&dir, 1);
    dir.run(PUBLISH).ok();
    dir.shell("mkdir -p v/step-2 v/step-3/sub v/step-4 && echo pickle > v/step-2/model.bin").ok();
    dir.write("v/step-3/sub/model.safetensors", &model(3));
    dir.write("v/step-4/a.safetensors", &model(4));
    dir.write("v/step-4/b.safetensors", &model(4));
    write(&dir, 5);
    let run = dir.run(PUBLISH);
    let said = run.ok().stderr();
    for why in ["step 2 is no version", "has no tensors in", "step 3 is no version", "step 4 is no version"] {
        assert!(said.contains(why), "{said}");
    }
    let written: Vec<_> = run.json().into_iter().filter(|j| j["interchange"].is_string()).collect();
    assert_eq!((written.len(), &written[0]["version"], &written[0]["base"]), (1, &json!(5), &json!(1)));
    // They are not reported again, as later versions exist.
    let again = dir.run(PUBLISH);
    assert!(!again.ok().stderr().contains("is no version"), "{again:?}");
    dir.run(["-q", "follow", "out", "m", "--once"]).silent();
    assert_eq!(step(&dir, "m"), Some(5));
    // A directory with the versions of another run is not passed over in silence.
    dir.shell("mkdir w && cp -r v/step-1 w/").ok();
    let other = dir.run(["-q", "publish", "s2", "w", "--once", "--settle", "0", "--interchange", "out"]);
    other.is_misused(&["out: holds versions of another run, up to 5"]);
    // Nor is a pruned one missed.
    for n in ["6", "7"] {
        dir.run(["-q", "snapshot", "save", "s", "v/step-5", "--step", n]).ok();
    }
    dir.run(["-q", "snapshot", "prune", "s", "--drop", "6", "--yes"]).ok();
    let run = dir.run(PUBLISH);
    assert!(run.ok().json()[0]["version"] == json!(7) && !run.stderr().contains("step 6"), "{run:?}");
}

/// Kills at as many moments as `LMC_KILLS` says.
#[test]
fn after_a_kill_the_next_publisher_writes_what_is_missing() {
    let dir = Dir::new();
    (1..=3).for_each(|n| write(&dir, n));
    let moments = Moments::of(12, 7, || _ = dir.run(PUBLISH).ok());
    let expected = dir.shell("cd out && sha256sum weight_v*/model-*").stdout().to_owned();
    for moment in moments.iter() {
        dir.shell("rm -rf s out m").ok();
        let mut child = dir.command(PUBLISH).stdout(std::process::Stdio::null()).spawn().unwrap();
        kill_after(&mut child, moment);
        // Every version is whole.
        if dir.has("out") && dir.names().iter().any(|name| name.starts_with("out/weight_v")) {
            dir.run(["-q", "follow", "out", "m", "--once"]).silent();
            assert!(step(&dir, "m").is_some());
        }
        dir.run(PUBLISH).ok();
        // An empty directory begins with the newest version that the store has; later versions are deltas.
        let deltas = dir.shell("cd out && sha256sum weight_v*/model-* 2> /dev/null || true");
        assert!(deltas.stdout().lines().all(|delta| expected.contains(delta)), "{deltas:?}");
        dir.run(["-q", "follow", "out", "m", "--once"]).silent();
        assert_eq!(step(&dir, "m"), Some(3));
    }
}

#[test]
fn after_a_kill_a_follower_has_one_whole_version() {
    let dir = Dir::new();
    (1..=3).for_each(|n| write(&dir, n));
    dir.run(PUBLISH).ok();
    dir.shell("cp -r out first && rm -r first/weight_v000002 first/weight_v000003").ok();
    dir.run(["-q", "follow", "first", "origin", "--once"]).silent();
    assert_eq!(step(&dir, "origin"), Some(1));
    let moments = Moments::of(25, 3, || dir.run(["-q", "follow", "out", "whole", "--once"]).silent());
    let mut versions = [0, 0];
    for moment in moments.iter() {
        // Links: a copy would have other inodes than were recorded.
        dir.shell("rm -rf m && cp -al origin m").ok();
        let mut child = dir.command(["-q", "follow", "out", "m", "--once"]).spawn().unwrap();
        kill_after(&mut child, moment);
        match step(&dir, "m") {
            Some(1) => versions[0] += 1,
            Some(3) => versions[1] += 1,
            other => panic!("after a kill there is {other:?}"),
        }
        dir.run(["-q", "follow", "out", "m", "--once"]).silent();
        assert_eq!(step(&dir, "m"), Some(3));
    }
    assert!(versions[0] > 0, "{versions:?}");
}
