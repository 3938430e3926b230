//! Records for tests and benchmarks.

#![allow(dead_code, reason = "each executable that compiles this file uses a part of it")]

use record::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testkit::Random;

/// How many mutated messages a test makes: `WEIR_MUTATIONS`, or 100,000.
pub(crate) fn mutations() -> u64 {
    std::env::var("WEIR_MUTATIONS").map_or(100_000, |count| count.parse().expect("a number"))
}

/// Makes one to four changes: a bit, a byte, a cut, a duplicated piece.
pub(crate) fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => {
                let end = (at + 1 + random.below(64) as usize).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            2 => bytes[at] ^= 1 << random.below(8),
            3 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            _ => bytes[at] = random.next() as u8,
        }
    }
}

pub(crate) const TAGS: &[(&str, &str)] = &[
    ("region", "eu-north-1"),
    ("", "no name"),
    ("quote\"", "line\nfeed, comma;\ttab \\ é 雪 \u{1}"),
];

const TEXTS: &[&str] = &[
    "",
    "cubic",
    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0d9e.slice/cri-containerd-4f5a.scope",
    "a\"quote, a comma",
    "=HYPERLINK(\"http://example.invalid\")",
    "tab\there\nline\r\nend \\ back",
    "nul \0 bell \u{7} escape \u{1b}[31m del \u{7f}",
    "\u{2028} é 雪 \u{1f980}",
];

pub(crate) fn random_text(random: &mut Random) -> &'static str {
    TEXTS[random.below(TEXTS.len() as u64) as usize]
}

pub(crate) fn random_bytes(random: &mut Random) -> &'static [u8] {
    const BYTES: &[u8; 300] = &{
        let mut bytes = [0; 300];
        let mut at = 0;
        while at < 300 {
            bytes[at] = at as u8;
            at += 1;
        }
        bytes
    };
    &BYTES[..random.below(301) as usize]
}

pub(crate) fn random_address(random: &mut Random, family: Option<AddressFamily>) -> IpAddr {
    match family {
        Some(AddressFamily::INET) => {
            IpAddr::V4(Ipv4Addr::from(random.number(u32::MAX.into()) as u32))
        }
        _ if random.below(4) == 0 => {
            IpAddr::V6(Ipv4Addr::from(random.next() as u32).to_ipv6_mapped())
        }
        _ => {
            IpAddr::V6(Ipv6Addr::from(u128::from(random.next()) << 64 | u128::from(random.next())))
        }
    }
}

