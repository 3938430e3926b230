//! The lines of a stream that are not records: what was lost, and how the stream ended.

use super::Why;
use ledger::{HopSnapshot, Meter, Reason};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Records that a follower has lost, by reason.
#[derive(Default)]
pub(super) struct Losses(BTreeMap<Reason, u64>);

impl Losses {
    /// The line that says what was lost since the last such line; empty if nothing was.
    pub(super) fn line(&mut self, meter: &Arc<dyn Meter>) -> Vec<u8> {
        let mut lost = Map::new();
        for hop in hops(meter) {
            for drop in hop.dropped.iter().filter(|drop| !drop.reason.is_intended()) {
                let told = self.0.entry(drop.reason).or_default();
                let count = drop.amount.count.saturating_sub(*told);
                if count > 0 {
                    lost.insert(drop.reason.label().to_owned(), count.into());
                }
                *told = drop.amount.count;
            }
        }
        if lost.is_empty() { Vec::new() } else { line(&json!({ "lost": lost })) }
    }
}

/// The last line of a stream: received = delivered + dropped + uncertain.
pub(super) fn last(why: Why, meter: &Arc<dyn Meter>) -> Vec<u8> {
    let mut of_all = json!({ "ended": why.word() });
    for hop in hops(meter) {
        let dropped = hop
            .dropped
            .iter()
            .map(|drop| (drop.reason.label().to_owned(), Json::from(drop.amount.count)));
        of_all["received"] = hop.received.count.into();
        of_all["delivered"] = hop.delivered.count.into();
        of_all["dropped"] = Json::Object(dropped.collect());
        of_all["uncertain"] = hop.uncertain.count.into();
    }
    line(&of_all)
}

fn hops(meter: &Arc<dyn Meter>) -> Vec<HopSnapshot> {
    let mut hops = Vec::new();
    meter.read(&mut hops);
    hops
}

fn line(about: &Json) -> Vec<u8> {
    format!("{}\n", json!({ "follower": about })).into_bytes()
}
