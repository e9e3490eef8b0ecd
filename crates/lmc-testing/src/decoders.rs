//! Every way to decode a file, compared with the reference decoder.

use crate::reference;
use lmc::{Base, DecompressOptions, Decompressor, Reader, Result, WriteAt};
use lmc::{DecodeLimits, Sink, Source};
use lmc_inspect::{ColumnDescription, describe_block};
use lmc_kernels::isa::Isa;
use std::cell::RefCell;
use std::io;
use std::sync::{LazyLock, Mutex};

/// Raw size above which files are refused here: decoders must not allocate the sizes that a hostile file claims.
pub const LIMIT: usize = 5 << 20;

/// The instruction sets of this machine.
///
/// # Panics
/// When the environment variable `LMC_REQUIRE_ISA` (names with commas between) has one that is missing, so that a test
/// cannot pass for lack of the machine.
pub fn isas() -> &'static [Isa] {
    static ISAS: LazyLock<Vec<Isa>> = LazyLock::new(|| {
        let available = Isa::available();
        let required = std::env::var("LMC_REQUIRE_ISA").unwrap_or_default();
        for name in required.split(',').filter(|name| !name.is_empty()) {
            assert!(available.iter().any(|isa| isa.name() == name), "LMC_REQUIRE_ISA: this machine has no {name}");
        }
        available
    });
    &ISAS
}

/// Options with the limit of this module and one thread.
pub fn options(isa: Isa) -> DecompressOptions {
    let limits = DecodeLimits::default().with_max_raw_size(LIMIT as u64).with_max_index_size(LIMIT);
    DecompressOptions::default().with_isa(isa).with_threads(1).with_limits(limits)
}

/// A way from a file to its raw bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a slice to a slice.
    Slice,
    /// From a stream to a stream.
    Stream,
    /// From a positional source to a positional sink that can be read back.
    Positional,
    /// To a positional sink that cannot be read back, so that blocks named by ranges are decoded again.
    WriteOnly,
    /// [`Reader::read_range`] over everything.
    Reader,
}

impl Way {
    /// Every way that differs for a file whose blocks name no ranges. All but the reader check the whole file.
    pub const ALL: [Way; 4] = [Way::Slice, Way::Stream, Way::Positional, Way::Reader];

    /// Every way to restore a delta.
    pub const OF_DELTAS: [Way; 5] = [Way::Slice, Way::Stream, Way::Positional, Way::WriteOnly, Way::Reader];

    /// Decodes a file this way.
    ///
    /// # Errors
    /// Those of the decoder.
    pub fn decode(self, file: &[u8], isa: Isa) -> Result<Vec<u8>> {
        self.decode_delta(file, &[], isa)
    }

