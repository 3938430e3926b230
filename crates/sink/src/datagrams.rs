//! Packs records into datagrams: each can be decoded alone and carries its position in its stream.

use crate::batch::{Encoded, Part, PartKey};
use crate::destination::{BatchEncoder, Pushed};
use crate::sink::random;
use crate::udp::DatagramLimit;
use ledger::Reason;
use record::{DatagramPacker, FieldSet, Row, RowKind, decode_protobuf, decode_totals};

/// Packs records into the datagrams of one stream, one part each.
pub(crate) struct DatagramEncoder {
    packer: DatagramPacker,
    limit: DatagramLimit,
    out: Encoded,
    /// The contents of the datagram being filled.
    filling: Part,
}

const EMPTY: Part = Part { end: 0, rows: 0, row_bytes: 0, key: PartKey::NONE };

impl DatagramEncoder {
    pub(crate) fn new(limit: DatagramLimit, fields: &FieldSet) -> DatagramEncoder {
        let packer = DatagramPacker::new(random(), limit.bytes(), fields);
        DatagramEncoder { packer, limit, out: Encoded::default(), filling: EMPTY }
    }

    fn totals(&mut self, row: &Row<'_>) -> Pushed {
        let Ok(totals) = decode_totals(row.bytes) else {
            return Pushed::Skipped(Reason::EncodeError);
        };

        let end = self.packer.totals(&totals);
        if let Some(before) = end.before {
            put(&mut self.out, &mut self.filling, before.bytes);
        }
        self.filling.rows += 1;
        self.filling.row_bytes += row.bytes.len() as u64;
        put(&mut self.out, &mut self.filling, end.last.bytes);
        Pushed::Taken
    }

    fn record(&mut self, row: &Row<'_>) -> Pushed {
        let Ok(record) = decode_protobuf(row.bytes) else {
            return Pushed::Skipped(Reason::EncodeError);
        };

        // The path MTU may change at any time; a datagram that is too large for it is fragmented by the kernel.
        self.packer.set_max_bytes(self.limit.bytes());
        match self.packer.push(&record) {
            Ok(None) => {}
            // This record is the first of the next datagram.
            Ok(Some(full)) => put(&mut self.out, &mut self.filling, full.bytes),
            Err(_) => return Pushed::Skipped(Reason::TooBig),
        }
        self.filling.rows += 1;
        self.filling.row_bytes += row.bytes.len() as u64;
        Pushed::Taken
    }
}

/// Completes the datagram being filled.
fn put(out: &mut Encoded, filling: &mut Part, bytes: &[u8]) {
    out.bytes.extend_from_slice(bytes);
    let part = std::mem::replace(filling, EMPTY);
    out.parts.push(Part { end: out.bytes.len(), ..part });
}

impl BatchEncoder for DatagramEncoder {
    fn push(&mut self, row: &Row<'_>, _key: PartKey) -> Pushed {
        match row.kind {
            RowKind::Record => self.record(row),
            RowKind::Totals => self.totals(row),
            _ => Pushed::Skipped(Reason::NotInFormat),
        }
    }

    fn bytes(&self) -> usize {
        self.out.bytes.len()
    }

    fn finish(&mut self) -> Encoded {
        if let Some(rest) = self.packer.flush() {
            put(&mut self.out, &mut self.filling, rest.bytes);
        }
        std::mem::take(&mut self.out)
    }
}
