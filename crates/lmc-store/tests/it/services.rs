//! Stores in buckets of several services, found and opened as the environment says: each test runs a process of its own, as a process has
//! one environment.

#![cfg(feature = "buckets")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::server::{Server, Spoil};
use crate::support::{model, restored, safetensors, save, step};
use lmc_store::{ErrorKind, GcOptions, Location, Store, StoreOptions};

/// The variable with the location for `a_store_at_the_location`.
const LOCATION: &str = "LMC_TEST_LOCATION";

/// Saves, restores, races and looks for garbage at a location: by itself in a directory, and as processes that `runs` starts.
#[test]
fn a_store_at_the_location() {
    let folder = tempfile::tempdir().unwrap();
    let here = Location::Directory(folder.path().join("run"));
    let location = std::env::var(LOCATION).map_or(here, |location| location.parse().unwrap());
    let store = Store::create(&location, StoreOptions::default()).unwrap();
    let mut tensors = model();
    let files: Vec<Vec<u8>> = (0..3)
        .map(|_| {
            tensors.iter_mut().for_each(|t| t.train(5));
            safetensors(&tensors)
        })
        .collect();
    for (n, file) in files.iter().enumerate() {
        save(&store, n as u64, file);
    }
    let other = Store::open(&location, StoreOptions::default()).unwrap();
    for (n, file) in files.iter().enumerate() {
        assert!(restored(&other, n as u64).unwrap() == *file, "step {n}");
    }
    let taken = other.publish(step(1), Default::default(), &other.snapshots().unwrap()[1].shards).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Exists, "{taken}");
    assert!(store.verify(&store.snapshots().unwrap(), true, 0).unwrap().problems.is_empty());
    // What is not there is not an error of the server.
    let missing = other.find(lmc_store::At::Step(step(9))).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    let mut dry = GcOptions::default();
    dry.dry_run = true;
    println!("unseen: {:?}", store.gc(&dry).unwrap().unseen);
}

/// Runs `a_store_at_the_location` with an environment; returns what it printed.
fn runs(location: &str, environment: &[(&str, &str)]) -> Result<String, String> {
    let test = "services::a_store_at_the_location";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(LOCATION, location);
    for (name, _) in
        std::env::vars().filter(|(name, _)| ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|p| name.starts_with(p)))
    {
        command.env_remove(name);
    }
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!output.status.success() || text.contains("1 passed"), "{text}");
    if output.status.success() { Ok(text) } else { Err(text) }
}

/// The variables of S3 but for credentials.
fn aws(endpoint: &str) -> [(&str, &str); 2] {
    [("AWS_ENDPOINT_URL", endpoint), ("AWS_REGION", "us-east-1")]
}

const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "AKTEST"), ("AWS_SECRET_ACCESS_KEY", "SKTEST")];

#[test]
fn google() {
    let server = Server::start();
    let environment = [("GOOGLE_BASE_URL", &server.endpoint[..]), ("GOOGLE_BEARER_TOKEN", "token")];
    let printed = runs("gs://test/run/7", &environment).unwrap();
    assert!(printed.contains("AbortIncompleteMultipartUpload"), "{printed}");
    assert!(server.keys().iter().all(|key| key.starts_with("run/7/")), "{:?}", server.keys());
    assert_eq!(server.authorizations().into_iter().collect::<Vec<_>>(), ["Bearer token"]);
}

#[test]
fn azure() {
    let server = Server::start();
    let endpoint = format!("{}/account", server.endpoint);
    let environment = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
        ("AZURE_STORAGE_ENDPOINT", &endpoint),
    ];
    let printed = runs("az://test/run/7", &environment).unwrap();
    assert!(printed.contains("unseen: None"), "{printed}");
    assert!(server.keys().iter().all(|key| key.starts_with("run/7/")), "{:?}", server.keys());
    assert!(server.authorizations().iter().all(|a| a.starts_with("SharedKey account:")));
}

#[test]
fn a_gateway() {
    let server = Server::start();
    server.spoil(|_| Spoil::Gateway);
    let endpoint = format!("{}/gateway", server.endpoint);
    let printed = runs("s3://test/run", &[&aws(&endpoint)[..], &KEYS].concat()).unwrap();
    assert!(printed.contains("cannot list uploads"), "{printed}");
    assert!(server.keys().iter().all(|key| key.starts_with("run/")), "{:?}", server.keys());
}

/// A directory with a program `aws` that runs this script.
fn with_program(script: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("aws");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    (folder, path)
}

#[test]
fn a_profile() {
    let server = Server::start();
    let exports = r#"echo "$AWS_PROFILE $*" >> "$0.log"
case "$*" in
"configure export-credentials --format process")
    echo '{"Version": 1, "AccessKeyId": "AKPROFILE", "SecretAccessKey": "S", "SessionToken": "T", "Expiration": "2100-01-01T00:00:00Z"}' ;;
"configure get region") echo eu-central-1 ;;
*) exit 1 ;;
esac"#;
    let (folder, path) = with_program(exports);
    let environment = [("AWS_ENDPOINT_URL", &server.endpoint[..]), ("AWS_PROFILE", "team"), ("PATH", &path)];
    runs("s3://test/run", &environment).unwrap();
    let signed = server.authorizations();
    assert!(!signed.is_empty() && signed.iter().all(|a| a.contains("AKPROFILE/") && a.contains("/eu-central-1/s3/")));
    let log = fs::read_to_string(folder.path().join("aws.log")).unwrap();
    assert!(log.lines().all(|line| line.starts_with("team configure ")), "{log}");
    // Keys in the environment take precedence, as with other programs.
    let server = Server::start();
    let environment = [&aws(&server.endpoint)[..], &KEYS, &[("AWS_PROFILE", "team"), ("PATH", &path)]].concat();
    runs("s3://test/run", &environment).unwrap();
    assert!(server.authorizations().iter().all(|a| a.contains("Credential=AKTEST/")));
}

/// Short-lived credentials are fetched again.
#[test]
fn a_profile_whose_credentials_expire() {
    let server = Server::start();
    let exports = r#"echo x >> "$0.log"
echo '{"Version": 1, "AccessKeyId": "AKPROFILE", "SecretAccessKey": "S", "Expiration": "2020-01-01T00:00:00Z"}'"#;
    let (folder, path) = with_program(exports);
    let environment = [&aws(&server.endpoint)[..], &[("AWS_PROFILE", "team"), ("PATH", &path)]].concat();
    runs("s3://test/run", &environment).unwrap();
    assert!(fs::read(folder.path().join("aws.log")).unwrap().len() > 10);
}

#[test]
fn a_profile_that_cannot_be_used() {
    let server = Server::start();
    let failing = |path: &str| {
        let environment = [&aws(&server.endpoint)[..], &[("AWS_PROFILE", "team"), ("PATH", path)]].concat();
        runs("s3://test/run", &environment).unwrap_err()
    };
    let (_folder, path) = with_program("echo 'Error loading SSO Token: run aws sso login' >&2; exit 255");
    let e = failing(&path);
    assert!(
        e.contains("AWS_PROFILE=team: `aws configure export-credentials`: Error loading SSO Token: run aws sso login"),
        "{e}"
    );
    let (_folder, path) = with_program("echo no");
    let e = failing(&path);
    assert!(e.contains("wrote something else than credentials"), "{e}");
    let empty = tempfile::tempdir().unwrap();
    let e = failing(&Path::display(empty.path()).to_string());
    assert!(e.contains("install the AWS CLI (version 2)"), "{e}");
    assert_eq!(server.keys(), [""; 0]);
}
