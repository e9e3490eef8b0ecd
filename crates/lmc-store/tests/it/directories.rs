//! Directories in which several files hold the same model: in other orders, under other names, in other formats, rounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::support::{data_objects, memory, new_store, noise, reader, step};
use lmc::{Dtype, ReadAt, Segment, Source};
use lmc_store::{BasePolicy, Input, SaveOptions, Snapshot, Store, Tensor, Tensors};

/// Weights by name: shape and bytes of F32.
type Model = Vec<(String, [u64; 2], Vec<u8>)>;

/// Many small tensors, and a large one.
fn model() -> Model {
    let weights = |n: u64, seed| -> Vec<u8> {
        let kept = |b: &[u8]| (u32::from_le_bytes(b.try_into().unwrap()) & 0x807f_7fff | 0x3f80_0000).to_le_bytes();
        noise(4 * n as usize, seed).chunks(4).flat_map(kept).collect()
    };
    let mut all: Model = vec![("embed.weight".into(), [300, 300], weights(90_000, 1))];
    for i in 0..60 {
        all.push((format!("layers.{i}.up.weight"), [64, 64], weights(4096, 1000 + i)));
        all.push((format!("layers.{i}.down.weight"), [32, 100], weights(3200, 2000 + i)));
        all.push((format!("layers.{i}.norm.weight"), [1, 300], weights(300, 3000 + i)));
    }
    all
}

/// A step that moves every element.
fn train(model: &mut Model, seed: u64) {
    for (i, (_, _, bytes)) in model.iter_mut().enumerate() {
        let moves = noise(bytes.len() / 4, seed + 100 * i as u64);
        for (w, m) in bytes.chunks_mut(4).zip(moves) {
            let x = u32::from_le_bytes(w.try_into().unwrap());
            w.copy_from_slice(&(x ^ u32::from(m & 7)).to_le_bytes());
        }
    }
}

fn renamed(model: &Model, name: impl Fn(&str) -> String) -> Model {
    model.iter().map(|(n, shape, bytes)| (name(n), *shape, bytes.clone())).collect()
}

/// In another order, small among large.
fn reordered(model: &Model) -> Model {
    let mut other = model.clone();
    other.sort_by_key(|(name, ..)| scattered(name));
    other
}

/// Any order that has nothing to do with that of the model.
fn scattered(name: &str) -> u64 {
    name.bytes().fold(7, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3).rotate_left(29))
}

/// The upper halves; the lower ones have no top bit, so that this is rounding to nearest.
fn rounded(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(4).flat_map(|w| [w[2], w[3]]).collect()
}

/// A safetensors file of the tensors in their order.
fn file(model: &Model, dtype: Dtype) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> =
        model.iter().map(|(_, _, b)| if dtype == Dtype::F32 { b.clone() } else { rounded(b) }).collect();
    let each = model.iter().zip(&bytes);
    let tensors: Vec<Tensor<'_>> = each.map(|((name, shape, _), data)| Tensor { name, dtype, shape, data }).collect();
    let tensors = Tensors::new(&tensors, None).unwrap();
    let mut whole = vec![0; tensors.size().unwrap() as usize];
    tensors.read_exact_at(&mut whole, 0).unwrap();
    whole
}

fn save(store: &Store, n: u64, files: &[&[u8]], o: &SaveOptions) -> Snapshot {
    let inputs: Vec<Input<'_>> = files.iter().enumerate().map(|(i, f)| Input::new(format!("f{i}"), f)).collect();
    let s = store.save(&inputs, Some(step(n)), BTreeMap::new(), o).unwrap();
    check(store, n, files);
    s
}

fn check(store: &Store, n: u64, files: &[&[u8]]) {
    let reader = reader(store, n);
    for (i, f) in files.iter().enumerate() {
        let mut whole = vec![];
        reader.read_file(&format!("f{i}"), &mut whole).unwrap();
        assert!(whole == *f, "f{i} of step {n}");
    }
}

/// Bytes that files take in a store of their own.
fn alone(files: &[&[u8]]) -> u64 {
    save(&new_store(&memory()), 0, files, &SaveOptions::default()).new_size
}

#[test]
fn a_model_that_stands_twice_is_stored_once() {
    let model = model();
    let first = file(&model, Dtype::F32);
    for other in [
        first.clone(),
        file(&reordered(&model), Dtype::F32),
        file(&renamed(&model, |n| format!("module.model.{n}")), Dtype::F32),
        file(&reordered(&renamed(&model, |n| format!("t{}", scattered(n)))), Dtype::F32),
    ] {
        let apart = alone(&[&first]) + alone(&[&other]);
        let together = alone(&[&first, &other]);
        assert!(together * 1000 <= apart * 505, "{together} of {apart}");
        // The second one takes the space of its list of names.
        assert_eq!(alone(&[&first, &other, &other]), together);
    }
}

