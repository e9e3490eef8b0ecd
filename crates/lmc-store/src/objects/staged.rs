//! Large objects of a directory while they are written.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::channel::oneshot;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::disk::{blocking, failed};
use crate::objects::files::{
    create_all, create_new, give_name, if_there, parent, remove_closed, start_writeback, sync, sync_file,
};

/// A file beside the object's, under a name that `LocalFileSystem` gives such files. It becomes the object when it is complete and on disk,
/// and is removed otherwise.
///
/// `LocalFileSystem` writes all of it before anything goes to disk, and then waits for the disk. Here the system begins with each part once
/// it is written.
#[derive(Debug)]
pub(crate) struct Staged {
    /// Open until it has become the object or is removed: some file systems do not remove open files.
    file: Option<Arc<File>>,
    /// Where the file is, unless it has become the object.
    path: Option<PathBuf>,
    target: PathBuf,
    /// Bytes of the parts so far.
    len: u64,
    /// Ends when the last part so far is written.
    last: Option<oneshot::Receiver<()>>,
}

impl Staged {
    /// Creates the file, and directories above it.
    pub(crate) fn create(target: PathBuf) -> io::Result<Self> {
        let mut number = 1;
        loop {
            let mut path = target.clone().into_os_string();
            path.push(format!("#{number}"));
            let path = PathBuf::from(path);
            match create_new(&path, 0o666) {
                Ok(file) => {
                    return Ok(Self { file: Some(Arc::new(file)), path: Some(path), target, len: 0, last: None });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(e) if e.kind() == io::ErrorKind::NotFound => create_all(parent(&target))?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes all of an object. `replace`: what is there is replaced; otherwise the name must be free.
    pub(crate) fn put(target: PathBuf, bytes: &PutPayload, replace: bool) -> io::Result<()> {
        let mut staged = Self::create(target)?;
        let file = staged.file.clone().expect("it is open");
        bytes.iter().try_for_each(|bytes| (&*file).write_all(bytes))?;
        drop(file);
        staged.finish(replace)
    }

    /// Makes it durable, and the object.
    fn finish(&mut self, replace: bool) -> io::Result<()> {
        let over = || io::Error::other("the object was completed or aborted before");
        let (file, path) = (self.file.take().ok_or_else(over)?, self.path.as_deref().ok_or_else(over)?);
        sync_file(&file, &self.target)?;
        give_name(file, path, &self.target, replace)?;
        self.path = None;
        sync(parent(&self.target))
    }

    fn remove(&mut self) -> io::Result<()> {
        self.file = None;
        let removed = self.path.take().map_or(Ok(()), |path| remove_closed(&path));
        // It may have become the object before an error, which this one would hide.
        if_there(removed).map(|_| ())
    }
}

/// The path that a file gets once it is complete, if `LocalFileSystem` uses this one until then: it hides such files.
pub(crate) fn staged_for(path: &str) -> Option<&str> {
    path.rsplit_once('#').filter(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())).map(|(path, _)| path)
}

#[async_trait]
impl MultipartUpload for Staged {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        let (file, start) = (self.file.clone(), self.len);
        self.len += part.content_length() as u64;
        // One after another: some file systems take a file from front to end only.
        let (written, this) = oneshot::channel();
        let before = self.last.replace(this);
        let write = move || {
            let file = file.ok_or_else(|| failed("the object was completed or aborted before"))?;
            let mut at = start;
            for bytes in &part {
                lmc::WriteAt::write_all_at(&*file, bytes, at).map_err(failed)?;
                at += bytes.len() as u64;
            }
            start_writeback(&file, start, at - start);
            Ok(())
        };
        async move {
            if let Some(before) = before {
                // Whether it succeeded is for its caller.
                _ = before.await;
            }
            let done = blocking(write).await;
            _ = written.send(());
            done
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let nothing = Self { file: None, path: None, target: PathBuf::new(), len: 0, last: None };
        let mut staged = std::mem::replace(self, nothing);
        blocking(move || staged.finish(true).map_err(failed)).await?;
        Ok(PutResult { e_tag: None, version: None, extensions: Default::default() })
    }

    async fn abort(&mut self) -> Result<()> {
        self.remove().map_err(failed)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        _ = self.remove();
    }
}
