//! Tags: each generation says which snapshot a name means.

use serde::{Deserialize, Serialize};

use super::{Document, VERSION};
use crate::error::{Error, Result};
use crate::format::ids::{Hash, SaveId, Step, TagName};

/// One generation of a tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TagDocument {
    format: String,
    version: u32,
    pub(crate) name: TagName,
    /// The snapshot that it names; neither of both if the tag was deleted.
    #[serde(deserialize_with = "Option::deserialize")]
    step: Option<Step>,
    #[serde(deserialize_with = "Option::deserialize")]
    id: Option<SaveId>,
    /// As in a record.
    #[serde(skip_serializing)]
    check: Option<Hash>,
}

impl TagDocument {
    pub(crate) fn new(name: TagName, snapshot: Option<(Step, SaveId)>) -> Self {
        let (step, id) = snapshot.unzip();
        Self { format: Self::FORMAT.into(), version: VERSION, name, step, id, check: None }
    }

    /// The snapshot that it names; `None` if the tag was deleted.
    pub(crate) fn snapshot(&self) -> Option<(Step, SaveId)> {
        self.step.zip(self.id)
    }
}

impl Document for TagDocument {
    const FORMAT: &'static str = "lmc-tag";
    const MAX: usize = 1 << 12;

    const SEALED: bool = true;

    fn take_check(&mut self) -> Option<Hash> {
        self.check.take()
    }

    fn check(&self) -> Result<()> {
        match self.step.is_some() == self.id.is_some() {
            true => Ok(()),
            false => Err(Error::damaged("has one of step and id, and not the other")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn every_flipped_bit_of_a_tag_is_seen() {
        let name: TagName = "best".parse().unwrap();
        let set = TagDocument::new(name.clone(), Some((Step::new(300).unwrap(), SaveId::new([0xab; 16]))));
        let deleted = TagDocument::new(name, None);
        for tag in [&set, &deleted] {
            let bytes = tag.to_bytes().unwrap();
            assert_eq!(&TagDocument::parse(&bytes).unwrap(), tag);
            for bit in 0..8 * bytes.len() {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                TagDocument::parse(&bad).expect_err(&String::from_utf8_lossy(&bad));
            }
        }
        let text = String::from_utf8(set.to_bytes().unwrap()).unwrap();
        let (before, _) = text.rsplit_once(",\"check\"").unwrap();
        let sealed = |text: &str| TagDocument::parse(&TagDocument::seal(text.as_bytes().to_vec()));
        let long = format!("{before},\"x_\":\"{}\"}}", "x".repeat(TagDocument::MAX));
        assert_eq!(sealed(&long).unwrap_err().kind(), ErrorKind::Limit);
    }
}
