//! Samples: one packet of many, counters, a dropped packet.

use super::metric::{RtFlow, RtMetric};
use super::record::{CounterRecords, FlowRecords, Records};
use super::xdr::Cursor;
use super::{DropReason, Fault, RawRecord};

/// What an agent reports of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample<'a> {
    /// A packet that stands for many (0:1, 0:3).
    Flow(FlowSample<'a>),
    /// Counters (0:2, 0:4).
    Counters(CountersSample<'a>),
    /// A packet that was dropped (0:5).
    Dropped(DroppedPacket<'a>),
    /// Metrics by name (4300:1002).
    Metrics(RtMetric<'a>),
    /// A flow by name (4300:1003).
    RtFlow(RtFlow<'a>),
    /// A sample that is not known here.
    Unknown(RawRecord<'a>),
}

/// How a sample is written. An agent uses one form for all of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// Class and index in one word, so that an index has 24 bits, and an interface's 30.
    #[default]
    Compact,
    /// A word each.
    Expanded,
}

/// A packet that stands for many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample<'a> {
    /// How it is written.
    pub form: Form,
    /// One more with each flow sample of this source; wraps.
    pub sequence: u32,
    /// Where the packet was sampled.
    pub source: DataSource,
    /// One packet of this number is meant to be sampled.
    pub sampling_rate: u32,
    /// Packets that could have been sampled; wraps. Some agents make it up, or leave it at 0.
    pub sample_pool: u32,
    /// Samples that the agent lost; wraps.
    pub drops: u32,
    /// Where the packet came in.
    pub input: Interface,
    /// Where it left.
    pub output: Interface,
    /// What is known of the packet, without its fields read. Not written by [`Writer`](super::Writer), which is given records.
    pub raw_records: Records<'a>,
}

/// Counters of an interface, a switch or a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountersSample<'a> {
    /// How it is written.
    pub form: Form,
    /// One more with each counter sample of this source; wraps.
    pub sequence: u32,
    /// What the counters belong to.
    pub source: DataSource,
    /// The counters, without their fields read. Not written by [`Writer`](super::Writer), which is given records.
    pub raw_records: Records<'a>,
}

/// A packet that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedPacket<'a> {
    /// One more with each of these of this source; wraps.
    pub sequence: u32,
    /// Where the packet was dropped.
    pub source: DataSource,
    /// Dropped packets that the agent did not report, since it limits its rate; wraps.
    pub drops: u32,
    /// `ifIndex` of where the packet came in; 0 not known.
    pub input_if_index: u32,
    /// `ifIndex` of where the packet would have left; 0 not known.
    pub output_if_index: u32,
    /// Why.
    pub reason: DropReason,
    /// What is known of the packet, without its fields read. Not written by [`Writer`](super::Writer), which is given records.
    pub raw_records: Records<'a>,
}

/// What samples are taken from: a port, as a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataSource {
    /// What `index` counts: see the constants.
    pub class: u32,
    /// Which of them; 24 bits in the compact form.
    pub index: u32,
}

impl DataSource {
    /// Interfaces, by `ifIndex`.
    pub const INTERFACE: u32 = 0;
    /// VLANs (`smonVlanDataSource`).
    pub const VLAN: u32 = 1;
    /// Parts of the machine (`entPhysicalEntry`).
    pub const PHYSICAL: u32 = 2;
    /// Parts of its configuration (`entLogicalEntry`).
    pub const LOGICAL: u32 = 3;

    /// The interface of this `ifIndex`.
    #[must_use]
    pub const fn interface(index: u32) -> Self {
        Self { class: Self::INTERFACE, index }
    }

    /// Its `ifIndex`, if it is an interface.
    #[must_use]
    pub const fn if_index(self) -> Option<u32> {
        if self.class == Self::INTERFACE { Some(self.index) } else { None }
    }

    const fn compact(word: u32) -> Self {
        Self { class: word >> 24, index: word & 0x00ff_ffff }
    }
}

/// Where a packet came in or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// The agent does not know.
    Unknown,
    /// An interface, by `ifIndex`.
    Index(u32),
    /// The machine itself: the packet was made by it, or was for it.
    Internal,
    /// Nowhere: the packet was discarded.
    Discarded(DropReason),
    /// Several interfaces: so many, or 0 where the number is not known.
    Multiple(u32),
    /// A format that is not known here.
    Other {
        /// Which.
        format: u32,
        /// What stands behind it.
        value: u32,
    },
}

/// What [`Interface::Internal`] is in the compact form, and with some agents in the expanded form.
const INTERNAL: u32 = 0x3fff_ffff;

impl Interface {
    const fn of(format: u32, value: u32) -> Self {
        match (format, value) {
            (0, 0) => Self::Unknown,
            // An erratum has all ones for the expanded form.
            (0, INTERNAL | u32::MAX) => Self::Internal,
            (0, index) => Self::Index(index),
            (1, reason) => Self::Discarded(DropReason(reason)),
            (2, count) => Self::Multiple(count),
            (format, value) => Self::Other { format, value },
        }
    }

