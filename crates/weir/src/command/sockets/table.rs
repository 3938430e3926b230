//! Rows for people: kept as short texts, sorted, and fitted to the width of the terminal.

use super::columns::{Align, Key, Tint, View};
use super::out::Out;
use super::shown::Shown;
use std::cmp::Ordering;

/// Order of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Ascending,
    Descending,
}

/// How a table looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) has_color: bool,
    /// Longest line; `None` for any.
    pub(super) width: Option<usize>,
    /// Whether columns may be left out where the line is too long.
    pub(super) may_drop_columns: bool,
}

/// A row: its cells one behind the other, each behind a character for its tint and before a tab.
struct Row {
    key: Key,
    cookie: u64,
    cells: Box<str>,
}

/// The rows of one poll.
pub(super) struct Table {
    columns: Vec<Shown>,
    /// Widest cell of each column so far, in characters.
    widths: Vec<usize>,
    sort: Shown,
    direction: Direction,
    rows: Vec<Row>,
    line: String,
}

const BETWEEN: &str = "  ";
/// Addresses are cut to this many characters first: an IPv4 address in IPv6 form has room.
const ADDRESS_ENOUGH: usize = 30;
/// They are not cut below this many.
const ADDRESS_MIN: usize = 24;
/// Columns above this weight stay until addresses are cut to the least.
const WEIGHT_LOW: u8 = 5;

impl Table {
    pub(super) fn new(columns: Vec<Shown>, sort: Shown, direction: Direction) -> Table {
        let widths = columns.iter().map(|column| column.title().chars().count()).collect();
        Table { columns, widths, sort, direction, rows: Vec::new(), line: String::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Forgets the rows, not the widths: they stay where they are while it is watched.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    pub(super) fn push(&mut self, view: &View<'_>) {
        self.line.clear();
        for (column, width) in self.columns.iter_mut().zip(&mut self.widths) {
            *width = put_cell(column, view, &mut self.line).max(*width);
        }
        self.rows.push(Row {
            key: self.sort.key(view),
            cookie: view.record.cookie.unwrap_or_default(),
            cells: self.line.as_str().into(),
        });
    }

    /// Appends the title and at most `rows_max` rows, and returns the names of columns that had no room.
    pub(super) fn render(
        &mut self,
        look: &Look,
        rows_max: usize,
        out: &mut Out,
    ) -> Vec<&'static str> {
        let direction = self.direction;
        self.rows.sort_by(|a, b| order(&a.key, &b.key, direction).then(a.cookie.cmp(&b.cookie)));

        let layout = Layout::new(&self.columns, &self.widths, look);
        layout.title(&self.columns, &mut self.line);
        out.push(self.line.as_bytes());

        for row in self.rows.iter().take(rows_max) {
            layout.row(&row.cells, &mut self.line);
            out.push(self.line.as_bytes());
        }

        let left_out = self.columns.iter().zip(&layout.places).filter(|(_, place)| place.is_none());
        left_out.map(|(column, _)| column.name()).collect()
    }
}

/// Rows that are printed as they come, in columns of the usual width.
pub(super) struct Lines {
    columns: Vec<Shown>,
    layout: Layout,
    cells: String,
}

impl Lines {
    pub(super) fn new(columns: Vec<Shown>, look: &Look) -> Lines {
        let width = |column: &Shown| column.usual_width().max(column.title().chars().count());
        let widths: Vec<usize> = columns.iter().map(width).collect();
        let layout = Layout::new(&columns, &widths, &Look { width: None, ..*look });
        Lines { columns, layout, cells: String::new() }
    }

    pub(super) fn title(&self) -> String {
        let mut line = String::new();
        self.layout.title(&self.columns, &mut line);
        line
    }

