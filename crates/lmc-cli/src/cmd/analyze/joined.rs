//! Checkpoints of `torch.distributed.checkpoint`: the chunks of their tensors, which several files have, joined.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lmc::{Base, DecompressOptions};

use crate::cmd::unpack::{is_checkpoint, join_all, name_of_joined};
use crate::failure::{Failure, Result};
use crate::format::{Name, count};
use crate::guard::{Guard, Role};

/// Joined files that are kept: those of two checkpoints that are compared, and of the one that is compared with the next.
const KEPT: usize = 3;

/// A directory whose tensors are joined, and how it is called.
pub(super) struct Directory {
    pub(super) checkpoint: usize,
    path: PathBuf,
    name: String,
}

/// All of them.
pub(super) struct Joined {
    directories: Vec<Directory>,
    options: DecompressOptions,
    /// Those that were joined last, the latest at the end, by their checkpoints.
    kept: Mutex<Vec<(usize, Vec<(String, Arc<File>)>)>>,
    stop: Arc<AtomicBool>,
}

impl Directory {
    /// The directory, if its tensors are to be joined. `inside`: its path in the checkpoint's directory.
    pub(super) fn of(checkpoint: usize, path: &Path, inside: &Path) -> Option<Self> {
        let name = || inside.join(name_of_joined()).to_string_lossy().into_owned();
        is_checkpoint(path).then(|| Self { checkpoint, path: path.to_owned(), name: name() })
    }
}

impl Joined {
    pub(super) fn new(directories: Vec<Directory>, threads: usize, stop: &Arc<AtomicBool>) -> Self {
        let options = DecompressOptions::default().with_threads(threads);
        Self { directories, options, kept: Mutex::default(), stop: stop.clone() }
    }

    /// Whether a checkpoint has such directories.
    pub(super) fn has(&self, checkpoint: usize) -> bool {
        self.directories.iter().any(|d| d.checkpoint == checkpoint)
    }

    /// Keeps their files from being overwritten.
    pub(super) fn guard(&self, guard: &Guard) {
        for directory in &self.directories {
            let entries = std::fs::read_dir(&directory.path).into_iter().flatten().flatten();
            for path in entries.map(|e| e.path()) {
                if let Some(metadata) = path.metadata().ok().filter(|m| m.is_file()) {
                    guard.keep(Role::Input, &path, &metadata);
                }
            }
        }
    }

    /// The joined files of a checkpoint, without names in the directory for temporary files; the latest few are kept. `warn` is told what is left
    /// out.
    pub(super) fn open(&self, checkpoint: usize, warn: &dyn Fn(String)) -> Result<Vec<Base<'static>>> {
        if !self.has(checkpoint) {
            return Ok(vec![]);
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let files = match kept.iter().position(|(number, _)| *number == checkpoint) {
            Some(at) => kept.remove(at).1,
            None => {
                if kept.len() == KEPT {
                    kept.remove(0);
                }
                let of_checkpoint = self.directories.iter().filter(|d| d.checkpoint == checkpoint);
                of_checkpoint.map(|d| Ok((d.name.clone(), Arc::new(self.join(d, warn)?)))).collect::<Result<_>>()?
            }
        };
        kept.push((checkpoint, files.clone()));
        let base = |(name, file): (String, Arc<File>)| {
            let base = Base::new(file).map_err(|e| Failure::codec(Path::new(&name), &e))?;
            Ok(base.with_name(name))
        };
        files.into_iter().map(base).collect()
    }

    fn join(&self, directory: &Directory, warn: &dyn Fn(String)) -> Result<File> {
        let temporary = std::env::temp_dir();
        let doing = format!("cannot join it in {}: set TMPDIR to a directory with room", temporary.display());
        let failed = |e| Failure::io(&directory.path, &doing, &e);
        let mut file = tempfile::tempfile().map_err(failed)?;
        let left_out = join_all(&directory.path, self.options.clone(), &mut |bytes| {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::Failed("the study was stopped".to_owned()));
            }
            file.write_all(bytes).map_err(failed)
        })?;
        if let Some(first) = left_out.first() {
            let (path, n) = (Name::path(&directory.path), count(left_out.len() as u64, "tensor"));
            warn(format!("{path}: left out {n} of types that safetensors lacks, such as {}", Name::text(first)));
        }
        Ok(file)
    }
}
