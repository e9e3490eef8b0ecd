//! Verification that everything a snapshot needs is present and unchanged.

mod records;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::catalog::{Budget, Catalog, SetId};
use crate::chain::{self, ChainDecoder};
use crate::error::{Error, ErrorKind, Result};
use crate::gather::SIDE_BY_SIDE;
use crate::history::remedy;
use crate::ids::Step;
use crate::ordered;
use crate::presence::{Written, faults, written};
use crate::remote::Remote;
use crate::restore::SnapshotReader;
use crate::snapshot::Snapshot;
use crate::store::Store;
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

/// Snapshots whose documents are loaded at once.
const AT_ONCE: usize = 64;

impl Store {
    /// Verifies snapshots: manifests have their hashes and agree with each other, and every data object exists with its length. With `deep`
    /// also that every block set has its hash and decodes to the saved bytes.
    ///
    /// # Errors
    /// `Store` when requests fail. Problems of the snapshots are not errors but part of the result.
    pub fn verify(&self, snapshots: &[Snapshot], deep: bool, threads: usize) -> Result<Verified> {
        let mut found = Verified { snapshots: snapshots.len() as u64, ..Verified::default() };
        let (mut opened, mut catalog) = (vec![], Catalog::default());
        let mut chains: BTreeMap<SetId, Vec<SetId>> = BTreeMap::new();
        for (i, s) in snapshots.iter().enumerate() {
            if i % AT_ONCE == 0 {
                let some = &snapshots[i..snapshots.len().min(i + AT_ONCE)];
                let shards: Vec<_> = some.iter().flat_map(|s| s.shards.iter().copied()).collect();
                // What cannot be loaded is reported by snapshot.
                if let Ok(loaded) =
                    self.remote().wait(Catalog::load_within(self.remote(), &shards, Budget::of(some.len())))
                {
                    catalog.extend(&loaded);
                }
            }
            match self.open_beside(s, &catalog) {
                Ok(reader) => {
                    found.problems.extend(wrong_sizes(&reader)?);
                    let here = reader.catalog();
                    for e in reader.extents().flat_map(|(_, extents)| extents) {
                        if chains.contains_key(&e.set) {
                            continue;
                        }
                        for link in here.chain(e.set)? {
                            if let Entry::Vacant(new) = chains.entry(link) {
                                new.insert(here.chain(link)?);
                            }
                        }
                    }
                    catalog.extend(here);
                    opened.push(s);
                }
                Err(e) if e.kind() == ErrorKind::Store => return Err(e),
                Err(e) => {
                    let remedy = (e.kind() == ErrorKind::Damaged).then(|| remedy("the object", s.step));
                    let message = e.to_string();
                    found.problems.push(Problem { step: s.step, lost: vec![], intact: false, message, remedy });
                }
            }
        }
        found.block_sets = chains.len() as u64;
        let mut bad = Bad::new();
        found.objects = look_at_objects(self.remote(), &catalog, &chains, &mut bad)?;
        if deep {
            decode_all(self.remote(), &catalog, &chains, threads, &mut bad)?;
        }
        // The lists of files and tensors of all snapshots would fill the memory. Their documents are in the catalog.
        for s in opened.into_iter().filter(|_| !bad.is_empty()) {
            problems_of(&self.open_beside(s, &catalog)?, &chains, &bad, &mut found.problems);
        }
        found.problems.sort_by_key(|p| p.step);
        Ok(found)
    }
}

/// Checks that a record's sizes are the sums of its shards' sizes.
fn wrong_sizes(reader: &SnapshotReader) -> Result<Option<Problem>> {
    let s = reader.snapshot();
    let (mut raw, mut new) = (0u64, 0u64);
    for &id in &s.shards {
        let shard = reader.catalog().shard(id)?;
        (raw, new) = (raw.saturating_add(shard.raw_size()), new.saturating_add(shard.new_size()));
    }
    if (raw, new) == (s.raw_size, s.new_size) {
        return Ok(None);
    }
    let message = format!(
        "the record gives {} bytes of files and {} stored bytes, but its shards have {raw} and {new}",
        s.raw_size, s.new_size
    );
    Ok(Some(Problem { step: s.step, lost: vec![], intact: true, message, remedy: None }))
}

/// Finds sets whose data object is missing or has another length; returns the number of objects.
fn look_at_objects(
    remote: &Remote,
    catalog: &Catalog,
    chains: &BTreeMap<SetId, Vec<SetId>>,
    bad: &mut Bad,
) -> Result<u64> {
    let mut sets: BTreeMap<Written, Vec<SetId>> = BTreeMap::new();
    for &id in chains.keys() {
        sets.entry(written(catalog, id)?).or_default().push(id);
    }
    for (object, wrong) in remote.wait(faults(remote, sets.keys().copied()))? {
        bad.extend(sets[&object].iter().map(|&id| (id, Fault { message: wrong.clone(), is_lost: true })));
    }
    Ok(sets.len() as u64)
}

/// Decodes every set at least once: the sets that are no other's base, with their chains.
fn decode_all(
    remote: &Remote,
    catalog: &Catalog,
    chains: &BTreeMap<SetId, Vec<SetId>>,
    threads: usize,
    bad: &mut Bad,
) -> Result<()> {
    let ends = chain::covering(catalog, chains.keys().copied())?;
    let known = bad.clone();
    let threads = lmc_pool::threads(threads);
    // A set whose chain contains a bad set cannot be decoded.
    let chain = |i: usize| {
        let ids: &[SetId] = &ends[i];
        &ids[..ids.iter().take_while(|id| !known.contains_key(id)).count()]
    };
    ordered::run(
        threads,
        SIDE_BY_SIDE.max(threads + 1),
        ends.len(),
        |i| chain::begin(remote, catalog, chain(i)),
        ChainDecoder::new,
        |decoder, i, begun| {
            let chain = chain(i);
            let mut decode = |chain: &[SetId], begun| -> Result<()> {
                let stored = chain::finish(remote, begun)?;
                chain::verify(catalog, chain, &stored)?;
                let all: Vec<usize> = (0..chain.len()).collect();
                decoder.decode_each(catalog, chain, &stored, &all, |_| Ok(()))
            };
            if let Err(e) = decode(chain, begun) {
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
fn problems_of(reader: &SnapshotReader, chains: &BTreeMap<SetId, Vec<SetId>>, bad: &Bad, problems: &mut Vec<Problem>) {
    let mut lost: BTreeMap<&Fault, BTreeSet<(String, Option<String>)>> = BTreeMap::new();
    for (file, extents) in reader.extents() {
        for e in extents {
            let Some(fault) = chains[&e.set].iter().find_map(|link| bad.get(link)) else { continue };
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
}
