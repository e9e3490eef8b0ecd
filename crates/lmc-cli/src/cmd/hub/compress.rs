//! `lmc hub compress`.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use lmc::{Base, CompressOptions, Compressor, Level, Reader, Sink};
use lmc_store::files::parent;
use serde_json::json;

use super::args::HubArgs;
use super::cache::{Cache, Weights, is_compressed};
use super::choice::{Choice, choose, is_worth_it, open};
use super::list::{Listing, show};
use super::place::{Directory, exclusively, is_whole, keep_bases, replace_by_link};
use crate::fs::guard::Guard;
use crate::fs::input::Source;
use crate::fs::links::with_suffix;
use crate::fs::output::{Origin, Output, Target};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count, percent, ratio};
use crate::ui::messages::Ui;
use crate::work::args::{Threads, level, max_work};
use crate::work::bases::BaseArgs;
use crate::work::report;
use crate::work::restorable;

/// Compress models in the cache.
///
/// Each file with weights becomes a link to a compressed one, once that was decoded from disk and compared. Models that
/// derive from others in the cache, and other revisions, are stored as their differences; from which is found by their
/// contents, and deleting a model makes no other one unreadable. Links, names and everything else stay as they are, so
/// that huggingface_hub neither misses nor downloads anything again. Files that hardly shrink are left alone, and so is
/// what is being downloaded.
///
/// Programs then load models through `lmc mount`, or with `import lmc.hf`. Whatever is interrupted leaves a working
/// cache; the next run goes on.
#[derive(Args)]
pub(super) struct CompressArgs {
    #[command(flatten)]
    hub: HubArgs,

    /// Change nothing: list what would be saved.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print one JSON object per file; with -n, one per model, as lmc hub list does.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    /// Compression level: `fast`, `default` or `max`, as for lmc compress.
    #[arg(short, long, value_name = "LEVEL", value_parser = level(), default_value = Level::default().name())]
    level: Level,

    #[command(flatten)]
    threads: Threads,
}

/// Compresses models.
pub(super) fn run(args: &CompressArgs, ui: &Ui) -> Result {
    let cache = args.hub.open(ui)?;
    let models = cache.select(&args.hub.models)?;
    let threads = args.threads.count();
    let options = CompressOptions::default().with_level(args.level).with_threads(threads).with_max_work(max_work()?);
    let compressor = Compressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let _locked = (!args.dry_run).then(|| exclusively(&cache)).transpose()?;
    let choices = choose(&cache, &cache.files_of(&models), &options, ui);
    if args.dry_run {
        return show(&Listing::new(&cache, &models, &choices), args.json, ui);
    }
    let mut work = Work { cache: &cache, compressor, threads, ui };
    let (mut raw, mut compressed, mut files, mut freed) = (0, 0, 0, 0);
    for choice in &choices {
        let file = &cache.files[choice.file];
        let record = match work.compress(choice) {
            Ok(None) => {
                ui.detail(format_args!("{}: left alone, it hardly shrinks", Name::path(&file.path)));
                json!({ "file": file.path.to_string_lossy(), "skipped": "it hardly shrinks" })
            }
            Ok(Some(size)) => {
                (raw, compressed, files) = (raw + file.raw_size, compressed + size, files + 1);
                let sizes = format!("{}  ({} => {})", percent(size, file.raw_size), bytes(file.raw_size), bytes(size));
                ui.result(format_args!("{} ({}) : {sizes}", Name::path(&file.path), Name::text(&file.name)));
                json!({
                    "file": file.path.to_string_lossy(),
                    "name": file.name,
                    "raw_size": file.raw_size,
                    "compressed_size": size,
                    "ratio": ratio(size, file.raw_size),
                })
            }
            Err(failure) => report::failed(&file.path, &failure, ui),
        };
        if args.json {
            ui.json(&record)?;
        }
    }
    for directory in &cache.directories {
        match Directory::read(&cache, directory).and_then(|mut directory| directory.sweep()) {
            Ok(bytes) => freed += bytes,
            Err(failure) => ui.fail(&failure),
        }
    }
    if freed > 0 {
        ui.done(format_args!("removed what nothing needed any more: {}", bytes(freed)));
    }
    let saved = bytes(raw.saturating_sub(compressed));
    let how = if files > 0 { "; Python loads them after import lmc.hf, other programs through lmc mount" } else { "" };
    ui.done(format_args!("{} : {} compressed, {saved} saved{how}", Name::path(&cache.dir), count(files, "file")));
    Ok(())
}

struct Work<'a> {
    cache: &'a Cache,
    compressor: Compressor,
    threads: usize,
    ui: &'a Ui,
}