/// A web server connection on Linux 6.18, with every attribute that such a socket has.
#[expect(clippy::too_many_lines, reason = "a line for each field")]
pub(crate) fn realistic(random: &mut Random) -> SocketRecord<'static> {
    let rtt = 200 + random.below(90_000) as u32;
    let mss = 1_448;
    let magnitude = random.below(20);
    let segments = random.below(1 << magnitude);
    let bytes = segments * 1_100;
    SocketRecord {
        record_kind: Some(RecordKind::POLL),
        time_unix_ns: Some(1_795_190_400_000_000_000 + random.below(1 << 40)),
        cookie: Some(1_000_000 + random.below(1 << 24)),
        poll: Some(4_711),
        sequence: Some(9_000_000 + random.below(10_000)),
        host: Some("web-17.example.net"),
        boot_id: Some("c5b1f1e0-2d7a-4d27-9c1b-0f6d6f3c5a11"),
        run_id: Some(0x4d6f_7e11_90ab_c0de),
        host_id: Some("5b7a1f02-99c3-4f5e-8a55-0c2f7f4b1d33"),
        kernel_release: Some("6.18.5-amd64"),
        schema_version: Some(SCHEMA_VERSION),
        family: Some(AddressFamily::INET),
        src_address: Some(IpAddr::from([10, 0, 3, random.below(256) as u8])),
        src_port: Some(443),
        dst_address: Some(IpAddr::V4(Ipv4Addr::from(random.next() as u32))),
        dst_port: Some(1_024 + random.below(60_000) as u16),
        interface_index: Some(0),
        role: Some(ConnectionRole::ACCEPTOR),
        state: Some(SocketState::ESTABLISHED),
        timer: Some(SocketTimer(random.below(3) as u8)),
        timer_retransmits: Some(0),
        timer_expires_ms: Some(random.below(20_000) as u32),
        receive_queue: Some(0),
        send_queue: Some(random.below(3) as u32 * 14_480),
        uid: Some(33),
        inode: Some(2_000_000 + random.below(100_000) as u32),
        type_of_service: Some(0),
        shutdown: Some(0),
        mark: Some(0),
        class_id: Some(0),
        socket_options: Some(2),
        tcp_info_state: Some(SocketState::ESTABLISHED),
        ca_state: Some(RecoveryState::OPEN),
        retransmits: Some(0),
        probes: Some(0),
        backoff: Some(0),
        options: Some(7),
        snd_wscale: Some(7),
        rcv_wscale: Some(9),
        delivery_rate_app_limited: Some(true),
        fastopen_client_fail: Some(FastOpenFailure::UNSPECIFIED),
        rto_us: Some(200_000 + rtt),
        ato_us: Some(40_000),
        snd_mss_bytes: Some(mss),
        rcv_mss_bytes: Some(536),
        unacked_segments: Some(random.below(20) as u32),
        sacked_segments: Some(0),
        lost_segments: Some(0),
        retrans_segments: Some(0),
        fackets_segments: Some(0),
        last_data_sent_ms: Some(random.below(10_000) as u32),
        last_ack_sent_ms: Some(0),
        last_data_recv_ms: Some(random.below(10_000) as u32),
        last_ack_recv_ms: Some(random.below(10_000) as u32),
        pmtu_bytes: Some(1_500),
        rcv_ssthresh_bytes: Some(64_088),
        rtt_us: Some(rtt),
        rttvar_us: Some(rtt / 4),
        snd_ssthresh_segments: Some(20 + random.below(1_000) as u32),
        snd_cwnd_segments: Some(10 + random.below(100) as u32),
        advmss_bytes: Some(mss),
        reordering_segments: Some(3),
        rcv_rtt_us: Some(rtt),
        rcv_space_bytes: Some(14_600),
        total_retrans_segments: Some(segments as u32 / 100),
        pacing_rate_bytes_per_sec: Some(20_000_000 + random.below(1 << 30)),
        bytes_acked: Some(bytes + 1),
        bytes_received: Some(bytes / 10),
        segs_out: Some(segments as u32),
        segs_in: Some(segments as u32 / 2),
        notsent_bytes: Some(0),
        min_rtt_us: Some(200),
        data_segs_in: Some(segments as u32 / 10),
        data_segs_out: Some(segments as u32),
        delivery_rate_bytes_per_sec: Some(1_000_000 + random.below(1 << 28)),
        busy_time_us: Some(segments * 300),
        rwnd_limited_us: Some(0),
        sndbuf_limited_us: Some(0),
        delivered_segments: Some(segments as u32),
        delivered_ce_segments: Some(0),
        bytes_sent: Some(bytes),
        bytes_retrans: Some(bytes / 100),
        dsack_dups: Some(0),
        reord_seen: Some(0),
        rcv_ooopack: Some(0),
        snd_wnd_bytes: Some(65_536),
        rcv_wnd_bytes: Some(64_256),
        rehash: Some(0),
        total_rto: Some(0),
        total_rto_recoveries: Some(0),
        total_rto_time_ms: Some(0),
        received_ce_segments: Some(0),
        delivered_e1_bytes: Some(0),
        delivered_e0_bytes: Some(0),
        delivered_ce_bytes: Some(0),
        received_e1_bytes: Some(0),
        received_e0_bytes: Some(0),
        received_ce_bytes: Some(0),
        accecn_opt_seen: Some(AccEcnOption::NOT_SEEN),
        accecn_fail_mode: Some(0),
        congestion_algorithm: Some("cubic"),
        rmem_alloc_bytes: Some(0),
        rcvbuf_bytes: Some(131_072),
        wmem_alloc_bytes: Some(0),
        sndbuf_bytes: Some(87_040),
        fwd_alloc_bytes: Some(4_096),
        wmem_queued_bytes: Some(0),
        optmem_bytes: Some(0),
        backlog_bytes: Some(0),
        drops: Some(0),
        netns_inode: Some(4_026_531_840),
        cgroup_id: Some(7_391),
        cgroup_path: Some("/system.slice/nginx.service"),
        systemd_unit: Some("nginx.service"),
        netns_cookie: Some(1),
        first_seen_unix_ns: Some(1_795_190_300_000_000_000),
        since_ns: Some(10_000_000_000 + random.below(1 << 20)),
        bytes_sent_delta: Some(bytes / 50),
        bytes_acked_delta: Some(bytes / 50),
        bytes_received_delta: Some(bytes / 500),
        bytes_retrans_delta: Some(0),
        segs_out_delta: Some(segments as u32 / 50),
        segs_in_delta: Some(segments as u32 / 100),
        total_retrans_segments_delta: Some(0),
        busy_time_us_delta: Some(segments * 6),
        rwnd_limited_us_delta: Some(0),
        sndbuf_limited_us_delta: Some(0),
        ..SocketRecord::default()
    }
}

