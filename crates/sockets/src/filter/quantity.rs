//! Numbers with units, as written in a filter.

use std::fmt;
use std::time::Duration;
use text::units::{self, UnitError};

/// What a number measures, and the unit in which it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// A plain number.
    Count,
    /// Bytes.
    Bytes,
    /// Time, in microseconds.
    Duration,
    /// Bits per second.
    Rate,
    /// A user id.
    User,
    /// A DSCP: 6 bits (RFC 2474).
    Dscp,
}

/// Names of DSCPs in addition to `cs0` to `cs7` (RFC 2474) and `af11` to `af43` (RFC 2597), from RFC 3246 and 5865. The first
/// name of a number is printed. `le` (RFC 8622) is an operator of the language, so that DSCP is written 1.
const DSCP_NAMES: &[(&str, u64)] =
    &[("ef", 46), ("va", 44), ("cs0", 0), ("default", 0), ("df", 0), ("be", 0)];

/// The DSCP with a name.
fn dscp_named(name: &str) -> Option<u64> {
    if let Some((_, number)) = DSCP_NAMES.iter().find(|(known, _)| *known == name) {
        return Some(*number);
    }

    let digits = |text: &str| text.bytes().map(|byte| u64::from(byte.wrapping_sub(b'0'))).collect();
    let class: Vec<u64> = name.strip_prefix("cs").map(digits).unwrap_or_default();
    let assured: Vec<u64> = name.strip_prefix("af").map(digits).unwrap_or_default();
    match (class.as_slice(), assured.as_slice()) {
        ([class @ 0..=7], []) => Some(8 * class),
        ([], [class @ 1..=4, precedence @ 1..=3]) => Some(8 * class + 2 * precedence),
        _ => None,
    }
}

/// The name of a DSCP, if it has one.
fn dscp_name(number: u64) -> Option<String> {
    if let Some((name, _)) = DSCP_NAMES.iter().find(|(_, known)| *known == number) {
        return Some((*name).to_owned());
    }
    match (number / 8, number % 8) {
        (class @ 0..=7, 0) => Some(format!("cs{class}")),
        (class @ 1..=4, low @ (2 | 4 | 6)) => Some(format!("af{class}{}", low / 2)),
        _ => None,
    }
}

impl Quantity {
    /// Parses a number, followed by a unit if the quantity requires one; 0 needs none. Decimals are accepted if they are exact.
    pub(super) fn parse(self, text: &str) -> Result<u64, UnitError> {
        if let (Quantity::Count | Quantity::User | Quantity::Dscp, Some(hex)) =
            (self, text.strip_prefix("0x"))
        {
            let number = u64::from_str_radix(hex, 16).map_err(|_| UnitError::NoNumber("0x1f"))?;
            return match self {
                Quantity::Dscp if number > 63 => Err(UnitError::TooLarge),
                _ => Ok(number),
            };
        }

        match self {
            _ if text == "0" => Ok(0),
            Quantity::Dscp => match dscp_named(&text.to_ascii_lowercase()) {
                Some(number) => Ok(number),
                None => match text.parse() {
                    Ok(number @ 0..=63) => Ok(number),
                    Ok(_) => Err(UnitError::TooLarge),
                    Err(_) => Err(UnitError::NoNumber("46")),
                },
            },
            Quantity::Count => units::parse_count(text),
            Quantity::User => text.parse().map_err(|_| UnitError::NoNumber("1000")),
            Quantity::Bytes => units::parse_size(text),
            Quantity::Duration => whole_us(units::parse_duration(text)?),
            Quantity::Rate => units::parse_bit_rate(text),
        }
    }

    /// An example of a value of this kind.
    pub(super) const fn example(self) -> &'static str {
        match self {
            Quantity::Count => "a number, such as `10` or `2k`",
            Quantity::Bytes => "a size, such as `1500`, `64KiB` or `1MB`",
            Quantity::Duration => "a time with its unit (us, ms, s, min, h, d), such as `100ms`",
            Quantity::Rate => "a rate with its unit, such as `1MB/s` (bytes) or `8Mbit/s` (bits)",
            Quantity::User => "a user's name or number",
            Quantity::Dscp => "a class such as `ef`, `cs5` or `af41`, or a number from 0 to 63",
        }
    }

    /// Prints a value so that [`Quantity::parse`] returns the same.
    pub(super) fn write(self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Duration if value > 0 => {
                f.write_str(&units::display_duration(Duration::from_micros(value)))
            }
            Quantity::Rate if value > 0 => f.write_str(&units::display_bit_rate(value)),
            Quantity::Dscp => match dscp_name(value) {
                Some(name) => f.write_str(&name),
                None => write!(f, "{value}"),
            },
            _ => write!(f, "{value}"),
        }
    }
}

fn whole_us(duration: Duration) -> Result<u64, UnitError> {
    match duration.subsec_nanos() % 1_000 {
        0 => u64::try_from(duration.as_micros()).map_err(|_| UnitError::TooLarge),
        _ => Err(UnitError::Fraction("microseconds")),
    }
}

/// What is wrong with a number, as a phrase that follows its text.
pub(super) const fn reason(error: &UnitError) -> &'static str {
    match error {
        UnitError::NoNumber(_) => "is not a number",
        UnitError::NoUnit(_) => "lacks its unit",
        UnitError::UnknownUnit { .. } | UnitError::Ambiguous { .. } => {
            "has a unit that does not fit"
        }
        UnitError::TooLarge | UnitError::OutOfRange(..) => "is too large",
        UnitError::Fraction(_) => "is finer than what the kernel counts in",
    }
}
