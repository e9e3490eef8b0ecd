//! The stores of `testdata/store1`, the one place where each rule of the documents is broken: what is valid is restored, and what breaks a rule
//! is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{options, put, step};
use lmc_store::testing::Memory;
use lmc_store::{At, ErrorKind, GcOptions, Input, Result, SaveOptions, Store, VerifyOptions};
use serde_json::{Map, Value};

type Objects = BTreeMap<String, Vec<u8>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/store1")
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder().join(name)).unwrap()).unwrap()
}

/// The objects of a store of the folder.
fn objects_of(name: &str) -> Objects {
    let (root, mut objects, mut folders) = (folder().join(name), Objects::new(), vec![folder().join(name)]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                objects.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().into(), fs::read(path).unwrap());
            }
        }
    }
    objects
}

fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_string()
}

/// The text of a document; other bytes as they are.
fn unpacked(bytes: &[u8]) -> Vec<u8> {
    zstd::decode_all(bytes).unwrap_or_else(|_| bytes.to_vec())
}

/// The stored bytes of a document.
fn packed(key: &str, text: Vec<u8>) -> Vec<u8> {
    match key.split('/').next() {
        Some("shards") => zstd::encode_all(&text[..], 1).unwrap(),
        Some("snapshots" | "tags" | "floors") => {
            let rest = &text[..text.len() - 76];
            let check = digest(&[rest, b"}"].concat());
            [rest, format!(",\"check\":\"{check}\"}}").as_bytes()].concat()
        }
        _ => text,
    }
}

fn replaced(text: &[u8], old: &str, new: &str) -> Vec<u8> {
    String::from_utf8(text.to_vec()).unwrap().replace(old, new).into_bytes()
}

