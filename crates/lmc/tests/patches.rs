//! Patches (§3.3.2): known bytes, and each rule that a block with patches breaks.

use lmc::reference::write::block::{Block, BlockFields, Group, Grouped, Part, Patch, Section};
use lmc::reference::write::{File, varint};
use lmc_testing::decoders::{LIMIT, agree};
use lmc_testing::input::Random;

/// What all decoders make of a block, after its digests were made to fit what it decodes to.
fn judged(fields: &BlockFields) -> Result<Vec<u8>, String> {
    let mut record = fields.record();
    record.redigest(LIMIT);
    agree(&File::new(vec![record]).to_bytes())
}

/// All bits raw: the bulk is byte planes, then patches.
fn plain(width_code: u8) -> Group {
    Group { k: 8 << width_code, ..Group::default() }
}

/// Elements in one group.
fn block(raw: Vec<u8>, width_code: u8, map: u8, group: Group, patches: &[(u64, u64)]) -> Block {
    let patches = patches.iter().map(|&(element, x)| Patch { element, x }).collect();
    let section = Section { patches, ..Section::of(map, group) };
    Block::of(Part::Grouped(Grouped { raw, width_code, section }), 0)
}

fn encoded(block: &Block) -> BlockFields {
    block.encode().expect("the block can be coded")
}

#[test]
fn patches_as_they_are_written() {
    let fields = encoded(&block(vec![1, 2, 3, 4], 0, 0, plain(0), &[(0, 0xff), (3, 0x80)]));
    assert_eq!(fields.parts[0], [2, 0, 0, 1, 2, 6, 1, 0, 0, 0, 8, 0]);
    assert_eq!(fields.bulk[0], [1 ^ 0xff, 2, 3, 4 ^ 0x80, 0, 0xff, 1, 3, 0x80, 1]);
    assert_eq!(judged(&fields), Ok(vec![1, 2, 3, 4]));
}

#[test]
fn patches_change_mapped_values() {
    // Rotated, 0xbf80 is 0x7f01. Only the top byte is coded but for the patch.
    let group = Group { constant: Some(0), z: 8, k: 8, ..Group::default() };
    let fields = encoded(&block(vec![0x80, 0xbf], 1, 1, group, &[(0, 0x0101)]));
    assert_eq!(fields.bulk[0], [0x7e, 0, 0x81, 0x02]);
    assert_eq!(judged(&fields), Ok(vec![0x80, 0xbf]));
    // Zigzag: −3 is 5.
    let fields = encoded(&block(vec![0xfd], 0, 2, plain(0), &[(0, 4)]));
    assert_eq!(fields.bulk[0], [1, 0, 4]);
    assert_eq!(judged(&fields), Ok(vec![0xfd]));
}

#[test]
fn patches_reach_the_last_element_of_any_section() {
    let mut random = Random::new(1);
    for count in [1u64, 2, 127, 128, 129, 256, 1000] {
        for width_code in 0..4 {
            // No bits in the groups: patches alone make the elements.
            let w = 8u32 << width_code;
            let group = Group { z: w as u8, ..Group::default() };
            let x = u64::MAX >> (64 - w);
            let mut raw = vec![0; (count << width_code) as usize];
            raw[((count - 1) << width_code) as usize..].fill(0xff);
            let fields = encoded(&block(raw.clone(), width_code, 0, group.clone(), &[(count - 1, x)]));
            assert_eq!(judged(&fields), Ok(raw));

            // And all of them.
            let elements: Vec<u64> = (0..count).map(|_| 1 | random.u64() & x).collect();
            let raw: Vec<u8> = elements.iter().flat_map(|u| u.to_le_bytes()[..1 << width_code].to_vec()).collect();
            let patches: Vec<(u64, u64)> = (0..).zip(elements).collect();
            let fields = encoded(&block(raw.clone(), width_code, 0, group, &patches));
            assert_eq!(judged(&fields), Ok(raw));
        }
    }
}

#[test]
fn patches_of_several_groups_come_last() {
    // The second group has no bits but a constant, from which a patch takes the last element.
    let mut raw: Vec<u8> = (0..200).map(|i| if i < 128 { i } else { 255 }).collect();
    raw[199] ^= 2;
    let section = Section {
        classes: vec![0, 1],
        class_map: plain(0),
        groups: vec![plain(0), Group { constant: Some(255), z: 8, ..Group::default() }],
        patches: vec![Patch { element: 127, x: 1 }, Patch { element: 199, x: 2 }],
        ..Section::default()
    };
    let part = Part::Grouped(Grouped { raw: raw.clone(), width_code: 0, section });
    let fields = encoded(&Block::of(part, 0));
    let values: Vec<u8> = (0..127).chain([126]).collect();
    assert_eq!(fields.bulk[0], [&[0, 1][..], &values, &[127, 1, 72, 2]].concat());
    assert_eq!(judged(&fields), Ok(raw));
}

