//! Listeners that feed sinks: each datagram is a row of each, with its sender and time, or as it came.

use crate::support::{Weir, hop};
use ledger::{HopKind, Reason};
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use testkit::{TempDir, signal, wait_for};

/// A daemon whose listeners have no targets but these sinks.
fn start(dir: &TempDir, listeners: &[(&str, &str)], sinks: &[String]) -> Weir {
    write(dir, listeners, sinks);
    Weir::run(&dir.file("weir.toml"))
}

pub(crate) fn write(dir: &TempDir, listeners: &[(&str, &str)], sinks: &[String]) {
    let mut text = String::from("[daemon]\ndrain_grace = \"5s\"\n");
    for (name, listen) in listeners {
        text += &format!("[[listener]]\nname = \"{name}\"\nlisten = \"{listen}\"\n");
    }
    for sink in sinks {
        text += &format!("[[sink]]\n{sink}\n");
    }
    fs::write(dir.file("weir.toml"), text).unwrap();
}

fn lines(dir: &TempDir, name: &str) -> Vec<String> {
    let text = fs::read_to_string(dir.file(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn wait_for_lines(dir: &TempDir, name: &str, count: usize) -> Vec<String> {
    wait_for(
        || format!("{count} lines of {name}: {:?}", lines(dir, name)),
        || Some(lines(dir, name)).filter(|lines| lines.len() >= count),
    )
}

#[test]
fn datagrams_are_records_with_the_fields_of_syslog_or_payloads() {
    let dir = TempDir::new();
    let port = testkit::free_port();
    let listen = format!("127.0.0.1:{port}");
    let sinks = [
        format!(
            "name = \"fields\"\nfrom = [\"in\"]\nparse = \"syslog\"\nto = \"file:{}\"",
            dir.text("fields.jsonl")
        ),
        format!(
            "name = \"raw\"\nfrom = [\"in\"]\nbody = \"payload\"\nwhen_full = \"leave_in_ring\"\nto = \"file:{}\"",
            dir.text("raw.log")
        ),
        format!("name = \"table\"\nfrom = [\"in\"]\nto = \"file:{}\"", dir.text("table.csv")),
    ];
    let weir = start(&dir, &[("in", &listen)], &sinks);
    let file = |name: &str| format!("file:{}", dir.text(name));
    let receivers = format!(
        "  sending to fields ({}), raw ({}), table ({})\n",
        file("fields.jsonl"),
        file("raw.log"),
        file("table.csv")
    );
    assert!(weir.process.said().contains(&receivers), "{}", weir.process.said());

    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sent = ["<34>1 2026-11-22T10:00:00Z host1 su - ID47 - failed for lonvick", "no syslog", ""];
    for payload in sent {
        sender.send_to(payload.as_bytes(), &listen).unwrap();
    }

    let fields: Vec<Value> = wait_for_lines(&dir, "fields.jsonl", 3)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let first = &fields[0];
    assert_eq!(first["record_kind"], "datagram", "{first}");
    assert_eq!(first["listener"], "in");
    assert_eq!(first["source_address"], "127.0.0.1");
    assert_eq!(first["source_port"], sender.local_addr().unwrap().port());
    assert_eq!(first["payload"], sent[0]);
    assert_eq!((&first["hostname"], &first["app_name"]), (&"host1".into(), &"su".into()));
    assert_eq!(first["message"], "failed for lonvick");
    assert_eq!(fields[1]["syslog_format"], "unparsed", "{}", fields[1]);
    let numbers: Vec<_> = fields.iter().map(|row| row["sequence"].as_u64()).collect();
    assert_eq!(numbers, [Some(0), Some(1), Some(2)]);

    // An empty payload is no line.
    assert_eq!(wait_for_lines(&dir, "raw.log", 2), sent[..2]);
    let table = wait_for_lines(&dir, "table.csv", 4);
    assert!(table[0].contains("listener,source_address"), "{table:?}");

    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    for (name, skipped) in [("fields", 0), ("raw", 1), ("table", 0)] {
        let sink = hop(&ended.ledger, HopKind::Sink, name);
        let delivered = (sink.origin.as_str(), sink.delivered.count);
        assert_eq!(delivered, ("in", 3 - skipped), "{}", ended.said);
        assert_eq!(sink.dropped_for(Reason::NotInFormat).count, skipped, "{}", ended.said);
        assert_eq!(hop(&ended.ledger, HopKind::Target, name).delivered.count, 3);
    }
}

#[test]
fn sinks_of_a_listener_come_change_and_go_and_nothing_is_lost() {
    let dir = TempDir::new();
    let ports = [testkit::free_port(), testkit::free_port()];
    let listens = ports.map(|port| format!("127.0.0.1:{port}"));
    let listeners = [("one", listens[0].as_str()), ("two", listens[1].as_str())];
    let steady = format!(
        "name = \"steady\"\nfrom = [\"one\", \"two\"]\nto = \"file:{}\"",
        dir.text("steady.jsonl")
    );
    let other = |turn: u32| match turn % 3 {
        0 => "name = \"other\"\nfrom = [\"one\"]\nto = \"null:\"",
        1 => "name = \"other\"\nfrom = [\"two\"]\nto = \"null:\"\nparse = \"syslog\"",
        _ => "name = \"another\"\nfrom = [\"one\", \"two\"]\nto = \"null:\"\nqueue_size = \"1MiB\"",
    };
    let sinks = |turn| [steady.clone(), other(turn).to_owned()];
    let weir = start(&dir, &listeners, &sinks(0));

    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sent = 0;
    for turn in 1..=30 {
        for number in 0..50 {
            let text = format!("{turn} {number}");
            sender.send_to(text.as_bytes(), &listens[number % 2]).unwrap();
            sent += 1;
        }
        write(&dir, &listeners, &sinks(turn));
        signal(weir.process(), "HUP");
        super::collector::wait_for_reloads(&weir, turn);
    }

    let rows = wait_for_lines(&dir, "steady.jsonl", sent);
    assert_eq!(rows.len(), sent);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.ledger.violations, 0, "{}", ended.said);
    let steady = hop(&ended.ledger, HopKind::Sink, "steady");
    assert_eq!((steady.origin.as_str(), steady.delivered.count), ("one+two", sent as u64));
    let lost: u64 = ended.ledger.hops.iter().map(|hop| hop.dropped_total().count).sum();
    let removed: u64 =
        ended.ledger.hops.iter().map(|hop| hop.dropped_for(Reason::TargetRemoved).count).sum();
    assert_eq!(lost, removed, "{}", ended.said);
}

#[test]
fn what_a_sink_has_no_room_for_stays_in_the_ring_and_is_lost_there_by_name() {
    let dir = TempDir::new();
    let port = testkit::free_port();
    let listen = format!("127.0.0.1:{port}");
    // A file that cannot be written: what comes waits in 256 KiB of queue, and then in 256 KiB of ring.
    let path = dir.text("gone/out.log");
    fs::create_dir(dir.file("gone")).unwrap();
    let sink = format!(
        "name = \"stuck\"\nfrom = [\"in\"]\nbody = \"payload\"\nwhen_full = \"leave_in_ring\"\nqueue_size = \"256KiB\"\nto = \"file:{path}\""
    );
    write(&dir, &[("in", &listen)], &[sink]);
    let text = fs::read_to_string(dir.file("weir.toml")).unwrap();
    let text = text.replace("[[sink]]", "ring_size = \"256KiB\"\n[[sink]]");
    fs::write(dir.file("weir.toml"), text).unwrap();
    let weir = Weir::run(&dir.file("weir.toml"));
    fs::remove_dir_all(dir.file("gone")).unwrap();

    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let payload = [b'x'; 1_000];
    let ledger = wait_for(
        || "the ring to overflow".to_owned(),
        || {
            for _ in 0..100 {
                sender.send_to(&payload, &listen).unwrap();
            }
            let ledger = weir.ledger();
            (hop(&ledger, HopKind::Target, "stuck").dropped_for(Reason::QueueFull).count > 0)
                .then_some(ledger)
        },
    );
    assert!(hop(&ledger, HopKind::Sink, "stuck").dropped.is_empty(), "{ledger:?}");

    // It can be written again: what waits leaves.
    fs::create_dir(dir.file("gone")).unwrap();
    wait_for(
        || "the backlog to leave".to_owned(),
        || {
            let ledger = weir.ledger();
            let (target, sink) =
                (hop(&ledger, HopKind::Target, "stuck"), hop(&ledger, HopKind::Sink, "stuck"));
            (target.in_flight.count == 0 && sink.in_flight.count == 0 && sink.delivered.count > 0)
                .then_some(())
        },
    );
    let ended = weir.stop();
    let target = hop(&ended.ledger, HopKind::Target, "stuck");
    let sink = hop(&ended.ledger, HopKind::Sink, "stuck");
    assert_eq!(target.delivered.count, sink.received.count, "{}", ended.said);
    assert_eq!(sink.delivered, sink.received, "{}", ended.said);
    assert_eq!(lines(&dir, "gone/out.log").len() as u64, sink.delivered.count);
    assert_eq!(ended.ledger.violations, 0, "{}", ended.said);
}

#[test]
fn files_are_named_by_sender_and_day() {
    let dir = TempDir::new();
    let listen = format!("127.0.0.1:{}", testkit::free_port());
    let sink = format!(
        "name = \"hosts\"\nfrom = [\"in\"]\nparse = \"syslog\"\nbody = \"payload\"\nto = \"file:{}\"",
        dir.text("logs/{host}/{listener}.log")
    );
    let weir = start(&dir, &[("in", &listen)], &[sink]);

    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let line =
        |host: &str, text: &str| format!("<34>1 2026-11-22T10:00:00Z {host} su - - - {text}");
    let sent = [
        ("web-1", line("web-1", "one")),
        ("_._.._etc", line("../../etc", "two")),
        ("127.0.0.1", "no syslog".to_owned()),
        ("web-1", line("web-1", "three")),
    ];
    for (_, payload) in &sent {
        sender.send_to(payload.as_bytes(), &listen).unwrap();
    }
    for (host, payload) in &sent {
        let name = format!("logs/{host}/in.log");
        wait_for(
            || format!("{payload} in {name}: {:?}", lines(&dir, &name)),
            || lines(&dir, &name).contains(payload).then_some(()),
        );
    }
    assert_eq!(lines(&dir, "logs/web-1/in.log"), [sent[0].1.clone(), sent[3].1.clone()]);

    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(hop(&ended.ledger, HopKind::Sink, "hosts").delivered.count, 4);
}
