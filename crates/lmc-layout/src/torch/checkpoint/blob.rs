//! A chunk as `torch.save` wrote it: an archive of one tensor.

use super::cover::{Shown, elements};
use super::{Chunk, Tensor};
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::pickle::{MAX_LEN, Pickle};
use crate::strided::Elements;
use crate::suggestion::{Prefix, Start};
use crate::torch::tensors::{by_storage, elements_of_dtype};
use crate::zip::Archive;

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
        if view.odd.is_some() {
            let what = format!("its chunk {shown} is quantised, a conjugate or otherwise not a plain tensor");
            return Err(Error::unsupported(what).in_tensor(&*self.name));
        }
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
        let Some(found) = view.elements_in((storage.offset, storage.len), width) else {
            let has = storage.len;
            return Err(self.damaged(format!("its chunk {shown} has {n} elements, but {has} bytes in the data file")));
        };
        Ok(found)
    }
}
