//! Tensors in memory that follow a store: they hold a whole version after each commit, and fetch only changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{
    Tensor, data_objects, memory, model, new_store, on_each_backend, options, record_key, safetensors, step,
};
use futures::executor::block_on;
use lmc::{Dtype, Level, ReadAt};
use lmc_store::testing::Memory;
use lmc_store::{
    At, BasePolicy, ErrorKind, FollowOptions, Input, Keep, RebaseOptions, SaveOptions, Snapshot, StagedTensors, Store,
    TensorFollower, TensorSpec,
};
use object_store::{ObjectStore, ObjectStoreExt};

/// A run of a model in two files. Large tensors have block sets of their own, small ones share one.
pub(crate) struct Run {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) store: Store,
    pub(crate) parts: [Vec<Tensor>; 2],
    /// The tensors of each step.
    saved: Vec<Vec<Tensor>>,
    pub(crate) options: SaveOptions<'static>,
}

impl Run {
    pub(crate) fn on(objects: Arc<dyn ObjectStore>) -> Self {
        let store = new_store(&objects);
        let other = vec![Tensor::new("other", 300, 300, 9), Tensor::new("scale", 1, 300, 10)];
        let mut run = Self { objects, store, parts: [model(), other], saved: vec![], options: SaveOptions::default() };
        run.save(|_| {});
        run
    }

    pub(crate) fn new() -> Self {
        Self::on(memory())
    }

    /// At the level of publishers, sparse changes are lists.
    pub(crate) fn fast() -> Self {
        let mut run = Self::new();
        run.options.level = Level::Fast;
        run.options.base = BasePolicy::Previous;
        run
    }

    /// Changes the tensors, and saves them as the next step.
    pub(crate) fn save(&mut self, change: impl Fn(&mut Tensor)) {
        self.parts.iter_mut().flatten().for_each(change);
        let n = self.saved.len() as u64;
        let files = self.parts.each_ref().map(|part| safetensors(part));
        let inputs = [Input::new("a.safetensors", &files[0]), Input::new("b.safetensors", &files[1])];
        self.store.save(&inputs, Some(step(n)), BTreeMap::new(), &self.options).unwrap();
        self.saved.push(self.parts.concat());
    }

    pub(crate) fn snapshot(&self, n: usize) -> Snapshot {
        self.store.find(At::Step(step(n as u64))).unwrap()
    }

    /// A follower of tensors with these names.
    pub(crate) fn followed(&self, names: &[&'static str], o: FollowOptions) -> Followed {
        let found = |name| self.saved[0].iter().find(|t| t.0 == name).unwrap();
        let specs = names.iter().map(|&name| spec(found(name))).collect();
        let store = Store::open_on(self.objects.clone(), options(1)).unwrap();
        let memory = names.iter().map(|&name| vec![0xaa; found(name).3.len()]).collect();
        Followed { follower: TensorFollower::new(store, specs, o).unwrap(), names: names.to_vec(), memory }
    }

    pub(crate) fn check(&self, f: &Followed, n: usize) {
        assert_eq!(f.follower.current().map(|(step, _)| step), Some(step(n as u64)));
        for (name, bytes) in f.names.iter().zip(&f.memory) {
            let saved = self.saved[n].iter().find(|t| t.0 == *name).unwrap();
            assert!(*bytes == saved.3, "{name} of step {n}");
        }
    }
}

pub(crate) fn spec(Tensor(name, rows, columns, _): &Tensor) -> TensorSpec {
    TensorSpec { name: (*name).into(), dtype: Dtype::F32, shape: vec![*rows, *columns], first_row: None }
}

/// Changes one element in `every`.
pub(crate) fn sparse(seed: u64, every: usize) -> impl Fn(&mut Tensor) {
    move |t| t.3.chunks_mut(4).skip(seed as usize % every).step_by(every).for_each(|e| e[1] ^= 1 + (seed as u8 & 0x3f))
}

pub(crate) const ALL: [&str; 6] = ["embed", "norm", "head", "bias", "other", "scale"];

/// A follower, and the memory of its tensors.
pub(crate) struct Followed {
    pub(crate) follower: TensorFollower,
    pub(crate) names: Vec<&'static str>,
    pub(crate) memory: Vec<Vec<u8>>,
}

impl Followed {
    pub(crate) fn load(&mut self, snapshot: &Snapshot) -> lmc_store::Result<u64> {
        let mut out: Vec<&mut [u8]> = self.memory.iter_mut().map(|m| &mut m[..]).collect();
        self.follower.load(snapshot, &mut out, &mut |_| Ok(()))
    }

