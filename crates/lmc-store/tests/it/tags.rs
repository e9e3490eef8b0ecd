//! Tags: what they name, whom they protect, and what writers and collectors do at once.

use std::fs::File;
use std::sync::Arc;

use crate::support::*;
use futures::executor::block_on;
use lmc_store::testing::{Faults, Faulty, Memory};
use lmc_store::{At, CopyOptions, ErrorKind, GcOptions, Keep, Location, RebaseOptions, SaveOptions, Snapshot, Store};
use lmc_store::{StoreOptions, TagName, VerifyOptions};
use object_store::ObjectStoreExt;

fn name(text: &str) -> TagName {
    text.parse().unwrap()
}

fn at(tag: &str) -> At {
    At::Tag(name(tag))
}

/// A new store with a clock, and the snapshots of some steps.
fn saved(steps: std::ops::Range<u64>) -> (Arc<Memory>, Store, Vec<Snapshot>) {
    let (objects, store) = new();
    let snapshots = steps.map(|n| save(&store, n, &noise(2000, n))).collect();
    (objects, store, snapshots)
}

/// The tags, as text.
fn tags(store: &Store) -> Vec<String> {
    let tags = store.tags().unwrap();
    assert_eq!(tags.damaged, []);
    tags.tags.iter().map(|tag| format!("{} {}", tag.name, tag.step)).collect()
}

fn tag_keys(objects: &Memory) -> Vec<String> {
    needs::keys(objects).into_iter().filter(|key| key.starts_with("tags/")).collect()
}

fn dropped(steps: &[u64]) -> Keep {
    let mut keep = Keep::default();
    keep.drop = steps.iter().map(|&n| step(n)).collect();
    keep
}

#[test]
fn a_tag_names_a_snapshot_until_it_is_moved_or_deleted() {
    let (_, store, s) = saved(1..4);
    assert!(tags(&store).is_empty());
    assert_eq!(store.find(at("best")).unwrap_err().kind(), ErrorKind::NotFound);
    let tag = store.tag(&name("best"), &s[0]).unwrap();
    assert_eq!((tag.step, tag.id), (step(1), s[0].id));
    store.tag(&name("v1.0"), &s[0]).unwrap();
    assert_eq!(tags(&store), ["best 1", "v1.0 1"]);
    assert_eq!(store.find(at("best")).unwrap(), s[0]);
    store.tag(&name("best"), &s[2]).unwrap();
    assert_eq!(store.find(at("best")).unwrap(), s[2]);
    assert_eq!(store.tag(&name("Best"), &s[2]).unwrap_err().kind(), ErrorKind::Usage);
    store.untag(&name("best")).unwrap();
    assert_eq!(tags(&store), ["v1.0 1"]);
    for e in [store.find(at("best")).unwrap_err(), store.untag(&name("best")).unwrap_err()] {
        assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains("best"), "{e}");
    }
    store.tag(&name("best"), &s[1]).unwrap();
    assert_eq!(tags(&store), ["best 2", "v1.0 1"]);
    assert!(store.verify_all(&VerifyOptions::default()).unwrap().tags.is_empty());
}

#[test]
fn what_has_a_tag_is_not_pruned() {
    let (_, store, s) = saved(1..6);
    store.tag(&name("best"), &s[1]).unwrap();
    let mut keep = Keep::default();
    keep.last = 1;
    let plan = store.plan_prune(&keep).unwrap();
    let kept: Vec<u64> = plan.keep.iter().map(|s| s.step.get()).collect();
    assert_eq!((kept, plan.why), (vec![2, 5], vec![vec!["tag best".to_owned()], vec!["last".to_owned()]]));
    let e = store.plan_prune(&dropped(&[2])).unwrap_err();
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains("lmc snapshot tag STORE best --delete"), "{e}");
    // A tag that is set after planning.
    let plan = store.plan_prune(&dropped(&[3])).unwrap();
    store.tag(&name("late"), &s[2]).unwrap();
    let e = store.prune(&plan, &RebaseOptions::default()).unwrap_err();
    assert!(
        e.kind() == ErrorKind::Usage && e.to_string().contains("late") && e.to_string().ends_with("nothing was pruned"),
        "{e}"
    );
    store.untag(&name("late")).unwrap();
    store.prune(&plan, &RebaseOptions::default()).unwrap();
    // Another snapshot of the step is not the one that was named.
    store.untag(&name("best")).unwrap();
    let plan = store.plan_prune(&dropped(&[2])).unwrap();
    store.prune(&plan, &RebaseOptions::default()).unwrap();
    store.tag(&name("gone"), &s[1]).unwrap();
    save(&store, 2, &noise(2000, 9));
    let e = store.find(at("gone")).unwrap_err();
    assert!(e.kind() == ErrorKind::NotFound && e.to_string().contains(&s[1].id.to_string()), "{e}");
    let found = store.verify_all(&VerifyOptions::default()).unwrap();
    assert!(found.problems.is_empty() && found.tags.len() == 1 && found.tags[0].contains("gone"), "{found:?}");
    store.plan_prune(&dropped(&[2])).unwrap();
}

