//! Encodes records in any of the encodings.

use crate::protobuf::{ProtobufWriter, field_len, put_key, put_number, put_varint};
use crate::scan::Scan;
use crate::schema::{Message, Visit};
use crate::{
    CounterRecord, DatagramRecord, DecodeError, Field, FieldSet, FlowRecord, FlowTotals,
    KIND_NUMBER, PollTotals, RecordKind, RowKind, SocketRecord, TOTALS_NUMBER, decode_protobuf,
    decode_totals, delimited, json, messagepack, prototext,
};
use std::fmt;
use std::str::FromStr;

/// An output format for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// `SocketRecord` messages of `weir.proto`, each preceded by its length as a varint.
    Protobuf,
    /// Protobuf text, `record { … }` per line; together they form one `SocketRecords` message.
    Prototext,
    /// Protobuf JSON, one object per line: names in lowerCamelCase, 64-bit numbers as strings, addresses as bytes.
    Protojson,
    /// JSON objects, one per line, with the names of the table: numbers as numbers, addresses as text.
    Jsonl,
    /// The same objects as one array.
    Json,
    /// MessagePack maps, one after another.
    MessagePack,
    /// Comma-separated values with a header line (RFC 4180, with line feeds), in the chosen order. No totals.
    Csv,
    /// Tab-separated values with a header line, escaped with backslashes, in the chosen order. No totals.
    Tsv,
}

impl Encoding {
    /// Every encoding.
    pub const ALL: &'static [Encoding] = &[
        Encoding::Protobuf,
        Encoding::Prototext,
        Encoding::Protojson,
        Encoding::Jsonl,
        Encoding::Json,
        Encoding::MessagePack,
        Encoding::Csv,
        Encoding::Tsv,
    ];

    /// The name in the configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Protobuf => "protobuf",
            Encoding::Prototext => "prototext",
            Encoding::Protojson => "protojson",
            Encoding::Jsonl => "jsonl",
            Encoding::Json => "json",
            Encoding::MessagePack => "msgpack",
            Encoding::Csv => "csv",
            Encoding::Tsv => "tsv",
        }
    }

    /// The usual file name extension, without the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Encoding::Protobuf => "pb",
            Encoding::Prototext => "txtpb",
            Encoding::Protojson | Encoding::Jsonl => "jsonl",
            _ => self.name(),
        }
    }

    /// Whether it is text that a terminal can show.
    pub fn is_text(self) -> bool {
        !matches!(self, Encoding::Protobuf | Encoding::MessagePack)
    }

    /// Whether it can hold the totals of a poll. Tables cannot: all their lines have the same columns.
    pub fn has_totals(self) -> bool {
        !matches!(self, Encoding::Csv | Encoding::Tsv)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not an encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no encoding is named `{0}`; there are protobuf, prototext, protojson, jsonl, json, msgpack, csv and tsv"
)]
pub struct UnknownEncoding(pub String);

impl FromStr for Encoding {
    type Err = UnknownEncoding;

    fn from_str(name: &str) -> Result<Encoding, UnknownEncoding> {
        let known = Encoding::ALL.iter().find(|encoding| encoding.name() == name);
        known.copied().ok_or_else(|| UnknownEncoding(name.to_owned()))
    }
}

/// How the rows of a file or payload are framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frame {
    /// Rows of all kinds, mixed: totals come inside a record, so that their kind is visible.
    #[default]
    Mixed,
    /// Rows of one kind, for a separate table: totals are ordinary rows.
    OneKind,
    /// Each row is a separate message, without a length before it or a line end after it. Needs neither [`begin`](Encoder::begin)
    /// nor [`end`](Encoder::end).
    Alone,
}

/// Whether a row was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was.
    Yes,
    /// The encoding cannot hold rows of this kind.
    NoForm,
}

