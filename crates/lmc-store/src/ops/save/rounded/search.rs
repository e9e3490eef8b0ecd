//! Follows flat tensors: at each place the tensor is looked up that begins there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

use super::compare::{Agreement, Elements, Key, Pair, WINDOW, is_constant, key};
use super::grid::{EVERY, Grid};
use super::part::{LEAST, RoundedPart};
use lmc::Segment;

/// Elements that may stand between two tensors: padding, and tensors that are too small.
const AHEAD: u64 = 256;
/// The fewest elements of a tensor that continues elsewhere, unless the flat tensor ends there.
const PARTIAL: u64 = 256;
/// Tensors with the same beginning that are tried at one place.
const ALIKE: usize = 8;
/// Tensors that are tried at one place and those ahead.
const TRIES: usize = 16;
/// Tensors that may fail the search in the grid before it ends.
const FAILURES: usize = 64;

/// Elements of a tensor that have no place yet.
#[derive(Clone, Copy)]
pub(super) struct Rest {
    tensor: usize,
    first: u64,
    end: u64,
}

impl Rest {
    fn len(self) -> u64 {
        self.end - self.first
    }
}

/// All of these 16-bit tensors.
pub(super) fn whole(narrow: &[usize], tensors: &[Segment]) -> Vec<Rest> {
    narrow.iter().map(|&tensor| Rest { tensor, first: 0, end: tensors[tensor].len / 2 }).collect()
}

/// Where the search in a flat tensor continues.
#[derive(Clone, Copy, Default)]
struct Cursor {
    at: u64,
    /// Whether a tensor ends there: then a constant one may follow.
    behind: bool,
}

pub(super) struct Search<'e, 'a, R> {
    elements: &'e mut Elements<'a, R>,
    flats: &'e [usize],
    /// Rests that were placed are empty.
    pub(super) rests: Vec<Rest>,
    pub(super) parts: Vec<RoundedPart>,
    /// By their first window.
    heads: HashMap<Key, VecDeque<usize>>,
    /// The found parts of each flat tensor: ends by first elements.
    taken: Vec<BTreeMap<u64, u64>>,
    cursors: Vec<Cursor>,
    /// Flat tensors to be followed, and those that wait for a rest with the window where they stopped.
    queue: VecDeque<usize>,
    waiting: HashMap<Key, Vec<usize>>,
}

impl<'e, 'a, E, R: FnMut(u64, &mut [u8]) -> Result<(), E>> Search<'e, 'a, R> {
    pub(super) fn new(elements: &'e mut Elements<'a, R>, flats: &'e [usize], rests: Vec<Rest>) -> Result<Self, E> {
        let mut search = Self {
            elements,
            flats,
            rests: vec![],
            parts: vec![],
            heads: HashMap::new(),
            taken: vec![BTreeMap::new(); flats.len()],
            cursors: vec![Cursor::default(); flats.len()],
            queue: (0..flats.len()).collect(),
            waiting: HashMap::new(),
        };
        rests.into_iter().try_for_each(|rest| search.add(rest))?;
        Ok(search)
    }

    /// Finds all parts.
    pub(super) fn run(&mut self, grid: &mut Option<Grid>) -> Result<(), E> {
        self.follow()?;
        let mut large: Vec<usize> = (0..self.rests.len()).filter(|&i| self.rests[i].len() >= EVERY).collect();
        large.sort_by_key(|&i| (Reverse(self.rests[i].len()), i));
        let mut failures = 0;
        for i in large {
            // Most were placed meanwhile.
            if self.rests[i].len() < EVERY {
                continue;
            }
            if failures == FAILURES || self.elements.are_used_up() {
                break;
            }
            let grid = match grid {
                Some(grid) => grid,
                None => grid.insert(Grid::new(self.elements, self.flats)?),
            };
            match self.by_grid(i, grid)? {
                true => self.follow()?,
                false => failures += 1,
            }
        }
        Ok(())
    }

    /// Adds a rest, if it is not too small.
    fn add(&mut self, rest: Rest) -> Result<(), E> {
        if rest.len() < LEAST {
            return Ok(());
        }
        let key = key(self.elements.of_tensor(rest.tensor, rest.first, WINDOW)?);
        self.heads.entry(key).or_default().push_back(self.rests.len());
        self.rests.push(rest);
        self.queue.extend(self.waiting.remove(&key).unwrap_or_default());
        Ok(())
    }