/// Replaces an object, and its hash in all that name it.
fn change(objects: &mut Objects, key: &str, new: Vec<u8>) {
    let old = digest(&objects.remove(key).unwrap());
    let now = digest(&new);
    objects.insert(key.replace(&old, &now), new);
    let names_it = |bytes: &[u8]| unpacked(bytes).windows(old.len()).any(|part| part == old.as_bytes());
    while let Some(other) = objects.iter().find_map(|(key, bytes)| names_it(bytes).then(|| key.clone())) {
        let text = replaced(&unpacked(&objects[&other]), &old, &now);
        change(objects, &other, packed(&other, text));
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// A store with the changes of an entry of a list.
fn changed(mut objects: Objects, entry: &Value) -> Objects {
    let of = |name: &str| entry[name].as_object().cloned().unwrap_or_else(Map::new);
    for edit in entry["edit"].as_array().into_iter().flatten() {
        let key = edit["key"].as_str().unwrap();
        let mut text = unpacked(&objects[key]);
        for edit in edit["replace"].as_array().unwrap() {
            let [old, new] = [0, 1].map(|i| edit[i].as_str().unwrap());
            assert_eq!(std::str::from_utf8(&text).unwrap().matches(old).count(), 1, "{old}");
            text = replaced(&text, old, new);
        }
        change(&mut objects, key, packed(key, text));
    }
    of("stored").into_iter().for_each(|(key, bytes)| change(&mut objects, &key, unhex(bytes.as_str().unwrap())));
    for (key, bytes) in of("put") {
        match bytes.as_str() {
            Some(bytes) => _ = objects.insert(key, unhex(bytes)),
            None => _ = objects.remove(&key).unwrap(),
        }
    }
    objects
}

fn opened(objects: &Objects) -> Result<Store> {
    let memory = Memory::default();
    objects.iter().for_each(|(key, bytes)| put(&memory, key, bytes.clone()));
    Store::open_on(Arc::new(memory), options(1))
}

fn at(text: &str) -> At {
    text.parse().map_or_else(|_| At::Tag(text.parse().unwrap()), |n| At::Step(step(n)))
}

/// The hashes of the files of a snapshot, of which each tensor was read, too.
fn restored(objects: &Objects, place: &str) -> Result<BTreeMap<String, String>> {
    let store = opened(objects)?;
    let reader = store.open_snapshot(&store.find(at(place))?)?;
    let mut files = BTreeMap::new();
    for file in reader.files() {
        let mut out = vec![];
        reader.read_file(&file.name, &mut out)?;
        files.insert(file.name.clone(), digest(&out));
        file.segments
            .iter()
            .filter_map(|s| s.name.as_deref())
            .try_for_each(|name| reader.read_tensor(name).map(drop))?;
    }
    Ok(files)
}

/// The kind of the error of an operation.
fn failure(objects: &Objects, operation: &str) -> Option<ErrorKind> {
    let (what, place) = operation.split_once(' ').unwrap_or((operation, ""));
    let problems = |n: usize| (n > 0).then_some(ErrorKind::Damaged);
    let done = match what {
        "verify" if place.is_empty() => opened(objects)
            .and_then(|s| s.verify_all(&VerifyOptions::default()))
            .map(|found| problems(found.problems.len())),
        "verify" => opened(objects)
            .and_then(|store| store.verify(&[store.find(at(place))?], true, 1))
            .map(|found| problems(found.problems.len())),
        "collect" => opened(objects).and_then(|s| s.gc(&GcOptions::default())).map(|_| None),
        "save" => opened(objects)
            .and_then(|s| {
                s.save_shard(&[Input::new("x", &&b"x"[..])], step(place.parse().unwrap()), &SaveOptions::default())
            })
            .map(|_| None),
        "restore" | "tensors" | "alternatives" => restored(objects, place).map(|_| None),
        _ => panic!("{operation}"),
    };
    done.unwrap_or_else(|e| Some(e.kind()))
}

/// Tries everything that the description of a store and the changes of it say. Returns what is wrong.
fn wrong(objects: &Objects, expected: &Value, entry: &Value) -> Vec<String> {
    let mut wrong = vec![];
    let refuse = entry["refuse"].as_object().or(expected["refuse"].as_object()).unwrap();
    for (operation, kind) in refuse {
        let found = failure(objects, operation).map(|kind| format!("{kind:?}").to_lowercase());
        if found.as_deref() != kind.as_str() {
            wrong.push(format!("{operation}: {found:?}, and not {kind}"));
        }
    }
    let is_refused = |place: &str| refuse.keys().any(|operation| operation.ends_with(&format!(" {place}")));
    for (n, files) in expected["snapshots"].as_object().unwrap().iter().filter(|(n, _)| !is_refused(n)) {
        let tags = expected["tags"].as_object().unwrap().iter().filter(|(_, step)| step.to_string() == *n);
        for place in tags.map(|(name, _)| name).filter(|name| !is_refused(name)).chain([n]) {
            match restored(objects, place) {
                Ok(found) if serde_json::to_value(&found).unwrap() == *files => {}
                found => wrong.push(format!("restore {place}: {found:?}")),
            }
        }
    }
    wrong
}

#[test]
fn valid_stores_are_restored_and_others_refused() {
    let mut found = vec![];
    let stores: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_str().unwrap().into())
        .collect();
    let stores: BTreeMap<&str, (Objects, Value)> =
        stores.iter().map(|name| (&name[..], (objects_of(name), json(&format!("{name}.json"))))).collect();
    for (name, (objects, expected)) in &stores {
        found.extend(wrong(objects, expected, &Value::Null).into_iter().map(|what| format!("{name}: {what}")));
    }
    let mut count = stores.len();
    for list in ["good.json", "bad.json"] {
        for entry in json(list).as_array().unwrap() {
            let (name, (objects, expected)) = (&entry["name"], &stores[entry["store"].as_str().unwrap()]);
            let objects = changed(objects.clone(), entry);
            found.extend(wrong(&objects, expected, entry).into_iter().map(|what| format!("{name}: {what}")));
            count += 1;
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(count > 250, "{count} stores");
}