    pub(crate) fn adopt(&mut self, snapshot: &Snapshot) -> lmc_store::Result<()> {
        let tensors: Vec<&dyn ReadAt> = self.memory.iter().map(|m| m as &dyn ReadAt).collect();
        self.follower.adopt(snapshot, &tensors)
    }

    pub(crate) fn stage(&self, snapshot: &Snapshot) -> lmc_store::Result<StagedTensors> {
        let tensors: Vec<&dyn ReadAt> = self.memory.iter().map(|m| m as &dyn ReadAt).collect();
        self.follower.stage(snapshot, &tensors, &mut |_| Ok(()))
    }

    pub(crate) fn commit(&mut self, staged: &StagedTensors) -> lmc_store::Result<()> {
        let mut out: Vec<&mut [u8]> = self.memory.iter_mut().map(|m| &mut m[..]).collect();
        self.follower.commit(staged, &mut out)
    }

    /// Follows to a snapshot; returns how many bytes were fetched, and how many elements changed.
    pub(crate) fn follow(&mut self, snapshot: &Snapshot) -> lmc_store::Result<(u64, u64)> {
        let staged = self.stage(snapshot)?;
        let done = (staged.fetched_size(), staged.changed());
        self.commit(&staged)?;
        Ok(done)
    }
}

fn raw_size(f: &Followed) -> u64 {
    f.memory.iter().map(|m| m.len() as u64).sum()
}

#[test]
fn tensors_follow_with_what_changed_on_each_backend() {
    on_each_backend(|objects| follows(Run::on(objects)));
    follows(Run::fast());
}

fn follows(mut run: Run) {
    let some = &["embed", "bias", "other"][..];
    let mut followed = [&ALL[..], some].map(|names| run.followed(names, FollowOptions::default()));
    for f in &mut followed {
        assert!(f.stage(&run.snapshot(0)).unwrap_err().to_string().contains("load one first"));
        f.load(&run.snapshot(0)).unwrap();
        run.check(f, 0);
        assert_eq!(f.follower.newest().unwrap(), None);
    }
    let changes: [&dyn Fn(&mut Tensor); 4] = [
        &sparse(1, 50),
        &|t| t.train(2),
        // One small tensor, whose block set has others too.
        &|t| {
            if t.0 == "bias" {
                t.3[0] ^= 1;
            }
        },
        &|_| {},
    ];
    for (n, change) in (1..).zip(changes) {
        run.save(change);
        for f in &mut followed {
            let newest = f.follower.newest().unwrap().unwrap();
            let staged = f.stage(&newest).unwrap();
            assert_eq!((staged.step(), staged.id(), staged.from()), (newest.step, newest.id, step(n as u64 - 1)));
            // The tensors do not change until the commit, and then exactly the announced elements change.
            run.check(f, n - 1);
            let by_tensor = f.names.iter().enumerate().map(|(t, &name)| {
                let bytes = |n: usize| &run.saved[n].iter().find(|t| t.0 == name).unwrap().3;
                let elements = bytes(n - 1).chunks(4).zip(bytes(n).chunks(4)).enumerate();
                let differing = elements.filter(|(_, (a, b))| a != b).map(|(i, _)| i as u64);
                (t, differing.collect::<Vec<_>>())
            });
            for (t, differing) in by_tensor {
                let patches = staged.patches().iter().filter(|p| p.tensor() == t);
                let indices: Vec<u64> = patches
                    .flat_map(|p| p.indices().map_or_else(|| p.elements().collect(), |i| i.collect::<Vec<_>>()))
                    .collect();
                match n {
                    2 => assert!(differing.iter().all(|i| indices.binary_search(i).is_ok())),
                    _ => assert_eq!(indices, differing),
                }
            }
            let fetched = staged.fetched_size();
            f.commit(&staged).unwrap();
            run.check(f, n);
            match n {
                1 => assert!(0 < fetched && fetched < raw_size(f) / 10, "{fetched} of {}", raw_size(f)),
                2 => assert!(fetched < raw_size(f) / 3, "{fetched} of {}", raw_size(f)),
                // Of a pack, or nothing.
                _ => assert!(fetched < 10_000, "step {n}: {fetched}"),
            }
        }
    }
}

#[test]
fn one_that_is_behind_gets_to_the_newest_at_once() {
    gets_to_the_newest(Run::new());
    gets_to_the_newest(Run::fast());
    // The same elements in each step.
    let mut run = Run::fast();
    let mut f = run.followed(&ALL, FollowOptions::default());
    f.load(&run.snapshot(0)).unwrap();
    (1..=4).for_each(|seed| run.save(sparse(50 * seed, 50)));
    f.follow(&run.snapshot(4)).unwrap();
    run.check(&f, 4);
}

fn gets_to_the_newest(mut run: Run) {
    let mut f = run.followed(&ALL, FollowOptions::default());
    f.load(&run.snapshot(0)).unwrap();
    (1..=5).for_each(|seed| run.save(sparse(seed, 90)));
    f.follow(&run.snapshot(3)).unwrap();
    run.check(&f, 3);
    let mut f = run.followed(&ALL, FollowOptions::default());
    f.load(&run.snapshot(0)).unwrap();
    let staged = f.stage(&run.snapshot(5)).unwrap();
    // One value for each element, whatever the number of steps.
    let changed = |t: &Tensor| t.3.len() as u64 / 4 / 90 * 5;
    let all: u64 = run.saved[0].iter().map(changed).sum();
    assert!(staged.changed().abs_diff(all) <= 60, "{} of {all}", staged.changed());
    assert!(staged.fetched_size() < raw_size(&f) / 4);
    f.commit(&staged).unwrap();
    run.check(&f, 5);
}

#[test]
fn looking_for_the_newest_lists_nothing_before_what_is_held() {
    let objects = Arc::new(Memory::default());
    let mut run = Run::on(objects.clone());
    (1..=6).for_each(|seed| run.save(sparse(seed, 50)));
    let mut f = run.followed(&ALL, FollowOptions::default());
    assert_eq!(f.follower.newest().unwrap().unwrap().step, step(6));
    f.load(&run.snapshot(4)).unwrap();
    let newest = |f: &Followed| {
        let before = objects.listed();
        let found = f.follower.newest();
        (found.map(|s| s.map(|s| s.step.get())), objects.listed() - before)
    };
    assert_eq!(newest(&f).0.unwrap(), Some(6));
    // With the one at which the listing ends.
    assert_eq!(newest(&f).1, 4);
    f.follow(&run.snapshot(6)).unwrap();
    assert_eq!((newest(&f).0.unwrap(), newest(&f).1), (None, 2));
    // Where nothing from there on is left, the last of all is looked for.
    let prune = |steps: &[u64]| {
        let mut keep = Keep::default();
        keep.steps = steps.iter().map(|&n| step(n)).collect();
        run.store.prune(&run.store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    };
    prune(&[1, 2, 5]);
    assert_eq!(newest(&f).0.unwrap(), Some(5));
    let mut earlier = run.followed(&ALL, FollowOptions::default());
    earlier.load(&run.snapshot(2)).unwrap();
    assert_eq!(newest(&earlier).0.unwrap(), Some(5));
    prune(&[1, 2]);
    assert_eq!(newest(&earlier).0.unwrap(), None);
    // A damaged or lost record after what is held is an error, as without a follower.
    run.save(sparse(7, 50));
    run.save(sparse(8, 50));
    let key = |n: u64| object_store::path::Path::from(record_key(n, 0));
    block_on(objects.delete(&key(7))).unwrap();
    assert_eq!(newest(&earlier).0.unwrap(), Some(8));
    block_on(objects.put(&key(8), b"{}".to_vec().into())).unwrap();
    assert_eq!(newest(&earlier).0.unwrap_err().kind(), run.store.find(At::Latest).unwrap_err().kind());
}

#[test]
fn what_is_held_is_known_by_its_hash() {
    let mut run = Run::new();
    (1..=3).for_each(|seed| run.save(sparse(seed, 50)));
    let mut f = run.followed(&ALL, FollowOptions::default());
    f.load(&run.snapshot(2)).unwrap();
    // Its version disappears, and the next one is stored in other block sets.
    let mut keep = Keep::default();
    keep.last = 1;
    let plan = run.store.plan_prune(&keep).unwrap();
    run.store.prune(&plan, &RebaseOptions::default()).unwrap();
    f.follow(&run.snapshot(3)).unwrap();
    run.check(&f, 3);
    run.save(sparse(9, 50));
    let (fetched, _) = f.follow(&run.snapshot(4)).unwrap();
    assert!(fetched < raw_size(&f) / 10);
    run.check(&f, 4);
}

#[test]
fn tensors_that_something_else_changed_are_noticed() {
    for verify in [false, true] {
        let mut o = FollowOptions::default();
        o.verify = verify;
        let mut run = Run::new();
        let mut f = run.followed(&ALL, o);
        f.load(&run.snapshot(0)).unwrap();
        // In a tensor that is decoded whole, because most of it changes.
        f.memory[0][1000] ^= 1;
        run.save(|t| {
            if t.0 != "head" {
                t.train(1)
            }
        });
        let (fetched, _) = f.follow(&run.snapshot(1)).unwrap();
        run.check(&f, 1);
        // Without `verify` all is fetched, as nothing can be relied on.
        assert_eq!(fetched > raw_size(&f) / 2 + 100_000, !verify, "{fetched} of {}", raw_size(&f));
        // In one that does not change: only `verify` finds it.
        f.memory[2][77] ^= 1;
        run.save(|t| {
            if t.0 == "other" {
                sparse(2, 50)(t)
            }
        });
        f.follow(&run.snapshot(2)).unwrap();
        f.memory[2][77] ^= u8::from(!verify);
        run.check(&f, 2);
    }
}

#[test]
fn each_of_equal_tensors_is_verified() {
    let objects = memory();
    let store = new_store(&objects);
    let tensors = ["a", "b"].map(|name| Tensor::new(name, 300, 300, 1));
    let save = |n, tensors: &[Tensor]| {
        let file = safetensors(tensors);
        store.save(&[Input::new("f", &file)], Some(step(n)), BTreeMap::new(), &SaveOptions::default()).unwrap()
    };
    let first = save(0, &tensors);
    let mut o = FollowOptions::default();
    o.verify = true;
    for bad in [0, 1] {
        let opened = Store::open_on(objects.clone(), options(1)).unwrap();
        let follower = TensorFollower::new(opened, tensors.iter().map(spec).collect(), o).unwrap();
        let memory = tensors.iter().map(|t| t.3.clone()).collect();
        let mut f = Followed { follower, names: vec!["a", "b"], memory };
        f.memory[bad][5] ^= 1;
        let e = f.adopt(&first).unwrap_err().to_string();
        assert!(e.contains(["\"a\"", "\"b\""][bad]) || bad == 0, "{e}");
        f.memory[bad][5] ^= 1;
        f.adopt(&first).unwrap();
        f.memory[bad][5] ^= 1;
        // Another tensor is new; these did not change.
        let more = [tensors.to_vec(), vec![Tensor::new("c", 300, 300, 2)]].concat();
        f.follow(&save(1 + bad as u64, &more)).unwrap();
        assert!(f.memory.iter().zip(&tensors).all(|(m, t)| *m == t.3), "{bad}");
    }
}

#[test]
fn an_update_is_committed_only_to_the_tensors_it_was_made_from() {
    let mut run = Run::fast();
    let mut followed = [&["embed"][..], &["other"], &ALL].map(|names| run.followed(names, FollowOptions::default()));
    followed.iter_mut().for_each(|f| _ = f.load(&run.snapshot(0)).unwrap());
    run.save(sparse(1, 50));
    let staged = followed.each_ref().map(|f| f.stage(&run.snapshot(1)).unwrap());
    for (i, f) in followed.iter_mut().enumerate() {
        for (_, staged) in staged.iter().enumerate().filter(|(of, _)| *of != i) {
            let e = f.commit(staged).unwrap_err();
            assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("stage it again"), "{e}");
            run.check(f, 0);
        }
        // Nor to a version that was loaded since.
        f.load(&run.snapshot(0)).unwrap();
        f.commit(&staged[i]).unwrap_err();
        f.follow(&run.snapshot(1)).unwrap();
        run.check(f, 1);
    }
}

#[test]
fn small_tensors_are_verified_though_others_of_their_block_set_do_not_follow() {
    for verify in [false, true] {
        let mut o = FollowOptions::default();
        o.verify = verify;
        let mut run = Run::new();
        let mut f = run.followed(&["norm", "other"], o);
        f.load(&run.snapshot(0)).unwrap();
        f.memory[0][3] ^= 1;
        run.save(|t| {
            if t.0 == "other" {
                t.train(1)
            }
        });
        f.follow(&run.snapshot(1)).unwrap();
        f.memory[0][3] ^= u8::from(!verify);
        run.check(&f, 1);
    }
}

#[test]
fn lists_of_changes_touch_nothing_else() {
    for verify in [false, true] {
        let mut o = FollowOptions::default();
        o.verify = verify;
        let mut run = Run::fast();
        let mut f = run.followed(&ALL, o);
        f.load(&run.snapshot(0)).unwrap();
        // Of elements that change, and that do not.
        run.save(sparse(1, 50));
        f.memory[0][4 * 25] ^= 1;
        let (fetched, changed) = f.follow(&run.snapshot(1)).unwrap();
        assert_eq!(fetched > raw_size(&f) / 10, verify);
        assert!(changed.abs_diff(raw_size(&f) / 4 / 50) < 10);
        // Only `verify` notices.
        f.memory[0][4 * 25] ^= u8::from(!verify);
        run.check(&f, 1);
        // As with those of several versions.
        for (from, to) in [(2, 4), (5, 12)] {
            (from..=to).for_each(|seed| run.save(sparse(seed as u64, 50)));
            f.memory[0][4 * 25] ^= u8::from(!verify);
            f.follow(&run.snapshot(to)).unwrap();
            f.memory[0][4 * 25] ^= u8::from(!verify);
            run.check(&f, to);
        }
    }
}

#[test]
fn tensors_that_hold_a_version_are_adopted() {
    let mut run = Run::new();
    run.save(sparse(1, 50));
    for names in [&ALL[..], &["norm", "head"]] {
        let mut f = run.followed(names, FollowOptions::default());
        let fill = |f: &mut Followed, n: usize| {
            for (name, bytes) in f.names.iter().zip(&mut f.memory) {
                bytes.clone_from(&run.saved[n].iter().find(|t| t.0 == *name).unwrap().3);
            }
        };
        fill(&mut f, 0);
        let e = f.adopt(&run.snapshot(1)).unwrap_err();
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("is not that of step 1: load it"), "{e}");
        assert_eq!(f.follower.current(), None);
        // A byte of a tensor with block sets of its own, and of one that shares one.
        for name in ["head", "norm"] {
            let t = f.names.iter().position(|n| *n == name).unwrap();
            f.memory[t][123] ^= 1;
            let e = f.adopt(&run.snapshot(0)).unwrap_err().to_string();
            let whole = names.len() == ALL.len() && name == "norm";
            assert!(whole || e.contains(name), "{e}");
            f.memory[t][123] ^= 1;
        }
        f.adopt(&run.snapshot(0)).unwrap();
        run.check(&f, 0);
        let (fetched, _) = f.follow(&run.snapshot(1)).unwrap();
        assert!(fetched < raw_size(&f) / 10);
        run.check(&f, 1);
    }
}

