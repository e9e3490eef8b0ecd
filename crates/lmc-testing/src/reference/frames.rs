//! zstd frames.

use super::faults::must;
use std::cell::RefCell;
use zstd::zstd_safe::{
    DCtx, find_frame_compressed_size, get_dict_id_from_frame, get_error_name, get_frame_content_size,
};

/// Decodes one zstd frame, which must fill `frame`, to exactly `length` bytes. Its matches may reach the prefix.
pub(super) fn zstd_frame(frame: &[u8], prefix: &[u8], length: usize) -> Result<Vec<u8>, String> {
    must(frame.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]), "this is no zstd frame")?;
    let frame_length = find_frame_compressed_size(frame).map_err(|_| "damaged zstd frame")?;
    must(frame_length == frame.len(), "something follows the zstd frame")?;
    must(get_dict_id_from_frame(frame).is_none(), "a zstd frame names a dictionary")?;
    let states = get_frame_content_size(frame).map_err(|_| "damaged zstd frame")? == Some(length as u64);
    must(states, "a zstd frame does not state the length that it needs")?;
    must(frame[4] >> 5 & 1 == 1, "a zstd frame is not a single segment")?;
    let raw = if prefix.is_empty() {
        // Kept, because making one costs more than all the rest of a small file.
        thread_local!(static ZSTD: RefCell<zstd::bulk::Decompressor<'static>> = RefCell::default());
        ZSTD.with_borrow_mut(|zstd| zstd.decompress(frame, length)).map_err(|e| format!("zstd: {e}"))?
    } else {
        let error = |code| format!("zstd: {}", get_error_name(code));
        let mut raw = Vec::with_capacity(length);
        let mut zstd = DCtx::create();
        // Content, whatever it begins with: a prefix is never taken for a dictionary with tables.
        zstd.ref_prefix(prefix).map_err(error)?;
        zstd.decompress(&mut raw, frame).map_err(error)?;
        raw
    };
    must(raw.len() == length, "a zstd frame is shorter than promised")?;
    Ok(raw)
}
