//! Blocks that are predicted from a base or from other tensors.

use super::super::Reference;
use super::*;
use crate::block::methods::Method;
use crate::block::methods::predicted::Predicted;
use crate::format::checksum::LEAF;
use lmc_kernels::predict::Conversion;

/// Sources by number: this file, then its bases.
pub(super) struct Files(pub(super) Vec<Vec<u8>>);

impl Origin for Files {
    fn read(&self, source: u32, offset: u64, buf: &mut [u8]) -> crate::Result<()> {
        buf.copy_from_slice(&self.0[source as usize][offset as usize..][..buf.len()]);
        Ok(())
    }
}

pub(super) fn reference(source: u32, offset: usize) -> Reference {
    Reference { source, offset: offset as u64, conversion: Conversion::None }
}

/// Encodes at all levels, in memory and not; returns the record of the default level.
fn delta(dtype: Dtype, raw: &[u8], base: &[u8]) -> Vec<u8> {
    let files = Files(vec![vec![], base.to_vec()]);
    let extent = Extent { base: Some(reference(1, 0)), ..Extent::plain(Some(dtype), raw.len()) };
    round_trip_from(raw, &[extent], &files, Level::Fast);
    let record = round_trip_from(raw, &[extent], &files, Level::Default);
    let plain = round_trip(raw, &[Extent::plain(Some(dtype), raw.len())], Level::Default);
    // A thousandth, and the range.
    assert!(record.len() <= plain.len() + plain.len() / 1000 + 48, "{} after {}", record.len(), plain.len());
    record
}

fn predicted(record: &[u8]) -> Vec<Predicted> {
    let head = head_of(record);
    head.columns.into_iter().filter_map(|p| if let Method::Predicted(p) = p.method { Some(*p) } else { None }).collect()
}

/// A step of an optimizer: every weight moves by about as much.
fn step(weights: &[f32], by: f32, seed: u64) -> Vec<f32> {
    let mut r = Random(seed);
    weights.iter().map(|w| w + by * r.normal()).collect()
}

fn bf16s(w: &[f32]) -> Vec<u8> {
    w.iter().flat_map(|&x| bf16(x)).collect()
}

