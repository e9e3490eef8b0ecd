//! A column predicted by a grid (§3.8), and its head byte by byte, to be changed.

use crate::handmade::encoded;
use crate::reference::write::block::{Block, BlockFields, Cluster, Column, Grid, Groups, Operand, Predicted, Stream};

/// Groups of two rows and two columns of a matrix with rows of four.
pub const GROUPS: Groups = Groups { row: 4, rows: 2, columns: 2, position: 3 };

/// A column of six BF16, which the products of two levels and four scales are.
///
/// # Panics
/// Never.
pub fn column() -> Predicted {
    exact(grid())
}

/// The same column with an offset for each scale.
///
/// # Panics
/// Never.
pub fn column_with_offsets() -> Predicted {
    exact(Grid { offsets: Some(vec![0xbf00_0000, 0x3f80_0000, 0x8000_0000, 0x3f80_0000]), ..grid() })
}

fn grid() -> Grid {
    let (levels, scales) = (vec![0x3f80_0000, 0xbf00_0000], vec![0x3f80_0000, 0x4000_0000, 0x3e80_0000, 0x8000_0001]);
    let bit = Stream::of(0, Cluster { k: 1, h: 7, ..Cluster::default() });
    Grid { index_stream: bit, ..Grid::of(1, levels, GROUPS, scales, vec![0, 1, 1, 0, 0, 1]) }
}

/// Six BF16 that equal the predictions of the grid.
fn exact(grid: Grid) -> Predicted {
    let mut column = Predicted {
        raw: vec![0; 12],
        width_code: 1,
        operand: Operand::Grid(grid),
        row_terms: None,
        boundaries: Vec::new(),
        streams: vec![Stream::of(0, Cluster { z: 16, ..Cluster::default() })],
    };
    column.set_residuals(vec![vec![0; 6]]).expect("the grid has six elements");
    column
}

/// Method, width code, an operand that is a grid.
pub const START: [u8; 3] = [3, 1, 4];
/// Conversion, no offsets, levels.
pub const LEVELS: [u8; 11] = [1, 0, 1, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xbf];
/// The fields of [`GROUPS`].
pub const OF_GROUPS: [u8; 4] = [4, 2, 2, 3];
/// Map, mask, clusters, patches, cluster: 32 raw bits. Offsets have the same.
pub const SCALES: [u8; 9] = [0, 0, 1, 0, 0, 0, 0, 32, 0];
/// The same with one raw bit.
pub const INDICES: [u8; 9] = [0, 0, 1, 0, 0, 0, 7, 1, 0];
/// No boundaries; six elements in context 0; all residuals are 0.
pub const REST: [u8; 11] = [0, 6, 0, 0, 1, 0, 0, 16, 0, 0, 0];

/// A block of [`column()`].
pub fn fields() -> BlockFields {
    encoded(&Block::of(Column::Predicted(column()), 0))
}

/// A block of [`column()`] with another head.
pub fn with_head(head: &[u8]) -> BlockFields {
    let mut fields = fields();
    fields.columns[0] = head.to_vec();
    fields
}
