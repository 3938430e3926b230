//! A record passes where the message that it was made of does.

use super::{message, parse};
use crate::assemble::fill;
use crate::filter::{Facts, RecordFilter};
use record::{ChunkBuilder, RecordKind, SocketRecord, SocketState};
use wire::inet_diag::{SocketMessage, State, TcpInfo};

fn passes(filter: &str, record: &SocketRecord<'_>) -> bool {
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    builder.record(record);
    let chunk = builder.cut(None).unwrap();
    let row = chunk.rows().next().unwrap();
    RecordFilter::new(parse(filter)).matches(row.bytes).unwrap()
}

/// Filters of every kind of word, each with its opposite.
const FILTERS: [&str; 31] = [
    "sport = :40000",
    "dport >= :443",
    "dport <= :442",
    "src 10.0.0.0/8",
    "dst 192.0.2.7",
    "dst 10.0.0.2:443",
    "src = 10.0.0.1 and dport = :443",
    "autobound",
    "dev = 0",
    "dev = lo",
    "fwmark = 7",
    "state established",
    "state listening",
    "state connected and rtt > 1ms",
    "rtt > 1ms",
    "rtt > 1ms and min_rtt < 100us",
    "rtt = 2ms or dport = :1",
    "cwnd < 11",
    "lastsnd >= 90s",
    "rate > 7Mbit/s",
    "idle > 1min",
    "idle > 62s",
    "sent = 5000",
    "recvq > 4",
    "sendq = 6",
    "waiting > 1",
    "uid = 33",
    "inode = 8",
    "cookie = 5",
    "dscp = ef",
    "limited = rwnd",
];

fn agrees(socket: &SocketMessage<'_>) {
    let mut record = SocketRecord::default();
    fill(&mut record, socket, None);
    for text in FILTERS {
        for text in [text.to_owned(), format!("not ({text})")] {
            // States in front of a filter have no opposite.
            if text.starts_with("not (state") {
                continue;
            }
            let expected = parse(&text).matches(socket, &Facts::default());
            assert_eq!(passes(&text, &record), expected, "{text} of {record:?}");
        }
    }
}

#[test]
fn a_record_passes_where_its_message_does() {
    let mut payload = [0; 280];
    for (name, value) in [
        ("rtt_us", 2_000),
        ("min_rtt_us", 90),
        ("snd_cwnd_segments", 10),
        ("last_data_sent_ms", 90_000),
        ("last_data_recv_ms", 61_000),
        ("delivery_rate_bytes_per_sec", 1_000_000),
        ("busy_time_us", 1_000),
        ("rwnd_limited_us", 300),
        ("bytes_sent", 5_000),
    ] {
        let fields = wire::inet_diag::tcp_info::FIELDS;
        fields.iter().find(|field| field.name == name).unwrap().write(&mut payload, value);
    }
    let mut socket = message("10.0.0.1:40000", "10.0.0.2:443");
    agrees(&socket);
    socket.tcp_info = Some(TcpInfo::decode(&payload).unwrap());
    (socket.receive_queue, socket.send_queue) = (5, 6);
    (socket.uid, socket.inode, socket.mark) = (33, 8, Some(7));
    (socket.cgroup_id, socket.type_of_service) = (Some(9), Some(0xb9));
    agrees(&socket);
    socket.id.interface_index = 3;
    socket.state = State::Listen;
    agrees(&socket);
    agrees(&message("[::ffff:10.0.0.1]:40000", "[::ffff:192.0.2.7]:443"));
}

#[test]
fn what_a_record_does_not_say_decides_nothing() {
    let record = SocketRecord::default();
    for text in FILTERS {
        assert!(!passes(text, &record), "{text}");
    }
    assert!(!passes("not dport = :443", &record));
    assert!(passes("", &record));
}

#[test]
fn texts_and_closes() {
    let record = SocketRecord {
        record_kind: Some(RecordKind::CLOSE),
        state: Some(SocketState::CLOSE),
        last_state: Some(SocketState::ESTABLISHED),
        time_unix_ns: Some(9_000_000_000),
        first_seen_unix_ns: Some(2_000_000_000),
        netns_inode: Some(4_026_531_840),
        cgroup_id: Some(9),
        cgroup_path: Some("/system.slice/nginx.service"),
        systemd_unit: Some("nginx.service"),
        process_name: Some("nginx"),
        process_id: Some(77),
        congestion_algorithm: Some("cubic"),
        ..SocketRecord::default()
    };
    for text in [
        "state established",
        "unit = nginx*",
        "process = nginx and pid = 77",
        "cc = cubic",
        "cgroup = /c9",
        "not pod = x",
        "not netns = blue",
        "age > 6s and age < 8s",
    ] {
        assert!(passes(text, &record), "{text}");
    }
    for text in ["state listening", "unit = sshd.service", "process != nginx", "netns = blue"] {
        assert!(!passes(text, &record), "{text}");
    }
}
