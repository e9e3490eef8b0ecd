//! Tensors in the caller's memory that follow a store.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use lmc::{ReadAt, Segment};
use lmc_pool::Workers;

use super::lists::{Listed, Lists};
use super::order;
use super::patch::{Patch, Spares, width};
use super::spec::TensorSpec;
use super::staged::FollowOptions;
use super::state::{Place, State, To, add, no_list};
use super::tied::{self, Tied};
use crate::chunks::gather::{Gather, Located, Take};
use crate::chunks::held::Held;
use crate::error::{Error, ErrorKind, Result};
use crate::format::ids::{Hash, RunId, SaveId, Step};
use crate::format::manifest::shard::BlockSet;
use crate::ops::restore::SnapshotReader;
use crate::records::snapshot::Snapshot;
use crate::records::store::Store;

/// A version that is ready: its changes, in memory of their own.
#[derive(Debug)]
pub struct StagedTensors {
    /// The state that it was made from: it applies to no other.
    from: Arc<State>,
    to: Arc<State>,
    patches: Vec<Patch>,
    fetched_size: u64,
    spares: Arc<Spares>,
}

/// Tensors in the caller's memory that follow a store.
///
/// The caller has the memory, and passes it to each call, in the order of the specifications. Until [`Self::commit`] it
/// is only read: it may be in use. A commit writes the changed elements, and takes less time than a copy of the
/// tensors. It cannot fail half-way; but a concurrent reader would see parts of both versions, so readers must pause.
///
/// ```no_run
/// use lmc_store::{Location, Store, TensorFollower, TensorSpec};
/// let store = Store::open(&"s3://bucket/run".parse::<Location>()?, Default::default())?;
/// let (name, dtype, shape) = ("lm_head.weight".into(), lmc::Dtype::Bf16, vec![32000, 4096]);
/// let spec = TensorSpec { name, dtype, shape, first_row: None };
/// let mut head = vec![0; 32000 * 4096 * 2];
/// let mut follower = TensorFollower::new(store, vec![spec], Default::default())?;
/// if let Some(snapshot) = follower.newest()? {
///     follower.load(&snapshot, &mut [&mut head], &mut |_| Ok(()))?;
/// }
/// // Later, while the tensors are in use:
/// if let Some(snapshot) = follower.newest()? {
///     let staged = follower.stage(&snapshot, &[&head], &mut |_| Ok(()))?;
///     // And while they are not:
///     follower.commit(&staged, &mut [&mut head])?;
/// }
/// # Ok::<(), lmc_store::Error>(())
/// ```
pub struct TensorFollower {
    store: Store,
    tensors: Vec<TensorSpec>,
    options: FollowOptions,
    workers: Workers<()>,
    tied: Vec<Tied>,
    state: Option<Arc<State>>,
    /// The snapshot that was opened last, until the tensors hold it: several calls need it.
    opened: Mutex<Option<Arc<SnapshotReader>>>,
    /// The memory of the last update that is gone.
    spares: Arc<Spares>,
}

impl StagedTensors {
    /// The step of its snapshot.
    pub fn step(&self) -> Step {
        self.to.step
    }

    /// The id of its snapshot.
    pub fn id(&self) -> SaveId {
        self.to.id
    }

    /// The step of the version that it was made from.
    pub fn from(&self) -> Step {
        self.from.step
    }

    /// The changes, by tensor and element.
    pub fn patches(&self) -> &[Patch] {
        &self.patches
    }

    /// How many elements are written.
    pub fn changed(&self) -> u64 {
        self.patches.iter().map(|p| (p.values().len() / p.width()) as u64).sum()
    }

    /// Bytes fetched from the store for it.
    pub fn fetched_size(&self) -> u64 {
        self.fetched_size
    }
}

impl Drop for StagedTensors {
    fn drop(&mut self) {
        self.spares.replace(std::mem::take(&mut self.patches));
    }
}

impl TensorFollower {
    /// Tensors with these names, types and shapes will follow the store. They hold no snapshot yet.
    ///
    /// # Errors
    /// `Usage` when two have the same name, or one has no whole number of bytes.
    pub fn new(store: Store, tensors: Vec<TensorSpec>, options: FollowOptions) -> Result<Self> {
        check_specs(&tensors)?;
        let workers = Workers::new(options.threads, Box::new(|| ()) as Box<dyn Fn() + Send + Sync>);
        let (tied, state, opened, spares) = Default::default();
        Ok(Self { store, tensors, options, workers, tied, state, opened, spares })
    }

