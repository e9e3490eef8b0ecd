//! The bodies of the fuzz targets. Each takes any bytes and panics when a promise is broken; the corpus under `fuzz/` is
//! replayed through them by the tests ([`corpus`]).

use crate::decoders::{LIMIT, Way, agree_by, agree_with_bases, isas, options as options_of, read_everything};
use crate::input::Input;
use crate::reference::{self, write};
use crate::snapshots::{Snapshots, snapshots};
use crate::{blocks, data, deltas, dequantised};
use lmc::layout::distcp::Metadata;
use lmc::layout::tensor_len;
use lmc::{Base, CompressOptions, Compressor, FORMAT_VERSION, Level, Reader, Segment, Sink, Source};
use lmc_kernels::isa::Isa;
use safetensors::SafeTensors;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::{fs, io};

/// The body of a fuzz target.
pub type Target = fn(&[u8]);

/// Every target with its name.
pub const TARGETS: [(&str, Target); 8] = [
    ("container", container),
    ("decode_vs_reference", decode_vs_reference),
    ("delta_roundtrip", delta_roundtrip),
    ("delta_vs_reference", delta_vs_reference),
    ("grids", grids),
    ("isas_agree", isas_agree),
    ("layout", layout),
    ("roundtrip", roundtrip),
];

/// The inputs of a fuzz target that are kept, with their names, in the order of these.
///
/// # Errors
/// Those of reading the archive, `fuzz/corpus/TARGET.tar`.
///
/// # Panics
/// When it is not one that `fuzz/pack` made.
pub fn corpus(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let archive = fs::read(folder.join(format!("{target}.tar")))?;
    let (mut rest, mut inputs) = (&archive[..], Vec::new());
    // A header of 512 bytes for each file, with its name and its size in octal; then its bytes, filled up to as many. Zeros follow.
    while rest[0] != 0 {
        let (header, bytes) = rest.split_at(512);
        let text = |field: &[u8]| String::from_utf8(field.split(|b| *b == 0).next()?.to_vec()).ok();
        let name = text(&header[..100]).expect("names are ASCII");
        let size = text(&header[124..136]).and_then(|size| usize::from_str_radix(&size, 8).ok()).expect("a size");
        inputs.push((name, bytes[..size].to_vec()));
        rest = &bytes[size.next_multiple_of(512)..];
    }
    Ok(inputs)
}

/// Any bytes as a file. The first byte says whether version, hash, checks and digests are made to fit, so that the code
/// behind them is reached.
pub fn container(bytes: &[u8]) {
    let Some((mode, file)) = container_file(bytes) else { return };
    if mode / 4 % 4 > 0 {
        let _ = agree_by(&one_more_than_slice(mode / 4 % 2), &file);
        return;
    }
    // The reader does not see all of the file, so it may accept one that is damaged elsewhere.
    let isa = fastest();
    let read = Way::Reader.decode(&file, isa);
    if let (Ok(raw), Ok(read)) = (reference::decode(&file, LIMIT), read) {
        assert!(raw == read);
        read_everything(&file, &raw, isa);
    }
}

/// The file that [`container`] decodes, and the first byte.
pub fn container_file(bytes: &[u8]) -> Option<(u8, Vec<u8>)> {
    let (&mode, file) = bytes.split_first()?;
    let mut file = file.to_vec();
    if mode % 4 > 0 {
        if let Some([version @ .., hash]) = file.get_mut(8..11) {
            version.copy_from_slice(&FORMAT_VERSION.to_le_bytes());
            *hash = reference::HASH;
        }
        write::seal(&mut file, mode % 4 > 1, LIMIT);
    }
    Some((mode, file))
}

/// A valid file made from the bytes, then damaged, with every check made to fit: all decoders agree with the reference.
pub fn decode_vs_reference(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (raw, file, damaged) = blocks::damaged(&mut input);
    let decoded = agree_by(&one_more_than_slice(input.u8()), &file);
    if !damaged {
        assert!(decoded.is_ok_and(|decoded| decoded == raw));
    }
}

/// A valid file that depends on bases and on itself, made from the bytes, then damaged, with every check made to fit: all
/// decoders agree with the reference.
pub fn delta_vs_reference(bytes: &[u8]) {
    let (delta, file, damaged) = deltas::damaged(&mut Input::new(bytes));
    let decoded = agree_with_bases(&file, &delta.bases());
    if let [base] = delta.bases()[..] {
        check_changes(&file, base, decoded.as_deref().ok());
    }
    if !damaged {
        assert!(decoded.is_ok_and(|decoded| decoded == delta.raw()));
    }
}

