//! Every key of a store (`docs/store.md` §1): no other file builds one.

use object_store::path::Path;

use crate::format::ids::{SaveId, ShardId, Step, TagName};

pub(crate) fn marker() -> Path {
    Path::from("lmc-store.json")
}

/// Prefix of all records.
pub(crate) fn records() -> Path {
    Path::from("snapshots")
}

/// The keys of a step's records begin with this, and so does no other key; they sort after it.
fn records_of(step: Step) -> String {
    let number = falling(step);
    // No directory has many entries, however steps are numbered.
    let [a, b, c, d, e] = [0..4, 4..7, 7..10, 10..13, 13..16].map(|part| &number[part]);
    format!("snapshots/{a}/{b}/{c}/{d}/{e}")
}

/// What the keys of the records of this step and of earlier ones come after, and no other record's.
pub(crate) fn before_records(from: Step) -> Path {
    Path::from(records_of(from))
}

pub(crate) fn record(step: Step, generation: u32) -> Path {
    Path::from(format!("{}-{generation:010}.json", records_of(step)))
}

/// Prefix of all floors.
pub(crate) fn floors() -> Path {
    Path::from("floors")
}

pub(crate) fn floor(step: Step, generation: u32) -> Path {
    Path::from(format!("floors/{}-{generation:010}.json", falling(step)))
}

/// 2^53 minus the step: keys with it sort by falling step.
fn falling(step: Step) -> String {
    format!("{:016}", Step::MAX.get() - step.get())
}

pub(crate) fn shards() -> Path {
    Path::from("shards")
}

pub(crate) fn shard(id: ShardId) -> Path {
    Path::from(format!("shards/{id}.json.zst"))
}

pub(crate) fn all_data() -> Path {
    Path::from("data")
}

pub(crate) fn data(save: SaveId, number: usize) -> Path {
    Path::from(format!("data/{save}/{number:06}"))
}

pub(crate) fn probes() -> Path {
    Path::from("probes")
}

pub(crate) fn probe(id: SaveId) -> Path {
    Path::from(format!("probes/{id}"))
}

/// Prefix of all tags.
pub(crate) fn tags() -> Path {
    Path::from("tags")
}

/// The newest generation sorts first.
pub(crate) fn tag(name: &TagName, generation: u32) -> Path {
    Path::from(format!("tags/{name}/{:010}.json", u32::MAX - generation))
}

/// The step of the 16 digits of [`falling`].
fn step_of(number: &str) -> Option<Step> {
    Step::new(Step::MAX.get().checked_sub(number.parse().ok()?)?).ok()
}

/// Step and generation of a record's key; `None` for any other key.
pub(crate) fn parse_record(key: &Path) -> Option<(Step, u32)> {
    let text = key.as_ref();
    let (number, generation) = text.strip_prefix("snapshots/")?.strip_suffix(".json")?.split_once('-')?;
    let (step, generation) = (step_of(&number.replace('/', ""))?, generation.parse().ok()?);
    (record(step, generation).as_ref() == text).then_some((step, generation))
}

/// Step and generation of a floor's key; `None` for any other key.
pub(crate) fn parse_floor(key: &Path) -> Option<(Step, u32)> {
    let (number, generation) = key.as_ref().strip_prefix("floors/")?.strip_suffix(".json")?.split_once('-')?;
    let (step, generation) = (step_of(number)?, generation.parse().ok()?);
    (floor(step, generation) == *key).then_some((step, generation))
}

/// The shard of a shard's key; `None` for any other key.
pub(crate) fn parse_shard(key: &Path) -> Option<ShardId> {
    key.as_ref().strip_prefix("shards/")?.strip_suffix(".json.zst")?.parse().ok()
}

/// Save and number of a data object's key; `None` for any other key.
pub(crate) fn parse_data(key: &Path) -> Option<(SaveId, usize)> {
    let (save, number) = key.as_ref().strip_prefix("data/")?.split_once('/')?;
    let (save, number) = (save.parse().ok()?, number.parse().ok()?);
    (data(save, number) == *key).then_some((save, number))
}

/// The id of a probe's key; `None` for any other key.
pub(crate) fn parse_probe(key: &Path) -> Option<SaveId> {
    key.as_ref().strip_prefix("probes/")?.parse().ok()
}

/// Name and generation of a tag's key; `None` for any other key.
pub(crate) fn parse_tag(key: &Path) -> Option<(TagName, u32)> {
    let (name, number) = key.as_ref().strip_prefix("tags/")?.strip_suffix(".json")?.split_once('/')?;
    let (name, generation) = (name.parse().ok()?, u32::MAX - number.parse::<u32>().ok()?);
    (tag(&name, generation) == *key).then_some((name, generation))
}

/// Whether a store has objects of this key.
pub(crate) fn is_key(key: &Path) -> bool {
    *key == marker()
        || parse_record(key).is_some()
        || parse_floor(key).is_some()
        || parse_shard(key).is_some()
        || parse_data(key).is_some()
        || parse_probe(key).is_some()
        || parse_tag(key).is_some()
}

