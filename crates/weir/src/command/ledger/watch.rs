//! The page of `weir ledger --watch`.

use super::fit::{Block, Weight, fit};
use crate::screen::Room;
use ledger::{Gauge, HopKind, HopSnapshot, Snapshot, hop_lines, verdict_lines};
use text::{grouped, short_time, size};

/// The waterfall, the rates since the snapshot before, and the state of each sink. If not everything fits, the most important
/// parts.
pub(super) fn page(before: Option<&Snapshot>, now: &Snapshot, room: Room) -> String {
    let uptime_s = now.uptime_ms as f64 / 1e3;
    let told = |lines: String| Block { heading: String::new(), lines, weight: Weight::Verdict };

    let who = now.daemon.as_ref().map_or(String::new(), |daemon| daemon.line() + ", ");
    let mut blocks = vec![told(format!("{who}run {}, up {uptime_s:.1} s\n\n", now.run_id))];
    blocks.extend(now.hops.iter().map(|hop| Block {
        heading: format!("{}\n", hop.origin),
        lines: hop_lines(now, hop),
        weight: weight(hop),
    }));
    blocks.push(told(format!("\n{}", verdict_lines(now))));
    match before {
        None => {}
        Some(before) if before.run_id != now.run_id => {
            blocks.push(told("\nthe daemon has restarted: its counters began again\n".to_owned()));
        }
        Some(before) => blocks.extend(rates(before, now)),
    }
    blocks.extend(sinks(now));

    // The cursor takes the last row.
    let rows = room.rows.map_or(usize::MAX, |rows| rows.saturating_sub(1));
    fit(&blocks, room.columns.unwrap_or(usize::MAX), rows)
}

/// How important it is to show a hop of the waterfall.
fn weight(hop: &HopSnapshot) -> Weight {
    let unintended = hop.undelivered().filter(|(way, _)| !way.is_intended());
    let lost: u64 = unintended.map(|(_, amount)| amount.count).sum();
    match lost {
        0 if hop.trouble.is_some() || hop.unaccounted != 0 => Weight::Trouble,
        0 => Weight::Rest,
        lost => Weight::Loss(lost),
    }
}

/// Columns of the names before the numbers, as in the waterfall.
const NAME_COLUMNS: usize = 28;

fn rates(before: &Snapshot, now: &Snapshot) -> Vec<Block> {
    let elapsed_s = now.uptime_ms.saturating_sub(before.uptime_ms) as f64 / 1e3;
    if elapsed_s <= 0.0 {
        return Vec::new();
    }

    let heading = format!(
        "\n{:<NAME_COLUMNS$}{:>13}{:>13}{:>13}{:>13}\n",
        "per second", "in", "out", "skip", "lost"
    );
    let row = |hop: &HopSnapshot| {
        let earlier = before.hop(hop.hop, &hop.origin, hop.target.as_deref());
        let gained = |count: &dyn Fn(&HopSnapshot) -> u64| {
            count(hop).saturating_sub(earlier.map_or(0, count))
        };
        let per_second = |gained: u64| grouped((gained as f64 / elapsed_s).round() as u64);
        // What a setting leaves out is no loss, here as everywhere.
        let undelivered = |hop: &HopSnapshot, is_intended: bool| {
            let ways = hop.undelivered().filter(|(way, _)| way.is_intended() == is_intended);
            ways.map(|(_, amount)| amount.count).sum()
        };
        let lost = gained(&|hop| undelivered(hop, false));

        let lines = format!(
            "{:<NAME_COLUMNS$}{:>13}{:>13}{:>13}{:>13}\n",
            in_columns(name(now, hop)),
            per_second(gained(&|hop| hop.received.count)),
            per_second(gained(&|hop| hop.delivered.count)),
            per_second(gained(&|hop| undelivered(hop, true))),
            per_second(lost),
        );
        let weight = if lost > 0 { Weight::Trouble } else { Weight::Rate };
        Block { heading: heading.clone(), lines, weight }
    };
    now.hops.iter().map(row).collect()
}

fn name(now: &Snapshot, hop: &HopSnapshot) -> String {
    let part = now.part_of_sink(hop).map_or(String::new(), |part| format!(", {part}"));
    match (&hop.target, hop.hop) {
        (None, kind) => format!("{} {}", hop.origin, kind.label()),
        (Some(socket), HopKind::Member) => format!("{} socket {socket}", hop.origin),
        (Some(target), HopKind::Egress) => format!("{} -> {target}, network", hop.origin),
        (Some(target), HopKind::Receiver) => format!("{} -> {target}, receiver", hop.origin),
        (Some(target), _) => format!("{} -> {target}{part}", hop.origin),
    }
}

