//! Deltas applied over their base.

use crate::Summary;
use crate::base::{Base, resolve};
use crate::block::Origin;
use crate::block::head::BlockHead;
use crate::container::bases::{Depths, Sources};
use crate::container::open::{Opened, block_record, wrong_raw_len};
use crate::decompress::{Decoded, Decompressor, Progress, decode, finish};
use crate::error::{Error, Result};
use crate::origin::{Finished, NotOwn, Own};
use crate::reader::BlockInfo;

/// A block under way.
#[derive(Default)]
struct Job<'a> {
    block: usize,
    record: &'a [u8],
    /// The old bytes, and then the new ones.
    buf: &'a mut [u8],
    /// The new bytes while the old ones are needed.
    new: Vec<u8>,
    done: Option<Result<Decoded>>,
}

/// The old bytes of a block, and what comes before it in the new file.
struct Old<'a> {
    start: u64,
    bytes: &'a [u8],
    own: &'a dyn Own,
}

impl Origin for Old<'_> {
    fn read(&self, source: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        if source == 0 {
            return self.own.read(offset, buf);
        }
        buf.copy_from_slice(self.slice(source, offset, buf.len()).expect("blocks were checked to keep to themselves"));
        Ok(())
    }

    fn slice(&self, source: u32, offset: u64, len: usize) -> Option<&[u8]> {
        if source == 0 {
            return self.own.slice(offset, len);
        }
        self.bytes.get(offset.checked_sub(self.start)? as usize..)?.get(..len)
    }
}

impl Decompressor {
    /// Applies a delta over its base: `buf` holds the base's raw bytes, and afterwards the new file's. It takes no memory for a
    /// second copy, but a few blocks.
    ///
    /// This is possible for a delta of one base of the same size in which every block needs nothing else of the base than the bytes that it
    /// replaces: the snapshots of a training run are like that as long as no tensor comes, goes or changes its shape.
    ///
    /// `content_hash` is the hash of the base's raw bytes, if it is known (the [`Summary`] of the last delta that was applied has it): it is
    /// believed, and otherwise computed.
    ///
    /// Everything that can be known without decoding is checked before anything is written, and `buf` is then what it was. **If a block
    /// turns out to be damaged, `buf` is neither the old nor the new file:** blocks that were done are new, the others are old, and the whole must
    /// be loaded again from elsewhere. The error, which is of kind `Damaged`, says so.
    ///
    /// # Errors
    /// `Usage` when the delta cannot be applied in place, `Base` when `buf` does not hold its base; otherwise those of
    /// [`Self::decompress_delta_into`].
    pub fn apply_in_place(&mut self, file: &[u8], buf: &mut [u8], content_hash: Option<[u8; 16]>) -> Result<Summary> {
        let opened = Opened::open_whole(&file, self.limits())?;
        check(file, &opened)?;
        let mut base = Base::new(&*buf)?;
        if let Some(hash) = content_hash {
            base = base.with_hash(hash);
        }
        resolve(&opened.sources.bases, &[base], self.workers())?;
        let mut jobs = Vec::new();
        jobs.resize_with(self.workers().in_flight(), Job::default);
        let finished = opened.sources.features.own.then(Finished::default);
        let own = finished.as_ref().map_or(&NotOwn as &dyn Own, |f| f);
        let mut progress = Progress::new(&opened.sources);
        let (mut next, mut rest) = (0, buf);
        self.workers()
            .ordered(
                &mut jobs,
                |job| {
                    if next == opened.blocks() {
                        return Ok(None);
                    }
                    let b = opened.block(next);
                    job.block = next;
                    job.record = record_of(file, &b);
                    job.buf = rest.split_off_mut(..b.raw_len as usize).expect("raw lengths add up to the raw size");
                    next += 1;
                    Ok(Some(b.raw_len as usize))
                },
                |decoder, job| {
                    let b = opened.block(job.block);
                    let turn = finished.as_ref().map(|f| f.mark.begin(b.raw_offset));
                    job.new.resize(job.buf.len(), 0);
                    let origin = Old { start: b.raw_offset, bytes: job.buf, own };
                    let done = decode(decoder, job.record, &opened.sources, b.raw_offset, &origin, &mut job.new);
                    if done.is_ok() {
                        job.buf.copy_from_slice(&job.new);
                        if let (Some(f), Some(turn)) = (&finished, turn) {
                            let new: &mut [u8] = std::mem::take(&mut job.buf);
                            f.publish(b.raw_offset, new);
                            turn.done(b.raw_offset + b.raw_len);
                        }
                    }
                    job.done = Some(done);
                },
                |job| {
                    let done = job.done.take().expect("the worker is done");
                    done.and_then(|d| progress.push(&d, opened.block(job.block).raw_len))
                        .map_err(|e| opened.locate(e, job.block))
                },
            )
            .and_then(|()| finish(&opened, &progress.hash))
            .map_err(|e| e.adding("; what was to be replaced in place is now neither old nor new"))
    }
}

/// The record of a block.
fn record_of<'a>(file: &'a [u8], b: &BlockInfo) -> &'a [u8] {
    &file[b.record_offset as usize..][..b.record_len as usize]
}

/// Checks that a file is a delta of one base, of which each block needs what it replaces alone.
fn check(file: &[u8], opened: &Opened) -> Result<()> {
    let sources = &opened.sources;
    match &sources.bases[..] {
        [base] if base.raw_size == opened.index.raw_size => {}
        [] => return Err(cannot("the file is no delta")),
        [_] => return Err(cannot("the base has another size")),
        _ => return Err(cannot("the delta has several bases")),
    }
    let mut depths = Depths::default();
    for i in 0..opened.blocks() {
        let b = opened.block(i);
        let checked = block_record(record_of(file, &b)).and_then(|(head, _)| {
            if head.raw_len as u64 != b.raw_len {
                return Err(wrong_raw_len());
            }
            keeps_to_itself(&head, sources, &b)?;
            depths.push(b.raw_len, &head.dependencies)
        });
        checked.map_err(|e| opened.locate(e, i))?;
    }
    Ok(())
}

fn keeps_to_itself(head: &BlockHead, sources: &Sources, b: &BlockInfo) -> Result<()> {
    sources.check(&head.dependencies, b.raw_offset)?;
    let inside = |offset, end| offset >= b.raw_offset && end <= b.raw_offset + b.raw_len;
    if head.dependencies.iter().all(|d| d.source == 0 || inside(d.offset, d.end())) {
        Ok(())
    } else {
        Err(cannot("a block needs bytes of the base that others replace"))
    }
}

fn cannot(why: &str) -> Error {
    Error::usage(format!("the delta cannot be applied in place, because {why}: restore it beside its base"))
}