#[test]
fn a_damaged_tag_keeps_everything() {
    let (objects, store, s) = saved(1..4);
    store.tag(&name("a"), &s[0]).unwrap();
    store.tag(&name("b"), &s[1]).unwrap();
    let [key, other] = &tag_keys(&objects)[..] else { panic!("two tags have two objects") };
    let read = |key: &str| block_on(async { objects.get(&key.into()).await.unwrap().bytes().await.unwrap() });
    let (bytes, other) = (read(key), read(other));
    for bad in
        [&bytes[..bytes.len() - 1], &bytes[1..], b"", b"{}", &[bytes[..20].to_vec(), bytes[21..].to_vec()].concat()]
    {
        block_on(objects.put(&key[..].into(), bad.to_vec().into())).unwrap();
        let found = store.tags().unwrap();
        assert_eq!((found.tags.len(), &found.damaged[0].name), (1, &name("a")));
        let verified = store.verify_all(&VerifyOptions::default()).unwrap();
        assert!(
            verified.problems.is_empty() && verified.tags.len() == 1 && verified.tags[0].contains(key),
            "{verified:?}"
        );
        for e in [store.find(at("a")).unwrap_err(), store.plan_prune(&dropped(&[3])).unwrap_err()] {
            assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains(key), "{e}");
        }
        store.find(at("b")).unwrap();
    }
    // That of another tag, under its key.
    block_on(objects.put(&key[..].into(), other.into())).unwrap();
    assert_eq!(store.find(at("a")).unwrap_err().kind(), ErrorKind::Damaged);
    // It is set again, or deleted.
    store.tag(&name("a"), &s[2]).unwrap();
    assert_eq!(tags(&store), ["a 3", "b 2"]);
    block_on(objects.put(&tag_keys(&objects)[0][..].into(), "x".into())).unwrap();
    store.untag(&name("a")).unwrap();
    assert_eq!(tags(&store), ["b 2"]);
    // What is no tag is left alone.
    for foreign in ["tags/7/4294967295.json", "tags/x", "tags/x/1.json", "tags/-x/4294967295.json"] {
        block_on(objects.put(&foreign.into(), "x".into())).unwrap();
    }
    assert_eq!(tags(&store), ["b 2"]);
}

#[test]
fn what_was_superseded_is_collected() {
    let (objects, store, s) = saved(1..4);
    for snapshot in &s {
        store.tag(&name("best"), snapshot).unwrap();
    }
    store.tag(&name("gone"), &s[0]).unwrap();
    store.untag(&name("gone")).unwrap();
    assert_eq!(tag_keys(&objects).len(), 5);
    let collect = || store.gc(&GcOptions::default()).unwrap().orphans.len();
    assert_eq!(collect(), 0);
    objects.advance(GRACE + 9);
    // A deletion goes after all that it superseded: these would count again.
    assert_eq!((collect(), tag_keys(&objects).len()), (3, 2));
    assert_eq!((collect(), collect(), tag_keys(&objects).len()), (1, 0, 1));
    assert_eq!(tags(&store), ["best 3"]);
}

/// A store in which a tag was deleted so long ago that a collector deletes that, too, and two snapshots.
fn forgotten() -> (Arc<Memory>, Vec<Snapshot>) {
    let (objects, store, s) = saved(1..3);
    store.tag(&name("best"), &s[0]).unwrap();
    store.untag(&name("best")).unwrap();
    objects.advance(GRACE + 9);
    store.gc(&GcOptions::default()).unwrap();
    assert_eq!(tag_keys(&objects).len(), 1);
    (objects, s)
}

