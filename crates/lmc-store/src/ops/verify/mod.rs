//! Verification that everything a snapshot needs is present and unchanged.

mod records;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::chunks::catalog::{Budget, Catalog, SetId};
use crate::chunks::chain::{self, ChainDecoder};
use crate::chunks::gather::SIDE_BY_SIDE;
use crate::chunks::presence::Presence;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::Step;
use crate::objects::ordered;
use crate::objects::remote::Remote;
use crate::ops::restore::SnapshotReader;
use crate::records::history::remedy;
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;
pub use records::VerifyOptions;

/// A problem of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The affected snapshot.
    pub step: Step,
    /// The part that cannot be restored: file and tensor, or file alone for bytes outside of tensors; `None` for the
    /// whole snapshot.
    pub lost: Vec<(String, Option<String>)>,
    /// Whether the snapshot can be restored whole all the same: only what its record states is wrong.
    pub intact: bool,
    /// The problem, with the object and the place in it.
    pub message: String,
    /// What can be done, if something can.
    pub remedy: Option<String>,
}

impl Problem {
    /// The error kind of a problem that blocks a restore.
    pub(crate) fn kind(&self) -> ErrorKind {
        if self.remedy.is_some() { ErrorKind::Damaged } else { ErrorKind::Unsupported }
    }
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Number of data objects checked.
    pub objects: u64,
    /// Block sets that the snapshots need.
    pub block_sets: u64,
    /// Ordered by snapshot; empty if all is well.
    pub problems: Vec<Problem>,
    /// What is wrong with tags: they cannot be read, or name snapshots that are gone.
    pub tags: Vec<String>,
    /// Not problems of a snapshot, but worth knowing: foreign or superseded objects in the store.
    pub notes: Vec<String>,
    /// Number of snapshots checked.
    pub snapshots: u64,
}

/// Bad block sets, each with the reason.
type Bad = HashMap<SetId, Fault>;

/// What is wrong with a block set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fault {
    message: String,
    /// Whether it is lost; otherwise a newer lmc, or one with other limits, can decode it.
    is_lost: bool,
}

impl Store {
    /// Verifies snapshots: manifests have their hashes and agree with each other, and every data object exists with its length. With `deep`
    /// also that every block set has its hash and decodes to the saved bytes.
    ///
    /// # Errors
    /// `Store` when requests fail. Problems of the snapshots are not errors but part of the result.
    pub fn verify(&self, snapshots: &[Snapshot], deep: bool, threads: usize) -> Result<Verified> {
        self.verify_beside(snapshots, deep, threads, &Catalog::default())
    }

    /// [`Self::verify`], reusing shards that a catalog already has.
    pub(crate) fn verify_beside(
        &self,
        snapshots: &[Snapshot],
        deep: bool,
        threads: usize,
        other: &Catalog,
    ) -> Result<Verified> {
        let mut found = Verified { snapshots: snapshots.len() as u64, ..Verified::default() };
        let (presence, mut known, mut bad) = (Presence::new(self.remote()), HashSet::new(), Bad::new());
        let mut verify_some = |catalog: Result<Catalog>, some: &[Snapshot]| -> Result<()> {
            let catalog = match catalog {
                Ok(catalog) => catalog,
                Err(e) => {
                    found.problems.extend(some.iter().map(|s| unopened(s, &e)));
                    return Ok(());
                }
            };
            let (mut opened, mut new) = (vec![], BTreeSet::new());
            for s in some {
                match self.open_beside(s, &catalog) {
                    Ok(reader) => {
                        found.problems.extend(wrong_sizes(&reader)?);
                        for e in reader.extents().flat_map(|(_, extents)| extents) {
                            if !known.contains(&e.set) && !new.contains(&e.set) {
                                new.extend(catalog.chain(e.set)?.into_iter().filter(|link| !known.contains(link)));
                            }
                        }
                        opened.push(s);
                    }
                    Err(e) if e.kind() == ErrorKind::Store => return Err(e),
                    Err(e) => found.problems.push(unopened(s, &e)),
                }
            }
            presence.look(&catalog, new.iter().copied())?;
            for &set in &new {
                let fault = presence.fault(&catalog, set)?;
                bad.extend(fault.map(|message| (set, Fault { message, is_lost: true })));
            }
            if deep {
                decode_all(self.remote(), &catalog, &new, threads, &mut bad)?;
            }
            known.extend(new);
            // The lists of files and tensors of all these snapshots would fill the memory.
            for s in opened.into_iter().filter(|_| !bad.is_empty()) {
                problems_of(&self.open_beside(s, &catalog)?, &bad, &mut found.problems)?;
            }
            Ok(())
        };
        other.load_in_parts(self.remote(), snapshots, &|s| &s.shards, Budget::default(), &mut verify_some)?;
        (found.objects, found.block_sets) = (presence.count() as u64, known.len() as u64);
        found.problems.sort_by_key(|p| p.step);
        Ok(found)
    }
}

