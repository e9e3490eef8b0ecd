//! Incomplete multipart uploads in a bucket. They occupy paid space, but no listing of objects shows them.
//!
//! `object_store` cannot list them, but it signs such requests; the answers are small XML documents (*Amazon S3 API Reference*,
//! `ListMultipartUploads` and `ListParts`).

use std::time::Duration;

use object_store::aws::AmazonS3;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};
use reqwest::{Client, Method};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::error::{Error, ErrorDocument, Result, root_cause};
use crate::format::keys;
use crate::objects::bucket::{Bucket, SILENCE, install_tls};
use crate::objects::location::PATIENCE;
use crate::objects::remote::seconds;

/// The most bytes of an answer, which lists up to a thousand uploads or parts.
const MAX_ANSWER: usize = 1 << 24;
/// Validity of a signed request.
const SIGNED: Duration = Duration::from_secs(900);

/// The incomplete uploads to a store in a bucket.
pub struct Uploads {
    s3: AmazonS3,
    /// Prefix of the store's keys, with a slash at the end unless it is empty.
    prefix: String,
    client: Client,
    patience: Duration,
}

/// An incomplete upload.
pub(crate) struct Upload {
    /// Key within the store.
    pub(crate) key: Path,
    pub(crate) id: String,
    /// Bytes of the parts uploaded so far.
    pub(crate) size: u64,
    /// When it was begun, in seconds since 1970 by the store's clock.
    pub(crate) time: u64,
}

