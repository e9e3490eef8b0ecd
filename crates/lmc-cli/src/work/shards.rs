//! Checkpoints of several files, and their index.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::fs::input::Source;
use crate::fs::names::{CHECKPOINT_SUFFIXES, SUFFIX};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, count};

/// In the name of each index, which ends with [`JSON`]: `model.safetensors.index.json`, `model.safetensors.index.fp16.json`.
const INDEX: &str = ".index.";
const JSON: &str = ".json";
/// The field that makes JSON an index.
const WEIGHT_MAP: &str = "weight_map";
/// The largest index, in bytes.
const MAX_INDEX: u64 = 100_000_000;
/// Suffixes of weights that others write, and that have indexes, too.
const OTHER_WEIGHTS: [&str; 2] = ["msgpack", "h5"];

/// What a path leads to.
pub(crate) enum Index {
    /// The index of a checkpoint: the paths of its files, from its directory.
    Of(BTreeSet<String>),
    /// The beginning of one, as it is not completely written.
    Torn,
    /// A file with the name of the index of weights that is none: why.
    Other(String),
    /// Anything else.
    No,
}

/// Reads a file if it has the name of an index. It is one if it has a `weight_map`: other files are named like that, too.
pub(crate) fn index(path: &Path) -> Result<Index> {
    // Nothing else is opened: opening a FIFO waits.
    if !is_index(path) || !path.is_file() {
        return Ok(Index::No);
    }
    let source = Source::open(path)?;
    let of_weights = is_of_weights(path);
    let other = |why: &dyn Display| match of_weights {
        true => Index::Other(format!("has the name of an index, and is none: {why}")),
        false => Index::No,
    };
    if source.metadata().len() > MAX_INDEX {
        return Ok(other(&format_args!("it has more than {MAX_INDEX} bytes")));
    }
    let mut bytes = Vec::new();
    source.stream().read_to_end(&mut bytes).map_err(|e| Failure::io(path, "cannot read", &e))?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let Some(json) = parse(text) else {
        let start = text.trim_ascii_start();
        let is_named = || text.windows(WEIGHT_MAP.len()).any(|part| part == WEIGHT_MAP.as_bytes());
        // A file whose bytes did not reach the disk before a crash has none, or zeros.
        let is_cut = if start.starts_with(b"{") { of_weights || is_named() } else { of_weights && is_zero(start) };
        if is_cut {
            return Ok(Index::Torn);
        }
        let why = source.truncated()?;
        return Ok(other(&why.as_deref().unwrap_or("it is not JSON")));
    };
    let Some(map) = json.get(WEIGHT_MAP).and_then(Value::as_object) else { return Ok(Index::No) };
    let mut names = BTreeSet::new();
    for value in map.values() {
        match value.as_str().and_then(below) {
            Some(name) => names.insert(name),
            None => {
                return Ok(Index::Other(format!(
                    "has a {WEIGHT_MAP} with {value}, which is not the name of a file in its directory"
                )));
            }
        };
    }
    Ok(Index::Of(names))
}

/// Parses JSON, also with the numbers that only Python's library writes: `NaN`, `Infinity` and `-Infinity`.
fn parse(text: &[u8]) -> Option<Value> {
    if let Ok(json) = serde_json::from_slice(text) {
        return Some(json);
    }
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text);
    let (mut in_string, mut escaped) = (false, false);
    while let Some(&byte) = rest.first() {
        let number = [&b"NaN"[..], b"Infinity", b"-Infinity"].into_iter().find(|n| !in_string && rest.starts_with(n));
        if let Some(number) = number {
            plain.extend(b"null");
            rest = &rest[number.len()..];
            continue;
        }
        in_string ^= byte == b'"' && !escaped;
        escaped = in_string && byte == b'\\' && !escaped;
        plain.push(byte);
        rest = &rest[1..];
    }
    serde_json::from_slice(&plain).ok()
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b == 0)
}

/// A name of a file as a path below a directory, without `./`.
fn below(name: &str) -> Option<String> {
    let parts = Path::new(name).components().filter(|part| *part != Component::CurDir);
    let parts = parts.map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let parts = parts.collect::<Option<Vec<_>>>().filter(|parts| !parts.is_empty());
    parts.filter(|_| !name.ends_with('/')).map(|parts| parts.join("/"))
}

/// The names of a checkpoint's files; `None` if the path is not an index. What should be one and is none is refused: its weights would be
/// left out.
pub(crate) fn shards(path: &Path) -> Result<Option<BTreeSet<String>>> {
    match index(path)? {
        Index::Of(names) => Ok(Some(names)),
        Index::Torn => Err(torn(path)),
        Index::Other(why) => Err(Failure::at(path, format_args!("{why}: fetch it again, or name the weights"))),
        Index::No => Ok(None),
    }
}

/// The failure of an index that is not completely written.
fn torn(path: &Path) -> Failure {
    Failure::at(path, "is not JSON, as an index that is not completely written")
}

/// Why the checkpoint that an index stands for is not whole.
pub(crate) enum Fault {
    /// Something is missing, or not written to its end.
    Unfinished(Failure),
    /// It is no index, although it is named like one.
    Other(Failure),
}

