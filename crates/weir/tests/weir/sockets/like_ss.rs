//! Every socket that `ss` lists is there once, with the same values.

use super::rig::{Many, records, sockets_in};
use super::ss::{self, Fields};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;
use testkit::{Netns, need_root_netns, need_tool};

#[test]
fn sockets_in_every_state_are_those_of_ss_field_by_field() {
    check(240);
}

/// `WEIR_TEST_SOCKETS` is how many; 10,000 unless it is set.
#[test]
fn ten_thousand_sockets_are_those_of_ss_field_by_field() {
    let sockets = env::var("WEIR_TEST_SOCKETS").ok().map_or(10_000, |text| text.parse().unwrap());
    check(sockets / 2);
}

fn check(connections: usize) {
    if !need_root_netns() || !need_tool("ss") || !need_tool("python3") {
        return;
    }
    let netns = Netns::new();
    let _many = Many::make(&netns, connections);
    // A timer of the kernel may move a figure and put it back between two looks of `ss`; what is wrong is wrong in each round.
    for _ in 1..ROUNDS_MAX {
        if panic::catch_unwind(AssertUnwindSafe(|| compare_all(&netns, connections))).is_ok() {
            return;
        }
    }
    compare_all(&netns, connections);
}

const ROUNDS_MAX: usize = 3;

fn compare_all(netns: &Netns, connections: usize) {
    let before = ss::all(netns);
    let begin = Instant::now();
    let ours = records(sockets_in(netns, &["--all", "--format", "jsonl"]));
    let looked = begin.elapsed();
    let after = ss::all(netns);
    let mut compared = Compared::default();
    let mut seen: BTreeMap<u64, &Value> = BTreeMap::new();
    for record in &ours {
        let cookie = record["cookie"].as_u64().unwrap();
        assert!(seen.insert(cookie, record).is_none(), "twice: {record}");
    }
    for (cookie, fields) in &before {
        let Some(later) = after.get(cookie) else { continue };
        let record =
            seen.get(cookie).unwrap_or_else(|| panic!("{cookie:x} is missing: {fields:?}"));
        compare(record, fields, later, &mut compared);
    }
    let stays = before.keys().filter(|cookie| after.contains_key(cookie)).count();
    let unknown: BTreeSet<_> = seen
        .keys()
        .filter(|cookie| !before.contains_key(cookie) && !after.contains_key(cookie))
        .collect();
    assert!(unknown.is_empty(), "ss does not list {unknown:?}");
    // Where both ends are closed, one of them is gone.
    assert!(stays >= 2 * connections - 20, "{stays} of {connections} connections");
    // TIME-WAIT has few fields; every other socket has more than 30.
    assert!(compared.equal > 25 * stays as u64, "{compared:?} of {stays} sockets");
    assert!(compared.moved < compared.equal / 10, "{compared:?}");
    let figures = format!("{stays} sockets, {compared:?}; looked at in {looked:?}\n");
    std::io::stdout().write_all(figures.as_bytes()).unwrap();
}

#[derive(Default, Debug)]
struct Compared {
    equal: u64,
    /// Fields that `ss` itself showed with two values.
    moved: u64,
}

