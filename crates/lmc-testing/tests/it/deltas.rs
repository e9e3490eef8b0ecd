//! Deltas: files predicted from others, by every way to make and to restore them.

use crate::support::snapshots::{Tensor, bf16, f32s, file_of, model, trained};
use crate::support::{Memory, Trickle, decompress_options, delta_of, noise, restore, safetensors, set_header, weights};
use lmc::{
    Base, CompressOptions, Compressor, DecompressOptions, Decompressor, ErrorKind, Reader, Sink, Source, Summary,
};
use lmc_inspect::describe_block;

/// Compresses `raw` against `bases` in every way, with the same bytes, and restores it in every way; the file.
fn check(raw: &[u8], bases: &[&[u8]], o: &CompressOptions) -> Vec<u8> {
    let compressed: Vec<Vec<u8>> =
        bases.iter().map(|b| lmc::compress(b, &CompressOptions::default()).unwrap()).collect();
    let plain = || bases.iter().map(|b| Base::new(*b).unwrap().with_name("old").optional()).collect::<Vec<_>>();
    let lmc = || {
        let open = |c| Base::lmc(Reader::open(c, &decompress_options(1)).unwrap()).with_name("old").optional();
        compressed.iter().map(open).collect::<Vec<_>>()
    };
    let mut o = *o;
    // Streams cannot look back: they are compared with independent files.
    let mut first: [Option<(Vec<u8>, Summary)>; 2] = [None, None];
    for (threads, independent) in [(1, true), (2, true), (5, true), (1, false), (2, false), (5, false)] {
        o = o.with_threads(threads).with_independent(independent);
        let mut c = Compressor::new(&o).unwrap();
        for bases in [plain(), lmc()] {
            let mut out = vec![];
            let s = c.compress(raw, &bases, &mut out).unwrap();
            let (file, summary) = first[usize::from(independent)].get_or_insert((out.clone(), s));
            assert_eq!((s, s.compressed_size), (*summary, out.len() as u64));
            assert!(out == *file, "slice, {threads} threads");
            out.clear();
            c.compress(raw, &bases, Sink::writer(&mut out)).unwrap();
            set_header(&mut out, summary);
            assert!(out == *file, "file, {threads} threads");
            out.clear();
            c.compress(&mut Trickle(raw, 65537), &bases, Sink::writer(&mut out)).unwrap();
            let (file, summary) = first[1].as_ref().expect("it came first");
            set_header(&mut out, summary);
            assert!(out == *file, "stream, {threads} threads");
        }
    }
    let [Some((file, summary)), _] = first else { panic!("it is compressed") };
    assert_eq!(
        summary.content_hash,
        Base::new(raw).unwrap().content_hash(2).unwrap(),
        "the same hash as without bases"
    );
    for threads in [1, 2, 5] {
        let o = decompress_options(threads);
        let mut d = Decompressor::new(&o).unwrap();
        for bases in [plain(), lmc()] {
            let mut back = vec![0xee; raw.len()];
            assert_eq!(d.decompress(&file, &bases, &mut back[..]).unwrap(), summary);
            assert!(back == raw, "to a slice, {threads} threads");
            back.clear();
            let s = d.decompress(&mut Trickle(&file[..], 65537), &bases, Sink::writer(&mut back)).unwrap();
            assert!(back == raw && s == summary, "to a stream, {threads} threads");
            let to = Memory::default();
            d.decompress(&file, &bases, &to).unwrap();
            assert!(to.0.into_inner().unwrap() == raw, "to a file, {threads} threads");
            let reader = Reader::open(&file, &o).unwrap().with_bases(bases).unwrap();
            back.resize(raw.len(), 0xdd);
            reader.read_range(0, &mut back).unwrap();
            assert!(back == raw, "by a reader, {threads} threads");
            let (from, to) = (raw.len() / 3, raw.len() - raw.len() / 5);
            let mut column = vec![0; to - from];
            lmc::ReadAt::read_exact_at(&reader, &mut column, from as u64).unwrap();
            assert!(column == raw[from..to]);
        }
    }
    file
}

fn named_bases(file: &[u8]) -> usize {
    Reader::open(file, &decompress_options(1)).unwrap().bases().len()
}

