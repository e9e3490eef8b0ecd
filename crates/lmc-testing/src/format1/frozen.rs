//! The frozen vectors: what a file of version 1 decodes to, and which ones are refused, never changes.

use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashSet};

/// The list of frozen vectors in `testdata/format1`. Each has a line: the SHA-256 of its file, of its raw bytes (or `-` if it is refused) and
/// of its bases in order, and its name.
pub const FROZEN: &str = "frozen.txt";

/// The lines of all vectors among these files of the folder, in the order of their names.
///
/// # Errors
/// When `bad.json` is not as it is made.
pub fn frozen_lines(files: &BTreeMap<String, Vec<u8>>) -> Result<Vec<String>, String> {
    let mut lines = BTreeMap::new();
    for (name, file) in files.iter().filter_map(|(name, file)| Some((name.strip_suffix(".lmc")?, file))) {
        let raw = files.get(&format!("{name}.raw")).ok_or_else(|| format!("{name} has no raw bytes"))?;
        let bases = (1..).map_while(|i| files.get(&format!("{name}.base{i}")));
        lines.insert(name.to_owned(), line(name, file, &digest(raw), bases.map(|base| &base[..])));
    }
    for vector in broken_vectors(files.get("bad.json").ok_or("bad.json is missing")?)? {
        let bases = vector.bases.iter().map(|base| &base[..]);
        let name = format!("bad/{}", vector.name);
        lines.insert(name.clone(), line(&name, &vector.file, "-", bases));
    }
    Ok(lines.into_values().collect())
}

/// What is wrong with the lines of vectors, given those that were frozen before.
pub fn unfrozen(frozen: &str, lines: &[String]) -> Vec<String> {
    let there: HashSet<&str> = lines.iter().map(|line| line.trim_end()).collect();
    let name = |line: &str| line.rsplit(' ').next().unwrap_or_default().to_owned();
    frozen.lines().filter(|line| !there.contains(line)).map(|line| format!("{} has changed", name(line))).collect()
}

fn line<'a>(name: &str, file: &[u8], raw: &str, bases: impl Iterator<Item = &'a [u8]>) -> String {
    let bases: String = bases.map(|base| format!(" {}", digest(base))).collect();
    format!("{} {raw}{bases} {name}\n", digest(file))
}

fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A vector of `bad.json`.
#[derive(Debug)]
pub struct BrokenVector {
    /// Its name.
    pub name: String,
    /// The file.
    pub file: Vec<u8>,
    /// The raw bytes of each base.
    pub bases: Vec<Vec<u8>>,
    /// The error message of the codec, and the reason of the reference decoder.
    pub error: String,
    /// The reason of the reference decoder.
    pub reason: String,
    /// Whether a decoder may accept it.
    pub is_optional: bool,
}

/// The vectors of `bad.json`, in its order.
///
/// # Errors
/// When it is not as it is made.
pub fn broken_vectors(json: &[u8]) -> Result<Vec<BrokenVector>, String> {
    let entries: Vec<serde_json::Value> = serde_json::from_slice(json).map_err(|e| format!("bad.json: {e}"))?;
    entries.iter().map(|entry| vector(entry).ok_or_else(|| format!("bad.json: {}", entry["name"]))).collect()
}

fn vector(entry: &serde_json::Value) -> Option<BrokenVector> {
    let text = |key: &str| entry[key].as_str().map(str::to_owned);
    Some(BrokenVector {
        name: text("name")?,
        file: bytes(&entry["file"])?,
        bases: entry["bases"].as_array()?.iter().map(bytes).collect::<Option<_>>()?,
        error: text("error")?,
        reason: text("reason")?,
        is_optional: entry.get("optional").is_some(),
    })
}

/// The bytes of hexadecimal digits.
fn bytes(value: &serde_json::Value) -> Option<Vec<u8>> {
    let (pairs, []) = value.as_str()?.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}
