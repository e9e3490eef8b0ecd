//! `lmc hub restore`.

use clap::Args;
use lmc::{DecompressOptions, Decompressor, Reader, Sink};
use lmc_store::files::parent;

use super::args::HubArgs;
use super::cache::{Cache, Weights, is_compressed};
use super::place::{exclusively, sweep};
use crate::fs::durable::{DurableFile, Unfinished};
use crate::fs::input::Source;
use crate::fs::links::with_suffix;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count};
use crate::ui::messages::Ui;
use crate::work::args::{Threads, decoding};
use crate::work::bases::{BaseArgs, Bases};

/// Restore models in the cache.
///
/// Each file is again what huggingface_hub downloaded, bit for bit, with its mode and its time. What others are
/// predicted from stays as long as they need it. Whatever is interrupted leaves a working cache; the next run goes on.
#[derive(Args)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    hub: HubArgs,

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
    let (mut files, mut raw) = (0, 0);
    for file in cache.files_of(&models).into_iter().map(|file| &cache.files[file]) {
        let restored = match file.compressed {
            Some(_) => restore(file, &bases, &mut decompressor, &options, ui),
            None => Ok(()),
        };
        match restored.and_then(|()| clean(&cache, file)) {
            Err(failure) => ui.fail(&failure),
            Ok(()) if file.compressed.is_some() => (files, raw) = (files + 1, raw + file.raw_size),
            Ok(()) => {}
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
fn clean(cache: &Cache, file: &Weights) -> Result {
    let compressed = with_suffix(&file.path);
    if file.is_blob {
        return sweep(cache, parent(&file.path)).map(drop);
    }
    if file.compressed.is_some() {
        std::fs::remove_file(&compressed).map_err(|e| Failure::io(&compressed, "cannot remove", &e))?;
    }
    Ok(())
}
