//! A directory as an object store: `LocalFileSystem` reads and deletes, with checks that it lacks; writes are here.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::buffer::Pool;
use crate::disk::{NotOnDisk, blocking, failed};
use crate::error::Error;
use crate::files::{create_all, if_there, sync};
use crate::irregular::Irregular;
use crate::layout;
use crate::staged::Staged;

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

/// Entries that are looked at for the first part of a listing; each further part has twice as many, up to the largest.
const FIRST_PART: usize = 64;
const LARGEST_PART: usize = 4096;

/// A listing of the objects below a directory, in the order of their keys: complete regular files, through any links, and any entry under a
/// record's key. Other entries are ignored. A directory is read when its turn comes.
struct Walk {
    root: PathBuf,
    /// Only keys that come after it are listed.
    offset: Path,
    /// The entries that are still to come of each directory on the way, the next one last.
    open: Vec<Vec<Entry>>,
    part: usize,
}

/// An entry of a directory.
struct Entry {
    path: PathBuf,
    key: Path,
    /// Whether it is a directory to be listed.
    is_directory: bool,
}

impl Entry {
    /// What keys begin with that it has, or are below it.
    fn order(&self) -> impl Iterator<Item = u8> + '_ {
        self.key.as_ref().bytes().chain(self.is_directory.then_some(b'/'))
    }
}

impl Walk {
    fn new(root: PathBuf, offset: Path) -> Self {
        Self { root, offset, open: vec![], part: FIRST_PART }
    }

    /// Reads a directory.
    fn enter(&mut self, path: &FilePath) -> io::Result<()> {
        let Some(entries) = if_there(fs::read_dir(path))? else { return Ok(()) };
        let mut found = vec![];
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let name = path.strip_prefix(&self.root).unwrap_or(&path).to_string_lossy().into_owned();
            let key = Path::from(&name[..]);
            // Nor do keys below it come after.
            if key < self.offset && !self.offset.as_ref().starts_with(key.as_ref()) {
                continue;
            }
            // Directories of others are looked into, too, but not far: a link may lead back.
            let may_be_listed = layout::parse_record(&key).is_none()
                && (layout::is_directory(key.as_ref()) || key.parts().count() < DEPTH);
            let Some(kind) = if_there(entry.file_type())? else { continue };
            let is_directory = may_be_listed
                && (kind.is_dir() || kind.is_symlink() && fs::metadata(&path).is_ok_and(|target| target.is_dir()));
            found.push(Entry { path, key, is_directory });
        }
        found.sort_unstable_by(|a, b| b.order().cmp(a.order()));
        self.open.push(found);
        Ok(())
    }

    /// The next part of the listing; `None` after the last one.
    fn part(&mut self) -> io::Result<Option<Vec<ObjectMeta>>> {
        let mut found = vec![];
        while found.len() < self.part
            && let Some(entries) = self.open.last_mut()
        {
            match entries.pop() {
                None => _ = self.open.pop(),
                Some(entry) if entry.is_directory => self.enter(&entry.path)?,
                Some(entry) => found.extend(self.object(entry)?),
            }
        }
        self.part = LARGEST_PART.min(2 * self.part);
        Ok(Some(found).filter(|found| !found.is_empty()))
    }

    /// The object of an entry, if it is one, and its key comes after the offset. Entries deleted meanwhile are none.
    fn object(&self, Entry { path, key, .. }: Entry) -> io::Result<Option<ObjectMeta>> {
        let is_record = layout::parse_record(&key).is_some();
        if key <= self.offset || !is_record && staged_for(&path.to_string_lossy()).is_some() {
            return Ok(None);
        }
        // Follows a link to its target; a dangling link is taken as itself.
        let meta = match fs::metadata(&path) {
            Err(_) => if_there(fs::symlink_metadata(&path))?,
            meta => Some(meta?),
        };
        let Some(meta) = meta.filter(|meta| is_record || meta.is_file()) else { return Ok(None) };
        let size = if meta.is_file() { meta.len() } else { 0 };
        let last_modified = meta.modified()?.into();
        Ok(Some(ObjectMeta { location: key, last_modified, size, e_tag: None, version: None }))
    }
}

