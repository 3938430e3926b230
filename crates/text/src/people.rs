//! Prints numbers for people.

use crate::Civil;

/// A time in nanoseconds with three significant digits: `870 ns`, `145 µs`, `1.34 s`, `14.0 min`.
pub fn time(ns: f64) -> String {
    let (value, unit) = in_unit(ns, 3);
    format!("{value} {unit}")
}

/// Two times in nanoseconds with two significant digits, for narrow columns; if both have the same unit, it is printed once:
/// `110-190ms`, `940µs-1.2s`.
pub fn time_range(low_ns: f64, high_ns: f64) -> String {
    let (low, high) = (in_unit(low_ns, 2), in_unit(high_ns, 2));
    if low.1 == high.1 {
        format!("{}-{}{}", low.0, high.0, high.1)
    } else {
        format!("{}{}-{}{}", low.0, low.1, high.0, high.1)
    }
}

/// A time in microseconds for a narrow column: `870 µs`, `1.2 ms`, `34 s`, `3m20s`, `5h10m`, `2d04h`.
pub fn short_time(us: u64) -> String {
    const SECOND_US: u64 = 1_000_000;
    let scaled = |value: f64, unit: &str| {
        let digits = usize::from(value < 9.95);
        format!("{value:.digits$} {unit}")
    };
    let seconds = us / SECOND_US;

    match us {
        0..1_000 => format!("{us} µs"),
        1_000..999_500 => scaled(us as f64 / 1e3, "ms"),
        999_500..60_000_000 => scaled(us as f64 / 1e6, "s"),
        _ if seconds < 3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The time of day in UTC: `12:34:56.789`.
pub fn time_of_day(unix_ns: u64) -> String {
    let ms = unix_ns / 1_000_000;
    let (s, ms) = (ms / 1_000, ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3_600 % 24, s / 60 % 60, s % 60)
}

/// A fraction as a percentage with up to two decimals, without trailing zeros: `14 %`, `0.1 %`, `9.75 %`.
pub fn percent(share: f64) -> String {
    let digits = format!("{:.2}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// A size in bytes, in binary units with three digits: `200 B`, `12.4 MiB`, `416 KiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] =
        [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let Some((name, scale)) = UNITS.iter().find(|(_, scale)| bytes >= *scale) else {
        return format!("{bytes} B");
    };

    let value = bytes as f64 / *scale as f64;
    let digits = usize::from(value < 99.95 && !bytes.is_multiple_of(*scale));
    format!("{value:.digits$} {name}")
}

/// A bit rate in decimal units: `850 bit/s`, `12.5 Mbit/s`.
pub fn bit_rate(bits_per_sec: f64) -> String {
    let (value, factor) = with_factor(bits_per_sec);
    format!("{value} {factor}bit/s")
}

/// A number with at most three significant digits, and `k` for thousands, `M` for millions and so on: `850`, `12.5k`, `1.2M`.
pub fn short_count(value: f64) -> String {
    let (value, factor) = with_factor(value);
    format!("{value}{factor}")
}

/// A number with at most three significant digits, and its decimal factor.
fn with_factor(value: f64) -> (String, &'static str) {
    let value = significant(value, 3);
    let (value, factor) = match value {
        1e12.. => (value / 1e12, "T"),
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };

    let digits = format!("{value:.2}");
    (digits.trim_end_matches('0').trim_end_matches('.').to_owned(), factor)
}

/// A whole number with commas between thousands: `1,234,567`.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);

    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }

    text
}

/// A count with its noun: `1 socket`, `2 sockets`.
pub fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Untrusted text with characters escaped that would control a terminal.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());

    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }

    out
}

