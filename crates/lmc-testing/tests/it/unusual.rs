//! Files that are valid but that the encoder never writes: every instruction set decodes them as the reference does.

use lmc_testing::blocks;
use lmc_testing::decoders::{LIMIT, agree};
use lmc_testing::input::{Input, Random};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{Block, Cluster, Column, Plain, Stream, Zstd, unmapped};
use lmc_testing::reference::write::entropy::{Coder, Pad, Table};

fn restored(blocks: &[Block]) {
    let mut blocks = blocks.to_vec();
    let raw = blocks::fill(&mut blocks);
    assert!(raw.len() <= LIMIT, "the decoders here take no more");
    let records = blocks.iter().map(|block| block.record().expect("the block can be coded")).collect();
    assert!(agree(&File::new(records).to_bytes()).is_ok_and(|decoded| decoded == raw));
}

/// A column of one cluster whose elements have the given symbols and random raw bits.
fn one_cluster(width_code: u8, map: u8, cluster: Cluster, symbols: &[u8], random: &mut Random) -> Column {
    let w = 8 << width_code;
    let mut raw = Vec::new();
    for &symbol in symbols {
        let bits = u128::from(random.u64()) & ((1 << cluster.k) - 1);
        let v = (u128::from(symbol) << (cluster.k + cluster.z) | bits << cluster.z) as u64
            | random.u64() & u64::from(cluster.sign_plane);
        let v = v ^ cluster.constant.unwrap_or(0);
        let u = unmapped(v & (u64::MAX >> (64 - w)), w, map);
        raw.extend(&u.to_le_bytes()[..1 << width_code]);
    }
    Column::Plain(Plain { raw, width_code, stream: Stream::of(map, cluster) })
}

#[test]
fn any_block() {
    let mut random = Random::new(7);
    for _ in 0..1500 {
        let choices = random.bytes(400);
        let mut input = Input::new(&choices);
        restored(&[blocks::block(&mut input)]);
    }
}

#[test]
fn every_split_of_the_bits_of_an_element() {
    let mut random = Random::new(11);
    for width_code in 0..4u8 {
        let w = 8 << width_code;
        for k in 0..=w {
            for s in (0..=8u8).filter(|s| k + s <= w) {
                // All the other bits dropped, low or high or both.
                let dropped = w - k - s;
                let z = [0, dropped, random.below(u64::from(dropped) + 1) as u8][random.below(3) as usize];
                let map = random.below(3) as u8;
                let constant = (random.below(2) == 0).then(|| random.u64() & (u64::MAX >> (64 - w)));
                let count = [128, 1, 256, 200, 7, 65, 129][random.below(7) as usize];
                let symbols: Vec<u8> =
                    (0..count).map(|_| (random.u64().trailing_zeros() as u16 % (1 << s)) as u8).collect();
                let coder = match (s, random.below(3)) {
                    (0, _) => Coder::None,
                    (_, 0) => Coder::huffman(&symbols, random.below(2) == 0),
                    (_, 1) => Coder::rans(&symbols, random.below(2) == 0),
                    _ => Coder::fine_rans(&symbols, random.below(2) == 0),
                };
                let sign_plane = z > 0 && random.below(2) == 0;
                let cluster = Cluster { constant, z, h: dropped - z, k, sign_plane, coder, ..Cluster::default() };
                let lane_sets = if s == 0 { 2 * random.below(2) } else { 2 };
                let column = one_cluster(width_code, map, cluster, &symbols, &mut random);
                restored(&[Block::of(column, lane_sets as u8)]);
            }
        }
    }
}

#[test]
fn every_length_around_a_run() {
    let mut random = Random::new(13);
    for count in (1..=130).chain([255, 256, 257, 383, 384, 385]) {
        for coder in [Coder::huffman, Coder::rans, Coder::fine_rans] {
            for (width_code, k) in [(1, 8), (2, 24), (0, 3)] {
                let symbols: Vec<u8> = (0..count).map(|_| random.u64().trailing_zeros() as u8 % 8).collect();
                let h = (8 << width_code) - k - 4;
                let cluster = Cluster { k, h, coder: coder(&symbols, true), ..Cluster::default() };
                let column = one_cluster(width_code, 1, cluster, &symbols, &mut random);
                restored(&[Block::of(column, 2)]);
            }
        }
    }
}

