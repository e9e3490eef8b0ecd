//! `lmc unpack`.

mod args;
mod boxes;
mod checkpoint;
mod data;
mod join;
mod safetensors;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lmc::layout::{TensorView, Tensors, tensors};
use lmc::{Base, DecompressOptions, Dtype, Error, ErrorKind, ReadAt, Reader, Segment};

pub(crate) use self::args::UnpackArgs;
use self::boxes::in_order;
pub(super) use self::checkpoint::read as read_metadata;
pub(super) use self::data::{DataFiles, METADATA};
use self::join::MAX_HELD;
use self::safetensors::header;
use crate::fs::input::{Original, Source};
use crate::fs::names::{SUFFIX, is_dash, is_url};
use crate::fs::output::{Origin, Output, Target};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count};
use crate::ui::messages::Ui;
use crate::work::args::decoding;
use crate::work::bases::Bases;
use crate::work::missing::reasons;
use crate::work::report::{self, Outcome};
use crate::work::shards::refuse_index;

/// The most bytes copied at a time.
const CHUNK: u64 = 16 << 20;
/// The advice for a tensor that cannot be written.
const OTHERS: &str = "select others with --prefix";

/// Unpacks files and checkpoints.
pub(crate) fn run(args: &UnpackArgs, ui: &Ui) -> Result {
    let options = decoding(&args.threads)?;
    let mut targets = BTreeSet::new();
    for path in &args.files {
        if is_dash(path) {
            return Err(Failure::Usage(
                "unpack needs random access, which standard input lacks: name a file".to_owned(),
            ));
        }
        if is_url(path)? {
            return Err(Failure::at(path, "is a URL: copy it to a directory first"));
        }
        if path.is_dir() && path.join(METADATA).symlink_metadata().is_err() {
            let what = "is a directory without .metadata, which a checkpoint of torch.distributed.checkpoint has once it is complete";
            return Err(Failure::at(path, what));
        }
        refuse_index(path)?;
        let target = target(args, path);
        if !targets.insert(target.clone()) {
            let target = Name::path(&target).to_string();
            return Err(Failure::Usage(format!("{}: another file is unpacked to {target}, too", Name::path(path))));
        }
    }
    // A checkpoint has several files, and each may need only some bases.
    let several = args.files.len() > 1 || args.files.iter().any(|path| path.is_dir());
    let bases = args.bases.open_to_restore(several, args.threads.count())?;
    let is_new = !args.output.exists();
    std::fs::create_dir_all(&args.output).map_err(|e| Failure::io(&args.output, "cannot create", &e))?;
    let done = report::each(&args.files, PathBuf::as_path, false, ui, |path| {
        let is_directory = path.is_dir();
        if is_directory {
            checkpoint::unpack(path, args, &options, &bases, ui)
        } else {
            unpack(path, args, &options, &bases, ui)
        }?;
        Ok(Outcome::Told)
    });
    if is_new {
        // Unless it holds outputs.
        let _ = std::fs::remove_dir(&args.output);
    }
    done
}

/// The file that a file is unpacked to, or the first one for a checkpoint.
fn target(args: &UnpackArgs, path: &Path) -> PathBuf {
    if path.is_dir() {
        return args.output.join(safetensors::name(0, 1));
    }
    let name = match path.extension() {
        Some(suffix) if suffix == SUFFIX => path.with_extension(""),
        _ => path.to_owned(),
    };
    args.output.join(name.with_extension("safetensors").file_name().unwrap_or_default())
}

fn unpack(path: &Path, args: &UnpackArgs, options: &DecompressOptions, bases: &Bases, ui: &Ui) -> Result {
    let source = Source::open(path)?;
    let at_fault = |e| Failure::codec(path, &e);
    let mut start = [0; lmc::MAGIC.len()];
    if source.start(&mut start)? == lmc::MAGIC {
        let reader = Reader::open(&source, options).map_err(at_fault)?;
        let needed = bases.for_file(path, reader.bases())?;
        bases.note_unneeded(path, reader.bases(), ui);
        let reader = reader.with_bases(needed).map_err(at_fault)?;
        write(&source, &Original::of(&reader, path), reader.segments(), reader.layout(), args, bases, ui)
    } else {
        let plain = Base::new(&source).map_err(at_fault)?;
        write(&source, &source, plain.segments(), plain.layout(), args, bases, ui)
    }
}

