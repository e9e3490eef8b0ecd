//! `lmc list`.

mod account;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lmc::layout::{Missing, declared};
use lmc::{BaseInfo, BlockInfo, DecompressOptions, DigestAlgorithm, RawDigest, ReadAt, Reader, Segment};
use lmc_inspect::{BlockDescription, ColumnDescription, describe_block};
use lmc_store::{Location, Store};
use serde_json::{Value, json};

use self::account::{Account, Coded, accounts, by_length, coders, predictor_text};
use crate::fs::input::{Original, Source};
use crate::fs::names::is_dash;
use crate::ui::failure::{Failure, Result};
use crate::ui::format::{Name, bytes, count, hex, percent, quoted, ratio};
use crate::ui::json::Object;
use crate::ui::messages::Ui;
use crate::ui::table::Table;
use crate::work::bases::{BaseArgs, Bases, describe};
use crate::work::missing;
use crate::work::report::{self, Outcome};
use crate::work::shards::refuse_index;

/// Show what compressed files hold: every tensor with its type, shape, sizes and coder.
///
/// Reads the index and the heads of blocks, and decodes nothing but what the file says of its tensors: those that cannot be shown are named, and
/// so is a file that is no model. Tensors that share bytes, such as tied ones, are one row, of one of their names. Bytes between tensors are
/// one row; with -v, each of their ranges. The coder is that of a tensor's first block, and -v shows every block.
/// Small tensors of one dtype are one column of a block: each has its share of the column by length. Bytes that belong to several columns
/// are shared by the bits that each has there, which is an estimate; the sizes add up to those of the blocks, and with that
/// of the index, which stands last, to the file's. Of deltas, it shows
/// what each tensor is predicted from, and with --base whether that is the right base. Names of more than 200 characters are cut; --json
/// has all of them.
#[derive(Args)]
pub(crate) struct ListArgs {
    /// Files to look into.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Nothing: links are followed anyway.
    #[arg(short, long = "force", hide = true)]
    _force: bool,

    /// Print one JSON object a file; with -v, it has the blocks too.
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    bases: BaseArgs,
}

/// Lists files.
pub(crate) fn run(args: &ListArgs, ui: &Ui) -> Result {
    let bases = args.bases.open_to_restore(args.files.len() > 1, 0)?;
    let mut between: &[u8] = b"";
    report::each(&args.files, PathBuf::as_path, args.json, ui, |path| {
        list(path, args, &bases, &mut between, ui)?;
        Ok(Outcome::Told)
    })
}

/// Lists a file, in text after `between`. It fails before anything is printed, unless the file changes.
fn list(path: &Path, args: &ListArgs, bases: &Bases, between: &mut &[u8], ui: &Ui) -> Result {
    if is_dash(path) {
        return Err(Failure::Usage("list reads here and there in a file, not standard input: name a file".to_owned()));
    }
    let store = Location::Directory(path.to_owned());
    if path.is_dir() && Store::open(&store, Default::default()).is_ok() {
        return Err(Failure::at(path, format_args!("is a store: use lmc snapshot list {}", quoted(path))));
    }
    refuse_index(path)?;
    let source = Source::open(path)?;
    let options = DecompressOptions::default().with_threads(1); // little is decoded
    let mut reader = Reader::open(&source, &options).map_err(|e| Failure::codec(path, &e))?;
    if bases.are_given() {
        let needed = bases.for_file(path, reader.bases())?;
        reader = reader.with_bases(needed).map_err(|e| Failure::codec(path, &e))?;
    }
    if let Err(e) = reader.check_features() {
        ui.warn(Failure::codec(path, &e));
    } else {
        note_no_model(path, &reader, ui);
    }
    let codec = |e| Failure::codec(path, &e);
    let mut listing = Listing::new(reader, bases.are_given(), ui.verbose()).map_err(codec)?;
    // A delta without its bases has no raw bytes.
    if listing.is_known && (bases.are_given() || listing.reader.bases().is_empty()) {
        let (reader, raw) = (&listing.reader, Original::of(&listing.reader, path));
        let declared = declared(&raw, reader.layout(), reader.segments(), "").map(Option::unwrap_or_default);
        missing::note(path, &declared, ui);
        listing.missing = declared.map(|of| of.missing).unwrap_or_default();
    }
    ui.write(|out| match args.json {
        true => listing.write_json(path, out),
        false => {
            out.write_all(std::mem::replace(between, b"\n"))?;
            listing.write_text(path, ui.verbose(), out)
        }
    })?;
    source.check_unchanged()
}

