//! Rows as OpenTelemetry log records: one `ExportLogsServiceRequest` message for many rows
//! (`opentelemetry/proto/collector/logs/v1/logs_service.proto`, `logs/v1/logs.proto`, `common/v1/common.proto`).
//!
//! Each field is an attribute with its usual name. Fields that identify the host go to the resource, once for all rows of a host.

use crate::protobuf::{field_len, put_key, put_number, put_varint, varint_len};
use crate::schema::Visit;
use crate::text::put_address;
use crate::value::Visitor;
use crate::{
    CounterSubject, DatagramRecord, DecodeError, Field, FieldSet, RecordKind, RowKind,
    SyslogSeverity, Tags, decode_counter_record, decode_datagram_record, decode_flow_record,
    decode_flow_totals, decode_protobuf, decode_totals,
};
use std::net::IpAddr;

/// Collects rows, and builds a request from those since the last one.
pub struct OtlpLogs {
    fields: Option<FieldSet>,
    /// The log records of each host, in order of first appearance.
    groups: Vec<Group>,
    scratch: Scratch,
}

struct Group {
    resource: Vec<u8>,
    records: Vec<u8>,
}

#[derive(Default)]
struct Scratch {
    /// Attributes of the resource.
    resource: Vec<u8>,
    record: Vec<u8>,
    text: Vec<u8>,
}

/// Field numbers of `LogRecord`.
const TIME: u32 = 1;
const SEVERITY_NUMBER: u32 = 2;
const SEVERITY_TEXT: u32 = 3;
const BODY: u32 = 5;
const ATTRIBUTES: u32 = 6;
const OBSERVED_TIME: u32 = 11;
const EVENT_NAME: u32 = 12;

/// Field numbers of `AnyValue`.
const STRING: u32 = 1;
const BOOL: u32 = 2;
const INT: u32 = 3;
const BYTES: u32 = 7;

impl OtlpLogs {
    /// A writer of these fields of each socket record. Rows of other kinds are always complete.
    pub fn new(fields: &FieldSet) -> OtlpLogs {
        let fields = (!fields.is_all()).then_some(*fields);
        OtlpLogs { fields, groups: Vec::new(), scratch: Scratch::default() }
    }

    /// Adds a row given as its protobuf message.
    ///
    /// # Errors
    /// It is not such a message; nothing was added.
    pub fn row(&mut self, kind: RowKind, message: &[u8]) -> Result<(), DecodeError> {
        let Scratch { resource, record, .. } = &mut self.scratch;
        resource.clear();
        record.clear();
        put_attribute("service.name", &Any::Text("weir"), 1, resource);

        match kind {
            RowKind::Record => {
                let row = decode_protobuf(message)?;
                let is_close = row.record_kind == Some(RecordKind::CLOSE);
                let event = if is_close { "socket.close" } else { "socket.poll" };
                self.put(&row, self.fields, row.time_unix_ns, event, None);
            }
            RowKind::Totals => {
                let row = decode_totals(message)?;
                self.put(&row, None, row.time_unix_ns, "socket.totals", None);
            }
            RowKind::Datagram => {
                let row = decode_datagram_record(message)?;
                self.put(&row, None, row.time_unix_ns, "datagram", Some(&row));
            }
            RowKind::Flow => {
                let row = decode_flow_record(message)?;
                self.put(&row, None, row.time_unix_ns, "flow", None);
            }
            RowKind::Counters => {
                let row = decode_counter_record(message)?;
                let is_agent = row.subject == Some(CounterSubject::AGENT);
                let event = if is_agent { "flow.agent" } else { "flow.interface" };
                self.put(&row, None, row.time_unix_ns, event, None);
            }
            RowKind::FlowTotals => {
                let row = decode_flow_totals(message)?;
                self.put(&row, None, row.time_unix_ns, "flow.totals", None);
            }
        }
        self.end_row();
        Ok(())
    }

    /// Bytes of the request so far, except a few around them.
    pub fn bytes(&self) -> usize {
        self.groups.iter().map(|group| group.resource.len() + group.records.len()).sum()
    }

    /// Completes the request, and begins the next.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes() + 64 * self.groups.len());
        let mut scope = Vec::new();
        put_text(1, "weir", &mut scope);
        put_text(2, env!("CARGO_PKG_VERSION"), &mut scope);

        for Group { resource, records } in self.groups.drain(..) {
            let scope_logs_len = field_len(1, scope.len()) + records.len();
            let len = field_len(1, resource.len()) + field_len(2, scope_logs_len);
            put_key(1, len, &mut out);
            put_key(1, resource.len(), &mut out);
            out.extend_from_slice(&resource);
            put_key(2, scope_logs_len, &mut out);
            put_key(1, scope.len(), &mut out);
            out.extend_from_slice(&scope);
            out.extend_from_slice(&records);
        }
        out
    }

    fn put<M: Visit>(
        &mut self,
        row: &M,
        fields: Option<FieldSet>,
        time_unix_ns: Option<u64>,
        event: &str,
        datagram: Option<&DatagramRecord<'_>>,
    ) {
        let record = &mut self.scratch.record;
        let sent = datagram.and_then(|datagram| datagram.syslog_time_unix_ns);
        put_fixed64(TIME, sent.or(time_unix_ns).unwrap_or_default(), record);
        put_fixed64(OBSERVED_TIME, time_unix_ns.unwrap_or_default(), record);
        put_text(EVENT_NAME, event, record);
        match datagram {
            Some(datagram) => put_datagram(datagram, record),
            None => put_value(BODY, &Any::Text(event), record),
        }
        row.visit(fields.as_ref(), &mut Attributes(&mut self.scratch));
    }

    fn end_row(&mut self) {
        let OtlpLogs { groups, scratch, .. } = self;
        let at = groups.iter().position(|group| group.resource == scratch.resource);
        let at = at.unwrap_or_else(|| {
            groups.push(Group { resource: scratch.resource.clone(), records: Vec::new() });
            groups.len() - 1
        });
        let records = &mut groups[at].records;
        put_key(2, scratch.record.len(), records);
        records.extend_from_slice(&scratch.record);
    }
}

