//! From any source to a stream: blocks are encoded in parallel, and written in order by the calling thread.

use std::io::Write;

use super::jobs::{Encoders, Job, Loader};
use crate::Summary;
use crate::block::Origin;
use crate::block::encode::BlockSummary;
use crate::block::output::Output;
use crate::file::cut::Cutter;
use crate::file::session::EncodeSession;
use crate::file::writer::Writer;
use lmc_layout::Layout;
use lmc_layout::error::{Error, Result};

impl Encoders {
    /// Writes a file whose blocks come from `next`, which plans the next one (false at the end).
    pub(super) fn ordered(
        &mut self,
        loader: &Loader<'_>,
        session: EncodeSession<'_>,
        mut next: impl FnMut(&mut Cutter<'_>, &mut Job) -> Result<bool>,
        dst: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Summary> {
        let EncodeSession { mut cutter, layout, mut writer, start, origin } = session;
        write(dst, &start)?;
        let take = |block: &BlockSummary, record: &[u8]| {
            writer.block(block);
            write(dst, record)?;
            progress(writer.raw());
            Ok(())
        };
        self.blocks(loader, &origin, |job| next(&mut cutter, job), take)?;
        self.finish(writer, &layout, dst)
    }

    /// Writes the records after the last block.
    pub(crate) fn finish(&self, writer: Writer, layout: &Layout, dst: &mut dyn Write) -> Result<Summary> {
        let (end, summary) = self.workers.with(|encoder| writer.finish(layout, encoder.frames()))?;
        write(dst, &end)?;
        dst.flush().map_err(Error::cannot_write)?;
        Ok(summary)
    }

    /// Plans blocks with `plan` (false at the end), loads and encodes them in parallel. `take` gets their records in order.
    pub(crate) fn blocks(
        &mut self,
        loader: &Loader<'_>,
        origin: &dyn Origin,
        mut plan: impl FnMut(&mut Job) -> Result<bool>,
        mut take: impl FnMut(&BlockSummary, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.prepare();
        self.workers.ordered(
            &mut self.jobs,
            |job| Ok(plan(job)?.then_some(2 * job.len)),
            |encoder, job| {
                let mut record = Output::new(&mut job.record);
                let block = loader.load(job.offset, job.len, &mut job.raw, &job.extents);
                encoder.encode(&block?, origin, &mut record)
            },
            |job, done| {
                let block = done?;
                take(&block, &job.record[..block.record_len as usize])
            },
        )
    }
}

pub(crate) fn write(dst: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    dst.write_all(bytes).map_err(Error::cannot_write)
}
