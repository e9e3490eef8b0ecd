//! Verifies that the output restores its input, before the input is removed.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;

use lmc::{Base, DecodeLimits, DecompressOptions, Decompressor, ReadAt, WriteAt};

use crate::ui::failure::{Failure, Result};
use crate::ui::progress::Progress;

/// Decodes `compressed` and compares the result with `raw`.
///
/// # Errors
/// When they differ: with the first such byte. `kept` is the input, which stays.
pub(crate) fn check(
    compressed: &dyn ReadAt,
    raw: &dyn ReadAt,
    bases: &[Base<'static>],
    threads: usize,
    kept: &Path,
    progress: &Progress,
) -> Result {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::at(kept, format_args!("is kept, and the output is discarded, as it does not restore the input: {why}"))
    };
    // Compression has just read the bases at the same cost: no further limit is needed.
    let limits = DecodeLimits::default().with_max_work(u64::MAX);
    let options = DecompressOptions::default().with_threads(threads).with_limits(limits);
    // A file that shares nothing with a base does not need it.
    let bases: Vec<Base<'_>> = bases.iter().map(|b| b.clone().optional()).collect();
    let same = Same { raw, different: Mutex::new(None) };
    let decoded = Decompressor::new(&options).and_then(|mut d| {
        d.decompress(lmc::Source::from(compressed).with_progress(&mut |done| progress.at(done)), &bases, &same)
    });
    let different = *same.different.lock().unwrap_or_else(PoisonError::into_inner);
    let summary = match (decoded, different) {
        (Ok(summary), None) => summary,
        (Ok(_), Some(at)) => {
            return Err(failed(&format_args!("byte {at} differs: does something write to the file?")));
        }
        (Err(e), None) => return Err(failed(&e)),
        (Err(e), Some(at)) => return Err(failed(&format_args!("{e}; byte {at} differs"))),
    };
    let size = raw.size().map_err(|e| failed(&crate::ui::format::io_error(&e)))?;
    if summary.raw_size != size {
        return Err(failed(&format_args!("it has {} bytes, not {size}", summary.raw_size)));
    }
    Ok(())
}

/// Compares restored bytes with the existing ones.
struct Same<'a> {
    raw: &'a dyn ReadAt,
    /// Offset of the first byte that differs.
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
        // Decoding goes on: if the block is damaged, its error says more.
        Ok(())
    }

    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        // The bytes compared so far. Where they differ, that is known.
        self.raw.read_exact_at(buf, offset)
    }
}
