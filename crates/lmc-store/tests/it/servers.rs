//! Servers that are slow, fail or return wrong data: the store's error, how soon it comes, and the state afterwards.

#![cfg(feature = "buckets")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::server::{Request, Server, Spoil, Upload};
use crate::support::{model, restored, safetensors, save, save_with, step};
use lmc_store::testing::Uploads;
use lmc_store::{At, Error, ErrorKind, GcOptions, Input, Store, StoreOptions};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

/// How long requests are retried in these tests.
const PATIENCE: Duration = Duration::from_millis(600);

fn connect(server: &Server) -> Arc<dyn ObjectStore> {
    Arc::new(bucket(server))
}

fn bucket(server: &Server) -> AmazonS3 {
    _ = rustls::crypto::ring::default_provider().install_default();
    let backoff = BackoffConfig { init_backoff: Duration::from_millis(5), ..BackoffConfig::default() };
    let client = ClientOptions::new().with_timeout(PATIENCE).with_read_timeout(PATIENCE / 2).with_allow_http(true);
    let s3 = AmazonS3Builder::new()
        .with_endpoint(&server.endpoint)
        .with_bucket_name("test")
        .with_region("us-east-1")
        .with_access_key_id("AKTEST")
        .with_secret_access_key("SKTEST")
        .with_client_options(client)
        .with_retry(RetryConfig { backoff, max_retries: 10, retry_timeout: PATIENCE });
    s3.build().unwrap()
}

/// A server with a store of one snapshot, and that store.
fn saved() -> (Server, Store, Vec<u8>) {
    let server = Server::start();
    let store = Store::create_on(connect(&server), StoreOptions::default()).unwrap();
    let file = safetensors(&model());
    save(&store, 1, &file);
    (server, store, file)
}

/// Saves the next snapshot while the server injects faults; afterwards nothing is half-written, and the save can be repeated.
fn fails_to_save(spoil: impl FnMut(&Request) -> Spoil + Send + 'static) -> Error {
    let (server, store, first) = saved();
    let mut tensors = model();
    tensors.iter_mut().for_each(|t| t.train(5));
    let second = safetensors(&tensors);
    server.spoil(spoil);
    let e = save_with(&store, 2, &second, &Default::default()).unwrap_err();
    server.heal();
    let snapshots = store.snapshots().unwrap();
    assert_eq!(snapshots.iter().map(|s| s.step.get()).collect::<Vec<_>>(), [1]);
    assert!(restored(&store, 1).unwrap() == first);
    save(&store, 2, &second);
    assert!(restored(&store, 2).unwrap() == second);
    assert!(store.verify(&store.snapshots().unwrap(), true, 0).unwrap().problems.is_empty());
    e
}

/// Restores the snapshot while the server injects faults; afterwards it is intact.
fn restores(spoil: impl FnMut(&Request) -> Spoil + Send + 'static) -> Result<(), Error> {
    let (server, store, file) = saved();
    server.spoil(spoil);
    let came = restored(&store, 1);
    server.heal();
    assert!(restored(&store, 1).unwrap() == file);
    came.map(|came| assert!(came == file))
}

fn of_data(request: &Request) -> bool {
    request.key.starts_with("data/")
}

/// Injects a fault into the first answers to selected requests.
fn first(n: u32, chosen: fn(&Request) -> bool, spoil: Spoil) -> impl FnMut(&Request) -> Spoil + Send {
    let left = AtomicU32::new(n);
    move |request| {
        let spoiled = chosen(request)
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if spoiled { spoil } else { Spoil::Not }
    }
}

#[test]
fn a_server_that_only_fails_is_given_up() {
    for status in [500, 503] {
        let e = fails_to_save(move |_| Spoil::Status(status));
        assert_eq!(e.kind(), ErrorKind::Store, "{e}");
        assert!(e.to_string().contains(&status.to_string()), "{e}");
    }
}

#[test]
fn failures_that_pass_are_not_noticed() {
    for (times, spoil) in [(2, Spoil::Status(500)), (2, Spoil::Status(503)), (1, Spoil::Silence)] {
        restores(first(times, |_| true, spoil)).unwrap();
    }
    restores(first(2, of_data, Spoil::Cut)).unwrap();
    restores(|_| Spoil::Etag).unwrap();
}

#[test]
fn a_silent_server_is_given_up() {
    let e = fails_to_save(|_| Spoil::Silence);
    assert_eq!(e.kind(), ErrorKind::Store, "{e}");
    let e = fails_to_save(|r| if r.method == "PUT" { Spoil::Silence } else { Spoil::Not });
    assert_eq!(e.kind(), ErrorKind::Store, "{e}");
    let e = restores(|r| if of_data(r) { Spoil::Stall } else { Spoil::Not }).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Store, "{e}");
}

