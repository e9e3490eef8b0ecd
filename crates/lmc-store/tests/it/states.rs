//! Snapshots that lose the states of their optimizers and keep their weights.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use lmc_store::testing::{Faults, Faulty, Memory};
use lmc_store::{
    At, CopyOptions, ErrorKind, FollowOptions, Follower, GcOptions, Input, Keep, PrunePlan, Pruned, RebaseOptions,
    SaveOptions, Snapshot, Store, VerifyOptions,
};

/// A training state in the files that trainers write.
struct Training {
    /// Weights, copies of them, and moments in one file.
    state: Vec<Tensor>,
    weights: Vec<Tensor>,
}

type Files = BTreeMap<&'static str, Vec<u8>>;

impl Training {
    fn new() -> Self {
        let state = vec![
            Tensor::new("exp_avg.a", 300, 300, 1),
            Tensor::new("model.a", 300, 300, 2),
            Tensor::new("exp_avg_sq.a", 300, 300, 3),
            Tensor::new("model.small", 1, 5, 4),
            Tensor::new("exp_avg.small", 1, 7, 5),
            Tensor::new("master.a", 300, 300, 6),
            Tensor::new("model.big", 100, 100, 8),
        ];
        Self { state, weights: vec![Tensor::new("b", 300, 300, 9)] }
    }

    fn train(&mut self) {
        self.state.iter_mut().chain(&mut self.weights).for_each(|t| t.train(7));
    }

    fn files(&self) -> Files {
        let optimizer = vec![Tensor::new("x", 300, 300, self.weights[0].3[0].into())];
        Files::from([
            ("state.safetensors", safetensors(&self.state)),
            ("model.safetensors", safetensors(&self.weights)),
            ("optimizer.bin", safetensors(&optimizer)),
            ("config.json", b"{}".repeat(100)),
        ])
    }

    /// What stays of the files.
    fn kept(&self) -> Files {
        let mut kept = self.files();
        kept.remove("optimizer.bin");
        let names = ["model.a", "model.small", "model.big"];
        let tensors: Vec<Tensor> = self.state.iter().filter(|t| names.contains(&t.0)).cloned().collect();
        kept.insert("state.safetensors", safetensors(&tensors));
        kept
    }

    fn save(&self, store: &Store, n: u64) -> Snapshot {
        let files = self.files();
        let inputs: Vec<Input<'_>> = files.iter().map(|(name, file)| Input::new(*name, file)).collect();
        let metadata = BTreeMap::from([("loss".to_owned(), "2".into())]);
        store.save(&inputs, Some(step(n)), metadata, &SaveOptions::default()).unwrap()
    }
}

fn files_of(store: &Store, snapshot: &Snapshot) -> BTreeMap<String, Vec<u8>> {
    let reader = store.open_snapshot(snapshot).unwrap();
    let file = |f: &lmc_store::FileInfo| {
        let mut out = vec![];
        reader.read_file(&f.name, &mut out).unwrap();
        (f.name.clone(), out)
    };
    reader.files().iter().map(file).collect()
}

fn has(store: &Store, n: u64, files: &Files) -> bool {
    let found = files_of(store, &store.find(At::Step(step(n))).unwrap());
    found.len() == files.len() && files.iter().all(|(name, file)| found[*name] == *file)
}

fn keep(last: usize) -> Keep {
    let mut keep = Keep::default();
    (keep.last, keep.drop_state) = (last, true);
    keep
}

fn prune(store: &Store, keep: &Keep) -> lmc_store::Result<(PrunePlan, Pruned)> {
    let plan = store.plan_prune(keep)?;
    let done = store.prune(&plan, &RebaseOptions::default())?;
    Ok((plan, done))
}

