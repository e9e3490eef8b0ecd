//! The order of snapshots, for all kinds of followers.

use std::fmt::Display;

use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{RunId, SaveId, Step};
use crate::records::snapshot::{At, Snapshot};
use crate::records::store::Store;

/// The store's last snapshot, unless the follower has it, or there is none.
pub(super) fn newest(store: &Store, there: Option<(Step, SaveId)>) -> Result<Option<Snapshot>> {
    let is_new = |s: &Snapshot| there.is_none_or(|(_, id)| id != s.id);
    // What is there is mostly the last one, or later ones follow it: earlier ones, which may be many, are not listed.
    if let Some((step, _)) = there
        && let Some(last) = store.latest_from(step)?
    {
        return Ok(Some(last).filter(is_new));
    }
    match store.find(At::Latest) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        found => Ok(Some(found?).filter(is_new)),
    }
}

/// The run of the store that exists now. Fails if the follower holds versions of another run, unless `any` is set.
/// `place` is for the message.
pub(super) fn run(place: impl Display, store: &Store, held: Option<RunId>, any: bool) -> Result<RunId> {
    let run = store.run_now()?;
    match held.filter(|&held| held != run && !any) {
        None => Ok(run),
        Some(held) => Err(Error::usage(format!(
            "{place}: has versions of run {held}, and the store is of run {run}: follow this one elsewhere, or allow it (--rewind, rewind=True)"
        ))),
    }
}

/// Fails unless the store has the follower's snapshot, whose run is not known. `place` is for the message.
pub(super) fn known(place: impl Display, store: &Store, (step, id): (Step, SaveId)) -> Result<()> {
    match store.find(At::Step(step)) {
        Ok(s) if s.id == id => Ok(()),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Err(Error::usage(format!(
            "{place}: has version {step}, which is not from this store: follow it into another directory, or allow it (--rewind, rewind=True)"
        ))),
    }
}

/// Fails unless a snapshot is later than the follower's, `there`, or the same. `place` is for the message.
pub(super) fn check(place: impl Display, there: Option<(Step, SaveId)>, snapshot: &Snapshot) -> Result<()> {
    let Some((step, id)) = there else { return Ok(()) };
    if snapshot.step > step || snapshot.id == id {
        return Ok(());
    }
    let what = match snapshot.step == step {
        true => format!("another snapshot of step {step} (id {})", snapshot.id),
        false => format!("a snapshot of step {}", snapshot.step),
    };
    Err(Error::usage(format!(
        "{place}: has step {step}, and what is to follow is {what}: if the run was rewound, allow it (--rewind, rewind=True)"
    )))
}
