//! Sizes, counts, durations and rates as people write them: `8MiB`, `100k`, `250ms`, `1m30s`, `8Mbit/s`.
//!
//! A size without a unit is in bytes. A duration or rate needs its unit, because `5` could mean anything.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Why a text is not a quantity of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("it has no unit. Fix: write {0}")]
    NoUnit(String),
    #[error("it does not start with a number. Fix: write for example {0}")]
    NoNumber(&'static str),
    #[error("\"{unit}\" is not a unit. Fix: use one of {units}")]
    UnknownUnit { unit: String, units: &'static str },
    #[error(
        "\"{unit}\" is ambiguous. Fix: write {small} for 1000 or {large} for 1024 of the next smaller unit"
    )]
    Ambiguous { unit: String, small: &'static str, large: &'static str },
    #[error("it is not a whole number of {0}. Fix: write a whole number, or a smaller unit")]
    Fraction(&'static str),
    #[error("it is too large. Fix: write less")]
    TooLarge,
    #[error("it is out of range. Fix: write a number from {0} to {1}")]
    OutOfRange(u64, u64),
}

/// For functions that parse arguments and report errors as text.
impl From<UnitError> for String {
    fn from(error: UnitError) -> String {
        error.to_string()
    }
}

/// Factors of a number, largest first within each kind.
const FACTORS: &[(&str, u64)] = &[
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
    ("", 1),
];

const SIZE_UNIT_NAMES: &str =
    "B, k, M, G, T (1000) and Ki, Mi, Gi, Ti (1024), each with or without a B";
const COUNT_UNIT_NAMES: &str = "k, M, G, T (1000) and Ki, Mi, Gi, Ti (1024)";
const PER_SEC_UNIT_NAMES: &str =
    "k, M, G, T (1000) and Ki, Mi, Gi, Ti (1024), each with or without /s";
const RATE_UNIT_NAMES: &str = "bit/s and B/s, with k, M, G or T before them";

/// Parses a count: `1000`, `100k`, `64Ki` (65,536), `1.5M`.
///
/// # Errors
/// If the factor is unknown, or the value is not a whole number that fits.
pub fn parse_count<N: TryFrom<u64>>(text: &str) -> Result<N, UnitError> {
    let (number, factor) = split_number(text.trim()).ok_or(UnitError::NoNumber("100k"))?;
    fitting(scaled(number, factor_of(factor, factor, COUNT_UNIT_NAMES)?, "ones")?)
}

/// Parses a count from a range.
///
/// # Errors
/// As [`parse_count`], and if it is outside of the range or does not fit.
pub fn parse_count_in<N: TryFrom<u64>>(
    text: &str,
    range: RangeInclusive<u64>,
) -> Result<N, UnitError> {
    let outside = UnitError::OutOfRange(*range.start(), *range.end());
    match parse_count::<u64>(text) {
        Ok(number) if range.contains(&number) => N::try_from(number).map_err(|_| outside),
        Ok(_) | Err(UnitError::TooLarge) => Err(outside),
        Err(error) => Err(error),
    }
}

/// Parses a count from `MIN` to `MAX`, for options of commands.
///
/// # Errors
/// As [`parse_count_in`].
pub fn parse_count_of<const MIN: u64, const MAX: u64, N: TryFrom<u64>>(
    text: &str,
) -> Result<N, UnitError> {
    parse_count_in(text, MIN..=MAX)
}

/// Parses how many there are in a second: `1000`, `10k`, `10k/s`.
///
/// # Errors
/// If the factor is unknown, or the value is not a whole number that fits.
pub fn parse_per_sec<N: TryFrom<u64>>(text: &str) -> Result<N, UnitError> {
    let count = text.trim();
    let count = count.strip_suffix("/s").unwrap_or(count);
    parse_count(count).map_err(|error| match error {
        UnitError::UnknownUnit { unit, .. } => unknown(&unit, PER_SEC_UNIT_NAMES),
        error => error,
    })
}

/// Parses a percentage from 0 to 100, with its sign or without: `20%`, `0.5`.
///
/// # Errors
/// If it is not a number, or outside of the range.
pub fn parse_percent(text: &str) -> Result<f64, UnitError> {
    let number = text.trim();
    let number = number.strip_suffix('%').unwrap_or(number).trim_end();
    let (digits, unit) = split_number(number).ok_or(UnitError::NoNumber("20 or 0.5%"))?;
    if !unit.is_empty() {
        return Err(unknown(unit, "%"));
    }
    let percent: f64 = digits.parse().map_err(|_| UnitError::NoNumber("20 or 0.5%"))?;
    if percent > 100.0 { Err(UnitError::OutOfRange(0, 100)) } else { Ok(percent) }
}

