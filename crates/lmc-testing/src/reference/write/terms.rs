//! Terms of rows and columns (§3.7, §3.9) from a description.
//!
//! Which term is whose, and the sums, are shared with the reference decoder.

pub use super::super::terms::Rows;

use super::super::terms::sum_of_terms;
use super::stream::{Cluster, Output, Stream};
use super::varint;

/// Terms of rows, which keys depend on.
#[derive(Clone, Debug)]
pub struct RowTerms {
    pub rows: Rows,
    /// [`RowTerms::count`] says how many there are in a valid column.
    pub terms: Vec<u8>,
    pub stream: Stream,
}

/// An operand that is computed: the sum of a term of its row and one of its column for each element.
#[derive(Clone, Debug)]
pub struct Terms {
    pub shift: u8,
    pub rows: Rows,
    /// As many as row terms would be.
    pub of_rows: Vec<u8>,
    pub row_stream: Stream,
    /// As many as a row or the column has elements, whichever are fewer.
    pub of_columns: Vec<u8>,
    pub column_stream: Stream,
}

/// 8 bits of each as they are.
fn raw() -> Stream {
    Stream::of(0, Cluster { k: 8, ..Cluster::default() })
}

fn write(rows: Rows, head: &mut Vec<u8>) {
    varint(head, rows.row);
    varint(head, rows.position);
}

fn encode<'c>(terms: &[u8], stream: &'c Stream, output: &mut Output<'_, 'c>) -> Result<(), String> {
    let terms: Vec<u64> = terms.iter().map(|&term| term.into()).collect();
    stream.encode(&terms, 1, output)
}

impl RowTerms {
    /// Terms whose stream has all bits as they are.
    pub fn of_rows(rows: Rows, terms: Vec<u8>) -> Self {
        Self { rows, terms, stream: raw() }
    }

    /// How many terms a column of `n` elements needs.
    ///
    /// # Panics
    /// When a row has no elements.
    pub fn count(rows: Rows, n: usize) -> usize {
        rows.count(n) as usize
    }

    /// The term of an element.
    pub(super) fn of(&self, element: usize) -> Result<u64, String> {
        let number = if self.rows.row == 0 { 0 } else { self.rows.row_of(element) };
        self.terms.get(number).map(|&term| term.into()).ok_or("there are too few row terms".into())
    }

    pub(super) fn encode<'c>(&'c self, output: &mut Output<'_, 'c>) -> Result<(), String> {
        write(self.rows, &mut output.head);
        encode(&self.terms, &self.stream, output)
    }
}

impl Terms {
    /// Terms whose streams have all bits as they are.
    pub fn of(shift: u8, rows: Rows, of_rows: Vec<u8>, of_columns: Vec<u8>) -> Self {
        Self { shift, rows, of_rows, row_stream: raw(), of_columns, column_stream: raw() }
    }

    /// The prediction of each of a column's `n` elements of `width` bytes.
    pub(super) fn predictions(&self, width: usize, n: usize) -> Result<Vec<u64>, String> {
        if self.rows.row == 0 {
            return Err("a row of terms has no elements".into());
        }
        let prediction = |element| {
            let row = self.of_rows.get(self.rows.row_of(element));
            let column = self.of_columns.get(self.rows.column_of(element, n));
            let (row, column) = row.zip(column).ok_or("there are too few terms")?;
            Ok(sum_of_terms((*row).into(), (*column).into(), self.shift, 8 * width as u32))
        };
        (0..n).map(prediction).collect()
    }

    pub(super) fn encode<'c>(&'c self, output: &mut Output<'_, 'c>) -> Result<(), String> {
        output.head.push(self.shift);
        write(self.rows, &mut output.head);
        encode(&self.of_rows, &self.row_stream, output)?;
        encode(&self.of_columns, &self.column_stream, output)
    }
}
