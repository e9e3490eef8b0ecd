//! Blocks that no honest writer makes: each breaks one rule of the format, with all checks in order, and is refused by
//! every decoder for that reason.

use lmc_testing::damage::{HUGE, cluster_map, file_of, refused};
use lmc_testing::decoders::{LIMIT, agree};
use lmc_testing::reference::write::block::{self, Block, BlockFields, Cluster, Column, Plain, Stream};
use lmc_testing::reference::write::entropy::Coder;
use lmc_testing::reference::write::{File, entropy};
use lmc_testing::samples::cluster_map_block;

/// The cluster map block with a change that must be refused.
#[track_caller]
fn refused_block(reason: &str, change: impl FnOnce(&mut BlockFields)) {
    let mut fields = cluster_map();
    change(&mut fields);
    let mut record = fields.record();
    record.redigest(LIMIT);
    refused(&File::new(vec![record]).to_bytes(), reason);
}

/// The cluster map block with a change that may leave it valid.
#[track_caller]
fn judged_block(change: impl FnOnce(&mut BlockFields)) {
    let mut fields = cluster_map();
    change(&mut fields);
    let mut record = fields.record();
    record.redigest(LIMIT);
    // It only matters that all agree.
    let _ = agree(&File::new(vec![record]).to_bytes());
}

/// Offset, in the head of the column of the cluster map block, of the first byte of cluster `g` (0 is the cluster map).
fn cluster_at(g: usize) -> usize {
    let block = cluster_map_block();
    let Column::Plain(plain_column) = &block.columns[0] else { unreachable!("the block is plain_column") };
    let stream = &plain_column.stream;
    let sizes =
        [&stream.cluster_map].into_iter().chain(&stream.clusters).map(|cluster| 5 + cluster.coder.table().len());
    // Method, width, map, mask, number of clusters, patches.
    6 + sizes.take(g).sum::<usize>()
}

#[test]
fn the_block_that_is_damaged_is_valid() {
    let raw = cluster_map_block().raw();
    assert!(agree(&file_of(&cluster_map()).to_bytes()).is_ok_and(|decoded| decoded == raw));
}

#[test]
fn heads_of_blocks() {
    refused_block("impossible length", |block| block.raw_length = 0);
    for lane_sets in [1, 3, 255] {
        refused_block("lane sets", |block| block.lane_sets = lane_sets);
    }
    for count in HUGE {
        refused_block("", |block| block.raw_length = count);
        refused_block("", |block| block.word_counts[1] = count as u32);
        refused_block("", |block| block.literal_count = count as u32);
    }
    for (first, second) in [(1, u32::MAX), (u32::MAX, 1), (1 << 31, 1 << 31)] {
        refused_block("", |block| {
            block.word_counts[0] = block.word_counts[0].wrapping_add(first);
            block.word_counts[1] = block.word_counts[1].wrapping_add(second);
        });
    }
    refused_block("number of columns", |block| block.column_count = 0);
    refused_block("follows the digest", |block| block.digest.push(0));
    refused_block("too early", |block| block.digest.clear());
    refused_block("unknown method", |block| block.columns[0][0] = 5);
    refused_block("width code", |block| block.columns[0][1] = 4);
    refused_block("width code", |block| block.columns[0][1] = 255);
    refused_block("unknown map", |block| block.columns[0][2] = 4);
    refused_block("unknown mask", |block| block.columns[0][3] = 4);
    refused_block("patches of an unknown kind", |block| block.columns[0][5] = 3);
    refused_block("neither a mask nor clusters", |block| block.columns[0][4] = 0);
    refused_block("number of clusters", |block| block.columns[0][4] = 17);
    refused_block("padded", |block| {
        block.columns[0].splice(4..5, [0x83, 0]);
    });
}