/// Writes the tensors of a file, whose raw bytes have these segments.
fn write(
    source: &Source,
    raw: &dyn ReadAt,
    segments: &[Segment],
    layout: &str,
    args: &UnpackArgs,
    bases: &Bases,
    ui: &Ui,
) -> Result {
    let path = source.path();
    let at_fault = |e| Failure::codec(path, &e);
    if let Some(why) = lmc_inspect::truncated(raw).map_err(at_fault)? {
        return Err(at_fault(Error::new(ErrorKind::Damaged, why)));
    }
    let declared = tensors(raw, layout, segments, &args.prefix).map_err(at_fault)?;
    let tensors = select(path, declared, &args.prefix)?;
    let total = tensors.iter().try_fold(0u64, |sum, t| sum.checked_add(t.len)).filter(|&sum| sum <= u64::MAX / 2);
    let total = total.ok_or_else(|| Failure::at(path, "its tensors have more than 2^63 bytes: it is damaged"))?;
    let header = header(tensors.iter().map(|t| entry(t, &args.prefix))).map_err(|why| Failure::at(path, why))?;
    let target = target(args, path);
    let guard = bases.guard();
    let mut output =
        Output::create(&Target::File(target.clone()), args.force, Origin::PartOf(source.metadata()), &guard)?;
    let progress = ui.progress(&Name::path(path).to_string(), Some(total));
    let mut done = 0;
    let mut put = |output: &mut Output, bytes: &[u8]| {
        output.put(bytes)?;
        done += bytes.len() as u64;
        progress.at(done);
        Ok::<_, Failure>(())
    };
    let read = |output: &Output, buf: &mut [u8], at: u64| {
        raw.read_exact_at(buf, at).map_err(|e| match e.downcast::<lmc::Error>() {
            Ok(e) => report::explain(source, bases, output, &e),
            Err(e) => source.check_unchanged().err().unwrap_or_else(|| Failure::io(path, "cannot read", &e)),
        })
    };
    put(&mut output, &header)?;
    let mut buf = Vec::new();
    for tensor @ TensorView { len, elements, .. } in &tensors {
        if let Some(strides) = &elements.strides {
            let mut bytes = vec![0; elements.len as usize];
            read(&output, &mut bytes, elements.offset)?;
            let (shape, width) = tensor.strided_shape();
            put(&mut output, &in_order(&bytes, &shape, strides, width))?;
            continue;
        }
        let (mut at, end) = (elements.offset, elements.offset + len);
        while at < end {
            let n = (end - at).min(CHUNK);
            buf.resize(usize::try_from(n).expect("a chunk fits in memory"), 0);
            read(&output, &mut buf, at)?;
            put(&mut output, &buf)?;
            at += n;
        }
    }
    drop(progress);
    source.check_unchanged()?;
    bases.check_unchanged()?;
    output.finish(&guard)?;
    let number = count(tensors.len() as u64, "tensor");
    ui.result(format_args!("{} : {number}, {}  ({})", Name::path(path), bytes(total), Name::path(&target)));
    Ok(())
}

/// What the header of the output says of a tensor.
fn entry<'t>(tensor: &'t TensorView, prefix: &str) -> (&'t str, Dtype, &'t [u64]) {
    (&tensor.name[prefix.len()..], tensor.dtype, &tensor.shape)
}

/// The tensors in the order in which they are written: wide elements first, so that all of them are aligned, then as in the file. Fails if
/// one that the file declares cannot be given: nothing is left out in silence.
fn select(path: &Path, declared: Tensors, prefix: &str) -> Result<Vec<TensorView>> {
    if !declared.is_complete() {
        let has_names = declared.missing.iter().any(|m| !m.name.is_empty());
        let advice = if has_names { format!(": {OTHERS}") } else { String::new() };
        return Err(Failure::at(path, format_args!("{}{advice}", reasons(&declared))));
    }
    let Tensors { format, found: mut tensors, .. } = declared;
    if tensors.is_empty() {
        let what = match prefix {
            "" if format == "raw" => "is of no format whose tensors lmc finds, or is damaged".to_owned(),
            "" => format!("is a file of {format} without tensors"),
            _ => format!("has no tensor whose name begins with {prefix:?}: lmc list shows the names"),
        };
        return Err(Failure::at(path, what));
    }
    for TensorView { name, dtype, len, elements, .. } in &tensors {
        if let Dtype::Named(_) = dtype {
            let what = format!("tensor {name:?} is of type {dtype}, which safetensors files cannot hold");
            return Err(Failure::at(path, format_args!("{what}: {OTHERS}")));
        }
        if elements.strides.is_some() && elements.len.max(*len) > MAX_HELD {
            let what = format!("tensor {name:?} of more than {MAX_HELD} bytes is not in the order of its elements");
            return Err(Failure::at(path, format_args!("{what}: {OTHERS}")));
        }
    }
    tensors.sort_by_key(|t| (std::cmp::Reverse(t.dtype.bits()), t.elements.offset));
    Ok(tensors)
}
