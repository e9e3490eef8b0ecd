//! `lmc hub restore`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use clap::Args;
use lmc::{DecompressOptions, Decompressor, Reader, Sink};
use lmc_store::files::parent;
use serde_json::json;

use super::args::HubArgs;
use super::cache::{Cache, Compressed, Weights, is_compressed};
use super::place::{Directory, exclusively};
use crate::fs::durable::{DurableFile, Unfinished};
use crate::fs::input::Source;
use crate::fs::links::with_suffix;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count};
use crate::ui::messages::Ui;
use crate::work::args::{Threads, decoding};
use crate::work::bases::{BaseArgs, Bases};
use crate::work::report;

/// Restore models in the cache.
///
/// Each file is again what huggingface_hub downloaded, bit for bit, with its mode and its time. What others are
/// predicted from stays as long as they need it. Whatever is interrupted leaves a working cache; the next run goes on.
#[derive(Args)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    hub: HubArgs,

    /// Print one JSON object per file.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    threads: Threads,
}

/// Restores models.
pub(super) fn run(args: &RestoreArgs, ui: &Ui) -> Result {
    let cache = args.hub.open(ui)?;
    let models = cache.select(&args.hub.models)?;
    let _locked = exclusively(&cache)?;
    let options = decoding(&args.threads)?;
    let mut decompressor = Decompressor::new(&options).map_err(|e| Failure::Usage(e.to_string()))?;
    let bases = BaseArgs::default().open_to_restore(true, args.threads.count())?;
    let mut directories = HashMap::new();
    let (mut files, mut raw) = (0, 0_u64);
    for file in cache.files_of(&models).into_iter().map(|file| &cache.files[file]) {
        let restored = match file.compressed {
            Some(_) => restore(file, &bases, &mut decompressor, &options, ui),
            None => Ok(()),
        };
        let record = match restored.and_then(|()| clean(&cache, file, &mut directories)) {
            Err(failure) => report::failed(&file.path, &failure, ui),
            Ok(()) => {
                let Some(Compressed { size, .. }) = file.compressed else { continue };
                (files, raw) = (files + 1, raw.saturating_add(file.raw_size));
                json!({
                    "file": file.path.to_string_lossy(),
                    "name": file.name,
                    "raw_size": file.raw_size,
                    "compressed_size": size,
                })
            }
        };
        if args.json {
            ui.json(&record)?;
        }
    }
    ui.done(format_args!("{} : {} restored ({})", Name::path(&cache.dir), count(files, "file"), bytes(raw)));
    Ok(())
}

/// Writes a file in place of the link to its compressed form.
fn restore(
    file: &Weights,
    bases: &Bases,
    decompressor: &mut Decompressor,
    options: &DecompressOptions,
    ui: &Ui,
) -> Result {
    let path = &file.path;
    let source = Source::open(&with_suffix(path))?;
    let failed = |e: lmc::Error| Failure::codec(source.path(), &e);
    let reader = Reader::open(&source, options).map_err(failed)?;
    let bases = bases.for_file(source.path(), reader.bases())?;
    let cannot_write = |e| Failure::io(path, "cannot write", &e);
    let mut output = DurableFile::create(path, true).map_err(cannot_write)?;
    let progress = ui.progress(&Name::path(path).to_string(), Some(reader.raw_size()));
    let mut at = |done| progress.at(done);
    let from = lmc::Source::from(&source).with_progress(&mut at);
    let restored = match output.set_size(reader.raw_size()).map_err(cannot_write)? {
        true => decompressor.decompress(from, &bases, Sink::from(&output)),
        false => decompressor.decompress(from, &bases, Sink::writer(&mut output)),
    };
    restored.map_err(failed)?;
    source.check_unchanged()?;
    // A download may have put it back.
    let is_still = || if is_compressed(path) { Ok(()) } else { Err(std::io::ErrorKind::AlreadyExists.into()) };
    let finished = output.finish_unless(true, Some(source.metadata()), is_still);
    finished.map_err(|Unfinished(doing, e)| Failure::io(path, doing, &e))
}

/// Removes the compressed form of a file that is there, unless others need it.
fn clean<'a>(cache: &'a Cache, file: &Weights, directories: &mut HashMap<&'a Path, Directory<'a>>) -> Result {
    let compressed = with_suffix(&file.path);
    if let Some(path) = cache.directories.iter().find(|path| **path == parent(&file.path)).filter(|_| file.is_blob) {
        let directory = match directories.entry(path) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Directory::read(cache, path)?),
        };
        directory.restored(&file.path);
        return directory.sweep().map(drop);
    }
    if file.compressed.is_some() {
        std::fs::remove_file(&compressed).map_err(|e| Failure::io(&compressed, "cannot remove", &e))?;
    }
    Ok(())
}
