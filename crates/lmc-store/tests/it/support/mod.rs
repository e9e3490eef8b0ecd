//! Shared by the store's tests: checkpoints to save, and backends.

pub(crate) mod adam;
pub(crate) mod needs;
#[cfg(feature = "buckets")]
pub(crate) mod server;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::TryStreamExt;
use futures::executor::block_on;
use lmc_store::testing::Memory;
use lmc_store::{
    At, Garbage, GcOptions, Input, Location, SaveOptions, Snapshot, SnapshotReader, Step, Store, StoreOptions,
};
pub(crate) use lmc_testing::data::noise;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

/// A tensor of F32: name, rows, columns, bytes.
#[derive(Clone)]
pub(crate) struct Tensor(pub(crate) &'static str, pub(crate) u64, pub(crate) u64, pub(crate) Vec<u8>);

impl Tensor {
    pub(crate) fn new(name: &'static str, rows: u64, columns: u64, seed: u64) -> Self {
        let bytes = noise((rows * columns) as usize * 4, seed);
        // Between 1 and 2, of either sign: only the mantissa is random.
        let weights = bytes.chunks(4).flat_map(|b| {
            let x = u32::from_le_bytes(b.try_into().unwrap());
            (x & 0x807f_ffff | 0x3f80_0000).to_le_bytes()
        });
        Self(name, rows, columns, weights.collect())
    }

    /// One step of training: every element moves by a few units in the last place.
    pub(crate) fn train(&mut self, seed: u64) {
        let moves = noise(self.3.len() / 4, seed);
        for (w, m) in self.3.chunks_mut(4).zip(moves) {
            let x = u32::from_le_bytes(w.try_into().unwrap());
            w.copy_from_slice(&(x ^ u32::from(m & 7)).to_le_bytes());
        }
    }
}

pub(crate) fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut at = 0;
    let mut entries = Vec::new();
    for Tensor(name, rows, columns, bytes) in tensors {
        let end = at + bytes.len();
        entries.push(format!(r#""{name}":{{"dtype":"F32","shape":[{rows},{columns}],"data_offsets":[{at},{end}]}}"#));
        at = end;
    }
    let mut header = format!("{{{}}}", entries.join(","));
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    tensors.iter().for_each(|t| file.extend(&t.3));
    file
}

/// A model of two large tensors and two small ones: 1.4 MB.
pub(crate) fn model() -> Vec<Tensor> {
    vec![
        Tensor::new("embed", 1000, 200, 1),
        Tensor::new("norm", 1, 200, 2),
        Tensor::new("head", 200, 500, 3),
        Tensor::new("bias", 1, 500, 4),
    ]
}

/// What a collection would delete.
pub(crate) fn unneeded(store: &Store) -> lmc_store::Result<Garbage> {
    let mut o = GcOptions::default();
    o.dry_run = true;
    store.gc(&o)
}

pub(crate) fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

/// The key of a record: as `docs/store.md` says, and without the store's code.
pub(crate) fn record_key(n: u64, generation: u32) -> String {
    let number = format!("{:016}", (1u64 << 53) - n);
    let [a, b, c, d, e] = [0..4, 4..7, 7..10, 10..13, 13..16].map(|digits| &number[digits]);
    format!("snapshots/{a}/{b}/{c}/{d}/{e}-{generation:010}.json")
}

/// The step of a record's key.
pub(crate) fn step_of(key: &str) -> u64 {
    let number = key.strip_prefix("snapshots/").unwrap().split_once('-').unwrap().0.replace('/', "");
    (1 << 53) - number.parse::<u64>().unwrap()
}

/// The objects of a new store in memory.
pub(crate) fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

/// A source of ids that is equal in every run.
pub(crate) fn options(seed: u64) -> StoreOptions {
    let mut o = StoreOptions::default();
    let next = AtomicU64::new(0);
    o.entropy = Arc::new(move || {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&seed.to_be_bytes());
        id[8..].copy_from_slice(&next.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Ok(id)
    });
    o
}

pub(crate) fn new_store(objects: &Arc<dyn ObjectStore>) -> Store {
    Store::create_on(objects.clone(), StoreOptions::default()).unwrap()
}

/// The grace period, in seconds, of the stores with a clock.
pub(crate) const GRACE: u64 = 1000;

/// A new store with a clock.
pub(crate) fn new() -> (Arc<Memory>, Store) {
    let objects = Arc::new(Memory::default());
    let mut o = options(0);
    o.grace_seconds = GRACE;
    let store = Store::create_on(objects.clone(), o).unwrap();
    (objects, store)
}

/// A new store of the run of another one.
pub(crate) fn store_like(other: &Store, objects: &Arc<dyn ObjectStore>) -> Store {
    let mut o = StoreOptions::default();
    o.run = Some(other.run());
    Store::create_on(objects.clone(), o).unwrap()
}

pub(crate) fn save_with(store: &Store, n: u64, file: &[u8], o: &SaveOptions) -> lmc_store::Result<Snapshot> {
    store.save(&[Input::new("m.safetensors", &file)], Some(step(n)), BTreeMap::new(), o)
}

pub(crate) fn save(store: &Store, n: u64, file: &[u8]) -> Snapshot {
    save_with(store, n, file, &SaveOptions::default()).unwrap()
}

pub(crate) fn reader(store: &Store, n: u64) -> SnapshotReader {
    store.open_snapshot(&store.find(At::Step(step(n))).unwrap()).unwrap()
}

pub(crate) fn restored(store: &Store, n: u64) -> lmc_store::Result<Vec<u8>> {
    let mut out = vec![1, 2, 3];
    store.open_snapshot(&store.find(At::Step(step(n)))?)?.read_file("m.safetensors", &mut out)?;
    Ok(out)
}

/// A new prefix on the server that `LMC_STORE_TEST_LOCATION` names, if it is set.
fn on_server() -> Option<Location> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let location = std::env::var("LMC_STORE_TEST_LOCATION").ok()?;
    let unique = format!("{location}/{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    Some(unique.parse().unwrap())
}

/// Runs a test on a new directory; or, if one is configured, on a server.
pub(crate) fn on_each_place(test: impl Fn(&Location)) {
    // `./test store` finds the tests by these names. With one thread, that of a test is the first one.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let found = ["main", "concurrency::", "contract::", "on_each_backend"].iter().any(|part| name.contains(part));
    assert!(found, "{name}: name it …_on_each_backend");
    let dir = tempfile::tempdir().unwrap();
    test(&on_server().unwrap_or_else(|| Location::Directory(dir.path().join("run/7"))));
}

/// Runs a test on new stores in memory and in a directory; and on the server that `LMC_STORE_TEST_LOCATION` names, if it is set.
pub(crate) fn on_each_backend(test: impl Fn(Arc<dyn ObjectStore>)) {
    if on_server().is_none() {
        test(memory());
    }
    on_each_place(|place| test(place.connect(true).unwrap()));
}

/// The contents of an object.
pub(crate) fn get(objects: &dyn ObjectStore, key: &(impl AsRef<str> + ?Sized)) -> Vec<u8> {
    let key = Path::parse(key.as_ref()).unwrap();
    block_on(async { objects.get(&key).await.unwrap().bytes().await.unwrap().to_vec() })
}

/// Writes an object.
pub(crate) fn put(objects: &dyn ObjectStore, key: &(impl AsRef<str> + ?Sized), bytes: impl Into<PutPayload>) {
    block_on(objects.put(&Path::parse(key.as_ref()).unwrap(), bytes.into())).unwrap();
}

/// The data objects of a store: keys and contents.
pub(crate) fn data_objects(objects: &Arc<dyn ObjectStore>) -> Vec<(String, bytes::Bytes)> {
    block_on(async {
        let mut found = vec![];
        let listed: Vec<_> = objects.list(Some(&"data".into())).try_collect().await.unwrap();
        for o in listed {
            found.push((o.location.to_string(), objects.get(&o.location).await.unwrap().bytes().await.unwrap()));
        }
        found
    })
}
