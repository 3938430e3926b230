//! The schema of what Weir exports: one table that describes every field, and the encoders generated from it.
//!
//! ```
//! use record::{Encoder, Encoding, FieldSet, SocketRecord, SocketState};
//!
//! let record = SocketRecord { state: Some(SocketState::ESTABLISHED), rtt_us: Some(180), ..SocketRecord::default() };
//! let mut out = Vec::new();
//! Encoder::new(Encoding::Jsonl, &FieldSet::ALL).encode(&record, &mut out);
//! assert_eq!(out, b"{\"state\":\"established\",\"rtt_us\":180}\n");
//! ```

#![forbid(unsafe_code)]

mod cells;
mod chunk;
mod counter_record;
mod datagram;
mod datagram_record;
mod decode;
mod delimited;
mod encoder;
mod field_set;
mod flow_record;
mod flow_totals;
#[cfg(test)]
mod generated;
mod json;
mod messagepack;
mod native;
mod otlp;
mod protobuf;
mod prototext;
mod scan;
mod schema;
mod table;
mod tags;
mod text;
mod totals;
mod value;
mod words;

pub use cells::{Cell, CellReader};
pub use chunk::{Arrivals, Chunk, ChunkBuilder, ChunkError, Row, RowKind};
pub use counter_record::CounterRecord;
pub use datagram::{
    DATAGRAM_MIN_BYTES, Datagram, DatagramPacker, DatagramView, LastDatagrams, TooBig,
    decode_datagram,
};
pub use datagram_record::DatagramRecord;
pub use decode::{
    DecodeError, Delimited, Record, decode_counter_record, decode_datagram_record,
    decode_flow_record, decode_flow_totals, decode_protobuf, decode_record, decode_totals,
};
pub use encoder::{Encoder, Encoding, Frame, UnknownEncoding, Written};
pub use field_set::{FieldSet, UnknownField};
pub use flow_record::FlowRecord;
pub use flow_totals::FlowTotals;
pub use native::Native;
pub use otlp::OtlpLogs;
pub use schema::{Field, Group, Kind};
pub use table::{SCHEMA_VERSION, SocketRecord};
pub use tags::Tags;
pub use totals::PollTotals;
pub use words::{
    AccEcnOption, AddressFamily, CloseReason, ConnectionRole, CounterSubject, CountersFrom,
    EcnMode, FastOpenFailure, FlowCause, FlowTraffic, RecordKind, RecoveryState, SocketState,
    SocketTimer, SyslogFacility, SyslogFault, SyslogFormat, SyslogSeverity, TlsMode, WORD_TABLES,
    Words,
};

/// The field of `SocketRecord` that holds the totals in a record of kind `totals`.
pub const TOTALS_NUMBER: u32 = 400;

/// `weir.proto`: the protobuf schema of the rows, for programs.
pub const PROTO: &str = include_str!("../../../proto/weir.proto");
/// The field with the kind of a row, which has the same number in every table.
const KIND_NUMBER: u32 = 1;
