//! Tables as text: aligned columns without rules.

use std::borrow::Cow;
use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Spaces after every column.
const GAP: usize = 2;

/// The widest cell, in columns of the terminal: each row is padded to the widest, and a name may have a million characters.
const WIDEST: usize = 200;

/// A table. It may have a row for each of hundreds of thousands of tensors, so it stores only the text of the cells, truncated where too
/// long.
pub(crate) struct Table {
    columns: Vec<Column>,
    /// One line per row, header first, with tabs between cells.
    text: String,
    rows: usize,
}

struct Column {
    /// Widths of the columns as shown by a terminal.
    width: usize,
    right: bool,
}

impl Table {
    /// An empty table; `right` are the indices of right-aligned columns.
    pub(crate) fn new(header: &[&str], right: &[usize]) -> Self {
        let columns = (0..header.len()).map(|i| Column { width: 0, right: right.contains(&i) }).collect();
        let mut table = Self { columns, text: String::new(), rows: 0 };
        table.push_line(header);
        table
    }

    /// Adds a row. Cells must not contain control characters: names are escaped.
    pub(crate) fn add_row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.push_line(cells);
        self.rows += 1;
    }

    fn push_line<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        for (i, (cell, column)) in cells.into_iter().zip(&mut self.columns).enumerate() {
            let cell = cut(cell.as_ref());
            debug_assert!(!cell.contains(['\t', '\n']), "a cell is in one line");
            column.width = column.width.max(cell.width());
            if i > 0 {
                self.text.push('\t');
            }
            self.text.push_str(&cell);
        }
        self.text.push('\n');
    }

    /// Writes the table, if it has rows, after an empty line.
    pub(crate) fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        out.write_all(b"\n")?;
        let mut row = String::new();
        for line in self.text.lines() {
            row.clear();
            self.put_row(line, &mut row);
            out.write_all(row.as_bytes())?;
        }
        Ok(())
    }

    /// Writes a table with these rows in place of its own, which are made twice, so that none is kept: there may be millions.
    pub(crate) fn write_rows<R: IntoIterator<Item: AsRef<str>>, I: Iterator<Item = R>>(
        mut self,
        rows: impl Fn() -> I,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let header = self.text.len();
        for row in rows() {
            self.text.truncate(header);
            self.add_row(row);
        }
        self.text.truncate(header);
        self.write_to(out)?;
        let mut line = String::new();
        for row in rows() {
            self.text.clear();
            self.push_line(row);
            line.clear();
            self.put_row(self.text.trim_end_matches('\n'), &mut line);
            out.write_all(line.as_bytes())?;
        }
        Ok(())
    }

    /// Appends the table to a string, for callers that need all of it in memory.
    pub(crate) fn push_to(&self, out: &mut String) {
        if self.rows == 0 {
            return;
        }
        out.push('\n');
        self.text.lines().for_each(|line| self.put_row(line, out));
    }

    /// Appends a row, with cells padded to their columns.
    fn put_row(&self, line: &str, out: &mut String) {
        // Padding is written only before further text, never at the end of a line.
        let mut spaces = 0;
        for (cell, column) in line.split('\t').zip(&self.columns) {
            let padding = column.width - cell.width();
            let (before, behind) = if column.right { (padding, 0) } else { (0, padding) };
            spaces += before;
            if !cell.is_empty() {
                out.extend(std::iter::repeat_n(' ', std::mem::take(&mut spaces)));
                out.push_str(cell);
            }
            spaces += behind + GAP;
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
}

/// Truncates a cell to the widest column, with a mark if something was cut.
fn cut(cell: &str) -> Cow<'_, str> {
    let mut room = WIDEST;
    // Zero-width characters still take memory.
    let mut too_much = cell.char_indices().filter_map(|(at, c)| {
        let fits = room.checked_sub(c.width().unwrap_or(0).max(1));
        room = fits.unwrap_or(0);
        (fits.is_none()).then_some(at)
    });
    if too_much.next().is_none() {
        return cell.into();
    }
    let mut room = WIDEST - 1; // for the mark
    let kept = cell.chars().map_while(|c| {
        room = room.checked_sub(c.width().unwrap_or(0).max(1))?;
        Some(c)
    });
    kept.chain(['…']).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["name", "size", ""], &[1]);
        let mut text = "above\n".to_owned();
        table.push_to(&mut text);
        assert_eq!(text, "above\n");
        table.add_row(["重み", "7", "x"]);
        table.add_row(["a", "12345", ""]);
        table.add_row(["longest", "", "yz"]);
        table.push_to(&mut text);
        assert_eq!(text, "above\n\nname      size\n重み         7  x\na        12345\nlongest         yz\n");
    }

    #[test]
    fn cells_are_cut() {
        let as_long = "n".repeat(WIDEST);
        assert_eq!(cut(&as_long), as_long);
        assert_eq!(cut(&"n".repeat(WIDEST + 1)), "n".repeat(WIDEST - 1) + "…");
        // Double-width and zero-width characters.
        assert_eq!(cut(&"重".repeat(WIDEST / 2)), "重".repeat(WIDEST / 2));
        let wide = cut(&"重".repeat(WIDEST)).into_owned();
        assert_eq!((wide.width(), wide.chars().last()), (WIDEST - 1, Some('…')));
        let marks = cut(&"\u{301}".repeat(100_000)).into_owned();
        assert!(marks.len() <= 4 * WIDEST && marks.ends_with('…'));
    }

    #[test]
    fn memory_does_not_depend_on_the_longest_name() {
        let mut table = Table::new(&["name", "size"], &[1]);
        table.add_row(["n".repeat(1_000_000), "1".to_owned()]);
        (0..1000).for_each(|i| table.add_row([i.to_string(), "2".to_owned()]));
        assert!(table.text.len() < 1000 * 10 + 4 * WIDEST);
        let (mut rows, mut text) = (Vec::new(), String::new());
        table.write_to(&mut rows).unwrap();
        table.push_to(&mut text);
        assert_eq!(String::from_utf8(rows).unwrap(), text);
        assert!(text.lines().all(|line| line.width() <= WIDEST + GAP + "size".len()));
    }
}
