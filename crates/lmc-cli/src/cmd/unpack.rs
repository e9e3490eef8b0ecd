//! `lmc unpack`.

mod args;
mod boxes;
mod checkpoint;
mod data;
mod join;
mod safetensors;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use lmc::{Base, Dtype, Error, ErrorKind, ReadAt, Reader, Segment};

use self::args::To;
pub(crate) use self::args::UnpackArgs;
use self::data::METADATA;
use self::safetensors::{Entry, header};
use crate::bases::Bases;
use crate::failure::{Failure, Result};
use crate::format::{Name, bytes, count};
use crate::input::Source;
use crate::names::{SUFFIX, is_dash, is_url};
use crate::output::{Origin, Output, Target};
use crate::report;
use crate::shards::refuse_index;
use crate::ui::Ui;

/// The most bytes copied at a time.
const CHUNK: u64 = 16 << 20;
/// The error where only the Python package helps.
const PYTHON: &str = "use the command of the Python package, installed with its extra torch";

/// Unpacks files and checkpoints.
pub(crate) fn run(args: &UnpackArgs, ui: &Ui) -> Result {
    if args.to == To::Dcp {
        return Err(Failure::Usage(format!("--to dcp takes PyTorch: {PYTHON}")));
    }
    let mut targets = BTreeSet::new();
    for path in &args.files {
        if is_dash(path) {
            return Err(Failure::Usage(
                "unpack needs random access, which standard input lacks: name a file".to_owned(),
            ));
        }
        if is_url(path)? {
            return Err(Failure::at(path, format_args!("is a URL: {PYTHON}")));
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
    let is_new = !args.output.exists();
    std::fs::create_dir_all(&args.output).map_err(|e| Failure::io(&args.output, "cannot create", &e))?;
    // A checkpoint has several files, and each may need only some bases.
    let several = args.files.len() > 1 || args.files.iter().any(|path| path.is_dir());
    let bases = args.bases.open(several, args.threads())?;
    let done = args.files.iter().try_for_each(|path| {
        if path.is_dir() { checkpoint::unpack(path, args, &bases, ui) } else { unpack(path, args, &bases, ui) }
    });
    if done.is_err() && is_new {
        // Unless it holds outputs of earlier files.
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

fn unpack(path: &Path, args: &UnpackArgs, bases: &Bases, ui: &Ui) -> Result {
    let source = Source::open(path, args.force)?;
    let at_fault = |e| Failure::codec(path, &e);
    let mut start = [0; lmc::MAGIC.len()];
    if source.start(&mut start)? == lmc::MAGIC {
        let reader = Reader::open(&source, &args.options()).map_err(at_fault)?;
        let output = &args.output.to_string_lossy();
        let needed = bases.for_file(path, reader.bases(), &["unpack", "-o", output])?;
        bases.note_unneeded(path, reader.bases(), ui);
        let reader = reader.with_bases(needed.to_vec()).map_err(at_fault)?;
        write(&source, &reader, reader.segments(), reader.layout(), args, bases, ui)
    } else {
        let plain = Base::new(&source).map_err(at_fault)?;
        write(&source, &source, plain.segments(), plain.layout(), args, bases, ui)
    }
}

/// Writes the tensors among the segments of the raw bytes of a file.
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
    if let Some(why) = lmc_inspect::early_end(raw).map_err(at_fault)? {
        return Err(at_fault(Error::new(ErrorKind::Damaged, why)));
    }
    let tensors = select(path, segments, layout, &args.prefix)?;
    let header = header(tensors.iter().map(Tensor::entry));
    let total = tensors.iter().map(|t| t.segment.len).sum::<u64>();
    let target = target(args, path);
    let guard = bases.guard();
    let mut output =
        Output::create(&Target::File(target.clone()), args.force, Origin::PartOf(source.metadata()), &guard)?;
    let progress = ui.progress(&Name::path(path).to_string(), Some(total));
    let failed = |output: &Output, e: &std::io::Error| {
        output.take_failure().unwrap_or_else(|| Failure::io(&target, "cannot write", e))
    };
    output.write_all(&header).map_err(|e| failed(&output, &e))?;
    let (mut buf, mut done) = (Vec::new(), 0);
    for Tensor { segment, .. } in &tensors {
        let mut at = segment.offset;
        while at < segment.end() {
            let n = (segment.end() - at).min(CHUNK);
            buf.resize(usize::try_from(n).expect("a chunk fits in memory"), 0);
            raw.read_exact_at(&mut buf, at).map_err(|e| match e.downcast::<lmc::Error>() {
                Ok(e) => report::explain(source, bases, &output, &e),
                Err(e) => source.check_unchanged().err().unwrap_or_else(|| Failure::io(path, "cannot read", &e)),
            })?;
            output.write_all(&buf).map_err(|e| failed(&output, &e))?;
            at += n;
            done += n;
            progress.at(done);
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

/// A tensor that is written.
#[derive(Debug)]
struct Tensor<'s> {
    name: &'s str,
    dtype: Dtype,
    segment: &'s Segment,
}

impl Tensor<'_> {
    fn entry(&self) -> Entry<'_> {
        Entry { name: self.name, dtype: self.dtype, shape: &self.segment.shape, len: self.segment.len }
    }
}

/// The tensors whose names begin with a prefix, in the order in which they are written: wide elements first, so that all of them are aligned.
fn select<'s>(path: &Path, segments: &'s [Segment], layout: &str, prefix: &str) -> Result<Vec<Tensor<'s>>> {
    let tensors = segments.iter().filter_map(|s| Some((s.name.as_deref()?, s.dtype?, s)));
    let mut tensors: Vec<_> = tensors
        .filter_map(|(name, dtype, segment)| Some(Tensor { name: name.strip_prefix(prefix)?, dtype, segment }))
        .collect();
    if tensors.is_empty() {
        let what = match prefix {
            "" if layout == "raw" => "is of no format whose tensors lmc finds, or is damaged".to_owned(),
            "" => format!("is a file of {layout} without tensors"),
            _ => format!("has no tensor whose name begins with {prefix:?}: lmc list shows the names"),
        };
        return Err(Failure::at(path, what));
    }
    if let Some(t) = tensors.iter().find(|t| matches!(t.dtype, Dtype::Named(_))) {
        let what = format!("tensor {:?} is of type {}, which safetensors files cannot hold", t.name, t.dtype);
        return Err(Failure::at(path, format_args!("{what}: select others with --prefix")));
    }
    tensors.sort_by_key(|t| std::cmp::Reverse(t.dtype.bits()));
    Ok(tensors)
}
