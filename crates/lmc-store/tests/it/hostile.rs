//! Documents with arbitrary contents and correct hashes: reading, saving, pruning and collecting such a store gives the saved bytes or an
//! error, never a panic, a hang or other bytes. `LMC_STORE_TEST_SEEDS` sets the number of stores.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use crate::support::{
    Tensor, get, memory, model, options, put, record_key, restored, safetensors, save_with, step, store_like, unneeded,
};
use lmc::{Dtype, Level, ReadAt};
use lmc_store::testing::{Memory, Random};
use lmc_store::{
    At, CopyOptions, ErrorKind, FollowOptions, GcOptions, Input, Keep, RebaseOptions, SaveOptions, Store,
    TensorFollower, TensorSpec, VerifyOptions,
};
use lmc_testing::cases;
use object_store::ObjectStore;
use serde_json::{Value, json};

/// A store of three snapshots, each made from the one before, and its documents: shards, then records, in the order of writing.
struct Good {
    objects: Arc<Memory>,
    shards: Vec<(String, Value)>,
    /// Key, hash, and document without its checksum.
    records: Vec<(String, String, Value)>,
    /// The next files to save.
    next: Vec<u8>,
}

impl Good {
    fn new() -> Self {
        Self::of(&SaveOptions::default())
    }

    /// The last snapshot starts a new chain, with a delta beside it.
    fn with_alternatives() -> Self {
        let mut o = SaveOptions::default();
        (o.anchor_every, o.alternatives) = (1, true);
        let good = Self::of(&o);
        assert!(good.shards[2].1["alternatives"][0]["base"].is_string());
        good
    }

    /// The deltas are lists of changes.
    fn sparse() -> Self {
        let mut o = SaveOptions::default();
        o.level = Level::Fast;
        Self::made(&o, &o, |t, seed| t.3.chunks_mut(4).skip(seed as usize).step_by(97).for_each(|e| e[1] ^= 1))
    }

    /// The last snapshot is saved with these options.
    fn of(last: &SaveOptions) -> Self {
        Self::made(&SaveOptions::default(), last, Tensor::train)
    }

    /// The options of the first snapshots and of the last one, and how a tensor changes in each.
    fn made(first: &SaveOptions, last: &SaveOptions, change: impl Fn(&mut Tensor, u64)) -> Self {
        let objects = Arc::new(Memory::default());
        let store = Store::create_on(objects.clone(), options(1)).unwrap();
        let mut tensors = model();
        let (mut shards, mut records) = (vec![], vec![]);
        for n in 1..=3 {
            change(&mut tensors[0], n);
            let o = if n == 3 { last } else { first };
            let snapshot = save_with(&store, n, &safetensors(&tensors), o).unwrap();
            let shard = snapshot.shards[0].to_string();
            let stored = get(&objects, &format!("shards/{shard}.json.zst"));
            let document = serde_json::from_slice(&zstd::decode_all(&stored[..]).unwrap()).unwrap();
            shards.push((shard, document));
            let key = record_key(n, 0);
            let bytes = get(&objects, &key);
            let mut document: Value = serde_json::from_slice(&bytes).unwrap();
            // With this checksum every change would be rejected: spoiled records get their own.
            document.as_object_mut().unwrap().remove("check").unwrap();
            records.push((key, blake3::hash(&bytes).to_string(), document));
        }
        change(&mut tensors[0], 9);
        Self { objects, shards, records, next: safetensors(&tensors) }
    }

    /// Its documents: shards, then records.
    fn documents(&self) -> (Vec<Value>, Vec<Value>) {
        (self.shards.iter().map(|s| s.1.clone()).collect(), self.records.iter().map(|r| r.2.clone()).collect())
    }

    /// A copy with some values of its documents changed.
    fn spoiled(&self, random: &mut Random) -> Arc<Memory> {
        let (mut shards, mut records) = self.documents();
        for _ in 0..1 + random.below(3) {
            // Mostly shards, which hold more values.
            let document = match random.below(6) {
                0 => &mut records[random.below(3) as usize],
                _ => &mut shards[random.below(3) as usize],
            };
            let count = nodes(document);
            let values = [random.below(count), random.below(count)];
            let other = node(document, &mut { values[1] }).clone();
            spoil(node(document, &mut { values[0] }), other, random);
        }
        self.with(&shards, &records)
    }