/// Name in the output of `ss`, name of the field, and what makes one value of the other.
const NUMBERS: &[(&str, &str, Unit)] = &[
    ("recv_q", "receive_queue", Unit::Same),
    ("send_q", "send_queue", Unit::Same),
    ("ino", "inode", Unit::Same),
    ("uid", "uid", Unit::Same),
    ("mss", "snd_mss_bytes", Unit::Same),
    ("rcvmss", "rcv_mss_bytes", Unit::Same),
    ("advmss", "advmss_bytes", Unit::Same),
    ("pmtu", "pmtu_bytes", Unit::Same),
    ("cwnd", "snd_cwnd_segments", Unit::Same),
    ("bytes_sent", "bytes_sent", Unit::Same),
    ("bytes_retrans", "bytes_retrans", Unit::Same),
    ("bytes_acked", "bytes_acked", Unit::Same),
    ("bytes_received", "bytes_received", Unit::Same),
    ("segs_out", "segs_out", Unit::Same),
    ("segs_in", "segs_in", Unit::Same),
    ("data_segs_out", "data_segs_out", Unit::Same),
    ("data_segs_in", "data_segs_in", Unit::Same),
    ("backoff", "backoff", Unit::Same),
    ("delivered_ce", "delivered_ce_segments", Unit::Same),
    ("dsack_dups", "dsack_dups", Unit::Same),
    ("reord_seen", "reord_seen", Unit::Same),
    ("rcv_ooopack", "rcv_ooopack", Unit::Same),
    ("notsent", "notsent_bytes", Unit::Same),
    ("rcv_space", "rcv_space_bytes", Unit::Same),
    ("snd_wnd", "snd_wnd_bytes", Unit::Same),
    ("rto", "rto_us", Unit::Thousand),
    ("ato", "ato_us", Unit::Thousand),
    ("minrtt", "min_rtt_us", Unit::Thousand),
    ("rcv_rtt", "rcv_rtt_us", Unit::Thousand),
    ("pacing_rate", "pacing_rate_bytes_per_sec", Unit::Bits),
    ("max_pacing_rate", "max_pacing_rate_bytes_per_sec", Unit::Bits),
    ("delivery_rate", "delivery_rate_bytes_per_sec", Unit::Bits),
    ("skmem.r", "rmem_alloc_bytes", Unit::Same),
    ("skmem.rb", "rcvbuf_bytes", Unit::Same),
    ("skmem.t", "wmem_alloc_bytes", Unit::Same),
    ("skmem.tb", "sndbuf_bytes", Unit::Same),
    ("skmem.f", "fwd_alloc_bytes", Unit::Same),
    ("skmem.w", "wmem_queued_bytes", Unit::Same),
    ("skmem.o", "optmem_bytes", Unit::Same),
    ("skmem.bl", "backlog_bytes", Unit::Same),
    ("skmem.d", "drops", Unit::Same),
];

/// Those that `ss` prints only for connections.
const OF_CONNECTIONS: &[(&str, &str, Unit)] = &[
    ("unacked", "unacked_segments", Unit::Same),
    ("sacked", "sacked_segments", Unit::Same),
    ("lost", "lost_segments", Unit::Same),
    ("delivered", "delivered_segments", Unit::Same),
    ("rcv_ssthresh", "rcv_ssthresh_bytes", Unit::Same),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Same,
    /// `ss` prints milliseconds with three places.
    Thousand,
    /// `ss` prints bits per second as a rounded float.
    Bits,
}

fn compare(record: &Value, fields: &Fields, later: &Fields, compared: &mut Compared) {
    let is_listener = fields["state"] == "LISTEN";
    let more = if is_listener { &[] } else { OF_CONNECTIONS };
    for &(name, field, unit) in NUMBERS.iter().chain(more) {
        let (one, other) = (fields.get(name), later.get(name));
        if one != other {
            compared.moved += 1;
            continue;
        }
        let ours = record[field].as_u64();
        // Zero is not printed, and neither are all ones, which stand for none.
        let is_none = |value: u64| value == 0 || value == u64::MAX || value == u64::from(u32::MAX);
        let is_equal = match one {
            None => ours.is_none_or(is_none) || !is_printed(name, fields),
            // The kernel's 0 stands for nothing there, and is absent here.
            Some(text) if name == "ino" && is_minisock(fields) => text == "0" && ours.is_none(),
            Some(text) => ours.is_some_and(|ours| is_same(text, ours, unit)),
        };
        assert!(is_equal, "{name} is {one:?}, {field} is {ours:?}: {fields:?} {record}");
        compared.equal += 1;
    }
    compare_texts(record, fields, later, compared);
    compare_pairs(record, fields, later, compared);
}

/// What is left of a connection, or not yet one: it has no file.
fn is_minisock(fields: &Fields) -> bool {
    let is_left = fields.get("timer").is_some_and(|timer| timer.starts_with("(timewait"));
    is_left || fields["state"] == "SYN-RECV"
}

/// Whether `ss` prints a field that is not zero; it does not look at `tcp_info` of every length.
fn is_printed(name: &str, fields: &Fields) -> bool {
    match name {
        // Printed for those that have been sending only, in some versions.
        "rcv_ssthresh" | "snd_wnd" => false,
        // A listener's are of no connection.
        "minrtt" | "rto" | "mss" | "rcvmss" | "advmss" | "pmtu" | "rcv_space" | "pacing_rate"
        | "ato" | "unacked" | "sacked" | "max_pacing_rate" => fields["state"] != "LISTEN",
        _ => true,
    }
}

