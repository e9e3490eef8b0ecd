//! The description of a version: the block sets whose bytes its files hold, and when the files were written.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::chunks::held::StoredExtent;
use crate::format::ids::{SaveId, Step};
use crate::format::manifest::names::check_name;
use crate::objects::files::replace;

/// Of the description of a version's directory, which is beside it.
pub(super) const SUFFIX: &str = ".json";

/// The contents of a version's directory.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    format: String,
    version: u32,
    step: Step,
    id: SaveId,
    pub(super) files: Vec<StoredFile>,
}

/// A file of a version.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredFile {
    pub(super) name: String,
    pub(super) len: u64,
    /// When it was last written, in seconds and nanoseconds, and its inode: every change of a file changes one of them.
    modified: (i64, i64),
    inode: u64,
    pub(super) extents: Vec<StoredExtent>,
}

impl StoredFile {
    /// Describes a file that was written.
    pub(super) fn of(path: &Path, name: &str, extents: Vec<StoredExtent>) -> io::Result<Self> {
        let m = fs::symlink_metadata(path)?;
        let modified = (m.mtime(), m.mtime_nsec());
        Ok(Self { name: name.to_owned(), len: m.len(), modified, inode: m.ino(), extents })
    }

    /// The description of the same file in another version, if the file at `path` is unchanged.
    pub(super) fn linked(&self, path: &Path) -> Option<Self> {
        self.is(&fs::symlink_metadata(path).ok()?).then(|| self.clone())
    }

    fn is(&self, m: &Metadata) -> bool {
        m.is_file() && (m.len(), (m.mtime(), m.mtime_nsec()), m.ino()) == (self.len, self.modified, self.inode)
    }

    /// Opens the file, if it is unchanged.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        let check = |m: &Metadata| if self.is(m) { Ok(()) } else { Err(io::Error::other("it was changed")) };
        check(&fs::symlink_metadata(path)?)?;
        let file = File::open(path)?;
        check(&file.metadata()?)?;
        Ok(file)
    }
}

impl Description {
    pub(super) fn new(step: Step, id: SaveId) -> Self {
        Self { format: "lmc-version".into(), version: 1, step, id, files: vec![] }
    }

    /// Reads that of a version's directory. `None` if there is none that can be used.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        let found: Self = serde_json::from_slice(&fs::read(description_of(directory)).ok()?).ok()?;
        let own = found.format == "lmc-version" && found.version == 1;
        let named = directory.file_name()?.to_str()? == name(found.step, found.id);
        let whole = |f: &StoredFile| {
            check_name(&f.name).is_ok()
                && f.extents.iter().try_fold(0u64, |n, e| e.1.checked_add(e.2).and(n.checked_add(e.2))) == Some(f.len)
        };
        (own && named && found.files.iter().all(whole)).then_some(found)
    }

    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        replace(&description_of(directory), &serde_json::to_vec(self).map_err(io::Error::other)?)
    }

    /// Whether all files exist unchanged.
    pub(super) fn is_intact(&self, directory: &Path) -> bool {
        self.files.iter().all(|f| f.linked(&directory.join(&f.name)).is_some())
    }
}

/// The name of a version's directory.
pub(super) fn name(step: Step, id: SaveId) -> String {
    format!("{step}-{id}")
}

/// The step and the id in a name.
pub(super) fn parse_name(of: &str) -> Option<(Step, SaveId)> {
    let (step, id) = of.split_once('-')?;
    let found = (Step::new(step.parse().ok()?).ok()?, id.parse().ok()?);
    (name(found.0, found.1) == of).then_some(found)
}

/// The path of the description of a version's directory.
pub(super) fn description_of(directory: &Path) -> PathBuf {
    let mut name = directory.file_name().unwrap_or_default().to_owned();
    name.push(SUFFIX);
    directory.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ids::Hash;

    #[test]
    fn names_of_versions_are_parsed_as_they_are_written() {
        let (step, id) = (Step::new(300).unwrap(), SaveId::new([7; 16]));
        assert_eq!(parse_name(&name(step, id)), Some((step, id)));
        for bad in ["", "300", "300-", "0300-07070707070707070707070707070707", "-07070707070707070707070707070707"] {
            assert_eq!(parse_name(bad), None, "{bad}");
        }
        assert_eq!(description_of(Path::new("a/300-x.y")), Path::new("a/300-x.y.json"));
    }

    #[test]
    fn descriptions_that_lie_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (step, id) = (Step::new(7).unwrap(), SaveId::new([7; 16]));
        let path = dir.path().join(name(step, id));
        let mut d = Description::new(step, id);
        let file =
            |name: &str, len, extents| StoredFile { name: name.into(), len, modified: (0, 0), inode: 0, extents };
        d.files.push(file("a/b", 5, vec![(Hash::of(b""), 7, 5)]));
        d.write(&path).unwrap();
        assert_eq!(Description::read(&path), Some(d));
        let hash = Hash::of(b"");
        for bad in [file("../b", 0, vec![]), file("b", 4, vec![(hash, 0, 5)]), file("b", 0, vec![(hash, u64::MAX, 1)])]
        {
            let mut d = Description::new(step, id);
            d.files.push(bad);
            d.write(&path).unwrap();
            assert_eq!(Description::read(&path), None);
        }
        Description::new(step, id).write(&dir.path().join(name(step, SaveId::new([8; 16])))).unwrap();
        assert_eq!(Description::read(&dir.path().join(name(step, SaveId::new([8; 16])))), None);
    }
}
