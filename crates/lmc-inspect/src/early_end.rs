//! Files that end before their tensors do, as copies that were interrupted and checkpoints that are still written.

use lmc::internals::{Layout, layout_of};
use lmc::{Error, ReadAt, Result, Segment};

/// The longest header of a safetensors file, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// Why a file is not whole: the layout at its beginning has bytes that it lacks. `None` for a file that has them, and for
/// one of no known format.
///
/// # Errors
/// `Io` when reading fails.
pub fn early_end(file: &dyn ReadAt) -> Result<Option<String>> {
    let size = file.size().map_err(|e| Error::io("cannot read its size", e))?;
    let layout = layout_of(file, size, None)?;
    if let Some(why) = of_layout(&layout, size) {
        return Ok(Some(why));
    }
    // The layout of a safetensors file without its whole header is not known.
    let mut start = [0; 9];
    if size < start.len() as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut start, 0).map_err(|e| Error::io("cannot read its beginning", e))?;
    let (len, first) = start.split_first_chunk().expect("it has 9 bytes");
    let end = u64::from_le_bytes(*len).saturating_add(8);
    let ends_early = first == b"{" && size < end && end <= MAX_HEADER;
    Ok(ends_early.then(|| format!("it has {size} bytes, and its header would end at byte {end}: it ends early")))
}

/// [`early_end`] of a file whose layout is known.
pub(crate) fn of_layout(layout: &Layout, size: u64) -> Option<String> {
    let end = layout.segments.last().map(Segment::end).filter(|&end| end > size)?;
    Some(format!("it has {size} bytes, and its tensors would end at byte {end}: it ends early"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_of_a_file_is_found() {
        let header = br#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend([7; 4]);
        assert_eq!(early_end(&&file[..]).unwrap(), None);
        for cut in 9..file.len() {
            let why = early_end(&&file[..cut]).unwrap().unwrap_or_else(|| panic!("{cut} bytes"));
            let what = if cut < 8 + header.len() { "header" } else { "tensors" };
            assert!(why.starts_with(&format!("it has {cut} bytes, and its {what} would end at byte ")), "{why}");
        }
        // Bytes of no format end nowhere.
        for other in [&b""[..], b"short", b"\xff\xff\xff\xff\xff\xff\xff\xff{", &[b'{'; 99]] {
            assert_eq!(early_end(&other).unwrap(), None, "{other:?}");
        }
    }
}
