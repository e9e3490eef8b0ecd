//! The store's time: the only clock that counts, because all who use a store share it.

use bytes::Bytes;

use crate::error::Result;
use crate::ids::SaveId;
use crate::layout;
use crate::remote::{self, Remote};

/// The time of an object that was just written, in seconds since 1970.
pub(crate) async fn now(remote: &Remote, probe: SaveId) -> Result<u64> {
    let key = layout::probe(probe);
    remote.put(&key, Bytes::new()).await?;
    let time = remote::seconds(remote.head(&key).await?.last_modified.timestamp());
    // One that stays is found by a collector.
    _ = remote.delete(&key).await;
    time
}
