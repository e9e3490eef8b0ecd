//! The latest snapshot that can be restored, for a reader that can do with an older one (`docs/store.md` §3).

use crate::error::{ErrorKind, Result};
use crate::format::ids::Step;
use crate::records::history::Listing;
use crate::records::snapshot::{At, Snapshot};
use crate::records::store::Store;

/// How many snapshots that are not whole are passed over.
const PASSED_OVER: usize = 32;

impl Store {
    /// The latest snapshot that is whole, as [`Self::verify`] without `deep` sees it, and what is wrong with later ones, by step. If none is
    /// whole, that of [`Self::find`].
    ///
    /// # Errors
    /// Those of [`Self::find`]; `Unsupported`, when another lmc wrote the latest one, is not passed over.
    pub fn find_whole(&self) -> Result<(Snapshot, Vec<(Step, String)>)> {
        let latest = self.find(At::Latest);
        match &latest {
            Ok(s) if self.loss(s)?.is_some() => {}
            Err(e) if e.kind() == ErrorKind::Damaged => {}
            _ => return latest.map(|s| (s, vec![])),
        }
        let Listing { snapshots, damaged, .. } = self.list()?;
        let mut passed = vec![];
        for s in snapshots.into_iter().rev().take(PASSED_OVER) {
            let Some(why) = self.loss(&s)? else {
                let later = damaged.into_iter().filter(|bad| bad.step > s.step);
                passed.extend(later.map(|bad| (bad.step, bad.message)));
                passed.sort_unstable();
                return Ok((s, passed));
            };
            passed.push((s.step, why));
        }
        latest.map(|s| (s, vec![]))
    }

    /// What keeps a snapshot from being restored, if it is lost.
    fn loss(&self, s: &Snapshot) -> Result<Option<String>> {
        let found = self.verify(std::slice::from_ref(s), false, 0)?.problems;
        Ok(found.into_iter().find(|p| !p.intact && p.remedy.is_some()).map(|p| p.message))
    }
}
