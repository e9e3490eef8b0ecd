//! Checkpoints of `torch.distributed.checkpoint`: directories whose tensors are made of chunks in several files.

use std::path::Path;

use lmc::layout::Shape;
use lmc::layout::distcp::{Metadata, Tensor};
use lmc::{DecompressOptions, ReadAt};

use super::args::UnpackArgs;
use super::data::{DataFiles, METADATA};
use super::join::join;
use super::safetensors;
use crate::fs::guard::{Guard, Role};
use crate::fs::input::Source;
use crate::fs::output::{Origin, Output, Target, allow_open, finish_all};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count};
use crate::ui::messages::Ui;
use crate::work::bases::Bases;

/// Names of entries in a message.
const SHOWN: usize = 5;

/// A tensor that is written.
struct Chosen<'m> {
    tensor: &'m Tensor,
    /// Without the prefix.
    name: &'m str,
    dtype: lmc::Dtype,
    shape: Shape,
    len: u64,
}

/// Writes the tensors of a checkpoint. All checks of the metadata come before the first byte of output.
pub(super) fn unpack(
    directory: &Path,
    args: &UnpackArgs,
    options: &DecompressOptions,
    bases: &Bases,
    ui: &Ui,
) -> Result {
    let path = directory.join(METADATA);
    let source = Source::open(&path)?;
    let metadata = read(&source)?;
    let chosen = choose(&path, &metadata, &args.prefix)?;
    let guard = bases.guard();
    guard.keep(Role::Input, &path, source.metadata());
    let mut files = DataFiles::new(directory, bases, *options);
    for Chosen { tensor, .. } in &chosen {
        for place in tensor.chunks.iter().filter(|c| !c.sizes.contains(&0)).filter_map(|c| c.place.as_ref()) {
            files.add(place.file, &metadata.files[place.file], &guard)?;
        }
    }
    let total: u64 = chosen.iter().map(|c| c.len).sum();
    let number = count(chosen.len() as u64, "tensor");
    let shards = shards(chosen, args.max_shard_size as u64);
    let names: Vec<_> = (0..shards.len()).map(|i| safetensors::name(i, shards.len())).collect();
    let headers = shards.iter().map(|shard| safetensors::header(shard.iter().map(Chosen::entry)));
    let headers: Vec<_> = headers.collect::<Result<_, _>>().map_err(|why| Failure::at(&path, why))?;
    check_target(args, &names)?;
    // All are open until all are complete; the index is one more.
    allow_open(shards.len() + 1, "written", "choose a larger --max-shard-size")?;
    let mut done = 0;
    let progress = ui.progress(&Name::path(directory).to_string(), Some(total));
    let mut outputs = Vec::new();
    for ((shard, name), header) in shards.iter().zip(&names).zip(&headers) {
        let mut output = create(args, name, &source, &guard)?;
        output.put(header)?;
        let tensors: Vec<_> = shard.iter().map(|chosen| chosen.tensor).collect();
        join(&tensors, &mut files, |bytes| {
            done += bytes.len() as u64;
            output.put(bytes)?;
            progress.at(done);
            Ok(())
        })?;
        outputs.push(output);
    }
    if shards.len() > 1 {
        let mut output = create(args, safetensors::INDEX, &source, &guard)?;
        let places = shards.iter().zip(&names).flat_map(|(s, file)| s.iter().map(move |c| (c.name, &file[..])));
        output.put(safetensors::index(places, total).as_bytes())?;
        outputs.push(output);
    }
    drop(progress);
    source.check_unchanged()?;
    files.check_unchanged()?;
    bases.check_unchanged()?;
    // The index last.
    finish_all(outputs, &guard)?;
    say_left_out(directory, &metadata.others, &args.prefix, ui);
    let target = if names.len() == 1 { &names[0] } else { safetensors::INDEX };
    let target = args.output.join(target);
    ui.result(format_args!("{} : {number}, {}  ({})", Name::path(directory), bytes(total), Name::path(&target)));
    Ok(())
}

/// Names the entries that were not written: a user may not know that they were there.
fn say_left_out(directory: &Path, others: &[String], prefix: &str, ui: &Ui) {
    let others: Vec<_> = others.iter().filter(|name| name.starts_with(prefix)).collect();
    let names: Vec<_> = others.iter().take(SHOWN).map(|name| Name::text(name).to_string()).collect();
    let more = if others.len() > SHOWN { ", …" } else { "" };
    let (directory, names) = (Name::path(directory), names.join(", "));
    match others.len() {
        0 => {}
        1 => ui.warn(format_args!("{directory}: left out an entry that is not a tensor: {names}")),
        n => ui.warn(format_args!("{directory}: left out {n} entries that are not tensors: {names}{more}")),
    }
}

