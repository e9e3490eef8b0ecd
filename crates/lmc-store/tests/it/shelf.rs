//! A store of several models: each is predicted from the one that it derives from.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use lmc_store::testing::Memory;
use lmc_store::{ErrorKind, Keep, RebaseOptions, SaveOptions, Saved, Snapshot, Store};

/// A model with tensors of the usual names, and other weights than those of other seeds.
fn model_of(seed: u64) -> Vec<Tensor> {
    (0..4).map(|i| Tensor::new(["a", "b", "c", "d"][i as usize], 100, 300, 10 * seed + i)).collect()
}

fn tuned(model: &[Tensor], seed: u64) -> Vec<u8> {
    let mut model = model.to_vec();
    model.iter_mut().for_each(|t| t.train(seed));
    safetensors(&model)
}

/// Saves a file as another process does.
fn save_anew(objects: &Arc<Memory>, n: u64, file: &[u8], o: &SaveOptions) -> lmc_store::Result<(Saved, Snapshot)> {
    let store = Store::open_on(objects.clone(), options(n))?;
    let saved = store.save_shard(&[lmc_store::Input::new("m.safetensors", &file)], step(n), o)?;
    let snapshot = store.publish(step(n), BTreeMap::new(), &[saved.shard])?;
    Ok((saved, snapshot))
}

#[test]
fn the_base_is_found_by_content() {
    let (objects, store) = new();
    let (a, b) = (model_of(1), model_of(2));
    let o = SaveOptions::default();
    let base = save(&store, 1, &safetensors(&a));
    store.tag(&"a".parse().unwrap(), &base).unwrap();
    let whole = save(&store, 2, &safetensors(&b)).new_size;
    // Without a tag of its own, only the one before counts.
    let (saved, _) = save_anew(&objects, 3, &tuned(&b, 7), &o).unwrap();
    assert!(saved.base == Some(step(2)) && saved.new_size < whole / 2);
    let (saved, snapshot) = save_anew(&objects, 4, &tuned(&a, 7), &o).unwrap();
    assert!(saved.base == Some(step(1)) && saved.new_size < whole / 2, "{saved:?}");
    assert!(restored(&store, 4).unwrap() == tuned(&a, 7));
    // What is like none is stored whole; what is equal costs nothing.
    let (saved, _) = save_anew(&objects, 5, &safetensors(&model_of(3)), &o).unwrap();
    assert!(saved.base.is_none() && saved.new_size > whole * 9 / 10);
    let (saved, _) = save_anew(&objects, 6, &safetensors(&a), &o).unwrap();
    assert!(saved.shares == Some(step(1)) && saved.new_size == 0, "{saved:?}");
    // A process that goes on builds on what it saved last.
    let store = Store::open_on(objects.clone(), options(100)).unwrap();
    for n in 7..9 {
        let file = tuned(&b, n);
        let saved = store.save_shard(&[lmc_store::Input::new("m.safetensors", &file)], step(n), &o).unwrap();
        store.publish(step(n), BTreeMap::new(), &[saved.shard]).unwrap();
        assert_eq!(saved.base, (n == 8).then_some(step(7)), "{saved:?}");
    }
    // One that is asked for, though another one is more like it, or was pruned.
    let mut asked = o;
    asked.from = Some(step(4));
    let (saved, _) = save_anew(&objects, 9, &tuned(&a, 8), &asked).unwrap();
    assert_eq!(saved.base, Some(step(4)));
    let mut keep = Keep::default();
    keep.drop = vec![snapshot.step];
    store.prune(&store.plan_prune(&keep).unwrap(), &RebaseOptions::default()).unwrap();
    assert_eq!(save_anew(&objects, 10, &tuned(&a, 9), &asked).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(restored(&store, 9).unwrap() == tuned(&a, 8));
}

#[test]
fn tags_that_cannot_be_used_are_passed_over() {
    let (objects, store) = new();
    let a = model_of(1);
    let base = save(&store, 1, &safetensors(&a));
    store.tag(&"a".parse().unwrap(), &base).unwrap();
    save(&store, 2, &safetensors(&model_of(2)));
    let shard = format!("shards/{}.json.zst", base.shards[0]);
    put(&*objects, &shard, b"damaged".to_vec());
    let (saved, _) = save_anew(&objects, 3, &tuned(&a, 7), &SaveOptions::default()).unwrap();
    assert_eq!(saved.base, None);
    let mut asked = SaveOptions::default();
    asked.from = Some(step(1));
    let e = save_anew(&objects, 4, &tuned(&a, 7), &asked).unwrap_err();
    assert!(e.kind() == ErrorKind::Damaged && e.to_string().contains("step 1"), "{e}");
}
