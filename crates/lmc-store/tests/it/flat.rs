//! 16-bit weights whose 32-bit ones are parts of flat tensors, as DeepSpeed's ZeRO keeps them: they cost next to nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{data_objects, memory, new_store, noise, options, reader, step};
use lmc::{Dtype, ReadAt};
use lmc_store::{BasePolicy, Input, RebaseOptions, SaveOptions, Snapshot, Store, Tensor, Tensors};

/// Files by name.
type Files = Vec<(String, Vec<u8>)>;

/// Parameters by name, in the order of the flat tensors: their 32-bit elements, without the lower half of their last bits, so that the upper
/// halves are rounded to nearest.
#[derive(Clone)]
struct Model(Vec<(String, Vec<u8>)>);

impl Model {
    /// Of a few layers, large and small.
    fn new() -> Self {
        let mut sizes = vec![("embed".to_owned(), 100_000)];
        for i in 0..3 {
            for (name, n) in [("up", 12_001), ("norm", 700), ("bias", 1000), ("down", 9000), ("head", 6000)] {
                sizes.push((format!("layers.{i}.{name}"), n));
            }
        }
        Self::of(sizes)
    }

    fn of(sizes: Vec<(String, usize)>) -> Self {
        let parameter = |(seed, (name, n)): (u64, (String, usize))| {
            let bytes = match &name {
                n if n.ends_with("norm") => [0, 0, 0x80, 0x3f].repeat(700),
                n if n.ends_with("bias") => vec![0; 4000],
                _ => noise(4 * n, seed).chunks(4).flat_map(|b| [b[0], b[1] & 0x7f, b[2], 0x3c | b[3] & 0x81]).collect(),
            };
            (name, bytes)
        };
        Self((0..).zip(sizes).map(parameter).collect())
    }

    /// A step that changes every element, and some of the 16-bit ones.
    fn train(&mut self, seed: u64) {
        for (i, (_, bytes)) in (0..).zip(&mut self.0) {
            let moves = noise(bytes.len() / 4, seed + 100 * i);
            for (w, m) in bytes.chunks_exact_mut(4).zip(moves) {
                let x = u32::from_le_bytes(w.try_into().unwrap());
                w.copy_from_slice(&(x.wrapping_add(u32::from(m) << 10) & 0xffff_7fff).to_le_bytes());
            }
        }
    }

    /// The file of the 16-bit weights.
    fn narrow(&self) -> (String, Vec<u8>) {
        let rounded = |b: &Vec<u8>| b.chunks_exact(4).flat_map(|w| [w[2], w[3]]).collect();
        self.file("mp_rank_00_model_states", Dtype::Bf16, rounded)
    }

    /// A file of all parameters by name.
    fn file(&self, name: &str, dtype: Dtype, rounded: impl Fn(&Vec<u8>) -> Vec<u8>) -> (String, Vec<u8>) {
        let data: Vec<Vec<u8>> = self.0.iter().map(|(_, b)| rounded(b)).collect();
        let shapes: Vec<[u64; 1]> = self.0.iter().map(|(_, b)| [b.len() as u64 / 4]).collect();
        let tensors: Vec<Tensor<'_>> = (self.0.iter().zip(&data).zip(&shapes))
            .map(|(((name, _), data), shape)| Tensor { name, dtype, shape, data })
            .collect();
        (name.into(), whole(&tensors))
    }

    /// The files of the optimiser: a flat tensor for each rank, with padding at the end, and its moments.
    fn optimizer(&self, ranks: usize, seed: u64) -> Files {
        let mut all: Vec<u8> = self.0.iter().flat_map(|(_, b)| b.clone()).collect();
        all.resize(all.len().next_multiple_of(4 * ranks) + 64 * ranks, 0);
        let part = |(rank, master): (usize, &[u8])| {
            let moment = |seed| -> Vec<u8> {
                noise(master.len(), seed).chunks(4).flat_map(|b| [b[0], b[1], b[2], 0x30]).collect()
            };
            let moments = [moment(seed + 7), moment(seed + 8)];
            let shape = [master.len() as u64 / 4];
            let f32 = |name, data| Tensor { name, dtype: Dtype::F32, shape: &shape, data };
            let tensors = [
                f32("base_optimizer_state.state.0.exp_avg", &moments[0]),
                f32("base_optimizer_state.state.0.exp_avg_sq", &moments[1]),
                f32("single_partition_of_fp32_groups.0", master),
            ];
            (format!("bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states"), whole(&tensors))
        };
        all.chunks(all.len() / ranks).enumerate().map(part).collect()
    }
}

