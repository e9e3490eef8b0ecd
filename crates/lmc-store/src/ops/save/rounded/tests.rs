use super::*;
use lmc_kernels::predict::convert;

/// Values that differ from those of other seeds.
fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 40) as f32 * 1e-8 - 0.08
    };
    (0..n).map(|_| next()).collect()
}

fn narrow(f: &[f32], dtype: Dtype) -> Vec<u8> {
    let conversion = if dtype == Dtype::F16 { Conversion::NarrowF16 } else { Conversion::NarrowBf16 };
    let mut to = vec![];
    convert(conversion, &f.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>(), &mut to);
    to
}

/// Flat tensors, and groups of 16-bit ones.
#[derive(Default)]
struct Files {
    raw: Vec<u8>,
    tensors: Vec<Segment>,
    reads: u64,
}

impl Files {
    fn add(&mut self, dtype: Dtype, bytes: &[u8]) -> usize {
        let shape = [8 * bytes.len() as u64 / u64::from(dtype.bits())].into();
        let name = format!("{}", self.tensors.len())[..].into();
        let (offset, len) = (self.raw.len() as u64, bytes.len() as u64);
        self.tensors.push(Segment::new(Some(name), Some(dtype), shape, offset, len).unwrap());
        self.raw.extend(bytes);
        self.tensors.len() - 1
    }