    /// A copy with other documents. References to them by hash follow the change.
    fn with(&self, shards: &[Value], records: &[Value]) -> Arc<Memory> {
        self.with_stored(shards, records, |_, stored| stored)
    }

    /// The data object of a save in which the file of `entry` is one that only a newer lmc can decode; its hash follows the change.
    fn newer(&self, save: &Value, entry: &mut Value) -> (String, Vec<u8>) {
        let at: Vec<usize> = (0..3).map(|i| entry["at"][i].as_u64().unwrap() as usize).collect();
        let key = format!("data/{}/{:06}", save.as_str().unwrap(), at[0]);
        let mut bytes = get(&self.objects, &key);
        // A hash in the header that no version has yet.
        bytes[at[1] + 10] = 2;
        entry["hash"] = blake3::hash(&bytes[at[1]..at[1] + at[2]]).to_string().into();
        (key, bytes)
    }

    /// [`Self::with`], where `store` changes the stored bytes of each shard, which is given by its index.
    fn with_stored(
        &self,
        shards: &[Value],
        records: &[Value],
        mut store: impl FnMut(usize, Vec<u8>) -> Vec<u8>,
    ) -> Arc<Memory> {
        let objects = self.objects.fork();
        let mut names: Vec<(String, String)> = vec![];
        let renamed = |document: &Value, names: &[(String, String)]| {
            names.iter().fold(document.to_string(), |text, (old, new)| text.replace(old, new))
        };
        for (i, ((old, _), document)) in self.shards.iter().zip(shards).enumerate() {
            let text = renamed(document, &names);
            let stored = store(i, zstd::encode_all(text.as_bytes(), 1).unwrap());
            let new = blake3::hash(&stored).to_string();
            put(&objects, &format!("shards/{new}.json.zst"), stored);
            names.push((old.clone(), new));
        }
        for ((key, old, _), document) in self.records.iter().zip(records) {
            let bytes = sealed(renamed(document, &names));
            names.push((old.clone(), blake3::hash(&bytes).to_string()));
            put(&objects, key, bytes);
        }
        Arc::new(objects)
    }
}

/// A record's text with its checksum. Text that is no object, or an empty one, has no place for a checksum.
fn sealed(mut text: String) -> Vec<u8> {
    let check = blake3::hash(text.as_bytes());
    if text.ends_with('}') && text != "{}" {
        text.pop();
        text += &format!(",\"check\":\"{check}\"}}");
    }
    text.into_bytes()
}

fn children(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(a) => a.iter_mut().collect(),
        Value::Object(o) => o.values_mut().collect(),
        _ => vec![],
    }
}

/// The number of values in a JSON value, itself included.
fn nodes(value: &mut Value) -> u64 {
    1 + children(value).into_iter().map(nodes).sum::<u64>()
}

/// The value with this number.
fn node<'v>(value: &'v mut Value, number: &mut u64) -> &'v mut Value {
    if *number == 0 {
        return value;
    }
    *number -= 1;
    for child in children(value) {
        let count = nodes(child);
        if *number < count {
            return node(child, number);
        }
        *number -= count;
    }
    unreachable!("the index is below the number of values")
}

fn spoil(value: &mut Value, other: Value, random: &mut Random) {
    let strange = [
        json!(0),
        json!(1),
        json!(-1),
        json!(1u64 << 26),
        json!((1u64 << 26) + 1),
        json!(1u64 << 53),
        json!(u64::MAX),
        json!(0.5),
        json!(null),
        json!(""),
        json!("../../x"),
        json!([]),
        json!({}),
    ];
    match (&mut *value, random.below(4)) {
        (Value::Number(n), 0 | 1) => {
            let n = n.as_u64().unwrap_or(0);
            *value = json!([n.wrapping_sub(1), n.wrapping_add(1), n / 2, n.wrapping_mul(2)][random.below(4) as usize]);
        }
        (Value::Array(a), 0) if !a.is_empty() => {
            a.remove(random.below(a.len() as u64) as usize);
        }
        (Value::Array(a), 1) if !a.is_empty() => {
            let again = a[random.below(a.len() as u64) as usize].clone();
            a.push(again);
        }
        (Value::Array(a), 2) if a.len() > 1 => {
            let (i, j) = (random.below(a.len() as u64) as usize, random.below(a.len() as u64) as usize);
            a.swap(i, j);
        }
        (Value::Object(o), 0) => {
            o.insert(["x_a", "x", "len", ""][random.below(4) as usize].into(), other);
        }
        (Value::Object(o), 1) if !o.is_empty() => {
            let key = o.keys().nth(random.below(o.len() as u64) as usize).unwrap().clone();
            o.remove(&key);
        }
        (_, 0..=2) => *value = other,
        _ => *value = strange[random.below(strange.len() as u64) as usize].clone(),
    }
}