#[test]
fn every_way_gives_the_same_bytes() {
    let (a, b, c) = (weights(700_000, 1), weights(3000, 2), noise(3000, 3));
    let (a2, b2) = (trained(&a, 4, 0.001), trained(&b, 5, 0.001));
    let file = |a: &[f32], b: &[f32]| {
        let (a, b, half) = (f32s(a), f32s(b), bf16(a));
        let tensors: &[Tensor<'_>] = &[
            ("a", "F32", vec![700, 1000], &a),
            ("b", "F32", vec![3000], &b),
            ("half", "BF16", vec![700_000], &half),
            ("c", "U8", vec![30, 100], &c),
        ];
        safetensors(tensors)
    };
    let (old, new) = (file(&a, &b), file(&a2, &b2));
    let o = CompressOptions::default();
    let delta = check(&new, &[&old], &o);
    let plain = lmc::compress(&new, &o).unwrap();
    assert!(delta.len() * 10 < plain.len() * 8, "{} is not much less than {}", delta.len(), plain.len());
    assert_eq!(named_bases(&delta), 1);
    // A copy of the base costs almost nothing.
    assert!(check(&old, &[&old], &o).len() * 200 < old.len());
    // Without a base, and with an unrelated one, the file is the same.
    assert!(check(&new, &[], &o) == plain);
    assert!(check(&new, &[&noise(50_000, 9)], &o) == plain);
    check(&[], &[&old], &o);
    check(&new, &[&[]], &o);
}

/// Size of `new` as a delta of `bases`, over its size without.
#[track_caller]
fn share(new: &[u8], bases: &[&[u8]]) -> f64 {
    let o = CompressOptions::default();
    let delta = check(new, bases, &o);
    delta.len() as f64 / lmc::compress(new, &o).unwrap().len() as f64
}

#[test]
fn tensors_are_found_by_name_and_by_content() {
    let (old, mut new) = (model(0, 0.0), model(7, 0.0005));
    let same_names = share(&file_of(&new), &[&file_of(&old)]);
    assert!(same_names < 0.75, "{same_names}");
    // Renamed: three shapes, two tensors of each, in another order.
    new.reverse();
    for (i, t) in new.iter_mut().enumerate() {
        t.0 = format!("model.h.{i}.w");
    }
    let renamed = share(&file_of(&new), &[&file_of(&old)]);
    assert!((renamed - same_names).abs() < 0.01, "{renamed}, and with names {same_names}");
    // A new one, and some that are not there any more.
    new.remove(1);
    new.remove(2);
    let before = share(&file_of(&new), &[&file_of(&old)]);
    new.push(("head".to_owned(), weights(30_000, 999)));
    let with_new = share(&file_of(&new), &[&file_of(&old)]);
    assert!(before < 0.75 && with_new > before && with_new < 0.95, "{before} {with_new}");
    // No tensor in common: no worse than without a base.
    let stranger = [("x".to_owned(), weights(20_000, 55)), ("layer.0.weight".to_owned(), weights(20_000, 56))];
    let worse = share(&file_of(&stranger), &[&file_of(&old)]);
    assert!(worse < 1.002, "{worse}");
}

