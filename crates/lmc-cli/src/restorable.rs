//! Whether what was written restores what it was made from: asked before an input is removed.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;

use lmc::{Base, DecodeLimits, DecompressOptions, Decompressor, ReadAt, WriteAt};

use crate::failure::{Failure, Result};
use crate::progress::Progress;

/// Decodes `compressed` and compares it with `raw`.
///
/// # Errors
/// When it is not what it should be: with the first byte where it differs. `kept` is the input, which stays.
pub(crate) fn check(
    compressed: &dyn ReadAt,
    raw: &dyn ReadAt,
    bases: &[Base<'static>],
    threads: usize,
    kept: &Path,
    progress: &Progress,
) -> Result {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::at(kept, format_args!("is kept, and what was written is not, since it does not restore it: {why}"))
    };
    // The bases were read for it a moment ago, and cost what they cost then.
    let limits = DecodeLimits::default().with_max_work(u64::MAX);
    let options = DecompressOptions::default().with_threads(threads).with_limits(limits);
    // A file that has nothing in common with a base does not need it.
    let bases: Vec<Base<'_>> = bases.iter().map(|b| b.clone().optional()).collect();
    let same = Same { raw, different: Mutex::new(None) };
    let decoded = Decompressor::new(&options).and_then(|mut d| {
        d.decompress(lmc::Source::from(compressed).with_progress(&mut |done| progress.at(done)), &bases, &same)
    });
    if let Some(at) = *same.different.lock().unwrap_or_else(PoisonError::into_inner) {
        return Err(failed(&format_args!("byte {at} is another one: does something write to the file?")));
    }
    let summary = decoded.map_err(|e| failed(&e))?;
    let size = raw.size().map_err(|e| failed(&crate::format::io_error(&e)))?;
    if summary.raw_size != size {
        return Err(failed(&format_args!("it has {} bytes, and {size} are there", summary.raw_size)));
    }
    Ok(())
}

/// Takes what is restored, and compares it with what is there.
struct Same<'a> {
    raw: &'a dyn ReadAt,
    /// The first byte that was found to be another one.
    different: Mutex<Option<u64>>,
}

impl WriteAt for Same<'_> {
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut there = vec![0; buf.len()];
        self.raw.read_exact_at(&mut there, offset)?;
        let Some(at) = there.iter().zip(buf).position(|(a, b)| a != b) else { return Ok(()) };
        let mut different = self.different.lock().unwrap_or_else(PoisonError::into_inner);
        let at = offset + at as u64;
        *different = Some(different.map_or(at, |d| d.min(at)));
        Err(io::Error::other("it is not the same"))
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        // What was compared, and is the same.
        self.raw.read_exact_at(buf, offset)
    }
}
