//! Blocks from a description (§3), and their fields one by one.

pub use super::derived::{Derivation, Derived, Scales};
pub use super::grid::{Grid, Groups};
pub use super::numbers::NumberCode;
pub use super::predicted::{Operand, Predicted};
pub use super::range::Range;
pub use super::stream::{Cluster, Mask, Patch, PatchCodes, Stream, mapped, unmapped};
pub use super::terms::{RowTerms, Rows, Terms};

use super::super::digests::{LEAF, digest};
use super::super::ranges::elements;
use super::entropy::{Encoded, encode};
use super::stream::Output;
use super::{Record, check64, range, varint, zstd_frame};

/// The head of a column of zeros: plain bytes under map 0, without mask or patches, in one cluster of zeros.
pub const ZEROS: [u8; 11] = [2, 0, 0, 0, 1, 0, 0, 8, 0, 0, 0];

/// The bytes of a block and how to code them.
#[derive(Clone, Debug)]
pub struct Block {
    pub lane_sets: u8,
    pub columns: Vec<Column>,
    /// Column and length of each extent. Written only when there are several columns.
    pub extents: Vec<(u8, u64)>,
    /// Whether extents that repeat are written as repeats.
    pub states_repeats: bool,
    /// The state at which decoders end: 2^16 in a valid block.
    pub final_state: u32,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a test has a few of them, each for a moment")]
pub enum Column {
    Stored(Vec<u8>),
    Zstd(Zstd),
    Plain(Plain),
    Predicted(Predicted),
}

/// A column of method 1.
#[derive(Clone, Debug, Default)]
pub struct Zstd {
    pub raw: Vec<u8>,
    pub width_code: u8,
}

/// A column of method 2.
#[derive(Clone, Debug)]
pub struct Plain {
    pub raw: Vec<u8>,
    pub width_code: u8,
    pub stream: Stream,
}

/// A block, field by field.
#[derive(Clone, Debug)]
pub struct BlockFields {
    pub raw_length: u64,
    pub lane_sets: u8,
    pub word_counts: Vec<u32>,
    pub literal_count: u32,
    pub column_count: u8,
    pub extent_count: u64,
    pub extents: Vec<(u8, u64)>,
    /// In order.
    pub repeats: Vec<Repeat>,
    /// The heads of the columns.
    pub columns: Vec<Vec<u8>>,
    /// The block's digest: 16 bytes in a valid one.
    pub digest: Vec<u8>,
    /// Whether the check of the body follows.
    pub has_body_check: bool,
    /// Added to it.
    pub body_check_error: u64,
    /// The leaves' digests, for the content hash.
    pub leaves: Vec<[u8; 16]>,
    /// The bits of the features that the block needs, for the exact features.
    pub needs: u32,
    pub states: Vec<[u32; 64]>,
    pub words: Vec<Vec<u16>>,
    pub literals: Vec<u8>,
    /// The bulk bytes of the columns.
    pub bulk: Vec<Vec<u8>>,
}

/// The repeat before the extent of a number: the `count` extents before it repeat `times` more.
#[derive(Clone, Copy, Debug)]
pub struct Repeat {
    pub before: usize,
    pub count: u64,
    pub times: u64,
}

impl Column {
    pub fn raw(&self) -> &[u8] {
        match self {
            Column::Stored(raw) => raw,
            Column::Zstd(zstd) => &zstd.raw,
            Column::Plain(plain_column) => &plain_column.raw,
            Column::Predicted(predicted) => &predicted.raw,
        }
    }

    /// The ranges that it names.
    pub fn ranges(&self) -> Vec<&Range> {
        match self {
            Column::Stored(_) | Column::Zstd(_) | Column::Plain(_) => Vec::new(),
            Column::Predicted(predicted) => predicted.operand.ranges(),
        }
    }

    /// The bits of the features that it needs, besides those of its ranges.
    fn needs(&self) -> u32 {
        match self {
            Column::Stored(_) | Column::Zstd(_) | Column::Plain(_) => 0,
            Column::Predicted(predicted) => {
                let of_terms = if predicted.row_terms.is_some() { 8 } else { 0 };
                of_terms | predicted.operand.needs()
            }
        }
    }