/// Ten bytes with these bytes as their patches, of which there are said to be `count`.
fn with_patches(count: u64, patches: &[u8]) -> BlockFields {
    let mut fields = encoded(&block((0..10).collect(), 0, 0, plain(0), &[(0, 1)]));
    fields.parts[0].truncate(3);
    fields.parts[0].push(1);
    varint(&mut fields.parts[0], count);
    varint(&mut fields.parts[0], patches.len() as u64);
    fields.parts[0].extend([1, 0, 0, 0, 8, 0]);
    fields.bulk[0] = (0..10).collect();
    fields.bulk[0].extend(patches);
    fields
}

#[track_caller]
fn refused(fields: &BlockFields, reason: &str) {
    match judged(fields) {
        Ok(_) => panic!("a block is accepted that breaks a rule: {reason}"),
        Err(why) => assert!(why.contains(reason), "the reason is: {why}, but not: {reason}"),
    }
}

#[test]
fn broken_patches() {
    assert_eq!(judged(&with_patches(2, &[2, 4, 7, 0x80, 1])), Ok(vec![0, 1, 6, 3, 4, 5, 6, 7, 8, 0x89]));
    refused(&with_patches(0, &[]), "none of them");
    refused(&with_patches(0, &[1, 1]), "none of them");
    refused(&with_patches(1, &[10, 1]), "not in its section");
    refused(&with_patches(2, &[9, 1, 1, 1]), "not in its section");
    refused(&with_patches(1, &[[0xff; 9].as_slice(), &[1, 1]].concat()), "not in its section");
    // 2^64 − 1 and 4 more are 3, modulo 2^64.
    refused(&with_patches(2, &[&[3, 1][..], &[0xff; 9], &[1, 1]].concat()), "not in its section");
    refused(&with_patches(2, &[3, 1, 0, 2]), "the same element");
    refused(&with_patches(1, &[3, 0]), "changes nothing");
    refused(&with_patches(1, &[3, 0x80, 2]), "wider than its element");
    refused(&with_patches(1, &[&[3][..], &[0xff; 9], &[1]].concat()), "wider than its element");
    refused(&with_patches(1, &[3, 1, 0]), "follows the last patch");
    refused(&with_patches(1, &[3, 1, 1, 1]), "follows the last patch");
    refused(&with_patches(2, &[3, 1]), "too early");
    refused(&with_patches(1, &[3]), "too early");
    refused(&with_patches(1, &[]), "too early");
    refused(&with_patches(1, &[3, 0x81, 0]), "padded");
    refused(&with_patches(1, &[0x83, 0, 1]), "padded");
    for count in [3, 1 << 32, u64::MAX] {
        refused(&with_patches(count, &[2, 4, 7, 0x80, 1]), "too early");
    }

    let changed = |at: usize, byte: u8| {
        let mut fields = with_patches(1, &[3, 1]);
        fields.parts[0][at] = byte;
        fields
    };
    refused(&changed(3, 2), "unknown kind");
    refused(&changed(3, 255), "unknown kind");
    // The bytes of the patches are one more or fewer.
    refused(&changed(5, 1), "too early");
    refused(&changed(5, 3), "too early");
    let mut huge = with_patches(1, &[3, 1]);
    huge.parts[0].splice(5..6, [[0xff; 9].as_slice(), &[1]].concat());
    refused(&huge, "too early");
    let mut more = with_patches(1, &[3, 1]);
    more.bulk[0].push(0);
    refused(&more, "too long");
}

#[test]
fn patches_as_wide_as_their_elements() {
    for width_code in 0..3u8 {
        let w = 8 << width_code;
        let refused_x = |x: u64| {
            let mut fields = encoded(&block(vec![7; 1 << width_code], width_code, 0, plain(width_code), &[(0, 1)]));
            let mut patches = vec![0];
            varint(&mut patches, x);
            fields.parts[0][5] = patches.len() as u8;
            fields.bulk[0] = [&vec![7; 1 << width_code][..], &patches].concat();
            judged(&fields)
        };
        assert!(refused_x((1 << w) - 1).is_ok());
        assert!(refused_x(1 << w).is_err_and(|why| why.contains("wider than its element")));
    }
}
