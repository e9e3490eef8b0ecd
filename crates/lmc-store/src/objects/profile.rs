//! Credentials of a profile of AWS, as the program `aws` exports them: it knows every source that a profile can name (keys, roles, single
//! sign-on, programs).

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use object_store::CredentialProvider;
use object_store::aws::{AmazonS3Builder, AwsCredential};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::error::{Error, Result};

/// Variables that name a source of credentials; see `AmazonS3Builder::from_env`.
pub(crate) const CREDENTIALS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_PROFILE",
];

/// Credentials are fetched anew this long before they expire.
const EARLY: Duration = Duration::from_secs(300);

/// Takes credentials, and the region unless that is set, from the profile `AWS_PROFILE`, unless keys are in the environment, which take
/// precedence, as with other programs.
///
/// # Errors
/// `Store` when `aws` is missing, or says nothing about the profile.
pub(crate) fn apply(builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if is_set("AWS_ACCESS_KEY_ID") || !is_set("AWS_PROFILE") {
        return Ok(builder);
    }
    let profile = Profile::default();
    // Now, so that an error comes before any work.
    profile.first()?;
    let region = match is_set("AWS_REGION") || is_set("AWS_DEFAULT_REGION") {
        true => None,
        // A profile need not have one.
        false => aws(&["configure", "get", "region"]).ok().map(|text| text.trim().to_owned()),
    };
    let builder = builder.with_credentials(Arc::new(profile));
    Ok(match region {
        Some(region) if !region.is_empty() => builder.with_region(region),
        _ => builder,
    })
}

/// What `aws configure export-credentials` writes: the format of a `credential_process`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Exported {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<DateTime<Utc>>,
}

impl std::fmt::Debug for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exported").field("expiration", &self.expiration).finish_non_exhaustive()
    }
}

/// Credentials, and when they expire.
type Fetched = (Arc<AwsCredential>, Option<DateTime<Utc>>);

/// The credentials fetched last.
#[derive(Debug, Default)]
struct Profile(Mutex<Option<Fetched>>);

impl Profile {
    fn first(&self) -> Result<()> {
        let fetched = fetch()?;
        *self.0.try_lock().expect("nobody else has it yet") = Some(fetched);
        Ok(())
    }
}

#[async_trait]
impl CredentialProvider for Profile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut last = self.0.lock().await;
        if let Some((credential, expiration)) = &*last
            && expiration.is_none_or(|at| Utc::now() + EARLY < at)
        {
            return Ok(credential.clone());
        }
        let failed = |source| object_store::Error::Generic { store: "S3", source };
        let fetched = tokio::task::spawn_blocking(fetch).await.map_err(|e| failed(e.into()))?;
        let fetched = fetched.map_err(|e| failed(e.into()))?;
        Ok(last.insert(fetched).0.clone())
    }
}

fn fetch() -> Result<Fetched> {
    let text = aws(&["configure", "export-credentials", "--format", "process"])?;
    let exported: Exported = serde_json::from_str(&text).map_err(|e| {
        Error::store(format!("`aws configure export-credentials` wrote something else than credentials: {e}"))
    })?;
    let Exported { access_key_id: key_id, secret_access_key: secret_key, session_token: token, expiration } = exported;
    Ok((Arc::new(AwsCredential { key_id, secret_key, token }), expiration))
}

/// What `aws` writes; it reads `AWS_PROFILE` itself.
fn aws(arguments: &[&str]) -> Result<String> {
    let profile = std::env::var_os("AWS_PROFILE").unwrap_or_default();
    let failed = |why: String| {
        let command = arguments[..2].join(" ");
        Error::store(format!("AWS_PROFILE={}: `aws {command}`: {why}", profile.display()))
    };
    let output = Command::new("aws").args(arguments).output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            failed("there is no such program: install the AWS CLI (version 2), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".into())
        }
        _ => failed(e.to_string()),
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            // Its last line says what to do, such as `aws sso login`.
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it failed").to_owned();
            Err(failed(last))
        }
    }
}