    /// Further tensors follow, after those before. They hold nothing, and the next update writes all of them. Updates
    /// that were staged before are void.
    ///
    /// # Errors
    /// Those of [`Self::new`]; then nothing is added.
    pub fn add(&mut self, tensors: Vec<TensorSpec>) -> Result<()> {
        let tensors = [&self.tensors[..], &tensors].concat();
        check_specs(&tensors)?;
        self.tensors = tensors;
        self.change_places(|_| {});
        Ok(())
    }

    /// Says that these tensors, by their indices, hold nothing any more, as when another program wrote to them: the next
    /// update writes all of them, and reads none. Updates that were staged before are void.
    pub fn forget(&mut self, tensors: &[usize]) {
        self.change_places(|places| tensors.iter().for_each(|&t| places[t].clear()));
    }

    /// Other names of tensors, by their indices: of each version that has such a name, the bytes must be those of the
    /// tensor. Otherwise loading, adopting and staging fail, with `Usage`, and write nothing.
    pub fn tie(&mut self, names: impl IntoIterator<Item = (String, usize)>) {
        self.tied.extend(names.into_iter().map(|(name, tensor)| Tied { name, tensor }));
    }

    /// The names of the tensors of a snapshot.
    ///
    /// # Errors
    /// Those of [`Store::open_snapshot`].
    pub fn names(&self, snapshot: &Snapshot) -> Result<Vec<String>> {
        let reader = self.reader(snapshot)?;
        let segments = reader.files().iter().flat_map(|f| &f.segments);
        Ok(segments.filter_map(|s| s.name.as_deref()).map(str::to_owned).collect())
    }

    /// A tensor of a snapshot.
    ///
    /// # Errors
    /// `NotFound` when it has none of this name; those of [`Store::open_snapshot`].
    pub fn tensor(&self, snapshot: &Snapshot, name: &str) -> Result<Segment> {
        Ok(self.reader(snapshot)?.tensor(name)?.1.clone())
    }

    fn change_places(&mut self, change: impl FnOnce(&mut [Vec<Place>])) {
        if let Some(state) = &self.state {
            let mut state = State::clone(state);
            state.places.resize(self.tensors.len(), Vec::new());
            change(&mut state.places);
            self.state = Some(Arc::new(state));
        }
    }

    /// Tensors hold something else from now on.
    fn set_state(&mut self, state: Arc<State>) {
        self.state = Some(state);
        *self.opened.get_mut().expect("no panic while it is held") = None;
    }

    /// The step and the id of the snapshot that the tensors hold, if they hold one.
    pub fn current(&self) -> Option<(Step, SaveId)> {
        self.state.as_ref().map(|s| (s.step, s.id))
    }

    /// The store's last snapshot, unless the tensors hold it, or there is none.
    ///
    /// # Errors
    /// Those of [`Store::find`]; `Usage` when the store is of another run than what the tensors hold, unless
    /// [`FollowOptions::rewind`] is set.
    pub fn newest(&self) -> Result<Option<Snapshot>> {
        self.run()?;
        order::newest(&self.store, self.current())
    }

    /// Fills the tensors with those of a snapshot: the first call of a new follower, unless it adopts one. Afterwards
    /// they follow. Returns how many bytes were fetched. After an error they hold nothing. `progress` is called with the number of bytes
    /// filled, and ends the work if it fails.
    ///
    /// # Errors
    /// `NotFound` when the snapshot has no such tensor, `Usage` when that has another type or shape, or a buffer another length; `Usage`
    /// when the snapshot is earlier than what they hold, or of another run, unless [`FollowOptions::rewind`] is set; those of
    /// [`SnapshotReader::read_tensors`].
    pub fn load(
        &mut self,
        snapshot: &Snapshot,
        tensors: &mut [&mut [u8]],
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let run = self.check_order(snapshot)?;
        self.check_lens(tensors.iter().map(|t| t.len() as u64))?;
        let (reader, extents) = self.open(snapshot)?;
        self.state = None;
        let mut gather = Gather::new();
        for (extents, tensor) in extents.iter().zip(tensors) {
            let (len, mut rest) = (tensor.len() as u64, &mut **tensor);
            let place = |_, len| To::Memory(rest.split_off_mut(..len).expect("extents cover a tensor"));
            gather.add(extents, 0..len, place);
        }
        let mut state = State::begin(&reader, run, &extents, &HashMap::new(), &mut gather)?;
        let fetched = state.run(&reader, gather, &Held::default(), |_, _, _| Ok(()), no_list, progress)?;
        self.set_state(Arc::new(state));
        Ok(fetched)
    }

