//! Encodes rows into stream formats, and into messages of one row each.

use crate::batch::{Encoded, Part, PartKey};
use crate::destination::{BatchEncoder, Pushed};
use ledger::Reason;
use record::{
    DecodeError, Encoder, Encoding, FieldSet, Frame, Row, RowKind, Written, decode_datagram_record,
};

/// What surrounds the records of a stream or file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Bytes at the start of a file or stream.
    pub header: Vec<u8>,
    /// The last byte of each record, in encodings that have one.
    pub record_end: Option<u8>,
}

impl Framing {
    /// The framing of a stream or file in this encoding.
    pub fn of(encoding: Encoding, fields: &FieldSet) -> Framing {
        Framing::around(Encoder::new(encoding, fields))
    }

    /// The same for rows of this kind.
    fn of_kind(kind: RowKind, encoding: Encoding) -> Framing {
        Framing::around(Encoder::of(kind, encoding))
    }

    fn around(mut encoder: Encoder) -> Framing {
        let (encoding, mut framing) = (encoder.encoding(), Framing::default());
        if encoding != Encoding::Json {
            encoder.begin(&mut framing.header);
        }

        framing.record_end = match encoding {
            Encoding::Protobuf | Encoding::MessagePack => None,
            Encoding::Prototext
            | Encoding::Protojson
            | Encoding::Jsonl
            | Encoding::Json
            | Encoding::Csv
            | Encoding::Tsv => Some(b'\n'),
        };
        framing
    }
}

/// How the numbers in Parquet files are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NumberEncoding {
    /// As differences (`DELTA_BINARY_PACKED`).
    #[default]
    Delta,
    /// As they are (`PLAIN`), which every reader takes.
    Plain,
}

/// What a sink writes of its rows, where that is configurable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Socket records with these fields; rows of other kinds with all fields, where the encoding supports them.
    Records(Encoding, FieldSet),
    /// Datagrams as records, each with its sender and time.
    Datagrams(Encoding),
    /// Rows of flows, counters and their totals; text tables hold only flows.
    Flows(Encoding),
    /// Only the payloads of datagrams, each a line where rows share a part.
    Payloads,
}

impl Content {
    /// The encoder for it.
    pub fn encoder(self, partition: Partition) -> Box<dyn BatchEncoder> {
        Box::new(self.row_encoder(partition))
    }

    pub(crate) fn row_encoder(self, partition: Partition) -> RowEncoder {
        match self {
            Content::Records(encoding, fields) => RowEncoder::new(encoding, &fields, partition),
            Content::Datagrams(encoding) => {
                RowEncoder::of(Encoder::of_datagrams(encoding), partition)
            }
            Content::Flows(encoding) => {
                RowEncoder::of(Encoder::of(RowKind::Flow, encoding), partition)
            }
            Content::Payloads => RowEncoder::with(Form::Payload, partition),
        }
    }

    /// Its framing in a stream or file.
    pub fn framing(self) -> Framing {
        match self {
            Content::Records(encoding, fields) => Framing::of(encoding, &fields),
            Content::Datagrams(encoding) => Framing::of_kind(RowKind::Datagram, encoding),
            Content::Flows(encoding) => Framing::of_kind(RowKind::Flow, encoding),
            Content::Payloads => Framing { header: Vec::new(), record_end: Some(b'\n') },
        }
    }
}

/// How a batch is divided into parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Partition {
    /// The whole batch is one part: streams, files, and stores that take batches.
    Whole,
    /// Each row is a part and a separate message: brokers.
    Rows,
    /// Each row is a part, with the framing of a stream: connections, where a part may be lost.
    StreamRows,
}

/// Encodes rows with the crate `record`, or writes their payloads.
pub struct RowEncoder {
    form: Form,
    partition: Partition,
    out: Encoded,
    /// The contents of the part being filled.
    open: Option<Part>,
}

/// What is written of a row.
enum Form {
    Record(Box<Encoder>),
    Payload,
}

impl RowEncoder {
    pub fn new(encoding: Encoding, fields: &FieldSet, partition: Partition) -> RowEncoder {
        RowEncoder::of(Encoder::new(encoding, fields), partition)
    }

