//! Records: what the snapshot of a step is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Document, VERSION};
use crate::error::{Error, Result};
use crate::ids::{PartId, SaveId, Step};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Kept,
    Pruned,
}

/// One generation of the snapshot of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    format: String,
    version: u32,
    pub(crate) step: Step,
    pub(crate) id: SaveId,
    /// Seconds since 1970 by the store's clock.
    pub(crate) time: u64,
    pub(crate) state: State,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) parts: Vec<PartId>,
    pub(crate) raw_size: u64,
    pub(crate) new_size: u64,
}

impl Record {
    pub(crate) fn kept(step: Step, id: SaveId, time: u64, metadata: BTreeMap<String, String>) -> Self {
        let format = Self::FORMAT.into();
        Self {
            format,
            version: VERSION,
            step,
            id,
            time,
            state: State::Kept,
            metadata,
            parts: vec![],
            raw_size: 0,
            new_size: 0,
        }
    }

    /// That a snapshot is no more.
    pub(crate) fn pruned(step: Step, id: SaveId, time: u64) -> Self {
        Self { state: State::Pruned, ..Self::kept(step, id, time, BTreeMap::new()) }
    }
}

impl Document for Record {
    const FORMAT: &'static str = "lmc-snapshot";
    const MAX: usize = 1 << 20;

    fn check(&self) -> Result<()> {
        let mut parts = self.parts.clone();
        parts.sort_unstable();
        parts.dedup();
        if parts.len() != self.parts.len() {
            return Err(Error::damaged("names a part twice"));
        }
        match self.state {
            State::Kept if parts.is_empty() => Err(Error::damaged("is of a snapshot without parts")),
            State::Pruned if !parts.is_empty() => Err(Error::damaged("is of a pruned snapshot, and has parts")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_agree_with_themselves() {
        let id = SaveId::new([1; 16]);
        let mut r = Record::kept(Step::new(300).unwrap(), id, 7, BTreeMap::from([("loss".into(), "2.7".into())]));
        r.to_bytes().unwrap_err();
        r.parts = vec![PartId::of(b"a"), PartId::of(b"b")];
        let bytes = r.to_bytes().unwrap();
        assert_eq!(Record::parse(&bytes).unwrap(), r);
        let text = String::from_utf8(bytes).unwrap();
        for (from, to) in [
            ("kept", "pruned"),
            ("kept", "lost"),
            (&PartId::of(b"a").to_string(), &PartId::of(b"b").to_string()[..]),
            ("\"step\":300", "\"step\":9999999999999999"),
            ("\"time\":7", "\"time\":-7"),
        ] {
            assert!(text.contains(from));
            Record::parse(text.replace(from, to).as_bytes()).unwrap_err();
        }
        r.metadata.insert("note".into(), "x".repeat(Record::MAX));
        r.to_bytes().unwrap_err();
    }
}
