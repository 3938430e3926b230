//! Rows of a host, with everything that a question looks at: the same for the same number.

use record::{
    Chunk, ChunkBuilder, CloseReason, ConnectionRole, CountersFrom, FlowRecord, FlowTraffic,
    PollTotals, RecordKind, SocketRecord, SocketState, Tags,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testkit::Random;

pub(super) const HOST: &str = "host-1";
pub(super) const OTHER_HOST: &str = "it's \\ another";

/// 2026-11-25 17:00:20 UTC: within a minute.
pub(super) const START_NS: u64 = 1_795_626_020_000_000_000;
/// Also within a minute, and before the last rows.
pub(super) const END_NS: u64 = START_NS + 3_005 * SECOND_NS;
/// So long ago that sums are read by the hour.
pub(super) const LONG_SINCE_NS: u64 = END_NS - 24 * 3_600 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;

/// Rows are from this long before the start of the range until as long after it.
const SPREAD_NS: u64 = 3_200 * SECOND_NS;

const CONNECTIONS: u64 = 200;
/// A connection that the rows are about.
pub(super) const COOKIE: u64 = 1_017;

/// Rows of one batch.
const BATCH: u64 = 5_000;

/// This many rows of sockets, and a tenth as many of flows.
pub(super) fn chunks(host: &'static str, count: u64) -> impl Iterator<Item = Chunk> {
    chunks_from(START_NS, host, count)
}

/// The same, from 100 s before `start_ns` on, over less than an hour.
pub(super) fn chunks_from(
    start_ns: u64,
    host: &'static str,
    count: u64,
) -> impl Iterator<Item = Chunk> {
    // One stream for a host: a database takes rows with the same number of the same stream for copies.
    let mut builder = ChunkBuilder::new(run_of(host), [0; 16]);
    (0..count.div_ceil(BATCH)).map(move |batch| {
        let mut random = Random(batch);
        for number in batch * BATCH..count.min((batch + 1) * BATCH) {
            let time_unix_ns = start_ns - 100 * SECOND_NS + number * (SPREAD_NS / count);
            // A few records are lost on the way.
            if number % 1_999 != 1_000 {
                builder.record(&socket(&mut random, (host, number), time_unix_ns));
            }
            if number % 500 == 499 {
                builder.totals(&totals(&mut random, (host, number), time_unix_ns));
            }
            if number % 10 == 0 {
                flow(&mut builder, &mut random, (host, number), time_unix_ns);
            }
        }
        builder.cut(None).unwrap()
    })
}

fn socket(
    random: &mut Random,
    (host, number): (&'static str, u64),
    time_unix_ns: u64,
) -> SocketRecord<'static> {
    let connection = number % CONNECTIONS;
    let is_close = random.below(50) == 0;
    let some = |random: &mut Random, value: u64| (random.below(8) > 0).then_some(value);
    // From 1 µs to 1 s, equally many in each octave; 0 before the first sample.
    let octave = 1 << random.below(20);
    let rtt_us = (octave + random.below(octave)) * u64::from(random.below(20) > 0);
    let attributed = unit_of(connection);
    SocketRecord {
        record_kind: Some(if is_close { RecordKind::CLOSE } else { RecordKind::POLL }),
        time_unix_ns: Some(time_unix_ns),
        cookie: Some(1_000 + connection),
        sequence: Some(number),
        run_id: Some(run_of(host)),
        host: Some(host),
        src_address: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))),
        src_port: Some(if connection.is_multiple_of(2) { 443 } else { 50_000 }),
        dst_address: peer_of(connection),
        dst_port: (!connection.is_multiple_of(11)).then_some(4_000 + (connection % 7) as u16),
        role: match connection % 3 {
            0 => Some(ConnectionRole::ACCEPTOR),
            1 => Some(ConnectionRole::OPENER),
            _ => None,
        },
        state: Some(match (is_close, connection % 40) {
            (true, _) => SocketState::CLOSE,
            (_, 39) => SocketState::LISTEN,
            _ => SocketState::ESTABLISHED,
        }),
        last_state: is_close.then_some(SocketState::FIN_WAIT_2),
        close_reason: is_close.then(|| CloseReason(random.below(9) as u8)),
        counters_from: is_close.then_some(CountersFrom::LAST_POLL),
        rtt_us: (random.below(30) > 0).then_some(rtt_us as u32),
        rttvar_us: Some(random.below(1_000) as u32),
        min_rtt_us: some(random, 90).map(|rtt_us| rtt_us as u32),
        snd_wnd_bytes: Some(if random.below(10) == 0 { 0 } else { 65_535 }),
        bytes_sent: some(random, number),
        bytes_sent_delta: some(random, number % 4_000),
        bytes_received_delta: some(random, number % 3_000),
        bytes_retrans_delta: some(random, connection % 5),
        segs_out_delta: some(random, number % 9).map(|segments| segments as u32),
        total_retrans_segments_delta: some(random, connection % 4).map(|segments| segments as u32),
        busy_time_us_delta: some(random, number % 1_000),
        rwnd_limited_us_delta: some(random, number % 100),
        sndbuf_limited_us_delta: some(random, number % 30),
        netns_inode: Some(4_026_531_840 + connection % 2),
        process_name: Some("a\tname"),
        ..attributed
    }
}

