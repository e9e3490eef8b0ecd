//! 16-bit weights beside the 32-bit weights that they are rounded from: they cost next to nothing, however either changes.

use std::collections::BTreeMap;

use crate::support::{self, memory, new_store, noise, reader, step};
use lmc::Dtype;
use lmc_store::{BasePolicy, Input, SaveOptions, Snapshot, Store, Tensor, Tensors};

/// Weights, and their 16-bit counterpart.
struct Model {
    master: Vec<u8>,
    other: Vec<u8>,
}

impl Model {
    fn new() -> Self {
        let t = |seed| support::Tensor::new("t", 300, 300, seed).3;
        Self { master: t(1), other: t(2) }
    }

    /// A step that changes the 16-bit values.
    fn train(&mut self, seed: u64) {
        let moves = noise(self.master.len() / 4, seed);
        for (w, m) in self.master.chunks_exact_mut(4).zip(moves) {
            let x = u32::from_le_bytes(w.try_into().unwrap());
            w.copy_from_slice(&x.wrapping_add(u32::from(m) << 10).to_le_bytes());
        }
    }

    /// The upper halves, which is rounding towards zero. The top bit of the lower halves is cleared, so that it is also rounding to
    /// nearest.
    fn rounded(&mut self) -> Vec<u8> {
        self.master.chunks_exact_mut(4).for_each(|w| w[1] &= 0x7f);
        self.master.chunks_exact(4).flat_map(|w| [w[2], w[3]]).collect()
    }
}

fn tensor<'a>(name: &'a str, dtype: Dtype, data: &'a [u8]) -> Tensor<'a> {
    Tensor { name, dtype, shape: &[300, 300], data }
}

