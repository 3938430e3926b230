//! Sinks come, change and go while the collector runs: it is not touched, nor are the others.

use super::complete::{assert_complete, connect};
use super::{
    assert_file, assert_law, disk, made, poll_hop, records, wait_for_polls, wait_for_reloads, write,
};
use crate::support::{Weir, hop};
use ledger::{Event, HopKind, Reason};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testkit::proxy::{Fault, Proxy};
use testkit::{TempDir, free_port, signal};

/// The sinks of a turn beside the one that stays: one that changes, one that comes and goes, and one that is never reached.
fn others(dir: &TempDir, turn: u32) -> Vec<String> {
    let format = ["jsonl", "csv", "protobuf"][turn as usize % 3];
    let path = dir.text(&format!("changed.{format}"));
    let mut sinks = vec![format!("name = \"changed\"\nto = \"file:{path}\"")];
    if turn.is_multiple_of(2) {
        sinks.push("name = \"guest\"\nto = \"null:\"\nfields = [\"all\"]".to_owned());
    }
    let queue = 256 + u64::from(turn % 2);
    sinks.push(format!(
        "name = \"far\"\nto = \"udp://collector.invalid:6350\"\nqueue_size = \"{queue}KiB\""
    ));
    sinks
}

#[test]
fn a_hundred_reloads_of_sinks_lose_nothing_and_no_close_goes_unheard() {
    const RELOADS: u32 = 100;
    let dir = TempDir::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Other tests close thousands of connections at once, and their events come too.
    let keys = format!(
        "namespaces = \"own\"\nevent_buffer = \"512MiB\"\nfilter = \"dport = :{port} or sport = :{port}\""
    );
    let file = |turn| {
        let others = others(&dir, turn);
        let sinks: Vec<_> = others.iter().map(String::as_str).collect();
        write(&dir, &keys, &[&[disk(&dir).as_str()], &sinks[..]].concat())
    };
    let weir = Weir::run(&file(0));
    // It hears closes before its first poll, and not before it has begun.
    wait_for_polls(&weir, 1);

    let stop = AtomicBool::new(false);
    let ports = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut ports = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let (near, far) = connect(&listener);
                ports.push(near.local_addr().unwrap().port());
                drop((near, far));
                // Each stays in TIME-WAIT for a minute, and there are 28,000 ports.
                std::thread::park_timeout(Duration::from_millis(2));
            }
            ports
        });
        for turn in 1..=RELOADS {
            file(turn);
            signal(weir.process(), "HUP");
            wait_for_reloads(&weir, turn);
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    // The kernel ends the last connections when it comes to it.
    let polls = poll_hop(&weir.ledger()).event(Event::Polls);
    wait_for_polls(&weir, polls + 2);

    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.ledger.violations, 0, "{}", ended.said);
    assert!(!ended.said.contains("socket collector started anew"), "{}", ended.said);

    let close = hop(&ended.ledger, HopKind::Close, "");
    assert!(close.dropped_for(Reason::EventBuffer).is_zero(), "{}", ended.said);

    // Every connection has two ends, and each end one close.
    let lines = records(&dir.file("out.jsonl"));
    assert_complete(&lines);
    let runs: BTreeSet<_> = lines.iter().filter_map(|line| line["run_id"].as_u64()).collect();
    assert_eq!(runs.len(), 1, "one collector all the time");
    assert!(ports.len() > RELOADS as usize, "{} connections", ports.len());
    let mut closes: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["record_kind"] == "close") {
        let port = |name: &str| line[name].as_u64().unwrap_or_default();
        *closes.entry((port("src_port"), port("dst_port"))).or_default() += 1;
    }
    // The kernel gives a port on loopback again after a second (ip-sysctl, tcp_tw_reuse).
    let mut connections: BTreeMap<u64, u64> = BTreeMap::new();
    ports.into_iter().for_each(|near| *connections.entry(near.into()).or_default() += 1);
    for (near, count) in connections {
        let ends = [(near, port.into()), (port.into(), near)].map(|end| closes.get(&end).copied());
        assert_eq!(ends, [Some(count), Some(count)], "port {near}: {}", ended.said);
    }
    assert_eq!((close.event(Event::Unobserved), close.event(Event::Unheard)), (0, 0));

    // The one that changed a hundred times has one row, and everything is in its lives together.
    for name in ["disk", "changed", "far"] {
        let sink = hop(&ended.ledger, HopKind::Sink, name);
        assert!(sink.received.count >= made(&ended.ledger), "{name}: {}", ended.said);
        assert_eq!((sink.in_flight.count, sink.unaccounted), (0, 0), "{name}");
    }
    // Lines of CSV have no place for totals.
    let changed = hop(&ended.ledger, HopKind::Sink, "changed");
    assert_eq!(changed.dropped_total(), changed.dropped_for(Reason::NotInFormat), "{}", ended.said);
    assert!(hop(&ended.ledger, HopKind::Sink, "disk").dropped.is_empty(), "{}", ended.said);
}

#[test]
fn a_dead_sink_and_a_slow_one_cost_a_healthy_one_nothing() {
    let dir = TempDir::new();
    let reader = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(reader.local_addr().unwrap());
    proxy.set(Fault::Slow { bytes_per_sec: 10_000 });
    // It ends with the test.
    std::thread::spawn(move || {
        let read_all = |mut connection: std::net::TcpStream| {
            std::thread::spawn(
                move || while connection.read(&mut [0; 4_096]).is_ok_and(|len| len > 0) {},
            )
        };
        reader.incoming().map_while(Result::ok).for_each(|one| drop(read_all(one)));
    });

    let small = "queue_size = \"256KiB\"";
    let dead = format!("name = \"dead\"\nto = \"tcp://127.0.0.1:{}\"\n{small}", free_port());
    let slow = format!("name = \"slow\"\nto = \"tcp://{}\"\n{small}", proxy.addr());
    let keys = "namespaces = \"own\"\nskip_unchanged = false\nevent_buffer = \"512MiB\"";
    let config = write(&dir, keys, &[&dead, &slow, &disk(&dir)]);
    let short = std::fs::read_to_string(&config).unwrap().replace("\"5s\"", "\"1s\"");
    std::fs::write(&config, short).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _connections: Vec<_> = (0..50).map(|_| connect(&listener)).collect();
    let weir = Weir::run(&config);

    // Both have lost something, and still the third has everything. One poll of many sockets may be more than a small queue takes, before
    // anything had to wait at the proxy.
    weir.wait_for(|ledger| {
        let sinks: Vec<_> = ledger.hops.iter().filter(|hop| hop.hop == HopKind::Sink).collect();
        let loses = |hop: &&ledger::HopSnapshot| !hop.dropped_total().is_zero();
        sinks.iter().filter(|hop| loses(hop)).count() == 2 && proxy.fired() > 0
    });
    let ended = weir.stop();
    assert_eq!(ended.ledger.violations, 0, "{}", ended.said);
    assert_law(&ended, &["dead", "slow", "disk"]);
    assert_file(&ended, &dir.file("out.jsonl"));
    let disk = hop(&ended.ledger, HopKind::Sink, "disk");
    assert_eq!(disk.delivered, disk.received, "{}", ended.said);
    let dead = hop(&ended.ledger, HopKind::Sink, "dead");
    assert!(dead.delivered.is_zero() && dead.uncertain.is_zero(), "{}", ended.said);
    let slow = hop(&ended.ledger, HopKind::Sink, "slow");
    assert!(!slow.delivered.is_zero(), "{}", ended.said);
}