    fn of(encoder: Encoder, partition: Partition) -> RowEncoder {
        let encoder = match partition {
            Partition::Whole | Partition::StreamRows => encoder,
            // A message carries its own length.
            Partition::Rows => encoder.framed(Frame::Alone),
        };
        RowEncoder::with(Form::Record(Box::new(encoder)), partition)
    }

    fn with(form: Form, partition: Partition) -> RowEncoder {
        RowEncoder { form, partition, out: Encoded::default(), open: None }
    }

    /// Appends a row to the caller's bytes instead of a part.
    pub(crate) fn write(
        &mut self,
        row: &Row<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Written, DecodeError> {
        match &mut self.form {
            Form::Record(encoder) => encoder.row(row.kind, row.bytes, out),
            Form::Payload if row.kind != RowKind::Datagram => Ok(Written::NoForm),
            Form::Payload => {
                let payload = decode_datagram_record(row.bytes)?.payload.unwrap_or_default();
                match self.partition {
                    Partition::Rows => {
                        out.extend_from_slice(payload);
                        Ok(Written::Yes)
                    }
                    Partition::Whole | Partition::StreamRows => Ok(write_line(payload, out)),
                }
            }
        }
    }

    /// The encoder, if each batch is a JSON array of its own, so that no file ends inside one.
    fn array(&mut self) -> Option<(&mut Encoder, &mut Vec<u8>)> {
        let Form::Record(encoder) = &mut self.form else { return None };
        let is_array = encoder.encoding() == Encoding::Json && self.partition == Partition::Whole;
        is_array.then_some((encoder, &mut self.out.bytes))
    }

    fn begin_array(&mut self) {
        if self.open.is_none()
            && let Some((encoder, out)) = self.array()
        {
            encoder.begin(out);
        }
    }

    fn end_array(&mut self) {
        if self.open.is_some()
            && let Some((encoder, out)) = self.array()
        {
            encoder.end(out);
        }
    }

    fn end_part(&mut self) {
        if let Some(part) = self.open.take() {
            self.out.parts.push(Part { end: self.out.bytes.len(), ..part });
        }
    }
}

/// Writes a payload as one line. Line feeds inside it are written as `#012`, as rsyslog does, so that nobody who can send a datagram
/// can write a line of another's. An empty payload is no line.
fn write_line(payload: &[u8], out: &mut Vec<u8>) -> Written {
    let line = payload.strip_suffix(b"\n").unwrap_or(payload);
    if line.is_empty() {
        return Written::NoForm;
    }
    for (n, piece) in line.split(|byte| *byte == b'\n').enumerate() {
        if n > 0 {
            out.extend_from_slice(b"#012");
        }
        out.extend_from_slice(piece);
    }
    out.push(b'\n');
    Written::Yes
}

impl BatchEncoder for RowEncoder {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        let before = self.out.bytes.len();
        self.begin_array();
        let mut out = std::mem::take(&mut self.out.bytes);
        let written = self.write(row, &mut out);
        self.out.bytes = out;
        match written {
            Ok(Written::Yes) => {}
            Ok(Written::NoForm) => return Pushed::Skipped(Reason::NotInFormat),
            Err(_) => {
                self.out.bytes.truncate(before);
                return Pushed::Skipped(Reason::EncodeError);
            }
        }

        let part = self.open.get_or_insert(Part { end: 0, rows: 0, row_bytes: 0, key });
        part.rows += 1;
        part.row_bytes += row.bytes.len() as u64;
        part.key = key;
        if self.partition != Partition::Whole {
            self.end_part();
        }
        Pushed::Taken
    }

    fn bytes(&self) -> usize {
        self.out.bytes.len()
    }

    fn finish(&mut self) -> Encoded {
        self.end_array();
        self.end_part();
        // The next batch is about as long. Without some extra room, its last row would double the allocation for as long as the
        // batch is in flight.
        let next = Encoded {
            bytes: Vec::with_capacity(with_some_more(self.out.bytes.len())),
            parts: Vec::with_capacity(with_some_more(self.out.parts.len())),
        };
        std::mem::replace(&mut self.out, next)
    }
}

fn with_some_more(count: usize) -> usize {
    count + count / 16
}
