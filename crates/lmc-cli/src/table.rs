//! Tables for people: columns beside each other, without lines between.

use unicode_width::UnicodeWidthStr;

/// Spaces behind every column.
const GAP: usize = 2;

/// A table. It may have a row for each of hundreds of thousands of tensors, and so keeps nothing of them but the text of their cells.
pub(crate) struct Table {
    columns: Vec<Column>,
    /// A line for each row, the header first, with tabs between cells.
    text: String,
    rows: usize,
}

struct Column {
    /// That of its widest cell, as a terminal shows it.
    width: usize,
    right: bool,
}

impl Table {
    /// A table without rows, of which some columns, by number, are flush right.
    pub(crate) fn new(header: &[&str], right: &[usize]) -> Self {
        let columns = (0..header.len()).map(|i| Column { width: 0, right: right.contains(&i) }).collect();
        let mut table = Self { columns, text: String::new(), rows: 0 };
        table.push_line(header);
        table
    }

    /// Adds a row, whose cells have no control characters: names are escaped.
    pub(crate) fn add_row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.push_line(cells);
        self.rows += 1;
    }

    fn push_line<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        for (i, (cell, column)) in cells.into_iter().zip(&mut self.columns).enumerate() {
            let cell = cell.as_ref();
            debug_assert!(!cell.contains(['\t', '\n']), "a cell is in one line");
            column.width = column.width.max(cell.width());
            if i > 0 {
                self.text.push('\t');
            }
            self.text.push_str(cell);
        }
        self.text.push('\n');
    }

    /// Appends the table, if it has rows, after an empty line.
    pub(crate) fn push_to(&self, out: &mut String) {
        if self.rows == 0 {
            return;
        }
        out.push('\n');
        for line in self.text.lines() {
            // Spaces that are owed, which nobody needs at the end of a line.
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
}
