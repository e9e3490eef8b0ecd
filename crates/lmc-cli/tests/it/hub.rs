//! `lmc hub`: caches of huggingface_hub, as it writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use crate::support::{Dir, Moments, kill_after, noise, safetensors, weights};

/// Elements of a tensor.
const COUNT: usize = 30_000;

/// The weights of a model.
fn base(seed: u64) -> Vec<u8> {
    weights(2 * COUNT, seed)
}

/// Weights after some training.
fn tuned(weights: &[u8], seed: u64) -> Vec<u8> {
    let mut tuned = weights.to_vec();
    tuned.iter_mut().step_by(2).zip(noise(weights.len() / 2, seed)).for_each(|(w, m)| *w ^= m & 3);
    tuned
}

/// A file of weights, whose tensors have names with a prefix.
fn file(weights: &[u8], prefix: &str) -> Vec<u8> {
    let (a, b) = weights.split_at(2 * COUNT);
    let names = ["a", "b"].map(|name| format!("{prefix}{name}.weight"));
    safetensors(&[(&names[0], "BF16", &[COUNT as u64], a), (&names[1], "BF16", &[COUNT as u64], b)])
}

/// Half of the weights, as one shard of two.
fn shard(weights: &[u8], number: usize) -> Vec<u8> {
    let half = &weights[2 * COUNT * number..][..2 * COUNT];
    safetensors(&[(&format!("{number}.weight"), "BF16", &[COUNT as u64], half)])
}

