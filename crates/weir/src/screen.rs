//! What a command may do with the terminal that it writes to.

use crate::progress::rewrites_lines;
use std::env;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use text::{cut, plural};

/// Whether texts have colors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ink {
    Plain,
    Color,
}

impl Ink {
    /// Colors on a terminal, unless `NO_COLOR` is set or `TERM` is dumb.
    pub(crate) fn of(stream: &impl IsTerminal) -> Ink {
        let is_unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if rewrites_lines(stream) && !is_unwanted { Ink::Color } else { Ink::Plain }
    }

    /// The text with each line in the color of its tint.
    pub(crate) fn paint(self, text: &str, tint: fn(&str) -> Tint) -> String {
        if self == Ink::Plain {
            return text.to_owned();
        }
        let paint = |line: &str| {
            let text = line.trim_end_matches('\n');
            let end = &line[text.len()..];
            match tint(text) {
                Tint::Plain => line.to_owned(),
                tint => format!("{}{text}\x1b[0m{end}", tint.sequence()),
            }
        };
        text.split_inclusive('\n').map(paint).collect()
    }
}

/// How a text looks on a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tint {
    Plain,
    Dim,
    /// All is well.
    Good,
    /// Something to look at.
    Notice,
    /// Something is wrong.
    Alarm,
}

impl Tint {
    /// The terminal's sequence (ECMA-48, SGR).
    fn sequence(self) -> &'static str {
        match self {
            Tint::Plain => "",
            Tint::Dim => "\x1b[2m",
            Tint::Good => "\x1b[32m",
            Tint::Notice => "\x1b[33m",
            Tint::Alarm => "\x1b[31m",
        }
    }
}

/// Room on a terminal; `None` where there is any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Room {
    pub(crate) columns: Option<usize>,
    pub(crate) rows: Option<usize>,
}

impl Room {
    /// The terminal's size. `COLUMNS` says how long lines may be also where there is no terminal.
    pub(crate) fn of(stream: &impl AsFd) -> Room {
        let named: Option<usize> = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let size = sys::terminal::size(stream);
        Room {
            columns: named.filter(|&columns| columns > 0).or(size.map(|(columns, _)| columns)),
            rows: size.map(|(_, rows)| rows),
        }
    }

    /// Text for people, each line of which fits, but for long names.
    pub(crate) fn folded(self, text: &str) -> String {
        self.columns.map_or_else(|| text.to_owned(), |columns| text::folded(text, columns))
    }

    /// As much of a text as fits on a screen that is drawn over: long lines are cut, and the last one says how many rows are hidden.
    pub(crate) fn filled(self, text: &str) -> String {
        let columns = self.columns.unwrap_or(usize::MAX);
        // The last row is where the cursor stands.
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

    #[test]
    fn each_line_is_painted_by_what_it_is_about() {
        let tint = |line: &str| if line == "bad" { Tint::Alarm } else { Tint::Plain };
        assert_eq!(Ink::Color.paint("bad\nworse\n", tint), "\x1b[31mbad\x1b[0m\nworse\n");
        assert_eq!(Ink::Plain.paint("bad\n", tint), "bad\n");
    }
}
