//! Mounted stores.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use rustix::io::Errno;

use super::*;

#[test]
fn a_store_is_shown_with_its_steps_and_tags_as_they_are_saved() {
    if !may_mount_fuse() {
        return;
    }
    let dir = Dir::new();
    let models: Vec<Vec<u8>> = (0..3).map(|n| large(10 + n / 2)).collect();
    let save = |step: usize| {
        dir.write("c/sub/model.safetensors", &models[step]);
        dir.write("c/config.json", step.to_string().as_bytes());
        dir.run(["-q", "snapshot", "save", "s", "c", "--step", &step.to_string()]).silent();
    };
    let check = |mounted: &Mounted, step: &str, n: usize| {
        assert_eq!(mounted.names(step), ["config.json", "sub"]);
        assert_eq!(mounted.names(&format!("{step}/sub")), ["model.safetensors"]);
        assert!(mounted.read(&format!("{step}/sub/model.safetensors")) == models[n]);
        assert_eq!(mounted.read(&format!("{step}/config.json")), n.to_string().as_bytes());
    };
    save(0);
    save(1);
    dir.run(["-q", "snapshot", "tag", "s", "best", "0"]).silent();
    let mounted = Mounted::new(&dir, &["s", "mnt"]);
    assert_eq!(mounted.names(""), ["0", "1", "best", "latest"]);
    let link = |name: &str| fs::read_link(mounted.path(name)).unwrap();
    assert_eq!([link("best"), link("latest")], [Path::new("0"), Path::new("1")]);
    for (step, n) in [("0", 0), ("1", 1), ("best", 0), ("latest", 1)] {
        check(&mounted, step, n);
    }
    // What is saved, tagged and pruned meanwhile.
    save(2);
    dir.run(["-q", "snapshot", "tag", "s", "best", "2"]).silent();
    wait_until("the next one is there", || mounted.names("") == ["0", "1", "2", "best", "latest"]);
    wait_until("the links lead to it", || [link("best"), link("latest")] == [Path::new("2"), Path::new("2")]);
    check(&mounted, "best", 2);
    dir.run(["-q", "snapshot", "prune", "s", "--drop", "0", "--yes"]).ok();
    wait_until("it is gone", || !mounted.path("0").exists());
    assert_eq!(error(fs::write(mounted.path("2/config.json"), "x")), Errno::ROFS);
    for missing in ["7", "1/none", "1/su", "1/config.json/x", "best/none"] {
        assert!(fs::metadata(mounted.path(missing)).is_err(), "{missing}");
    }
    assert!(mounted.said().is_empty(), "{:?}", mounted.said());
    drop(mounted);
    // An archive, too.
    dir.run(["-q", "snapshot", "export", "s", "s.tar"]).silent();
    let mounted = Mounted::new(&dir, &["s.tar", "mnt"]);
    check(&mounted, "latest", 2);
}

#[test]
fn damaged_data_of_a_store_are_an_error_and_a_message() {
    if !may_mount_fuse() {
        return;
    }
    let dir = Dir::new();
    dir.write("w", &large(1));
    dir.run(["-q", "snapshot", "save", "s", "w", "--step", "1"]).silent();
    let objects = dir.names().into_iter().filter(|name| name.starts_with("s/data/") && dir.path(name).is_file());
    for object in objects {
        let mut bytes = dir.read(&object);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        dir.write(&object, &bytes);
    }
    let mounted = Mounted::new(&dir, &["s", "mnt"]);
    assert_eq!(mounted.names("1"), ["w"]);
    assert_eq!(error(fs::read(mounted.path("1/w"))), Errno::IO);
    let said = mounted.said();
    assert!(
        !said.is_empty() && said.iter().all(|line| line.starts_with("lmc: s: bytes ") && line.contains("step 1, w")),
        "{said:?}"
    );
}

/// The steps of the store that is read in [`readers_of_a_store_get_its_bytes_or_errors_whatever_is_killed`].
const STEPS: usize = 4;

