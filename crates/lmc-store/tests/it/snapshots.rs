//! Saving and reading snapshots: their cost, their bases, and reading parts of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use lmc_store::testing::Memory;
use lmc_store::{
    BasePolicy, ErrorKind, Input, Location, MetaValue, Metadata, SaveOptions, Snapshot, Step, Store, StoreOptions,
};

fn store() -> Store {
    Store::create(&Location::Memory, StoreOptions::default()).unwrap()
}

#[test]
fn what_did_not_change_costs_a_reference() {
    let store = store();
    let mut tensors = model();
    let first = save(&store, 100, &safetensors(&tensors));
    assert!(first.new_size > 900_000 && first.raw_size > 1_200_000);
    let again = save(&store, 200, &safetensors(&tensors));
    assert_eq!((again.raw_size, again.new_size), (first.raw_size, 0));
    // The small ones share a block set, the large ones have their own.
    tensors[2].train(1);
    let head = save(&store, 300, &safetensors(&tensors));
    assert!((1000..200_000).contains(&head.new_size), "{}", head.new_size);
    // Contents last seen two snapshots ago are still known: the previous snapshot refers to them.
    tensors[2] = model()[2].clone();
    let back = save(&store, 400, &safetensors(&tensors));
    assert_eq!(back.new_size, 0);
    for n in [100, 200, 400] {
        assert!(restored(&store, n).unwrap() == safetensors(&tensors));
    }
    assert!(restored(&store, 300).unwrap() != safetensors(&tensors));
}

#[test]
fn equal_tensors_of_one_snapshot_are_stored_once() {
    let store = store();
    let one = Tensor::new("a", 400, 300, 1);
    let mut two = one.clone();
    two.0 = "b";
    let alone = save(&store, 1, &safetensors(std::slice::from_ref(&one)));
    let other = Store::create(&Location::Memory, StoreOptions::default()).unwrap();
    let both = save(&other, 1, &safetensors(&[one, two]));
    assert!(both.new_size < alone.new_size + 1000, "{} and {}", both.new_size, alone.new_size);
}

#[test]
fn tensors_are_known_in_other_files_and_other_places() {
    let store = store();
    let mut tensors = model();
    save(&store, 1, &safetensors(&tensors));
    tensors.iter_mut().for_each(|t| t.train(1));
    tensors.reverse();
    let moved = safetensors(&tensors);
    let o = SaveOptions::default();
    let s = store.save(&[Input::new("other", &moved)], Some(step(2)), BTreeMap::new(), &o).unwrap();
    assert!(s.new_size < 400_000, "{}", s.new_size);
    let mut out = vec![];
    store.open_snapshot(&s).unwrap().read_file("other", &mut out).unwrap();
    assert!(out == moved);
}

#[test]
fn anything_is_saved() {
    let store = store();
    let files = [
        vec![],
        vec![7],
        noise(100_000, 1),
        b"text ".repeat(10_000),
        vec![0; 40 << 20],
        safetensors(&[]),
        noise(17 << 20, 2),
    ];
    for round in 0..2 {
        let inputs: Vec<Input<'_>> = files.iter().enumerate().map(|(i, f)| Input::new(format!("f{i}"), f)).collect();
        let s = store.save(&inputs, Some(step(round)), BTreeMap::new(), &SaveOptions::default()).unwrap();
        assert_eq!(s.new_size == 0, round == 1);
        let reader = store.open_snapshot(&s).unwrap();
        for (i, f) in files.iter().enumerate() {
            let (mut out, name) = (vec![9], format!("f{i}"));
            reader.read_file(&name, &mut out).unwrap();
            assert!(out == *f, "{name}");
            assert_eq!(reader.file(&name).unwrap().len, f.len() as u64);
        }
    }
}

/// Saves a model that is trained between saves; returns the stored size of each snapshot.
fn train(store: &Store, saves: u64, o: &SaveOptions) -> Vec<Snapshot> {
    let mut tensors = model();
    let mut files = vec![];
    let mut snapshots = vec![];
    for n in 0..saves {
        files.push(safetensors(&tensors));
        snapshots.push(save_with(store, n, &files[n as usize], o).unwrap());
        tensors.iter_mut().for_each(|t| t.train(n));
    }
    for (n, file) in files.iter().enumerate() {
        assert!(restored(store, n as u64).unwrap() == *file, "step {n}");
    }
    snapshots
}

