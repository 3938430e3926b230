//! Losses between a listener's socket and the analysis.

use config::FLOWS_NAME;
use ledger::{HopKind, HopSnapshot, Snapshot};
use std::collections::BTreeMap;

/// Drops seen so far at the listeners that feed the analysis.
#[derive(Default)]
pub(super) struct Losses {
    /// Drop count by listener.
    seen: BTreeMap<String, u64>,
}

impl Losses {
    /// Datagrams dropped since the last look. Drops before the first look at a listener do not count: those datagrams were not
    /// for the analysis.
    pub(super) fn since_last<'n>(
        &mut self,
        listeners: impl Iterator<Item = &'n String>,
        snapshot: &Snapshot,
    ) -> u64 {
        let mut now = BTreeMap::new();
        let mut more = 0;
        for name in listeners {
            let hops = snapshot.hops.iter().filter(|hop| hop.origin == *name && is_before(hop));
            let dropped: u64 = hops.map(unintended).sum();
            more += self.seen.get(name).map_or(0, |before| dropped.saturating_sub(*before));
            now.insert(name.clone(), dropped);
        }
        self.seen = now;
        more
    }
}

fn is_before(hop: &HopSnapshot) -> bool {
    match hop.hop {
        HopKind::Socket | HopKind::Receive => true,
        HopKind::Target => hop.target.as_deref() == Some(FLOWS_NAME),
        _ => false,
    }
}

fn unintended(hop: &HopSnapshot) -> u64 {
    let lost = hop.undelivered().filter(|(way, _)| !way.is_intended());
    lost.map(|(_, amount)| amount.count).sum()
}
