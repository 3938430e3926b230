//! What a relay's ledger says about the fate of a load.

use ledger::{HopKind, Snapshot};
use serde::Serialize;
use std::collections::BTreeMap;

/// A relay's own account.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RelayLedger {
    /// Datagrams that arrived at its socket.
    pub received: u64,
    /// Datagrams that it sent, over all targets.
    pub sent: u64,
    /// Its losses by place and reason, largest first.
    pub lost: Vec<Lost>,
    /// Whether its counts balance at every hop.
    pub balanced: bool,
    /// The complete ledger snapshot.
    pub snapshot: Snapshot,
}

/// Datagrams that a relay lost at one place for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Place and reason, for example `socket: socket_buffer`.
    pub at: String,
    /// Copies for targets: a datagram lost before the relay copied it counts once for each target.
    pub copies: u64,
}

impl RelayLedger {
    /// The account in a snapshot of a relay with this many targets.
    pub fn of(snapshot: Snapshot, targets: usize) -> RelayLedger {
        let mut lost: BTreeMap<String, u64> = BTreeMap::new();
        for loss in snapshot.unintended_losses() {
            let copies = if loss.hop.target.is_some() { 1 } else { targets as u64 };
            let at = format!("{}: {}", loss.hop.hop.label(), loss.way);
            *lost.entry(at).or_default() += loss.amount.count * copies;
        }

        let mut lost: Vec<Lost> =
            lost.into_iter().map(|(at, copies)| Lost { at, copies }).collect();
        lost.retain(|lost| lost.copies > 0);
        lost.sort_by_key(|lost| std::cmp::Reverse(lost.copies));

        let of = |kind: HopKind| snapshot.hops.iter().filter(move |hop| hop.hop == kind);
        RelayLedger {
            received: of(HopKind::Socket).map(|hop| hop.received.count).sum(),
            sent: of(HopKind::Target).map(|hop| hop.delivered.count).sum(),
            lost,
            balanced: snapshot.is_balanced(),
            snapshot,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder, Reason};

    #[test]
    fn what_is_lost_before_the_copy_is_lost_for_every_target() {
        let amount = |count| Amount { count, bytes: count * 10 };
        let hop = |kind, target, reason, received, dropped| {
            HopBuilder::new(kind, "a", target, amount(0))
                .delivered(amount(received - dropped))
                .dropped(reason, amount(dropped))
                .finish(amount(received))
        };
        let hops = vec![
            hop(HopKind::Socket, None, Reason::SocketBuffer, 100, 10),
            hop(HopKind::Target, Some("x"), Reason::QueueFull, 90, 4),
            hop(HopKind::Target, Some("y"), Reason::QueueFull, 90, 3),
        ];
        let ledger = RelayLedger::of(Snapshot { hops, ..Snapshot::default() }, 2);
        assert_eq!((ledger.received, ledger.sent, ledger.balanced), (100, 173, true));
        let lost = |at: &str, copies| Lost { at: at.to_owned(), copies };
        assert_eq!(ledger.lost, [lost("socket: socket_buffer", 20), lost("target: queue_full", 7)]);
    }
}
