//! How many columns a text takes on a terminal, and texts cut to fit.

use ratatui::style::Style;
use ratatui::text::Span;

/// Columns at the end of a name that stay when it is cut: the longest port with its colon.
const END: usize = 6;

/// The columns that a text takes: some characters take two, some none.
pub(super) fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { Span::raw(text).width() }
}

/// The text, or as much of it as fits, with `…` at its end.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    match columns.checked_sub(1) {
        Some(room) => front(text, room) + "…",
        None => String::new(),
    }
}

/// A name that fits: a long one loses its middle, never its port.
pub(super) fn cut_middle(name: &str, columns: usize) -> String {
    if width(name) <= columns {
        return name.to_owned();
    }
    let Some(room) = columns.checked_sub(1) else { return String::new() };
    let back = (room - room / 2).max(END.min(room));
    front(name, room - back) + "…" + &end(name, back)
}

/// The text with spaces behind it, so that it takes all columns.
pub(super) fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", spaces(text, columns))
}

/// The text with spaces in front of it.
pub(super) fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", spaces(text, columns))
}

fn spaces(text: &str, columns: usize) -> String {
    " ".repeat(columns.saturating_sub(width(text)))
}

fn front(text: &str, columns: usize) -> String {
    kept(pieces(text).into_iter(), columns).concat()
}

fn end(text: &str, columns: usize) -> String {
    let mut kept = kept(pieces(text).into_iter().rev(), columns);
    kept.reverse();
    kept.concat()
}

/// The first pieces that fit together.
fn kept(pieces: impl Iterator<Item = String>, columns: usize) -> Vec<String> {
    let mut used = 0;
    let fits = |piece: &String| {
        used += width(piece);
        used <= columns
    };
    pieces.take_while(fits).collect()
}

/// What a terminal shows as one character each.
fn pieces(text: &str) -> Vec<String> {
    let span = Span::raw(text);
    span.styled_graphemes(Style::new()).map(|piece| piece.symbol.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!([width("weir"), width("堰"), width("e\u{301}")], [4, 2, 1]);
        assert_eq!(cut("堰堰堰", 6), "堰堰堰");
        assert_eq!(cut("堰堰堰", 5), "堰堰…");
        assert_eq!(cut("堰堰堰", 4), "堰…");
        assert_eq!([cut("weir", 0), cut("weir", 1)], ["", "…"]);
        assert_eq!([left("堰", 3), right("堰", 3)], ["堰 ", " 堰"]);
    }

    #[test]
    fn a_port_stays_whole_wherever_there_is_room_for_it() {
        let name = "syslog → udp://collector.example.com:65535";
        for columns in 7..60 {
            let cut = cut_middle(name, columns);
            assert!(cut.ends_with(":65535") && width(&cut) <= columns, "{cut}");
        }
        assert_eq!(cut_middle("[2001:db8:1:2::3]:443", 16), "[2001:d…::3]:443");
        assert_eq!(cut_middle("堰堰堰堰:514", 9), "堰…堰:514");
        assert_eq!([cut_middle("weir", 0), cut_middle("weir", 1)], ["", "…"]);
    }
}
