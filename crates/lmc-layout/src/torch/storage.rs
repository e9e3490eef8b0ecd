//! A storage is cut into the tensors that view it.

use std::cmp::Reverse;

use super::super::names::Unique;
use super::tensors::{Elements, View};
use crate::segment::Segment;

/// How the tensors of an archive are named.
pub(super) struct Item {
    /// One that is all that the archive holds.
    pub(super) root: String,
    /// Before the names of others.
    pub(super) prefix: String,
}

/// The bytes of a storage.
pub(super) struct Storage {
    /// Its name, for elements that no tensor names.
    pub(super) label: String,
    /// Its place in the file.
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Storage {
    /// Appends the tensors of the storage: those that are a range of it, and the bytes between them. Of two that
    /// overlap the first one counts, or the longer one. A storage of an unknown type, or of several, has none. `None`
    /// if the file has too many.
    pub(super) fn segments(
        &self,
        views: &[View<'_>],
        item: &Item,
        names: &mut Unique,
        segments: &mut Vec<Segment>,
    ) -> Option<()> {
        let Some(elements @ Elements { dtype, .. }) = views.first().and_then(|v| v.elements) else {
            return Some(());
        };
        let Some(width) = elements.len().filter(|&width| self.len.is_multiple_of(width)) else { return Some(()) };
        if views.iter().any(|v| v.elements != Some(elements)) {
            return Some(());
        }
        let total = self.len / width;
        let mut add = |name: [Option<String>; 2], first: u64, dims: &[u64], n: u64| {
            let shape = elements.shape(dims)?;
            let name = names.first(name, shape.len())?;
            segments.push(Segment::tensor(name, dtype, shape, self.offset + first * width, n * width));
            Some(())
        };
        let label = |first| match first {
            0 => format!("{}{}", item.prefix, self.label),
            first => format!("{}{}@{first}", item.prefix, self.label),
        };
        let mut ranges: Vec<(u64, u64, &View<'_>)> = views.iter().filter_map(|v| range(v, total)).collect();
        ranges.sort_by_key(|&(first, n, _)| (first, Reverse(n)));
        let mut at = 0;
        for (first, n, view) in ranges {
            if first < at && n > 0 {
                continue;
            }
            if n > 0 && first > at {
                add([Some(label(at)), None], at, &[first - at], first - at)?;
            }
            let path = view.path.as_ref().map(|path| match &path[..] {
                "" => item.root.clone(),
                path => format!("{}{path}", item.prefix),
            });
            match add([path, Some(label(first))], first, &view.shape, n) {
                // An empty tensor needs no other name.
                None if n == 0 => continue,
                added => added?,
            }
            at = at.max(first + n);
        }
        if at < total {
            add([Some(label(at)), None], at, &[total - at], total - at)?;
        }
        Some(())
    }
}

/// First element and number of elements of a tensor that is a range of a storage of `elements`.
fn range<'v, 'a>(view: &'v View<'a>, elements: u64) -> Option<(u64, u64, &'v View<'a>)> {
    let n = view.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
    let fits = view.is_contiguous() && view.first.checked_add(n)? <= elements;
    fits.then_some((view.first, n, view))
}
