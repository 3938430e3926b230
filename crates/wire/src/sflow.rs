//! sFlow version 5: datagrams of agents, their samples and records, and sampled packet headers.
//!
//! Reading copies and allocates nothing; a structure is decoded when its iterator reaches it. Samples and records carry their
//! length: unknown ones are skipped, a broken one is a [`Malformed`] between its neighbors, and only a wrong length ends the
//! reading. All structures are generated from two tables ([`FlowRecord::KINDS`], [`CounterRecord::KINDS`]).
//!
//! Sources: "sFlow Version 5" and its errata, and the structure documents of sflow.org.
//!
//! ```
//! use wire::sflow::{Datagram, FlowRecord, Sample};
//!
//! fn bytes(datagram: &[u8]) -> u64 {
//!     let Ok(datagram) = Datagram::parse(datagram) else { return 0 };
//!     let mut sum = 0;
//!     for sample in datagram.samples().flatten() {
//!         let Sample::Flow(flow) = sample else { continue };
//!         for record in flow.records().flatten() {
//!             if let FlowRecord::SampledHeader(header) = record {
//!                 let packet = header.packet();
//!                 sum += u64::from(header.l3_bytes(&packet)) * u64::from(flow.sampling_rate);
//!             }
//!         }
//!     }
//!     sum
//! }
//! ```

pub mod counter;
mod datagram;
mod error;
pub mod flow;
mod list;
mod metric;
mod packet;
mod reason;
mod record;
mod sample;
mod structure;
mod value;
mod writer;
mod xdr;

pub use counter::CounterRecord;
pub use datagram::{Datagram, Samples, VERSION};
pub use error::{Fault, Malformed, Place};
pub use flow::FlowRecord;
pub use list::{Adapter, Adapters, AsPath, AsSegment, List};
pub use metric::{Metric, MetricValue, Metrics, RtFlow, RtMetric};
pub use packet::{Fragment, Icmp, Ip, MacPair, MplsStack, Packet, Ports, Tunnel, Vlan};
pub use reason::DropReason;
pub use record::{CounterRecords, DataFormat, FlowRecords, RawRecord, Records};
pub use sample::{
    CountersSample, DataSource, Direction, DroppedPacket, FlowSample, Form, Interface, Sample,
};
pub use structure::Kind;
pub use value::{Address, Counter32, Counter64, Mac, Text, Value};
pub use writer::Writer;
pub use xdr::Xdr;
