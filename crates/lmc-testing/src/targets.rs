//! The bodies of the fuzz targets. Each takes any bytes and panics when a promise is broken; the corpus under `fuzz/` is
//! replayed through them by the tests.

use crate::decoders::{LIMIT, Way, agree_by, agree_with_bases, isas, read_everything};
use crate::input::Input;
use crate::{blocks, data, deltas};
use lmc::reference::{self, write};
use lmc::{CompressOptions, Compressor, Dtype, Isa, Level};
use safetensors::SafeTensors;
use std::cell::RefCell;

/// The body of a fuzz target.
pub type Target = fn(&[u8]);

/// Every target with its name.
pub const TARGETS: [(&str, Target); 6] = [
    ("container", container),
    ("decode_vs_reference", decode_vs_reference),
    ("delta_vs_reference", delta_vs_reference),
    ("isas_agree", isas_agree),
    ("layout", layout),
    ("roundtrip", roundtrip),
];

/// Any bytes as a file. The first byte says whether checks and digests are made to fit, so that what is behind them is
/// reached.
pub fn container(bytes: &[u8]) {
    let Some((mode, file)) = bytes.split_first() else { return };
    let mut file = file.to_vec();
    if mode % 4 > 0 {
        write::seal(&mut file, mode % 4 > 1, LIMIT);
    }
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

/// A valid file made from the bytes, then damaged, with every check made to fit: all decoders agree with the reference.
pub fn decode_vs_reference(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mutations = input.below(4);
    let blocks: Vec<_> = (0..1 + input.below(2)).map(|_| blocks::block(&mut input)).collect();
    let mut records: Vec<_> = blocks.iter().map(|block| block.record().expect("valid blocks can be coded")).collect();
    let mut mutated = [false; 2];
    for _ in 0..mutations {
        let record = input.below(records.len());
        blocks::mutate(&mut records[record], &mut input);
        mutated[record] = true;
    }
    for (record, _) in records.iter_mut().zip(mutated).filter(|&(_, mutated)| mutated) {
        record.redigest(LIMIT);
    }
    let decoded = agree_by(&one_more_than_slice(input.u8()), &write::File::new(records).to_bytes());
    if mutations == 0 {
        let raw: Vec<u8> = blocks.iter().flat_map(|block| block.raw()).collect();
        assert!(decoded.is_ok_and(|decoded| decoded == raw));
    }
}

/// A valid file that depends on bases and on itself, made from the bytes, then damaged, with every check made to fit: all
/// decoders agree with the reference.
pub fn delta_vs_reference(bytes: &[u8]) {
    let (delta, file, damaged) = deltas::damaged(&mut Input::new(bytes));
    let decoded = agree_with_bases(&file, &delta.bases());
    if !damaged {
        assert!(decoded.is_ok_and(|decoded| decoded == delta.raw()));
    }
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
            compressor.compress_into(&raw, &mut file).expect("anything can be compressed");
            file
        });
        let first = first.get_or_insert_with(|| file.clone());
        assert!(*first == file, "{} writes other bytes", isa.name());
    }
    let file = first.expect("there is a portable instruction set");
    assert!(agree_by(&[Way::Slice], &file).is_ok_and(|decoded| decoded == raw), "the data are not restored");
}

/// Any bytes as the header of a safetensors file, or as a whole one: what the `safetensors` crate accepts is laid out as
/// the crate says, and everything is restored.
pub fn layout(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    let raw = match mode % 3 {
        0 => bytes.to_vec(),
        1 => [&(bytes.len() as u64).to_le_bytes()[..], bytes, &vec![7; usize::from(mode / 3)]].concat(),
        _ => data::safetensors(&mut Input::new(bytes)),
    };
    let isa = fastest();
    let mut compress_options = CompressOptions::default();
    compress_options.threads = 1;
    let file = with_compressor(compress_options, isa, |compressor| {
        let mut file = Vec::new();
        compressor.compress_into(&raw, &mut file).expect("anything can be compressed");
        file
    });
    let reader = read_everything(&file, &raw, isa);
    let Ok(expected) = SafeTensors::deserialize(&raw) else { return };
    assert_eq!(reader.layout(), "safetensors");
    let named = reader.segments().iter().filter(|segment| segment.name.is_some());
    assert_eq!(named.count(), expected.len(), "the layout has other tensors");
    for (name, view) in expected.iter() {
        let segment = reader.tensor(name).expect("every tensor has a segment");
        let shape: Vec<u64> = view.shape().iter().map(|&dimension| dimension as u64).collect();
        assert_eq!(segment.shape, shape);
        assert_eq!(segment.dtype.map(|dtype| dtype.to_string()), Some(view.dtype().to_string()));
        // What stands in the segment has been read already.
        let bytes = &raw[segment.offset as usize..(segment.offset + segment.len) as usize];
        assert!(bytes == view.data(), "a tensor has other bytes");
    }
}

/// Any data: the same bytes from slices, streams and positional reads, which never grow much and are restored.
pub fn roundtrip(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut options = compress_options(&mut input);
    let raw = match input.below(3) {
        0 => {
            options.dtype = None;
            data::safetensors(&mut input)
        }
        _ => data::elements(&mut input, options.dtype),
    };
    let (isa, stream) = (fastest(), input.bool());
    let way = Way::ALL[input.below(4)];
    let file = with_compressor(options, isa, |compressor| {
        let mut file = Vec::new();
        compressor.compress_into(&raw, &mut file).expect("anything can be compressed");
        let mut other = Vec::new();
        let written = match stream {
            true => compressor.compress_stream(&mut &raw[..], &mut other, &mut |_| ()),
            false => compressor.compress_from(&raw, &mut other, &mut |_| ()),
        };
        written.expect("memory can be read and written");
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

/// Runs `f` with a compressor that is kept for the next input: making one costs more than compressing some bytes.
fn with_compressor<T>(options: CompressOptions, isa: Isa, f: impl FnOnce(&mut Compressor) -> T) -> T {
    type Kept = (Isa, Level, Option<Dtype>, Compressor);
    thread_local!(static COMPRESSORS: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) });
    COMPRESSORS.with_borrow_mut(|kept| {
        let fits = |kept: &Kept| (kept.0, kept.1, kept.2) == (isa, options.level, options.dtype);
        let at = kept.iter().position(fits).unwrap_or_else(|| {
            let mut options = options;
            options.isa = Some(isa);
            let compressor = Compressor::new(&options).expect("the options are valid");
            kept.push((isa, options.level, options.dtype, compressor));
            kept.len() - 1
        });
        f(&mut kept[at].3)
    })
}

fn compress_options(input: &mut Input<'_>) -> CompressOptions {
    let mut options = CompressOptions::default();
    options.level = Level::ALL[input.below(Level::ALL.len())];
    options.dtype = data::dtype(input);
    options.threads = 1;
    options
}
