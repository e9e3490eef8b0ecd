//! Consecutive states of an optimizer: the average of gradients tells the second moment, and both tell the weights.

use std::collections::BTreeMap;
use std::fs;

use crate::support::adam::{step_of_adam, training};
use crate::support::*;
use lmc_store::{
    At, BasePolicy, CopyOptions, FollowOptions, Follower, GcOptions, Input, Keep, RebaseOptions, SaveOptions, Snapshot,
    Store, StoreOptions, VerifyOptions,
};

type Files = BTreeMap<String, Vec<u8>>;

/// A training whose states are saved as trainers write them, the model beside the optimizer.
struct Run {
    tensors: Vec<Tensor>,
    steps: u64,
    saved: Vec<Files>,
}

impl Run {
    fn new() -> Self {
        Self { tensors: training(), steps: 5, saved: vec![] }
    }

    /// Trains some steps, and saves the state under the next number.
    fn save(&mut self, store: &Store, steps: u64, o: &SaveOptions) -> Snapshot {
        for _ in 0..steps {
            step_of_adam(&mut self.tensors, self.steps);
            self.steps += 1;
        }
        let files = Files::from([
            ("model.safetensors".into(), safetensors(&self.tensors[2..])),
            ("optimizer.safetensors".into(), safetensors(&self.tensors[..2])),
        ]);
        let inputs: Vec<Input<'_>> = files.iter().map(|(name, file)| Input::new(name, file)).collect();
        let n = step(self.saved.len() as u64);
        let snapshot = store.save(&inputs, Some(n), BTreeMap::new(), o).unwrap();
        self.saved.push(files);
        snapshot
    }

    fn is_in(&self, store: &Store, n: usize) {
        assert!(files_of(store, n) == self.saved[n], "step {n}");
    }
}

fn files_of(store: &Store, n: usize) -> Files {
    let reader = reader(store, n as u64);
    let file = |f: &lmc_store::FileInfo| {
        let mut out = vec![];
        reader.read_file(&f.name, &mut out).unwrap();
        (f.name.clone(), out)
    };
    reader.files().iter().map(file).collect()
}

fn is_whole(store: &Store) {
    let mut deep = VerifyOptions::default();
    deep.deep = true;
    let found = store.verify_all(&deep).unwrap();
    assert!(found.problems.is_empty(), "{:?}", found.problems);
}

fn chain(store: &Store, snapshot: &Snapshot) -> u32 {
    store.costs(std::slice::from_ref(snapshot)).unwrap().remove(0).unwrap().longest_chain
}

fn prune(store: &Store, keep: &Keep) -> lmc_store::Pruned {
    store.prune(&store.plan_prune(keep).unwrap(), &RebaseOptions::default()).unwrap()
}

#[test]
fn what_the_averages_of_gradients_tell_takes_next_to_nothing() {
    let (objects, store) = new();
    let (mut run, mut saved) = (Run::new(), vec![]);
    for n in 0..5 {
        let s = run.save(&store, 1, &SaveOptions::default());
        // One tensor of three cannot be predicted.
        let percent = 100 * s.new_size / s.raw_size;
        assert!(if n == 0 { percent > 60 } else { percent < 36 }, "{percent} % of step {n}");
        // The weights, and both moments of each step.
        assert_eq!(chain(&store, &s), if n == 0 { 1 } else { 3 * (n + 1) });
        saved.push(s);
    }
    let far = run.save(&store, 20, &SaveOptions::default());
    assert!(100 * far.new_size > 50 * far.raw_size, "{} of {}", far.new_size, far.raw_size);
    (0..6).for_each(|n| run.is_in(&store, n));
    is_whole(&store);
    // A reader of the weights alone gets what tells them.
    let weights = reader(&store, 4).read_tensor_bytes("model.a");
    assert!(weights == run.saved[4]["model.safetensors"][run.saved[4]["model.safetensors"].len() - weights.len()..]);
    let other = store_like(&store, &memory());
    other.copy_from(&store, &store.snapshots().unwrap(), CopyOptions::default()).unwrap();
    for (n, (copy, s)) in other.snapshots().unwrap().iter().zip(&store.snapshots().unwrap()).enumerate() {
        run.is_in(&other, n);
        assert_eq!((copy.new_size, chain(&other, copy)), (s.new_size, chain(&store, s)));
    }
    is_whole(&other);
    assert_eq!(needs::keys(&*objects), needs::needed(&*objects));
}

trait TensorBytes {
    fn read_tensor_bytes(&self, name: &str) -> Vec<u8>;
}

impl TensorBytes for lmc_store::SnapshotReader {
    fn read_tensor_bytes(&self, name: &str) -> Vec<u8> {
        let (file, s) = (self.files().iter())
            .find_map(|f| f.segments.iter().find(|s| s.name.as_deref() == Some(name)).map(|s| (f, s)))
            .unwrap();
        let mut out = vec![0; s.len as usize];
        self.read_range(&file.name, s.offset, &mut out).unwrap();
        out
    }
}

/// Each rank writes its parts of the tensors, under the names that those of the others have.
#[test]
fn ranks_have_tensors_of_the_same_names() {
    let (_, store) = new();
    let mut ranks = [training(), training()];
    step_of_adam(&mut ranks[1], 50);
    for n in 0..3 {
        let mut files = Files::new();
        for (rank, tensors) in ranks.iter_mut().enumerate() {
            step_of_adam(tensors, 5 + n);
            files.insert(format!("rank{rank}.safetensors"), safetensors(tensors));
        }
        let inputs: Vec<Input<'_>> = files.iter().map(|(name, file)| Input::new(name, file)).collect();
        let s = store.save(&inputs, Some(step(n)), BTreeMap::new(), &SaveOptions::default()).unwrap();
        assert!(n == 0 || 100 * s.new_size < 36 * s.raw_size, "{} of {}", s.new_size, s.raw_size);
        assert!(files_of(&store, n as usize) == files);
    }
}