fn set_time(path: &Path, seconds: u64, mode: u32) {
    let file = File::options().write(true).open(path).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Adds a revision of a repository to the cache `hub`, as huggingface_hub downloads it.
pub(crate) fn download(dir: &Dir, repository: &str, revision: &str, files: &[(&str, &[u8])]) {
    for (name, contents) in files {
        let hash = blake3::hash(contents).to_hex();
        let blob = format!("hub/{repository}/blobs/{hash}");
        if !dir.has(&blob) {
            let path = dir.write(&blob, contents);
            set_time(&path, 1_600_000_000 + contents.len() as u64, if name.ends_with("json") { 0o644 } else { 0o444 });
            dir.write(&format!("hub/.locks/{repository}/{hash}.lock"), b"");
        }
        let link = format!("hub/{repository}/snapshots/{revision}/{name}");
        fs::create_dir_all(dir.path(&link).parent().unwrap()).unwrap();
        symlink(format!("{}blobs/{hash}", "../".repeat(name.matches('/').count() + 2)), dir.path(&link)).unwrap();
    }
    dir.write(&format!("hub/{repository}/refs/main"), revision.as_bytes());
    dir.write(&format!("hub/{repository}/.no_exist/{revision}/adapter_config.json"), b"");
}

/// Three families of models: one with two revisions, one in shards, one in a nested folder; each with a model that
/// derives from it.
fn families() -> Dir {
    let dir = Dir::new();
    let config = ("config.json", &b"{}"[..]);
    let (one, two, three) = (base(1), base(2), base(3));
    download(&dir, "models--org--one", "1111", &[config, ("model.safetensors", &file(&one, ""))]);
    download(&dir, "models--org--one", "2222", &[config, ("model.safetensors", &file(&tuned(&one, 10), ""))]);
    download(&dir, "models--user--one-chat", "3333", &[("model.safetensors", &file(&tuned(&one, 11), "model."))]);
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let shards = |w: &[u8]| [shard(w, 0), shard(w, 1)];
    let (original, derived) = (shards(&two), shards(&tuned(&two, 12)));
    download(&dir, "models--org--two", "4444", &[(names[0], &original[0]), (names[1], &original[1])]);
    download(&dir, "models--two-tuned", "5555", &[(names[0], &derived[0]), (names[1], &derived[1])]);
    download(&dir, "models--org--three", "6666", &[("unet/m.safetensors", &file(&three, "")), config]);
    download(&dir, "models--user--three", "7777", &[("unet/m.safetensors", &file(&tuned(&three, 13), ""))]);
    // What is left alone.
    download(&dir, "datasets--org--data", "8888", &[("train.npy", &file(&one, "x"))]);
    dir.write("hub/models--org--one/blobs/abc.1234.incomplete", &base(1)[..1000]);
    dir.write("hub/models--empty/refs/main", b"9999");
    dir.write("hub/CACHEDIR.TAG", b"Signature");
    dir
}

/// Everything in the cache: modes, times and contents of files, and where links lead.
fn state(dir: &Dir) -> BTreeMap<String, (u32, i128, Vec<u8>)> {
    let of = |name: String| {
        let path = dir.path(&name);
        let m = path.symlink_metadata().unwrap();
        let time = i128::from(m.mtime()) * 1_000_000_000 + i128::from(m.mtime_nsec());
        let contents = match m.file_type() {
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            kind if kind.is_dir() => return (name, (m.mode(), 0, Vec::new())),
            _ => fs::read(&path).unwrap(),
        };
        (name, (m.mode(), time, contents))
    };
    dir.names().into_iter().filter(|name| name.starts_with("hub/")).map(of).collect()
}

/// The contents of all files in snapshots, as they restore.
pub(crate) fn contents(dir: &Dir) -> BTreeMap<String, Vec<u8>> {
    let names = dir.names().into_iter().filter(|name| name.contains("/snapshots/") && dir.path(name).is_file());
    let restored = |name: &str| {
        let bytes = dir.read(name);
        if !bytes.starts_with(&lmc::MAGIC) {
            return bytes;
        }
        dir.run(["decompress", name, "-o", "restored", "-f"]).silent();
        dir.read("restored")
    };
    names.map(|name| (name.clone(), restored(&name))).collect()
}

fn hub<const N: usize>(dir: &Dir, args: [&str; N]) -> crate::support::Run {
    let mut command = dir.command(["hub"].iter().chain(&args));
    crate::support::Run(command.env("HF_HUB_CACHE", dir.path("hub")).output().unwrap())
}

/// The bytes of files with weights on disk, each file once.
fn on_disk(dir: &Dir) -> u64 {
    let metadata = |name: &String| dir.path(name).symlink_metadata().unwrap();
    let blobs = dir.names().into_iter().filter(|name| name.starts_with("hub/models") && name.contains("/blobs/"));
    let files = blobs.map(|name| metadata(&name)).filter(|m| m.is_file() && m.len() > 2000);
    files.map(|m| (m.ino(), m.len())).collect::<BTreeSet<_>>().iter().map(|(_, len)| len).sum()
}

#[test]
fn a_cache_is_compressed_and_restored() {
    let dir = families();
    let (before, expected, raw) = (state(&dir), contents(&dir), on_disk(&dir));
    // What would be saved, which changes nothing.
    let listed = hub(&dir, ["list", "--json"]).ok().json();
    let number = |of: &serde_json::Value, name: &str| of[name].as_u64().unwrap();
    let estimated: u64 = listed.iter().map(|model| number(model, "estimated_size")).sum();
    assert_eq!(listed.iter().map(|model| number(model, "size")).sum::<u64>(), raw);
    let dry = hub(&dir, ["compress", "-n"]);
    assert!(dry.ok().stdout().contains("\norg/one "), "{dry:?}");
    assert!(dry.stdout().contains("left alone, no models: datasets--org--data"), "{dry:?}");
    assert!(state(&dir) == before);
    let dry = hub(&dir, ["compress", "-n", "--json"]).ok().json();
    assert_eq!(dry, listed);
    let run = hub(&dir, ["compress", "--json"]);
    assert!(run.ok().stderr().contains(" : 9 files compressed, "), "{run:?}");
    let records = run.json();
    assert_eq!(records.iter().map(|r| number(r, "compressed_size")).sum::<u64>(), estimated);
    assert_eq!(records.iter().map(|r| number(r, "raw_size")).sum::<u64>(), raw);
    assert!(records.iter().any(|r| r["name"] == "model-00001-of-00002.safetensors"), "{records:?}");
    // Links, and all that is no file with weights, are as they were.
    let after = state(&dir);
    for (name, was) in before.iter().filter(|(name, _)| !name.contains("/blobs/")) {
        assert!(after.get(name) == Some(was), "{name}");
    }
    assert!(dir.has("hub/models--org--one/blobs/abc.1234.incomplete"));
    assert_eq!(contents(&dir), expected);
    // Estimates are exact for small files.
    let listed = hub(&dir, ["list", "--json"]).ok().json();
    assert_eq!(listed.iter().map(|model| number(model, "size")).sum::<u64>(), estimated);
    assert_eq!(listed.iter().map(|model| number(model, "estimated_size")).sum::<u64>(), estimated);
    assert_eq!(on_disk(&dir), estimated, "what models keep of others takes no space");
    let deltas: BTreeMap<_, _> = listed.iter().map(|m| (m["model"].as_str().unwrap(), number(m, "deltas"))).collect();
    // Of each family, one is whole.
    assert_eq!(deltas["org/one"] + deltas["user/one-chat"], 2, "{deltas:?}");
    assert_eq!(deltas["org/two"] + deltas["two-tuned"], 2, "{deltas:?}");
    assert_eq!(deltas["org/three"] + deltas["user/three"], 1, "{deltas:?}");
    assert!(estimated * 2 < raw, "{estimated} of {raw}");
    // Nothing is left to do.
    let run = hub(&dir, ["compress"]);
    assert!(run.ok().stderr().contains(" : 0 files compressed, "), "{run:?}");
    assert!(state(&dir) == after);
    let links: Vec<String> = expected.keys().filter(|name| name.ends_with("safetensors")).cloned().collect();
    for link in links.iter().filter(|name| name.starts_with("hub/models")) {
        dir.run(["test", link]).ok();
        dir.run(["list", link]).ok();
    }
    // They would be saved under the names of the originals.
    let link = links.iter().find(|name| name.contains("org--one/snapshots/1111")).unwrap();
    let folder = Path::new(link).parent().unwrap().to_str().unwrap();
    for path in [link, folder] {
        dir.run(["snapshot", "save", "store", path, "--step", "1"]).fails(&["is a link to a compressed file, "]);
    }
    let run = hub(&dir, ["restore", "--json"]);
    assert!(run.ok().stderr().contains(" : 9 files restored "), "{run:?}");
    assert_eq!(run.json().iter().map(|r| number(r, "raw_size")).sum::<u64>(), raw);
    assert_eq!(run.json().iter().map(|r| number(r, "compressed_size")).sum::<u64>(), estimated);
    assert!(state(&dir) == before);
    dir.run(["snapshot", "save", "store", folder, "--step", "1"]).ok();
}

#[test]
fn no_model_needs_another_one() {
    let dir = families();
    let (before, expected) = (state(&dir), contents(&dir));
    let with = |without: &str| {
        expected.clone().into_iter().filter(|(name, _)| !name.contains(without)).collect::<BTreeMap<_, _>>()
    };
    hub(&dir, ["compress"]).ok();
    // One alone is restored, whether or not others are predicted from it. Compressed again, it takes no more than before.
    let size = on_disk(&dir);
    for model in ["org/three", "user/three"] {
        hub(&dir, ["restore", model]).ok();
        assert_eq!(contents(&dir), expected);
        hub(&dir, ["compress"]).ok();
        assert_eq!((contents(&dir), on_disk(&dir)), (expected.clone(), size));
    }
    for model in ["org/one", "models--user--one-chat", "two-tuned", "org/two"] {
        hub(&dir, ["restore", model]).ok();
        assert_eq!(contents(&dir), expected);
    }
    hub(&dir, ["restore"]).ok();
    assert!(state(&dir) == before);
    // Each is deleted while all others are compressed.
    for deleted in ["models--org--one", "models--user--one-chat", "models--org--two", "models--two-tuned"] {
        let dir = families();
        hub(&dir, ["compress"]).ok();
        fs::remove_dir_all(dir.path(format!("hub/{deleted}"))).unwrap();
        assert_eq!(contents(&dir), with(&format!("/{deleted}/")));
        hub(&dir, ["restore"]).ok();
        assert_eq!(contents(&dir), with(&format!("/{deleted}/")));
        assert!(dir.names().iter().all(|name| !name.ends_with(".lmc")), "{:?}", dir.names());
    }
}

#[test]
fn what_the_hub_deleted_is_removed_once_nothing_needs_it() {
    let dir = families();
    let expected = contents(&dir);
    hub(&dir, ["compress"]).ok();
    let blob = |revision: &str| {
        let link = dir.path(format!("hub/models--org--one/snapshots/{revision}/model.safetensors"));
        link.parent().unwrap().join(fs::read_link(&link).unwrap())
    };
    let bytes = |path: &Path| fs::read(path).unwrap();
    let bases: Vec<bool> = ["1111", "2222"].map(|r| bytes(&blob(r)).len() > 60_000).into();
    let (whole, delta) = if bases[0] { ("1111", "2222") } else { ("2222", "1111") };
    let delete = |revision: &str| {
        fs::remove_file(blob(revision)).unwrap();
        fs::remove_dir_all(dir.path(format!("hub/models--org--one/snapshots/{revision}"))).unwrap();
    };
    delete(whole);
    hub(&dir, ["compress"]).ok();
    let left: BTreeMap<_, _> = expected.into_iter().filter(|(name, _)| !name.contains(whole)).collect();
    assert_eq!(contents(&dir), left);
    delete(delta);
    let run = hub(&dir, ["compress"]);
    assert!(run.ok().stderr().contains("removed what nothing needed any more: "), "{run:?}");
    assert!(dir.names().iter().all(|name| !name.starts_with("hub/models--org--one/blobs/") || !name.ends_with(".lmc")));
    let left: BTreeMap<_, _> = left.into_iter().filter(|(name, _)| !name.contains(delta)).collect();
    assert_eq!(contents(&dir), left);
}

#[test]
fn a_killed_run_leaves_a_cache_that_works() {
    let origin = families();
    let (before, expected) = (state(&origin), contents(&origin));
    let copy = |from: &Dir| {
        let dir = Dir::new();
        dir.shell(&format!("cp -a '{}' .", from.path("hub").display())).ok();
        dir
    };
    let compressed = copy(&origin);
    let moments = Moments::of(6, 1, || drop(hub(&compressed, ["compress"])));
    for (number, moment) in moments.iter().enumerate() {
        for (from, command) in [(&origin, "compress"), (&compressed, "restore")] {
            let dir = copy(from);
            let mut killed = dir.command(["hub", command]);
            killed.env("HF_HUB_CACHE", dir.path("hub")).env("LMC_TEMPORARY", "named").stderr(Stdio::null());
            let mut child = killed.spawn().unwrap();
            kill_after(&mut child, moment);
            assert_eq!(contents(&dir), expected, "{command} after {moment:?}");
            // The next run goes on, or goes back.
            if number % 2 == 0 {
                hub(&dir, ["compress"]).ok();
                assert_eq!(contents(&dir), expected);
            }
            hub(&dir, ["restore"]).ok();
            let left = state(&dir).into_iter().filter(|(name, _)| !name.contains(".lmc-tmp-")).collect();
            assert!(before == left, "{command} after {moment:?}");
        }
    }
}

#[test]
fn an_interrupted_swap_is_finished() {
    let dir = families();
    let (before, expected) = (state(&dir), contents(&dir));
    hub(&dir, ["compress"]).ok();
    let done = state(&dir);
    // All compressed files are there, and the originals still are, too.
    for (name, (mode, _, bytes)) in before.iter().filter(|(name, _)| name.contains("/blobs/")) {
        if done[name].2 != *bytes {
            fs::remove_file(dir.path(name)).unwrap();
            let path = dir.write(name, bytes);
            set_time(&path, 1_600_000_000 + bytes.len() as u64, mode & 0o777);
            symlink("nowhere", dir.path(format!("{name}.lmc-link"))).unwrap();
        }
    }
    let (half, inodes) = (state(&dir), on_disk(&dir));
    let run = hub(&dir, ["compress"]);
    assert!(run.ok().stderr().contains(" : 9 files compressed, "), "{run:?}");
    assert_eq!(contents(&dir), expected);
    assert!(on_disk(&dir) < inodes && half.len() > state(&dir).len());
    hub(&dir, ["restore"]).ok();
    assert!(state(&dir) == before);
}

#[test]
fn what_is_downloaded_or_changed_is_left_alone() {
    let dir = families();
    let before = state(&dir);
    let blob =
        before.keys().find(|name| name.contains("models--org--three/blobs/") && before[*name].2.len() > 2000).unwrap();
    let (_, hash) = blob.rsplit_once('/').unwrap();
    let lock = File::open(dir.path(format!("hub/.locks/models--org--three/{hash}.lock"))).unwrap();
    lock.lock().unwrap();
    let said = format!("{hash}: is left alone: it is being downloaded");
    hub(&dir, ["-q", "compress", "org/three"]).fails(&[&said]);
    assert!(state(&dir) == before);
    drop(lock);
    // Two runs do not meet.
    let other = File::open(dir.path("hub")).unwrap();
    other.lock().unwrap();
    for command in ["compress", "restore"] {
        hub(&dir, [command]).fails(&["hub: is being compressed or restored by another lmc hub"]);
    }
    hub(&dir, ["list"]).ok();
    drop(other);
    hub(&dir, ["-q", "compress", "org/three"]).silent();
    // Others were not asked for.
    let compressed = |dir: &Dir| dir.names().into_iter().filter(|name| name.ends_with(".lmc")).count();
    assert_eq!(compressed(&dir), 1);
    // A model that was downloaded later is a delta of one that is compressed.
    hub(&dir, ["-q", "compress", "user/three"]).silent();
    assert_eq!(compressed(&dir), 3, "with its base's second name");
    // What was downloaded again replaces the link.
    let bytes = &before[blob].2;
    fs::remove_file(dir.path(blob)).unwrap();
    let path = dir.write(blob, bytes);
    set_time(&path, 1_600_000_000 + bytes.len() as u64, 0o444);
    hub(&dir, ["-q", "restore"]).silent();
    assert!(state(&dir) == before);
}

/// Servers other than the hub's may name files otherwise than by their contents.
#[test]
fn names_need_not_be_hashes() {
    let dir = Dir::new();
    let (one, two) = (file(&base(1), ""), file(&tuned(&base(1), 2), ""));
    for (model, contents) in [("a", &one), ("b", &two)] {
        dir.write(&format!("hub/models--{model}/blobs/etag"), contents);
        fs::create_dir_all(dir.path(format!("hub/models--{model}/snapshots/1"))).unwrap();
        symlink("../../blobs/etag", dir.path(format!("hub/models--{model}/snapshots/1/m.safetensors"))).unwrap();
    }
    let (before, expected) = (state(&dir), contents(&dir));
    hub(&dir, ["-q", "compress"]).silent();
    assert_eq!(contents(&dir), expected);
    hub(&dir, ["-q", "restore"]).silent();
    assert!(state(&dir) == before);
    // What is there by the name of the output is no output of ours.
    dir.run(["compress", "hub/models--a/blobs/etag", "-o", "hub/models--b/blobs/etag.lmc"]).silent();
    hub(&dir, ["-q", "compress", "b"]).fails(&["blobs/etag.lmc: is there, and is no compressed form of the file: "]);
    assert_eq!(contents(&dir), expected);
}

#[test]
fn equal_files_of_two_models_keep_their_times() {
    let dir = Dir::new();
    let (whole, derived) = (file(&base(1), ""), file(&tuned(&base(1), 2), ""));
    download(&dir, "models--a", "1", &[("m.safetensors", &whole)]);
    download(&dir, "models--b", "1", &[("m.safetensors", &derived)]);
    hub(&dir, ["-q", "compress"]).silent();
    // The same files, at another time: each has a compressed form beside it, or in the other model.
    for (model, contents, seconds) in [("b", &whole, 1_500_000_000), ("a", &derived, 1_500_000_001), ("c", &whole, 5)] {
        download(&dir, &format!("models--{model}"), "2", &[("n.safetensors", contents)]);
        let hash = blake3::hash(contents).to_hex();
        set_time(&dir.path(format!("hub/models--{model}/blobs/{hash}")), seconds, 0o640);
    }
    let expected = contents(&dir);
    hub(&dir, ["-q", "compress"]).silent();
    assert_eq!(contents(&dir), expected);
    hub(&dir, ["-q", "restore"]).silent();
    assert_eq!(contents(&dir), expected);
    let time = |model: &str, file: &str| {
        let m = dir.path(format!("hub/models--{model}/snapshots/{file}.safetensors")).metadata().unwrap();
        (m.mtime(), m.mode() & 0o777)
    };
    assert_eq!(time("b", "2/n"), (1_500_000_000, 0o640));
    assert_eq!(time("a", "2/n"), (1_500_000_001, 0o640));
    assert_eq!(time("c", "2/n"), (5, 0o640));
    assert_eq!(time("a", "1/m"), (1_600_000_000 + whole.len() as i64, 0o444));
    assert!(dir.names().iter().all(|name| !name.ends_with(".lmc")));
}

#[test]
fn bases_of_what_cannot_be_read_are_kept() {
    let dir = families();
    let expected = contents(&dir);
    hub(&dir, ["compress"]).ok();
    let compressed = |dir: &Dir, model: &str| {
        let blobs = format!("hub/models--{model}/blobs/");
        dir.names().into_iter().filter(|n| n.starts_with(&blobs) && n.ends_with(".lmc")).collect::<Vec<_>>()
    };
    let model = ["org--three", "user--three"].into_iter().find(|model| compressed(&dir, model).len() == 2).unwrap();
    let both = compressed(&dir, model);
    let delta = both.iter().find(|name| dir.has(name.strip_suffix(".lmc").unwrap())).unwrap();
    let bytes = dir.read(delta);
    fs::set_permissions(dir.path(delta), Permissions::from_mode(0o644)).unwrap();
    fs::write(dir.path(delta), b"no longer").unwrap();
    for command in ["list", "compress", "restore"] {
        assert_eq!(hub(&dir, ["-q", command]).0.status.code(), Some(1), "{command}");
    }
    assert_eq!(compressed(&dir, model), both);
    fs::write(dir.path(delta), bytes).unwrap();
    assert_eq!(contents(&dir), expected);
}

#[test]
fn what_was_compressed_otherwise_is_kept() {
    let dir = Dir::new();
    let whole = file(&base(1), "");
    download(&dir, "models--a", "1", &[("m.safetensors", &whole)]);
    let blob = dir.names().into_iter().find(|name| name.starts_with("hub/models--a/blobs/")).unwrap();
    dir.run(["compress", &blob]).silent();
    fs::remove_file(dir.path(&blob)).unwrap();
    for command in ["list", "compress", "restore"] {
        let run = hub(&dir, [command]);
        assert!(run.ok().stderr().contains("snapshots/1/m.safetensors: leads nowhere, as the file was"), "{run:?}");
    }
    dir.run(["decompress", &format!("{blob}.lmc")]).silent();
    assert!(dir.read("hub/models--a/snapshots/1/m.safetensors") == whole);
}

/// Newer versions of huggingface_hub keep one copy of what several models have.
#[test]
fn files_that_models_share_are_compressed_once() {
    let dir = families();
    let shared = |name: &str, link: &str| {
        let hash = blake3::hash(name.as_bytes()).to_hex();
        let at = format!("hub/blobs/{}/{hash}", &hash[..2]);
        let target = dir.path(link);
        if !dir.has(&at) {
            let blob = fs::read(&target).unwrap();
            set_time(&dir.write(&at, &blob), 1_700_000_000, 0o444);
        }
        fs::remove_file(&target).unwrap();
        symlink(format!("../../blobs/{}/{hash}", &hash[..2]), &target).unwrap();
        let list = dir.path(format!("{at}.refs"));
        let before = fs::read_to_string(&list).unwrap_or_default();
        fs::write(&list, format!("{before}{}\n", link.strip_prefix("hub/").unwrap())).unwrap();
        at
    };
    let blobs = |dir: &Dir| {
        let large = |name: &String| {
            name.contains("/blobs/")
                && name.starts_with("hub/models")
                && dir.path(name).symlink_metadata().unwrap().len() > 2000
        };
        dir.names().into_iter().filter(large).filter(|name| !name.ends_with("incomplete")).collect::<Vec<_>>()
    };
    dir.write("hub/blobs/.huggingface-shared-blobs", b"1\n");
    let mut stores = Vec::new();
    for (number, blob) in blobs(&dir).into_iter().enumerate() {
        stores.push((shared(&number.to_string(), &blob), blob));
    }
    // Another model has one of them, too.
    let (store, _) = stores[0].clone();
    let hash = store.rsplit_once('/').unwrap().1.to_owned();
    fs::create_dir_all(dir.path("hub/models--copy/blobs")).unwrap();
    symlink(format!("../../blobs/{}/{hash}", &hash[..2]), dir.path("hub/models--copy/blobs/etag")).unwrap();
    fs::create_dir_all(dir.path("hub/models--copy/snapshots/1")).unwrap();
    symlink("../../blobs/etag", dir.path("hub/models--copy/snapshots/1/model.safetensors")).unwrap();
    let list = dir.path(format!("{store}.refs"));
    fs::write(&list, fs::read_to_string(&list).unwrap() + "models--copy/blobs/etag\n").unwrap();
    let (before, expected) = (state(&dir), contents(&dir));
    let run = hub(&dir, ["compress"]);
    assert!(run.ok().stderr().contains(" : 9 files compressed, "), "{run:?}");
    assert_eq!(contents(&dir), expected);
    let after = state(&dir);
    for (name, was) in before.iter().filter(|(name, _)| !name.starts_with("hub/blobs/")) {
        assert!(after.get(name) == Some(was), "{name}");
    }
    hub(&dir, ["restore"]).ok();
    assert!(state(&dir) == before);
    // Once no model has it any more, it goes; with the lists gone, nothing is known.
    hub(&dir, ["compress"]).ok();
    let models = ["models--org--three", "models--user--three"];
    models.iter().for_each(|model| fs::remove_dir_all(dir.path(format!("hub/{model}"))).unwrap());
    let of = |model: &str| stores.iter().find(|(_, blob)| blob.contains(model)).unwrap().0.clone();
    let (gone, unknown) = (of("models--org--three"), of("models--user--three"));
    fs::remove_file(dir.path(format!("{unknown}.refs"))).unwrap();
    let run = hub(&dir, ["compress"]);
    assert!(run.ok().stderr().contains("removed what nothing needed any more: "), "{run:?}");
    assert!(!dir.has(&gone) && !dir.has(&format!("{gone}.lmc")) && !dir.has(&format!("{gone}.refs")));
    assert!(dir.has(&unknown) && dir.has(&format!("{unknown}.lmc")));
}

#[test]
fn snapshots_of_files_are_compressed_too() {
    // Without links, as huggingface_hub leaves them where there are none.
    let dir = Dir::new();
    let (one, two) = (file(&base(1), ""), file(&tuned(&base(1), 2), ""));
    set_time(&dir.write("hub/models--a/snapshots/1/m.safetensors", &one), 1_600_000_000, 0o444);
    set_time(&dir.write("hub/models--b/snapshots/1/m.safetensors", &two), 1_600_000_001, 0o644);
    dir.write("hub/models--b/snapshots/1/published.safetensors.lmc", b"a file of the model");
    let (before, expected) = (state(&dir), contents(&dir));
    let run = hub(&dir, ["compress"]);
    assert!(run.ok().stderr().contains(" : 2 files compressed, "), "{run:?}");
    let found = contents(&dir);
    assert!(expected.iter().all(|(name, bytes)| found[name] == *bytes));
    hub(&dir, ["restore"]).ok();
    assert!(state(&dir) == before);
}

#[test]
fn what_does_not_shrink_is_left_alone() {
    let dir = Dir::new();
    let noise = noise(200_000, 1);
    download(&dir, "models--a", "1", &[("model.gguf", &noise), ("scheduler.bin", &base(1)[..2000])]);
    let before = state(&dir);
    hub(&dir, ["list"]).ok();
    let run = hub(&dir, ["compress", "-v"]);
    assert_eq!(run.ok().stderr().matches("left alone, it hardly shrinks").count(), 2, "{run:?}");
    assert!(state(&dir) == before);
    assert!(run.stderr().contains(" : 0 files compressed, "), "{run:?}");
}

#[test]
fn the_cache_is_found_as_the_hub_finds_it() {
    let dir = Dir::new();
    for (number, place) in
        ["a", "b/hub", "c/huggingface/hub", "d/.cache/huggingface/hub", "d/tilde"].into_iter().enumerate()
    {
        fs::create_dir_all(dir.path(format!("{place}/models--org--{number}/snapshots"))).unwrap();
    }
    let path = |name: &str| dir.path(name).into_os_string().into_string().unwrap();
    let all = [("HOME", path("d")), ("XDG_CACHE_HOME", path("c")), ("HF_HOME", path("b")), ("HF_HUB_CACHE", path("a"))];
    let run = |set: &[(&str, String)], args: &[&str]| {
        let mut command = dir.command(["hub", "list", "--json"].iter().chain(args));
        for name in ["HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"] {
            command.env_remove(name);
        }
        crate::support::Run(command.envs(set.iter().map(|(k, v)| (k, v))).output().unwrap())
    };
    let found =
        |set: &[(&str, String)], args: &[&str]| run(set, args).ok().json()[0]["model"].as_str().unwrap().to_owned();
    for (count, expected) in [(1, "org/3"), (2, "org/2"), (3, "org/1"), (4, "org/0")] {
        assert_eq!(found(&all[..count], &[]), expected);
    }
    assert_eq!(found(&[("HOME", path("d")), ("HF_HUB_CACHE", "~/tilde".to_owned())], &[]), "org/4");
    assert_eq!(found(&all, &["--cache-dir", "b/hub"]), "org/1");
    run(&[], &[]).is_misused(&["HOME is not set: give --cache-dir"]);
    run(&[("HOME", path("nowhere"))], &[]).fails(&["nowhere/.cache/huggingface/hub", "--cache-dir"]);
    run(&all, &["org/1"]).is_misused(&["org/1: no such model is in ", "lmc hub list names them"]);
}

#[test]
fn what_is_damaged_is_said_and_the_rest_goes_on() {
    let dir = families();
    let expected = contents(&dir);
    hub(&dir, ["compress"]).ok();
    let link = "hub/models--user--three/snapshots/7777/unet/m.safetensors";
    let file = dir.path(link).canonicalize().unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    fs::write(&file, bytes).unwrap();
    hub(&dir, ["-q", "restore"]).fails(&[file.file_name().unwrap().to_str().unwrap(), "damaged"]);
    assert!(fs::read_link(dir.path(link).parent().unwrap().join(fs::read_link(dir.path(link)).unwrap())).is_ok());
    let whole = |(name, _): &(&String, &Vec<u8>)| **name != *link;
    let others = expected.iter().filter(whole).all(|(name, bytes)| dir.read(name) == *bytes);
    assert!(others, "all others are restored");
}

/// Copies of a model in other precisions, in one directory: the most precise one that helps is the base of the others.
#[test]
fn copies_in_other_precisions_are_predicted() {
    let dir = Dir::new();
    let (rows, columns) = (128, 1024);
    let w = weights(rows * columns, 5);
    let floats: Vec<f32> =
        w.chunks(2).map(|e| f32::from_bits(u32::from(u16::from_le_bytes([e[0], e[1]])) << 16)).collect();
    let shape = [rows as u64, columns as u64];
    let bf16 = safetensors(&[("m.w", "BF16", &shape, &w)]);
    let wide: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
    let (mut scales, mut codes) = (Vec::new(), Vec::new());
    for row in floats.chunks(columns) {
        let s = row.iter().fold(0.0f32, |a, x| a.max(x.abs())) / 127.0;
        scales.extend(s.to_le_bytes());
        codes.extend(row.iter().map(|x| (x / s).round_ties_even() as i8 as u8));
    }
    let int8 = safetensors(&[("m.w_scale", "F32", &[rows as u64, 1], &scales), ("m.w", "I8", &shape, &codes)]);
    let f32s = safetensors(&[("m.w", "F32", &shape, &wide)]);
    let files = [("int8.safetensors", &int8[..]), ("model.safetensors", &bf16), ("model.fp32.safetensors", &f32s)];
    download(&dir, "models--org--one", "1111", &files);
    let expected = contents(&dir);
    hub(&dir, ["compress"]).ok();
    let alone = dir.write("alone", &bf16);
    dir.run(["-q", "compress", "alone"]).silent();
    let size = fs::metadata(alone.with_extension("lmc")).unwrap().len();
    assert!(on_disk(&dir) < size + size / 10, "{} of {size}", on_disk(&dir));
    assert_eq!(contents(&dir), expected);
}
