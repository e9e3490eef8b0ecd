//! Changes of the valid stores: one for each rule that it breaks, and some that break none.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::edits::edit;
use crate::stores::Made;

type Stores = BTreeMap<&'static str, Made>;

/// An object of a store.
#[derive(Clone, Copy)]
pub(crate) enum Object {
    Marker,
    /// The record of a step.
    Record(u64),
    /// The first shard of a step's snapshot.
    Shard(u64),
    /// The second one.
    Second(u64),
    /// The first data object of the first shard.
    Data(u64),
    Tag(&'static str),
    Floor,
}
use Object::{Data, Floor, Marker, Record, Second, Shard, Tag};

/// A changed store.
pub(crate) struct Rule {
    name: String,
    store: &'static str,
    section: &'static str,
    rule: String,
    edits: Vec<(Object, String, String)>,
    stored: Vec<(Object, Vec<u8>)>,
    put: Vec<(String, Option<Vec<u8>>)>,
    refuse: BTreeMap<String, &'static str>,
}

impl Made {
    fn first(&self, prefix: &str) -> String {
        self.objects.keys().find(|key| key.starts_with(prefix)).unwrap_or_else(|| panic!("no {prefix}")).clone()
    }

    pub(crate) fn key(&self, object: Object) -> String {
        match object {
            Marker => "lmc-store.json".into(),
            Record(step) => {
                let number = format!("{:016}", (1u64 << 53) - step);
                let [a, b, c, d, e] = [0..4, 4..7, 7..10, 10..13, 13..16].map(|digits| &number[digits]);
                let prefix = format!("snapshots/{a}/{b}/{c}/{d}/{e}-");
                self.objects.keys().rfind(|key| key.starts_with(&prefix)).expect("the step has a record").clone()
            }
            Shard(step) => self.shard(step, 0),
            Second(step) => self.shard(step, 1),
            Data(step) => {
                let shard: Value = serde_json::from_str(&self.text(Shard(step))).expect("a shard is JSON");
                format!("data/{}/000000", shard["save"].as_str().expect("an id"))
            }
            Tag(name) => self.first(&format!("tags/{name}/")),
            Floor => self.first("floors/"),
        }
    }

    fn shard(&self, step: u64, index: usize) -> String {
        let record: Value = serde_json::from_slice(self.bytes(Record(step))).expect("a record is JSON");
        format!("shards/{}.json.zst", record["shards"][index].as_str().expect("a hash"))
    }

    fn bytes(&self, object: Object) -> &[u8] {
        &self.objects[&self.key(object)]
    }

    /// The text of a document.
    fn text(&self, object: Object) -> String {
        let bytes = self.bytes(object);
        let text = zstd::decode_all(bytes).unwrap_or_else(|_| bytes.to_vec());
        String::from_utf8(text).expect("a document is text")
    }

    /// The id of a shard.
    fn id(&self, object: Object) -> String {
        self.key(object)["shards/".len()..][..64].to_owned()
    }
}

impl Rule {
    /// Gives a value, which is named by a pointer, another text; an empty one removes the field.
    fn edit(mut self, object: Object, pointer: &str, new: impl Into<String>) -> Self {
        self.edits.push((object, pointer.into(), new.into()));
        self
    }

    /// Replaces the stored bytes of a shard; its hash follows.
    fn stored(mut self, object: Object, bytes: Vec<u8>) -> Self {
        self.stored.push((object, bytes));
        self
    }

    /// Replaces an object; no hash follows.
    fn put(mut self, key: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.put.push((key.into(), Some(bytes.into())));
        self
    }

    fn lose(mut self, key: impl Into<String>) -> Self {
        self.put.push((key.into(), None));
        self
    }

    /// What fails, and the kind of the error.
    fn fails(mut self, operations: &[&str], kind: &'static str) -> Self {
        self.refuse.extend(operations.iter().map(|o| ((*o).to_owned(), kind)));
        self
    }

    fn restores(self, steps: &[u64], kind: &'static str) -> Self {
        let operations: Vec<String> = steps.iter().map(|n| format!("restore {n}")).collect();
        self.fails(&operations.iter().map(String::as_str).collect::<Vec<_>>(), kind)
    }