#[test]
fn chains_end_at_anchors() {
    let full = |s: &Snapshot| s.new_size > 900_000;
    let mut o = SaveOptions::default();
    o.anchor_every = 3;
    for base in [BasePolicy::Auto, BasePolicy::Previous] {
        o.base = base;
        let costs: Vec<bool> = train(&store(), 8, &o).iter().map(full).collect();
        assert_eq!(costs, [true, false, false, true, false, false, true, false], "{base:?}");
    }
    o.anchor_every = 1;
    o.base = BasePolicy::Previous;
    assert!(train(&store(), 3, &o).iter().all(full));
    for bad in [0, 65] {
        o.anchor_every = bad;
        let e = save_with(&store(), 0, &[], &o).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Usage);
    }
}

#[test]
fn chains_end_where_too_much_would_have_to_be_read() {
    let mut o = SaveOptions::default();
    // Of each element, this many of its lowest bytes change.
    let mut costs = |base, changed: usize| {
        o.base = base;
        let store = store();
        let mut t = Tensor::new("t", 300, 1000, 1);
        for n in 0..14 {
            for (w, r) in t.3.chunks_mut(4).zip(noise(300_000 * changed, n).chunks(changed)) {
                w[..changed].copy_from_slice(r);
            }
            let file = safetensors(std::slice::from_ref(&t));
            save_with(&store, n, &file, &o).unwrap();
            assert!(restored(&store, n).unwrap() == file);
        }
        let snapshots = store.snapshots().unwrap();
        let costs: Vec<_> = store.costs(&snapshots).unwrap().into_iter().map(Result::unwrap).collect();
        let read = costs.iter().zip(&snapshots).map(|(c, s)| c.stored_size as f64 / s.raw_size as f64);
        (costs.iter().map(|c| c.longest_chain).collect::<Vec<_>>(), read.fold(0.0, f64::max))
    };
    let (chains, read) = costs(BasePolicy::Auto, 1);
    assert_eq!(chains, [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]);
    assert!(read > 1.0 && read < 2.0, "{read}");
    let (chains, _) = costs(BasePolicy::Auto, 2);
    assert_eq!(chains, [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]);
    // A delta that saves less than an eighth.
    let (chains, _) = costs(BasePolicy::Auto, 3);
    assert_eq!(chains, [1; 14]);
    let (chains, read) = costs(BasePolicy::Previous, 2);
    assert!(chains == Vec::from_iter(1..=14) && read > 6.0, "{chains:?} {read}");
}

#[test]
fn the_longest_chain_is_restored() {
    let mut o = SaveOptions::default();
    (o.anchor_every, o.base) = (64, BasePolicy::Previous);
    let store = store();
    let mut t = Tensor::new("t", 64, 128, 1);
    for n in 0..66 {
        save_with(&store, n, &safetensors(std::slice::from_ref(&t)), &o).unwrap();
        if n == 63 || n == 65 {
            assert_eq!(reader(&store, n).read_tensor("t").unwrap(), t.3);
        }
        t.train(n);
    }
}

#[test]
fn a_delta_that_saves_nothing_is_not_made() {
    let first = safetensors(&[Tensor::new("t", 300, 400, 1)]);
    // The header changes, too: no chunk is equal.
    let other = safetensors(&[Tensor::new("t", 300, 400, 2), Tensor::new("u", 1, 1, 3)]);
    for (base, objects) in [(BasePolicy::Auto, 1), (BasePolicy::Previous, 2)] {
        let store = store();
        let mut o = SaveOptions::default();
        o.base = base;
        save_with(&store, 1, &first, &o).unwrap();
        let second = save_with(&store, 2, &other, &o).unwrap();
        assert!(restored(&store, 2).unwrap() == other);
        // The sets needed to restore the second one.
        assert_eq!(store.verify(&[second], true, 1).unwrap().objects, objects, "{base:?}");
    }
}

#[test]
fn tensors_and_rows_are_read_alone() {
    let store = store();
    let mut tensors = model();
    tensors.push(Tensor::new("large", 5000, 1000, 9));
    for n in 0..3 {
        tensors.iter_mut().for_each(|t| t.train(n));
        save(&store, n, &safetensors(&tensors));
    }
    let reader = reader(&store, 2).with_threads(2);
    for Tensor(name, rows, columns, bytes) in &tensors {
        assert!(reader.read_tensor(name).unwrap() == *bytes, "{name}");
        let row = *columns as usize * 4;
        for range in [0..1, rows - 1..*rows, rows / 3..rows / 2, 0..0] {
            let want = &bytes[range.start as usize * row..range.end as usize * row];
            assert!(reader.read_rows(name, range.clone()).unwrap() == want, "{name} {range:?}");
        }
        assert_eq!(reader.read_rows(name, 0..rows + 1).unwrap_err().kind(), ErrorKind::Usage);
    }
    let file = safetensors(&tensors);
    for (offset, len) in [(0, 1), (5, 2_000_000), (file.len() - 3, 3), (file.len(), 0)] {
        let mut out = vec![0; len];
        reader.read_range("m.safetensors", offset as u64, &mut out).unwrap();
        assert!(out == file[offset..offset + len]);
    }
    let beyond = reader.read_range("m.safetensors", file.len() as u64, &mut [0]).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::Usage);
    assert_eq!(reader.read_tensor("none").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(reader.read_file("none", &mut vec![]).unwrap_err().kind(), ErrorKind::NotFound);
    let dir = tempfile::tempdir().unwrap();
    let to = std::fs::File::create_new(dir.path().join("f")).unwrap();
    let mut last = 0;
    reader
        .restore_file("m.safetensors", &to, &mut |done| {
            last = done;
            Ok(())
        })
        .unwrap();
    assert!(std::fs::read(dir.path().join("f")).unwrap() == file && last == file.len() as u64);
}

