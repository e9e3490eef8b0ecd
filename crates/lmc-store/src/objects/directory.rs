//! A directory as an object store: `LocalFileSystem` reads and deletes, with checks that it lacks; writes are here.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::disk::{NotOnDisk, blocking, failed};
use crate::error::Error;
use crate::format::keys;
use crate::irregular::Irregular;
use crate::objects::buffer::Pool;
use crate::objects::files::{create_all, if_there, sync};
use crate::objects::staged::{Staged, staged_for};
use crate::objects::walk::Walk;

/// Objects in a directory. Once a write returns, the object and all directories above it are on disk.
///
/// A directory created by another process that died before syncing it could vanish in a power failure, with a record in it. So every write
/// syncs all directories above it again.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    files: LocalFileSystem,
    /// For reads.
    buffers: Pool,
    /// Syncs a directory.
    sync: fn(&FilePath) -> io::Result<()>,
}

/// Less is read into memory of its own, which may be kept.
const LARGE: u64 = 1 << 20;

impl Directory {
    /// Opens a directory; `create`: creates it and its parents if missing.
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
        Ok(Self { root, files, buffers: Pool::default(), sync })
    }
}

impl Directory {
    /// Syncs the directories above the object's own, which is synced with the object.
    async fn sync_above(&self, key: &Path) -> Result<()> {
        let (file, depth, sync) = (file_of(self.root.clone(), key), key.parts().count(), self.sync);
        blocking(move || file.ancestors().skip(2).take(depth.saturating_sub(1)).try_for_each(sync).map_err(failed))
            .await
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.display().fmt(f)
    }
}

/// The error of a write.
fn as_put(e: io::Error, path: PathBuf) -> object_store::Error {
    match e.kind() {
        io::ErrorKind::AlreadyExists => {
            object_store::Error::AlreadyExists { path: path.display().to_string(), source: e.into() }
        }
        _ => failed(e),
    }
}

/// The path of an object.
fn file_of(root: PathBuf, key: &Path) -> PathBuf {
    key.parts().fold(root, |at, part| at.join(part.as_ref()))
}

/// Fails if the object's path holds something that must not be opened.
async fn check_regular(root: PathBuf, key: Path) -> Result<()> {
    blocking(move || {
        let file = file_of(root, &key);
        // A missing file is reported when it is opened.
        let kind = fs::metadata(&file).or_else(|_| fs::symlink_metadata(&file)).map(|m| m.file_type());
        kind.ok().and_then(Irregular::of).map_or(Ok(()), |irregular| Err(failed(irregular)))
    })
    .await
}

