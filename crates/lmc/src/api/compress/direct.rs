//! From positional sources to memory: workers write their records there themselves. A single copying thread would take most of the time of
//! two that compress.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::jobs::{Encoders, Job, Loader};
use crate::Summary;
use crate::block::Origin;
use crate::block::encode::BlockEncoder;
use crate::block::output::Output;
use crate::file::cut::Cutter;
use crate::file::handover::Handover;
use crate::file::origin::Raw;
use crate::file::session::EncodeSession;
use crate::file::writer::Writer;
use lmc_layout::error::{Error, Result};
use lmc_layout::io::ReadAt;

impl Encoders {
    /// Writes a file to the end of `out`.
    pub(super) fn direct(
        &mut self,
        (src, own): (&dyn ReadAt, &Raw<'_>),
        size: u64,
        session: EncodeSession<'_>,
        out: &mut Output<'_>,
    ) -> Result<Summary> {
        let EncodeSession { mut cutter, layout, mut writer, start, origin } = session;
        out.extend(&start);
        let loader = Loader::File(src, own);
        self.prepare();
        if self.workers.is_single() {
            // Blocks go straight into `out`.
            let Job { extents, raw, .. } = &mut self.jobs[0];
            let mut next = 0;
            self.workers.with(|encoder| {
                while next < size {
                    let len = cutter.next_block(src, size - next, extents)?;
                    let block = loader.load(next, len, raw, extents)?;
                    writer.block(&encoder.encode(&block, &origin, out)?);
                    next += len as u64;
                }
                Ok(())
            })?;
        } else {
            self.by_all((src, &loader), size, &mut cutter, &origin, &mut writer, out)?;
        }
        let (end, summary) = self.workers.with(|encoder| writer.finish(&layout, encoder.frames()))?;
        out.extend(&end);
        Ok(summary)
    }

    /// Encodes the blocks of a file by all threads at once.
    fn by_all(
        &mut self,
        (src, loader): (&dyn ReadAt, &Loader<'_>),
        size: u64,
        cutter: &mut Cutter<'_>,
        origin: &dyn Origin,
        writer: &mut Writer,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let mut blocks = Vec::new();
        let (mut next, mut bound) = (0, 0);
        while next < size {
            let mut extents = Vec::new();
            let len = cutter.next_block(src, size - next, &mut extents)?;
            bound += BlockEncoder::bound(&extents);
            blocks.push((next, len, extents));
            next += len as u64;
        }
        let start = out.len();
        let tickets = AtomicUsize::new(0);
        let failed = Mutex::new(None::<(usize, Error)>);
        let handover = Handover::new((&mut *writer, out.grow(bound), 0usize), std::mem::take(&mut self.jobs));
        self.workers.each(|encoder| {
            let _watch = handover.watch();
            loop {
                let mut job = handover.free();
                let ticket = tickets.fetch_add(1, Ordering::Relaxed);
                let Some((offset, len, extents)) = blocks.get(ticket) else { break handover.give_back(job) };
                let mut record = Output::new(&mut job.record);
                let block = loader.load(*offset, *len, &mut job.raw, extents);
                job.done = match block.and_then(|block| encoder.encode(&block, origin, &mut record)) {
                    Ok(summary) => Some(summary),
                    Err(e) => {
                        // Blocks begun before are finished: the earliest error is reported.
                        tickets.fetch_max(blocks.len(), Ordering::Relaxed);
                        let mut failed = failed.lock().expect("no panic while it is held");
                        if failed.as_ref().is_none_or(|f| ticket < f.0) {
                            *failed = Some((ticket, e));
                        }
                        None
                    }
                };
                let due = handover.done(ticket, job, |(writer, rest, written), job| {
                    let mut record_len = 0;
                    if let Some(summary) = &job.done {
                        writer.block(summary);
                        record_len = summary.record_len as usize;
                    }
                    *written += record_len;
                    rest.split_off_mut(..record_len).expect("no record is above its bound")
                });
                for (job, place) in due {
                    place.copy_from_slice(&job.record[..place.len()]);
                    handover.give_back(job);
                }
            }
        });
        let ((_, _, written), jobs) = handover.into_inner();
        self.jobs = jobs;
        out.truncate(start + written);
        match failed.into_inner().expect("no panic while it is held") {
            None => Ok(()),
            Some((_, e)) => Err(e),
        }
    }
}
