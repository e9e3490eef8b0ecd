//! A directory as an object store: `LocalFileSystem`, and what it leaves to do.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

use crate::error::Error;

/// Objects that have reached the disk, with all directories above them, when they are said to be written.
///
/// `LocalFileSystem` syncs the directories that it creates. One that another process created, and did not live to sync, it takes for granted: a record in it would
/// be lost with it when the power fails. So they are synced once more after each write.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    files: LocalFileSystem,
}

impl Directory {
    /// Opens a directory, or creates it with those above it.
    ///
    /// # Errors
    /// `NotFound` or `Io`.
    pub(crate) fn open(path: &FilePath, create: bool) -> Result<Self, Error> {
        let failed = |doing: &str, e| Error::io(format_args!("{}: {doing}", path.display()), e);
        if create {
            create_all(path).map_err(|e| failed("cannot create the directory", e))?;
        } else if !path.is_dir() {
            return Err(Error::not_found(format!("{}: there is no such directory", path.display())));
        }
        let root = path.canonicalize().map_err(|e| failed("cannot open the directory", e))?;
        let files = LocalFileSystem::new_with_prefix(&root)
            .map_err(|e| Error::store(format!("{}: cannot open the directory: {e}", path.display())))?;
        Ok(Self { root, files: files.with_fsync(true) })
    }
}

/// Creates a directory, and those above it that are missing, on the disk.
fn create_all(path: &FilePath) -> io::Result<()> {
    let missing = path.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.exists()).count();
    fs::create_dir_all(path)?;
    path.canonicalize()?.ancestors().take(missing + 1).skip(1).try_for_each(sync)
}

fn sync(directory: &FilePath) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.display().fmt(f)
    }
}

/// Syncs the directories above that of an object; its own is synced with it.
async fn sync_above(root: PathBuf, key: Path) -> Result<()> {
    let failed = |e| object_store::Error::Generic { store: "Directory", source: Box::new(e) };
    let depth = key.parts().count();
    let synced = tokio::task::spawn_blocking(move || {
        let file = key.parts().fold(root, |at, part| at.join(part.as_ref()));
        file.ancestors().skip(2).take(depth.saturating_sub(1)).try_for_each(sync)
    });
    synced.await.map_err(object_store::Error::from)?.map_err(failed)
}

#[async_trait]
impl ObjectStore for Directory {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let done = self.files.put_opts(location, payload, opts).await?;
        sync_above(self.root.clone(), location.clone()).await?;
        Ok(done)
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        // The directories of an upload in parts are its save's own, and were created when it began.
        let upload = self.files.put_multipart_opts(location, opts).await?;
        sync_above(self.root.clone(), location.clone()).await?;
        Ok(upload)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.files.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await?;
        sync_above(self.root.clone(), to.clone()).await
    }
}

/// Something in a directory that is no object: the file of an upload that was never completed, or a directory that nothing is in.
pub(crate) struct Leftover {
    path: PathBuf,
    /// Where it is under the root, with slashes.
    pub(crate) key: String,
    /// Zero for a directory.
    pub(crate) size: u64,
    pub(crate) time: u64,
    pub(crate) is_directory: bool,
}

/// Finds what writers and collectors left in a root and under some directories of it.
///
/// # Errors
/// `Io` when a directory cannot be read.
pub(crate) fn leftovers(root: &FilePath, under: &[&str]) -> Result<Vec<Leftover>, Error> {
    let mut found = vec![];
    let mut look = |directory: &FilePath, deeper: bool| {
        look_into(root, directory, deeper, &mut found)
            .map_err(|e| Error::io(format_args!("{}: cannot read", directory.display()), e))
    };
    look(root, false)?;
    under.iter().try_for_each(|top| look(&root.join(top), true))?;
    Ok(found)
}

fn look_into(root: &FilePath, directory: &FilePath, deeper: bool, found: &mut Vec<Leftover>) -> io::Result<()> {
    // Others tidy up, too: what is gone is gone.
    let Some(entries) = if_there(fs::read_dir(directory))? else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let Some(kind) = if_there(entry.file_type())? else { continue };
        if kind.is_file() && is_staged(&entry.file_name().to_string_lossy()) {
            found.extend(leftover(root, &entry.path())?);
        } else if kind.is_dir() && deeper {
            look_into(root, &entry.path(), true, found)?;
            if if_there(fs::read_dir(entry.path()))?.is_some_and(|mut entries| entries.next().is_none()) {
                found.extend(leftover(root, &entry.path())?);
            }
        }
    }
    Ok(())
}

/// Whether `LocalFileSystem` gave a file this name until it is complete: it hides such files.
fn is_staged(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn leftover(root: &FilePath, path: &FilePath) -> io::Result<Option<Leftover>> {
    let Some(meta) = if_there(path.symlink_metadata())? else { return Ok(None) };
    let time = meta.modified()?.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let below: Vec<_> = path.strip_prefix(root).unwrap_or(path).iter().map(|c| c.to_string_lossy()).collect();
    let is_directory = meta.is_dir();
    let size = if is_directory { 0 } else { meta.len() };
    Ok(Some(Leftover { path: path.into(), key: below.join("/"), size, time, is_directory }))
}

impl Leftover {
    /// Removes it; a directory only if it is still empty.
    ///
    /// # Errors
    /// `Io` when it cannot be removed.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let removed = if self.is_directory { fs::remove_dir(&self.path) } else { fs::remove_file(&self.path) };
        match removed {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => if_there(removed)
                .map(|_| ())
                .map_err(|e| Error::io(format_args!("{}: cannot remove", self.path.display()), e)),
        }
    }
}

fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_are_uploads_and_empty_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for d in ["data/a", "data/b", "data/c", "parts", "other/x"] {
            fs::create_dir_all(root.join(d)).unwrap();
        }
        for f in [
            "data/a/000000",
            "data/a/000001#1",
            "data/c/000000#23",
            "parts/p.json",
            "parts/p.json#1x",
            "parts/#",
            "m#1",
            "other/x#1",
        ] {
            fs::write(root.join(f), b"12").unwrap();
        }
        let found = leftovers(root, &["data", "parts", "none"]).unwrap();
        let mut keys: Vec<(&str, u64)> = found.iter().map(|l| (&l.key[..], l.size)).collect();
        keys.sort_unstable();
        assert_eq!(keys, [("data/a/000001#1", 2), ("data/b", 0), ("data/c/000000#23", 2), ("m#1", 2)]);
        // Somebody is faster, or begins to use it.
        fs::remove_file(root.join("data/a/000001#1")).unwrap();
        fs::write(root.join("data/b/000000"), b"").unwrap();
        found.iter().for_each(|l| l.remove().unwrap());
        assert!(root.join("data/b/000000").exists() && root.join("data/c").exists());
        assert!(!root.join("data/c/000000#23").exists());
        // The directories that a store has anyway stay.
        let mut found: Vec<String> = leftovers(root, &["data", "other"]).unwrap().into_iter().map(|l| l.key).collect();
        found.sort_unstable();
        assert_eq!(found, ["data/c", "other/x", "other/x#1"]);
    }

    #[test]
    fn a_directory_is_created_where_it_is_told_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        assert_eq!(Directory::open(&path, false).unwrap_err().kind(), crate::ErrorKind::NotFound);
        Directory::open(&path, true).unwrap();
        Directory::open(&path, true).unwrap();
        fs::write(dir.path().join("f"), b"").unwrap();
        assert_eq!(Directory::open(&dir.path().join("f/d"), true).unwrap_err().kind(), crate::ErrorKind::Io);
    }
}
