//! Tensors with the same bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use lmc::internals::read_base;
use lmc::{Base, Error};

use super::survey::{Surveyed, stopped};

/// Bytes that are compared at a time.
const AT_ONCE: u64 = 1 << 20;

/// For each tensor the first one before it that has the same dtype and bytes. Only tensors whose figures are the same are read.
///
/// # Errors
/// When a file cannot be read, or `stop` was set: the file's name, and why.
pub(super) fn find(
    tensors: &[&Surveyed],
    files: &[Base<'_>],
    stop: &AtomicBool,
) -> Result<Vec<Option<usize>>, (String, Error)> {
    // The first tensors of each fingerprint that are not the same.
    let mut firsts: HashMap<_, Vec<usize>> = HashMap::new();
    let mut found = vec![None; tensors.len()];
    let mut buffers = [vec![], vec![]];
    for (i, t) in tensors.iter().enumerate().filter(|(_, t)| t.segment.len > 0) {
        let firsts = firsts.entry((t.segment.dtype, t.sums.fingerprint, t.segment.len)).or_default();
        for &first in firsts.iter().take(MAX_FIRSTS) {
            if same(tensors[first], t, files, stop, &mut buffers)? {
                found[i] = Some(first);
                break;
            }
        }
        if found[i].is_none() && firsts.len() < MAX_FIRSTS {
            firsts.push(i);
        }
    }
    Ok(found)
}

/// Different tensors with the same figures have the same elements in another order: only hostile files have many of
/// them.
const MAX_FIRSTS: usize = 4;

fn same(
    a: &Surveyed,
    b: &Surveyed,
    files: &[Base<'_>],
    stop: &AtomicBool,
    buffers: &mut [Vec<u8>; 2],
) -> Result<bool, (String, Error)> {
    let len = a.segment.len;
    let mut at = 0;
    while at < len {
        if stop.load(Ordering::Relaxed) {
            return Err((files[b.file].name().to_owned(), stopped()));
        }
        let n = (len - at).min(AT_ONCE);
        for (t, buffer) in [a, b].into_iter().zip(&mut *buffers) {
            buffer.resize(n as usize, 0);
            let file = &files[t.file];
            read_base(file, t.segment.offset + at, buffer).map_err(|e| (file.name().to_owned(), e))?;
        }
        if buffers[0] != buffers[1] {
            return Ok(false);
        }
        at += n;
    }
    Ok(true)
}