/// Parses a size in bytes: `200`, `8MiB`, `1k` (1000), `1Ki` (1024), `1.5GiB`.
///
/// # Errors
/// If the unit is unknown, or the value is not a whole number of bytes that fits.
pub fn parse_size<N: TryFrom<u64>>(text: &str) -> Result<N, UnitError> {
    let (number, unit) = split_number(text.trim()).ok_or(UnitError::NoNumber("8MiB"))?;
    let factor = unit.strip_suffix('B').unwrap_or(unit);
    fitting(scaled(number, factor_of(factor, unit, SIZE_UNIT_NAMES)?, "bytes")?)
}

/// Parses a rate in bits per second: `8Mbit/s`, `8Mbps`, `1MB/s` (bytes). The `/s` is optional.
///
/// # Errors
/// If the unit is missing or unknown, or the value is not a whole number of bits below 2^64.
pub fn parse_bit_rate(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split_number(text.trim()).ok_or(UnitError::NoNumber("8Mbit/s"))?;
    if unit.is_empty() {
        return Err(UnitError::NoUnit(format!("{number}bit/s, or {number}B/s for bytes")));
    }

    let plain = unit.strip_suffix("/s").unwrap_or(unit);
    let bits = plain.strip_suffix("bit").or_else(|| plain.strip_suffix("bps"));
    let (factor, bits_each) = match (bits, plain.strip_suffix('B')) {
        (Some(factor), _) => (factor, 1),
        (None, Some(factor)) => (factor, 8),
        (None, None) => return Err(unknown(unit, RATE_UNIT_NAMES)),
    };
    let factor = factor_of(factor, unit, RATE_UNIT_NAMES)?;
    fitting(scaled(number, factor * bits_each, "bits")?)
}

/// Writes a rate so that [`parse_bit_rate`] returns the same: in whole bytes if possible, with the largest decimal factor
/// that divides it.
pub fn display_bit_rate(bits_per_sec: u64) -> String {
    let (value, unit) = match bits_per_sec.is_multiple_of(8) {
        true => (bits_per_sec / 8, "B/s"),
        false => (bits_per_sec, "bit/s"),
    };
    let decimal = FACTORS.iter().filter(|(name, _)| !name.ends_with('i'));
    let (name, factor) = largest(decimal, value).unwrap_or(("", 1));
    format!("{}{name}{unit}", value / factor)
}

/// Writes a size so that [`parse_size`] returns the same: in the largest unit that divides it.
pub fn display_size(bytes: u64) -> String {
    let (name, factor) = largest(FACTORS, bytes).unwrap_or(("", 1));
    format!("{}{name}B", bytes / factor)
}

const SECOND_NS: u64 = 1_000_000_000;

const DURATION_UNITS: &[(&str, u64)] = &[
    ("d", 86_400 * SECOND_NS),
    ("h", 3_600 * SECOND_NS),
    ("m", 60 * SECOND_NS),
    ("min", 60 * SECOND_NS),
    ("s", SECOND_NS),
    ("sec", SECOND_NS),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

const DURATION_UNIT_NAMES: &str = "ns, us, ms, s, m, h and d";

/// Parses a duration: `250ms`, `10s`, `1m`, `1m30s`, `1.5s`.
///
/// # Errors
/// If the unit is missing or unknown, or the value is not a whole number of nanoseconds below 2^64.
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

        let scale = find(DURATION_UNITS, unit).ok_or_else(|| unknown(unit, DURATION_UNIT_NAMES))?;
        total_ns = total_ns
            .checked_add(scaled(number, scale, "nanoseconds")?)
            .ok_or(UnitError::TooLarge)?;

        rest = next;
        if rest.is_empty() {
            break;
        }
    }
    u64::try_from(total_ns).map(Duration::from_nanos).map_err(|_| UnitError::TooLarge)
}

/// Writes a duration so that [`parse_duration`] returns the same: in the largest unit that divides it.
pub fn display_duration(duration: Duration) -> String {
    let Ok(total_ns) = u64::try_from(duration.as_nanos()) else {
        return format!("{}s", duration.as_secs());
    };
    let usual = DURATION_UNITS.iter().filter(|(name, _)| !matches!(*name, "min" | "sec" | "µs"));
    match largest(usual, total_ns) {
        Some((name, scale)) => format!("{}{name}", total_ns / scale),
        None => "0s".to_owned(),
    }
}

/// The first of these units that divides a number above 0 without remainder.
fn largest<'a>(
    units: impl IntoIterator<Item = &'a (&'static str, u64)>,
    value: u64,
) -> Option<(&'static str, u64)> {
    let mut units = units.into_iter();
    units.find(|(_, scale)| value >= *scale && value.is_multiple_of(*scale)).copied()
}

/// The factor with this name, which is part of `unit`.
fn factor_of(name: &str, unit: &str, units: &'static str) -> Result<u64, UnitError> {
    match name {
        "K" => Err(UnitError::Ambiguous { unit: unit.into(), small: "k", large: "Ki" }),
        _ => find(FACTORS, name).ok_or_else(|| unknown(unit, units)),
    }
}