/// A long name gets its own line.
fn in_columns(name: String) -> String {
    match name.chars().count() {
        0..=NAME_COLUMNS => name,
        _ => format!("{name}\n{:<NAME_COLUMNS$}", ""),
    }
}

/// The state of each sink: what waits, for how long, and how full its spool is.
fn sinks(now: &Snapshot) -> Vec<Block> {
    let heading = format!(
        "\n{:<NAME_COLUMNS$} {:<12}{:>11}{:>8}{:>20}\n",
        "sinks", "state", "inside", "oldest", "spool"
    );
    let row = |hop: &HopSnapshot| {
        let name = format!("{} -> {}", hop.origin, hop.target.as_deref().unwrap_or_default());
        let oldest = hop.gauge(Gauge::OldestAgeMs).filter(|_| !hop.in_flight.is_zero());
        let oldest =
            oldest.map_or("-".to_owned(), |age_ms| short_time(age_ms.saturating_mul(1_000)));
        let lines = format!(
            "{:<NAME_COLUMNS$} {:<12}{:>11}{:>8}{:>20}\n",
            in_columns(name),
            state(hop),
            grouped(hop.in_flight.count),
            oldest,
            spool(hop),
        );
        let weight = if state(hop) == "up" { Weight::State } else { Weight::Trouble };
        Block { heading: heading.clone(), lines, weight }
    };
    now.hops.iter().filter(|hop| hop.hop == HopKind::Sink).map(row).collect()
}

/// A sink with records in its spool is behind if its oldest record is at least this old.
const BEHIND_MS: u64 = 10_000;

/// A sink's state in a word or two.
fn state(hop: &HopSnapshot) -> &'static str {
    let is = |gauge: Gauge, value: u64| hop.gauge(gauge) == Some(value);
    let has_spooled = hop.gauge(Gauge::SpoolRows).is_some_and(|rows| rows > 0);
    let is_behind = hop.gauge(Gauge::OldestAgeMs).is_some_and(|age_ms| age_ms >= BEHIND_MS);

    if is(Gauge::CircuitOpen, 1) {
        "circuit open"
    } else if is(Gauge::Up, 0) {
        "retrying"
    } else if has_spooled && is_behind {
        "spooling"
    } else {
        "up"
    }
}

