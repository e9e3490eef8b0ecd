//! Tests of the lengths and extents of blocks.

use lmc_test_inputs::Random;
use proptest::prelude::*;

use super::*;
use crate::refs::base::Base;
use lmc_layout::dtype::NamedDtype;
use lmc_layout::segment::Names;

/// Blocks of a file and their extents. Only the bytes that `lookahead` asks for exist, and `more` beyond them.
fn cut_by(mut cutter: Cutter<'_>, raw: &[u8], more: u64) -> Vec<(usize, Vec<Extent>)> {
    let (mut at, mut blocks, mut extents) = (0, vec![], vec![]);
    while at < raw.len() as u64 {
        let ahead = (raw.len() as u64 - at).min(cutter.lookahead().saturating_add(more));
        let known = &raw[..(at + ahead) as usize];
        let len = cutter.next_block(&known, ahead, &mut extents).unwrap();
        assert_eq!(extents.iter().map(|p| p.len).sum::<usize>(), len);
        for p in &extents {
            assert!(p.len > 0 && p.dtype.is_none_or(|d| p.len.is_multiple_of(d.coding_width())));
        }
        at += len as u64;
        assert!((at.is_multiple_of(LEAF as u64) || at == raw.len() as u64) && len <= MAX_RAW);
        blocks.push((len, extents.clone()));
    }
    blocks
}

fn cut(layout: &Layout, raw: &[u8], more: u64) -> Vec<(usize, Vec<Extent>)> {
    cut_by(Cutter::new(Arc::new(layout.clone()), None, vec![]), raw, more)
}

/// The blocks with a base of the same layout.
fn cut_with_base(layout: &Layout, raw: &[u8], base: &[u8], more: u64) -> Vec<(usize, Vec<Extent>)> {
    let bases = [Base::of_segments(base, &layout.segments).unwrap()];
    let matcher = Matcher::new(layout, &bases);
    cut_by(Cutter::new(Arc::new(layout.clone()), Some(matcher), vec![]), raw, more)
}

/// Segments of these dtypes and numbers of bytes, which must be whole elements.
fn layout(lens: &[(Option<Dtype>, u64)], tail: Option<Dtype>) -> Layout {
    let (mut at, mut names) = (0, Names::default());
    let segment = |(i, &(dtype, len)): (usize, &(Option<Dtype>, u64))| {
        let s = match dtype {
            None => Segment::opaque(at, len),
            Some(d) => {
                let shape = [len * 8 / u64::from(d.bits())].into();
                Segment::tensor(names.push(&format!("t{i}")).unwrap(), d, shape, at, len)
            }
        };
        at = s.end();
        s
    };
    let segments = lens.iter().enumerate().map(segment).collect();
    names.finish();
    Layout { tail, ..Layout::new("test", segments, Default::default()) }
}

fn lens(blocks: &[(usize, Vec<Extent>)]) -> Vec<usize> {
    blocks.iter().map(|b| b.0).collect()
}

/// Dtype and length of each extent.
fn extents(extents: &[Extent]) -> Vec<(Option<Dtype>, usize)> {
    extents.iter().map(|p| (p.dtype, p.len)).collect()
}

const B: usize = BLOCK as usize;

#[test]
fn no_small_block_is_left_over() {
    let l = layout(&[], None);
    let lens = |total: usize| lens(&cut(&l, &vec![1; total], 0));
    assert_eq!(lens(1), [1]);
    assert_eq!(lens(B), [B]);
    assert_eq!(lens(B + B / 4), [B + B / 4]);
    assert_eq!(lens(B + B / 4 + 1), [B, B / 4 + 1]);
    assert_eq!(lens(3 * B + 5), [B, B, B + 5]);
}

#[test]
fn elements_that_an_edge_cuts_are_bytes() {
    // The tensor begins one byte after the file does, and ends within the second block.
    let l = layout(&[(None, 1), (Some(Dtype::F32), 6 << 18), (Some(Dtype::U8), 1 << 18)], None);
    let raw = vec![1; 1 + (7 << 18)];
    let blocks = cut(&l, &raw, 0);
    assert_eq!(lens(&blocks), [B, 1 + 3 * B / 4]);
    assert_eq!(extents(&blocks[0].1), [(None, 1), (Some(Dtype::F32), B - 4), (None, 3)]);
    assert_eq!(
        extents(&blocks[1].1),
        [(None, 1), (Some(Dtype::F32), B / 2), (Some(Dtype::U8), B / 4)],
        "the element's rest comes first"
    );
}

