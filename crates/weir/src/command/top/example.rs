//! What an example daemon says, with names that strangers chose.

use super::answers::{closes, hour};
use super::feed::News;
use super::model::Model;
use super::wanted::Wanted;
use ledger::{Amount, ConnectionEnd, Event, Gauge, HopBuilder, HopKind, Reason, Snapshot, Trouble};
use serde_json::{Value as Json, json};

/// A name with a sequence that clears a terminal, a mark that turns its text around, and characters of two columns.
pub(super) const HOSTILE: &str = "\x1b[2J\u{202e}evil\n堰堰堰堰堰堰堰堰堰堰";
/// 2026-11-25 17:16:40 UTC.
const BEGIN_MS: u64 = 1_795_627_000_000;

fn amount(count: u64) -> Amount {
    Amount { count, bytes: count * 200 }
}

/// A daemon `second` seconds after its start: a healthy target, one that drops, one that is stuck, a collector, and sinks of which
/// one is down.
pub(super) fn snapshot(second: u64) -> Snapshot {
    let sent = second * 1_000;
    let hop = |kind, target| HopBuilder::new(kind, "syslog", target, Amount::default());
    let through = |kind, target| hop(kind, target).delivered(amount(sent)).finish(amount(sent));
    let of_sockets = |kind, target| HopBuilder::new(kind, "sockets", target, Amount::default());
    let lost = amount(second * 250);
    let trouble = Trouble {
        what: format!("kafka://broker.example:9092: {HOSTILE} does not answer"),
        fix: "see that the broker is up".into(),
    };
    let hops = vec![
        hop(HopKind::Socket, None)
            .delivered(amount(sent))
            .dropped(Reason::SocketBuffer, amount(7))
            .finish(amount(sent + 7)),
        through(HopKind::Receive, None),
        through(HopKind::Target, Some("old")),
        through(HopKind::Egress, Some("old")),
        hop(HopKind::Target, Some("udp://collector-17.eu-west.example.com:5514"))
            .delivered(amount(sent).saturating_sub(lost))
            .dropped(Reason::QueueFull, lost)
            .finish(amount(sent)),
        hop(HopKind::Target, Some("unix:/run/stuck.sock"))
            .gauge(Gauge::OldestAgeMs, second * 1_000)
            .gauge(Gauge::Up, 0)
            .capacity(1 << 30)
            .finish(amount(sent)),
        of_sockets(HopKind::Poll, None).delivered(amount(sent)).finish(amount(sent)),
        of_sockets(HopKind::Close, None)
            .event(Event::Ended(ConnectionEnd::TimedOut), 3)
            .event(Event::Ended(ConnectionEnd::OurClose), 12_345_678)
            .delivered(amount(12_345_681))
            .finish(amount(12_345_681)),
        of_sockets(HopKind::Sink, Some("kafka"))
            .gauge(Gauge::Up, 0)
            .gauge(Gauge::QueueBytes, 3 << 20)
            .gauge(Gauge::QueueLimitBytes, 16 << 20)
            .trouble(Some(trouble))
            .delivered(amount(sent))
            .finish(amount(sent)),
        of_sockets(HopKind::Sink, Some(HOSTILE)).delivered(amount(sent)).finish(amount(sent)),
    ];
    Snapshot {
        run_id: "5eed".into(),
        taken_at_unix_ms: BEGIN_MS + second * 1_000,
        uptime_ms: second * 1_000,
        hops,
        ..Snapshot::default()
    }
}

/// The ledger at this second.
pub(super) fn ledger(second: u64) -> News {
    News::Ledger(Ok(Box::new(snapshot(second))))
}

/// Sockets as the daemon puts them: `count` of `matched`.
pub(super) fn sockets(wanted: &Wanted, count: u64, matched: u64) -> News {
    let socket = |at: u64| {
        json!({
            "cookie": at, "state": "established",
            "src_address": "2001:db8:1234:5678:9abc:def0:1234:5678", "src_port": 65_535,
            "dst_address": "198.51.100.200", "dst_port": 60_000 + at % 5_000,
            "rtt_us": 1_234_567 / (at + 1), "rttvar_us": 120, "min_rtt_us": 35, "snd_cwnd_segments": 10 + at,
            "total_retrans_segments": at % 3, "bytes_sent": 1_u64 << (at % 50), "bytes_received": 200, "bytes_retrans": at,
            "send_queue": 0, "receive_queue": 4096, "busy_time_us": 100, "rwnd_limited_us": at % 100,
            "delivery_rate_bytes_per_sec": 12_500_000, "systemd_unit": if at.is_multiple_of(2) { HOSTILE } else { "nginx.service" },
        })
    };
    let group = |key: &str| json!({ "key": key, "sockets": matched / 2, "bytes_sent": "1000000", "bytes_received": "5", "bytes_retrans": "10000", "rtt_us_max": 1_234_567 });
    let mut answer = json!({
        "time_unix_ns": (BEGIN_MS * 1_000_000).to_string(), "polls": 7, "namespaces": 1, "namespaces_failed": 0,
        "truncated": false, "matched": matched, "shown": count, "sockets": (0..count).map(socket).collect::<Vec<Json>>(),
        "rtt_us": [[64, 9_000], [1024, 900], [65_536, 100]],
    });
    if !wanted.group.is_empty() {
        answer["groups"] = json!([group(HOSTILE), group("")]);
        answer["other"] = group("");
    }
    let sockets = serde_json::from_value(answer).unwrap();
    News::Sockets(wanted.clone(), Ok(Box::new(sockets)))
}

