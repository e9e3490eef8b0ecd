//! Every key of a store (`docs/store.md` §1): no other file builds one.

use object_store::path::Path;

use crate::ids::{SaveId, ShardId, Step, TagName};

pub(crate) fn marker() -> Path {
    Path::from("lmc-store.json")
}

/// Prefix of all records.
pub(crate) fn records() -> Path {
    Path::from("snapshots")
}

/// Prefix of the generations of a step.
pub(crate) fn records_of(step: Step) -> Path {
    Path::from(format!("snapshots/{:020}", step.get()))
}

pub(crate) fn record(step: Step, generation: u32) -> Path {
    Path::from(format!("snapshots/{:020}/{generation:010}.json", step.get()))
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

/// Step and generation of a record's key; `None` for any other key.
pub(crate) fn parse_record(key: &Path) -> Option<(Step, u32)> {
    let text = key.as_ref();
    let (step, generation) = text.strip_prefix("snapshots/")?.strip_suffix(".json")?.split_once('/')?;
    let (step, generation) = (Step::new(step.parse().ok()?).ok()?, generation.parse().ok()?);
    (record(step, generation).as_ref() == text).then_some((step, generation))
}

/// The step of a prefix of generations; `None` for any other key.
pub(crate) fn parse_records_of(key: &str) -> Option<Step> {
    let step = Step::new(key.strip_prefix("snapshots/")?.parse().ok()?).ok()?;
    (records_of(step).as_ref() == key).then_some(step)
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
        || parse_shard(key).is_some()
        || parse_data(key).is_some()
        || parse_probe(key).is_some()
        || parse_tag(key).is_some()
}

/// Whether this is the prefix of the generations of a step or a tag, or of the data of a save: a directory that writers create.
pub(crate) fn is_directory(key: &str) -> bool {
    parse_records_of(key).is_some()
        || key.strip_prefix("data/").is_some_and(|save| save.parse::<SaveId>().is_ok())
        || key.strip_prefix("tags/").is_some_and(|name| name.parse::<TagName>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_sort_by_number_and_are_found_again() {
        let step = |n| Step::new(n).unwrap();
        let keys: Vec<Path> =
            [(9, 0), (10, 0), (10, 1), (10, 10), (1 << 53, u32::MAX)].map(|(s, g)| record(step(s), g)).into();
        assert!(keys.is_sorted());
        assert_eq!(keys[3].as_ref(), "snapshots/00000000000000000010/0000000010.json");
        assert_eq!(parse_record(&keys[3]), Some((step(10), 10)));
        assert_eq!(parse_record(&keys[4]), Some((Step::MAX, u32::MAX)));
        for other in
            ["snapshots/10/0.json", "snapshots/00000000000000000010/0000000010", "shards/0.json", "snapshots/x"]
        {
            assert_eq!(parse_record(&Path::from(other)), None, "{other}");
        }
        assert_eq!(parse_records_of(records_of(step(10)).as_ref()), Some(step(10)));
        for other in ["snapshots/10", "snapshots", "shards/00000000000000000010", "snapshots/+0000000000000000010"] {
            assert_eq!(parse_records_of(other), None, "{other}");
        }
        assert_eq!(parse_record(&Path::from("snapshots/+0000000000000000010/0000000010.json")), None);
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
