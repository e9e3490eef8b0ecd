//! `lmc list`.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use lmc::{BlockDescription, BlockInfo, DecompressOptions, PartDescription, Reader, Segment};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::format::{Name, bytes, hex, percent, ratio};
use crate::input::Source;
use crate::plan::is_dash;
use crate::ui::Ui;

/// Show what compressed files hold: every tensor with its type, shape, sizes and coder.
///
/// Reads the index and the heads of blocks, and decodes nothing. The compressed size of a tensor is its share of the
/// blocks that it lies in; the coder is that of the first of them, and -v shows every block.
#[derive(Args)]
pub(crate) struct ListArgs {
    /// Files to look into.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Read through symbolic links.
    #[arg(short, long)]
    force: bool,

    /// Print one JSON object a file; with -v, it has the blocks too.
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Lists files.
pub(crate) fn run(args: &ListArgs, ui: &Ui) -> Result {
    for (i, path) in args.files.iter().enumerate() {
        match list(path, args, ui) {
            Ok(text) if args.json => ui.print(&text)?,
            Ok(text) => ui.print(&format!("{}{text}", if i == 0 { "" } else { "\n" }))?,
            Err(failure) => {
                ui.fail(&failure);
                if args.json {
                    ui.json(&json!({ "file": path.to_string_lossy(), "error": failure.to_string() }))?;
                }
            }
        }
    }
    Ok(())
}

fn list(path: &Path, args: &ListArgs, ui: &Ui) -> Result<String> {
    if is_dash(path) {
        return Err(Failure::Usage("list reads here and there in a file, not standard input: name a file".to_owned()));
    }
    let source = Source::open(path, args.force)?;
    let mut options = DecompressOptions::default();
    options.threads = 1; // nothing is decoded
    let reader = Reader::open(&source, &options).map_err(|e| Failure::codec(path, &e))?;
    let mut listing = Listing::new(reader);
    let text = if args.json { listing.json(path, ui.verbose()) } else { listing.text(path, ui.verbose()) };
    let text = text.map_err(|e| Failure::codec(path, &e))?;
    source.check_unchanged()?;
    Ok(text)
}

/// An open file and what is known of its blocks.
struct Listing<'a> {
    reader: Reader<'a, &'a Source>,
    blocks: Vec<BlockInfo>,
    coders: HashMap<usize, String>,
}

impl<'a> Listing<'a> {
    fn new(reader: Reader<'a, &'a Source>) -> Self {
        let blocks = reader.blocks().collect();
        Listing { reader, blocks, coders: HashMap::new() }
    }

    fn text(&mut self, path: &Path, with_blocks: bool) -> lmc::Result<String> {
        let (raw, compressed) = (self.reader.raw_size(), self.reader.compressed_size());
        let segments = self.reader.segments().to_vec();
        let tensors = segments.iter().filter(|s| s.name.is_some()).count();
        let mut text = format!(
            "{} : {}  ({} => {}), {}, {}, {}\ncontent hash {}\n",
            Name::path(path),
            percent(compressed, raw),
            bytes(raw),
            bytes(compressed),
            Name::text(self.reader.layout()),
            count(tensors, "tensor"),
            count(self.blocks.len(), "block"),
            hex(&self.reader.content_hash()),
        );
        let mut table = table(&["tensor", "dtype", "shape", "raw", "compressed", "ratio", "coder"], &[3, 4, 5]);
        for segment in &segments {
            let compressed = self.share(segment);
            table.add_row([
                display_name(segment),
                segment.dtype.map_or("-", lmc::Dtype::name).to_owned(),
                if segment.name.is_some() { format!("{:?}", segment.shape) } else { "-".to_owned() },
                bytes(segment.len),
                bytes(compressed),
                percent(compressed, segment.len),
                self.coder_of(segment)?,
            ]);
        }
        push_table(&mut text, &table, segments.len());
        if with_blocks {
            let mut table = table_of_blocks();
            for i in 0..self.blocks.len() {
                let (block, description) = (self.blocks[i], self.describe(i)?);
                table.add_row([
                    i.to_string(),
                    block.record_offset.to_string(),
                    bytes(block.raw_len),
                    bytes(block.record_len),
                    percent(block.record_len, block.raw_len),
                    description.parts.iter().map(part_text).collect::<Vec<_>>().join("; "),
                ]);
            }
            push_table(&mut text, &table, self.blocks.len());
        }
        Ok(text)
    }

    fn json(&mut self, path: &Path, with_blocks: bool) -> lmc::Result<String> {
        let (raw, compressed) = (self.reader.raw_size(), self.reader.compressed_size());
        let segments = self.reader.segments().to_vec();
        let mut tensors = Vec::with_capacity(segments.len());
        for segment in &segments {
            let compressed = self.share(segment);
            tensors.push(json!({
                "name": segment.name,
                "dtype": segment.dtype.map(lmc::Dtype::name),
                "shape": segment.name.as_ref().map(|_| &segment.shape),
                "offset": segment.offset,
                "raw_size": segment.len,
                "compressed_size": compressed,
                "ratio": ratio(compressed, segment.len),
                "coder": self.coder_of(segment)?,
            }));
        }
        let mut object = json!({
            "file": path.to_string_lossy(),
            "layout": self.reader.layout(),
            "raw_size": raw,
            "compressed_size": compressed,
            "ratio": ratio(compressed, raw),
            "content_hash": hex(&self.reader.content_hash()),
            "blocks": self.blocks.len(),
            "segments": tensors,
        });
        if with_blocks {
            let blocks = (0..self.blocks.len()).map(|i| Ok(block_json(&self.blocks[i], &self.describe(i)?)));
            object["block_list"] = Value::Array(blocks.collect::<lmc::Result<_>>()?);
        }
        Ok(format!("{object}\n"))
    }

