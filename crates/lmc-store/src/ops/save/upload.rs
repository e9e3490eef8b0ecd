//! Writing data objects: block sets are appended, and sent while the next ones are compressed.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, WriteMultipart};

use crate::error::{Error, Result};
use crate::format::ids::SaveId;
use crate::format::keys;
use crate::format::manifest::shard::At;
use crate::objects::remote::Remote;

/// An object is closed once it has this many bytes.
const FULL: u64 = 1 << 30;
/// Bytes per request, except the last; a smaller object is a single request.
const CHUNK: usize = 1 << 23;
/// Concurrent requests.
const CONCURRENT: usize = 4;

pub(crate) struct Uploader<'a> {
    remote: &'a Remote,
    save: SaveId,
    /// Lengths of the completed objects.
    complete: Vec<u64>,
    open: Option<Open>,
}

/// An object under construction.
struct Open {
    key: Path,
    len: u64,
    /// Bytes not sent yet, as long as no upload has begun.
    waiting: Vec<Bytes>,
    upload: Option<WriteMultipart>,
}

impl<'a> Uploader<'a> {
    pub(crate) fn new(remote: &'a Remote, save: SaveId) -> Self {
        Self { remote, save, complete: vec![], open: None }
    }

    /// Appends a block set; returns its location.
    pub(crate) fn append(&mut self, bytes: Bytes) -> Result<At> {
        let number = self.complete.len();
        let open = self.open.get_or_insert_with(|| Open {
            key: keys::data(self.save, number),
            len: 0,
            waiting: vec![],
            upload: None,
        });
        let at = At(number, open.len, bytes.len() as u64);
        open.len += bytes.len() as u64;
        let full = open.len >= FULL;
        self.remote.wait(open.send(self.remote, bytes))?;
        if full {
            self.close()?;
        }
        Ok(at)
    }

    fn close(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        // From here on the object may exist.
        self.complete.push(open.len);
        self.remote.wait(open.finish(self.remote))
    }

    /// Completes the last object; returns the lengths of all.
    pub(crate) fn finish(&mut self) -> Result<Vec<u64>> {
        self.close()?;
        Ok(self.complete.clone())
    }

    /// Deletes the written objects, as far as possible: nothing refers to them yet.
    pub(crate) fn discard(self) {
        self.remote.wait(async {
            if let Some(upload) = self.open.and_then(|o| o.upload) {
                _ = upload.abort().await;
            }
            for number in 0..self.complete.len() {
                _ = self.remote.delete(&keys::data(self.save, number)).await;
            }
        });
    }
}

impl Open {
    async fn send(&mut self, remote: &Remote, bytes: Bytes) -> Result<()> {
        let failed = |e| Error::request("write", &self.key, e);
        self.waiting.push(bytes);
        if self.upload.is_none() && self.len > CHUNK as u64 {
            let upload = remote.objects().put_multipart(&self.key).await.map_err(failed)?;
            self.upload = Some(WriteMultipart::new_with_chunk_size(upload, CHUNK));
        }
        if let Some(upload) = &mut self.upload {
            for bytes in self.waiting.drain(..) {
                upload.wait_for_capacity(CONCURRENT).await.map_err(failed)?;
                upload.put(bytes);
            }
        }
        Ok(())
    }

    async fn finish(self, remote: &Remote) -> Result<()> {
        match self.upload {
            Some(upload) => upload.finish().await.map(|_| ()).map_err(|e| Error::request("write", &self.key, e)),
            None => remote.put(&self.key, self.waiting.concat().into()).await,
        }
    }
}
