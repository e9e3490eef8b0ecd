//! Rows of tensors in memory that follow a store, as the workers of a tensor-parallel engine hold them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::support::{Tensor, memory, new_store, options, safetensors, step};
use lmc::{Dtype, Level, ReadAt};
use lmc_store::{
    At, BasePolicy, ErrorKind, FollowOptions, Input, SaveOptions, Snapshot, StagedTensors, Store, TensorFollower,
    TensorSpec,
};
use object_store::ObjectStore;
use std::sync::Arc;

/// Two tensors that have a block set each, two that share one, and one that has two.
const TENSORS: [(&str, u64, u64); 5] =
    [("tall", 300, 900), ("wide", 100, 900), ("bias", 500, 1), ("norm", 3, 100), ("deep", 4300, 1000)];

struct Run {
    objects: Arc<dyn ObjectStore>,
    store: Store,
    tensors: Vec<Tensor>,
    saved: Vec<Vec<Tensor>>,
    options: SaveOptions<'static>,
}

impl Run {
    /// Of the first four.
    fn new(level: Level) -> Self {
        Self::of(&TENSORS[..4], level)
    }

    fn of(tensors: &[(&'static str, u64, u64)], level: Level) -> Self {
        let objects = memory();
        let store = new_store(&objects);
        let tensors =
            (0..).zip(tensors).map(|(i, &(name, rows, columns))| Tensor::new(name, rows, columns, i)).collect();
        let mut o = SaveOptions::default();
        (o.level, o.base) = (level, BasePolicy::Previous);
        let mut run = Self { objects, store, tensors, saved: vec![], options: o };
        run.save(|_| {});
        run
    }

    fn save(&mut self, change: impl Fn(&mut Tensor)) {
        self.tensors.iter_mut().for_each(change);
        let (n, file) = (self.saved.len() as u64, safetensors(&self.tensors));
        self.store.save(&[Input::new("m.safetensors", &file)], Some(step(n)), BTreeMap::new(), &self.options).unwrap();
        self.saved.push(self.tensors.clone());
    }

    fn snapshot(&self, n: usize) -> Snapshot {
        self.store.find(At::Step(step(n as u64))).unwrap()
    }

    fn follower(&self, specs: Vec<TensorSpec>, o: FollowOptions) -> TensorFollower {
        TensorFollower::new(Store::open_on(self.objects.clone(), options(1)).unwrap(), specs, o).unwrap()
    }

    /// A worker that has these rows of these tensors.
    fn worker(&self, parts: &[(&'static str, Range<u64>)], o: FollowOptions) -> Worker {
        let specs = parts.iter().map(|(name, rows)| spec(name, rows.clone())).collect();
        let memory = parts.iter().map(|(name, rows)| vec![0xaa; bytes_of(name, rows).len()]).collect();
        Worker { follower: self.follower(specs, o), parts: parts.to_vec(), memory }
    }

    fn check(&self, worker: &Worker, n: usize) {
        assert_eq!(worker.follower.current().map(|(step, _)| step), Some(step(n as u64)));
        for ((name, rows), there) in worker.parts.iter().zip(&worker.memory) {
            let whole = &self.saved[n].iter().find(|t| t.0 == *name).unwrap().3;
            assert!(*there == whole[bytes_of(name, rows)], "rows {rows:?} of {name} at step {n}");
        }
    }
}

fn columns(name: &str) -> u64 {
    TENSORS.iter().find(|t| t.0 == name).unwrap().2
}

fn bytes_of(name: &str, rows: &Range<u64>) -> Range<usize> {
    let row = 4 * columns(name) as usize;
    rows.start as usize * row..rows.end as usize * row
}

fn spec(name: &str, rows: Range<u64>) -> TensorSpec {
    let shape = vec![rows.end - rows.start, columns(name)];
    TensorSpec { name: name.into(), dtype: Dtype::F32, shape, first_row: Some(rows.start) }
}

struct Worker {
    follower: TensorFollower,
    parts: Vec<(&'static str, Range<u64>)>,
    memory: Vec<Vec<u8>>,
}

impl Worker {
    fn load(&mut self, s: &Snapshot) -> lmc_store::Result<u64> {
        let mut out: Vec<&mut [u8]> = self.memory.iter_mut().map(|m| &mut m[..]).collect();
        self.follower.load(s, &mut out, &mut |_| Ok(()))
    }

    fn stage(&self, s: &Snapshot) -> lmc_store::Result<StagedTensors> {
        let tensors: Vec<&dyn ReadAt> = self.memory.iter().map(|m| m as &dyn ReadAt).collect();
        self.follower.stage(s, &tensors, &mut |_| Ok(()))
    }

    fn follow(&mut self, s: &Snapshot) -> lmc_store::Result<StagedTensors> {
        let staged = self.stage(s)?;
        let mut out: Vec<&mut [u8]> = self.memory.iter_mut().map(|m| &mut m[..]).collect();
        self.follower.commit(&staged, &mut out)?;
        Ok(staged)
    }
}

/// Two workers that have everything together, and one that has little.
fn parts() -> [Vec<(&'static str, Range<u64>)>; 3] {
    [
        vec![("tall", 0..151), ("wide", 0..50), ("bias", 0..250), ("norm", 0..3)],
        vec![("tall", 151..300), ("wide", 50..100), ("bias", 250..500)],
        vec![("wide", 99..100), ("tall", 210..213), ("norm", 2..2)],
    ]
}

/// Changes one element in `every`.
fn sparse(seed: usize, every: usize) -> impl Fn(&mut Tensor) {
    move |t| t.3.chunks_mut(4).skip(seed % every).step_by(every).for_each(|e| e[1] ^= 1 + (seed as u8 & 0x3f))
}

#[test]
fn rows_follow_as_the_whole_does() {
    for (level, verify) in [(Level::Fast, false), (Level::Fast, true), (Level::Default, false)] {
        let mut o = FollowOptions::default();
        (o.verify, o.threads) = (verify, 2);
        let mut run = Run::new(level);
        let mut workers = parts().map(|parts| run.worker(&parts, o));
        for w in &mut workers {
            w.load(&run.snapshot(0)).unwrap();
            run.check(w, 0);
        }
        // Lists, a dense change, one element of one tensor, nothing.
        run.save(sparse(1, 60));
        run.save(|t| t.train(2));
        run.save(|t| {
            if t.0 == "wide" {
                *t.3.last_mut().unwrap() ^= 1;
            }
        });
        run.save(|_| {});
        for n in 1..5 {
            for (i, w) in workers.iter_mut().enumerate() {
                let staged = w.follow(&run.snapshot(n)).unwrap();
                run.check(w, n);
                let elements: usize = w.memory.iter().map(|m| m.len() / 4).sum();
                match n {
                    1 => assert!(
                        staged.changed().abs_diff(elements as u64 / 60) < 5,
                        "{} of {elements}",
                        staged.changed()
                    ),
                    3 => assert_eq!(staged.changed(), u64::from(i > 0)),
                    4 => assert_eq!(staged.changed(), 0),
                    _ => {}
                }
            }
        }
        // Several versions at once: of lists, and of lists and others.
        (5..8).for_each(|seed| run.save(sparse(seed, 70)));
        workers.iter_mut().for_each(|w| drop(w.follow(&run.snapshot(7)).unwrap()));
        workers.iter().for_each(|w| run.check(w, 7));
        run.save(sparse(8, 70));
        run.save(|t| t.train(9));
        run.save(sparse(10, 70));
        workers.iter_mut().for_each(|w| drop(w.follow(&run.snapshot(10)).unwrap()));
        workers.iter().for_each(|w| run.check(w, 10));
    }
}

#[test]
fn of_lists_nothing_is_decoded() {
    let mut run = Run::new(Level::Fast);
    let mut workers = parts().map(|parts| run.worker(&parts, FollowOptions::default()));
    workers.iter_mut().for_each(|w| _ = w.load(&run.snapshot(0)).unwrap());
    // Changes by others are not noticed where only the list is read.
    workers.iter_mut().for_each(|w| w.memory[0][5] ^= 1);
    for n in 1..3 {
        run.save(sparse(7 * n, 50));
        for w in &mut workers {
            w.follow(&run.snapshot(n)).unwrap();
            w.memory[0][5] ^= 1;
            run.check(w, n);
            w.memory[0][5] ^= 1;
        }
    }
    // They are noticed where all is decoded.
    run.save(|t| t.train(3));
    for w in &mut workers {
        w.follow(&run.snapshot(3)).unwrap();
        run.check(w, 3);
    }
}

#[test]
fn what_other_workers_have_is_not_fetched() {
    let mut run = Run::of(&TENSORS[4..], Level::Fast);
    let mut w = run.worker(&[("deep", 0..100)], FollowOptions::default());
    // One of two block sets.
    let all = run.snapshot(0).new_size;
    let fetched = w.load(&run.snapshot(0)).unwrap();
    assert!(fetched * 10 < all * 6, "{fetched} of {all}");
    run.save(|t| {
        let second = t.3.len() / 12 * 8;
        t.3[second..].chunks_mut(4).step_by(50).for_each(|e| e[1] ^= 1);
    });
    let staged = w.follow(&run.snapshot(1)).unwrap();
    assert_eq!((staged.fetched_size(), staged.changed()), (0, 0));
    run.check(&w, 1);
}

#[test]
fn rows_are_adopted_verified_and_go_back() {
    let mut o = FollowOptions::default();
    (o.verify, o.rewind) = (true, true);
    let mut run = Run::new(Level::Fast);
    for n in 1..4 {
        run.save(sparse(n, 50));
    }
    for parts in parts() {
        let mut w = run.worker(&parts, o);
        for ((name, rows), m) in parts.iter().zip(&mut w.memory) {
            m.copy_from_slice(&run.saved[3].iter().find(|t| t.0 == *name).unwrap().3[bytes_of(name, rows)]);
        }
        let adopt = |w: &mut Worker| {
            let tensors: Vec<&dyn ReadAt> = w.memory.iter().map(|m| m as &dyn ReadAt).collect();
            w.follower.adopt(&run.snapshot(3), &tensors)
        };
        w.memory[0][9] ^= 1;
        assert_eq!(adopt(&mut w).unwrap_err().kind(), ErrorKind::Usage);
        w.memory[0][9] ^= 1;
        adopt(&mut w).unwrap();
        // Back to the version, and changes by others are corrected.
        for n in [1, 2, 0, 3] {
            w.memory[1][4] ^= 1;
            w.follow(&run.snapshot(n)).unwrap();
            run.check(&w, n);
        }
    }
}

#[test]
fn rows_that_the_store_does_not_have_are_refused() {
    let run = Run::new(Level::Fast);
    let wide = |shape: &[u64], first| TensorSpec { shape: shape.to_vec(), first_row: first, ..spec("wide", 0..1) };
    for (spec, why) in [
        (spec("wide", 51..101), "of shape [100, 900] in step 0, and F32 of shape [50, 900] from row 51 on here"),
        (wide(&[1, 900], Some(u64::MAX)), "from row 18446744073709551615 on"),
        (wide(&[5, 450], Some(3)), "of shape [5, 450] from row 3 on"),
        (wide(&[], Some(0)), "of shape [] from row 0 on"),
        (wide(&[50, 900], None), "of shape [50, 900] here"),
        (TensorSpec { dtype: Dtype::I32, ..spec("wide", 0..2) }, "and I32 of shape [2, 900] from row 0 on"),
    ] {
        let mut memory = vec![0; lmc::layout::tensor_len(spec.dtype, &spec.shape).unwrap() as usize];
        let mut follower = run.follower(vec![spec], FollowOptions::default());
        let e = follower.load(&run.snapshot(0), &mut [&mut memory], &mut |_| Ok(())).unwrap_err();
        assert!(e.kind() == ErrorKind::Usage && e.to_string().contains(why), "{e}");
    }
}
