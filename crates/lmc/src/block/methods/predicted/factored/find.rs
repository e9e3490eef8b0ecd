//! Finds the terms of rows and columns of second moments: the squares of gradients are large where the inputs of a layer
//! are, column by column, and where the gradients of its outputs are, row by row. Optimizers with little memory keep these
//! alone (Shazeer and Stern 2018, "Adafactor").

use lmc_kernels::predict::optimizer::{Rows, rows_and_columns};

/// Terms, and the elements that they predict.
pub(in crate::block) struct Found {
    pub(in crate::block) shift: u8,
    pub(in crate::block) rows: Rows,
    /// Elements of one byte.
    pub(in crate::block) of_rows: Vec<u8>,
    pub(in crate::block) of_columns: Vec<u8>,
    pub(in crate::block) prediction: Vec<u8>,
}

/// Quarters of an octave: two bits of the mantissa. Eighths would save no more than they cost.
const SHIFT: u8 = 21;
const UNIT: i64 = 1 << SHIFT;
/// Elements of which some are looked at first, and least rows and columns.
const FIRST: usize = 64;
const ROWS_LEAST: usize = 8;
const COLUMNS_LEAST: u64 = 32;
const COLUMNS_MOST: u64 = 1 << 20;
/// Rows that the terms of columns are averages of.
const SAMPLED_ROWS: usize = 256;
/// Least distance between the smallest and the largest of the elements that are looked at first.
const SPREAD: u32 = 3 << 23;

/// The terms of elements of 4 bytes, floats that are not negative, in these rows; `None` if they are something else.
pub(in crate::block) fn find(rows: Rows, bytes: &[u8]) -> Option<Found> {
    let elements = bytes.as_chunks::<4>().0;
    let n = elements.len();
    if rows.len < COLUMNS_LEAST || rows.len > COLUMNS_MOST || (n as u64) < rows.len * ROWS_LEAST as u64 {
        return None;
    }
    let value = |e: &[u8; 4]| u32::from_le_bytes(*e);
    let first = || elements.iter().step_by(n / FIRST).map(value).filter(|&v| v != 0);
    if first().any(|v| v >= 0x7f80_0000) || first().max()? - first().min()? < SPREAD {
        return None;
    }
    if elements.iter().fold(0, |or, e| or | value(e)) >> 31 != 0 {
        return None;
    }
    // The bits of a float are a logarithm that is linear between powers of two. Zeros tell nothing.
    let columns = rows.len as usize;
    let count = rows.count(n);
    let mut of_rows = vec![Mean::default(); count];
    let mut of_columns = vec![Mean::default(); columns];
    let step = count.div_ceil(SAMPLED_ROWS);
    rows.each(0, n, |row, column, range| {
        let mut of_row = Mean::default();
        elements[range.clone()].iter().for_each(|e| of_row.add(value(e)));
        of_rows[row] = of_row;
        if row % step == 0 {
            of_columns[column as usize..].iter_mut().zip(&elements[range]).for_each(|(mean, e)| mean.add(value(e)));
        }
    });
    let all = of_columns.iter().fold(Mean::default(), |a, m| Mean { sum: a.sum + m.sum, count: a.count + m.count });
    let mean = all.value()?;
    let of_columns: Vec<i64> = of_columns.iter().map(|m| m.value().unwrap_or(mean) - mean).collect();
    let of_rows: Vec<i64> = of_rows.iter().map(|m| m.value().unwrap_or(mean)).collect();
    // Both are bytes: what is constant goes where there is room.
    let least = *of_columns.iter().min()?;
    let largest = (of_rows.iter().max()? + least + UNIT / 2) / UNIT;
    let constant = (largest - 255).max(0);
    let byte = |v: i64| v.clamp(0, 255) as u8;
    let of_rows: Vec<u8> = of_rows.iter().map(|v| byte((v + least + UNIT / 2).div_euclid(UNIT) - constant)).collect();
    let of_columns: Vec<u8> = of_columns.iter().map(|v| byte((v - least + UNIT / 2) / UNIT + constant)).collect();
    let mut prediction = vec![0; bytes.len()];
    rows_and_columns(4, SHIFT.into(), rows, &of_rows, &of_columns, &mut prediction);
    Some(Found { shift: SHIFT, rows, of_rows, of_columns, prediction })
}

/// The mean of numbers other than 0.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    #[inline(always)]
    fn add(&mut self, v: u32) {
        self.sum += u64::from(v);
        self.count += u64::from(v != 0);
    }

    fn value(self) -> Option<i64> {
        (self.count > 0).then(|| (self.sum / self.count) as i64)
    }
}