/// The problem of a snapshot whose documents are not what a reader needs.
fn unopened(s: &Snapshot, e: &Error) -> Problem {
    let remedy = (e.kind() == ErrorKind::Damaged).then(|| remedy("the object", s.step));
    Problem { step: s.step, lost: vec![], intact: false, message: e.to_string(), remedy }
}

/// Checks that a record's sizes are the sums of its shards' sizes.
fn wrong_sizes(reader: &SnapshotReader) -> Result<Option<Problem>> {
    let s = reader.snapshot();
    let (raw, new) = reader.catalog().sizes(&s.shards)?;
    if (raw, new) == (s.raw_size, s.new_size) {
        return Ok(None);
    }
    let message = format!(
        "the record gives {} bytes of files and {} stored bytes, but its shards have {raw} and {new}",
        s.raw_size, s.new_size
    );
    Ok(Some(Problem { step: s.step, lost: vec![], intact: true, message, remedy: None }))
}

/// Decodes each of these sets at least once: those that are no other's base, with their chains.
fn decode_all(remote: &Remote, catalog: &Catalog, sets: &BTreeSet<SetId>, threads: usize, bad: &mut Bad) -> Result<()> {
    let mut bases: HashSet<SetId> = HashSet::new();
    for &set in sets {
        bases.extend(catalog.bases(set)?);
    }
    let ends: Vec<SetId> = sets.iter().filter(|set| !bases.contains(set)).copied().collect();
    let known = bad.clone();
    let threads = lmc_pool::threads(threads);
    // A set whose chain contains a bad set cannot be decoded.
    let chain = |i: usize| -> Result<Vec<SetId>> {
        let chain = catalog.chain(ends[i])?.into_iter();
        Ok(chain.take_while(|id| !known.contains_key(id)).collect())
    };
    ordered::run(
        threads,
        SIDE_BY_SIDE.max(threads + 1),
        ends.len(),
        |i| chain(i).map(|chain| (chain::begin(remote, catalog, &chain), chain)),
        ChainDecoder::new,
        |decoder, _, begun| {
            let (begun, chain) = begun?;
            let mut decode = |chain: &[SetId], begun| -> Result<()> {
                let stored = chain::finish(remote, begun)?;
                chain::verify(catalog, chain, &stored)?;
                let all: Vec<usize> = (0..chain.len()).collect();
                decoder.decode_each(catalog, chain, &stored, &all, |_| Ok(()))
            };
            if let Err(e) = decode(&chain, begun) {
                only_damage(e)?;
                for n in 1..=chain.len() {
                    let part = &chain[..n];
                    if let Err(e) = decode(part, chain::begin(remote, catalog, part)) {
                        return Ok(Some((chain[n - 1], only_damage(e)?)));
                    }
                }
            }
            Ok(None)
        },
        |_, wrong| {
            bad.extend(wrong);
            Ok(())
        },
    )
}

/// The fault of an error about the store's contents; other errors are passed on.
fn only_damage(e: Error) -> Result<Fault> {
    match e.kind() {
        ErrorKind::Store | ErrorKind::Io => Err(e),
        kind => Ok(Fault { message: e.to_string(), is_lost: kind == ErrorKind::Damaged }),
    }
}

/// Reports for each bad set the parts of a snapshot that depend on it.
fn problems_of(reader: &SnapshotReader, bad: &Bad, problems: &mut Vec<Problem>) -> Result<()> {
    let mut lost: BTreeMap<&Fault, BTreeSet<(String, Option<String>)>> = BTreeMap::new();
    for (file, extents) in reader.extents() {
        for e in extents {
            let chain = reader.catalog().chain(e.set)?;
            let Some(fault) = chain.iter().find_map(|link| bad.get(link)) else { continue };
            let lost = lost.entry(fault).or_default();
            let end = e.offset + e.len;
            let first = file.segments.partition_point(|s| s.end() <= e.offset);
            for s in file.segments[first..].iter().take_while(|s| s.offset < end).filter(|s| s.len > 0) {
                lost.insert((file.name.clone(), s.name.as_ref().map(|n| n.to_string())));
            }
        }
    }
    let step = reader.snapshot().step;
    problems.extend(lost.into_iter().map(|(fault, lost)| Problem {
        step,
        lost: lost.into_iter().collect(),
        intact: false,
        message: fault.message.clone(),
        remedy: fault.is_lost.then(|| remedy("the object", step)),
    }));
    Ok(())
}
