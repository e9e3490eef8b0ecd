//! Blocks out and back, on every instruction set.

use super::by_leaf::BlockOutput;
use super::decode::BlockDecoder;
use super::encode::{BlockEncoder, RawBlock};
use super::output::Output;
use super::{Extent, Group, Nothing, Origin};
use crate::block::head::BlockHead;
use crate::block::stream::Cluster;
use crate::format::limits::MAX_COLUMNS;
use crate::format::record::{HEADER_LEN, RecordHeader};
use crate::settings::level::Level;
use lmc_kernels::entropy::rans::{COARSE_BITS, FINE_BITS};
use lmc_kernels::isa::Isa;
use lmc_layout::dtype::Dtype;

mod grid;
mod optimizer;
mod predicted;
mod pruned;
mod quantised;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// About normal, with `bits` of float64 kept after a cast to float32.
    fn normal(&mut self) -> f32 {
        let s: f64 = (0..12).map(|_| (self.next() >> 11) as f64 / (1u64 << 53) as f64).sum();
        (s - 6.0) as f32
    }
}

/// Encodes on every instruction set, checks that all agree, decodes on every one; returns the record.
fn round_trip(raw: &[u8], extents: &[Extent], level: Level) -> Vec<u8> {
    round_trip_from(raw, extents, &Nothing, level)
}

/// A round trip with predictions.
fn round_trip_from(raw: &[u8], extents: &[Extent], origin: &dyn Origin, level: Level) -> Vec<u8> {
    let mut first: Option<Vec<u8>> = None;
    for isa in Isa::available() {
        // Old contents of a buffer must not matter.
        let mut record = vec![0xa5; [0, 100, 2 * raw.len()][raw.len() % 3]];
        let mut out = Output::new(&mut record);
        let summary = BlockEncoder::new(isa, level).encode(&RawBlock::new(raw, extents), origin, &mut out).unwrap();
        out.finish();
        assert_eq!(summary.record_len as usize, record.len());
        let first = first.get_or_insert_with(|| record.clone());
        assert!(*first == record, "{} encodes other bytes", isa.name());
        let header = RecordHeader::parse(record[..HEADER_LEN].try_into().unwrap()).unwrap();
        let (head, body) = record[HEADER_LEN..].split_at(header.head_len as usize);
        header.verify(record[..HEADER_LEN].try_into().unwrap(), head).unwrap();
        let head = BlockHead::parse(head).unwrap();
        let mut back = vec![0xaa; raw.len()];
        let mut decoder = BlockDecoder::new(isa);
        for _ in 0..2 {
            decoder.decode(&head, body, origin, &mut back).unwrap_or_else(|e| panic!("{}: {e}", isa.name()));
            assert!(back == raw, "{} restores other bytes", isa.name());
            let written = written(&mut decoder, &head, body, origin).unwrap_or_else(|e| panic!("{}: {e}", isa.name()));
            assert!(written == raw, "{} writes other bytes", isa.name());
        }
    }
    let record = first.expect("portable is always there");
    assert!(record.len() <= BlockEncoder::bound(extents), "never above raw");
    record
}

/// Decodes a block as for a file: what is written, in order.
fn written(decoder: &mut BlockDecoder, head: &BlockHead, body: &[u8], origin: &dyn Origin) -> crate::Result<Vec<u8>> {
    let mut all: Vec<u8> = vec![];
    let mut write = |bytes: &[u8], at: usize| {
        assert_eq!(at, all.len(), "bytes are written in order");
        all.extend(bytes);
        Ok(())
    };
    let mut buf = vec![0x5a; 100];
    decoder.decode_to(head, body, origin, BlockOutput::Written { buf: &mut buf, write: &mut write })?;
    Ok(all)
}

/// A round trip at every level; returns the last record.
fn one(dtype: Option<Dtype>, raw: &[u8]) -> Vec<u8> {
    let mut last = Vec::new();
    for &level in Level::ALL {
        last = round_trip(raw, &[Extent::plain(dtype, raw.len())], level);
    }
    last
}