#[test]
fn what_would_be_a_wrong_or_mixed_version_is_refused() {
    let mut run = Run::new();
    (1..=2).for_each(|seed| run.save(sparse(seed, 50)));
    let mut f = run.followed(&ALL, FollowOptions::default());
    let usage = |e: lmc_store::Error, text: &str| {
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains(text), "{e}");
    };
    f.load(&run.snapshot(1)).unwrap();
    usage(f.stage(&run.snapshot(0)).unwrap_err(), "if the run was rewound");
    usage(f.load(&run.snapshot(0)).unwrap_err(), "if the run was rewound");
    run.check(&f, 1);
    // Twice the same change: nothing is written by the second.
    let [first, second] = [f.stage(&run.snapshot(2)).unwrap(), f.stage(&run.snapshot(2)).unwrap()];
    f.commit(&first).unwrap();
    usage(f.commit(&second).unwrap_err(), "step 2 was made from what tensors held at step 1");
    run.check(&f, 2);
    // With leave to go back.
    let mut o = FollowOptions::default();
    o.rewind = true;
    let mut rewound = run.followed(&ALL, o);
    rewound.load(&run.snapshot(2)).unwrap();
    rewound.follow(&run.snapshot(0)).unwrap();
    run.check(&rewound, 0);
    // Buffers of other lengths, and another number of them.
    let staged = rewound.stage(&run.snapshot(1)).unwrap();
    rewound.memory[1].push(0);
    usage(rewound.stage(&run.snapshot(1)).unwrap_err(), "\"norm\": has 800 bytes, and its buffer 801");
    usage(rewound.commit(&staged).unwrap_err(), "\"norm\": has 800 bytes, and its buffer 801");
    rewound.memory[1].pop();
    run.check(&rewound, 0);
    let last = rewound.memory.pop().unwrap();
    usage(rewound.stage(&run.snapshot(1)).unwrap_err(), "5 buffers for 6 tensors");
    rewound.memory.push(last);
    rewound.follow(&run.snapshot(1)).unwrap();
    run.check(&rewound, 1);
}

