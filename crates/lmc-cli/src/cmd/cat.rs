//! `lmc cat`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use lmc::layout::tensors;
use lmc::{ReadAt, Reader, Segment};
use serde_json::json;

use crate::fs::input::{Original, Source};
use crate::fs::names::is_dash;
use crate::fs::output::{Origin, Output, Target};
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes};
use crate::ui::messages::Ui;
use crate::work::args::{Threads, decoding};
use crate::work::bases::BaseArgs;
use crate::work::report;
use crate::work::shards::refuse_index;

/// Write the bytes of one tensor, or of some of its rows, as they were in the original file.
///
/// Only the blocks that hold them are read. `lmc list` names the tensors of a file.
#[derive(Args)]
pub(crate) struct CatArgs {
    /// The compressed file.
    file: PathBuf,

    /// The name of the tensor; "" for data compressed with --dtype. Of one of an unknown type, all bytes up to the next tensor are written.
    tensor: String,

    /// Only rows A to B, excluding B, counted from 0 along the first dimension; A.. and ..B are open ranges.
    #[arg(long, value_name = "A..B", value_parser = parse_rows)]
    rows: Option<Rows>,

    /// Write to FILE instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Overwrite an existing file, write to a terminal.
    #[arg(short, long)]
    force: bool,

    /// Print name, dtype and shape of the output as a JSON object on standard error.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    bases: BaseArgs,

    #[command(flatten)]
    threads: Threads,
}

/// A range of rows with optional ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) start: Option<u64>,
    pub(super) end: Option<u64>,
}

pub(super) fn parse_rows(text: &str) -> Result<Rows, String> {
    let (start, end) = text.split_once("..").ok_or("rows are given as A..B, A.. or ..B")?;
    let number = |s: &str| match s {
        "" => Ok(None),
        s => s.parse().map(Some).map_err(|_| format!("{s:?} is not the number of a row")),
    };
    Ok(Rows { start: number(start)?, end: number(end)? })
}

/// The most bytes decoded before they are written.
const CHUNK: u64 = 16 << 20;

/// Writes a tensor.
pub(crate) fn run(args: &CatArgs, ui: &Ui) -> Result {
    if is_dash(&args.file) {
        return Err(Failure::Usage("cat needs random access, which standard input lacks: name a file".to_owned()));
    }
    let options = decoding(&args.threads)?;
    refuse_index(&args.file)?;
    let source = Source::open(&args.file)?;
    let at_fault = |e| Failure::codec(&args.file, &e);
    let reader = Reader::open(&source, &options).map_err(at_fault)?;
    let bases = args.bases.open_to_restore(false, options.threads)?;
    let needed = bases.for_file(&args.file, reader.bases())?;
    bases.note_unneeded(&args.file, reader.bases(), ui);
    let reader = reader.with_bases(needed).map_err(at_fault)?;
    let tensor = match reader.tensor(&args.tensor) {
        Some(tensor) => tensor.clone(),
        None => opaque(&args.file, &Original::of(&reader, &args.file), &reader, &args.tensor)?,
    };
    let (range, shape) = selection(&tensor, args.rows)
        .map_err(|why| Failure::at(&args.file, format_args!("tensor {:?} {why}", args.tensor)))?;

    let target = match &args.output {
        Some(path) if !is_dash(path) => Target::File(path.clone()),
        _ => Target::Stdout,
    };
    let guard = bases.guard();
    let mut output = Output::create(&target, args.force, Origin::PartOf(source.metadata()), &guard)?;
    describe(args, &tensor, &range, &shape, ui);
    let progress = ui.progress(&Name::text(&args.tensor).to_string(), Some(range.end - range.start));
    let boundaries: Vec<u64> = reader.blocks().map(|b| b.raw_offset).collect();
    let read = |at, buf: &mut [u8]| reader.read_range(at, buf).map_err(|e| report::explain_read(&source, &bases, &e));
    output.copy(range.clone(), |at| chunk_end(&boundaries, at, range.end), read, &progress)?;
    drop(progress);
    source.check_unchanged()?;
    bases.check_unchanged()?;
    output.finish(&guard)
}

