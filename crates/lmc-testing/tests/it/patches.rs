//! Patches (§3.3.3) of any element, and streams without clusters.

use lmc_testing::handmade::{encoded, judged_block as judged};
use lmc_testing::input::Random;
use lmc_testing::reference::write::block::{Block, Cluster, Column, Patch, Plain, Stream, mapped};

/// Elements in one cluster.
fn block(raw: Vec<u8>, width_code: u8, map: u8, cluster: Cluster, patches: &[(u64, u64)]) -> Block {
    let patches = patches.iter().map(|&(element, x)| Patch { element, x }).collect();
    let stream = Stream { patches, ..Stream::of(map, cluster) };
    Block::of(Column::Plain(Plain { raw, width_code, stream }), 0)
}

#[test]
fn streams_without_clusters() {
    let mut random = Random::new(2);
    for map in 0..3 {
        for count in [1usize, 127, 128, 300] {
            let elements: Vec<u64> =
                (0..count).map(|_| if random.below(4) == 0 { random.below(1 << 16) } else { 0 }).collect();
            let raw: Vec<u8> = elements.iter().flat_map(|u| (*u as u16).to_le_bytes()).collect();
            let patches = (0..).zip(&elements).filter(|(_, u)| **u != 0);
            let patches = patches.map(|(element, &u)| Patch { element, x: mapped(u, 16, map) }).collect();
            let stream = Stream { map, patches, ..Stream::default() };
            let column = Column::Plain(Plain { raw: raw.clone(), width_code: 1, stream });
            assert_eq!(judged(&encoded(&Block::of(column, 0))), Ok(raw));
        }
    }
    // None at all: 0 times 4.
    let nothing = Column::Plain(Plain { raw: vec![0; 8], width_code: 1, stream: Stream::default() });
    let fields = encoded(&Block::of(nothing, 0));
    assert_eq!((&fields.columns[0][..], &fields.bulk[0][..]), (&[2, 1, 0, 0, 1, 0, 0, 16, 0, 0, 0][..], &[][..]));
    assert_eq!(judged(&fields), Ok(vec![0; 8]));
}

#[test]
fn patches_reach_the_last_element_of_any_stream() {
    let mut random = Random::new(1);
    for count in [1u64, 2, 127, 128, 129, 256, 1000] {
        for width_code in 0..4 {
            // No bits in the clusters: patches alone make the elements.
            let w = 8u32 << width_code;
            let cluster = Cluster { z: w as u8, ..Cluster::default() };
            let x = u64::MAX >> (64 - w);
            let mut raw = vec![0; (count << width_code) as usize];
            raw[((count - 1) << width_code) as usize..].fill(0xff);
            let fields = encoded(&block(raw.clone(), width_code, 0, cluster.clone(), &[(count - 1, x)]));
            assert_eq!(judged(&fields), Ok(raw));

            // And all of them.
            let elements: Vec<u64> = (0..count).map(|_| 1 | random.u64() & x).collect();
            let raw: Vec<u8> = elements.iter().flat_map(|u| u.to_le_bytes()[..1 << width_code].to_vec()).collect();
            let patches: Vec<(u64, u64)> = (0..).zip(elements).collect();
            let fields = encoded(&block(raw.clone(), width_code, 0, cluster, &patches));
            assert_eq!(judged(&fields), Ok(raw));
        }
    }
}
