//! Tables for a terminal.

use crate::{Ink, Tint};

/// Between two columns.
const BETWEEN: usize = 2;

/// Which end of a cell is at the column's edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    Left,
    Right,
}

/// Rows of cells below a title, each column as wide as its widest cell. A table that is wider than the terminal is printed in
/// several parts, one below the other, each of which begins with the same first column.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    titles: Vec<(&'a str, Align)>,
    rows: Vec<(Vec<String>, Tint)>,
}

impl<'a> Table<'a> {
    pub fn new(titles: impl IntoIterator<Item = (&'a str, Align)>) -> Table<'a> {
        Table { titles: titles.into_iter().collect(), rows: Vec::new() }
    }

    /// A table whose first column is a name, and the others figures.
    pub fn of_figures(titles: &[&'a str]) -> Table<'a> {
        let align = |at| if at == 0 { Align::Left } else { Align::Right };
        Table::new(titles.iter().enumerate().map(|(at, title)| (*title, align(at))))
    }

    /// Adds a row, with a cell for each column.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.push_tinted(cells, Tint::Plain);
    }

    /// The same, with a color.
    pub fn push_tinted(&mut self, cells: impl IntoIterator<Item = String>, tint: Tint) {
        self.rows.push((cells.into_iter().collect(), tint));
    }

    /// The table in lines of at most this many columns, if its cells allow; `None` for lines of any length. No line ends
    /// with a space.
    pub fn text(&self, columns: Option<usize>, ink: Ink) -> String {
        let widths: Vec<usize> = (0..self.titles.len()).map(|at| self.width(at)).collect();
        let titles: Vec<&str> = self.titles.iter().map(|(title, _)| *title).collect();
        let part = |part: &Vec<usize>| {
            let line = |cells: &mut dyn Iterator<Item = &str>, tint| {
                ink.tinted(&self.line(&cells.collect::<Vec<_>>(), part, &widths), tint) + "\n"
            };
            let mut text = line(&mut titles.iter().copied(), Tint::Heading);
            for (cells, tint) in &self.rows {
                text.push_str(&line(&mut cells.iter().map(String::as_str), *tint));
            }
            text
        };
        let parts = parts(&widths, columns.unwrap_or(usize::MAX));
        parts.iter().map(part).collect::<Vec<_>>().join("\n")
    }

    fn width(&self, at: usize) -> usize {
        let cells = self.rows.iter().filter_map(|(row, _)| row.get(at)).map(String::as_str);
        let title = self.titles.get(at).map(|(title, _)| *title);
        cells.chain(title).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn line(&self, cells: &[&str], part: &[usize], widths: &[usize]) -> String {
        let mut line = String::new();
        for &at in part {
            let cell = cells.get(at).copied().unwrap_or_default();
            let room = " ".repeat(widths[at].saturating_sub(cell.chars().count()));
            if !line.is_empty() {
                line.push_str(&" ".repeat(BETWEEN));
            }
            match self.titles[at].1 {
                Align::Left => line.extend([cell, &room]),
                Align::Right => line.extend([&room, cell]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Numbers of the columns of each part.
fn parts(widths: &[usize], columns: usize) -> Vec<Vec<usize>> {
    let first = widths.first().copied().unwrap_or(0);
    let mut parts = vec![vec![0]];
    let mut used = first;
    for (at, width) in widths.iter().enumerate().skip(1) {
        let is_begun = parts.last().is_some_and(|part| part.len() > 1);
        if is_begun && used + BETWEEN + width > columns {
            parts.push(vec![0]);
            used = first;
        }
        parts.last_mut().expect("there is a first part").push(at);
        used += BETWEEN + width;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<'static> {
        let mut table = Table::of_figures(&["loss", "sent", "arrived", "late"]);
        table.push(["0 %", "1,000", "1,000", ""].map(str::to_owned));
        table.push(["20 %", "10,000", "8,012", "7"].map(str::to_owned));
        table
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let expected =
            "loss    sent  arrived  late\n0 %    1,000    1,000\n20 %  10,000    8,012     7\n";
        assert_eq!(table().text(None, Ink::Plain), expected);
        assert_eq!(table().text(Some(27), Ink::Plain), expected);
    }

    #[test]
    fn a_wide_table_is_printed_in_parts_that_begin_with_the_first_column() {
        let expected = "loss    sent  arrived\n0 %    1,000    1,000\n20 %  10,000    8,012\n\n\
                        loss  late\n0 %\n20 %     7\n";
        assert_eq!(table().text(Some(26), Ink::Plain), expected);
        let narrow = table().text(Some(3), Ink::Plain);
        assert!(narrow.starts_with("loss    sent\n") && narrow.matches("loss").count() == 3);
    }
}