fn unknown(unit: &str, units: &'static str) -> UnitError {
    UnitError::UnknownUnit { unit: unit.to_owned(), units }
}

fn fitting<N: TryFrom<u64>>(total: u128) -> Result<N, UnitError> {
    let total = u64::try_from(total).map_err(|_| UnitError::TooLarge)?;
    N::try_from(total).map_err(|_| UnitError::TooLarge)
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
fn scaled(number: &str, scale: u64, unit: &'static str) -> Result<u128, UnitError> {
    let scale = u128::from(scale);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));

    let fraction = fraction.trim_end_matches('0');
    let whole: u128 = whole.parse().map_err(|_| UnitError::TooLarge)?;
    let mut total = whole.checked_mul(scale).ok_or(UnitError::TooLarge)?;

    if !fraction.is_empty() {
        // A fraction with more digits than the largest scale has cannot give a whole number.
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
        size("200", 200, "200B");
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
        assert_eq!(parse_size::<u64>(text).unwrap_err().to_string(), message, "{text}");
    }

    #[test]
    fn sizes_that_are_none() {
        no_size("MiB", "it does not start with a number. Fix: write for example 8MiB");
        no_size("-1MiB", "it does not start with a number. Fix: write for example 8MiB");
        no_size("1.2.3M", "it does not start with a number. Fix: write for example 8MiB");
        no_size("", "it does not start with a number. Fix: write for example 8MiB");
        no_size(
            "8mib",
            "\"mib\" is not a unit. Fix: use one of B, k, M, G, T (1000) and Ki, Mi, Gi, Ti (1024), each with or without a B",
        );
        no_size(
            "1K",
            "\"K\" is ambiguous. Fix: write k for 1000 or Ki for 1024 of the next smaller unit",
        );
        no_size(
            "1.5B",
            "it is not a whole number of bytes. Fix: write a whole number, or a smaller unit",
        );
        no_size(
            "0.0000000000000000000000000001TiB",
            "it is not a whole number of bytes. Fix: write a whole number, or a smaller unit",
        );
        no_size("16777216TiB", "it is too large. Fix: write less");
        no_size("999999999999999999999999999999999999999999B", "it is too large. Fix: write less");
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
        no_duration("10", "it has no unit. Fix: write 10s for seconds, or 10ms");
        no_duration("1m30", "it has no unit. Fix: write 30s for seconds, or 30ms");
        no_duration("soon", "it does not start with a number. Fix: write for example 10s");
        no_duration("1y", "\"y\" is not a unit. Fix: use one of ns, us, ms, s, m, h and d");
        no_duration(
            "0.5ns",
            "it is not a whole number of nanoseconds. Fix: write a whole number, or a smaller unit",
        );
        no_duration("999999d", "it is too large. Fix: write less");
    }

    fn count(text: &str, expected: Option<u64>) {
        assert_eq!(parse_count(text).ok(), expected, "{text}");
    }

    #[test]
    fn counts_are_read() {
        count("0", Some(0));
        count("1000", Some(1_000));
        count("100k", Some(100_000));
        count("1.5M", Some(1_500_000));
        count("64Ki", Some(65_536));
        count("0.5", None);
        count("k", None);
        count("1kk", None);
        count("1K", None);
        count("-1", None);
        count("1.", None);
        count("1B", None);
        count("99999999999999999999", None);
        assert_eq!(parse_count::<u8>("256"), Err(UnitError::TooLarge));
    }

    fn rate(text: &str, bits_per_sec: u64, shown: &str) {
        assert_eq!(parse_bit_rate(text), Ok(bits_per_sec), "{text}");
        assert_eq!(display_bit_rate(bits_per_sec), shown);
        assert_eq!(parse_bit_rate(shown), Ok(bits_per_sec), "{shown}");
    }

    #[test]
    fn rates_are_read_and_written() {
        rate("1MB/s", 8_000_000, "1MB/s");
        rate("1MB", 8_000_000, "1MB/s");
        rate("1Mbit/s", 1_000_000, "125kB/s");
        rate("9bit", 9, "9bit/s");
        rate("1.5Gbps", 1_500_000_000, "187500kB/s");
        rate("0bit", 0, "0B/s");
        let wrong = |text| parse_bit_rate(text).unwrap_err().to_string();
        assert_eq!(wrong("100"), "it has no unit. Fix: write 100bit/s, or 100B/s for bytes");
        let units = "use one of bit/s and B/s, with k, M, G or T before them";
        assert_eq!(wrong("100k"), format!("\"k\" is not a unit. Fix: {units}"));
        assert_eq!(wrong("99999999999TB/s"), "it is too large. Fix: write less");
    }
}
