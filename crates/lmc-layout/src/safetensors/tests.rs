//! Differential tests against the `safetensors` crate.

use std::collections::BTreeMap;

use proptest::prelude::*;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use super::start::MAX_HEADER;
use super::*;
use crate::dtype::{Dtype, NamedDtype};

/// A file with this header and as many bytes of data.
fn file(json: &str, data: usize) -> Vec<u8> {
    let mut f = (json.len() as u64).to_le_bytes().to_vec();
    f.extend_from_slice(json.as_bytes());
    f.resize(f.len() + data, 7);
    f
}

fn suggest(file: &[u8]) -> Option<Vec<Segment>> {
    let layout = Safetensors.suggest(&mut &*file).unwrap()?;
    assert_eq!((layout.name, layout.tail), ("safetensors", None));
    let end = layout.segments.iter().fold(0, |at, s| {
        assert_eq!(s.offset, at, "segments have no gaps");
        assert_eq!(s.dtype.is_some(), s.name.is_some());
        s.end()
    });
    assert!(end >= 8);
    Some(layout.segments)
}

/// Compares with the crate; whether it accepts the file.
fn compare(file: &[u8]) -> bool {
    let ours = suggest(file);
    let strict = Header::parse(file, file.len() as u64);
    let theirs = SafeTensors::deserialize(file);
    let Ok(theirs) = theirs else {
        assert!(strict.is_err(), "{:?}", theirs.err());
        // Something must be opaque besides the header, or of a dtype that the crate has not, or missing, or too much, or the file is raw.
        if let Some(s) = ours {
            let all_typed = s[1..].iter().all(|s| s.dtype.is_some_and(|d| !matches!(d, Dtype::Named(_))));
            assert!(!all_typed || s.last().unwrap().end() != file.len() as u64, "{:?}", theirs.err());
        }
        return false;
    };
    let ours = ours.expect("what the crate accepts is accepted");
    assert_eq!(ours.len(), 1 + theirs.len());
    for s in &ours[1..] {
        let t = theirs.tensor(s.name.as_ref().unwrap()).unwrap();
        assert_eq!(s.dtype.unwrap().name(), t.dtype().to_string());
        assert_eq!(s.shape[..], t.shape().iter().map(|&d| d as u64).collect::<Vec<_>>());
        assert_eq!(file[s.offset as usize..s.end() as usize].as_ptr_range(), t.data().as_ptr_range());
    }
    assert_eq!(ours.last().unwrap().end(), file.len() as u64);
    match strict {
        Ok(strict) => assert!(strict.tensors == ours[1..] && strict.len == ours[0].len),
        Err(why) => assert!(why.contains("occurs twice") || theirs.iter().any(|(_, t)| is_too_large(&t)), "{why}"),
    }
    true
}

/// Whether other libraries have no such tensor, though the crate does.
fn is_too_large(tensor: &TensorView<'_>) -> bool {
    tensor.shape().len() > MAX_RANK || tensor.shape().iter().any(|&d| i64::try_from(d).is_err())
}