/// A store, its files with their bytes, and the name of the one whose data are damaged in part.
fn store_with_damage() -> (Dir, Vec<(String, Vec<u8>)>, String) {
    let dir = Dir::new();
    let mut files = Vec::new();
    for step in 0..STEPS {
        // Half of the weights are new in each step.
        let (old, new) = (weights(1_500_000, 1), weights(1_500_000, 2 + step as u64));
        let model = safetensors(&[("a", "BF16", &[1_500_000], &old), ("b", "BF16", &[1_500_000], &new)]);
        let all = [("model.safetensors", model), ("sub/noise", noise(200_000 * step + 1, step as u64))];
        for (name, data) in all {
            dir.write(&format!("c/{name}"), &data);
            files.push((format!("{step}/{name}"), data));
        }
        dir.run(["-q", "snapshot", "save", "s", "c", "--step", &step.to_string()]).silent();
    }
    let before = dir.names();
    let damaged = noise(40_000_000, 77);
    fs::remove_dir_all(dir.path("c")).unwrap();
    dir.write("c/damaged", &damaged);
    dir.run(["-q", "snapshot", "save", "s", "c", "--step", &STEPS.to_string()]).silent();
    let name = format!("{STEPS}/damaged");
    files.push((name.clone(), damaged));
    let is_data = |name: &&String| name.starts_with("s/data/") && dir.path(name).is_file();
    let objects = dir.names().into_iter().filter(|name| !before.contains(name)).filter(|name| is_data(&name));
    let largest = objects.max_by_key(|name| dir.read(name).len()).unwrap();
    let mut bytes = dir.read(&largest);
    let at = bytes.len() / 3;
    bytes[at] ^= 1;
    dir.write(&largest, &bytes);
    (dir, files, name)
}