/// The totals of a poll with every field set.
pub(crate) fn realistic_totals() -> PollTotals<'static> {
    PollTotals {
        time_unix_ns: Some(1_795_190_400_000_000_000),
        poll: Some(4_711),
        host: Some("web-17.example.net"),
        boot_id: Some("c5b1f1e0-2d7a-4d27-9c1b-0f6d6f3c5a11"),
        tags: Some(Tags::new(TAGS)),
        is_keyframe: Some(false),
        run_id: Some(0x4d6f_7e11_90ab_c0de),
        next_sequence: Some(9_003_000),
        host_id: Some("5b7a1f02-99c3-4f5e-8a55-0c2f7f4b1d33"),
        kernel_release: Some("6.18.5-amd64"),
        weir_version: Some("0.1.0"),
        interval_ms: Some(10_000),
        schema_version: Some(SCHEMA_VERSION),
        namespaces_visited: Some(40),
        namespaces_failed: Some(0),
        sockets_visited: Some(10_000),
        sockets_emitted: Some(3_000),
        sockets_unchanged: Some(7_000),
        closes_observed: Some(120),
        closes_emitted: Some(120),
        poll_ns: Some(9_000_000),
        walk_ns: Some(6_000_000),
        ..PollTotals::default()
    }
}

/// A syslog datagram with every field set.
pub(crate) fn realistic_datagram(random: &mut Random) -> DatagramRecord<'static> {
    const PAYLOAD: &[u8] = b"<165>1 2026-11-22T12:00:00.25Z web-17 sshd 4711 ID47 [a@1 b=\"c\"] Accepted publickey for root from 192.0.2.1 port 50022 ssh2";
    let unix_ns = 1_795_348_800_000_000_000 + random.below(1 << 40);
    let mut datagram = DatagramRecord {
        time_unix_ns: Some(unix_ns),
        sequence: Some(random.below(1 << 30)),
        host: Some("collector-1"),
        tags: Some(Tags::new(TAGS)),
        run_id: Some(0x4d6f_7e11_90ab_c0de),
        host_id: Some("5b7a1f02-99c3-4f5e-8a55-0c2f7f4b1d33"),
        listener: Some("syslog"),
        source_address: Some(IpAddr::V4(Ipv4Addr::from(random.next() as u32))),
        source_port: Some(1_024 + random.below(60_000) as u16),
        payload: Some(PAYLOAD),
        payload_truncated_bytes: Some(0),
        ..DatagramRecord::new()
    };
    let arrival = wire::syslog::Arrival::utc(unix_ns);
    datagram.fill_syslog(&wire::syslog::parse(PAYLOAD, arrival));
    datagram.syslog_fault = Some(record::SyslogFault::MESSAGE);
    datagram
}

