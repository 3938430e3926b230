//! Numbers with units, as a filter writes them.

use std::fmt;

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

/// Units with their factor. `K` is none: it is used for 1000 and for 1024. The first ones, from the largest down, are used for printing too.
const DURATIONS: &[(&str, u64)] = &[
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
    ("m", 60_000_000),
    ("sec", 1_000_000),
    ("µs", 1),
];
const COUNTS: &[(&str, u64)] = &[
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];
const BYTES: &[(&str, u64)] = &[
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];
/// `ss` prints rates as `…bps`, in bits.
const BITS: &[(&str, u64)] = &[
    ("Tbit", 1_000_000_000_000),
    ("Gbit", 1_000_000_000),
    ("Mbit", 1_000_000),
    ("kbit", 1_000),
    ("bit", 1),
    ("Tbps", 1_000_000_000_000),
    ("Gbps", 1_000_000_000),
    ("Mbps", 1_000_000),
    ("kbps", 1_000),
    ("bps", 1),
];

/// Why a text is no such quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuantityError {
    NotANumber,
    NoUnit,
    UnknownUnit,
    TooLarge,
    TooFine,
}

impl Quantity {
    /// Reads a number, with a unit behind it where one is due; 0 needs none. Decimals are taken as long as they are exact.
    pub(super) fn parse(self, text: &str) -> Result<u64, QuantityError> {
        if let (Quantity::Count | Quantity::User, Some(hex)) = (self, text.strip_prefix("0x")) {
            return u64::from_str_radix(hex, 16).map_err(|_| QuantityError::NotANumber);
        }
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty()
            || decimals.contains('.')
            || (number.contains('.') && decimals.is_empty())
        {
            return Err(QuantityError::NotANumber);
        }
        let digits: u128 = match [whole, decimals].concat().trim_start_matches('0') {
            "" => {
                return if unit.is_empty() || self.factor(unit).is_some() {
                    Ok(0)
                } else {
                    Err(QuantityError::UnknownUnit)
                };
            }
            digits if digits.len() > 30 => return Err(QuantityError::TooLarge),
            digits => digits.parse().map_err(|_| QuantityError::NotANumber)?,
        };
        let unknown =
            if unit.is_empty() { QuantityError::NoUnit } else { QuantityError::UnknownUnit };
        let factor = self.factor(unit).ok_or(unknown)?;
        let decimals = u32::try_from(decimals.len()).map_err(|_| QuantityError::TooFine)?;
        let divisor = 10_u128.checked_pow(decimals).ok_or(QuantityError::TooFine)?;
        let scaled = digits.checked_mul(factor.into()).ok_or(QuantityError::TooLarge)?;
        if !scaled.is_multiple_of(divisor) {
            return Err(QuantityError::TooFine);
        }
        u64::try_from(scaled / divisor).map_err(|_| QuantityError::TooLarge)
    }

    fn factor(self, unit: &str) -> Option<u64> {
        let find = |units: &[(&str, u64)], unit: &str| {
            units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
        };
        match self {
            Quantity::User => unit.is_empty().then_some(1),
            Quantity::Count => find(COUNTS, unit),
            Quantity::Bytes => find(BYTES, unit).or_else(|| find(COUNTS, unit)),
            Quantity::Duration => find(DURATIONS, unit),
            Quantity::Rate => {
                let unit = unit.strip_suffix("/s").unwrap_or(unit);
                find(BITS, unit).or_else(|| find(BYTES, unit)?.checked_mul(8))
            }
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
        let units = match self {
            Quantity::Count | Quantity::User | Quantity::Bytes => &COUNTS[..1],
            Quantity::Duration => &DURATIONS[..6],
            Quantity::Rate if value.is_multiple_of(8) => &BYTES[..5],
            Quantity::Rate => &BITS[..5],
        };
        let scale = if matches!(self, Quantity::Rate) && value.is_multiple_of(8) { 8 } else { 1 };
        let value = value / scale;
        if value == 0 {
            return f.write_str("0");
        }
        let unit = units.iter().find(|(_, factor)| value.is_multiple_of(*factor));
        let (name, factor) = unit.copied().unwrap_or(("", 1));
        write!(f, "{}{name}", value / factor)
    }
}

impl QuantityError {
    pub(super) const fn reason(self) -> &'static str {
        match self {
            QuantityError::NotANumber => "is not a number",
            QuantityError::NoUnit => "lacks its unit",
            QuantityError::UnknownUnit => "has a unit that does not fit",
            QuantityError::TooLarge => "is too large",
            QuantityError::TooFine => "is finer than what the kernel counts in",
        }
    }
}
