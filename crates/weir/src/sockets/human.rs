//! Figures for people: three digits at most, and the unit that needs no more.

/// Appends a time: `870 µs`, `1.2 ms`, `34 s`, `3m20s`, `5h10m`, `2d04h`.
pub(super) fn put_time(us: u64, out: &mut String) {
    const SECOND_US: u64 = 1_000_000;
    let seconds = us / SECOND_US;
    let text = match us {
        0..1_000 => format!("{us} µs"),
        1_000..999_500 => scaled(us as f64 / 1e3, "ms"),
        999_500..60_000_000 => scaled(us as f64 / 1e6, "s"),
        _ if seconds < 3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    };
    out.push_str(&text);
}

/// Appends an amount of bytes: `0`, `512 B`, `1.2 kB`, `34 MB`.
pub(super) fn put_bytes(bytes: u64, out: &mut String) {
    match bytes {
        0 => out.push('0'),
        _ => out.push_str(&with_factor(bytes as f64, "B")),
    }
}

/// Appends a rate of bytes: `0`, `512 B/s`, `34 MB/s`.
pub(super) fn put_byte_rate(bytes_per_sec: f64, out: &mut String) {
    match bytes_per_sec {
        ..0.05 => out.push('0'),
        _ => out.push_str(&with_factor(bytes_per_sec, "B/s")),
    }
}

/// Appends a rate of events: `0`, `0.5/s`, `1.2k/s`.
pub(super) fn put_rate(per_sec: f64, out: &mut String) {
    match per_sec {
        ..0.05 => out.push('0'),
        _ => {
            let text = with_factor(per_sec, "/s");
            out.extend(text.chars().filter(|&c| c != ' '));
        }
    }
}

/// Factors of 1000, each from where the one before would take four digits.
fn with_factor(value: f64, unit: &str) -> String {
    let mut value = value;
    for factor in ["", "k", "M", "G", "T", "P"] {
        if value < 999.5 {
            let unit = format!("{factor}{unit}");
            return if factor.is_empty() && value.fract() == 0.0 {
                format!("{value:.0} {unit}")
            } else {
                scaled(value, &unit)
            };
        }
        value /= 1e3;
    }
    format!("{:.0} P{unit}", value * 1e3)
}

fn scaled(value: f64, unit: &str) -> String {
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {unit}")
}

/// Appends the time of day, UTC: `12:34:56.789`.
pub(super) fn put_time_of_day(unix_ns: u64, out: &mut String) {
    let ms = unix_ns / 1_000_000;
    let (s, ms) = (ms / 1_000, ms % 1_000);
    out.push_str(&format!("{:02}:{:02}:{:02}.{ms:03}", s / 3_600 % 24, s / 60 % 60, s % 60));
}

/// Appends a text that somebody else chose, without what a terminal would obey.
pub(super) fn put_text(text: &str, out: &mut String) {
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

/// Marks that turn the direction of a line around, and such.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(put: impl FnOnce(&mut String)) -> String {
        let mut out = String::new();
        put(&mut out);
        out
    }

    #[test]
    fn times() {
        for (us, expected) in [
            (0, "0 µs"),
            (870, "870 µs"),
            (1_234, "1.2 ms"),
            (9_960, "10 ms"),
            (34_000, "34 ms"),
            (999_499, "999 ms"),
            (999_500, "1.0 s"),
            (59_000_000, "59 s"),
            (200_000_000, "3m20s"),
            (18_600_000_000, "5h10m"),
            (187_200_000_000, "2d04h"),
        ] {
            assert_eq!(text(|out| put_time(us, out)), expected, "{us}");
        }
    }

    #[test]
    fn bytes_and_rates() {
        for (bytes, expected) in
            [(0, "0"), (1, "1 B"), (999, "999 B"), (1_000, "1.0 kB"), (33_960_000, "34 MB")]
        {
            assert_eq!(text(|out| put_bytes(bytes, out)), expected, "{bytes}");
        }
        assert_eq!(text(|out| put_bytes(u64::MAX, out)), "18447 PB");
        assert_eq!(text(|out| put_byte_rate(1.25e9, out)), "1.2 GB/s");
        assert_eq!(text(|out| put_byte_rate(0.0, out)), "0");
        assert_eq!(text(|out| put_rate(0.5, out)), "0.5/s");
        assert_eq!(text(|out| put_rate(12_300.0, out)), "12k/s");
    }

    #[test]
    fn time_of_day() {
        let unix_ns = 1_700_000_000_123_456_789;
        assert_eq!(text(|out| put_time_of_day(unix_ns, out)), "22:13:20.123");
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(text(|out| put_text("a\x1b[31m\u{202e}é", out)), "a\\u{1b}[31m\\u{202e}é");
    }
}
