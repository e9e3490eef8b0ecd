//! Where blocks begin and end.

use proptest::prelude::*;

use super::*;
use crate::base::Base;
use crate::segment::{Names, tensor_len};

/// Plans a file of `total` bytes, showing no more of it than `lookahead` asks for plus `more`.
fn plan(layout: &Layout, total: u64, more: u64) -> Vec<(usize, Vec<Piece>)> {
    let mut p = Planner::new(layout.clone());
    let (mut at, mut blocks, mut pieces) = (0, vec![], vec![]);
    while at < total {
        let ahead = (total - at).min(p.lookahead().saturating_add(more));
        let len = p.next_block(ahead, &mut pieces);
        assert!(len > 0 && len as u64 <= ahead && len <= 2 << 20);
        assert_eq!(pieces.iter().map(|p| p.len).sum::<usize>(), len);
        for p in &pieces {
            assert!(p.len > 0 && p.dtype.is_none_or(|d| p.len.is_multiple_of(d.coding_width())));
        }
        assert!(pieces.windows(2).all(|w| w[0].dtype != w[1].dtype));
        at += len as u64;
        blocks.push((len, pieces.clone()));
    }
    let (_, segments) = p.finish(total);
    let mut end = 0;
    for s in segments {
        assert_eq!(s.offset, end);
        assert!(s.dtype.is_none_or(|d| tensor_len(d, &s.shape) == Some(s.len)));
        end = s.end();
    }
    assert_eq!(end, total);
    blocks
}

fn layout(lens: &[(Option<Dtype>, u64)], tail: Option<Dtype>) -> Layout {
    let mut at = 0;
    let segments = lens
        .iter()
        .map(|&(dtype, n)| {
            let s = match dtype {
                None => Segment::opaque(at, n),
                Some(d) => {
                    // Whole elements only: 24 bytes are some for every dtype.
                    let shape = [n, 24 * 8 / u64::from(d.bits())].into();
                    Segment::tensor(Name::default(), d, shape, at, 24 * n)
                }
            };
            at = s.end();
            s
        })
        .collect();
    Layout { name: "test", segments, tail }
}

fn lens(blocks: &[(usize, Vec<Piece>)]) -> Vec<usize> {
    blocks.iter().map(|b| b.0).collect()
}

#[test]
fn a_large_segment_is_cut_without_a_tiny_rest() {
    let (l, b) = (layout(&[], None), BLOCK as usize);
    assert_eq!(lens(&plan(&l, 1, 0)), [1]);
    assert_eq!(lens(&plan(&l, BLOCK, 0)), [b]);
    assert_eq!(lens(&plan(&l, LAST_BLOCK_MAX, 0)), [b + b / 4]);
    assert_eq!(lens(&plan(&l, LAST_BLOCK_MAX + 1, 0)), [b, b / 4 + 1]);
    assert_eq!(lens(&plan(&l, 3 * BLOCK + 5, 0)), [b, b, b + 5]);
}

#[test]
fn small_segments_share_a_block_and_large_ones_do_not() {
    use Dtype::{Bf16, F32};
    let small = 4096;
    let mut s = vec![(None, 1000)];
    s.extend((0..100).map(|i| (Some(if i % 2 == 0 { Bf16 } else { F32 }), small)));
    s.push((Some(Bf16), UNIT_MIN / 24 + 1));
    s.push((Some(Bf16), small));
    let l = layout(&s, None);
    let total = l.segments.last().unwrap().end();
    let blocks = plan(&l, total, 0);
    let pack = 24 * small as usize;
    assert_eq!(
        lens(&blocks),
        [
            1000 + 11 * pack,
            11 * pack,
            11 * pack,
            11 * pack,
            11 * pack,
            11 * pack,
            11 * pack,
            11 * pack,
            11 * pack,
            pack,
            24 * (UNIT_MIN as usize / 24 + 1),
            pack
        ]
    );
    assert_eq!(blocks[1].1[0], Piece { starts_span: true, ..Piece::plain(Some(F32), pack) });
}

