//! The segments of a file as the index stores them (`docs/format.md` §2.3).

use std::borrow::Cow;

use super::limits::{MAX_NAME, MAX_WRITTEN_OUT, OF_SEGMENT};
use super::tensors::{put_opaque, put_tensor, walk};
use lmc_kernels::varint::{Cursor, put};
use lmc_layout::error::{Error, Result};
use lmc_layout::segment::{Name, Names, Segment, tensor_len};

/// Appends the segments of a file.
pub(super) fn encode(segments: &[Segment], table: &mut Vec<u8>) {
    let (mut last_name, mut last_shape) = ("", None);
    put(table, segments.len() as u64);
    for s in segments {
        let Some(dtype) = s.dtype else {
            put_opaque(table, s.len);
            continue;
        };
        let name = s.name.as_deref().unwrap_or_default();
        let shape = (last_shape != Some(&s.shape)).then_some(&s.shape[..]);
        put_tensor(table, last_name, name, dtype, shape);
        (last_name, last_shape) = (name, Some(&s.shape));
    }
}

/// The segments of a file as far as an index can have them, and the number of tensors that it cannot have: their bytes are opaque.
pub(crate) fn within_limits(segments: &[Segment]) -> (Cow<'_, [Segment]>, u64) {
    let all_fit = segments.iter().all(|s| if s.dtype.is_some() { has_short_name(s) } else { s.len > 0 })
        && segments.iter().map(written_out).sum::<u64>() <= MAX_WRITTEN_OUT;
    if all_fit {
        return (Cow::Borrowed(segments), 0);
    }
    let (mut kept, mut left, mut left_out) = (Vec::<Segment>::new(), MAX_WRITTEN_OUT, 0);
    for s in segments {
        // One more segment may be needed for all further bytes.
        let has_room = written_out(s) + OF_SEGMENT <= left;
        if s.dtype.is_some() && has_short_name(s) && has_room {
            left -= written_out(s);
            kept.push(s.clone());
            continue;
        }
        left_out += u64::from(s.dtype.is_some());
        match kept.last_mut() {
            Some(last) if last.dtype.is_none() => last.len += s.len,
            _ if s.len == 0 => {}
            _ => {
                left -= OF_SEGMENT;
                kept.push(Segment::opaque(s.offset, s.len));
            }
        }
    }
    (kept.into(), left_out)
}

fn has_short_name(s: &Segment) -> bool {
    s.name.as_ref().is_none_or(|name| name.size() <= MAX_NAME)
}

/// Bytes that count for a segment: of its name, eight for each dimension, and those of any.
fn written_out(s: &Segment) -> u64 {
    OF_SEGMENT + (s.name.as_ref().map_or(0, Name::size) + 8 * s.shape.len()) as u64
}

/// The rest of [`DecodeLimits::max_index_size`](crate::DecodeLimits::max_index_size).
pub(super) struct Budget {
    pub(super) left: usize,
    pub(super) max: usize,
}

impl Budget {
    pub(super) fn take(&mut self, n: u64) -> Result<()> {
        match usize::try_from(n).ok().and_then(|n| self.left.checked_sub(n)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Error::limit(format!("the index takes more memory than the limit of {} bytes", self.max))),
        }
    }
}

/// The segments of an index, checked but not parsed: restoring a whole file needs none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    table: Vec<u8>,
    /// Offset of the segments in the table, their number, and the bytes of their names.
    start: usize,
    count: usize,
    names: usize,
}

impl Packed {
    /// Checks segments, from `start` to the end of the table: they cover `raw_size` bytes, and parsed they fit the memory
    /// budget.
    pub(super) fn check(table: Vec<u8>, start: usize, raw_size: u64, budget: &mut Budget) -> Result<Self> {
        let mut c = Cursor::new(&table[start..]);
        let (mut count, mut names, mut end, mut written_out) = (0, 0, 0u64, 0);
        walk(&mut c, |s| {
            let len = match s.dtype {
                None => s.len,
                Some(dtype) => tensor_len(dtype, s.shape).ok_or_else(|| {
                    Error::damaged(format!(
                        "the shape {:?} in the index gives no length of whole bytes below 2^64",
                        &s.shape[..]
                    ))
                    .in_tensor(s.name)
                })?,
            };
            if len > raw_size - end {
                return Err(Error::damaged(format!(
                    "a segment of {len} bytes at byte {end} ends after the file's {raw_size} raw bytes"
                )));
            }
            end += len;
            count += 1;
            names += s.name.len();
            written_out += OF_SEGMENT + (s.name.len() + 8 * s.shape.len()) as u64;
            if written_out > MAX_WRITTEN_OUT {
                return Err(Error::damaged(format!(
                    "the segments of the index take more than {MAX_WRITTEN_OUT} bytes when they are written out"
                )));
            }
            budget.take(Segment::cost(s.name.len(), s.shape.len()) as u64)
        })?;
        c.finish()?;
        if end != raw_size {
            return Err(Error::damaged(format!("the segments of the index end at byte {end} of {raw_size}")));
        }
        Ok(Self { table, start, count, names })
    }