    /// Adopts tensors that hold a snapshot already, read from elsewhere: all of their bytes are compared with its
    /// hashes.
    ///
    /// # Errors
    /// `Usage` when they hold something else; otherwise those of [`Self::load`].
    pub fn adopt(&mut self, snapshot: &Snapshot, tensors: &[&dyn ReadAt]) -> Result<()> {
        let run = self.check_order(snapshot)?;
        self.check_sizes(tensors)?;
        let (reader, extents) = self.open(snapshot)?;
        let mut gather = Gather::new();
        let mut state = State::begin(&reader, run, &extents, &HashMap::new(), &mut gather)?;
        let unsound = self.unsound(&state, tensors)?;
        let whole = state.whole_sets();
        let differs = |t: usize| {
            Error::usage(format!("tensor {:?} is not that of step {}: load it", self.tensors[t].name, snapshot.step))
        };
        for (t, (places, extents)) in state.places.iter().zip(&extents).enumerate() {
            for (place, extent) in places.iter().zip(extents) {
                match whole.contains(&place.set()) {
                    true if !unsound.contains(&(t, place.offset)) => {}
                    true => return Err(differs(t)),
                    // Only whole block sets have hashes: the others are decoded, and their bytes compared.
                    false => add(&mut gather, t, extent),
                }
            }
        }
        let compare = |t: usize, offset, new: &[u8]| match self.patch(t, tensors[t], offset, new)? {
            None => Ok(()),
            Some(_) => Err(differs(t)),
        };
        state.run(&reader, gather, &Held::default(), compare, no_list, &mut |_| Ok(()))?;
        self.set_state(Arc::new(state));
        Ok(())
    }