/// Writes the message as the body, and its severity.
fn put_datagram(datagram: &DatagramRecord<'_>, out: &mut Vec<u8>) {
    let text = datagram.message.or(datagram.payload).unwrap_or_default();
    match str::from_utf8(text) {
        Ok(text) => put_value(BODY, &Any::Text(text), out),
        Err(_) => put_value(BODY, &Any::Bytes(text), out),
    }

    let Some(severity) = datagram.severity else { return };
    put_number(SEVERITY_NUMBER, severity_number(severity), out);
    if let Some(word) = severity.word() {
        put_text(SEVERITY_TEXT, word, out);
    }
}

/// OpenTelemetry's mapping of syslog (`specification/logs/data-model-appendix.md`, "Appendix B: SeverityNumber example
/// mappings").
fn severity_number(severity: SyslogSeverity) -> u64 {
    match severity.0 {
        0 => 21,
        1 => 19,
        2 => 18,
        3 => 17,
        4 => 13,
        5 => 10,
        6 => 9,
        7 => 5,
        _ => 0,
    }
}

/// `AnyValue`, without the variants that need to allocate.
enum Any<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Bool(bool),
    Int(i64),
}

impl Any<'_> {
    fn len(&self) -> usize {
        match self {
            Any::Text(text) => field_len(STRING, text.len()),
            Any::Bytes(bytes) => field_len(BYTES, bytes.len()),
            Any::Bool(_) => 2,
            Any::Int(value) => 1 + varint_len(value.cast_unsigned()),
        }
    }
}

fn put_value(number: u32, value: &Any<'_>, out: &mut Vec<u8>) {
    put_key(number, value.len(), out);
    match value {
        Any::Text(text) => put_text(STRING, text, out),
        Any::Bytes(bytes) => {
            put_key(BYTES, bytes.len(), out);
            out.extend_from_slice(bytes);
        }
        Any::Bool(value) => put_number(BOOL, (*value).into(), out),
        Any::Int(value) => put_number(INT, value.cast_unsigned(), out),
    }
}

/// Writes a `KeyValue`.
fn put_attribute(name: &str, value: &Any<'_>, number: u32, out: &mut Vec<u8>) {
    put_key(number, field_len(1, name.len()) + field_len(2, value.len()), out);
    put_text(1, name, out);
    put_value(2, value, out);
}

fn put_text(number: u32, text: &str, out: &mut Vec<u8>) {
    put_key(number, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

fn put_fixed64(number: u32, value: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

struct Attributes<'s>(&'s mut Scratch);

impl Attributes<'_> {
    fn put(&mut self, field: &'static Field, value: &Any<'_>) {
        match field.name {
            "host" => put_attribute("host.name", value, 1, &mut self.0.resource),
            "host_id" => put_attribute("host.id", value, 1, &mut self.0.resource),
            // The log record itself has them.
            "time_unix_ns" | "record_kind" => {}
            name => put_attribute(name, value, ATTRIBUTES, &mut self.0.record),
        }
    }

    /// Writes an attribute whose value is in the scratch text.
    fn put_written(&mut self, field: &'static Field) {
        let text = std::mem::take(&mut self.0.text);
        self.put(field, &Any::Text(str::from_utf8(&text).unwrap_or_default()));
        self.0.text = text;
    }
}

impl Visitor for Attributes<'_> {
    fn unsigned<const NUMBER: u32>(&mut self, field: &'static Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.put(field, &Any::Int(value)),
            // `AnyValue` has no larger integers, and a double would not be exact.
            Err(_) => self.put(field, &Any::Text(&value.to_string())),
        }
    }

    fn bool<const NUMBER: u32>(&mut self, field: &'static Field, value: bool) {
        self.put(field, &Any::Bool(value));
    }

    fn word<const NUMBER: u32>(
        &mut self,
        field: &'static Field,
        value: u8,
        word: Option<&'static str>,
    ) {
        match word {
            Some(word) => self.put(field, &Any::Text(word)),
            None => self.put(field, &Any::Int(value.into())),
        }
    }

    fn text<const NUMBER: u32>(&mut self, field: &'static Field, value: &str) {
        self.put(field, &Any::Text(value));
    }

    fn bytes<const NUMBER: u32>(&mut self, field: &'static Field, value: &[u8]) {
        match str::from_utf8(value) {
            Ok(text) => self.put(field, &Any::Text(text)),
            Err(_) => self.put(field, &Any::Bytes(value)),
        }
    }

    fn address<const NUMBER: u32>(&mut self, field: &'static Field, value: IpAddr) {
        self.0.text.clear();
        put_address(value, &mut self.0.text);
        self.put_written(field);
    }

    fn tags<const NUMBER: u32>(&mut self, _: &'static Field, value: Tags<'_>) {
        for (name, value) in value.iter() {
            put_attribute(name, &Any::Text(value), 1, &mut self.0.resource);
        }
    }
}