fn is_whole(store: &Store) {
    let mut deep = VerifyOptions::default();
    deep.deep = true;
    let found = store.verify_all(&deep).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

fn collect(objects: &Memory, store: &Store) {
    objects.advance(2 * GRACE);
    store.gc(&GcOptions::default()).unwrap();
    assert_eq!(needs::keys(objects), needs::needed(objects));
}

fn stored(objects: &Memory) -> usize {
    let data = needs::keys(objects).into_iter().filter(|key| key.starts_with("data/"));
    data.map(|key| get(objects, &key).len()).sum()
}

#[test]
fn weights_stay_and_states_go() {
    let (objects, store) = new();
    let mut run = Training::new();
    let (mut saved, mut all, mut kept) = (vec![], vec![], vec![]);
    for n in 0..4 {
        saved.push(run.save(&store, n));
        all.push(run.files());
        kept.push(run.kept());
        run.train();
    }
    let before = stored(&objects);
    let (plan, done) = prune(&store, &keep(1)).unwrap();
    let steps: Vec<u64> = plan.states.iter().map(|s| s.step.get()).collect();
    assert_eq!((steps, plan.prune.len(), plan.keep.len()), (vec![0, 1, 2], 0, 4));
    assert_eq!(plan.why[0], ["weights"]);
    assert_eq!((done.reduced.len(), done.pruned.len(), done.changed.len()), (3, 0, 0));
    for n in 0..3 {
        assert!(has(&store, n as u64, &kept[n]), "step {n}");
        let now = store.find(At::Step(step(n as u64))).unwrap();
        assert!(done.reduced.contains(&now) && now.id != saved[n].id && now.time == saved[n].time);
        assert_eq!((&now.metadata, now.raw_size + now.dropped), (&saved[n].metadata, saved[n].raw_size));
        let len: usize = kept[n].values().map(Vec::len).sum();
        assert_eq!(now.raw_size, len as u64);
        // Other readers see what safetensors' own one does.
        let file = &kept[n]["state.safetensors"];
        assert_eq!(safetensors::SafeTensors::deserialize(file).unwrap().len(), 3);
    }
    assert!(has(&store, 3, &all[3]) && store.find(At::Latest).unwrap() == saved[3]);
    is_whole(&store);
    // Readers that opened one before have a grace period.
    assert!(files_of(&store, &saved[1])["optimizer.bin"] == all[1]["optimizer.bin"]);
    collect(&objects, &store);
    is_whole(&store);
    assert_eq!(prune(&store, &keep(1)).unwrap().1.reduced, []);
    // A later save builds on what is left, and a copy and an archive have it.
    prune(&store, &keep_nothing()).unwrap();
    collect(&objects, &store);
    assert!(stored(&objects) < before * 6 / 10, "{} of {before}", stored(&objects));
    assert!(has(&store, 3, &kept[3]));
    run.save(&store, 9);
    assert!(has(&store, 9, &run.files()));
    let other = store_like(&store, &memory());
    other.copy_from(&store, &store.snapshots().unwrap(), CopyOptions::default()).unwrap();
    assert_eq!(other.find(At::Step(step(1))).unwrap().dropped, done.reduced[1].dropped);
    assert!(has(&other, 1, &kept[1]) && has(&other, 9, &run.files()));
}

fn keep_nothing() -> Keep {
    let mut keep = keep(0);
    keep.drop = vec![step(3)];
    keep
}

#[test]
fn what_cannot_lose_its_states_is_named() {
    let (_, store) = new();
    let save = |n: u64, name: &str, file: &[u8]| {
        store.save(&[Input::new(name, &file)], Some(step(n)), BTreeMap::new(), &SaveOptions::default()).unwrap()
    };
    let dropped = |n: u64| {
        let mut keep = Keep::default();
        (keep.drop, keep.drop_state) = (vec![step(n)], true);
        keep
    };
    // Without a rule nothing is chosen; nothing but states is no model.
    assert_eq!(prune(&store, &keep(0)).unwrap_err().kind(), ErrorKind::Usage);
    save(1, "m.safetensors", &safetensors(&[Tensor::new("exp_avg.a", 9, 100, 1)]));
    let e = prune(&store, &dropped(1)).unwrap_err();
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("step 1: all of its tensors"), "{e}");
    // A model alone stays as it is, as does its only copy of weights.
    for (n, names) in [(2, ["a.weight", "mu.weight"]), (3, ["master.a", "master.b"])] {
        let saved = save(n, "m.safetensors", &safetensors(&names.map(|name| Tensor::new(name, 9, 100, n))));
        let (plan, done) = prune(&store, &dropped(n)).unwrap();
        assert!(plan.is_empty() && done == Pruned::default());
        assert_eq!(store.find(At::Step(step(n))).unwrap(), saved);
    }
    // Folders tell less than tensors; but a file without tensors goes.
    let weights = safetensors(&[Tensor::new("a.weight", 9, 100, 5)]);
    let files = [Input::new("optimizer_sgd/m.safetensors", &weights), Input::new("optimizer_sgd/rng", &b"1234")];
    let files = [files, [Input::new("scheduler.json", &b"{}"), Input::new("sgd/optimizer.bin", &weights)]].concat();
    store.save(&files, Some(step(5)), BTreeMap::new(), &SaveOptions::default()).unwrap();
    prune(&store, &dropped(5)).unwrap();
    let left = files_of(&store, &store.find(At::Step(step(5))).unwrap());
    assert!(left.keys().eq(&["optimizer_sgd/m.safetensors", "scheduler.json"]), "{:?}", left.keys());
    // A tag protects it, whether it was set before or after planning.
    let both = [Tensor::new("exp_avg.a", 90, 100, 1), Tensor::new("a", 90, 100, 2)];
    let tagged = save(4, "m.safetensors", &safetensors(&both));
    let plan = store.plan_prune(&dropped(4)).unwrap();
    store.tag(&"best".parse().unwrap(), &tagged).unwrap();
    for e in [store.prune(&plan, &RebaseOptions::default()).unwrap_err(), store.plan_prune(&dropped(4)).unwrap_err()] {
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("tag best"), "{e}");
    }
    assert_eq!(store.find(At::Step(step(4))).unwrap(), tagged);
    // What another process did meanwhile counts.
    store.untag(&"best".parse().unwrap()).unwrap();
    let plan = store.plan_prune(&dropped(4)).unwrap();
    let mut go = Keep::default();
    go.drop = vec![step(4)];
    prune(&store, &go).unwrap();
    let again = save(4, "m.safetensors", &safetensors(&both[1..]));
    assert_eq!(store.prune(&plan, &RebaseOptions::default()).unwrap().reduced, []);
    assert_eq!(store.find(At::Step(step(4))).unwrap(), again);
}

