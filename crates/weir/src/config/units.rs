//! Sizes and durations as people write them: `8MiB`, `1k`, `250ms`, `1m30s`.

use std::fmt::Write;
use std::time::Duration;

/// Why a text is not a size or a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("it has no unit; write {0}")]
    NoUnit(String),
    #[error("it does not start with a number; write for example {0}")]
    NoNumber(&'static str),
    #[error("\"{unit}\" is not a unit; the units are {units}")]
    UnknownUnit { unit: String, units: &'static str },
    #[error(
        "\"{unit}\" is ambiguous; {small} is 1000 and {large} is 1024 of the next smaller unit"
    )]
    Ambiguous { unit: String, small: &'static str, large: &'static str },
    #[error("it is not a whole number of {0}")]
    Fraction(&'static str),
    #[error("it is too large")]
    TooLarge,
}

const SIZE_UNITS: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
    ("B", 1),
];

/// The units of a size, for messages and documentation.
pub const SIZE_UNIT_NAMES: &str =
    "B, k, M, G, T (1000) and Ki, Mi, Gi, Ti (1024), each with or without a B";

/// Reads a size in bytes: `8MiB`, `1k` (1000), `1Ki` (1024), `1.5GiB`.
///
/// # Errors
/// Without a unit, with an unknown one, or when it is not a whole number of bytes below 2^64.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    let (number, unit) = split_number(text).ok_or(UnitError::NoNumber("8MiB"))?;
    let scale = match unit {
        "" => {
            return Err(UnitError::NoUnit(format!("{number}B for bytes, or a size such as 8MiB")));
        }
        "K" | "KB" | "kb" => {
            return Err(UnitError::Ambiguous { unit: unit.into(), small: "k", large: "Ki" });
        }
        _ => find(SIZE_UNITS, unit).ok_or_else(|| UnitError::UnknownUnit {
            unit: unit.to_owned(),
            units: SIZE_UNIT_NAMES,
        })?,
    };
    scaled(number, u128::from(scale), "bytes")?.try_into().map_err(|_| UnitError::TooLarge)
}

/// Writes a size so that [`parse_size`] reads the same number: in the largest unit that divides it.
pub fn display_size(bytes: u64) -> String {
    let exact = SIZE_UNITS
        .iter()
        .filter(|(name, _)| name.ends_with('B'))
        .find(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale));
    match exact {
        Some((name, scale)) => format!("{}{name}", bytes / scale),
        None => format!("{bytes}B"),
    }
}

/// Writes a size for people, to three digits: `8.4 MiB`.
pub fn approximate_size(bytes: u64) -> String {
    let binary = SIZE_UNITS.iter().filter(|(name, _)| name.ends_with("iB"));
    for (name, scale) in binary {
        if bytes >= *scale {
            let value = bytes as f64 / *scale as f64;
            let digits = usize::from(value < 99.95 && !bytes.is_multiple_of(*scale));
            return format!("{value:.digits$} {name}");
        }
    }
    format!("{bytes} B")
}

const SECOND_NS: u64 = 1_000_000_000;

const DURATION_UNITS: &[(&str, u64)] = &[
    ("d", 86_400 * SECOND_NS),
    ("h", 3_600 * SECOND_NS),
    ("m", 60 * SECOND_NS),
    ("min", 60 * SECOND_NS),
    ("s", SECOND_NS),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// The units of a duration, for messages and documentation.
pub const DURATION_UNIT_NAMES: &str = "ns, us, ms, s, m, h and d";

/// Reads a duration: `250ms`, `10s`, `1m`, `1m30s`, `1.5s`.
///
/// # Errors
/// Without a unit, with an unknown one, or when it is not a whole number of nanoseconds below 2^64.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let mut rest = text.trim();
    let mut total_ns: u128 = 0;
    loop {
        let (number, tail) = split_number(rest).ok_or(UnitError::NoNumber("10s"))?;
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, next) = tail.split_at(end);
        if unit.is_empty() {
            return Err(UnitError::NoUnit(format!("{number}s for seconds, or {number}ms")));
        }
        let scale = find(DURATION_UNITS, unit).ok_or_else(|| UnitError::UnknownUnit {
            unit: unit.to_owned(),
            units: DURATION_UNIT_NAMES,
        })?;
        total_ns = total_ns
            .checked_add(scaled(number, u128::from(scale), "nanoseconds")?)
            .ok_or(UnitError::TooLarge)?;
        rest = next;
        if rest.is_empty() {
            break;
        }
    }
    u64::try_from(total_ns).map(Duration::from_nanos).map_err(|_| UnitError::TooLarge)
}

/// Writes a duration so that [`parse_duration`] reads the same: in the largest unit that divides it.
pub fn display_duration(duration: Duration) -> String {
    let total_ns = duration.as_nanos();
    let exact = DURATION_UNITS
        .iter()
        .filter(|(name, _)| !matches!(*name, "min" | "µs"))
        .map(|(name, scale)| (name, u128::from(*scale)))
        .find(|(_, scale)| total_ns >= *scale && total_ns.is_multiple_of(*scale));
    let mut text = String::new();
    match exact {
        Some((name, scale)) => write!(text, "{}{name}", total_ns / scale),
        None => write!(text, "{total_ns}s"),
    }
    .expect("writing to a string does not fail");
    text
}