#[test]
fn a_file_of_unknown_format_may_be_renamed() {
    let mut bytes = noise(40 << 20, 1);
    let store = new_store(&memory());
    let save = |n: u64, name: &str, file: &[u8]| {
        let saved = store.save(&[Input::new(name, &file)], Some(step(n)), BTreeMap::new(), &SaveOptions::default());
        let reader = reader(&store, n);
        let mut whole = vec![];
        reader.read_file(name, &mut whole).unwrap();
        assert!(whole == file);
        saved.unwrap().new_size
    };
    save(1, "old.dat", &bytes);
    bytes.iter_mut().step_by(10_000).for_each(|b| *b ^= 1);
    let renamed = save(2, "new.dat", &bytes);
    assert!(renamed * 100 < bytes.len() as u64, "{renamed}");
    // Which of two it was is not known, unless by its contents.
    store
        .save(
            &[Input::new("a", &bytes), Input::new("b", &noise(40 << 20, 2))],
            Some(step(3)),
            BTreeMap::new(),
            &SaveOptions::default(),
        )
        .unwrap();
    bytes.iter_mut().step_by(10_000).for_each(|b| *b ^= 2);
    let alone = save(4, "c", &bytes);
    assert!(alone > bytes.len() as u64, "{alone}");
}

#[test]
fn two_files_of_other_packings_share_small_tensors() {
    // The second has some of them, and others in between.
    let model = model();
    let mut part: Model = reordered(&model).into_iter().step_by(2).collect();
    let mut strange = renamed(&model, |n| format!("ema.{n}"));
    train(&mut strange, 5);
    part.splice(10..10, strange.drain(20..30));
    let (first, second) = (file(&model, Dtype::F32), file(&part, Dtype::F32));
    let new: Model = part.iter().filter(|(n, ..)| n.starts_with("ema.")).cloned().collect();
    let most = alone(&[&first]) + alone(&[&file(&new, Dtype::F32)]) + 4000;
    let together = alone(&[&first, &second]);
    assert!(together < most, "{together}, at most {most}");
}

#[test]
fn rounded_small_tensors_of_another_file_cost_next_to_nothing() {
    let model = model();
    let wide = file(&model, Dtype::F32);
    for name in [|n: &str| n.to_owned(), |n: &str| format!("module.{n}"), |n: &str| format!("t{}", scattered(n))] {
        let narrow = file(&reordered(&renamed(&model, name)), Dtype::Bf16);
        let (one, other) = (alone(&[&wide]), alone(&[&narrow]));
        for files in [[&wide[..], &narrow], [&narrow, &wide]] {
            let more = alone(&files) - one;
            assert!(more * 20 < other, "{more} more; alone {other}");
        }
    }
}

#[test]
fn deltas_of_a_directory_are_those_of_one_file() {
    for base in [BasePolicy::Auto, BasePolicy::Previous] {
        let mut o = SaveOptions::default();
        o.base = base;
        let (one, both) = (new_store(&memory()), new_store(&memory()));
        let mut m = model();
        for n in 0..4 {
            let second = reordered(&renamed(&m, |name| format!("model.{name}")));
            let files = [file(&m, Dtype::F32), file(&second, Dtype::F32), file(&second, Dtype::Bf16)];
            let few = save(&one, n, &[&files[0]], &o);
            let all = save(&both, n, &files.each_ref().map(|f| &f[..]), &o);
            assert!(all.new_size < few.new_size + 12_000, "step {n}, {base:?}: {} and {}", all.new_size, few.new_size);
            assert!(n == 0 || few.new_size < 500_000, "{}", few.new_size);
            train(&mut m, n);
        }
        let snapshots = both.snapshots().unwrap();
        assert!(both.verify(&snapshots, true, 1).unwrap().problems.is_empty());
    }
}

#[test]
fn bases_are_found_when_names_and_packings_change() {
    let mut m = model();
    let o = SaveOptions::default();
    let first = file(&m, Dtype::F32);
    train(&mut m, 1);
    let mut more = m.clone();
    more.insert(7, ("new.bias".into(), [1, 64], noise(256, 9)));
    let expected = {
        let store = new_store(&memory());
        save(&store, 0, &[&first], &o);
        save(&store, 1, &[&file(&m, Dtype::F32)], &o).new_size
    };
    for next in [
        renamed(&m, |n| format!("module._orig_mod.{n}")),
        reordered(&m),
        more,
        m.iter().skip(20).cloned().collect(),
        reordered(&renamed(&m, |n| format!("model.{n}"))),
    ] {
        let store = new_store(&memory());
        save(&store, 0, &[&first], &o);
        let size = save(&store, 1, &[&file(&next, Dtype::F32)], &o).new_size;
        assert!(size < expected + 6000, "{size}, and with the same names and packs {expected}");
    }
}