/// Looks for the files that an index names, and for their ends; there is no fault of any other file. An index is passed over that
/// `is_stale` says is another format's. An index without its files would be a snapshot without a model.
pub(crate) fn fault(path: &Path, is_stale: impl FnOnce(&BTreeSet<String>) -> bool) -> Result<Option<Fault>> {
    let names = match index(path)? {
        Index::Of(names) if !is_stale(&names) => names,
        Index::Of(_) | Index::No => return Ok(None),
        Index::Torn => return Ok(Some(Fault::Unfinished(torn(path)))),
        Index::Other(why) => return Ok(Some(Fault::Other(Failure::at(path, why)))),
    };
    for name in &names {
        let (file, name) = (named_by(path, name), Name::text(name));
        let why = match file {
            None => format!("names {name}, which is not beside it"),
            Some(file) => match Source::open(&file)?.truncated()? {
                None => continue,
                Some(why) => format!("names {name}, which is not whole: {why}"),
            },
        };
        return Ok(Some(Fault::Unfinished(Failure::at(path, why))));
    }
    Ok(None)
}

/// Fails if a path is an index, for commands that take each file by itself: says which files these are.
pub(crate) fn refuse_index(path: &Path) -> Result {
    let Some(names) = shards(path)? else { return Ok(()) };
    let Some(first) = names.first() else { return Ok(()) };
    let compressed = with_suffix(path, first);
    let file = if compressed.exists() { compressed } else { path.with_file_name(first) };
    let (number, file) = (count(names.len(), "file"), Name::path(&file));
    let what = format_args!("is the index of a checkpoint of {number}: name one of its files, such as {file}");
    Err(Failure::at(path, what))
}

/// Whether a path has the name of an index. Hidden files have not: other systems put them beside those of a checkpoint.
pub(crate) fn is_index(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.') && name.contains(INDEX) && name.ends_with(JSON)
}

/// Whether an index, by its name, is one of files with weights.
fn is_of_weights(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    has_weights(Path::new(name.split(INDEX).next().unwrap_or_default()))
}

/// Whether a file, by its name, may have weights, also compressed.
pub(crate) fn has_weights(path: &Path) -> bool {
    let has = |path: &Path, suffix: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(suffix));
    let stem = path.with_extension("");
    let path = if has(path, SUFFIX) { &stem } else { path };
    CHECKPOINT_SUFFIXES.iter().chain(&OTHER_WEIGHTS).any(|suffix| has(path, suffix))
}

/// Where a file that an index names is: under its name, or as the compressed form that took its place. `None` if it is not there.
pub(crate) fn named_by(index: &Path, name: &str) -> Option<PathBuf> {
    let (plain, compressed) = (index.with_file_name(name), with_suffix(index, name));
    // Opening a link that leads nowhere says so.
    let dangling = plain.is_symlink().then(|| plain.clone());
    [plain, compressed].into_iter().find(|path| path.exists()).or(dangling)
}

/// The compressed form of a file beside `index`.
pub(crate) fn with_suffix(index: &Path, name: &str) -> PathBuf {
    index.with_file_name(format!("{name}.{SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &[u8]) -> Index {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        index(&path).unwrap()
    }

    #[test]
    fn an_index_is_what_has_a_weight_map() {
        let of = |name: &str, text: &[u8]| match read(name, text) {
            Index::Of(names) => names.into_iter().collect::<Vec<_>>().join(" "),
            Index::Torn => "torn".to_owned(),
            Index::Other(_) => "other".to_owned(),
            Index::No => "no".to_owned(),
        };
        let map = br#"{"weight_map": {"x": "a.pt", "y": "b.pt"}}"#;
        let named = ["model.safetensors.index.json", "m.safetensors.index.fp16.json", "pytorch_model.bin.index.json"];
        for name in named.into_iter().chain(["tf_model.h5.index.json", "any.index.json", "a.index.x.y.json"]) {
            assert_eq!(of(name, map), "a.pt b.pt", "{name}");
        }
        for name in
            ["model.json", "index.json", "a.index", "a.index.jsonl", "._m.safetensors.index.json", ".index.json"]
        {
            assert_eq!(of(name, map), "no", "{name}");
        }
        let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 7\n";
        let cases: [(&[u8], &str, &str); 14] = [
            (b"\xef\xbb\xbf{\"weight_map\": {\"x\": \"a\"}}", "a", "a"),
            (br#"{"n": [NaN, Infinity, -Infinity, "NaN\" NaN"], "weight_map": {"NaN": "NaN"}}"#, "NaN", "NaN"),
            (br#"{"weight_map": {"x": "./a", "y": "././b", "z": "sub/c"}}"#, "a b sub/c", "a b sub/c"),
            (br#"{"weight_map": {}}"#, "", ""),
            (br#"{"weight_map": {"x": "../a"}}"#, "other", "other"),
            (br#"{"weight_map": {"x": "/a"}}"#, "other", "other"),
            (br#"{"weight_map": {"x": "sub/"}}"#, "other", "other"),
            (br#"{"weight_map": {"x": 7}}"#, "other", "other"),
            (br#"{"weight_map": 7}"#, "no", "no"),
            (br#"{"weight_map": {"x": "a"}"#, "torn", "torn"),
            (br#" {"metadata": {"#, "torn", "no"),
            (b"", "torn", "no"),
            (&[0; 9], "torn", "no"),
            (lfs, "other", "no"),
        ];
        for (text, of_weights, of_any) in cases {
            let shown = String::from_utf8_lossy(text);
            assert_eq!(of("model.safetensors.index.json", text), of_weights, "{shown}");
            assert_eq!(of("search.index.json", text), of_any, "{shown}");
        }
    }

    #[test]
    fn what_should_be_an_index_and_is_none_is_not_a_file_like_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors.index.json");
        for (text, why) in
            [(&b"{\"weight_map\""[..], "is not JSON"), (b"\xff\xfe", "and is none: it is not JSON: fetch it again")]
        {
            std::fs::write(&path, text).unwrap();
            let e = shards(&path).unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        }
    }
}
