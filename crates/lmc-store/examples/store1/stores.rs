//! The valid stores: small ones, with everything that readers meet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::TryStreamExt;
use futures::executor::block_on;
use lmc_store::testing::Memory;
use lmc_store::{
    At, BasePolicy, GcOptions, Input, Keep, MetaValue, Metadata, RebaseOptions, Result, SaveOptions, ShardId, Snapshot,
    Step, Store, StoreOptions,
};
use lmc_testing::data::noise;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::Files;

/// The grace period, in seconds.
const GRACE: u64 = 86_400;

/// A store, and what a reader finds there.
pub(crate) struct Made {
    pub(crate) shows: &'static str,
    pub(crate) objects: Files,
    /// The files of each snapshot, with their hashes.
    pub(crate) saved: BTreeMap<u64, BTreeMap<String, String>>,
    /// The step that each tag names.
    pub(crate) tags: BTreeMap<&'static str, u64>,
    /// What fails, and the kind of the error.
    pub(crate) refuse: BTreeMap<String, &'static str>,
}

/// A store that is being made.
struct Making {
    memory: Arc<Memory>,
    store: Store,
    made: Made,
}

fn step(n: u64) -> Step {
    Step::new(n).expect("steps are small")
}

/// A matrix of 16 different numbers, of which each step changes some.
pub(crate) fn weights(name: &str, rows: usize, seed: u64, step: u64) -> Vec<u8> {
    let mut numbers = noise(rows * 32, seed);
    for n in 1..=step {
        numbers.iter_mut().skip(n as usize).step_by(61).for_each(|x| *x = x.wrapping_add(1));
    }
    let numbers: Vec<u8> = numbers.iter().flat_map(|x| (0x3f80_0000 | u32::from(x & 15) << 19).to_le_bytes()).collect();
    let header = format!(r#"{{"{name}":{{"dtype":"F32","shape":[{rows},32],"data_offsets":[0,{}]}}}}"#, numbers.len());
    let header = header.clone() + &" ".repeat(header.len().next_multiple_of(8) - header.len());
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &numbers].concat()
}

fn options() -> SaveOptions<'static> {
    let mut o = SaveOptions::default();
    (o.threads, o.base) = (1, BasePolicy::Previous);
    o
}

impl Making {
    fn new(number: u64, shows: &'static str) -> Result<Self> {
        let (memory, next) = (Arc::new(Memory::default()), AtomicU64::new(0));
        let mut o = StoreOptions::default();
        o.grace_seconds = GRACE;
        // Each store has ids of its own, which are the same every time.
        o.entropy = Arc::new(move || {
            let text = format!("{number} {}", next.fetch_add(1, Ordering::Relaxed));
            Ok(blake3::hash(text.as_bytes()).as_bytes()[..16].try_into().expect("a hash has 32 bytes"))
        });
        let store = Store::create_on(memory.clone(), o)?;
        let (objects, saved, tags, refuse) = Default::default();
        Ok(Self { memory, store, made: Made { shows, objects, saved, tags, refuse } })
    }

    /// Saves files as a part of a step.
    fn save_shard(&mut self, n: u64, files: &[(&str, Vec<u8>)], o: &SaveOptions) -> Result<ShardId> {
        let inputs: Vec<Input<'_>> = files.iter().map(|(name, bytes)| Input::new(*name, bytes)).collect();
        let hashed = files.iter().map(|(name, bytes)| ((*name).to_owned(), blake3::hash(bytes).to_string()));
        self.made.saved.entry(n).or_default().extend(hashed);
        Ok(self.store.save_shard(&inputs, step(n), o)?.shard)
    }

    fn save(&mut self, n: u64, files: &[(&str, Vec<u8>)], metadata: Metadata) -> Result<Snapshot> {
        let shard = self.save_shard(n, files, &options())?;
        self.store.publish(step(n), metadata, &[shard])
    }

    fn tag(&mut self, name: &'static str, n: u64) -> Result<()> {
        let snapshot = self.store.find(At::Step(step(n)))?;
        self.store.tag(&name.parse()?, &snapshot)?;
        self.made.tags.insert(name, n);
        Ok(())
    }

    /// Prunes all but these steps.
    fn prune(&mut self, keep: &[u64]) -> Result<()> {
        let mut rule = Keep::default();
        rule.steps = keep.iter().map(|&n| step(n)).collect();
        self.store.prune(&self.store.plan_prune(&rule)?, &RebaseOptions::default())?;
        for n in self.made.saved.keys().filter(|n| !keep.contains(n)) {
            self.made.refuse.insert(format!("restore {n}"), "notfound");
        }
        self.made.saved.retain(|n, _| keep.contains(n));
        Ok(())
    }

    /// Collects what was not needed for a grace period.
    fn collect(&self) -> Result<()> {
        self.memory.advance(GRACE + 1);
        let mut o = GcOptions::default();
        o.rewindable = 2;
        self.store.gc(&o).map(|_| ())
    }