    pub(super) fn row(&mut self, view: &View<'_>, line: &mut String) {
        self.cells.clear();
        for column in &mut self.columns {
            put_cell(column, view, &mut self.cells);
        }
        self.layout.row(&self.cells, line);
    }
}

/// Appends a cell and returns its width.
fn put_cell(column: &mut Shown, view: &View<'_>, line: &mut String) -> usize {
    let start = line.len();
    line.push(' ');
    let tint = column.put(view, line);
    let width = line.get(start + 1..).map_or(0, |cell| cell.chars().count());
    line.replace_range(start..=start, mark(tint));
    line.push('\t');
    width
}

fn order(a: &Key, b: &Key, direction: Direction) -> Ordering {
    match (a, b, direction) {
        (Key::Absent, _, _) | (_, Key::Absent, _) | (_, _, Direction::Ascending) => a.cmp(b),
        (_, _, Direction::Descending) => b.cmp(a),
    }
}

fn mark(tint: Tint) -> &'static str {
    match tint {
        Tint::Plain => " ",
        Tint::Dim => ".",
        Tint::Notice => "!",
        Tint::Alarm => "#",
    }
}

/// The terminal's sequence for a mark (ECMA-48, SGR).
fn color(mark: u8) -> &'static str {
    match mark {
        b'.' => "\x1b[2m",
        b'!' => "\x1b[33m",
        b'#' => "\x1b[31m",
        _ => "",
    }
}

/// Where each column stands.
struct Layout {
    places: Vec<Option<Place>>,
    has_color: bool,
}

#[derive(Clone, Copy)]
struct Place {
    width: usize,
    align: Align,
    is_last: bool,
    is_address: bool,
}

impl Layout {
    fn new(columns: &[Shown], widths: &[usize], look: &Look) -> Layout {
        let mut widths: Vec<Option<usize>> = widths.iter().copied().map(Some).collect();
        if let Some(limit) = look.width {
            fit(columns, &mut widths, limit, look.may_drop_columns);
        }

        let last = widths.iter().rposition(Option::is_some);
        let place = |(at, (column, width)): (usize, (&Shown, &Option<usize>))| {
            width.map(|width| Place {
                width,
                align: column.align(),
                is_last: Some(at) == last,
                is_address: column.is_address(),
            })
        };
        let places = columns.iter().zip(&widths).enumerate().map(place).collect();

        Layout { places, has_color: look.has_color }
    }

    fn title(&self, columns: &[Shown], line: &mut String) {
        line.clear();
        if self.has_color {
            line.push_str("\x1b[1m");
        }

        for (column, place) in columns.iter().zip(&self.places) {
            if let Some(place) = place {
                pad(&column.title(), place, line);
            }
        }

        if self.has_color {
            line.push_str("\x1b[0m");
        }
        line.push('\n');
    }

    fn row(&self, cells: &str, line: &mut String) {
        line.clear();
        for (cell, place) in cells.split_terminator('\t').zip(&self.places) {
            let (Some(place), Some(mark), Some(text)) = (place, cell.bytes().next(), cell.get(1..))
            else {
                continue;
            };

            let color = if self.has_color { color(mark) } else { "" };
            line.push_str(color);
            match text.chars().count() > place.width {
                true if place.is_address => pad(&shorten(text, place.width), place, line),
                _ => pad(text, place, line),
            }

            if !color.is_empty() {
                line.push_str("\x1b[0m");
            }
        }
        line.push('\n');
    }
}

fn pad(text: &str, place: &Place, line: &mut String) {
    let room = place.width.saturating_sub(text.chars().count());
    let spaces = |count: usize, line: &mut String| line.extend(std::iter::repeat_n(' ', count));
    if place.align == Align::Right {
        spaces(room, line);
    }
    line.push_str(text);
    if !place.is_last {
        if place.align == Align::Left {
            spaces(room, line);
        }
        line.push_str(BETWEEN);
    }
}

/// Makes the columns fit: the longest addresses become shorter, then the least important columns go, then addresses become
/// as short as they may be, and then other columns go.
fn fit(columns: &[Shown], widths: &mut [Option<usize>], limit: usize, may_drop: bool) {
    cut_addresses(columns, widths, limit, ADDRESS_ENOUGH);
    if may_drop {
        drop_columns(columns, widths, limit, WEIGHT_LOW);
    }
    cut_addresses(columns, widths, limit, ADDRESS_MIN);
    if may_drop {
        drop_columns(columns, widths, limit, u8::MAX);
    }
}