/// Whether this is a directory that writers create, below those of the prefixes: of records, of a tag, or of the data of a save.
pub(crate) fn is_directory(key: &str) -> bool {
    if let Some(save) = key.strip_prefix("data/") {
        return save.parse::<SaveId>().is_ok();
    }
    if let Some(name) = key.strip_prefix("tags/") {
        return name.parse::<TagName>().is_ok();
    }
    let Some(parts) = key.strip_prefix("snapshots/") else { return false };
    let lens = parts.split('/').map(|part| if part.bytes().all(|b| b.is_ascii_digit()) { part.len() } else { 0 });
    [4, 3, 3, 3].iter().take(parts.split('/').count()).copied().eq(lens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_sort_by_falling_step_and_are_found_again() {
        let step = |n| Step::new(n).unwrap();
        let all = [(1 << 53, u32::MAX), (1_000_000, 0), (999_999, 7), (10, 0), (10, 1), (10, 10), (9, 0), (0, 0)];
        let keys = all.map(|(s, g)| record(step(s), g));
        assert!(keys.is_sorted());
        assert_eq!(keys[0].as_ref(), "snapshots/0000/000/000/000/000-4294967295.json");
        assert_eq!(keys[5].as_ref(), "snapshots/9007/199/254/740/982-0000000010.json");
        for ((s, g), key) in all.into_iter().zip(&keys) {
            assert_eq!(parse_record(key), Some((step(s), g)));
            let floor = floor(step(s), g);
            assert_eq!((parse_floor(&floor), parse_record(&floor), is_key(&floor)), (Some((step(s), g)), None, true));
            // A listing from a step on begins with its first generation.
            for other in &keys {
                let comes = parse_record(other).unwrap().0 <= step(s);
                assert_eq!(*other > before_records(step(s)), comes, "{other} {s}");
            }
        }
        for other in [
            "snapshots/10/0.json",
            "snapshots/9007/199/254/740/982-0000000010",
            "snapshots/9007/199/254/740/982-10.json",
            "snapshots/9007199254740/982-0000000010.json",
            "snapshots/9007/199/254/740/993-0000000000.json",
            "snapshots/+007/199/254/740/982-0000000010.json",
            "snapshots/9007/199/254/740/982-+000000010.json",
            "snapshots/9999/999/999/999/999-0000000000.json",
            "snapshots/x",
            "shards/0.json",
        ] {
            assert_eq!(parse_record(&Path::from(other)), None, "{other}");
        }
        for other in ["floors/9007199254740982", "floors/9007199254740993-0000000000.json", "floors/1-0.json"] {
            assert_eq!(parse_floor(&Path::from(other)), None, "{other}");
        }
    }

    #[test]
    fn directories_are_those_of_writers() {
        let save = "7".repeat(32);
        let own = ["snapshots/9007", "snapshots/9007/199", "snapshots/9007/199/254/740"].map(str::to_owned);
        for key in own.into_iter().chain([format!("data/{save}")]) {
            assert!(is_directory(&key), "{key}");
        }
        for key in [
            "snapshots",
            "snapshots/",
            "snapshots/907",
            "snapshots/9007/x",
            "snapshots/9007/199/254/740/982",
            "data/x",
            "x/9007",
        ] {
            assert!(!is_directory(key), "{key}");
        }
    }

    #[test]
    fn tags_sort_newest_first_and_are_found_again() {
        let name: TagName = "best-1.0".parse().unwrap();
        assert_eq!(tag(&name, 7).as_ref(), "tags/best-1.0/4294967288.json");
        assert!(tag(&name, 8) < tag(&name, 7) && tag(&name, u32::MAX) < tag(&name, 0));
        for generation in [0, 7, 1_700_000_000, u32::MAX] {
            assert_eq!(parse_tag(&tag(&name, generation)), Some((name.clone(), generation)));
        }
        for other in
            ["tags/best/7.json", "tags/latest/4294967288.json", "tags/best/4294967296.json", "tags/best", "tags/7"]
        {
            assert_eq!(parse_tag(&Path::from(other)), None, "{other}");
        }
        assert!(is_directory("tags/best") && !is_directory("tags/7") && !is_directory("tags"));
    }

    #[test]
    fn shards_and_data_are_found_again() {
        let (id, save) = (ShardId::of(b"p"), SaveId::new([7; 16]));
        assert_eq!(parse_shard(&shard(id)), Some(id));
        for (number, text) in [(0, "000000"), (1_234_567, "1234567")] {
            assert!(data(save, number).as_ref().ends_with(text));
            assert_eq!(parse_data(&data(save, number)), Some((save, number)));
        }
        for other in
            [format!("data/{save}/0"), format!("data/{save}"), "data/x/000000".into(), format!("shards/{save}.json")]
        {
            assert_eq!(parse_data(&Path::from(&other[..])), None, "{other}");
            assert_eq!(parse_shard(&Path::from(&other[..])), None, "{other}");
        }
    }
}
