//! A changed store: which texts of documents, or which objects, are replaced, and what fails then.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::edits::edit;
use crate::stores::Made;

pub(crate) type Stores = BTreeMap<&'static str, Made>;

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
pub(crate) use Object::{Data, Floor, Marker, Record, Second, Shard, Tag};

/// A changed store.
pub(crate) struct Rule {
    pub(crate) name: String,
    store: &'static str,
    section: &'static str,
    rule: String,
    edits: Vec<(Object, String, String)>,
    stored: Vec<(Object, Vec<u8>)>,
    put: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) refuse: BTreeMap<String, &'static str>,
}

impl Object {
    /// The document with a name, as in `bad.txt`.
    pub(crate) fn named(name: &'static str) -> Self {
        let (kind, of) = name.split_once(' ').unwrap_or((name, ""));
        let step = || of.parse().expect("it is of a step");
        match kind {
            "marker" => Marker,
            "record" => Record(step()),
            "shard" => Shard(step()),
            "second" => Second(step()),
            "tag" => Tag(of),
            "floor" => Floor,
            _ => panic!("{name}"),
        }
    }
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

    pub(crate) fn bytes(&self, object: Object) -> &[u8] {
        &self.objects[&self.key(object)]
    }

    /// The text of a document.
    pub(crate) fn text(&self, object: Object) -> String {
        let bytes = self.bytes(object);
        let text = zstd::decode_all(bytes).unwrap_or_else(|_| bytes.to_vec());
        String::from_utf8(text).expect("a document is text")
    }

    /// The id of a shard.
    pub(crate) fn id(&self, object: Object) -> String {
        self.key(object)["shards/".len()..][..64].to_owned()
    }
}

impl Rule {
    /// Gives a value, which is named by a pointer, another text; an empty one removes the field.
    pub(crate) fn edit(mut self, object: Object, pointer: &str, new: impl Into<String>) -> Self {
        self.edits.push((object, pointer.into(), new.into()));
        self
    }

    /// Replaces the stored bytes of a shard; its hash follows.
    pub(crate) fn stored(mut self, object: Object, bytes: Vec<u8>) -> Self {
        self.stored.push((object, bytes));
        self
    }

    /// Replaces an object; no hash follows.
    pub(crate) fn put(mut self, key: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        self.put.push((key.into(), Some(bytes.into())));
        self
    }

    pub(crate) fn lose(mut self, key: impl Into<String>) -> Self {
        self.put.push((key.into(), None));
        self
    }

    /// What fails, and the kind of the error.
    pub(crate) fn fails(mut self, operations: &[&str], kind: &'static str) -> Self {
        self.refuse.extend(operations.iter().map(|o| ((*o).to_owned(), kind)));
        self
    }

    pub(crate) fn restores(self, steps: &[u64], kind: &'static str) -> Self {
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

pub(crate) fn rule(
    store: &'static str,
    section: &'static str,
    name: impl Into<String>,
    rule: impl Into<String>,
) -> Rule {
    let (edits, stored, put, refuse) = Default::default();
    Rule { name: name.into(), store, section, rule: rule.into(), edits, stored, put, refuse }
}
