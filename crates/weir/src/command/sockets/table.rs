//! Rows for people: kept as short texts, sorted, and fitted to the terminal's width.

#[cfg(test)]
mod tests;

use super::columns::{Key, View};
use super::out::Out;
use super::shown::Shown;
use std::cmp::Ordering;
use text::{Align, Ink, Tint};

/// Sort direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Ascending,
    Descending,
}

/// How a table looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) ink: Ink,
    /// Longest line; `None` for no limit.
    pub(super) width: Option<usize>,
    /// Whether columns may be left out if the line is too long.
    pub(super) may_drop_columns: bool,
    pub(super) has_title: bool,
}

/// A row: its cells one after another, each preceded by a character for its tint and followed by a tab.
struct Row {
    key: Key,
    cookie: u64,
    cells: Box<str>,
}

/// A column's width.
#[derive(Clone, Copy)]
struct Width {
    /// Full width, in characters.
    full: usize,
    /// The width to which it may be cut, if it shows addresses.
    least: usize,
}

impl Width {
    fn of_title(column: &Shown) -> Width {
        let full = column.title().chars().count();
        Width { full, least: full }
    }

    fn max(self, other: Width) -> Width {
        Width { full: self.full.max(other.full), least: self.least.max(other.least) }
    }
}

/// The rows of one poll.
pub(super) struct Table {
    columns: Vec<Shown>,
    /// The columns below each row, shown as `name:value`.
    details: Vec<Shown>,
    /// Widest cell of each column so far, in characters.
    widths: Vec<Width>,
    sort: Shown,
    direction: Direction,
    rows: Vec<Row>,
    line: String,
}

const BETWEEN: &str = "  ";
/// Indent of the lines below a row.
const INDENT: &str = "        ";
/// Addresses are cut to this many characters first, which is enough for an IPv4 address in IPv6 form.
const ADDRESS_ENOUGH: usize = 30;
/// Addresses are never cut below this, so that any IPv4 address with its port fits, even in IPv6 form (see [`shorten`]).
const ADDRESS_MIN: usize = 22;
/// Columns above this weight stay until addresses are cut to the minimum.
const WEIGHT_LOW: u8 = 5;
/// Weight of the column that rows are sorted by.
const WEIGHT_SORTED: u8 = 11;

impl Table {
    pub(super) fn new(
        columns: Vec<Shown>,
        details: Vec<Shown>,
        sort: Shown,
        direction: Direction,
    ) -> Table {
        let widths = columns.iter().map(Width::of_title).collect();
        let (rows, line) = (Vec::new(), String::new());
        Table { columns, details, widths, sort, direction, rows, line }
    }

    /// Drops the rows but keeps the widths, so that columns stay in place while watching.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    pub(super) fn push(&mut self, view: &View<'_>) {
        self.line.clear();
        for (column, width) in self.columns.iter_mut().zip(&mut self.widths) {
            *width = put_cell(column, view, &mut self.line).max(*width);
        }
        for detail in &mut self.details {
            put_cell(detail, view, &mut self.line);
        }
        self.rows.push(Row {
            key: self.sort.key(view),
            cookie: view.record.cookie.unwrap_or_default(),
            cells: self.line.as_str().into(),
        });
    }

    /// Appends the title and as many rows as fit into `lines_max` lines.
    pub(super) fn render(&mut self, look: &Look, lines_max: usize, out: &mut Out) -> Rendered {
        let direction = self.direction;
        self.rows.sort_by(|a, b| order(&a.key, &b.key, direction).then(a.cookie.cmp(&b.cookie)));

        let layout = Layout::new(&self.columns, &self.widths, Some(self.sort.name()), look);
        let mut lines = 0;
        if look.has_title {
            layout.title(&self.columns, &mut self.line);
            out.push(self.line.as_bytes());
            lines += 1;
        }

        let mut shown = 0;
        for row in &self.rows {
            layout.row(&row.cells, &mut self.line);
            let cells = row.cells.split_terminator('\t').skip(self.columns.len());
            put_details(&self.details, cells, look.width, &mut self.line);

            lines += self.line.lines().count();
            if lines > lines_max {
                break;
            }
            out.push(self.line.as_bytes());
            shown += 1;
        }

        Rendered { left_out: layout.left_out(&self.columns), rows_below: self.rows.len() - shown }
    }
}

