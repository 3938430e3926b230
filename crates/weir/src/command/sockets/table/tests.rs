use super::*;
use crate::command::sockets::columns;
use crate::command::sockets::shown::{column, columns};
use record::{AddressFamily, CloseReason, SocketRecord, SocketState};
use sockets::attribution::Users;

fn connection(cookie: u64, src: &str, rtt_us: u32) -> SocketRecord<'static> {
    SocketRecord {
        cookie: Some(cookie),
        family: Some(AddressFamily::INET6),
        state: Some(SocketState::ESTABLISHED),
        src_address: Some(src.parse().unwrap()),
        src_port: Some(443),
        dst_address: Some("2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap()),
        dst_port: Some(65_535),
        rtt_us: Some(rtt_us),
        ..SocketRecord::default()
    }
}

fn render(names: &str, sort: &str, direction: Direction, width: Option<usize>) -> Vec<String> {
    let (columns, sort) = (columns(names).unwrap(), column(sort).unwrap());
    let mut table = Table::new(columns, Vec::new(), sort, direction);
    let users = Users::default();
    for record in [
        connection(2, "2001:db8::2", 900),
        connection(1, "2001:db8::1", 0),
        connection(3, "::1", 1_500),
    ] {
        table.push(&View::of(&record, &users));
    }
    let mut out = Out::to_memory();
    let look = Look { ink: Ink::Plain, width, may_drop_columns: true, has_title: true };
    table.render(&look, usize::MAX, &mut out);
    String::from_utf8(out.into_memory()).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn rows_are_sorted_and_aligned() {
    let lines = render("local,rtt", "rtt", Direction::Descending, None);
    assert_eq!(
        lines,
        [
            "LOCAL                 RTT",
            "[::1]:443          1.5 ms",
            "[2001:db8::2]:443  900 µs",
            "[2001:db8::1]:443       -",
        ]
    );
    assert!(render("local", "local", Direction::Ascending, None)[1].starts_with("[::1]"));
}

#[test]
fn long_addresses_lose_their_middle_and_never_the_port() {
    let lines = render("local,peer", "local", Direction::Ascending, Some(50));
    assert_eq!(lines[1], "[::1]:443          [2001:db8:11…4:5555:6666]:65535");
    assert!(lines.iter().all(|line| line.chars().count() <= 50), "{lines:?}");
}

#[test]
fn the_least_important_columns_go_where_there_is_no_room() {
    let lines =
        render("state,local,peer,rtt,min_rtt,idle", "local", Direction::Ascending, Some(60));
    assert!(lines[0].contains("RTT") && lines[0].contains("PEER"), "{lines:?}");
    assert!(!lines[0].contains("IDLE") && !lines[0].contains("MIN-RTT"), "{lines:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:?}");
}

#[test]
fn eighty_columns_have_room_for_state_addresses_and_queues() {
    let users = Users::default();
    let mut record = connection(1, "::ffff:255.255.255.255", 900);
    record.state = Some(SocketState::CLOSE_WAIT);
    record.src_port = Some(65_535);
    record.dst_address = record.src_address;
    record.receive_queue = Some(12_000);
    record.send_queue = Some(12_000);
    record.process_id = Some(4_194_304);
    record.process_name = Some("a-server");

    for (names, sort, kept) in [
        (columns::CONNECTIONS, "local", &["state", "local", "peer", "recv_q", "send_q"][..]),
        (columns::WATCHED, "out", &["local", "peer", "out"]),
        (columns::WATCHED, "segs_in/s", &["local", "peer", "segs_in/s"]),
        (
            &["namespace", "state", "local", "peer", "rtt"],
            "rtt",
            &["namespace", "local", "peer", "rtt"],
        ),
        (&["state", "local", "peer", "recv_q", "process"], "local", &["local", "peer", "process"]),
    ] {
        let shown = names.iter().map(|name| column(name).unwrap()).collect();
        let (sort, direction) = (column(sort).unwrap(), Direction::Ascending);
        let mut table = Table::new(shown, Vec::new(), sort, direction);
        table.push(&View::of(&record, &users));
        let mut out = Out::to_memory();
        let look =
            Look { ink: Ink::Plain, width: Some(80), may_drop_columns: true, has_title: true };
        let rendered = table.render(&look, usize::MAX, &mut out);
        let text = String::from_utf8(out.into_memory()).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("…255.255.255.255:65535"), "{text}");
        for name in kept {
            assert!(!rendered.left_out.contains(name), "{name} in {text}");
        }
    }
}

#[test]
fn closes_fit_eighty_columns() {
    let look = Look { ink: Ink::Plain, width: Some(80), may_drop_columns: true, has_title: true };
    let shown = columns::CLOSED.iter().map(|name| column(name).unwrap()).collect();
    let mut lines = Lines::new(shown, &look);
    let mut record = connection(1, "2001:db8:1111:2222:3333:4444:5555:6666", 900);
    record.close_reason = Some(CloseReason::PEER_CLOSE);
    let mut line = String::new();
    lines.row(&View::of(&record, &Users::default()), &mut line);
    assert!(line.contains("peer_close") && line.trim_end().chars().count() <= 80, "{line}");
    assert!(lines.title().trim_end().len() <= 80, "{}", lines.title());
    assert!(lines.left_out().contains(&"time"));
}

#[test]
fn generated_closes() {
    let close = |src: &str, reason, sent| {
        let mut record = connection(1, src, 900);
        record.time_unix_ns = Some(1_700_000_000_123_456_789);
        (record.close_reason, record.bytes_sent) = (Some(reason), Some(sent));
        (record.bytes_received, record.min_rtt_us) = (Some(801), Some(15));
        record
    };
    let mut refused = close("::ffff:192.0.2.10", CloseReason::OUR_RESET, 8);
    refused.dst_address = Some("::ffff:198.51.100.7".parse().unwrap());
    let records = [
        close("2001:db8:1111:2222:3333:4444:5555:6666", CloseReason::PEER_CLOSE, 12_345_678_901),
        refused,
    ];
    crate::screen::check("sockets-closed", |room| {
        let look =
            Look { ink: Ink::Plain, width: room.columns, may_drop_columns: true, has_title: true };
        let shown = columns::CLOSED.iter().map(|name| column(name).unwrap()).collect();
        let mut lines = Lines::new(shown, &look);
        let mut text = lines.title();
        let mut line = String::new();
        for record in &records {
            lines.row(&View::of(record, &Users::default()), &mut line);
            text.push_str(&line);
        }
        let left_out = lines.left_out();
        if !left_out.is_empty() {
            text.push_str(&format!("weir: no room for {}\n", left_out.join(", ")));
        }
        text
    });
}

#[test]
fn details_are_lines_of_their_own_and_the_title_may_be_left_out() {
    let sort = column("local").unwrap();
    let details = columns("mss,rto,cc").unwrap();
    let mut table = Table::new(columns("local").unwrap(), details, sort, Direction::Ascending);
    let mut record = connection(1, "::1", 900);
    (record.snd_mss_bytes, record.rto_us) = (Some(1_448), Some(204_000));
    table.push(&View::of(&record, &Users::default()));
    let mut out = Out::to_memory();
    let look = Look { ink: Ink::Plain, width: Some(20), may_drop_columns: true, has_title: false };
    let rendered = table.render(&look, 2, &mut out);
    assert_eq!(rendered.rows_below, 1, "three lines do not fit two");
    table.render(&look, 3, &mut out);
    let text = String::from_utf8(out.into_memory()).unwrap();
    assert_eq!(text, "[::1]:443\n        mss:1448\n        rto:204ms\n");
}
