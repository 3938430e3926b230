use crate::{Amount, HopKind, HopSnapshot, Reason};
use serde::{Deserialize, Serialize};

/// All hops at one moment. The body of `GET /ledger`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Random number of this process's life, in hexadecimal: counters of two lives must not be compared.
    pub run_id: String,
    /// Version of Weir that counted.
    pub version: String,
    /// Milliseconds since 1970 when the snapshot was taken.
    #[serde(with = "decimal")]
    pub taken_at_unix_ms: u64,
    /// Milliseconds since the process began to count.
    #[serde(with = "decimal")]
    pub uptime_ms: u64,
    /// Moments at which the law did not hold at some hop. Anything but 0 is a bug of Weir's.
    #[serde(with = "decimal")]
    pub violations: u64,
    /// Every hop, in the order of the path.
    pub hops: Vec<HopSnapshot>,
}

/// A hop's drops for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss<'a> {
    pub hop: &'a HopSnapshot,
    pub reason: Reason,
    pub amount: Amount,
}

impl Snapshot {
    /// What is inside all hops together plus whatever breaks the law. After a drain this must be 0.
    pub fn unaccounted(&self) -> i64 {
        let inside: u64 = self.hops.iter().map(|hop| hop.in_flight.count).sum();
        let broken: i64 = self.hops.iter().map(|hop| hop.unaccounted.abs()).sum();
        (inside as i64).max(broken)
    }

    /// Whether the law holds at every hop of this snapshot, and has held at every earlier check.
    pub fn is_balanced(&self) -> bool {
        self.violations == 0 && self.hops.iter().all(|hop| hop.unaccounted == 0)
    }

    /// All drops, the largest first.
    pub fn losses(&self) -> Vec<Loss<'_>> {
        let mut losses: Vec<_> = self
            .hops
            .iter()
            .flat_map(|hop| {
                hop.dropped.iter().map(move |drop| Loss {
                    hop,
                    reason: drop.reason,
                    amount: drop.amount,
                })
            })
            .collect();
        losses.sort_by_key(|loss| std::cmp::Reverse(loss.amount.count));
        losses
    }

    /// Drops that nobody asked for: all but sampling, filters, rate limits, denied sources, removed targets, and sockets
    /// that had not changed or were listed twice.
    pub fn unintended_losses(&self) -> Vec<Loss<'_>> {
        let mut losses = self.losses();
        losses.retain(|loss| !loss.reason.is_intended());
        losses
    }

    /// One hop by kind, listener and target.
    pub fn hop(&self, kind: HopKind, listener: &str, target: Option<&str>) -> Option<&HopSnapshot> {
        self.hops.iter().find(|hop| {
            hop.hop == kind && hop.listener == listener && hop.target.as_deref() == target
        })
    }
}

/// 64-bit numbers as decimal strings: JSON readers in common use keep only 53 bits of a number.
pub(crate) mod decimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_53_bits_survive_json() {
        let snapshot = Snapshot { uptime_ms: u64::MAX, ..Snapshot::default() };
        let json = serde_json::to_string(&snapshot).unwrap();
        assert!(json.contains("\"uptime_ms\":\"18446744073709551615\""), "{json}");
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
    }
}
