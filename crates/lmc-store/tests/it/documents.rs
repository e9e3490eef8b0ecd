//! Documents of shards: small beside the data that they describe, and complete in copies, archives and after pruning.

use std::sync::Arc;

use crate::support::{memory, needs, new_store, noise, options, restored, save_with, step, store_like};
use lmc::Level;
use lmc_store::testing::Memory;
use lmc_store::{
    At, BasePolicy, CopyOptions, ErrorKind, GcOptions, Input, Keep, Location, RebaseOptions, SaveOptions, Saved, Store,
    StoreOptions,
};
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;

/// A file of this many tensors of bf16, of 400 to 5,000 elements each.
fn many(tensors: usize) -> Vec<u8> {
    let (mut at, mut entries) = (0, vec![]);
    for i in 0..tensors {
        let n = 400 + noise(2, i as u64).iter().map(|&b| usize::from(b) * 9).sum::<usize>();
        let name = format!("model.layers.{}.mlp.experts.{}.weight", i / 128, i % 128);
        entries.push(format!(r#""{name}":{{"dtype":"BF16","shape":[{n}],"data_offsets":[{at},{}]}}"#, at + 2 * n));
        at += 2 * n;
    }
    let mut header = format!(r#"{{"__metadata__":{{"step":"0"}},{}}}"#, entries.join(","));
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    let values = noise(at, 7);
    file.extend(values.chunks(2).flat_map(|b| [b[0], b[1] & 0x83 | 0x3c]));
    file
}

/// Changes one of `every` elements, in a part of the file that ends with it.
fn change(file: &mut [u8], every: usize, part: usize) {
    let from = file.len() - part / 2 * 2;
    file[from..].iter_mut().step_by(2 * every).for_each(|b| *b = b.wrapping_add(1));
}

fn fast() -> SaveOptions<'static> {
    let mut o = SaveOptions::default();
    (o.level, o.base, o.threads) = (Level::Fast, BasePolicy::Previous, 2);
    o
}

fn save(store: &Store, n: u64, file: &[u8], o: &SaveOptions) -> Saved {
    let saved = store.save_shard(&[Input::new("m.safetensors", &file)], step(n), o).unwrap();
    store.publish(step(n), Default::default(), &[saved.shard]).unwrap();
    saved
}

fn document(objects: &dyn ObjectStore, store: &Store, n: u64) -> (usize, Value) {
    let id = store.find(At::Step(step(n))).unwrap().shards[0];
    let key = format!("shards/{id}.json.zst");
    let bytes =
        futures::executor::block_on(async { objects.get(&key.as_str().into()).await.unwrap().bytes().await.unwrap() });
    (bytes.len(), serde_json::from_slice(&zstd::decode_all(&bytes[..]).unwrap()).unwrap())
}

#[test]
fn documents_of_many_tensors_are_small_beside_their_deltas() {
    let objects = memory();
    let store = new_store(&objects);
    let mut file = many(4000);
    let first = save(&store, 0, &file, &fast());
    assert_eq!(first.changed, None);
    let mut files = vec![file.clone()];
    let (whole, listed) = document(&*objects, &store, 0);
    assert_eq!(first.document_size, whole as u64);
    assert!(listed["files"][0]["segments"].as_array().unwrap().len() > 4000);
    for (n, part) in [(1, file.len() / 3 * 2), (2, file.len() / 3 * 2), (3, 100_000)] {
        change(&mut file, 55, part);
        files.push(file.clone());
        let saved = save(&store, n, &file, &fast());
        let (size, named) = document(&*objects, &store, n);
        assert_eq!((saved.document_size, &named["files"][0]["segments"]), (size as u64, &Value::Null));
        let all = saved.new_size + saved.document_size;
        println!("step {n}: {} of data, {size} of document, which was {whole}", saved.new_size);
        if n < 3 {
            assert!(all * 20 <= saved.new_size * 21, "step {n}: {saved:?}");
        }
        // A twentieth of the size before, with hashes of two sets.
        assert!(size * 5 < whole, "step {n}: {size} of {whole}");
    }
    for (n, file) in files.iter().enumerate() {
        assert!(restored(&store, n as u64).unwrap() == *file);
    }
}

#[test]
fn changed_elements_are_counted_where_deltas_list_them() {
    let objects = memory();
    let store = new_store(&objects);
    let mut file = many(300);
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    save(&store, 0, &file, &fast());
    let elements = (file.len() - header) as u64 / 2;
    let part = file.len() - header;
    for (n, every, part) in [(1, 50, part), (2, 1000, 20_000), (3, 1, 0)] {
        change(&mut file, every, part);
        let saved = save(&store, n, &file, &fast());
        assert_eq!((saved.elements, saved.changed), (elements, Some((part as u64 / 2).div_ceil(every as u64))), "{n}");
        assert_eq!(saved.base, Some(step(n - 1)));
    }
    // Every element; and tensors that stand alone again.
    file[header..].iter_mut().step_by(2).for_each(|b| *b ^= 2);
    assert_eq!(save(&store, 4, &file, &fast()).changed, None);
    let mut o = fast();
    o.anchor_every = 1;
    change(&mut file, 50, part);
    assert_eq!(save(&store, 5, &file, &o).changed, None);
}

/// Saves of one file, each changed, that stand alone every third time.
fn run(objects: &Arc<dyn ObjectStore>) -> (Store, Vec<Vec<u8>>) {
    let store = Store::create_on(objects.clone(), options(1)).unwrap();
    let (mut file, mut files, mut o) = (many(200), vec![], fast());
    o.anchor_every = 3;
    for n in 0..7 {
        change(&mut file, 50, 100_000);
        // The step in the header: otherwise the first shard would be needed for that.
        file[8 + r#"{"__metadata__":{"step":""#.len()] = b'0' + n as u8;
        files.push(file.clone());
        save_with(&store, n, &file, &o).unwrap();
    }
    (store, files)
}

#[test]
fn segments_are_listed_again_where_nothing_else_of_a_shard_is_needed() {
    let objects = memory();
    let (store, files) = run(&objects);
    let lists = |n| !document(&*objects, &store, n).1["files"][0]["segments"].is_null();
    assert_eq!((0..7).map(lists).collect::<Vec<_>>(), [true, false, false, true, false, false, true]);
    // For two files with equal tensors, one saved later; and for a file of another name.
    let both = [Input::new("new.safetensors", &files[0]), Input::new("m.safetensors", &files[6])];
    store.save(&both, Some(step(7)), Default::default(), &fast()).unwrap();
    let (_, d) = document(&*objects, &store, 7);
    assert!(d["files"].as_array().unwrap().iter().all(|f| f["segments"].is_null()), "{d}");
}

#[test]
fn files_of_one_save_list_their_segments_once() {
    let objects = Arc::new(Memory::default());
    let there: Arc<dyn ObjectStore> = objects.clone();
    let store = Store::create_on(there, options(1)).unwrap();
    let mut file = many(300);
    let mut files = vec![];
    for _ in 0..4 {
        change(&mut file, 1, 100_000);
        files.push(file.clone());
    }
    // By names, of different lengths, which are not in the order of the files.
    let names = ["w.safetensors", "a/ema.safetensors", "b", "exp_avg.safetensors"];
    let inputs: Vec<Input<'_>> = names.iter().zip(&files).map(|(name, f)| Input::new(*name, f)).collect();
    store.save(&inputs, Some(step(0)), Default::default(), &fast()).unwrap();
    let lists = |store: &Store, objects: &dyn ObjectStore, n| {
        let files = document(objects, store, n).1["files"].as_array().unwrap().clone();
        files.iter().filter(|f| !f["segments"].is_null()).count()
    };
    let all = |store: &Store, n| {
        let found = store.verify(&store.snapshots().unwrap(), true, 1).unwrap();
        assert!(found.problems.is_empty(), "{found:?}");
        let reader = store.open_snapshot(&store.find(At::Step(step(n))).unwrap()).unwrap();
        for (name, file) in names.iter().zip(&files) {
            let mut out = vec![];
            reader.read_file(name, &mut out).unwrap();
            assert!(out == *file, "step {n}: {name}");
        }
    };
    assert_eq!(lists(&store, &*objects, 0), 1);
    all(&store, 0);
    // The next one names the segments that the first one lists, and lists them where it is copied alone.
    let saved = store.save(&inputs, Some(step(1)), Default::default(), &fast()).unwrap();
    assert_eq!(lists(&store, &*objects, 1), 0);
    let copies = memory();
    let copy = store_like(&store, &copies);
    copy.copy_from(&store, &[saved], CopyOptions::default()).unwrap();
    assert_eq!(lists(&copy, &*copies, 1), 1);
    all(&copy, 1);
    let mut keep = Keep::default();
    keep.steps = vec![step(1)];
    store.prune(&store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    store.rebase(&[step(1)], &RebaseOptions::default()).unwrap();
    objects.advance(200_000);
    store.gc(&GcOptions::default()).unwrap();
    all(&store, 1);
}

#[test]
fn what_lists_the_segments_stays_and_moves_with_what_needs_it() {
    let objects = Arc::new(Memory::default());
    let there: Arc<dyn ObjectStore> = objects.clone();
    let (store, files) = run(&there);
    let all = |store: &Store, steps: &[u64]| {
        steps.iter().for_each(|&n| assert!(restored(store, n).unwrap() == files[n as usize], "step {n}"));
        let found = store.verify(&store.snapshots().unwrap(), true, 1).unwrap();
        assert!(found.problems.is_empty(), "{found:?}");
    };
    all(&store, &[0, 1, 2, 3, 4, 5, 6]);
    // Copied as a whole, and in parts: the copy's own shards list and name.
    let copy = store_like(&store, &memory());
    let of = |n| store.find(At::Step(step(n))).unwrap();
    copy.copy_from(&store, &[of(2)], CopyOptions::default()).unwrap();
    copy.copy_from(&store, &[of(4), of(5)], CopyOptions::default()).unwrap();
    all(&copy, &[2, 4, 5]);
    let copy = store_like(&store, &memory());
    copy.copy_from(&store, &store.snapshots().unwrap(), CopyOptions::default()).unwrap();
    all(&copy, &[0, 1, 2, 3, 4, 5, 6]);
    // An archive has the shards that list them, and the run's id.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.tar");
    store.export(&[of(5)], std::fs::File::create(&path).unwrap()).unwrap();
    let archive = Store::open(&Location::Directory(path), StoreOptions::default()).unwrap();
    all(&archive, &[5]);
    assert_eq!(archive.run(), store.run());
    // Pruned and collected, with and without re-basing.
    let mut keep = Keep::default();
    keep.steps = [1, 5].map(step).to_vec();
    store.prune(&store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    objects.advance(100_000);
    store.gc(&GcOptions::default()).unwrap();
    assert_eq!(needs::keys(&*objects), needs::needed(&*objects));
    all(&store, &[1, 5]);
    store.rebase(&[step(5)], &RebaseOptions::default()).unwrap();
    objects.advance(100_000);
    store.gc(&GcOptions::default()).unwrap();
    assert_eq!(needs::keys(&*objects), needs::needed(&*objects));
    all(&store, &[1, 5]);
    // Without the shard that lists them, the snapshot is reported as damaged.
    let (_, d) = document(&*objects, &store, 1);
    let of = d["files"][0]["segments_of"][0].as_u64().unwrap() as usize - 1;
    let key = format!("shards/{}.json.zst", d["shards"][of].as_str().unwrap());
    futures::executor::block_on(objects.delete(&key.as_str().into())).unwrap();
    let e = restored(&store, 1).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains(&key), "{e}");
}

#[test]
fn what_another_file_repeats_is_counted_and_not_said_to_be_unchanged() {
    let store = new_store(&memory());
    let file = many(300);
    let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap());
    let both = [lmc_store::Input::new("a", &file), lmc_store::Input::new("b", &file)];
    for n in 0..2 {
        let saved = store.save_shard(&both, step(n), &fast()).unwrap();
        store.publish(step(n), Default::default(), &[saved.shard]).unwrap();
        assert_eq!((saved.elements, saved.changed), (file.len() as u64 - header, None), "{n}");
    }
    // Without tensors nothing can change.
    let text = b"text".to_vec();
    let none = store.save_shard(&[lmc_store::Input::new("c", &text)], step(2), &fast()).unwrap();
    assert_eq!((none.elements, none.changed), (0, None));
}