#[test]
fn extents_of_quantised_tensors_have_whole_blocks() {
    let q8_0 = Dtype::Named(NamedDtype::new("Q8_0", 8 * 34).unwrap());
    let unknown = Dtype::Named(NamedDtype::new("Q8_9", 8 * 34).unwrap());
    let l = layout(&[(None, 100), (Some(q8_0), 34 * 50_000), (Some(unknown), 34 * 1000)], None);
    let noise = Random::new(1).bytes(100 + 34 * 51_000);
    let blocks = cut(&l, &noise, 0);
    assert_eq!(lens(&blocks), [B, noise.len() - B]);
    let (first, rest) = ((B - 100) / 34, 34 - (B - 100) % 34);
    assert_eq!(extents(&blocks[0].1), [(None, 100), (Some(q8_0), 34 * first), (None, 34 - rest)]);
    // The rest of the block that was cut, and a type whose fields are not known.
    assert_eq!(extents(&blocks[1].1), [(None, rest), (Some(q8_0), 34 * (50_000 - first - 1)), (None, 34 * 1000)]);
    // Ranges of a base may begin anywhere.
    let mut changed = noise.clone();
    changed.iter_mut().step_by(9).for_each(|b| *b ^= 1);
    let with_base = cut_with_base(&l, &changed, &noise, 0);
    assert_eq!(extents(&with_base[0].1), [(None, 100), (Some(q8_0), B - 100)]);
    assert!(with_base[0].1[1].base.is_some());
}

#[test]
fn rows_begin_with_a_run() {
    let row = |n: u64| {
        let rows = (2 << 20) / 2 / n;
        let mut names = Names::default();
        let tensor = Segment::tensor(names.push("t").unwrap(), Dtype::Bf16, [rows, n].into(), 1000, rows * n * 2);
        names.finish();
        let total = tensor.end() as usize;
        let l = Layout::new("test", vec![Segment::opaque(0, 1000), tensor], Default::default());
        extents(&cut(&l, &vec![1; total], 0)[1].1)
    };
    // 256 bytes are a run.
    let rest = (1000 - B as i64).rem_euclid(256) as usize;
    assert_eq!(row(256)[..1], [(None, rest)]);
    assert_eq!(row(256)[1].0, Some(Dtype::Bf16));
    assert_eq!(row(100)[0].0, Some(Dtype::Bf16));
}

#[test]
fn only_large_tensors_have_columns_of_their_own() {
    let small = B as u64 / 64;
    let mut s = vec![(None, 1000)];
    s.extend((0..16).map(|_| (Some(Dtype::Bf16), small)));
    s.push((Some(Dtype::Bf16), 2 * BLOCK));
    let l = layout(&s, None);
    let total = l.segments.last().unwrap().end() as usize;
    let blocks = cut(&l, &vec![1; total], 0);
    assert_eq!(
        extents(&blocks[0].1),
        [(None, 1000), (Some(Dtype::Bf16), B / 4), (Some(Dtype::Bf16), 3 * B / 4 - 1000)]
    );
    let column = |block: usize, extent: usize| blocks[block].1[extent].group;
    assert!(column(0, 1) != column(0, 2) && column(0, 2) == column(1, blocks[1].1.len() - 1));
}

#[test]
fn a_block_of_single_bytes_has_few_extents() {
    let s: Vec<_> = (0..40_000).map(|i| (if i % 2 == 0 { None } else { Some(Dtype::U8) }, 1)).collect();
    let blocks = cut(&layout(&s, None), &[1; 40_000], 0);
    assert_eq!((blocks.len(), blocks[0].1.len()), (1, MAX_EXTENTS + 1));
}

