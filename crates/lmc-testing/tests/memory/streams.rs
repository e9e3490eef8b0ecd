//! Encoders and decoders of files larger than the memory that they may allocate.

use crate::{MIB, alone, at_most, peak};
use lmc::{CompressOptions, Decoder, DecompressOptions, Encoder};
use std::io::{self, Write};

const FILE: usize = 192 * MIB;

#[test]
fn of_a_stream_little_is_kept() {
    let _alone = alone();
    // Bytes that differ, so that blocks are of the usual size.
    let column: Vec<u8> = (0..MIB as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for threads in [1, 2] {
        let bound = 24 * MIB + threads * 28 * MIB;
        let o = CompressOptions::default().with_threads(threads);
        let mut file = Vec::with_capacity(FILE + FILE / 8);
        let (done, compressing) = peak(|| {
            let mut encoder = Encoder::new(&mut file, &o)?;
            (0..FILE / MIB).for_each(|_| encoder.write_all(&column).expect("a vector takes all"));
            encoder.finish().map(drop)
        });
        done.unwrap();
        at_most(bound, compressing, "an encoder");
        let o = DecompressOptions::default().with_threads(threads);
        let (read, restoring) = peak(|| io::copy(&mut Decoder::new(&file[..], &o).unwrap(), &mut io::sink()));
        assert_eq!(read.unwrap(), FILE as u64);
        at_most(bound, restoring, "a decoder");
    }
}
