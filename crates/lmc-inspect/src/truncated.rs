//! Files that are not what they should be: they end before their tensors do, as copies that were interrupted and
//! checkpoints that are still written, or have the name of a model and are none.

use lmc::layout::safetensors::header_len;
use lmc::{Error, ReadAt, Result, Segment};
use lmc_layout::Layout;
use lmc_layout::layout_of;

use crate::not_a_model::stand_in;

/// Bytes at the beginning of a file that say what it is.
const START: usize = 1 << 12;
/// The longest end of a zip archive: the record, and a comment.
const ZIP_END: u64 = 22 + u16::MAX as u64;

/// Why a file is not whole, or not the model that its name promises: what it is, and what to do, as a sentence about
/// "it". `None` for a file that has all bytes of its layout, and for one of no known format.
///
/// The name is that of [`ReadAt::path`]. Without one the file is taken for a model, too.
///
/// # Errors
/// `Io` when reading fails.
pub fn truncated(file: &dyn ReadAt) -> Result<Option<String>> {
    let size = file.size().map_err(|e| Error::io("cannot read its size", e))?;
    with_layout(file, &layout_of(file, size, None)?, size)
}

/// [`truncated`] of a file of `size` bytes whose layout is known.
pub(crate) fn with_layout(file: &dyn ReadAt, layout: &Layout, size: u64) -> Result<Option<String>> {
    if let Some(last) = layout.segments.last() {
        let end = Segment::end(last);
        let early = || format!("it has {size} bytes, and its tensors would end at byte {end}: it ends early");
        return Ok((end > size).then(early));
    }
    // The layout of a file without its whole header, or without its end if that has the directory, is not known.
    let mut start = vec![0; START.min(usize::try_from(size).unwrap_or(START))];
    file.read_exact_at(&mut start, 0).map_err(|e| Error::io("cannot read its beginning", e))?;
    if let Some(why) = cut(&start, size) {
        return Ok(Some(why));
    }
    if start.starts_with(b"PK\x03\x04") && !has_zip_end(file, size)? {
        return Ok(Some("it is a zip archive without its end, the central directory: it ends early".to_owned()));
    }
    if start.starts_with(&LEGACY_TORCH) && !has_no_storages(file, size)? {
        return Ok(Some("it is a file of torch.save, and not all of its tensors are there: it ends early".to_owned()));
    }
    Ok(stand_in(file.path(), &start, size))
}

/// Why a file ends early that says at its beginning how long its header is, or its only message.
fn cut(start: &[u8], size: u64) -> Option<String> {
    let early = |what: &str, end: u64| {
        (end > size).then(|| format!("it has {size} bytes, and its {what} would end at byte {end}: it ends early"))
    };
    if let Some(end) = header_len(start).filter(|_| start.get(8) == Some(&b'{')) {
        return early("header", end);
    }
    if let Some(rest) = start.strip_prefix(b"\x93NUMPY") {
        let end = match *rest {
            [1, _, a, b, ..] => 10 + u64::from(u16::from_le_bytes([a, b])),
            [_, _, a, b, c, d, ..] => 12 + u64::from(u32::from_le_bytes([a, b, c, d])),
            _ => 12,
        };
        return early("header", end);
    }
    // No more is known of a header that cannot be read to its end.
    if start.strip_prefix(b"GGUF").is_some_and(|rest| matches!(rest, [2 | 3, 0, 0, 0, ..]) || rest.len() < 4) {
        return Some("it is a GGUF file whose header cannot be read: it ends early, or is damaged".to_owned());
    }
    early("model", onnx_end(start)?)
}