#[test]
fn names_are_matched_without_wrappers() {
    let w = weights(40_000, 1);
    let next = trained(&w, 2, 0.0005);
    // Too small for a search by content, or of another dtype: only the name identifies it.
    let file = |prefix: &str, w: &[f32], narrow: bool| {
        let (wide, half) = (f32s(w), bf16(w));
        let small: Vec<(String, &[u8])> =
            wide[..80_000].chunks(800).enumerate().map(|(i, b)| (format!("{prefix}layers.{i}.bias"), b)).collect();
        let name = format!("{prefix}head.weight");
        let mut tensors: Vec<Tensor<'_>> = small.iter().map(|(n, b)| (&n[..], "F32", vec![200], *b)).collect();
        tensors.push(match narrow {
            true => (&name, "BF16", vec![200, 200], &half),
            false => (&name, "F32", vec![200, 200], &wide),
        });
        safetensors(&tensors)
    };
    for narrow in [false, true] {
        let new = file("", &next, narrow);
        let exact = delta_of(&new, &[Base::new(&file("", &w, false)[..]).unwrap()], &CompressOptions::default());
        for prefix in ["model.", "module._orig_mod.", "base_model.model.model."] {
            let old = file(prefix, &w, false);
            let delta = check(&new, &[&old], &CompressOptions::default());
            // The lists of tensors in the headers differ.
            let more = delta.len() as i64 - exact.as_ref().unwrap().len() as i64;
            assert!((-100..1000).contains(&more), "{prefix}: {more} bytes more");
        }
        // The candidates are ambiguous.
        let two = [&f32s(&w)[..800], &f32s(&weights(200, 9))[..]];
        let old = safetensors(&[("model.x", "F32", vec![200], two[0]), ("module.x", "F32", vec![200], two[1])]);
        let new = safetensors(&[("x", "F32", vec![200], two[0])]);
        assert_eq!(named_bases(&check(&new, &[&old], &CompressOptions::default())), 0);
        let new = safetensors(&[("model.x", "F32", vec![200], two[0])]);
        assert_eq!(named_bases(&check(&new, &[&old], &CompressOptions::default())), 1);
    }
}

#[test]
fn empty_tensors_with_wrappers() {
    let (w, buffer) = (f32s(&weights(20_000, 1)), f32s(&weights(5, 2)));
    let old = safetensors(&[("w", "F32", vec![20_000], &w), ("buffer", "F32", vec![5], &buffer)]);
    for shape in [vec![0], vec![0, 3]] {
        let new = safetensors(&[("module.w", "F32", vec![20_000], &w), ("module.buffer", "F32", shape, &[])]);
        check(&new, &[&old], &CompressOptions::default());
        check(&old, &[&new], &CompressOptions::default());
    }
}

#[test]
fn exact_names_come_before_those_without_wrappers() {
    let (a, b) = (f32s(&weights(200, 1)), f32s(&weights(200, 2)));
    let old = safetensors(&[("x", "F32", vec![200], &a), ("model.x", "F32", vec![200], &b)]);
    let new = safetensors(&[("module.x", "F32", vec![200], &a), ("model.x", "F32", vec![200], &b)]);
    let bases = [Base::new(&old[..]).unwrap()];
    let diff = lmc_inspect::diff(
        &mut Compressor::new(&CompressOptions::default()).unwrap(),
        &Base::new(&new[..]).unwrap(),
        &bases,
        &mut |_| (),
    )
    .unwrap();
    let tensors = diff.segments.iter().filter(|s| s.segment.name.is_some());
    let (found, relations): (Vec<_>, Vec<_>) = tensors.map(|s| (s.counterpart, s.relation)).unzip();
    let place = |name| bases[0].segments().iter().position(|s| s.name.as_deref() == Some(name)).map(|i| (0, i));
    assert_eq!(found, [place("x"), place("model.x")]);
    assert_eq!(relations, [lmc_inspect::Relation::Renamed, lmc_inspect::Relation::Same]);
}

#[test]
fn content_is_found_in_any_shape() {
    let (a, b) = (weights(60_000, 1), weights(60_000, 2));
    let shaped = |shape: &[u64], names: [&str; 2], w: [&[f32]; 2]| {
        let bytes = w.map(f32s);
        let tensors: Vec<Tensor<'_>> =
            names.iter().zip(&bytes).map(|(n, b)| (*n, "F32", shape.to_vec(), &b[..])).collect();
        safetensors(&tensors)
    };
    let new = shaped(&[200, 300], ["x", "y"], [&trained(&b, 5, 0.0005), &trained(&a, 6, 0.0005)]);
    let same_shape = share(&new, &[&shaped(&[200, 300], ["0", "1"], [&a, &b])]);
    for shape in [&[60_000][..], &[300, 200], &[2, 100, 300]] {
        let flat = share(&new, &[&shaped(shape, ["0", "1"], [&a, &b])]);
        assert!(same_shape < 0.75 && (flat - same_shape).abs() < 0.002, "{shape:?}: {flat}, and {same_shape}");
    }
    // A later state in the same shape is preferred to equal elements in another one.
    let (w, v) = (f32s(&a), f32s(&trained(&a, 7, 0.0005)));
    let old = safetensors(&[("0", "F32", vec![60_000], &w), ("1", "F32", vec![200, 300], &v)]);
    let new = safetensors(&[("x", "F32", vec![200, 300], &w)]);
    assert!(share(&new, &[&old]) > 0.3);
}