/// Snapshots of a model, and any level: every instruction set writes the same delta, whether bases are compressed or not; streams
/// write an independent file; estimates and comparisons give its size; every decoder restores it, also in place.
pub fn delta_roundtrip(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let level = Level::ALL[input.below(Level::ALL.len())];
    let Snapshots { bases: raw_bases, new, dtype } = snapshots(&mut input);
    let options = CompressOptions::default().with_level(level).with_threads(1).with_dtype(dtype);
    let base = |raw: &&'_ [u8]| Base::new(raw.to_vec()).expect("memory can be read");
    let slices: Vec<&[u8]> = raw_bases.iter().map(|raw| &raw[..]).collect();
    let bases: Vec<Base<'_>> = slices.iter().map(base).collect();
    let delta = |options, isa, bases: &[Base<'_>]| {
        with_compressor(options, isa, |compressor| {
            let mut file = Vec::new();
            compressor.compress(&new, bases, &mut file).expect("anything can be compressed");
            file
        })
    };
    let fastest = fastest();
    let mut files = Vec::new();
    for independent in [true, false] {
        let options = options.with_independent(independent);
        let file = delta(options, fastest, &bases);
        for &isa in isas().iter().filter(|isa| **isa != fastest) {
            assert!(file == delta(options, isa, &bases), "{} writes other bytes", isa.name());
        }
        files.push(file);
    }
    with_compressor(options, fastest, |compressor| {
        let mut other = Vec::new();
        let summary = compressor
            .compress(Source::reader(&mut &new[..]), &bases, Sink::writer(&mut other))
            .expect("memory can be read and written");
        // The header of a stream is written before it is known what blocks need.
        other[..16].copy_from_slice(&summary.header());
        assert!(files[0] == other, "a stream is not compressed as an independent file is");
        other.clear();
        let summary = compressor.compress(&new, &bases, Sink::writer(&mut other));
        other[..16].copy_from_slice(&summary.expect("memory can be read and written").header());
        assert!(files[1] == other, "positional reads are compressed to other bytes than a slice");
        let estimate = compressor.estimate(&new, &bases).expect("memory can be read");
        assert_eq!(estimate.compressed_size, other.len() as u64, "a small file is estimated as it is");
        if dtype.is_none() {
            let diff =
                lmc_inspect::diff(compressor, &base(&&new[..]), &bases, &mut |_| ()).expect("memory can be read");
            assert_eq!(diff.delta.compressed_size, other.len() as u64);
        }
    });
    let compressed: Vec<Vec<u8>> = slices
        .iter()
        .map(|raw| {
            with_compressor(options, fastest, |c| {
                let mut file = Vec::new();
                c.compress(raw, &[], &mut file).expect("anything can be compressed");
                file
            })
        })
        .collect();
    let open = |file| Base::lmc(Reader::open(file, &options_of(fastest)).expect("a valid file opens"));
    let lmc: Vec<Base<'_>> = compressed.iter().map(open).collect();
    if dtype.is_none() {
        assert!(files[1] == delta(options, fastest, &lmc), "compressed bases give other bytes");
    }
    for file in files {
        let overhead = 512 + new.len() / 64;
        assert!(file.len() <= new.len() + overhead, "{} bytes grow to {}", new.len(), file.len());
        let reader = Reader::open(&file, &options_of(fastest)).expect("a valid file opens");
        let named = |info: &lmc::BaseInfo| {
            let is_it = |raw: &&&[u8]| reference::content_hash(raw) == info.content_hash;
            *slices.iter().find(is_it).expect("a delta names bases that were given")
        };
        let named: Vec<&[u8]> = reader.bases().iter().map(named).collect();
        assert!(agree_with_bases(&file, &named).is_ok_and(|decoded| decoded == new), "the file is not restored");
        if let [base] = named[..] {
            check_changes(&file, base, Some(&new));
        }
    }
}

/// If a delta is a list of changes, and can be restored to `new`, these make it of the base.
fn check_changes(delta: &[u8], base: &[u8], new: Option<&[u8]>) {
    let changed = lmc::changed_elements(&delta, &base);
    let Some(new) = new else { return };
    let Some(changed) = changed.expect("the delta is whole") else { return };
    let mut made = base.to_vec();
    changed.apply(&mut made);
    assert!(made == new, "the listed changes make something else");
}

