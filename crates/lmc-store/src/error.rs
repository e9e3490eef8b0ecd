//! Errors: few kinds, by what the caller should do next; the detail is in the message.

use std::fmt;

use object_store::path::Path;

use crate::disk::NotOnDisk;
use crate::irregular::Irregular;

/// Kinds of [`Error`], by what the caller can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store cannot be reached, or refused: look at it, and at the credentials, and try again.
    Store,
    /// A file cannot be read or written.
    Io,
    /// Something in the store is missing, or differs from the bytes written there.
    Damaged,
    /// It was written by another version of `lmc`, or is not a store.
    Unsupported,
    /// There is no such store, snapshot, file or tensor.
    NotFound,
    /// The snapshot exists already, or another process was first.
    Exists,
    /// The save took longer than the store allows: start it again.
    Expired,
    /// Something exceeds the limits.
    Limit,
    /// The arguments are invalid or contradict each other.
    Usage,
}

/// An error of this crate: a kind, and a message that states the fault, its place, and the remedy.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    /// The key of the object that it is about, if that is known.
    object: Option<Path>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! constructors {
    ($($name:ident $kind:ident)*) => {
        $(pub(crate) fn $name(message: impl Into<String>) -> Self {
            Self::new(ErrorKind::$kind, message)
        })*
    };
}

impl Error {
    /// A new error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), object: None, source: None }))
    }

    constructors! {
        store Store
        damaged Damaged
        unsupported Unsupported
        not_found NotFound
        exists Exists
        expired Expired
        limit Limit
        usage Usage
    }

    /// There is no snapshot of a step `how`.
    pub(crate) fn no_snapshot(step: impl fmt::Display, how: &str) -> Self {
        let there = "lmc snapshot list shows those that are there";
        Self::not_found(format!("the store has no snapshot of step {step}{how}; {there}"))
    }

    /// Its kind: what the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The key of the object that it is about, if that is known.
    pub(crate) fn object(&self) -> Option<&Path> {
        self.0.object.as_ref()
    }

    /// Says which object it is about.
    #[must_use]
    pub(crate) fn of(mut self, object: &Path) -> Self {
        self.0.object = Some(object.clone());
        self
    }

    /// Prefixes the message with where it happened.
    #[must_use]
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        self.0.message = format!("{place}: {}", self.0.message);
        self
    }

    /// Appends advice to the message.
    #[must_use]
    pub(crate) fn and(mut self, advice: &str) -> Self {
        self.0.message += advice;
        self
    }

    /// Turns `NotFound` into `Damaged`: something refers to the object.
    #[must_use]
    pub(crate) fn or_damaged(self) -> Self {
        if self.0.kind != ErrorKind::NotFound {
            return self;
        }
        Self(Box::new(Inner { kind: ErrorKind::Damaged, ..*self.0 }))
    }

    /// An error of the object store, for one of its keys.
    pub(crate) fn request(doing: &str, key: &Path, e: object_store::Error) -> Self {
        use object_store::Error as E;
        let (kind, advice) = match &e {
            E::NotFound { .. } => (ErrorKind::NotFound, ""),
            E::AlreadyExists { .. } | E::Precondition { .. } => (ErrorKind::Exists, ""),
            E::PermissionDenied { .. } => (ErrorKind::Store, "; check the permissions"),
            E::Unauthenticated { .. } => (ErrorKind::Store, "; check the credentials"),
            _ if is_irregular(&e) => (ErrorKind::Damaged, "; move it out of the store"),
            _ => (ErrorKind::Store, advice(&e)),
        };
        let cause = root_cause(&e);
        let of_code = ANSWERS.iter().find(|(code, _)| cause.ends_with(&format!("({code})")));
        let advice = of_code.map_or(advice, |(_, advice)| advice);
        let mut new = Self::new(kind, format!("cannot {doing} {key}: {cause}{advice}")).of(key);
        new.0.source = Some(Box::new(e));
        new
    }

    /// An error of the codec.
    pub(crate) fn codec(e: lmc::Error) -> Self {
        let kind = match e.kind() {
            lmc::ErrorKind::Io => ErrorKind::Io,
            lmc::ErrorKind::Usage => ErrorKind::Usage,
            lmc::ErrorKind::Unsupported => ErrorKind::Unsupported,
            lmc::ErrorKind::Limit => ErrorKind::Limit,
            _ => ErrorKind::Damaged,
        };
        let mut new = Self::new(kind, e.to_string());
        new.0.source = Some(Box::new(e));
        new
    }

    /// An operating-system error, with the operation that failed.
    pub fn io(doing: impl fmt::Display, e: std::io::Error) -> Self {
        let mut new = Self::new(ErrorKind::Io, format!("{doing}: {e}"));
        new.0.source = Some(Box::new(e));
        new
    }
}

