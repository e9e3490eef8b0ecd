//! The store's time: the only clock that counts, because all who use a store share it.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::ids::SaveId;
use crate::layout;
use crate::remote::Remote;

/// The time of an object that was just written, in seconds since 1970.
pub(crate) async fn now(remote: &Remote, probe: SaveId) -> Result<u64> {
    let key = layout::probe(probe);
    remote.put(&key, Bytes::new()).await?;
    let time = seconds(remote.head(&key).await?.last_modified.timestamp());
    // One that stays is found by a collector.
    _ = remote.delete(&key).await;
    time
}

/// The time of a date that the store gave, whose timestamp this is.
pub(crate) fn seconds(timestamp: i64) -> Result<u64> {
    u64::try_from(timestamp).map_err(|_| Error::store("the store's clock is before 1970: set it right"))
}