/// Says why a file in which no tensors were found has none, if it was no model, or is compressed in another way.
fn note_no_model(path: &Path, reader: &Reader<'_, &Source>, ui: &Ui) {
    if reader.segments().iter().any(|s| s.name.is_some()) {
        return;
    }
    let (raw, mut start) = (Original::of(reader, path), [0; 4]);
    // What cannot be read, such as a delta without its base, is another matter.
    if let Ok(Some(why)) = lmc_inspect::truncated(&raw) {
        ui.warn(format_args!("{}: it was made of no model: {why}", Name::path(path)));
    } else if raw.read_exact_at(&mut start, 0).is_ok() && (start == lmc::ZSTD || start.starts_with(lmc::GZIP)) {
        // Such as the chunks in Orbax's files.
        ui.warn(format_args!(
            "{}: it begins with what zstd or gzip compressed already, which gains nothing: save tensors as they are \
             (Orbax: use_ocdbt=False and use_compression=False)",
            Name::path(path)
        ));
    }
}

/// An open file, and what is shown of it.
struct Listing<'a> {
    reader: Reader<'a, &'a Source>,
    blocks: Vec<BlockInfo>,
    /// The shares of the segments.
    accounts: Vec<Account>,
    digests: Vec<RawDigest>,
    /// Those of the blocks, if they are shown.
    described: Option<Vec<BlockDescription>>,
    /// The tensors that the file declares besides.
    missing: Vec<Missing>,
    /// Whether the bases were compared with those that the file needs.
    verified: bool,
    /// Whether blocks can be read.
    is_known: bool,
}

impl<'a> Listing<'a> {
    /// Reads what is shown, and that of blocks if they are.
    fn new(reader: Reader<'a, &'a Source>, verified: bool, with_blocks: bool) -> lmc::Result<Self> {
        let blocks: Vec<BlockInfo> = reader.blocks().collect();
        let is_known = reader.check_features().is_ok();
        let describe = |i| describe_block(&reader, i as u64);
        let (accounts, digests) = match is_known {
            true => (accounts(reader.segments(), &blocks, describe)?, reader.digests()?),
            // The record with digests cannot be found.
            false => (by_length(reader.segments(), &blocks), vec![]),
        };
        let all = || (0..blocks.len()).map(describe).collect::<lmc::Result<_>>();
        let described = (with_blocks && is_known).then(all).transpose()?;
        Ok(Listing { reader, blocks, accounts, digests, described, missing: Vec::new(), verified, is_known })
    }

    /// The name of a source of predictions, for display.
    fn source_name(&self, source: u32) -> String {
        match (source as usize).checked_sub(1).map(|i| self.reader.bases()[i].name.as_str()) {
            None => "this file".to_owned(),
            Some("") => format!("base {source}"),
            Some(name) => Name::text(name).to_string(),
        }
    }

    fn write_text(&self, path: &Path, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
        let (raw, compressed) = (self.reader.raw_size(), self.reader.compressed_size());
        let segments = self.reader.segments();
        let tensors = segments.iter().filter(|s| s.name.is_some()).count();
        let features: Vec<_> = self.reader.features().collect();
        writeln!(
            out,
            "{} : {}  ({} => {}), {}, {}, {}\ncontent hash {}, format {}, by {}\nfeatures: {}",
            Name::path(path),
            percent(compressed, raw),
            bytes(raw),
            bytes(compressed),
            Name::text(self.reader.layout()),
            self.tensors_text(tensors),
            count(self.blocks.len(), "block"),
            hex(&self.reader.content_hash()),
            lmc::FORMAT_VERSION,
            Name::text(self.reader.writer()),
            if features.is_empty() { "none".to_owned() } else { features.join(", ") },
        )?;
        for base in self.reader.bases() {
            let checked = if self.verified { ", which is given" } else { "" };
            writeln!(out, "delta of {}{checked}", describe(base))?;
        }
        for digest in &self.digests {
            let of = if digest.source == 0 { "the file".to_owned() } else { self.source_name(digest.source) };
            writeln!(out, "{} of {of}: {}", digest.algorithm, hex(&digest.digest))?;
        }
        let mut header = vec!["tensor", "dtype", "shape", "raw", "compressed", "ratio", "coder"];
        let predicted = self.accounts.iter().filter_map(|a| a.coded.as_ref()).any(|c| c.predictor.is_some());
        if predicted {
            header.extend(["predictor", "from"]);
        }
        // An archive has some bytes between any two tensors: one row for all of them.
        let between = if verbose { Between::default() } else { Between::of(segments) };
        let with_accounts = || segments.iter().zip(&self.accounts);
        let all = with_accounts()
            .filter(|(s, _)| s.name.is_none())
            .fold((0, 0), |(len, compressed), (s, account)| (len + s.len, compressed + account.compressed));
        let mut index = vec!["-".to_owned(); header.len()];
        (index[0], index[4]) = ("(index)".to_owned(), bytes(self.container_size()));
        let rows = || {
            let of_segments = with_accounts().filter(|(s, _)| !between.hides(s)).map(|(segment, account)| {
                let folded = between.is_first(segment);
                let (len, compressed) = if folded { all } else { (segment.len, account.compressed) };
                let name = if folded { between.to_string() } else { display_name(segment) };
                self.row(segment, account.coded.as_deref(), predicted, name, (len, compressed))
            });
            of_segments.chain([index.clone()])
        };
        Table::new(&header, &[3, 4, 5]).write_rows(rows, out)?;
        self.described.iter().try_for_each(|of| table_of_blocks(&self.blocks, of).write_to(out))
    }