#[async_trait]
impl ObjectStore for Directory {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let (target, replace) = (file_of(self.root.clone(), location), opts.mode == PutMode::Overwrite);
        let path = target.clone();
        let put = async {
            blocking(move || Staged::put(target, &payload, replace).map_err(|e| as_put(e, path))).await?;
            self.sync_above(location).await
        };
        put.await.map_err(NotOnDisk::mark)?;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        // The directories of a multipart upload belong to its save, which created them when it began.
        let target = file_of(self.root.clone(), location);
        let upload = blocking(|| Staged::create(target).map_err(failed)).await?;
        self.sync_above(location).await?;
        Ok(Box::new(upload))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        check_regular(self.root.clone(), location.clone()).await?;
        let got = self.files.get_opts(location, options).await?;
        let len = got.range.end - got.range.start;
        if len < LARGE {
            return Ok(got);
        }
        let GetResultPayload::File(file, _) = got.payload else { return Ok(got) };
        let start = got.range.start;
        let (buffers, len) = (self.buffers.clone(), usize::try_from(len).map_err(failed)?);
        let read = blocking(move || {
            let mut buffer = buffers.take(len);
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            lmc::ReadAt::read_exact_at(&file, &mut buffer[..len], start).map_err(failed)?;
            Ok(buffers.lend(buffer, len))
        });
        Ok(GetResult { payload: GetResultPayload::Stream(stream::once(read).boxed()), ..got })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (root, sync, touched) = (self.root.clone(), self.sync, Arc::new(Mutex::new(BTreeSet::new())));
        let all = touched.clone();
        let deleted = self.files.delete_stream(locations).inspect_ok(move |key| {
            if keys::parse_record(key).is_some() {
                let directory = file_of(root.clone(), key).parent().map(FilePath::to_owned);
                touched.lock().unwrap_or_else(PoisonError::into_inner).extend(directory);
            }
        });
        // What is deleted after a record must not go before it in a power failure.
        let synced = stream::once(blocking(move || {
            let directories = std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner));
            directories.iter().try_for_each(|directory| if_there(sync(directory)).map(|_| ())).map_err(failed)
        }));
        deleted.chain(synced.filter_map(async |synced: Result<()>| synced.err().map(Err))).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_with_offset(prefix, &Path::default())
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (root, prefix, offset) = (self.root.clone(), prefix.cloned().unwrap_or_default(), offset.clone());
        let begun = blocking(move || Walk::begin(file_of(root, &prefix), prefix, offset).map_err(failed));
        let parts = |walk| {
            stream::try_unfold(walk, async |mut walk: Walk| {
                blocking(move || Ok(walk.part().map_err(failed)?.map(|part| (part, walk)))).await
            })
        };
        let objects = |part: Vec<ObjectMeta>| stream::iter(part.into_iter().map(Ok));
        stream::once(begun).map_ok(parts).try_flatten().map_ok(objects).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(object_store::Error::NotSupported { source: "a store copies no objects".into() })
    }
}

/// An entry that is not an object: the file of an upload never completed, or an empty directory.
pub(crate) struct Leftover {
    path: PathBuf,
    /// Path relative to the root, with slashes.
    pub(crate) key: String,
    /// Zero for a directory.
    pub(crate) size: u64,
    pub(crate) time: u64,
    pub(crate) is_directory: bool,
}

/// Finds what writers and collectors left behind in a root and in some directories below it. What has no key of a store is not theirs.
///
/// # Errors
/// `Io` when a directory cannot be read.
pub(crate) fn leftovers(root: &FilePath, under: &[&str]) -> Result<Vec<Leftover>, Error> {
    let mut found = vec![];
    [""].iter().chain(under).try_for_each(|below| {
        look_into(root, below, &mut found)
            .map_err(|e| Error::io(format_args!("{}: cannot read", root.join(below).display()), e))
    })?;
    Ok(found)
}

fn look_into(root: &FilePath, below: &str, found: &mut Vec<Leftover>) -> io::Result<()> {
    // Others clean up, too: entries deleted meanwhile are skipped.
    let Some(entries) = if_there(fs::read_dir(root.join(below)))? else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let Some(kind) = if_there(entry.file_type())? else { continue };
        // Keys are ASCII.
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let key = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        if kind.is_file() && staged_for(&key).is_some_and(|key| keys::is_key(&Path::from(key))) {
            found.extend(leftover(entry.path(), key)?);
        } else if kind.is_dir() && keys::is_directory(&key) {
            look_into(root, &key, found)?;
            if if_there(fs::read_dir(entry.path()))?.is_some_and(|mut entries| entries.next().is_none()) {
                found.extend(leftover(entry.path(), key)?);
            }
        }
    }
    Ok(())
}

