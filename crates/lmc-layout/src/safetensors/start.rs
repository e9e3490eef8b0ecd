//! The beginning of a file, and the limits of headers.

/// The longest header that the format allows, in bytes.
pub(super) const MAX_HEADER: u64 = 100_000_000;
/// The name in a header that is not that of a tensor.
pub(super) const METADATA: &str = "__metadata__";

/// The bytes of a header with its length before it, from the first bytes of a file: nine say as much as more do, unless the header
/// begins with white space. `None` if no safetensors file begins so.
pub fn header_len(start: &[u8]) -> Option<u64> {
    let (len, json) = start.split_first_chunk()?;
    let len = u64::from_le_bytes(*len);
    let json = &json[..json.len().min(usize::try_from(len).ok()?)];
    let may_be_json = json.trim_ascii_start().first().is_none_or(|&b| b == b'{');
    ((1..=MAX_HEADER).contains(&len) && may_be_json).then(|| 8 + len)
}