#[test]
fn tensors_that_the_store_does_not_have_like_that_are_refused() {
    let run = Run::new();
    let norm = || TensorSpec { name: "norm".into(), dtype: Dtype::F32, shape: vec![1, 200], first_row: None };
    let store = || Store::open_on(run.objects.clone(), options(1)).unwrap();
    let new = |specs| TensorFollower::new(store(), specs, FollowOptions::default());
    let load = |spec: TensorSpec| {
        let mut memory = vec![0; lmc::layout::tensor_len(spec.dtype, &spec.shape).unwrap() as usize];
        new(vec![spec]).unwrap().load(&run.snapshot(0), &mut [&mut memory], &mut |_| Ok(()))
    };
    load(norm()).unwrap();
    let e = load(TensorSpec { name: "absent".into(), ..norm() }).unwrap_err();
    assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains("absent"), "{e}");
    for (spec, text) in [
        (
            TensorSpec { dtype: Dtype::I32, ..norm() },
            "is F32 of shape [1, 200] in step 0, and I32 of shape [1, 200] here",
        ),
        (TensorSpec { shape: vec![200], ..norm() }, "is F32 of shape [1, 200] in step 0, and F32 of shape [200] here"),
    ] {
        let e = load(spec).unwrap_err();
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains(text), "{e}");
    }
    assert!(new(vec![norm(), norm()]).unwrap_err().to_string().contains("two tensors have the name \"norm\""));
    let odd = TensorSpec { name: "odd".into(), dtype: Dtype::F4, shape: vec![3], first_row: None };
    assert!(new(vec![odd]).unwrap_err().to_string().contains("has no length in bytes"));
}

