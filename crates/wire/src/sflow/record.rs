//! Records of a sample, before their fields are decoded.

use std::fmt;

use super::xdr::Cursor;
use super::{CounterRecord, Fault, FlowRecord, Malformed, Place};
use crate::bytes::count;

/// Identifies a structure: its owner and number. Samples, flow records and counter records are numbered separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataFormat(pub u32);

impl DataFormat {
    /// Structure `format` (12 bits) of `enterprise` (20 bits), which is 0 for sflow.org's.
    #[must_use]
    pub const fn new(enterprise: u32, format: u32) -> Self {
        Self(enterprise << 12 | format & 0xfff)
    }

    /// The owner of the structure, by private enterprise number; 0 is sflow.org.
    #[must_use]
    pub const fn enterprise(self) -> u32 {
        self.0 >> 12
    }

    /// The owner's number for it.
    #[must_use]
    pub const fn format(self) -> u32 {
        self.0 & 0xfff
    }
}

impl fmt::Display for DataFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.enterprise(), self.format())
    }
}

/// A structure as its number and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Its number.
    pub format: DataFormat,
    /// Its encoded fields.
    pub body: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// Reads number, length and body. A fault includes the number, if the bytes reach that far.
    #[inline]
    pub(super) fn take(from: &mut Cursor<'a>) -> Result<Self, (Fault, Option<DataFormat>)> {
        const NEED: u32 = 8;
        let have = count(from.rest().len());
        let Ok(&[a, b, c, d, e, f, g, h]) = from.array() else {
            let format = from.u32().ok().map(DataFormat);
            return Err((Fault::Truncated { need: NEED, have }, format));
        };
        let format = DataFormat(u32::from_be_bytes([a, b, c, d]));
        let length = u32::from_be_bytes([e, f, g, h]);

        match from.exactly(length) {
            Ok(body) => Ok(Self { format, body }),
            Err(fault) => Err((fault, Some(format))),
        }
    }
}

/// The records of one sample, in order. A record with broken fields is an error among the others; after a wrong length there
/// are no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    from: Cursor<'a>,
    left: u32,
    /// Index of the sample, for errors.
    sample: u32,
    next: u32,
}

impl<'a> Records<'a> {
    /// No records, for a sample that will be written.
    pub const EMPTY: Self = Self { from: Cursor::new(&[]), left: 0, sample: 0, next: 0 };

    /// `from` is at the count of the records.
    pub(super) fn take(mut from: Cursor<'a>, sample: u32) -> Result<Self, Fault> {
        let left = from.u32()?;
        Ok(Self { from, left, sample, next: 0 })
    }

    /// How many announced records have not been read yet.
    #[must_use]
    pub const fn announced(&self) -> u32 {
        self.left
    }

    /// The position of the last record read.
    fn place(&self, format: Option<DataFormat>) -> Place {
        Place::Record { sample: self.sample, index: self.next.wrapping_sub(1), format }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.next += 1;
        Some(RawRecord::take(&mut self.from).map_err(|(fault, format)| {
            self.left = 0;
            fault.at(self.place(format))
        }))
    }
}

/// Records with decoded fields.
macro_rules! decoded {
    ($(#[$doc:meta])* $name:ident of $record:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a>(pub(super) Records<'a>);

        impl<'a> Iterator for $name<'a> {
            type Item = Result<$record<'a>, Malformed>;

            #[inline]
            fn next(&mut self) -> Option<Self::Item> {
                match self.0.next()? {
                    Ok(raw) => Some(
                        $record::decode(&raw)
                            .map_err(|fault| fault.at(self.0.place(Some(raw.format)))),
                    ),
                    Err(malformed) => Some(Err(malformed)),
                }
            }
        }
    };
}

decoded! {
    /// What is known of a packet, see [`FlowSample::records`](super::FlowSample::records).
    FlowRecords of FlowRecord
}
decoded! {
    /// What is known of an interface, a switch or a host, see [`CountersSample::records`](super::CountersSample::records).
    CounterRecords of CounterRecord
}