/// Invisible characters, such as marks that change the text direction.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The date and time of `unix_ns` in UTC: `2026-11-20 17:13:55 UTC`.
pub fn date(unix_ns: u64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(unix_ns);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The date and time of `unix_ns` in UTC as in RFC 3339, to the nanosecond where it has one: `2026-11-20T17:13:55.25Z`.
pub fn rfc3339(unix_ns: u64) -> String {
    let Civil { year, month, day, hour, minute, second, .. } = Civil::of(unix_ns);
    let fraction = match unix_ns % 1_000_000_000 {
        0 => String::new(),
        nanoseconds => format!(".{nanoseconds:09}").trim_end_matches('0').to_owned(),
    };
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// The digits and the unit of a time. Minutes only begin at ten, so that times in seconds can be compared.
fn in_unit(ns: f64, digits: i32) -> (String, &'static str) {
    let (scale, unit) = match significant(ns, digits) {
        ..1e3 => (1.0, "ns"),
        ..1e6 => (1e3, "µs"),
        ..1e9 => (1e6, "ms"),
        ..600e9 => (1e9, "s"),
        _ => (60e9, "min"),
    };
    let value = significant(ns / scale, digits);

    // No measurement here is finer than a nanosecond.
    let decimals = match unit {
        "ns" => 0,
        _ => (digits - 1 - value.log10().floor() as i32).max(0),
    };
    (format!("{value:.*}", decimals as usize), unit)
}

fn significant(value: f64, digits: i32) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return value;
    }
    let step = 10_f64.powi(value.log10().floor() as i32 + 1 - digits);
    (value / step).round() * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (7.0, "7 ns"),
            (999.0, "999 ns"),
            (12_345.0, "12.3 µs"),
            (145_400.0, "145 µs"),
            (999_960.0, "1.00 ms"),
            (9_996_000.0, "10.0 ms"),
            (1_340_000_000.0, "1.34 s"),
            (45_300_000_000.0, "45.3 s"),
            (599_000_000_000.0, "599 s"),
            (840_000_000_000.0, "14.0 min"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn ranges_of_times_share_their_unit() {
        assert_eq!(time_range(110e6, 187e6), "110-190ms");
        assert_eq!(time_range(940e3, 1.2e9), "940µs-1.2s");
        assert_eq!(time_range(9.94e9, 9.96e9), "9.9-10s");
    }

    #[test]
    fn short_times() {
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
            assert_eq!(short_time(us), expected, "{us}");
        }
    }

    #[test]
    fn dates_and_times_of_day() {
        // date -u -d @951782400, @1795192435
        assert_eq!(date(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_795_195_435_000_000_000), "2026-11-20 17:23:55 UTC");
        assert_eq!(time_of_day(1_700_000_000_123_456_789), "22:13:20.123");
    }

    #[test]
    fn sizes_have_binary_units_and_three_digits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1_000, "1000 B"),
            (5_000, "4.9 KiB"),
            (425_984, "416 KiB"),
            (8 << 20, "8 MiB"),
            (13_002_342, "12.4 MiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn rates_have_decimal_units() {
        assert_eq!(bit_rate(850.0), "850 bit/s");
        assert_eq!(bit_rate(160e6), "160 Mbit/s");
        assert_eq!(bit_rate(12_345e6), "12.3 Gbit/s");
    }

    #[test]
    fn counts() {
        assert_eq!(
            [0, 12, 123, 1_234, 123_456, 1_234_567].map(grouped),
            ["0", "12", "123", "1,234", "123,456", "1,234,567"]
        );
        assert_eq!(
            [0.0, 0.5, 850.0, 12_500.0, 1_234_567.0, 999_999.0].map(short_count),
            ["0", "0.5", "850", "12.5k", "1.23M", "1M"]
        );
        assert_eq!([1, 2].map(|count| plural(count, "try", "tries")), ["1 try", "2 tries"]);
    }

    #[test]
    fn shares_have_the_digits_that_they_need() {
        assert_eq!([0.14, 0.001, 0.0975, 0.0].map(percent), ["14 %", "0.1 %", "9.75 %", "0 %"]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(escaped("a\x1b[31m\u{202e}é"), "a\\u{1b}[31m\\u{202e}é");
    }
}