#[test]
fn a_pack_of_single_bytes_is_closed_in_time() {
    let s: Vec<_> = (0..40_000).map(|i| (if i % 2 == 0 { None } else { Some(Dtype::U8) }, 1)).collect();
    let l = layout(&s, None);
    let blocks = plan(&l, l.segments.last().unwrap().end(), 0);
    assert!(blocks.iter().all(|b| b.1.len() <= PACK_PIECES + 1) && blocks.len() == 3);
}

#[test]
fn what_a_file_lacks_is_opaque() {
    let l = layout(&[(None, 10), (Some(Dtype::F32), 4), (Some(Dtype::F32), 4)], None);
    let named = |total| {
        let mut p = Planner::new(l.clone());
        let mut pieces = vec![];
        if total > 0 {
            assert_eq!(p.next_block(total, &mut pieces) as u64, total);
        }
        p.finish(total).1.iter().map(|s| (s.dtype.is_some(), s.len)).collect::<Vec<_>>()
    };
    assert_eq!(named(0), []);
    assert_eq!(named(9), [(false, 9)]);
    assert_eq!(named(10), [(false, 10)]);
    assert_eq!(named(105), [(false, 10), (false, 95)]);
    assert_eq!(named(107), [(false, 10), (true, 96), (false, 1)]);
    assert_eq!(named(202), [(false, 10), (true, 96), (true, 96)]);
    assert_eq!(named(300), [(false, 10), (true, 96), (true, 96), (false, 98)]);
}

/// Lengths of the blocks of a file, if so many bytes more than needed are at hand.
fn lens_of(l: &Layout, raw: &[u8], more: u64) -> Vec<usize> {
    let mut p = Planner::with(l.clone(), None, vec![]);
    let (mut at, mut lens, mut pieces) = (0, vec![], vec![]);
    while at < raw.len() as u64 {
        let ahead = (raw.len() as u64 - at).min(p.lookahead().saturating_add(more));
        // Nothing beyond is there to be read.
        let known = &raw[..(at + ahead) as usize];
        lens.push(p.next_block_of(&known, ahead, &mut pieces).unwrap());
        at += *lens.last().unwrap() as u64;
    }
    lens
}

/// A large tensor of zeros but for some elements: after its first block, large ones, whatever is at hand; none where nothing is read.
#[test]
fn what_is_mostly_zero_is_cut_into_large_blocks() {
    let (b, n) = (BLOCK as usize, 20 * BLOCK);
    for (one_in, want) in [(40, vec![b, 8 * b, 8 * b, 3 * b]), (20, vec![b; 20])] {
        let raw: Vec<u8> = (0..n / 2).flat_map(|i| if i % one_in == 7 { [0, 1] } else { [0, 0] }).collect();
        for dtype in [Some(Dtype::Bf16), None] {
            let l = layout(&[(dtype, if dtype.is_some() { n / 24 } else { n })], None);
            let total = l.segments[0].len;
            let raw = &raw[..total as usize];
            let plain = lens(&plan(&l, total, 0));
            assert!(plain.len() == 20 && plain[..19].iter().all(|&len| len == b));
            // 24 bytes may be left over.
            let mut want = if dtype.is_some() { want.clone() } else { vec![b; 20] };
            *want.last_mut().unwrap() -= n as usize - total as usize;
            for more in [0, 1, BLOCK, u64::MAX] {
                assert_eq!(lens_of(&l, raw, more), want, "one in {one_in}, {dtype:?}, {more} more");
            }
        }
    }
}

/// Zeros at the beginning only: what follows them is cut as it would be without them, as soon as it shows.
#[test]
fn zeros_that_end_are_left_behind() {
    let (b, total) = (BLOCK as usize, 24 * 873_813u64);
    let mut raw = vec![0u8; total as usize];
    raw[9 * b..].fill(1);
    let l = layout(&[(Some(Dtype::Bf16), total / 24)], None);
    for more in [0, 1, BLOCK, u64::MAX] {
        let lens = lens_of(&l, &raw, more);
        assert_eq!(lens[..2], [b, 8 * b]);
        assert!(lens[2..].iter().all(|&len| len <= LAST_BLOCK_MAX as usize), "{lens:?}");
    }
}

