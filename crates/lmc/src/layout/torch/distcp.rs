//! The names of the tensors of a `.distcp` file, which are in `.metadata` beside it: a pickle that says where in which file each tensor is,
//! or the part of it that one process had (`torch.distributed.checkpoint.metadata`).

use std::collections::HashMap;
use std::io::Read;

use super::super::pickle::{Id, MAX_LEN, Pickle, Value};
use super::super::suggestion::Whole;

/// The names of a file's tensors, by the offsets of their archives. `None` if nothing says them.
pub(super) fn names(file: Whole<'_>) -> Option<HashMap<u64, String>> {
    let name = file.path()?.file_name()?.to_str().filter(|name| name.ends_with(".distcp"))?;
    let metadata = file.beside(".metadata")?;
    let mut bytes = Vec::new();
    metadata.take(MAX_LEN + 1).read_to_end(&mut bytes).ok()?;
    names_in(&bytes, name)
}

/// The names of the tensors of the file called `file`, as the bytes of `.metadata` have them.
pub(super) fn names_in(metadata: &[u8], file: &str) -> Option<HashMap<u64, String>> {
    if metadata.len() as u64 > MAX_LEN {
        return None;
    }
    let pickle = Pickle::parse(metadata)?;
    let Value::Dict(stored) = pickle.get(pickle.attribute(pickle.root, "storage_data")?) else { return None };
    let (mut places, mut parts) = (Vec::new(), HashMap::new());
    for &(index, place) in stored {
        let name = pickle.str(pickle.attribute(index, "fqn")?)?;
        if pickle.str(pickle.attribute(place, "relative_path")?)? != file {
            continue;
        }
        *parts.entry(name).or_insert(0u32) += 1;
        places.push((pickle.size(pickle.attribute(place, "offset")?)?, name, first(&pickle, index)));
    }
    // If the file has several parts of a tensor, their names include their first indices.
    let name = |(offset, name, first): (u64, &str, Option<String>)| match first {
        Some(first) if parts[name] > 1 => (offset, format!("{name}@{first}")),
        _ => (offset, name.to_owned()),
    };
    Some(places.into_iter().map(name).collect())
}

/// The first indices of a part of a tensor, with commas.
fn first(pickle: &Pickle<'_>, index: Id) -> Option<String> {
    let Value::Object { args, .. } = pickle.get(pickle.attribute(index, "offset")?) else { return None };
    let &[indices] = pickle.sequence(*args)? else { return None };
    let indices = pickle.sequence(indices)?.iter().map(|&i| pickle.size(i).map(|i| i.to_string()));
    Some(indices.collect::<Option<Vec<_>>>()?.join(","))
}