    /// Bytes of the compressed file that a segment accounts for, by its share of the raw bytes of its blocks. The
    /// shares of all segments add up to the blocks.
    fn share(&self, segment: &Segment) -> u64 {
        self.compressed_before(segment.offset + segment.len) - self.compressed_before(segment.offset)
    }

    /// Bytes of blocks that stand for the raw bytes before an offset.
    fn compressed_before(&self, raw_offset: u64) -> u64 {
        let before = self.blocks.partition_point(|b| b.raw_offset < raw_offset);
        let Some(last) = before.checked_sub(1).map(|i| self.blocks[i]) else { return 0 };
        let part = u128::from(last.record_len) * u128::from(raw_offset - last.raw_offset) / u128::from(last.raw_len);
        last.record_offset - self.blocks[0].record_offset + u64::try_from(part).expect("a part of a record")
    }

    fn describe(&self, block: usize) -> lmc::Result<BlockDescription> {
        self.reader.describe_block(block as u64)
    }

    fn coder_of(&mut self, segment: &Segment) -> lmc::Result<String> {
        if segment.len == 0 {
            return Ok("-".to_owned());
        }
        let block = self.blocks.partition_point(|b| b.raw_offset <= segment.offset) - 1;
        if let Some(coder) = self.coders.get(&block) {
            return Ok(coder.clone());
        }
        let mut coders: Vec<_> = self.describe(block)?.parts.iter().flat_map(coders).collect();
        coders.sort_unstable();
        coders.dedup();
        let coder = coders.join("+");
        self.coders.insert(block, coder.clone());
        Ok(coder)
    }
}

/// What a part is coded with.
fn coders(part: &PartDescription) -> Vec<&'static str> {
    let group_coder = |g: &lmc::GroupDescription| match g.coder {
        "none" if g.raw_bits == 0 => "constant",
        "none" => "bits",
        coder => coder,
    };
    if part.groups.is_empty() { vec![part.method] } else { part.groups.iter().map(group_coder).collect() }
}

/// A part in words: `2-byte rotate: 6 × huffman 8+8, constant`. Bits are those of the symbol and the raw ones.
fn part_text(part: &PartDescription) -> String {
    let Some(width) = part.width else { return format!("{} {}", part.method, bytes(part.raw_len)) };
    let mut text = format!("{width}-byte {}:", part.map.unwrap_or("identity"));
    let mut groups: Vec<(String, usize)> = Vec::new();
    for (group, coder) in part.groups.iter().zip(coders(part)) {
        let group = match coder {
            "constant" => coder.to_owned(),
            coder => format!("{coder} {}+{}", group.symbol_bits, group.raw_bits),
        };
        match groups.iter_mut().find(|(g, _)| *g == group) {
            Some((_, n)) => *n += 1,
            None => groups.push((group, 1)),
        }
    }
    for (i, (group, n)) in groups.iter().enumerate() {
        text.push_str(if i == 0 { " " } else { ", " });
        if *n > 1 {
            let _ = write!(text, "{n} × ");
        }
        text.push_str(group);
    }
    text
}

fn block_json(block: &BlockInfo, description: &BlockDescription) -> Value {
    let group = |g: &lmc::GroupDescription| {
        json!({
            "constant_bits": g.constant_bits,
            "raw_bits": g.raw_bits,
            "symbol_bits": g.symbol_bits,
            "coder": g.coder,
        })
    };
    let part = |p: &PartDescription| {
        json!({
            "raw_size": p.raw_len,
            "method": p.method,
            "width": p.width,
            "map": p.map,
            "groups": p.groups.iter().map(group).collect::<Vec<_>>(),
        })
    };
    json!({
        "offset": block.record_offset,
        "compressed_size": block.record_len,
        "raw_offset": block.raw_offset,
        "raw_size": block.raw_len,
        "lane_sets": description.lane_sets,
        "literals": description.literals,
        "pieces": description.pieces,
        "parts": description.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

fn display_name(segment: &Segment) -> String {
    match segment.name.as_deref() {
        None => "(no tensor)".to_owned(),
        Some("") => "(unnamed)".to_owned(),
        Some(name) => Name::text(name).to_string(),
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn table(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    for &i in right {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

fn table_of_blocks() -> Table {
    table(&["block", "offset", "raw", "compressed", "ratio", "coded as"], &[0, 1, 2, 3, 4])
}

/// Appends a table that has rows, after an empty line.
fn push_table(text: &mut String, table: &Table, rows: usize) {
    if rows > 0 {
        text.push('\n');
        for line in table.lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
}
