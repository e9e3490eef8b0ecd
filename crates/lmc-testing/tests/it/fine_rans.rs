//! rANS with 4096 slots: blocks of every kind that use it are restored, and each rule of its tables and lanes that a
//! block breaks is found.

use lmc_testing::handmade::{encoded, judged_block as judged, refused_block as refused};
use lmc_testing::input::Random;
use lmc_testing::reference::write::block::{Block, BlockFields, Cluster, Column, Plain, Stream};
use lmc_testing::reference::write::entropy::{Coder, Pad, Table};
use lmc_testing::reference::write::varint;

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

/// Symbols 1 … 255 have frequency 1, so that each costs 12 bits, and start at 3841, 3842, ….
fn rare_symbols() -> Coder {
    let mut entries = [1; 256];
    entries[0] = 4096 - 255;
    table(0, &entries, 0)
}

#[test]
fn lanes_refill_after_every_symbol_in_their_order() {
    // Symbols of frequency 1 in two chunks. By §5.2 a lane goes from 2^16 to 2^28, and then, with a word each, to 2^24,
    // 2^20 and 2^16, plus the start of the symbol; so that each word is the start of a symbol that was pushed before.
    let symbols: Vec<u8> = (0..256).map(|i| (i * 7 % 255 + 1) as u8).collect();
    let start = |i: usize| 3840 + u16::from(symbols[i]);
    let order = [0, 1, 2, 3].into_iter().flat_map(|from| (from..64).step_by(4));
    let words: Vec<u16> =
        [64, 128, 192].into_iter().flat_map(|first| order.clone().map(move |j| first + j)).map(start).collect();
    let states: [u32; 64] = std::array::from_fn(|j| (1 << 16) + u32::from(start(j)));

    // Chunks 0 and 2 belong to lane set 0.
    let (first, second) = symbols.split_at(128);
    let symbols = [first, &[0; 128], second].concat();
    let fields = encoded(&of_symbols(&symbols, rare_symbols()));
    assert_eq!(fields.words[0], words);
    assert_eq!(fields.states[0], states);
    assert_eq!(judged(&fields), Ok(symbols));
}

#[test]
fn lanes_without_words() {
    // Two symbols of frequency 2048 cost a bit each.
    let symbols: Vec<u8> = (0..128).map(|i| 200 + (i / 3 % 2) as u8).collect();
    let fields = encoded(&of_symbols(&symbols, table(200, &[2048, 2048], 0)));
    let bit = |i: usize| u32::from(symbols[i] - 200);
    let coded = std::array::from_fn(|j| (1 << 18) + 4096 * bit(64 + j) + 2048 * bit(j));
    assert_eq!(fields.states, [coded, [1 << 16; 64]]);
    assert!(fields.words.iter().all(Vec::is_empty));
    assert_eq!(judged(&fields), Ok(symbols));
}

