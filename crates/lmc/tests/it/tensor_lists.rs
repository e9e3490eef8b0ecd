//! Tensor lists (§3.8): known bytes, and each rule that a list breaks.

use lmc_testing::damage;
use lmc_testing::decoders::{self, LIMIT};
use lmc_testing::reference::write::File;
use lmc_testing::reference::write::block::{Block, BlockFields, Column};
use lmc_testing::reference::write::tensor_list::{LIST_DTYPES, TensorList};
use lmc_testing::reference::write::{varint, zstd_frame};
use safetensors::tensor::{Dtype, TensorView, serialize};
use std::collections::HashMap;

/// A file of one block, with the digest of its decoded bytes if it can be decoded.
fn file(fields: &BlockFields) -> Vec<u8> {
    let mut record = fields.record();
    record.redigest(LIMIT);
    File::new(vec![record]).to_bytes()
}

fn fields(raw: &[u8], list: &[u8]) -> BlockFields {
    let column = Column::TensorList { raw: raw.to_vec(), list: list.to_vec() };
    Block::of(column, 0).encode().expect("the block can be coded")
}

#[track_caller]
fn is_told(list: &TensorList) {
    let raw = list.raw();
    let file = file(&fields(&raw, &list.list()));
    assert_eq!(decoders::agree(&file), Ok(raw));
}

/// Asserts that a column of these bytes is refused.
#[track_caller]
fn refused_column(raw: &[u8], list: &[u8], reason: &str) {
    damage::refused(&file(&fields(raw, list)), reason);
}

/// Asserts that an invalid list is refused although the column is that of a decoder without checks.
#[track_caller]
fn refused(list: &TensorList, reason: &str) {
    refused_column(&list.raw(), &list.list(), reason);
}

const F32: u8 = 10;
const U8: u8 = 2;
const F4: u8 = 18;

fn sound() -> TensorList {
    TensorList::new("{", &[("wä", F32, &[2, 3]), ("wäé", U8, &[2, 3]), ("b", F4, &[8])], "} ")
}

/// The bytes of the list of [`sound`] with one changed.
#[track_caller]
fn refused_byte(at: usize, from: u8, to: u8, reason: &str) {
    let mut list = sound().list();
    assert_eq!(list[at], from);
    list[at] = to;
    refused_column(&sound().raw(), &list, reason);
}

