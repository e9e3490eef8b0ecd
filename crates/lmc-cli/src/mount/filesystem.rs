//! The kernel's requests, answered from a tree.
//!
//! Requests are taken by several threads, which decode nothing: what takes long is answered by the threads of [`Blocks`].

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

use super::blocks::{Blocks, Bytes, Source};
use super::nodes::Nodes;
use super::sequence::Sequence;
use super::tree::{Attributes, Opened, Tree};

/// How long the kernel may rely on names and attributes.
const VALID: Duration = Duration::from_secs(1);

/// The most files that stay open in case they are opened again: finding the bases of a delta takes time.
const RECENT: usize = 64;

/// A tree as the kernel sees it.
pub(crate) struct Mounted {
    tree: Box<dyn Tree>,
    blocks: Arc<Blocks>,
    nodes: Mutex<Nodes>,
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    next: AtomicU64,
    /// The last files that were opened, newest last.
    recent: Mutex<VecDeque<Arc<Source>>>,
    /// Told when the file system is not mounted any more.
    ended: mpsc::Sender<()>,
}

/// What a program opened, and its node.
enum Handle {
    Plain(u64, File),
    Decoded(Arc<Source>, Mutex<Sequence>),
    Directory(Vec<(OsString, FileType)>),
}

impl Mounted {
    pub(crate) fn new(tree: Box<dyn Tree>, blocks: Arc<Blocks>, ended: mpsc::Sender<()>) -> io::Result<Self> {
        let nodes = Mutex::new(Nodes::new(tree.attributes(Path::new(""))?));
        let (handles, recent) = Default::default();
        Ok(Self { tree, blocks, nodes, handles, next: AtomicU64::new(1), recent, ended })
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        lock(&self.nodes)
    }

    fn path(&self, node: INodeNo) -> io::Result<(PathBuf, Attributes)> {
        let nodes = self.nodes();
        let (path, attributes) = nodes.get(node.0).ok_or(rustix::io::Errno::STALE)?;
        Ok((path.to_owned(), *attributes))
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.path(parent)?.0.join(name);
        let attributes = self.tree.attributes(&path)?;
        let number = self.nodes().looked_up(path, attributes);
        Ok(shown(number, &attributes))
    }

    fn attributes(&self, node: INodeNo) -> io::Result<FileAttr> {
        let (path, seen) = self.path(node)?;
        match self.tree.attributes(&path) {
            Ok(now) if now.version == seen.version && now.kind == seen.kind => Ok(shown(node.0, &now)),
            // A file that was removed or replaced has its bytes while it is open.
            _ if lock(&self.handles).values().any(|handle| handle.node() == Some(node.0)) => Ok(shown(node.0, &seen)),
            now => Err(now.err().unwrap_or(rustix::io::Errno::STALE.into())),
        }
    }

    fn opened(&self, node: INodeNo) -> io::Result<(Handle, FopenFlags)> {
        let decoded = |source| (Handle::Decoded(source, Mutex::default()), FopenFlags::FOPEN_KEEP_CACHE);
        let (path, seen) = self.path(node)?;
        // The kernel looks again whether it is the version that it knows.
        let stale = || io::Error::from(rustix::io::Errno::STALE);
        if self.tree.attributes(&path)?.version != seen.version {
            return Err(stale());
        }
        let mut recent = lock(&self.recent);
        if let Some(at) = recent.iter().position(|source| source.number == node.0)
            && let Some(source) = recent.remove(at)
        {
            recent.push_back(source.clone());
            return Ok(decoded(source));
        }
        drop(recent);
        Ok(match self.tree.open(&path, seen.version)?.ok_or_else(stale)? {
            Opened::Plain(file) => (Handle::Plain(node.0, file), FopenFlags::empty()),
            Opened::Decoded(file) => {
                let source = Arc::new(Source { number: node.0, decoded: file });
                let mut recent = lock(&self.recent);
                recent.push_back(source.clone());
                if recent.len() > RECENT {
                    recent.pop_front();
                }
                decoded(source)
            }
        })
    }

    fn add(&self, handle: Handle) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.handles).insert(number, Arc::new(handle));
        FileHandle(number)
    }

    fn handle(&self, number: FileHandle) -> Option<Arc<Handle>> {
        lock(&self.handles).get(&number.0).cloned()
    }

    /// Answers with bytes of a decoded file, now or when they are decoded.
    fn read_decoded(&self, file: &Arc<Source>, sequence: &Mutex<Sequence>, offset: u64, size: u32, reply: ReplyData) {
        let end = file.decoded.size().min(offset.saturating_add(size.into()));
        if offset >= end {
            return reply.data(&[]);
        }
        let (first, last) = (file.decoded.block_at(offset), file.decoded.block_at(end - 1));
        let gathered = Arc::new(Mutex::new(Gathered { parts: vec![None; last + 1 - first], reply: Some(reply) }));
        for block in first..=last {
            let range = file.decoded.range(block);
            let part = (offset.max(range.start) - range.start) as usize..(end.min(range.end) - range.start) as usize;
            let gathered = gathered.clone();
            let then = move |bytes: Option<Bytes>| match bytes {
                Some(bytes) => lock(&gathered).add(block - first, (bytes, part)),
                None => lock(&gathered).reply.take().into_iter().for_each(|reply| reply.error(Errno::EIO)),
            };
            self.blocks.get(file, block, Box::new(then));
        }
        let step = lock(sequence).read(&file.decoded, last, self.blocks.most_ahead());
        if let Some(step) = step {
            // First what gives its memory to others.
            step.behind.into_iter().for_each(|block| self.blocks.forget(file, block));
            step.ahead.for_each(|block| self.blocks.ahead(file, block));
        }
    }
}