    /// Whether it has a grid.
    pub fn has_grid(&self) -> bool {
        matches!(self, Column::Predicted(predicted) if matches!(predicted.operand, Operand::Grid(_)))
    }
}

impl Zstd {
    /// Bytes as they are.
    pub fn of(raw: Vec<u8>) -> Self {
        Self { raw, ..Self::default() }
    }

    /// The frame: of the bytes or of their byte planes.
    pub fn frame(&self) -> Vec<u8> {
        let width = 1 << self.width_code;
        if width == 1 {
            return zstd_frame(&self.raw);
        }
        let mut planes = Vec::with_capacity(self.raw.len());
        (0..width).for_each(|i| planes.extend(self.raw.chunks_exact(width).map(|element| element[i])));
        zstd_frame(&planes)
    }
}

impl Block {
    /// A block of one column.
    pub fn of(column: Column, lane_sets: u8) -> Self {
        let columns = vec![column];
        Self { lane_sets, columns, extents: Vec::new(), states_repeats: false, final_state: 1 << 16 }
    }

    /// Adds a column of zeros, so that another block may follow: its start must be a multiple of a leaf.
    pub fn fill(&mut self) {
        let length: usize = self.columns.iter().map(|column| column.raw().len()).sum();
        let zeros = length.next_multiple_of(LEAF) - length;
        if zeros == 0 {
            return;
        }
        if self.columns.len() == 1 {
            self.extents = vec![(0, length as u64)];
        }
        self.extents.push((self.columns.len() as u8, zeros as u64));
        // A frame: decoders spend less time on it than on a stream of as many elements.
        self.columns.push(Column::Zstd(Zstd { raw: vec![0; zeros], ..Zstd::default() }));
    }

    /// The raw bytes: the columns' as the extents interleave them.
    pub fn raw(&self) -> Vec<u8> {
        if self.columns.len() == 1 {
            return self.columns[0].raw().to_vec();
        }
        let mut rests: Vec<&[u8]> = self.columns.iter().map(Column::raw).collect();
        let mut raw = Vec::with_capacity(rests.iter().map(|rest| rest.len()).sum());
        for &(column, length) in &self.extents {
            let (extent, rest) = rests[usize::from(column)].split_at(length as usize);
            raw.extend(extent);
            rests[usize::from(column)] = rest;
        }
        raw
    }

    /// Codes the block as described.
    ///
    /// # Errors
    /// When a cluster cannot hold its elements, or an operand does not have its column's number of elements.
    pub fn encode(&self) -> Result<BlockFields, String> {
        let mut chunks = Vec::new();
        let mut columns = Vec::new();
        let mut bulk = Vec::new();
        for column in &self.columns {
            let lane_sets = usize::from(self.lane_sets);
            let mut output = Output { lane_sets, chunks: &mut chunks, head: Vec::new(), bulk: Vec::new() };
            column.encode(&mut output)?;
            columns.push(output.head);
            bulk.push(output.bulk);
        }
        let of_ranges = range::needs(self.columns.iter().flat_map(Column::ranges));
        let needs = self.columns.iter().fold(of_ranges, |needs, column| needs | column.needs());
        let raw = self.raw();
        let leaves: Vec<[u8; 16]> = raw.chunks(LEAF).map(digest).collect();
        let Encoded { states, words, literals } = encode(&chunks, usize::from(self.lane_sets), self.final_state)?;
        let mut fields = BlockFields {
            raw_length: raw.len() as u64,
            lane_sets: self.lane_sets,
            word_counts: words.iter().map(|words| words.len() as u32).collect(),
            literal_count: literals.len() as u32,
            column_count: self.columns.len() as u8,
            extent_count: self.extents.len() as u64,
            extents: self.extents.clone(),
            repeats: Vec::new(),
            columns,
            digest: digest(&leaves.concat()).to_vec(),
            has_body_check: needs & 1 != 0,
            body_check_error: 0,
            leaves,
            needs,
            states,
            words,
            literals,
            bulk,
        };
        if self.states_repeats {
            fields.state_repeats();
        }
        Ok(fields)
    }