#[test]
fn padding_may_be_escaped() {
    let mut random = Random::new(15);
    let symbols: Vec<u8> = (0..140).map(|_| random.below(20) as u8).collect();
    for coder in [Coder::huffman(&symbols[..60], true), Coder::rans(&symbols[..60], true)] {
        let cluster = Cluster { k: 8, coder, pad: Pad::PadSymbolAsLiteral, ..Cluster::default() };
        restored(&[Block::of(one_cluster(1, 1, cluster, &symbols, &mut random), 2)]);
    }
}

#[test]
fn tables_of_every_size() {
    let mut random = Random::new(17);
    for n in (1..=130usize).chain([200, 256]) {
        for escape in [false, true] {
            let symbols: Vec<u8> = (0..600).map(|_| (random.below(n as u64) ^ 255) as u8).collect();
            for coder in [Coder::huffman(&symbols, escape), Coder::rans(&symbols, escape)] {
                let cluster = Cluster { k: 8, coder, ..Cluster::default() };
                restored(&[Block::of(one_cluster(1, 1, cluster, &symbols, &mut random), 2)]);
            }
        }
    }
}

#[test]
fn extreme_tables() {
    let mut random = Random::new(19);
    let table = |first, entries: &[u16], escape| Table { first, entries: entries.to_vec(), escape };
    let rans = |first, entries: &[u16], escape| Coder::Rans { log_slots: 7, table: table(first, entries, escape) };
    let full = |values: [(usize, u16); 2]| {
        let mut entries = vec![0; 256];
        values.into_iter().for_each(|(symbol, value)| entries[symbol] = value);
        entries
    };
    let coders = [
        // Every symbol but one is a literal.
        rans(77, &[1], 127),
        rans(0, &[127], 1),
        Coder::Huffman(table(255, &[1], 1)),
        Coder::Huffman(table(0, &[7, 6, 5, 4, 3, 2, 1], 7)),
        rans(0, &full([(0, 64), (255, 63)]), 1),
        Coder::Huffman(table(0, &full([(0, 1), (255, 2)]), 2)),
        Coder::Huffman(table(3, &[7; 127], 7)),
        rans(3, &[1; 127], 1),
    ];
    for coder in coders {
        for skew in [1, 3, 256] {
            let symbols: Vec<u8> = (0..1000).map(|_| random.below(skew) as u8).collect();
            let cluster = Cluster { k: 8, coder: coder.clone(), ..Cluster::default() };
            restored(&[Block::of(one_cluster(1, 0, cluster, &symbols, &mut random), 2)]);
        }
    }
}

#[test]
fn literals_of_few_bits() {
    let mut random = Random::new(23);
    // Symbols of four bits with four more above them that are dropped; most are literals.
    let symbols: Vec<u8> = (0..500).map(|_| random.u64() as u8 & 15).collect();
    let coder = Coder::rans(&[0, 1, 2, 3], true);
    let cluster = Cluster { k: 8, h: 4, coder, constant: Some(0x1234), ..Cluster::default() };
    restored(&[Block::of(one_cluster(1, 2, cluster, &symbols, &mut random), 2)]);
}

#[test]
fn many_blocks_and_no_block() {
    let mut random = Random::new(29);
    let blocks: Vec<Block> =
        (0..11).map(|i| Block::of(Column::Stored(random.bytes(1 + i % 7)), 2 * (i % 2) as u8)).collect();
    restored(&blocks);
    restored(&[]);
}

#[test]
fn extents_of_one_byte() {
    let mut random = Random::new(31);
    let columns: Vec<Column> = (0..16).map(|_| Column::Stored(random.bytes(5))).collect();
    let extents = (0..5 * 16).map(|i| ((i % 16) as u8, 1)).collect();
    restored(&[Block { lane_sets: 0, columns, extents, states_repeats: false, final_state: 1 << 16 }]);
}

#[test]
fn a_block_of_many_leaves() {
    let mut random = Random::new(37);
    for length in [(1 << 18) - 1, 1 << 18, (1 << 18) + 1, 3 << 18] {
        let column = one_cluster(0, 0, Cluster { k: 8, ..Cluster::default() }, &vec![0; length], &mut random);
        restored(&[Block::of(column, 0)]);
        restored(&[Block::of(Column::Zstd(Zstd::of(random.bytes(length))), 0)]);
    }
}
