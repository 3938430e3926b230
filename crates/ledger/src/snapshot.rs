use crate::{Amount, HopKind, HopSnapshot, Way};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use text::escaped;

/// All hops at one moment. This is the body of `GET /ledger`, in which every number is a decimal string.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Random number of this process's life, in hexadecimal: counters of different lives must not be compared.
    pub run_id: String,
    /// Version of the Weir that counted.
    pub version: String,
    /// Milliseconds since 1970 when the snapshot was taken.
    #[serde(with = "crate::decimal")]
    pub taken_at_unix_ms: u64,
    /// Milliseconds since the process started counting.
    #[serde(with = "crate::decimal")]
    pub uptime_ms: u64,
    /// How often the law did not hold at some hop. Anything but 0 is a bug in Weir.
    #[serde(with = "crate::decimal")]
    pub violations: u64,
    /// Which daemon it is, if a server says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<Speaker>,
    /// Every hop, in the order of the data path.
    pub hops: Vec<HopSnapshot>,
}

/// The daemon that sends a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Speaker {
    /// The host's name.
    pub host: String,
    /// Where it is asked; `None` for a unix socket alone.
    pub address: Option<String>,
    /// The file that it reads at a reload, if there is one.
    pub config_file: Option<String>,
}

impl Speaker {
    /// Host, address and file, in one line.
    pub fn line(&self) -> String {
        let words = [Some(&self.host), self.address.as_ref(), self.config_file.as_ref()];
        let words = words.into_iter().flatten().filter(|word| !word.is_empty());
        escaped(&words.map(String::as_str).collect::<Vec<_>>().join(", "))
    }
}

/// What one hop did not deliver, in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss<'a> {
    pub hop: &'a HopSnapshot,
    pub way: Way,
    pub amount: Amount,
}

impl Snapshot {
    /// Everything inside all hops, or else the sum of violations, whichever is larger. After a drain this must be 0.
    pub fn unaccounted(&self) -> i64 {
        let inside: u64 = self.whole_hops().map(|hop| hop.in_flight.count).sum();
        let broken: i64 = self.hops.iter().map(|hop| hop.unaccounted.abs()).sum();
        (inside as i64).max(broken)
    }

    /// Whether the law holds at every hop of this snapshot, and has held at every earlier check.
    pub fn is_balanced(&self) -> bool {
        self.violations == 0 && self.hops.iter().all(|hop| hop.unaccounted == 0)
    }

    /// All hops except those that show parts of others.
    pub fn whole_hops(&self) -> impl Iterator<Item = &HopSnapshot> {
        self.hops.iter().filter(|hop| !hop.hop.is_part())
    }