/// Connections that ended, as the history has them.
pub(super) fn recent_closes() -> News {
    let names = "time_unix_ns close_reason src_address src_port dst_address dst_port seen_ns rtt_us total_retrans_segments bytes_sent \
                 bytes_received systemd_unit process_name netns_name";
    let columns: Vec<Json> = names.split_whitespace().map(|name| json!({ "name": name })).collect();
    let time = (BEGIN_MS * 1_000_000).to_string();
    let local = "2001:db8:1234:5678:9abc:def0:1234:5678";
    let answer = json!({ "columns": columns, "rows": [
        [time, "timed_out", local, 65_535, "198.51.100.200", 60_443, 3_600_000_000_000_u64, 1_500, 15, 1_048_576, 0, HOSTILE, null, null],
        [time, "our_close", "192.0.2.1", 40_000, "198.51.100.200", 443, null, null, 0, 200, 1_000, null, "curl", null],
    ] });
    News::Closes(Ok(closes(&answer.to_string()).unwrap()))
}

/// The analysis of sFlow: two definitions, an agent that loses.
pub(super) fn flows() -> News {
    let flow = |src: &str, rate: f64, samples: u64| {
        json!({ "key": { "src": src, "dst_port": 443 }, "samples": samples,
            "per_s": { "value": rate, "low": rate * 0.9, "high": rate * 1.1 } })
    };
    let top = |name: &str, of: &str, value: &str| {
        let flows = json!([flow("198.51.100.9", 12_500_000.0, 900), flow(HOSTILE, 800.0, 50)]);
        serde_json::from_value(json!({
            "definition": { "name": name, "keys": ["src", "dst_port"], "value": value, "of": of, "samples": { "counted": 1_000 } },
            "flows": flows,
        }))
        .unwrap()
    };
    let agent = json!([{ "address": "192.0.2.1", "sub_agent": 0, "datagrams": 360, "lost": 3, "resets": 1,
        "samplers": [{ "agent_dropped": 4 }] }]);
    let past = json!({ "columns": [{ "name": "definition" }, { "name": "key" }, { "name": "total_bytes" }],
        "rows": [["talkers", HOSTILE, 1_073_741_824_u64]] });
    News::Flows(Ok(super::answers::Flows {
        agents: serde_json::from_value(agent).unwrap(),
        tops: vec![top("talkers", "sampled", "bytes"), top("drops", "dropped", "frames")],
        hour: Some(Ok(hour(&past.to_string()).unwrap())),
    }))
}

/// What the history has of the quarter of an hour before the start.
pub(super) fn past() -> News {
    let columns = ["bucket_unix_ns", "width_ns", "hop", "origin", "target", "way", "amount"];
    let columns: Vec<Json> = columns.iter().map(|name| json!({ "name": name })).collect();
    let rows = (0..90_u64).rev().flat_map(|at| {
        let begin_ns = ((BEGIN_MS - 900_000 + at * 10_000) * 1_000_000).to_string();
        let count = 5_000 + at * 50;
        let row = |hop: &str, target: &str, way: &str, amount: u64| {
            json!([begin_ns, 10_000_000_000_u64, hop, "syslog", target, way, amount])
        };
        [
            row("socket", "", "received", count),
            row("receive", "", "delivered", count),
            row("egress", "old", "delivered", count),
            row("target", "unix:/run/stuck.sock", "dropped", if at == 40 { 900 } else { 0 }),
        ]
    });
    let answer = json!({ "columns": columns, "rows": rows.collect::<Vec<Json>>() });
    News::Past(super::answers::past(&answer.to_string()).unwrap())
}

/// A screen that has seen nine seconds of that daemon, on every page.
pub(super) fn model() -> Model {
    let mut model = Model::new("127.0.0.1:9464");
    model.take(past());
    for second in [1, 2, 3, 4, 6, 8, 9] {
        model.take(ledger(second));
    }
    model.take(recent_closes());
    model.take(flows());
    model
}