    const fn compact(word: u32) -> Self {
        Self::of(word >> 30, word & INTERNAL)
    }

    /// Format and value as the form has them. What the compact form has no bits for is cut off by it.
    pub(super) const fn parts(self, form: Form) -> (u32, u32) {
        match self {
            Self::Unknown => (0, 0),
            Self::Index(index) => (0, index),
            Self::Internal => match form {
                Form::Compact => (0, INTERNAL),
                Form::Expanded => (0, u32::MAX),
            },
            Self::Discarded(reason) => (1, reason.0),
            Self::Multiple(count) => (2, count),
            Self::Other { format, value } => (format, value),
        }
    }

    /// The `ifIndex`, if it is one interface.
    #[must_use]
    pub const fn if_index(self) -> Option<u32> {
        match self {
            Self::Index(index) => Some(index),
            _ => None,
        }
    }
}

/// On which side of a port packets are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Those that come in.
    Ingress,
    /// Those that leave.
    Egress,
    /// The sample does not tell.
    Unknown,
}

impl<'a> FlowSample<'a> {
    /// On which side of the port the packet was sampled: the side whose interface is the source.
    #[must_use]
    pub fn direction(&self) -> Direction {
        match self.source.if_index() {
            Some(index) if self.input == Interface::Index(index) => Direction::Ingress,
            Some(index) if self.output == Interface::Index(index) => Direction::Egress,
            _ => Direction::Unknown,
        }
    }

    /// What is known of the packet. A record that is broken is an error among the others; after a length that lies come no more.
    #[must_use]
    pub const fn records(&self) -> FlowRecords<'a> {
        FlowRecords(self.raw_records)
    }

    #[inline]
    fn compact(body: &'a [u8], sample: u32) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let [sequence, source, sampling_rate, sample_pool, drops, input, output] = from.words()?;
        Ok(Self {
            form: Form::Compact,
            sequence,
            source: DataSource::compact(source),
            sampling_rate,
            sample_pool,
            drops,
            input: Interface::compact(input),
            output: Interface::compact(output),
            raw_records: Records::take(from, sample)?,
        })
    }

    #[inline]
    fn expanded(body: &'a [u8], sample: u32) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let [sequence, class, index, sampling_rate, sample_pool, drops] = from.words()?;
        let [input_format, input, output_format, output] = from.words()?;
        Ok(Self {
            form: Form::Expanded,
            sequence,
            source: DataSource { class, index },
            sampling_rate,
            sample_pool,
            drops,
            input: Interface::of(input_format, input),
            output: Interface::of(output_format, output),
            raw_records: Records::take(from, sample)?,
        })
    }
}

impl<'a> CountersSample<'a> {
    /// The counters. A record that is broken is an error among the others; after a length that lies come no more.
    #[must_use]
    pub const fn records(&self) -> CounterRecords<'a> {
        CounterRecords(self.raw_records)
    }

    fn compact(body: &'a [u8], sample: u32) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let [sequence, source] = from.words()?;
        let source = DataSource::compact(source);
        let raw_records = Records::take(from, sample)?;
        Ok(Self { form: Form::Compact, sequence, source, raw_records })
    }

    fn expanded(body: &'a [u8], sample: u32) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let [sequence, class, index] = from.words()?;
        let source = DataSource { class, index };
        let raw_records = Records::take(from, sample)?;
        Ok(Self { form: Form::Expanded, sequence, source, raw_records })
    }
}

impl<'a> DroppedPacket<'a> {
    /// What is known of the packet. A record that is broken is an error among the others; after a length that lies come no more.
    #[must_use]
    pub const fn records(&self) -> FlowRecords<'a> {
        FlowRecords(self.raw_records)
    }

    fn read(body: &'a [u8], sample: u32) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let [sequence, class, index, drops, input_if_index, output_if_index, reason] =
            from.words()?;
        Ok(Self {
            sequence,
            source: DataSource { class, index },
            drops,
            input_if_index,
            output_if_index,
            reason: DropReason(reason),
            raw_records: Records::take(from, sample)?,
        })
    }
}

/// Reads the fields of the sample that is at `index` in its datagram.
#[inline]
pub(super) fn decode(raw: RawRecord<'_>, index: u32) -> Result<Sample<'_>, Fault> {
    let RawRecord { format, body } = raw;
    Ok(match (format.enterprise(), format.format()) {
        (0, 1) => Sample::Flow(FlowSample::compact(body, index)?),
        (0, 2) => Sample::Counters(CountersSample::compact(body, index)?),
        (0, 3) => Sample::Flow(FlowSample::expanded(body, index)?),
        (0, 4) => Sample::Counters(CountersSample::expanded(body, index)?),
        (0, 5) => Sample::Dropped(DroppedPacket::read(body, index)?),
        (4300, 1002) => Sample::Metrics(RtMetric::read(body)?),
        (4300, 1003) => Sample::RtFlow(RtFlow::read(body)?),
        _ => Sample::Unknown(raw),
    })
}
