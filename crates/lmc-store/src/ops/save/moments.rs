//! Finds the chunks of a parameter that a step of an optimizer changes together, so that those coded first predict the others.

use std::collections::HashMap;

use lmc::Dtype;
use lmc_layout::roles::{self, Role, role};

use super::all_tensors::Planned;
use super::choice::Choice;
use crate::chunks::cut::Chunk;

/// The indices of chunks of the same elements of a parameter, where the snapshot before has them, too: of the average of gradients, of
/// the second moment, and of the weights of single precision, if they are there. `file_of`: the file of each chunk.
pub(super) fn find(
    files: &[Planned<'_>],
    chunks: &[&Chunk],
    file_of: &[usize],
    leads: &[Option<usize>],
    choice: Choice<'_>,
) -> Vec<Vec<usize>> {
    let floats = |file: usize| files[file].1.iter().enumerate().filter(|(_, s)| s.dtype == Some(Dtype::F32));
    let tensors = (0..files.len()).flat_map(|file| floats(file).map(move |(i, s)| ((file, i), s)));
    let tensors: Vec<_> = tensors.filter_map(|(place, s)| Some((place, s.name.as_deref()?, &s.shape[..]))).collect();
    let names = roles::parameters(tensors.iter().map(|&(_, name, shape)| (name, shape)));
    let names: HashMap<(usize, usize), String> = tensors.iter().map(|t| t.0).zip(names).collect();
    let mut numbers: HashMap<(&str, u64, u64, usize), usize> = HashMap::new();
    let mut times: HashMap<(&str, u64), usize> = HashMap::new();
    let mut parts: Vec<[Option<usize>; 3]> = vec![];
    for (i, chunk) in chunks.iter().enumerate().filter(|(i, _)| leads[*i].is_none()) {
        let Some((segment, element)) = chunk.of else { continue };
        let s = &files[file_of[i]].1[segment];
        let (Some(name), Some(parameter)) = (s.name.as_deref(), names.get(&(file_of[i], segment))) else { continue };
        // Ranks have tensors of the same names, each its part of them.
        let rank = times.entry((name, element)).or_default();
        let number = *numbers.entry((parameter, s.len, element, *rank)).or_insert(parts.len());
        *rank += 1;
        if number == parts.len() {
            parts.push([None; 3]);
        }
        let [m, v, w] = &mut parts[number];
        match role(name) {
            Role::ExpAvg => *m = m.or(Some(i)),
            Role::ExpAvgSq => *v = v.or(Some(i)),
            Role::Master => *w = Some(i),
            Role::Weights => *w = w.or(Some(i)),
        }
    }
    let is_known = |i: &usize| choice.bases.alike(chunks[*i]).is_some();
    let mut found: Vec<Vec<usize>> = vec![];
    for [m, v, w] in parts {
        let (Some(m), Some(v)) = (m.filter(is_known), v.filter(is_known)) else { continue };
        let w = w.filter(|&w| is_known(&w) && chunks[w].len() == chunks[m].len());
        if chunks[m].len() == chunks[v].len() {
            found.push([m, v].into_iter().chain(w).collect());
        }
    }
    found
}
