//! All tensors of a file, under each of their names: also those that have the same elements, or elements that are not in order; and those
//! that cannot be given.

use std::borrow::Cow;
use std::collections::HashMap;

use super::super::account::{Account, Tensors};
use super::super::pickle::Pickle;
use super::super::strided::TensorView;
use super::super::suggestion::{MAX_COST, Prefix, Whole};
use super::archives::{Archives, Folders};
use super::legacy;
use super::storage::Item;
use super::tensors::{View, by_path};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::segment::{Segment, tensor_len};

/// The tensors whose names begin with `prefix`. `None` if torch did not write the file. A tensor that is all of an archive has the name of
/// its segment, if that is known: compressed files keep it.
pub(in super::super) fn declared(file: &mut dyn Prefix, segments: &[Segment], prefix: &str) -> Result<Option<Tensors>> {
    let account = Account::default();
    let mut views = Views { segments, prefix, found: Vec::new(), account, left: MAX_COST };
    let format = match Archives::of(file)? {
        Some(archives) => match file.whole() {
            Some(file) => views.add_archives(file, &archives)?.then(|| archives.format()),
            None => None,
        },
        None => views.add_legacy(file)?.then_some(legacy::NAME),
    };
    Ok(format.map(|format| Tensors { found: views.found, ..views.account.tensors(format, &[], prefix) }))
}

/// The tensors found so far.
struct Views<'s> {
    segments: &'s [Segment],
    prefix: &'s str,
    found: Vec<TensorView>,
    account: Account,
    /// Memory that is left for them.
    left: usize,
}

/// The offset of a storage in the file, and its bytes.
type Place = (u64, u64);

/// Why a tensor cannot be given.
type Why = Cow<'static, str>;

impl Views<'_> {
    /// Adds the tensors of all archives; false if torch did not write one of them.
    fn add_archives(&mut self, file: Whole<'_>, archives: &Archives) -> Result<bool> {
        let (mut any, mut several) = (false, 0);
        for (archive, item) in archives.items() {
            let folders = Folders::of(archive);
            let top = folders.top();
            let mut of_archive = false;
            for stored in folders.pickles() {
                of_archive = true;
                // Torch does not look for others, or refuses the archive.
                if stored.top() != top {
                    continue;
                }
                let Some(bytes) = stored.read(file)? else {
                    let name = stored.name();
                    return Err(Error::unsupported(format!(
                        "its entry {name:?} is compressed, or longer than is read"
                    )));
                };
                let Some(pickle) = Pickle::parse(&bytes) else { return Ok(false) };
                let is_little_endian = stored.is_little_endian(file)?;
                self.add(&pickle, &item, |view| match stored.storage(view.key) {
                    _ if !is_little_endian => Err("it is big-endian".into()),
                    Some(storage) if view.stored.is_none_or(|stored| stored == storage.len) => {
                        Ok((storage.offset, storage.len))
                    }
                    Some(storage) => {
                        let (key, len, said) = (view.key, storage.len, view.stored.unwrap_or_default());
                        Err(format!("its storage {key:?} has {len} bytes, and {said} as the pickle says").into())
                    }
                    None => Err(format!("its storage {:?} is missing or compressed", view.key).into()),
                })?;
            }
            if of_archive && let Some(why) = folders.refusal(file)? {
                self.account.missing("", why);
            }
            any |= of_archive;
            several += usize::from(of_archive);
        }
        if several > 1 && !archives.are_of_a_checkpoint() {
            let why = "it is several files of torch.save one after the other, which torch does not load: split them";
            self.account.missing("", why);
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
            storages.iter().map(|(key, storage, _)| (*key, (storage.offset, storage.len))).collect();
        self.add(&contents.object, &legacy::item(), |view| {
            places.get(view.key).copied().ok_or_else(|| "its storage is missing".into())
        })?;
        Ok(true)
    }

    /// Adds the tensors of a pickle, whose storages `place` finds.
    fn add(&mut self, pickle: &Pickle<'_>, item: &Item, place: impl Fn(&View<'_>) -> Result<Place, Why>) -> Result<()> {
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

    fn add_view(
        &mut self,
        view: &View<'_>,
        item: &Item,
        place: impl Fn(&View<'_>) -> Result<Place, Why>,
    ) -> Result<()> {
        let Some(path) = &view.path else {
            let key = view.key;
            self.account.missing("", format!("the name of a tensor of the storage {key:?} is longer than is read"));
            return Ok(());
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
        match found {
            Ok(found) => self.found.push(TensorView { name, ..found }),
            Err(why) => self.account.missing(name, why),
        }
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

/// A tensor, still without its name, or why it cannot be given.
fn located(view: &View<'_>, place: impl Fn(&View<'_>) -> Result<Place, Why>) -> Result<TensorView, Why> {
    if let Some(odd) = view.odd {
        return Err(odd.into());
    }
    let unknown = || Why::from("its elements are of a type that lmc does not know");
    let elements = view.elements.ok_or_else(unknown)?;
    let width = elements.len().ok_or_else(unknown)?;
    let Some((dtype, shape)) = elements.in_safetensors(&view.shape) else {
        return Err(match elements.dtype {
            Dtype::F64 => "its elements are of type torch.complex128, which safetensors files cannot hold".into(),
            Dtype::F16 => "its elements are of type torch.complex32, which safetensors files cannot hold".into(),
            _ => "it is a pair of FP4 without dimensions, which safetensors files cannot hold".into(),
        });
    };
    let place = place(view)?;
    let len = tensor_len(dtype, &shape).filter(|&len| len <= u64::MAX / 2);
    let Some((len, found)) = len.zip(view.elements_in(place, width)) else {
        let (shape, stored) = (&view.shape, place.1);
        return Err(format!("its storage of {stored} bytes has not all elements of its shape {shape:?}").into());
    };
    Ok(TensorView { name: String::new(), dtype, shape, len, elements: found })
}
