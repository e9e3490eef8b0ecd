//! Joins the chunks of tensors: whole tensors are written one after the other, a batch of bounded size at a time.

use std::collections::HashMap;

use lmc::layout::distcp::{Chunk, Stored, Tensor};

use super::boxes::{Cuboid, copy, in_order, windows};
use super::data::{DataFile, DataFiles};
use crate::ui::failure::{Failure, Result};

/// Bytes of tensors that are joined at a time. As many more are read for them.
const BATCH: u64 = 64 << 20;
/// Most bytes of a tensor's chunks that were saved with other strides, which are held in memory as long as the tensor is written; twice as
/// many while they are put in order.
pub(super) const MAX_HELD: u64 = 1 << 30;

/// A part of a tensor that is joined in one piece.
struct Window {
    tensor: usize,
    part: Cuboid,
    /// Its first byte in the batch.
    at: usize,
}

/// The part of a chunk that a window takes.
struct Read {
    file: usize,
    window: usize,
    chunk: usize,
    common: Cuboid,
}

/// Where the elements of a chunk are.
enum Located {
    /// In order in the data file, from this byte on.
    At(u64),
    /// Here, in order.
    Held(Vec<u8>),
}

/// The chunks of a tensor that were located, and the bytes of those that are held.
#[derive(Default)]
struct Progress {
    located: HashMap<usize, Located>,
    held: u64,
}

/// Hands the bytes of tensors to `write`, in their order; [`Tensor::check`] found nothing wrong with them.
pub(super) fn join(tensors: &[&Tensor], files: &mut DataFiles<'_>, mut write: impl FnMut(&[u8]) -> Result) -> Result {
    let (mut buf, mut batch, mut len) = (Vec::new(), Vec::new(), 0);
    let mut under_way = HashMap::new();
    for (number, tensor) in tensors.iter().enumerate() {
        let width = width(tensor);
        if tensor.shape.contains(&0) {
            continue;
        }
        for part in windows(&tensor.shape, BATCH / width) {
            let bytes = part.elements() * width;
            if len + bytes > BATCH {
                read(tensors, &batch, files, &mut under_way, resized(&mut buf, len))?;
                write(&buf)?;
                batch.clear();
                len = 0;
                // Tensors before this one are done.
                under_way.retain(|&tensor, _| tensor == number);
            }
            batch.push(Window { tensor: number, part, at: len as usize });
            len += bytes;
        }
    }
    read(tensors, &batch, files, &mut under_way, resized(&mut buf, len))?;
    write(&buf)
}

fn resized(buf: &mut Vec<u8>, len: u64) -> &mut [u8] {
    buf.resize(len as usize, 0);
    buf
}

/// Bytes of an element of a checked tensor.
fn width(tensor: &Tensor) -> u64 {
    tensor.element_len.expect("the type of a checked tensor is known")
}

/// Fills a batch, file by file, so that each block of compressed files is decoded about once.
fn read(
    tensors: &[&Tensor],
    batch: &[Window],
    files: &mut DataFiles<'_>,
    under_way: &mut HashMap<usize, Progress>,
    out: &mut [u8],
) -> Result {
    let mut reads = Vec::new();
    for (window, Window { tensor, part, .. }) in batch.iter().enumerate() {
        for (chunk, Chunk { offsets, sizes, place, .. }) in tensors[*tensor].chunks.iter().enumerate() {
            // One without elements may be anywhere.
            if sizes.contains(&0) {
                continue;
            }
            if let (Some(place), Some(common)) = (place, part.common(offsets, sizes)) {
                reads.push(Read { file: place.file, window, chunk, common });
            }
        }
    }
    reads.sort_by_key(|read| read.file);
    for reads in reads.chunk_by_mut(|a, b| a.file == b.file) {
        let file = files.get(reads[0].file)?;
        let mut placed = Vec::with_capacity(reads.len());
        for read in reads {
            let number = batch[read.window].tensor;
            let tensor = tensors[number];
            let chunk = &tensor.chunks[read.chunk];
            let progress = under_way.entry(number).or_default();
            if !progress.located.contains_key(&read.chunk) {
                let located = locate(tensor, chunk, &file, &mut progress.held)?;
                progress.located.insert(read.chunk, located);
            }
            let start = read.common.within(&chunk.offsets).first_in(&chunk.sizes) * width(tensor);
            let offset = match progress.located[&read.chunk] {
                Located::At(offset) => offset + start,
                Located::Held(_) => start,
            };
            placed.push((offset, &*read));
        }
        placed.sort_by_key(|&(offset, _)| offset);
        let mut bytes = Vec::new();
        for (offset, read) in placed {
            let Window { tensor: number, part, at } = &batch[read.window];
            let width = width(tensors[*number]) as usize;
            let len = read.common.elements() as usize * width;
            let from = match &under_way[number].located[&read.chunk] {
                Located::At(_) => {
                    bytes.resize(len, 0);
                    file.read(&mut bytes, offset)?;
                    &bytes[..]
                }
                Located::Held(all) => &all[offset as usize..][..len],
            };
            let to = &mut out[*at..][..part.elements() as usize * width];
            copy(from, &read.common.within(&part.from), to, &part.sizes, width);
        }
    }
    Ok(())
}

/// Finds the elements of a chunk. Those that are not in order are read.
fn locate(tensor: &Tensor, chunk: &Chunk, file: &DataFile<'_>, held: &mut u64) -> Result<Located> {
    let elements: u64 = chunk.sizes.iter().product();
    let len = elements * width(tensor);
    let name = match chunk.place.as_ref().map(|place| &place.stored) {
        Some(&Stored::Plain { offset, len: stored }) if file.is_archive => {
            let found = tensor.locate(chunk, file.raw(), offset, stored).map_err(|e| file.failure(&e))?;
            let Some(strides) = found.strides else { return Ok(Located::At(found.offset)) };
            *held = held.saturating_add(len.max(found.len));
            if *held > MAX_HELD {
                let why = format!("its chunks of more than {MAX_HELD} bytes are not in the order of their elements");
                return Err(file.failure(&lmc::Error::new(lmc::ErrorKind::Limit, why).in_tensor(&*tensor.name)));
            }
            let mut bytes = vec![0; found.len as usize];
            file.read(&mut bytes, found.offset)?;
            return Ok(Located::Held(in_order(&bytes, &chunk.sizes, &strides, width(tensor) as usize)));
        }
        Some(Stored::Plain { .. }) => &*tensor.name,
        Some(Stored::Transformed(extension)) => {
            return Err(unreadable(tensor, file, format!("is written with the extension {extension:?}")));
        }
        _ => return Err(unreadable(tensor, file, "is stored in an unknown way".to_owned())),
    };
    let Some(found) = file.tensor(name) else {
        return Err(wrong(tensor, file, format!("the data file has no tensor {name:?}")));
    };
    if found.len != len {
        let (has, sizes) = (found.len, &chunk.sizes);
        return Err(wrong(tensor, file, format!("a chunk with the sizes {sizes:?} has {has} bytes, not {len}")));
    }
    Ok(Located::At(found.offset))
}

fn wrong(tensor: &Tensor, file: &DataFile<'_>, why: String) -> Failure {
    file.failure(&lmc::Error::new(lmc::ErrorKind::Damaged, why).in_tensor(&*tensor.name))
}

fn unreadable(tensor: &Tensor, file: &DataFile<'_>, why: String) -> Failure {
    let why = format!("a chunk {why}: load the checkpoint with PyTorch");
    file.failure(&lmc::Error::new(lmc::ErrorKind::Unsupported, why).in_tensor(&*tensor.name))
}