/// What did not fit.
pub(super) struct Rendered {
    /// Names of the columns left out.
    pub(super) left_out: Vec<&'static str>,
    pub(super) rows_below: usize,
}

/// Appends lines of `name:value` for present values, no longer than the width.
fn put_details<'a>(
    details: &[Shown],
    cells: impl Iterator<Item = &'a str>,
    width: Option<usize>,
    out: &mut String,
) {
    let mut length = 0;
    for (detail, cell) in details.iter().zip(cells) {
        // The first character is the tint.
        let value = cell.get(1..).unwrap_or_default();
        if value == "-" {
            continue;
        }

        let part = format!("{}:{}", detail.name(), value.replace(' ', ""));
        let more = 1 + part.chars().count();
        if length > 0 && width.is_none_or(|width| length + more <= width) {
            out.push(' ');
            length += more;
        } else {
            out.push_str(if length > 0 { "\n" } else { "" });
            out.push_str(INDENT);
            length = INDENT.len() + more - 1;
        }
        out.push_str(&part);
    }

    if length > 0 {
        out.push('\n');
    }
}

/// Rows printed as they arrive, in columns of their usual width.
pub(super) struct Lines {
    columns: Vec<Shown>,
    layout: Layout,
    has_title: bool,
    cells: String,
}

impl Lines {
    pub(super) fn new(columns: Vec<Shown>, look: &Look) -> Lines {
        let width = |column: &Shown| {
            let usual = Width { full: column.usual_width(), least: ADDRESS_MIN };
            usual.max(Width::of_title(column))
        };
        let widths: Vec<Width> = columns.iter().map(width).collect();
        let layout = Layout::new(&columns, &widths, None, look);
        Lines { columns, layout, has_title: look.has_title, cells: String::new() }
    }

    pub(super) fn title(&self) -> String {
        let mut line = String::new();
        if self.has_title {
            self.layout.title(&self.columns, &mut line);
        }
        line
    }

    /// Names of columns that did not fit.
    pub(super) fn left_out(&self) -> Vec<&'static str> {
        self.layout.left_out(&self.columns)
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
fn put_cell(column: &mut Shown, view: &View<'_>, line: &mut String) -> Width {
    let start = line.len();
    line.push(' ');
    let tint = column.put(view, line);

    let cell = line.get(start + 1..).unwrap_or_default();
    let full = cell.chars().count();
    let short = mapped(cell).map_or(full, |short| short.chars().count());

    line.replace_range(start..=start, mark(tint));
    line.push('\t');
    Width { full, least: short.min(ADDRESS_MIN) }
}

fn order(a: &Key, b: &Key, direction: Direction) -> Ordering {
    match (a, b, direction) {
        (Key::Absent, _, _) | (_, Key::Absent, _) | (_, _, Direction::Ascending) => a.cmp(b),
        (_, _, Direction::Descending) => b.cmp(a),
    }
}

/// Tints of cells, and the character for each in a row.
const MARKS: [(&str, Tint); 6] = [
    (" ", Tint::Plain),
    (".", Tint::Dim),
    ("=", Tint::Heading),
    ("+", Tint::Good),
    ("!", Tint::Notice),
    ("#", Tint::Alarm),
];

fn mark(tint: Tint) -> &'static str {
    MARKS.iter().find(|(_, marked)| *marked == tint).map_or(" ", |(mark, _)| mark)
}

fn tint_of(mark: &str) -> Tint {
    MARKS.iter().find(|(known, _)| *known == mark).map_or(Tint::Plain, |(_, tint)| *tint)
}

/// The place of each column.
struct Layout {
    places: Vec<Option<Place>>,
    ink: Ink,
}

#[derive(Clone, Copy)]
struct Place {
    width: usize,
    align: Align,
    is_last: bool,
    is_address: bool,
}

impl Layout {
    /// Fits the columns. The column that rows are sorted by stays as long as the addresses do.
    fn new(columns: &[Shown], widths: &[Width], sort: Option<&str>, look: &Look) -> Layout {
        let mut widths: Vec<Option<Width>> = widths.iter().copied().map(Some).collect();
        if let Some(limit) = look.width {
            let weight = |column: &Shown| match sort == Some(column.name()) {
                true => column.weight().max(WEIGHT_SORTED),
                false => column.weight(),
            };
            let weights: Vec<u8> = columns.iter().map(weight).collect();
            fit(columns, &weights, &mut widths, limit, look.may_drop_columns);
        }

        let last = widths.iter().rposition(Option::is_some);
        let place = |(at, (column, width)): (usize, (&Shown, &Option<Width>))| {
            width.map(|width| Place {
                width: width.full,
                align: column.align(),
                is_last: Some(at) == last,
                is_address: column.is_address(),
            })
        };
        let places = columns.iter().zip(&widths).enumerate().map(place).collect();

        Layout { places, ink: look.ink }
    }