/// Where an ONNX model ends, as far as the lengths of its first fields say: a message of protobuf whose fields have the
/// numbers and types of `ModelProto`. `None` for anything else.
fn onnx_end(start: &[u8]) -> Option<u64> {
    // ir_version
    let [8, 1..0x80, ..] = start else { return None };
    let mut at = 2;
    loop {
        let key = varint(start, &mut at)?;
        match (key >> 3, key & 7) {
            // model_version
            (5, 0) => _ = varint(start, &mut at)?,
            // producer_name, producer_version, domain, doc_string, graph, opset_import, metadata_props
            (number @ (2..=4 | 6..=8 | 14), 2) => {
                let len = varint(start, &mut at)?;
                let end = (at as u64).checked_add(len)?;
                if number == 7 {
                    return Some(end);
                }
                at = usize::try_from(end).ok()?;
            }
            _ => return None,
        }
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The last bytes of a file, at most `most`.
fn tail(file: &dyn ReadAt, size: u64, most: u64) -> Result<Vec<u8>> {
    let mut tail = vec![0; size.min(most) as usize];
    let at = size - tail.len() as u64;
    file.read_exact_at(&mut tail, at).map_err(|e| Error::io("cannot read its end", e))?;
    Ok(tail)
}

fn has_zip_end(file: &dyn ReadAt, size: u64) -> Result<bool> {
    Ok(tail(file, size, ZIP_END)?.windows(4).any(|record| record == b"PK\x05\x06"))
}

/// What `torch.save` wrote first before version 1.6, as protocol 2 pickles it.
const LEGACY_TORCH: [u8; 15] = [0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.'];

/// Whether such a file ends with an empty list of storages.
fn has_no_storages(file: &dyn ReadAt, size: u64) -> Result<bool> {
    Ok(tail(file, size, 7)?.ends_with(b"\x80\x02]q\0."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(file: &[u8]) -> Option<String> {
        truncated(&file).unwrap()
    }

    #[test]
    fn every_cut_of_a_file_is_found() {
        let header = br#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend([7; 4]);
        assert_eq!(why(&file), None);
        for cut in 9..file.len() {
            let why = why(&file[..cut]).unwrap_or_else(|| panic!("{cut} bytes"));
            let what = if cut < 8 + header.len() { "header" } else { "tensors" };
            assert!(why.starts_with(&format!("it has {cut} bytes, and its {what} would end at byte ")), "{why}");
        }
        // Bytes of no format end nowhere.
        for other in [&b"\xff\xff\xff\xff\xff\xff\xff\xff{"[..], &[0x80; 99], &[8; 99]] {
            assert_eq!(why(other), None, "{other:?}");
        }
    }

    #[test]
    fn every_cut_of_an_array_is_found() {
        let mut file = b"\x93NUMPY\x01\0\x37\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}".to_vec();
        file.extend([7; 8]);
        assert_eq!(why(&file), None);
        for cut in 6..file.len() {
            let why = why(&file[..cut]).unwrap_or_else(|| panic!("{cut} bytes"));
            assert!(why.ends_with(": it ends early"), "{cut}: {why}");
        }
    }

    #[test]
    fn every_cut_of_a_model_of_onnx_is_found() {
        // ir_version, producer_name, a graph of one initializer of 200 bytes with 2 dimensions.
        let tensor = [&b"\x08\x0a\x08\x05\x10\x01\x42\x01w\x4a\xc8\x01"[..], &[7; 200]].concat();
        let graph = [&[0x2a, (tensor.len() as u8 & 0x7f) | 0x80, (tensor.len() >> 7) as u8][..], &tensor].concat();
        let mut file = b"\x08\x0a\x12\x01p\x3a".to_vec();
        file.extend([(graph.len() as u8 & 0x7f) | 0x80, (graph.len() >> 7) as u8]);
        file.extend(graph);
        assert_eq!(why(&file), None);
        for cut in 8..file.len() {
            let why = why(&file[..cut]).unwrap_or_else(|| panic!("{cut} bytes"));
            let size = file.len();
            assert_eq!(why, format!("it has {cut} bytes, and its model would end at byte {size}: it ends early"));
        }
    }

    #[test]
    fn archives_without_their_end_are_found() {
        let archive = [&b"PK\x03\x04"[..], &[7; 999], b"PK\x05\x06", &[0; 18]].concat();
        assert_eq!(why(&archive), None);
        for cut in [4, 99, 1003, 1006] {
            let why = why(&archive[..cut]).unwrap();
            assert!(why.starts_with("it is a zip archive without its end"), "{why}");
        }
        // An object without tensors is no cut file.
        let pickles = [&LEGACY_TORCH[..], b"\x80\x02M\xe9\x03.\x80\x02}q\0.\x80\x02K\x01.\x80\x02]q\0."].concat();
        assert_eq!(why(&pickles), None);
        assert!(why(&pickles[..pickles.len() - 9]).unwrap().starts_with("it is a file of torch.save"));
    }
}