    /// Decodes a file with these bases this way.
    ///
    /// # Errors
    /// Those of the decoder.
    pub fn decode_delta(self, file: &[u8], bases: &[Base<'_>], isa: Isa) -> Result<Vec<u8>> {
        thread_local!(static DECOMPRESSORS: RefCell<Vec<(Isa, Decompressor)>> = const { RefCell::new(Vec::new()) });
        DECOMPRESSORS.with_borrow_mut(|decompressors| {
            let at = match decompressors.iter().position(|&(of, _)| of == isa) {
                Some(at) => at,
                None => {
                    decompressors.push((isa, Decompressor::new(&options(isa))?));
                    decompressors.len() - 1
                }
            };
            self.decode_by(file, bases, &options(isa), &mut decompressors[at].1)
        })
    }

    /// [`Self::decode_delta`] with these options, which are the decompressor's.
    ///
    /// # Errors
    /// Those of the decoder.
    pub fn decode_by(
        self,
        file: &[u8],
        bases: &[Base<'_>],
        options: &DecompressOptions,
        decompressor: &mut Decompressor,
    ) -> Result<Vec<u8>> {
        match self {
            Way::Slice => {
                let raw_size = Decompressor::raw_size(file)?;
                // A larger file must be refused with any buffer.
                let mut raw = vec![0; raw_size.min(LIMIT as u64) as usize];
                decompressor.decompress(file, bases, &mut raw[..])?;
                Ok(raw)
            }
            Way::Stream => {
                let mut raw = Vec::new();
                decompressor.decompress(Source::reader(&mut &*file), bases, Sink::writer(&mut raw))?;
                Ok(raw)
            }
            Way::Positional | Way::WriteOnly => {
                let raw = Memory { bytes: Mutex::default(), readable: self == Way::Positional };
                decompressor.decompress(file, bases, &raw)?;
                Ok(raw.bytes.into_inner().expect("no writer panicked"))
            }
            Way::Reader => {
                let reader = Reader::open(file, options)?.with_bases(bases.to_vec())?;
                let mut raw = vec![0; reader.raw_size() as usize];
                reader.read_range(0, &mut raw)?;
                Ok(raw)
            }
        }
    }
}

/// A destination in memory.
struct Memory {
    bytes: Mutex<Vec<u8>>,
    /// Whether it can be read back.
    readable: bool,
}

impl WriteAt for Memory {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.lock().expect("no writer panicked");
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + buf.len();
        assert!(end <= LIMIT, "a write beyond the limit");
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(buf);
        Ok(())
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if !self.readable {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let bytes = self.bytes.lock().expect("no writer panicked");
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        buf.copy_from_slice(&bytes[start..start + buf.len()]);
        Ok(())
    }
}

/// Decodes a file on every instruction set, in every way, and with the reference.
///
/// # Errors
/// What the reference says, when all refuse the file.
///
/// # Panics
/// When they do not agree.
#[track_caller]
pub fn agree(file: &[u8]) -> Result<Vec<u8>, String> {
    agree_by(&Way::ALL, file)
}

/// [`agree`] without the ways that are left out.
///
/// # Errors
/// What the reference says, when all refuse the file.
///
/// # Panics
/// When they do not agree.
#[track_caller]
pub fn agree_by(ways: &[Way], file: &[u8]) -> Result<Vec<u8>, String> {
    agree_by_with_bases(ways, file, &[])
}

/// [`agree`] for a file whose blocks may name ranges of these bases or of the file itself.
///
/// # Errors
/// What the reference says, when all refuse the file.
///
/// # Panics
/// When the decoders do not agree.
#[track_caller]
pub fn agree_with_bases(file: &[u8], bases: &[&[u8]]) -> Result<Vec<u8>, String> {
    agree_by_with_bases(&Way::OF_DELTAS, file, bases)
}

/// [`agree_with_bases`] without the ways that are left out.
///
/// # Errors
/// What the reference says, when all refuse the file.
///
/// # Panics
/// When the decoders do not agree.
#[track_caller]
pub fn agree_by_with_bases(ways: &[Way], file: &[u8], bases: &[&[u8]]) -> Result<Vec<u8>, String> {
    let expected = reference::decode_with_bases(file, bases, LIMIT);
    // The reference reads from front to back; only decoders that do so, too, refuse what the header has and no block needs.
    let has_unknown_features = file.get(12..16).is_some_and(|features| features != [features[0] & 31, 0, 0, 0]);
    let ways = if has_unknown_features { &[Way::Stream][..] } else { ways };
    let bases: Vec<Base<'_>> = bases.iter().map(|raw| Base::new(*raw).expect("memory can be read")).collect();
    let isas = isas();
    for &isa in isas {
        for way in ways {
            // The ways differ in how they find the blocks, not in how they decode them.
            if *way != Way::Slice && Some(&isa) != isas.last() {
                continue;
            }
            match (&expected, way.decode_delta(file, &bases, isa)) {
                (Ok(raw), Ok(got)) => assert!(*raw == got, "{way:?} on {} gives other bytes", isa.name()),
                (Err(_), Err(_)) => (),
                (Ok(_), Err(e)) => panic!("{way:?} on {} refuses a valid file: {e}", isa.name()),
                (Err(e), Ok(_)) => panic!("{way:?} on {} accepts a file, but {e}", isa.name()),
            }
        }
    }
    expected
}

/// Uses everything else that a [`Reader`] offers, compares it with the raw bytes, and returns the reader.
///
/// Segments with a name are read as tensors, the others as ranges: each read decodes its block anew, so none is read twice.
///
/// # Panics
/// If any reading fails or differs from `raw`.
pub fn read_everything<'a>(file: &'a [u8], raw: &[u8], isa: Isa) -> Reader<'a, &'a [u8]> {
    let reader = Reader::open(file, &options(isa)).expect("a valid file opens");
    assert_eq!(reader.raw_size(), raw.len() as u64);
    let mut end = 0;
    for segment in reader.segments() {
        assert_eq!(segment.offset, end, "segments leave no gap");
        end += segment.len;
        let bytes = &raw[segment.offset as usize..end as usize];
        let name = segment.name.as_ref().filter(|name| reader.tensor(name) == Some(segment));
        if let Some(name) = name {
            assert!(reader.read_tensor(name).expect("a tensor can be read") == bytes);
            if let Some(&rows) = segment.shape.first()
                && rows > 0
                && segment.len.is_multiple_of(rows)
            {
                let row = bytes.len() / rows as usize;
                let (from, to) = (rows / 3, rows - rows / 4);
                let read = reader.read_rows(name, from..to).expect("rows can be read");
                assert!(read == bytes[from as usize * row..to as usize * row]);
            }
        } else {
            let mut read = vec![0; bytes.len()];
            reader.read_range(segment.offset, &mut read).expect("a segment can be read");
            assert!(read == bytes);
        }
    }
    // A range that begins and ends within segments.
    let (from, to) = (raw.len() / 3, raw.len() - raw.len() / 4);
    let mut read = vec![0; to - from];
    reader.read_range(from as u64, &mut read).expect("a range can be read");
    assert!(read == raw[from..to]);
    assert_eq!(end, raw.len() as u64, "segments cover everything");
    let mut covered = 0;
    for (i, block) in reader.blocks().enumerate() {
        assert_eq!(block.raw_offset, covered);
        covered += block.raw_len;
        let description = describe_block(&reader, i as u64).expect("a block can be described");
        let sum = |of: fn(&ColumnDescription) -> u64| description.columns.iter().map(of).sum::<u64>();
        assert_eq!(
            (sum(|p| p.raw_len), sum(|p| p.coded_len)),
            (block.raw_len, block.record_len),
            "columns are the block"
        );
    }
    assert_eq!(covered, raw.len() as u64);
    assert!(reader.read_range(raw.len() as u64, &mut [0]).is_err(), "there is nothing to read beyond the end");
    reader
}
