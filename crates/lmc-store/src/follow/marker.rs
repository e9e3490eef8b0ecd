//! The marker of a directory that follows.

use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::format::ids::{RunId, SaveId};
use crate::objects::files::{replace, sync};

const MARKER: &str = ".lmc-follow.json";
const VERSION: u32 = 2;

/// The marker of a directory that follows, and the state of its versions.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Marker {
    format: String,
    version: u32,
    /// The versions that stay, in the order in which they became the current one. The last may not have: see `current`.
    pub(super) committed: Vec<Committed>,
    /// The id of the current version if [`Follower::announce`](super::Follower::announce) was called for it.
    pub(super) announced: Option<SaveId>,
}

/// A version that is, was, or was about to become the current one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Committed {
    pub(super) name: String,
    /// The run that it is a version of.
    pub(super) run: RunId,
}

impl Marker {
    /// The marker of a new directory.
    pub(super) fn new() -> Self {
        Self { format: "lmc-follow".into(), version: VERSION, committed: vec![], announced: None }
    }

    /// The marker of a directory; `None` if this is empty but for the file `lock`.
    pub(super) fn read(directory: &Path, lock: &str) -> Result<Option<Self>> {
        let place = directory.display();
        let bytes = match fs::read(directory.join(MARKER)) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let ours =
                    |e: &fs::DirEntry| e.file_name().to_str().is_some_and(|n| n == lock || n.starts_with(MARKER));
                let entries = fs::read_dir(directory).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
                let entries = entries.map_err(|e| Error::io(format_args!("{place}: cannot list"), e))?;
                return match entries.iter().find(|&e| !ours(e)) {
                    None => Ok(None),
                    Some(other) => Err(Error::usage(format!(
                        "{place}: holds {:?}, and lmc follows only into a directory of its own: name one that is empty or missing",
                        other.file_name()
                    ))),
                };
            }
            Err(e) => return Err(Error::io(format_args!("{place}/{MARKER}: cannot read"), e)),
        };
        let marker: Marker = serde_json::from_slice(&bytes).map_err(|e| {
            Error::unsupported(format!(
                "{place}/{MARKER}: is not what this lmc writes ({e}): follow into an empty directory"
            ))
        })?;
        match (&marker.format[..], marker.version) {
            ("lmc-follow", VERSION) => Ok(Some(marker)),
            (format, version) => Err(Error::unsupported(format!(
                "{place}/{MARKER}: has format {format:?}, version {version}; this lmc knows \"lmc-follow\", version {VERSION}: follow into an empty directory"
            ))),
        }
    }

    /// What is noted of a version.
    pub(super) fn committed(&self, name: &str) -> Option<&Committed> {
        self.committed.iter().find(|c| c.name == name)
    }

    /// Replaces it, durably.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(self).expect("it is plain data");
        replace(&directory.join(MARKER), &bytes)
            .and_then(|()| sync(directory))
            .map_err(|e| Error::io(format_args!("{}/{MARKER}: cannot write", directory.display()), e))
    }
}