fn is_same(text: &str, ours: u64, unit: Unit) -> bool {
    match unit {
        Unit::Same => text.parse() == Ok(ours),
        Unit::Thousand => {
            (text.parse::<f64>().unwrap() * 1e3 - ours as f64).abs() < 1e-5 * ours as f64 + 0.5
        }
        Unit::Bits => {
            let bits: f64 = text.trim_end_matches("bps").parse().unwrap();
            (bits - ours as f64 * 8.0).abs() <= 0.5 + bits * 1e-9
        }
    }
}

fn compare_texts(record: &Value, fields: &Fields, later: &Fields, compared: &mut Compared) {
    let state = match fields["state"].as_str() {
        "ESTAB" => "established",
        "UNCONN" => "close",
        "SYN-RECV" => "syn_recv",
        other => &other.to_lowercase().replace('-', "_"),
    };
    assert_eq!(record["state"], state, "{record}");
    for (name, address, port) in
        [("local", "src_address", "src_port"), ("peer", "dst_address", "dst_port")]
    {
        let (host, expected_port) = fields[name].rsplit_once(':').unwrap();
        let ours = record[address].as_str().unwrap();
        match host.trim_matches(['[', ']']) {
            "*" => assert_eq!(ours, "::", "{record}"),
            // One peer has one text in records, whatever socket has it.
            host => assert_eq!(ours, host.trim_start_matches("::ffff:"), "{record}"),
        }
        match expected_port {
            "*" => assert_eq!(record[port], 0, "{record}"),
            number => assert_eq!(record[port].to_string(), number, "{record}"),
        }
    }
    compared.equal += 5;
    for algorithm in ["cubic", "reno", "bbr", "dctcp", "vegas"] {
        if fields.contains_key(algorithm)
            && fields.contains_key("wscale")
            && fields[algorithm].is_empty()
        {
            assert_eq!(record["congestion_algorithm"], algorithm, "{record}");
            compared.equal += 1;
        }
    }
    if fields.contains_key("wscale") {
        let options = record["options"].as_u64().unwrap();
        for (word, bit) in [("ts", 1), ("sack", 2), ("ecn", 8), ("ecnseen", 16), ("fastopen", 32)] {
            assert_eq!(fields.contains_key(word), options & bit != 0, "{word}: {record}");
        }
        let limited = fields.contains_key("app_limited");
        if limited == later.contains_key("app_limited") {
            assert_eq!(record["delivery_rate_app_limited"], limited, "{record}");
        }
        compared.equal += 6;
    }
    if let Some(only) = fields.get("v6only") {
        assert_eq!(record["v6_only"], only == "1", "{record}");
        compared.equal += 1;
    }
}

/// Fields that `ss` prints two at a time.
fn compare_pairs(record: &Value, fields: &Fields, later: &Fields, compared: &mut Compared) {
    let pairs = [
        ("wscale", ',', ["snd_wscale", "rcv_wscale"], Unit::Same),
        ("rtt", '/', ["rtt_us", "rttvar_us"], Unit::Thousand),
        ("retrans", '/', ["retrans_segments", "total_retrans_segments"], Unit::Same),
    ];
    for (name, separator, ours, unit) in pairs {
        let (Some(text), true) = (fields.get(name), fields.get(name) == later.get(name)) else {
            continue;
        };
        let (one, other) = text.split_once(separator).unwrap();
        for (text, field) in [(one, ours[0]), (other, ours[1])] {
            assert!(
                is_same(text, record[field].as_u64().unwrap(), unit),
                "{name} {text}: {record}"
            );
            compared.equal += 1;
        }
    }
    // Without its block it is only the name.
    let block = |fields: &Fields| Some(fields.get("bbr")?.strip_prefix("(bw:")?.to_owned());
    if let (Some(bbr), true) = (block(fields), block(fields) == block(later)) {
        let bits = bbr.split(',').next().unwrap();
        assert!(
            is_same(bits, record["bbr_bw_bytes_per_sec"].as_u64().unwrap(), Unit::Bits),
            "{bbr}: {record}"
        );
        assert_eq!(record["congestion_algorithm"], "bbr");
        compared.equal += 2;
    }
}
