//! What a file system lacks, and the promises that are weaker for that.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// A promise that some file systems cannot keep.
#[derive(Clone, Copy)]
pub(super) enum Weaker {
    Attributes,
    Naming,
    Syncing,
    Locking,
}

impl Weaker {
    fn consequence(self) -> &'static str {
        match self {
            Self::Attributes => "this file system does not let mode, owner and times be set: outputs have its own",
            Self::Naming => {
                "this file system cannot rename: outputs are copied to their names, and a process that is killed meanwhile leaves a part"
            }
            Self::Syncing => "this file system cannot sync: what was written may be lost in a power failure",
            Self::Locking => "this file system has no locks: let no other process write here",
        }
    }

    /// Notes that it was weaker, for a path: once for each promise in a process.
    pub(super) fn note(self, path: &Path) {
        let bit = 1 << self as u8;
        // Never waits: in a forked child the lock may stay locked for ever.
        if NOTED.fetch_or(bit, Ordering::Relaxed) & bit == 0
            && let Ok(mut notes) = NOTES.try_lock()
        {
            notes.push(format!("{}: {}", path.display(), self.consequence()));
        }
    }
}

static NOTED: AtomicU8 = AtomicU8::new(0);
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The promises that were weaker since the last call, with the path where that was noticed: for warnings.
pub fn notes() -> Vec<String> {
    if NOTED.load(Ordering::Relaxed) == 0 {
        return vec![];
    }
    NOTES.try_lock().map_or_else(|_| vec![], |mut notes| std::mem::take(&mut *notes))
}

/// Whether an operation failed because the file system lacks it or forbids it, so that another way may work.
pub fn is_missing(e: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, InvalidInput, PermissionDenied, TooManyLinks, Unsupported};
    matches!(e.kind(), CrossesDevices | InvalidInput | PermissionDenied | TooManyLinks | Unsupported)
}