fn causes(e: &object_store::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(e as &(dyn std::error::Error + 'static)), |e| e.source())
}

/// Whether a write to a directory failed.
pub(crate) fn is_not_on_disk(e: &object_store::Error) -> bool {
    causes(e).any(|e| e.is::<NotOnDisk>())
}

/// Whether an object's path holds something that cannot be an object.
fn is_irregular(e: &object_store::Error) -> bool {
    causes(e).any(|e| e.is::<Irregular>())
}

/// Advice for file-system errors.
fn advice(e: &object_store::Error) -> &'static str {
    match causes(e).find_map(|e| e.downcast_ref::<std::io::Error>()).map(std::io::Error::kind) {
        Some(std::io::ErrorKind::PermissionDenied) => "; check the permissions",
        Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => "; free some space there",
        Some(std::io::ErrorKind::ConnectionRefused) => "; check that the server runs, and its address",
        // Of names that do not resolve, and of TLS, there is only the text.
        _ if root_cause(e).starts_with("failed to lookup address") => "; check the address of the server",
        _ if root_cause(e).contains("InvalidContentType") => "; the server speaks no TLS: is its address http://?",
        _ => "",
    }
}

/// Codes of servers' answers, and what to do.
const ANSWERS: [(&str, &str); 6] = [
    ("SignatureDoesNotMatch", "; check the secret key"),
    ("InvalidAccessKeyId", "; check the access key"),
    ("ExpiredToken", "; get new credentials"),
    ("RequestTimeTooSkewed", "; set this machine's clock right"),
    ("NoSuchBucket", "; check the name of the bucket"),
    ("AuthorizationHeaderMalformed", "; check the region"),
];

/// What a server says in XML: what stands before it, such as the status, the first line of its message, and the code.
#[cfg(feature = "buckets")]
fn answer(text: &str) -> Option<String> {
    let (status, document) = text.split_at(text.find('<')?);
    let ErrorDocument { code, message } = ErrorDocument::parse(document)?;
    let status = status.trim_start_matches("Server returned non-2xx status code: ").trim_end().trim_end_matches(':');
    let message = message.lines().next().unwrap_or_default();
    let colon = if status.is_empty() || message.is_empty() { "" } else { ": " };
    Some(format!("{status}{colon}{message} ({code})"))
}

/// What S3 answers to a request that fails.
#[cfg(feature = "buckets")]
#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ErrorDocument {
    pub(crate) code: String,
    #[serde(default)]
    message: String,
}

#[cfg(feature = "buckets")]
impl ErrorDocument {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        quick_xml::de::from_str(text).ok()
    }
}

/// The innermost cause: the message of the operating system or the server.
pub(crate) fn root_cause(e: &dyn std::error::Error) -> String {
    let mut last: &dyn std::error::Error = e;
    while let Some(next) = last.source() {
        last = next;
    }
    let text = last.to_string();
    #[cfg(feature = "buckets")]
    let text = answer(&text).unwrap_or(text);
    text
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

#[cfg(all(test, feature = "buckets"))]
mod tests {
    use super::*;

    #[test]
    fn answers_in_xml_are_one_line() {
        let failed = |text: &str| {
            let e = object_store::Error::Generic { store: "S3", source: text.into() };
            Error::request("read", &Path::from("k"), e).to_string()
        };
        let answer = |code: &str, message: &str| {
            format!(
                "403: <?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>{message}</Message><Key>k</Key></Error>"
            )
        };
        for (text, said) in [
            (
                answer("SignatureDoesNotMatch", "It does not match."),
                "cannot read k: 403: It does not match. (SignatureDoesNotMatch); check the secret key",
            ),
            (answer("SlowDown", "Reduce\nthe rate."), "cannot read k: 403: Reduce (SlowDown)"),
            (answer("AccessDenied", ""), "cannot read k: 403 (AccessDenied)"),
            ("no XML".to_owned(), "cannot read k: no XML"),
            ("<Code>cut".to_owned(), "cannot read k: <Code>cut"),
        ] {
            assert_eq!(failed(&text), said);
        }
    }
}
