//! Samples: a sampled packet, counters, or a dropped packet.

use super::metric::{RtFlow, RtMetric};
use super::record::{CounterRecords, FlowRecords, Records};
use super::xdr::Cursor;
use super::{DropReason, Fault, RawRecord};

/// What an agent reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample<'a> {
    /// A sampled packet (0:1, 0:3).
    Flow(FlowSample<'a>),
    /// Counters (0:2, 0:4).
    Counters(CountersSample<'a>),
    /// A dropped packet (0:5).
    Dropped(DroppedPacket<'a>),
    /// Named metrics (4300:1002).
    Metrics(RtMetric<'a>),
    /// A flow with named fields (4300:1003).
    RtFlow(RtFlow<'a>),
    /// An unknown sample.
    Unknown(RawRecord<'a>),
}

/// The encoding of a sample. An agent uses the same one for all of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// Class and index in one word, so an index has 24 bits, and an interface's 30.
    #[default]
    Compact,
    /// One word for each.
    Expanded,
}

/// A sampled packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample<'a> {
    /// Its encoding.
    pub form: Form,
    /// Incremented for each flow sample of this source; wraps.
    pub sequence: u32,
    /// Where the packet was sampled.
    pub source: DataSource,
    /// One out of this many packets should be sampled.
    pub sampling_rate: u32,
    /// Packets that could have been sampled; wraps. Some agents make it up, or leave it at 0.
    pub sample_pool: u32,
    /// Samples that the agent lost; wraps.
    pub drops: u32,
    /// Where the packet came in.
    pub input: Interface,
    /// Where it left.
    pub output: Interface,
    /// The packet's records, not decoded. [`Writer`](super::Writer) ignores them and takes records separately.
    pub raw_records: Records<'a>,
}

/// Counters of an interface, a switch or a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountersSample<'a> {
    /// Its encoding.
    pub form: Form,
    /// Incremented for each counter sample of this source; wraps.
    pub sequence: u32,
    /// The owner of the counters.
    pub source: DataSource,
    /// The counter records, not decoded. [`Writer`](super::Writer) ignores them and takes records separately.
    pub raw_records: Records<'a>,
}

/// A dropped packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedPacket<'a> {
    /// Incremented for each sample of this kind from this source; wraps.
    pub sequence: u32,
    /// Where the packet was dropped.
    pub source: DataSource,
    /// Dropped packets that the agent did not report because of its rate limit; wraps.
    pub drops: u32,
    /// `ifIndex` of the input interface; 0 if unknown.
    pub input_if_index: u32,
    /// `ifIndex` of the intended output interface; 0 if unknown.
    pub output_if_index: u32,
    /// Why it was dropped.
    pub reason: DropReason,
    /// The packet's records, not decoded. [`Writer`](super::Writer) ignores them and takes records separately.
    pub raw_records: Records<'a>,
}

/// What samples are taken from, usually a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataSource {
    /// The kind of source that `index` refers to: see the constants.
    pub class: u32,
    /// Index of the source; 24 bits in the compact form.
    pub index: u32,
}

impl DataSource {
    /// Interfaces, by `ifIndex`.
    pub const INTERFACE: u32 = 0;
    /// VLANs (`smonVlanDataSource`).
    pub const VLAN: u32 = 1;
    /// Physical components (`entPhysicalEntry`).
    pub const PHYSICAL: u32 = 2;
    /// Logical components (`entLogicalEntry`).
    pub const LOGICAL: u32 = 3;

    /// The interface with this `ifIndex`.
    #[must_use]
    pub const fn interface(index: u32) -> Self {
        Self { class: Self::INTERFACE, index }
    }

    /// Its `ifIndex`, if it is an interface.
    #[must_use]
    pub const fn if_index(self) -> Option<u32> {
        if self.class == Self::INTERFACE { Some(self.index) } else { None }
    }

    /// Class and index in one word. A class that does not exist is the top of an index of more than 24 bits, which some
    /// agents send as it is.
    const fn compact(word: u32) -> Self {
        let class = word >> 24;
        if class > Self::LOGICAL {
            return Self::interface(word);
        }
        Self { class, index: word & 0x00ff_ffff }
    }
}

/// Where a packet came in or went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interface {
    /// The agent does not know.
    Unknown,
    /// An interface, by `ifIndex`.
    Index(u32),
    /// The agent's own machine: the packet was made by it or for it.
    Internal,
    /// Nowhere: the packet was discarded.
    Discarded(DropReason),
    /// Several interfaces: their number, or 0 if unknown.
    Multiple(u32),
    /// An unknown format.
    Other {
        /// The format.
        format: u32,
        /// The value.
        value: u32,
    },
}

/// [`Interface::Internal`] in the compact form, and for some agents in the expanded form.
const INTERNAL: u32 = 0x3fff_ffff;

impl Interface {
    const fn of(format: u32, value: u32) -> Self {
        match (format, value) {
            (0, 0) => Self::Unknown,
            // According to an erratum, all ones in the expanded form.
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

    /// Format and value in this form. Bits that do not fit the compact form are cut off.
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

/// The side of a port on which packets are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Incoming packets.
    Ingress,
    /// Outgoing packets.
    Egress,
    /// The sample does not reveal it.
    Unknown,
}

impl<'a> FlowSample<'a> {
    /// The side of the port on which the packet was sampled: the one whose interface is the source.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.source.if_index().map_or(Direction::Unknown, |index| self.direction_at(index))
    }

    /// The same for a source that is known as an interface of another index.
    #[must_use]
    pub fn direction_at(&self, if_index: u32) -> Direction {
        match (self.input.if_index(), self.output.if_index()) {
            (Some(index), _) if index == if_index => Direction::Ingress,
            (_, Some(index)) if index == if_index => Direction::Egress,
            _ => Direction::Unknown,
        }
    }

    /// The packet's records. A broken one is an error among the others; after a wrong length there are no more.
    #[must_use]
    pub const fn records(&self) -> FlowRecords<'a> {
        FlowRecords(self.raw_records)
    }

    #[inline]
    fn compact(body: &'a [u8], sample: u32) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let [sequence, source, sampling_rate, sample_pool, drops, input, output] = from.words()?;
        // A class and a small index, or an index that is larger than the form allows: then an end is the same.
        let is_index = source > 0x00ff_ffff && (source == input || source == output);
        let source =
            if is_index { DataSource::interface(source) } else { DataSource::compact(source) };
        Ok(Self {
            form: Form::Compact,
            sequence,
            source,
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
    /// The counter records. A broken one is an error among the others; after a wrong length there are no more.
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
    /// Where the packet came in.
    #[must_use]
    pub const fn input(&self) -> Interface {
        Interface::of(0, self.input_if_index)
    }

    /// Where it was to leave.
    #[must_use]
    pub const fn output(&self) -> Interface {
        Interface::of(0, self.output_if_index)
    }

    /// The packet's records. A broken one is an error among the others; after a wrong length there are no more.
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

/// Decodes the sample at `index` in its datagram.
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