fn weights(n: usize, seed: u64) -> Vec<f32> {
    let mut r = Random(seed);
    (0..n).map(|i| r.normal() * [0.02, 0.005, 0.3][i / 1000 % 3]).collect()
}

fn bf16(x: f32) -> [u8; 2] {
    ((x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) >> 16).to_le_bytes()[..2].try_into().unwrap()
}

/// More kinds of extents than a block can have columns.
#[test]
fn extents_of_every_dtype() {
    let mut r = Random(5);
    let raw: Vec<u8> = (0..Dtype::ALL.len() * 4096).map(|_| r.next() as u8 & 0x37).collect();
    let extents: Vec<Extent> = Dtype::ALL.iter().map(|&dtype| Extent::plain(Some(dtype), 4096)).collect();
    let own: Vec<Extent> = extents.iter().enumerate().map(|(i, p)| Extent { group: Group::Segment(i), ..*p }).collect();
    for extents in [extents, own] {
        let record = round_trip(&raw, &extents, Level::Default);
        assert_eq!(head_of(&record).columns.len(), MAX_COLUMNS);
    }
}

#[test]
fn weights_of_every_length() {
    for n in [1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 4096, 100_000, 131_072, 250_001] {
        let w = weights(n, n as u64);
        let b: Vec<u8> = w.iter().flat_map(|&x| bf16(x)).collect();
        let f: Vec<u8> = w.iter().flat_map(|x| x.to_le_bytes()).collect();
        let d: Vec<u8> = w.iter().flat_map(|&x| f64::from(x).sqrt().to_le_bytes()).collect();
        let record = one(Some(Dtype::Bf16), &b);
        if n > 100_000 {
            assert!(record.len() * 100 < b.len() * 72, "{} of {}", record.len(), b.len());
        }
        one(Some(Dtype::F32), &f);
        one(Some(Dtype::F64), &d);
        one(None, &b);
        one(None, &f);
    }
}

#[test]
fn every_dtype_and_distribution() {
    let n = 50_000;
    let mut r = Random(3);
    let noise: Vec<u8> = (0..n).map(|_| r.next() as u8).collect();
    let mut distributions: Vec<Vec<u8>> = vec![
        vec![0; n],
        vec![0xff; n],
        noise.clone(),
        (0..n).map(|i| (i % 256) as u8).collect(),
        (0..n).map(|i| [1, 2, 3, 4, 5, 6, 7, 8][i % 8]).collect(),
        (0..n).map(|i| if i == n / 2 { 255 } else { 3 }).collect(),
        noise.iter().map(|&b| b.count_ones() as u8).collect(),
        noise.iter().map(|&b| b & 0x83).collect(),
        // Quiet in the first runs, which a sample may see, and noise in the others.
        noise.iter().enumerate().map(|(i, &b)| if i / 512 % 8 == 0 { 7 } else { b }).collect(),
        // Thin tails: many escapes.
        noise.chunks(2).flat_map(|c| [if c[0] < 250 { 64 } else { c[1] }; 2]).collect(),
    ];
    // All NaN payloads, both zeros, denormals, infinities of a 16-bit float.
    distributions.push((0..=u16::MAX).flat_map(|v| v.to_le_bytes()).collect());
    distributions.push((0..20_000u16).flat_map(|v| (v & 0x807f).to_le_bytes()).collect());
    for data in &distributions {
        for &dtype in Dtype::ALL {
            for len in [data.len(), data.len() / 8 * 8, 8 * 1024, 24, 8] {
                one(Some(dtype), &data[..len]);
            }
        }
        one(None, data);
        one(None, &data[..data.len() - 1]);
    }
}

#[test]
fn zero_bits_at_the_end_are_dropped() {
    let mut r = Random(11);
    let rows: Vec<u8> = (0..400)
        .flat_map(|row| {
            let mask = if row % 3 == 0 { !0x1fff } else { !0u32 };
            (0..384).map(|_| (r.normal().to_bits() & mask).to_le_bytes()).collect::<Vec<_>>().concat()
        })
        .collect();
    let record = one(Some(Dtype::F32), &rows);
    // 13 of 32 bits of a third of the rows.
    assert!(record.len() * 1000 < rows.len() * (860 - 125), "{} of {}", record.len(), rows.len());
}

