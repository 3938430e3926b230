//! Samples of InMon that name their values: metrics (4300:1002) and flows (4300:1003).

use std::net::{Ipv4Addr, Ipv6Addr};

use super::xdr::{Cursor, Xdr};
use super::{Counter32, Counter64, Fault, Mac, Text};

/// Metrics by name (4300:1002).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtMetric<'a> {
    /// What they belong to.
    pub data_source: Text<'a>,
    /// The metrics.
    pub metrics: Metrics<'a>,
}

/// A flow by name (4300:1003).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RtFlow<'a> {
    /// Where it was seen.
    pub data_source: Text<'a>,
    /// One of this number is reported.
    pub sampling_rate: u32,
    /// Of how many it is one; wraps.
    pub sample_pool: u32,
    /// Its keys and values.
    pub fields: Metrics<'a>,
}

/// Values by name. One whose type is not known is an error, and the last item: its length is not known either.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics<'a> {
    from: Cursor<'a>,
    left: u32,
    types: Types,
}

/// Which numbers the types of values have.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Types {
    Metric,
    Flow,
}

/// A value by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric<'a> {
    /// Its name.
    pub name: Text<'a>,
    /// The value.
    pub value: MetricValue<'a>,
}

/// What a metric or a flow holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue<'a> {
    /// Text.
    Text(Text<'a>),
    /// A count that only grows, of a metric.
    Counter32(Counter32),
    /// A count that only grows, of a metric.
    Counter64(Counter64),
    /// A number.
    U32(u32),
    /// A number.
    U64(u64),
    /// A number.
    F32(f32),
    /// A number.
    F64(f64),
    /// An Ethernet address, of a flow.
    Mac(Mac),
    /// An IPv4 address, of a flow.
    Ipv4(Ipv4Addr),
    /// An IPv6 address, of a flow.
    Ipv6(Ipv6Addr),
}

impl<'a> RtMetric<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let data_source = Xdr::take(&mut from)?;
        let metrics = Metrics { left: from.u32()?, from, types: Types::Metric };
        Ok(Self { data_source, metrics })
    }
}

impl<'a> RtFlow<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut from = Cursor::new(body);
        let data_source = Xdr::take(&mut from)?;
        let [sampling_rate, sample_pool, left] = from.words()?;
        let fields = Metrics { from, left, types: Types::Flow };
        Ok(Self { data_source, sampling_rate, sample_pool, fields })
    }
}

impl<'a> Metrics<'a> {
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

impl<'a> Iterator for Metrics<'a> {
    type Item = Result<Metric<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(self.take().inspect_err(|_| self.left = 0))
    }
}
