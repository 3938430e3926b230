//! Records to bytes, in any of the encodings.

use crate::protobuf::{ProtobufWriter, field_len, put_key, put_number, put_varint};
use crate::{
    DecodeError, Field, FieldSet, PollTotals, RecordKind, RowKind, SocketRecord, TOTALS_NUMBER,
    decode_protobuf, decode_totals, delimited, json, messagepack, prototext,
};
use std::fmt;
use std::str::FromStr;

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// Messages `SocketRecord` of `weir.proto`, each with its length as a varint before it.
    Protobuf,
    /// Protobuf text, `record { … }` a line: together one message `SocketRecords`.
    Prototext,
    /// Protobuf JSON, one object a line: names in lowerCamelCase, 64-bit numbers as texts, addresses as bytes.
    Protojson,
    /// JSON objects, one a line, with the names of the table: numbers as numbers, addresses as text.
    Jsonl,
    /// The same objects as one array.
    Json,
    /// MessagePack maps, one after another.
    MessagePack,
    /// Comma-separated values with a line of names (RFC 4180, with line feeds), in the order that was chosen. No totals.
    Csv,
    /// Tab-separated values with a line of names, escaped with backslashes, in the order that was chosen. No totals.
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

    /// The name in configuration and on the command line.
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

    /// The usual end of a file's name, without the dot.
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

    /// Whether it has room for the totals of a poll. Tables have not: all their lines have one shape.
    pub fn has_totals(self) -> bool {
        !matches!(self, Encoding::Csv | Encoding::Tsv)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not an encoding's.
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

/// Writes records in one encoding. It appends to what it is given and allocates nothing else.
///
/// Each file or payload is [`begin`](Encoder::begin), any number of records and totals, and [`end`](Encoder::end).
pub struct Encoder {
    encoding: Encoding,
    chosen: FieldSet,
    /// The choice; `None` if it is everything, so that the usual path need not look at it.
    fields: Option<FieldSet>,
    /// The order of columns, unless it is the table's.
    order: Option<Box<delimited::Order>>,
    protobuf: ProtobufWriter,
    has_element: bool,
}

impl Encoder {
    /// An encoder of these fields of each socket record. Totals are always whole.
    pub fn new(encoding: Encoding, fields: &FieldSet) -> Encoder {
        Encoder {
            encoding,
            chosen: *fields,
            fields: (!fields.is_all()).then_some(*fields),
            order: None,
            protobuf: ProtobufWriter::new(),
            has_element: false,
        }
    }

    /// An encoder of these fields, each named once, that keeps their order where an encoding has columns: CSV and TSV. The
    /// others name their fields, and have them in the order of the table.
    pub fn in_order(encoding: Encoding, fields: &[&'static Field]) -> Encoder {
        let order = matches!(encoding, Encoding::Csv | Encoding::Tsv)
            .then(|| delimited::Order::of(fields))
            .flatten()
            .map(Box::new);
        Encoder { order, ..Encoder::new(encoding, &FieldSet::of(fields)) }
    }

    /// Its encoding.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// What comes before the first record of a file or payload.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        self.has_element = false;
        match self.encoding {
            Encoding::Json => out.push(b'['),
            Encoding::Csv => delimited::put_header(&self.chosen, self.order.as_deref(), b',', out),
            Encoding::Tsv => delimited::put_header(&self.chosen, self.order.as_deref(), b'\t', out),
            _ => {}
        }
    }

    /// Appends one record.
    #[inline]
    pub fn encode(&mut self, record: &SocketRecord<'_>, out: &mut Vec<u8>) {
        match (self.encoding, &self.fields) {
            (Encoding::Protobuf, None) => self.protobuf.write_record(record, out, put_length),
            (Encoding::Protobuf, Some(fields)) => {
                self.protobuf.write_fields(record, fields, out, put_length);
            }
            _ => self.encode_other(record, out),
        }
    }

    fn encode_other(&mut self, record: &SocketRecord<'_>, out: &mut Vec<u8>) {
        let fields = self.fields.as_ref();
        match self.encoding {
            // `encode` writes it.
            Encoding::Protobuf => {}
            Encoding::Prototext => {
                out.extend_from_slice(b"record {");
                prototext::put_fields(record, fields, out);
                out.extend_from_slice(b" }\n");
            }
            Encoding::Protojson => {
                json::put_canonical(record, fields, out);
                out.push(b'\n');
            }
            Encoding::Jsonl => {
                json::put_object(record, fields, out);
                out.push(b'\n');
            }
            Encoding::Json => {
                separate(&mut self.has_element, out);
                json::put_object(record, fields, out);
            }
            Encoding::MessagePack => messagepack::put_map(record, fields, out),
            Encoding::Csv => delimited::put_csv(record, fields, self.order.as_deref_mut(), out),
            Encoding::Tsv => delimited::put_tsv(record, fields, self.order.as_deref_mut(), out),
        }
    }

    /// Appends the totals of a poll, as a record of kind `totals` with nothing but `totals` in it. Tables leave them out.
    pub fn totals(&mut self, totals: &PollTotals<'_>, out: &mut Vec<u8>) {
        match self.encoding {
            Encoding::Protobuf => self.protobuf.write_totals(totals, out, |len, out| {
                // Kind and number of `record_kind` take a byte each.
                put_length(2 + field_len(TOTALS_NUMBER, len), out);
                put_number(1, RecordKind::TOTALS.0.into(), out);
                put_key(TOTALS_NUMBER, len, out);
            }),
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

    /// Appends the totals of a poll as a row of their own kind, for a table of totals alone: a message `PollTotals` with its length
    /// before it, an object, a map. The encodings without one (protobuf text, CSV and TSV) leave them out.
    pub fn totals_row(&mut self, totals: &PollTotals<'_>, out: &mut Vec<u8>) {
        match self.encoding {
            Encoding::Protobuf => self.protobuf.write_totals(totals, out, put_length),
            Encoding::Protojson => {
                json::put_canonical(totals, None, out);
                out.push(b'\n');
            }
            Encoding::Jsonl => {
                json::put_object(totals, None, out);
                out.push(b'\n');
            }
            Encoding::Json => {
                separate(&mut self.has_element, out);
                json::put_object(totals, None, out);
            }
            Encoding::MessagePack => messagepack::put_map(totals, None, out),
            Encoding::Prototext | Encoding::Csv | Encoding::Tsv => {}
        }
    }

    /// Appends a row of a chunk.
    ///
    /// # Errors
    /// The bytes are no such message.
    pub fn row(
        &mut self,
        kind: RowKind,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Written, DecodeError> {
        let before = out.len();
        match kind {
            RowKind::Record if self.encoding == Encoding::Protobuf && self.fields.is_none() => {
                put_length(message.len(), out);
                out.extend_from_slice(message);
            }
            RowKind::Record => self.encode(&decode_protobuf(message)?, out),
            RowKind::Totals => self.totals(&decode_totals(message)?, out),
            RowKind::Datagram => {}
        }
        Ok(if out.len() > before { Written::Yes } else { Written::NoForm })
    }

    /// What comes after the last record of a file or payload.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if self.encoding == Encoding::Json {
            out.extend_from_slice(if self.has_element { b"\n]\n" } else { b"]\n" });
        }
    }
}

/// Whether an encoding has a form for a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    Yes,
    NoForm,
}

/// Between the elements of an array.
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
