//! The bodies of the fuzz targets. Each takes any bytes and panics when a promise is broken; the corpus under `fuzz/` is
//! replayed through them by the tests.

use crate::decoders::{LIMIT, Way, agree, agree_by, isas, options, read_everything};
use crate::input::Input;
use crate::{blocks, data};
use lmc::reference::{self, write};
use lmc::{CompressOptions, Compressor, Level};
use safetensors::SafeTensors;

/// The body of a fuzz target.
pub type Target = fn(&[u8]);

/// Every target with its name.
pub const TARGETS: [(&str, Target); 5] = [
    ("container", container),
    ("decode_vs_reference", decode_vs_reference),
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
    let raw = agree_by(&[Way::Slice, Way::Stream, Way::Positional], &file);
    // The reader does not see all of the file, so it may accept one that is damaged elsewhere.
    for isa in isas() {
        let read = Way::Reader.decode(&file, isa);
        if let (Ok(raw), Ok(read)) = (&raw, read) {
            assert!(*raw == read);
            read_everything(&file, raw, isa);
        }
    }
}

/// A valid file made from the bytes, then damaged, with every check made to fit: all decoders agree with the reference.
pub fn decode_vs_reference(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mutations = input.below(4);
    let blocks: Vec<_> = (0..1 + input.below(2)).map(|_| blocks::block(&mut input)).collect();
    let mut records: Vec<_> = blocks.iter().map(|block| block.record().expect("valid blocks can be coded")).collect();
    for _ in 0..mutations {
        let record = input.below(records.len());
        blocks::mutate(&mut records[record], &mut input);
        records[record].redigest(LIMIT);
    }
    let decoded = agree(&write::File::new(records).to_bytes());
    if mutations == 0 {
        let raw: Vec<u8> = blocks.iter().flat_map(|block| block.raw()).collect();
        assert!(decoded.is_ok_and(|decoded| decoded == raw));
    }
}

/// Any data, dtype and level: every instruction set writes the same bytes, and every decoder restores the data.
pub fn isas_agree(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let options = compress_options(&mut input);
    let raw = data::elements(&mut input, options.dtype);
    let mut first: Option<Vec<u8>> = None;
    for isa in isas() {
        let mut options = options;
        options.isa = Some(isa);
        let file = lmc::compress(&raw, &options).expect("anything can be compressed");
        let first = first.get_or_insert_with(|| file.clone());
        assert!(*first == file, "{} writes other bytes", isa.name());
    }
    let file = first.expect("there is a portable instruction set");
    assert!(agree(&file).is_ok_and(|decoded| decoded == raw), "the data are not restored");
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
    let isa = lmc::Isa::PORTABLE;
    let mut compress_options = CompressOptions::default();
    compress_options.isa = Some(isa);
    compress_options.threads = 1;
    let file = lmc::compress(&raw, &compress_options).expect("anything can be compressed");
    for way in Way::ALL {
        assert!(way.decode(&file, isa).is_ok_and(|decoded| decoded == raw), "{way:?} does not restore the data");
    }
    read_everything(&file, &raw, isa);

    let reader = lmc::Reader::open(&file[..], &options(isa)).expect("a valid file opens");
    let Ok(expected) = SafeTensors::deserialize(&raw) else { return };
    assert_eq!(reader.layout(), "safetensors");
    let named = reader.segments().iter().filter(|segment| segment.name.is_some());
    assert_eq!(named.count(), expected.len(), "the layout has other tensors");
    for (name, view) in expected.iter() {
        let segment = reader.tensor(name).expect("every tensor has a segment");
        let shape: Vec<u64> = view.shape().iter().map(|&dimension| dimension as u64).collect();
        assert_eq!(segment.shape, shape);
        assert_eq!(segment.dtype.map(|dtype| dtype.to_string()), Some(view.dtype().to_string()));
        assert!(reader.read_tensor(name).is_ok_and(|read| read == view.data()), "a tensor has other bytes");
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
    let mut compressor = Compressor::new(&options).expect("the options are valid");
    let mut file = Vec::new();
    compressor.compress_into(&raw, &mut file).expect("anything can be compressed");
    assert!(
        file.len() <= raw.len() + raw.len() / 1000 + 512 + raw.len() / 64,
        "{} bytes grow to {}",
        raw.len(),
        file.len()
    );
    let mut other = Vec::new();
    compressor.compress_stream(&mut &raw[..], &mut other, &mut |_| ()).expect("memory can be read and written");
    assert!(file == other, "a stream is compressed to other bytes");
    other.clear();
    compressor.compress_from(&raw, &mut other, &mut |_| ()).expect("memory can be read and written");
    assert!(file == other, "positional reads are compressed to other bytes");

    assert!(agree(&file).is_ok_and(|decoded| decoded == raw), "the data are not restored");
    for isa in isas() {
        read_everything(&file, &raw, isa);
    }
    assert!(reference::decode(&file, raw.len()).is_ok(), "a limit of just the raw size is enough");
}

fn compress_options(input: &mut Input<'_>) -> CompressOptions {
    let mut options = CompressOptions::default();
    options.level = Level::ALL[input.below(Level::ALL.len())];
    options.dtype = data::dtype(input);
    options.threads = 1;
    options
}
