//! The stream as messages of protobuf in frames of gRPC: `FollowResponse` of proto/weir_grpc.proto.

use super::Why;
use admin::message::Message;
use ledger::HopSnapshot;
use record::Row;
use sink::batch::{Encoded, Part, PartKey};
use sink::{BatchEncoder, Pushed};
use std::collections::BTreeMap;

/// The field of what was lost.
const LOST: u32 = 14;
/// The field of the last message.
const ENDED: u32 = 15;

/// Rows, each as a message of its own. A row is one already; the numbers of the kinds are those of the fields that hold them.
#[derive(Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    rows: u32,
    row_bytes: u64,
}

impl BatchEncoder for Messages {
    fn push(&mut self, row: &Row<'_>, _key: PartKey) -> Pushed {
        self.bytes.extend(Message::default().bytes(row.kind as u32, row.bytes).framed());
        self.rows += 1;
        self.row_bytes += row.bytes.len() as u64;
        Pushed::Taken
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn finish(&mut self) -> Encoded {
        let Messages { bytes, rows, row_bytes } = std::mem::take(self);
        let part = Part { end: bytes.len(), rows, row_bytes, key: PartKey::NONE };
        Encoded { bytes, parts: vec![part] }
    }
}

/// Says what was lost.
pub(super) fn lost(lost: &BTreeMap<&str, u64>) -> Vec<u8> {
    let lost =
        lost.iter().fold(Message::default(), |all, (reason, count)| all.entry(1, reason, *count));
    Message::default().bytes(LOST, lost.0).framed()
}

/// The last message.
pub(super) fn last(why: Why, hop: &HopSnapshot) -> Vec<u8> {
    let mut last = Message::default()
        .bytes(1, why.word())
        .number(2, hop.received.count)
        .number(3, hop.delivered.count)
        .number(5, hop.uncertain.count);
    for drop in &hop.dropped {
        last = last.entry(4, drop.reason.label(), drop.amount.count);
    }
    Message::default().bytes(ENDED, last.0).framed()
}
