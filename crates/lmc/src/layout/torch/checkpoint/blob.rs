//! A chunk as `torch.save` wrote it: an archive of one tensor.

use super::cover::{Shown, elements};
use super::{Chunk, Tensor};
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::layout::pickle::{MAX_LEN, Pickle};
use crate::layout::suggestion::{Prefix, Start};
use crate::layout::torch::tensors::{by_storage, elements_of_dtype};
use crate::layout::zip::Archive;
use crate::segment::Shape;

/// Where in a file the elements of a chunk are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Elements {
    /// The first byte of the first element.
    pub offset: u64,
    /// Bytes from there to the end of the last element.
    pub len: u64,
    /// How many elements it is from one index to the next, in each dimension; `None` if they are in order, the last dimension contiguous.
    pub strides: Option<Shape>,
}

impl Tensor {
    /// Finds the elements of one of its chunks in `len` bytes of a data file from `offset` on, which are a file of
    /// `torch.save` ([`Stored::Plain`](super::Stored::Plain)). Of the elements themselves nothing is read.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not in the file, or hold anything but a tensor of this dtype with the sizes of the chunk; `Io` when
    /// reading fails.
    pub fn locate(&self, chunk: &Chunk, raw: &dyn ReadAt, offset: u64, len: u64) -> Result<Elements> {
        let shown = Shown(chunk);
        let size = raw.size().map_err(|e| Error::io("cannot get the size of the data file", e))?;
        let Some(end) = offset.checked_add(len).filter(|&end| end <= size) else {
            return Err(self.damaged(format!(
                "its chunk {shown} should be {len} bytes from byte {offset} on, but the data file has {size} bytes"
            )));
        };
        let none = || self.damaged(format!("at byte {offset} torch.save did not write a tensor, its chunk {shown}"));
        let start = Start::new(raw, size, "the data file");
        let file = start.whole().ok_or_else(none)?;
        let archive = Archive::ending_at(file, end)?.filter(|a| a.start == offset).ok_or_else(none)?;
        let named =
            |suffix: &str| archive.entries.iter().find(|e| e.name.split_once('/').is_some_and(|n| n.1 == suffix));
        if let Some(order) = named("byteorder")
            && order.read(file, 16)?.is_none_or(|order| order != b"little")
        {
            return Err(Error::unsupported(format!("its chunk {shown} is big-endian")).in_tensor(&*self.name));
        }
        let bytes = named("data.pkl").map(|e| e.read(file, MAX_LEN)).transpose()?.flatten().ok_or_else(none)?;
        let pickle = Pickle::parse(&bytes).ok_or_else(none)?;
        let storages = by_storage(&pickle).ok_or_else(none)?;
        let mut views = storages.iter().flat_map(|(key, views)| views.iter().map(move |view| (key, view)));
        let Some((key, view)) = views.find(|(_, view)| view.path.as_deref() == Some("")) else { return Err(none()) };
        let width = match (self.element_len, view.elements) {
            (Some(width), found) if found == elements_of_dtype(&self.torch_dtype) => width,
            (_, found) => {
                let found = found.map_or_else(|| "another type".to_owned(), |e| e.dtype.to_string());
                let wanted = &self.torch_dtype;
                return Err(self.damaged(format!("its chunk {shown} is of {found}, and should be of torch.{wanted}")));
            }
        };
        if view.shape != chunk.sizes {
            let found = &view.shape;
            return Err(self.damaged(format!("its chunk {shown} has the sizes {found:?} in the data file")));
        }
        let storage = named(&format!("data/{key}")).filter(|e| e.stored).ok_or_else(none)?;
        let n = elements(&view.shape).ok_or_else(none)?;
        let last = view
            .shape
            .iter()
            .zip(&view.strides[..])
            .try_fold(0u64, |last, (&n, &stride)| last.checked_add(n.saturating_sub(1).checked_mul(stride)?));
        let span = if n == 0 { Some(0) } else { last.and_then(|last| last.checked_add(1)) };
        let place = span.and_then(|span| Some((view.first.checked_mul(width)?, span.checked_mul(width)?)));
        let Some((first, len)) = place.filter(|(first, len)| first.checked_add(*len).is_some_and(|e| e <= storage.len))
        else {
            let has = storage.len;
            return Err(self.damaged(format!("its chunk {shown} has {n} elements, but {has} bytes in the data file")));
        };
        let strides = (!view.is_contiguous()).then(|| view.strides.clone());
        Ok(Elements { offset: storage.offset + first, len, strides })
    }
}
