//! Floors: pruned records are deleted, and no writer is taken in by that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::support::*;
use futures::executor::block_on;
use lmc_store::testing::{Faults, Faulty, Memory};
use lmc_store::{
    At, ErrorKind, Garbage, GcOptions, Input, Keep, RebaseOptions, SaveOptions, Snapshot, Store, VerifyOptions,
};
use lmc_testing::exhaustive;
use object_store::ObjectStoreExt;

fn collect(store: &Store, rewindable: usize) -> lmc_store::Result<Garbage> {
    let mut o = GcOptions::default();
    o.rewindable = rewindable;
    store.gc(&o)
}

fn prune(store: &Store, keep: &[u64]) {
    let mut rule = Keep::default();
    rule.steps = keep.iter().map(|&n| step(n)).collect();
    store.prune(&store.plan_prune(&rule).unwrap(), &RebaseOptions::default()).unwrap();
}

fn delete(objects: &Memory, key: &str) {
    block_on(objects.delete(&key.into())).unwrap();
}

fn try_save(store: &Store, n: u64) -> lmc_store::Result<Snapshot> {
    store.save(&[Input::new("m.safetensors", &noise(1000, n))], Some(step(n)), BTreeMap::new(), &SaveOptions::default())
}

fn wrong(store: &Store) -> Vec<u64> {
    store.verify_all(&VerifyOptions::default()).unwrap().problems.iter().map(|p| p.step.get()).collect()
}

/// Steps that have records, and the floors.
fn there(objects: &Memory) -> (Vec<u64>, Vec<String>) {
    let keys = needs::keys(objects);
    let mut steps: Vec<u64> = keys.iter().filter(|k| k.starts_with("snapshots/")).map(|k| step_of(k)).collect();
    steps.sort_unstable();
    steps.dedup();
    (steps, keys.into_iter().filter(|k| k.starts_with("floors/")).collect())
}

/// A store of the steps 0 to 19, of which `kept` were kept, a grace period ago.
fn pruned(kept: &[u64]) -> (Arc<Memory>, Store) {
    let (objects, store) = new();
    (0..20).for_each(|n| _ = save(&store, n, &noise(1000, n)));
    prune(&store, kept);
    objects.advance(GRACE + 1);
    (objects, store)
}

#[test]
fn pruned_records_are_deleted_below_a_floor() {
    let kept = [3, 9, 18, 19];
    let (objects, store) = pruned(&kept);
    let floor = |n: u64, generation: u32| format!("floors/{:016}-{generation:010}.json", (1u64 << 53) - n);
    // With the usual number of steps to go back, all stay.
    store.gc(&GcOptions::default()).unwrap();
    assert_eq!(there(&objects), ((0..20).collect(), vec![]));
    collect(&store, 4).unwrap();
    assert_eq!(there(&objects), ((0..20).collect(), vec![floor(15, 0)]));
    // Saves that began before may still need them.
    objects.advance(GRACE);
    assert!(collect(&store, 4).unwrap().orphans.is_empty());
    objects.advance(1);
    let found = collect(&store, 4).unwrap();
    assert_eq!(found.orphans.len(), 14);
    assert_eq!(there(&objects), (vec![3, 9, 16, 17, 18, 19], vec![floor(15, 0)]));
    // That others were pruned is known all the same.
    assert!(store.list().unwrap().needed_size().is_none());
    let intact = || {
        assert_eq!(wrong(&store), [0; 0]);
        assert!(store.list().unwrap().damaged.is_empty());
        for n in kept {
            assert!(restored(&store, n).unwrap() == noise(1000, n));
        }
    };
    intact();
    // Nothing is saved there any more, also if there is no record; above it, it is.
    let before = needs::keys(&*objects);
    for n in [0, 4, 9, 15] {
        let e = try_save(&store, n).unwrap_err();
        let kind = if n == 9 { ErrorKind::Exists } else { ErrorKind::Usage };
        assert_eq!(e.kind(), kind, "{e}");
        assert!(n == 9 || e.to_string().contains("up to step 15"), "{e}");
        let shard = store.save_shard(&[Input::new("m", &&b"1"[..])], step(n), &SaveOptions::default());
        assert_eq!(shard.unwrap_err().kind(), ErrorKind::Usage);
    }
    assert_eq!(needs::keys(&*objects), before);
    try_save(&store, 16).unwrap();
    // A floor rises, and the earlier one goes.
    (20..30).for_each(|n| _ = try_save(&store, n).unwrap());
    collect(&store, 4).unwrap();
    // 17 was pruned, and is not needed for going back any more.
    assert_eq!(there(&objects).1, [floor(25, 0), floor(15, 0)]);
    objects.advance(GRACE + 1);
    collect(&store, 4).unwrap();
    let rest: Vec<u64> = [3, 9, 16].into_iter().chain(18..30).collect();
    assert_eq!(there(&objects), (rest.clone(), vec![floor(25, 0)]));
    intact();
    // What is pruned at or below it goes after another floor of the same step.
    store.rebase(&[step(9), step(3)], &RebaseOptions::default()).unwrap();
    let mut drop = Keep::default();
    drop.drop = vec![step(16)];
    store.prune(&store.plan_prune(&drop).unwrap(), &RebaseOptions::default()).unwrap();
    objects.advance(GRACE + 1);
    collect(&store, 4).unwrap();
    assert_eq!(there(&objects).1, [floor(25, 0), floor(25, 1)]);
    objects.advance(GRACE + 1);
    collect(&store, 4).unwrap();
    assert_eq!(there(&objects), (rest.into_iter().filter(|n| *n != 16).collect(), vec![floor(25, 1)]));
    intact();
    assert_eq!(needs::keys(&*objects), needs::needed(&*objects));
    assert!(collect(&store, 4).unwrap().orphans.is_empty());
}