/// Performs every operation of a store. Returns whether one failed.
fn use_all(objects: &Arc<Memory>, next: &[u8]) -> bool {
    let objects: Arc<dyn ObjectStore> = objects.clone();
    let store = Store::open_on(objects, options(2)).unwrap();
    let mut failed = false;
    let mut note = |e: lmc_store::Error| {
        assert!(!e.to_string().is_empty());
        failed = true;
    };
    let snapshots = store.snapshots().unwrap_or_else(|e| {
        note(e);
        vec![]
    });
    for s in &snapshots {
        match store.open_snapshot(s) {
            Ok(reader) => {
                for file in reader.files() {
                    let mut out = vec![];
                    reader.read_file(&file.name, &mut out).unwrap_or_else(&mut note);
                    let tensors: Vec<&str> = file.segments.iter().filter_map(|s| s.name.as_deref()).collect();
                    for name in tensors {
                        reader.read_tensor(name).map(drop).unwrap_or_else(&mut note);
                    }
                }
            }
            Err(e) => note(e),
        }
    }
    for deep in [false, true] {
        let found = store.verify(&snapshots, deep, 1).unwrap();
        failed |= !found.problems.is_empty();
    }
    failed |= !store.verify_all(&VerifyOptions::default()).unwrap().problems.is_empty();
    let mut note = |e: lmc_store::Error| {
        assert!(!e.to_string().is_empty());
        failed = true;
    };

    match store.costs(&snapshots) {
        Ok(costs) => costs.into_iter().filter_map(Result::err).for_each(&mut note),
        Err(e) => note(e),
    }
    unneeded(&store).map(drop).unwrap_or_else(&mut note);
    let there: Arc<dyn ObjectStore> = Arc::new(Memory::default());
    let copy = store_like(&store, &there);
    copy.copy_from(&store, &snapshots, CopyOptions::default()).map(drop).unwrap_or_else(&mut note);
    store.export(&snapshots, std::io::sink()).map(drop).unwrap_or_else(&mut note);
    // A later save is restored as saved, or fails.
    let mut o = SaveOptions::default();
    o.threads = 1;
    match save_with(&store, 9, next, &o) {
        Ok(saved) => {
            let mut out = vec![];
            match store.open_snapshot(&saved).and_then(|r| r.read_file("m.safetensors", &mut out)) {
                Ok(()) => assert!(out == next),
                Err(e) => note(e),
            }
        }
        Err(e) => note(e),
    }
    let steps: Vec<_> = snapshots.iter().map(|s| s.step).collect();
    store.rebase(&steps, &RebaseOptions::default()).map(drop).unwrap_or_else(&mut note);
    let mut keep = Keep::default();
    keep.last = 1;
    match store.plan_prune(&keep) {
        Ok(plan) => store.prune(&plan, &RebaseOptions::default()).map(drop).unwrap_or_else(&mut note),
        Err(e) => note(e),
    }
    store.gc(&GcOptions::default()).map(drop).unwrap_or_else(&mut note);
    failed
}

#[test]
fn documents_that_say_anything() {
    let seeds = std::env::var("LMC_STORE_TEST_SEEDS").map_or(cases(300) as u64, |n| n.parse().unwrap());
    let goods = [Good::new(), Good::with_alternatives(), Good::sparse()];
    goods.iter().for_each(|good| assert!(!use_all(&Arc::new(good.objects.fork()), &good.next)));
    let mut noticed = 0;
    for seed in 0..seeds {
        println!("seed {seed}");
        let good = &goods[seed as usize % goods.len()];
        noticed += u64::from(use_all(&good.spoiled(&mut Random::new(seed)), &good.next));
    }
    // Some changes are undetectable, such as those to metadata.
    assert!(noticed * 2 > seeds, "of {seeds} spoiled stores {noticed} were found to be");
}

