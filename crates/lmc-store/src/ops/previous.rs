//! The snapshot before a new one: what a save or a copy re-uses of a store (`docs/store.md` §5).

use crate::chunks::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::Step;
use crate::records::history::{DamagedRecord, remedy};
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// After this number of snapshots that cannot be opened, everything is stored again: what is common to all may be lost,
/// and each try takes time.
const MAX_FAILED: usize = 32;

/// The snapshot before a new one, if there is one.
pub(crate) struct Previous {
    pub(crate) snapshot: Option<Snapshot>,
    /// Its shards, and those that they refer to.
    pub(crate) catalog: Catalog,
    /// A message about later snapshots that cannot be opened, and records that cannot be read.
    pub(crate) note: Option<String>,
}

impl Store {
    /// The last snapshot before a step that can be opened. Fails if none can be saved there any more.
    pub(crate) fn before(&self, step: Step) -> Result<Previous> {
        self.check_above_floor(step)?;
        let mut failed: Vec<(Step, Error)> = vec![];
        // Gives a snapshot that can be opened, or none if it is time to give up.
        let mut open = |read: Result<Snapshot, DamagedRecord>| {
            let (step, e) = match read {
                Ok(snapshot) => match self.open_base(&snapshot) {
                    Ok(catalog) => return Ok(Some(Some((snapshot, catalog)))),
                    Err(e) => (snapshot.step, e),
                },
                Err(bad) => (bad.step, bad.cause()),
            };
            // One of a newer lmc is no reason to store everything again.
            if e.kind() != ErrorKind::Damaged {
                return Err(e.at(format_args!("step {step}")));
            }
            failed.push((step, e));
            Ok((failed.len() == MAX_FAILED).then_some(None))
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
        let (snapshot, catalog) = found.flatten().unzip();
        Ok(Previous { snapshot, catalog: catalog.unwrap_or_default(), note })
    }

    pub(crate) fn open_base(&self, snapshot: &Snapshot) -> Result<Catalog> {
        let catalog = self.remote().wait(Catalog::load(self.remote(), &snapshot.shards))?;
        catalog.check_segments(&snapshot.shards)?;
        Ok(catalog)
    }
}
