//! Buckets of object storage services.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::prefix::PrefixStore;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};

use crate::error::{Error, Result};
use crate::objects::profile;

/// A request without progress for this long is retried.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// A service with buckets, or containers, as Azure calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Amazon S3, or a server that speaks its protocol.
    S3,
    Google,
    Azure,
}

/// A prefix of a bucket, parsed from a URL. The environment says how to reach it:
///
/// * `s3://BUCKET/PREFIX`, Amazon S3 or a server that speaks its protocol: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`,
///   `AWS_ENDPOINT_URL` and others; or the profile `AWS_PROFILE`, by way of the program `aws`.
/// * `gs://BUCKET/PREFIX`, Google Cloud Storage: `GOOGLE_APPLICATION_CREDENTIALS`, `GOOGLE_SERVICE_ACCOUNT` and others; or what
///   `gcloud auth application-default login` left; or the machine's service account.
/// * `az://CONTAINER/PREFIX`, Azure Blob Storage: `AZURE_STORAGE_ACCOUNT_NAME`, with `AZURE_STORAGE_ACCOUNT_KEY`,
///   `AZURE_STORAGE_SAS_TOKEN`, `AZURE_CLIENT_ID` and others; or the machine's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub(crate) service: Service,
    pub(crate) name: String,
    /// Prefix of all keys; may be empty.
    pub(crate) prefix: String,
}

/// As it is in URLs.
impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slash, prefix) = (if self.prefix.is_empty() { "" } else { "/" }, &self.prefix);
        write!(f, "{}://{}{slash}{prefix}", self.service.scheme(), self.name)
    }
}

impl Service {
    const ALL: [Self; 3] = [Self::S3, Self::Google, Self::Azure];

    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    /// Variables that name a source of credentials, one of which must be set, and the advice if none is.
    fn credentials(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::S3 => (
                &profile::CREDENTIALS,
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, unless this machine has a role",
            ),
            Self::Google => (
                &[
                    "GOOGLE_APPLICATION_CREDENTIALS",
                    "GOOGLE_SERVICE_ACCOUNT",
                    "GOOGLE_SERVICE_ACCOUNT_PATH",
                    "GOOGLE_SERVICE_ACCOUNT_KEY",
                    "GOOGLE_BEARER_TOKEN",
                    "GOOGLE_SKIP_SIGNATURE",
                ],
                "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`, unless this machine has an account",
            ),
            Self::Azure => (
                &[
                    "AZURE_STORAGE_ACCOUNT_KEY",
                    "AZURE_STORAGE_ACCESS_KEY",
                    "AZURE_STORAGE_SAS_KEY",
                    "AZURE_STORAGE_SAS_TOKEN",
                    "AZURE_STORAGE_TOKEN",
                    "AZURE_STORAGE_CLIENT_ID",
                    "AZURE_CLIENT_ID",
                    "AZURE_USE_AZURE_CLI",
                ],
                "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, unless this machine has an identity",
            ),
        }
    }
}

/// Sets how long a request takes and how long it is retried. The user's own variables take precedence.
macro_rules! patient {
    ($builder:expr, $key:ident, $variables:literal, $patience:expr) => {{
        let (mut builder, patience) = ($builder, $patience);
        let times = [
            (ClientConfigKey::Timeout, concat!($variables, "_TIMEOUT"), patience),
            (ClientConfigKey::ReadTimeout, concat!($variables, "_READ_TIMEOUT"), SILENCE.min(patience)),
        ];
        for (key, variable, time) in times {
            if std::env::var_os(variable).is_none() {
                builder = builder.with_config($key::Client(key), format!("{} ms", time.as_millis()));
            }
        }
        builder.with_retry(RetryConfig { retry_timeout: patience, ..RetryConfig::default() })
    }};
}

impl Bucket {
    /// Parses what follows the scheme of a URL. `None` for other schemes.
    pub(crate) fn parse(scheme: &str, rest: &str) -> Option<Result<Self>> {
        let service = Service::ALL.into_iter().find(|service| service.scheme() == scheme)?;
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() {
            let why = format!("{scheme}://{rest}: names no bucket: write {scheme}://BUCKET/PREFIX");
            return Some(Err(Error::usage(why)));
        }
        Some(Ok(Self { service, name: name.into(), prefix: prefix.trim_matches('/').into() }))
    }

    /// The objects under the prefix.
    ///
    /// # Errors
    /// `Store` when the environment does not say how to reach the bucket.
    pub(crate) fn connect(&self, patience: Duration) -> Result<Arc<dyn ObjectStore>> {
        install_tls();
        match self.service {
            Service::S3 => Ok(self.below_prefix(self.s3(patience)?)),
            Service::Google => {
                let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&self.name);
                if server(&["GOOGLE_BASE_URL"])?.is_some_and(|url| url.starts_with("http://")) {
                    builder = builder.with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
                }
                self.usable(patient!(builder, GoogleConfigKey, "GOOGLE", patience).build())
            }
            Service::Azure => {
                let endpoint = server(&["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"])?;
                let http = endpoint.is_some_and(|url| url.starts_with("http://"));
                let builder = MicrosoftAzureBuilder::from_env().with_container_name(&self.name).with_allow_http(http);
                self.usable(patient!(builder, AzureConfigKey, "AZURE", patience).build())
            }
        }
    }

    /// The client of a bucket of S3.
    pub(crate) fn s3(&self, patience: Duration) -> Result<AmazonS3> {
        install_tls();
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.name);
        // The scheme selects TLS: an `http` endpoint is meant as such.
        if let Some(endpoint) = server(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])? {
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        builder = profile::apply(builder)?;
        patient!(builder, AmazonS3ConfigKey, "AWS", patience).build().map_err(|e| self.unusable(&e))
    }

    fn usable<S: ObjectStore>(&self, built: object_store::Result<S>) -> Result<Arc<dyn ObjectStore>> {
        Ok(self.below_prefix(built.map_err(|e| self.unusable(&e))?))
    }

    fn below_prefix(&self, objects: impl ObjectStore) -> Arc<dyn ObjectStore> {
        match &self.prefix[..] {
            "" => Arc::new(objects),
            prefix => Arc::new(PrefixStore::new(objects, prefix)),
        }
    }

    fn unusable(&self, e: &object_store::Error) -> Error {
        Error::store(format!("{}://{}: cannot use the bucket: {e}", self.service.scheme(), self.name))
    }

    /// Adds a hint about missing credentials to the error of a request.
    pub(crate) fn explain(&self, e: Error, is_set: impl Fn(&str) -> bool) -> Error {
        let (variables, remedy) = self.service.credentials();
        match variables.iter().any(|v| is_set(v)) {
            true => e,
            false => e.and(&format!("; no credentials are in the environment: {remedy}")),
        }
    }
}

/// Lets TLS use ring. Fails if another part of the program has installed a provider, which is just as good.
pub(crate) fn install_tls() {
    _ = rustls::crypto::ring::default_provider().install_default();
}

/// The address of a server in the first of these variables that is set; clients panic at one without a scheme.
fn server(names: &[&str]) -> Result<Option<String>> {
    let Some((name, url)) = names.iter().find_map(|name| Some((name, std::env::var(name).ok()?))) else {
        return Ok(None);
    };
    match url.starts_with("http://") || url.starts_with("https://") {
        true => Ok(Some(url)),
        false => {
            Err(Error::usage(format!("{name}={url} is no address of a server: begin it with http:// or https://")))
        }
    }
}