/// Any data, dtype and level: every instruction set writes the same bytes, and every decoder restores the data.
pub fn isas_agree(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let options = compress_options(&mut input);
    let raw = data::elements(&mut input, options.dtype);
    let mut first: Option<Vec<u8>> = None;
    for &isa in isas() {
        let file = with_compressor(options, isa, |compressor| {
            let mut file = Vec::new();
            compressor.compress(&raw, &[], &mut file).expect("anything can be compressed");
            file
        });
        let first = first.get_or_insert_with(|| file.clone());
        assert!(*first == file, "{} writes other bytes", isa.name());
    }
    let file = first.expect("there is a portable instruction set");
    assert!(agree_by(&[Way::Slice], &file).is_ok_and(|decoded| decoded == raw), "the data are not restored");
}

/// Dequantised weights, or nearly: every instruction set writes the same bytes, which are no more than without grids; level `max` writes no
/// more than `default`; and all decoders restore the data.
pub fn grids(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let level = Level::ALL[input.below(Level::ALL.len())];
    let raw = dequantised::safetensors(&mut input);
    let compress = |isa: Isa, level: Level| {
        let options = CompressOptions::default().with_level(level).with_threads(1);
        with_compressor(options, isa, |compressor| {
            let mut file = Vec::new();
            compressor.compress(&raw, &[], &mut file).expect("anything can be compressed");
            file
        })
    };
    let file = compress(fastest(), level);
    for &isa in isas() {
        assert!(file == compress(isa, level), "{} writes other bytes", isa.name());
    }
    let most = |len: usize| len + len / 1000 + 64;
    if level == Level::Max {
        let default = compress(fastest(), Level::Default).len();
        assert!(file.len() <= most(default), "{} bytes at level max, {default} at level default", file.len());
    }
    assert!(agree_by(&[Way::Slice], &file).is_ok_and(|decoded| decoded == raw), "the data are not restored");
}

/// Any bytes as a file of any format, or as the header of a safetensors file: segments cover the file, and tensors have
/// the bytes of their shapes. Files that the `safetensors` crate accepts have the layout that the crate finds. For one
/// input in twenty, everything is compressed, restored, and read in parts, too. As `.metadata` of a checkpoint, tensors
/// have the elements of their chunks.
pub fn layout(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    let raw = match mode % 3 {
        0 => bytes.to_vec(),
        1 => [&(bytes.len() as u64).to_le_bytes()[..], bytes, &vec![7; usize::from(mode / 3)]].concat(),
        _ => data::safetensors(&mut Input::new(bytes)),
    };
    if let Ok(metadata) = Metadata::parse(&raw) {
        is_made_of_chunks(&metadata);
    }
    if mode / 3 >= 4 {
        let base = Base::new(&raw[..]).expect("memory can be read");
        return is_laid_out(base.layout(), base.segments(), &raw);
    }
    let isa = fastest();
    let compress_options = CompressOptions::default().with_threads(1);
    let file = with_compressor(compress_options, isa, |compressor| {
        let mut file = Vec::new();
        compressor.compress(&raw, &[], &mut file).expect("anything can be compressed");
        file
    });
    let reader = read_everything(&file, &raw, isa);
    is_laid_out(reader.layout(), reader.segments(), &raw);
}

/// Fails if a tensor whose chunks are accepted has another number of elements than they have, or if one is in no file.
fn is_made_of_chunks(metadata: &Metadata) {
    let elements = |sizes: &[u64]| if sizes.contains(&0) { 0 } else { sizes.iter().map(|&n| u128::from(n)).product() };
    for tensor in &metadata.tensors {
        let files = tensor.chunks.iter().filter_map(|c| Some(c.place.as_ref()?.file));
        assert!(files.clone().all(|file| file < metadata.files.len()), "{:?} is in no file", tensor.name);
        if tensor.check().is_ok() {
            let stored = tensor.chunks.iter().map(|c| elements(&c.sizes)).sum::<u128>();
            assert_eq!(stored, elements(&tensor.shape), "the chunks of {:?} are not all of it", tensor.name);
        }
    }
}

/// The first bytes of files in these formats.
const MAGICS: [(&str, &[u8]); 3] = [("npy", b"\x93NUMPY"), ("gguf", b"GGUF"), ("onnx", b"\x08")];

