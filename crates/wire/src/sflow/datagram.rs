//! The datagram and the iterator over its samples.

use super::record::RawRecord;
use super::sample::{self, Sample};
use super::xdr::{Cursor, Xdr};
use super::{Address, DataFormat, Fault, Malformed, Place};
use crate::bytes::count;

/// The supported version.
pub const VERSION: u32 = 5;

/// One datagram of an agent. It is identified by `agent` and `sub_agent`, not by the source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The agent's address, as reported by itself.
    pub agent: Address,
    /// Which part of the agent sent it; each part numbers its datagrams separately.
    pub sub_agent: u32,
    /// Incremented for each datagram; wraps.
    pub sequence: u32,
    /// Time since this part of the agent started; wraps after 49.7 days.
    pub uptime_ms: u32,
    samples: Samples<'a>,
}

impl<'a> Datagram<'a> {
    /// A datagram without samples, for [`Writer::begin`](super::Writer::begin).
    #[must_use]
    pub const fn new(agent: Address, sub_agent: u32, sequence: u32, uptime_ms: u32) -> Self {
        let samples = Samples { from: Cursor::new(&[]), left: 0, next: 0 };
        Self { agent, sub_agent, sequence, uptime_ms, samples }
    }

    /// Parses the header of a datagram.
    ///
    /// # Errors
    /// [`Fault::Truncated`], [`Fault::Version`] and [`Fault::AddressType`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Self::header(bytes).map_err(|fault| {
            let fault = match fault {
                Fault::Short { need, have } => Fault::Truncated { need, have },
                other => other,
            };
            fault.at(Place::Datagram)
        })
    }

    #[inline]
    fn header(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut from = Cursor::new(bytes);
        let version = from.u32()?;
        if version != VERSION {
            return Err(Fault::Version(version));
        }

        Ok(Self {
            agent: Address::take(&mut from)?,
            sub_agent: from.u32()?,
            sequence: from.u32()?,
            uptime_ms: from.u32()?,
            samples: Samples { left: from.u32()?, from, next: 0 },
        })
    }

    /// The samples in order. A broken one is an error among the others; after a wrong length there are no more.
    #[inline]
    #[must_use]
    pub const fn samples(&self) -> Samples<'a> {
        self.samples
    }
}

/// The samples of a datagram, see [`Datagram::samples`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Samples<'a> {
    from: Cursor<'a>,
    left: u32,
    next: u32,
}

/// Brocade's wrapper around samples of access lists.
const BROCADE_ACL: DataFormat = DataFormat::new(1991, 1);
/// Bytes in the wrapper before the sample: flags and a group.
const BROCADE_ACL_BYTES: usize = 8;

impl<'a> Samples<'a> {
    /// How many announced samples have not been read yet.
    #[must_use]
    pub const fn announced(&self) -> u32 {
        self.left
    }

    /// Reads one sample, or the contents of the wrapper if it is wrapped. Other readers of the wrapper (pmacct, Net::sFlow)
    /// ignore its length, so both variants are accepted: the length includes the sample, or covers only the wrapper's own
    /// fields, followed by the sample.
    #[inline]
    fn take(&mut self) -> Result<RawRecord<'a>, (Fault, Option<DataFormat>)> {
        let mut sample = RawRecord::take(&mut self.from).inspect_err(|_| self.left = 0)?;
        while sample.format == BROCADE_ACL {
            let Some(inside) = sample.body.get(BROCADE_ACL_BYTES..) else {
                let (need, have) = (count(BROCADE_ACL_BYTES), count(sample.body.len()));
                return Err((Fault::Short { need, have }, Some(BROCADE_ACL)));
            };
            sample = if inside.is_empty() {
                RawRecord::take(&mut self.from).inspect_err(|_| self.left = 0)?
            } else {
                RawRecord::take(&mut Cursor::new(inside))?
            };
        }
        Ok(sample)
    }
}

impl<'a> Iterator for Samples<'a> {
    type Item = Result<Sample<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let index = self.next;
        self.next += 1;

        let at = |fault: Fault, format| fault.at(Place::Sample { index, format });
        Some(match self.take() {
            Ok(raw) => sample::decode(raw, index).map_err(|fault| at(fault, Some(raw.format))),
            Err((fault, format)) => Err(at(fault, format)),
        })
    }
}