/// The bytes of a tensor that the file declares and that is no segment; or why they cannot be given.
fn opaque<R: ReadAt>(file: &Path, raw: &Original<'_>, reader: &Reader<'_, R>, name: &str) -> Result<Segment> {
    let declared = tensors(raw, reader.layout(), reader.segments(), "").map_err(|e| Failure::codec(file, &e))?;
    let Some(missing) = declared.missing.into_iter().find(|m| m.name == name && !name.is_empty()) else {
        return Err(Failure::at(file, format_args!("has no tensor {name:?}: lmc list shows the names")));
    };
    let Some(place) = missing.place else { return Err(Failure::at(file, missing)) };
    let made = Segment::new(None, None, Default::default(), place.start, place.end - place.start);
    made.map_err(|e| Failure::codec(file, &e))
}

/// The byte range of the selected rows in the original file, and their shape; or an error about the rows.
pub(super) fn selection(tensor: &Segment, rows: Option<Rows>) -> Result<(Range<u64>, Vec<u64>), String> {
    let all = tensor.offset..tensor.offset + tensor.len;
    let Some(rows) = rows else { return Ok((all, tensor.shape.to_vec())) };
    let (Some(&count), Some(dtype)) = (tensor.shape.first(), tensor.dtype) else {
        return Err("has no rows".to_owned());
    };
    let (start, end) = (rows.start.unwrap_or(0), rows.end.unwrap_or(count));
    if start > end || end > count {
        return Err(format!("has {count} rows, and no rows {start}..{end}"));
    }
    let row_bits = tensor.shape[1..].iter().fold(u128::from(dtype.bits()), |n, &d| n * u128::from(d));
    let bits = |row: u64| u128::from(row) * row_bits;
    if bits(start) % 8 != 0 || bits(end) % 8 != 0 {
        return Err(format!("has rows of {row_bits} bits; {start}..{end} are not whole bytes"));
    }
    let byte = |row: u64| tensor.offset + u64::try_from(bits(row) / 8).expect("a row starts within the tensor");
    let mut shape = tensor.shape.to_vec();
    shape[0] = end - start;
    Ok((byte(start)..byte(end), shape))
}

/// The end of the next chunk after `at`: at a block boundary, so that no block is decoded twice, unless blocks are too large.
fn chunk_end(boundaries: &[u64], at: u64, end: u64) -> u64 {
    let limit = end.min(at.saturating_add(CHUNK));
    if limit == end {
        return end;
    }
    let last = boundaries.partition_point(|&b| b <= limit);
    boundaries[..last].last().copied().filter(|&b| b > at).unwrap_or(limit)
}

fn describe(args: &CatArgs, tensor: &Segment, range: &Range<u64>, shape: &[u64], ui: &Ui) {
    let dtype = tensor.dtype.as_ref().map(lmc::Dtype::name);
    let len = range.end - range.start;
    if args.json {
        let object = json!({ "name": args.tensor, "dtype": dtype, "shape": shape, "size": len });
        ui.always(object);
    } else {
        let dtype = dtype.unwrap_or("opaque");
        ui.detail(format_args!("{} : {dtype} {shape:?}, {}", Name::text(&args.tensor), bytes(len)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_parsed() {
        let rows = |start, end| Ok(Rows { start, end });
        assert_eq!(parse_rows("3..7"), rows(Some(3), Some(7)));
        assert_eq!(parse_rows("3.."), rows(Some(3), None));
        assert_eq!(parse_rows("..7"), rows(None, Some(7)));
        assert_eq!(parse_rows(".."), rows(None, None));
        for bad in ["3", "a..b", "3..=7", "-1..2", "1...2", "99999999999999999999.."] {
            assert!(parse_rows(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn chunks_end_where_blocks_do() {
        const B: u64 = 5 << 20;
        let boundaries: Vec<u64> = (0..10).map(|i| i * B).collect();
        assert_eq!(chunk_end(&boundaries, 7, 100), 100);
        assert_eq!(chunk_end(&boundaries, 7, 10 * B), 3 * B);
        assert_eq!(chunk_end(&boundaries, 3 * B, 10 * B), 6 * B);
        assert_eq!(chunk_end(&[0], 0, 2 * CHUNK), CHUNK);
    }
}