    fn to_json(&self, of: &Made) -> Value {
        // By key, with the text that results.
        let mut edits = Vec::<(String, String, Vec<[String; 2]>)>::new();
        for (object, pointer, new) in &self.edits {
            let key = of.key(*object);
            if edits.last().is_none_or(|last| last.0 != key) {
                edits.push((key, of.text(*object), vec![]));
            }
            let (_, text, list) = edits.last_mut().expect("it was added");
            let [old, new] = edit(text, pointer, new);
            assert_eq!(text.matches(&old).count(), 1, "{}", self.name);
            *text = text.replace(&old, &new);
            list.push([old, new]);
        }
        let hex = |bytes: &Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let mut entry = Map::from_iter([
            ("name".into(), json!(self.name)),
            ("store".into(), json!(self.store)),
            ("section".into(), json!(self.section)),
            ("rule".into(), json!(self.rule)),
        ]);
        let mut add = |name: &str, value: Map<String, Value>| {
            if !value.is_empty() {
                entry.insert(name.into(), value.into());
            }
        };
        add("stored", self.stored.iter().map(|(object, bytes)| (of.key(*object), hex(bytes).into())).collect());
        add("put", self.put.iter().map(|(key, bytes)| (key.clone(), bytes.as_ref().map(hex).into())).collect());
        add("refuse", self.refuse.iter().map(|(operation, kind)| (operation.clone(), (*kind).into())).collect());
        if !edits.is_empty() {
            entry.insert(
                "edit".into(),
                edits.iter().map(|(key, _, list)| json!({ "key": key, "replace": list })).collect(),
            );
        }
        entry.into()
    }
}

/// A list of rules as JSON.
pub(crate) fn list(rules: &[Rule], stores: &Stores) -> Value {
    rules.iter().map(|rule| rule.to_json(&stores[rule.store])).collect()
}

fn rule(store: &'static str, section: &'static str, name: impl Into<String>, rule: impl Into<String>) -> Rule {
    let (edits, stored, put, refuse) = Default::default();
    Rule { name: name.into(), store, section, rule: rule.into(), edits, stored, put, refuse }
}

/// Rules of which each is broken by another text of one value: name, the rule, pointer, text.
type Table = [(&'static str, &'static str, &'static str, &'static str)];

fn each(
    store: &'static str,
    section: &'static str,
    object: Object,
    table: &Table,
    refused: impl Fn(Rule) -> Rule,
) -> impl Iterator<Item = Rule> {
    let made = |&(name, why, pointer, new): &_| refused(rule(store, section, name, why).edit(object, pointer, new));
    table.iter().map(made).collect::<Vec<_>>().into_iter()
}

/// A frame of zstd without a size of its contents, in one block that is not compressed; with what its header has between the magic number and
/// the block.
fn raw_frame(header: &[u8], contents: &str) -> Vec<u8> {
    let block = (u32::try_from(contents.len()).expect("it is small") << 3 | 1).to_le_bytes();
    [&[0x28, 0xb5, 0x2f, 0xfd], header, &block[..3], contents.as_bytes()].concat()
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
    let (shard, record) = (of.text(Shard(2)), of.text(Record(3)));
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
            .edit(Record(2), "/new_size", r#"571,"dropped":18446744073709551615"#),
        rule("deltas", "1", "empty-arrays", "an empty array says the same as no field")
            .edit(Shard(2), "/files/3/len", r#"0,"segments":[]"#)
            .edit(Shard(2), "/files/0/len", r#"8264,"segments":[]"#)
            .edit(Shard(2), "/objects", r#"[571],"alternatives":[],"writers":[]"#)
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
            .put(of.key(Data(2)), [of.bytes(Data(2)), &[0; 29]].concat()),
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
    let mut rules = markers(stores);
    rules.extend(records(stores));
    rules.extend(tags(stores));
    rules.extend(floors());
    rules.extend(frames(stores));
    rules.extend(shards(stores));
    rules.extend(sets(stores));
    rules.extend(files());
    rules.extend(segments());
    rules.extend(alternatives());
    rules.extend(writers(stores));
    rules
}

fn markers(stores: &Stores) -> Vec<Rule> {
    let of = |kind| move |rule: Rule| rule.restores(&[1, 2, 3], kind);
    let text = stores["deltas"].text(Marker);
    let mut rules = vec![
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
    ];
    rules.extend(each(
        "deltas",
        "2",
        Marker,
        &[
            ("marker-format", "`format` is lmc-store", "/format", r#""lmc-shard""#),
            ("marker-run-upper-case", "ids are lower-case", "/run", r#""686B51D86AEA50F302FDD0270C074EDB""#),
            ("marker-run-short", "an id has 32 digits", "/run", r#""686b51""#),
            ("marker-run-null", "no value is null", "/run", "null"),
            ("marker-run-missing", "`run` is required", "/run", ""),
            ("marker-grace-negative", "an integer has no sign", "/grace_seconds", "-86400"),
            ("marker-grace-fraction", "an integer has no fraction", "/grace_seconds", "86400.0"),
            ("marker-grace-exponent", "an integer has no exponent", "/grace_seconds", "864e2"),
            ("marker-grace-text", "an integer is no string", "/grace_seconds", r#""86400""#),
            ("marker-field-twice", "no object has a field twice", "/grace_seconds", r#"86400,"grace_seconds":86400"#),
            ("marker-unknown-field", "readers refuse unknown fields", "/grace_seconds", r#"86400,"more":1"#),
        ],
        of("damaged"),
    ));
    rules.extend(each(
        "deltas",
        "2",
        Marker,
        &[
            ("marker-grace-59", "the grace period has at least 60 seconds", "/grace_seconds", "59"),
            (
                "marker-grace-3200000001",
                "the grace period has at most 3,200,000,000 seconds",
                "/grace_seconds",
                "3200000001",
            ),
        ],
        of("limit"),
    ));
    rules.extend(each(
        "deltas",
        "1",
        Marker,
        &[
            ("marker-version", "readers refuse other versions", "/version", "2"),
            ("marker-version-0", "readers refuse other versions, also earlier ones", "/version", "0"),
        ],
        of("unsupported"),
    ));
    rules
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
    let mut rules = vec![
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
    ];
    rules.extend(each(
        "deltas",
        "3",
        Record(2),
        &[
            ("record-format", "`format` is lmc-snapshot", "/format", r#""lmc-tag""#),
            ("record-step-of-another", "`step` is that of the key", "/step", "3"),
            ("record-step-missing", "`step` is required", "/step", ""),
            ("record-step-text", "an integer is no string", "/step", r#""2""#),
            ("record-step-fraction", "an integer has no fraction", "/step", "2.0"),
            ("record-id-short", "an id has 32 digits", "/id", r#""c5af8487""#),
            ("record-id-null", "no value is null", "/id", "null"),
            ("record-time-negative", "an integer has no sign", "/time", "-1"),
            ("record-time-2-64", "integers are below 2^64", "/time", "18446744073709551616"),
            ("record-state-unknown", "a state is kept or pruned", "/state", r#""lost""#),
            ("record-state-object", "a state is a string", "/state", r#"{"kept":null}"#),
            ("record-metadata-array", "metadata are an object", "/metadata", "[]"),
            ("record-metadata-null", "values of metadata are text and numbers", "/metadata/loss", "null"),
            ("record-metadata-true", "values of metadata are text and numbers", "/metadata/loss", "true"),
            ("record-metadata-nested", "values of metadata are text and numbers", "/metadata/loss", "[1.25]"),
            ("record-metadata-infinite", "doubles are finite", "/metadata/loss", "1e999"),
            ("record-metadata-nan", "a record is JSON", "/metadata/loss", "NaN"),
            ("record-metadata-twice", "no name is there twice", "/metadata/loss", r#"1.25,"loss":1.25"#),
            ("record-metadata-surrogate", "no string has half a surrogate pair", "/metadata/loss", r#""\ud800""#),
            ("record-metadata-missing", "`metadata` is required", "/metadata", ""),
            ("record-shards-none", "a kept snapshot has a shard", "/shards", "[]"),
            ("record-shards-text", "`shards` is an array", "/shards", r#""""#),
            ("record-shards-missing", "`shards` is required", "/shards", ""),
            ("record-raw-size-negative", "an integer has no sign", "/raw_size", "-1"),
            ("record-new-size-fraction", "an integer has no fraction", "/new_size", "571.5"),
            ("record-new-size-missing", "`new_size` is required", "/new_size", ""),
            ("record-dropped-zero", "a snapshot that lost nothing has no `dropped`", "/new_size", r#"571,"dropped":0"#),
            ("record-dropped-null", "no value is null", "/new_size", r#"571,"dropped":null"#),
            ("record-dropped-text", "`dropped` is an integer", "/new_size", r#"571,"dropped":"1""#),
            ("record-pruned-with-shards", "a pruned record has no shards", "/state", r#""pruned""#),
            ("record-unknown-field", "readers refuse unknown fields", "/new_size", r#"571,"more":1"#),
            ("record-field-twice", "no object has a field twice", "/new_size", r#"571,"new_size":571"#),
            ("record-seen-missing", "`seen` is required", "/seen", ""),
        ],
        damaged,
    ));
    rules.extend(each(
        "deltas",
        "3",
        Record(2),
        &[("record-metadata-2-53", "integers of metadata are at most 2^53", "/metadata/loss", "9007199254740993")],
        |rule| rule.restores(&[2], "limit"),
    ));
    rules.extend(each(
        "deltas",
        "1",
        Record(2),
        &[("record-version", "readers refuse other versions", "/version", "2")],
        |rule| rule.restores(&[2], "unsupported"),
    ));
    // Of interest to those who look for lost records, and compare sizes.
    rules.extend(each(
        "deltas",
        "3",
        Record(2),
        &[
            ("record-seen-null", "no value is null", "/seen", "null"),
            ("record-seen-key", "`seen` has keys of records", "/seen/0/key", r#""snapshots/1.json""#),
            (
                "record-seen-key-of-no-step",
                "`seen` has keys of steps",
                "/seen/0/key",
                r#""snapshots/9999/999/999/999/999-0000000000.json""#,
            ),
            ("record-seen-hash-short", "a hash has 64 digits", "/seen/0/hash", r#""899d""#),
            (
                "record-seen-array",
                "records are named by objects",
                "/seen/0",
                r#"["snapshots/9007/199/254/740/991-0000000000.json",""]"#,
            ),
            ("record-seen-unknown-field", "readers refuse unknown fields", "/seen/0/hash", r#""","more":1"#),
            ("record-raw-size", "`raw_size` is the sum of the lengths of files", "/raw_size", "16536"),
            ("record-new-size", "`new_size` is the sum of the lengths of objects", "/new_size", "572"),
        ],
        |rule| rule.fails(&["verify 2"], "damaged"),
    ));
    rules.extend(each(
        "pruned",
        "3",
        Record(1),
        &[
            ("record-pruned-with-metadata", "a pruned record has no metadata", "/metadata", r#"{"loss":1}"#),
            ("record-pruned-with-size", "a pruned record has no size", "/raw_size", "1"),
            ("record-pruned-dropped", "a pruned record has no `dropped`", "/new_size", r#"0,"dropped":1"#),
        ],
        |rule| rule.restores(&[1], "damaged"),
    ));
    rules
}

fn tags(stores: &Stores) -> Vec<Rule> {
    let of = &stores["deltas"];
    let (text, damaged) = (of.text(Tag("best")), |rule: Rule| rule.fails(&["restore best"], "damaged"));
    let mut rules = vec![
        damaged(
            rule("deltas", "3", "tag-check-wrong", "`check` is the hash of the rest")
                .put(of.key(Tag("best")), text.replace(":2,", ":1,")),
        ),
        damaged(
            rule("deltas", "3", "tag-empty", "if the highest generation is damaged, no other counts")
                .put(of.key(Tag("best")), ""),
        ),
    ];
    rules.extend(each(
        "deltas",
        "3",
        Tag("best"),
        &[
            ("tag-name-of-another", "`name` is that of the key", "/name", r#""gone""#),
            ("tag-name-invalid", "a name is no step", "/name", r#""300""#),
            ("tag-step-null", "step and id are null both, or none is", "/step", "null"),
            ("tag-id-null", "step and id are null both, or none is", "/id", "null"),
            ("tag-step-missing", "`step` is required", "/step", ""),
            ("tag-step-2-53", "a step is at most 2^53", "/step", "9007199254740993"),
            ("tag-unknown-field", "readers refuse unknown fields", "/step", r#"2,"more":1"#),
        ],
        damaged,
    ));
    rules.extend(each(
        "deltas",
        "3",
        Tag("best"),
        &[
            (
                "tag-of-another-snapshot",
                "a tag names a snapshot, not a step",
                "/id",
                r#""00000000000000000000000000000000""#,
            ),
            ("tag-of-no-step", "the snapshot is there", "/step", "4"),
        ],
        |rule| rule.fails(&["restore best"], "notfound"),
    ));
    rules.extend(each(
        "deltas",
        "1",
        Tag("best"),
        &[("tag-version", "readers refuse other versions", "/version", "2")],
        |rule| rule.fails(&["restore best"], "unsupported"),
    ));
    rules
}

/// They concern writers.
fn floors() -> Vec<Rule> {
    let mut rules: Vec<Rule> = each(
        "floor",
        "8",
        Floor,
        &[
            ("floor-step-of-another", "`step` is that of the key", "/step", "6"),
            ("floor-kept-above", "a floor lists steps up to its own", "/kept/1", "6"),
            ("floor-kept-twice", "a floor lists no step twice", "/kept/1", "1"),
            ("floor-kept-descends", "a floor lists steps in their order", "/kept", "[4,1]"),
            ("floor-kept-missing", "`kept` is required", "/kept", ""),
            ("floor-unknown-field", "readers refuse unknown fields", "/step", r#"5,"more":1"#),
        ],
        |rule| rule.fails(&["verify"], "damaged"),
    )
    .collect();
    rules.extend(each(
        "floor",
        "8",
        Floor,
        &[("floor-version", "nothing is collected below a floor of a later version", "/version", "2")],
        |rule| rule.fails(&["verify"], "damaged").fails(&["collect"], "unsupported"),
    ));
    rules
}

fn frames(stores: &Stores) -> Vec<Rule> {
    let of = &stores["deltas"];
    let (text, bytes) = (of.text(Shard(2)), of.bytes(Shard(2)).to_vec());
    let damaged =
        |name, why, stored| rule("deltas", "1", name, why).stored(Shard(2), stored).restores(&[2, 3], "damaged");
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
        rule("deltas", "1", "shard-hash", "the key is the hash of the stored bytes")
            .put(of.key(Shard(2)), other)
            .restores(&[2, 3], "damaged"),
    ]
}

fn shards(stores: &Stores) -> Vec<Rule> {
    let of = &stores["deltas"];
    let damaged = |rule: Rule| rule.restores(&[2, 3], "damaged");
    let id = of.id(Shard(1));
    let mut rules = vec![
        damaged(rule("deltas", "4", "shard-listed-twice", "no shard is listed twice").edit(
            Shard(2),
            "/shards",
            format!(r#"["{id}","{id}"]"#),
        )),
        rule("deltas", "4", "shard-listed-missing", "shards that are listed are there")
            .lose(of.key(Shard(1)))
            .restores(&[1, 2, 3], "damaged"),
        rule("deltas", "4", "shard-unlisted", "all shards of a chain are listed")
            .edit(Shard(3), "/shards/0", format!("\"{}\"", of.id(Shard(2))))
            .edit(Shard(3), "/shards/1", format!("\"{id}\""))
            .restores(&[3], "damaged"),
        rule("deltas", "4", "data-missing", "data objects are there")
            .lose(of.key(Data(1)))
            .restores(&[1, 2, 3], "damaged"),
        rule("deltas", "4", "data-truncated", "data objects are whole")
            .put(of.key(Data(2)), &of.bytes(Data(2))[..570])
            .restores(&[2], "damaged"),
        rule("deltas", "4", "data-other", "a set decodes to its raw bytes")
            .put(of.key(Data(2)), of.bytes(Data(3)))
            .restores(&[2, 3], "damaged"),
    ];
    rules.extend(each(
        "deltas",
        "4",
        Shard(2),
        &[
            ("shard-format", "`format` is lmc-shard", "/format", r#""lmc-snapshot""#),
            ("shard-save-short", "an id has 32 digits", "/save", r#""26b0""#),
            (
                "shard-save-of-another",
                "`save` is in the keys of data",
                "/save",
                r#""00000000000000000000000000000000""#,
            ),
            ("shard-began-negative", "an integer has no sign", "/began", "-1"),
            ("shard-began-missing", "`began` is required", "/began", ""),
            ("shard-shards-null", "no value is null", "/shards", "null"),
            ("shard-shards-short", "a hash has 64 digits", "/shards/0", r#""d002""#),
            ("shard-objects-negative", "an integer has no sign", "/objects/0", "-571"),
            ("shard-objects-missing", "`objects` is required", "/objects", ""),
            ("shard-sets-object", "`sets` is an array", "/sets", "{}"),
            ("shard-files-missing", "`files` is required", "/files", ""),
            ("shard-unknown-field", "readers refuse unknown fields", "/began", r#"0,"more":1"#),
            ("shard-field-twice", "no object has a field twice", "/began", r#"0,"began":0"#),
            ("shard-writers-null", "no value is null", "/began", r#"0,"writers":null"#),
        ],
        damaged,
    ));
    rules.extend(each(
        "deltas",
        "1",
        Shard(2),
        &[("shard-version", "readers refuse other versions", "/version", "2")],
        |rule| rule.restores(&[2, 3], "unsupported"),
    ));
    rules.extend(each(
        "deltas",
        "1",
        Shard(2),
        &[
            ("shard-objects-2-53", "data objects have at most 2^53 bytes", "/objects", "[9007199254740992,1]"),
            ("shard-files-2-53", "files have at most 2^53 bytes", "/files/3/len", "9007199254740992"),
        ],
        |rule| rule.restores(&[2, 3], "limit"),
    ));
    rules
}

fn sets(stores: &Stores) -> Vec<Rule> {
    let damaged = |rule: Rule| rule.restores(&[2, 3], "damaged");
    let unused = format!(r#"0}},{{"at":[0,572,1],"hash":"{0}","raw_len":0,"raw_hash":"{0}","age":0"#, "0".repeat(64));
    let mut rules = vec![damaged(rule("deltas", "1", "set-unused", "what no file uses is checked, too").edit(
        Shard(2),
        "/sets/1/age",
        unused,
    ))];
    rules.extend(each(
        "deltas",
        "4",
        Shard(2),
        &[
            ("set-object-unknown", "a set is in an object of the shard", "/sets/0/at/0", "1"),
            ("set-beyond-object", "a set is within its object", "/sets/1/at/2", "194"),
            (
                "set-offset-2-64",
                "a set is within its object, also where the sum overflows",
                "/sets/1/at/1",
                "18446744073709551615",
            ),
            ("set-at-2", "`at` has 3 integers", "/sets/0/at", "[0,0]"),
            ("set-at-4", "`at` has 3 integers", "/sets/0/at", "[0,0,378,0]"),
            ("set-at-fraction", "an integer has no fraction", "/sets/0/at/1", "0.0"),
            ("set-at-minus-0", "an integer has no sign", "/sets/0/at/1", "-0"),
            ("set-hash-short", "a hash has 64 digits", "/sets/0/hash", r#""fe58""#),
            ("set-hash-missing", "`hash` is required", "/sets/0/hash", ""),
            ("set-raw-len-missing", "`raw_len` is required", "/sets/0/raw_len", ""),
            ("set-base-null", "no value is null", "/sets/1/age", r#"0,"base":null"#),
            ("set-base-1", "`base` has 2 integers", "/sets/0/base", "[1]"),
            ("set-base-itself", "a base in the same shard has a lower number", "/sets/0/base", "[0,0]"),
            ("set-base-later", "a base in the same shard has a lower number", "/sets/0/base", "[0,1]"),
            ("set-base-of-no-shard", "a base is in the shard, or in one that it lists", "/sets/0/base", "[2,1]"),
            ("set-base-missing", "a set without a base has age 0", "/sets/0/base", ""),
            ("set-age-missing", "`age` is required", "/sets/0/age", ""),
            ("set-age-0", "a set with a base has an age", "/sets/0/age", "0"),
            ("set-age-without-base", "a set without a base has age 0", "/sets/1/age", "1"),
            ("set-age-2-32", "an age is below 2^32", "/sets/0/age", "4294967296"),
            ("set-unknown-field", "readers refuse unknown fields", "/sets/0/age", r#"1,"more":1"#),
            ("set-field-twice", "no object has a field twice", "/sets/0/age", r#"1,"age":1"#),
            ("set-array", "a set is an object", "/sets/1", r#"[[0,378,193],"",7,"",0]"#),
        ],
        damaged,
    ));
    // Seen by those who use the set.
    rules.extend(each(
        "deltas",
        "4",
        Shard(2),
        &[
            ("set-base-unknown", "a base is a set of its shard", "/sets/0/base", "[1,3]"),
            ("set-base-of-another", "a base is the one that the file names", "/sets/0/base", "[1,0]"),
            ("set-raw-len", "a set decodes to `raw_len` bytes", "/sets/0/raw_len", "8193"),
        ],
        damaged,
    ));
    rules.extend(each(
        "deltas",
        "4",
        Shard(2),
        &[("set-base-not-named", "a set whose file names no base has none", "/sets/1/age", r#"1,"base":[1,2]"#)],
        |rule| rule.restores(&[2], "damaged"),
    ));
    rules.push(
        rule("deltas", "4", "set-raw-hash", "a set decodes to bytes of that hash")
            .edit(Shard(2), "/sets/1/raw_hash", format!("\"{}\"", "0".repeat(64)))
            .restores(&[2], "damaged"),
    );
    rules.extend(each(
        "deltas",
        "4",
        Shard(3),
        &[("set-age-of-base", "an age is larger than that of the base", "/sets/0/age", "1")],
        |rule| rule.restores(&[3], "damaged"),
    ));
    let large = |name, why, place: &str| {
        rule("deltas", "1", name, why)
            .edit(Shard(2), "/objects/0", "300000000")
            .edit(Shard(2), "/sets/1/at/2", place)
            .restores(&[2, 3], "limit")
    };
    rules.push(large("set-stored-2-27", "a set has at most 2^27 stored bytes", "134217729"));
    rules.extend(each(
        "deltas",
        "1",
        Shard(2),
        &[("set-raw-2-26", "a set has at most 2^26 raw bytes", "/sets/1/raw_len", "67108865")],
        |rule| rule.restores(&[2, 3], "limit"),
    ));
    rules.push(long_chain(&stores["deltas"]));
    rules
}

/// 65 sets, each the base of the next.
fn long_chain(of: &Made) -> Rule {
    let text = of.text(Shard(2));
    let (start, end) = (text.find(r#"{"at""#).expect("it has sets"), text.find("},{\"at\"").expect("it has two sets"));
    let first = &text[start..end];
    let more: String = (2..66)
        .map(|n| {
            let own = first.replace(
                r#""base":[1,1],"age":1"#,
                &format!(r#""base":[0,{}],"age":{n}"#, if n == 2 { 0 } else { n - 1 }),
            );
            format!("}},{own}")
        })
        .collect();
    rule("deltas", "1", "set-chain-65", "a chain has at most 64 sets")
        .edit(Shard(2), "/sets/1/age", format!("0{}", more.strip_suffix('}').unwrap_or(&more)))
        .edit(Shard(2), "/files/0/extents/1/1", "64")
        .restores(&[2], "limit")
}

fn files() -> Vec<Rule> {
    let damaged = |rule: Rule| rule.restores(&[2, 3], "damaged");
    let long = [format!("\"{}\"", "x".repeat(256)), format!("\"{}x\"", "x/".repeat(512))];
    let mut rules: Vec<Rule> = each(
        "deltas",
        "4",
        Shard(2),
        &[
            ("name-empty", "no component of a name is empty", "/files/3/name", r#""""#),
            ("name-absolute", "no component of a name is empty", "/files/3/name", r#""/etc/passwd""#),
            ("name-slash-last", "no component of a name is empty", "/files/3/name", r#""a/""#),
            ("name-dot", "no component of a name is .", "/files/3/name", r#""a/./b""#),
            ("name-dots", "no component of a name is ..", "/files/3/name", r#""../x""#),
            ("name-dots-last", "no component of a name is ..", "/files/3/name", r#""a/..""#),
            ("name-backslash", "no name has a \\", "/files/3/name", r#""a\\b""#),
            ("name-colon", "no name has a :", "/files/3/name", r#""C:x""#),
            ("name-nul", "no name has control characters", "/files/3/name", r#""a\u0000""#),
            ("name-newline", "no name has control characters", "/files/3/name", r#""a\n""#),
            ("name-del", "no name has control characters", "/files/3/name", r#""a\u007f""#),
            ("name-c1", "no name has control characters", "/files/3/name", r#""a\u0085""#),
            ("name-surrogate", "no string has half a surrogate pair", "/files/3/name", r#""\udc00""#),
            ("name-twice", "names are unique", "/files/3/name", r#""sub/note.txt""#),
            ("name-of-a-directory", "no file has the name of a directory", "/files/3/name", r#""sub""#),
            ("name-below-a-file", "no file has the name of a directory", "/files/3/name", r#""model.safetensors/x""#),
            ("name-null", "no value is null", "/files/3/name", "null"),
            ("file-len", "extents cover a file", "/files/0/len", "8265"),
            ("file-len-missing", "`len` is required", "/files/0/len", ""),
            ("file-layout-null", "no value is null", "/files/0/layout", "null"),
            ("file-layout-missing", "`layout` is required", "/files/0/layout", ""),
            ("file-extents-missing", "`extents` is required", "/files/0/extents", ""),
            ("file-unknown-field", "readers refuse unknown fields", "/files/0/len", r#"8264,"more":1"#),
            ("file-field-twice", "no object has a field twice", "/files/0/len", r#"8264,"len":8264"#),
            ("file-array", "a file is an object", "/files/3", r#"["nothing",0,"raw",[]]"#),
            ("extent-3", "an extent has 4 integers", "/files/1/extents/0", "[0,1,7]"),
            ("extent-negative", "an integer has no sign", "/files/1/extents/0/2", "-1"),
            ("extent-empty", "an extent is not empty", "/files/3/extents", "[[0,1,0,0]]"),
            ("extent-of-no-shard", "an extent is of the shard, or of one that it lists", "/files/1/extents/0/0", "2"),
            ("extent-of-no-set", "an extent is of a set of its shard", "/files/1/extents/0/1", "2"),
            ("extent-beyond-set", "an extent is within its set", "/files/1/extents/0/2", "1"),
            (
                "extent-2-64",
                "an extent is within its set, also where the sum overflows",
                "/files/1/extents/0/2",
                "18446744073709551615",
            ),
        ],
        damaged,
    )
    .collect();
    for (name, text, why) in [
        ("name-256", &long[0], "a component has at most 255 bytes"),
        ("name-1025", &long[1], "a name has at most 1024 bytes"),
    ] {
        rules.push(damaged(rule("deltas", "1", name, why).edit(Shard(2), "/files/3/name", text.clone())));
    }
    rules.extend(each(
        "deltas",
        "4",
        Shard(2),
        &[
            ("extent-of-no-set-there", "an extent is of a set of its shard", "/files/0/extents/0/1", "3"),
            ("extent-beyond-set-there", "an extent is within its set", "/files/0/extents/0/2", "1"),
        ],
        |rule| rule.restores(&[2], "damaged"),
    ));
    rules.extend(each(
        "shards",
        "3",
        Second(2),
        &[
            ("name-twice-in-snapshot", "names are unique over all shards", "/files/0/name", r#""a.safetensors""#),
            (
                "name-of-a-directory-in-snapshot",
                "no file has the name of a directory, over all shards",
                "/files/0/name",
                r#""a.safetensors/b""#,
            ),
        ],
        |rule| rule.restores(&[2], "damaged"),
    ));
    rules
}

const RANK_65: &str = concat!(
    "[64,32",
    ",1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
    ",1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
);

/// They concern readers of tensors.
fn segments() -> Vec<Rule> {
    let damaged = |rule: Rule| rule.fails(&["tensors 1", "tensors 2", "tensors 3"], "damaged");
    let mut rules: Vec<Rule> = each(
        "deltas",
        "4",
        Shard(1),
        &[
            ("segments-null", "no value is null", "/files/0/segments", "null"),
            ("segments-too-short", "segments cover a file", "/files/0/segments/0/len", "71"),
            ("segments-missing", "a file without segments has no bytes", "/files/1/segments", ""),
            ("segment-array", "a segment is an object", "/files/0/segments/0", "[72]"),
            ("segment-len-missing", "`len` is required", "/files/0/segments/0", "{}"),
            ("segment-name-null", "no value is null", "/files/0/segments/0/len", r#"72,"name":null"#),
            ("segment-dtype-null", "no value is null", "/files/0/segments/0/len", r#"72,"dtype":null"#),
            ("segment-bits-null", "no value is null", "/files/0/segments/0/len", r#"72,"bits":null"#),
            ("segment-shape-null", "no value is null", "/files/0/segments/0/len", r#"72,"shape":null"#),
            ("segment-shape", "a tensor has as many bytes as its shape says", "/files/0/segments/1/shape", "[64,33]"),
            (
                "segment-shape-2-64",
                "a tensor has as many bytes as its shape says",
                "/files/0/segments/1/shape",
                "[9223372036854775808,64]",
            ),
            ("segment-bits", "no dtype of the format has `bits`", "/files/0/segments/1/shape", r#"[64,32],"bits":32"#),
            ("segment-name-alone", "a tensor has a name and a dtype", "/files/0/segments/1/dtype", ""),
            ("segment-dtype-alone", "a tensor has a name and a dtype", "/files/0/segments/1/name", ""),
            (
                "segment-shape-alone",
                "bytes that are no tensor have no shape",
                "/files/0/segments/0/len",
                r#"72,"shape":[72]"#,
            ),
            ("segment-rank-65", "a shape has at most 64 dimensions", "/files/0/segments/1/shape", RANK_65),
            ("segment-bits-alone", "`bits` is that of a dtype", "/files/0/segments/0/len", r#"72,"bits":8"#),
            ("segment-unknown-field", "readers refuse unknown fields", "/files/0/segments/0/len", r#"72,"more":1"#),
            (
                "segments-of-and-segments",
                "a file has segments, or those of another",
                "/files/2/segments_of",
                r#"[0,0],"segments":[{"len":8264}]"#,
            ),
            ("segments-of-null", "no value is null", "/files/3/len", r#"0,"segments_of":null"#),
            ("segments-of-itself", "a file names the segments of an earlier one", "/files/2/segments_of", "[0,2]"),
            ("segments-of-later", "a file names the segments of an earlier one", "/files/2/segments_of", "[0,3]"),
            ("segments-of-another-length", "the other file has the same length", "/files/2/segments_of", "[0,1]"),
            (
                "segments-of-no-shard",
                "the other file is in the shard, or in one that it lists",
                "/files/2/segments_of",
                "[1,0]",
            ),
        ],
        damaged,
    )
    .collect();
    rules.extend(each(
        "deltas",
        "4",
        Shard(1),
        &[(
            "segment-dtype-unknown",
            "a dtype without `bits` is one of the format",
            "/files/0/segments/1/dtype",
            r#""F31""#,
        )],
        |rule| rule.fails(&["tensors 1", "tensors 2", "tensors 3"], "unsupported"),
    ));
    rules.extend(each(
        "deltas",
        "4",
        Shard(2),
        &[
            ("segments-of-third", "the other file lists its segments itself", "/files/2/segments_of", "[1,2]"),
            ("segments-of-no-file", "the other file is there", "/files/0/segments_of", "[1,4]"),
            ("segments-of-another-length-there", "the other file has the same length", "/files/0/segments_of", "[1,1]"),
        ],
        |rule| rule.fails(&["tensors 2"], "damaged"),
    ));
    rules
}

/// They concern readers of alternatives.
fn alternatives() -> Vec<Rule> {
    let hash = format!("\"{}\"", "0".repeat(64));
    let of_delta =
        format!(r#"[571],"alternatives":[{{"set":0,"at":[0,0,1],"hash":{hash},"base":{hash},"shard":{hash}}}]"#);
    let of_delta = rule("deltas", "4", "alternative-of-a-delta", "a set with a base has no alternative").edit(
        Shard(2),
        "/objects",
        of_delta,
    );
    let rules = each(
        "alternatives",
        "4",
        Shard(2),
        &[
            ("alternatives-null", "no value is null", "/alternatives", "null"),
            ("alternatives-order", "alternatives stand in the order of their sets", "/alternatives/1/set", "0"),
            ("alternative-of-no-set", "the set is there", "/alternatives/1/set", "9"),
            ("alternative-longer", "an alternative is shorter than its set", "/alternatives/0/at", "[0,0,3000]"),
            ("alternative-beyond-object", "an alternative is within its object", "/alternatives/0/at/1", "3231"),
            ("alternative-array", "an alternative is an object", "/alternatives/0", "[]"),
            ("alternative-shard-missing", "`shard` is required", "/alternatives/0/shard", ""),
            ("alternative-base-short", "a hash has 64 digits", "/alternatives/0/base", r#""12""#),
            ("alternative-unknown-field", "readers refuse unknown fields", "/alternatives/0/set", r#"0,"more":1"#),
        ],
        |rule| rule.fails(&["alternatives 2"], "damaged"),
    );
    rules.chain([of_delta.fails(&["alternatives 2", "alternatives 3"], "damaged")]).collect()
}

fn writers(stores: &Stores) -> Vec<Rule> {
    let damaged = |rule: Rule| rule.restores(&[1, 2], "damaged");
    let of: Value = serde_json::from_str(&stores["ranks"].text(Shard(1))).expect("a shard is JSON");
    let writer = |i: usize| of["writers"][i].to_string();
    let one = |name, why, new: String| damaged(rule("ranks", "4", name, why).edit(Shard(1), "/writers", new));
    let mut rules = vec![
        one("writers-descend", "indices of writers ascend", format!("[{},{}]", writer(1), writer(0))),
        one("writers-twice", "no save is there twice", format!("[{},{}]", writer(0), writer(0).replace("[1,", "[2,"))),
        one("writers-save", "`save` is not among the writers", format!("[[1,{}]]", of["save"])),
        one("writers-missing", "data objects are those of their saves", "[]".into()),
    ];
    rules.extend(each(
        "ranks",
        "4",
        Shard(1),
        &[
            ("writers-index", "indices of writers are those of objects", "/writers/1/0", "3"),
            ("writers-index-twice", "indices of writers strictly ascend", "/writers/1/0", "1"),
            ("writers-index-fraction", "an integer has no fraction", "/writers/1/0", "2.0"),
            ("writers-3", "a writer is an index and a save", "/writers/1/0", "2,2"),
            ("writers-id-short", "an id has 32 digits", "/writers/1/1", r#""34""#),
        ],
        damaged,
    ));
    rules
}
