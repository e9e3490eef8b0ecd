//! The store's requirements of a backend, and its guarantees, on every backend: memory, a directory, and a server if
//! one is configured (see `support::on_each_backend`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{
    self, model, new_store, noise, on_each_backend, on_each_place, record_key, restored, safetensors, save, step,
    unneeded,
};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use lmc_store::{At, ErrorKind, GcOptions, Input, Location, SaveOptions, Store, StoreOptions};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, WriteMultipart};

/// Runs requests in a suitable runtime.
fn wait<T>(requests: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(requests)
}

async fn create(objects: &dyn ObjectStore, key: &Path, bytes: &[u8]) -> Result<(), Error> {
    let o = PutOptions::from(PutMode::Create);
    objects.put_opts(key, Bytes::copy_from_slice(bytes).into(), o).await.map(|_| ())
}

#[test]
fn an_object_is_created_once() {
    on_each_backend(|objects| {
        wait(async {
            let key = Path::from(record_key(1, 0));
            create(&*objects, &key, b"first").await.unwrap();
            let e = create(&*objects, &key, b"second").await.unwrap_err();
            assert!(matches!(e, Error::AlreadyExists { .. } | Error::Precondition { .. }), "{e:?}");
            assert_eq!(objects.get(&key).await.unwrap().bytes().await.unwrap(), "first");
            objects.delete(&key).await.unwrap();
            create(&*objects, &key, b"third").await.unwrap();
        });
    });
}

#[test]
fn of_many_who_create_one_wins() {
    on_each_backend(|objects| {
        wait(async {
            for round in 0..5 {
                let key = Path::from(format!("race/{round}"));
                let tries: Vec<_> = (0..8u8)
                    .map(|i| {
                        let (objects, key) = (objects.clone(), key.clone());
                        tokio::spawn(async move { create(&*objects, &key, &[i]).await.is_ok() })
                    })
                    .collect();
                let mut winners = vec![];
                for (i, t) in tries.into_iter().enumerate() {
                    if t.await.unwrap() {
                        winners.push(i as u8);
                    }
                }
                assert_eq!(winners.len(), 1);
                assert_eq!(objects.get(&key).await.unwrap().bytes().await.unwrap(), winners);
            }
        });
    });
}

#[test]
fn ranges_lists_and_uploads_in_parts() {
    on_each_backend(|objects| {
        wait(async {
            let data = noise(11 << 20, 1);
            let key = Path::from("data/a/000000");
            let mut upload = WriteMultipart::new_with_chunk_size(objects.put_multipart(&key).await.unwrap(), 5 << 20);
            for piece in data.chunks(1_000_003) {
                upload.put(Bytes::copy_from_slice(piece));
            }
            upload.finish().await.unwrap();
            let abandoned = objects.put_multipart(&Path::from("data/a/000001")).await.unwrap();
            WriteMultipart::new(abandoned).abort().await.unwrap();
            let head = objects.head(&key).await.unwrap();
            assert_eq!(head.size, data.len() as u64);
            let range = (5 << 20) - 7..(5 << 20) + 9;
            let got = objects.get_range(&key, range.start as u64..range.end as u64).await.unwrap();
            assert_eq!(got, data[range]);
            objects.put(&Path::from("data/b"), Bytes::new().into()).await.unwrap();
            objects.put(&Path::from("database"), Bytes::new().into()).await.unwrap();
            let listed = objects.list(Some(&Path::from("data"))).map_ok(|o| o.location.to_string());
            let mut listed: Vec<String> = listed.try_collect().await.unwrap();
            listed.sort();
            assert_eq!(listed, ["data/a/000000", "data/b"]);
            assert!(matches!(objects.head(&Path::from("data/c")).await.unwrap_err(), Error::NotFound { .. }));
            // Later writes are not older.
            assert!(objects.head(&Path::from("data/b")).await.unwrap().last_modified >= head.last_modified);
        });
    });
}