#[test]
fn columns_and_extents() {
    let columns = |count: u8| {
        let mut block = cluster_map_block();
        let length = block.raw().len() as u64;
        block.columns.extend((1..count).map(|i| Column::Stored(vec![i; 10])));
        block.extents = (0..count).map(|column| (column, if column == 0 { length } else { 10 })).collect();
        block.encode().expect("the block can be coded")
    };
    let refused_columns = |reason: &str, change: &dyn Fn(&mut BlockFields)| {
        let mut fields = columns(3);
        change(&mut fields);
        let mut record = fields.record();
        record.redigest(LIMIT);
        refused(&File::new(vec![record]).to_bytes(), reason);
    };
    assert!(agree(&file_of(&columns(16)).to_bytes()).is_ok());
    refused(&file_of(&columns(17)).to_bytes(), "number of columns");
    refused_columns("belongs to no column", &|block| block.extents[2].0 = 3);
    refused_columns("belongs to no column", &|block| block.extents[2].0 = 254);
    refused_columns("a column is empty", &|block| block.extents[2].0 = 1);
    refused_columns("extent is empty", &|block| block.extents[2].1 = 0);
    refused_columns("exceed the block", &|block| block.extents[2].1 = 11);
    refused_columns("do not fill", &|block| block.extents[2].1 = 9);
    refused_columns("no multiple", &|block| {
        block.extents[0].1 -= 1;
        block.extents[1].1 += 1;
    });
    for count in HUGE.into_iter().chain([0, 1, 2, 4]) {
        refused_columns("", &|block| block.extent_count = count);
        refused_columns("", &|block| block.extents[1].1 = count.max(11));
    }
    refused_columns("too many extents", &|block| block.extent_count = (1 << 20) + 1);
}

#[test]
fn repeated_extents() {
    let columns = [&b"aaaaaaaaaaaaaa"[..], b"bbbbbbbb", b"ccc"].map(|bytes| Column::Stored(bytes.to_vec())).into();
    // Three times `aabbc`, twice `aaaab`.
    let period = [(0, 2), (1, 2), (2, 1)];
    let extents = [&period[..], &period, &period, &[(0, 4), (1, 1), (0, 4), (1, 1)]].concat();
    let block = Block { lane_sets: 0, columns, extents, states_repeats: true, final_state: 1 << 16 };
    let fields = block.encode().expect("the block can be coded");
    assert_eq!((fields.extents.len(), fields.extent_count), (5, 7));
    assert_eq!(agree(&file_of(&fields).to_bytes()), Ok(b"aabbcaabbcaabbcaaaabaaaab".to_vec()));
    let refused_repeat = |reason: &str, change: &dyn Fn(&mut BlockFields)| {
        let mut fields = fields.clone();
        change(&mut fields);
        let mut record = fields.record();
        record.redigest(LIMIT);
        refused(&File::new(vec![record]).to_bytes(), reason);
    };
    refused_repeat("a repeat of no extents", &|block| block.repeats[0].count = 0);
    refused_repeat("a repeat of no times", &|block| block.repeats[0].times = 0);
    refused_repeat("goes back too far", &|block| block.repeats[0].count = 4);
    // It would repeat a repeat.
    refused_repeat("goes back too far", &|block| block.repeats[1].count = 3);
    refused_repeat("goes back too far", &|block| block.repeats[1].before = 3);
    refused_repeat("exceed the block", &|block| block.repeats[0].times = 5);
    refused_repeat("exceed the block", &|block| block.repeats[0].times = 3);
    refused_repeat("do not fill", &|block| block.repeats[0].times = 1);
    refused_repeat("do not fill", &|block| block.repeats[1].count = 1);
    for huge in HUGE {
        refused_repeat("goes back too far", &|block| block.repeats[1].count = huge);
        refused_repeat("exceed the block", &|block| block.repeats[1].times = huge);
    }
    // A million extents and one: three, and the rest by a repeat.
    let many = |extents: u64| {
        let columns = vec![Column::Stored(vec![0; extents as usize - 1]), Column::Stored(vec![1])];
        let all = (0..extents - 1).map(|_| (0, 1)).chain([(1, 1)]).collect();
        Block { lane_sets: 0, columns, extents: all, states_repeats: true, final_state: 1 << 16 }
            .encode()
            .expect("it can be coded")
    };
    assert!(agree(&file_of(&many(1 << 20)).to_bytes()).is_ok());
    refused(&file_of(&many((1 << 20) + 1)).to_bytes(), "too many extents");
}