    /// Follows all flat tensors as far as possible.
    fn follow(&mut self) -> Result<(), E> {
        while let Some(number) = self.queue.pop_front() {
            while !self.elements.are_used_up()
                && let Some((rest, at, elements)) = self.next(number)?
            {
                self.place(rest, self.rests[rest].first, number, at, elements)?;
            }
        }
        Ok(())
    }

    /// The rest that begins where the search in a flat tensor stands, or a little ahead; its place, and its size there.
    fn next(&mut self, number: usize) -> Result<Option<(usize, u64, u64)>, E> {
        let Cursor { at, behind } = self.cursors[number];
        let room = self.room(number, at);
        if room < LEAST {
            return Ok(None);
        }
        let flat = self.flats[number];
        let ahead = self.elements.of_flat(flat, at, room.min(AHEAD + WINDOW))?.to_vec();
        let mut tries = 0;
        for (window, skipped) in ahead.windows(2 * WINDOW as usize).step_by(2).zip(0..) {
            let key = key(window);
            let Some(alike) = self.heads.get_mut(&key) else { continue };
            if skipped > 0 && is_constant(key) || room - skipped < LEAST {
                continue;
            }
            while alike.front().is_some_and(|&i| self.rests[i].len() == 0) {
                alike.pop_front();
            }
            let alike: Vec<usize> = alike.iter().take(ALIKE).copied().collect();
            let mut best: Option<(usize, u64)> = None;
            for i in alike {
                let rest = self.rests[i];
                if rest.len() == 0 {
                    continue;
                }
                if tries == TRIES {
                    break;
                }
                tries += 1;
                let most = rest.len().min(room - skipped);
                let from = Pair { tensor: rest.tensor, first: rest.first, flat, at: at + skipped };
                let Agreement { elements, varied } = self.elements.agreement(from, most)?;
                let least = if elements == most { LEAST } else { PARTIAL };
                if elements >= least
                    && (varied || behind && skipped == 0)
                    && best.is_none_or(|(_, longest)| longest < elements)
                {
                    best = Some((i, elements));
                }
                if elements == rest.len() && best == Some((i, elements)) {
                    break;
                }
            }
            if let Some((i, elements)) = best {
                return Ok(Some((i, at + skipped, elements)));
            }
        }
        self.waiting.entry(key(&ahead)).or_default().push(number);
        Ok(None)
    }

    /// Looks for the beginning of a large rest in the flat tensors; whether it has a place now.
    fn by_grid(&mut self, i: usize, grid: &Grid) -> Result<bool, E> {
        let rest = self.rests[i];
        let n = rest.len().min(EVERY + WINDOW - 1);
        let own = self.elements.of_tensor(rest.tensor, rest.first, n)?;
        let hits: Vec<_> = grid.hits(own).take(ALIKE).collect();
        for (own, number, at) in hits {
            let free = self.room_before(number, at);
            if self.room(number, at) == 0 {
                continue;
            }
            let hit = Pair { tensor: rest.tensor, first: rest.first + own, flat: self.flats[number], at };
            let before = self.elements.agreement_before(hit, own.min(free))?;
            let from @ Pair { first, at, .. } = hit.back(before);
            let most = (rest.end - first).min(self.room(number, at));
            let found = self.elements.agreement(from, most)?;
            if found.varied && found.elements >= (before + WINDOW).max(PARTIAL) {
                self.place(i, first, number, at, found.elements)?;
                self.queue.push_back(number);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Elements of a flat tensor from a place on that have not been found; none if that one has been.
    fn room(&self, number: usize, at: u64) -> u64 {
        let taken = &self.taken[number];
        if taken.range(..=at).next_back().is_some_and(|(_, &end)| end > at) {
            return 0;
        }
        let all = self.elements.tensors[self.flats[number]].len / 4;
        taken.range(at..).next().map_or(all, |(&next, _)| next) - at
    }

    /// Elements of a flat tensor before a place that have not been found.
    fn room_before(&self, number: usize, at: u64) -> u64 {
        at - self.taken[number].range(..=at).next_back().map_or(0, |(_, &end)| end.min(at))
    }

    /// Notes that elements of a rest, from `first` on, are those of a flat tensor.
    fn place(&mut self, i: usize, first: u64, number: usize, at: u64, elements: u64) -> Result<(), E> {
        let rest = self.rests[i];
        let part = RoundedPart { tensor: rest.tensor, first, elements, flat: self.flats[number], at, layer: 0 };
        self.parts.push(part);
        self.taken[number].insert(at, at + elements);
        self.cursors[number] = Cursor { at: at + elements, behind: true };
        self.rests[i].end = rest.first;
        self.add(Rest { end: first, ..rest })?;
        self.add(Rest { first: first + elements, ..rest })
    }
}
