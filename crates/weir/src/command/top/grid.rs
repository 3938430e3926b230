//! A table that fits a width: columns that find no room are left out, the least important first.

use super::lines::{Line, sparkline};
use super::width::{cut, cut_middle, left, right, width};
use text::Tint;

/// Most columns for a name, and for a line.
const NAME_MAX: usize = 60;
const LINE_MAX: usize = 60;
/// Least columns for a line.
const LINE_MIN: usize = 6;

/// How wide a column is, and where its cells stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Numbers, at the right; as wide as the widest.
    Figure,
    /// Words, at the left; as wide as the widest.
    Word,
    /// Names, which share the rest and lose their middle. With the least columns that they need.
    Name(usize),
    /// Sentences, which share the rest and lose their end. With the least columns that they need.
    Text(usize),
    /// The line of each row over time.
    Line,
}

/// A column. Those with the highest `rank` are left out first; 0 always stays.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) kind: Kind,
    pub(super) rank: u8,
}

/// A column of this kind and rank.
pub(super) const fn column(title: &'static str, kind: Kind, rank: u8) -> Column {
    Column { title, kind, rank }
}

/// A row: a cell for each column but that of the line.
pub(super) struct Entry<'a> {
    pub(super) cells: Vec<String>,
    pub(super) line: Option<&'a Line>,
    pub(super) tint: Tint,
}

/// Rows under their titles.
pub(super) struct Grid<'a> {
    pub(super) columns: &'static [Column],
    pub(super) entries: Vec<Entry<'a>>,
    /// The time at the end of lines, and how long they are, in milliseconds.
    pub(super) time: (u64, u64),
}

/// The columns that are shown, and how wide they are.
pub(super) struct Layout {
    between: &'static str,
    /// 0 is left out.
    widths: Vec<usize>,
}

impl Grid<'_> {
    /// Fits the columns into this width, for the rows from `first` on.
    pub(super) fn layout(&self, columns: usize, (first, count): (usize, usize)) -> Layout {
        let between = if columns < 100 { " " } else { "  " };
        let shown = self.entries.iter().skip(first).take(count);
        let mut widest: Vec<usize> = self.columns.iter().map(|one| width(one.title)).collect();
        for entry in shown {
            for (widest, cell) in widest.iter_mut().zip(&entry.cells) {
                *widest = width(cell).max(*widest);
            }
        }

        let least = |(column, widest): (&Column, &usize)| match column.kind {
            Kind::Figure | Kind::Word => *widest,
            Kind::Name(least) | Kind::Text(least) => least,
            Kind::Line => LINE_MIN,
        };
        let mut widths: Vec<usize> = self.columns.iter().zip(&widest).map(least).collect();
        while needed(&widths, between) > columns {
            let ranks = self.columns.iter().zip(&widths).enumerate();
            let ranks = ranks.filter(|(_, (column, width))| column.rank > 0 && **width > 0);
            let Some((last, _)) = ranks.max_by_key(|(_, (column, _))| column.rank) else { break };
            widths[last] = 0;
        }
        let rest = columns.saturating_sub(needed(&widths, between));
        self.share(rest, &widest, &mut widths);
        Layout { between, widths }
    }

    /// Gives the rest to names and sentences as far as they need it, and then to the line.
    fn share(&self, mut rest: usize, widest: &[usize], widths: &mut [usize]) {
        let most = |at: usize| match self.columns[at].kind {
            Kind::Name(_) => widest[at].min(NAME_MAX),
            Kind::Text(_) => widest[at],
            Kind::Figure | Kind::Word | Kind::Line => 0,
        };
        while rest > 0 {
            // The narrowest one grows first, so that two addresses are cut alike.
            let wanting = (0..widths.len()).filter(|&at| (1..most(at)).contains(&widths[at]));
            let Some(next) = wanting.min_by_key(|&at| widths[at]) else { break };
            widths[next] += 1;
            rest -= 1;
        }
        for (column, width) in self.columns.iter().zip(widths) {
            if column.kind == Kind::Line && *width > 0 {
                *width = (*width + rest).min(LINE_MAX);
            }
        }
    }

    pub(super) fn titles(&self, layout: &Layout) -> String {
        let title = |column: &Column, width| match column.kind {
            Kind::Figure => right(column.title, width),
            _ => left(&cut(column.title, width), width),
        };
        self.joined(layout, title)
    }

    pub(super) fn row(&self, layout: &Layout, entry: &Entry<'_>) -> String {
        let mut cells = entry.cells.iter();
        let cell = |column: &Column, width: usize| match column.kind {
            Kind::Line => {
                let bars = entry.line.map(|line| line.bars(self.time, width));
                bars.map(|bars| sparkline(&bars)).unwrap_or_default()
            }
            kind => {
                let text = cells.next().map(String::as_str).unwrap_or_default();
                match kind {
                    Kind::Figure => right(text, width),
                    Kind::Name(_) => left(&cut_middle(text, width), width),
                    _ => left(&cut(text, width), width),
                }
            }
        };
        self.joined(layout, cell)
    }

    fn joined(&self, layout: &Layout, mut cell: impl FnMut(&Column, usize) -> String) -> String {
        let mut parts = Vec::with_capacity(self.columns.len());
        for (column, &width) in self.columns.iter().zip(&layout.widths) {
            let text = cell(column, width);
            if width > 0 {
                parts.push(text);
            }
        }
        parts.join(layout.between)
    }
}

fn needed(widths: &[usize], between: &str) -> usize {
    let shown = widths.iter().filter(|width| **width > 0);
    let (count, sum) = shown.fold((0_usize, 0), |(count, sum), width| (count + 1, sum + width));
    sum + count.saturating_sub(1) * between.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        column("state", Kind::Word, 0),
        column("local", Kind::Name(7), 0),
        column("peer", Kind::Name(7), 0),
        column("rtt", Kind::Figure, 1),
        column("line", Kind::Line, 2),
    ];

    fn shown(columns: usize) -> Vec<String> {
        let cells = ["ESTAB", "192.0.2.77:65535", "198.51.100.200:443", "1.2 ms"];
        let entry =
            |line| Entry { cells: cells.map(str::to_owned).to_vec(), line, tint: Tint::Plain };
        let line = Line::default();
        let grid = Grid { columns: COLUMNS, entries: vec![entry(Some(&line))], time: (0, 0) };
        let layout = grid.layout(columns, (0, 9));
        let row = grid.row(&layout, &grid.entries[0]);
        [grid.titles(&layout), row].map(|line| line.trim_end().to_owned()).to_vec()
    }

    #[test]
    fn names_lose_their_middle_and_then_columns_go() {
        let wide = shown(80);
        assert_eq!(wide[0], "state local            peer                  rtt line");
        assert_eq!(wide[1], "ESTAB 192.0.2.77:65535 198.51.100.200:443 1.2 ms");
        assert_eq!(shown(40)[1], "ESTAB 192…:65535 19…00:443 1.2 ms");
        assert_eq!(shown(28)[1], "ESTAB …:65535 …00:443 1.2 ms");
        assert_eq!(shown(22)[1], "ESTAB 1…:65535 …00:443");
    }
}