#[test]
fn shards_of_several_processes_make_one_snapshot_at_once() {
    let store = store();
    let o = SaveOptions::default();
    let files: Vec<Vec<u8>> = (0..3).map(|i| safetensors(&[Tensor::new("w", 300, 300, i)])).collect();
    for n in [10, 20] {
        let shards: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(rank, f)| {
                let saved = store.save_shard(&[Input::new(format!("rank{rank}"), f)], step(n), &o).unwrap();
                assert_eq!(saved.new_size == 0, n == 20, "rank {rank}");
                saved.shard
            })
            .collect();
        // Before publishing, the snapshot does not exist.
        assert_eq!(store.snapshots().unwrap().len(), (n / 10 - 1) as usize);
        let metadata = Metadata::from([("loss".to_owned(), MetaValue::Float(2.5))]);
        let s = store.publish(step(n), metadata, &shards).unwrap();
        assert_eq!((s.shards.len(), s.metadata["loss"].number()), (1, Some(2.5)));
        let twice = store.publish(step(99), BTreeMap::new(), &[shards[0], shards[0]]).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::Usage);
        let inside = store.save_shard(&[Input::new("rank0/x", &files[0])], step(n), &o).unwrap();
        let clash = store.publish(step(99), BTreeMap::new(), &[shards[0], inside.shard]).unwrap_err();
        assert_eq!(clash.kind(), ErrorKind::Usage);
    }
    let reader = reader(&store, 20);
    for (rank, f) in files.iter().enumerate() {
        let mut out = vec![];
        reader.read_file(&format!("rank{rank}"), &mut out).unwrap();
        assert!(out == *f);
    }
    let lost = "0".repeat(64).parse().unwrap();
    assert_eq!(store.publish(step(30), BTreeMap::new(), &[lost]).unwrap_err().kind(), ErrorKind::Expired);
    assert_eq!(store.publish(step(30), BTreeMap::new(), &[]).unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(store.snapshots().unwrap().len(), 2);
}

#[test]
fn a_save_that_took_too_long_is_refused() {
    let objects = Arc::new(Memory::default());
    let mut o = options(0);
    o.grace_seconds = 1000;
    let store = Store::create_on(objects.clone(), o.clone()).unwrap();
    let file = safetensors(&model());
    let shard =
        |n| store.save_shard(&[Input::new("m.safetensors", &file)], step(n), &SaveOptions::default()).unwrap().shard;
    let publish = |n, shard| store.publish(step(n), BTreeMap::new(), &[shard]);
    let (early, late) = (shard(1), shard(2));
    objects.advance(490);
    let time = publish(1, early).unwrap().time;
    objects.advance(20);
    let e = publish(2, late).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Expired);
    let again = publish(2, shard(2)).unwrap();
    assert!(again.time >= time + 20);
    // How long it took is unknown if the clock was set back; servers of a bucket differ by a second.
    let (early, late) = (shard(4), shard(5));
    objects.set_back(1);
    publish(4, early).unwrap();
    objects.set_back(1);
    let e = publish(5, late).unwrap_err();
    assert!(e.kind() == ErrorKind::Expired && e.to_string().contains("the clock was set back"), "{e}");
    // A later caller gets the store's grace period, whatever its options.
    o.grace_seconds = 100_000;
    let store = Store::create_on(objects.clone(), o).unwrap();
    let shard =
        store.save_shard(&[Input::new("m.safetensors", &file)], step(3), &SaveOptions::default()).unwrap().shard;
    objects.advance(600);
    assert_eq!(store.publish(step(3), BTreeMap::new(), &[shard]).unwrap_err().kind(), ErrorKind::Expired);
    // So has one that a collection removed.
    let gone = "01".repeat(32).parse().unwrap();
    let e = store.publish(step(3), BTreeMap::new(), &[gone]).unwrap_err();
    assert!(e.kind() == ErrorKind::Expired && e.to_string().contains("no longer there: save it again"), "{e}");
}