fn f32s(w: &[f32]) -> Vec<u8> {
    w.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn a_step_of_training_costs_its_difference() {
    let old = weights(300_000, 1);
    for (by, bf16_share, f32_share) in [(1e-6, 12, 45), (1e-5, 25, 60), (1e-4, 45, 80)] {
        let new = step(&old, by, 2);
        for (dtype, raw, base, share) in
            [(Dtype::Bf16, bf16s(&new), bf16s(&old), bf16_share), (Dtype::F32, f32s(&new), f32s(&old), f32_share)]
        {
            let record = delta(dtype, &raw, &base);
            assert!(record.len() * 100 < raw.len() * share, "{dtype} {by}: {} of {}", record.len(), raw.len());
            let p = &predicted(&record)[0];
            assert!(p.streams.len() > 2, "contexts by exponent");
        }
    }
}

#[test]
fn what_is_the_same_costs_next_to_nothing() {
    let raw = f32s(&weights(250_000, 3));
    assert!(delta(Dtype::F32, &raw, &raw).len() < 180);
    // Rows that did not change, between rows that did.
    let old = weights(262_144, 4);
    let mut new = old.clone();
    for (row, new) in new.chunks_mut(512).enumerate().filter(|(i, _)| i % 16 == 0) {
        new.copy_from_slice(&step(new, 1e-4, row as u64));
    }
    let (some, all) = (
        delta(Dtype::F32, &f32s(&new), &f32s(&old)).len(),
        delta(Dtype::F32, &f32s(&step(&old, 1e-4, 9)), &f32s(&old)).len(),
    );
    assert!(some < all / 14, "{some} of {all}");
}

#[test]
fn unrelated_bases_are_left_alone() {
    let (a, b) = (weights(200_000, 5), weights(200_000, 6));
    for (dtype, raw, base) in [(Dtype::Bf16, bf16s(&a), bf16s(&b)), (Dtype::F32, f32s(&a), f32s(&b))] {
        assert_eq!(predicted(&delta(dtype, &raw, &base)), []);
    }
    let mut r = Random(8);
    let noise: Vec<u8> = (0..400_000).map(|_| r.next() as u8).collect();
    let more: Vec<u8> = (0..400_000).map(|_| r.next() as u8).collect();
    for &dtype in Dtype::ALL {
        assert!(head_of(&delta(dtype, &noise, &more)).ranges.is_empty());
    }
}

#[test]
fn every_dtype_against_every_base() {
    let n = 40_000;
    let mut r = Random(7);
    let noise: Vec<u8> = (0..n).map(|_| r.next() as u8).collect();
    let bits: Vec<u8> = (0..=u16::MAX).take(n / 2).flat_map(|v| v.wrapping_mul(40503).to_le_bytes()).collect();
    let changes: [fn(usize, u8) -> u8; 6] = [
        |_, b| b,
        |i, b| if i % 100 == 0 { b ^ 1 } else { b },
        // Quiet where a sample may look.
        |i, b| if i / 4096 % 2 == 0 { b } else { b.wrapping_mul(77).rotate_left(3) },
        |i, b| if i % 4 == 0 { b.wrapping_add(((i * i) >> 5) as u8) } else { b },
        |_, b| b ^ 0x80,
        |i, b| if i == 12_345 { !b } else { b },
    ];
    for base in [noise.clone(), bits, vec![0; n], vec![0x80; n]] {
        for change in &changes {
            let raw: Vec<u8> = base.iter().enumerate().map(|(i, &b)| change(i, b)).collect();
            for &dtype in Dtype::ALL {
                for len in [n, 4096, 24, 8] {
                    delta(dtype, &raw[..len], &base[..len]);
                }
            }
            let files = Files(vec![vec![], base.clone()]);
            let extent = Extent { base: Some(reference(1, 0)), ..Extent::plain(None, n - 1) };
            round_trip_from(&raw[..n - 1], &[extent], &files, Level::Default);
        }
    }
}

#[test]
fn single_changes_of_any_size_are_patched() {
    let old = weights(200_000, 9);
    let mut new = step(&old, 1e-7, 1);
    for (i, x) in new.iter_mut().enumerate().filter(|(i, _)| i % 5003 == 17) {
        *x = [f32::NAN, -0.0, f32::INFINITY, 1e30, -1e-40][i % 5];
    }
    let record = delta(Dtype::F32, &f32s(&new), &f32s(&old));
    let p = &predicted(&record)[0];
    assert!(p.streams.iter().filter_map(|s| s.1.as_ref()).any(|g| g.patches.is_some()));
    let calm = delta(Dtype::F32, &f32s(&step(&old, 1e-7, 1)), &f32s(&old));
    assert!(record.len() < calm.len() + 40 * 12, "{} after {}", record.len(), calm.len());
}

#[test]
fn other_widths_predict_each_other() {
    let master = weights(150_000, 10);
    let (wide, narrow) = (f32s(&master), bf16s(&master));
    let files = Files(vec![[wide.clone(), narrow.clone()].concat()]);
    let from = |offset, conversion| Some(Reference { source: 0, offset, conversion });
    let extent = Extent { base: from(0, Conversion::NarrowBf16), ..Extent::plain(Some(Dtype::Bf16), narrow.len()) };
    let record = round_trip_from(&narrow, &[extent], &files, Level::Default);
    assert!(record.len() < 180, "rounded weights are free: {}", record.len());
    let extent =
        Extent { base: from(wide.len() as u64, Conversion::WidenBf16), ..Extent::plain(Some(Dtype::F32), wide.len()) };
    let record = round_trip_from(&wide, &[extent], &files, Level::Default);
    assert!(record.len() < wide.len() / 2 + 800, "half of the bits are known: {}", record.len());
    let half: Vec<u8> = {
        let mut h = Vec::new();
        lmc_kernels::predict::convert(Conversion::NarrowF16, &wide, &mut h);
        h
    };
    let extent = Extent { base: from(0, Conversion::NarrowF16), ..Extent::plain(Some(Dtype::F16), half.len()) };
    assert!(round_trip_from(&half, &[extent], &files, Level::Default).len() < 180);
}

#[test]
fn packs_share_contexts_and_keep_what_is_new() {
    let mut r = Random(13);
    let (mut raw, mut base, mut extents) = (vec![], vec![0; 3], vec![]);
    for i in 0..200 {
        let old = weights(1 + r.next() as usize % 3000, i);
        let new = step(&old, 1e-5, i);
        let (bytes, from, dtype) =
            if i % 3 == 0 { (bf16s(&new), bf16s(&old), Dtype::Bf16) } else { (f32s(&new), f32s(&old), Dtype::F32) };
        let mut extent = Extent::plain(Some(dtype), bytes.len());
        if i % 7 != 0 {
            extent.base = Some(reference(1, base.len()));
            base.extend(from);
            base.extend([9; 5]);
        }
        raw.extend(bytes);
        extents.push(extent);
    }
    let files = Files(vec![vec![], base]);
    for level in [Level::Fast, Level::Default] {
        let record = round_trip_from(&raw, &extents, &files, level);
        let plain = round_trip(&raw, &extents.iter().map(|p| Extent::plain(p.dtype, p.len)).collect::<Vec<_>>(), level);
        assert!(record.len() * 10 < plain.len() * 8, "{} after {}", record.len(), plain.len());
        assert_eq!(head_of(&record).columns.len(), 4);
        assert_eq!(predicted(&record).len(), 2);
    }
}

/// A block with few changed elements, by exponent: they are coded as a sparse list in each context.
#[test]
fn a_step_of_fine_tuning_is_sparse_by_context() {
    for (n, by) in [(300_000, 2e-7), (70_001, 4e-7)] {
        let old = weights(n, 21);
        let new = step(&old, by, 22);
        for (dtype, raw, base) in [
            (Dtype::Bf16, bf16s(&new), bf16s(&old)),
            // Of floats of four bytes those that changed by much.
            (Dtype::F32, f32s(&rare(&new, &old)), f32s(&old)),
        ] {
            let record = delta(dtype, &raw, &base);
            let p = &predicted(&record)[0];
            assert!(p.is_sparse_by_context() && p.streams.len() > 2, "{dtype}, {} contexts", p.streams.len());
            // Contexts with other numbers of elements than the head gives.
            let (head, body) = (head_of(&record), body_of(&record));
            for isa in Isa::available() {
                let mut out = vec![0; raw.len()];
                for wrong in [vec![0; base.len()], vec![0x7f; base.len()], [&base[400..], &[0x3f; 400]].concat()] {
                    let files = Files(vec![vec![], wrong]);
                    let e = BlockDecoder::new(isa).decode(&head, body, &files, &mut out).unwrap_err();
                    assert!(e.to_string().contains("the contexts of a column's prediction"), "{e}");
                }
            }
        }
    }
}

/// Of blocks of several leaves with few changes, which are restored leaf by leaf, the predictions come from one range or from several, at
/// any offset, from memory or not; damage and failures end the work.
#[test]
fn sparse_deltas_are_restored_by_leaf() {
    let old = weights(400_000, 31);
    let few =
        |by: usize| old.iter().enumerate().map(|(i, w)| if i % by == 0 { w * 1.01 } else { *w }).collect::<Vec<_>>();
    let (fine_tuned, few, none) = (bf16s(&step(&old, 2e-7, 32)), bf16s(&few(501)), bf16s(&few(usize::MAX)));
    for (kind, raw) in [("by context", &fine_tuned), ("listed", &few), ("unchanged but for the first", &none)] {
        for shift in [0, 2, LEAF - 2, LEAF + 1000] {
            // A gap between two ranges, in the middle of the second leaf, or none.
            for gap in [0, 6] {
                let split = LEAF + 1234;
                let mut base = vec![7; shift];
                let old = bf16s(&old);
                base.extend(&old[..split]);
                base.extend(vec![9; gap]);
                base.extend(&old[split..]);
                let part = |from: usize, len| Extent {
                    base: Some(reference(1, shift + from)),
                    ..Extent::plain(Some(Dtype::Bf16), len)
                };
                let extents = match gap {
                    0 => vec![part(0, raw.len())],
                    _ => vec![part(0, split), part(split + gap, raw.len() - split)],
                };
                let files = Files(vec![vec![], base]);
                let record = round_trip_from(raw, &extents, &files, Level::Default);
                let (head, body) = (head_of(&record), body_of(&record));
                let name = format!("{kind}, shifted by {shift}, gap of {gap}");
                let p = &predicted(&record)[0];
                assert!(p.is_sparse_by_context() || p.sparse().is_some(), "{name}: {} contexts", p.streams.len());
                assert_eq!(head.columns.len(), 1, "{name}");
                let mut decoder = BlockDecoder::new(Isa::PORTABLE);
                let mut out = vec![0; raw.len()];
                let leaves = decoder.decode(&head, body, &files, &mut out).unwrap();
                assert_eq!(leaves, crate::format::checksum::leaves(raw), "{name}");
                assert_eq!(decoder.decode(&head, body, &InMemory(&files), &mut out).unwrap(), leaves, "{name}");
                assert!(out == *raw, "{name}");
                assert!(written(&mut decoder, &head, body, &InMemory(&files)).unwrap() == *raw, "{name}");
                let leaves_at_once = decoder.decode(&head, body, &AtOnce(&files), &mut out).unwrap();
                assert!(leaves_at_once == leaves && out == *raw, "{name}");
                assert!(written(&mut decoder, &head, body, &AtOnce(&files)).unwrap() == *raw, "{name}");
                // Another base, and none.
                let mut wrong = files.0[1].clone();
                wrong[shift + LEAF + 1] ^= 1;
                let e = written(&mut decoder, &head, body, &Files(vec![vec![], wrong])).unwrap_err();
                assert_eq!(e.kind(), crate::ErrorKind::Damaged, "{name}: {e}");
                let e = written(&mut decoder, &head, body, &Nothing).unwrap_err();
                assert_eq!(e.kind(), crate::ErrorKind::Usage, "{name}: {e}");
                for whole in 0..raw.len().div_ceil(LEAF) {
                    let mut n = 0;
                    let mut write = |_: &[u8], at: usize| {
                        assert_eq!(at, n * LEAF, "{name}: nothing is written after a failure");
                        n += 1;
                        if n > whole { Err(crate::Error::usage("no room")) } else { Ok(()) }
                    };
                    let out = BlockOutput::Written { buf: &mut vec![], write: &mut write };
                    let e = decoder.decode_to(&head, body, &files, out).unwrap_err();
                    assert_eq!((e.to_string().as_str(), n), ("no room", whole + 1), "{name}");
                }
            }
        }
    }
}

/// Sources whose ranges are read at once.
struct AtOnce<'a>(&'a Files);