#[test]
fn tensors_of_other_types_and_sizes_are_related() {
    let w = weights(64 * 1000, 1);
    let new = trained(&w, 2, 0.0005);
    let embed = |name: &str, dtype: &str, rows: u64, bytes: &[u8]| {
        safetensors(&[(name, dtype, vec![rows, 64], bytes), ("other", "U8", vec![100], &noise(100, 3))])
    };
    let f16 = |w: &[f32]| w.iter().flat_map(|&x| half_of(x).to_le_bytes()).collect::<Vec<_>>();
    let (wide, narrow) = (embed("e", "F32", 1000, &f32s(&w)), embed("e", "BF16", 1000, &bf16(&w)));
    // The same values in fewer bits are known; in more bits, half of them are.
    assert!(share(&narrow, &[&wide]) < 0.05);
    assert!(share(&embed("e", "F16", 1000, &f16(&w)), &[&wide]) < 0.05);
    assert!(share(&wide, &[&narrow]) < 0.85);
    assert!(share(&embed("e", "BF16", 1000, &bf16(&new)), &[&wide]) < 0.75);
    // Rows that were added are coded as ever, and rows that are gone are not missed.
    let more = [&bf16(&new)[..], &bf16(&weights(64 * 100, 9))].concat();
    let resized = share(&embed("e", "BF16", 1100, &more), &[&narrow]);
    assert!(resized < 0.8, "{resized}");
    let fewer = share(&embed("e", "BF16", 700, &bf16(&new)[..700 * 128]), &[&narrow]);
    assert!(fewer < 0.75, "{fewer}");
    // Another shape of as many elements.
    let flat = safetensors(&[("e", "BF16", vec![64_000], &bf16(&new)[..])]);
    assert!(share(&flat, &[&narrow]) < 0.75);
    // The name matches, but rows have another length: coded as if it were new.
    let other = safetensors(&[("e", "BF16", vec![640, 100], &bf16(&weights(64_000, 77))[..])]);
    assert!(share(&other, &[&narrow]) < 1.002);
}

/// The IEEE half that is nearest, for values that have a normal one.
fn half_of(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits + 0xfff + (bits >> 13 & 1);
    let exponent = (rounded >> 23 & 0xff) as i32 - 112;
    let sign = (bits >> 16) as u16 & 0x8000;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (rounded >> 13) as u16 & 0x3ff }
}

#[test]
fn shards_are_put_together_otherwise() {
    let (old, new) = (model(0, 0.0), model(7, 0.0005));
    let (a, b, c) = (file_of(&old[..2]), file_of(&old[2..3]), file_of(&old[3..]));
    for new in [&new[..4], &new[4..], &new[1..5]] {
        let column = share(&file_of(new), &[&a, &b, &c]);
        assert!(column < 0.75, "{column}");
    }
    // Only needed bases are named.
    let o = CompressOptions::default();
    let bases = [&a[..], &b, &c].map(|b| Base::new(b).unwrap());
    let names = |new: &[u8]| named_bases(&delta_of(new, &bases, &o).unwrap());
    assert_eq!((names(&file_of(&new[2..3])), names(&file_of(&new)), names(&file_of(&new[..3]))), (1, 3, 2));
}

