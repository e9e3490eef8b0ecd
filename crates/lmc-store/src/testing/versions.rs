//! Directories of arbitrary versions (`docs/interchange.md`): the body of the fuzz target `interchange`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{FollowOptions, Follower, Result, Step};

/// The names of files. Others are no concern of the reader.
const NAMES: [&str; 8] = [
    "model.safetensors.index.json",
    "model-00000-of-00001.safetensors",
    "model-0.safetensors",
    "model-1.safetensors",
    "model.safetensors",
    "config.json",
    "tokenizer.model",
    "optimizer.pt",
];

/// A file of an input: before it, the version it is in, with [`LATER`] if it is written after the first look; its name in [`NAMES`]; and
/// its length, 16 bits, the low ones first.
struct Entry<'d> {
    later: bool,
    version: u8,
    name: &'static str,
    bytes: &'d [u8],
}

const LATER: u8 = 0x80;
/// Versions have these numbers at most.
const MOST: u8 = 0x0f;

fn entries(mut input: &[u8]) -> Vec<Entry<'_>> {
    let mut entries = vec![];
    while let Some((&[version, name, a, b], rest)) = input.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([a, b])).min(rest.len());
        let (bytes, rest) = rest.split_at(len);
        let (later, version) = (version & LATER != 0, version & MOST);
        entries.push(Entry { later, version, name: NAMES[usize::from(name) % NAMES.len()], bytes });
        input = rest;
    }
    entries
}

/// The input that writes a directory of versions, those from `later` on after the first look; the first byte is 0.
///
/// # Errors
/// Those of reading it.
pub fn pack_versions(directory: &Path, later: u8) -> std::io::Result<Vec<u8>> {
    let mut input = vec![0];
    for version in 0..=MOST {
        for (number, name) in (0..).zip(NAMES) {
            let Ok(bytes) = fs::read(path_in(directory, version, name)) else { continue };
            let len = u16::try_from(bytes.len()).map_err(std::io::Error::other)?.to_le_bytes();
            input.extend([version | if version >= later { LATER } else { 0 }, number, len[0], len[1]]);
            input.extend(bytes);
        }
    }
    Ok(input)
}

fn path_in(directory: &Path, version: u8, name: &str) -> PathBuf {
    directory.join(format!("weight_v{version:06}")).join(name)
}

/// A directory that is removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!("lmc-versions-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // Left by a process that was killed, and had the same id.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => panic!("there is no space for temporary files: {e}"),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Follows the versions of an input, whose first byte has options: twice into one directory, and once, after all is written, into another.
/// Returns the versions that were followed.
///
/// # Panics When the two directories have one version, and differ in their weights; when a followed version has no
/// weights; and when there is no space for temporary files.
pub fn follow_versions(input: &[u8]) -> Vec<Step> {
    let Some((&options, input)) = input.split_first() else { return vec![] };
    let scratch = Scratch::new();
    let [versions, both, fresh] = ["versions", "both", "fresh"].map(|name| scratch.0.join(name));
    let write = |later: bool| {
        fs::create_dir_all(&versions)?;
        for e in entries(input).iter().filter(|e| e.later == later) {
            let path = path_in(&versions, e.version, e.name);
            // Existing files stay: the format has no way to notice that a file is replaced.
            if !path.exists() {
                fs::create_dir_all(path.parent().expect("it is in a version"))?;
                fs::write(path, e.bytes)?;
            }
        }
        std::io::Result::Ok(())
    };
    let follow = |to: &Path| -> Result<Option<Step>> {
        let o = FollowOptions {
            threads: 1,
            verify: options & 1 != 0,
            rewind: options & 2 != 0,
            ..FollowOptions::default()
        };
        let mut follower = Follower::open_interchange(&versions, None, to, o)?;
        let Some(newest) = follower.newest()? else { return Ok(None) };
        let staged = follower.stage(&newest, &mut |_| Ok(()))?;
        follower.commit(staged).map(|v| Some(v.step))
    };
    let mut followed = vec![];
    for later in [false, true] {
        write(later).expect("there is space for temporary files");
        followed.extend(follow(&both).unwrap_or_default());
    }
    let last = follow(&fresh).unwrap_or_default();
    if let Some(last) = last.filter(|last| followed.last() == Some(last)) {
        let (both, fresh) = (weights(&both), weights(&fresh));
        assert!(!fresh.is_empty(), "version {last} has no weights");
        assert!(both == fresh, "version {last} has other weights where it was followed from the one before");
    }
    followed.extend(last);
    followed
}

/// The files with weights of the followed version.
fn weights(to: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| name.ends_with(".safetensors"))?;
        Some((name, fs::read(entry.path()).expect("what is followed can be read")))
    };
    let listed = fs::read_dir(to.join("current")).expect("what is followed can be listed");
    listed.filter_map(|entry| read(entry.expect("what is followed can be listed"))).collect()
}