fn head_of(record: &[u8]) -> BlockHead {
    let header = RecordHeader::parse(record[..HEADER_LEN].try_into().unwrap()).unwrap();
    BlockHead::parse(&record[HEADER_LEN..][..header.head_len as usize]).unwrap()
}

/// The clusters of the first column.
fn clusters(record: &[u8]) -> Vec<Cluster> {
    head_of(record).columns[0].method.streams().flat_map(|s| s.clusters.clone()).collect()
}

#[test]
fn each_level_is_smaller_than_the_one_before() {
    let w = weights(200_000, 7);
    let b: Vec<u8> = w.iter().flat_map(|&x| bf16(x)).collect();
    let f: Vec<u8> = w.iter().flat_map(|x| x.to_le_bytes()).collect();
    for (dtype, raw) in [(Dtype::Bf16, &b), (Dtype::F32, &f)] {
        let extents = [Extent::plain(Some(dtype), raw.len())];
        let records: Vec<Vec<u8>> = Level::ALL.iter().map(|&level| round_trip(raw, &extents, level)).collect();
        assert!(records.is_sorted_by(|a, b| a.len() > b.len()));
        let all = |i: usize, bits: u32| clusters(&records[i]).iter().all(|g| u32::from(g.coder.code()) == bits);
        assert!(all(1, COARSE_BITS) && all(2, FINE_BITS));
        assert!(clusters(&records[2]).iter().any(|g| g.raw_bits % 8 != 0), "symbols are longer");
    }
}

/// Where 128 slots cost much, level default uses finer tables, too.
#[test]
fn rare_exceptions_cost_little() {
    let mut r = Random(13);
    let n = 400_000;
    let raw: Vec<u8> = (0..n).map(|_| if r.next().is_multiple_of(40) { (r.next() % 7) as u8 } else { 9 }).collect();
    let extents = [Extent::plain(Some(Dtype::U8), n)];
    let record = round_trip(&raw, &extents, Level::Default);
    assert!(clusters(&record).iter().any(|g| u32::from(g.coder.code()) == FINE_BITS));
    // Entropy is 0.239 bits an element. In 128 slots the seven exceptions take one each, more than twice their share: 0.266 bits.
    assert!(record.len() * 8 < n * 256 / 1000, "{}", record.len());
}

#[test]
fn packs_of_several_dtypes() {
    let mut r = Random(5);
    let mut raw = Vec::new();
    let mut extents = Vec::new();
    for i in 0..300usize {
        let dtype = [Some(Dtype::Bf16), Some(Dtype::F32), None, Some(Dtype::I64), Some(Dtype::Bool)][i * i % 5];
        let n = 1 + (r.next() as usize) % 500;
        let bytes: Vec<u8> = match dtype {
            Some(Dtype::Bf16) => (0..n).flat_map(|_| bf16(r.normal())).collect(),
            Some(Dtype::F32) => (0..n).flat_map(|_| r.normal().to_le_bytes()).collect(),
            Some(Dtype::I64) => (0..n).flat_map(|i| (i as i64 - 9).to_le_bytes()).collect(),
            Some(_) => (0..n).map(|_| (r.next() & 1) as u8).collect(),
            None => (0..n).map(|i| b"{\"name\": 12}"[i % 12]).collect(),
        };
        extents.push(Extent::plain(dtype, bytes.len()));
        raw.extend(bytes);
    }
    // A typed extent that ends within an element is coded as bytes.
    extents.push(Extent::plain(Some(Dtype::F64), 13));
    raw.extend([9; 13]);
    for &level in Level::ALL {
        let record = round_trip(&raw, &extents, level);
        assert!(record.len() * 100 < raw.len() * 80, "{} of {}", record.len(), raw.len());
    }
}

#[test]
fn constants_cost_next_to_nothing() {
    for value in [0u32, 1, 0x3f80_0000, 0xbf80_0000, u32::MAX] {
        let raw: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), 250_000).flatten().collect();
        assert!(one(Some(Dtype::F32), &raw).len() < 250);
    }
}
