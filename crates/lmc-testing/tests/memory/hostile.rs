//! Small files that expand to as much as the format allows.

use crate::full_width::Zeros;
use crate::{MIB, alone, at_most, peak};
use lmc::{DecompressOptions, Decompressor, Reader, Sink, Source};
use lmc_inspect::describe_block;
use lmc_testing::{hostile, reference};
use std::io;

/// Most bytes that the reference decoder restores: a block of the largest size.
const LIMIT: usize = 1 << 24;

#[test]
fn hostile_files_take_little_memory() {
    let _alone = alone();
    let options = DecompressOptions::default().with_threads(1);
    for (name, file) in hostile::files() {
        assert!(file.len() < 1_000_000, "{name} has {} bytes", file.len());
        let mut decompressor = Decompressor::new(&options).unwrap();
        let (done, restoring) = peak(|| decompressor.decompress(&file[..], &[], &Zeros));
        done.unwrap();
        at_most(40 * MIB, restoring, &format!("{name}: restoring"));
        let (done, restoring) =
            peak(|| decompressor.decompress(Source::reader(&mut &file[..]), &[], Sink::writer(&mut io::sink())));
        done.unwrap();
        at_most(40 * MIB, restoring, &format!("{name}: restoring as a stream"));
        let (opened, opening) = peak(|| Reader::open(&file[..], &options).unwrap());
        at_most(40 * MIB, opening, &format!("{name}: opening"));
        let (_, listing) = peak(|| (opened.segments().len(), describe_block(&opened, 0).unwrap()));
        at_most(400 * MIB, listing, &format!("{name}: listing"));
        let (decoded, decoding) = peak(|| reference::decode(&file, LIMIT));
        assert_eq!(decoded.is_err(), name == "blocks", "{name}");
        at_most(400 * MIB, decoding, &format!("{name}: the reference decoder"));
    }
}
