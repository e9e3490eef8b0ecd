//! Versions for receivers without a store: written, followed, damaged, out of order, and left unfinished.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::support::{memory, new_store, step};
use lmc_store::{
    Checksum, DeltaEncoding, ErrorKind, Exported, FollowOptions, Follower, Input, Interchange, InterchangeOptions,
    Result, SaveOptions, Store,
};
use lmc_testing::exhaustive;

/// Tensors by name: dtype, shape, bytes.
type Tensors = BTreeMap<String, (&'static str, Vec<usize>, Vec<u8>)>;

/// A model in two files, and one that is no model.
#[derive(Clone)]
struct Model([Tensors; 2]);

impl Model {
    fn new(size: usize) -> Self {
        let bytes = |n: usize, seed: usize| (0..n).map(|i| (i * i / 5 + i * seed) as u8).collect::<Vec<u8>>();
        let a = [
            ("embed", ("BF16", vec![size, 8], bytes(size * 16, 3))),
            ("norm", ("F32", vec![size], bytes(size * 4, 7))),
            ("none", ("F32", vec![0], vec![])),
            ("still", ("F16", vec![3, 5], bytes(30, 5))),
        ];
        let b = [("head", ("F8_E4M3", vec![size], bytes(size, 1))), ("count", ("I64", vec![], vec![0; 8]))];
        Self([a.map(|(n, t)| (n.to_owned(), t)).into(), b.map(|(n, t)| (n.to_owned(), t)).into()])
    }

    /// Changes some bytes of each of some tensors.
    fn train(&mut self, names: &[&str], n: u64) {
        for tensors in &mut self.0 {
            for (_, (.., bytes)) in tensors.iter_mut().filter(|(name, _)| names.contains(&&name[..])) {
                bytes.iter_mut().step_by(13).for_each(|b| *b ^= 1 + n as u8);
            }
        }
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let file = |i: usize| {
            let mut data = vec![];
            let mut header = serde_json::Map::new();
            header.insert("__metadata__".into(), serde_json::json!({ "format": "pt" }));
            for (name, (dtype, shape, bytes)) in &self.0[i] {
                let range = [data.len(), data.len() + bytes.len()];
                header
                    .insert(name.clone(), serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": range }));
                data.extend(bytes);
            }
            let header = serde_json::Value::from(header).to_string();
            let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
            (format!("model-{i}.safetensors"), file)
        };
        vec![
            file(0),
            file(1),
            ("config.json".into(), br#"{"hidden_size": 1}"#.to_vec()),
            ("optimizer.pt".into(), vec![9; 50]),
        ]
    }

    fn tensors(&self) -> Tensors {
        self.0.iter().flatten().map(|(n, t)| (n.clone(), t.clone())).collect()
    }
}

/// What a directory has: nothing, if it is no model.
fn read(directory: &Path) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for i in 0..2 {
        let Ok(bytes) = fs::read(directory.join(format!("model-{i}.safetensors"))) else { return BTreeMap::new() };
        let Ok(file) = safetensors::SafeTensors::deserialize(&bytes) else { return BTreeMap::new() };
        for (name, t) in file.tensors() {
            found.insert(name, (format!("{:?}", t.dtype()), t.shape().to_vec(), t.data().to_vec()));
        }
    }
    found
}

fn is(directory: &Path, model: &Model) -> bool {
    let expected = model.tensors().into_iter().map(|(n, (dtype, shape, bytes))| (n, (dtype.to_owned(), shape, bytes)));
    read(directory) == expected.collect()
}

/// A store, and the versions that were made from it.
struct Run {
    dir: tempfile::TempDir,
    store: Store,
    options: InterchangeOptions,
    models: Vec<Model>,
}

impl Run {
    /// Of one version.
    fn new(options: InterchangeOptions, size: usize) -> Self {
        let mut run = Self { dir: tempfile::tempdir().unwrap(), store: new_store(&memory()), options, models: vec![] };
        run.save(Model::new(size)).unwrap();
        run
    }

    /// Of the versions 1, 2 and 3.
    fn of_three(options: InterchangeOptions, size: usize) -> Self {
        let mut run = Self::new(options, size);
        run.train(&["embed", "head"]);
        run.train(&["embed", "norm", "count"]);
        run
    }

    fn train(&mut self, names: &[&str]) -> Exported {
        let mut model = self.models.last().unwrap().clone();
        model.train(names, self.models.len() as u64);
        self.save(model).unwrap()
    }

    /// Saves a model as the next step, and writes it for others.
    fn save(&mut self, model: Model) -> Result<Exported> {
        let files = model.files();
        let inputs: Vec<Input<'_>> = files.iter().map(|(name, bytes)| Input::new(&name[..], bytes)).collect();
        self.models.push(model);
        let step = step(self.models.len() as u64);
        let saved = self.store.save(&inputs, Some(step), BTreeMap::new(), &SaveOptions::default())?;
        self.open()?.write(&self.store, &saved, &mut |_| {})
    }

    fn open(&self) -> Result<Interchange> {
        Interchange::open(&self.versions(), self.options)
    }

    fn versions(&self) -> PathBuf {
        self.dir.path().join("versions")
    }

    fn version(&self, n: u64) -> PathBuf {
        self.versions().join(format!("weight_v{n:06}"))
    }

    fn index(&self, n: u64) -> PathBuf {
        self.version(n).join("model.safetensors.index.json")
    }

    /// Changes an index.
    fn rewrite(&self, n: u64, from: &str, to: &str) {
        let text = fs::read_to_string(self.index(n)).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(self.index(n), text.replacen(from, to, 1)).unwrap();
    }

    /// A directory that follows.
    fn to(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn is_at(&self, name: &str, n: usize) -> bool {
        is(&self.to(name).join("current"), &self.models[n - 1])
    }
}

/// Follows to the newest version.
fn follow_with(versions: &Path, to: &Path, base: Option<&Path>, o: FollowOptions) -> Result<Option<u64>> {
    let mut follower = Follower::open_interchange(versions, base, to, o)?;
    let Some(newest) = follower.newest()? else { return Ok(None) };
    let staged = follower.stage(&newest, &mut |_| {})?;
    follower.commit(staged).map(|v| Some(v.step.get()))
}

fn follow(run: &Run, to: &str) -> Result<Option<u64>> {
    follow_with(&run.versions(), &run.to(to), None, FollowOptions::default())
}

/// The message of an error of a kind.
fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, why: &str) {
    let e = result.unwrap_err();
    assert!(e.kind() == kind && e.to_string().contains(why), "{e:?}");
}

fn options(encoding: DeltaEncoding, checksum: Checksum) -> InterchangeOptions {
    let mut o = InterchangeOptions::default();
    (o.encoding, o.checksum) = (encoding, checksum);
    o
}

#[test]
fn versions_are_written_and_followed_with_every_encoding_and_checksum() {
    for encoding in DeltaEncoding::ALL {
        for checksum in Checksum::ALL {
            let mut o = options(encoding, checksum);
            // A file for each tensor.
            o.file_size = 1;
            let mut run = Run::new(o, 2000);
            assert_eq!(follow(&run, "each").unwrap(), Some(1));
            assert!(run.is_at("each", 1));
            let second = run.train(&["embed", "head"]);
            assert_eq!((second.base, second.tensors), (Some(step(1)), 2));
            assert!(
                second.changed_size == u64::from(32_000u32.div_ceil(13) + 2000u32.div_ceil(13))
                    && second.written_size < second.total_size / 4
            );
            assert!(run.version(2).join("model-00001-of-00002.safetensors").is_file());
            let before = fs::metadata(run.to("each").join("current/config.json")).unwrap().ino();
            assert_eq!(follow(&run, "each").unwrap(), Some(2));
            assert!(run.is_at("each", 2));
            assert_eq!(fs::metadata(run.to("each").join("current/config.json")).unwrap().ino(), before);
            run.train(&["norm"]);
            run.train(&["embed", "norm"]);
            // A file without changes is a link.
            let still = fs::metadata(run.to("each").join("current/model-1.safetensors")).unwrap().ino();
            // Two at once, and all from the beginning.
            for to in ["each", "late"] {
                assert_eq!(follow(&run, to).unwrap(), Some(4));
                assert!(run.is_at(to, 4), "{to}");
                assert_eq!(follow(&run, to).unwrap(), None);
            }
            assert_eq!(fs::metadata(run.to("each").join("current/model-1.safetensors")).unwrap().ino(), still);
            assert_eq!(fs::read(run.to("late").join("current/config.json")).unwrap(), br#"{"hidden_size": 1}"#);
            assert!(!run.to("late").join("current/optimizer.pt").exists());
            let mut verifying = FollowOptions::default();
            verifying.verify = true;
            run.train(&[]);
            assert_eq!(follow_with(&run.versions(), &run.to("late"), None, verifying).unwrap(), Some(5));
            assert!(run.is_at("late", 5));
        }
    }
}

#[test]
fn what_no_delta_can_say_is_a_full_version() {
    let mut o = InterchangeOptions::default();
    o.full_every = 3;
    let mut run = Run::new(o, 100);
    let bases: Vec<Option<u64>> = (0..4).map(|_| run.train(&["embed"]).base.map(|b| b.get())).collect();
    assert_eq!(bases, [Some(1), Some(2), None, Some(4)]);
    let change = |change: &dyn Fn(&mut Model)| {
        let mut model = run.models.last().unwrap().clone();
        change(&mut model);
        model
    };
    let appeared = change(&|m| _ = m.0[1].insert("new".into(), ("F32", vec![2], vec![1; 8])));
    let gone = change(&|m| _ = m.0[0].remove("still"));
    let reshaped = change(&|m| m.0[0].get_mut("still").unwrap().1 = vec![5, 3]);
    let retyped = change(&|m| m.0[0].get_mut("still").unwrap().0 = "BF16");
    for model in [appeared, gone, reshaped, retyped] {
        assert_eq!(run.save(model).unwrap().base, None);
        assert_eq!(follow(&run, "m").unwrap(), Some(run.models.len() as u64));
        assert!(run.is_at("m", run.models.len()));
    }
    // And what is against a version that the store has not.
    let at = run.models.len() as u64;
    let other = Run::new(o, 100);
    run.store = other.store;
    run.models.push(run.models[0].clone());
    let files = run.models[0].files();
    let inputs: Vec<Input<'_>> = files.iter().map(|(name, bytes)| Input::new(&name[..], bytes)).collect();
    let snapshot = run.store.save(&inputs, Some(step(at + 1)), BTreeMap::new(), &SaveOptions::default()).unwrap();
    assert_eq!(run.open().unwrap().write(&run.store, &snapshot, &mut |_| {}).unwrap().base, None);
}

#[test]
fn snapshots_that_cannot_be_versions_are_refused() {
    let run = Run::new(InterchangeOptions::default(), 10);
    let save = |n, name: &str, bytes: &[u8]| {
        run.store.save(&[Input::new(name, &bytes)], Some(step(n)), BTreeMap::new(), &SaveOptions::default()).unwrap()
    };
    let file = run.models[0].files().remove(0).1;
    let mut versions = run.open().unwrap();
    for (snapshot, why) in [
        (save(2, "sub/m.safetensors", &file), "is in a directory"),
        (save(3, "m.pt", b"pickle"), "has no tensors"),
        (run.store.find(lmc_store::At::Step(step(1))).unwrap(), "step 1 is not later"),
    ] {
        refused(versions.write(&run.store, &snapshot, &mut |_| {}), ErrorKind::Usage, why);
    }
    refused(run.open(), ErrorKind::Exists, "another process");
    drop(versions);
    // What others wrote is not gone on with.
    run.rewrite(1, r#""lmc""#, r#""other""#);
    refused(run.open(), ErrorKind::Usage, "was not written by lmc");
    assert!(Interchange::is_at(&run.versions()) && !Interchange::is_at(run.dir.path()));
}

#[test]
fn what_is_unfinished_is_no_version() {
    let mut run = Run::of_three(InterchangeOptions::default(), 200);
    // Every state that a crash leaves: files in the staging directory, up to all of them, and no version.
    let whole = run.to("whole");
    fs::rename(run.version(3), &whole).unwrap();
    let names: Vec<_> = fs::read_dir(&whole).unwrap().map(|e| e.unwrap().file_name()).collect();
    let last = run.store.find(lmc_store::At::Step(step(3))).unwrap();
    for n in 0..=names.len() {
        for length in [0.0, 0.5, 1.0] {
            let staging = run.versions().join(".lmc-staging");
            fs::create_dir(&staging).unwrap();
            for (i, name) in names[..n].iter().enumerate() {
                let bytes = fs::read(whole.join(name)).unwrap();
                let part = if i + 1 == n { (bytes.len() as f64 * length) as usize } else { bytes.len() };
                fs::write(staging.join(name), &bytes[..part]).unwrap();
            }
            let to = run.to("m");
            _ = fs::remove_dir_all(&to);
            assert_eq!(follow(&run, "m").unwrap(), Some(2));
            assert!(run.is_at("m", 2));
            run.open().unwrap().write(&run.store, &last, &mut |_| {}).unwrap();
            for name in &names {
                assert_eq!(fs::read(run.version(3).join(name)).unwrap(), fs::read(whole.join(name)).unwrap());
            }
            assert_eq!(fs::read_dir(run.version(3)).unwrap().count(), names.len());
            assert_eq!(follow(&run, "m").unwrap(), Some(3));
            fs::remove_dir_all(run.version(3)).unwrap();
        }
    }
    // Others write the index last: without it there is no version.
    run.train(&["norm"]);
    fs::remove_file(run.index(4)).unwrap();
    assert_eq!(follow(&run, "n").unwrap(), Some(2));
    // A version that is there is not replaced.
    fs::remove_dir_all(run.version(4)).unwrap();
    fs::create_dir(run.version(3)).unwrap();
    fs::write(run.version(3).join("file"), b"").unwrap();
    refused(run.open().unwrap().write(&run.store, &last, &mut |_| {}), ErrorKind::Io, "weight_v000003");
    assert!(!run.versions().join(".lmc-staging").exists());
}

#[test]
fn versions_out_of_order_and_other_bases_are_refused() {
    let run = Run::of_three(InterchangeOptions::default(), 100);
    assert_eq!(follow(&run, "m").unwrap(), Some(3));
    // A version between is missing.
    let mut o = FollowOptions::default();
    fs::rename(run.version(2), run.to("gone")).unwrap();
    refused(follow(&run, "n"), ErrorKind::Damaged, "against version 2, which is not there: give the checkpoint");
    // With what that was, it goes on.
    let base = run.to("base");
    fs::create_dir(&base).unwrap();
    run.models[1].files().iter().for_each(|(name, bytes)| fs::write(base.join(name), bytes).unwrap());
    assert_eq!(follow_with(&run.versions(), &run.to("n"), Some(&base), o).unwrap(), Some(3));
    assert!(run.is_at("n", 3) && run.to("n").join("current/optimizer.pt").exists());
    let other = run.to("other");
    fs::create_dir(&other).unwrap();
    run.models[0].files().iter().for_each(|(name, bytes)| fs::write(other.join(name), bytes).unwrap());
    let wrong = follow_with(&run.versions(), &run.to("o"), Some(&other), o);
    refused(wrong, ErrorKind::Damaged, "is not version 3's base");
    assert!(!run.to("o").join("current").exists());
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
    refused(another, ErrorKind::Damaged, "is not the version 2 that is followed");
    assert!(run.is_at("m", 2));
    let mut two = Run::new(InterchangeOptions::default(), 100);
    two.train(&["norm"]);
    let another = follow_with(&two.versions(), &run.to("m"), None, FollowOptions::default());
    refused(another, ErrorKind::Usage, "another snapshot of step 2");
    // A line that leaves out what is followed.
    fs::rename(run.to("gone"), run.version(3)).unwrap();
    run.rewrite(3, r#""base_version":"000002""#, r#""base_version":"000001""#);
    refused(follow(&run, "m"), ErrorKind::Usage, "comes from version 1, and version 2 is followed");
    refused(follow(&run, "p"), ErrorKind::Damaged, "is not version 3's base");
}

#[test]
fn deltas_are_applied_once() {
    let mut run = Run::new(InterchangeOptions::default(), 100);
    let mut follower =
        Follower::open_interchange(&run.versions(), None, &run.to("m"), FollowOptions::default()).unwrap();
    let first = follower.newest().unwrap().unwrap();
    let staged = follower.stage(&first, &mut |_| {}).unwrap();
    follower.commit(staged).unwrap();
    run.train(&["embed"]);
    let second = follower.newest().unwrap().unwrap();
    for _ in 0..2 {
        let staged = follower.stage(&second, &mut |_| {}).unwrap();
        let version = staged.version.path.clone();
        assert!(is(&version, &run.models[1]) && run.is_at("m", 1));
    }
    let staged = follower.stage(&second, &mut |_| {}).unwrap();
    follower.commit(staged.clone()).unwrap();
    follower.commit(staged).unwrap();
    assert!(run.is_at("m", 2) && follower.newest().unwrap().is_none());
    drop(follower);
    // What somebody changed is no base: it is restored from the full version.
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

/// Copies a directory that follows: by links, as it knows its inodes.
fn link_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (kind, from) = entry.map(|e| (e.file_type().unwrap(), e.path())).unwrap();
        let to = to.join(from.file_name().unwrap());
        match () {
            () if kind.is_dir() => link_all(&from, &to),
            () if kind.is_symlink() => std::os::unix::fs::symlink(fs::read_link(&from).unwrap(), to).unwrap(),
            () => fs::hard_link(&from, to).unwrap(),
        }
    }
}

/// Follows a copy of the versions in which a file is other bytes. What is followed then is right, or nothing.
fn damaged(run: &Run, file: &Path, bytes: &[u8], from: Option<&Path>) -> bool {
    let whole = fs::read(file).unwrap();
    fs::write(file, bytes).unwrap();
    let to = run.to("damaged");
    _ = fs::remove_dir_all(&to);
    if let Some(from) = from {
        link_all(from, &to);
    }
    let followed = follow_with(&run.versions(), &to, None, FollowOptions::default());
    let right = match &followed {
        Ok(Some(n)) => is(&to.join("current"), &run.models[*n as usize - 1]),
        Ok(None) => from.is_some() && is(&to.join("current"), &run.models[0]),
        Err(_) => from.is_none_or(|_| is(&to.join("current"), &run.models[0])),
    };
    assert!(right, "{}: {followed:?}, with {}", file.display(), String::from_utf8_lossy(bytes));
    fs::write(file, whole).unwrap();
    followed.is_err()
}

#[test]
fn damage_is_an_error_or_does_not_matter() {
    let mut o = options(DeltaEncoding::Xor, Checksum::Xxh3);
    for encoding in DeltaEncoding::ALL {
        o.encoding = encoding;
        let mut run = Run::new(o, 4);
        follow(&run, "first").unwrap();
        run.train(&["embed", "norm"]);
        let first = run.to("first");
        let mut noticed = [0, 0];
        for version in [1, 2] {
            for entry in fs::read_dir(run.version(version)).unwrap() {
                let file = entry.unwrap().path();
                let whole = fs::read(&file).unwrap();
                // Without what is there the full version is read; with it only the delta.
                let from = (version == 2).then_some(first.as_path());
                for at in (0..whole.len()).filter(|at| exhaustive() || at % 9 == 4) {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 1 << (at % 7);
                    noticed[usize::from(damaged(&run, &file, &bytes, from))] += 1;
                }
                for len in [0, 1, 8, whole.len() / 2, whole.len() - 1] {
                    assert!(damaged(&run, &file, &whole[..len], from), "{} of {len} bytes", file.display());
                }
                let longer = [&whole[..], b"x"].concat();
                assert!(damaged(&run, &file, &longer, from), "{}", file.display());
            }
        }
        // Names of what lmc notes, and sizes that nobody reads.
        assert!(noticed[1] > 10 * noticed[0], "{noticed:?}");
    }
}

#[test]
fn hostile_versions_are_refused() {
    let run = Run::of_three(InterchangeOptions::default(), 50);
    follow(&run, "m").unwrap();
    let shard = "model-00000-of-00001.safetensors";
    let path = run.version(3).join(shard);
    let whole = fs::read(&path).unwrap();
    let index = fs::read(run.index(3)).unwrap();
    let fails = |why: &str| {
        let e = follow(&run, "n").unwrap_err();
        assert!(e.to_string().contains(why), "{e}");
        assert!(!run.to("n").join("current").exists());
        fs::write(run.index(3), &index).unwrap();
    };
    for name in ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "a\\\\b.safetensors"] {
        run.rewrite(3, &format!(r#":"{shard}""#), &format!(r#":"{name}""#));
        fails("not the name of a .safetensors file");
    }
    // Without lmc's own hashes, as others write them.
    run.rewrite(3, r#""lmc""#, r#""other""#);
    let index = fs::read(run.index(3)).unwrap();
    let fails = |why: &str| {
        let e = follow(&run, "n").unwrap_err();
        assert!(e.to_string().contains(why), "{e}");
        fs::write(run.index(3), &index).unwrap();
        _ = fs::remove_file(&path);
        fs::write(&path, &whole).unwrap();
    };
    fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
    fails("its header has");
    fs::write(&path, [&99_999_999u64.to_le_bytes()[..], b"{}"].concat()).unwrap();
    fails("its header has");
    run.rewrite(3, r#""norm""#, r#""nose""#);
    fails("in this file or in");
    let other = String::from_utf8_lossy(&whole).into_owned();
    assert!(other.contains("norm"));
    let renamed: Vec<u8> = {
        let mut bytes = whole.clone();
        while let Some(at) = bytes.windows(4).position(|w| w == b"norm") {
            bytes[at..at + 4].copy_from_slice(b"nose");
        }
        bytes
    };
    fs::write(&path, renamed).unwrap();
    run.rewrite(3, r#""norm""#, r#""nose""#);
    fails("changes \"nose\", which its base has not");
    // Links and others lead elsewhere, or block.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(run.version(2).join(shard), &path).unwrap();
    fails("not a regular file");
    fs::remove_file(&path).unwrap();
    // The path of a socket is short.
    let short = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(short.path().join("s")).unwrap();
    fs::rename(short.path().join("s"), &path).unwrap();
    fails("not a regular file");
    // A sparse file instead of an index.
    fs::File::create(run.index(3)).unwrap().set_len(1 << 40).unwrap();
    fails("at most 100000000 are read");
    assert_eq!(follow(&run, "n").unwrap(), Some(3));
    assert!(run.is_at("n", 3) && run.is_at("m", 3));
}
