//! A small server of object storage on a loopback port that can inject faults. Objects are in memory; requests are not authenticated. It
//! speaks the protocol of S3, those of Google and of Azure as far as one request creates an object, and that of a gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Key within the bucket.
    pub(crate) key: String,
    pub(crate) query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// A fault of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoil {
    /// No fault.
    Not,
    /// The request is not served; the answer has this status.
    Status(u16),
    /// The request is served, but the answer has this status.
    ServedThen(u16),
    /// No answer; the connection stays open.
    Silence,
    /// The connection closes in the middle of the body.
    Cut,
    /// The second half of the body is never sent; the connection stays open.
    Stall,
    /// The body, and the length in its header, are half of the requested ones.
    Short,
    /// A range request returns the whole object.
    Whole,
    /// A bit of the body is flipped.
    Flip,
    /// Every answer has another ETag.
    Etag,
    /// Conditions of the request are ignored.
    Unconditional,
    /// Of several objects, data objects of odd numbers are not deleted.
    KeepOdd,
    /// Nothing is listed.
    Unlisted,
    /// As a gateway of a model hub has it: objects are read where the answer to `GET` says, at another address; errors are not XML; and of
    /// S3's protocol there is nothing but objects, their parts and `ListObjectsV2`.
    Gateway,
    /// The last key is listed first.
    Backwards,
}

/// An incomplete multipart upload: key, id, time, and sizes of its parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Upload {
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) time: &'static str,
    pub(crate) parts: Vec<u64>,
}

/// Uploads, or parts, per answer.
const PAGE: usize = 2;

/// What a save wrote that died two days ago has this in its keys.
const DEAD: &str = "7777777777777777";

/// When all objects were written.
const TIME: &str = "Sat, 21 Nov 2026 12:00:00 GMT";

type Objects = BTreeMap<String, Vec<u8>>;
type Spoiler = Box<dyn FnMut(&Request) -> Spoil + Send>;

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

struct State {
    objects: Objects,
    uploads: Vec<Upload>,
    spoil: Spoiler,
    answers: u64,
    /// What requests said in their headers about who they are from.
    authorizations: BTreeSet<String>,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: vec![], body: body.into() }
    }

    fn error(status: u16) -> Self {
        let code = match status {
            403 => "AccessDenied",
            404 => "NoSuchKey",
            412 => "PreconditionFailed",
            503 => "SlowDown",
            _ => "InternalError",
        };
        let text = format!("<Error><Code>{code}</Code><Message>injected fault</Message></Error>");
        Self::new(status, text)
    }
}

impl Server {
    /// Serves until the process ends.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            objects: Objects::new(),
            uploads: vec![],
            spoil: Box::new(|_| Spoil::Not),
            answers: 0,
            authorizations: BTreeSet::new(),
        }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let state = shared.clone();
                // The error of a client that disconnected.
                std::thread::spawn(move || _ = serve(&connection, &state));
            }
        });
        Self { endpoint, state }
    }

    /// From here on, this selects the fault of each answer.
    pub(crate) fn spoil(&self, spoil: impl FnMut(&Request) -> Spoil + Send + 'static) {
        self.state.lock().unwrap().spoil = Box::new(spoil);
    }

    pub(crate) fn heal(&self) {
        self.spoil(|_| Spoil::Not);
    }

    /// Replaces the list of uploads.
    pub(crate) fn set_uploads(&self, mut uploads: Vec<Upload>) {
        uploads.sort();
        self.state.lock().unwrap().uploads = uploads;
    }

    pub(crate) fn uploads(&self) -> Vec<Upload> {
        self.state.lock().unwrap().uploads.clone()
    }

    /// Adds an empty object.
    pub(crate) fn add(&self, key: &str) {
        self.state.lock().unwrap().objects.insert(key.to_owned(), vec![]);
    }

    pub(crate) fn authorizations(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().authorizations.clone()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.state.lock().unwrap().objects.keys().cloned().collect()
    }
}