/// Hosts whose names differ in length have different runs.
fn run_of(host: &str) -> u64 {
    host.len() as u64
}

/// The totals of a poll whose last record has this number.
fn totals(
    random: &mut Random,
    (host, number): (&'static str, u64),
    time_unix_ns: u64,
) -> PollTotals<'static> {
    PollTotals {
        time_unix_ns: Some(time_unix_ns),
        poll: Some(number / 500),
        host: Some(host),
        run_id: Some(run_of(host)),
        next_sequence: Some(number + 1),
        poll_ns: Some(1_000_000),
        sockets_emitted: Some(480 + random.below(20)),
        closes_emitted: Some(random.below(20)),
        sockets_dropped_other: Some(random.below(2)),
        closes_dropped_event_buffer: (random.below(2) == 0).then_some(3),
        closes_unobserved: Some(random.below(3)),
        namespaces_failed: Some(random.below(2)),
        ..PollTotals::default()
    }
}

/// Who owns a connection, as far as each of them is known.
fn unit_of(connection: u64) -> SocketRecord<'static> {
    const UNITS: [&str; 4] = ["web.service", "db.service", "cron.service", "a \"b\" \\c.service"];
    let known = |is_known: bool, name| is_known.then_some(name);
    SocketRecord {
        systemd_unit: known(connection % 5 < 3, UNITS[connection as usize % UNITS.len()]),
        container_id: known(connection % 5 == 3, "4f1c"),
        pod_uid: known(connection % 10 == 4, "9d0e"),
        cgroup_path: known(connection % 20 != 9, "/user.slice"),
        ..SocketRecord::default()
    }
}

/// A peer: of IPv4, of IPv4 on an IPv6 socket, of IPv6, or unknown.
fn peer_of(connection: u64) -> Option<IpAddr> {
    let v4 = Ipv4Addr::new(192, 0, (connection % 9) as u8, connection as u8);
    match connection % 16 {
        0 => None,
        1..4 => Some(Ipv6Addr::new(0x2001, 0xdb8, connection as u16 % 4, 1, 0, 0, 0, 5).into()),
        4 => Some(v4.to_ipv6_mapped().into()),
        // Not an IPv4 address, although it begins like one in text.
        5 => Some(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0xc000, 0x201).into()),
        _ => Some(v4.into()),
    }
}

fn flow(
    builder: &mut ChunkBuilder,
    random: &mut Random,
    (host, number): (&'static str, u64),
    time_unix_ns: u64,
) {
    let network = format!("192.0.{}.0/24", number / 10 % 12);
    let key = [("src/24", network.as_str()), ("group(dst)", "lab, \"x\"")];
    let is_dropped = random.below(3) == 0;
    let bytes = random.below(1 << 30);
    let flow = FlowRecord {
        record_kind: Some(RecordKind::FLOW),
        time_unix_ns: Some(time_unix_ns),
        begin_unix_ns: Some(time_unix_ns - SECOND_NS),
        end_unix_ns: Some(time_unix_ns),
        sequence: Some(number),
        run_id: Some(run_of(host)),
        host: Some(host),
        definition: Some("pairs"),
        key: Some(Tags::new(&key)),
        traffic: match (is_dropped, number % 20) {
            (true, _) => Some(FlowTraffic::DROPPED),
            (_, 0) => None,
            _ => Some(FlowTraffic::SAMPLED),
        },
        drop_reason: is_dropped.then_some(256),
        agent_address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
        samples: Some(1 + random.below(9)),
        bytes: Some(bytes),
        bytes_low: Some(bytes / 2),
        bytes_high: Some(bytes * 2),
        frames: Some(bytes / 1_000),
        ..FlowRecord::new()
    };
    builder.flow(&flow, 1);
}