/// A large sparse tensor is cut into large blocks, however many bytes are available.
#[test]
fn what_is_mostly_zero_is_cut_into_large_blocks() {
    for (one_in, want) in [(160, vec![8 * B, 8 * B, 4 * B]), (20, vec![B; 20])] {
        // Without a period.
        let is_one =
            |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(i) >> 40) % one_in == 7;
        let raw: Vec<u8> = (0..10 * BLOCK).flat_map(|i| if is_one(i) { [0, 1] } else { [0, 0] }).collect();
        for dtype in [Some(Dtype::Bf16), None] {
            let l = layout(&[(dtype, 20 * BLOCK)], None);
            let want = if dtype.is_some() { want.clone() } else { vec![B; 20] };
            for more in [0, 1, BLOCK, u64::MAX] {
                assert_eq!(lens(&cut(&l, &raw, more)), want, "one in {one_in}, {dtype:?}, {more} more");
            }
            let uniform = Cutter::new(Arc::new(l), None, vec![]).uniform();
            assert_eq!(lens(&cut_by(uniform, &raw, 0)), [B; 20]);
        }
    }
}

/// Zeros are in large blocks, and the data after them are not; later zeros are again, after one block of the usual
/// length.
#[test]
fn blocks_follow_what_changes() {
    let mut raw = vec![0u8; 36 * B];
    raw[9 * B..12 * B].fill(1);
    let l = layout(&[(Some(Dtype::Bf16), 36 * BLOCK)], None);
    for more in [0, 1, BLOCK, u64::MAX] {
        let lens = lens(&cut(&l, &raw, more));
        assert_eq!(lens, [8 * B, B, B, B, B, B, 8 * B, 8 * B, 7 * B], "{more} more");
    }
}

/// Blocks with few changes since a base are large, and hold tensors of all sizes.
#[test]
fn blocks_of_what_hardly_changed_are_large() {
    let elements = |bytes: u64| (Some(Dtype::F32), bytes / 4 * 4);
    let mut s = vec![(None, 3000), elements(20 * BLOCK)];
    s.extend((0..40).flat_map(|_| [elements(BLOCK + BLOCK / 3), elements(4000), elements(600)]));
    let l = layout(&s, None);
    let raw = vec![1; l.segments.last().unwrap().end() as usize];
    let mut r = lmc_test_inputs::Random::new(18);
    for (one_in, most) in [(5000, 8), (20, 8), (1, 1)] {
        // Elements that differ a little from their base.
        let mut base = raw.clone();
        base.chunks_exact_mut(4).filter(|_| r.below(one_in) == 0).for_each(|e| e[0] = 30);
        let blocks = cut_with_base(&l, &raw, &base, 0);
        let (last, inner) = blocks.split_last().unwrap();
        assert!(inner.iter().all(|b| b.0 == most * B), "one in {one_in}: {:?}", lens(&blocks));
        assert!(last.0 <= most * B + B / 4);
        // Everything has its base, except elements that the edges of blocks cut.
        for (_, extents) in &blocks {
            assert!(extents.iter().all(|p| p.base.is_some() || p.dtype.is_none() && p.len < 4));
        }
        for more in [1, BLOCK, 1 << 25, u64::MAX] {
            assert_eq!(cut_with_base(&l, &raw, &base, more), blocks, "one in {one_in}, {more} more");
        }
    }
}

fn segment() -> impl Strategy<Value = (Option<Dtype>, u64)> {
    let dtype = prop::option::of(prop::sample::select(Dtype::ALL));
    let len = prop_oneof![Just(0), 1u64..100, 1u64..60_000, 1u64..2_000_000];
    // 24 bytes are whole elements of every dtype.
    (dtype, len).prop_map(|(d, n)| (d, if d.is_some() { n.next_multiple_of(24) } else { n }))
}

proptest! {
    #[test]
    fn blocks_do_not_depend_on_how_far_one_looks_ahead(
        s in prop::collection::vec(segment(), 0..20), tail in prop::option::of(prop::sample::select(Dtype::ALL)),
        more in 0u64..3_000_000, cut_by in -3_000_000i64..4_000_000, zeros in any::<bool>(),
    ) {
        let l = layout(&s, tail);
        let total = l.segments.last().map_or(0, Segment::end).saturating_add_signed(cut_by);
        let raw = vec![u8::from(!zeros); total as usize];
        let blocks = cut(&l, &raw, 0);
        prop_assert_eq!(&blocks, &cut(&l, &raw, more));
        prop_assert_eq!(&blocks, &cut(&l, &raw, u64::MAX));
    }
}