fn serve(connection: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    // An answer is written in parts, which do not wait for each other.
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(request) = read(&mut reader)? {
        let (spoil, mut answer, number) = {
            let mut state = state.lock().unwrap();
            let spoil = (state.spoil)(&request);
            state.answers += 1;
            let uploads = answer_of_uploads(&request, &mut state.uploads);
            let answer = match spoil {
                Spoil::Status(status) => Answer::error(status),
                _ if uploads.is_some() && spoil != Spoil::Gateway => uploads.unwrap(),
                Spoil::ServedThen(status) => {
                    _ = respond(&request, &mut state.objects, spoil);
                    Answer::error(status)
                }
                _ => respond(&request, &mut state.objects, spoil),
            };
            let authorization = request.headers.get("authorization").cloned().unwrap_or_default();
            // A signed address has none.
            if !authorization.is_empty() {
                state.authorizations.insert(authorization);
            }
            (spoil, answer, state.answers)
        };
        if spoil == Spoil::Gateway && answer.status >= 400 {
            answer.body = br#"{"error":"no"}"#.to_vec();
        }
        let middle = answer.body.len() / 2;
        match spoil {
            Spoil::Silence => return silence(&mut reader),
            Spoil::Short => answer.body.truncate(middle),
            Spoil::Flip if !answer.body.is_empty() => answer.body[middle] ^= 4,
            _ => {}
        }
        let mut head = format!("HTTP/1.1 {} X\r\nContent-Length: {}\r\n", answer.status, answer.body.len());
        for (name, value) in &answer.headers {
            match *name {
                "Content-Length" => {}
                "ETag" if spoil == Spoil::Etag => _ = write!(head, "ETag: \"{number:032x}\"\r\n"),
                _ => _ = write!(head, "{name}: {value}\r\n"),
            }
        }
        if let Some((_, length)) = answer.headers.iter().find(|(name, _)| *name == "Content-Length") {
            // For HEAD: the length of the body that is not sent.
            head = head.replacen("Content-Length: 0", &format!("Content-Length: {length}"), 1);
        }
        let mut writer = connection;
        writer.write_all(head.as_bytes())?;
        writer.write_all(b"\r\n")?;
        match spoil {
            Spoil::Cut => return writer.write_all(&answer.body[..middle]),
            Spoil::Stall => {
                writer.write_all(&answer.body[..middle])?;
                return silence(&mut reader);
            }
            _ => writer.write_all(&answer.body)?,
        }
    }
    Ok(())
}

/// Waits for the client to give up, up to a limit.
fn silence(reader: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    reader.get_ref().set_read_timeout(Some(Duration::from_secs(120)))?;
    reader.read(&mut [0]).map(|_| ())
}

fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let method = words.next().unwrap().to_owned();
    let target = words.next().unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // A gateway's endpoint has a path, a bucket of Azure an account.
    let path = ["/gateway", "/account"].iter().find_map(|before| path.strip_prefix(before)).unwrap_or(path);
    let key = path.trim_start_matches("/test").trim_start_matches('/').replace("%2F", "/");
    let key = key.replace("%2E", ".").replace("%2D", "-");
    let query = query.replace("%2F", "/");
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length").map_or(0, |n| n.parse().unwrap())];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { method, key, query, headers, body }))
}

/// Answers a request about uploads.
fn answer_of_uploads(request: &Request, uploads: &mut Vec<Upload>) -> Option<Answer> {
    let query: BTreeMap<&str, &str> = request.query.split('&').filter_map(|p| p.split_once('=')).collect();
    let page = |name, entries: Vec<String>, end: Option<String>| {
        let end =
            end.map_or("<IsTruncated>false</IsTruncated>".into(), |e| format!("<IsTruncated>true</IsTruncated>{e}"));
        Some(Answer::new(200, format!("<{name}>{end}{}</{name}>", entries.concat())))
    };
    match (&request.method[..], query.get("uploadId")) {
        ("GET", None) if query.contains_key("uploads") => {
            let after = (query.get("key-marker").unwrap_or(&""), query.get("upload-id-marker").unwrap_or(&""));
            let mut listed =
                uploads.iter().filter(|u| (&&u.key[..], &&u.id[..]) > after && u.key.starts_with(query["prefix"]));
            let here: Vec<&Upload> = listed.by_ref().take(PAGE).collect();
            let end = here.last().filter(|_| listed.next().is_some()).map(|u| {
                let (key, id) = (&u.key, &u.id);
                format!("<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>")
            });
            let entry = |u: &&Upload| {
                let (key, id, time) = (&u.key, &u.id, u.time);
                format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId><Initiated>{time}</Initiated></Upload>")
            };
            page("ListMultipartUploadsResult", here.iter().map(entry).collect(), end)
        }
        ("GET", Some(id)) => {
            let Some(upload) = uploads.iter().find(|u| u.key == request.key && u.id == *id) else {
                return Some(Answer::error(404));
            };
            let after: usize = query.get("part-number-marker").map_or(0, |n| n.parse().unwrap());
            let here: Vec<_> = upload.parts.iter().skip(after).take(PAGE).collect();
            let next = after + here.len();
            let end =
                (next < upload.parts.len()).then(|| format!("<NextPartNumberMarker>{next}</NextPartNumberMarker>"));
            let entry = |size: &&u64| format!("<Part><PartNumber>7</PartNumber><Size>{size}</Size></Part>");
            page("ListPartsResult", here.iter().map(entry).collect(), end)
        }
        ("DELETE", Some(id)) => {
            let before = uploads.len();
            uploads.retain(|u| u.key != request.key || u.id != *id);
            Some(if uploads.len() < before { Answer::new(204, "") } else { Answer::error(404) })
        }
        _ => None,
    }
}