fn save(store: &Store, n: u64, tensors: &[&[Tensor<'_>]], o: &SaveOptions) -> Snapshot {
    let files: Vec<Tensors<'_>> = tensors.iter().map(|t| Tensors::new(t, None).unwrap()).collect();
    let inputs: Vec<Input<'_>> = files.iter().enumerate().map(|(i, f)| Input::new(format!("f{i}"), f)).collect();
    store.save(&inputs, Some(step(n)), BTreeMap::new(), o).unwrap()
}

fn check(store: &Store, s: &Snapshot, tensors: &[&[Tensor<'_>]]) {
    let reader = reader(store, s.step.get());
    for (i, tensors) in tensors.iter().enumerate() {
        let mut whole = vec![];
        reader.read_file(&format!("f{i}"), &mut whole).unwrap();
        let mut ours = vec![0; whole.len()];
        lmc::ReadAt::read_exact_at(&Tensors::new(tensors, None).unwrap(), &mut ours, 0).unwrap();
        assert!(whole == ours, "f{i} of step {}", s.step);
        for t in *tensors {
            assert!(
                reader.read_rows(t.name, 7..200).unwrap() == t.data[7 * t.data.len() / 300..200 * t.data.len() / 300]
            );
        }
    }
    assert!(store.verify(std::slice::from_ref(s), true, 1).unwrap().problems.is_empty());
}

#[test]
fn rounded_weights_cost_next_to_nothing() {
    let (with, without) = (new_store(&memory()), new_store(&memory()));
    let o = SaveOptions::default();
    let mut m = Model::new();
    for n in 0..4 {
        m.train(n);
        let narrow = m.rounded();
        let (w, f, b) = (
            tensor("w", Dtype::F32, &m.master),
            tensor("other", Dtype::F32, &m.other),
            tensor("b", Dtype::Bf16, &narrow),
        );
        // In one file and in several, before and after.
        let files: [&[Tensor<'_>]; 3] = [&[b], &[f, w], &[]];
        let s = save(&with, n, &files, &o);
        check(&with, &s, &files);
        let alone = save(&without, n, &[&[], &[f, w], &[]], &o);
        assert!(s.new_size < alone.new_size + 2000, "step {n}: {} and {}", s.new_size, alone.new_size);
        let costs = [(&with, s), (&without, alone)].map(|(store, s)| store.costs(&[s]).unwrap().remove(0).unwrap());
        assert_eq!(costs[0].longest_chain, costs[1].longest_chain + 1);
        // Their common base is read once.
        assert!(costs[0].stored_size < costs[1].stored_size + 10_000, "{costs:?}");
    }
}

#[test]
fn either_may_change_alone_or_go_away() {
    for policy in [(BasePolicy::Auto, 3), (BasePolicy::Previous, 3), (BasePolicy::Previous, 1)] {
        let store = new_store(&memory());
        let mut o = SaveOptions::default();
        (o.base, o.anchor_every) = policy;
        let mut m = Model::new();
        let narrow = m.rounded();
        let other = noise(narrow.len(), 9);
        let mut moved = narrow.clone();
        moved.iter_mut().step_by(1000).for_each(|b| *b ^= 1);
        let first = m.master.clone();
        m.train(1);
        for (n, (master, narrow)) in (0..).zip([
            (Some(&first), Some(&narrow)),
            (None, Some(&narrow)),
            (None, Some(&moved)),
            (Some(&first), Some(&narrow)),
            (Some(&m.master), Some(&narrow)),
            (Some(&m.master), Some(&moved)),
            (Some(&m.master), Some(&other)),
            (Some(&first), None),
            (Some(&first), Some(&narrow)),
        ]) {
            let tensors: Vec<Tensor<'_>> = [("w", Dtype::F32, master), ("b", Dtype::Bf16, narrow)]
                .into_iter()
                .filter_map(|(name, dtype, data)| Some(tensor(name, dtype, data?)))
                .collect();
            let s = save(&store, n, &[&tensors], &o);
            check(&store, &s, &[&tensors]);
        }
    }
}

#[test]
fn pairs_survive_pruning_and_are_rebased() {
    let store = new_store(&memory());
    let mut o = SaveOptions::default();
    o.base = BasePolicy::Previous;
    let mut m = Model::new();
    let mut saved = vec![];
    for n in 0..5 {
        m.train(n);
        let narrow = m.rounded();
        let tensors = [tensor("w", Dtype::F32, &m.master), tensor("b", Dtype::Bf16, &narrow)];
        save(&store, n, &[&tensors], &o);
        saved.push((m.master.clone(), narrow));
    }
    let check_all = |steps: &[u64]| {
        let found = store.snapshots().unwrap();
        assert_eq!(found.iter().map(|s| s.step.get()).collect::<Vec<_>>(), steps);
        for s in &found {
            let (master, narrow) = &saved[s.step.get() as usize];
            check(&store, s, &[&[tensor("w", Dtype::F32, master), tensor("b", Dtype::Bf16, narrow)]]);
        }
    };
    let mut keep = lmc_store::Keep::default();
    keep.steps = [1, 3, 4].map(step).into();
    store.prune(&store.plan_prune(&keep).unwrap(), &lmc_store::RebaseOptions::default()).unwrap();
    check_all(&[1, 3, 4]);
    store.rebase(&[step(3), step(4)], &lmc_store::RebaseOptions::default()).unwrap();
    check_all(&[1, 3, 4]);
}

#[test]
fn the_longest_chains_have_room_for_them() {
    let store = new_store(&memory());
    let mut o = SaveOptions::default();
    (o.anchor_every, o.base) = (64, BasePolicy::Previous);
    let mut m = Model::new();
    for n in 0..66 {
        m.train(n);
        let narrow = m.rounded();
        let tensors = [tensor("w", Dtype::F32, &m.master), tensor("b", Dtype::Bf16, &narrow)];
        let s = save(&store, n, &[&tensors], &o);
        if n > 61 {
            check(&store, &s, &[&tensors]);
        }
    }
}

#[test]
fn what_is_written_does_not_depend_on_threads_or_memory() {
    let mut m = Model::new();
    let mut wrote = vec![];
    let narrow = m.rounded();
    let file = |m: &Model, narrow: &[u8]| -> Vec<u8> {
        let tensors =
            [tensor("w", Dtype::F32, &m.master), tensor("b", Dtype::Bf16, narrow), tensor("o", Dtype::F32, &m.other)];
        let tensors = Tensors::new(&tensors, None).unwrap();
        let mut whole = vec![0; lmc::ReadAt::size(&tensors).unwrap() as usize];
        lmc::ReadAt::read_exact_at(&tensors, &mut whole, 0).unwrap();
        whole
    };
    let first = file(&m, &narrow);
    m.train(1);
    let narrow = m.rounded();
    let second = file(&m, &narrow);
    for threads in [1, 2, 5] {
        let objects = memory();
        let store = Store::create_on(objects.clone(), support::options(1)).unwrap();
        let mut o = SaveOptions::default();
        o.threads = threads;
        support::save_with(&store, 1, &first, &o).unwrap();
        support::save_with(&store, 2, &second, &o).unwrap();
        wrote.push(support::data_objects(&objects));
    }
    assert_eq!(wrote[0].len(), 2);
    assert!(wrote[0] == wrote[1] && wrote[1] == wrote[2]);
}