/// A safetensors file.
fn whole(tensors: &[Tensor<'_>]) -> Vec<u8> {
    let tensors = Tensors::new(tensors, None).unwrap();
    let mut whole = vec![0; tensors.size().unwrap() as usize];
    tensors.read_exact_at(&mut whole, 0).unwrap();
    whole
}

fn save(store: &Store, n: u64, files: &Files, o: &SaveOptions) -> Snapshot {
    let inputs: Vec<Input<'_>> = files.iter().map(|(name, bytes)| Input::new(name, bytes)).collect();
    let s = store.save(&inputs, Some(step(n)), BTreeMap::new(), o).unwrap();
    check(store, n, files);
    s
}

/// Compares files, and each tensor by name.
fn check(store: &Store, n: u64, files: &Files) {
    let reader = reader(store, n);
    for (name, bytes) in files {
        let mut whole = vec![];
        reader.read_file(name, &mut whole).unwrap();
        assert!(whole == *bytes, "{name} of step {n}");
    }
    // Of tensors that several files have, the first file's are read by name.
    let mut seen = std::collections::HashSet::new();
    for (file, (_, bytes)) in reader.files().iter().zip(files) {
        for s in file.segments.iter().filter(|s| s.len > 0 && s.dtype.is_some()) {
            let name = s.name.as_deref().unwrap();
            if seen.insert(name.to_owned()) {
                let tensor = reader.read_tensor(name).unwrap();
                assert!(tensor == bytes[s.offset as usize..s.end() as usize], "{name} of step {n}");
            }
        }
    }
}

/// Bytes that files take in a store of their own.
fn alone(files: &Files) -> u64 {
    let store = new_store(&memory());
    let s = save(&store, 0, files, &SaveOptions::default());
    assert!(store.verify(std::slice::from_ref(&s), true, 1).unwrap().problems.is_empty());
    s.new_size
}

/// The cost of the last file beside the others, in thousandths of its bytes.
fn costs(files: &Files) -> u64 {
    let (last, others) = files.split_last().unwrap();
    (alone(files) - alone(&others.to_vec())) * 1000 / last.1.len() as u64
}

#[test]
fn weights_beside_their_flat_tensors_cost_next_to_nothing() {
    let m = Model::new();
    for ranks in [1, 2, 5] {
        let mut files = m.optimizer(ranks, 0);
        files.push(m.narrow());
        let cost = costs(&files);
        assert!(cost <= 10, "{ranks} ranks: {cost} ‰");
    }
}

#[test]
fn chunks_of_flat_tensors_cut_the_weights() {
    // Mostly zeros, which take little time.
    let mut m = Model::of(vec![("a".into(), 90_000), ("b".into(), 80_000), ("c".into(), 70_000)]);
    for (_, bytes) in &mut m.0[..2] {
        let noise = bytes.clone();
        bytes.resize(9_000_000, 0);
        bytes.extend(noise);
    }
    let (name, narrow) = m.narrow();
    let flat = m.0.iter().flat_map(|(_, b)| b.clone()).collect::<Vec<u8>>();
    let shape = [flat.len() as u64 / 4];
    let flat = whole(&[Tensor { name: "flat", dtype: Dtype::F32, shape: &shape, data: &flat }]);
    let files = vec![("flat".to_owned(), flat), (name, narrow)];
    let cost = (alone(&files) - alone(&files[..1].to_vec())) * 100 / (2 * 410_000);
    assert!(cost <= 1, "{cost} % of what is not zero");
}

#[test]
fn neither_the_order_of_files_nor_that_of_parameters_matters() {
    let m = Model::new();
    let mut other = m.clone();
    other.0.reverse();
    other.0.swap(3, 8);
    let mut files = m.optimizer(2, 0);
    files.reverse();
    let without = alone(&files);
    files.insert(1, other.narrow());
    let cost = (alone(&files) - without) * 1000 / files[1].1.len() as u64;
    assert!(cost <= 12, "{cost} ‰");
    // A second file with the same weights.
    let mut second = m.narrow();
    second.0 = "model".into();
    files.push(second);
    let cost = costs(&files);
    assert!(cost <= 10, "{cost} ‰");
}

#[test]
fn copies_in_one_file_are_found() {
    let m = Model::new();
    let mut files = m.optimizer(2, 0);
    let copies = m.0.iter().map(|(name, bytes)| (format!("ema.{name}"), bytes.clone()));
    files.push(Model(m.0.iter().cloned().chain(copies).collect()).narrow());
    let cost = costs(&files);
    assert!(cost <= 10, "{cost} ‰");
}

#[test]
fn weights_in_fp16_are_found() {
    // Between 0.5 and 1, with 10 bits and some that are rounded.
    let mut m = Model::of(vec![("a".into(), 150_000), ("b".into(), 20_000)]);
    for (_, bytes) in &mut m.0 {
        for w in bytes.chunks_exact_mut(4) {
            let x = u32::from_le_bytes(w.try_into().unwrap());
            w.copy_from_slice(&(x & 0x807f_efff | 0x3f00_0000).to_le_bytes());
        }
    }
    let half = |w: &[u8]| -> [u8; 2] {
        let x = u32::from_le_bytes(w.try_into().unwrap());
        ((x >> 16 & 0x8000 | 14 << 10 | x >> 13 & 0x3ff) as u16).to_le_bytes()
    };
    let mut files = m.optimizer(2, 0);
    files.push(m.file("states", Dtype::F16, |b| b.chunks_exact(4).flat_map(half).collect()));
    let cost = costs(&files);
    assert!(cost <= 20, "{cost} ‰");
}

#[test]
fn deltas_of_flat_tensors_are_what_they_are_without_the_weights() {
    for base in [BasePolicy::Auto, BasePolicy::Previous] {
        let mut o = SaveOptions::default();
        o.base = base;
        let (with, without) = (new_store(&memory()), new_store(&memory()));
        let mut m = Model::of((0..20).map(|i| (format!("p{i}"), 4000 + 300 * i)).collect());
        for n in 0..3 {
            let mut files = m.optimizer(2, 10 * n);
            let few = save(&without, n, &files, &o).new_size;
            files.push(m.narrow());
            let all = save(&with, n, &files, &o).new_size;
            assert!(all < few + files[2].1.len() as u64 / 50, "step {n}, {base:?}: {all} and {few}");
            m.train(n);
        }
        let snapshots = with.snapshots().unwrap();
        assert!(with.verify(&snapshots, true, 1).unwrap().problems.is_empty());
    }
}

#[test]
fn either_may_change_alone_or_go_away() {
    let store = new_store(&memory());
    let o = SaveOptions::default();
    let mut m = Model::of((0..15).map(|i| (format!("p{i}"), 4000 + 500 * i)).collect());
    let optimizer = |m: &Model| m.optimizer(2, 0);
    let mut saved: Vec<Files> = vec![];
    let first = m.narrow();
    saved.push([optimizer(&m), vec![first.clone()]].concat());
    let mut moved = first.clone();
    moved.1.iter_mut().skip(10_000).step_by(10_000).for_each(|b| *b ^= 1);
    saved.push([optimizer(&m), vec![moved]].concat());
    saved.push(vec![first.clone()]);
    saved.push(optimizer(&m));
    m.train(1);
    saved.push([optimizer(&m), vec![first]].concat());
    saved.push([optimizer(&m), vec![m.narrow()]].concat());
    let sizes: Vec<u64> = (0..).zip(&saved).map(|(n, files)| save(&store, n, files, &o).new_size).collect();
    let narrow = m.narrow().1.len() as u64;
    assert!(sizes[1] < narrow / 50 && sizes[5] < narrow / 50, "{sizes:?}, {narrow}");
    let mut keep = lmc_store::Keep::default();
    keep.steps = [1, 2, 5].map(step).into();
    store.prune(&store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    store.rebase(&[1, 2, 5].map(step), &RebaseOptions::default()).unwrap();
    for n in [1, 2, 5] {
        check(&store, n, &saved[n as usize]);
    }
    assert!(store.verify(&store.snapshots().unwrap(), true, 1).unwrap().problems.is_empty());
}

#[test]
fn weights_alone_are_deltas_against_a_whole_snapshot() {
    for (base, wrapped) in [(BasePolicy::Auto, false), (BasePolicy::Previous, true)] {
        let mut o = SaveOptions::default();
        o.base = base;
        let (after, plain) = (new_store(&memory()), new_store(&memory()));
        let mut m = Model::new();
        let mut whole = m.optimizer(2, 0);
        whole.push(m.narrow());
        save(&after, 0, &whole, &o);
        save(&plain, 0, &vec![m.narrow()], &o);
        assert_eq!(save(&after, 1, &vec![m.narrow()], &o).new_size, 0);
        for n in 2..5 {
            m.train(n);
            let mut own = m.clone();
            if wrapped {
                own.0.iter_mut().for_each(|(name, _)| *name = format!("module.{name}"));
            }
            let files = vec![own.narrow()];
            let (after, plain) = (save(&after, n, &files, &o).new_size, save(&plain, n, &files, &o).new_size);
            assert!(after < plain * 105 / 100, "step {n}, {base:?}: {after} and {plain}");
        }
        // With the flat tensors again, and without a base.
        let mut files = m.optimizer(2, 0);
        files.push(m.narrow());
        let cost = save(&after, 5, &files, &o).new_size - alone(&files[..2].to_vec());
        assert!(cost < files[2].1.len() as u64 / 50, "{base:?}: {cost}");
        o.anchor_every = 1;
        m.train(6);
        let files = vec![m.narrow()];
        // The store has the header already.
        let (after_all, first) = (save(&after, 6, &files, &o), save(&new_store(&memory()), 0, &files, &o));
        assert!(first.new_size - after_all.new_size < 1000, "{after_all:?} and {first:?}");
        assert!(after.verify(&after.snapshots().unwrap(), true, 1).unwrap().problems.is_empty());
    }
}

#[test]
fn a_copy_beside_weights_that_are_cut_as_before_is_no_part_of_them() {
    let o = SaveOptions::default();
    let store = new_store(&memory());
    let m = Model::new();
    let mut whole = m.optimizer(2, 0);
    whole.push(m.narrow());
    save(&store, 0, &whole, &o);
    let copies = m.0.iter().map(|(name, bytes)| (format!("module.{name}"), bytes.clone()));
    let both = Model(m.0.iter().cloned().chain(copies).collect());
    let all = save(&store, 1, &vec![both.narrow()], &o).new_size;
    assert!(all < m.narrow().1.len() as u64, "{all}");
    assert!(store.verify(&store.snapshots().unwrap(), true, 1).unwrap().problems.is_empty());
}

#[test]
fn what_is_written_does_not_depend_on_threads() {
    let m = Model::of((0..20).map(|i| (format!("p{i}"), 4000 + 500 * i)).collect());
    let mut files = m.optimizer(3, 0);
    files.extend([m.narrow(), ("other".into(), m.narrow().1)]);
    let mut wrote = vec![];
    for threads in [1, 3] {
        let objects = memory();
        let store = Store::create_on(objects.clone(), options(1)).unwrap();
        let mut o = SaveOptions::default();
        o.threads = threads;
        save(&store, 0, &files, &o);
        wrote.push(data_objects(&objects));
    }
    assert!(wrote[0] == wrote[1]);
}

/// Files of PyTorch, which `testdata/layouts/deepspeed/make.py` makes.
#[test]
fn files_of_torch_save_are_searched() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/layouts/deepspeed");
    let mut names: Vec<String> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|n| n.ends_with(".pt"));
    names.sort();
    assert_eq!(names.len(), 3);
    let files: Files = names.into_iter().map(|n| (n.clone(), std::fs::read(folder.join(n)).unwrap())).collect();
    assert!(files[2].0.starts_with("mp_rank"));
    // Local headers and the pickle are a good part of so small a file.
    let (cost, own) = (costs(&files), alone(&files[2..].to_vec()) * 1000 / files[2].1.len() as u64);
    assert!(cost <= 170 && own > 600, "{cost} ‰, alone {own} ‰");
}

