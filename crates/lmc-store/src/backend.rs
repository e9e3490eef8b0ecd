//! The location of a store: a directory, a bucket, or memory.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::memory::InMemory;
#[cfg(feature = "s3")]
use object_store::{
    ClientConfigKey, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    prefix::PrefixStore,
};

use crate::archive::Archive;
use crate::directory::Directory;
use crate::error::{Error, ErrorKind, Result};

/// How long failed requests are retried.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// A request without progress for this long is retried.
#[cfg(feature = "s3")]
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A directory. Writes are durable when they return. May also be the path of an archive written by
    /// [`Store::export`](crate::Store::export), which is a read-only store.
    Directory(PathBuf),
    /// A prefix of a bucket of S3, or of a server that speaks its protocol. Credentials, region and endpoint come from the usual
    /// environment variables: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` and others.
    #[cfg(feature = "s3")]
    S3 {
        /// The bucket.
        bucket: String,
        /// Prefix of all keys; may be empty.
        prefix: String,
    },
    /// Memory of this process, new for each store.
    Memory,
}

impl FromStr for Location {
    type Err = Error;

    /// `s3://bucket/prefix`, `file:///directory`, or the path of a directory, as [`Self::directory`] takes it.
    fn from_str(s: &str) -> Result<Self> {
        let Some((scheme, rest)) = s.split_once("://") else {
            return if s.is_empty() {
                Err(Error::usage("the name of a store is empty"))
            } else {
                Self::directory(s.into())
            };
        };
        match scheme {
            #[cfg(feature = "s3")]
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() {
                    return Err(Error::usage(format!("{s}: names no bucket: write s3://BUCKET/PREFIX")));
                }
                Ok(Self::S3 { bucket: bucket.into(), prefix: prefix.trim_matches('/').into() })
            }
            #[cfg(not(feature = "s3"))]
            "s3" => Err(Error::usage(format!(
                "{s}: this program was built without buckets: build it with the feature `s3`, which is on by default"
            ))),
            "file" => Ok(Self::Directory(rest.into())),
            _ => {
                Err(Error::usage(format!("{s}: not the location of a store: name a directory, or s3://BUCKET/PREFIX")))
            }
        }
    }
}

/// As [`FromStr`] takes it.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            #[cfg(feature = "s3")]
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            #[cfg(feature = "s3")]
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
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
                "is a file, and nothing can be saved into it: name a directory; lmc snapshot import makes one of an archive",
            )),
            Self::Directory(path) => Ok(Arc::new(Directory::open(path, create)?)),
            #[cfg(feature = "s3")]
            Self::S3 { prefix, .. } => {
                let s3 = self.s3(patience)?.expect("it is a bucket");
                Ok(match &prefix[..] {
                    "" => Arc::new(s3),
                    prefix => Arc::new(PrefixStore::new(s3, prefix)),
                })
            }
        }
    }

    /// The bucket's client, if this is a bucket.
    #[cfg(feature = "s3")]
    pub(crate) fn s3(&self, patience: Duration) -> Result<Option<AmazonS3>> {
        let Self::S3 { bucket, .. } = self else { return Ok(None) };
        // Fails if another part of the program has installed a provider, which is just as good.
        _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        // The scheme selects TLS: an `http` endpoint is meant as such.
        let endpoint =
            ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].iter().find_map(|v| std::env::var(v).ok());
        if let Some(endpoint) = endpoint {
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        let limit = |d: Duration| format!("{} ms", d.as_millis());
        // The user's `AWS_TIMEOUT` and `AWS_READ_TIMEOUT` take precedence.
        if std::env::var_os("AWS_TIMEOUT").is_none() {
            let request = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
            builder = builder.with_config(request, limit(patience));
        }
        if std::env::var_os("AWS_READ_TIMEOUT").is_none() {
            let silence = AmazonS3ConfigKey::Client(ClientConfigKey::ReadTimeout);
            builder = builder.with_config(silence, limit(SILENCE.min(patience)));
        }
        builder = builder.with_retry(RetryConfig { retry_timeout: patience, ..RetryConfig::default() });
        let s3 = builder.build().map_err(|e| Error::store(format!("s3://{bucket}: cannot use the bucket: {e}")))?;
        Ok(Some(s3))
    }
}

/// Variables that name a source of credentials; see `AmazonS3Builder::from_env`.
#[cfg(feature = "s3")]
const CREDENTIALS: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

impl Location {
    /// Adds a hint about missing credentials to the error of the first request.
    pub(crate) fn explain(&self, e: Error) -> Error {
        match self {
            #[cfg(feature = "s3")]
            Self::S3 { .. } => self.explain_in(e, |variable| std::env::var_os(variable).is_some()),
            Self::Directory(_) | Self::Memory => e,
        }
    }

    #[cfg(feature = "s3")]
    fn explain_in(&self, e: Error, is_set: impl Fn(&str) -> bool) -> Error {
        match self {
            Self::S3 { .. } if e.kind() == ErrorKind::Store && !CREDENTIALS.iter().any(|v| is_set(v)) => e.and(
                "; no credentials are in the environment: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, unless this machine has a role",
            ),
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
        for bad in ["", "gs://b/p", "http://b"] {
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
        #[cfg(feature = "s3")]
        {
            let s3 = |bucket: &str, prefix: &str| Location::S3 { bucket: bucket.into(), prefix: prefix.into() };
            assert_eq!(parse("s3://b").unwrap(), s3("b", ""));
            assert_eq!(parse("s3://b/runs/7/").unwrap(), s3("b", "runs/7"));
            for (location, text) in [(s3("b", ""), "s3://b"), (s3("b", "runs/7"), "s3://b/runs/7")] {
                assert_eq!((&location.to_string()[..], parse(text).unwrap()), (text, location));
            }
            parse("s3:///p").unwrap_err();
        }
        #[cfg(not(feature = "s3"))]
        assert!(parse("s3://b").unwrap_err().to_string().contains("built without buckets"));
    }

    #[cfg(feature = "s3")]
    #[test]
    fn missing_credentials_are_named() {
        let s3: Location = "s3://b".parse().unwrap();
        let failed = || Error::store("cannot read lmc-store.json: no answer");
        let none = s3.explain_in(failed(), |_| false).to_string();
        assert!(none.starts_with("cannot read lmc-store.json: no answer; no credentials"), "{none}");
        let some = s3.explain_in(failed(), |v| v == "AWS_ACCESS_KEY_ID").to_string();
        assert_eq!(some, failed().to_string());
        let other = s3.explain_in(Error::not_found("there is no store here"), |_| false).to_string();
        assert_eq!(other, "there is no store here");
        assert_eq!(Location::Memory.explain_in(failed(), |_| false).to_string(), some);
    }
}