fn find(units: &[(&str, u64)], wanted: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == wanted).map(|(_, scale)| *scale)
}

/// Splits `8.5 MiB` into `8.5` and `MiB`; `None` unless it starts with a digit.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let well_formed = number.starts_with(|c: char| c.is_ascii_digit())
        && number.ends_with(|c: char| c.is_ascii_digit())
        && number.matches('.').count() <= 1;
    well_formed.then(|| (number, unit.trim()))
}

/// `number`, which may have a fraction, times `scale`: exact or an error.
fn scaled(number: &str, scale: u128, unit: &'static str) -> Result<u128, UnitError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    let whole: u128 = whole.parse().map_err(|_| UnitError::TooLarge)?;
    let mut total = whole.checked_mul(scale).ok_or(UnitError::TooLarge)?;
    if !fraction.is_empty() {
        // More digits than the largest scale has cannot come out whole.
        let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 18);
        let power = 10_u128.pow(digits.ok_or(UnitError::Fraction(unit))?);
        let part: u128 = fraction.parse().map_err(|_| UnitError::Fraction(unit))?;
        let product = part.checked_mul(scale).ok_or(UnitError::TooLarge)?;
        if !product.is_multiple_of(power) {
            return Err(UnitError::Fraction(unit));
        }
        total = total.checked_add(product / power).ok_or(UnitError::TooLarge)?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str, bytes: u64, shown: &str) {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
        assert_eq!(display_size(bytes), shown);
        assert_eq!(parse_size(shown), Ok(bytes), "{shown}");
    }

    #[test]
    fn sizes_are_read_and_written() {
        size("8MiB", 8_388_608, "8MiB");
        size("8 MiB", 8_388_608, "8MiB");
        size("8Mi", 8_388_608, "8MiB");
        size("1k", 1_000, "1kB");
        size("1kB", 1_000, "1kB");
        size("1Ki", 1_024, "1KiB");
        size("1.5GiB", 1_610_612_736, "1536MiB");
        size("208KiB", 212_992, "208KiB");
        size("1M", 1_000_000, "1MB");
        size("0B", 0, "0B");
        size("1500B", 1_500, "1500B");
        size("16777215TiB", 16_777_215 << 40, "16777215TiB");
    }

    fn no_size(text: &str, message: &str) {
        assert_eq!(parse_size(text).unwrap_err().to_string(), message, "{text}");
    }

    #[test]
    fn sizes_that_are_none() {
        no_size("8388608", "it has no unit; write 8388608B for bytes, or a size such as 8MiB");
        no_size("MiB", "it does not start with a number; write for example 8MiB");
        no_size("-1MiB", "it does not start with a number; write for example 8MiB");
        no_size("1.2.3M", "it does not start with a number; write for example 8MiB");
        no_size("", "it does not start with a number; write for example 8MiB");
        no_size(
            "8mib",
            "\"mib\" is not a unit; the units are B, k, M, G, T (1000) and Ki, Mi, Gi, Ti (1024), each with or without a B",
        );
        no_size("1K", "\"K\" is ambiguous; k is 1000 and Ki is 1024 of the next smaller unit");
        no_size("1.5B", "it is not a whole number of bytes");
        no_size("0.0000000000000000000000000001TiB", "it is not a whole number of bytes");
        no_size("16777216TiB", "it is too large");
        no_size("999999999999999999999999999999999999999999B", "it is too large");
    }

    fn duration(text: &str, ns: u64, shown: &str) {
        assert_eq!(parse_duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        assert_eq!(display_duration(Duration::from_nanos(ns)), shown);
        assert_eq!(parse_duration(shown), Ok(Duration::from_nanos(ns)), "{shown}");
    }

    #[test]
    fn durations_are_read_and_written() {
        duration("250ms", 250_000_000, "250ms");
        duration("10s", 10 * SECOND_NS, "10s");
        duration("1m", 60 * SECOND_NS, "1m");
        duration("1min", 60 * SECOND_NS, "1m");
        duration("1m30s", 90 * SECOND_NS, "90s");
        duration("1.5s", 1_500_000_000, "1500ms");
        duration("90m", 5_400 * SECOND_NS, "90m");
        duration("1d", 86_400 * SECOND_NS, "1d");
        duration("3µs", 3_000, "3us");
        duration("0s", 0, "0s");
        duration("1ns", 1, "1ns");
    }

    fn no_duration(text: &str, message: &str) {
        assert_eq!(parse_duration(text).unwrap_err().to_string(), message, "{text}");
    }

    #[test]
    fn durations_that_are_none() {
        no_duration("10", "it has no unit; write 10s for seconds, or 10ms");
        no_duration("1m30", "it has no unit; write 30s for seconds, or 30ms");
        no_duration("soon", "it does not start with a number; write for example 10s");
        no_duration("1y", "\"y\" is not a unit; the units are ns, us, ms, s, m, h and d");
        no_duration("0.5ns", "it is not a whole number of nanoseconds");
        no_duration("999999d", "it is too large");
    }

    #[test]
    fn sizes_for_people_have_three_digits() {
        assert_eq!(approximate_size(8 << 20), "8 MiB");
        assert_eq!(approximate_size(425_984), "416 KiB");
        assert_eq!(approximate_size(13_002_342), "12.4 MiB");
        assert_eq!(approximate_size(100), "100 B");
    }
}