#[test]
fn a_lost_record_below_a_floor_is_missed() {
    let (objects, store) = pruned(&[3, 9, 18, 19]);
    collect(&store, 4).unwrap();
    objects.advance(GRACE + 1);
    collect(&store, 4).unwrap();
    save(&store, 20, b"f");
    for n in [3, 9, 19] {
        let other = Arc::new(objects.fork());
        delete(&other, &record_key(n, 0));
        let store = Store::open_on(other.clone(), options(5)).unwrap();
        // The records that named it may be deleted: the floor says that it was there.
        assert_eq!(wrong(&store), [n]);
        other.advance(2 * GRACE);
        let e = collect(&store, 4).unwrap_err();
        assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("nothing was deleted"), "{e}");
        assert_eq!(store.find(At::Step(step(n))).unwrap_err().kind(), ErrorKind::Damaged);
        let mut end = Keep::default();
        end.damaged = vec![step(n)];
        store.prune(&store.plan_prune(&end).unwrap(), &RebaseOptions::default()).unwrap();
        assert_eq!(wrong(&store), [0; 0]);
        other.advance(2 * GRACE);
        collect(&store, 4).unwrap();
    }
}

#[test]
fn a_floor_that_cannot_be_read_allows_nothing() {
    let (objects, store) = pruned(&[3, 9, 18, 19]);
    collect(&store, 4).unwrap();
    let floor = there(&objects).1.remove(0);
    let text = String::from_utf8(get(&*objects, &floor)).unwrap();
    let newer = text.replace("\"version\":1", "\"version\":2");
    for bad in ["", "{}", &text[..text.len() - 1], &newer, &text.replace('9', "8")] {
        let other = Arc::new(objects.fork());
        put(&*other, &floor, bad.as_bytes().to_vec());
        other.advance(GRACE + 1);
        let store = Store::open_on(other.clone(), options(5)).unwrap();
        assert_eq!(wrong(&store), [15], "{bad}");
        // Nothing is saved there all the same.
        assert_eq!(try_save(&store, 5).unwrap_err().kind(), ErrorKind::Usage);
        save(&store, 30, b"f");
        assert!(store.list().unwrap().damaged.is_empty());
        let collected = collect(&store, 4);
        if bad == newer {
            let e = collected.unwrap_err();
            assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains("nothing was deleted"), "{e}");
            continue;
        }
        assert!(collected.unwrap().orphans.is_empty());
        assert_eq!((there(&other).0.len(), wrong(&store)), (21, vec![]));
        other.advance(GRACE + 1);
        collect(&store, 4).unwrap();
        assert_eq!(there(&other).0, [3, 9, 17, 18, 19, 30]);
        assert_eq!(wrong(&store), [0; 0]);
    }
    // What has no floor's name is none.
    put(&*objects, "floors/readme", vec![]);
    put(&*objects, "floors/9007199254740950-1.json", vec![]);
    assert_eq!(try_save(&store, 42).unwrap().step, step(42));
}

