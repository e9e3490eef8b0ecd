//! Changes of the valid stores: one for each rule that it breaks, and some that break none.

use lmc_testing::handmade::{FrameBlock, copy, frame_of_blocks};
use lmc_testing::reference::write::File;
use serde_json::Value;

use crate::rule::{Data, Marker, Object, Record, Rule, Shard, Stores, Tag, rule};
use crate::stores::{Made, weights};

/// The rules of `bad.txt`.
fn listed() -> Vec<Rule> {
    let mut rules = vec![];
    let (mut store, mut object, mut section, mut operations, mut kind) = ("", Marker, "", vec![], "");
    for line in include_str!("bad.txt").lines().filter(|line| !line.starts_with('#')) {
        let Some(row) = line.strip_prefix("    ") else {
            let fields: Vec<&str> = line.split("; ").collect();
            (store, object, section, kind) = (fields[0], Object::named(fields[1]), fields[2], fields[4]);
            operations = fields[3].split(", ").collect();
            continue;
        };
        let mut fields = row.splitn(4, " | ").map(|field| field.trim_end_matches(" |"));
        let [name, why, pointer] = [0; 3].map(|_| fields.next().expect("a row has three fields or more"));
        let new = fields.next().unwrap_or_default();
        rules.push(rule(store, section, name, why).edit(object, pointer, new).fails(&operations, kind));
    }
    rules
}

/// A frame of zstd without a size of its contents, in one block that is not compressed; with what its header has between the magic number and
/// the block.
fn raw_frame(header: &[u8], contents: &str) -> Vec<u8> {
    let block = (u32::try_from(contents.len()).expect("it is small") << 3 | 1).to_le_bytes();
    [&[0x28, 0xb5, 0x2f, 0xfd], header, &block[..3], contents.as_bytes()].concat()
}

/// A frame of a blank, then so many blanks, then a document.
fn blank_frame(contents: &str, blanks: &[FrameBlock]) -> Vec<u8> {
    let length = |block: &FrameBlock| match *block {
        FrameBlock::Raw(ref bytes) => bytes.len(),
        FrameBlock::Rle(_, length) | FrameBlock::Literals(_, length) => length,
        FrameBlock::Match(_, length) => length as usize,
    };
    let (first, last) = (FrameBlock::Raw(vec![b' ']), FrameBlock::Raw(contents.into()));
    let blocks = [&[first], blanks, &[last]].concat();
    frame_of_blocks(blocks.iter().map(length).sum(), &blocks)
}

/// A frame with a checksum.
fn with_checksum(contents: &str) -> Vec<u8> {
    let mut frame = zstd::Encoder::new(vec![], 1).expect("the level is one");
    frame.include_checksum(true).expect("it is an option");
    std::io::Write::write_all(&mut frame, contents.as_bytes()).expect("memory is written");
    frame.finish().expect("memory is written")
}