#[test]
fn what_is_rounded_in_the_same_block_is_predicted_from_the_base() {
    let w = weights(9000, 1);
    let file = |w: &[f32]| {
        let (wide, narrow) = (f32s(w), bf16(w));
        let tensors: &[Tensor<'_>] = &[("master", "F32", vec![9000], &wide), ("rounded", "BF16", vec![9000], &narrow)];
        safetensors(tensors)
    };
    let same = check(&file(&w), &[&file(&w)], &CompressOptions::default());
    assert!(same.len() < 1000, "{} bytes", same.len());
}

#[test]
fn data_of_no_format_is_matched_by_position() {
    let (old, new) = (weights(300_000, 1), trained(&weights(300_000, 1), 2, 0.0005));
    let typed = CompressOptions::default().with_dtype(lmc::Dtype::F32);
    for o in [CompressOptions::default(), typed] {
        let (old, new) = (f32s(&old), f32s(&new));
        let plain = lmc::compress(&new, &o).unwrap().len();
        assert!(check(&new, &[&old], &o).len() * 10 < plain * 9);
        // Bases that end early, within an element or before.
        check(&new, &[&old[..old.len() - 3]], &o);
        check(&new[..new.len() - 1], &[&old[..1_100_001]], &o);
        check(&new, &[&old[..70]], &o);
    }
}

#[test]
fn a_chain_of_deltas_is_restored() {
    let o = CompressOptions::default();
    let d = decompress_options(2);
    let steps: Vec<Vec<u8>> = (0..21).map(|i| file_of(&model(i * 10, i as f32 * 0.0001))).collect();
    let mut files = vec![lmc::compress(&steps[0], &o).unwrap()];
    for step in &steps[1..] {
        let delta = delta_of(step, &[chain(&files)], &o).unwrap();
        files.push(delta);
    }
    let last = chain(&files);
    let mut raw = vec![0; steps[20].len()];
    let (bytes, before) = files.split_last().unwrap();
    Decompressor::new(&d).unwrap().decompress(bytes, &[chain(before)], &mut raw[..]).unwrap();
    assert!(raw == steps[20]);
    assert_eq!(last.content_hash(1).unwrap(), Base::new(&raw[..]).unwrap().content_hash(1).unwrap());
    // Damage far down is found and reported.
    let mut bad = files.clone();
    let at = bad[3].len() / 2;
    bad[3][at] ^= 1;
    let e = Decompressor::new(&d).unwrap().decompress(bytes, &[chain(&bad[..20])], &mut raw[..]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Base);
    assert!(e.to_string().contains("cannot read the base \"step 19\""), "{e}");
}

/// The last of a chain of files, each the base of the next.
fn chain(files: &[Vec<u8>]) -> Base<'_> {
    let (first, more) = files.split_first().unwrap();
    let open = |f| Reader::open(f, &decompress_options(1)).unwrap();
    let mut base = Base::lmc(open(first)).with_name("step 0");
    for (i, f) in more.iter().enumerate() {
        base = Base::lmc(open(f).with_bases(vec![base]).unwrap()).with_name(format!("step {}", i + 1));
    }
    base
}

