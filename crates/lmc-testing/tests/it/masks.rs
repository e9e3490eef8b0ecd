//! Masks (§3.3.2) of every kind in every decoder.

use lmc_testing::handmade::{encoded, judged_block};
use lmc_testing::input::Random;
use lmc_testing::reference::write::block::{Block, BlockFields, Cluster, Column, Mask, NumberCode, Plain, Stream};
use lmc_testing::reference::write::entropy::Coder;

#[track_caller]
fn restored(fields: BlockFields, raw: &[u8]) {
    assert_eq!(judged_block(&fields), Ok(raw.to_vec()));
}

/// Masks with clusters, and lists, under every map and width.
#[test]
fn masks_of_every_kind() {
    let mut random = Random::new(3);
    let mut kinds = [0; 3];
    for case in 0..600 {
        let (width_code, map) = (case % 4, (case / 4 % 3) as u8);
        let width = 1 << width_code;
        let w = 8 * width as u32;
        let n = [1, 7, 8, 9, 127, 128, 129, 1000, 1025, 3000][random.below(10) as usize];
        let (kind, lanes) = (random.below(3) as usize, 2 * random.below(2) as u8);
        let one_in = [1, 2, 9, 200][random.below(4) as usize];
        let signed = kind == 1;
        let values: Vec<u64> = (0..n)
            .map(|i| {
                let v = random.u64() >> (64 - w) & 0x1ff;
                let coded = random.below(one_in) == 0 || i == n / 2;
                let sign = if signed { random.below(2) } else { 0 };
                if coded { v & !1 | 2 | sign } else { sign }
            })
            .collect();
        let selected = |v: &u64| if signed { *v > 1 } else { *v > 0 };
        let bytes: Vec<u8> = values
            .chunks(8)
            .map(|eight| eight.iter().rev().fold(0, |byte, v| byte << 1 | u8::from(selected(v))))
            .collect();
        let of_mask = if lanes > 0 {
            Cluster { coder: Coder::fine_rans(&bytes, random.below(2) == 0), ..Cluster::default() }
        } else {
            Cluster { k: 8, ..Cluster::default() }
        };
        let mask = [Mask::Bits(of_mask.clone()), Mask::BitsAndSigns(of_mask), Mask::List][kind].clone();
        let clusters = if mask == Mask::List {
            vec![]
        } else if width == 1 {
            vec![Cluster { k: 8, ..Cluster::default() }]
        } else {
            vec![Cluster { k: 9, h: w as u8 - 9, ..Cluster::default() }; 2]
        };
        let count = values.iter().filter(|v| selected(v)).count();
        let cluster_of = (0..count.div_ceil(128)).map(|i| (i % 2) as u8 & u8::from(clusters.len() > 1)).collect();
        let cluster_map = Cluster { k: 8, ..Cluster::default() };
        let mut stream = Stream { map, mask, clusters, cluster_of, cluster_map, ..Stream::default() };
        stream.patch_codes.gaps = (random.below(2) == 0).then(|| NumberCode { raw: 12, first: 0, lengths: vec![0] });
        let raw: Vec<u8> =
            values.iter().flat_map(|&v| stream.unmapped(v, w).to_le_bytes().into_iter().take(width)).collect();
        let plain = Plain { raw: raw.clone(), width_code: width_code as u8, stream };
        let block = Block::of(Column::Plain(plain), lanes);
        restored(encoded(&block), &raw);
        kinds[kind] += 1;
    }
    assert!(kinds.iter().all(|&n| n > 20), "{kinds:?}");
}
