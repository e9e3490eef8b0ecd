//! The bases of deltas.

use std::sync::Arc;

use lmc::resolve_bases;
use lmc_cli::{Guard, Role};

use crate::buffer::Writable;
use crate::errors::{Failure, Result};
use crate::source::Source;

/// A base that was not opened yet: raw or compressed, or the base of a compressed one.
#[derive(Clone)]
pub(crate) struct BaseSource {
    pub(crate) source: Arc<Source>,
    /// Whether it is only for other bases.
    pub(crate) optional: bool,
    /// The name that deltas record; by default the file's.
    pub(crate) name: Option<Arc<str>>,
}

impl BaseSource {
    pub(crate) fn new(source: Arc<Source>, optional: bool) -> Self {
        Self { source, optional, name: None }
    }

    fn name(&self) -> String {
        self.name.as_deref().map_or_else(|| self.source.name(), str::to_owned)
    }
}

/// The argument `base`.
#[derive(Clone, Default)]
pub(crate) struct Bases(pub(crate) Vec<BaseSource>);

impl Bases {
    /// Opens the bases, and gives compressed ones their own bases.
    pub(crate) fn link(&self, threads: usize) -> Result<Vec<lmc::Base<'static>>> {
        let named = self.0.iter().map(|b| (b.name(), b.source.clone()));
        let linked =
            resolve_bases(named, threads).map_err(|e| Failure::from(e.error).in_file(self.0[e.file].source.path()))?;
        let optional = linked.into_iter().zip(&self.0);
        Ok(optional.map(|(b, given)| if given.optional { b.optional() } else { b }).collect())
    }

    /// Fails if a buffer to be written is one of them.
    pub(crate) fn check_apart(&self, out: &Writable) -> Result<()> {
        if self.0.iter().any(|b| b.source.buffer().is_some_and(|b| b.overlaps(out))) {
            return Err(Failure::usage("out shares memory with a base"));
        }
        Ok(())
    }

    /// The files that an output made from `source` and these bases must not replace.
    pub(crate) fn guard(&self, source: Option<&Source>) -> Guard {
        let guard = Guard::default();
        self.0.iter().for_each(|b| b.source.guard(&guard, Role::Base));
        source.into_iter().for_each(|s| s.guard(&guard, Role::Input));
        guard
    }

    /// Fails if a file among them was modified since it was opened.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        self.0.iter().try_for_each(|b| b.source.check_unchanged())
    }
}