#[test]
fn records_that_cannot_be_deleted_keep_the_pruned_one() {
    let (objects, store) = pruned(&[3, 9, 18, 19]);
    collect(&store, 4).unwrap();
    // A step that was pruned, saved and pruned again.
    let step_17 = |generation| record_key(17, generation);
    try_save(&store, 17).unwrap();
    prune(&store, &[3, 9, 18, 19]);
    (20..30).for_each(|n| _ = try_save(&store, n).unwrap());
    objects.advance(GRACE + 1);
    collect(&store, 4).unwrap();
    objects.advance(GRACE + 1);
    assert!(needs::keys(&*objects).contains(&step_17(3)) && !needs::keys(&*objects).contains(&step_17(2)));
    // As if an earlier collection had left one: it must not be in force again.
    let kept = get(&*objects, &record_key(18, 0));
    let text = String::from_utf8(kept).unwrap().replace("\"step\":18", "\"step\":17");
    let text = format!("{}}}", text.rsplit_once(",\"check\"").unwrap().0);
    let check = blake3::hash(text.as_bytes());
    let sealed = format!("{},\"check\":\"{check}\"}}", &text[..text.len() - 1]);
    put(&*objects, &step_17(2), sealed.into_bytes());
    for seed in 0..20 {
        let other = Arc::new(objects.fork());
        let mut faults = Faults::default();
        (faults.refused, faults.answer_lost, faults.late) = (4, 4, 4);
        let bad = Arc::new(Faulty::new(other.clone(), seed, faults));
        _ = Store::open_on(bad, options(6)).and_then(|store| collect(&store, 4));
        let keys = needs::keys(&*other);
        assert!(keys.contains(&step_17(3)) || !keys.contains(&step_17(2)), "{seed}");
    }
}

/// A store of the steps 0 to 4, of which 1 to 3 were pruned long ago.
fn pruned_at_2() -> Arc<Memory> {
    let (objects, store) = new();
    (0..5).for_each(|n| _ = save(&store, n, &noise(1000, n)));
    prune(&store, &[0, 4]);
    objects.advance(GRACE + 1);
    store.gc(&GcOptions::default()).unwrap();
    objects
}

/// Saves step 2, which was pruned long ago, while another process collects before the request `first`, which is then delayed, and again
/// before the request `second`, which was delayed. Returns the result of the save, and its number of requests.
fn race(world: &Memory, first: u64, second: u64, waits: [u64; 2]) -> (Option<ErrorKind>, u64) {
    let objects = Arc::new(world.fork());
    let others = objects.clone();
    let asked = Mutex::new((false, 0));
    let before_each = move |request| {
        // The second and last request for the time starts the quarter in which the record must appear.
        let probing = needs::keys(&*others).iter().any(|k| k.starts_with("probes/"));
        let (was_probing, times) = &mut *asked.lock().unwrap();
        *times += u64::from(probing && !*was_probing);
        *was_probing = probing;
        let wait = |seconds: u64| others.advance(if *times < 2 { seconds } else { seconds.min(GRACE / 8) });
        let gc = |seed| _ = collect(&Store::open_on(others.clone(), options(seed)).unwrap(), 1).unwrap();
        if request == first {
            gc(100);
            wait(waits[0]);
        }
        if request == second {
            wait(waits[1]);
            gc(101);
        }
    };
    let faulty = Arc::new(Faulty::with_hook(objects.clone(), 0, Faults::default(), before_each));
    let saved = Store::open_on(faulty.clone(), options(102)).and_then(|store| try_save(&store, 2));
    let store = Store::open_on(objects.clone(), options(103)).unwrap();
    for _ in 0..3 {
        assert_eq!(saved.is_ok(), store.find(At::Step(step(2))).is_ok());
        if let Ok(saved) = &saved {
            assert!(restored(&store, 2).unwrap() == noise(1000, 2));
            // It is the one that all see, and not another one beside it.
            assert_eq!(store.find(At::Step(step(2))).unwrap().id, saved.id);
            assert!(try_save(&store, 2).is_err());
        }
        assert_eq!(wrong(&store), [0; 0]);
        objects.advance(GRACE + 1);
        collect(&store, 1).unwrap();
    }
    assert_eq!(needs::keys(&*objects), needs::needed(&*objects));
    (saved.err().map(|e| e.kind()), faulty.requests())
}