/// Writes rows in one encoding. It appends to the given buffer and allocates nothing else.
///
/// Each file or payload is [`begin`](Encoder::begin), any number of rows, and [`end`](Encoder::end).
pub struct Encoder {
    encoding: Encoding,
    frame: Frame,
    /// The kind of rows in a text table.
    lines: RowKind,
    chosen: FieldSet,
    /// The chosen fields; `None` for all, so that the common path need not check them.
    fields: Option<FieldSet>,
    /// The column order, if it differs from the table's.
    order: Option<Box<delimited::Order>>,
    protobuf: ProtobufWriter,
    /// Readers of row messages, by kind; created for the first row of a kind.
    scans: [Option<Box<Scan>>; RowKind::ALL.len()],
    has_element: bool,
}

impl Encoder {
    /// An encoder of these fields of each socket record. Rows of other kinds are always complete.
    pub fn new(encoding: Encoding, fields: &FieldSet) -> Encoder {
        Encoder {
            encoding,
            frame: Frame::Mixed,
            lines: RowKind::Record,
            chosen: *fields,
            fields: (!fields.is_all()).then_some(*fields),
            order: None,
            protobuf: ProtobufWriter::new(),
            scans: Default::default(),
            has_element: false,
        }
    }

    /// An encoder of these fields, each named once, that keeps their order in encodings with columns: CSV and TSV. The others
    /// name their fields, and use the order of the table.
    pub fn in_order(encoding: Encoding, fields: &[&'static Field]) -> Encoder {
        let order = matches!(encoding, Encoding::Csv | Encoding::Tsv)
            .then(|| delimited::Order::of(fields))
            .flatten()
            .map(Box::new);
        Encoder { order, ..Encoder::new(encoding, &FieldSet::of(fields)) }
    }

    /// An encoder of datagrams: see [`of`](Self::of).
    pub fn of_datagrams(encoding: Encoding) -> Encoder {
        Encoder::of(RowKind::Datagram, encoding)
    }

    /// An encoder of rows of this kind, for encodings limited to one kind: CSV and TSV. The other encodings take every kind
    /// anyway.
    pub fn of(lines: RowKind, encoding: Encoding) -> Encoder {
        Encoder { lines, ..Encoder::new(encoding, &FieldSet::ALL) }
    }

    /// The same encoder with another frame.
    #[must_use]
    pub fn framed(self, frame: Frame) -> Encoder {
        Encoder { frame, ..self }
    }

    /// Its encoding.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether it can encode rows of this kind.
    pub fn has_form(&self, kind: RowKind) -> bool {
        match (self.encoding, kind) {
            (Encoding::Csv | Encoding::Tsv, kind) => kind == self.lines,
            (Encoding::Prototext, RowKind::Totals) => self.frame == Frame::Mixed,
            _ => true,
        }
    }

    /// Appends what comes before the first row of a file or payload.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        self.has_element = false;
        match self.encoding {
            Encoding::Json => out.push(b'['),
            Encoding::Csv => self.put_header(b',', out),
            Encoding::Tsv => self.put_header(b'\t', out),
            _ => {}
        }
    }

    fn put_header(&self, separator: u8, out: &mut Vec<u8>) {
        if self.lines == RowKind::Record {
            delimited::put_header(self.chosen.fields(), self.order.as_deref(), separator, out);
        } else {
            delimited::put_header(self.lines.fields().iter(), None, separator, out);
        }
    }