/// Tensors that follow from one step to another. Returns their bytes.
fn followed(store: &Store, from: u64, to: u64) -> lmc_store::Result<Vec<Vec<u8>>> {
    let find = |n| store.find(At::Step(step(n)));
    let specs: Vec<TensorSpec> = model()
        .into_iter()
        .map(|t| TensorSpec { name: t.0.into(), dtype: Dtype::F32, shape: vec![t.1, t.2], first_row: None })
        .collect();
    let mut tensors: Vec<Vec<u8>> = model().into_iter().map(|t| vec![0; t.3.len()]).collect();
    let mut follower = TensorFollower::new(store.clone(), specs, FollowOptions::default())?;
    let mut all = |tensors: &mut Vec<Vec<u8>>| {
        follower.load(
            &find(from)?,
            &mut tensors.iter_mut().map(|t| &mut t[..]).collect::<Vec<_>>(),
            &mut |_| Ok(()),
        )?;
        let old = tensors.clone();
        let old: Vec<&dyn ReadAt> = old.iter().map(|t| t as &dyn ReadAt).collect();
        let staged = follower.stage(&find(to)?, &old, &mut |_| Ok(()))?;
        follower.commit(&staged, &mut tensors.iter_mut().map(|t| &mut t[..]).collect::<Vec<_>>())
    };
    all(&mut tensors)?;
    Ok(tensors)
}