/// The blocks of one answer.
struct Gathered {
    parts: Vec<Option<Part>>,
    /// Until it is sent.
    reply: Option<ReplyData>,
}

/// A block, and the bytes of it that are asked for.
type Part = (Bytes, std::ops::Range<usize>);

impl Gathered {
    /// Sends the answer if it was the last one.
    fn add(&mut self, index: usize, part: Part) {
        self.parts[index] = Some(part);
        if self.parts.iter().any(Option::is_none) {
            return;
        }
        let Some(reply) = self.reply.take() else { return };
        let slices: Vec<&[u8]> = self.parts.iter().flatten().map(|(bytes, range)| &bytes[range.clone()]).collect();
        match slices[..] {
            [slice] => reply.data(slice),
            _ => reply.data(&slices.concat()),
        }
    }
}

impl Handle {
    fn node(&self) -> Option<u64> {
        match self {
            Self::Plain(node, _) => Some(*node),
            Self::Decoded(source, _) => Some(source.number),
            Self::Directory(_) => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shown(number: u64, of: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: of.size,
        blocks: of.size.div_ceil(512),
        atime: of.modified,
        mtime: of.modified,
        ctime: of.modified,
        crtime: UNIX_EPOCH,
        kind: of.kind,
        perm: of.mode,
        nlink: 1,
        uid: of.user,
        gid: of.group,
        rdev: 0,
        blksize: 1 << 17,
        flags: 0,
    }
}

/// Whether this process itself asks, by way of a link into the mount point: its answer would wait for itself.
fn is_own(request: &Request) -> bool {
    Path::new("/proc/self/task").join(request.pid().to_string()).exists()
}

/// The answer to a request, unless it is one of this process. A fault in the program is an error: a thread that ended
/// would take no more requests.
fn answer<T>(request: &Request, find: impl FnOnce() -> io::Result<T>) -> Result<T, Errno> {
    if is_own(request) {
        return Err(Errno::ELOOP);
    }
    catch_unwind(AssertUnwindSafe(find)).map_or(Err(Errno::EIO), |found| found.map_err(Errno::from))
}

impl Filesystem for Mounted {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without the first, the kernel looks up one name of a directory at a time. With the second it forgets the bytes of a plain file that
        // was written meanwhile.
        for wanted in [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_AUTO_INVAL_DATA] {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn destroy(&mut self) {
        let _ = self.ended.send(());
        // The session would unmount what is at the mount point now.
        loop {
            std::thread::park();
        }
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match answer(request, || self.find(parent, name)) {
            Ok(attributes) => reply.entry(&VALID, &attributes, Generation(0)),
            Err(e) => reply.error(e),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
        self.nodes().forget(node.0, lookups);
    }

    fn getattr(&self, request: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match answer(request, || self.attributes(node)) {
            Ok(attributes) => reply.attr(&VALID, &attributes),
            Err(e) => reply.error(e),
        }
    }

    fn readlink(&self, request: &Request, node: INodeNo, reply: ReplyData) {
        match answer(request, || self.tree.link(&self.path(node)?.0)) {
            Ok(target) => reply.data(target.as_os_str().as_encoded_bytes()),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, request: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match answer(request, || self.opened(node)) {
            Ok((handle, flags)) => reply.opened(self.add(handle), flags),
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.handle(handle).as_deref() {
            Some(Handle::Decoded(source, sequence)) => self.read_decoded(source, sequence, offset, size, reply),
            Some(Handle::Plain(_, file)) => match read_plain(file, offset, size) {
                Ok(bytes) => reply.data(&bytes),
                Err(e) => reply.error(e.into()),
            },
            Some(Handle::Directory(_)) => reply.error(Errno::EISDIR),
            None => reply.error(Errno::EBADF),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.handles).remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, request: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let listed = answer(request, || {
            let mut names = self.tree.list(&self.path(node)?.0)?;
            names.splice(..0, [".", ".."].map(|name| (name.into(), FileType::Directory)));
            Ok(Handle::Directory(names))
        });
        match listed {
            Ok(handle) => reply.opened(self.add(handle), FopenFlags::empty()),
            Err(e) => reply.error(e),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(handle) = self.handle(handle) else { return reply.error(Errno::EBADF) };
        let Handle::Directory(names) = &*handle else { return reply.error(Errno::ENOTDIR) };
        for (i, (name, kind)) in (0..).zip(names).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            // The number is not known before a lookup.
            if reply.add(INodeNo(u32::MAX.into()), i + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        lock(&self.handles).remove(&handle.0);
        reply.ok();
    }
}

/// Bytes of a file on disk, as many as there are.
fn read_plain(file: &File, offset: u64, size: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}
