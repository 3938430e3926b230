//! Whether a program prints what a page says that it prints, but for figures: times, ports, ids, counts and rates.

use std::net::{IpAddr, SocketAddr};

/// A line of it stands for any number of lines.
const ANY_LINES: &str = "…";
/// Stands for a figure and its unit.
const FIGURE: &str = "#";
const UNITS: [&str; 13] =
    ["%", "B", "KiB", "MiB", "GiB", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "ms", "ns", "s", "µs"];

/// Whether this is what was promised, from the first line to the last.
pub(super) fn is_all(promised: &[String], printed: &str) -> bool {
    matches(&normalized(promised), &normalized(printed.lines()))
}

/// Whether lines that follow each other are what was promised.
pub(super) fn has_all(promised: &[String], printed: &str) -> bool {
    let (promised, printed) = (normalized(promised), normalized(printed.lines()));
    (0..printed.len())
        .any(|from| (from..=printed.len()).any(|to| matches(&promised, &printed[from..to])))
}

fn matches(promised: &[String], printed: &[String]) -> bool {
    match promised.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == ANY_LINES => {
            (0..=printed.len()).any(|from| matches(rest, &printed[from..]))
        }
        Some((first, rest)) => printed.first() == Some(first) && matches(rest, &printed[1..]),
    }
}

/// Lines without figures. Empty ones are left out, and those about what this user's privileges hide.
fn normalized(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let lines = lines.into_iter().map(|line| without_figures(line.as_ref()));
    lines.filter(|line| !line.is_empty() && !line.contains(" cannot see which sockets ")).collect()
}

/// The words of a line with one space between two; figures with their units, and bars, are all alike.
fn without_figures(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace().filter(|word| !word.chars().all(is_of_a_bar)) {
        let word = word_without_figures(word);
        let is_after_figure = words.last().is_some_and(|last| last == FIGURE);
        if !(is_after_figure && (word == FIGURE || UNITS.contains(&word.as_str()))) {
            words.push(word);
        }
    }
    words.join(" ")
}

fn is_of_a_bar(c: char) -> bool {
    ('▁'..='▏').contains(&c)
}

fn word_without_figures(word: &str) -> String {
    if word.starts_with('{') {
        return json_without_numbers(word);
    }
    let end = word.trim_end_matches([',', ':', ';', ')']);
    let tail = &word[end.len()..];
    if is_figure(end) {
        // A mark behind a figure says nothing either.
        return if tail.contains([')', ';']) {
            format!("{FIGURE}{tail}")
        } else {
            FIGURE.to_owned()
        };
    }

    let (front, address) = end.split_at(end.find("://").map_or(0, |at| at + 3));
    if address.parse::<IpAddr>().is_ok() {
        return word.to_owned();
    }
    if let Ok(address) = address.parse::<SocketAddr>() {
        return format!("{front}{}:{FIGURE}{tail}", address.ip());
    }

    let (front, core) = end.split_at(end.rfind([':', '(']).map_or(0, |at| at + 1));
    if is_figure(core) { format!("{front}{FIGURE}{tail}") } else { word.to_owned() }
}

/// Counts, shares, times, sizes and rates, and ids in hexadecimal.
fn is_figure(word: &str) -> bool {
    let is_id = word.len() >= 16 && word.chars().all(|c| c.is_ascii_hexdigit());
    let figure = word.trim_start_matches(['±', '+', '-', '≥']);
    let is_address = word.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok();
    let is_figure = figure.starts_with(|c: char| c.is_ascii_digit())
        && figure.chars().all(|c| c.is_ascii_digit() || "kKMGTiB.,:%/s".contains(c));
    is_id || is_figure && !is_address
}

/// The text with the number behind each name left out.
fn json_without_numbers(text: &str) -> String {
    let mut parts = text.split("\":");
    let first = parts.next().unwrap_or_default().to_owned();
    first
        + &parts
            .map(|part| {
                let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
                let number = if rest.len() < part.len() { FIGURE } else { "" };
                format!("\":{number}{rest}")
            })
            .collect::<String>()
}

#[test]
fn figures_are_alike_and_words_are_not() {
    let all = |promised: &str, printed: &str| {
        is_all(&promised.lines().map(str::to_owned).collect::<Vec<_>>(), printed)
    };
    assert!(all("  lost    12  refused\n", "lost           1,234  refused"));
    assert!(all("in: 11.4 MiB (19.76 %)", "in: 900 B (2 %)"));
    assert!(all("10.0.0.1:514  5.24 Gbit/s  ±4.04 %  ███▉", "10.0.0.1:99  1 kbit/s  -10 +11 %"));
    assert!(all(
        "run 49a2795084f9bbc4 at 12:34:56.789\n…\nend",
        "run 0123456789abcdef at 1:2\na\nb\nend"
    ));
    assert!(all("{\"port\":443,\"name\":\"a1\"}", "{\"port\":1,\"name\":\"a1\"}"));
    assert!(all("python3(12) inode:34 rmem:5.7KiB", "python3(999) inode:1 rmem:3MiB"));
    for (promised, printed) in [
        ("{\"name\":\"a1\"}", "{\"name\":\"a2\"}"),
        ("lost 12 refused", "lost 12 queue_full"),
        ("lost 12 refused", "lost refused"),
        ("10.0.0.1 is lost", "10.0.0.2 is lost"),
        ("one\ntwo", "one"),
        ("one", "one\ntwo"),
    ] {
        assert!(!all(promised, printed), "{promised} {printed}");
    }
    let lines = ["head 1".to_owned(), "row 2".to_owned()];
    assert!(has_all(&lines, "talk\nhead 7\nrow 9\nhead 8\n"));
    assert!(!has_all(&lines, "talk\nhead 7\nhead 8\nrow x\n"));
}