#[test]
fn a_list_and_what_it_tells() {
    #[rustfmt::skip]
    let list = [
        &[13][..], "{\"größe\":1,".as_bytes(),
        &[6],
        // Dtype, shared, the rest of the name, rank, dimensions.
        &[10, 0, 15], "model.ä.weight".as_bytes(), &[2, 2, 3],
        &[0x80 | 9, 10, 4], b"\"2\\\n",
        &[18, 8, 0, 1, 2],
        &[2, 0, 0, 0],
        &[12, 0, 3], "漢".as_bytes(), &[2, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        &[0x80 | 17, 3, 0],
        &[3], b"}  ",
    ]
    .concat();
    let text = concat!(
        "{\"größe\":1,",
        "\"model.ä.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},",
        "\"model.ä.w\"2\\\n\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[24,36]},",
        "\"model.ä\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[36,37]},",
        "\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[37,38]},",
        "\"漢\":{\"dtype\":\"I64\",\"shape\":[0,18446744073709551615],\"data_offsets\":[38,38]},",
        "\"漢\":{\"dtype\":\"F8_E8M0\",\"shape\":[0,18446744073709551615],\"data_offsets\":[38,38]}",
        "}  ",
    );
    let raw = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let fields = fields(&raw, &list);
    let frame = zstd_frame(&list);
    assert_eq!(fields.columns, [vec![4, list.len() as u8, frame.len() as u8]]);
    assert_eq!(fields.bulk, [frame]);
    assert_eq!(decoders::agree(&file(&fields)), Ok(raw.clone()));

    let mut described = TensorList::new("{\"größe\":1,", &[], "}  ");
    let without_elements = [0, u64::MAX];
    described.push("model.ä.weight", 10, &[2, 3], 99, true);
    described.push("model.ä.w\"2\\\n", 9, &[2, 3], 99, true);
    described.push("model.ä", 18, &[2], 99, true);
    described.push("", 2, &[], 99, true);
    described.push("漢", 12, &without_elements, 99, true);
    described.push("漢", 17, &without_elements, 99, true);
    assert_eq!((described.list(), described.raw()), (list, raw));
}

#[test]
fn a_header_of_the_safetensors_crate() {
    let bytes = [0; 24];
    let view = |dtype, shape: &[usize], length| TensorView::new(dtype, shape.to_vec(), &bytes[..length]).unwrap();
    let tensors = [
        ("b", view(Dtype::F32, &[2, 3], 24)),
        ("a\"ä\n", view(Dtype::F32, &[], 4)),
        ("c", view(Dtype::BF16, &[3, 0], 0)),
        ("d", view(Dtype::F4, &[6], 3)),
    ];
    let sparse: [(&str, u8, &[u64]); 4] =
        [(r#"a\"ä\n"#, 10, &[]), ("b", 10, &[2, 3]), ("c", 9, &[3, 0]), ("d", 18, &[6])];
    for (metadata, front) in
        [(None, "{"), (Some(HashMap::from([("format".into(), "pt".into())])), r#"{"__metadata__":{"format":"pt"},"#)]
    {
        let file = serialize(tensors.clone(), metadata).unwrap();
        let header = &file[..file.len() - 31];
        let end = header.iter().rposition(|&byte| byte == b'}').unwrap();
        let list = TensorList::new(front, &sparse, str::from_utf8(&header[end..]).unwrap());
        assert_eq!(String::from_utf8_lossy(&list.raw()), String::from_utf8_lossy(header));
        is_told(&list);
    }
}

#[test]
fn every_dtype() {
    let mut list = TensorList::new("", &[], "");
    for (code, (name, _)) in (0..).zip(LIST_DTYPES).skip(1) {
        list.push(name, code, &[4], 0, code % 2 == 0);
    }
    is_told(&list);
    let text = String::from_utf8_lossy(&list.raw()[8..]).into_owned();
    for (name, bits) in LIST_DTYPES.iter().skip(1) {
        let end = bits / 2;
        let tensor = format!(r#""{name}":{{"dtype":"{name}","shape":[4],"data_offsets":["#);
        let (_, after) = text.split_once(&tensor).unwrap();
        let (begin, after) = after.split_once(',').unwrap();
        let begin: u64 = begin.parse().unwrap();
        assert!(after.starts_with(&format!("{}]}}", begin + end)), "{name}: {after}");
    }
}

#[test]
fn limits_are_reached() {
    is_told(&sound());
    is_told(&TensorList::new("", &[("", U8, &[])], ""));
    is_told(&TensorList::new("", &[("", U8, &[1; 64])], ""));
    is_told(&TensorList::new("", &[("a", U8, &[u64::MAX, 0]), ("b", F4, &[0, u64::MAX])], ""));
    // The lengths add up to 2^64 − 1.
    let largest = u64::MAX / 8;
    let mut list = TensorList::new("", &[("", U8, &[largest][..]); 8], "");
    list.push("rest", U8, &[7], 0, false);
    is_told(&list);
    list.tensors[8].shape = vec![8];
    refused(&list, "lengths");
    list.tensors[8].shape = vec![largest];
    refused(&list, "lengths");
}

#[test]
fn fronts_and_backs() {
    // Their lengths lie.
    let list = sound().list();
    for length in [list.len() as u8, 0x7f] {
        refused_byte(0, 1, length, "too early");
        refused_byte(list.len() - 3, 2, length, "too early");
    }
    let longer = [&list[..], &[0]].concat();
    refused_column(&sound().raw(), &longer, "follows the back");
    refused_column(&sound().raw(), &list[..list.len() - 1], "too early");
    refused_byte(list.len() - 3, 2, 1, "fewer bytes than");
    refused_column(&sound().raw(), &[], "too early");
    refused(&TensorList { front: vec![b'{', 0xff], ..sound() }, "UTF-8");
    refused(&TensorList { back: vec![0xc3], ..sound() }, "UTF-8");
}

#[test]
fn numbers_of_tensors() {
    refused(&TensorList::new("{", &[], "}"), "no tensors");
    refused_byte(2, 3, 0, "");
    refused_byte(2, 3, 4, "");
    refused_byte(2, 3, 2, "");
    let list = sound().list();
    for count in damage::HUGE {
        let mut more = list[..2].to_vec();
        varint(&mut more, count);
        more.extend(&list[3..]);
        refused_column(&[&sound().raw()[..], &[b' '; 9]].concat(), &more, "");
    }
}

#[test]
fn dtypes() {
    for dtype in [23, 127] {
        let mut list = sound();
        list.tensors[1].dtype = dtype;
        refused(&list, "unknown dtype");
    }
    for (tensor, same_shape) in [(0, false), (1, false), (1, true)] {
        let mut list = sound();
        (list.tensors[tensor].dtype, list.tensors[tensor].same_shape) = (0, same_shape);
        refused(&list, "opaque");
    }
    // An opaque tensor with the fields of another one.
    refused_byte(3, F32, 0, "opaque");
    refused_byte(3, F32, 0x80, "opaque");
    // Half a byte, half of another, and six bits.
    for (dtype, shape) in [(F4, &[1][..]), (F4, &[3, 5]), (F4, &[]), (19, &[2]), (20, &[3])] {
        let mut list = sound();
        (list.tensors[2].dtype, list.tensors[2].shape) = (dtype, shape.to_vec());
        refused(&list, "within a byte");
    }
    // Two halves make no whole.
    refused(&TensorList::new("", &[("a", F4, &[1]), ("b", F4, &[1])], ""), "within a byte");
}

#[test]
fn names() {
    // The first tensor comes after one without a name.
    let shared = |tensor: usize, shared: u64| {
        let mut list = sound();
        list.tensors[tensor].shared = shared;
        list
    };
    for length in [0, 1, 3] {
        is_told(&shared(1, length));
    }
    refused(&shared(0, 1), "shares");
    for length in [4, 1 << 32, u64::MAX] {
        refused(&shared(1, length), "shares");
    }
    // Within a character, with its remaining bytes and without.
    refused(&shared(1, 2), "shares");
    let mut within = shared(1, 2);
    within.tensors[1].name = b"w\xc3x".to_vec();
    refused(&within, "shares");
    let mut list = sound();
    list.tensors[1].name = b"w\xff".to_vec();
    list.tensors[1].shared = 1;
    refused(&list, "UTF-8");
}

#[test]
fn shapes() {
    // The first shape is referred to, as if it were that of a scalar.
    let mut list = TensorList::new("", &[("w", U8, &[])], "");
    list.tensors[0].same_shape = true;
    refused(&list, "before");
    refused(&TensorList::new("", &[("w", U8, &[1; 65])], ""), "rank");
    refused(&TensorList::new("", &[("w", U8, &[0; 65])], ""), "rank");
    let overflows: [(u8, &[u64]); 6] = [
        (U8, &[1 << 61]),
        (F4, &[1 << 62]),
        (F32, &[1 << 59]),
        (U8, &[1 << 32, 1 << 32]),
        // What comes to nothing must not be too large before.
        (U8, &[1 << 32, 1 << 32, 0]),
        (U8, &[u64::MAX; 64]),
    ];
    for (dtype, shape) in overflows {
        refused(&TensorList::new("", &[("w", dtype, shape)], ""), "exceeds 64 bits");
    }
    // A shape that is sound for one dtype, but not for the next one.
    refused(&TensorList::new("", &[("w", U8, &[1 << 60]), ("x", F32, &[1 << 60])], ""), "exceeds 64 bits");
    refused(&TensorList::new("", &[("w", U8, &[3]), ("x", F4, &[3])], ""), "within a byte");
}

#[test]
fn lengths_of_columns() {
    let (raw, list) = (sound().raw(), sound().list());
    refused_column(&[&raw[..], b" "].concat(), &list, "fewer bytes than");
    refused_column(&raw[..raw.len() - 1], &list, "more bytes than");
    // As if the length at the front were of no account.
    refused_column(&raw[8..], &list, "more bytes than");
    for length in [list.len(), list.len() + 1] {
        refused_column(&raw[..length], &list, "more bytes than");
    }
    refused_column(&raw[..list.len() - 1], &list, "longer than its column");
    for length in 1..8 {
        refused_column(&raw[..length], &[0], "more bytes than");
    }
}

#[test]
fn frames() {
    let (raw, list) = (sound().raw(), sound().list());
    let refused_frame = |list_length: u64, frame_length: u64, frame: &[u8], reason: &str| {
        let mut fields = fields(&raw, &list);
        fields.columns[0] = vec![4];
        varint(&mut fields.columns[0], list_length);
        varint(&mut fields.columns[0], frame_length);
        fields.bulk[0] = frame.to_vec();
        damage::refused(&file(&fields), reason);
    };
    let frame = zstd_frame(&list);
    let (length, frame_length) = (list.len() as u64, frame.len() as u64);
    refused_frame(length + 1, frame_length, &frame, "shorter");
    refused_frame(length - 1, frame_length, &frame, "zstd");
    refused_frame(0, frame_length, &frame, "zstd");
    refused_frame(raw.len() as u64, frame_length, &frame, "shorter");
    refused_frame(raw.len() as u64 + 1, frame_length, &frame, "longer than its column");
    for lie in damage::HUGE {
        refused_frame(lie, frame_length, &frame, "longer than its column");
        refused_frame(length, lie, &frame, "too early");
    }
    refused_frame(length, frame_length - 1, &frame[..frame.len() - 1], "damaged zstd");
    refused_frame(length, frame_length - 1, &frame, "damaged zstd");
    refused_frame(length, 0, &[], "no zstd frame");
    let two = [zstd_frame(&list[..9]), zstd_frame(&list[9..])].concat();
    refused_frame(length, two.len() as u64, &two, "follows the zstd frame");
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 0][..], &frame].concat();
    refused_frame(length, skippable.len() as u64, &skippable, "no zstd frame");
    let followed = [&frame[..], &[0]].concat();
    refused_frame(length, frame_length + 1, &followed, "follows the zstd frame");
    refused_frame(length, frame_length, &followed, "too long");
    refused_frame(length, length, &list, "no zstd frame");
}