    /// The record of the block, coded as described.
    ///
    /// # Errors
    /// When a cluster cannot hold its elements, or an operand does not have its column's number of elements.
    pub fn record(&self) -> Result<Record, String> {
        Ok(self.encode()?.record())
    }
}

impl BlockFields {
    /// [`Block::fill`] for a block that may be invalid; its digests become wrong.
    pub fn fill(&mut self) {
        let length = self.raw_length;
        let zeros = length.next_multiple_of(LEAF as u64) - length;
        if zeros == 0 {
            return;
        }
        if self.column_count == 1 {
            self.extents = vec![(0, length)];
            self.extent_count = 1;
        }
        self.extents.push((self.column_count, zeros));
        self.extent_count += 1;
        self.column_count += 1;
        self.raw_length += zeros;
        self.columns.push(ZEROS.to_vec());
        self.bulk.push(Vec::new());
    }

    /// States extents that repeat as repeats, where up to eight do.
    pub fn state_repeats(&mut self) {
        let (all, mut at, mut after) = (std::mem::take(&mut self.extents), 0, 0);
        while at < all.len() {
            self.extents.push(all[at]);
            at += 1;
            let end = self.extents.len();
            for count in 1..=(end - after).min(8) {
                let period = &self.extents[end - count..];
                let times = all[at..].chunks_exact(count).take_while(|next| *next == period).count();
                if times > 0 {
                    self.repeats.push(Repeat { before: end, count: count as u64, times: times as u64 });
                    (at, after) = (at + times * count, end);
                    break;
                }
            }
        }
        self.extent_count = (self.extents.len() + self.repeats.len()) as u64;
    }

    pub fn head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint(&mut out, self.raw_length);
        out.push(self.lane_sets);
        self.word_counts.iter().for_each(|&count| out.extend(count.to_le_bytes()));
        if self.lane_sets > 0 {
            out.extend(self.literal_count.to_le_bytes());
        }
        out.push(self.column_count);
        if self.column_count > 1 {
            varint(&mut out, self.extent_count);
            let mut repeats = self.repeats.iter().peekable();
            for (i, &(column, length)) in self.extents.iter().enumerate() {
                repeat(&mut repeats, i, &mut out);
                out.push(column);
                varint(&mut out, length);
            }
            repeat(&mut repeats, self.extents.len(), &mut out);
        }
        out.extend(self.columns.concat());
        out.extend(&self.digest);
        if self.has_body_check {
            out.extend(check64(&self.body()).wrapping_add(self.body_check_error).to_le_bytes());
        }
        out
    }

    pub fn body(&self) -> Vec<u8> {
        let mut out = self.bulk.concat();
        self.words.iter().flatten().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(&self.literals);
        self.states.iter().flatten().for_each(|state| out.extend(state.to_le_bytes()));
        out
    }

    pub fn record(&self) -> Record {
        Record { leaves: self.leaves.clone(), needs: self.needs, ..Record::block(self.head(), self.body()) }
    }
}

impl Column {
    fn encode<'c>(&'c self, output: &mut Output<'_, 'c>) -> Result<(), String> {
        match self {
            Column::Stored(raw) => {
                output.head.push(0);
                output.bulk.extend(raw);
            }
            Column::Zstd(zstd) => {
                let frame = zstd.frame();
                output.head.extend([1, zstd.width_code]);
                varint(&mut output.head, frame.len() as u64);
                output.bulk.extend(frame);
            }
            Column::Plain(Plain { raw, width_code, stream }) => {
                output.head.extend([2, *width_code]);
                stream.encode(&elements(raw, 1 << width_code), 1 << width_code, output)?;
            }
            Column::Predicted(predicted) => predicted.encode(output)?,
        }
        Ok(())
    }
}

/// Writes the repeats before an extent.
fn repeat<'a>(repeats: &mut std::iter::Peekable<impl Iterator<Item = &'a Repeat>>, before: usize, out: &mut Vec<u8>) {
    while let Some(repeat) = repeats.next_if(|repeat| repeat.before == before) {
        out.push(255);
        varint(out, repeat.count);
        varint(out, repeat.times);
    }
}
