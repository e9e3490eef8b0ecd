//! The location of a store: a directory, a bucket, or memory.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::memory::InMemory;

use crate::error::{Error, ErrorKind, Result};
use crate::objects::archive::Archive;
#[cfg(feature = "buckets")]
use crate::objects::bucket::Bucket;
use crate::objects::directory::Directory;

/// How long failed requests are retried.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A directory. Writes are durable when they return. May also be the path of an archive written by
    /// [`Store::export`](crate::Store::export), which is a read-only store.
    Directory(PathBuf),
    /// A prefix of a bucket.
    #[cfg(feature = "buckets")]
    Bucket(Bucket),
    /// Memory of this process, new for each store.
    Memory,
}

impl FromStr for Location {
    type Err = Error;

    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///directory`, or the path of a directory, as
    /// [`Self::directory`] takes it.
    fn from_str(s: &str) -> Result<Self> {
        let Some((scheme, rest)) = s.split_once("://") else {
            return if s.is_empty() {
                Err(Error::usage("the name of a store is empty"))
            } else {
                Self::directory(s.into())
            };
        };
        #[cfg(feature = "buckets")]
        if let Some(bucket) = Bucket::parse(scheme, rest) {
            return bucket.map(Self::Bucket);
        }
        match scheme {
            #[cfg(not(feature = "buckets"))]
            "s3" | "gs" | "az" => Err(Error::usage(format!(
                "{s}: this program was built without buckets: build it with the feature `buckets`, which is on by default"
            ))),
            "file" => Ok(Self::Directory(rest.into())),
            _ => Err(Error::usage(format!(
                "{s}: not the location of a store: name a directory, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
            ))),
        }
    }
}

/// As [`FromStr`] takes it.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            #[cfg(feature = "buckets")]
            Self::Bucket(bucket) => bucket.fmt(f),
            Self::Memory => f.write_str("memory"),
        }
    }
}