    fn left_out(&self, columns: &[Shown]) -> Vec<&'static str> {
        let places = columns.iter().zip(&self.places);
        places.filter(|(_, place)| place.is_none()).map(|(column, _)| column.name()).collect()
    }

    fn title(&self, columns: &[Shown], line: &mut String) {
        line.clear();
        for (column, place) in columns.iter().zip(&self.places) {
            if let Some(place) = place {
                pad(&column.title(), place, line);
            }
        }
        *line = self.ink.tinted(line, Tint::Heading);
        line.push('\n');
    }

    fn row(&self, cells: &str, line: &mut String) {
        line.clear();
        for (cell, place) in cells.split_terminator('\t').zip(&self.places) {
            let (Some(place), Some((mark, text))) = (place, cell.split_at_checked(1)) else {
                continue;
            };

            let tint = if self.ink == Ink::Color { tint_of(mark) } else { Tint::Plain };
            line.push_str(tint.sequence());
            match text.chars().count() > place.width {
                true if place.is_address => pad(&shorten(text, place.width), place, line),
                _ => pad(text, place, line),
            }

            if tint != Tint::Plain {
                line.push_str(Tint::END);
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

/// Makes the columns fit: first the longest addresses get shorter, then the least important columns go, then addresses shrink
/// to their minimum, and then other columns go.
fn fit(
    columns: &[Shown],
    weights: &[u8],
    widths: &mut [Option<Width>],
    limit: usize,
    may_drop: bool,
) {
    cut_addresses(columns, widths, limit, ADDRESS_ENOUGH);
    if may_drop {
        drop_columns(weights, widths, limit, WEIGHT_LOW);
    }
    cut_addresses(columns, widths, limit, 0);
    if may_drop {
        drop_columns(weights, widths, limit, u8::MAX);
    }
}

fn length(widths: &[Option<Width>]) -> usize {
    let total: usize = widths.iter().flatten().map(|width| width.full + BETWEEN.len()).sum();
    total.saturating_sub(BETWEEN.len())
}

/// Takes characters one by one from the widest address column, so that all share the cut. None becomes narrower than `enough`
/// or its own minimum.
fn cut_addresses(columns: &[Shown], widths: &mut [Option<Width>], limit: usize, enough: usize) {
    while length(widths) > limit {
        let addresses = columns.iter().zip(&mut *widths).filter(|(column, _)| column.is_address());
        let cuttable = addresses
            .filter_map(|(_, width)| width.as_mut())
            .filter(|width| width.full > width.least.max(enough));
        match cuttable.max_by_key(|width| width.full) {
            Some(width) => width.full -= 1,
            None => return,
        }
    }
}

/// Leaves out columns: the lowest weight first, and the last one among equals. Columns above `weight_max` and the last
/// remaining column stay.
fn drop_columns(weights: &[u8], widths: &mut [Option<Width>], limit: usize, weight_max: u8) {
    while length(widths) > limit && widths.iter().flatten().count() > 1 {
        let shown = weights.iter().zip(&mut *widths).filter(|(_, width)| width.is_some());
        match shown.rev().min_by_key(|(weight, _)| **weight) {
            Some((weight, width)) if *weight <= weight_max => *width = None,
            _ => return,
        }
    }
}

/// Shortens an IPv4 address in IPv6 form by the common prefix: `[::ffff:192.0.2.10]:443` becomes `…192.0.2.10:443`.
fn mapped(text: &str) -> Option<String> {
    let (address, port) = text.strip_prefix("[::ffff:")?.split_once(']')?;
    // Other addresses may begin the same way without an IPv4 address after it.
    address.contains('.').then(|| format!("…{address}{port}"))
}

/// Shortens an address but keeps the port whole. An address that is not [`mapped`] loses its middle.
fn shorten(text: &str, width: usize) -> String {
    if let Some(short) = mapped(text) {
        return short;
    }

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