fn length(widths: &[Option<usize>]) -> usize {
    let total: usize = widths.iter().flatten().map(|width| width + BETWEEN.len()).sum();
    total.saturating_sub(BETWEEN.len())
}

/// Takes characters from the widest column of addresses, one by one, so that all share what must go.
fn cut_addresses(columns: &[Shown], widths: &mut [Option<usize>], limit: usize, least: usize) {
    while length(widths) > limit {
        let addresses = columns.iter().zip(&mut *widths).filter(|(column, _)| column.is_address());
        match addresses.filter_map(|(_, width)| width.as_mut()).max_by_key(|width| **width) {
            Some(width) if *width > least => *width -= 1,
            _ => return,
        }
    }
}

/// Leaves out columns, the lowest weight first, except those above a limit and the last one.
fn drop_columns(columns: &[Shown], widths: &mut [Option<usize>], limit: usize, weight_max: u8) {
    while length(widths) > limit && widths.iter().flatten().count() > 1 {
        let shown = columns.iter().zip(&mut *widths).filter(|(_, width)| width.is_some());
        match shown.min_by_key(|(column, _)| column.weight()) {
            Some((column, width)) if column.weight() <= weight_max => *width = None,
            _ => return,
        }
    }
}

/// Cuts the middle out of an address; the port stays whole.
fn shorten(text: &str, width: usize) -> String {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let room = width.saturating_sub(port.chars().count() + 2);
    let length = host.chars().count();
    if room < 6 || length <= room {
        return text.to_owned();
    }
    let front = room.div_ceil(2);
    let back = room - front;
    let head: String = host.chars().take(front).collect();
    let tail: String = host.chars().skip(length - back).collect();
    format!("{head}…{tail}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::sockets::shown::{column, columns};
    use record::{AddressFamily, SocketRecord, SocketState};
    use sockets::attribution::Users;

    fn connection(cookie: u64, src: &str, rtt_us: u32) -> SocketRecord<'static> {
        SocketRecord {
            cookie: Some(cookie),
            family: Some(AddressFamily::INET6),
            state: Some(SocketState::ESTABLISHED),
            src_address: Some(src.parse().unwrap()),
            src_port: Some(443),
            dst_address: Some("2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap()),
            dst_port: Some(65_535),
            rtt_us: Some(rtt_us),
            ..SocketRecord::default()
        }
    }

    fn render(names: &str, sort: &str, direction: Direction, width: Option<usize>) -> Vec<String> {
        let mut table = Table::new(columns(names).unwrap(), column(sort).unwrap(), direction);
        let users = Users::default();
        for record in [
            connection(2, "2001:db8::2", 900),
            connection(1, "2001:db8::1", 0),
            connection(3, "::1", 1_500),
        ] {
            table.push(&View::of(&record, &users));
        }
        let mut out = Out::to_memory();
        let look = Look { has_color: false, width, may_drop_columns: true };
        table.render(&look, usize::MAX, &mut out);
        String::from_utf8(out.into_memory()).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn rows_are_sorted_and_aligned() {
        let lines = render("local,rtt", "rtt", Direction::Descending, None);
        assert_eq!(
            lines,
            [
                "LOCAL                 RTT",
                "[::1]:443          1.5 ms",
                "[2001:db8::2]:443  900 µs",
                "[2001:db8::1]:443       -",
            ]
        );
        assert!(render("local", "local", Direction::Ascending, None)[1].starts_with("[::1]"));
    }

    #[test]
    fn long_addresses_lose_their_middle_and_never_the_port() {
        let lines = render("local,peer", "local", Direction::Ascending, Some(50));
        assert_eq!(lines[1], "[::1]:443          [2001:db8:11…4:5555:6666]:65535");
        assert!(lines.iter().all(|line| line.chars().count() <= 50), "{lines:?}");
    }

    #[test]
    fn the_least_important_columns_go_where_there_is_no_room() {
        let lines =
            render("state,local,peer,rtt,min_rtt,idle", "local", Direction::Ascending, Some(60));
        assert!(lines[0].contains("RTT") && lines[0].contains("PEER"), "{lines:?}");
        assert!(!lines[0].contains("IDLE") && !lines[0].contains("MIN-RTT"), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:?}");
    }
}