    /// The row of a segment with this name and these sizes, raw and compressed.
    fn row(
        &self,
        segment: &Segment,
        coded: Option<&Coded>,
        predicted: bool,
        name: String,
        (len, compressed): (u64, u64),
    ) -> Vec<String> {
        let mut row = vec![
            name,
            segment.dtype.as_ref().map_or("-", lmc::Dtype::name).to_owned(),
            if segment.name.is_some() { format!("{:?}", segment.shape) } else { "-".to_owned() },
            bytes(len),
            bytes(compressed),
            percent(compressed, len),
            coded.map_or("-", |c| &c.coder).to_owned(),
        ];
        if predicted {
            let from = coded.iter().flat_map(|c| &c.sources).map(|&s| self.source_name(s)).collect::<Vec<_>>();
            row.push(coded.and_then(|c| c.predictor.clone()).unwrap_or("-".to_owned()));
            row.push(if from.is_empty() { "-".to_owned() } else { from.join("+") });
        }
        row
    }

    /// How many tensors there are. An index that lists none leaves them to the raw bytes, which a delta without its bases lacks.
    fn tensors_text(&self, tensors: usize) -> String {
        if tensors == 0 && self.reader.layout() != "raw" && !self.reader.bases().is_empty() && !self.verified {
            return "tensors that only the bases show (--base)".to_owned();
        }
        count(tensors, "tensor")
    }

    fn write_json(&self, path: &Path, out: &mut dyn Write) -> io::Result<()> {
        let (raw, compressed) = (self.reader.raw_size(), self.reader.compressed_size());
        let mut object = Object::begin(out)?;
        object.list("bases", self.reader.bases().iter().map(base_json))?;
        if let Some(described) = &self.described {
            object.list("block_list", self.blocks.iter().zip(described).map(|(block, of)| block_json(block, of)))?;
        }
        object.field("blocks", &json!(self.blocks.len()))?;
        object.field("compressed_size", &json!(compressed))?;
        object.field("container_size", &json!(self.container_size()))?;
        object.field("content_hash", &json!(hex(&self.reader.content_hash())))?;
        object.list("digests", self.digests.iter().map(digest_json))?;
        object.field("features", &json!(self.reader.features().collect::<Vec<_>>()))?;
        object.field("file", &json!(path.to_string_lossy()))?;
        object.field("layout", &json!(self.reader.layout()))?;
        object.list("missing", self.missing.iter().map(|m| json!({ "name": m.name, "why": m.why })))?;
        object.field("ratio", &json!(ratio(compressed, raw)))?;
        object.field("raw_size", &json!(raw))?;
        object.list("segments", self.reader.segments().iter().zip(&self.accounts).map(|(s, a)| segment_json(s, a)))?;
        object.field("version", &json!(lmc::FORMAT_VERSION))?;
        object.field("writer", &json!(self.reader.writer()))?;
        object.end().map(drop)
    }

    /// Bytes of no block: header, index and digests.
    fn container_size(&self) -> u64 {
        self.reader.compressed_size() - self.blocks.iter().map(|b| b.record_len).sum::<u64>()
    }
}

fn segment_json(segment: &Segment, Account { compressed, coded }: &Account) -> Value {
    json!({
        "name": segment.name.as_deref(),
        "dtype": segment.dtype.as_ref().map(lmc::Dtype::name),
        "shape": segment.name.as_ref().map(|_| &segment.shape[..]),
        "offset": segment.offset,
        "raw_size": segment.len,
        "compressed_size": compressed,
        "ratio": ratio(*compressed, segment.len),
        "coder": coded.as_ref().map_or("-", |c| &c.coder),
        "predictor": coded.as_ref().and_then(|c| c.predictor.as_ref()),
        "sources": coded.as_ref().map_or(&[][..], |c| &c.sources),
    })
}