#[test]
fn headers_of_any_length_are_written_anew() {
    let (_, store) = new();
    let text = noise(20 << 20, 1).iter().map(|b| char::from(b'a' + b % 26)).collect::<String>();
    let metadata = BTreeMap::from([("text".to_owned(), text)]);
    let bytes = vec![[1u8; 80], [2; 80]];
    let tensors = ["exp_avg.a", "a"]
        .into_iter()
        .zip(&bytes)
        .map(|(name, b)| (name, safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![20], b).unwrap()));
    let tensors: Vec<_> = tensors.collect();
    let write = |which: &[(&'static str, safetensors::tensor::TensorView<'_>)]| {
        safetensors::serialize(which.to_vec(), Some(metadata.clone().into_iter().collect())).unwrap()
    };
    save(&store, 1, &write(&tensors));
    prune(&store, &keep_last_of_others(&store)).unwrap();
    let found = restored(&store, 1).unwrap();
    let expected = write(&tensors[1..]);
    assert!(found == expected);
    is_whole(&store);
}

fn keep_last_of_others(store: &Store) -> Keep {
    save(store, 2, b"other");
    keep(1)
}

#[test]
fn ranks_lose_their_states() {
    let (objects, store) = new();
    let rank =
        |n: u64| vec![Tensor::new(format!("w{n}").leak(), 70, 1000, n), Tensor::new("exp_avg.w", 70, 1000, n + 9)];
    let shard = |name: &str, tensors: &[Tensor]| {
        let file = safetensors(tensors);
        store.save_shard(&[Input::new(name, &file)], step(1), &SaveOptions::default()).unwrap().shard
    };
    let shards = [shard("r0", &rank(0)), shard("r1", &rank(1)), shard("r2", &rank(2)[1..])];
    store.publish(step(1), BTreeMap::new(), &shards).unwrap();
    save(&store, 2, b"other");
    prune(&store, &keep(1)).unwrap();
    let found = files_of(&store, &store.find(At::Step(step(1))).unwrap());
    assert_eq!(found.keys().collect::<Vec<_>>(), ["r0", "r1"]);
    assert!((0..2).all(|n| found[&format!("r{n}")] == safetensors(&rank(n)[..1])));
    collect(&objects, &store);
    is_whole(&store);
}

