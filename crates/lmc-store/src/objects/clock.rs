//! The store's time: the one clock that all users of a store share.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::format::ids::SaveId;
use crate::format::keys;
use crate::objects::remote::{self, Remote};

/// The time of an object just written, in seconds since 1970. `strict`: also creates what is there a second time. A server that accepts this
/// would let one writer's record overwrite another's.
///
/// # Errors
/// `Unsupported` when the server overwrites existing objects.
pub(crate) async fn now(remote: &Remote, probe: SaveId, strict: bool) -> Result<u64> {
    let key = keys::probe(probe);
    remote.put(&key, Bytes::new()).await?;
    let time = remote::seconds(remote.head(&key).await?.last_modified.timestamp());
    let refuses = async || remote.refuses_to_replace(&key, Bytes::new()).await;
    // Twice: a collector may have deleted the probe of a process that stood still.
    if strict && !refuses().await? && !refuses().await? {
        _ = remote.delete(&key).await;
        return Err(Error::unsupported(
            "this server ignores the condition `If-None-Match: *` and overwrites existing objects: \
             of two concurrent writers one would silently lose its snapshot; use a server that honours the condition, or a directory",
        ));
    }
    // If deleting fails, the collector removes it later.
    _ = remote.delete(&key).await;
    time
}
