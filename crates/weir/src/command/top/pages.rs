//! What each page shows: sentences, lines over time, and a table.

mod closes;
mod flows;
mod ledger;
mod sockets;

use super::grid::{Column, Entry, Grid};
use super::lines::{Line, range_ms};
use super::model::Model;
use super::wanted::Page;
use text::{Tint, short_count};

/// A page, ready to be drawn.
pub(super) struct Content<'a> {
    /// Sentences above the table.
    pub(super) said: Vec<(String, Tint)>,
    pub(super) trends: Vec<Trend<'a>>,
    pub(super) grid: Grid<'a>,
}

/// A line over time that is not of one row.
pub(super) struct Trend<'a> {
    pub(super) title: &'static str,
    pub(super) line: &'a Line,
    /// A figure in words.
    pub(super) figure: fn(f64) -> String,
}

impl Trend<'_> {
    /// What it is at the moment.
    pub(super) fn now(&self) -> String {
        self.line.latest().map_or("-".to_owned(), self.figure)
    }
}

/// What the current page shows.
pub(super) fn content(model: &Model) -> Content<'_> {
    match model.page {
        Page::Overview | Page::Sinks => ledger::content(model),
        Page::Tcp => sockets::content(model),
        Page::Closes => closes::content(model),
        Page::Flows => flows::content(model),
    }
}

impl<'a> Content<'a> {
    /// A table whose lines end with the latest ledger.
    fn of(model: &Model, columns: &'static [Column], entries: Vec<Entry<'a>>) -> Content<'a> {
        let begins = entries.iter().filter_map(|entry| entry.line?.begin_ms());
        let begin_ms = begins.min().unwrap_or_else(|| model.now_ms());
        let time = (model.now_ms(), range_ms(begin_ms, model.now_ms()));
        let grid = Grid { columns, entries, time };
        Content { said: Vec::new(), trends: Vec::new(), grid }
    }

    /// Leaves only rows with the filter's text in one of their cells.
    fn filtered(mut self, model: &Model) -> Content<'a> {
        let wanted = model.view().filter.to_lowercase();
        if !wanted.is_empty() {
            let passes = |cell: &String| cell.to_lowercase().contains(&wanted);
            self.grid.entries.retain(|entry| entry.cells.iter().any(passes));
        }
        self
    }

    fn say(&mut self, text: impl Into<String>, tint: Tint) {
        self.said.push((text.into(), tint));
    }

    /// Says why there is nothing, in the daemon's words. A mistake in a filter has a caret in its last line.
    fn refuse(&mut self, why: &str) {
        for line in why.lines() {
            self.say(text::escaped(line), Tint::Alarm);
        }
    }
}

/// A row without a line.
fn entry<'a>(cells: impl Into<Vec<String>>, tint: Tint) -> Entry<'a> {
    Entry { cells: cells.into(), line: None, tint }
}

fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or("-".to_owned(), show)
}

fn per_second(rate: f64) -> String {
    format!("{}/s", short_count(rate))
}

/// A share of all bytes.
fn share(part: u64, whole: u64) -> String {
    match (part, whole) {
        (0, _) => "0".to_owned(),
        (_, 0) => "-".to_owned(),
        (part, whole) => text::percent(part as f64 / whole as f64),
    }
}

fn bytes(bytes: u64) -> String {
    if bytes == 0 { "0".to_owned() } else { text::size(bytes) }
}
