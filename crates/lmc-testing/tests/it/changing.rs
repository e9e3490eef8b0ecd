//! Files and bases that another program writes to while they are compressed.

use std::io;
use std::sync::Mutex;

use crate::support::snapshots::{bf16, f32s, trained};
use crate::support::{decompress_options, restore, safetensors, set_header, weights};
use lmc::{Base, CompressOptions, Compressor, ErrorKind, ReadAt, Sink};
use lmc_testing::input::Random;

/// A file that changes after every reading.
struct Changing {
    state: Mutex<State>,
    len: u64,
    /// How many times it is read before anything changes, how many bytes change each time, and how many in all.
    after: usize,
    bytes: usize,
    most: usize,
}

struct State {
    file: Vec<u8>,
    /// For each byte, all values that it had.
    had: Vec<(usize, u8)>,
    reads: usize,
    random: Random,
}

impl Changing {
    fn new(file: &[u8], after: usize, bytes: usize, seed: u64) -> Self {
        let state = State { file: file.to_vec(), had: vec![], reads: 0, random: Random::new(seed) };
        Self { state: Mutex::new(state), len: file.len() as u64, after, bytes, most: usize::MAX }
    }

    /// Whether each byte of `restored` had its value at some time, given the original contents.
    fn had(&self, first: &[u8], restored: &[u8]) -> bool {
        let mut had = self.state.lock().unwrap().had.clone();
        had.sort_unstable();
        let differ = (0..first.len()).filter(|&i| first[i] != restored[i]);
        first.len() == restored.len() && differ.into_iter().all(|i| had.binary_search(&(i, restored[i])).is_ok())
    }
}

impl ReadAt for Changing {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let state = &mut *self.state.lock().unwrap();
        state.file.read_exact_at(buf, offset)?;
        state.reads += 1;
        if state.reads > self.after && state.had.len() < self.most {
            for _ in 0..self.bytes {
                // Not the header, which would be another file's.
                let at = 4096 + state.random.below(self.len - 4096) as usize;
                state.file[at] = state.file[at].wrapping_add(1);
                state.had.push((at, state.file[at]));
            }
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}

/// Masters, their rounding, a copy of them, many small tensors and their copies in another order: all predicted from the first ones.
fn related() -> Vec<u8> {
    let master = weights(900_000, 1);
    let (wide, half) = (f32s(&master), bf16(&master));
    let small: Vec<Vec<u8>> = (0..40).map(|i| f32s(&weights(5000 + 8 * i, 100 + i as u64))).collect();
    let n = master.len() as u64;
    let mut tensors = vec![("master".to_owned(), "F32", vec![n], &wide[..])];
    tensors.extend(small.iter().enumerate().map(|(i, s)| (format!("a{i}"), "F32", vec![s.len() as u64 / 4], &s[..])));
    tensors.push(("half".to_owned(), "BF16", vec![n], &half));
    tensors.extend((0..small.len()).map(|i| (i * 7) % small.len()).map(|i| {
        let s = &small[i];
        (format!("b{i}"), "F32", vec![s.len() as u64 / 4], &s[..])
    }));
    tensors.push(("copy".to_owned(), "F32", vec![n], &wide));
    let list: Vec<_> =
        tensors.iter().map(|(name, dtype, shape, data)| (&name[..], *dtype, shape.clone(), *data)).collect();
    safetensors(&list)
}

/// The results of compressing a file, in each way that reads it out of order.
fn every_way(raw: &dyn Fn() -> Changing, bases: &[Base<'_>], check: impl Fn(&Changing, lmc::Result<Vec<u8>>)) {
    for threads in [1, 2, 5] {
        let o = CompressOptions::default().with_threads(threads);
        let mut c = Compressor::new(&o).unwrap();
        let (mut out, source) = (vec![], raw());
        let done = c.compress(&source, bases, Sink::writer(&mut out));
        check(
            &source,
            done.map(|summary| {
                set_header(&mut out, &summary);
                out
            }),
        );
        let (mut out, source) = (vec![], raw());
        let done = c.compress(&source, bases, &mut out);
        check(&source, done.map(|_| out));
        let source = raw();
        let mut out = vec![0; lmc::compress_bound(source.len) as usize];
        let done = c.compress(&source, bases, &mut out[..]);
        check(&source, done.map(|s| out[..s.compressed_size as usize].to_vec()));
    }
}

#[test]
fn a_file_that_changes_is_stored_as_it_was_read() {
    let raw = related();
    let still = lmc::compress(&raw, &CompressOptions::default()).unwrap();
    for (bytes, seed) in [(0, 0), (1, 1), (5, 2), (1000, 3)] {
        every_way(&|| Changing::new(&raw, 0, bytes, seed), &[], |source, file| {
            let file = file.expect("it can be read");
            let restored = lmc::decompress(&file, &decompress_options(2)).expect("a finished file can be restored");
            assert!(source.had(&raw, &restored), "{bytes} bytes a time");
            if bytes == 0 {
                assert!(file == still, "nothing changed");
            }
        });
    }
}

#[test]
fn what_did_not_change_is_still_predicted() {
    let raw = related();
    let still = lmc::compress(&raw, &CompressOptions::default()).unwrap().len();
    every_way(&|| Changing { most: 3, ..Changing::new(&raw, 0, 1, 9) }, &[], |_, file| {
        let len = file.expect("it can be read").len();
        assert!(len < still + still / 2, "{len} {still}");
    });
}

#[test]
fn a_base_that_changes_after_it_was_hashed_is_noticed() {
    let old = weights(900_000, 1);
    let new = f32s(&trained(&old, 2, 0.001));
    let file = |data: &[u8]| safetensors(&[("w", "F32", vec![900_000], data)]);
    let (old, new) = (file(&f32s(&old)), file(&new));
    // Number of readings for layout and hash.
    let read = Changing::new(&old, 0, 0, 0);
    let hash = Base::new(&read).unwrap().content_hash(1).unwrap();
    let reads = read.state.lock().unwrap().reads;
    assert_eq!(hash, Base::new(&old[..]).unwrap().content_hash(1).unwrap());
    for threads in [1, 2] {
        let o = CompressOptions::default().with_threads(threads);
        let mut c = Compressor::new(&o).unwrap();
        let delta = |after, bytes| {
            let base = Changing::new(&old, after, bytes, 4);
            let mut out = vec![];
            let bases = [Base::new(&base).unwrap().with_name("old")];
            // Hashed before anything changes, however many samples are read by then.
            bases[0].content_hash(1).unwrap();
            c.compress(&new[..], &bases, Sink::writer(&mut out)).map(|_| out)
        };
        let mut delta = delta;
        let e = delta(reads, 100).expect_err("the base that the delta names has changed");
        assert_eq!(e.kind(), ErrorKind::Base);
        assert!(e.to_string().contains("the base \"old\" changed while it was read"), "{e}");
        let file = delta(usize::MAX, 0).expect("nothing changed");
        let bases = [Base::new(&old[..]).unwrap()];
        assert!(restore(&file, &bases, &decompress_options(1)).unwrap() == new);
    }
}
