//! From any source to a stream: blocks are encoded in parallel, and written in order by the calling thread.

use std::io::Write;

use super::jobs::{Encoders, Job, Loader};
use crate::Summary;
use crate::block::Origin;
use crate::block::output::Output;
use crate::container::writer::Writer;
use crate::cut::Cutter;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::session::EncodeSession;

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
        self.blocks(loader, &origin, &mut writer, |job| next(&mut cutter, job), dst, progress)?;
        self.finish(writer, &layout, dst)
    }

    /// Writes the records after the last block.
    pub(crate) fn finish(&self, writer: Writer, layout: &Layout, dst: &mut dyn Write) -> Result<Summary> {
        let (end, summary) = self.workers.with(|encoder| writer.finish(layout, encoder.frames()))?;
        write(dst, &end)?;
        dst.flush().map_err(Error::cannot_write)?;
        Ok(summary)
    }

    /// Plans blocks with `plan` (false at the end), loads and encodes them in parallel, and writes them in order.
    pub(crate) fn blocks(
        &mut self,
        loader: &Loader<'_>,
        origin: &dyn Origin,
        writer: &mut Writer,
        mut plan: impl FnMut(&mut Job) -> Result<bool>,
        dst: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.prepare();
        self.workers.ordered(
            &mut self.jobs,
            |job| Ok(plan(job)?.then_some(2 * job.len)),
            |encoder, job| {
                let mut record = Output::new(&mut job.record);
                let block = loader.load(job.offset, job.len, &mut job.raw, &job.extents);
                job.done = Some(block.and_then(|block| encoder.encode(&block, origin, &mut record)));
                job.record_len = record.len();
            },
            |job| {
                writer.block(&job.done.take().expect("the worker is done")?);
                write(dst, &job.record[..job.record_len])?;
                progress(writer.raw());
                Ok(())
            },
        )
    }
}

pub(crate) fn write(dst: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    dst.write_all(bytes).map_err(Error::cannot_write)
}
