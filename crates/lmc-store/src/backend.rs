//! Where a store is: a directory, a bucket, or memory.

use std::path::PathBuf;
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
#[cfg(feature = "s3")]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

/// For how long requests that fail are tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// A server that sends nothing for so long is asked again.
#[cfg(feature = "s3")]
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A directory. What is written there has reached the disk when it is said to be. The path of an archive, which [`Store::export`](crate::Store::export) writes, is a
    /// store that is only read.
    Directory(PathBuf),
    /// A prefix of a bucket of S3, or of a server that speaks its protocol. Credentials, region and endpoint come from the usual
    /// environment variables: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL` and others.
    #[cfg(feature = "s3")]
    S3 {
        /// The bucket.
        bucket: String,
        /// What all keys begin with; may be empty.
        prefix: String,
    },
    /// Memory of this process, new for each store.
    Memory,
}

impl FromStr for Location {
    type Err = Error;

    /// `s3://bucket/prefix`, or the path of a directory.
    fn from_str(s: &str) -> Result<Self> {
        let Some((scheme, rest)) = s.split_once("://") else {
            return if s.is_empty() {
                Err(Error::usage("a store has no empty name"))
            } else {
                Ok(Self::Directory(s.into()))
            };
        };
        match scheme {
            #[cfg(feature = "s3")]
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() {
                    return Err(Error::usage(format!("{s}: no bucket is named; a store in one is s3://BUCKET/PREFIX")));
                }
                Ok(Self::S3 { bucket: bucket.into(), prefix: prefix.trim_matches('/').into() })
            }
            "file" => Ok(Self::Directory(rest.into())),
            _ => Err(Error::usage(format!("{s}: a store is a directory, or s3://BUCKET/PREFIX"))),
        }
    }
}

impl Location {
    /// The objects there. A directory is created if told so.
    ///
    /// # Errors
    /// `NotFound` or `Io` when a directory is not there or cannot be created, `Store` when the environment does not say how to reach a bucket.
    pub fn connect(&self, create: bool) -> Result<Arc<dyn ObjectStore>> {
        self.connect_within(create, PATIENCE)
    }

    /// [`Self::connect`], and how long it may take until a server that cannot be reached, does not answer, or only fails is given up: three minutes unless told.
    ///
    /// # Errors
    /// Those of [`Self::connect`].
    pub fn connect_within(&self, create: bool, patience: Duration) -> Result<Arc<dyn ObjectStore>> {
        // Only servers need any.
        _ = patience;
        match self {
            Self::Memory => Ok(Arc::new(InMemory::new())),
            // What was exported is read as it is.
            Self::Directory(path) if !create && path.is_file() => Ok(Arc::new(Archive::open(path.clone())?)),
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

    /// The bucket as it is, if this is one.
    #[cfg(feature = "s3")]
    pub(crate) fn s3(&self, patience: Duration) -> Result<Option<AmazonS3>> {
        let Self::S3 { bucket, .. } = self else { return Ok(None) };
        // Fails if another part of the program was first, which is as good.
        _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        // TLS is asked for by the scheme; who names a plain endpoint wants one.
        let endpoint =
            ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].iter().find_map(|v| std::env::var(v).ok());
        if let Some(endpoint) = endpoint {
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        let limit = |d: Duration| format!("{} ms", d.as_millis());
        // `AWS_TIMEOUT` and `AWS_READ_TIMEOUT` are those of the user.
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

/// What those who can give credentials are told by; see `AmazonS3Builder::from_env`.
#[cfg(feature = "s3")]
const CREDENTIALS: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

impl Location {
    /// An error of the first request there, with what is missing for it.
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
        for bad in ["", "gs://b/p", "http://b"] {
            parse(bad).unwrap_err();
        }
        #[cfg(feature = "s3")]
        {
            let s3 = |bucket: &str, prefix: &str| Location::S3 { bucket: bucket.into(), prefix: prefix.into() };
            assert_eq!(parse("s3://b").unwrap(), s3("b", ""));
            assert_eq!(parse("s3://b/runs/7/").unwrap(), s3("b", "runs/7"));
            parse("s3:///p").unwrap_err();
        }
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