    /// Appends a row given as its protobuf message: unchanged if possible, otherwise field by field.
    pub fn row(
        &mut self,
        kind: RowKind,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Written, DecodeError> {
        if !self.has_form(kind) {
            return Ok(Written::NoForm);
        }

        let is_as_asked = kind != RowKind::Record || self.fields.is_none();
        match kind {
            _ if self.encoding == Encoding::Protobuf && is_as_asked => {
                self.put_head(kind, message.len(), out);
                out.extend_from_slice(message);
            }
            RowKind::Record if self.encoding == Encoding::Protobuf => {
                self.encode(&decode_protobuf(message)?, out);
            }
            RowKind::Totals => self.totals(&decode_totals(message)?, out),
            RowKind::Record => self.scanned(kind, self.fields, message, out)?,
            RowKind::Datagram | RowKind::Flow | RowKind::Counters | RowKind::FlowTotals => {
                self.scanned(kind, None, message, out)?;
            }
        }
        Ok(Written::Yes)
    }

    /// Appends a row in any encoding except protobuf, from its message.
    fn scanned(
        &mut self,
        kind: RowKind,
        fields: Option<FieldSet>,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let Some(at) = RowKind::ALL.iter().position(|known| *known == kind) else { return Ok(()) };
        let scan = self.scans[at].take();
        let mut scan = scan.unwrap_or_else(|| Box::new(Scan::new(kind.fields())));
        let read = scan.read(message).map(|row| self.put(kind, &row, fields.as_ref(), out));
        self.scans[at] = Some(scan);
        read
    }

    fn put_head(&self, kind: RowKind, len: usize, out: &mut Vec<u8>) {
        match (self.frame, kind) {
            (Frame::Alone, _) => {}
            (Frame::Mixed, RowKind::Totals) => put_totals_head(len, out),
            _ => put_length(len, out),
        }
    }

    /// Appends one socket record. Text tables of another kind omit it.
    #[inline]
    pub fn encode(&mut self, record: &SocketRecord<'_>, out: &mut Vec<u8>) {
        let head = head_of(self.frame);
        match (self.encoding, &self.fields) {
            (Encoding::Protobuf, None) => self.protobuf.write_record(record, out, head),
            (Encoding::Protobuf, Some(fields)) => {
                self.protobuf.write_fields(record, fields, out, head);
            }
            _ => {
                let fields = self.fields;
                self.put(RowKind::Record, record, fields.as_ref(), out);
            }
        }
    }

    /// Appends a datagram. Text tables of another kind omit it.
    pub fn datagram(&mut self, datagram: &DatagramRecord<'_>, out: &mut Vec<u8>) {
        self.whole(RowKind::Datagram, datagram, out);
    }

    /// Appends a flow. Text tables of another kind omit it.
    pub fn flow(&mut self, flow: &FlowRecord<'_>, out: &mut Vec<u8>) {
        self.whole(RowKind::Flow, flow, out);
    }

    /// Appends counters. Text tables of another kind omit them.
    pub fn counters(&mut self, counters: &CounterRecord<'_>, out: &mut Vec<u8>) {
        self.whole(RowKind::Counters, counters, out);
    }

    /// Appends the totals of flow and counter rows. Text tables of another kind omit them.
    pub fn flow_totals(&mut self, totals: &FlowTotals<'_>, out: &mut Vec<u8>) {
        self.whole(RowKind::FlowTotals, totals, out);
    }

    fn whole<'a>(&mut self, kind: RowKind, row: &impl Message<'a>, out: &mut Vec<u8>) {
        if self.encoding == Encoding::Protobuf {
            self.protobuf.write_row(row, out, head_of(self.frame));
        } else {
            self.put(kind, row, None, out);
        }
    }

    /// Appends the totals of a poll, according to the frame: among other rows, they are a record of kind `totals` with nothing
    /// but `totals` in it. Text tables omit them.
    pub fn totals(&mut self, totals: &PollTotals<'_>, out: &mut Vec<u8>) {
        if self.frame != Frame::Mixed {
            return self.totals_row(totals, out);
        }

        match self.encoding {
            Encoding::Protobuf => self.protobuf.write_totals(totals, out, put_totals_head),
            Encoding::Prototext => {
                out.extend_from_slice(b"record { record_kind: totals totals {");
                prototext::put_fields(totals, None, out);
                out.extend_from_slice(b" } }\n");
            }
            Encoding::Protojson => {
                out.extend_from_slice(b"{\"recordKind\":\"totals\",\"totals\":");
                json::put_canonical(totals, None, out);
                out.extend_from_slice(b"}\n");
            }
            Encoding::Jsonl => {
                put_json_totals(totals, out);
                out.push(b'\n');
            }
            Encoding::Json => {
                separate(&mut self.has_element, out);
                put_json_totals(totals, out);
            }
            Encoding::MessagePack => {
                // A map of two entries.
                out.push(0x82);
                for text in ["record_kind", "totals", "totals"] {
                    messagepack::put_text(text, out);
                }
                messagepack::put_map(totals, None, out);
            }
            Encoding::Csv | Encoding::Tsv => {}
        }
    }

