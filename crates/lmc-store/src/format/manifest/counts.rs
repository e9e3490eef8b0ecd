//! How much a shard's document lists: counted before any of it is held in memory (`docs/store.md` §1).

use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::values::Object;
use crate::error::{Error, Result};

/// The most segments that the files of a shard list.
pub(crate) const MAX_SEGMENTS: u64 = 1 << 22;
const MAX_DIMENSIONS: u64 = 1 << 24;
const MAX_EXTENTS: u64 = 1 << 23;
const MAX_FILES: u64 = 1 << 20;
const MAX_OBJECTS: u64 = 1 << 20;
const MAX_SHARDS: u64 = 1 << 16;

/// Shorter documents are parsed at once: all that they can list takes little memory.
const SHORT: usize = 1 << 22;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    shards: u64,
    objects: u64,
    files: u64,
    segments: u64,
    /// Of all segments.
    dimensions: u64,
    extents: u64,
}

impl Counts {
    fn check(self) -> Result<()> {
        for (what, n, limit) in [
            ("shards", self.shards, MAX_SHARDS),
            ("data objects", self.objects, MAX_OBJECTS),
            ("files", self.files, MAX_FILES),
            ("segments", self.segments, MAX_SEGMENTS),
            ("dimensions", self.dimensions, MAX_DIMENSIONS),
            ("extents", self.extents, MAX_EXTENTS),
        ] {
            if n > limit {
                return Err(Error::limit(format!("lists {n} {what}: the limit is {limit}; save as several shards")));
            }
        }
        Ok(())
    }
}

/// Counts what a document lists, and keeps none of it.
///
/// # Errors
/// `Limit`, or `Damaged` when it is no document.
pub(super) fn check_text(document: &[u8]) -> Result<()> {
    if document.len() <= SHORT {
        return Ok(());
    }
    let d: Document =
        serde_json::from_slice(document).map_err(|e| Error::damaged(format!("not a valid lmc-shard: {e}")))?;
    let files = d.files;
    Counts { shards: d.shards.0, objects: d.objects.0, ..files }.check()
}

/// [`check_text`] for a parsed document, or one to be written: its shards, objects, files, segments, dimensions and
/// extents.
pub(super) fn check([shards, objects, files, segments, dimensions, extents]: [u64; 6]) -> Result<()> {
    Counts { shards, objects, files, segments, dimensions, extents }.check()
}

/// Adds up the counts of the entries of a list.
fn add_up<'de, T: Deserialize<'de>, S: Default, D: Deserializer<'de>>(d: D, add: fn(&mut S, T)) -> Result<S, D::Error> {
    struct List<T, S>(fn(&mut S, T));
    impl<'de, T: Deserialize<'de>, S: Default> Visitor<'de> for List<T, S> {
        type Value = S;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<S, A::Error> {
            let mut sum = S::default();
            while let Some(entry) = entries.next_element()? {
                (self.0)(&mut sum, entry);
            }
            Ok(sum)
        }
    }
    d.deserialize_seq(List(add))
}

/// The length of a list.
#[derive(Default)]
struct Len(u64);

impl<'de> Deserialize<'de> for Len {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        add_up(d, |n: &mut Self, _: IgnoredAny| n.0 += 1)
    }
}

#[derive(Deserialize)]
struct Document {
    shards: Len,
    objects: Len,
    #[serde(deserialize_with = "files")]
    files: Counts,
}

#[derive(Deserialize)]
struct File {
    #[serde(default, deserialize_with = "segments")]
    segments: Counts,
    extents: Len,
}

#[derive(Deserialize)]
struct Segment {
    #[serde(default)]
    shape: Len,
}

fn files<'de, D: Deserializer<'de>>(d: D) -> Result<Counts, D::Error> {
    add_up(d, |sum: &mut Counts, Object(file): Object<File>| {
        sum.files += 1;
        sum.segments += file.segments.segments;
        sum.dimensions += file.segments.dimensions;
        sum.extents += file.extents.0;
    })
}

fn segments<'de, D: Deserializer<'de>>(d: D) -> Result<Counts, D::Error> {
    add_up(d, |sum: &mut Counts, Object(segment): Object<Segment>| {
        sum.segments += 1;
        sum.dimensions += segment.shape.0;
    })
}

#[cfg(test)]
mod tests {
    use super::super::Document as _;
    use super::super::shard::Shard;
    use super::*;
    use crate::error::ErrorKind;

    const HEAD: &str = r#"{"format":"lmc-shard","version":1,"save":"00000000000000000000000000000001","began":0"#;

    /// The text of a shard with these shards, objects, sets and files.
    fn text(shards: &str, objects: &str, files: &str) -> Vec<u8> {
        format!("{HEAD},\"shards\":[{shards}],\"objects\":[{objects}],\"sets\":[],\"files\":[{files}]}}").into_bytes()
    }

    fn repeated(what: &str, n: u64) -> String {
        vec![what; n as usize].join(",")
    }

    fn file(segments: &str, extents: &str) -> String {
        format!(r#"{{"name":"a","len":0,"layout":"raw","segments":[{segments}],"extents":[{extents}]}}"#)
    }

    #[test]
    fn what_would_fill_the_memory_is_refused_before_it_is_held() {
        // 10 bytes become 88 of heap, or 2 become 8: the first would take more than a gigabyte.
        let segment = r#"{"len":0}"#;
        for (document, what) in [
            (text("", "", &file(&repeated(segment, 13 << 20), "")), "13631488 segments"),
            (
                text("", "", &file(r#"{"len":0,"shape":[S]}"#, "").replace('S', &repeated("1", (1 << 24) + 1))),
                "16777217 dim",
            ),
            (text("", "", &file("", &repeated("[0,0,0,1]", (1 << 23) + 1))), "8388609 extents"),
            (text("", &repeated("0", 1 << 21), ""), "2097152 data objects"),
            (text("", "", &repeated(&file("", ""), (1 << 20) + 1)), "1048577 files"),
            (text(&repeated(&format!("\"{}\"", "0".repeat(64)), (1 << 16) + 1), "", ""), "65537 shards"),
        ] {
            let e = check_text(&document).unwrap_err();
            assert!(e.kind() == ErrorKind::Limit && e.to_string().contains(what), "{what}: {e}");
        }
        // A list in the place of an object.
        let listed = text("", "", &format!("[\"a\",0,\"\",[{}],[]]", repeated("[0]", (1 << 22) + 1)));
        assert_eq!(check_text(&listed).unwrap_err().kind(), ErrorKind::Damaged);
        // A second list, after one that would fill the memory, ends the counting.
        let twice = format!("{HEAD},\"objects\":[{}],\"objects\":[]}}", repeated("0", 1 << 24));
        assert_eq!(check_text(twice.as_bytes()).unwrap_err().kind(), ErrorKind::Damaged);
    }

    #[test]
    fn at_its_limits_a_document_is_read() {
        let objects = |n| text("", &repeated("0", n), "");
        Shard::parse(&objects(MAX_OBJECTS)).unwrap();
        assert_eq!(Shard::parse(&objects(MAX_OBJECTS + 1)).unwrap_err().kind(), ErrorKind::Limit);
        let segments = |n| text("", "", &file(&repeated(r#"{"len":0}"#, n), ""));
        check_text(&segments(MAX_SEGMENTS)).unwrap();
        assert_eq!(check_text(&segments(MAX_SEGMENTS + 1)).unwrap_err().kind(), ErrorKind::Limit);
    }
}
