//! Numbers with units, as a filter writes them.

use std::fmt;
use std::time::Duration;
use text::units::{self, UnitError};

/// What a number measures, and in what it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Pieces.
    Count,
    /// Bytes.
    Bytes,
    /// Time, in microseconds.
    Duration,
    /// Bits per second.
    Rate,
    /// A user's id.
    User,
}

impl Quantity {
    /// Reads a number, with a unit behind it where one is due; 0 needs none. Decimals are taken as long as they are exact.
    pub(super) fn parse(self, text: &str) -> Result<u64, UnitError> {
        if let (Quantity::Count | Quantity::User, Some(hex)) = (self, text.strip_prefix("0x")) {
            return u64::from_str_radix(hex, 16).map_err(|_| UnitError::NoNumber("0x1f"));
        }

        match self {
            _ if text == "0" => Ok(0),
            Quantity::Count => units::parse_count(text),
            Quantity::User => text.parse().map_err(|_| UnitError::NoNumber("1000")),
            Quantity::Bytes => units::parse_size(text),
            Quantity::Duration => whole_us(units::parse_duration(text)?),
            Quantity::Rate => units::parse_bit_rate(text),
        }
    }

    /// What a value of this kind looks like.
    pub(super) const fn example(self) -> &'static str {
        match self {
            Quantity::Count => "a number, such as `10` or `2k`",
            Quantity::Bytes => "a size, such as `1500`, `64KiB` or `1MB`",
            Quantity::Duration => "a time with its unit (us, ms, s, min, h, d), such as `100ms`",
            Quantity::Rate => "a rate with its unit, such as `1MB/s` (bytes) or `8Mbit/s` (bits)",
            Quantity::User => "a user's name or number",
        }
    }

    /// Prints a value so that [`Quantity::parse`] reads the same.
    pub(super) fn write(self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Duration if value > 0 => {
                f.write_str(&units::display_duration(Duration::from_micros(value)))
            }
            Quantity::Rate if value > 0 => f.write_str(&units::display_bit_rate(value)),
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

/// What is wrong with a number, to follow its text.
pub(super) const fn reason(error: &UnitError) -> &'static str {
    match error {
        UnitError::NoNumber(_) => "is not a number",
        UnitError::NoUnit(_) => "lacks its unit",
        UnitError::UnknownUnit { .. } | UnitError::Ambiguous { .. } => {
            "has a unit that does not fit"
        }
        UnitError::TooLarge => "is too large",
        UnitError::Fraction(_) => "is finer than what the kernel counts in",
    }
}