/// Errors of restoring in every way.
fn errors(file: &[u8], bases: &[Base<'_>]) -> Vec<lmc::Error> {
    let mut all = vec![];
    for threads in [1, 3] {
        let o = decompress_options(threads);
        let mut d = Decompressor::new(&o).unwrap();
        all.push(restore(file, bases, &o).map(|_| ()).unwrap_err());
        let mut out = vec![];
        all.push(d.decompress(Source::reader(&mut &*file), bases, Sink::writer(&mut out)).map(|_| ()).unwrap_err());
        let to = Memory::default();
        all.push(d.decompress(file, bases, &to).map(|_| ()).unwrap_err());
        if all.iter().all(|e| e.kind() == ErrorKind::Base) {
            assert!(out.is_empty() && to.0.into_inner().unwrap().is_empty(), "nothing is written");
        }
        let read = Reader::open(file, &o).and_then(|r| r.with_bases(bases.to_vec())).and_then(|r| {
            let mut raw = vec![0; r.raw_size() as usize];
            r.read_range(0, &mut raw)
        });
        all.push(read.unwrap_err());
    }
    all
}

#[track_caller]
fn refused(file: &[u8], bases: &[Base<'_>], kind: ErrorKind, why: &str) {
    for e in errors(file, bases) {
        assert!(e.kind() == kind && e.to_string().contains(why), "{e:?}, but not {why:?}");
    }
}

#[test]
fn wrong_bases_are_refused() {
    let o = CompressOptions::default();
    let (old, new) = (file_of(&model(0, 0.0)), file_of(&model(7, 0.0005)));
    let base = |raw| Base::new(raw).unwrap().with_name("given");
    let named = |raw| Base::new(raw).unwrap().with_name("old.safetensors");
    let delta = delta_of(&new, &[named(&old[..])], &o).unwrap();
    let hash = named(&old).content_hash(1).unwrap().iter().map(|b| format!("{b:02x}")).collect::<String>();
    refused(
        &delta,
        &[],
        ErrorKind::Base,
        &format!(
            "give the base that it was made from, \"old.safetensors\" of {} bytes with content hash {hash}",
            old.len()
        ),
    );
    refused(&delta, &[base(&new[..old.len() - 1])], ErrorKind::Base, "the base \"given\" is another file");
    let mut altered = old.clone();
    *altered.last_mut().unwrap() ^= 1;
    refused(&delta, &[base(&altered)], ErrorKind::Base, "was altered");
    refused(&delta, &[base(&altered)], ErrorKind::Base, &hash);
    refused(&delta, &[base(&old), base(&altered)], ErrorKind::Base, "was not made from the base \"given\"");
    refused(&delta, &[base(&old), base(b"x")], ErrorKind::Base, "was not made from the base \"given\"");
    refused(&delta, &[base(b"x"), base(b"y")], ErrorKind::Base, "none of the 2 bases");
    refused(&lmc::compress(&new, &o).unwrap(), &[base(&old)], ErrorKind::Base, "is no delta");
    // One that lies about its hash is found out by the blocks.
    let lie = named(&old).content_hash(1).unwrap();
    let flipped: Vec<u8> = old.iter().map(|b| b ^ 1).collect();
    refused(&delta, &[base(&flipped).with_hash(lie)], ErrorKind::Damaged, "predicted from was altered");
    // Another file that may be of use is no error.
    let bases = [base(b"x").optional(), base(&old), base(&flipped).optional()];
    assert!(restore(&delta, &bases, &DecompressOptions::default()).unwrap() == new);
}

#[test]
fn a_delta_can_be_looked_into_without_its_base() {
    let (old, new) = (file_of(&model(0, 0.0)), file_of(&model(7, 0.0005)));
    let bases = [Base::new(&old[..]).unwrap().with_name("a/name")];
    let delta = delta_of(&new, &bases, &CompressOptions::default()).unwrap();
    let reader = Reader::open(&delta[..], &decompress_options(1)).unwrap();
    let [base] = reader.bases() else { panic!("one base") };
    // Without the directory.
    assert_eq!((&base.name[..], base.raw_size), ("name", old.len() as u64));
    assert_eq!(base.content_hash, bases[0].content_hash(1).unwrap());
    assert_eq!(reader.segments(), Base::new(&new[..]).unwrap().segments());
    let columns: Vec<_> =
        (0..reader.blocks().len() as u64).flat_map(|i| describe_block(&reader, i).unwrap().columns).collect();
    let predicted = columns.iter().filter_map(|p| p.prediction.as_ref()).filter(|p| p.predictor == "ulp");
    assert!(predicted.inspect(|p| assert_eq!(p.sources, [1])).count() > 0);
    let e = reader.read_tensor("layer.0.weight").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Base);
}

#[test]
fn damage_to_the_names_of_bases_is_found() {
    use lmc_testing::reference::write::check64;
    let o = CompressOptions::default();
    let (old, new) = (file_of(&model(0, 0.0)), file_of(&model(7, 0.0005)));
    let bases = [Base::new(&old[..]).unwrap().with_name("old")];
    let good = delta_of(&new, &bases, &o).unwrap();
    assert_eq!(good[12..20], *b"\x01\0\0\0BASE");
    let head_len = u32::from_le_bytes(good[20..24].try_into().unwrap()) as usize;
    let head = 40..40 + head_len;
    // Features that no block needs are ignored.
    for i in (8..12).chain(16..head.end) {
        for bit in [1, 0x80] {
            let mut bad = good.clone();
            bad[i] ^= bit;
            errors(&bad, &bases);
        }
    }
    let resealed = |change: &dyn Fn(&mut [u8])| {
        let mut bad = good.clone();
        change(&mut bad[head.clone()]);
        let check = check64(&[&bad[16..32], &bad[head.clone()]].concat());
        bad[32..40].copy_from_slice(&check.to_le_bytes());
        bad
    };
    assert!(resealed(&|_| ()) == good);
    let hash = bases[0].content_hash(1).unwrap();
    refused(&resealed(&|h| h[0] = 0), &bases, ErrorKind::Damaged, "");
    refused(&resealed(&|h| h[0] = 2), &bases, ErrorKind::Damaged, "");
    refused(&resealed(&|h| h[1] ^= 1), &bases, ErrorKind::Base, "altered");
    refused(&resealed(&|h| h[head_len - 4] = 4), &bases, ErrorKind::Damaged, "");
    refused(&resealed(&|h| h[head_len - 4] = 2), &bases, ErrorKind::Damaged, "");
    refused(&resealed(&|h| h[head_len - 1] = 0xff), &bases, ErrorKind::Damaged, "UTF-8");
    // The base is recorded as shorter than the ranges of blocks.
    let short = resealed(&|h| h[19] -= 1);
    let len = old.len() - (1 << 14);
    refused(&short, &bases, ErrorKind::Base, "another file");
    let lie = [Base::new(&old[..len]).unwrap().with_hash(hash)];
    refused(&short, &lie, ErrorKind::Damaged, "but its base ends at byte");
    // A bases record that the header does not announce, or that comes twice.
    let mut bad = good.clone();
    bad[12] = 0;
    refused(&bad, &[], ErrorKind::Damaged, "");
    let twice = [&good[..head.end], &good[16..]].concat();
    refused(&twice, &bases, ErrorKind::Damaged, "");
}

#[test]
fn what_hardly_changed_is_cut_into_large_blocks() {
    const MIB: usize = 1 << 20;
    let lens = [17 * MIB / 4 + 2, 9 * MIB, 17 * MIB / 4];
    let shapes = lens.map(|len| [(len / 2) as u64]);
    let old: Vec<Vec<u8>> = lens.iter().zip(1..).map(|(&len, seed)| bf16(&weights(len / 2, seed))).collect();
    let sparse: Vec<Vec<u8>> = old.iter().map(|t| moved(t, 40)).collect();
    let calm: Vec<Vec<u8>> = old.iter().map(|t| moved(t, 2)).collect();
    let wild: Vec<Vec<u8>> = lens.iter().zip(1..).map(|(&len, seed)| noise(len, seed)).collect();
    let file = |tensors: &[Vec<u8>]| {
        let list = ["a", "b", "c"].iter().zip(&shapes).zip(tensors);
        safetensors(
            &list.map(|((name, shape), t)| (*name, "BF16", shape.to_vec(), &t[..])).collect::<Vec<Tensor<'_>>>(),
        )
    };
    let (old, sparse, calm, wild) = (file(&old), file(&sparse), file(&calm), file(&wild));
    let cuts = |delta: &[u8]| {
        let reader = Reader::open(delta, &decompress_options(1)).unwrap();
        reader.blocks().map(|b| b.raw_len as usize).collect::<Vec<_>>()
    };
    let o = CompressOptions::default();
    let calm = cuts(&check(&calm, &[&old], &o));
    assert!(calm[..calm.len() - 1].iter().all(|&len| len == MIB), "{calm:?}");
    let delta = check(&sparse, &[&old], &o);
    assert_eq!(cuts(&delta), [8 * MIB, 8 * MIB, old.len() - 16 * MIB]);
    let hash = Base::new(&sparse[..]).unwrap().content_hash(1).unwrap();
    assert_eq!(Reader::open(&delta[..], &decompress_options(1)).unwrap().content_hash(), hash);
    let delta = delta_of(&wild, &[Base::new(&old[..]).unwrap()], &o).unwrap();
    assert_eq!(cuts(&delta), cuts(&lmc::compress(&wild, &o).unwrap()));
}

/// The elements with every `n`-th one increased by 1 ULP.
fn moved(weights: &[u8], n: usize) -> Vec<u8> {
    let mut weights = weights.to_vec();
    weights.chunks_exact_mut(2).step_by(n).for_each(|e| e[0] ^= 1);
    weights
}
