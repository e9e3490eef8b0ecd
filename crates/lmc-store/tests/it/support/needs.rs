//! The objects that a store's snapshots need, derived from its JSON documents and `docs/store.md` without the store's code.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use futures::executor::block_on;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;

pub(crate) fn keys(objects: &dyn ObjectStore) -> BTreeSet<String> {
    block_on(objects.list(None).map_ok(|o| o.location.to_string()).try_collect()).unwrap()
}

fn json(objects: &dyn ObjectStore, key: &str) -> Value {
    let bytes = block_on(async { objects.get(&key.into()).await.unwrap().bytes().await.unwrap() });
    let bytes = if key.ends_with(".zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes.to_vec() };
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{key}: {e}"))
}

fn number(v: &Value) -> usize {
    v.as_u64().unwrap() as usize
}

/// The keys of everything that is not garbage once it is old enough.
pub(crate) fn needed(objects: &dyn ObjectStore) -> BTreeSet<String> {
    let all = keys(objects);
    // The last key of each step.
    let highest = |prefix: &'static str| {
        let mut highest: BTreeMap<&str, &String> = BTreeMap::new();
        for key in all.iter().filter(|k| k.starts_with(prefix)) {
            // Keys sort like generations.
            highest.insert(key.rsplit_once('-').unwrap().0, key);
        }
        highest
    };
    let mut needed = BTreeSet::from(["lmc-store.json".to_owned()]);
    // Keys sort by falling step.
    let floor = highest("floors/").into_values().next().map(|key| {
        needed.insert(key.clone());
        json(objects, key)
    });
    // Pruned ones that may go.
    let is_forgotten = |record: &Value| {
        let step = number(&record["step"]);
        let may_go = |floor: &Value| {
            step <= number(&floor["step"]) && floor["kept"].as_array().unwrap().iter().all(|kept| number(kept) != step)
        };
        record["state"] == "pruned" && floor.as_ref().is_some_and(may_go)
    };
    for key in highest("snapshots/").into_values() {
        let record = json(objects, key);
        if is_forgotten(&record) {
            continue;
        }
        needed.insert(key.clone());
        for id in record["shards"].as_array().unwrap() {
            add_shard(objects, id.as_str().unwrap(), &mut needed);
        }
    }
    needed
}

fn add_shard(objects: &dyn ObjectStore, id: &str, needed: &mut BTreeSet<String>) {
    let key = |id: &str| format!("shards/{id}.json.zst");
    let own = json(objects, &key(id));
    needed.insert(key(id));
    let mut shards = vec![(id.to_owned(), own.clone())];
    for other in own["shards"].as_array().unwrap() {
        let other = other.as_str().unwrap();
        needed.insert(key(other));
        shards.push((other.to_owned(), json(objects, &key(other))));
    }
    let names: Vec<String> = shards.iter().map(|(id, _)| id.clone()).collect();
    // Sets by shard and index, whose chains are still to be followed.
    let mut sets: Vec<(usize, usize)> = vec![];
    for extent in own["files"].as_array().unwrap().iter().flat_map(|f| f["extents"].as_array().unwrap()) {
        sets.push((number(&extent[0]), number(&extent[1])));
    }
    while let Some((shard, set)) = sets.pop() {
        let document = &shards[shard].1;
        let found = &document["sets"][set];
        needed.insert(data_object(document, number(&found["at"][0])));
        let others = found.get("others").and_then(Value::as_array).into_iter().flatten();
        for base in found.get("base").into_iter().chain(others) {
            let of = match number(&base[0]) {
                0 => names[shard].clone(),
                n => document["shards"][n - 1].as_str().unwrap().to_owned(),
            };
            let of = names.iter().position(|n| *n == of).expect("a shard names all that it needs");
            sets.push((of, number(&base[1])));
        }
    }
}

/// The key of a data object: the save that wrote it, and its number there.
fn data_object(document: &Value, index: usize) -> String {
    let (mut first, mut save) = (0, &document["save"]);
    for writer in document["writers"].as_array().into_iter().flatten() {
        if number(&writer[0]) <= index {
            (first, save) = (number(&writer[0]), &writer[1]);
        }
    }
    format!("data/{}/{:06}", save.as_str().unwrap(), index - first)
}