impl Chosen<'_> {
    fn entry(&self) -> (&str, lmc::Dtype, &[u64]) {
        (self.name, self.dtype, &self.shape)
    }
}

/// Reads a `.metadata`.
pub(in crate::cmd) fn read(source: &Source) -> Result<Metadata> {
    let path = source.path();
    let len = source.metadata().len();
    if len > Metadata::MAX_LEN {
        let most = Metadata::MAX_LEN;
        return Err(Failure::at(path, format_args!("has {len} bytes, and metadata of more than {most} are not read")));
    }
    let mut text = vec![0; len as usize];
    source.read_exact_at(&mut text, 0).map_err(|e| Failure::io(path, "cannot read", &e))?;
    Metadata::parse(&text).map_err(|e| Failure::codec(path, &e))
}

/// The tensors whose names begin with a prefix, after checking that their chunks make whole tensors, and that safetensors has their types.
fn choose<'m>(path: &Path, metadata: &'m Metadata, prefix: &str) -> Result<Vec<Chosen<'m>>> {
    let mut chosen = Vec::new();
    for tensor in &metadata.tensors {
        let Some(name) = tensor.name.strip_prefix(prefix) else { continue };
        let Some((dtype, shape)) = tensor.in_safetensors() else {
            let (name, dtype) = (&tensor.name, Name::text(&tensor.torch_dtype));
            let what = format!("tensor {name:?} is of type torch.{dtype}, which safetensors files cannot hold");
            return Err(Failure::at(path, format_args!("{what}: select others with --prefix")));
        };
        tensor.check().map_err(|e| Failure::codec(path, &e))?;
        let len = tensor.byte_len().map_err(|e| Failure::codec(path, &e))?;
        chosen.push(Chosen { tensor, name, dtype, shape, len });
    }
    let total = chosen.iter().try_fold(0u64, |sum, c| sum.checked_add(c.len)).filter(|&sum| sum <= u64::MAX / 2);
    match (total, prefix) {
        _ if chosen.is_empty() && prefix.is_empty() => Err(Failure::at(path, "is of a checkpoint without tensors")),
        _ if chosen.is_empty() => {
            Err(Failure::at(path, format_args!("has no tensor whose name begins with {prefix:?}")))
        }
        (None, _) => Err(Failure::at(path, "says that the tensors have more than 2^63 bytes: it is damaged")),
        _ => Ok(chosen),
    }
}

/// The tensors of each file, wide elements first, so that all of them are aligned.
fn shards(chosen: Vec<Chosen<'_>>, most: u64) -> Vec<Vec<Chosen<'_>>> {
    let (mut shards, mut size) = (vec![Vec::new()], 0);
    for tensor in chosen {
        let last = shards.last_mut().expect("there is one");
        if !last.is_empty() && size + tensor.len > most {
            size = 0;
            shards.push(Vec::new());
        }
        size += tensor.len;
        shards.last_mut().expect("there is one").push(tensor);
    }
    shards.iter_mut().for_each(|s: &mut Vec<Chosen<'_>>| s.sort_by_key(|c| std::cmp::Reverse(c.dtype.bits())));
    shards
}

/// Fails if the directory has a file of another model that programs would load together with these, or in place of them.
fn check_target(args: &UnpackArgs, names: &[String]) -> Result {
    let entries = std::fs::read_dir(&args.output).map_err(|e| Failure::io(&args.output, "cannot read", &e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Failure::io(&args.output, "cannot read", &e))?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| safetensors::is_of_a_model(name)) else { continue };
        let written = names.iter().any(|n| n == name) || (names.len() > 1 && name == safetensors::INDEX);
        if !written {
            return Err(Failure::at(
                &args.output.join(name),
                "is there already, and programs would take it for a part of this model: write to another directory",
            ));
        }
    }
    Ok(())
}

fn create(args: &UnpackArgs, name: &str, source: &Source, guard: &Guard) -> Result<Output> {
    let target = Target::File(args.output.join(name));
    Output::create(&target, args.force, Origin::PartOf(source.metadata()), guard)
}
