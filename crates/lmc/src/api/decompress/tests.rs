//! Files whose blocks depend on earlier ones, in every way to restore them.

use std::sync::Mutex;

use super::*;
use crate::api::decoder::Decoder;
use crate::api::reader::Reader;
use crate::block::encode::{BlockEncoder, RawBlock};
use crate::block::output::Output;
use crate::block::{Extent, Reference};
use crate::file::origin::{ReferenceResolver, SelfSource};
use crate::file::writer::Writer;
use crate::format::bases::Sources;
use crate::format::checksum::LEAF;
use crate::format::header::Features;
use crate::settings::level::Level;
use lmc_kernels::isa::Isa;
use lmc_kernels::predict::Conversion;
use lmc_layout::Layout;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::ErrorKind;
use lmc_layout::io::WriteAt;
use lmc_layout::segment::Segment;

/// The raw bytes of a file that is being written.
struct Raw<'a>(&'a [u8]);

impl SelfSource for Raw<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.copy_from_slice(&self.0[offset as usize..][..buf.len()]);
        Ok(())
    }
}

/// Dtype and length of a block, and where in the file its elements are expected.
type Block = (Dtype, usize, Option<(u64, Conversion)>);

/// A file of `raw` in blocks of an extent each.
fn file(raw: &[u8], own: bool, blocks: &[Block]) -> Vec<u8> {
    let blocks: Vec<(Dtype, Vec<Extent>)> = blocks
        .iter()
        .map(|&(dtype, len, reference)| {
            let base = reference.map(|(offset, conversion)| Reference { source: 0, offset, conversion });
            (dtype, vec![Extent { base, ..Extent::plain(Some(dtype), len) }])
        })
        .collect();
    file_of_extents(raw, own, &blocks)
}

/// A file of `raw` in blocks of these extents, each block a tensor.
fn file_of_extents(raw: &[u8], own: bool, blocks: &[(Dtype, Vec<Extent>)]) -> Vec<u8> {
    let features = Features { ranges: own, own, grids: true, optimizer: true, ..Features::default() };
    let sources = Sources { features, bases: vec![] };
    let (mut writer, start) = Writer::start(&sources, "test".into()).unwrap();
    let mut bytes = vec![];
    let mut out = Output::new(&mut bytes);
    out.extend(&start);
    let mut encoder = BlockEncoder::new(Isa::PORTABLE, Level::Default);
    let own = Raw(raw);
    let origin = ReferenceResolver::new(vec![], &[], &own);
    let mut segments = vec![];
    let mut at = 0;
    for (dtype, extents) in blocks {
        let len: usize = extents.iter().map(|p| p.len).sum();
        writer.block(&encoder.encode(&RawBlock::new(&raw[at..at + len], extents), &origin, &mut out).unwrap());
        let shape = [(len / dtype.coding_width()) as u64].into();
        let name = (*format!("t{}", segments.len())).into();
        segments.push(Segment::tensor(name, *dtype, shape, at as u64, len as u64));
        at += len;
    }
    let (end, _) = writer.finish(&Layout::new("test", segments, Default::default()), encoder.frames()).unwrap();
    out.extend(&end);
    out.finish();
    bytes
}

/// Stores the bytes written, and returns them if it may.
struct Memory {
    bytes: Mutex<Vec<u8>>,
    gives: bool,
}

