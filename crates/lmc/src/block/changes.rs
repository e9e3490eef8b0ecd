//! Blocks that consist of the changed elements of a base alone.

use super::head::BlockHead;
use super::methods::Method;
use super::methods::predicted::Predicted;
use super::stream::Mask;
use super::stream::body::Body;
use super::stream::patches::AT_ONCE;
use crate::format::checksum::check64;
use lmc_kernels::cluster::element::{Element, with_element};
use lmc_kernels::predict::{Conversion, residual};
use lmc_layout::error::{Error, Result};

/// The prediction of all elements, if the block is a list of those that differ from the same bytes of the first base: for a block that
/// starts at raw byte `start`.
pub(crate) fn list_of(head: &BlockHead, start: u64) -> Option<&Predicted> {
    let [column] = &head.columns[..] else { return None };
    let Method::Predicted(p) = &column.method else { return None };
    let Some((Conversion::None, base)) = p.operand.ranges() else { return None };
    let [range] = base.of(&head.ranges) else { return None };
    let in_place = (range.source, range.offset, range.len) == (1, start, head.raw_len as u64);
    let plain = in_place && column.len == head.raw_len && p.sparse().is_some();
    plain.then_some(p)
}

/// How many elements it lists.
pub(crate) fn listed(list: &Predicted) -> usize {
    list.sparse().map_or(0, |stream| stream.mask.selected(0))
}

/// The number of elements of a block that differ from the first base. Its head states it if all elements are predicted
/// from that base, and only the differing ones are coded.
pub(crate) fn count_of(head: &BlockHead) -> Option<u64> {
    let mut count = 0;
    for column in &head.columns {
        let Method::Predicted(p) = &column.method else { return None };
        let Some((Conversion::None, base)) = p.operand.ranges() else { return None };
        if base.of(&head.ranges).iter().any(|range| range.source != 1) {
            return None;
        }
        for stream in p.streams.iter().filter_map(|s| s.1.as_ref()) {
            match stream.mask {
                Mask::None if !stream.is_zero() => return None,
                _ => count += stream.mask.selected(0) as u64,
            }
        }
    }
    Some(count)
}

/// Appends the indices of the changed elements, from that of the block's `first` one on, and their new bytes. `old` fills a buffer with the
/// elements that begin at these bytes of the base.
pub(crate) fn push_changes(
    head: &BlockHead,
    p: &Predicted,
    body: &[u8],
    first: u32,
    mut old: impl FnMut(&[u64], &mut [u8]) -> Result<()>,
    (indices, values): (&mut Vec<u32>, &mut Vec<u8>),
) -> Result<()> {
    if head.body_check.is_some_and(|check| check != check64(body)) {
        return Err(Error::damaged("the check of a block's body does not match"));
    }
    let mut body = Body::new(head.lanes, body)?;
    let list = p.sparse().expect("it is a list");
    let count = listed(p).min(head.raw_len / p.width);
    indices.reserve(count);
    values.reserve(count * p.width);
    with_element!(p.width, E => {
        let mut offsets = [0; AT_ONCE];
        list.each_batch(&mut body, head.raw_len / E::BYTES, |places, residuals| {
            let from = values.len();
            for (offset, &i) in offsets.iter_mut().zip(places) {
                *offset = u64::from(first + i) * E::BYTES as u64;
            }
            indices.extend(places.iter().map(|i| first + i));
            values.resize(from + places.len() * E::BYTES, 0);
            let values = &mut values[from..];
            old(&offsets[..places.len()], values)?;
            for (e, &x) in E::all_mut(values).iter_mut().zip(residuals) {
                *e = residual::element(E::cut(x).unmap(list.map), E::from_bytes(*e)).to_bytes();
            }
            Ok(())
        })?;
    });
    body.finish()
}