/// The most components of a key that is below directories of others.
const DEPTH: usize = 3;

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
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_with_offset(prefix, &Path::default())
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (walk, prefix) = (Walk::new(self.root.clone(), offset.clone()), prefix.cloned().unwrap_or_default());
        let begun = blocking(move || {
            let mut walk = walk;
            walk.enter(&file_of(walk.root.clone(), &prefix)).map_err(failed)?;
            Ok(walk)
        });
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
        if kind.is_file() && staged_for(&key).is_some_and(|key| layout::is_key(&Path::from(key))) {
            found.extend(leftover(entry.path(), key)?);
        } else if kind.is_dir() && layout::is_directory(&key) {
            look_into(root, &key, found)?;
            if if_there(fs::read_dir(entry.path()))?.is_some_and(|mut entries| entries.next().is_none()) {
                found.extend(leftover(entry.path(), key)?);
            }
        }
    }
    Ok(())
}

/// The path that a file gets once it is complete, if `LocalFileSystem` uses this one until then: it hides such files.
fn staged_for(path: &str) -> Option<&str> {
    path.rsplit_once('#').filter(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())).map(|(path, _)| path)
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
    use std::sync::Arc;

    use super::*;
    use crate::remote::Remote;

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
        let mut want: Vec<(&str, u64)> =
            uploads.iter().map(|f| (&f[..], 2)).chain([(&b[..], 0), (step, 0)]).collect();
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

    /// The keys that a listing has, in its order.
    fn listed(remote: &Remote, offset: Option<&Path>) -> Vec<Path> {
        let mut objects = remote.objects_after(&layout::records(), offset).unwrap();
        let mut keys = vec![];
        while let Some(object) = remote.wait(objects.next()).unwrap() {
            keys.push(object.key);
        }
        keys
    }

    #[test]
    fn what_comes_after_a_key_is_listed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Remote::new(Arc::new(Directory::open(dir.path(), false).unwrap())).unwrap();
        let step = |n| crate::Step::new(n).unwrap();
        let steps = [(3, 0), (7, 0), (7, 1), (20, 0), (1000, 0), (2_000_000, 0), (1 << 40, 0), (1 << 53, 0)];
        let records = steps.map(|(n, generation)| layout::record(step(n), generation));
        let directory = records[0].as_ref().rsplit_once('/').unwrap().0.to_owned();
        // Names that are encoded in keys, and names that continue others.
        let others = ["a", "9007", "9007~", "9007-", "9007/a~", "9007/a", "9007/a~b"].map(|n| format!("snapshots/{n}"));
        for key in records.iter().cloned().chain(["snap".into(), "shards/x".into()]) {
            remote.wait(remote.put(&key, "1".into())).unwrap();
        }
        for name in others.iter().cloned().chain([format!("{directory}/993~"), format!("{directory}/993-x")]) {
            let path = dir.path().join(&name);
            if !path.exists() {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, b"").unwrap();
            }
        }
        let mut all: Vec<Path> = remote.wait(remote.list(&layout::records())).unwrap().into_iter().map(|o| o.key).collect();
        assert!(all.len() == records.len() + 8 && all.is_sorted(), "{all:?}");
        assert_eq!(listed(&remote, None), all);
        for from in [0, 3, 7, 8, 999, 1 << 41] {
            let offset = layout::before_records(step(from));
            let rest: Vec<Path> = all.iter().filter(|key| **key > offset).cloned().collect();
            assert_eq!(listed(&remote, Some(&offset)), rest, "{from}");
        }
        all.retain(|key| *key > records[1]);
        assert_eq!(listed(&remote, Some(&records[1])), all);
    }

    #[test]
    fn the_first_records_are_found_without_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let remote = Remote::new(Arc::new(Directory::open(dir.path(), false).unwrap())).unwrap();
        let key = |n: u64| layout::record(crate::Step::new(n).unwrap(), 0);
        for n in 0..3000 {
            let path = dir.path().join(key(n).as_ref());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        let mut objects = remote.objects_after(&layout::records(), None).unwrap();
        for n in (2900..3000).rev() {
            assert_eq!(remote.wait(objects.next()).unwrap().unwrap().key, key(n));
        }
        // The directory of steps 993 to 1992 was not read yet.
        fs::remove_dir_all(dir.path().join(key(1000).as_ref()).parent().unwrap()).unwrap();
        for n in (1993..2900).rev().chain((0..993).rev()) {
            assert_eq!(remote.wait(objects.next()).unwrap().unwrap().key, key(n));
        }
        assert!(remote.wait(objects.next()).unwrap().is_none());
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

    #[test]
    fn an_object_that_may_not_be_on_disk_was_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let good = Directory::open(dir.path(), false).unwrap();
        let bad = Directory {
            sync: |_| Err(io::ErrorKind::StorageFull.into()),
            ..Directory::open(dir.path(), false).unwrap()
        };
        let [good, bad] = [good, bad].map(|d| Remote::new(Arc::new(d)).unwrap());
        let key = layout::record(crate::Step::new(7).unwrap(), 0);
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