#[test]
fn lost_credentials_are_said_to_be_lost() {
    let e = fails_to_save(|r| if r.method == "PUT" { Spoil::Status(403) } else { Spoil::Not });
    assert_eq!(e.kind(), ErrorKind::Store);
    assert!(e.to_string().ends_with("check the permissions"), "{e}");
    let e = restores(|_| Spoil::Status(401)).unwrap_err();
    assert!(e.to_string().contains("401 Unauthorized"), "{e}");
}

#[test]
fn a_save_that_was_told_that_it_failed_may_have_been_published() {
    let (server, store, _) = saved();
    let record = |r: &Request| r.method == "PUT" && r.key.starts_with("snapshots/");
    server.spoil(first(1, record, Spoil::ServedThen(500)));
    let file = safetensors(&model()[..1]);
    save(&store, 2, &file);
    assert!(restored(&store, 2).unwrap() == file);
}

#[test]
fn short_answers_are_noticed() {
    for spoil in [Spoil::Short, Spoil::Cut, Spoil::Stall, Spoil::Whole] {
        let e = restores(move |r| if of_data(r) { spoil } else { Spoil::Not }).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Store | ErrorKind::Damaged), "{spoil:?}: {e}");
        assert!(e.to_string().contains("data/"), "{spoil:?}: {e}");
    }
    let e = restores(|r| if r.key.starts_with("shards/") { Spoil::Short } else { Spoil::Not }).unwrap_err();
    assert!(e.to_string().contains("shards/"), "{e}");
}

#[test]
fn altered_answers_are_noticed() {
    for place in ["data/", "shards/"] {
        let e = restores(move |r| if r.key.starts_with(place) { Spoil::Flip } else { Spoil::Not }).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Damaged, "{e}");
        assert!(e.to_string().contains(place), "{e}");
    }
}

#[test]
fn a_server_that_overwrites_what_it_should_only_create_is_refused() {
    let server = Server::start();
    server.spoil(|_| Spoil::Unconditional);
    // Each time: nothing is left that a second one would take for a store.
    for _ in 0..2 {
        let e = Store::create_on(connect(&server), StoreOptions::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        assert!(e.to_string().contains("If-None-Match"), "{e}");
        assert_eq!(server.keys(), [""; 0]);
    }
}

#[test]
fn a_store_that_was_copied_to_a_server_that_overwrites_is_not_changed() {
    let (server, _, file) = saved();
    server.spoil(|_| Spoil::Unconditional);
    let before = server.keys();
    let store = Store::create_on(connect(&server), StoreOptions::default()).unwrap();
    assert!(restored(&store, 1).unwrap() == file);
    let shards = store.snapshots().unwrap().remove(0).shards;
    for e in [
        save_with(&store, 2, &file, &Default::default()).unwrap_err(),
        store.publish(step(2), Default::default(), &shards).unwrap_err(),
        store.gc(&GcOptions::default()).unwrap_err(),
    ] {
        assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("If-None-Match"), "{e}");
    }
    assert_eq!(server.keys(), before);
    server.heal();
    save(&store, 2, &file);
}

#[test]
fn a_listing_that_lags_behind_ends_a_save() {
    let server = Server::start();
    let store = Store::create_on(connect(&server), StoreOptions::default()).unwrap();
    let save = || store.save(&[Input::new("f", &&b"bytes"[..])], None, Default::default(), &Default::default());
    assert_eq!(save().unwrap().step, step(0));
    server.spoil(|_| Spoil::Unlisted);
    assert_eq!(save().unwrap_err().kind(), ErrorKind::Exists);
    server.heal();
    assert_eq!(save().unwrap().step, step(1));
}