    fn done(mut self) -> Made {
        let objects = &self.memory;
        let keys: Vec<_> = block_on(objects.list(None).map_ok(|o| o.location).try_collect()).expect("memory is listed");
        for key in keys {
            let bytes = block_on(async { objects.get(&key).await?.bytes().await }).expect("memory is read");
            self.made.objects.insert(key.to_string(), bytes.to_vec());
        }
        self.made
    }
}

/// All stores, by name.
pub(crate) fn all() -> Result<BTreeMap<&'static str, Made>> {
    let mut stores = BTreeMap::new();
    let text = |s: &str| s.as_bytes().to_vec();

    let mut s = Making::new(
        1,
        "a chain of deltas, files in directories, a file that is twice there, one that is empty, metadata, tags",
    )?;
    for n in 1..=3 {
        let model = weights("w", 64, 1, n);
        let note = text(&format!("step {n}\n"));
        let files = [
            ("model.safetensors", model.clone()),
            ("sub/note.txt", note),
            ("sub/again.safetensors", model),
            ("nothing", vec![]),
        ];
        let metadata = Metadata::from([
            ("loss".into(), MetaValue::Float(2.5 / n as f64)),
            ("tokens".into(), MetaValue::Integer(-(n as i64) << 51)),
            ("note".into(), MetaValue::from(format!("\u{e4} \"{n}\"\n"))),
        ]);
        s.save(n, &files, metadata)?;
    }
    s.tag("best", 3)?;
    s.tag("best", 2)?;
    s.tag("gone", 1)?;
    s.store.untag(&"gone".parse()?)?;
    s.made.tags.remove("gone");
    s.made.refuse.insert("restore gone".into(), "notfound");
    s.made.refuse.insert("restore 4".into(), "notfound");
    stores.insert("deltas", s.done());

    let mut s = Making::new(2, "three processes, whose shards are one document; one of them wrote no data")?;
    for n in 1..=2 {
        let part = |i: u64, n| weights(&format!("part{i}"), 64, 10 + i, n);
        let mut shards = vec![];
        for (i, n_of) in [(0, n), (1, 1), (2, n)] {
            shards.push(s.save_shard(n, &[(&format!("rank{i}.safetensors"), part(i, n_of))], &options())?);
        }
        s.store.publish(step(n), Metadata::new(), &shards)?;
    }
    stores.insert("ranks", s.done());

    let mut s = Making::new(3, "a snapshot of two shards, of which one refers to the other")?;
    let a = ("a.safetensors", weights("w", 64, 1, 1));
    let first = s.save_shard(1, std::slice::from_ref(&a), &options())?;
    s.store.publish(step(1), Metadata::new(), &[first])?;
    let second = s.save_shard(2, &[("b/b.safetensors", weights("w", 64, 1, 2))], &options())?;
    let of_a = s.made.saved[&1].clone();
    s.made.saved.entry(2).or_default().extend(of_a);
    s.store.publish(step(2), Metadata::new(), &[first, second])?;
    stores.insert("shards", s.done());

    let mut s = Making::new(
        4,
        "pruned snapshots, one that was saved again, one that was re-based, and nothing that is not needed",
    )?;
    for n in 1..=4 {
        s.save(
            n,
            &[("w.safetensors", weights("w", 64, 1, n)), ("x.safetensors", weights("x", 64, 20 + n, 0))],
            Metadata::new(),
        )?;
    }
    s.tag("old", 1)?;
    s.store.untag(&"old".parse()?)?;
    s.made.tags.remove("old");
    s.made.refuse.insert("restore old".into(), "notfound");
    s.prune(&[3, 4])?;
    s.store.rebase(&[step(3)], &RebaseOptions::default())?;
    s.save(2, &[("w.safetensors", weights("w", 64, 1, 9))], Metadata::new())?;
    s.made.refuse.remove("restore 2");
    s.collect()?;
    stores.insert("pruned", s.done());

    let mut s =
        Making::new(5, "a floor at step 5, below which the records of pruned snapshots are gone: step 2 had one")?;
    for n in 0..8 {
        s.save(n, &[("n.txt", text(&format!("{n}")))], Metadata::new())?;
    }
    s.prune(&[1, 4, 7])?;
    s.collect()?;
    s.collect()?;
    for n in [2, 5] {
        s.made.refuse.insert(format!("save {n}"), "usage");
    }
    stores.insert("floor", s.done());

    let mut s = Making::new(6, "a snapshot that begins new chains, with a delta beside each set that changed")?;
    let mut o = options();
    (o.anchor_every, o.alternatives) = (1, true);
    for n in 1..=2 {
        let files = [("v.safetensors", weights("v", 64, 2, n)), ("w.safetensors", weights("w", 64, 1, n))];
        let shard = s.save_shard(n, &files, &o)?;
        s.store.publish(step(n), Metadata::new(), &[shard])?;
    }
    stores.insert("alternatives", s.done());
    Ok(stores)
}
