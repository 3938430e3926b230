//! The lines of a stream that are not records: what was lost, and how the stream ended.

use super::{Why, messages};
use admin::Form;
use ledger::{HopSnapshot, Meter, Reason};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Records that a follower has lost, by reason.
#[derive(Default)]
pub(super) struct Losses(BTreeMap<Reason, u64>);

impl Losses {
    /// The line or message that says what was lost since the last one; empty if nothing was.
    pub(super) fn said(&mut self, form: Form, meter: &Arc<dyn Meter>) -> Vec<u8> {
        let mut lost = BTreeMap::new();
        for hop in hops(meter) {
            for drop in hop.dropped.iter().filter(|drop| !drop.reason.is_intended()) {
                let told = self.0.entry(drop.reason).or_default();
                let count = drop.amount.count.saturating_sub(*told);
                if count > 0 {
                    lost.insert(drop.reason.label(), count);
                }
                *told = drop.amount.count;
            }
        }
        match form {
            _ if lost.is_empty() => Vec::new(),
            Form::Lines => line(&json!({ "lost": lost })),
            Form::Messages => messages::lost(&lost),
        }
    }
}

/// The last line or message of a stream: received = delivered + dropped + uncertain.
pub(super) fn last(form: Form, why: Why, meter: &Arc<dyn Meter>) -> Vec<u8> {
    // A sink has one hop.
    let Some(hop) = hops(meter).pop() else { return Vec::new() };
    if form == Form::Messages {
        return messages::last(why, &hop);
    }
    let dropped = hop
        .dropped
        .iter()
        .map(|drop| (drop.reason.label().to_owned(), Json::from(drop.amount.count)));
    line(&json!({
        "ended": why.word(),
        "received": hop.received.count,
        "delivered": hop.delivered.count,
        "dropped": Json::Object(dropped.collect()),
        "uncertain": hop.uncertain.count,
    }))
}

fn hops(meter: &Arc<dyn Meter>) -> Vec<HopSnapshot> {
    let mut hops = Vec::new();
    meter.read(&mut hops);
    hops
}

fn line(about: &Json) -> Vec<u8> {
    format!("{}\n", json!({ "follower": about })).into_bytes()
}
