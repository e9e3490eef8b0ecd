//! `lmc unpack`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use lmc::{Base, DecodeLimits, DecompressOptions, Dtype, ReadAt, Reader, Segment};
use serde_json::json;

use crate::args::{Limits, Threads};
use crate::bases::{BaseArgs, Bases};
use crate::failure::{Failure, Result};
use crate::format::{Name, bytes, count};
use crate::input::Source;
use crate::names::{SUFFIX, is_dash};
use crate::output::{Origin, Output, Target};
use crate::report;
use crate::ui::Ui;

/// Write the tensors of checkpoints as safetensors files.
///
/// A file may be compressed or not, and of any format whose tensors lmc finds: torch.save, .distcp, npy, npz, GGUF, ONNX, safetensors. Nothing in
/// it is unpickled or run. DIR/NAME.safetensors holds the tensors of NAME.pt or NAME.pt.lmc.
#[derive(Args)]
pub(crate) struct UnpackArgs {
    /// Files of tensors, compressed or not.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The directory to write to, created if it is missing.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// The format to write.
    #[arg(long, value_enum, default_value_t = To::Safetensors, hide_possible_values = true)]
    to: To,

    /// Only tensors whose names begin with PREFIX, without it: model. for the weights of a training state.
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,

    /// Overwrite existing files, read through symbolic links.
    #[arg(short, long)]
    force: bool,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    threads: Threads,
}

/// Formats that are written.
#[derive(Clone, Copy, ValueEnum)]
enum To {
    Safetensors,
}

/// The most bytes copied at a time.
const CHUNK: u64 = 16 << 20;

/// Unpacks files.
pub(crate) fn run(args: &UnpackArgs, ui: &Ui) -> Result {
    let To::Safetensors = args.to;
    let mut targets = BTreeSet::new();
    for path in &args.files {
        if is_dash(path) {
            return Err(Failure::Usage(
                "unpack needs random access, which standard input lacks: name a file".to_owned(),
            ));
        }
        if path.is_dir() {
            return Err(Failure::at(
                path,
                "is a directory: name its .distcp files, or, to join the parts of tensors that they hold, use the command of \
                 the Python package (pip install 'lmc-codec[torch]')",
            ));
        }
        let target = target(args, path);
        if !targets.insert(target.clone()) {
            let target = Name::path(&target).to_string();
            return Err(Failure::Usage(format!("{}: another file is unpacked to {target}, too", Name::path(path))));
        }
    }
    std::fs::create_dir_all(&args.output).map_err(|e| Failure::io(&args.output, "cannot create", &e))?;
    let bases = args.bases.open(args.files.len() > 1, args.threads.count())?;
    args.files.iter().try_for_each(|path| unpack(path, args, &bases, ui))
}

/// The file that a file is unpacked to.
fn target(args: &UnpackArgs, path: &Path) -> PathBuf {
    let name = match path.extension() {
        Some(suffix) if suffix == SUFFIX => path.with_extension(""),
        _ => path.to_owned(),
    };
    args.output.join(name.with_extension("safetensors").file_name().unwrap_or_default())
}

fn unpack(path: &Path, args: &UnpackArgs, bases: &Bases, ui: &Ui) -> Result {
    let limits = DecodeLimits::default().with_max_work(args.limits.max_work());
    let options = DecompressOptions::default().with_threads(args.threads.count()).with_limits(limits);
    let source = Source::open(path, args.force)?;
    let at_fault = |e| Failure::codec(path, &e);
    let mut start = [0; lmc::MAGIC.len()];
    if source.start(&mut start)? == lmc::MAGIC {
        let reader = Reader::open(&source, &options).map_err(at_fault)?;
        let output = &args.output.to_string_lossy();
        let needed = bases.for_file(path, reader.bases(), &["unpack", "-o", output])?;
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
    let tensors = select(path, segments, layout, &args.prefix)?;
    let header = header(&tensors);
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

/// The header of a safetensors file, whose length is a multiple of 8 bytes.
fn header(tensors: &[Tensor<'_>]) -> Vec<u8> {
    // Libraries of Hugging Face refuse a file that does not say which framework wrote it.
    let mut json = String::from(r#"{"__metadata__":{"format":"pt"}"#);
    let mut at = 0;
    for t in tensors {
        let end = at + t.segment.len;
        let (name, info) = (
            serde_json::Value::from(t.name),
            json!({ "dtype": t.dtype.name(), "shape": &t.segment.shape[..], "data_offsets": [at, end] }),
        );
        write!(json, ",{name}:{info}").expect("a string takes everything");
        at = end;
    }
    json.push('}');
    while !json.len().is_multiple_of(8) {
        json.push(' ');
    }
    [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat()
}
