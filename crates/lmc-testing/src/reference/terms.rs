//! Terms of rows, which keys depend on (§3.7), and predictions that are sums of terms of rows and of columns (§3.9).

use super::bytes::Bytes;
use super::faults::{Faults, must};
use super::ranges::Ranges;
use super::stream::{Stream, Streams, ones};

/// Where a column is in a matrix, of which it has consecutive elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// R: elements of a row.
    pub row: u64,
    /// Of the column's first element in its row.
    pub position: u64,
}

impl Rows {
    /// Reads them; a row has at most `most` elements.
    fn parse(head: &mut Bytes<'_>, n: usize, most: u64, faults: &mut Faults) -> Result<Self, String> {
        let rows = Self { row: head.varint()?, position: head.varint()? };
        must(rows.row >= 1, "the rows of terms have no elements")?;
        faults.must(rows.row <= most, "the rows of terms have too many elements");
        let first = "the position of a column is not in the first row of terms";
        faults.must(rows.position < rows.row, first);
        // Not a fault, but an error at once: a decoder need not read more terms.
        must(rows.count(n) <= 1 << 24, first)?;
        Ok(rows)
    }

    /// How many rows the `n` elements of a column are of.
    pub(super) fn count(&self, n: usize) -> u128 {
        (u128::from(self.position) + n as u128).div_ceil(self.row.into())
    }

    /// The number of the row of an element.
    pub(super) fn row_of(&self, element: usize) -> usize {
        ((u128::from(self.position) + element as u128) / u128::from(self.row)) as usize
    }

    /// How many columns of the matrix have terms, where the column has `n` elements.
    pub(super) fn columns(&self, n: usize) -> usize {
        self.row.min(n as u64) as usize
    }

    /// The number of the term of the column of an element, of `n` elements.
    pub(super) fn column_of(&self, element: usize, n: usize) -> usize {
        if self.row > n as u64 {
            return element;
        }
        ((u128::from(self.position) + element as u128) % u128::from(self.row)) as usize
    }
}

/// The terms of rows that the keys of a predicted column depend on.
pub(super) struct RowTerms {
    rows: Rows,
    n: usize,
    stream: Stream,
}

impl RowTerms {
    /// Reads those of a column of `n` elements, after the number of boundaries.
    pub(super) fn parse(
        head: &mut Bytes<'_>,
        n: usize,
        lane_sets: u8,
        ranges: &mut Ranges<'_>,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        ranges.need(3, "row terms", faults);
        let rows = Rows::parse(head, n, 1 << 48, faults)?;
        Ok(Self { rows, n, stream: Stream::parse(head, 1, false, lane_sets, faults)? })
    }

    /// The keys of elements whose predictions have these top bytes.
    pub(super) fn keys(&self, tops: &[u8], streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<u8>, String> {
        let terms = self.stream.decode(self.rows.count(self.n) as usize, streams, faults)?;
        let key = |(element, &top): (usize, &u8)| key(top, terms[self.rows.row_of(element)]);
        let keys: Vec<u8> = tops.iter().enumerate().map(key).collect();
        streams.step("keys", || keys.iter().map(|&key| key.into()).collect());
        Ok(keys)
    }
}

/// The key of an element from the top byte of its prediction and the term of its row.
pub(super) fn key(top: u8, term: u64) -> u8 {
    top.wrapping_sub(term as u8)
}

/// Predictions that are sums of terms.
pub(super) struct Terms {
    /// Bits of an element.
    w: u32,
    shift: u8,
    rows: Rows,
    n: usize,
    of_rows: Stream,
    of_columns: Stream,
}

impl Terms {
    /// Reads the operand of a column of `n` elements of `width` bytes, after its kind.
    pub(super) fn parse(
        head: &mut Bytes<'_>,
        width: usize,
        n: usize,
        lane_sets: u8,
        faults: &mut Faults,
    ) -> Result<Self, String> {
        faults.must(width == 4 || width == 2, "terms of rows and columns need elements of 4 or 2 bytes");
        let (w, shift) = (8 * width as u32, head.u8()?);
        faults.must(u32::from(shift) < w, "terms of rows and columns are shifted out of their elements");
        let rows = Rows::parse(head, n, 1 << 20, faults)?;
        let of_rows = Stream::parse(head, 1, false, lane_sets, faults)?;
        let of_columns = Stream::parse(head, 1, false, lane_sets, faults)?;
        Ok(Self { w, shift, rows, n, of_rows, of_columns })
    }

    /// The prediction of each element.
    pub(super) fn decode(&self, streams: &mut Streams<'_>, faults: &mut Faults) -> Result<Vec<u64>, String> {
        let of_rows = self.of_rows.decode(self.rows.count(self.n) as usize, streams, faults)?;
        let of_columns = self.of_columns.decode(self.rows.columns(self.n), streams, faults)?;
        let prediction = |element| {
            let column = of_columns[self.rows.column_of(element, self.n)];
            sum_of_terms(of_rows[self.rows.row_of(element)], column, self.shift, self.w)
        };
        let predictions: Vec<u64> = (0..self.n).map(prediction).collect();
        streams.step("predictions", || predictions.clone());
        Ok(predictions)
    }
}

/// The prediction of `w` bits from two terms.
pub(super) fn sum_of_terms(of_row: u64, of_column: u64, shift: u8, w: u32) -> u64 {
    (of_row + of_column).checked_shl(shift.into()).unwrap_or(0) & ones(w)
}
