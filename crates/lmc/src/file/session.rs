//! Encoding a file, before its first block: its bases, and its first bytes.

use std::sync::Arc;

use crate::block::methods::predicted::grid::find as grid;
use crate::block::structure::LEAST;
use crate::file::cut::Cutter;
use crate::file::hashing::sha256_of_base;
use crate::file::origin::{NoSelf, Raw, ReferenceResolver, SelfSource};
use crate::file::writer::Writer;
use crate::format::bases::{BaseInfo, Sources};
use crate::format::header::Features;
use crate::refs::base::Base;
use crate::refs::matching::Matcher;
use crate::refs::{intra_file, steps};
use crate::settings::options::CompressOptions;
use lmc_layout::Layout;
use lmc_layout::dtype::Dtype;
use lmc_layout::error::Result;

/// A file whose blocks come next.
pub(crate) struct EncodeSession<'m> {
    pub(crate) cutter: Cutter<'m>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) writer: Writer,
    /// The first bytes of the file.
    pub(crate) start: Vec<u8>,
    pub(crate) origin: ReferenceResolver<'m>,
}

impl<'m> EncodeSession<'m> {
    /// `own` is the file where any of its bytes can be read at any time. `info` says how a base is named, if the file needs it.
    pub(crate) fn new(
        o: &CompressOptions,
        layout: Layout,
        own: Option<&'m Raw<'m>>,
        bases: &'m [Base<'m>],
        info: impl FnMut(&Base<'m>) -> Result<BaseInfo>,
    ) -> Result<Self> {
        let mut matcher = (!bases.is_empty()).then(|| match own {
            Some(raw) if !o.independent => Matcher::with_derived(&layout, bases, &mut |at, buf| raw.read_now(at, buf)),
            _ => Matcher::new(&layout, bases),
        });
        let mut siblings = match own {
            Some(raw) if !o.independent => intra_file::find(&layout.segments, |at, buf| raw.read_now(at, buf)),
            _ => vec![],
        };
        let has_siblings = siblings.iter().any(Option::is_some);
        if !has_siblings {
            siblings.clear();
        }
        let steps = match (own, &mut matcher) {
            (Some(raw), Some(matcher)) if !o.independent => {
                steps::find(&layout, matcher, |at, buf| raw.read_now(at, buf))
            }
            _ => vec![],
        };
        let needed = matcher.as_ref().map_or(&[][..], Matcher::bases);
        let named = needed.iter().copied().map(info).collect::<Result<Vec<_>>>()?;
        let bases: Vec<Base<'m>> = needed.iter().copied().cloned().collect();
        let digests = bases.iter().filter(|_| o.digest).map(sha256_of_base).collect::<Result<Vec<_>>>()?;
        let has_own = has_siblings || !steps.is_empty() || matcher.as_ref().is_some_and(Matcher::has_own_scales);
        let features = Features {
            ranges: has_own || !named.is_empty(),
            own: has_own,
            grids: true,
            optimizer: true,
            derived: !named.is_empty(),
            ..Features::default()
        };
        let name = format!("lmc {} {}", env!("CARGO_PKG_VERSION"), o.level.name());
        let (mut writer, start) = Writer::start(&Sources { features, bases: named }, name)?;
        writer.set_base_digests(digests.into_iter());
        let origin = ReferenceResolver::new(bases, &[], own.map_or(&NoSelf as &dyn SelfSource, |raw| raw));
        let may_have_grids = may_have_grids(&layout);
        let layout = Arc::new(layout);
        let cutter = Cutter::new(layout.clone(), matcher, siblings).with_grids(may_have_grids).with_steps(steps);
        Ok(Self { cutter, layout, writer, start, origin })
    }
}

/// Whether a file has tensors whose elements may be on grids.
fn may_have_grids(layout: &Layout) -> bool {
    let is_possible = |dtype: Option<Dtype>| dtype.is_some_and(|d| grid::conversion_of(d).is_some());
    is_possible(layout.tail) || layout.segments.iter().any(|s| s.len >= LEAST as u64 && is_possible(s.dtype))
}