#[test]
fn snapshots_come_back_from_another_process() {
    on_each_backend(|objects| {
        let store = new_store(&objects);
        // Large enough for a multipart upload.
        let (mut tensors, mut files) = (model(), vec![]);
        tensors.push(support::Tensor::new("large", 1 << 11, 1 << 11, 9));
        for n in 0..3 {
            tensors.iter_mut().for_each(|t| t.train(n));
            files.push(safetensors(&tensors));
            save(&store, n, &files[n as usize]);
        }
        let store = Store::open_on(objects, StoreOptions::default()).unwrap();
        let snapshots = store.snapshots().unwrap();
        assert_eq!(snapshots.iter().map(|s| s.step.get()).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(snapshots.is_sorted_by_key(|s| s.time) && snapshots[0].time > 1_700_000_000);
        for (n, file) in files.iter().enumerate() {
            assert!(restored(&store, n as u64).unwrap() == *file);
        }
        assert_eq!(store.find(At::Latest).unwrap(), snapshots[2]);
        assert_eq!(store.find(At::Id(snapshots[1].id)).unwrap(), snapshots[1]);
        assert!(store.verify(&snapshots, true, 0).unwrap().problems.is_empty());
    });
}

#[test]
fn of_many_who_save_a_step_one_wins_and_the_others_are_told() {
    on_each_backend(|objects| {
        let files: Vec<Vec<u8>> = (0..6).map(|i| noise(10_000, i)).collect();
        let saved: Vec<_> = std::thread::scope(|scope| {
            let writers = files.iter().map(|file| {
                let objects = objects.clone();
                scope.spawn(move || {
                    let store = Store::create_on(objects, StoreOptions::default()).unwrap();
                    store.save(
                        &[Input::new("m.safetensors", file)],
                        Some(step(7)),
                        BTreeMap::new(),
                        &SaveOptions::default(),
                    )
                })
            });
            writers.collect::<Vec<_>>().into_iter().map(|w| w.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = saved.iter().zip(&files).partition(|(s, _)| s.is_ok());
        assert_eq!(won.len(), 1);
        for (lost, _) in lost {
            let e = lost.as_ref().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Exists, "{e}");
        }
        let store = new_store(&objects);
        assert_eq!(restored(&store, 7).unwrap(), *won[0].1);
        assert_eq!(store.snapshots().unwrap().len(), 1);
    });
}

#[test]
fn there_is_no_store_where_nobody_made_one() {
    on_each_backend(|objects| {
        let e = Store::open_on(objects.clone(), StoreOptions::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotFound);
        assert!(wait(objects.list(None).next()).is_none());
        drop(new_store(&objects));
        drop(Store::open_on(Arc::clone(&objects), StoreOptions::default()).unwrap());
    });
}

#[test]
fn uploads_that_were_never_completed_are_collected() {
    on_each_place(|place| {
        let mut o = StoreOptions::default();
        o.grace_seconds = 60;
        let store = Store::create(place, o).unwrap();
        save(&store, 1, &safetensors(&model()));
        let objects = place.connect(false).unwrap();
        let abandoned = Path::from(format!("data/{}/000003", "a".repeat(32)));
        let not_ours = Path::from("data/of/others");
        wait(async {
            for key in [&abandoned, &not_ours] {
                let mut upload = objects.put_multipart(key).await.unwrap();
                upload.put_part(noise(5 << 20, 1).into()).await.unwrap();
                // A dead process reports nothing.
                std::mem::forget(upload);
            }
        });
        if let Location::Directory(root) = place {
            // The server's clock cannot be set.
            let staged = std::fs::File::options().write(true).open(root.join(format!("{abandoned}#1"))).unwrap();
            staged.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(100)).unwrap();
        }
        let found = |garbage: &lmc_store::Garbage| -> Vec<(String, u64)> {
            assert_eq!(garbage.unseen, None);
            let ours = garbage.orphans.iter().filter(|o| o.key.starts_with(abandoned.as_ref()));
            ours.map(|o| (o.key.clone(), o.size)).collect()
        };
        // Age is measured by the store's clock, so this does not depend on the machine's speed.
        let garbage = loop {
            let garbage = unneeded(&store).unwrap();
            if !found(&garbage).is_empty() {
                break garbage;
            }
            let young = garbage.young.iter().find(|o| o.key.starts_with(abandoned.as_ref()));
            let young = young.unwrap_or_else(|| panic!("neither garbage nor young: {garbage:?}"));
            assert!(young.time + 60 >= garbage.time, "still young after the grace period: {garbage:?}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        };
        assert_eq!(found(&garbage).iter().map(|o| o.1).collect::<Vec<_>>(), [5 << 20]);
        assert_eq!(found(&store.gc(&GcOptions::default()).unwrap()), found(&garbage));
        assert_eq!(found(&unneeded(&store).unwrap()), []);
        assert!(restored(&store, 1).unwrap() == safetensors(&model()));
    });
}