#[test]
fn others_set_the_tag_and_collect_at_every_moment() {
    let (world, s) = forgotten();
    let race = |collect_at: u64, set_at: u64| {
        let objects = Arc::new(world.fork());
        let open = |objects: &Arc<Memory>, seed| Store::open_on(objects.clone(), options(seed)).unwrap();
        let slow = unneeded(&open(&objects, 50)).unwrap().orphans;
        assert_eq!(slow.len(), 1);
        let (others, other) = (objects.clone(), s[1].clone());
        let before_each = move |request| {
            if request == collect_at {
                open(&others, 51).gc(&GcOptions::default()).unwrap();
            }
            if request == set_at {
                open(&others, 52).tag(&name("best"), &other).unwrap();
            }
        };
        let faulty = Arc::new(Faulty::with_hook(objects.clone(), 0, Faults::default(), before_each));
        let store = Store::open_on(faulty.clone(), options(53)).unwrap();
        let began = faulty.requests();
        store.tag(&name("best"), &s[0]).unwrap();
        let (requests, store) = (faulty.requests(), open(&objects, 54));
        let named = tags(&store);
        assert!(named == ["best 1"] || set_at > began && named == ["best 2"], "{collect_at} {set_at}: {named:?}");
        // A collector deletes at last what it found before all this.
        for orphan in slow {
            _ = block_on(objects.delete(&orphan.key[..].into()));
        }
        assert_eq!(tags(&store), named, "{collect_at} {set_at}");
        store.untag(&name("best")).unwrap();
        assert!(tags(&store).is_empty());
        requests
    };
    let requests = race(0, 0);
    for collect_at in 1..=requests {
        for set_at in 1..=requests {
            race(collect_at, set_at);
        }
    }
}

#[test]
fn tags_are_copied_with_their_snapshots() {
    let (objects, store, s) = saved(1..4);
    let (to, mut o) = (Arc::new(Memory::default()), options(9));
    o.run = Some(store.run());
    let copy = Store::create_on(to.clone(), o).unwrap();
    let copied = |some: &[Snapshot]| copy.copy_from(&store, some, CopyOptions::default()).unwrap();
    store.tag(&name("best"), &s[0]).unwrap();
    store.tag(&name("last"), &s[2]).unwrap();
    copied(&s[..2]);
    assert_eq!(tags(&copy), ["best 1"]);
    // A tag that moved later; one that was set later in the copy stays.
    objects.advance(1000);
    store.tag(&name("best"), &s[1]).unwrap();
    copied(&s);
    assert_eq!(tags(&copy), ["best 2", "last 3"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.tar");
    store.export(&s[1..2], File::create(&path).unwrap()).unwrap();
    let archive = Store::open(&Location::directory(path).unwrap(), StoreOptions::default()).unwrap();
    assert_eq!(tags(&archive), ["best 2"]);
    assert_eq!(archive.find(at("best")).unwrap().id, s[1].id);
    to.advance(2000);
    copy.tag(&name("best"), &s[0]).unwrap();
    copied(&s);
    copy.copy_from(&archive, &archive.snapshots().unwrap(), CopyOptions::default()).unwrap();
    assert_eq!(tags(&copy), ["best 1", "last 3"]);
    let e = archive.tag(&name("x"), &s[1]).unwrap_err();
    assert!(e.to_string().contains("read-only"), "{e}");
}

#[test]
fn a_tag_in_a_directory_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&Location::directory(dir.path().into()).unwrap(), StoreOptions::default()).unwrap();
    let s = save_with(&store, 7, &noise(2000, 7), &SaveOptions::default()).unwrap();
    store.tag(&name("best"), &s).unwrap();
    assert_eq!(store.find(at("best")).unwrap(), s);
    // Something that is no file, in the place of the next generation, is damage.
    let tags = dir.path().join("tags/best");
    let highest = std::fs::read_dir(&tags).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    let next: u32 = highest.trim_end_matches(".json").parse().unwrap();
    std::fs::create_dir(tags.join(format!("{:010}.json", next - 1))).unwrap();
    let e = store.find(at("best")).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("tags/best/"), "{e}");
    std::fs::remove_dir(tags.join(format!("{:010}.json", next - 1))).unwrap();
    std::fs::remove_file(tags.join(&highest)).unwrap();
    assert!(unneeded(&store).unwrap().young.is_empty() && tags.is_dir());
    assert!(store.verify_all(&VerifyOptions::default()).unwrap().problems.is_empty());
}