    /// Appends the totals of a poll as a separate kind of row, whatever the frame: a message `PollTotals`, an object, a map.
    /// Encodings without such a form (protobuf text, CSV and TSV) omit them.
    pub fn totals_row(&mut self, totals: &PollTotals<'_>, out: &mut Vec<u8>) {
        match self.encoding {
            Encoding::Protobuf => self.protobuf.write_totals(totals, out, head_of(self.frame)),
            Encoding::Prototext => {}
            _ => self.put(RowKind::Totals, totals, None, out),
        }
    }

    /// Appends a row in any encoding except protobuf.
    fn put<M: Visit>(
        &mut self,
        kind: RowKind,
        row: &M,
        fields: Option<&FieldSet>,
        out: &mut Vec<u8>,
    ) {
        let order = self.order.as_deref_mut();
        match self.encoding {
            // The callers write protobuf themselves, with code for each kind of row.
            Encoding::Protobuf => {}
            Encoding::Prototext => {
                out.extend_from_slice(kind.word().as_bytes());
                out.extend_from_slice(b" {");
                prototext::put_fields(row, fields, out);
                out.extend_from_slice(b" }\n");
            }
            Encoding::Protojson => {
                json::put_canonical(row, fields, out);
                out.push(b'\n');
            }
            Encoding::Jsonl => {
                json::put_object(row, fields, out);
                out.push(b'\n');
            }
            Encoding::Json => {
                if self.frame != Frame::Alone {
                    separate(&mut self.has_element, out);
                }
                json::put_object(row, fields, out);
            }
            Encoding::MessagePack => messagepack::put_map(row, fields, out),
            Encoding::Csv if kind == self.lines => delimited::put_csv(row, fields, order, out),
            Encoding::Tsv if kind == self.lines => delimited::put_tsv(row, fields, order, out),
            Encoding::Csv | Encoding::Tsv => {}
        }

        if self.frame == Frame::Alone && self.encoding.is_text() && self.has_form(kind) {
            // Remove the line end; an array element has none.
            out.pop_if(|last| *last == b'\n');
        }
    }

    /// Appends what comes after the last row of a file or payload.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.encoding == Encoding::Json {
            out.extend_from_slice(if self.has_element { b"\n]\n" } else { b"]\n" });
        }
    }
}

/// Writes the length prefix of a protobuf message, if the frame has one.
#[inline(always)]
fn head_of(frame: Frame) -> impl FnOnce(usize, &mut Vec<u8>) {
    move |len, out| {
        if frame != Frame::Alone {
            put_length(len, out);
        }
    }
}

/// Writes what comes before totals of `len` bytes: the beginning of the record that contains them.
fn put_totals_head(len: usize, out: &mut Vec<u8>) {
    // Key and value of `record_kind` take a byte each.
    put_length(2 + field_len(TOTALS_NUMBER, len), out);
    put_number(KIND_NUMBER, RecordKind::TOTALS.0.into(), out);
    put_key(TOTALS_NUMBER, len, out);
}

/// Separates the elements of an array.
fn separate(has_element: &mut bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if *has_element { b",\n" } else { b"\n" });
    *has_element = true;
}

fn put_json_totals(totals: &PollTotals<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"record_kind\":\"totals\",\"totals\":");
    json::put_object(totals, None, out);
    out.push(b'}');
}

#[inline(always)]
fn put_length(len: usize, out: &mut Vec<u8>) {
    put_varint(len as u64, out);
}
