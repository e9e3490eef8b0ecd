//! Versions for receivers without a store: written, received as other programs do, and left unfinished.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::support::{memory, new_store, step};
use lmc_store::interchange::{Exported, Interchange, InterchangeOptions};
use lmc_store::{ErrorKind, Input, Result, SaveOptions, Store};
use lmc_testing::interchange::received;

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

    fn tensors(&self) -> lmc_testing::interchange::Tensors {
        let named = |(name, (dtype, shape, bytes)): (&String, &(&str, _, _))| {
            (name.clone(), (String::from(*dtype), Vec::clone(shape), Vec::clone(bytes)))
        };
        self.0.iter().flatten().map(named).collect()
    }
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

    /// Whether the version is the one that was saved.
    fn is_written(&self, n: u64) -> bool {
        received(&self.versions(), n) == self.models[n as usize - 1].tensors()
    }
}

/// The message of an error of a kind.
fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, why: &str) {
    let e = result.unwrap_err();
    assert!(e.kind() == kind && e.to_string().contains(why), "{e:?}");
}

#[test]
fn versions_are_written() {
    let mut o = InterchangeOptions::default();
    // A file for each tensor.
    o.file_size = 1;
    let mut run = Run::new(o, 2000);
    let second = run.train(&["embed", "head"]);
    assert_eq!((second.base, second.tensors), (Some(step(1)), 2));
    assert!(
        second.changed_size == u64::from(32_000u32.div_ceil(13) + 2000u32.div_ceil(13))
            && second.written_size < second.total_size / 4
    );
    assert!(run.version(2).join("model-00001-of-00002.safetensors").is_file());
    run.train(&["norm"]);
    run.train(&["embed", "norm"]);
    run.train(&[]);
    assert!((1..=5).all(|n| run.is_written(n)));
    assert_eq!(fs::read(run.version(1).join("config.json")).unwrap(), br#"{"hidden_size": 1}"#);
    assert!(!run.version(1).join("optimizer.pt").exists());
}

#[test]
fn what_no_delta_can_say_is_a_full_version() {
    let o = InterchangeOptions::default();
    let mut run = Run::new(o, 100);
    assert_eq!(run.train(&["embed"]).base, Some(step(1)));
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
        assert!(run.is_written(run.models.len() as u64));
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
}

#[test]
fn what_is_unfinished_is_no_version() {
    let mut run = Run::of_three(InterchangeOptions::default(), 200);
    // Every state that a crash leaves: files in the staging directory, up to all of them, and no version.
    let whole = run.dir.path().join("whole");
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
            run.open().unwrap().write(&run.store, &last, &mut |_| Ok(())).unwrap();
            for name in &names {
                assert_eq!(fs::read(run.version(3).join(name)).unwrap(), fs::read(whole.join(name)).unwrap());
            }
            assert_eq!(fs::read_dir(run.version(3)).unwrap().count(), names.len());
            assert!(run.is_written(3));
            fs::remove_dir_all(run.version(3)).unwrap();
        }
    }
    // Others write the index last: without it there is no version.
    run.train(&["norm"]);
    fs::remove_file(run.index(4)).unwrap();
    assert_eq!(run.open().unwrap().last(), Some(step(2)));
    // An existing version is not replaced.
    fs::remove_dir_all(run.version(4)).unwrap();
    fs::create_dir(run.version(3)).unwrap();
    fs::write(run.version(3).join("file"), b"").unwrap();
    refused(run.open().unwrap().write(&run.store, &last, &mut |_| Ok(())), ErrorKind::Io, "weight_v000003");
    assert!(!run.versions().join(".lmc-staging").exists());
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