impl WriteAt for Memory {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> std::io::Result<()> {
        let mut bytes = self.bytes.lock().unwrap();
        let end = offset as usize + buf.len();
        let len = bytes.len().max(end);
        bytes.resize(len, 0xee);
        bytes[offset as usize..end].copy_from_slice(buf);
        Ok(())
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        if !self.gives {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        self.bytes.lock().unwrap().read_exact_at(buf, offset)
    }
}

/// The results of every way.
fn all_ways(file: &[u8], threads: usize) -> Vec<Result<Vec<u8>>> {
    let o = DecompressOptions { threads, ..Default::default() };
    let mut d = Decompressor::new(&o).unwrap();
    let mut all = vec![decompress(file, &o)];
    let mut streamed = vec![];
    all.push(d.decompress(Source::reader(&mut &*file), &[], Sink::writer(&mut streamed)).map(|_| streamed));
    let mut read = vec![];
    let decoded = Decoder::new(file, &o).map_err(Into::into).and_then(|mut d| d.read_to_end(&mut read));
    all.push(decoded.map(|_| read).map_err(|e| e.downcast::<Error>().unwrap()));
    for gives in [true, false] {
        let to = Memory { bytes: Mutex::default(), gives };
        all.push(d.decompress(file, &[], &to).map(|_| to.bytes.into_inner().unwrap()));
    }
    let reader = match Reader::open(file, &o) {
        Ok(reader) => reader,
        Err(e) => {
            all.push(Err(e));
            return all;
        }
    };
    let mut raw = vec![0; reader.raw_size() as usize];
    all.push(reader.read_range(0, &mut raw).map(|()| raw.clone()));
    let step = 1000 + raw.len() / 1000;
    let read = (0..raw.len().div_ceil(step)).try_for_each(|i| {
        let range = i * step..raw.len().min((i + 1) * step);
        reader.read_exact_at(&mut raw[range.clone()], range.start as u64)
    });
    all.push(read.map(|()| raw).map_err(|e| e.downcast::<Error>().unwrap()));
    all
}

#[track_caller]
fn restores(file: &[u8], raw: &[u8]) {
    for threads in [1, 2, 5] {
        for (way, got) in all_ways(file, threads).into_iter().enumerate() {
            assert!(got.unwrap_or_else(|e| panic!("way {way}: {e}")) == raw, "way {way}, {threads} threads");
        }
    }
}

#[track_caller]
fn refuses(file: &[u8], why: &str) {
    for threads in [1, 2, 5] {
        for (way, got) in all_ways(file, threads).into_iter().enumerate() {
            let Err(e) = got else { panic!("way {way} accepts what breaks a rule: {why}") };
            assert!(e.to_string().contains(why), "way {way}, {threads} threads: {e}");
            assert!(matches!(e.kind(), ErrorKind::Damaged), "way {way}: {e:?}");
        }
    }
}

fn noise(n: usize, seed: u32) -> Vec<u8> {
    let f = |i: u32| ((i ^ seed).wrapping_mul(2_654_435_761).rotate_left(i % 7) as f32) * 1e-9 - 1.0;
    (0..n as u32).flat_map(|i| f(i).to_le_bytes()).collect()
}

/// Blocks that differ little, each expected to be the one before it.
fn chain(n: usize) -> (Vec<u8>, Vec<u8>) {
    let block = noise(LEAF / 4, 1);
    let len = block.len();
    let mut raw = block.repeat(n);
    for (i, element) in raw.chunks_exact_mut(4).enumerate() {
        element[0] ^= ((i as u32).wrapping_mul(2_654_435_761) >> 28) as u8;
    }
    let blocks: Vec<_> =
        (0..n).map(|i| (Dtype::F32, len, i.checked_sub(1).map(|i| ((i * len) as u64, Conversion::None)))).collect();
    (file(&raw, true, &blocks), raw)
}

#[test]
fn blocks_are_predicted_from_earlier_ones() {
    use Conversion::{NarrowBf16, None as Same, WidenBf16};
    let (a, b) = (noise(6 * LEAF / 4, 1), noise(2 * LEAF / 4, 5));
    let half = |f: &[u8]| -> Vec<u8> {
        let mut to = vec![];
        lmc_kernels::predict::convert(NarrowBf16, f, &mut to);
        to
    };
    let (a16, b16) = (half(&a), half(&b));
    // The third depends on two blocks, the fourth on parts of two, the last on the fifth, which depends on the second.
    let raw = [&a[..], &b, &a16, &b16, &a[2 * LEAF..], &b, &b16].concat();
    let (n, m) = (a.len(), b.len());
    let at = |i: usize| i as u64;
    let blocks = [
        (Dtype::F32, n / 2, None),
        (Dtype::F32, n / 2, None),
        (Dtype::F32, m, None),
        (Dtype::Bf16, n / 2, Some((0, NarrowBf16))),
        (Dtype::Bf16, m / 2, Some((at(n), NarrowBf16))),
        (Dtype::F32, n - 2 * LEAF, Some((at(2 * LEAF), Same))),
        (Dtype::F32, m, Some((at(n + m + n / 2), WidenBf16))),
        (Dtype::Bf16, m / 2, Some((at(n + m + n / 2), Same))),
    ];
    let bytes = file(&raw, true, &blocks);
    assert!(bytes.len() < (n + m) * 9 / 8, "{} bytes", bytes.len());
    restores(&bytes, &raw);
}

#[test]
fn a_chain_of_blocks_ends() {
    let (bytes, raw) = chain(9);
    restores(&bytes, &raw);
    let (bytes, _) = chain(10);
    refuses(&bytes, "depth of a block exceeds 8");
    let (bytes, _) = chain(40);
    refuses(&bytes, "depth of a block exceeds 8");
}

#[test]
fn the_error_of_a_block_comes_before_those_that_depend_on_it() {
    let (bytes, _) = chain(9);
    let opened = Opened::open(&bytes, &Default::default()).unwrap();
    for block in [0, 3] {
        let b = opened.block(block);
        let mut bad = bytes.clone();
        bad[(b.record_offset + b.record_len) as usize - 1] ^= 0x40;
        for threads in [1, 2, 5] {
            for (way, got) in all_ways(&bad, threads).into_iter().enumerate() {
                let e = got.unwrap_err();
                assert_eq!((e.kind(), e.block()), (ErrorKind::Damaged, Some(block as u64)), "way {way}: {e}");
                assert!(!e.to_string().contains("predicted from"), "its own body was altered: way {way}: {e}");
            }
        }
    }
}

#[test]
fn the_header_must_announce_ranges() {
    let raw = noise(LEAF / 4, 1).repeat(2);
    let blocks = [(Dtype::F32, LEAF, None), (Dtype::F32, LEAF, Some((0, Conversion::None)))];
    let good = file(&raw, true, &blocks);
    restores(&good, &raw);
    for features in [0, 1] {
        let mut bad = good.clone();
        bad[12] = features;
        // Whichever comes first: a block of a stream, or the index.
        refuses(&bad, "feature");
    }
    // A block that is expected to be itself.
    let late = [(Dtype::F32, LEAF, None), (Dtype::F32, LEAF, Some((LEAF as u64, Conversion::None)))];
    refuses(&file(&raw, true, &late), "but the block starts at byte");
}

/// Together they would count as more than the 4 GiB that may be decoded for one block.
#[test]
fn a_block_is_decoded_once_for_all_that_depend_on_it() {
    let (len, n) = (512, 17_000);
    let small: Vec<u8> = (0..len / 2).flat_map(|i| (0x3c00 + 37 * i as u16).to_le_bytes()).collect();
    let raw = small.repeat(LEAF / len + n);
    let base = Some(Reference { source: 0, offset: 0, conversion: Conversion::None });
    let copies = vec![Extent { base, ..Extent::plain(Some(Dtype::Bf16), len) }; n];
    let first = vec![Extent::plain(Some(Dtype::Bf16), LEAF)];
    let file = file_of_extents(&raw, true, &[(Dtype::Bf16, first), (Dtype::Bf16, copies)]);
    assert!(file.len() < raw.len() / 20, "{} bytes", file.len());
    restores(&file, &raw);
}