fn digest_json(digest: &RawDigest) -> Value {
    let algorithm = match digest.algorithm {
        DigestAlgorithm::Other(code) => json!(code),
        known => json!(known.to_string().to_lowercase()),
    };
    json!({ "source": digest.source, "algorithm": algorithm, "digest": hex(&digest.digest) })
}

fn base_json(base: &BaseInfo) -> Value {
    json!({ "name": base.name, "raw_size": base.raw_size, "content_hash": hex(&base.content_hash) })
}

/// A column in words: `2-byte rotate: 6 × huffman 8+8, constant`. Bits are those of the symbol and the raw ones.
fn column_text(column: &ColumnDescription) -> String {
    let Some(width) = column.width else { return format!("{} {}", column.method, bytes(column.raw_len)) };
    let mut text = match &column.prediction {
        None => format!("{width}-byte {}:", column.map.unwrap_or("identity")),
        Some(p) => {
            let converted = p.conversion.as_ref().map_or(String::new(), |c| format!(" {c}"));
            format!("{width}-byte {}{converted}, {}:", predictor_text(p), contexts(p.contexts))
        }
    };
    let mut clusters: Vec<(String, usize)> = Vec::new();
    for (cluster, coder) in column.clusters.iter().zip(coders(column)) {
        let cluster = match coder {
            "constant" => coder.to_owned(),
            coder => format!("{coder} {}+{}", cluster.symbol_bits, cluster.raw_bits),
        };
        match clusters.iter_mut().find(|(g, _)| *g == cluster) {
            Some((_, n)) => *n += 1,
            None => clusters.push((cluster, 1)),
        }
    }
    for (elements, what) in [(column.listed, "listed element"), (column.patches, "patched element")] {
        if elements > 0 {
            clusters.push((count(elements, what), 1));
        }
    }
    if column.masked {
        clusters.push(("mask".to_owned(), 1));
    }
    for (i, (cluster, n)) in clusters.iter().enumerate() {
        text.push_str(if i == 0 { " " } else { ", " });
        if *n > 1 {
            let _ = write!(text, "{n} × ");
        }
        text.push_str(cluster);
    }
    text
}

fn block_json(block: &BlockInfo, description: &BlockDescription) -> Value {
    let mut object = json!(description);
    object["offset"] = json!(block.record_offset);
    object["compressed_size"] = json!(block.record_len);
    object["raw_offset"] = json!(block.raw_offset);
    object
}

/// The ranges of no tensor in a file that has several.
#[derive(Default)]
pub(super) struct Between {
    /// Offset of the first one, and their number, if there are several.
    first: Option<(u64, usize)>,
}

impl Between {
    pub(super) fn of<'s>(segments: impl IntoIterator<Item = &'s Segment>) -> Self {
        let mut ranges = segments.into_iter().filter(|s| s.name.is_none() && s.len > 0);
        let first = ranges.next().map(|s| s.offset);
        let more = ranges.count();
        Self { first: first.filter(|_| more > 0).map(|offset| (offset, 1 + more)) }
    }

    /// Whether a segment is the first one, whose row stands for all.
    pub(super) fn is_first(&self, s: &Segment) -> bool {
        s.name.is_none() && s.len > 0 && self.first.is_some_and(|(offset, _)| offset == s.offset)
    }

    /// Whether a segment is another one.
    pub(super) fn hides(&self, s: &Segment) -> bool {
        s.name.is_none() && self.first.is_some() && !self.is_first(s)
    }
}

impl std::fmt::Display for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "(no tensor, {} ranges)", self.first.map_or(0, |(_, number)| number))
    }
}

pub(super) fn display_name(segment: &Segment) -> String {
    match segment.name.as_deref() {
        None => "(no tensor)".to_owned(),
        Some("") => "(unnamed)".to_owned(),
        Some(name) => Name::text(name).to_string(),
    }
}

fn contexts(n: usize) -> String {
    if n == 1 { "1 context".to_owned() } else { format!("{n} contexts") }
}

fn table_of_blocks(blocks: &[BlockInfo], described: &[BlockDescription]) -> Table {
    let mut table = Table::new(&["block", "offset", "raw", "compressed", "ratio", "coded as"], &[0, 1, 2, 3, 4]);
    for (i, (block, description)) in blocks.iter().zip(described).enumerate() {
        table.add_row([
            i.to_string(),
            block.record_offset.to_string(),
            bytes(block.raw_len),
            bytes(block.record_len),
            percent(block.record_len, block.raw_len),
            description.columns.iter().map(column_text).collect::<Vec<_>>().join("; "),
        ]);
    }
    table
}
