//! Large objects of a directory while they are written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::disk::{blocking, create_all, failed};
use crate::files::{if_there, sync};

/// A file beside the object's, under a name that `LocalFileSystem` gives such files. It becomes the object when it is complete and on disk,
/// and is removed otherwise.
///
/// `LocalFileSystem` writes all of it before anything goes to disk, and then waits for the disk. Here the system begins with each part once
/// it is written.
#[derive(Debug)]
pub(crate) struct Staged {
    file: Arc<File>,
    /// Where the file is, unless it has become the object.
    path: Option<PathBuf>,
    target: PathBuf,
    /// Bytes of the parts so far.
    len: u64,
}

impl Staged {
    /// Creates the file, and directories above it.
    pub(crate) fn create(target: PathBuf) -> io::Result<Self> {
        let mut number = 1;
        loop {
            let mut path = target.clone().into_os_string();
            path.push(format!("#{number}"));
            let path = PathBuf::from(path);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Self { file: Arc::new(file), path: Some(path), target, len: 0 }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => match target.parent() {
                    Some(directory) if e.kind() == io::ErrorKind::NotFound => create_all(directory)?,
                    _ => return Err(e),
                },
            }
        }
    }

    fn remove(&mut self) -> io::Result<()> {
        let removed = self.path.take().map_or(Ok(()), fs::remove_file);
        // It may have become the object before an error, which this one would hide.
        if_there(removed).map(|_| ())
    }
}

#[async_trait]
impl MultipartUpload for Staged {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        let (file, start) = (self.file.clone(), self.len);
        self.len += part.content_length() as u64;
        let write = move || {
            let mut at = start;
            for bytes in &part {
                lmc::WriteAt::write_all_at(&*file, bytes, at).map_err(failed)?;
                at += bytes.len() as u64;
            }
            start_writeback(&file, start, at - start);
            Ok(())
        };
        blocking(write).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let Some(path) = self.path.clone() else { return Err(failed("the object was completed or aborted before")) };
        let (file, target) = (self.file.clone(), self.target.clone());
        blocking(move || {
            file.sync_all().and_then(|()| fs::rename(path, &target)).map_err(failed)?;
            target.parent().map_or(Ok(()), sync).map_err(failed)
        })
        .await?;
        self.path = None;
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

/// Has the system begin to write a range to disk. The pages stay in the cache: they are not clean yet.
#[cfg(target_os = "linux")]
fn start_writeback(file: &File, offset: u64, len: u64) {
    _ = rustix::fs::fadvise(file, offset, std::num::NonZeroU64::new(len), rustix::fs::Advice::DontNeed);
}

/// Other systems choose the time themselves.
#[cfg(not(target_os = "linux"))]
fn start_writeback(_: &File, _: u64, _: u64) {}
