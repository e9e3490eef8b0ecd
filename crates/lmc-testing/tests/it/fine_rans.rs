//! rANS with 4096 slots: blocks of every kind that use it are restored.

use lmc_testing::handmade::{encoded, judged_block as judged};
use lmc_testing::input::Random;
use lmc_testing::reference::write::block::{Block, Cluster, Column, Plain, Stream};
use lmc_testing::reference::write::entropy::{Coder, Pad, Table};

#[track_caller]
fn restored(block: &Block) {
    assert!(judged(&encoded(block)) == Ok(block.raw()));
}

/// Bytes as symbols of one cluster.
fn of_symbols(symbols: &[u8], coder: Coder) -> Block {
    one_cluster(0, Cluster { coder, ..Cluster::default() }, symbols.to_vec())
}

fn one_cluster(width_code: u8, cluster: Cluster, raw: Vec<u8>) -> Block {
    Block::of(Column::Plain(Plain { raw, width_code, stream: Stream::of(0, cluster) }), 2)
}

fn table(first: u8, entries: &[u16], escape: u16) -> Coder {
    Coder::Rans { log_slots: 12, table: Table { first, entries: entries.to_vec(), escape } }
}

/// Half of them are 0, a quarter 1, an eighth 2, ….
fn skewed(count: usize, random: &mut Random) -> Vec<u8> {
    (0..count).map(|_| random.u64().trailing_zeros() as u8).collect()
}

#[test]
fn tables_of_every_size() {
    let mut random = Random::new(1);
    for n in 1..=256u64 {
        for escape in [false, true] {
            let even: Vec<u8> = (0..700).map(|_| (random.below(n) ^ 255) as u8).collect();
            let uneven: Vec<u8> = (0..700).map(|_| (random.below(n).pow(2) / n) as u8).collect();
            for symbols in [even, uneven] {
                restored(&of_symbols(&symbols, Coder::fine_rans(&symbols, escape)));
            }
        }
    }
    let all: Vec<u8> = (0..=255).collect();
    restored(&of_symbols(&all, table(0, &[16; 256], 0)));
    restored(&of_symbols(&all, Coder::fine_rans(&all, true)));
}

#[test]
fn extreme_tables() {
    let mut random = Random::new(2);
    let mut far = [0; 256];
    (far[0], far[255]) = (4000, 95);
    let coders = [
        table(0, &[4095, 1], 0),
        table(0, &[4095], 1),
        table(0, &[1, 4095], 0),
        // Every symbol but one is a literal.
        table(77, &[1], 4095),
        table(255, &[1], 4095),
        table(0, &far, 1),
        table(1, &[16; 255], 16),
        table(0, &[16; 255], 16),
    ];
    for (i, coder) in coders.into_iter().enumerate() {
        let zeros_and_ones: Vec<u8> = (0..1000).map(|_| u8::from(random.below(20) == 0)).collect();
        let noise = random.bytes(1000);
        for symbols in [vec![0; 1000], vec![1; 1000], zeros_and_ones, noise] {
            let block = of_symbols(&symbols, coder.clone());
            match block.encode() {
                Ok(_) => restored(&block),
                Err(why) => assert!(i == 0 || i == 2, "table {i} has an escape, but {why}"),
            }
        }
    }
}

#[test]
fn every_length_around_a_run() {
    let mut random = Random::new(3);
    for count in (1..=130).chain([255, 256, 257, 383, 384, 385]) {
        let symbols = skewed(count, &mut random);
        // All symbols in the table; then some as literals, and the padding as well.
        for (known, pad) in [(&symbols[..], Pad::PadSymbol), (&symbols[..count / 2], Pad::PadSymbolAsLiteral)] {
            let escape = pad == Pad::PadSymbolAsLiteral;
            let cluster = Cluster { coder: Coder::fine_rans(known, escape), pad, ..Cluster::default() };
            restored(&one_cluster(0, cluster, symbols.clone()));
        }
    }
}

#[test]
fn symbols_with_raw_bits() {
    let mut random = Random::new(4);
    // Elements of 16 bits, four of them dropped above a 4-bit symbol; most symbols are literals.
    let raw = random.bytes(2 * 500);
    let coder = Coder::fine_rans(&[0, 0, 1, 2, 3], true);
    let cluster = Cluster { k: 8, h: 4, coder, constant: Some(0x1234), ..Cluster::default() };
    let few = raw.chunks(2).flat_map(|e| [e[0], 0x10 | e[1] & 15]).collect();
    restored(&one_cluster(1, cluster, few));
    // And one of eight bits between sign and raw bits.
    let cluster = Cluster { k: 7, z: 1, sign_plane: true, coder: Coder::fine_rans(&raw, false), ..Cluster::default() };
    restored(&one_cluster(1, cluster, raw));
}

#[test]
fn coders_mixed_in_a_block() {
    let mut random = Random::new(5);
    for _ in 0..200 {
        let column = |random: &mut Random| {
            let elements = 1 + random.below(2500) as usize;
            let symbols = skewed(elements, random);
            let cluster_of: Vec<u8> = (0..elements.div_ceil(128)).map(|_| random.below(5) as u8).collect();
            let known = &symbols[..elements / 2 + 1];
            let escape = |random: &mut Random| random.below(2) == 0;
            // Tables of half of the symbols may lack one and need an escape; a fine one can have them all.
            let coders = [
                Coder::huffman(known, true),
                Coder::fine_rans(&symbols, escape(random)),
                Coder::rans(known, true),
                Coder::fine_rans(known, true),
            ];
            let mut clusters = coders.map(|coder| Cluster { coder, ..Cluster::default() }).to_vec();
            clusters.push(Cluster { k: 8, ..Cluster::default() });
            let cluster_map =
                Cluster { h: 5, coder: Coder::fine_rans(&cluster_of, escape(random)), ..Cluster::default() };
            let stream = Stream { cluster_of, cluster_map, clusters, ..Stream::default() };
            Column::Plain(Plain { raw: symbols, width_code: 0, stream })
        };
        let columns = vec![column(&mut random), column(&mut random)];
        let extents = (0..).zip(&columns).map(|(i, column)| (i, column.raw().len() as u64)).collect();
        restored(&Block { lane_sets: 2, columns, extents, states_repeats: false, final_state: 1 << 16 });
    }
}