/// As `torch.save` writes a model and its optimizer: the weights come first, and the states are numbered.
#[test]
fn weights_come_first_and_states_have_numbers() {
    let (_, store) = new();
    let mut tensors = training();
    for n in 0..3 {
        step_of_adam(&mut tensors, 5 + n);
        let names = ["optimizer.state.0.exp_avg", "optimizer.state.0.exp_avg_sq", "model.layers.0.weight"];
        let mut named: Vec<Tensor> =
            tensors.iter().zip(names).map(|(t, name)| Tensor(name, t.1, t.2, t.3.clone())).collect();
        named.rotate_right(1);
        let s = save(&store, n, &safetensors(&named));
        assert!(n == 0 || 100 * s.new_size < 36 * s.raw_size, "{} of {}", s.new_size, s.raw_size);
        assert!(restored(&store, n).unwrap() == safetensors(&named));
    }
}

#[test]
fn states_are_pruned_and_lose_what_tells_their_weights() {
    let (objects, store) = new();
    let mut run = Run::new();
    (0..6).for_each(|_| _ = run.save(&store, 1, &SaveOptions::default()));
    let collect = || {
        objects.advance(2 * GRACE);
        store.gc(&GcOptions::default()).unwrap();
        assert_eq!(needs::keys(&*objects), needs::needed(&*objects));
        is_whole(&store);
    };
    let mut keep = Keep::default();
    keep.steps = [2, 4, 5].map(step).into();
    prune(&store, &keep);
    collect();
    [2, 4, 5].into_iter().for_each(|n| run.is_in(&store, n));
    // Chains begin anew.
    store.rebase(&[4, 5].map(step), &RebaseOptions::default()).unwrap();
    let mut keep = Keep::default();
    keep.last = 2;
    prune(&store, &keep);
    collect();
    [4, 5].into_iter().for_each(|n| run.is_in(&store, n));
    // The next ones build on what is there: the first one on differences, which are as large as it is alone.
    run.save(&store, 1, &SaveOptions::default());
    let next = run.save(&store, 1, &SaveOptions::default());
    assert!(100 * next.new_size < 36 * next.raw_size, "{} of {}", next.new_size, next.raw_size);
    [6, 7].into_iter().for_each(|n| run.is_in(&store, n));
    let mut keep = Keep::default();
    (keep.drop, keep.drop_state) = ([4, 5, 6, 7].map(step).into(), true);
    assert_eq!(prune(&store, &keep).reduced.len(), 4);
    collect();
    let weights = |files: &Files| files["model.safetensors"].clone();
    for n in [4, 5, 6, 7] {
        let files = files_of(&store, n);
        assert!(files.len() == 1 && weights(&files) == weights(&run.saved[n]), "step {n}");
    }
    // Nothing of the moments is left.
    let stored: usize =
        needs::keys(&*objects).iter().filter(|k| k.starts_with("data/")).map(|k| get(&*objects, k).len()).sum();
    assert!(stored < 3 * weights(&run.saved[7]).len(), "{stored}");
}

#[test]
fn chains_with_moments_have_an_end() {
    let policies =
        [(64, BasePolicy::Previous, 55..=64), (16, BasePolicy::Auto, 20..=48), (3, BasePolicy::Previous, 9..=9)];
    for (anchor_every, base, expected) in policies {
        let (_, store) = new();
        let mut run = Run::new();
        let mut o = SaveOptions::default();
        (o.anchor_every, o.base) = (anchor_every, base);
        let (mut longest, mut small) = (0, 0);
        for _ in 0..26 {
            let s = run.save(&store, 1, &o);
            small += u32::from(100 * s.new_size < 36 * s.raw_size);
            longest = longest.max(chain(&store, &s));
        }
        assert!(expected.contains(&longest), "{longest} with an anchor every {anchor_every}");
        assert!(small >= 16, "{small} with an anchor every {anchor_every}");
        [25, 24, 17, 2].into_iter().for_each(|n| run.is_in(&store, n));
        is_whole(&store);
    }
}

#[test]
fn followers_decode_states_from_what_they_hold() {
    let objects = memory();
    let store = new_store(&objects);
    let (mut run, dir) = (Run::new(), tempfile::tempdir().unwrap());
    let mut fetched = vec![];
    for n in 0..4 {
        let s = run.save(&store, 1, &SaveOptions::default());
        let here = Store::open_on(objects.clone(), StoreOptions::default()).unwrap();
        let mut follower = Follower::open(here, dir.path(), FollowOptions::default()).unwrap();
        let newest = follower.newest().unwrap().unwrap();
        let staged = follower.stage(&newest, &mut |_| Ok(())).unwrap();
        fetched.push((staged.fetched_size, s.new_size));
        follower.commit(staged).unwrap();
        for (name, file) in &run.saved[n] {
            assert!(fs::read(dir.path().join("current").join(name)).unwrap() == *file, "{name} of step {n}");
        }
    }
    // Both files need the moments of the step, and nothing of the steps before.
    assert!(fetched.iter().all(|(fetched, stored)| *fetched <= 2 * stored), "{fetched:?}");
    assert_eq!(store.find(At::Latest).unwrap().step, step(3));
}