/// For `LMC_MOUNT_SECONDS`, or for a moment: 64 threads read at random, and other programs fault pages of a map, while
/// programs that read are killed, and then the process that serves them.
#[test]
fn readers_of_a_store_get_its_bytes_or_errors_whatever_is_killed() {
    if !may_mount_fuse() {
        return;
    }
    let seconds = std::env::var("LMC_MOUNT_SECONDS").map_or(0, |n| n.parse().expect("LMC_MOUNT_SECONDS is a number"));
    let (until, reads) = (Instant::now() + Duration::from_secs(seconds), if seconds == 0 { 10 } else { 200 });
    let (dir, files, damaged) = store_with_damage();
    // What the faults of a map are compared with.
    dir.write("model", &files[0].1);
    let (mut round, right, failed) = (0, AtomicUsize::new(0), AtomicUsize::new(0));
    loop {
        let mut mounted = Mounted::new(&dir, &["--cache", "8Mi", "-T", "2", "s", "mnt"]);
        let is_killed = AtomicBool::new(false);
        let read_at_random = |seed: u64| {
            for place in noise(16 * reads, seed).chunks(16) {
                let number = |i: usize| u64::from_le_bytes(place[8 * i..][..8].try_into().unwrap()) as usize;
                let (name, data) = &files[number(0) % files.len()];
                let at = number(1) % data.len();
                let len = (number(0) >> 32) % 2_000_000;
                let len = len.min(data.len() - at);
                let mut read = vec![0; len];
                match File::open(mounted.path(name)).and_then(|file| file.read_exact_at(&mut read, at as u64)) {
                    Ok(()) => {
                        assert!(read == data[at..at + len], "{name}, {at}, {len}");
                        right.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(e) => {
                        let is_expected = *name == damaged && Errno::from_io_error(&e) == Some(Errno::IO);
                        assert!(is_expected || is_killed.load(Ordering::SeqCst), "{name}, {at}, {len}: {e}");
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        let faults = || {
            let mut python = Command::new("python3");
            python.args(["-c", FAULTS]).args([mounted.path("0/model.safetensors"), dir.path("model")]).arg("1280");
            python.stderr(Stdio::null()).spawn().unwrap()
        };
        let kills_server = round % 2 == 1;
        std::thread::scope(|scope| {
            for thread in 0..64 {
                scope.spawn(move || read_at_random(1000 * round + thread));
            }
            let [mut spared, mut killed] = [faults(), faults()];
            std::thread::sleep(Duration::from_millis(100 + 37 * (round % 11)));
            killed.kill().unwrap();
            killed.wait().unwrap();
            if kills_server {
                is_killed.store(true, Ordering::SeqCst);
                assert!(Command::new("kill").args(["-9", &mounted.lmc.id().to_string()]).status().unwrap().success());
                // Its pages are gone: it ends by SIGBUS, or was done.
                spared.wait().unwrap();
            } else {
                assert!(spared.wait().unwrap().success());
            }
        });
        if kills_server {
            mounted.lmc.wait().unwrap();
            assert_eq!(error(fs::read_dir(dir.path("mnt"))), Errno::NOTCONN);
        } else {
            check_damaged(&mounted, &files, &damaged);
        }
        drop(mounted);
        round += 1;
        if round >= 2 && Instant::now() >= until {
            break;
        }
    }
    let (right, failed) = (right.into_inner(), failed.into_inner());
    println!("{round} rounds, {right} reads with the bytes of the original, {failed} errors that were expected");
    assert!(right > 0 && failed > 0);
}

/// Of the damaged file, one block is an error, and all others are read; one line says which.
fn check_damaged(mounted: &Mounted, files: &[(String, Vec<u8>)], damaged: &str) {
    let data = &files.iter().find(|(name, _)| name == damaged).unwrap().1;
    let file = File::open(mounted.path(damaged)).unwrap();
    let (mut failed, mut page) = (0, [0; 4096]);
    let places = || (0..data.len() as u64 - 4096).step_by(1 << 20);
    for at in places() {
        match file.read_exact_at(&mut page, at) {
            Ok(()) => assert!(page == data[at as usize..][..4096], "{at}"),
            Err(e) => {
                assert_eq!(Errno::from_io_error(&e), Some(Errno::IO));
                failed += 1;
            }
        }
    }
    assert!(failed > 0 && failed < places().count(), "{failed}");
    let said = mounted.said();
    let what = format!("step {STEPS}, damaged");
    assert!(said.len() == 1 && said[0].starts_with("lmc: s: bytes ") && said[0].contains(&what), "{said:?}");
}

#[test]
fn a_step_is_found_without_listing_the_others() {
    if !may_mount_fuse() {
        return;
    }
    let dir = Dir::new();
    for step in 0..3 {
        dir.write("w", format!("step {step}").as_bytes());
        dir.run(["-q", "snapshot", "save", "s", "w", "--step", &step.to_string()]).silent();
    }
    dir.run(["-q", "snapshot", "tag", "s", "best", "1"]).silent();
    // A record that cannot be read is no matter of others; who lists names is told.
    let is_record = |name: &String| name.starts_with("s/snapshots/") && dir.path(name).is_file();
    let records: Vec<String> = dir.names().into_iter().filter(is_record).collect();
    // Later steps come first.
    dir.write(records.last().unwrap(), b"{");
    let mounted = Mounted::new(&dir, &["s", "mnt"]);
    assert_eq!(mounted.read("1/w"), b"step 1");
    assert_eq!([mounted.read("best/w"), mounted.read("latest/w")], [&b"step 1"[..], b"step 2"]);
    for missing in ["3", "01", "none", "1/none"] {
        assert_eq!(error(fs::metadata(mounted.path(missing))), Errno::NOENT, "{missing}");
    }
    assert!(mounted.said().is_empty(), "{:?}", mounted.said());
    assert_eq!(mounted.names(""), ["1", "2", "best", "latest"]);
    let said = mounted.said();
    assert!(said.len() == 1 && said[0].starts_with("lmc: s: step 0 is not shown: "), "{said:?}");
}
