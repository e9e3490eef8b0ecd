//! The store's time: the one clock that all users of a store share.

use bytes::Bytes;

use crate::error::Result;
use crate::ids::SaveId;
use crate::layout;
use crate::remote::{self, Remote};

/// The time of an object just written, in seconds since 1970.
pub(crate) async fn now(remote: &Remote, probe: SaveId) -> Result<u64> {
    let key = layout::probe(probe);
    remote.put(&key, Bytes::new()).await?;
    let time = remote::seconds(remote.head(&key).await?.last_modified.timestamp());
    // If deleting fails, the collector removes it later.
    _ = remote.delete(&key).await;
    time
}
