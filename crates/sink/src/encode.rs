//! Rows into the formats of streams, and into messages of one row each.

use crate::batch::{Encoded, Part, PartKey};
use crate::destination::{BatchEncoder, Pushed};
use ledger::Reason;
use record::{Encoder, Encoding, FieldSet, Row};

/// What stands around the records of a stream or file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// What a file, or a stream, begins with.
    pub header: Vec<u8>,
    /// The last byte of each record, in encodings that have one.
    pub record_end: Option<u8>,
}

impl Framing {
    /// What a stream or file in this encoding begins with, and what each of its records ends with.
    pub fn of(encoding: Encoding, fields: &FieldSet) -> Framing {
        let mut framing = Framing::default();
        if encoding != Encoding::Json {
            Encoder::new(encoding, fields).begin(&mut framing.header);
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

/// Where the parts of a batch end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Partition {
    /// The whole batch is one part: streams, files, and stores that take batches.
    Whole,
    /// Each row is a part: brokers.
    Rows,
}

/// Writes rows in an encoding of crate `record`.
pub struct RowEncoder {
    encoding: Encoder,
    partition: Partition,
    out: Encoded,
    /// What is in the part that is being filled.
    open: Option<Part>,
}

impl RowEncoder {
    pub fn new(encoding: Encoding, fields: &FieldSet, partition: Partition) -> RowEncoder {
        let encoding = Encoder::new(encoding, fields);
        RowEncoder { encoding, partition, out: Encoded::default(), open: None }
    }

    fn end_part(&mut self) {
        if let Some(part) = self.open.take() {
            self.out.parts.push(Part { end: self.out.bytes.len(), ..part });
        }
    }
}

impl BatchEncoder for RowEncoder {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        let before = self.out.bytes.len();
        match self.encoding.row(row.kind, row.bytes, &mut self.out.bytes) {
            Ok(record::Written::Yes) => {}
            Ok(record::Written::NoForm) => return Pushed::Skipped(Reason::NotInFormat),
            Err(_) => {
                self.out.bytes.truncate(before);
                return Pushed::Skipped(Reason::EncodeError);
            }
        }

        let part = self.open.get_or_insert(Part { end: 0, rows: 0, row_bytes: 0, key });
        part.rows += 1;
        part.row_bytes += row.bytes.len() as u64;
        part.key = key;
        if self.partition == Partition::Rows {
            self.end_part();
        }
        Pushed::Taken
    }

    fn bytes(&self) -> usize {
        self.out.bytes.len()
    }

    fn finish(&mut self) -> Encoded {
        self.end_part();
        // The next batch is about as long.
        let next = Encoded {
            bytes: Vec::with_capacity(self.out.bytes.len()),
            parts: Vec::with_capacity(self.out.parts.len()),
        };
        std::mem::replace(&mut self.out, next)
    }
}

/// The key of a row: where it was made, and which connection or sender it is of.
pub(crate) fn key_of(source_id: [u8; 16], row: &Row<'_>) -> PartKey {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&source_id);
    key[16..].copy_from_slice(&row.key.to_be_bytes());
    key
}