#[test]
fn clusters() {
    for g in 0..4 {
        let at = cluster_at(g);
        for bit in 2..8 {
            refused_block("unknown flag", |block| block.columns[0][at] |= 1 << bit);
        }
        for field in 1..4 {
            refused_block("more bits", |block| block.columns[0][at + field] = 255);
            judged_block(|block| block.columns[0][at + field] += 1);
        }
        refused_block("unknown coder", |block| block.columns[0][at + 4] = 4);
    }
    // Symbols without a coder, of no bits, and of nine.
    refused_block("no coder", |block| block.columns[0][cluster_at(0) + 3] = 6);
    refused_block("impossible width", |block| block.columns[0][cluster_at(1) + 3] = 28);
    refused_block("impossible width", |block| block.columns[0][cluster_at(1) + 3] = 19);
    // A run of no cluster: the first byte of the bit planes of the cluster map, which are the first of the bulk.
    refused_block("a run is of no cluster", |block| block.bulk[0][0] |= 1 << 1);
    // The cluster map has six elements in each of its bit planes, the last run 75.
    refused_block("unused bits", |block| block.bulk[0][0] |= 1 << 6);
    refused_block("unused bits", |block| block.bulk[0][6] |= 1 << 7);
    let planes = 7 + 3 * (2 * 128 + 4 * 16) + 2 * 75;
    for plane in 0..4 {
        refused_block("unused bits", |block| block.bulk[0][planes + 10 * plane + 9] |= 1 << (3 + plane));
    }
}

#[test]
fn tables() {
    // Cluster 0 (rANS) stands at 1, the empty cluster (Huffman) at 2, the last one (Huffman) at 3.
    for (g, sum) in [(1, "do not sum to 128"), (2, "not complete"), (3, "not complete")] {
        let table = cluster_at(g) + 5;
        refused_block("above 255", |block| {
            block.columns[0][table] = 255;
            block.columns[0][table + 1] = block.columns[0][table + 1].max(1);
        });
        refused_block(sum, |block| block.columns[0][table + 2] += 1);
        refused_block(sum, |block| block.columns[0][table + 2] -= 1);
        judged_block(|block| block.columns[0][table + 1] += 1);
        judged_block(|block| block.columns[0][table + 1] -= 1);
        judged_block(|block| block.columns[0][table + 1] = 255);
    }
    refused_block("exceeds 127", |block| {
        block.columns[0].splice(cluster_at(1) + 7..cluster_at(1) + 8, [0x80, 1]);
    });
    refused_block("code length exceeds 7", |block| block.columns[0][cluster_at(3) + 7] = 0x88);
    // Three symbols and the escape make two bytes; of two symbols and the escape, half a byte is left over.
    let empty_cluster = |table: &'static [u8], coder: u8, k: u8| {
        move |block: &mut BlockFields| {
            let (from, to) = (cluster_at(2), cluster_at(3));
            block.columns[0].splice(from..to, [&[0, 0, 0, k, coder][..], table].concat());
        }
    };
    let valid = |table, coder, k| {
        let mut fields = cluster_map();
        empty_cluster(table, coder, k)(&mut fields);
        assert!(agree(&file_of(&fields).to_bytes()).is_ok());
    };
    valid(&[254, 1, 0x11, 0x00], 1, 24);
    valid(&[254, 1, 0x21, 0x02], 1, 24);
    refused_block("half-byte", empty_cluster(&[254, 1, 0x11, 0x10], 1, 24));
    refused_block("above 255", empty_cluster(&[255, 1, 0x11, 0x00], 1, 24));
    valid(&[0, 0, 0x11], 1, 31);
    valid(&[0, 1, 64, 64, 0], 7, 31);
    refused_block("too wide", empty_cluster(&[0, 2, 0, 64, 64, 0], 7, 31));
    refused_block("too wide", empty_cluster(&[2, 0, 0x11], 1, 31));
    valid(&[0, 2, 64, 64, 0, 0], 7, 31);
    // Only the escape: its frequency would be 128, or its code incomplete.
    refused_block("127", empty_cluster(&[0, 0, 0, 0x80, 1], 7, 24));
    refused_block("sum to 128", empty_cluster(&[0, 0, 0, 127], 7, 24));
    refused_block("not complete", empty_cluster(&[0, 0, 0x10], 1, 24));
    refused_block("127", empty_cluster(&[0, 0, 0x80, 1, 0], 7, 24));
    refused_block("not complete", empty_cluster(&[0, 0, 0x01], 1, 24));
    refused_block("not complete", empty_cluster(&[0, 0, 0x00], 1, 24));
    refused_block("sum to 128", empty_cluster(&[0, 2, 100, 100, 56, 0], 7, 24));
    refused_block("not complete", empty_cluster(&[0, 2, 0x11, 0x01], 1, 24));
    refused_block("not complete", empty_cluster(&[0, 2, 0x21, 0x00], 1, 24));
}