#[test]
fn what_cannot_be_deleted_does_not_stop_a_collection() {
    let (server, store, _) = saved();
    let before = server.keys();
    let dead = "7".repeat(32);
    let data = |n| format!("data/{dead}/{n:06}");
    let probe = format!("probes/{dead}");
    (0..5).map(data).chain([probe.clone()]).for_each(|key| server.add(&key));
    server.spoil(|_| Spoil::KeepOdd);
    let e = store.gc(&GcOptions::default()).unwrap_err();
    let cause = format!("cannot delete {}: ", data(1));
    assert!(e.kind() == ErrorKind::Store && e.to_string().starts_with(&cause), "{e}");
    assert!(e.to_string().contains("2 of 6 objects"), "{e}");
    let mut left = [before.clone(), vec![data(1), data(3)]].concat();
    left.sort();
    assert_eq!(server.keys(), left);
    // A request for several objects that fails as a whole is an error of its first one.
    server.spoil(|r| if r.query.starts_with("delete") { Spoil::Status(403) } else { Spoil::Not });
    let e = store.gc(&GcOptions::default()).unwrap_err();
    assert!(e.to_string().starts_with(&cause) && e.to_string().contains("2 of 2 objects"), "{e}");
    server.heal();
    assert_eq!(store.gc(&GcOptions::default()).unwrap().orphans.len(), 2);
    // The probe could not be deleted, either.
    let left: Vec<String> = server.keys().into_iter().filter(|key| !key.starts_with("probes/")).collect();
    assert_eq!(left, before);
}

/// A store with many incomplete uploads: of the day before the store's time, of its hour, and of others.
fn with_uploads() -> (Server, Store, [Vec<Upload>; 3]) {
    let (server, store, _) = saved();
    let store = store.with_uploads(Uploads::new(bucket(&server), "", PATIENCE).unwrap());
    let data = |n: usize| format!("data/{}/{n:06}", "7".repeat(32));
    let upload = |key, id: &str, time, parts: &[u64]| Upload { key, id: id.into(), time, parts: parts.into() };
    let (yesterday, today) = ("2026-11-20T11:59:59.000Z", "2026-11-21T11:00:00.000Z");
    let old = vec![
        upload(data(0), "a", yesterday, &[1, 2, 3, 4, 5]),
        upload(data(0), "b", yesterday, &[]),
        upload(data(1), "a", yesterday, &[1 << 40]),
        upload(data(2), "c", "2026-11-20T13:59:59+02:00", &[8, 9]),
    ];
    let young = vec![upload(data(3), "d", today, &[6])];
    let others = vec![upload("data/x".into(), "e", yesterday, &[6]), upload("other".into(), "f", yesterday, &[6])];
    server.set_uploads([&old[..], &young, &others].concat());
    (server, store, [old, young, others])
}

#[test]
fn uploads_that_were_never_completed_are_ended() {
    let (server, store, [old, young, others]) = with_uploads();
    let listed = |uploads: &[Upload]| -> Vec<(String, u64)> {
        uploads.iter().map(|u| (format!("{}?uploadId={}", u.key, u.id), u.parts.iter().sum())).collect()
    };
    let of = |orphans: &[lmc_store::Orphan]| -> Vec<(String, u64)> {
        let uploads = orphans.iter().filter(|o| o.key.contains('?'));
        uploads.map(|o| (o.key.clone(), o.size)).collect()
    };
    // A single failure is retried.
    server.spoil(first(1, |r| r.query.contains("uploads="), Spoil::Status(503)));
    let garbage = store.gc(&GcOptions::default()).unwrap();
    assert_eq!((of(&garbage.orphans), of(&garbage.young)), (listed(&old), listed(&young)));
    assert_eq!(garbage.unseen, None);
    let mut left = [young, others].concat();
    left.sort();
    assert_eq!(server.uploads(), left);
    assert_eq!(of(&store.gc(&GcOptions::default()).unwrap().orphans), []);
}

#[test]
fn garbage_is_collected_where_uploads_cannot_be_listed() {
    for (spoil, why) in [
        (Spoil::Status(501), "501"),
        (Spoil::Status(403), "403, AccessDenied"),
        (Spoil::Status(503), "503, SlowDown"),
        (Spoil::Silence, "timed out"),
        (Spoil::Short, "is not valid"),
        (Spoil::Cut, ""),
    ] {
        let (server, store, uploads) = with_uploads();
        server.spoil(move |r| if r.query.contains("uploads=") { spoil } else { Spoil::Not });
        let unseen = store.gc(&GcOptions::default()).unwrap().unseen.expect("they cannot be listed");
        assert!(unseen.starts_with("cannot list uploads") && unseen.contains(why), "{unseen}");
        assert!(!unseen.contains("Signature"), "{unseen}");
        assert_eq!(server.uploads().len(), uploads.concat().len());
    }
}

#[test]
fn a_server_that_lists_in_another_order_is_refused() {
    let (server, store, file) = saved();
    save(&store, 2, &file);
    server.spoil(|_| Spoil::Backwards);
    for e in [store.find(At::Latest).unwrap_err(), store.list().unwrap_err(), store.step(None).unwrap_err()] {
        assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("not in the order of keys"), "{e}");
    }
    server.heal();
    assert_eq!(store.find(At::Latest).unwrap().step, step(2));
}
