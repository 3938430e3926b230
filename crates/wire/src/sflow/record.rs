//! Records of a sample, before anything is known of their fields.

use std::fmt;

use super::xdr::Cursor;
use super::{CounterRecord, Fault, FlowRecord, Malformed, Place};
use crate::bytes::count;

/// Number of a structure: of whom, and which. Samples, flow records and counter records are numbered separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataFormat(pub u32);

impl DataFormat {
    /// Structure `format` (12 bits) of `enterprise` (20 bits), which is 0 for those of sflow.org.
    #[must_use]
    pub const fn new(enterprise: u32, format: u32) -> Self {
        Self(enterprise << 12 | format & 0xfff)
    }

    /// Whose structure it is, by private enterprise number; 0 is sflow.org.
    #[must_use]
    pub const fn enterprise(self) -> u32 {
        self.0 >> 12
    }

    /// Which of theirs.
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

/// A structure by its number and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Its number.
    pub format: DataFormat,
    /// Its fields.
    pub body: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// Reads number, length and body. With a fault comes the number, if the bytes reach that far.
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

/// The records of one sample, in order. A record whose fields are broken is an error among the others; after a length that lies
/// come no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    from: Cursor<'a>,
    left: u32,
    /// Of the sample, for errors.
    sample: u32,
    next: u32,
}

impl<'a> Records<'a> {
    /// No records: what a sample is given that is to be written.
    pub const EMPTY: Self = Self { from: Cursor::new(&[]), left: 0, sample: 0, next: 0 };

    /// `from` stands at the count of the records.
    pub(super) fn take(mut from: Cursor<'a>, sample: u32) -> Result<Self, Fault> {
        let left = from.u32()?;
        Ok(Self { from, left, sample, next: 0 })
    }

    /// How many records the sample says that it has and that are not read yet.
    #[must_use]
    pub const fn announced(&self) -> u32 {
        self.left
    }

    fn place(&self, format: Option<DataFormat>) -> Place {
        Place::Record { sample: self.sample, index: self.next, format }
    }

    /// The records of a flow sample or a dropped packet, with their fields.
    pub(super) fn decoded<R>(
        mut self,
        decode: impl Fn(&RawRecord<'a>) -> Result<R, Fault>,
    ) -> impl Iterator<Item = Result<R, Malformed>> {
        std::iter::from_fn(move || {
            let place = self;
            let record = match self.next()? {
                Ok(record) => record,
                Err(malformed) => return Some(Err(malformed)),
            };
            Some(decode(&record).map_err(|fault| fault.at(place.place(Some(record.format)))))
        })
    }

    pub(super) fn flows(self) -> impl Iterator<Item = Result<FlowRecord<'a>, Malformed>> + use<'a> {
        self.decoded(FlowRecord::decode)
    }

    pub(super) fn counters(
        self,
    ) -> impl Iterator<Item = Result<CounterRecord<'a>, Malformed>> + use<'a> {
        self.decoded(CounterRecord::decode)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let record = RawRecord::take(&mut self.from).map_err(|(fault, format)| {
            self.left = 0;
            fault.at(self.place(format))
        });
        self.next += 1;
        Some(record)
    }
}