    /// Parses them.
    pub(crate) fn unpack(&self) -> Vec<Segment> {
        let mut names = Names::with_capacity(self.names);
        let mut segments = Vec::with_capacity(self.count);
        let mut offset = 0;
        walk(&mut Cursor::new(&self.table[self.start..]), |s| {
            let segment = match s.dtype {
                None => Segment::opaque(offset, s.len),
                Some(dtype) => {
                    let len = tensor_len(dtype, s.shape).expect("it was checked");
                    let name = names.push(s.name).expect("their length was checked");
                    Segment::tensor(name, dtype, s.shape.clone(), offset, len)
                }
            };
            offset = segment.end();
            segments.push(segment);
            Ok(())
        })
        .expect("they were checked");
        names.finish();
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmc_layout::dtype::Dtype;

    fn tensor(name: &str, dtype: Dtype, shape: &[u64], offset: u64) -> Segment {
        let len = tensor_len(dtype, shape).unwrap();
        Segment::tensor(name.into(), dtype, shape.into(), offset, len)
    }

    /// Parses a table within a memory budget.
    fn round_trip(segments: &[Segment], memory: usize) -> Result<(Vec<Segment>, usize)> {
        let mut table = vec![1, 2, 3];
        encode(segments, &mut table);
        let len = table.len() - 3;
        let raw_size = segments.last().map_or(0, Segment::end);
        let packed = Packed::check(table, 3, raw_size, &mut Budget { left: memory, max: memory })?;
        Ok((packed.unpack(), len))
    }

    #[test]
    fn what_an_index_cannot_have_is_opaque() {
        let (long, longest) = ("x".repeat(MAX_NAME + 1), "x".repeat(MAX_NAME));
        let segments = [
            Segment::opaque(0, 5),
            tensor(&long, Dtype::U8, &[3], 5),
            tensor(&longest, Dtype::U8, &[2], 8),
            tensor(&long, Dtype::U8, &[0], 10),
            tensor("last", Dtype::U8, &[1], 10),
        ];
        let (kept, left_out) = within_limits(&segments);
        assert_eq!(*kept, [Segment::opaque(0, 8), segments[2].clone(), segments[4].clone()]);
        assert_eq!(left_out, 2);
        round_trip(&kept, 1 << 20).unwrap();
        assert_eq!(round_trip(&segments, 1 << 20).unwrap_err().kind(), crate::ErrorKind::Damaged);
        let many: Vec<_> = (0..4100).map(|i| tensor(&longest, Dtype::U8, &[1], i)).collect();
        let (kept, left_out) = within_limits(&many);
        let fit = (MAX_WRITTEN_OUT - OF_SEGMENT) / (MAX_NAME as u64 + 8 + OF_SEGMENT);
        assert_eq!((kept.len() as u64, left_out), (fit + 1, 4100 - fit));
        assert_eq!(*kept.last().unwrap(), Segment::opaque(fit, 4100 - fit));
        round_trip(&kept, 1 << 29).unwrap();
        assert_eq!(round_trip(&many, 1 << 29).unwrap_err().kind(), crate::ErrorKind::Damaged);
        let ordinary = [tensor("w", Dtype::U8, &[1], 0)];
        assert!(matches!(within_limits(&ordinary), (Cow::Borrowed(_), 0)));
        assert_eq!(within_limits(&[Segment::opaque(0, 0)]), (Cow::Borrowed(&[][..]), 0));
    }

    #[test]
    fn segments_are_restored_within_their_budget() {
        let segments = [
            Segment::opaque(0, 7),
            tensor("layers.0.ä", Dtype::Bf16, &[2, 3], 7),
            tensor("layers.0.ö", Dtype::F32, &[2, 3], 19),
            Segment::opaque(43, 1),
            tensor("layers.0.öl", Dtype::F32, &[2, 3], 44),
            tensor("", Dtype::F32, &[], 68),
        ];
        let cost = segments.iter().map(|s| Segment::cost(s.name.as_ref().map_or(0, |n| n.len()), s.shape.len())).sum();
        let (restored, len) = round_trip(&segments, cost).unwrap();
        assert_eq!(restored, segments);
        // Of each tensor a dtype and two lengths, and: a name and a shape; ö; nothing; l; a shape.
        assert_eq!(len, 1 + 2 * 2 + 4 * 3 + (11 + 3) + 2 + 1 + 1);
        assert_eq!(round_trip(&segments, cost - 1).unwrap_err().kind(), crate::ErrorKind::Limit);
        assert_eq!(round_trip(&[], 0).unwrap().0, []);
    }
}
