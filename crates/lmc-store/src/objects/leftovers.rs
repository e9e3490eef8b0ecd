//! Leftovers of writers that died, which no listing of objects shows: temporary files in directories, incomplete multipart uploads in
//! buckets.

use std::path::PathBuf;

use crate::error::{Error, Result};
#[cfg(feature = "buckets")]
use crate::objects::bucket::Service;
use crate::objects::directory;
use crate::objects::location::Location;
#[cfg(feature = "buckets")]
use crate::objects::uploads::{Upload, Uploads};

/// Where to look for leftovers.
pub(crate) enum Leftovers {
    /// In those subdirectories that the store writes to.
    Directory(PathBuf),
    #[cfg(feature = "buckets")]
    Bucket(Uploads),
    /// In a bucket of a service whose incomplete uploads cannot be listed; what to do about them.
    #[cfg(feature = "buckets")]
    Unlisted(&'static str),
}

/// A leftover.
pub(crate) enum Leftover {
    File(directory::Leftover),
    #[cfg(feature = "buckets")]
    Upload(Upload),
}

/// An object, or an incomplete upload, that no snapshot needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Orphan {
    /// Its key. An empty directory has one, too. The key of an incomplete multipart upload is the object's, followed by `?uploadId=` and
    /// its id.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// When it was written, in seconds since 1970 by the store's clock.
    pub time: u64,
}

impl Leftovers {
    /// The place of leftovers of a store at `location`; `None` if there can be none.
    pub(crate) fn of(location: &Location) -> Result<Option<Self>> {
        Ok(match location {
            // As the objects: a relative path, or a link, may lead elsewhere later.
            Location::Directory(path) => Some(Self::Directory(
                path.canonicalize().map_err(|e| Error::io(format_args!("{}: cannot open", path.display()), e))?,
            )),
            #[cfg(feature = "buckets")]
            Location::Bucket(bucket) => match bucket.service {
                Service::S3 => Some(Self::Bucket(Uploads::of(bucket)?)),
                Service::Google => Some(Self::Unlisted(
                    "incomplete uploads of Google Cloud Storage are not listed: end them by a lifecycle rule, AbortIncompleteMultipartUpload",
                )),
                // It deletes blocks that no blob has after a week.
                Service::Azure => None,
            },
            Location::Memory => None,
        })
    }

    pub(crate) async fn list(&self) -> Result<Vec<Leftover>> {
        match self {
            Self::Directory(root) => {
                let files = directory::leftovers(root, &["snapshots", "floors", "shards", "data", "probes", "tags"])?;
                Ok(files.into_iter().map(Leftover::File).collect())
            }
            #[cfg(feature = "buckets")]
            Self::Bucket(uploads) => Ok(uploads.list().await?.into_iter().map(Leftover::Upload).collect()),
            #[cfg(feature = "buckets")]
            Self::Unlisted(why) => Err(Error::store(*why)),
        }
    }

    pub(crate) async fn remove(&self, leftover: &Leftover) -> Result<()> {
        match (self, leftover) {
            (_, Leftover::File(file)) => file.remove(),
            #[cfg(feature = "buckets")]
            (Self::Bucket(uploads), Leftover::Upload(upload)) => uploads.abort(upload).await,
            #[cfg(feature = "buckets")]
            (_, Leftover::Upload(_)) => unreachable!("only a bucket lists uploads"),
        }
    }
}

impl Leftover {
    /// Whether it takes no space.
    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, Self::File(l) if l.is_directory)
    }

    pub(crate) fn orphan(&self) -> Orphan {
        match self {
            Self::File(l) => Orphan { key: l.key.clone(), size: l.size, time: l.time },
            #[cfg(feature = "buckets")]
            Self::Upload(u) => Orphan { key: format!("{}?uploadId={}", u.key, u.id), size: u.size, time: u.time },
        }
    }
}
