//! The terminal that a command writes to: its size and colors.

use crate::progress::rewrites_lines;
use std::env;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use text::{Ink, Tint, cut, plural};

/// When texts have colors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    Always,
    Never,
}

/// The command line's choice, for the whole process.
static COLOR: OnceLock<Color> = OnceLock::new();

/// Chooses when texts have colors. Only the first call counts.
pub(crate) fn choose(color: Color) {
    COLOR.get_or_init(|| color);
}

/// Whether output to this stream has colors.
pub(crate) fn ink_of(stream: &impl IsTerminal) -> Ink {
    let is_unwanted = || env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match COLOR.get().copied().unwrap_or(Color::Auto) {
        Color::Always => Ink::Color,
        Color::Auto if rewrites_lines(stream) && !is_unwanted() => Ink::Color,
        Color::Auto | Color::Never => Ink::Plain,
    }
}

/// The text folded to the terminal's width and with its colors. Tints are chosen for whole lines, before they are folded.
pub(crate) fn for_people(
    stream: &(impl AsFd + IsTerminal),
    text: &str,
    tint: impl Fn(&str) -> Tint,
) -> String {
    let (room, ink) = (Room::of(stream), ink_of(stream));
    let line = |line: &str| ink.paint(&room.folded(line), |_| tint(line));
    text.split_inclusive('\n').map(line).collect()
}

/// Space on a terminal; `None` means unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Room {
    pub(crate) columns: Option<usize>,
    pub(crate) rows: Option<usize>,
}

impl Room {
    /// The terminal's size. `COLUMNS` sets the line length even if there is no terminal.
    pub(crate) fn of(stream: &impl AsFd) -> Room {
        let named: Option<usize> = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let size = sys::terminal::size(stream);
        Room {
            columns: named.filter(|&columns| columns > 0).or(size.map(|(columns, _)| columns)),
            rows: size.map(|(_, rows)| rows),
        }
    }

    /// The text folded to the width. Only long names exceed it.
    pub(crate) fn folded(self, text: &str) -> String {
        self.columns.map_or_else(|| text.to_owned(), |columns| text::folded(text, columns))
    }

    /// The part of a text that fits on a redrawn screen: long lines are cut, and the last line says how many rows are hidden.
    pub(crate) fn filled(self, text: &str) -> String {
        let columns = self.columns.unwrap_or(usize::MAX);
        // The cursor takes the last row.
        let rows = self.rows.map_or(usize::MAX, |rows| rows.saturating_sub(1));
        let all = text.lines().count();
        let shown = if all <= rows { all } else { rows.saturating_sub(1) };

        let mut screen: String =
            text.lines().take(shown).map(|line| cut(line, columns) + "\n").collect();
        if shown < all {
            let hidden = plural((all - shown) as u64, "row", "rows");
            screen.push_str(&cut(&format!("… {hidden} hidden"), columns));
            screen.push('\n');
        }
        screen
    }
}

/// Compares a text, as terminals of three widths show it, with the copy in the repository (see [`testkit::screens`]).
#[cfg(test)]
pub(crate) fn check(name: &str, text: impl Fn(Room) -> String) {
    testkit::screens("crates/weir/tests/weir/screens", name, |columns| {
        let size = testkit::TERMINALS.iter().find(|(width, _)| *width == columns);
        let rows = size.map(|(_, rows)| (*rows).into());
        let room = Room { columns: Some(columns.into()), rows };
        room.folded(&text(room))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_filled_and_not_more() {
        let room = Room { columns: Some(14), rows: Some(4) };
        assert_eq!(room.filled("one\ntwo\nthree\n"), "one\ntwo\nthree\n");
        let text = "a rather long line\ntwo\nthree\nfour\n";
        assert_eq!(room.filled(text), "a rather long…\ntwo\n… 2 rows hidd…\n");
        assert_eq!(Room::default().filled(text), text);
    }
}