#[test]
fn floors_appear_and_pruned_records_go_at_every_moment_of_a_save() {
    let objects = pruned_at_2();
    let (ok, requests) = race(&objects, 0, 0, [0, 0]);
    assert!(ok.is_none() && requests > 15, "{requests}");
    let mut ended: BTreeMap<String, u64> = BTreeMap::new();
    for first in 1..=requests {
        for second in first..=requests {
            let waits =
                [[0, GRACE / 2 - 1], [0, GRACE - 1], [GRACE / 4, GRACE / 4], [0, GRACE + 1], [GRACE, 3 * GRACE]];
            // Before its last requests the save has listed the floors for the last time.
            let is_late = first + 12 > requests;
            let of_pair = |&i: &usize| exhaustive() || is_late || (i as u64 + 2 * first + second) % 10 < 1;
            for waits in (0..waits.len()).filter(of_pair).map(|i| waits[i]) {
                let (e, _) = race(&objects, first, second, waits);
                assert!(
                    // Its probe may be collected, too.
                    matches!(e, None | Some(ErrorKind::Expired | ErrorKind::Usage | ErrorKind::NotFound)),
                    "{first} {second} {waits:?}: {e:?}"
                );
                *ended.entry(format!("{e:?}")).or_default() += 1;
            }
        }
    }
    println!("{ended:?}");
    assert!(ended["None"] > 20 && ended["Some(Usage)"] > 20 && ended["Some(Expired)"] > 10, "{ended:?}");
}

/// Two processes save step 2, which was pruned long ago: the second one before the request `first` of the other. Before the request `second`
/// of that one, a collector writes a floor. Returns what they end with, the second one first.
fn race_of_two(world: &Memory, first: u64, second: u64) -> [Option<ErrorKind>; 2] {
    let objects = Arc::new(world.fork());
    let saved = |seed, hook: Box<dyn Fn(u64) + Send + Sync>| {
        let faulty = Arc::new(Faulty::with_hook(objects.clone(), 0, Faults::default(), hook));
        Store::open_on(faulty, options(seed)).and_then(|store| try_save(&store, 2))
    };
    let (others, inner) = (objects.clone(), Arc::new(Mutex::new(None)));
    let result = inner.clone();
    let outer = saved(
        102,
        Box::new(move |request| {
            if request != first {
                return;
            }
            let world = others.clone();
            let hook = move |request| {
                if request == second {
                    _ = collect(&Store::open_on(world.clone(), options(100)).unwrap(), 1).unwrap();
                    world.advance(GRACE / 16);
                }
            };
            let faulty = Arc::new(Faulty::with_hook(others.clone(), 0, Faults::default(), hook));
            let saved = Store::open_on(faulty, options(101)).and_then(|store| try_save(&store, 2));
            others.advance(GRACE / 16);
            *result.lock().unwrap() = Some(saved);
        }),
    );
    let inner = inner.lock().unwrap().take().expect("the first one asked so often");
    let both = [inner, outer];
    let winners: Vec<&Snapshot> = both.iter().flatten().collect();
    assert!(winners.len() < 2, "{first} {second}");
    let store = Store::open_on(objects.clone(), options(103)).unwrap();
    for _ in 0..3 {
        let found = store.find(At::Step(step(2))).ok().map(|there| there.id);
        assert_eq!(found, winners.first().map(|saved| saved.id), "{first} {second}");
        assert!(found.is_none() || restored(&store, 2).unwrap() == noise(1000, 2));
        assert_eq!(wrong(&store), [0; 0]);
        objects.advance(GRACE + 1);
        collect(&store, 1).unwrap();
    }
    assert_eq!(needs::keys(&*objects), needs::needed(&*objects));
    both.map(|saved| saved.err().map(|e| e.kind()))
}

#[test]
fn of_two_saves_that_miss_a_floor_one_succeeds() {
    let world = pruned_at_2();
    let (_, requests) = race(&world, 0, 0, [0, 0]);
    let mut ended: BTreeMap<String, u64> = BTreeMap::new();
    for first in 1..=requests {
        for second in 1..=requests {
            let are_late = first.min(second) + 12 > requests;
            if are_late || exhaustive() || (2 * first + second) % 10 == 0 {
                let ends = race_of_two(&world, first, second);
                *ended.entry(format!("{ends:?}")).or_default() += 1;
            }
        }
    }
    println!("{ended:?}");
    let one = ["[None, Some(Exists)]", "[None, Some(Usage)]", "[Some(Usage), Some(Usage)]"];
    assert!(one.iter().all(|end| ended.get(*end).is_some_and(|&n| n > 5)), "{ended:?}");
    assert!(ended.keys().all(|end| one.contains(&&end[..]) || end == "[Some(Usage), None]"), "{ended:?}");
}