    /// Fetches the changes from the snapshot that the tensors hold to another one. There may be any number of snapshots
    /// between: each element is written once. The tensors are read, and not written.
    ///
    /// Decoded bytes have the hash that was recorded when the snapshot was saved. Where a delta lists the elements that
    /// changed, the list has: then nothing else is read, and the tensors are assumed to hold what was committed. [`FollowOptions::verify`] compares everything. `progress` is called with the number of
    /// bytes decoded, and ends the work if it fails.
    ///
    /// # Errors
    /// `Usage` when the tensors hold no snapshot yet; those of [`Self::load`].
    pub fn stage(
        &self,
        snapshot: &Snapshot,
        tensors: &[&dyn ReadAt],
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<StagedTensors> {
        let Some(state) = &self.state else {
            return Err(Error::usage("the tensors hold no snapshot yet: load one first"));
        };
        let run = self.check_order(snapshot)?;
        self.check_sizes(tensors)?;
        let (reader, extents) = self.open(snapshot)?;
        let unsound = if self.options.verify { self.unsound(state, tensors)? } else { HashSet::new() };
        let is_sound = |t: usize, place: &Place| !unsound.contains(&(t, place.offset));
        let held = state.held(tensors, is_sound);
        let stopped = Cell::new(false);
        let mut progress = |done| progress(done).inspect_err(|_| stopped.set(true));
        // Another program may have changed the tensors.
        held.decode(
            &[ErrorKind::Damaged],
            || stopped.get(),
            |held| match held {
                Some(held) => self.changes((&reader, run), &extents, tensors, held, is_sound, &mut progress),
                None => self.changes((&reader, run), &extents, tensors, &Held::default(), |_, _| false, &mut progress),
            },
        )
    }

    /// Writes the changed elements, and nothing else. Tensors hold the new snapshot afterwards.
    ///
    /// # Errors
    /// `Usage` when it was not made from the state of these tensors, as when it is committed twice, or to
    /// another follower; or when a buffer has another length. Nothing is written then.
    pub fn commit(&mut self, staged: &StagedTensors, tensors: &mut [&mut [u8]]) -> Result<()> {
        if self.state.as_ref().is_none_or(|state| !Arc::ptr_eq(state, &staged.from)) {
            let current = self.current().map_or_else(|| "none".to_owned(), |(step, _)| format!("step {step}"));
            return Err(Error::usage(format!(
                "step {} was made from what tensors held at step {}, and these hold {current}, or were loaded since: stage it again",
                staged.step(),
                staged.from()
            )));
        }
        self.check_lens(tensors.iter().map(|t| t.len() as u64))?;
        let mut patches = staged.patches.iter().peekable();
        let mut jobs = Vec::with_capacity(staged.patches.len());
        for (t, tensor) in tensors.iter_mut().enumerate() {
            let (mut at, mut rest) = (0, &mut **tensor);
            while let Some(patch) = patches.next_if(|p| p.tensor == t) {
                let bytes = patch.bytes();
                let (_, after) = rest.split_at_mut(bytes.start - at);
                let (out, after) = after.split_at_mut(bytes.len());
                (at, rest) = (bytes.end, after);
                jobs.push((patch, out));
            }
        }
        self.for_each(jobs, |(patch, out)| patch.apply(out));
        self.set_state(staged.to.clone());
        Ok(())
    }

    /// The run of the store, checked to be that of the tensors' snapshot.
    fn run(&self) -> Result<RunId> {
        order::run("the tensors", &self.store, self.state.as_ref().map(|s| s.run), self.options.rewind)
    }

    /// Fails unless a snapshot may follow. Returns the run.
    fn check_order(&self, snapshot: &Snapshot) -> Result<RunId> {
        let run = self.run()?;
        if !self.options.rewind {
            order::check("the tensors", self.current(), snapshot)?;
        }
        Ok(run)
    }

    fn check_sizes(&self, tensors: &[&dyn ReadAt]) -> Result<()> {
        let sizes = tensors.iter().map(|t| t.size()).collect::<std::io::Result<Vec<_>>>();
        self.check_lens(sizes.map_err(|e| Error::io("cannot read a tensor", e))?)
    }

    fn check_lens(&self, lens: impl IntoIterator<Item = u64, IntoIter: ExactSizeIterator>) -> Result<()> {
        let lens = lens.into_iter();
        if lens.len() != self.tensors.len() {
            return Err(Error::usage(format!("{} buffers for {} tensors", lens.len(), self.tensors.len())));
        }
        for (t, len) in self.tensors.iter().zip(lens) {
            let wanted = t.byte_len()?;
            if len != wanted {
                return Err(Error::usage(format!("tensor {:?}: has {wanted} bytes, and its buffer {len}", t.name)));
            }
        }
        Ok(())
    }

    fn reader(&self, snapshot: &Snapshot) -> Result<Arc<SnapshotReader>> {
        let mut opened = self.opened.lock().expect("no panic while it is held");
        if let Some(reader) = opened.as_ref().filter(|reader| reader.snapshot() == snapshot) {
            return Ok(reader.clone());
        }
        // The documents of what the tensors hold are known.
        let reader = match &self.state {
            Some(state) => self.store.open_beside(snapshot, &state.catalog),
            None => self.store.open_snapshot(snapshot),
        };
        let reader = Arc::new(reader?.with_threads(self.options.threads));
        *opened = Some(reader.clone());
        Ok(reader)
    }

    /// A snapshot, and where it has the bytes of each tensor.
    fn open(&self, snapshot: &Snapshot) -> Result<(Arc<SnapshotReader>, Vec<Vec<Located>>)> {
        let reader = self.reader(snapshot)?;
        tied::check(&reader, &self.tensors, &self.tied)?;
        let extents = self.tensors.iter().map(|t| {
            let (there, extents) = reader.tensor_extents(&t.name)?;
            t.extents_in(snapshot.step, there, extents)
        });
        let extents = extents.collect::<Result<_>>()?;
        Ok((reader, extents))
    }

    /// The changes, decoded from the block sets that are `held`. Bytes that stay in their place are left out, if they
    /// are sound (`is_sound`).
    fn changes(
        &self,
        (reader, run): (&SnapshotReader, RunId),
        extents: &[Vec<Located>],
        tensors: &[&dyn ReadAt],
        held: &Held<'_>,
        is_sound: impl Fn(usize, &Place) -> bool,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<StagedTensors> {
        let state = self.state.as_ref().expect("the tensors hold a snapshot");
        let mut gather = Gather::new();
        let mut to = State::begin(reader, run, extents, &state.kept, &mut gather)?;
        for (t, (places, extents)) in to.places.iter().zip(extents).enumerate() {
            let was_there = |place: &Place| state.place_at(t, place.offset) == Some(place) && is_sound(t, place);
            let changed = places.iter().zip(extents).filter(|(place, _)| !was_there(place));
            changed.for_each(|(_, extent)| add(&mut gather, t, extent));
        }
        let patches = Mutex::new(Vec::new());
        let push = |patch| patches.lock().expect("no panic while it is held").extend(patch);
        let compare = |t: usize, offset, new: &[u8]| {
            push(match state.places[t].is_empty() {
                true => Patch::all(t, width(self.tensors[t].dtype), offset, new),
                false => self.patch(t, tensors[t], offset, new)?,
            });
            Ok(())
        };
        let lists = Lists { state, specs: &self.tensors, tensors, spares: &self.spares };
        let list = |takes: &[Take<To<'_>>], held: &BlockSet, set: &BlockSet, deltas: &[Bytes]| {
            // To verify, compare the hash of the decoded bytes.
            if self.options.verify {
                return Ok(None);
            }
            let listed = lists.apply(takes, held, set, deltas)?;
            Ok(listed.map(|Listed { patches, kept }| {
                patches.into_iter().filter(|p| !p.values().is_empty()).for_each(|p| push(Some(p)));
                kept
            }))
        };
        let fetched_size = to.run(reader, gather, held, compare, list, progress)?;
        let mut patches = patches.into_inner().expect("no panic while it is held");
        patches.sort_unstable_by_key(|p| (p.tensor, p.bytes().start));
        Ok(StagedTensors { from: state.clone(), to: Arc::new(to), patches, fetched_size, spares: self.spares.clone() })
    }

    /// The patch from a tensor's bytes from an offset on to `new`.
    fn patch(&self, tensor: usize, old: &dyn ReadAt, offset: u64, new: &[u8]) -> Result<Option<Patch>> {
        Patch::between(tensor, width(self.tensors[tensor].dtype), old, offset, new)
            .map_err(|e| Error::io(format_args!("tensor {:?}: cannot read", self.tensors[tensor].name), e))
    }

    /// The places, by tensor and offset, that do not have the bytes of their block sets, or whose block sets neither
    /// the tensors nor the follower hold whole.
    fn unsound(&self, state: &State, tensors: &[&dyn ReadAt]) -> Result<HashSet<(usize, u64)>> {
        let (held, whole) = (state.held(tensors, |_, _| true), state.whole_sets());
        let mut sets: HashMap<(Hash, u64), Vec<(usize, &Place)>> = HashMap::new();
        for (t, place) in state.places.iter().enumerate().flat_map(|(t, places)| places.iter().map(move |p| (t, p))) {
            sets.entry(place.set()).or_default().push((t, place));
        }
        let unsound = Mutex::new(Ok(HashSet::new()));
        self.for_each(sets, |((hash, len), places)| {
            let raw = match state.kept.get(&hash) {
                Some(raw) => Ok(Some(raw.clone()).filter(|raw| raw.len() as u64 == len)),
                None if !whole.contains(&(hash, len)) => Ok(None),
                None => {
                    let mut raw = vec![0; len as usize];
                    held.read(hash, &mut raw).map(|()| Some(raw.into()).filter(|raw: &Arc<[u8]>| Hash::of(raw) == hash))
                }
            };
            let compared = raw.map(|raw| {
                let is_sound = |t: usize, p: &Place| raw.as_ref().is_some_and(|raw| p.is_in(tensors[t], raw));
                places.iter().filter(|(t, p)| !is_sound(*t, p)).map(|(t, p)| (*t, p.offset)).collect::<Vec<_>>()
            });
            let mut unsound = unsound.lock().expect("no panic while it is held");
            match (&mut *unsound, compared) {
                (Ok(found), Ok(compared)) => found.extend(compared),
                (Ok(_), Err(e)) => *unsound = Err(e),
                _ => {}
            }
        });
        unsound.into_inner().expect("no panic while it is held")
    }

    /// Does some work on all threads.
    fn for_each<T: Send>(&self, items: impl IntoIterator<Item = T, IntoIter: Send>, work: impl Fn(T) + Sync) {
        let items = Mutex::new(items.into_iter());
        let next = || items.lock().expect("no panic while it is held").next();
        self.workers.each(|()| {
            while let Some(item) = next() {
                work(item);
            }
        });
    }
}

/// Fails if two have the same name, or one has no whole number of bytes.
fn check_specs(tensors: &[TensorSpec]) -> Result<()> {
    let mut names = HashSet::new();
    for t in tensors {
        if !names.insert(&t.name[..]) {
            return Err(Error::usage(format!("two tensors have the name {:?}", t.name)));
        }
        t.byte_len()?;
    }
    Ok(())
}

impl std::fmt::Debug for TensorFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TensorFollower").field("current", &self.current()).finish_non_exhaustive()
    }
}
