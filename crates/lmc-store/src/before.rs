//! The snapshot before a new one: what a save or a copy re-uses of a store (`docs/store.md` §5).

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::history::remedy;
use crate::ids::Step;
use crate::snapshot::{At, Snapshot};
use crate::store::Store;

/// The snapshot before a new one, if there is one.
pub(crate) struct Before {
    pub(crate) snapshot: Option<Snapshot>,
    /// Its shards, and those that they refer to.
    pub(crate) catalog: Catalog,
    /// A message about later snapshots that cannot be opened.
    pub(crate) note: Option<String>,
}

impl Store {
    /// The last snapshot before a step that can be opened.
    pub(crate) fn before(&self, step: Step) -> Result<Before> {
        let mut failed: Vec<(Step, Error)> = vec![];
        let mut open = |snapshot: Snapshot| match self.open_base(&snapshot) {
            Err(e) if e.kind() == ErrorKind::Damaged => {
                failed.push((snapshot.step, e));
                Ok(None)
            }
            // One of a newer lmc is no reason to store everything again.
            Err(e) => Err(e.at(format_args!("step {}", snapshot.step))),
            Ok(catalog) => Ok(Some((snapshot, catalog))),
        };
        let found = match self.last_before(step, &mut open)? {
            // A run whose steps are saved in another order shares data, too.
            None => self.first_after(step, &mut open)?,
            before => before,
        };
        let note = failed.first().map(|(step, e)| {
            let who = match failed.len() - 1 {
                0 => format!("step {step}: cannot be the base"),
                n => format!("step {step} and {n} more: cannot be the base"),
            };
            format!("{who}: {e}; {}", remedy("it", *step))
        });
        let (snapshot, catalog) = found.unzip();
        Ok(Before { snapshot, catalog: catalog.unwrap_or_default(), note })
    }

    /// The snapshot of a step, as the one before a new one.
    pub(crate) fn before_named(&self, step: Step) -> Result<Before> {
        let snapshot = self.find(At::Step(step))?;
        let catalog = self.open_base(&snapshot).map_err(|e| {
            let e = e.at(format_args!("step {step}"));
            e.and("; it cannot be the base: name another step, or none")
        })?;
        Ok(Before { snapshot: Some(snapshot), catalog, note: None })
    }

    fn open_base(&self, snapshot: &Snapshot) -> Result<Catalog> {
        let catalog = self.remote().wait(Catalog::load(self.remote(), &snapshot.shards))?;
        catalog.check_segments(&snapshot.shards)?;
        Ok(catalog)
    }
}
