//! Framing of rows in a byte stream, which tells the reader where each row ends.

use crate::batch::{Encoded, Part, PartKey};
use crate::destination::{BatchEncoder, Pushed};
use crate::encode::{Content, Partition};
use ledger::Reason;
use record::{Row, RowKind, decode_datagram_record};

/// What surrounds each row in a byte stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamFraming {
    /// The encoding's own framing: a line end, or the length that protobuf streams put before each message. Payloads of
    /// datagrams are concatenated without a separator.
    None,
    /// A line feed after each row: for text encodings and payloads (RFC 6587, section 3.4.2). Line feeds inside a payload are escaped,
    /// and empty payloads are skipped.
    Newline,
    /// The length in decimal digits and a space before each row: syslog over TCP and TLS (RFC 6587, section 3.4.1; RFC 5425). There is no
    /// length of zero (`MSG-LEN = NONZERO-DIGIT *DIGIT`), so empty payloads are skipped.
    OctetCounted,
    /// The length in four bytes, big-endian, before each row.
    LengthPrefixed,
}

impl StreamFraming {
    /// An encoder with this framing. Each row is a part, so a lost connection costs no more rows than necessary.
    pub(crate) fn encoder(self, content: Content) -> Box<dyn BatchEncoder> {
        match (self, content) {
            (StreamFraming::None, Content::Payloads) => content.encoder(Partition::Rows),
            (StreamFraming::None | StreamFraming::Newline, _) => {
                content.encoder(Partition::StreamRows)
            }
            (StreamFraming::OctetCounted | StreamFraming::LengthPrefixed, _) => {
                let rows = content.encoder(Partition::Rows);
                let skips_empty =
                    self == StreamFraming::OctetCounted && content == Content::Payloads;
                Box::new(FrameEncoder { rows, framing: self, skips_empty, row_count: 0 })
            }
        }
    }

    /// Bytes at the start of a stream.
    pub(crate) fn header(self, content: Content) -> Vec<u8> {
        match self {
            StreamFraming::None | StreamFraming::Newline => content.framing().header,
            StreamFraming::OctetCounted | StreamFraming::LengthPrefixed => Vec::new(),
        }
    }

    fn put_length(self, len: usize, out: &mut Vec<u8>) {
        match self {
            StreamFraming::OctetCounted => out.extend_from_slice(format!("{len} ").as_bytes()),
            StreamFraming::LengthPrefixed => {
                // Never reached: a chunk of rows is shorter.
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                out.extend_from_slice(&len.to_be_bytes());
            }
            StreamFraming::None | StreamFraming::Newline => {}
        }
    }
}

/// Prefixes each row with its length.
struct FrameEncoder {
    rows: Box<dyn BatchEncoder>,
    framing: StreamFraming,
    /// Whether rows are payloads, and an empty one has no frame.
    skips_empty: bool,
    /// Number of rows in the batch.
    row_count: usize,
}

impl BatchEncoder for FrameEncoder {
    fn push(&mut self, row: &Row<'_>, key: PartKey) -> Pushed {
        if self.skips_empty && is_empty(row) {
            return Pushed::Skipped(Reason::NotInFormat);
        }
        let pushed = self.rows.push(row, key);
        if pushed == Pushed::Taken {
            self.row_count += 1;
        }
        pushed
    }

    fn bytes(&self) -> usize {
        self.rows.bytes() + self.row_count * LENGTH_BYTES
    }

    fn finish(&mut self) -> Encoded {
        let rows = self.rows.finish();
        let mut bytes = Vec::with_capacity(rows.bytes.len() + rows.parts.len() * LENGTH_BYTES);
        let mut parts = Vec::with_capacity(rows.parts.len());
        let mut start = 0;
        for part in rows.parts {
            let row = rows.bytes.get(start..part.end).unwrap_or_default();
            start = part.end;
            self.framing.put_length(row.len(), &mut bytes);
            bytes.extend_from_slice(row);
            parts.push(Part { end: bytes.len(), ..part });
        }
        self.row_count = 0;
        Encoded { bytes, parts }
    }

    fn memory_max_bytes(&self, batch_bytes: usize) -> usize {
        self.rows.memory_max_bytes(batch_bytes) + batch_bytes
    }
}

/// Whether a row is a datagram without a payload.
fn is_empty(row: &Row<'_>) -> bool {
    let payload = decode_datagram_record(row.bytes).map(|datagram| datagram.payload);
    row.kind == RowKind::Datagram && matches!(payload, Ok(None | Some([])))
}

/// Approximate size of a length prefix.
const LENGTH_BYTES: usize = 4;
