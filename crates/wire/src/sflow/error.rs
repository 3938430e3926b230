//! What is wrong with malformed sFlow, and where.

use std::error::Error;
use std::fmt;

use super::DataFormat;

/// Bytes that were refused: what is wrong with them, and where. Their surroundings are not affected unless [`Fault`] says so.
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
    /// The bytes end before the header of the datagram, or before an announced sample or record. Nothing follows.
    Truncated {
        /// Bytes needed for the header.
        need: u32,
        /// Bytes left.
        have: u32,
    },
    /// A version other than 5.
    Version(u32),
    /// An address type other than none (0), IPv4 (1) or IPv6 (2).
    AddressType(u32),
    /// A length exceeds the bytes that it may cover. If it is a sample's or a record's, nothing follows.
    Length {
        /// The length in bytes.
        length: u32,
        /// The bytes left.
        have: u32,
    },
    /// A structure is shorter than its fields.
    Short {
        /// Bytes needed for the next field.
        need: u32,
        /// Bytes left.
        have: u32,
    },
    /// A count exceeds what the bytes left can hold.
    Count {
        /// The count, in items.
        count: u32,
        /// The bytes left.
        have: u32,
    },
    /// A value of a metric or flow (4300:1002, 4300:1003) has an unknown type and therefore unknown length. The values after it
    /// are lost.
    ValueType(u32),
}

/// The position of malformed bytes. Samples and records are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The header of the datagram.
    Datagram,
    /// A sample.
    Sample {
        /// Its index in the datagram.
        index: u32,
        /// Its declared format, if the bytes reach that far.
        format: Option<DataFormat>,
    },
    /// A record of a sample.
    Record {
        /// The sample's index in the datagram.
        sample: u32,
        /// The record's index in the sample.
        index: u32,
        /// Its declared format, if the bytes reach that far.
        format: Option<DataFormat>,
    },
}

impl Fault {
    /// Every class, in no particular order.
    pub const CLASSES: &[&str] =
        &["truncated", "version", "address_type", "length", "short", "count", "value_type"];

    /// One stable word per kind of fault, for the label of a counter.
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
