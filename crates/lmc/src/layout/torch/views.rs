//! All tensors of a file, under each of their names: also those that have the same elements, or elements that are not in order.

use std::collections::HashMap;

use super::super::pickle::Pickle;
use super::super::strided::TensorView;
use super::super::suggestion::{MAX_COST, Prefix, Whole};
use super::archives::{Archives, Folders};
use super::legacy;
use super::storage::Item;
use super::tensors::{View, by_path};
use crate::error::{Error, Result};
use crate::segment::{Segment, tensor_len};

/// The tensors whose names begin with `prefix`. `None` if torch did not write the file. A tensor that is all of an archive has the name of
/// its segment, if that is known: compressed files keep it.
pub(in super::super) fn views(
    file: &mut dyn Prefix,
    segments: &[Segment],
    prefix: &str,
) -> Result<Option<Vec<TensorView>>> {
    let mut views = Views { segments, prefix, found: Vec::new(), left: MAX_COST };
    let is_torch = match Archives::of(file)? {
        Some(archives) => match file.whole() {
            Some(file) => views.add_archives(file, &archives)?,
            None => false,
        },
        None => views.add_legacy(file)?,
    };
    Ok(is_torch.then_some(views.found))
}

/// The tensors found so far.
struct Views<'s> {
    segments: &'s [Segment],
    prefix: &'s str,
    found: Vec<TensorView>,
    /// Memory that is left for them.
    left: usize,
}

/// The offset of a storage in the file, and its bytes.
type Place = (u64, u64);

impl Views<'_> {
    /// Adds the tensors of all archives; false if torch did not write one of them.
    fn add_archives(&mut self, file: Whole<'_>, archives: &Archives) -> Result<bool> {
        let mut any = false;
        for (archive, item) in archives.items() {
            for stored in Folders::of(archive).pickles() {
                any = true;
                let Some(bytes) = stored.read(file)? else {
                    let name = stored.name();
                    return Err(Error::unsupported(format!(
                        "its entry {name:?} is compressed, or longer than is read"
                    )));
                };
                let Some(pickle) = Pickle::parse(&bytes) else { return Ok(false) };
                let is_little_endian = stored.is_little_endian(file)?;
                self.add(&pickle, &item, |key| match stored.storage(key) {
                    _ if !is_little_endian => Err(Error::unsupported("it is big-endian")),
                    Some(storage) => Ok((storage.offset, storage.len)),
                    None => Err(Error::damaged(format!("its storage {key:?} is missing or compressed"))),
                })?;
            }
        }
        Ok(any)
    }

    /// Adds the tensors of a file in the format before version 1.6; false if it is none.
    fn add_legacy(&mut self, file: &mut dyn Prefix) -> Result<bool> {
        let Some(bytes) = legacy::beginning(file)? else { return Ok(false) };
        let Some(file) = file.whole() else { return Ok(false) };
        let Some(contents) = legacy::Contents::parse(&bytes) else { return Ok(false) };
        let Some(storages) = contents.storages(file)? else { return Ok(false) };
        let places: HashMap<&str, Place> =
            storages.iter().map(|(storage, views)| (views[0].key, (storage.offset, storage.len))).collect();
        self.add(&contents.object, &legacy::item(), |key| {
            places.get(key).copied().ok_or_else(|| Error::damaged("its storage is missing"))
        })?;
        Ok(true)
    }

    /// Adds the tensors of a pickle, whose storages `place` finds by their keys.
    fn add(&mut self, pickle: &Pickle<'_>, item: &Item, place: impl Fn(&str) -> Result<Place>) -> Result<()> {
        let mut failed = None;
        let walked = by_path(pickle, |view| match self.add_view(&view, item, &place) {
            Ok(()) => Some(()),
            Err(e) => {
                failed = Some(e);
                None
            }
        });
        match (failed, walked) {
            (Some(e), _) => Err(e),
            (None, None) => Err(Error::limit(
                "its pickle has more names of tensors, or paths to them, than are read: save the state_dict() of objects that refer to each \
                 other",
            )),
            (None, Some(())) => Ok(()),
        }
    }

    fn add_view(&mut self, view: &View<'_>, item: &Item, place: impl Fn(&str) -> Result<Place>) -> Result<()> {
        let Some(path) = &view.path else {
            let key = view.key;
            return Err(Error::unsupported(format!(
                "the name of a tensor of the storage {key:?} is longer than is read"
            )));
        };
        let found = located(view, place);
        let name = match (&path[..], &found) {
            ("", Ok(found)) => self.name_of_segment(found).unwrap_or_else(|| item.root.clone()),
            ("", Err(_)) => item.root.clone(),
            (path, _) => format!("{}{path}", item.prefix),
        };
        if !name.starts_with(self.prefix) {
            return Ok(());
        }
        let cost = Segment::cost(name.len(), 2 * view.shape.len());
        self.left =
            self.left.checked_sub(cost).ok_or_else(|| Error::limit("has more names of tensors than are read"))?;
        let found = found.map_err(|e| e.in_tensor(&*name))?;
        self.found.push(TensorView { name, ..found });
        Ok(())
    }

    /// The name of the segment that a tensor is.
    fn name_of_segment(&self, found: &TensorView) -> Option<String> {
        // One at most has bytes there. Of those that have none, only the first is looked at: there may be as many as tensors.
        let place = (found.elements.offset, found.len);
        let at = self.segments.partition_point(|s| (s.offset, s.len) < place);
        let s = self.segments.get(at)?;
        let is_same = (s.offset, s.len) == place && s.dtype == Some(found.dtype) && s.shape == found.shape;
        s.name.as_deref().filter(|_| is_same && found.elements.strides.is_none()).map(str::to_owned)
    }
}

/// A tensor, still without its name.
fn located(view: &View<'_>, place: impl Fn(&str) -> Result<Place>) -> Result<TensorView> {
    if !view.is_plain {
        return Err(Error::unsupported("it is quantised, sparse, a conjugate or otherwise not a plain tensor"));
    }
    let unknown = || Error::unsupported("its elements are of a type that lmc does not know");
    let elements = view.elements.ok_or_else(unknown)?;
    let width = elements.len().ok_or_else(unknown)?;
    let place = place(view.key)?;
    let mut shape = view.shape.clone();
    if elements.count > 1 {
        shape.push(elements.count);
    }
    let len = tensor_len(elements.dtype, &shape).filter(|&len| len <= u64::MAX / 2);
    let Some((len, found)) = len.zip(view.elements_in(place, width)) else {
        let (shape, stored) = (&view.shape, place.1);
        return Err(Error::damaged(format!(
            "its storage of {stored} bytes has not all elements of its shape {shape:?}"
        )));
    };
    Ok(TensorView { name: String::new(), dtype: elements.dtype, shape, len, elements: found })
}