fn leftover(path: PathBuf, key: String) -> io::Result<Option<Leftover>> {
    let Some(meta) = if_there(path.symlink_metadata())? else { return Ok(None) };
    let time = meta.modified()?.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let is_directory = meta.is_dir();
    let size = if is_directory { 0 } else { meta.len() };
    Ok(Some(Leftover { path, key, size, time, is_directory }))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::remote::Remote;

    #[test]
    fn leftovers_are_uploads_and_empty_directories() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let [a, b, c] = ["a", "b", "c"].map(|save| format!("data/{}", save.repeat(32)));
        let (shard, probe) = (format!("shards/{}.json.zst", "5".repeat(64)), format!("probes/{}#9", "6".repeat(32)));
        let step = "snapshots/9007/199/254/740";
        let foreign = ["data/b", "data/x/000000#1", "other/x", "snapshots/7", "probes/x"];
        for d in [&a[..], &b, &c, step, "shards"].into_iter().chain(foreign) {
            fs::create_dir_all(root.join(d)).unwrap();
        }
        let uploads =
            [format!("{a}/000001#1"), format!("{c}/000000#23"), "lmc-store.json#1".into(), probe, format!("{shard}#2")];
        let others = [
            format!("{a}/000000"),
            format!("{a}/notes#1"),
            format!("{a}/1#1"),
            format!("{shard}#1x"),
            format!("{shard}#"),
            "shards/p.json#1".into(),
            "data/x/000001#1".into(),
            "probes/x/y#1".into(),
            "m#1".into(),
            "other/x#1".into(),
        ];
        for f in uploads.iter().chain(&others) {
            fs::write(root.join(f), b"12").unwrap();
        }
        let find = || {
            let mut found = leftovers(root, &["snapshots", "data", "shards", "probes", "none"]).unwrap();
            found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            found
        };
        let found = find();
        let mut want: Vec<(&str, u64)> = uploads.iter().map(|f| (&f[..], 2)).chain([(&b[..], 0), (step, 0)]).collect();
        want.sort_unstable();
        assert_eq!(found.iter().map(|l| (&l.key[..], l.size)).collect::<Vec<_>>(), want);
        // Somebody is faster, or begins to use it.
        fs::remove_file(root.join(&uploads[0])).unwrap();
        fs::write(root.join(&b).join("000000"), b"").unwrap();
        found.iter().for_each(|l| l.remove().unwrap());
        assert!(root.join(&b).join("000000").exists() && uploads.iter().all(|f| !root.join(f).exists()));
        assert!(others.iter().all(|f| root.join(f).exists()) && foreign.iter().all(|d| root.join(d).is_dir()));
        // The directories that a store always has stay; of the others, each is empty now without that below it.
        assert_eq!(find().iter().map(|l| &l.key[..]).collect::<Vec<_>>(), [&c[..], "snapshots/9007/199/254"]);
        assert!(root.join("snapshots").is_dir());
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

    /// A directory, and the same where nothing can be synced.
    fn with_one_that_cannot_sync(path: &FilePath) -> [Remote; 2] {
        let open = || Directory::open(path, false).unwrap();
        let bad = Directory { sync: |_| Err(io::ErrorKind::StorageFull.into()), ..open() };
        [open(), bad].map(|d| Remote::new(Arc::new(d)).unwrap())
    }

    #[test]
    fn records_are_deleted_from_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let [good, bad] = with_one_that_cannot_sync(dir.path());
        let record = keys::record(crate::Step::new(7).unwrap(), 0);
        for (key, fails) in [(record, true), (keys::probe(crate::SaveId::new([1; 16])), false)] {
            good.wait(good.put(&key, "1".into())).unwrap();
            assert_eq!(bad.wait(bad.delete_all(vec![key.clone()])).is_some(), fails, "{key}");
            assert!(good.wait(good.get(&key, 9)).is_err() && good.wait(good.delete_all(vec![key])).is_none());
        }
    }

    #[test]
    fn an_object_that_may_not_be_on_disk_was_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let [good, bad] = with_one_that_cannot_sync(dir.path());
        let key = keys::record(crate::Step::new(7).unwrap(), 0);
        let e = bad.wait(bad.create(&key, "ours".into())).unwrap_err();
        assert!(e.kind() == crate::ErrorKind::Store && e.to_string().contains(key.as_ref()), "{e}");
        assert!(e.to_string().ends_with("free some space there"), "{e}");
        // It is there all the same, as after a lost answer of a server.
        assert_eq!(good.wait(good.get(&key, 9)).unwrap(), "ours");
        assert!(!good.wait(good.create(&key, "theirs".into())).unwrap());
        // What exists is no failure of the disk.
        assert!(!bad.wait(bad.create(&key, "theirs".into())).unwrap());
    }
}