impl Location {
    /// A directory.
    ///
    /// # Errors
    /// `Usage` for a URL without its second slash, as `pathlib` makes it: a directory `s3:` would be made here, and the bucket would stay
    /// empty. `/s3:` is a directory, and in text `./s3:`.
    pub fn directory(path: PathBuf) -> Result<Self> {
        let first = path.components().next().map(|c| c.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
        if first.starts_with("s3:") || first.ends_with(':') {
            return Err(Error::usage(format!(
                "{}: is a URL without \"//\", as pathlib makes it: write s3://BUCKET/PREFIX, in Python as a str; \
                 for a directory of this name give its absolute path",
                path.display()
            )));
        }
        Ok(Self::Directory(path))
    }

    /// Whether a path is a URL, of a store or of something else.
    ///
    /// # Errors
    /// As [`Self::directory`].
    pub fn is_url(path: &Path) -> Result<bool> {
        match path.to_string_lossy().contains("://") {
            true => Ok(true),
            false => Self::directory(path.to_owned()).map(|_| false),
        }
    }

    /// The object store at this location. `create`: whether to create a missing directory.
    ///
    /// # Errors
    /// `NotFound` or `Io` when the directory is missing or cannot be created, `Store` when the environment does not say how to reach the
    /// bucket.
    pub fn connect(&self, create: bool) -> Result<Arc<dyn ObjectStore>> {
        self.connect_within(create, PATIENCE)
    }

    /// [`Self::connect`] with a limit on how long requests to a server that is unreachable, silent or failing are retried; by default three
    /// minutes.
    ///
    /// # Errors
    /// Those of [`Self::connect`].
    pub fn connect_within(&self, create: bool, patience: Duration) -> Result<Arc<dyn ObjectStore>> {
        // Only servers need a runtime.
        _ = patience;
        match self {
            Self::Memory => Ok(Arc::new(InMemory::new())),
            // An export is read in place.
            Self::Directory(path) if !create && path.is_file() => Ok(Arc::new(Archive::open(path.clone())?)),
            Self::Directory(path) if create && path.is_file() => Err(Error::new(
                ErrorKind::Io,
                "is a file, and nothing can be saved into it: name a directory; lmc snapshot copy makes one of an archive",
            )),
            Self::Directory(path) => Ok(Arc::new(Directory::open(path, create)?)),
            #[cfg(feature = "buckets")]
            Self::Bucket(bucket) => bucket.connect(patience),
        }
    }

    /// Adds a hint about missing credentials to the error of the first request.
    pub(crate) fn explain(&self, e: Error) -> Error {
        match self {
            #[cfg(feature = "buckets")]
            Self::Bucket(bucket) if e.kind() == ErrorKind::Store => {
                bucket.explain(e, |variable| std::env::var_os(variable).is_some())
            }
            _ => e,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_parsed() {
        let parse = |s: &str| s.parse::<Location>();
        assert_eq!(parse("runs/7").unwrap(), Location::Directory("runs/7".into()));
        assert_eq!(parse("file:///runs/7").unwrap(), Location::Directory("/runs/7".into()));
        assert_eq!(parse("file:///runs/7").unwrap().to_string(), "/runs/7");
        assert_eq!(parse("./s3:/b").unwrap(), Location::Directory("./s3:/b".into()));
        assert_eq!(parse("/s3:/b:/c:").unwrap(), Location::Directory("/s3:/b:/c:".into()));
        assert_eq!(parse("runs:7").unwrap(), Location::Directory("runs:7".into()));
        for bad in ["", "ftp://b/p", "http://b"] {
            parse(bad).unwrap_err();
        }
        for (path, is_url) in [("s3://b/p", true), ("gs://b", true), ("runs/7", false), ("./s3:/b", false)] {
            assert_eq!(Location::is_url(path.as_ref()).unwrap(), is_url, "{path}");
        }
        // pathlib.Path("s3://b/p") is "s3:/b/p".
        for bad in ["s3:/b/p", "s3:", "s3:b/p", "gs:/b/p", "file:/p"] {
            let e = parse(bad).unwrap_err();
            assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("s3://BUCKET/PREFIX"), "{bad}: {e}");
            assert_eq!(Location::directory(bad.into()).unwrap_err().to_string(), e.to_string());
            assert_eq!(Location::is_url(bad.as_ref()).unwrap_err().to_string(), e.to_string());
        }
        #[cfg(feature = "buckets")]
        {
            for (url, name, prefix) in [("s3://b", "b", ""), ("gs://b/runs/7", "b", "runs/7"), ("az://b/7", "b", "7")] {
                let Location::Bucket(found) = parse(url).unwrap() else { panic!("{url}: is no bucket") };
                assert_eq!((&found.name[..], &found.prefix[..], found.to_string()), (name, prefix, url.to_owned()));
            }
            assert_eq!(parse("s3://b/runs/7/").unwrap(), parse("s3://b/runs/7").unwrap());
            for bad in ["s3:///p", "gs://", "az:///"] {
                assert!(parse(bad).unwrap_err().to_string().contains("://BUCKET/PREFIX"), "{bad}");
            }
        }
        #[cfg(not(feature = "buckets"))]
        assert!(parse("s3://b").unwrap_err().to_string().contains("built without buckets"));
    }

    #[cfg(feature = "buckets")]
    #[test]
    fn missing_credentials_are_named() {
        let failed = || Error::store("cannot read lmc-store.json: no answer");
        for (url, variable) in [
            ("s3://b", "AWS_ACCESS_KEY_ID"),
            ("s3://b", "AWS_PROFILE"),
            ("gs://b", "GOOGLE_APPLICATION_CREDENTIALS"),
            ("az://b", "AZURE_STORAGE_ACCOUNT_KEY"),
        ] {
            let Location::Bucket(bucket) = url.parse().unwrap() else { panic!("{url}: is no bucket") };
            let none = bucket.explain(failed(), |_| false).to_string();
            let begin = "cannot read lmc-store.json: no answer; no credentials";
            assert!(none.starts_with(begin) && none.contains(variable), "{none}");
            assert_eq!(bucket.explain(failed(), |v| v == variable).to_string(), failed().to_string());
        }
        let other = "s3://b".parse::<Location>().unwrap().explain(Error::not_found("there is no store here"));
        assert_eq!(other.to_string(), "there is no store here");
        assert_eq!(Location::Memory.explain(failed()).to_string(), failed().to_string());
    }
}
