//! Versions for receivers without a store: written, followed, damaged, out of order, and left unfinished.

mod corpus;
mod hostile;
mod order;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::support::{memory, new_store, step};
use lmc_store::interchange::{Checksum, DeltaEncoding, Exported, Interchange, InterchangeOptions};
use lmc_store::{ErrorKind, FollowOptions, Follower, Input, Result, SaveOptions, Store};

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

/// The contents of a directory; empty if it is no model.
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
        self.open()?.write(&self.store, &saved, &mut |_| Ok(()))
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

    /// Writes a version as a checkpoint.
    fn checkpoint(&self, name: &str, n: usize) -> PathBuf {
        let path = self.to(name);
        fs::create_dir(&path).unwrap();
        self.models[n - 1].files().iter().for_each(|(name, bytes)| fs::write(path.join(name), bytes).unwrap());
        path
    }

    /// Removes lmc's entry from an index, which others do not write.
    fn without_own(&self, n: u64, checksum: bool) {
        let mut index: serde_json::Value = serde_json::from_slice(&fs::read(self.index(n)).unwrap()).unwrap();
        let metadata = index["metadata"].as_object_mut().unwrap();
        metadata.remove("lmc").unwrap();
        if !checksum {
            metadata.remove("checksum_format");
        }
        fs::write(self.index(n), index.to_string()).unwrap();
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
fn follow_with(versions: &Path, to: &Path, base: Option<(&Path, u64)>, o: FollowOptions) -> Result<Option<u64>> {
    let base = base.map(|(path, n)| (path, step(n)));
    let mut follower = Follower::open_interchange(versions, base, to, o)?;
    let Some(newest) = follower.newest()? else { return Ok(None) };
    let staged = follower.stage(&newest, &mut |_| Ok(()))?;
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
fn changed_files_of_the_current_version_are_restored_from_a_full_one() {
    let run = Run::of_three(InterchangeOptions::default(), 100);
    assert_eq!(follow(&run, "m").unwrap(), Some(3));
    let current = run.to("m").join("current");
    let repair = || {
        let mut follower =
            Follower::open_interchange(&run.versions(), None, &run.to("m"), FollowOptions::default()).unwrap();
        follower.repair(&mut |_| Ok(())).map(|repaired| repaired.files)
    };
    assert_eq!(repair().unwrap(), [""; 0]);
    for (name, at) in [("model-0.safetensors", 20), ("model-1.safetensors", 200), ("config.json", 7)] {
        let path = current.join(name);
        let was = fs::read(&path).unwrap();
        let mut bytes = was.clone();
        bytes[at] ^= 1;
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, &bytes).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        // Not without what leads to the version.
        fs::rename(run.version(2), run.to("gone")).unwrap();
        refused(repair(), ErrorKind::Damaged, &format!("{name}: cannot be restored"));
        assert_eq!(fs::read(&path).unwrap(), bytes);
        fs::rename(run.to("gone"), run.version(2)).unwrap();
        assert_eq!(repair().unwrap(), [name]);
        assert_eq!(fs::read(&path).unwrap(), was);
    }
    assert!(run.is_at("m", 3));
    assert_eq!(repair().unwrap(), [""; 0]);
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
    // And a delta against a version that the store lacks.
    let at = run.models.len() as u64;
    let other = Run::new(o, 100);
    run.store = other.store;
    run.models.push(run.models[0].clone());
    let files = run.models[0].files();
    let inputs: Vec<Input<'_>> = files.iter().map(|(name, bytes)| Input::new(&name[..], bytes)).collect();
    let snapshot = run.store.save(&inputs, Some(step(at + 1)), BTreeMap::new(), &SaveOptions::default()).unwrap();
    assert_eq!(run.open().unwrap().write(&run.store, &snapshot, &mut |_| Ok(())).unwrap().base, None);
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
        refused(versions.write(&run.store, &snapshot, &mut |_| Ok(())), ErrorKind::Usage, why);
    }
    refused(run.open(), ErrorKind::Exists, "another process");
    drop(versions);
    // Versions of others are not continued.
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
            run.open().unwrap().write(&run.store, &last, &mut |_| Ok(())).unwrap();
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
    // An existing version is not replaced.
    fs::remove_dir_all(run.version(4)).unwrap();
    fs::create_dir(run.version(3)).unwrap();
    fs::write(run.version(3).join("file"), b"").unwrap();
    refused(run.open().unwrap().write(&run.store, &last, &mut |_| Ok(())), ErrorKind::Io, "weight_v000003");
    assert!(!run.versions().join(".lmc-staging").exists());
}