impl Uploads {
    /// Uploads to a prefix of a bucket; the prefix may be empty. Failed requests are retried for `patience`.
    ///
    /// # Errors
    /// `Store` when no client can be created.
    pub fn new(s3: AmazonS3, prefix: &str, patience: Duration) -> Result<Self> {
        install_tls();
        let client = Client::builder().timeout(patience).read_timeout(SILENCE.min(patience)).build();
        let client = client.map_err(|e| Error::store(format!("cannot make requests: {}", root_cause(&e))))?;
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { s3, prefix, client, patience })
    }

    /// Those to a bucket of S3.
    pub(crate) fn of(bucket: &Bucket) -> Result<Self> {
        Self::new(bucket.s3(PATIENCE)?, &bucket.prefix, PATIENCE)
    }

    /// Lists uploads of data objects, the only objects uploaded in parts. Others are not ours.
    pub(crate) async fn list(&self) -> Result<Vec<Upload>> {
        let mut found = vec![];
        let prefix = format!("{}{}/", self.prefix, keys::all_data());
        let mut after = vec![];
        loop {
            let query = [("uploads", ""), ("prefix", &prefix)].into_iter().map(own).chain(after.clone());
            let page: UploadsPage = self.get(&Path::default(), query.collect()).await?;
            for UploadEntry { key, upload_id: id, initiated } in page.uploads {
                let Some(key) = key.strip_prefix(&self.prefix).map(Path::from) else { continue };
                if keys::parse_data(&key).is_some() {
                    let time = time_of(&initiated)?;
                    found.push(Upload { key, id, size: 0, time });
                }
            }
            let next = [("key-marker", page.next_key_marker), ("upload-id-marker", page.next_upload_id_marker)];
            let next: Vec<_> = next.into_iter().filter_map(|(name, value)| Some(own((name, &*value?)))).collect();
            if !page.is_truncated {
                break;
            }
            after = advanced(after, next)?;
        }
        for upload in &mut found {
            upload.size = self.size(upload).await?;
        }
        Ok(found)
    }

    /// The key in the bucket.
    fn full_key(&self, upload: &Upload) -> Path {
        Path::from(format!("{}{}", self.prefix, upload.key))
    }

    /// Bytes of the parts of an upload; zero if it was completed or aborted meanwhile.
    async fn size(&self, upload: &Upload) -> Result<u64> {
        let key = self.full_key(upload);
        let (mut size, mut after) = (0u64, vec![]);
        loop {
            let query = [own(("uploadId", &upload.id))].into_iter().chain(after.clone()).collect();
            let Some(page) = self.get_if_there::<PartsPage>(&key, query).await? else { return Ok(0) };
            size = page.parts.iter().fold(size, |sum, part| sum.saturating_add(part.size));
            if !page.is_truncated {
                return Ok(size);
            }
            let next = page.next_part_number_marker.as_deref().map(|n| own(("part-number-marker", n)));
            after = advanced(after, next.into_iter().collect())?;
        }
    }

    /// Aborts an upload: its parts are deleted, and it cannot be completed. A missing one counts as aborted.
    pub(crate) async fn abort(&self, upload: &Upload) -> Result<()> {
        let key = self.full_key(upload);
        match self.s3.abort_multipart(&key, &upload.id).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(Error::request("abort the upload of", &upload.key, e)),
        }
    }

    async fn get<T: DeserializeOwned>(&self, key: &Path, query: Vec<(String, String)>) -> Result<T> {
        let there = self.get_if_there(key, query).await?;
        there.ok_or_else(|| Error::store("cannot list uploads: the bucket is not there"))
    }

    /// Requests a document; `None` if the server does not find it. Transient failures are retried.
    async fn get_if_there<T: DeserializeOwned>(&self, key: &Path, query: Vec<(String, String)>) -> Result<Option<T>> {
        let failed = |why: String| Error::store(format!("cannot list uploads: {why}"));
        let options = SignedUrlOptions::new().with_query(query);
        let until = Instant::now() + self.patience;
        let mut pause = Duration::from_millis(100).min(self.patience / 8);
        loop {
            let url = self.s3.signed_url_opts(Method::GET, key, SIGNED, &options).await;
            let url = url.map_err(|e| failed(root_cause(&e)))?;
            let why = match self.answer(url.as_str()).await {
                // A proxy's error page is not such a document: the next answer may be the server's.
                Ok((200, text)) => match quick_xml::de::from_str(&text) {
                    Ok(document) => return Ok(Some(document)),
                    Err(e) => format!("the answer is not valid: {e}"),
                },
                Ok((404, _)) => return Ok(None),
                Ok((status, text)) => {
                    let why = format!(
                        "status {status}{}",
                        ErrorDocument::parse(&text).map(|e| format!(", {}", e.code)).unwrap_or_default()
                    );
                    if status < 500 && status != 429 || status == 501 {
                        return Err(failed(why));
                    }
                    why
                }
                Err(why) => why,
            };
            if Instant::now() + pause > until {
                return Err(failed(why));
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(Duration::from_secs(15));
        }
    }

    /// Status and body of an answer. Errors omit the request's URL, which is signed.
    async fn answer(&self, url: &str) -> Result<(u16, String), String> {
        let why = |e: reqwest::Error| root_cause(&e.without_url());
        let mut answer = self.client.get(url).send().await.map_err(why)?;
        let mut body = vec![];
        while let Some(bytes) = answer.chunk().await.map_err(why)? {
            if body.len() + bytes.len() > MAX_ANSWER {
                return Err("the answer is too long".into());
            }
            body.extend_from_slice(&bytes);
        }
        let text = String::from_utf8(body).map_err(|_| "the answer is not UTF-8")?;
        Ok((answer.status().as_u16(), text))
    }
}

fn own((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// The start of the next page. Fails if a server returns the same page again.
fn advanced(from: Vec<(String, String)>, to: Vec<(String, String)>) -> Result<Vec<(String, String)>> {
    if to.is_empty() || from == to {
        return Err(Error::store("cannot list uploads: the server does not say where the next page begins"));
    }
    Ok(to)
}

/// Parses a date of S3.
fn time_of(date: &str) -> Result<u64> {
    let parsed = chrono::DateTime::parse_from_rfc3339(date);
    let date = parsed.map_err(|_| Error::store(format!("cannot list uploads: {date:?} is not a date")))?;
    seconds(date.timestamp())
}

#[derive(Deserialize)]
#[serde(rename = "ListMultipartUploadsResult", rename_all = "PascalCase")]
struct UploadsPage {
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
    #[serde(default, rename = "Upload")]
    uploads: Vec<UploadEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UploadEntry {
    key: String,
    upload_id: String,
    initiated: String,
}

#[derive(Deserialize)]
#[serde(rename = "ListPartsResult", rename_all = "PascalCase")]
struct PartsPage {
    is_truncated: bool,
    next_part_number_marker: Option<String>,
    #[serde(default, rename = "Part")]
    parts: Vec<PartEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PartEntry {
    size: u64,
}
