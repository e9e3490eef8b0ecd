//! The bytes of a compressed file that segments account for.

use lmc::{BlockInfo, Segment};
use lmc_inspect::{BlockDescription, ClusterDescription, ColumnDescription, PredictionDescription};

/// The share of a segment.
#[derive(Default)]
pub(super) struct Account {
    /// Bytes of the compressed file. Those of all segments add up to the blocks.
    pub(super) compressed: u64,
    /// How its first block is coded; `None` if it has none.
    pub(super) coded: Option<Coded>,
}

/// How the columns are coded that hold bytes of a segment.
pub(super) struct Coded {
    pub(super) coder: String,
    pub(super) predictor: Option<String>,
    /// Where predictions come from, by number.
    pub(super) sources: Vec<u32>,
}

/// The share of each segment; segments and blocks both cover the file. A block within one segment is described only if
/// it is the segment's first.
pub(super) fn accounts(
    segments: &[Segment],
    blocks: &[BlockInfo],
    describe: impl Fn(usize) -> lmc::Result<BlockDescription>,
) -> lmc::Result<Vec<Account>> {
    let mut accounts = Vec::with_capacity(segments.len());
    let mut i = 0;
    let mut block: Option<Block> = None;
    for segment in segments {
        let mut account = Account::default();
        let mut at = segment.offset;
        while at < segment.end() {
            let end = segment.end().min(blocks[i].raw_offset + blocks[i].raw_len);
            if end - at == blocks[i].raw_len && account.coded.is_some() {
                account.compressed += blocks[i].record_len;
            } else {
                let mut b = match block.take() {
                    Some(begun) => begun,
                    None => Block::new(describe(i)?),
                };
                let columns = b.take(end - at);
                account.compressed += columns.iter().map(|p| p.1).sum::<u64>();
                account.coded.get_or_insert_with(|| Coded::new(columns.iter().map(|p| &b.description.columns[p.0])));
                block = Some(b);
            }
            at = end;
            if end == blocks[i].raw_offset + blocks[i].raw_len {
                (i, block) = (i + 1, None);
            }
        }
        accounts.push(account);
    }
    Ok(accounts)
}

/// A block from which segments take their bytes in turn.
struct Block {
    description: BlockDescription,
    /// The extent that the next byte is of, and how many were taken of it.
    extent: usize,
    taken: u64,
    /// Bytes that were taken of each column.
    of_columns: Vec<u64>,
}

impl Block {
    fn new(description: BlockDescription) -> Self {
        let of_columns = vec![0; description.columns.len()];
        Self { description, extent: 0, taken: 0, of_columns }
    }

    /// Takes the next bytes: the columns that they are of, and the bytes of the record that stand for them, by their share of each column.
    fn take(&mut self, mut len: u64) -> Vec<(usize, u64)> {
        let mut before: Vec<(usize, u64)> = Vec::new();
        while len > 0 {
            let extent = self.description.extents[self.extent];
            let n = len.min(extent.raw_len - self.taken);
            if before.iter().all(|b| b.0 != extent.column) {
                before.push((extent.column, self.coded(extent.column)));
            }
            self.of_columns[extent.column] += n;
            self.taken += n;
            len -= n;
            if self.taken == extent.raw_len {
                (self.extent, self.taken) = (self.extent + 1, 0);
            }
        }
        before.into_iter().map(|(column, coded)| (column, self.coded(column) - coded)).collect()
    }

    /// Bytes of the record that stand for the bytes taken of a column.
    fn coded(&self, column: usize) -> u64 {
        let ColumnDescription { coded_len, raw_len, .. } = self.description.columns[column];
        let bytes = u128::from(coded_len) * u128::from(self.of_columns[column]) / u128::from(raw_len);
        u64::try_from(bytes).expect("a column of a record")
    }
}

impl Coded {
    fn new<'a>(columns: impl Iterator<Item = &'a ColumnDescription> + Clone) -> Self {
        let predictions = columns.clone().filter_map(|p| p.prediction.as_ref());
        let mut sources: Vec<u32> = predictions.clone().flat_map(|p| &p.sources).copied().collect();
        sources.sort_unstable();
        sources.dedup();
        let predictor = Some(joined(predictions.map(predictor_text))).filter(|p| !p.is_empty());
        Self { coder: joined(columns.flat_map(coders).map(str::to_owned)), predictor, sources }
    }
}

/// Joins distinct words, each once.
fn joined(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<_> = words.collect();
    words.sort_unstable();
    words.dedup();
    words.join("+")
}

/// The predictor of elements: `ulp`, or `grid fp8 e4m3 128 × 128`.
pub(super) fn predictor_text(p: &PredictionDescription) -> String {
    p.grid.as_ref().map_or_else(|| p.predictor.to_owned(), |g| format!("grid {g}"))
}

/// The coder of a column.
pub(super) fn coders(column: &ColumnDescription) -> Vec<&'static str> {
    let cluster_coder = |g: &ClusterDescription| match g.coder {
        "none" if g.raw_bits == 0 => "constant",
        "none" => "bits",
        coder => coder,
    };
    match &column.clusters[..] {
        _ if column.listed > 0 => vec!["sparse"],
        [] => vec![column.method],
        clusters => clusters.iter().map(cluster_coder).collect(),
    }
}