#[test]
fn steps_and_names_are_checked() {
    let store = store();
    let f = vec![1, 2, 3];
    let o = SaveOptions::default();
    let save = |names: &[&str], n: Option<u64>| {
        let inputs: Vec<Input<'_>> = names.iter().map(|&name| Input::new(name, &f)).collect();
        store.save(&inputs, n.map(step), BTreeMap::new(), &o).map_err(|e| e.kind())
    };
    assert_eq!(save(&[], None), Err(ErrorKind::Usage));
    assert_eq!(save(&["a", "a"], None), Err(ErrorKind::Usage));
    for wrong in ["../a", "a/../../b", "/a", "a//b", "a/", "", "a\\b"] {
        assert_eq!(save(&[wrong], None), Err(ErrorKind::Usage), "{wrong:?}");
    }
    assert_eq!(save(&["a/b", "a!", "a"], None), Err(ErrorKind::Usage));
    // Without a step it becomes the next one.
    assert_eq!(save(&["a"], None).unwrap().step, step(0));
    assert_eq!(save(&["a"], Some(41)).unwrap().step, step(41));
    assert_eq!(save(&["a"], None).unwrap().step, step(42));
    assert_eq!(save(&["a"], Some(41)), Err(ErrorKind::Exists));
    assert_eq!(save(&["a"], Some(Step::MAX.get())).unwrap().step, Step::MAX);
    assert_eq!(save(&["a"], None), Err(ErrorKind::Usage));
}

#[test]
fn files_in_directories_are_found() {
    let store = store();
    let files = [("b/x", 1), ("b/c/y", 2), ("b!", 3), ("a", 4)].map(|(name, n)| (name, vec![n; 10]));
    let inputs: Vec<Input<'_>> = files.iter().map(|(name, f)| Input::new(*name, f)).collect();
    store.save(&inputs, Some(step(1)), BTreeMap::new(), &SaveOptions::default()).unwrap();
    let reader = reader(&store, 1);
    for (name, f) in &files {
        let mut out = vec![];
        reader.read_file(name, &mut out).unwrap();
        assert_eq!(out, *f);
    }
    let found = |names: &[&str]| reader.files_of(names).map(|f| f.iter().map(|f| &f.name[..]).collect::<Vec<_>>());
    for (names, want) in [
        (&["b"][..], &["b/x", "b/c/y"][..]),
        (&["b/"], &["b/x", "b/c/y"]),
        (&["b/c"], &["b/c/y"]),
        (&["a"], &["a"]),
        (&["a", "b/c", "b", "a", "b/x"], &["a", "b/c/y", "b/x"]),
        (&[], &[]),
    ] {
        assert_eq!(found(names).unwrap(), want, "{names:?}");
    }
    for none in ["", "/", "c", "a/", "b/c/y/", "x"] {
        assert_eq!(found(&["a", none]).unwrap_err().kind(), ErrorKind::NotFound, "{none:?}");
    }
}

#[test]
fn what_is_written_does_not_depend_on_threads() {
    let (mut tensors, mut wrote) = (model(), vec![]);
    tensors.push(Tensor::new("large", 3000, 1000, 9));
    tensors.push(tensors[0].clone());
    tensors[5].0 = "copy";
    let first = safetensors(&tensors);
    tensors.iter_mut().for_each(|t| t.train(1));
    let second = safetensors(&tensors);
    for threads in [1, 2, 5] {
        let objects = memory();
        let store = Store::create_on(objects.clone(), options(1)).unwrap();
        let mut o = SaveOptions::default();
        o.threads = threads;
        save_with(&store, 1, &first, &o).unwrap();
        save_with(&store, 2, &second, &o).unwrap();
        wrote.push(data_objects(&objects));
    }
    assert_eq!(wrote[0].len(), 2);
    assert!(wrote[0] == wrote[1] && wrote[1] == wrote[2]);
}

#[test]
fn a_source_that_fails_leaves_nothing() {
    struct Shrinks(Vec<u8>);
    impl lmc::ReadAt for Shrinks {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
            lmc::ReadAt::read_exact_at(&self.0, buf, offset)
        }
        fn size(&self) -> std::io::Result<u64> {
            Ok(self.0.len() as u64 + 1)
        }
    }
    let objects = memory();
    let store = new_store(&objects);
    let bad = Shrinks(noise(40 << 20, 1));
    let e = store.save(&[Input::new("f", &bad)], None, BTreeMap::new(), &SaveOptions::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io);
    assert!(e.to_string().starts_with("f: "), "{e}");
    assert!(store.snapshots().unwrap().is_empty() && data_objects(&objects).is_empty());
}
