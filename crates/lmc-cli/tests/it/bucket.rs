//! `lmc publish` to a bucket: one that cannot have a store is reported before there is a version.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Dir, Run, kill_after, wait_until};

/// A server that answers requests to read and to write with a status, unless that is 200.
struct Bucket {
    endpoint: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    methods: Vec<String>,
    keys: BTreeSet<String>,
}

impl Bucket {
    /// Serves until the process ends.
    fn start(reads: u16, writes: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Seen>>::default();
        let shared = seen.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // The error of a client that disconnected.
                _ = serve(&connection, &mut shared.lock().unwrap(), reads, writes);
            }
        });
        Self { endpoint, seen }
    }

    fn publish(&self, dir: &Dir, how: &str) -> Command {
        let mut command = dir.command(["publish", "s3://b/s", "v", how]);
        command.env("AWS_ENDPOINT_URL", &self.endpoint).env("AWS_REGION", "us-east-1");
        command.envs([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")]);
        command
    }

    fn count(&self, method: &str) -> usize {
        self.seen.lock().unwrap().methods.iter().filter(|m| *m == method).count()
    }
}

/// Answers one request.
fn serve(mut connection: &TcpStream, seen: &mut Seen, reads: u16, writes: u16) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head)? > 0 {}
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let head = head.to_ascii_lowercase();
    let length = head.split_once("content-length: ").map_or("0", |(_, rest)| rest.lines().next().unwrap());
    let mut body = vec![0; length.parse().unwrap()];
    reader.read_exact(&mut body)?;
    let there = seen.keys.contains(&path);
    let (status, body) = match &method[..] {
        "GET" | "HEAD" if reads != 200 => (reads, ""),
        "PUT" | "POST" if writes != 200 => (writes, ""),
        "GET" if path.contains("list-type") => {
            (200, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        }
        "GET" | "HEAD" if !there => (404, ""),
        "PUT" if there && head.contains("if-none-match") => (412, ""),
        "PUT" => {
            seen.keys.insert(path);
            (200, "")
        }
        // Of several objects: here, of all.
        "POST" | "DELETE" => {
            seen.keys.clear();
            (200, "<DeleteResult></DeleteResult>")
        }
        _ => (200, ""),
    };
    seen.methods.push(method);
    write!(
        connection,
        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\nETag: \"7\"\r\n\
         Last-Modified: Sat, 21 Nov 2026 12:00:00 GMT\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_bucket_that_cannot_have_a_store_is_reported_at_once() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("v")).unwrap();
    let missing = Bucket::start(404, 404);
    Run(missing.publish(&dir, "--once").output().unwrap()).fails(&["lmc: s3://b/s: cannot list snapshots: ", "404"]);
    let refuses = Bucket::start(200, 403);
    let said = ["lmc: s3://b/s: cannot write probes/", "check the permissions"];
    Run(refuses.publish(&dir, "--once").output().unwrap()).fails(&said);
    let sound = Bucket::start(200, 200);
    Run(sound.publish(&dir, "--once").output().unwrap()).fails(&["v: has no version"]);
    // It looked, once, and left nothing.
    let writes = sound.count("PUT");
    assert!(writes > 0 && sound.seen.lock().unwrap().keys.is_empty());
    let looks = sound.count("GET");
    let mut publisher = sound.publish(&dir, "--interval=0.01").spawn().unwrap();
    wait_until("it looked several times", || sound.count("GET") > looks + 10);
    kill_after(&mut publisher, Duration::ZERO);
    assert_eq!(sound.count("PUT"), 2 * writes);
}