/// What a store may have, although no writer of today writes it.
pub(crate) fn good(stores: &Stores) -> Vec<Rule> {
    let of = &stores["deltas"];
    let (shard, record, len) = (of.text(Shard(2)), of.text(Record(3)), of.bytes(Data(2)).len());
    let more = r#","x_more":{"a":[null,1.5,"b"]}"#;
    let after = |value: &str| format!("{value}{more}");
    vec![
        rule("deltas", "1", "unknown-fields", "fields whose names begin with x_ are ignored, in every object")
            .edit(Marker, "/grace_seconds", after("86400"))
            .edit(Tag("best"), "/step", after("2"))
            .edit(Record(2), "/time", after("1700000000"))
            .edit(Record(2), "/seen/0/key", after(r#""snapshots/9007/199/254/740/991-0000000000.json""#))
            .edit(Shard(2), "/began", after("1700000000"))
            .edit(Shard(2), "/sets/0/age", after("1"))
            .edit(Shard(2), "/files/0/len", after("8264"))
            .edit(Shard(1), "/files/0/segments/0/len", after("72")),
        rule(
            "deltas",
            "1",
            "blanks",
            "JSON may have blanks, and strings escapes; but nothing is between checksum and end",
        )
        .edit(Marker, "/version", " 1\n")
        .edit(Record(2), "/version", "\t1 ")
        .edit(Record(2), "/state", r#""\u006bept""#)
        .edit(Shard(2), "/version", " 1\r\n"),
        rule("deltas", "3", "dropped", "a snapshot may have lost bytes that went with the state of its optimizer")
            .edit(Record(2), "/new_size", format!(r#"{len},"dropped":18446744073709551615"#)),
        rule("deltas", "1", "empty-arrays", "an empty array says the same as no field")
            .edit(Shard(2), "/files/3/len", r#"0,"segments":[]"#)
            .edit(Shard(2), "/files/0/len", r#"8264,"segments":[]"#)
            .edit(Shard(2), "/objects", format!(r#"[{len}],"alternatives":[],"writers":[]"#))
            .edit(Shard(1), "/files/0/segments/0/len", r#"72,"shape":[]"#),
        rule("deltas", "3", "metadata", "any names, integers up to 2^53, doubles").edit(
            Record(2),
            "/metadata",
            r#"{"x_a":9007199254740992,"":-9007199254740992,"a":-0,"b":1e-5,"c":1.0E+2,"\ud83d\ude00":""}"#,
        ),
        rule("deltas", "3", "times", "times and sizes are below 2^64").edit(Record(2), "/time", "18446744073709551615"),
        rule("deltas", "1", "frame-without-size", "a frame may lack the size of its contents")
            .stored(Shard(2), raw_frame(&[0, 0x58], &shard)),
        rule("deltas", "1", "frame-with-checksum", "a frame may have a checksum")
            .stored(Shard(2), with_checksum(&shard)),
        rule("deltas", "1", "frame-blocks-of-2-17", "a block of a frame may decode to 2^17 bytes")
            .stored(Shard(2), blank_frame(&shard, &[FrameBlock::Rle(b' ', 1 << 17), FrameBlock::Match(1, 1 << 17)])),
        rule("deltas", "1", "foreign", "other objects are foreign: of no step, of no such generation, of no tag")
            .put("snapshots/.DS_Store", "x")
            .put("snapshots/9007/199/254/740/989-1.json", "x")
            .put("snapshots/9007/199/254/740/989-9999999999.json", "x")
            .put("snapshots/9999/999/999/999/999-0000000000.json", "x")
            .put("snapshots/9007/199/254/740/989-0000000001.json.txt", "x")
            .put("tags/best/4294967296.json", "x")
            .put("tags/best/1.json", "x")
            .put("tags/latest/2594967294.json", "x")
            .put("floors/readme", "x")
            .put("shards/readme", "x"),
        rule("deltas", "4", "sets-overlap", "sets may overlap, and leave gaps; no file need use one")
            .edit(Shard(2), "/objects", "[600]")
            .edit(
                Shard(2),
                "/sets/1/age",
                format!(r#"0}},{{"at":[0,300,300],"hash":"{0}","raw_len":0,"raw_hash":"{0}","age":0"#, "0".repeat(64)),
            )
            .put(of.key(Data(2)), [of.bytes(Data(2)), &vec![0; 600 - len]].concat()),
        rule("deltas", "4", "extents", "many extents may use parts of a set, in any order").edit(
            Shard(2),
            "/files/1/extents",
            "[[0,1,0,1],[0,1,1,6]]",
        ),
        rule("deltas", "3", "superseded", "the highest generation counts, whatever the lower ones are")
            .put("snapshots/9007/199/254/740/989-4294967295.json", record)
            .put("snapshots/9007/199/254/740/989-0000000001.json", "x"),
    ]
}

/// Stores that a reader has to refuse.
pub(crate) fn bad(stores: &Stores) -> Vec<Rule> {
    let mut rules = listed();
    let of_version = rules.iter_mut().find(|rule| rule.name == "floor-version").expect("it is listed");
    of_version.refuse.insert("collect".into(), "unsupported");
    rules.extend(markers(stores));
    rules.extend(records(stores));
    rules.extend(tags(stores));
    rules.extend(frames(stores));
    rules.extend(shards(stores));
    rules.extend(sets(stores));
    rules.extend(names());
    rules.push(alternative_of_a_delta(stores));
    rules.extend(writers(stores));
    rules
}

fn markers(stores: &Stores) -> Vec<Rule> {
    let of = |kind| move |rule: Rule| rule.restores(&[1, 2, 3], kind);
    let text = stores["deltas"].text(Marker);
    vec![
        of("damaged")(
            rule("deltas", "2", "marker-missing", "readers refuse a store without a marker").lose("lmc-store.json"),
        ),
        of("damaged")(
            rule("deltas", "1", "marker-bom", "no mark comes before JSON")
                .put("lmc-store.json", format!("\u{feff}{text}")),
        ),
        of("damaged")(
            rule("deltas", "1", "marker-utf-8", "all JSON is UTF-8")
                .put("lmc-store.json", b"{\"format\":\"lmc-store\xff\"}"),
        ),
        of("damaged")(
            rule("deltas", "1", "marker-more", "a document is one value of JSON")
                .put("lmc-store.json", format!("{text}{{}}")),
        ),
        of("limit")(
            rule("deltas", "1", "marker-4097-bytes", "a marker has at most 2^12 bytes")
                .put("lmc-store.json", format!("{text:4097}")),
        ),
    ]
}

fn records(stores: &Stores) -> Vec<Rule> {
    let (of, text) = (&stores["deltas"], stores["deltas"].text(Record(2)));
    let damaged = |rule: Rule| rule.restores(&[2], "damaged");
    let (before, check) = (&text[..text.len() - 76], &text[text.len() - 76..]);
    let put = |name, why, text: String| damaged(rule("deltas", "3", name, why).put(of.key(Record(2)), text));
    let id = of.id(Shard(2));
    let seen =
        r#"{"key":"snapshots/9007/199/254/740/991-0000000000.json","hash":"0"}"#.replace("\"0\"", &format!("\"{id}\""));
    let one =
        |name, why, pointer: &str, new: String| damaged(rule("deltas", "3", name, why).edit(Record(2), pointer, new));
    let sealed = |text: String| format!("{text},\"check\":\"{}\"}}", blake3::hash(format!("{text}}}").as_bytes()));
    vec![
        damaged(rule("deltas", "3", "record-lost", "a record that another one names is there").lose(of.key(Record(2)))),
        put("record-empty", "a record is JSON", String::new()),
        put("record-truncated", "a record is whole", text[..text.len() - 1].into()),
        put("record-check-wrong", "`check` is the hash of the rest", text.replace("1.25", "1.26")),
        put("record-check-missing", "a record has its `check`", format!("{before}}}")),
        put(
            "record-check-first",
            "`check` is the last field",
            format!("{{{},{}", &check[1..check.len() - 1], &before[1..]) + "}",
        ),
        put(
            "record-check-blank",
            "no blank is in the end of a record",
            format!("{before}{}", check.replace(':', ": ")),
        ),
        put("record-newline", "nothing comes after a record", format!("{text}\n")),
        put("record-check-null", "no value is null", format!("{before},\"check\":null}}")),
        put(
            "record-check-twice",
            "no object has a field twice",
            sealed(format!("{before}{}", &check[..check.len() - 1])),
        ),
        one("record-shards-twice", "no shard is named twice", "/shards", format!(r#"["{id}","{id}"]"#)),
        one("record-shards-upper-case", "hashes are lower-case", "/shards/0", format!("\"{}\"", id.to_uppercase())),
        one("record-shard-missing", "the shards are there", "/shards/0", format!("\"{}\"", "0".repeat(64))),
        rule("deltas", "1", "record-seen-65", "a record names at most 64 others")
            .edit(Record(2), "/seen", format!("[{}]", vec![seen; 65].join(",")))
            .fails(&["verify 2"], "limit"),
    ]
}

fn tags(stores: &Stores) -> Vec<Rule> {
    let of = &stores["deltas"];
    let (text, damaged) = (of.text(Tag("best")), |rule: Rule| rule.fails(&["restore best"], "damaged"));
    vec![
        damaged(
            rule("deltas", "3", "tag-check-wrong", "`check` is the hash of the rest")
                .put(of.key(Tag("best")), text.replace(":2,", ":1,")),
        ),
        damaged(
            rule("deltas", "3", "tag-empty", "if the highest generation is damaged, no other counts")
                .put(of.key(Tag("best")), ""),
        ),
    ]
}

fn frames(stores: &Stores) -> Vec<Rule> {
    let of = &stores["deltas"];
    let (text, bytes) = (of.text(Shard(2)), of.bytes(Shard(2)).to_vec());
    let damaged =
        |name, why, stored| rule("deltas", "1", name, why).stored(Shard(2), stored).restores(&[2, 3], "damaged");
    let above =
        |name, blanks| damaged(name, "a block of a frame decodes to at most 2^17 bytes", blank_frame(&text, &[blanks]));
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0];
    let mut checksum = with_checksum(&text);
    *checksum.last_mut().expect("it is not empty") ^= 1;
    let mut other = bytes.clone();
    other[20] ^= 1;
    vec![
        damaged("frame-truncated", "a shard is a whole frame", bytes[..bytes.len() - 1].into()),
        damaged("frame-and-more", "nothing comes after the frame", [&bytes[..], &[0]].concat()),
        damaged("frames", "a shard is one frame", [&bytes[..], &bytes].concat()),
        damaged(
            "frame-and-skippable",
            "nothing comes after the frame, not even a skippable one",
            [&bytes[..], &skipped].concat(),
        ),
        damaged("frame-skippable", "the frame is no skippable one", [&skipped[..], &bytes].concat()),
        damaged("frame-plain", "a shard is compressed", text.clone().into_bytes()),
        damaged("frame-empty", "a shard is a frame", vec![]),
        damaged("frame-window", "a window has at most 2^27 bytes", raw_frame(&[0, 0x90], &text)),
        damaged("frame-dictionary", "a frame needs no dictionary", raw_frame(&[1, 0x58, 7], &text)),
        damaged("frame-checksum", "a checksum that is there is right", checksum),
        above("frame-rle-block-above-2-17", FrameBlock::Rle(b' ', (1 << 17) + 1)),
        above("frame-match-above-2-17", FrameBlock::Match(1, (1 << 17) + 1)),
        rule("deltas", "1", "shard-hash", "the key is the hash of the stored bytes")
            .put(of.key(Shard(2)), other)
            .restores(&[2, 3], "damaged"),
    ]
}

fn shards(stores: &Stores) -> Vec<Rule> {
    let of = &stores["deltas"];
    let damaged = |rule: Rule| rule.restores(&[2, 3], "damaged");
    let id = of.id(Shard(1));
    vec![
        damaged(rule("deltas", "4", "shard-listed-twice", "no shard is listed twice").edit(
            Shard(2),
            "/shards",
            format!(r#"["{id}","{id}"]"#),
        )),
        rule("deltas", "4", "shard-listed-missing", "shards that are listed are there")
            .lose(of.key(Shard(1)))
            .restores(&[1, 2, 3], "damaged"),
        rule("deltas", "4", "shard-unlisted", "all shards of a chain are listed")
            .edit(Shard(3), "/shards", format!("[\"{}\"]", of.id(Shard(2))))
            .edit(Shard(3), "/sets/0/base", "[1,0]")
            .edit(Shard(3), "/files/0/segments_of", "")
            .edit(Shard(3), "/files/0/extents/0/0", "0")
            .edit(Shard(3), "/files/1/segments_of", "")
            .edit(Shard(3), "/files/2/segments_of", "")
            .edit(Shard(3), "/files/2/extents/0/0", "0")
            .restores(&[3], "damaged"),
        rule("deltas", "4", "data-missing", "data objects are there")
            .lose(of.key(Data(1)))
            .restores(&[1, 2, 3], "damaged"),
        rule("deltas", "4", "data-truncated", "data objects are whole")
            .put(of.key(Data(2)), &of.bytes(Data(2))[..540])
            .restores(&[2], "damaged"),
        rule("deltas", "4", "data-other", "a set decodes to its raw bytes")
            .put(of.key(Data(2)), of.bytes(Data(3)))
            .restores(&[2, 3], "damaged"),
    ]
}

fn sets(stores: &Stores) -> Vec<Rule> {
    let zeros = "0".repeat(64);
    let unused = format!(r#"0}},{{"at":[0,572,1],"hash":"{zeros}","raw_len":0,"raw_hash":"{zeros}","age":0"#);
    vec![
        rule("deltas", "1", "set-unused", "what no file uses is checked, too")
            .edit(Shard(2), "/sets/1/age", unused)
            .restores(&[2, 3], "damaged"),
        rule("deltas", "4", "set-raw-hash", "a set decodes to bytes of that hash")
            .edit(Shard(2), "/sets/1/raw_hash", format!("\"{zeros}\""))
            .restores(&[2], "damaged"),
        rule("deltas", "1", "set-stored-2-27", "a set has at most 2^27 stored bytes")
            .edit(Shard(2), "/objects/0", "300000000")
            .edit(Shard(2), "/sets/1/at/2", "134217729")
            .restores(&[2, 3], "limit"),
        long_chain(&stores["deltas"]),
        long_chain_of_deltas(&stores["deltas"]),
    ]
}

/// 65 sets, each the base of the next.
fn long_chain(of: &Made) -> Rule {
    let text = of.text(Shard(2));
    let (start, end) = (text.find(r#"{"at""#).expect("it has sets"), text.find("},{\"at\"").expect("it has two sets"));
    let first = &text[start..end];
    let with_base = |base: u32, age: u32| {
        format!("}},{}", first.replace(r#""base":[1,1],"age":1"#, &format!(r#""base":[0,{base}],"age":{age}"#)))
    };
    let more: String = (2..66).map(|n| with_base(if n == 2 { 0 } else { n - 1 }, n)).collect();
    rule("deltas", "1", "set-chain-65", "a chain has at most 64 sets")
        .edit(Shard(2), "/sets/1/age", format!("0{more}"))
        .edit(Shard(2), "/files/0/extents/1/1", "64")
        .restores(&[2], "limit")
}

/// 65 sets, each the base of the next, from which a reader without the rule restores the right bytes: all but two are deltas of bytes to
/// themselves.
fn long_chain_of_deltas(of: &Made) -> Rule {
    let raw = &weights("w", 64, 1, 2)[72..];
    let mut delta = File::delta(&[raw], vec![copy(&[(1, 0, raw)]).record()]);
    delta.redigest(&[raw], raw.len());
    let (data, delta) = (of.bytes(Data(2)), delta.to_bytes());
    let [hash, raw_hash] = [&delta, raw].map(blake3::hash);
    let (start, len, raw_len) = (data.len(), delta.len(), raw.len());
    let set = |n: usize| {
        let (at, base) = (format!("[0,{start},{len}]"), if n == 2 { 0 } else { n - 1 });
        let raw = format!(r#""raw_len":{raw_len},"raw_hash":"{raw_hash}""#);
        format!(r#"}},{{"at":{at},"hash":"{hash}",{raw},"base":[0,{base}],"age":{n}"#)
    };
    rule("deltas", "1", "set-chain-65-of-deltas", "a chain has at most 64 sets")
        .edit(Shard(2), "/objects/0", (start + len).to_string())
        .edit(Shard(2), "/sets/1/age", format!("0{}", (2..65).map(set).collect::<String>()))
        .edit(Shard(2), "/files/0/extents/1/1", "64")
        .put(of.key(Data(2)), [data, &delta[..]].concat())
        .restores(&[2], "limit")
}

fn names() -> Vec<Rule> {
    let long = [("name-256", "a component has at most 255 bytes", "x".repeat(256))];
    let deep = [("name-1025", "a name has at most 1024 bytes", format!("{}x", "x/".repeat(512)))];
    let edited =
        |(name, why, text)| rule("deltas", "1", name, why).edit(Shard(2), "/files/3/name", format!("\"{text}\""));
    long.into_iter().chain(deep).map(edited).map(|rule| rule.restores(&[2, 3], "damaged")).collect()
}

fn alternative_of_a_delta(stores: &Stores) -> Rule {
    let len = stores["deltas"].bytes(Data(2)).len();
    let zeros = "0".repeat(64);
    let one = format!(r#"{{"set":0,"at":[0,0,1],"hash":"{zeros}","base":"{zeros}","shard":"{zeros}"}}"#);
    rule("deltas", "4", "alternative-of-a-delta", "a set with a base has no alternative")
        .edit(Shard(2), "/objects", format!(r#"[{len}],"alternatives":[{one}]"#))
        .fails(&["alternatives 2", "alternatives 3"], "damaged")
}

fn writers(stores: &Stores) -> Vec<Rule> {
    let damaged = |rule: Rule| rule.restores(&[1, 2], "damaged");
    let of: Value = serde_json::from_str(&stores["ranks"].text(Shard(1))).expect("a shard is JSON");
    let writer = |i: usize| of["writers"][i].to_string();
    let one = |name, why, new: String| damaged(rule("ranks", "4", name, why).edit(Shard(1), "/writers", new));
    vec![
        one("writers-descend", "indices of writers ascend", format!("[{},{}]", writer(1), writer(0))),
        one("writers-twice", "no save is there twice", format!("[{},{}]", writer(0), writer(0).replace("[1,", "[2,"))),
        one("writers-save", "`save` is not among the writers", format!("[[1,{}]]", of["save"])),
        one("writers-missing", "data objects are those of their saves", "[]".into()),
    ]
}
