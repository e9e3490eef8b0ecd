//! `lmc publish --interchange`.

use lmc_testing::interchange::received;
use serde_json::json;

use crate::support::{Dir, Moments, kill_after, noise, safetensors, weights};

const TENSORS: usize = 40_000;

/// The weights of a step.
fn trained(n: u64) -> Vec<u8> {
    let mut data = weights(TENSORS, 1);
    (0..n).for_each(|i| {
        data.iter_mut().step_by(2).zip(noise(TENSORS, i)).filter(|(_, m)| m % 30 == 0).for_each(|(w, m)| *w ^= m)
    });
    data
}

fn model(n: u64) -> Vec<u8> {
    safetensors(&[("t", "BF16", &[40_000], &trained(n)), ("n", "I64", &[], &n.to_le_bytes())])
}

fn write(dir: &Dir, n: u64) {
    std::fs::create_dir_all(dir.path("v/.new")).unwrap();
    dir.write("v/.new/model.safetensors", &model(n));
    dir.write("v/.new/config.json", b"{}");
    std::fs::rename(dir.path("v/.new"), dir.path(format!("v/step-{n}"))).unwrap();
}

const PUBLISH: [&str; 9] = ["publish", "s", "v", "--once", "--settle", "0", "--interchange", "out", "--json"];

/// Fails unless a version has the tensors of a step.
#[track_caller]
fn check(dir: &Dir, version: u64, step: u64) {
    let tensors = received(dir.path("out").as_ref(), version);
    assert_eq!(tensors.len(), 2);
    assert!(tensors["t"].2 == trained(step) && tensors["n"].2 == step.to_le_bytes(), "version {version}");
}

#[test]
fn versions_are_written_beside_the_store() {
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
    (2..=4).for_each(|n| check(&dir, n, n));
    assert_eq!(dir.read("out/weight_v000002/config.json"), b"{}");
    write(&dir, 7);
    let gap = dir.run(["publish", "s", "v", "--once", "--settle", "0", "--interchange", "out"]);
    let said = gap.ok().stderr();
    assert!(said.contains("out/weight_v000007 : from version 4, ") && said.contains("not one apart"), "{said}");
    check(&dir, 7, 7);
    // It is no store.
    dir.run(["follow", "out", "m", "--once"]).fails(&["out"]);
    dir.run(["publish", "s", "v", "--once", "--interchange", "v"]).is_misused(&["is where the run writes"]);
    dir.run(["publish", "s", "v", "--once", "--interchange", "s/x"]).is_misused(&["is in the store s"]);
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
    check(&dir, 5, 5);
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
        dir.shell("rm -rf s out").ok();
        let mut child = dir.command(PUBLISH).stdout(std::process::Stdio::null()).spawn().unwrap();
        kill_after(&mut child, moment);
        // Every version is whole.
        (1..=3).filter(|n| dir.has(&format!("out/weight_v00000{n}"))).for_each(|n| check(&dir, n, n));
        dir.run(PUBLISH).ok();
        // An empty directory begins with the newest version that the store has; later versions are deltas.
        let deltas = dir.shell("cd out && sha256sum weight_v*/model-* 2> /dev/null || true");
        assert!(deltas.stdout().lines().all(|delta| expected.contains(delta)), "{deltas:?}");
        check(&dir, 3, 3);
    }
}