fn respond(request: &Request, objects: &mut Objects, spoil: Spoil) -> Answer {
    let Request { method, key, query, headers, body } = request;
    match &method[..] {
        _ if spoil == Spoil::Gateway
            && headers.keys().any(|h| h.starts_with("x-amz-meta-") || h == "x-amz-trailer") =>
        {
            Answer::error(501)
        }
        "GET" if spoil == Spoil::Gateway && !key.is_empty() && !key.starts_with(SIGNED) => {
            let mut answer = Answer::new(302, "");
            answer.headers.push(("Location", format!("http://{}/test/{SIGNED}{key}?signature=1", headers["host"])));
            answer
        }
        "PUT" if creates(headers) && objects.contains_key(key) && spoil != Spoil::Unconditional => Answer::error(412),
        "PUT" => {
            objects.insert(key.clone(), body.clone());
            described(Answer::new(200, ""))
        }
        "GET" if key.is_empty() && spoil == Spoil::Unlisted => Answer::new(200, list(query, &Objects::new(), spoil)),
        "GET" if key.is_empty() && spoil == Spoil::Gateway && !query.contains("list-type=2") => Answer::error(501),
        "GET" if key.is_empty() => Answer::new(200, list(query, objects, spoil)),
        "GET" | "HEAD" => {
            let Some(object) = objects.get(key.trim_start_matches(SIGNED)) else { return Answer::error(404) };
            let range = headers.get("range").filter(|_| spoil != Spoil::Whole).map(|r| {
                let (from, to) = r.trim_start_matches("bytes=").split_once('-').unwrap();
                let from = from.parse::<usize>().unwrap();
                from..to.parse::<usize>().map_or(object.len(), |to| to + 1).min(object.len())
            });
            match range {
                _ if method == "HEAD" => {
                    let mut answer = described(Answer::new(200, ""));
                    answer.headers.push(("Content-Length", object.len().to_string()));
                    answer
                }
                None => described(Answer::new(200, object.clone())),
                Some(range) if range.start >= range.end => Answer::error(416),
                Some(range) => {
                    let mut answer = described(Answer::new(206, &object[range.clone()]));
                    let value = format!("bytes {}-{}/{}", range.start, range.end - 1, object.len());
                    answer.headers.push(("Content-Range", value));
                    answer
                }
            }
        }
        "DELETE" => {
            objects.remove(key);
            Answer::new(204, "")
        }
        // Deletion of several objects.
        "POST" if query.starts_with("delete") => {
            let text = String::from_utf8_lossy(body).into_owned();
            let mut results = String::new();
            for piece in text.split("<Key>").skip(1) {
                let key = piece.split("</Key>").next().unwrap();
                if spoil == Spoil::KeepOdd && key.ends_with(['1', '3', '5', '7', '9']) && key.starts_with("data/") {
                    let why = "<Code>AccessDenied</Code><Message>no</Message>";
                    _ = write!(results, "<Error><Key>{key}</Key>{why}</Error>");
                } else {
                    objects.remove(key);
                    _ = write!(results, "<Deleted><Key>{key}</Key></Deleted>");
                }
            }
            Answer::new(200, format!("<DeleteResult>{results}</DeleteResult>"))
        }
        _ => Answer::error(501),
    }
}

/// Where a gateway has the objects.
const SIGNED: &str = "signed/";

/// Whether a request is to create an object, and not to replace it: S3 and Azure, and Google.
fn creates(headers: &BTreeMap<String, String>) -> bool {
    headers.contains_key("if-none-match") || headers.get("x-goog-if-generation-match").is_some_and(|n| n == "0")
}

fn described(mut answer: Answer) -> Answer {
    answer.headers.push(("x-goog-generation", "7".to_owned()));
    answer.headers.push(("ETag", format!("\"{:032x}\"", 7)));
    answer.headers.push(("Last-Modified", TIME.to_owned()));
    answer
}

fn list(query: &str, objects: &Objects, spoil: Spoil) -> String {
    let prefix = query.split('&').find_map(|p| p.strip_prefix("prefix=")).unwrap_or("");
    let after = query.split('&').find_map(|p| p.strip_prefix("start-after=")).unwrap_or("");
    // Azure begins with the key that the client names, and the client drops that.
    let from = query.split('&').find_map(|p| p.strip_prefix("startFrom=")).unwrap_or("");
    let is_listed = |key: &str| key.starts_with(prefix) && key > after && key >= from;
    let mut listed: Vec<_> = objects.iter().filter(|(key, _)| is_listed(key)).collect();
    if spoil == Spoil::Backwards {
        listed.reverse();
    }
    if query.contains("comp=list") {
        let blob = |(key, object): (&String, &Vec<u8>)| {
            format!(
                "<Blob><Name>{key}</Name><Properties><Last-Modified>{TIME}</Last-Modified><Etag>7</Etag>\
                 <Content-Length>{}</Content-Length><Content-Type>x</Content-Type></Properties></Blob>",
                object.len()
            )
        };
        let blobs: String = listed.into_iter().map(blob).collect();
        return format!("<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>");
    }
    let mut text = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
    for (key, object) in listed {
        let day = if key.contains(DEAD) { 19 } else { 21 };
        _ = write!(
            text,
            "<Contents><Key>{key}</Key><LastModified>2026-11-{day}T12:00:00.000Z</LastModified>\
             <ETag>\"7\"</ETag><Size>{}</Size></Contents>",
            object.len()
        );
    }
    text + "</ListBucketResult>"
}