#[test]
fn tables_as_they_are_written() {
    assert_eq!(table(5, &[127, 0, 3969], 0).table(), [5, 2, 127, 0, 0x81, 0x1f, 0]);
    assert_eq!(table(255, &[1], 4095).table(), [255, 0, 1, 0xff, 0x1f]);
    // The symbols in proportion to their counts.
    let symbols = [&[9; 3000][..], &[11; 1000]].concat();
    let Coder::Rans { table: fitted, .. } = Coder::fine_rans(&symbols, false) else { unreachable!("it is fine rANS") };
    assert_eq!((fitted.first, fitted.escape, fitted.entries.len()), (9, 0, 3));
    assert!(fitted.entries[0].abs_diff(3072) <= 2 && fitted.entries[1] == 0);
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

/// 200 bytes as raw bits, and a cluster without elements whose head is given from `h` on.
fn with_empty_cluster(head: &[u8]) -> BlockFields {
    let raw: Vec<u8> = (0..200).collect();
    let bits = || Cluster { k: 8, ..Cluster::default() };
    let (cluster_of, clusters) = (vec![0, 0], vec![bits(), bits()]);
    let stream = Stream { cluster_of, cluster_map: bits(), clusters, ..Stream::default() };
    let plain_column = Plain { raw, width_code: 0, stream };
    let mut fields = encoded(&Block::of(Column::Plain(plain_column), 2));
    let h = fields.columns[0].len() - 3;
    fields.columns[0].truncate(h);
    fields.columns[0].extend(head);
    fields
}

/// With a table for symbols of eight bits.
fn with_table(first: u8, count_less_one: u8, entries: &[u64]) -> BlockFields {
    let mut head = vec![0, 0, 12, first, count_less_one];
    entries.iter().for_each(|&entry| varint(&mut head, entry));
    with_empty_cluster(&head)
}

#[test]
fn broken_tables() {
    let accepted = |fields: &BlockFields| assert_eq!(judged(fields), Ok((0..200).collect()));
    let entries = |entry: u64, count: usize, escape: u64| [&vec![entry; count][..], &[escape]].concat();

    accepted(&with_table(0, 1, &[4095, 1, 0]));
    accepted(&with_table(255, 0, &[4095, 1]));
    accepted(&with_table(7, 0, &[1, 4095]));
    accepted(&with_table(0, 255, &entries(16, 256, 0)));
    refused(&with_table(255, 1, &[4095, 1, 0]), "above 255");
    refused(&with_table(1, 255, &entries(16, 256, 0)), "above 255");

    for entry in [4096, 1 << 12 | 1 << 32, (1 << 63) + 4096, u64::MAX] {
        refused(&with_table(0, 0, &[entry, 0]), "exceeds 4095");
        refused(&with_table(0, 0, &[0, entry]), "exceeds 4095");
        refused(&with_table(0, 1, &[entry, entry.wrapping_neg(), 0]), "exceeds 4095");
    }
    for entries in [[0, 0, 0], [4095, 0, 0], [0, 0, 4095], [4095, 2, 0], [4095, 1, 1], [4095, 4095, 2], [100, 28, 0]] {
        refused(&with_table(0, 1, &entries), "do not sum to 4096");
    }
    refused(&with_table(0, 15, &[&[4096 - 15][..], &entries(273, 15, 1)].concat()), "do not sum to 4096");

    // With an escape, 255 symbols at most have a frequency.
    accepted(&with_table(0, 254, &entries(16, 255, 16)));
    accepted(&with_table(0, 255, &[&[0][..], &entries(16, 255, 16)].concat()));
    refused(&with_table(0, 255, &[&[15][..], &entries(16, 255, 1)].concat()), "more than 255 symbols");

    // Entries are varints, and so without padding.
    let with_bytes = |bytes: &[u8]| with_empty_cluster(&[&[0, 0, 12, 0, 0][..], bytes].concat());
    accepted(&with_bytes(&[0xff, 0x1f, 1]));
    refused(&with_bytes(&[0xff, 0x9f, 0, 1]), "padded");
    refused(&with_bytes(&[0xff, 0x1f, 0x81, 0]), "padded");
    refused(&with_bytes(&[[0xff; 10], [0; 10]].concat()), "longer than 10 bytes");
    refused(&with_bytes(&[&[0xff; 9][..], &[0x7f, 1]].concat()), "exceeds 64 bits");
    for cut in 0..5 {
        let mut fields = with_empty_cluster(&[0, 0, 12, 0, 0, 0xff, 0x1f, 1][..3 + cut]);
        fields.digest.clear();
        refused(&fields, "too early");
    }
}

#[test]
fn broken_clusters() {
    // Symbols of two bits: the others are raw, or dropped.
    assert!(judged(&with_empty_cluster(&[0, 6, 12, 3, 0, 0xff, 0x1f, 1])).is_ok());
    assert!(judged(&with_empty_cluster(&[6, 0, 12, 0, 4, 0xff, 0x1f, 0, 0, 0, 0, 1])).is_ok());
    refused(&with_empty_cluster(&[0, 6, 12, 4, 0, 0xff, 0x1f, 1]), "too wide");
    refused(&with_empty_cluster(&[6, 0, 12, 3, 1, 0xff, 0x1f, 1, 0]), "too wide");
    // No bits, and nine.
    refused(&with_empty_cluster(&[0, 8, 12, 0, 0, 0xff, 0x1f, 1]), "impossible width");
    let nine = Cluster { k: 7, coder: Coder::fine_rans(&[0, 1], true), ..Cluster::default() };
    refused(&encoded(&one_cluster(1, nine, vec![0; 2])), "impossible width");
    for coder in [2, 3, 6, 8, 11, 13, 255] {
        refused(&with_empty_cluster(&[0, 0, coder, 0, 0, 0xff, 0x1f, 1]), "unknown coder");
    }

    let mut no_lanes = with_table(0, 0, &[4095, 1]);
    no_lanes.lane_sets = 0;
    no_lanes.word_counts.clear();
    no_lanes.states.clear();
    refused(&no_lanes, "no lanes");
}

#[test]
fn broken_lanes() {
    let symbols = skewed(700, &mut Random::new(6));
    let block = of_symbols(&symbols, Coder::fine_rans(&[0, 0, 0, 1, 1, 2, 3, 4], true));
    restored(&block);
    let refused_if = |reason: &str, change: &dyn Fn(&mut BlockFields)| {
        let mut fields = encoded(&block);
        change(&mut fields);
        refused(&fields, reason);
    };
    for set in 0..2 {
        refused_if("words are left over", &|fields| {
            fields.words[set].push(0);
            fields.word_counts[set] += 1;
        });
        refused_if("too early", &|fields| {
            fields.words[set].pop();
            fields.word_counts[set] -= 1;
        });
        refused_if("", &|fields| fields.states[set][63] ^= 1);
        refused_if("", &|fields| fields.words[set][0] ^= 1 << 15);
    }
    refused_if("literals are left over", &|fields| {
        fields.literals.push(0);
        fields.literal_count += 1;
    });
    refused_if("too early", &|fields| {
        fields.literals.pop();
        fields.literal_count -= 1;
    });
    for final_state in [(1 << 16) + 1, 1 << 20, u32::MAX] {
        refused(&encoded(&Block { final_state, ..block.clone() }), "final state");
    }
}

#[test]
fn initial_states_below_2_to_the_16() {
    // Symbol 1 (frequency 1, start 4095) takes the state 4096 + 4095 to 1, the word 16 makes it 2^16 + 16, and symbol 0
    // (frequency 4095) takes that to 2^16: all is well, but for the state at the start.
    let symbols = [[1; 64], [0; 64]].concat();
    let mut fields = encoded(&of_symbols(&symbols, table(0, &[4095, 1], 0)));
    assert_eq!(judged(&fields), Ok(symbols));
    assert!(fields.words[0].is_empty());
    fields.states[0] = [4096 + 4095; 64];
    fields.words[0] = vec![16; 64];
    fields.word_counts[0] = 64;
    refused(&fields, "initial state");
}

#[test]
fn padding_is_the_lowest_of_the_most_frequent_symbols() {
    let padded = |coder: &Coder, pad| {
        let cluster = Cluster { coder: coder.clone(), pad, ..Cluster::default() };
        encoded(&one_cluster(0, cluster, vec![3, 5, 3]))
    };
    let tie = table(3, &[2000, 0, 2000, 90], 6);
    for right in [Pad::PadSymbol, Pad::Symbol(3), Pad::PadSymbolAsLiteral, Pad::Literal(3)] {
        assert_eq!(judged(&padded(&tie, right)), Ok(vec![3, 5, 3]));
    }
    for wrong in [Pad::Symbol(5), Pad::Symbol(6), Pad::Literal(5), Pad::Literal(0)] {
        refused(&padded(&tie, wrong), "pad symbol");
    }
    // The escape is no pad symbol, however frequent.
    let escapes = table(3, &[1, 0, 2], 4093);
    assert!(judged(&padded(&escapes, Pad::Symbol(5))).is_ok());
    refused(&padded(&escapes, Pad::Symbol(3)), "pad symbol");
}