/// How much of its capacity a spool uses.
fn spool(hop: &HopSnapshot) -> String {
    match (hop.gauge(Gauge::SpoolBytes), hop.gauge(Gauge::SpoolCapacityBytes)) {
        (Some(bytes), Some(capacity)) => format!("{} of {}", size(bytes), size(capacity)),
        (Some(bytes), None) => size(bytes),
        (None, _) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{Amount, HopBuilder, Reason, RejectClass, SinkCounters};

    fn snapshot(run_id: &str, uptime_ms: u64, received: u64, dropped: u64) -> Snapshot {
        let amount = |count| Amount { count, bytes: count * 10 };
        let hop = HopBuilder::new(HopKind::Target, "syslog", Some("old"), amount(0))
            .delivered(amount(received - dropped))
            .dropped(Reason::QueueFull, amount(dropped))
            .finish(amount(received));
        Snapshot { run_id: run_id.into(), uptime_ms, hops: vec![hop], ..Snapshot::default() }
    }

    fn text(blocks: &[Block]) -> String {
        fit(blocks, usize::MAX, usize::MAX)
    }

    #[test]
    fn rates_are_per_second_of_the_daemon_s_clock() {
        let rates = rates(&snapshot("a", 1_000, 100, 0), &snapshot("a", 3_000, 20_100, 1_000));
        let text = text(&rates);
        let line = text.lines().find(|line| line.starts_with("syslog -> old")).unwrap();
        let columns: Vec<_> = line.split_whitespace().collect();
        assert_eq!(columns, ["syslog", "->", "old", "10,000", "9,500", "0", "500"]);
    }

    #[test]
    fn a_restart_shows_no_rates() {
        let (before, now) = (snapshot("a", 9_000, 100, 0), snapshot("b", 1_000, 5, 0));
        let text = page(Some(&before), &now, Room::default());
        assert!(text.contains("restarted"), "{text}");
        assert!(!text.contains("per second"), "{text}");
    }

    #[test]
    fn a_low_screen_keeps_the_verdict_and_the_losses() {
        let mut now = snapshot("a", 9_000, 100, 5);
        for at in 0..30 {
            let name = format!("udp://collector-{at:02}.a-long-domain.example:514");
            let hop = HopBuilder::new(HopKind::Target, "syslog", Some(&name), Amount::default());
            now.hops.insert(0, hop.finish(Amount::default()));
        }
        let room = |columns, rows| Room { columns: Some(columns), rows: Some(rows) };
        let before = snapshot("a", 8_000, 0, 0);

        for (columns, rows) in [(80, 24), (120, 40), (200, 60)] {
            let text = page(Some(&before), &now, room(columns, rows));
            assert!(text.lines().count() < rows, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            for shown in ["run a, up 9.0 s", "lost               5", "largest loss: 5", " hidden: "]
            {
                assert!(text.contains(shown), "{shown}: {text}");
            }
        }
    }

    #[test]
    fn generated_screens() {
        let many = |received, dropped| {
            let mut all = snapshot("5eed", 60_000 + received, received, dropped);
            for at in 0..30 {
                let name = format!("udp://collector-{at:02}.a-long-domain.example:514");
                let hop =
                    HopBuilder::new(HopKind::Target, "statsd", Some(&name), Amount::default());
                all.hops.push(hop.finish(Amount::one(10)));
            }
            all.hops.push(sink("archive", &[(Gauge::Up, 1), (Gauge::OldestAgeMs, BEHIND_MS)]));
            all
        };
        let (before, now) = (many(1_000, 0), many(3_000, 45));
        crate::screen::check("ledger-watch", |room| page(Some(&before), &now, room));
    }

    fn sink(name: &str, gauges: &[(Gauge, u64)]) -> HopSnapshot {
        let amount = |count| Amount { count, bytes: count * 10 };
        let mut hop = HopBuilder::new(HopKind::Sink, "sockets", Some(name), amount(0));
        for (gauge, value) in gauges {
            hop = hop.gauge(*gauge, *value);
        }
        hop.capacity(99_999_999).finish(amount(12_345_678))
    }

    #[test]
    fn each_sink_has_a_state() {
        let spooled = (Gauge::SpoolRows, 7);
        let old = (Gauge::OldestAgeMs, BEHIND_MS);
        for (gauges, expected) in [
            (&[(Gauge::Up, 1)][..], "up"),
            (&[(Gauge::Up, 1), spooled], "up"),
            (&[(Gauge::Up, 1), old], "up"),
            (&[(Gauge::Up, 1), spooled, old], "spooling"),
            (&[(Gauge::Up, 0), spooled, old], "retrying"),
            (&[(Gauge::Up, 0), spooled, old, (Gauge::CircuitOpen, 1)], "circuit open"),
            (&[(Gauge::Up, 1), (Gauge::CircuitOpen, 0)], "up"),
        ] {
            assert_eq!(state(&sink("s", gauges)), expected, "{gauges:?}");
        }
    }

    #[test]
    fn the_table_of_sinks_fits_into_80_columns() {
        let gauges = [
            (Gauge::CircuitOpen, 1),
            (Gauge::OldestAgeMs, 100_000_000),
            (Gauge::SpoolBytes, 1_500 << 20),
            (Gauge::SpoolCapacityBytes, 999 << 30),
        ];
        let long = "kafka://broker.example.com:9092/records";
        let hops = vec![sink("kept", &[(Gauge::Up, 1)]), sink(long, &gauges)];
        let expected = r"
sinks                        state            inside  oldest               spool
sockets -> kept              up           12,345,678       -                   -
sockets -> kafka://broker.example.com:9092/records
                             circuit open 12,345,678   1d03h  1.5 GiB of 999 GiB
";
        let text = text(&sinks(&Snapshot { hops, ..Snapshot::default() }));
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(sinks(&snapshot("a", 1, 5, 0)).is_empty());
    }

    #[test]
    fn what_a_store_refused_or_never_answered_is_lost() {
        let amount = |count| Amount { count, bytes: count };
        let at = |uptime_ms, rejected, uncertain| {
            let counters = SinkCounters::default();
            counters.reject(RejectClass::Invalid, amount(rejected));
            counters.uncertain(amount(uncertain));
            let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("s"), amount(0));
            let hops = vec![hop.left_sink(&counters).finish(amount(rejected + uncertain))];
            Snapshot { uptime_ms, hops, ..Snapshot::default() }
        };
        let text = text(&rates(&at(1_000, 10, 1), &at(3_000, 30, 5)));
        let line = text.lines().find(|line| line.starts_with("sockets -> s")).unwrap();
        assert_eq!(line.split_whitespace().last(), Some("12"), "{text}");
    }
}
