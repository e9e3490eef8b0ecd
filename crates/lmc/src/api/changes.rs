//! The elements that a delta changes, without those that it does not.

use crate::block::changes::{count_of, list_of, listed, push_changes};
use crate::file::blocks::checked_block;
use crate::file::open::{Opened, read_block_head, read_record};
use crate::settings::limits::DecodeLimits;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::ReadAt;

/// The elements that a delta changes in its base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedElements {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: usize,
    /// The elements, ascending.
    pub indices: Vec<u32>,
    /// Their new bytes, one after the other.
    pub values: Vec<u8>,
}

/// The elements that `delta` changes in `base`; only these take time. `None` if the delta is no list of changes, as
/// most are not: then decompress it. Deltas of [`Level::Fast`](crate::Level::Fast) in which few elements changed are
/// such lists.
///
/// Only the checks of the delta are verified. The caller must know that it was made from `base`: with another base the
/// values are meaningless.
///
/// ```
/// use lmc::{Base, CompressOptions, Compressor, Level};
/// let old: Vec<u8> = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
/// let mut new = old.clone();
/// new[400] ^= 1;
/// let mut delta = Vec::new();
/// let options = CompressOptions::default().with_level(Level::Fast).with_dtype(Some(lmc::Dtype::U32));
/// Compressor::new(&options)?.compress(&new, &[Base::new(&old)?], &mut delta)?;
/// let changed = lmc::changed_elements(&delta, &old)?.expect("it is a list");
/// assert_eq!((changed.width, changed.indices, changed.values), (4, vec![100], new[400..404].to_vec()));
/// # Ok::<(), lmc::Error>(())
/// ```
///
/// # Errors
/// `Damaged` or `Unsupported` if `delta` is not a `.lmc` file that this version can read, `Io` when reading fails.
pub fn changed_elements(delta: &dyn ReadAt, base: &dyn ReadAt) -> Result<Option<ChangedElements>> {
    let mut changed = ChangedElements::default();
    Ok(changed.read(delta, base)?.then_some(changed))
}

impl ChangedElements {
    /// Like [`changed_elements`], but replaces what is here, and reuses its memory: allocating a long list takes a sixth of the time. Returns
    /// false if `delta` is no list; what is here then, or after an error, is unspecified.
    ///
    /// # Errors
    /// Those of [`changed_elements`].
    pub fn read(&mut self, delta: &dyn ReadAt, base: &dyn ReadAt) -> Result<bool> {
        self.width = 0;
        self.indices.clear();
        self.values.clear();
        read_into(self, delta, base)
    }

    /// Writes the new bytes of the elements to `raw`, which has those of the base. What is made of another base than the
    /// right one is not noticed.
    ///
    /// ```
    /// # use lmc::{Base, CompressOptions, Compressor, Level};
    /// # let old: Vec<u8> = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
    /// # let mut new = old.clone();
    /// # new[400] ^= 1;
    /// # let mut delta = Vec::new();
    /// # let options = CompressOptions::default().with_level(Level::Fast).with_dtype(Some(lmc::Dtype::U32));
    /// # Compressor::new(&options)?.compress(&new, &[Base::new(&old)?], &mut delta)?;
    /// let changed = lmc::changed_elements(&delta, &old)?.expect("it is a list");
    /// let mut raw = old.clone();
    /// changed.apply(&mut raw);
    /// assert!(raw == new);
    /// # Ok::<(), lmc::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `raw` is shorter than the base that the list was read with.
    pub fn apply(&self, raw: &mut [u8]) {
        match self.width {
            1 => scatter::<1>(self, raw),
            2 => scatter::<2>(self, raw),
            4 => scatter::<4>(self, raw),
            _ => scatter::<8>(self, raw),
        }
    }
}

fn scatter<const W: usize>(list: &ChangedElements, raw: &mut [u8]) {
    let (raw, _) = raw.as_chunks_mut::<W>();
    for (&i, value) in list.indices.iter().zip(list.values.as_chunks::<W>().0) {
        raw[i as usize] = *value;
    }
}

/// A list has at most one of this many elements of a block, as those of [`Level::Fast`](crate::Level::Fast) do: a hostile list of a few
/// bytes could name all elements, with an index for each.
const MOST: u64 = 8;
/// Elements of a block that may be listed always.
const FEW: u64 = 1 << 10;

fn read_into(changed: &mut ChangedElements, delta: &dyn ReadAt, base: &dyn ReadAt) -> Result<bool> {
    let opened = Opened::open_whole(delta, &DecodeLimits::default())?;
    let (sources, size) = (&opened.sources, opened.index.raw_size);
    let base_size = base.size().map_err(|e| Error::io("cannot get the size of the base", e))?;
    let listable = sources.bases.len() == 1 && base_size == size && size <= u64::from(u32::MAX);
    if !listable || opened.blocks() == 0 {
        return Ok(false);
    }
    let mut buf = Vec::new();
    for i in 0..opened.blocks() {
        let b = opened.block(i);
        let done = (|| {
            let record = read_record(delta, &b, &mut buf)?;
            let (head, body) = checked_block(record, sources, b.raw_offset, b.raw_len as usize)?;
            let Some(p) = list_of(&head, b.raw_offset) else { return Ok(false) };
            let (width, start) = (p.width as u64, b.raw_offset);
            if start % width != 0 || (i > 0 && changed.width != p.width) {
                return Ok(false);
            }
            if listed(p) as u64 > (b.raw_len / width / MOST).max(FEW) {
                return Ok(false);
            }
            changed.width = p.width;
            if i == 0 {
                reserve(changed, listed(p), b.raw_len / width, (size / width) as usize);
            }
            let old = |offsets: &[u64], out: &mut [u8]| {
                base.read_elements_at(p.width, offsets, out).map_err(|e| Error::io("cannot read the base", e))
            };
            let into = (&mut changed.indices, &mut changed.values);
            push_changes(&head, p, body, (start / width) as u32, old, into)?;
            Ok(true)
        })();
        if !done.map_err(|e| opened.locate(e, i))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes room for a list of `all` elements, whose first block lists this many of its `elements`: blocks of a tensor are alike. A vector
/// that grew would be copied.
fn reserve(changed: &mut ChangedElements, listed: usize, elements: u64, all: usize) {
    // A block that lists more says little of the others.
    if elements > 0 && listed as u64 <= elements / MOST {
        let room = (listed as u128 * all as u128 / u128::from(elements)) as usize;
        let room = (room + room / 16 + 16).min(all);
        changed.indices.reserve(room);
        changed.values.reserve(room * changed.width);
    }
}

/// How many elements a delta changes in its base, by the heads of its blocks; nothing else is read. `None` if the heads
/// do not say it: if something is not predicted from the base, or most elements changed. Any level has such deltas. If
/// [`changed_elements`] returns a list, the numbers are equal.
///
/// # Errors
/// `Damaged` or `Unsupported` if `delta` is not a `.lmc` file that this version can read, `Io` when reading fails.
pub fn changed_count(delta: &dyn ReadAt) -> Result<Option<u64>> {
    let opened = Opened::open(delta, &DecodeLimits::default())?;
    if opened.sources.bases.len() != 1 {
        return Ok(None);
    }
    let mut count = 0;
    for i in 0..opened.blocks() {
        let head = read_block_head(delta, &opened.sources, &opened.block(i)).map_err(|e| opened.locate(e, i))?;
        match count_of(&head) {
            Some(n) => count += n,
            None => return Ok(None),
        }
    }
    Ok(Some(count))
}