#[test]
fn tensors_of_another_run_must_be_asked_for() {
    let mut run = Run::new();
    let mut f = run.followed(&ALL, FollowOptions::default());
    let mut o = FollowOptions::default();
    o.rewind = true;
    let mut lenient = run.followed(&ALL, o);
    f.load(&run.snapshot(0)).unwrap();
    lenient.load(&run.snapshot(0)).unwrap();
    run.save(sparse(1, 50));
    let (next, was) = (run.snapshot(1), run.store.run());
    // The store is deleted, and another one is made there.
    let keys = crate::support::needs::keys(&*run.objects);
    let wait = |key: &String| futures::executor::block_on(run.objects.delete(&key.as_str().into())).unwrap();
    keys.iter().for_each(wait);
    let mut other = Run::on(run.objects.clone());
    other.save(sparse(2, 50));
    let refused = |e: lmc_store::Error| {
        let text = format!("the tensors: has versions of run {was}, and the store is of run {}", other.store.run());
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains(&text), "{e}");
    };
    refused(f.follower.newest().unwrap_err());
    for snapshot in [&next, &other.snapshot(1)] {
        refused(f.stage(snapshot).unwrap_err());
        refused(f.load(snapshot).unwrap_err());
        refused(f.adopt(snapshot).unwrap_err());
    }
    run.check(&f, 0);
    assert_eq!(lenient.follower.newest().unwrap().unwrap(), other.snapshot(1));
    lenient.follow(&other.snapshot(1)).unwrap();
    other.check(&lenient, 1);
}

#[test]
fn a_load_that_fails_leaves_tensors_that_hold_nothing() {
    let mut run = Run::new();
    let mut f = run.followed(&ALL, FollowOptions::default());
    f.load(&run.snapshot(0)).unwrap();
    let before: Vec<String> = data_objects(&run.objects).into_iter().map(|(key, _)| key).collect();
    run.save(|t| t.train(1));
    // The new step's data are lost.
    for (key, _) in data_objects(&run.objects).into_iter().filter(|(key, _)| !before.contains(key)) {
        futures::executor::block_on(run.objects.delete(&key.as_str().into())).unwrap();
    }
    let e = f.stage(&run.snapshot(1)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Damaged, "{e}");
    run.check(&f, 0);
    assert_eq!(f.load(&run.snapshot(1)).unwrap_err().kind(), ErrorKind::Damaged);
    assert_eq!(f.follower.current(), None);
    f.load(&run.snapshot(0)).unwrap();
    run.check(&f, 0);
}
