//! zstd frames.

use super::faults::must;
use std::cell::RefCell;
use zstd::zstd_safe::{
    DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, find_frame_compressed_size, get_dict_id_from_frame,
    get_frame_content_size,
};

/// Decodes one zstd frame, which must fill `frame`, to exactly `length` bytes.
pub(super) fn zstd_frame(frame: &[u8], length: usize) -> Result<Vec<u8>, String> {
    must(frame.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]), "this is no zstd frame")?;
    let frame_length = find_frame_compressed_size(frame).map_err(|_| "damaged zstd frame")?;
    must(frame_length == frame.len(), "something follows the zstd frame")?;
    must(get_dict_id_from_frame(frame).is_none(), "a zstd frame names a dictionary")?;
    let states = get_frame_content_size(frame).map_err(|_| "damaged zstd frame")? == Some(length as u64);
    must(states, "a zstd frame does not state the length that it needs")?;
    must(frame[4] >> 5 & 1 == 1, "a zstd frame is not a single segment")?;
    // Kept, because making one costs more than all the rest of a small file.
    thread_local!(static ZSTD: RefCell<DCtx<'static>> = RefCell::new(DCtx::create()));
    let mut raw = Vec::with_capacity(length);
    let hint = ZSTD
        .with_borrow_mut(|zstd| {
            zstd.reset(ResetDirective::SessionAndParameters)?;
            zstd.set_parameter(DParameter::WindowLogMax(31))?;
            // Byte by byte: zstd lets blocks be too large where it has the whole frame.
            let mut out = OutBuffer::around(&mut raw);
            frame.iter().try_fold(1, |_, byte| {
                zstd.decompress_stream(&mut out, &mut InBuffer::around(std::slice::from_ref(byte)))
            })
        })
        .map_err(|code| format!("zstd: {}", zstd::zstd_safe::get_error_name(code)))?;
    must(hint == 0 && raw.len() == length, "a zstd frame does not end with its last byte")?;
    Ok(raw)
}