#[test]
fn headers_that_are_refused_say_why() {
    let a = r#""a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}"#;
    for (json, data, why) in [
        (format!("{{{a}}}"), 3, "the tensors end at byte 63, but the file has 64 bytes"),
        (format!("{{{}}}", a.replace("[0,2]", "[1,3]")), 3, "tensor \"a\" begins at byte 62 of the file, not at 61"),
        (format!("{{{}}}", a.replace("[2]", "[3]")), 2, "tensor \"a\": its dtype, shape and offsets do not fit"),
        (format!("{{{}}}", a.replace("[0,2]", "[2,0]")), 2, "tensor \"a\": its dtype, shape and offsets do not fit"),
        (format!("{{{}}}", a.replace("U8", "U3")), 2, "tensor \"a\": its dtype \"U3\" is unknown"),
        (format!("{{{}}}", a.replace("U8", "")), 2, "tensor \"a\": its dtype is unknown"),
        (format!("{{{}}}", a.replace("[2]", &format!("[2{}]", ",1".repeat(64)))), 2, "more than 64 dimensions"),
        (format!("{{{}}}", a.replace("[2]", "[0,9223372036854775808]").replace("[0,2]", "[0,0]")), 0, "do not fit"),
        (format!("{{{a},{a}}}"), 2, "the name \"a\" occurs twice"),
        (r#"{"__metadata__":{"k":"1","k":"2"}}"#.to_owned(), 0, "the name \"k\" occurs twice"),
        (
            r#"{"__metadata__":{"k":1}}"#.to_owned(),
            0,
            "invalid type: integer `1`, expected a string at line 1 column 22",
        ),
        (r#"{"__metadata__":{},"__metadata__":{}}"#.to_owned(), 0, "duplicate field `__metadata__`"),
        (format!("{{{}}}", a.replace(r#""shape":[2],"#, "")), 2, "a field is missing"),
        (r#"{"a"}"#.to_owned(), 0, "expected `:` at line 1 column 5"),
        ("[]".to_owned(), 0, "it does not begin as a safetensors file does"),
    ] {
        let found = Header::parse(&file(&json, data), 8 + (json.len() + data) as u64).expect_err(&json);
        assert!(found.contains(why), "{json}: {found}");
    }
    let whole = file(&format!("{{{a}}}"), 2);
    let cut = |len: usize| Header::parse(&whole[..len], len as u64).unwrap_err();
    assert!(cut(7).contains("does not begin"));
    assert!(cut(40).contains("it would end at byte 61, but the file has 40 bytes: it was truncated"));
}

#[test]
fn what_is_written_is_read() {
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned()), ("\n".to_owned(), "é".to_owned())]);
    let tensors = [("b", Dtype::Bf16, &[2, 3][..]), ("\"a\"", Dtype::F32, &[]), ("", Dtype::U8, &[0, 5])];
    for metadata in [None, Some(&BTreeMap::new()), Some(&metadata)] {
        let bytes = header(tensors, metadata).unwrap();
        assert_eq!((bytes.len() % 8, header_len(&bytes)), (0, Some(bytes.len() as u64)));
        let found = Header::parse(&bytes, bytes.len() as u64 + 16).unwrap();
        let pairs = metadata.map(|m| m.iter().map(|(k, v)| (k.clone(), v.clone())).collect());
        assert_eq!((found.metadata, found.len), (pairs, bytes.len() as u64));
        let found: Vec<_> =
            found.tensors.iter().map(|t| (t.name.as_deref().unwrap(), t.dtype.unwrap(), &t.shape[..])).collect();
        assert_eq!(found, tensors);
    }
    let named = NamedDtype::new("F31", 8).map(Dtype::Named).unwrap();
    for (tensors, why) in [
        ([("a", Dtype::U8, &[1][..]), ("a", Dtype::U8, &[2])], "two tensors have this name"),
        ([("__metadata__", Dtype::U8, &[1]), ("a", Dtype::U8, &[2])], "cannot hold a tensor of this name"),
        ([("a", named, &[1]), ("b", Dtype::U8, &[2])], "no dtype F31"),
        ([("a", Dtype::F4, &[1]), ("b", Dtype::U8, &[2])], "has no whole number of bytes"),
        ([("a", Dtype::U8, &[u64::MAX]), ("b", Dtype::U8, &[2])], "or more than 2^61"),
    ] {
        let e = header(tensors, None).unwrap_err().to_string();
        assert!(e.contains(why), "{e}");
    }
}

#[test]
fn every_dtype_is_known() {
    for &d in Dtype::ALL {
        let len = d.bits() as usize * 12 / 8;
        let f = file(&format!(r#"{{"t":{{"dtype":"{d}","shape":[3,4],"data_offsets":[0,{len}]}}}}"#), len);
        assert!(compare(&f), "{d}");
        assert_eq!(suggest(&f).unwrap()[1].dtype, Some(d));
    }
}

#[test]
fn accepted() {
    for (json, data) in [
        ("{}", 0),
        ("  \n\t{} \r\n", 0),
        (r#"{"__metadata__":null}"#, 0),
        (r#"{"__metadata__":{"a":"b","a":"c"}}"#, 0),
        (r#"{"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}"#, 1),
        (r#"{"a\u00e9\"":{"dtype":"U8","shape":[0,9],"data_offsets":[0,0]}}"#, 0),
        (r#"{"b":{"dtype":"U8","shape":[0,18446744073709551615,5],"data_offsets":[0,0]}}"#, 0),
        (
            r#"{"b":{"dtype":"I8","shape":[2],"data_offsets":[3,5]},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#,
            5,
        ),
        (r#"{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3],"more":[{"x":1.5e3},"\n",null,true]}}"#, 3),
        (r#"{"a":["U16",[1],[0,2]]}"#, 2),
        (r#"{"a":{"dtype":{"U16":null},"shape":[1],"data_offsets":[0,2]}}"#, 2),
        // The last of two tensors of one name counts.
        (
            r#"{"a":{"dtype":"U8","shape":[9],"data_offsets":[7,9]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#,
            2,
        ),
        // An empty tensor may stand between others.
        (r#"{"a":["U8",[2],[0,2]],"e":["F32",[0],[2,2]],"b":["U8",[1],[2,3]]}"#, 3),
    ] {
        assert!(compare(&file(json, data)), "{json}");
    }
}

#[test]
fn refused() {
    let very_deep = format!(r#"{{"a":{}"#, "[".repeat(1_000_000));
    for (json, data) in [
        ("", 0),
        ("[]", 0),
        ("{", 0),
        ("{}x", 0),
        ("{}{}", 0),
        ("{\"a\":1}", 0),
        ("\u{feff}{}", 0),
        (r#"{"__metadata__":{"a":1}}"#, 0),
        (r#"{"__metadata__":[]}"#, 0),
        (r#"{"__metadata__":{},"__metadata__":{}}"#, 0),
        // Data that is missing, left over, overlapping, with holes.
        (r#"{}"#, 1),
        (r#"{"a":["U8",[2],[0,2]]}"#, 1),
        (r#"{"a":["U8",[2],[0,2]]}"#, 3),
        (r#"{"a":["U8",[2],[0,2]],"b":["U8",[2],[1,3]]}"#, 3),
        (r#"{"a":["U8",[2],[0,2]],"b":["U8",[2],[0,2]]}"#, 2),
        (r#"{"a":["U8",[1],[1,2]]}"#, 2),
        (r#"{"a":["U8",[1],[0,1]],"b":["U8",[1],[2,3]]}"#, 3),
        (r#"{"a":["U8",[0],[1,0]]}"#, 1),
        (r#"{"a":["U8",[1],[18446744073709551614,18446744073709551615]]}"#, 1),
        // Shapes that do not fit, or overflow.
        (r#"{"a":["U8",[3],[0,2]]}"#, 2),
        (r#"{"a":["U8",[18446744073709551615,5,0],[0,0]]}"#, 0),
        (r#"{"a":["I32",[2,9223372036854775807],[0,16]]}"#, 16),
        (r#"{"a":["U8",[2305843009213693952],[0,0]]}"#, 0),
        (r#"{"a":["F4",[3],[0,2]]}"#, 2),
        (r#"{"a":["F6_E2M3",[3],[0,3]]}"#, 3),
        // Dtypes.
        (r#"{"a":["F31",[1],[0,4]]}"#, 4),
        (r#"{"a":["f32",[1],[0,4]]}"#, 4),
        (r#"{"a":["F31",[0],[0,0]]}"#, 0),
        (r#"{"a":[3,[1],[0,4]]}"#, 4),
        (r#"{"a":{"dtype":{"U16":null,"U8":null},"shape":[1],"data_offsets":[0,2]}}"#, 2),
        (r#"{"a":{"dtype":{"U16":{}},"shape":[1],"data_offsets":[0,2]}}"#, 2),
        (r#"{"a":{"dtype":{"U16":1},"shape":[1],"data_offsets":[0,2]}}"#, 2),
        (r#"{"a":{"dtype":{},"shape":[1],"data_offsets":[0,2]}}"#, 2),
        // Fields.
        (r#"{"a":{"dtype":"U8","shape":[1]}}"#, 1),
        (r#"{"a":{"dtype":"U8","data_offsets":[0,1]}}"#, 1),
        (r#"{"a":{"shape":[1],"data_offsets":[0,1]}}"#, 1),
        (r#"{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, 1),
        (r#"{"a":["U8",[1],[0,1],0]}"#, 1),
        (r#"{"a":["U8",[1]]}"#, 1),
        (r#"{"a":["U8",[1],[0,1,1]]}"#, 1),
        (r#"{"a":["U8",[1],[0]]}"#, 1),
        (r#"{"a":["U8",[1.0],[0,1]]}"#, 1),
        (r#"{"a":["U8",[-1],[0,1]]}"#, 1),
        (r#"{"a":["U8",[1],[-0,1]]}"#, 1),
        (r#"{"a":["U8",[18446744073709551616],[0,1]]}"#, 1),
        (r#"{"a":["U8",null,[0,1]]}"#, 1),
        (&very_deep, 1),
    ] {
        assert!(!compare(&file(json, data)), "{json}");
    }
    // Lengths of the header that the file does not have.
    for len in [0, 1, 2, 3, 100_000_000, 100_000_001, u64::MAX] {
        let mut f = file("{}", 0);
        f[..8].copy_from_slice(&len.to_le_bytes());
        assert_eq!(compare(&f), len == 2, "{len}");
        assert!(!compare(&f[..8]) && !compare(&f[..7]) && !compare(b""));
    }
}

#[test]
fn unknown_fields_need_only_be_json() {
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    let tensor = r#""a":{"dtype":"U8","shape":[],"data_offsets":[0,1]"#;
    // The crate refuses these.
    for unused in ["1e999", r#""\ud800""#, &deep] {
        let f = file(&format!(r#"{{{tensor},"x":{unused}}}}}"#), 1);
        assert!(SafeTensors::deserialize(&f).is_err());
        assert_eq!(suggest(&f).unwrap()[1].dtype, Some(Dtype::U8));
    }
    for broken in [r#"[1,]"#, r#"{"x"}"#, "01", "tru", r#""\x""#, "\"\n\""] {
        assert!(suggest(&file(&format!(r#"{{{tensor},"x":{broken}}}}}"#), 1)).is_none(), "{broken}");
    }
}

#[test]
fn other_dtypes_have_the_bits_that_fit() {
    for (dtype, shape, len, bits) in [
        ("F31", "[2]", 4, Some(16)),
        ("F6_E4M1", "[4,2]", 6, Some(6)),
        ("Q", "[]", 16, Some(128)),
        ("f32", "[3]", 12, Some(32)),
        // No whole bits, none at all, too many; names that cannot be stored.
        ("F31", "[5]", 4, None),
        ("F31", "[0]", 0, None),
        ("F31", "[40]", 4, None),
        ("F31", "[1]", 1 << 14, None),
        ("F 31", "[2]", 4, None),
        ("", "[2]", 4, None),
        ("F31F31F31F31F31F31F31F31F31F31F31", "[2]", 4, None),
    ] {
        let compact = format!(r#"{{"t":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{len}]}}}}"#);
        for json in [compact.clone(), format!("{compact} "), compact.replace(',', ", ")] {
            let f = file(&json, len);
            assert!(!compare(&f), "{json}");
            let found = suggest(&f).unwrap()[1].dtype;
            let expected = bits.map(|bits| Dtype::Named(NamedDtype::new(dtype, bits).unwrap()));
            assert_eq!(found, expected, "{json}");
        }
    }
}

#[test]
fn what_is_odd_is_opaque() {
    let json = r#"{"a":["U8",[2],[0,2]],"b":["F31",[3],[2,6]],"c":["F32",[2],[9,17]],"d":["U8",[9],[17,18]]}"#;
    let s = suggest(&file(json, 30)).unwrap();
    let kinds: Vec<_> = s.iter().map(|s| (s.name.as_deref(), s.len)).collect();
    let header = 8 + json.len() as u64;
    assert_eq!(kinds, [(None, header), (Some("a"), 2), (None, 4), (None, 3), (Some("c"), 8), (None, 1)]);
}

#[test]
fn ranks_beyond_the_index_are_opaque() {
    for rank in [64, 65, 1000] {
        let json = format!(r#"{{"a":["U8",[{}],[0,1]]}}"#, vec!["1"; rank].join(","));
        let f = file(&json, 1);
        assert!(SafeTensors::deserialize(&f).is_ok());
        assert_eq!(suggest(&f).unwrap()[1].dtype.is_some(), rank <= MAX_RANK);
    }
}

#[test]
fn tensors_that_take_too_much_memory_make_a_file_raw() {
    let one = |i: usize| format!(r#""{i}":["U8",[0],[0,0]]"#);
    let json = format!("{{{}}}", (0..1000).map(one).collect::<Vec<_>>().join(","));
    assert_eq!(header::parse(json.as_bytes(), 1 << 20, false).unwrap().entries.len(), 1000);
    assert!(header::parse(json.as_bytes(), 1 << 16, false).unwrap_err().starts_with("too many tensors"));
}

fn dimension() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..6, Just(u64::MAX), Just(1 << 61)]
}

fn dtype() -> impl Strategy<Value = String> {
    prop_oneof![9 => prop::sample::select(Dtype::ALL).prop_map(|d| d.name().to_owned()), 1 => Just("F31".to_owned())]
}

proptest! {
    /// Headers that are nearly right: tensors of any dtype one after the other, with an offset or the size wrong now and then.
    #[test]
    fn agrees_with_the_crate_on_headers(
        tensors in prop::collection::vec((dtype(), prop::collection::vec(dimension(), 0..4), 0u8..20, 0usize..4), 0..6),
        order in any::<u64>(), extra in 0usize..8,
    ) {
        let mut at = 0u64;
        let mut json: Vec<String> = tensors.iter().map(|(dtype, shape, nudge, name)| {
            let len = dtype.parse().ok().and_then(|d| tensor_len(d, shape)).unwrap_or(4);
            let begin = if *nudge == 0 { at + 1 } else { at };
            let end = begin + if *nudge == 1 { len / 2 } else { len };
            at = end;
            let name = if *nudge == 2 { 0 } else { *name * 1000 + at as usize };
            format!(r#""t{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#)
        }).collect();
        let turn = if json.is_empty() { 0 } else { order as usize % json.len() };
        json.rotate_left(turn);
        let data = if at < 1 << 20 { at as usize } else { 0 };
        compare(&file(&format!("{{{}}}", json.join(",")), data + if extra == 7 { 1 } else { 0 }));
    }

    /// A good file with a few bytes changed.
    #[test]
    fn agrees_with_the_crate_on_damaged_headers(changes in prop::collection::vec((0usize..160, any::<u8>()), 1..4), digit in any::<bool>()) {
        let json = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"F16","shape":[1,2],"data_offsets":[2,6]}}"#;
        let mut f = file(json, 6);
        let n = f.len();
        for (at, byte) in changes {
            f[at % n] = if digit { b"0123456789,:[]{}\"\\ "[byte as usize % 19] } else { byte };
        }
        compare(&f);
    }
}

#[test]
fn half_a_million_tensors_are_found() {
    const TENSORS: usize = 500_000;
    let tensor = |i: usize| {
        let (layer, expert) = (i / 512, i % 512);
        format!(
            r#""layers.{layer:05}.experts.{expert:03}.weight":{{"dtype":"BF16","shape":[1,1],"data_offsets":[{},{}]}}"#,
            2 * i,
            2 * i + 2
        )
    };
    let json = format!("{{{}}}", (0..TENSORS).map(tensor).collect::<Vec<_>>().join(","));
    assert_eq!(suggest(&file(&json, 2 * TENSORS)).map(|segments| segments.len()), Some(1 + TENSORS));
    // The longest header has twice as many.
    let cost = Segment::cost("layers.00000.experts.000.weight".len(), 2);
    assert!(MAX_HEADER as usize / (json.len() / TENSORS) * cost <= MAX_COST);
}
