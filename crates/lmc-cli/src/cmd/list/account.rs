//! The bytes of a compressed file that segments account for.

use std::rc::Rc;

use lmc::{BlockInfo, Segment};
use lmc_inspect::{BlockDescription, ClusterDescription, ColumnDescription, PredictionDescription, Shares};

/// The share of a segment.
#[derive(Default)]
pub(super) struct Account {
    /// Bytes of the compressed file. Those of all segments add up to the blocks.
    pub(super) compressed: u64,
    /// How its first block is coded; `None` if it has none. Neighbours share it: there may be millions.
    pub(super) coded: Option<Rc<Coded>>,
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
    let mut block: Option<(BlockDescription, Shares)> = None;
    // How the last segment's columns of the block are coded.
    let mut last: Option<(Vec<usize>, Rc<Coded>)> = None;
    for segment in segments {
        let mut account = Account::default();
        let mut at = segment.offset;
        while at < segment.end() {
            let BlockInfo { raw_offset, raw_len, record_len, .. } = blocks[i];
            let end = segment.end().min(raw_offset + raw_len);
            if end - at == raw_len && account.coded.is_some() {
                account.compressed += record_len;
            } else {
                if block.is_none() {
                    let description = describe(i)?;
                    let shares = Shares::of_block(&description);
                    block = Some((description, shares));
                }
                let (description, shares) = block.as_ref().expect("it is described");
                let bytes = at - raw_offset..end - raw_offset;
                account.compressed += shares.of(&bytes);
                account.coded.get_or_insert_with(|| {
                    let columns = shares.columns(&bytes);
                    if last.as_ref().is_none_or(|(of, _)| *of != columns) {
                        let coded = Coded::new(columns.iter().map(|&column| &description.columns[column]));
                        last = Some((columns, Rc::new(coded)));
                    }
                    last.as_ref().expect("it was set").1.clone()
                });
            }
            at = end;
            if end == raw_offset + raw_len {
                (i, block, last) = (i + 1, None, None);
            }
        }
        accounts.push(account);
    }
    Ok(accounts)
}

/// The share of each segment in blocks that cannot be read: by length.
pub(super) fn by_length(segments: &[Segment], blocks: &[BlockInfo]) -> Vec<Account> {
    // The compressed bytes before a raw offset.
    let before = |at: u64| {
        let n = blocks.partition_point(|b| b.raw_offset + b.raw_len <= at);
        let start = blocks.first().map_or(0, |b| b.record_offset);
        match blocks.get(n) {
            Some(b) => {
                let part = u128::from(b.record_len) * u128::from(at - b.raw_offset) / u128::from(b.raw_len);
                b.record_offset - start + part as u64
            }
            None => blocks.last().map_or(0, |b| b.record_offset + b.record_len - start),
        }
    };
    segments.iter().map(|s| Account { compressed: before(s.end()) - before(s.offset), coded: None }).collect()
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

/// The predictor of elements: `ulp`, `grid fp8 e4m3 128 × 128` or `derived: Q8_0 of BF16`.
pub(super) fn predictor_text(p: &PredictionDescription) -> String {
    match (&p.grid, &p.derived) {
        (Some(grid), _) => format!("grid {grid}"),
        (_, Some(derived)) => format!("derived: {derived}"),
        _ => p.predictor.to_owned(),
    }
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
