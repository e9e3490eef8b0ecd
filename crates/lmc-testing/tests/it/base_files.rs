//! Bases that are files: a whole delta reads each of them once, and they are compared with their hashes all the same.

use crate::support::snapshots::file_of;
use crate::support::{Counted, delta_of, restore};
use lmc::{Base, CompressOptions, Compressor, DecompressOptions, Decompressor, ErrorKind, ReadAt, WriteAt};
use std::io;
use std::sync::Mutex;

const LEAF: u64 = 1 << 18;

/// A file of two tensors, and a later version without the second: one element in `changed` of the first differs.
fn pair(changed: usize) -> (Vec<u8>, Vec<u8>) {
    let first: Vec<f32> = (0..900_000u32).map(|i| (i as f32 * 0.37).sin()).collect();
    let second: Vec<f32> = (0..200_000u32).map(|i| (i as f32 * 0.73).cos()).collect();
    let mut later = first.clone();
    later.iter_mut().step_by(changed).for_each(|x| *x = f32::from_bits(x.to_bits() ^ 0x1_0000));
    (file_of(&[("a".into(), first), ("b".into(), second)]), file_of(&[("a".into(), later)]))
}

#[test]
fn a_base_is_read_once() {
    for changed in [1, 100] {
        let (old, new) = pair(changed);
        let delta = delta_of(&new, &[Base::new(&old[..]).unwrap()], &CompressOptions::default()).unwrap();
        assert!(delta.len() < new.len() / 4);
        for threads in [1, 3] {
            let counted = Counted::new(&old);
            let base = Base::new(&counted).unwrap();
            counted.take();
            let restored = restore(&delta, &[base], &DecompressOptions::default().with_threads(threads)).unwrap();
            assert!(restored == new);
            // The first leaf begins with the header, and the last one of the first tensor has some of the second.
            let (read, len) = (counted.take(), old.len() as u64);
            assert!((len..len + 2 * LEAF).contains(&read), "{read} of {len}");
        }
    }
}

#[test]
fn a_base_is_hashed_once() {
    let (old, new) = pair(100);
    let counted = Counted::new(&old);
    let base = Base::new(&counted).unwrap();
    let mut c = Compressor::new(&CompressOptions::default()).unwrap();
    counted.take();
    let read: Vec<u64> = (0..3)
        .map(|_| {
            c.compress(&new, std::slice::from_ref(&base), &mut vec![]).unwrap();
            counted.take()
        })
        .collect();
    assert!(read[0] >= old.len() as u64 + read[1], "{read:?}");
    assert_eq!(read[1], read[2]);
    // Clones share the hash.
    base.clone().content_hash(2).unwrap();
    assert_eq!(counted.take(), 0);
}

/// Reading a base failed when half of it was hashed.
#[test]
fn failing_once() {
    struct Once(Vec<u8>, Mutex<Option<u64>>);
    impl ReadAt for Once {
        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            let mut from = self.1.lock().unwrap();
            if from.is_some_and(|from| offset >= from) {
                *from = None;
                return Err(io::Error::other("try again"));
            }
            self.0.read_exact_at(buf, offset)
        }
        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }
    }
    let (old, new) = pair(100);
    let known = Base::new(&old[..]).unwrap().content_hash(1).unwrap();
    let once = Once(old, Mutex::new(None));
    let base = Base::new(&once).unwrap();
    *once.1.lock().unwrap() = Some(2_000_000);
    assert_eq!(base.content_hash(1).unwrap_err().kind(), ErrorKind::Io);
    for base in [base.clone().with_hash(known), base] {
        let delta = delta_of(&new, std::slice::from_ref(&base), &CompressOptions::default()).unwrap();
        assert!(restore(&delta, &[base], &DecompressOptions::default()).unwrap() == new);
    }
}

#[test]
fn another_base_is_refused_wherever_it_differs() {
    let (old, new) = pair(100);
    let delta = delta_of(&new, &[Base::new(&old[..]).unwrap()], &CompressOptions::default()).unwrap();
    // In the header, where a block reads, in the leaf of both tensors, and where no block does.
    for at in [9, 1_000_000, new.len() + 100, old.len() - 1] {
        let mut altered = old.clone();
        altered[at] ^= 1;
        let counted = Counted::new(&altered);
        let base = Base::new(&counted).unwrap().with_name("given");
        let e = restore(&delta, &[base], &DecompressOptions::default().with_threads(2)).unwrap_err();
        assert!(
            e.kind() == ErrorKind::Base && e.to_string().contains("the base \"given\" is another file"),
            "{at}: {e}"
        );
    }
}

/// A disk that is full.
struct Full;

impl WriteAt for Full {
    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

/// A file that is written to.
struct Written(Mutex<Vec<u8>>);

impl ReadAt for Written {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.lock().unwrap().read_exact_at(buf, offset)
    }
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
}

#[test]
fn after_a_failure_the_rest_of_a_base_is_not_read() {
    let (old, new) = pair(100);
    let delta = delta_of(&new, &[Base::new(&old[..]).unwrap()], &CompressOptions::default()).unwrap();
    let counted = Counted::new(&old);
    let base = Base::new(&counted).unwrap();
    counted.take();
    let mut d = Decompressor::new(&DecompressOptions::default().with_threads(1)).unwrap();
    let e = d.decompress(&delta[..], &[base], &Full).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io, "{e}");
    let read = counted.take();
    assert!(read < old.len() as u64, "{read}");
}

#[test]
fn what_a_failed_call_read_is_not_taken_for_what_is_there_now() {
    let (old, new) = pair(100);
    let delta = delta_of(&new, &[Base::new(&old[..]).unwrap()], &CompressOptions::default()).unwrap();
    let mut altered = old.clone();
    altered[1_000_000] ^= 1;
    let file = Written(Mutex::new(altered));
    let base = [Base::new(&file).unwrap()];
    let mut d = Decompressor::new(&DecompressOptions::default().with_threads(1)).unwrap();
    d.decompress(&delta[..], &base, &Full).unwrap_err();
    assert_eq!(restore(&delta, &base, &DecompressOptions::default()).unwrap_err().kind(), ErrorKind::Base);
    *file.0.lock().unwrap() = old;
    assert!(restore(&delta, &base, &DecompressOptions::default()).unwrap() == new);
}