/// The literals of a cluster whose symbols have six bits.
#[test]
fn literals() {
    let raw: Vec<u8> = (0..300u32).map(|i| if i % 50 == 7 { 40 } else { (i % 5) as u8 }).collect();
    let cluster = Cluster { h: 2, coder: Coder::fine_rans(&[0, 1, 2, 3, 4], true), ..Cluster::default() };
    let block = block::Block::of(Column::Plain(Plain { raw, width_code: 0, stream: Stream::of(0, cluster) }), 2);
    let with_literal = |literal| {
        let mut fields = block.encode().expect("the block can be coded");
        assert_eq!(fields.literals[..6], [40; 6]);
        fields.literals[2] = literal;
        let mut record = fields.record();
        record.redigest(LIMIT);
        File::new(vec![record]).to_bytes()
    };
    assert!(agree(&with_literal(63)).is_ok_and(|raw| raw[107] == 63));
    for literal in [64, 255] {
        refused(&with_literal(literal), "a literal is too wide");
    }
}

#[test]
fn lanes() {
    for (set, lane) in [(0, 0), (0, 63), (1, 17)] {
        for state in [0, 1, (1 << 16) - 1] {
            refused_block("", |block| block.states[set][lane] = state);
        }
        refused_block("", |block| block.states[set][lane] ^= 1 << 31);
    }
    for set in 0..2 {
        refused_block("words are left over", |block| {
            block.words[set].push(0);
            block.word_counts[set] += 1;
        });
        refused_block("", |block| {
            block.words[set].pop();
            block.word_counts[set] -= 1;
        });
    }
    // A word moved from one set to the other, which leaves the length of the body as it was.
    refused_block("", |block| {
        block.word_counts[0] += 1;
        block.word_counts[1] -= 1;
    });
    refused_block("literals are left over", |block| {
        block.literals.push(0);
        block.literal_count += 1;
    });
    refused_block("too early", |block| {
        block.literals.pop();
        block.literal_count -= 1;
    });
    refused_block("too long", |block| block.bulk[0].push(0));
    refused_block("", |block| block.bulk[0].truncate(100));

    let refused_coded = |reason: &str, change: &dyn Fn(&mut block::Block)| {
        let mut block = cluster_map_block();
        change(&mut block);
        refused(&file_of(&block.encode().expect("the block can be coded")).to_bytes(), reason);
    };
    for state in [(1 << 16) + 1, 1 << 20, u32::MAX >> 1] {
        refused_coded("final state", &|block| block.final_state = state);
    }
    let pad = |block: &mut block::Block, pad| {
        let Column::Plain(plain_column) = &mut block.columns[0] else { unreachable!("the block is plain_column") };
        plain_column.stream.clusters[0].pad = pad;
    };
    for wrong in [entropy::Pad::Symbol(101), entropy::Pad::Symbol(102), entropy::Pad::Literal(101)] {
        refused_coded("pad symbol", &|block| pad(block, wrong));
    }
    // No lanes where there are symbols, and lanes where there are none.
    refused_block("no lanes", |block| {
        block.lane_sets = 0;
        block.word_counts.clear();
        block.states.clear();
        block.words.clear();
    });
    let mut stored = block::Block::of(Column::Stored(vec![1, 2, 3]), 2).encode().expect("the block can be coded");
    assert!(agree(&file_of(&stored).to_bytes()).is_ok());
    stored.states[1][5] += 1;
    refused(&file_of(&stored).to_bytes(), "final state");
}