    /// Which part of a sink's way a hop is, where a listener feeds the sink: it first counts into the sink's queue (`queue`), and
    /// then out of it (`sink`). `None` for other hops.
    pub fn part_of_sink(&self, hop: &HopSnapshot) -> Option<&'static str> {
        // A sink of several sources has the names of all of them.
        let is_way = |target: &HopSnapshot, sink: &HopSnapshot| {
            target.hop == HopKind::Target
                && sink.hop == HopKind::Sink
                && target.target == sink.target
                && sink.origin.split('+').any(|origin| origin == target.origin)
        };
        match hop.hop {
            HopKind::Target => self.hops.iter().any(|sink| is_way(hop, sink)).then_some("queue"),
            HopKind::Sink => self.hops.iter().any(|target| is_way(target, hop)).then_some("sink"),
            _ => None,
        }
    }

    /// Everything that was not delivered, largest first.
    pub fn losses(&self) -> Vec<Loss<'_>> {
        let mut losses: Vec<_> = self
            .whole_hops()
            .flat_map(|hop| hop.undelivered().map(move |(way, amount)| Loss { hop, way, amount }))
            .collect();

        losses.sort_by_key(|loss| std::cmp::Reverse(loss.amount.count));
        losses
    }

    /// Losses that no setting asked for. Sampling, filters, rate limits, denied sources, removed targets, rows that a format
    /// cannot hold, rows kept in a spool, and sockets that were unchanged or listed twice are intended. Uncertain rows count as
    /// lost.
    pub fn unintended_losses(&self) -> Vec<Loss<'_>> {
        let mut losses = self.losses();
        losses.retain(|loss| !loss.way.is_intended());
        losses
    }

    /// How much of each origin was lost and no setting asked for it; 0 if nothing was.
    pub fn lost_by_origin(&self) -> BTreeMap<&str, u64> {
        let mut lost = BTreeMap::new();
        for hop in self.whole_hops() {
            let unintended = hop.undelivered().filter(|(way, _)| !way.is_intended());
            let count: u64 = unintended.map(|(_, amount)| amount.count).sum();
            *lost.entry(hop.origin.as_str()).or_default() += count;
        }
        lost
    }

    /// One hop by kind, origin and target.
    pub fn hop(&self, kind: HopKind, origin: &str, target: Option<&str>) -> Option<&HopSnapshot> {
        self.hops
            .iter()
            .find(|hop| hop.hop == kind && hop.origin == origin && hop.target.as_deref() == target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DelayHistogram, Event, Gauge, HopBuilder, Reason, RejectClass, SinkCounters, Trouble,
    };

    #[test]
    fn numbers_beyond_53_bits_survive_json() {
        let snapshot = Snapshot { uptime_ms: u64::MAX, ..Snapshot::default() };
        let json = serde_json::to_string(&snapshot).unwrap();
        assert!(json.contains("\"uptime_ms\":\"18446744073709551615\""), "{json}");
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
    }

    #[test]
    fn a_count_that_only_a_newer_daemon_has_is_left_out() {
        let hop = HopBuilder::new(HopKind::Target, "in", Some("out"), Amount::default())
            .event(Event::Retries, 2)
            .finish(Amount::default());
        let json = serde_json::to_string(&hop).unwrap();
        let newer = json.replace(r#"{"retries":"2"}"#, r#"{"retries":"2","wishes":"3"}"#);
        assert_ne!(newer, json);
        assert_eq!(serde_json::from_str::<crate::HopSnapshot>(&newer).unwrap(), hop);
    }

    /// A sink that lost one record by a drop, two by a rejection, and three without an answer.
    fn sink() -> HopSnapshot {
        let counters = SinkCounters::default();
        counters.drop(Reason::Expired, Amount::one(1));
        counters.reject(RejectClass::TooLarge, Amount { count: 2, bytes: 20 });
        counters.uncertain(Amount { count: 3, bytes: 30 });
        let trouble = Trouble { what: "it is down".into(), fix: "start it".into() };
        HopBuilder::new(HopKind::Sink, "sockets", Some("s"), Amount::default())
            .left_sink(&counters)
            .trouble(Some(trouble))
            .finish(Amount { count: 6, bytes: 51 })
    }

    #[test]
    fn what_a_store_refused_or_never_answered_is_lost() {
        let snapshot = Snapshot { hops: vec![sink()], ..Snapshot::default() };
        let all: u64 = snapshot.unintended_losses().iter().map(|loss| loss.amount.count).sum();
        assert_eq!(snapshot.lost_by_origin().values().sum::<u64>(), all);
        let ways: Vec<_> = snapshot.unintended_losses().iter().map(|loss| loss.way).collect();
        let expected =
            [Way::Uncertain, Way::Rejected(RejectClass::TooLarge), Way::Dropped(Reason::Expired)];
        assert_eq!(ways, expected);
    }

    #[test]
    fn json_of_a_sink() {
        let json = serde_json::to_value(sink()).unwrap();
        let rejected = r#"[{"class":"too_large","count":"2","bytes":"20"}]"#;
        assert_eq!(json["rejected"], serde_json::from_str::<serde_json::Value>(rejected).unwrap());
        assert_eq!(json["uncertain"]["count"], "3");
        assert_eq!(json["trouble"]["fix"], "start it");
        assert_eq!(serde_json::from_value::<HopSnapshot>(json).unwrap(), sink());

        let other = HopBuilder::new(HopKind::Target, "in", None, Amount::default());
        let json = serde_json::to_string(&other.finish(Amount::default())).unwrap();
        assert!(!json.contains("rejected") && !json.contains("uncertain"), "{json}");
        assert!(!json.contains("trouble"), "{json}");
    }

    #[test]
    fn no_number_is_written_as_a_number() {
        let hop = HopBuilder::new(HopKind::Target, "in", Some("out"), Amount::one(7))
            .dropped(Reason::Refused, Amount::one(7))
            .capacity(u64::MAX)
            .event(Event::SendCalls, 1 << 60)
            .gauge(Gauge::Up, 1)
            .delay(&DelayHistogram::default())
            .finish(Amount::default());
        let snapshot = Snapshot { hops: vec![hop, sink()], violations: 3, ..Snapshot::default() };
        assert_ne!(snapshot.hops[0].unaccounted, 0);
        let json = serde_json::to_string(&snapshot).unwrap();
        let mut all = vec![serde_json::from_str::<serde_json::Value>(&json).unwrap()];
        while let Some(value) = all.pop() {
            match value {
                serde_json::Value::Number(number) => panic!("{number} in {json}"),
                serde_json::Value::Array(values) => all.extend(values),
                serde_json::Value::Object(fields) => all.extend(fields.into_values()),
                _ => {}
            }
        }
        assert!(json.contains("\"unaccounted\":\"-1\""), "{json}");
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
    }
}
