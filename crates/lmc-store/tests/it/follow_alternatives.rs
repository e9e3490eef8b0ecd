//! Deltas beside block sets that start chains: tensors that hold an earlier version follow with what changed, and without any of them.

use futures::executor::block_on;
use lmc_store::{FollowOptions, Input};
use object_store::ObjectStoreExt;

use crate::follow_tensors::{ALL, Run, sparse};
use crate::support::{Tensor, data_objects, needs, safetensors, step, step_of};

/// Steps 4 and 8 start new chains.
fn with_anchors(alternatives: bool) -> Run {
    let mut run = Run::fast();
    (run.options.anchor_every, run.options.alternatives) = (4, alternatives);
    (1..=9).for_each(|seed| run.save(sparse(seed, 50)));
    run
}

#[test]
fn where_a_chain_starts_followers_fetch_what_changed() {
    let run = with_anchors(true);
    // All that a follower fetches from one step to another, beside the bytes of a first load.
    let fetched = |from: usize, to: usize, options| {
        let mut f = run.followed(&ALL, options);
        let whole = f.load(&run.snapshot(from)).unwrap();
        let (fetched, changed) = f.follow(&run.snapshot(to)).unwrap();
        run.check(&f, to);
        assert!(changed > 0);
        (fetched, whole)
    };
    for (from, to) in [(2, 3), (3, 4), (2, 4), (3, 5), (1, 6), (7, 8), (6, 9)] {
        for verify in [false, true] {
            let mut options = FollowOptions::default();
            options.verify = verify;
            let (fetched, whole) = fetched(from, to, options);
            assert!(fetched < whole / 16 * (to - from) as u64, "{from} to {to}: {fetched} of {whole}");
        }
    }
    // Beyond two starts, the last one is read whole.
    let (far, whole) = fetched(2, 9, FollowOptions::default());
    assert!(far < whole + whole / 16, "{far} of {whole}");
    // One that begins late reads the whole version, and no delta beside it.
    let mut late = run.followed(&ALL, FollowOptions::default());
    assert_eq!(late.load(&run.snapshot(4)).unwrap(), {
        let run = with_anchors(false);
        run.followed(&ALL, FollowOptions::default()).load(&run.snapshot(4)).unwrap()
    });
    run.check(&late, 4);
    // It takes a delta more.
    let costs = |run: &Run| [3, 4].map(|n| run.snapshot(n).new_size);
    let ([delta, both], [_, alone]) = (costs(&run), costs(&with_anchors(false)));
    assert!(alone < both && both < alone + 2 * delta, "{delta}, {alone}, {both}");
}

#[test]
fn where_a_chain_starts_followers_of_parts_fetch_what_changed() {
    let run = with_anchors(true);
    // The follower keeps the block set of all small tensors.
    for names in [&["bias"][..], &["scale", "embed"], &["norm", "bias", "other"]] {
        for (from, to) in [(3, 4), (2, 5)] {
            let mut f = run.followed(names, FollowOptions::default());
            let whole = f.load(&run.snapshot(from)).unwrap();
            let (fetched, _) = f.follow(&run.snapshot(to)).unwrap();
            run.check(&f, to);
            let most = whole / 8 * (to - from) as u64;
            assert!(fetched < most, "{names:?}, {from} to {to}: {fetched} of {whole}");
        }
    }
}

#[test]
fn where_a_chain_starts_the_number_of_changed_elements_is_known() {
    for alternatives in [false, true] {
        let mut run = Run::fast();
        (run.options.anchor_every, run.options.alternatives) = (1, alternatives);
        let before = run.parts.concat();
        run.parts.iter_mut().flatten().for_each(sparse(1, 50));
        let differ = |a: &Tensor, b: &Tensor| a.3.chunks(4).zip(b.3.chunks(4)).filter(|(a, b)| a != b).count() as u64;
        let changed = before.iter().zip(run.parts.iter().flatten()).map(|(a, b)| differ(a, b)).sum();
        let files = run.parts.each_ref().map(|part| safetensors(part));
        let inputs = [Input::new("a.safetensors", &files[0]), Input::new("b.safetensors", &files[1])];
        let saved = run.store.save_shard(&inputs, step(1), &run.options).unwrap();
        assert_eq!((saved.changed, saved.base), (alternatives.then_some(changed), None));
    }
}

#[test]
fn without_alternatives_followers_fetch_the_start_of_a_chain() {
    let run = with_anchors(false);
    let mut f = run.followed(&ALL, FollowOptions::default());
    let whole = f.load(&run.snapshot(3)).unwrap();
    let (fetched, _) = f.follow(&run.snapshot(4)).unwrap();
    assert!(fetched > whole / 2, "{fetched} of {whole}");
    run.check(&f, 4);
}

#[test]
fn alternatives_whose_bases_are_gone_are_not_needed() {
    for to in [4, 5, 8] {
        let run = with_anchors(true);
        let snapshot = run.snapshot(to);
        let mut followed = [2, 3].map(|from| {
            let mut f = run.followed(&ALL, FollowOptions::default());
            let whole = f.load(&run.snapshot(from)).unwrap();
            (f, whole)
        });
        let delete = |key: String| block_on(run.objects.delete(&key.as_str().into())).unwrap();
        let keys = || needs::keys(&*run.objects);
        let others = |key: &String| key.starts_with("snapshots/") && step_of(key) != to as u64;
        keys().into_iter().filter(others).for_each(delete);
        let needed = needs::needed(&*run.objects);
        keys().into_iter().filter(|key| !needed.contains(key)).for_each(delete);
        for (from, (f, whole)) in [2, 3].into_iter().zip(&mut followed) {
            let (fetched, _) = f.follow(&snapshot).unwrap();
            run.check(f, to);
            // The base of the alternatives of step 4 is step 3.
            assert_eq!(fetched < *whole / 4, from == 3 && to < 8, "{from} to {to}: {fetched} of {whole}");
        }
        assert!(run.store.verify(&[snapshot], true, 1).unwrap().problems.is_empty());
    }
}

#[test]
fn a_damaged_alternative_is_not_needed() {
    let mut run = with_anchors(true);
    (10..12).for_each(|seed| run.save(sparse(seed, 50)));
    let before = data_objects(&run.objects);
    run.save(sparse(12, 50));
    let written = data_objects(&run.objects).into_iter().filter(|o| !before.contains(o)).collect::<Vec<_>>();
    let [(key, bytes)] = &written[..] else { panic!("{} data objects", written.len()) };
    let put = |bytes: Vec<u8>| block_on(run.objects.put(&key.as_str().into(), bytes.into())).unwrap();
    let (mut with_deltas, mut without) = (0, 0);
    for at in (0..bytes.len()).step_by(bytes.len() / 150) {
        let mut f = run.followed(&ALL, FollowOptions::default());
        let whole = f.load(&run.snapshot(11)).unwrap();
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 0x10;
        put(damaged);
        let (fetched, _) = f.follow(&run.snapshot(12)).unwrap();
        run.check(&f, 12);
        match fetched < whole / 16 {
            true => with_deltas += 1,
            false => without += 1,
        }
    }
    assert!(with_deltas > 50 && without > 0, "{with_deltas}, {without}");
}