#[test]
fn followers_take_it_for_another_snapshot() {
    let (objects, store) = new();
    let mut run = Training::new();
    run.save(&store, 1);
    let dir = tempfile::tempdir().unwrap();
    let follow = || {
        let store = Store::open_on(objects.clone(), options(9))?;
        let mut follower = Follower::open(store, dir.path(), FollowOptions::default())?;
        let Some(newest) = follower.newest()? else { return Ok(false) };
        let staged = follower.stage(&newest, &mut |_| Ok(()))?;
        follower.commit(staged).map(|_| true)
    };
    let holds = |files: &Files| {
        let current = dir.path().join("current");
        std::fs::read_dir(&current).unwrap().count() == files.len()
            && files.iter().all(|(name, file)| std::fs::read(current.join(name)).unwrap() == *file)
    };
    assert!(follow().unwrap() && holds(&run.files()) && !follow().unwrap());
    let mut keep = Keep::default();
    (keep.drop, keep.drop_state) = (vec![step(1)], true);
    prune(&store, &keep).unwrap();
    let e = follow().unwrap_err();
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("another snapshot of step 1"), "{e}");
    assert!(holds(&run.files()));
    run.train();
    run.save(&store, 2);
    assert!(follow().unwrap() && holds(&run.files()));
}

#[test]
fn the_process_dies_at_every_request() {
    let (objects, store) = new();
    let mut run = Training::new();
    let (mut all, mut kept) = (vec![], vec![]);
    for n in 0..3 {
        run.save(&store, n);
        all.push(run.files());
        kept.push(run.kept());
        run.train();
    }
    let mut first_of_all = 0;
    for after in 1.. {
        let objects = Arc::new(objects.fork());
        let mut faults = Faults::default();
        faults.dies_after = after;
        let faulty = Arc::new(Faulty::new(objects.clone(), after, faults));
        let done = Store::open_on(faulty, options(100)).and_then(|store| prune(&store, &keep(1)));
        let store = Store::open_on(objects.clone(), options(200)).unwrap();
        let reduced = (0..2).filter(|&n| has(&store, n as u64, &kept[n])).count();
        assert!((0..2).all(|n| has(&store, n as u64, &kept[n]) || has(&store, n as u64, &all[n])));
        assert!(has(&store, 2, &all[2]) && (done.is_err() || reduced == 2));
        first_of_all = if reduced == 0 { after } else { first_of_all };
        // Another process completes it.
        prune(&store, &keep(1)).unwrap();
        assert!((0..2).all(|n| has(&store, n as u64, &kept[n])) && has(&store, 2, &all[2]));
        collect(&objects, &store);
        is_whole(&store);
        if done.is_ok() {
            assert!(after > first_of_all + 1 && first_of_all > 10, "{after} {first_of_all}");
            return;
        }
    }
}