/// Fails if the segments do not cover the bytes, if a tensor has other bytes than those of its shape, or if the `safetensors` crate
/// accepts the bytes but sees other tensors.
fn is_laid_out(layout: &str, segments: &[Segment], raw: &[u8]) {
    let end = segments.iter().fold(0, |end, segment| {
        assert_eq!(segment.offset, end, "segments leave no gap");
        segment.end()
    });
    assert_eq!(end, raw.len() as u64, "segments cover everything");
    for segment in segments {
        let len = segment.dtype.map_or(Some(segment.len), |dtype| tensor_len(dtype, &segment.shape));
        assert_eq!(len, Some(segment.len), "a tensor has the bytes of its shape");
        assert_eq!(segment.dtype.is_some(), segment.name.is_some(), "tensors have names, and opaque bytes none");
    }
    for view in lmc::layout::tensors(&raw, layout, segments, "").unwrap_or_default().found {
        assert_eq!(tensor_len(view.dtype, &view.shape), Some(view.len), "a tensor has the bytes of its shape");
        let end = view.elements.offset.checked_add(view.elements.len);
        assert!(end.is_some_and(|end| end <= raw.len() as u64), "the elements of a tensor are in the file");
    }
    if let Some((_, magic)) = MAGICS.iter().find(|(name, _)| *name == layout) {
        assert!(raw.starts_with(magic), "{layout} is not the format of the file");
    }
    let Ok(expected) = SafeTensors::deserialize(raw) else { return };
    assert_eq!(layout, "safetensors");
    let named: HashMap<&str, &Segment> = segments.iter().filter_map(|s| Some((&**s.name.as_ref()?, s))).collect();
    assert_eq!(named.len(), expected.len(), "the layout has other tensors");
    for (name, view) in expected.iter() {
        let segment = named[name];
        let shape: Vec<u64> = view.shape().iter().map(|&dimension| dimension as u64).collect();
        assert_eq!(segment.shape[..], shape);
        assert_eq!(segment.dtype.map(|dtype| dtype.to_string()), Some(view.dtype().to_string()));
        let bytes = &raw[segment.offset as usize..segment.end() as usize];
        assert!(bytes == view.data(), "a tensor has other bytes");
    }
}

/// Any data: the same bytes from slices and positional reads, and from streams if no tensor may be predicted from an earlier one,
/// which never grow much and are restored.
pub fn roundtrip(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut options = compress_options(&mut input);
    let raw = match input.below(3) {
        0 => {
            options = options.with_dtype(None);
            data::safetensors(&mut input)
        }
        _ => data::elements(&mut input, options.dtype),
    };
    let (isa, stream) = (fastest(), input.bool());
    // Streams are compressed so.
    let options = options.with_independent(stream);
    let way = Way::ALL[input.below(4)];
    let file = with_compressor(options, isa, |compressor| {
        let mut file = Vec::new();
        compressor.compress(&raw, &[], &mut file).expect("anything can be compressed");
        let mut other = Vec::new();
        let written = match stream {
            true => compressor.compress(Source::reader(&mut &raw[..]), &[], Sink::writer(&mut other)),
            false => compressor.compress(&raw, &[], Sink::writer(&mut other)),
        };
        let summary = written.expect("memory can be read and written");
        // The header of a stream is written before it is known what blocks need.
        other[..16].copy_from_slice(&summary.header());
        assert!(file == other, "a stream or positional reads are compressed to other bytes than a slice");
        file
    });
    let overhead = 512 + raw.len() / 64;
    assert!(file.len() <= raw.len() + overhead, "{} bytes grow to {}", raw.len(), file.len());
    assert!(way.decode(&file, isa).is_ok_and(|decoded| decoded == raw), "{way:?} does not restore the data");
    read_everything(&file, &raw, isa);
}

/// The portable instruction set is the first, so this is another one where there is one.
fn fastest() -> Isa {
    *isas().last().expect("there is a portable instruction set")
}

/// From a slice, which uses every instruction set, and one other way.
fn one_more_than_slice(choice: u8) -> [Way; 2] {
    [Way::Slice, Way::ALL[1 + usize::from(choice % 3)]]
}

/// Cached compressors: each keeps buffers of its largest input. More than the combinations of level, dtype and instruction set, so that
/// a target that varies nothing else makes each once.
const MOST_KEPT: usize = 256;

/// Runs `f` with a compressor that is kept for the next input: making one costs more than compressing some bytes.
fn with_compressor<T>(options: CompressOptions, isa: Isa, f: impl FnOnce(&mut Compressor) -> T) -> T {
    type Kept = (CompressOptions, Compressor);
    thread_local!(static COMPRESSORS: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) });
    let options = options.with_isa(isa);
    COMPRESSORS.with_borrow_mut(|kept| {
        let at = kept.iter().position(|(of, _)| *of == options).unwrap_or_else(|| {
            let compressor = Compressor::new(&options).expect("the options are valid");
            if kept.len() == MOST_KEPT {
                kept.remove(0);
            }
            kept.push((options, compressor));
            kept.len() - 1
        });
        f(&mut kept[at].1)
    })
}

fn compress_options(input: &mut Input<'_>) -> CompressOptions {
    CompressOptions::default()
        .with_level(Level::ALL[input.below(Level::ALL.len())])
        .with_dtype(data::dtype(input))
        .with_threads(1)
}
