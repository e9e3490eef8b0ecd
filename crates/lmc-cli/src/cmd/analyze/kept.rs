//! The checkpoints of a study that are open.

use std::sync::{Mutex, PoisonError};

/// How many stay open: three whose weights are compared, and the base of a delta over a longer distance.
const KEPT: usize = 4;

/// Checkpoints that were opened last, with their numbers, the latest at the end.
pub(super) struct Kept<T>(Mutex<Vec<(usize, T)>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Kept<T> {
    /// A checkpoint that is open, or is opened now.
    pub(super) fn get<E>(&self, checkpoint: usize, open: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(number, _)| *number == checkpoint) {
            let found = kept.remove(at);
            kept.push(found.clone());
            return Ok(found.1);
        }
        if kept.len() == KEPT {
            kept.remove(0);
        }
        let opened = open()?;
        kept.push((checkpoint, opened.clone()));
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_open() {
        let (kept, opened) = (Kept::default(), Mutex::new(vec![]));
        let get = |n: usize| {
            kept.get(n, || {
                opened.lock().unwrap().push(n);
                Ok::<_, ()>(std::sync::Arc::new(n))
            })
        };
        let first = get(0).unwrap();
        for n in [1, 0, 2, 1, 0, 3, 0, 4, 0] {
            assert_eq!(*get(n).unwrap(), n);
        }
        assert_eq!(*opened.lock().unwrap(), [0, 1, 2, 3, 4], "the ones that were used last stay");
        for n in 5..9 {
            get(n).unwrap();
        }
        assert_eq!(std::sync::Arc::strong_count(&first), 1);
        kept.get(9, || Err(())).unwrap_err();
        assert_eq!(*kept.get(9, || Ok::<_, ()>(first)).unwrap(), 0);
    }
}