impl Work<'_> {
    /// Compresses a file, and returns the size of the result; `None` if it was left alone.
    fn compress(&mut self, choice: &Choice) -> Result<Option<u64>> {
        let file = &self.cache.files[choice.file];
        let source = Source::open(&file.path)?;
        let is_kept = |size| choice.is_base || is_worth_it(size, source.metadata().len());
        let target = with_suffix(&file.path);
        let is_new = target.symlink_metadata().is_err();
        let size = if !is_new {
            // A run that was killed has written it, or it is a base here. Others may need it.
            let size = self.restores(&target, &source).map_err(|e| {
                Failure::at(&target, format_args!("is there, and is no compressed form of the file: {e}"))
            })?;
            if has_attributes_of(&target, &source) {
                Some(size)
            } else {
                self.write(file, &source, Vec::new(), |_| true)?
            }
        } else if let Some(size) = self.same_elsewhere(&target, &source) {
            Some(size)
        } else if is_kept(choice.estimate) {
            // One that could not be compressed is none, nor is one that would have the name of this file here.
            let is_base = |path: &Path| is_compressed(path) && path.file_name() != file.path.file_name();
            let bases = choice.bases.iter().copied().filter(|&f| is_base(&self.cache.files[f].path)).collect();
            self.write(file, &source, bases, is_kept)?
        } else {
            None
        };
        if size.is_some()
            && let Err(failure) = replace_by_link(&source, &file.lock)
        {
            if is_new && !is_compressed(&file.path) {
                _ = std::fs::remove_file(&target);
            }
            return Err(failure);
        }
        Ok(size)
    }

    /// Gives a compressed file of another directory, of the same name, a second name, if it restores this file: another
    /// model has it, too, or keeps it as a base. Returns its size.
    fn same_elsewhere(&self, target: &Path, source: &Source) -> Option<u64> {
        let there = |directory: &PathBuf| directory.join(target.file_name().unwrap_or_default());
        let mut others =
            self.cache.directories.iter().map(there).filter(|path| is_whole(path) && has_attributes_of(path, source));
        others.find_map(|other| {
            std::fs::hard_link(other, target).ok()?;
            self.restores(target, source).inspect_err(|_| _ = std::fs::remove_file(target)).ok()
        })
    }

    /// Whether a compressed file restores a file, and its size.
    fn restores(&self, compressed: &Path, source: &Source) -> Result<u64> {
        let opened = Source::open(compressed)?;
        let reader = Reader::open(&opened, &Default::default()).map_err(|e| Failure::codec(compressed, &e))?;
        let found = BaseArgs::default().open_to_restore(true, self.threads)?;
        let bases = found.for_file(compressed, reader.bases())?;
        self.check(&opened, source, &bases)?;
        Ok(opened.metadata().len())
    }

    fn check(&self, compressed: &dyn lmc::ReadAt, source: &Source, bases: &[Base<'static>]) -> Result {
        let progress = self.ui.progress(&Name::path(source.path()).to_string(), Some(source.metadata().len()));
        restorable::check(compressed, source, bases, self.threads, source.path(), &progress)
    }

    /// Writes the compressed file beside a file, if it is to be kept.
    fn write(
        &mut self,
        file: &Weights,
        source: &Source,
        from: Vec<usize>,
        is_kept: impl Fn(u64) -> bool,
    ) -> Result<Option<u64>> {
        let (guard, target) = (Guard::default(), Target::File(with_suffix(&file.path)));
        // What is there has been found to restore the file.
        let mut output = Output::create(&target, true, Origin::File(source.metadata()), &guard)?;
        let bases = open(self.cache, &from)?;
        let progress = self.ui.progress(&Name::path(&file.path).to_string(), Some(file.raw_size));
        let mut at = |done| progress.at(done);
        let read = lmc::Source::from(source).with_progress(&mut at);
        let summary = self.compressor.compress(read, &bases, Sink::writer(&mut output));
        let summary = summary.map_err(|e| output.take_failure().unwrap_or_else(|| Failure::codec(&file.path, &e)))?;
        drop(progress);
        output.replace_header(&summary)?;
        if !is_kept(summary.compressed_size) {
            return Ok(None);
        }
        let written = output.written()?.expect("it is a regular file");
        self.check(written, source, &bases)?;
        let reader = Reader::open(written, &Default::default()).map_err(|e| Failure::codec(&file.path, &e))?;
        // Those that it is predicted from, whose hashes are known.
        let needed: Vec<[u8; 16]> = reader.bases().iter().map(|base| base.content_hash).collect();
        drop(reader);
        let hashes: HashMap<[u8; 16], usize> = bases
            .iter()
            .zip(&from)
            .map(|(base, &f)| Ok((base.content_hash(self.threads)?, f)))
            .collect::<lmc::Result<_>>()
            .map_err(|e| Failure::codec(&file.path, &e))?;
        let kept = needed.iter().filter_map(|hash| hashes.get(hash)).map(|&f| &*self.cache.files[f].path);
        let directory = parent(&file.path);
        if let Err(e) = keep_bases(kept.filter(|base| parent(base) != directory), directory) {
            let why = crate::ui::format::io_error(&e);
            self.ui.warn(format_args!(
                "{}: is compressed without a base, which has no second name: {why}",
                Name::path(&file.path)
            ));
            drop(output);
            return self.write(file, source, Vec::new(), is_kept);
        }
        output.finish(&guard)?;
        Ok(Some(summary.compressed_size))
    }
}

/// Whether a compressed file gives the one that it restores to the mode, the owner and the time of this one.
fn has_attributes_of(compressed: &Path, source: &Source) -> bool {
    let of = |m: &Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec());
    compressed.metadata().is_ok_and(|m| of(&m) == of(source.metadata()))
}
