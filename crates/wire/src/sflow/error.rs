//! What is wrong with bytes that should be sFlow, and where.

use std::error::Error;
use std::fmt;

use super::DataFormat;

/// Bytes that were refused: what is wrong with them, and where. What lies beside the place is not affected unless
/// [`Fault`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Malformed {
    /// What is wrong.
    pub fault: Fault,
    /// Where.
    pub place: Place,
}

/// What is wrong with bytes. Each fault has exactly one [`class`](Self::class).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The bytes end before the header of the datagram, or before a sample or record that was announced. Nothing follows.
    Truncated {
        /// Bytes that the header takes.
        need: u32,
        /// Bytes that are left.
        have: u32,
    },
    /// A version other than 5.
    Version(u32),
    /// An address that is none (0), IPv4 (1) or IPv6 (2).
    AddressType(u32),
    /// A length that goes beyond the bytes that it may cover. If it is a sample's or a record's, nothing follows.
    Length {
        /// What it says, in bytes.
        length: u32,
        /// The bytes that are left.
        have: u32,
    },
    /// A structure that is shorter than its fields.
    Short {
        /// Bytes that the next field takes.
        need: u32,
        /// Bytes that are left.
        have: u32,
    },
    /// A count of items that the bytes left cannot hold.
    Count {
        /// What it says, in items.
        count: u32,
        /// The bytes that are left.
        have: u32,
    },
    /// A value of a metric or flow (4300:1002, 4300:1003) whose type, and so length, is unknown. The values behind it are lost.
    ValueType(u32),
}

/// Where malformed bytes are. Samples and records are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The header of the datagram.
    Datagram,
    /// A sample.
    Sample {
        /// Its place in the datagram.
        index: u32,
        /// What it claims to be, if the bytes reach that far.
        format: Option<DataFormat>,
    },
    /// A record of a sample.
    Record {
        /// The sample's place in the datagram.
        sample: u32,
        /// The record's place in the sample.
        index: u32,
        /// What it claims to be, if the bytes reach that far.
        format: Option<DataFormat>,
    },
}

impl Fault {
    /// Every class there is, in no order that matters.
    pub const CLASSES: &[&str] =
        &["truncated", "version", "address_type", "length", "short", "count", "value_type"];

    /// One stable word per kind of fault, for use as a label of a counter.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::Version(_) => "version",
            Self::AddressType(_) => "address_type",
            Self::Length { .. } => "length",
            Self::Short { .. } => "short",
            Self::Count { .. } => "count",
            Self::ValueType(_) => "value_type",
        }
    }

    /// The fault with its place.
    #[must_use]
    pub const fn at(self, place: Place) -> Malformed {
        Malformed { fault: self, place }
    }
}

impl Malformed {
    /// The class of the fault.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        self.fault.class()
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fault)
    }
}

impl Error for Malformed {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { need, have } => {
                write!(f, "truncated: a header takes {need} bytes, {have} are left")
            }
            Self::Version(version) => write!(f, "version {version} instead of 5"),
            Self::AddressType(kind) => {
                write!(
                    f,
                    "address of type {kind}, which is neither none (0), IPv4 (1) nor IPv6 (2)"
                )
            }
            Self::Length { length, have } => {
                write!(f, "length of {length} bytes, {have} are left")
            }
            Self::Short { need, have } => {
                write!(f, "too short: a field takes {need} bytes, {have} are left")
            }
            Self::Count { count, have } => {
                write!(f, "count of {count} items, {have} bytes are left")
            }
            Self::ValueType(kind) => write!(f, "value of unknown type {kind}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = match self {
            Self::Datagram => return f.write_str("datagram"),
            Self::Sample { index, format } => {
                write!(f, "sample {index}")?;
                format
            }
            Self::Record { sample, index, format } => {
                write!(f, "sample {sample}, record {index}")?;
                format
            }
        };
        match format {
            Some(format) => write!(f, " ({format})"),
            None => Ok(()),
        }
    }
}
