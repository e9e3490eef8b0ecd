//! The files of `testdata/format1`, the one place where each rule of the format is broken: valid ones are restored by
//! the codec and by the reference decoder, and broken ones are refused by both, with the messages that `bad.json` has.

use lmc::Base;
use lmc_testing::decoders::{Way, agree_with_bases, isas, options};
use lmc_testing::format1::{BrokenVector, FROZEN, LIMIT, broken_vectors, frozen_lines, restore, unfrozen};
use lmc_testing::reference::decode_with_bases;
use lmc_testing::reference::describe::describe;
use std::collections::{BTreeMap, BTreeSet};
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

/// Names of the files that the manifest lists.
fn listed() -> BTreeSet<String> {
    let manifest = String::from_utf8(read("SHA256SUMS")).expect("the manifest is text");
    let names = manifest.lines().map(|line| line.split_once("  ").expect("a digest and a name").1.to_owned());
    names.collect()
}

/// The valid files, without suffix.
fn names(listed: &BTreeSet<String>) -> Vec<&str> {
    listed.iter().filter_map(|name| name.strip_suffix(".lmc")).collect()
}

/// The broken files.
fn broken() -> Vec<BrokenVector> {
    broken_vectors(&read("bad.json")).expect("it is as it was made")
}

fn bases_of(listed: &BTreeSet<String>, name: &str) -> Vec<Vec<u8>> {
    let names = (1..).map(|i| format!("{name}.base{i}"));
    names.take_while(|base| listed.contains(base)).map(|base| read(&base)).collect()
}

#[test]
fn the_folder_has_the_files_of_the_manifest_and_no_others() {
    let mut there: BTreeSet<String> = fs::read_dir(folder())
        .expect("the folder is there")
        .map(|entry| entry.expect("the folder can be read").file_name().into_string().expect("names are ASCII"))
        .collect();
    for name in ["SHA256SUMS", FROZEN, "README.md", "run.py"] {
        assert!(there.remove(name), "{name} is missing");
    }
    let listed = listed();
    assert_eq!(there.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new(), "files that are not listed");
    assert_eq!(listed.difference(&there).collect::<Vec<_>>(), Vec::<&String>::new(), "files that are missing");
    assert!(names(&listed).len() >= 100 && broken().len() >= 200, "too few files");
}

#[test]
fn frozen_vectors_have_their_bytes() {
    let files: BTreeMap<String, Vec<u8>> = listed().into_iter().map(|name| (name.clone(), read(&name))).collect();
    let lines = frozen_lines(&files).expect("all vectors are whole");
    let frozen = String::from_utf8(read(FROZEN)).expect("it is text");
    assert_eq!(unfrozen(&frozen, &lines), Vec::<String>::new());
    assert!(frozen.lines().count() >= 300, "too few vectors are frozen");
    // So would a vector that changed, that is no more, or that was refused and is not.
    let one = &lines[0];
    for wrong in [one.replace(&one[..1], "g"), format!("{one}0 - bad/gone\n"), one.replacen(' ', " - ", 1)] {
        assert_eq!(unfrozen(&wrong, &lines).len(), 1, "{wrong}");
    }
}

#[test]
fn valid_files_are_restored_by_every_decoder() {
    let listed = listed();
    for name in names(&listed) {
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
const UNSEEN: [&str; 20] = [
    "tag-upper-case",
    "tag-backquote",
    "tag-brace",
    "tag-blank",
    "tag-delete",
    "skippable-65",
    "skippable-with-a-body",
    "skippable-check",
    "content-hash",
    "exact-features-not-needed",
    "cost-above-2-30",
    "exact-features-of-ranges",
    "exact-features-of-this-file",
    "exact-features-of-terms-and-ranges",
    "cast-needs-bit-4",
    "codes-needs-bit-4",
    "scales-needs-bit-4",
    "field-needs-bit-4",
    "exact-features-without-bit-4",
    "exact-features-of-bits-3-and-4",
];

#[test]
fn broken_files_are_refused_with_their_message() {
    let broken = broken();
    let mut unseen = Vec::new();
    for BrokenVector { name, file, bases, error, reason, is_optional } in &broken {
        let slices: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
        assert_eq!(decode_with_bases(file, &slices, LIMIT).expect_err(name), *reason, "{name}");
        for &isa in isas() {
            let refused = restore(file, &slices, isa).expect_err(name);
            assert_eq!(refused.to_string(), *error, "{name} on {}", isa.name());
        }
        let limits = lmc::DecodeLimits::default().with_max_raw_size(LIMIT as u64);
        let options = options(isas()[0]).with_limits(limits);
        let mut decompressor = lmc::Decompressor::new(&options).expect("no threads are needed");
        let bases: Vec<Base<'_>> = slices.iter().map(|raw| Base::new(*raw).expect("memory can be read")).collect();
        // What is optional is not checked in every way.
        for way in Way::OF_DELTAS.into_iter().filter(|_| !is_optional) {
            match way.decode_by(file, &bases, &options, &mut decompressor) {
                Ok(_) if way == Way::Reader => unseen.push(&**name),
                Ok(_) => panic!("{name}: {way:?} accepts it"),
                Err(_) => (),
            }
        }
    }
    assert_eq!(unseen, UNSEEN);
}
