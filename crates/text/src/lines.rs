//! Lines that fit a terminal. A character counts as one column, a color sequence as none.

/// The line, or as much of it as fits into `columns`, with `…` at its end. Sequences of colors all stay.
pub fn cut(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let mut kept = String::new();
    let mut mark = (columns > 0).then_some('…');
    let mut left = columns.saturating_sub(1);
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c == '\x1b' {
            kept.push(c);
            for c in rest.by_ref() {
                kept.push(c);
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else if left > 0 {
            kept.push(c);
            left -= 1;
        } else {
            kept.extend(mark.take());
        }
    }
    kept
}

/// A name that fits into `columns`: a long one is cut in the middle, because the end of an address or path is the most
/// informative.
pub fn cut_middle(name: &str, columns: usize) -> String {
    let length = name.chars().count();
    if length <= columns {
        return name.to_owned();
    }
    let room = columns.saturating_sub(1);
    let front = room / 2;
    let back = room - front;
    let kept = name.chars().take(front).chain((columns > 0).then_some('…'));
    kept.chain(name.chars().skip(length - back)).collect()
}

/// The width of a text in columns.
fn width(text: &str) -> usize {
    let mut rest = text.chars();
    let mut columns = 0;
    while let Some(c) = rest.next() {
        match c {
            // A sequence ends with its first letter (ECMA-48, SGR).
            '\x1b' => drop(rest.find(char::is_ascii_alphabetic)),
            _ => columns += 1,
        }
    }
    columns
}

/// The text with lines longer than `columns` broken between words. Continuation lines are indented two columns further than
/// the line's beginning. A word longer than a line stays whole.
pub fn folded(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.split_inclusive('\n') {
        match width(line.trim_end()) > columns {
            true => fold(line, columns, &mut out),
            false => out.push_str(line),
        }
    }
    out
}

fn fold(line: &str, columns: usize, out: &mut String) {
    let words = line.trim_start_matches(' ');
    let (indent, further) = line.split_at(line.len() - words.len());
    out.push_str(indent);

    let mut used = indent.len();
    for (at, word) in further.trim_end().split(' ').enumerate() {
        let length = width(word);
        if at > 0 && used + 1 + length > columns {
            // Between words may be several spaces.
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.push_str(indent);
            out.push_str("  ");
            used = indent.len() + 2;
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }

    if line.ends_with('\n') {
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut() {
        for (columns, expected) in
            [(0, ""), (1, "…"), (4, "dat…"), (8, "datagram"), (9, "datagram")]
        {
            assert_eq!(cut("datagram", columns), expected);
        }
        assert_eq!(cut("\x1b[31mdatagram\x1b[0m", 8), "\x1b[31mdatagram\x1b[0m");
        assert_eq!(cut("\x1b[31mdatagram\x1b[0m", 4), "\x1b[31mdat…\x1b[0m");
        for (columns, expected) in
            [(0, ""), (1, "…"), (5, "ho…14"), (9, "host…:514"), (20, "host.example:514")]
        {
            assert_eq!(cut_middle("host.example:514", columns), expected);
        }
    }

    #[test]
    fn lines_are_broken_between_words() {
        let text = "short\n  what helps: read faster, or ask for a larger buffer\nend\n";
        let expected =
            "short\n  what helps: read\n    faster, or ask for a\n    larger buffer\nend\n";
        assert_eq!(folded(text, 24), expected);
        assert_eq!(folded(text, 80), text);
        assert_eq!(folded("late 0  early 0", 8), "late 0\n  early\n  0");
        assert_eq!(folded("\x1b[31mred\x1b[0m and more", 12), "\x1b[31mred\x1b[0m and more");
    }

    #[test]
    fn a_word_that_is_longer_than_a_line_stays_whole() {
        assert_eq!(
            folded("at kafka://broker.example:9092 now", 10),
            "at\n  kafka://broker.example:9092\n  now"
        );
        assert_eq!(folded("aaaaaaaaaaaa", 4), "aaaaaaaaaaaa");
    }
}
