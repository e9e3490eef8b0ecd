//! The files of `testdata/format1`, the one place where each rule of the format is broken: valid ones are restored by
//! the codec and by the reference decoder, and broken ones are refused by both, with the messages that `bad.json` has.

use lmc::Base;
use lmc_testing::decoders::{Way, agree_with_bases, isas, options};
use lmc_testing::format1::{LIMIT, restore};
use lmc_testing::reference::decode_with_bases;
use lmc_testing::reference::describe::describe;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/format1")
}

/// The bytes of a file of the folder.
#[track_caller]
fn read(name: &str) -> Vec<u8> {
    fs::read(folder().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Names of the files that the manifest lists, with `bad/` before those in there.
fn listed() -> BTreeSet<String> {
    let manifest = String::from_utf8(read("SHA256SUMS")).expect("the manifest is text");
    let names = manifest.lines().map(|line| line.split_once("  ").expect("a digest and a name").1.to_owned());
    names.collect()
}

/// The listed files with this suffix, without it, in `bad` or not.
fn names(listed: &BTreeSet<String>, bad: bool) -> Vec<&str> {
    let files = listed.iter().filter_map(|name| name.strip_suffix(".lmc"));
    files.filter(|name| name.starts_with("bad/") == bad).collect()
}

fn bases_of(listed: &BTreeSet<String>, name: &str) -> Vec<Vec<u8>> {
    let names = (1..).map(|i| format!("{name}.base{i}"));
    names.take_while(|base| listed.contains(base)).map(|base| read(&base)).collect()
}

#[test]
fn the_folder_has_the_files_of_the_manifest_and_no_others() {
    let mut there = BTreeSet::new();
    for (prefix, folder) in [("", folder()), ("bad/", folder().join("bad"))] {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let name = entry.expect("the folder can be read").file_name();
            there.insert(format!("{prefix}{}", name.to_str().expect("names are ASCII")));
        }
    }
    for name in ["SHA256SUMS", "README.md", "bad"] {
        assert!(there.remove(name), "{name} is missing");
    }
    let listed = listed();
    assert_eq!(there.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new(), "files that are not listed");
    assert_eq!(listed.difference(&there).collect::<Vec<_>>(), Vec::<&String>::new(), "files that are missing");
    assert!(names(&listed, false).len() >= 100 && names(&listed, true).len() >= 200, "too few files");
}

#[test]
fn valid_files_are_restored_by_every_decoder() {
    let listed = listed();
    for name in names(&listed, false) {
        let (file, raw, bases) = (read(&format!("{name}.lmc")), read(&format!("{name}.raw")), bases_of(&listed, name));
        let slices: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
        let decoded = agree_with_bases(&file, &slices);
        assert!(decoded.as_ref() == Ok(&raw), "{name}: {:?}", decoded.map(|_| "other bytes"));
        for &isa in isas() {
            assert!(restore(&file, &slices, isa).is_ok_and(|restored| restored == raw), "{name}");
        }
        let json = String::from_utf8(read(&format!("{name}.json"))).expect("JSON is text");
        let described = describe(&file, &slices, LIMIT).expect("the file is valid").pretty();
        // It stands in a field of the other, indented by one blank.
        let described = described.trim_end().replace('\n', "\n ");
        assert!(json.contains(&described), "{name}.json does not describe the file");
    }
}

/// The broken files that a reader of ranges accepts: it looks at no record behind the last block, nor at all blocks.
const UNSEEN: [&str; 11] = [
    "bad/tag-upper-case",
    "bad/tag-backquote",
    "bad/tag-brace",
    "bad/skippable-65",
    "bad/skippable-with-a-body",
    "bad/skippable-check",
    "bad/content-hash",
    "bad/exact-features-not-needed",
    "bad/exact-features-of-ranges",
    "bad/exact-features-of-this-file",
    "bad/exact-features-of-terms-and-ranges",
];

#[test]
fn broken_files_are_refused_with_their_message() {
    let listed = listed();
    let entries: serde_json::Value = serde_json::from_slice(&read("bad/bad.json")).expect("bad.json is JSON");
    let entries = entries.as_array().expect("it is a list");
    let text = |entry: &serde_json::Value, key: &str| entry[key].as_str().expect("a text").to_owned();
    let described: Vec<String> = entries.iter().map(|entry| format!("bad/{}", text(entry, "file"))).collect();
    let mut sorted = described.clone();
    sorted.sort();
    let files: Vec<String> = names(&listed, true).iter().map(|name| format!("{name}.lmc")).collect();
    assert_eq!(sorted, files, "bad.json has each broken file once");

    let mut unseen = Vec::new();
    for (entry, file_name) in entries.iter().zip(&described) {
        let name = file_name.strip_suffix(".lmc").expect("it has the suffix");
        let (file, bases) = (read(file_name), bases_of(&listed, name));
        let slices: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
        let reason = decode_with_bases(&file, &slices, LIMIT).expect_err(name);
        assert_eq!(reason, text(entry, "reason"), "{name}");
        for &isa in isas() {
            let error = restore(&file, &slices, isa).expect_err(name);
            assert_eq!(error.to_string(), text(entry, "error"), "{name} on {}", isa.name());
        }
        let limits = lmc::DecodeLimits::default().with_max_raw_size(LIMIT as u64);
        let options = options(isas()[0]).with_limits(limits);
        let mut decompressor = lmc::Decompressor::new(&options).expect("no threads are needed");
        let bases: Vec<Base<'_>> = slices.iter().map(|raw| Base::new(*raw).expect("memory can be read")).collect();
        for way in Way::OF_DELTAS {
            match way.decode_by(&file, &bases, &options, &mut decompressor) {
                Ok(_) if way == Way::Reader => unseen.push(name),
                Ok(_) => panic!("{name}: {way:?} accepts it"),
                Err(_) => (),
            }
        }
    }
    assert_eq!(unseen, UNSEEN);
}
