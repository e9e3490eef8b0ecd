//! Valid files of less than 1 MB that expand to as much as the format allows.

use crate::handmade::{LEAF, zeros};
use crate::reference::write::block::{BlockFields, Repeat};
use crate::reference::write::{File, Segment, varint};

/// Bytes of all segments, names and dimensions, written out (§6).
const WRITTEN_OUT: usize = 1 << 28;
/// The raw length of the largest block.
const RAW: usize = 1 << 24;

/// The files: name, and bytes.
pub fn files() -> [(&'static str, Vec<u8>); 7] {
    let tensor = |shape: &[u64]| Segment { dtype: 2, shape: shape.to_vec(), ..Segment::default() };
    let same = |shared| Segment { shared, same_shape: true, ..tensor(&[]) };
    let (longest, rank) = (vec![b'n'; (1 << 16) - 1], [1; 64]);
    let (opaque, named) =
        (Segment { length: 1, ..Segment::default() }, Segment { name: longest.clone(), ..tensor(&[]) });
    let of_a_byte = |bytes, first: &Segment, others: &Segment| segments(WRITTEN_OUT / (64 + bytes), first, others);
    [
        ("segments", of_a_byte(0, &opaque, &opaque)),
        ("names", of_a_byte(longest.len(), &named, &same(longest.len() as u64))),
        ("dimensions", of_a_byte(8 * rank.len(), &tensor(&rank), &same(0))),
        ("dimensions-written-out", of_a_byte(8 * rank.len(), &tensor(&rank), &tensor(&rank))),
        ("extents", File::new(vec![extents().record()]).to_bytes()),
        ("list", File::new(vec![list().record()]).to_bytes()),
        ("blocks", File::new(vec![zeros(LEAF as usize).record(); 12_000]).to_bytes()),
    ]
}

/// A file of so many zeros, with a segment for each, the first of which differs from the others.
fn segments(count: usize, first: &Segment, others: &Segment) -> Vec<u8> {
    let mut file = File::new(vec![zeros(count).record()]);
    (file.index.segments, file.index.segment_count) = (vec![first.clone()], count as u64);
    // As bytes, which take less memory here.
    let mut other = Vec::new();
    others.write(&mut other);
    file.index.after = other.repeat(count - 1);
    file.to_bytes()
}

/// A block of 2^20 extents, of 16 columns in turns.
fn extents() -> BlockFields {
    let mut fields = zeros(RAW);
    fields.extents = (0..16).map(|column| (column, 16)).collect();
    fields.columns = vec![fields.columns[0].clone(); 16];
    fields.repeats = vec![Repeat { before: 16, count: 16, times: (1 << 16) - 1 }];
    (fields.column_count, fields.extent_count) = (16, 17);
    fields
}

/// A block of bytes that are all listed: gaps of 0, and the index 1, under codes of one bucket without bits.
fn list() -> BlockFields {
    let mut fields = zeros(RAW);
    // Plain, one byte, a palette of two values with 0 as the second, a list.
    let mut head = vec![2, 0, 3, 1, 1, 0, 3];
    varint(&mut head, RAW as u64);
    head.extend([0; 8]);
    fields.columns = vec![head];
    fields
}