/// Blocks of a file, given a base of the same layout, if so many bytes more than needed are at hand.
fn blocks_with_base(l: &Layout, raw: &[u8], base: &[u8], more: u64) -> Vec<(usize, Vec<Piece>)> {
    let bases = [Base::of_segments(base, &l.segments).unwrap()];
    let mut p = Planner::with(l.clone(), Some(Matcher::new(l, &bases)), vec![]);
    let (mut at, mut blocks, mut pieces) = (0, vec![], vec![]);
    while at < raw.len() as u64 {
        let ahead = (raw.len() as u64 - at).min(p.lookahead().saturating_add(more));
        let known = &raw[..(at + ahead) as usize];
        let len = p.next_block_of(&known, ahead, &mut pieces).unwrap();
        assert_eq!(pieces.iter().map(|p| p.len).sum::<usize>(), len);
        at += len as u64;
        blocks.push((len, pieces.clone()));
    }
    blocks
}

/// Where hardly a bit changed, blocks are filled: by small tensors, and by the beginning of a large one.
#[test]
fn blocks_of_what_hardly_changed_are_filled() {
    let b = BLOCK as usize;
    let elements = |bytes: u64| (Some(Dtype::F32), bytes / 24);
    let mut s = vec![(None, 3000), elements(20 * BLOCK)];
    s.extend((0..40).flat_map(|_| [elements(BLOCK + BLOCK / 3), elements(4000), elements(600)]));
    let mut l = layout(&s, None);
    let mut names = Names::default();
    for (i, s) in l.segments.iter_mut().enumerate().filter(|s| s.1.dtype.is_some()) {
        s.name = names.push(&format!("t{i}"));
    }
    names.finish();
    let raw = vec![1; l.segments.last().unwrap().end() as usize];
    let mut r = lmc_testing::input::Random::new(18);
    for (one_in, most) in [(5000, 15), (16, 8), (2, 4)] {
        // Next to what they are.
        let mut base = raw.clone();
        base.chunks_exact_mut(4).filter(|_| r.below(one_in) == 0).for_each(|e| e[0] = 2);
        let blocks = blocks_with_base(&l, &raw, &base, 0);
        let lens = lens(&blocks);
        assert!(lens.iter().all(|&len| len <= most * b + b / 4), "one in {one_in}: {lens:?}");
        // All but the header, which has no base, and what is left at the end.
        let inner = &lens[1..lens.len() - 2];
        if most > 4 {
            assert!(inner.iter().all(|&len| len >= (most - 1) * b), "one in {one_in}: {lens:?}");
        } else {
            assert!(inner.iter().any(|&len| len < b));
        }
        // A block ends where a unit does, or a leaf.
        let (mut at, mut unit) = (0, 0);
        for (_, pieces) in &blocks {
            for p in pieces {
                unit = if p.starts_span { at } else { unit };
                at += p.len;
            }
            assert!((at - unit).is_multiple_of(LEAF) || l.segments.iter().any(|s| s.end() == at as u64));
        }
        for more in [1, BLOCK, 1 << 25, u64::MAX] {
            assert_eq!(blocks_with_base(&l, &raw, &base, more), blocks, "one in {one_in}, {more} more");
        }
    }
}

fn segment() -> impl Strategy<Value = (Option<Dtype>, u64)> {
    let dtype = prop::option::of(prop::sample::select(Dtype::ALL));
    let len = prop_oneof![Just(0), 1u64..100, 1u64..60_000, 1u64..2_000_000];
    (dtype, len).prop_map(|(d, n)| (d, if d.is_some() { n.div_ceil(24) } else { n }))
}

proptest! {
    #[test]
    fn blocks_do_not_depend_on_how_far_one_looks_ahead(
        s in prop::collection::vec(segment(), 0..20), tail in prop::option::of(prop::sample::select(Dtype::ALL)),
        more in 0u64..3_000_000, cut in -3_000_000i64..4_000_000,
    ) {
        let l = layout(&s, tail);
        let total = l.segments.last().map_or(0, Segment::end).saturating_add_signed(cut);
        let blocks = plan(&l, total, 0);
        prop_assert_eq!(&blocks, &plan(&l, total, more));
        prop_assert_eq!(&blocks, &plan(&l, total, u64::MAX));
    }
}