    fn flat(&mut self, parameters: &[&[f32]]) -> usize {
        self.add(Dtype::F32, &parameters.concat().iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
    }

    fn model(&mut self, parameters: &[&[f32]], dtype: Dtype) -> Vec<usize> {
        parameters.iter().map(|p| self.add(dtype, &narrow(p, dtype))).collect()
    }

    /// Tensor, first element, elements, flat tensor, place and layer of each part, sorted.
    fn sampled(&mut self, groups: &[Vec<usize>]) -> Vec<(usize, u64, u64, usize, u64, usize)> {
        let (raw, reads) = (&self.raw, &mut self.reads);
        *reads = 0;
        let found = rounded_parts(&self.tensors, groups, |offset, buf| {
            *reads += 1;
            buf.copy_from_slice(&raw[offset as usize..][..buf.len()]);
            Ok::<(), ()>(())
        });
        let mut found: Vec<_> =
            found.unwrap().iter().map(|p| (p.tensor, p.first, p.elements, p.flat, p.at, p.layer)).collect();
        found.sort_unstable();
        found
    }

    /// The same, after checking that the bytes of each part agree.
    fn parts(&mut self, groups: &[Vec<usize>]) -> Vec<(usize, u64, u64, usize, u64, usize)> {
        let found = self.sampled(groups);
        let raw = &self.raw;
        for &(tensor, first, n, flat, at, _) in &found {
            let (t, f) = (&self.tensors[tensor], &self.tensors[flat]);
            let own = &raw[(t.offset + 2 * first) as usize..][..2 * n as usize];
            let wide = raw[(f.offset + 4 * at) as usize..][..4 * n as usize].as_chunks::<4>().0;
            let wide: Vec<f32> = wide.iter().map(|b| f32::from_le_bytes(*b)).collect();
            assert!(own == narrow(&wide, t.dtype.unwrap()));
        }
        found
    }
}

fn all_of(tensors: &[usize], parameters: &[&[f32]], flat: usize) -> Vec<(usize, u64, u64, usize, u64, usize)> {
    let mut at = 0;
    let part = |(&tensor, p): (&usize, &&[f32])| {
        at += p.len() as u64;
        (tensor, 0, p.len() as u64, flat, at - p.len() as u64, 0)
    };
    tensors.iter().zip(parameters).map(part).collect()
}

#[test]
fn parameters_one_behind_the_other_are_found_by_a_few_reads_each() {
    let (a, b, ones, zeros, c) = (noise(70_000, 1), noise(300, 2), vec![1.0; 4000], vec![0.0; 5000], noise(9000, 3));
    let parameters = [&a[..], &b, &ones, &zeros, &zeros, &c];
    for dtype in [Dtype::Bf16, Dtype::F16] {
        let mut files = Files::default();
        let group = files.model(&parameters, dtype);
        let flat = files.flat(&[&a, &b, &ones, &zeros, &zeros, &c, &[0.0; 13]]);
        // Moments.
        files.flat(&[&noise(93_313, 8)]);
        files.flat(&[&[0.0; 93_313]]);
        // Constant ones of equal values may take each other's place.
        assert_eq!(files.parts(std::slice::from_ref(&group)), all_of(&group, &parameters, flat));
        assert!(files.reads < 120, "{}", files.reads);
    }
}

#[test]
fn the_order_of_a_model_does_not_matter_and_several_models_may_have_the_same_place() {
    let all: Vec<Vec<f32>> = (0..50).map(|i| noise(200 + 37 * i, i as u64)).collect();
    let parameters: Vec<&[f32]> = all.iter().map(|p| &p[..]).collect();
    let mut files = Files::default();
    let flat = files.flat(&parameters);
    let backwards: Vec<&[f32]> = parameters.iter().rev().copied().collect();
    let mut groups = vec![files.model(&backwards, Dtype::Bf16), files.model(&parameters, Dtype::Bf16)];
    let mut expected = all_of(&groups[1], &parameters, flat);
    groups[0].reverse();
    expected.extend(all_of(&groups[0], &parameters, flat));
    groups[0].reverse();
    // Copies in one group are in another layer.
    let mut ema = files.model(&parameters[..10], Dtype::Bf16);
    expected.extend(all_of(&ema, &parameters, flat).into_iter().map(|p| (p.0, p.1, p.2, p.3, p.4, 1)));
    groups[1].append(&mut ema);
    expected.sort_unstable();
    assert_eq!(files.parts(&groups), expected);
}

#[test]
fn parameters_are_cut_over_files_in_any_order() {
    // Three partitions; the second is part of one parameter alone.
    let (a, b, c) = (noise(5000, 1), noise(20_000, 2), noise(6000, 3));
    let mut files = Files::default();
    let group = files.model(&[&a, &b, &c], Dtype::Bf16);
    let third = files.flat(&[&b[17_000..], &c]);
    let first = files.flat(&[&a, &b[..7001]]);
    let second = files.flat(&[&b[7001..17_000]]);
    let expected = [
        (group[0], 0, 5000, first, 0, 0),
        (group[1], 0, 7001, first, 5000, 0),
        (group[1], 7001, 9999, second, 0, 0),
        (group[1], 17_000, 3000, third, 0, 0),
        (group[2], 0, 6000, third, 3000, 0),
    ];
    assert_eq!(files.parts(&[group]), expected);
}

#[test]
fn each_parameter_may_be_cut_for_itself() {
    // As ZeRO 3 does: equal parts of each parameter, the last one padded.
    let all: Vec<Vec<f32>> = [9001, 300, 20_002, 80_000, 700].iter().zip(5..).map(|(&n, i)| noise(n, i)).collect();
    let parameters: Vec<&[f32]> = all.iter().map(|p| &p[..]).collect();
    let mut files = Files::default();
    let group = files.model(&parameters, Dtype::Bf16);
    let ranks = 4;
    for rank in 0..ranks {
        let part = |p: &&[f32]| -> Vec<f32> {
            let n = p.len().div_ceil(ranks);
            let padded = [p, &[0.0; 4][..]].concat();
            padded[rank * n..][..n].to_vec()
        };
        let parts: Vec<Vec<f32>> = parameters.iter().map(part).collect();
        files.flat(&parts.iter().map(|p| &p[..]).collect::<Vec<_>>());
    }
    let found = files.parts(&[group]);
    let elements: u64 = found.iter().map(|p| p.2).sum();
    let all: usize = all.iter().map(Vec::len).sum();
    assert!(elements * 1000 > all as u64 * 990, "{elements} of {all}");
}

#[test]
fn the_grid_finds_what_stands_behind_something_unknown() {
    let (a, b, c) = (noise(5000, 1), noise(70_000, 2), noise(300, 3));
    let mut files = Files::default();
    let group = files.model(&[&c, &b, &a], Dtype::Bf16);
    let flat = files.flat(&[&a, &noise(1000, 4), &b, &c]);
    let expected =
        [(group[0], 0, 300, flat, 76_000, 0), (group[1], 0, 70_000, flat, 6000, 0), (group[2], 0, 5000, flat, 0, 0)];
    assert_eq!(files.parts(&[group]), expected);
    // A part of a tensor, in the middle of it.
    let mut files = Files::default();
    let group = files.model(&[&b], Dtype::F16);
    let flat = files.flat(&[&noise(3000, 4), &b[1234..68_000], &noise(3000, 5)]);
    assert_eq!(files.parts(std::slice::from_ref(&group)), [(group[0], 1234, 66_766, flat, 3000, 0)]);
}

#[test]
fn a_few_other_elements_are_passed_over() {
    let (a, b) = (noise(3000, 1), noise(30_000, 2));
    let mut files = Files::default();
    let (mut other, mut other_b) = (a.clone(), b.clone());
    other.iter_mut().skip(50).step_by(100).for_each(|x| *x += 1.0);
    other_b.iter_mut().skip(77).step_by(10_000).for_each(|x| *x += 1.0);
    let group = files.model(&[&b, &other, &other_b, &a], Dtype::Bf16);
    files.flat(&[&b, &a, &b, &a]);
    let found = files.sampled(&[group]);
    assert_eq!(found.iter().map(|p| p.2).collect::<Vec<_>>(), [30_000, 3000, 30_000, 3000]);
}

#[test]
fn work_is_bounded() {
    // Equal tensors; the flat one has some of them.
    let same = noise(64, 1);
    let mut files = Files::default();
    let group = files.model(&vec![&same[..]; 20_000], Dtype::Bf16);
    let flat = files.flat(&vec![&same[..]; 100]);
    files.flat(&[&[0.0; 100_000]]);
    let found = files.parts(&[group]);
    assert!(found.iter().all(|p| p.3 == flat) && found.len() == LAYERS * 100, "{}", found.len());
    assert!(files.reads < 100_000, "{}", files.reads);
    // The same beginning, but for the rest.
    let mut files = Files::default();
    let alike: Vec<Vec<f32>> = (0..5000).map(|i| [&same[..], &noise(64, i + 2)].concat()).collect();
    let group = files.model(&alike.iter().map(|p| &p[..]).collect::<Vec<_>>(), Dtype::Bf16);
    files.flat(&vec![&same[..]; 200]);
    assert!(files.parts(&[group]).is_empty());
    assert!(files.reads < 20_000, "{}", files.reads);
    // Nothing but zeros.
    let mut files = Files::default();
    let zeros = vec![0.0; 1 << 17];
    let group = files.model(&vec![&zeros[..]; 20], Dtype::Bf16);
    files.flat(&[&zeros[..]; 10]);
    assert!(files.parts(&[group]).is_empty());
    assert!(files.reads < 200, "{}", files.reads);
    // Large ones that are nowhere.
    let mut files = Files::default();
    let (a, b) = (noise(70_000, 1), noise(100_000, 2));
    let group = files.model(&vec![&a[..]; 150], Dtype::Bf16);
    files.flat(&[&b]);
    assert!(files.parts(&[group]).is_empty());
    assert!(files.reads < 300, "{}", files.reads);
}

#[test]
fn nothing_is_read_without_flat_tensors() {
    let a = noise(70_000, 1);
    let mut files = Files::default();
    let group = files.model(&[&a], Dtype::Bf16);
    let wide = files.flat(&[&a]);
    files.tensors[wide].shape = [70, 1000].into();
    assert!(files.parts(std::slice::from_ref(&group)).is_empty() && files.reads == 0);
    files.tensors[wide].shape = [70_000].into();
    assert_eq!(files.parts(std::slice::from_ref(&group)).len(), 1);
    let failing = rounded_parts(&files.tensors, &[group], |_, _| Err("no"));
    assert_eq!(failing, Err("no"));
}