/// A file that counts how often it is read.
struct Counting(Vec<u8>, Arc<AtomicU64>);

impl ReadAt for Counting {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0[..].read_exact_at(buf, offset)
    }

    fn size(&self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}

/// Reads of files, beside those of the same files when the flat tensors have two dimensions.
fn more_reads(flat: &[u8], narrow: &[Tensor<'_>]) -> u64 {
    let reads = |shape: &[u64]| {
        let count = Arc::new(AtomicU64::new(0));
        let flat = whole(&[Tensor { name: "flat", dtype: Dtype::F32, shape, data: flat }]);
        let files = [Counting(flat, count.clone()), Counting(whole(narrow), count.clone())];
        let inputs = [Input::new("flat", &files[0]), Input::new("narrow", &files[1])];
        new_store(&memory()).save(&inputs, Some(step(0)), BTreeMap::new(), &SaveOptions::default()).unwrap();
        count.load(Ordering::Relaxed)
    };
    let n = flat.len() as u64 / 4;
    reads(&[n]) - reads(&[n / 2, 2])
}

#[test]
fn hostile_files_take_a_few_reads_for_each_tensor() {
    let names: Vec<String> = (0..100_000).map(|i| i.to_string()).collect();
    let tiny = noise(200, 1);
    let tensors = |n: usize, data: &'static [u8], shape: &'static [u64]| -> Vec<Tensor<'_>> {
        names[..n].iter().map(|name| Tensor { name, dtype: Dtype::Bf16, shape, data }).collect()
    };
    let leaked: &'static [u8] = tiny.leak();
    let zeros: &'static [u8] = vec![0; 400_000].leak();
    let equal: &'static [u8] = noise(140_000, 2).leak();
    let few = |reads: u64, most: u64| assert!(reads < most, "{reads}");
    few(more_reads(&noise(400_000, 3), &tensors(100_000, leaked, &[100])), 110_000);
    few(more_reads(&zeros[..400_000], &tensors(100_000, leaked, &[100])), 110_000);
    few(more_reads(&zeros[..400_000], &tensors(40, &zeros[..200_000], &[100_000])), 1000);
    few(more_reads(&noise(400_000, 3), &tensors(100, equal, &[70_000])), 1000);
}
