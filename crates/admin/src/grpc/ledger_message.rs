//! A snapshot of the ledger as the `LedgerSnapshot` of proto/weir_grpc.proto.

use crate::message::Message;
use ledger::{Amount, HopSnapshot, Snapshot};

pub(super) fn of(snapshot: &Snapshot) -> Message {
    let message = Message::default()
        .bytes(1, &snapshot.run_id)
        .bytes(2, &snapshot.version)
        .number(3, snapshot.taken_at_unix_ms)
        .number(4, snapshot.uptime_ms)
        .number(5, snapshot.violations);
    snapshot.hops.iter().fold(message, |message, one| message.bytes(6, hop(one).0))
}

fn hop(hop: &HopSnapshot) -> Message {
    let mut message = Message::default().bytes(1, hop.hop.label()).bytes(2, &hop.origin);
    if let Some(target) = &hop.target {
        message = message.bytes(3, target);
    }
    message = message.bytes(4, amount(hop.received).0).bytes(5, amount(hop.delivered).0);
    for drop in &hop.dropped {
        message = message.bytes(6, loss(drop.reason.label(), drop.amount).0);
    }
    for rejected in &hop.rejected {
        message = message.bytes(7, loss(rejected.class.label(), rejected.amount).0);
    }
    message = message
        .bytes(8, amount(hop.uncertain).0)
        .bytes(9, amount(hop.kept).0)
        .bytes(10, amount(hop.in_flight).0);
    if let Some(capacity) = hop.capacity {
        message = message.number(11, capacity);
    }
    message = message.number(12, hop.unaccounted.cast_unsigned());
    for (event, count) in &hop.events {
        message = message.entry(13, &event.to_string(), *count);
    }
    for (gauge, value) in &hop.gauges {
        message = message.entry(14, &gauge.to_string(), *value);
    }
    message
}

fn amount(amount: Amount) -> Message {
    Message::default().number(1, amount.count).number(2, amount.bytes)
}

fn loss(reason: &str, amount: Amount) -> Message {
    Message::default().bytes(1, reason).number(2, amount.count).number(3, amount.bytes)
}