#[test]
fn what_stood_twice_may_change_or_go_away() {
    let mut m = model();
    let store = new_store(&memory());
    let o = SaveOptions::default();
    let files = |m: &Model, other: &Model| [file(m, Dtype::F32), file(&reordered(other), Dtype::F32)];
    let mut saved = vec![];
    let [a, b] = files(&m, &m);
    saved.push(vec![a, b]);
    let old = m.clone();
    train(&mut m, 1);
    let [a, b] = files(&m, &old);
    saved.push(vec![a, b]);
    let [_, b] = files(&m, &m);
    saved.push(vec![b]);
    train(&mut m, 2);
    let [a, b] = files(&m, &m);
    saved.push(vec![b, a]);
    let sizes: Vec<u64> = saved
        .iter()
        .zip(0..)
        .map(|(f, n)| save(&store, n, &f.iter().map(|f| &f[..]).collect::<Vec<_>>(), &o).new_size)
        .collect();
    // Of the second snapshot the other file is the first one's; all of the third is known; the last is a delta.
    assert!(sizes[1] < sizes[0] / 2 && sizes[2] < 10_000 && sizes[3] < sizes[0] / 2, "{sizes:?}");
    let mut keep = lmc_store::Keep::default();
    keep.steps = [1, 3].map(step).into();
    store.prune(&store.plan_prune(&keep).unwrap(), &lmc_store::RebaseOptions::default()).unwrap();
    store.rebase(&[step(1), step(3)], &lmc_store::RebaseOptions::default()).unwrap();
    for n in [1, 3] {
        check(&store, n, &saved[n as usize].iter().map(|f| &f[..]).collect::<Vec<_>>());
    }
    assert!(store.verify(&store.snapshots().unwrap(), true, 1).unwrap().problems.is_empty());
}

#[test]
fn what_is_written_does_not_depend_on_threads() {
    let m = model();
    let files = [file(&m, Dtype::F32), file(&reordered(&m), Dtype::Bf16), file(&reordered(&m), Dtype::F32)];
    let mut wrote = vec![];
    for threads in [1, 3] {
        let objects = memory();
        let store = Store::create_on(objects.clone(), crate::support::options(1)).unwrap();
        let mut o = SaveOptions::default();
        o.threads = threads;
        save(&store, 0, &files.each_ref().map(|f| &f[..]), &o);
        wrote.push(data_objects(&objects));
    }
    assert!(wrote[0] == wrote[1]);
}

/// A file whose last byte differs each time that it is read.
struct Changing(Vec<u8>, AtomicU8);

impl ReadAt for Changing {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0[..].read_exact_at(buf, offset)?;
        if offset + buf.len() as u64 == self.0.len() as u64
            && let Some(last) = buf.last_mut()
        {
            *last = self.1.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn size(&self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}

#[test]
fn a_file_that_another_one_refers_to_must_not_change_meanwhile() {
    let m = model();
    let whole = file(&m, Dtype::F32);
    // Equal to the bytes that are read first.
    let mut other = whole.clone();
    *other.last_mut().unwrap() = 0;
    let changing = Changing(whole, AtomicU8::new(0));
    let store = new_store(&memory());
    let inputs = [Input::new("changing", &changing), Input::new("other", &other)];
    let e = store.save(&inputs, None, BTreeMap::new(), &SaveOptions::default()).unwrap_err();
    assert_eq!(e.kind(), lmc_store::ErrorKind::Io);
    assert!(e.to_string().contains("changing: changed while it was read"), "{e}");
    assert!(store.snapshots().unwrap().is_empty());
    // Alone it is saved, with each byte as it was at some time.
    store.save(&inputs[..1], None, BTreeMap::new(), &SaveOptions::default()).unwrap();
}

/// The tensors of a file are numbers without a format, described by segments.
#[test]
fn a_delta_finds_tensors_without_their_container() {
    let m = model();
    let container = file(&reordered(&m), Dtype::F32);
    let mut at = 0;
    let mut raw = vec![];
    let segments: Vec<Segment> = m
        .iter()
        .map(|(name, shape, bytes)| {
            raw.extend(bytes);
            at += bytes.len() as u64;
            let name = format!("state_dict.{name}");
            let flat = [shape[0] * shape[1]].into();
            Segment::new(Some((&*name).into()), Some(Dtype::F32), flat, at - bytes.len() as u64, bytes.len() as u64)
                .unwrap()
        })
        .collect();
    let mut c = lmc::Compressor::new(&lmc::CompressOptions::default()).unwrap();
    let mut out = vec![];
    c.compress(Source::segments(&raw[..], &segments), &[lmc::Base::new(&container[..]).unwrap()], &mut out).unwrap();
    assert!(out.len() * 200 < raw.len(), "{} of {}", out.len(), raw.len());
}
