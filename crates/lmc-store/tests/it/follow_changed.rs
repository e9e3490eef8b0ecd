//! Tensors in memory that hold nothing of a version, as new ones and those that others wrote to; and names of one memory.

use lmc_store::{ErrorKind, FollowOptions};

use crate::follow_tensors::{ALL, Followed, Run, sparse, spec};
use crate::support::Tensor;

fn usage(e: lmc_store::Error, text: &str) {
    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains(text), "{e}");
}

fn options(verify: bool) -> FollowOptions {
    let mut options = FollowOptions::default();
    options.verify = verify;
    options
}

/// Writes to a tensor, as another program does.
fn write(f: &mut Followed, tensor: usize) {
    f.memory[tensor].iter_mut().for_each(|b| *b = b.wrapping_mul(3) ^ 0x5a);
    f.follower.forget(&[tensor]);
}

#[test]
fn tensors_that_others_wrote_to_are_written_whole() {
    for verify in [false, true] {
        let mut run = Run::fast();
        let mut f = run.followed(&ALL, options(verify));
        f.load(&run.snapshot(0)).unwrap();
        run.save(sparse(1, 50));
        let staged = f.stage(&run.snapshot(1)).unwrap();
        // A large one, and one of a block set that several have.
        let wrong = [0, 1];
        wrong.iter().for_each(|&t| write(&mut f, t));
        usage(f.commit(&staged).unwrap_err(), "stage it again");
        let staged = f.stage(&run.snapshot(1)).unwrap();
        for t in wrong {
            let of: Vec<_> = staged.patches().iter().filter(|p| p.tensor() == t).collect();
            assert!(of.iter().all(|p| p.indices().is_none()));
            assert_eq!(of.iter().map(|p| p.values().len()).sum::<usize>(), f.memory[t].len());
        }
        f.commit(&staged).unwrap();
        run.check(&f, 1);
        // To the version that the others hold.
        write(&mut f, 3);
        f.follow(&run.snapshot(1)).unwrap();
        run.check(&f, 1);
        run.save(sparse(2, 50));
        f.follow(&run.snapshot(2)).unwrap();
        run.check(&f, 2);
    }
}

#[test]
fn tensors_are_added() {
    let mut run = Run::fast();
    let mut f = run.followed(&["head", "norm"], options(false));
    f.load(&run.snapshot(0)).unwrap();
    run.save(sparse(1, 50));
    assert!(ALL.iter().all(|name| f.follower.names(&run.snapshot(1)).unwrap().iter().any(|n| n == name)));
    let e = f.follower.tensor(&run.snapshot(1), "absent").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound);
    let specs: Vec<_> = run.parts.iter().flatten().map(spec).collect();
    usage(f.follower.add(specs).unwrap_err(), "two tensors have the name");
    for name in ["embed", "bias"] {
        let tensor = run.parts.iter().flatten().find(|t| t.0 == name).unwrap();
        assert_eq!(f.follower.tensor(&run.snapshot(1), name).unwrap().len, tensor.3.len() as u64);
        f.follower.add(vec![spec(tensor)]).unwrap();
        f.names.push(name);
        f.memory.push(vec![0xaa; tensor.3.len()]);
    }
    f.follow(&run.snapshot(1)).unwrap();
    run.check(&f, 1);
    run.save(sparse(2, 50));
    let (_, changed) = f.follow(&run.snapshot(2)).unwrap();
    run.check(&f, 2);
    assert!(changed < f.memory.iter().map(|m| m.len() as u64).sum::<u64>() / 4 / 40);
}

#[test]
fn names_of_one_memory_take_one_value() {
    let mut run = Run::fast();
    let twins = |run: &mut Run, changes: bool| {
        for (name, twin) in [("embed", "embed twin"), ("bias", "bias twin")] {
            let Tensor(_, rows, columns, mut bytes) = run.parts[0].iter().find(|t| t.0 == name).unwrap().clone();
            bytes[9] ^= u8::from(changes && name == "bias");
            run.parts[1].retain(|t| t.0 != twin);
            run.parts[1].push(Tensor(twin, rows, columns, bytes));
        }
    };
    let mut f = run.followed(&ALL, options(false));
    let number = |name| ALL.iter().position(|n| *n == name).unwrap();
    f.follower.tie([("embed twin".to_owned(), number("embed")), ("bias twin".to_owned(), number("bias"))]);
    f.load(&run.snapshot(0)).unwrap();
    twins(&mut run, false);
    run.save(sparse(1, 50));
    f.follow(&run.snapshot(1)).unwrap();
    run.check(&f, 1);
    twins(&mut run, true);
    run.save(|_| {});
    let differ = "tensors \"bias\" and \"bias twin\" share their memory, and step 2 of the store has different values";
    usage(f.stage(&run.snapshot(2)).unwrap_err(), differ);
    usage(f.load(&run.snapshot(2)).unwrap_err(), differ);
    usage(f.adopt(&run.snapshot(2)).unwrap_err(), differ);
    run.check(&f, 1);
    twins(&mut run, false);
    run.save(sparse(3, 50));
    f.follow(&run.snapshot(3)).unwrap();
    run.check(&f, 3);
}