impl Origin for AtOnce<'_> {
    fn read(&self, source: u32, offset: u64, buf: &mut [u8]) -> crate::Result<()> {
        assert!(buf.len() > LEAF, "a whole range");
        self.0.read(source, offset, buf)
    }

    fn reads_pieces(&self, _: u32) -> bool {
        false
    }
}

/// Sources that are in memory.
struct InMemory<'a>(&'a Files);

impl Origin for InMemory<'_> {
    fn read(&self, source: u32, offset: u64, buf: &mut [u8]) -> crate::Result<()> {
        panic!("{} bytes at {offset} of {source} are in memory", buf.len())
    }

    fn slice(&self, source: u32, offset: u64, len: usize) -> Option<&[u8]> {
        Some(&self.0.0[source as usize][offset as usize..][..len])
    }
}

/// The old ones, but for one of 200, and more often small ones.
fn rare(new: &[f32], old: &[f32]) -> Vec<f32> {
    let mut r = Random(23);
    let changes = |w: f32, r: &mut Random| r.next().is_multiple_of(if w.abs() < 0.01 { 50 } else { 1000 });
    new.iter().zip(old).map(|(&new, &old)| if changes(old, &mut r) { new } else { old }).collect()
}

fn body_of(record: &[u8]) -> &[u8] {
    let mut head = vec![];
    head_of(record).put(&mut head);
    &record[HEADER_LEN + head.len()..]
}

#[test]
fn a_wrong_base_is_noticed() {
    let old = weights(100_000, 14);
    let (raw, base) = (bf16s(&step(&old, 1e-5, 1)), bf16s(&old));
    let record = delta(Dtype::Bf16, &raw, &base);
    let head = head_of(&record);
    let body = body_of(&record);
    for isa in Isa::available() {
        let mut decoder = BlockDecoder::new(isa);
        let mut out = vec![0; raw.len()];
        for change in [0, 77_777, base.len() - 1] {
            for bit in [0, 6, 7] {
                let mut wrong = base.clone();
                wrong[change] ^= 1 << bit;
                let e = decoder.decode(&head, body, &Files(vec![vec![], wrong]), &mut out).unwrap_err();
                assert_eq!(e.kind(), crate::ErrorKind::Damaged);
            }
        }
        decoder.decode(&head, body, &Files(vec![vec![], base.clone()]), &mut out).unwrap();
        assert!(out == raw);
        assert_eq!(decoder.decode(&head, body, &Nothing, &mut out).unwrap_err().kind(), crate::ErrorKind::Usage);
    }
}
