//! InMon's samples with named values: metrics (4300:1002) and flows (4300:1003).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::xdr::{Cursor, Xdr, put_u32};
use super::{Counter32, Counter64, DataFormat, Fault, Mac, Text};
use crate::bytes::count;

/// Named metrics (4300:1002).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtMetric<'a> {
    /// Their source.
    pub data_source: Text<'a>,
    /// The metrics.
    pub metrics: Metrics<'a>,
}

/// A flow with named fields (4300:1003).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtFlow<'a> {
    /// Where it was observed.
    pub data_source: Text<'a>,
    /// One out of this many is reported.
    pub sampling_rate: u32,
    /// The number of flows it was chosen from; wraps.
    pub sample_pool: u32,
    /// Its keys and values.
    pub fields: Metrics<'a>,
}

/// Named values. A value of unknown type is an error, and the last item, because its length is unknown too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics<'a> {
    from: Cursor<'a>,
    left: u32,
    types: Types,
}

/// Which numbering the value types use.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Types {
    Metric,
    Flow,
}

/// A named value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric<'a> {
    /// Its name.
    pub name: Text<'a>,
    /// The value.
    pub value: MetricValue<'a>,
}

/// The value of a metric or a flow's field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue<'a> {
    /// Text.
    Text(Text<'a>),
    /// A monotonic count, in metrics only.
    Counter32(Counter32),
    /// A monotonic count, in metrics only.
    Counter64(Counter64),
    /// A number.
    U32(u32),
    /// A number.
    U64(u64),
    /// A number.
    F32(f32),
    /// A number.
    F64(f64),
    /// An Ethernet address, in flows only.
    Mac(Mac),
    /// An IPv4 address, in flows only.
    Ipv4(Ipv4Addr),
    /// An IPv6 address, in flows only.
    Ipv6(Ipv6Addr),
}

impl<'a> RtMetric<'a> {
    /// Its number.
    pub const FORMAT: DataFormat = DataFormat::new(4300, 1002);

    /// Metrics with these names and values, encoded into `buf`, which is cleared. Addresses, which metrics cannot have, are
    /// omitted.
    pub fn write(data_source: Text<'a>, metrics: &[Metric<'_>], buf: &'a mut Vec<u8>) -> Self {
        Self { data_source, metrics: Metrics::write(metrics, Types::Metric, buf) }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.data_source.put(out);
        self.metrics.put(out);
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let data_source = Xdr::take(&mut from)?;
        let metrics = Metrics { left: from.u32()?, from, types: Types::Metric };
        Ok(Self { data_source, metrics })
    }
}

impl<'a> RtFlow<'a> {
    /// Its number.
    pub const FORMAT: DataFormat = DataFormat::new(4300, 1003);

    /// A flow with these keys and values, encoded into `buf`, which is cleared. Counters, which flows cannot have, are omitted.
    pub fn write(data_source: Text<'a>, fields: &[Metric<'_>], buf: &'a mut Vec<u8>) -> Self {
        let fields = Metrics::write(fields, Types::Flow, buf);
        Self { data_source, sampling_rate: 0, sample_pool: 0, fields }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.data_source.put(out);
        put_u32(out, self.sampling_rate);
        put_u32(out, self.sample_pool);
        self.fields.put(out);
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let data_source = Xdr::take(&mut from)?;
        let [sampling_rate, sample_pool, left] = from.words()?;
        let fields = Metrics { from, left, types: Types::Flow };
        Ok(Self { data_source, sampling_rate, sample_pool, fields })
    }
}

impl<'a> Metrics<'a> {
    fn write(metrics: &[Metric<'_>], types: Types, buf: &'a mut Vec<u8>) -> Self {
        buf.clear();
        let left = metrics.iter().filter(|metric| metric.put(types, buf).is_some()).count();
        Self { from: Cursor::new(buf), left: count(left), types }
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_u32(out, self.left);
        out.extend_from_slice(self.from.rest());
    }

    fn take(&mut self) -> Result<Metric<'a>, Fault> {
        use MetricValue as V;

        let from = &mut self.from;
        let name = Xdr::take(from)?;
        let value = match (self.types, from.u32()?) {
            (_, 0) => V::Text(Xdr::take(from)?),
            (Types::Metric, 1) => V::Counter32(Xdr::take(from)?),
            (Types::Metric, 2) => V::Counter64(Xdr::take(from)?),
            (Types::Metric, 3) | (Types::Flow, 4) => V::U32(Xdr::take(from)?),
            (Types::Metric, 4) | (Types::Flow, 5) => V::U64(Xdr::take(from)?),
            (Types::Metric, 5) | (Types::Flow, 6) => V::F32(Xdr::take(from)?),
            (Types::Metric, 6) | (Types::Flow, 7) => V::F64(f64::from_be_bytes(*from.array()?)),
            (Types::Flow, 1) => V::Mac(Xdr::take(from)?),
            (Types::Flow, 2) => V::Ipv4(Xdr::take(from)?),
            (Types::Flow, 3) => V::Ipv6(Xdr::take(from)?),
            (_, other) => return Err(Fault::ValueType(other)),
        };
        Ok(Metric { name, value })
    }
}

impl Metric<'_> {
    /// Writes name, type and value; `None`, and nothing is written, if the type does not exist in this numbering.
    fn put(&self, types: Types, out: &mut Vec<u8>) -> Option<()> {
        let number = self.value.number(types)?;
        self.name.put(out);
        put_u32(out, number);
        self.value.put(out);
        Some(())
    }
}

impl MetricValue<'_> {
    /// The number of its type.
    const fn number(&self, types: Types) -> Option<u32> {
        Some(match (types, self) {
            (_, Self::Text(_)) => 0,
            (Types::Metric, Self::Counter32(_)) | (Types::Flow, Self::Mac(_)) => 1,
            (Types::Metric, Self::Counter64(_)) | (Types::Flow, Self::Ipv4(_)) => 2,
            (Types::Metric, Self::U32(_)) | (Types::Flow, Self::Ipv6(_)) => 3,
            (Types::Metric, Self::U64(_)) | (Types::Flow, Self::U32(_)) => 4,
            (Types::Metric, Self::F32(_)) | (Types::Flow, Self::U64(_)) => 5,
            (Types::Metric, Self::F64(_)) | (Types::Flow, Self::F32(_)) => 6,
            (Types::Flow, Self::F64(_)) => 7,
            _ => return None,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(value) => value.put(out),
            Self::Counter32(value) => value.put(out),
            Self::Counter64(value) => value.put(out),
            Self::U32(value) => value.put(out),
            Self::U64(value) => value.put(out),
            Self::F32(value) => value.put(out),
            Self::F64(value) => out.extend_from_slice(&value.to_be_bytes()),
            Self::Mac(value) => value.put(out),
            Self::Ipv4(value) => value.put(out),
            Self::Ipv6(value) => value.put(out),
        }
    }
}

impl<'a> Iterator for Metrics<'a> {
    type Item = Result<Metric<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.take().inspect_err(|_| self.left = 0))
    }
}
