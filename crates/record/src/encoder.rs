//! Records to bytes, in any of the encodings.

use crate::protobuf::{ProtobufWriter, field_len, put_key, put_number, put_varint};
use crate::{FieldSet, PollTotals, RecordKind, SocketRecord, TOTALS_NUMBER, json};
use std::fmt;
use std::str::FromStr;

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// Messages `SocketRecord` of `weir.proto`, each with its length as a varint before it.
    Protobuf,
    /// JSON objects, one a line.
    Jsonl,
}

impl Encoding {
    /// Every encoding.
    pub const ALL: &'static [Encoding] = &[Encoding::Protobuf, Encoding::Jsonl];

    /// The name in configuration and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Protobuf => "protobuf",
            Encoding::Jsonl => "jsonl",
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no encoding's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no encoding; there are protobuf and jsonl")]
pub struct UnknownEncoding(pub String);

impl FromStr for Encoding {
    type Err = UnknownEncoding;

    fn from_str(name: &str) -> Result<Encoding, UnknownEncoding> {
        let known = Encoding::ALL.iter().find(|encoding| encoding.name() == name);
        known.copied().ok_or_else(|| UnknownEncoding(name.to_owned()))
    }
}

/// Writes records in one encoding. It appends to what it is given and allocates nothing else.
pub struct Encoder {
    encoding: Encoding,
    fields: Option<FieldSet>,
    protobuf: ProtobufWriter,
}

impl Encoder {
    /// An encoder of these fields of each socket record. Totals are always whole.
    pub fn new(encoding: Encoding, fields: &FieldSet) -> Encoder {
        let fields = (!fields.is_all()).then_some(*fields);
        Encoder { encoding, fields, protobuf: ProtobufWriter::new() }
    }

    /// What comes before the first record of a file or payload.
    pub fn begin(&mut self, _out: &mut Vec<u8>) {}

    /// Appends one record.
    pub fn encode(&mut self, record: &SocketRecord<'_>, out: &mut Vec<u8>) {
        match self.encoding {
            Encoding::Protobuf => match &self.fields {
                None => self.protobuf.write(record, None, out, put_length),
                Some(fields) => self.protobuf.write(record, Some(fields), out, put_length),
            },
            Encoding::Jsonl => {
                json::put_object(record, self.fields.as_ref(), out);
                out.push(b'\n');
            }
        }
    }

    /// Appends the totals of a poll, as a record of kind `totals` with `totals` in it.
    pub fn totals(&mut self, totals: &PollTotals<'_>, out: &mut Vec<u8>) {
        match self.encoding {
            Encoding::Protobuf => self.protobuf.write(totals, None, out, |len, out| {
                put_length(2 + field_len(TOTALS_NUMBER, len), out);
                put_number(1, RecordKind::TOTALS.0.into(), out);
                put_key(TOTALS_NUMBER, len, out);
            }),
            Encoding::Jsonl => {
                out.extend_from_slice(b"{\"record_kind\":\"totals\",\"totals\":");
                json::put_object(totals, None, out);
                out.extend_from_slice(b"}\n");
            }
        }
    }

    /// What comes after the last record of a file or payload.
    pub fn end(&mut self, _out: &mut Vec<u8>) {}
}

#[inline(always)]
fn put_length(len: usize, out: &mut Vec<u8>) {
    put_varint(len as u64, out);
}