/// A message with random fields of the table, each present three times out of four, at most once, in the table's
/// order; written byte by byte here, as an independent check of the crate's own encoder.
pub(crate) fn any_message(random: &mut Random, fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    let keep = random.below(5);
    for field in fields {
        if random.below(4) >= keep {
            continue;
        }
        let number = random.number(u64::MAX);
        match field.kind {
            Kind::Text => put_bytes(field, random_text(random).as_bytes(), &mut out),
            Kind::Data if random.below(2) == 0 => {
                put_bytes(field, random_text(random).as_bytes(), &mut out);
            }
            Kind::Bytes | Kind::Data => put_bytes(field, random_bytes(random), &mut out),
            Kind::Address => {
                let IpAddr::V6(address) = random_address(random, None) else { unreachable!() };
                put_bytes(field, &address.octets(), &mut out);
            }
            Kind::Tags => {
                for (name, value) in TAGS {
                    let mut entry = Vec::new();
                    put_part(1, name, &mut entry);
                    put_part(2, value, &mut entry);
                    put_bytes(field, &entry, &mut out);
                }
            }
            Kind::Word(words) => {
                let known = words.entries[random.below(words.entries.len() as u64) as usize].0;
                let value = if random.below(8) == 0 { number & 0xff } else { known.into() };
                put_value(field, value, &mut out);
            }
            kind => put_value(field, number & largest(kind), &mut out),
        }
    }
    out
}

/// The record in such a message.
pub(crate) fn any_record(message: &[u8]) -> SocketRecord<'_> {
    decode_protobuf(message).expect("the message follows the schema")
}

/// Messages with only one field, at its smallest and largest value and at every varint length.
pub(crate) fn edges(field: &Field) -> Vec<Vec<u8>> {
    let message = |put: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        put(&mut out);
        out
    };
    match field.kind {
        Kind::Text => {
            ["", "é"].map(|text| message(&|out| put_bytes(field, text.as_bytes(), out))).into()
        }
        Kind::Bytes | Kind::Data => [&b""[..], &[0xff; 300]]
            .map(|bytes| message(&|out| put_bytes(field, bytes, out)))
            .into(),
        Kind::Address => {
            [[0; 16], [0xff; 16]].map(|bytes| message(&|out| put_bytes(field, &bytes, out))).into()
        }
        Kind::Tags => vec![message(&|out| put_bytes(field, b"\x0a\x01k\x12\x01v", out))],
        kind => {
            let powers = (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit]);
            let values = powers.chain([largest(kind)]).filter(|value| *value <= largest(kind));
            values.map(|value| message(&|out| put_value(field, value, out))).collect()
        }
    }
}

/// A message with only one number.
pub(crate) fn number(field: &Field, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_value(field, value, &mut out);
    out
}

fn largest(kind: Kind) -> u64 {
    match kind {
        Kind::Bool => 1,
        Kind::U8 | Kind::Word(_) => u8::MAX.into(),
        Kind::U16 => u16::MAX.into(),
        Kind::U32 => u32::MAX.into(),
        _ => u64::MAX,
    }
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_value(field: &Field, value: u64, out: &mut Vec<u8>) {
    if field.kind == Kind::Fixed64 {
        put_varint(u64::from(field.number) << 3 | 1, out);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        put_varint(u64::from(field.number) << 3, out);
        put_varint(value, out);
    }
}

fn put_bytes(field: &Field, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(field.number) << 3 | 2, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_part(number: u8, text: &str, out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    put_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}