/// Where an alternative is a list of changes, followers trust the hashes of the documents, as they do in chains.
#[test]
fn whatever_alternatives_say_what_is_decoded_is_what_was_saved() {
    let good = Good::with_alternatives();
    let (shards, records) = good.documents();
    let saved = {
        let store = Store::open_on(good.objects.clone(), options(2)).unwrap();
        let reader = store.open_snapshot(&store.find(At::Latest).unwrap()).unwrap();
        let tensors: Vec<Vec<u8>> = model().iter().map(|t| reader.read_tensor(t.0).unwrap()).collect();
        tensors
    };
    let (mut refused, mut right) = (0, 0);
    for seed in 0..cases(300) as u64 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut spoiled = shards.clone();
        let alternatives = &mut spoiled[2]["alternatives"];
        let count = nodes(alternatives);
        let values = [random.below(count), random.below(count)];
        let other = match random.below(4) {
            0 => json!(good.shards[random.below(2) as usize].0),
            1 => shards[random.below(3) as usize]["sets"][0]["raw_hash"].clone(),
            _ => node(alternatives, &mut { values[1] }).clone(),
        };
        match random.below(2) {
            0 => *node(alternatives, &mut { values[0] }) = other,
            _ => spoil(node(alternatives, &mut { values[0] }), other, &mut random),
        }
        let store = Store::open_on(good.with(&spoiled, &records), options(2)).unwrap();
        for from in [1, 2] {
            match followed(&store, from, 3) {
                Ok(tensors) => {
                    assert!(tensors == saved);
                    right += 1;
                }
                Err(e) => {
                    assert!(e.kind() == ErrorKind::Damaged && !e.to_string().is_empty(), "{e}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > cases(100) && right > cases(100), "{refused}, {right}");
    // One that only a newer lmc can decode.
    let mut newer = shards.clone();
    let (key, bytes) = good.newer(&shards[2]["save"], &mut newer[2]["alternatives"][0]);
    let objects = good.with(&newer, &records);
    put(&objects, &key, bytes);
    let store = Store::open_on(objects, options(2)).unwrap();
    [1, 2].into_iter().for_each(|from| assert!(followed(&store, from, 3).unwrap() == saved));
}

/// Lists of changes are applied to their bases, without a decoder that compares lengths.
#[test]
fn a_list_of_changes_makes_as_many_bytes_as_the_document_says() {
    let good = Good::sparse();
    let (shards, records) = good.documents();
    let sets = shards[1]["sets"].as_array().unwrap();
    let delta = sets.iter().position(|s| s.get("base").is_some()).unwrap();
    let len = sets[delta]["raw_len"].as_u64().unwrap();
    let at: Vec<usize> = (0..3).map(|i| sets[delta]["at"][i].as_u64().unwrap() as usize).collect();
    let bytes = get(&good.objects, &format!("data/{}/{:06}", shards[1]["save"].as_str().unwrap(), at[0]));
    let stored = &bytes[at[1]..at[1] + at[2]];
    assert!(lmc::changed_elements(&stored, &vec![0; len as usize]).unwrap().is_some(), "it is a list");
    let opened = |shards: &[Value]| {
        let objects: Arc<dyn ObjectStore> = good.with(shards, &records);
        Store::open_on(objects, options(1)).unwrap()
    };
    let store = opened(&shards);
    let whole = restored(&store, 2).unwrap();
    assert!(followed(&store, 1, 2).is_ok());
    // Twice as many bytes, of which the file has the second half; and one more than there are.
    for (raw_len, from) in [(2 * len, len), (len + 1, 0)] {
        let mut shards = shards.clone();
        shards[1]["sets"][delta]["raw_len"] = raw_len.into();
        let extents = shards[1]["files"][0]["extents"].as_array_mut().unwrap();
        let mut moved = 0;
        for e in extents.iter_mut().filter(|e| e[0] == 0 && e[1] == delta as u64) {
            e[2] = (e[2].as_u64().unwrap() + from).into();
            moved += 1;
        }
        assert!(moved > 0);
        let store = opened(&shards);
        let e = restored(&store, 2).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged, "{e}");
        let e = followed(&store, 1, 2).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged, "{e}");
        assert!(use_all(&good.with(&shards, &records), &good.next), "it is noticed");
        assert!(restored(&store, 1).unwrap() != whole);
    }
}

#[test]
fn frames_that_hold_anything() {
    let good = Good::new();
    let (shards, records) = good.documents();
    // Later ones have the segments of the first one's file.
    assert!(shards[0]["files"][0]["segments"].is_array());
    assert_eq!(
        (&shards[2]["files"][0]["segments"], shards[2]["files"][0]["segments_of"].is_array()),
        (&json!(null), true)
    );
    assert!(!use_all(&good.with(&shards, &records), &good.next));
    for seed in 0..cases(60) as u64 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let of = random.below(3) as usize;
        let spoiled = good.with_stored(&shards, &records, |i, mut stored| {
            if i == of {
                let at = random.below(stored.len() as u64) as usize;
                match random.below(4) {
                    0 => stored.truncate(at),
                    1 => stored.extend_from_within(at..),
                    2 => stored[at] ^= 1 << random.below(8),
                    _ => stored = serde_json::to_vec(&shards[i]).unwrap(),
                }
            }
            stored
        });
        // Frames have bits without a meaning.
        use_all(&spoiled, &good.next);
    }
    // A bomb: 300 MiB of spaces.
    let bomb = good.with_stored(&shards, &records, |i, stored| match i {
        1 => {
            let mut frame = zstd::Encoder::new(vec![], 1).unwrap();
            frame.write_all(&zstd::decode_all(&stored[..]).unwrap()).unwrap();
            std::io::copy(&mut std::io::repeat(b' ').take(300 << 20), &mut frame).unwrap();
            frame.finish().unwrap()
        }
        _ => stored,
    });
    assert!(use_all(&bomb, &good.next));
}

#[test]
fn segments_that_many_files_have_in_common_are_counted_for_each() {
    let good = Good::new();
    let (shards, records) = good.documents();
    let many = format!(
        r#"{{"name":"many","len":0,"layout":"raw","segments":[{}],"extents":[]}}"#,
        vec![r#"{"len":0}"#; 1 << 20].join(",")
    );
    let named = |n: u32| {
        let file = |i| format!(r#"{{"name":"f{i}","len":0,"layout":"raw","segments_of":[1,1],"extents":[]}}"#);
        (0..n).map(file).collect::<Vec<_>>().join(",")
    };
    // Files of the second shard have the segments of a file of the first one: held once each, they would take 90 GB.
    let objects = |files: String| {
        good.with_stored(&shards, &records, |i, stored| {
            let more = [&many, &files].get(i).copied();
            let Some(more) = more else { return stored };
            let text = String::from_utf8(zstd::decode_all(&stored[..]).unwrap()).unwrap();
            let end = "],\"format\"";
            assert_eq!(text.matches(end).count(), 1);
            zstd::encode_all(text.replace(end, &format!(",{more}{end}")).as_bytes(), 1).unwrap()
        })
    };
    let store = Store::open_on(objects(named(1)), options(2)).unwrap();
    let snapshots = store.snapshots().unwrap();
    assert_eq!(store.open_snapshot(&snapshots[1]).unwrap().file("f0").unwrap().segments.len(), 1 << 20);

    let store = Store::open_on(objects(named(1000)), options(2)).unwrap();
    let snapshots = store.snapshots().unwrap();
    store.open_snapshot(&snapshots[0]).unwrap();
    let refused = |e: lmc_store::Error| {
        let why = e.to_string();
        assert!(e.kind() == ErrorKind::Limit && why.contains("more than 16777216 segments"), "{why}");
    };
    refused(store.open_snapshot(&snapshots[1]).unwrap_err());
    let copy = store_like(&store, &memory());
    refused(copy.copy_from(&store, &snapshots[1..2], CopyOptions::default()).unwrap_err());
    refused(store.rebase(&[snapshots[1].step], &RebaseOptions::default()).unwrap_err());
    refused(store.publish(step(9), BTreeMap::new(), &snapshots[1].shards).unwrap_err());
    // A save has another base, or none.
    save_with(&store, 9, &good.next, &SaveOptions::default()).unwrap();
    // Collecting needs no segments.
    store.gc(&GcOptions::default()).unwrap();
}

#[test]
fn what_only_a_newer_lmc_can_decode_is_not_damaged() {
    let good = Good::new();
    let (mut shards, records) = good.documents();
    let delta = shards[1]["sets"].as_array().unwrap().iter().position(|s| s.get("base").is_some()).unwrap();
    let save = shards[1]["save"].clone();
    let (key, bytes) = good.newer(&save, &mut shards[1]["sets"][delta]);
    let mut end = Keep::default();
    end.damaged = vec![step(2)];
    let fails =
        |e: lmc_store::Error, kind, text: &str| assert!(e.kind() == kind && e.to_string().contains(text), "{e:?}");
    for is_newer in [true, false] {
        // Otherwise the same bytes are an accident: the hash is another one.
        let objects = if is_newer { good.with(&shards, &records) } else { Arc::new(good.objects.fork()) };
        put(&objects, &key, bytes.clone());
        let store = Store::open_on(objects.clone(), options(2)).unwrap();
        let (kind, text) = match is_newer {
            true => (ErrorKind::Unsupported, "use a newer lmc"),
            false => (ErrorKind::Damaged, "is not what was written there"),
        };
        fails(crate::support::restored(&store, 2).unwrap_err(), kind, text);
        let found = store.verify(&store.snapshots().unwrap(), true, 1).unwrap().problems;
        assert!(found.iter().all(|p| p.remedy.is_some() != is_newer && p.message.contains(text)), "{found:?}");
        assert_eq!(found.iter().map(|p| p.step.get()).collect::<Vec<_>>(), [2, 3]);
        let plan = store.plan_prune(&end);
        // What a save needs of it is stored again if it is damaged.
        let save = || {
            let saved =
                store.save_shard(&[Input::new("m.safetensors", &good.next)], step(4), &SaveOptions::default())?;
            store.publish(step(4), BTreeMap::new(), &[saved.shard])?;
            Ok(saved)
        };
        if is_newer {
            fails(plan.unwrap_err(), ErrorKind::Unsupported, "it is not damaged");
            fails(save().unwrap_err(), kind, text);
            continue;
        }
        assert_eq!(plan.unwrap().damaged[0].step, step(2));
        let saved = save().unwrap();
        assert!(
            saved.notes.len() == 1 && saved.notes[0].starts_with(&key) && saved.notes[0].contains(text),
            "{saved:?}"
        );
        assert!(crate::support::restored(&store, 4).unwrap() == good.next);
        assert!(store.verify(&store.snapshots().unwrap()[3..], true, 1).unwrap().problems.is_empty());
        assert!(saved.new_size < saved.raw_size * 3 / 4, "{saved:?}");
    }
}
