//! sFlow that a daemon relays and analyzes: the same datagrams, each in the account of both.

use crate::support::{Weir, hop};
use ledger::{Event, Gauge, HopKind, HopSnapshot, Reason, Snapshot};
use load::sflow::{Agent, AgentOptions, TrueFlow};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::{MmdbField, TempDir, mmdb, signal, wait_for};

/// An agent that is heard at once, with samples enough.
fn agent(number: u8) -> Agent {
    let flow = TrueFlow {
        src: Ipv4Addr::new(10, 0, 0, number),
        dst: Ipv4Addr::new(10, 1, 0, number),
        protocol: 17,
        src_port: 53,
        dst_port: 4_000,
        frame_bytes: 1_000,
        frames_per_s: 100_000.0,
    };
    let address = Ipv4Addr::new(192, 0, 2, number).into();
    Agent::new(AgentOptions { address, ..AgentOptions::default() }, vec![flow], number.into())
}

/// Its next datagrams.
fn datagrams(agent: &mut Agent, count: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut bytes = Vec::new();
        agent.next_datagram(&mut bytes);
        all.push(bytes);
    }
    all
}

fn start(dir: &TempDir, text: &str) -> Weir {
    fs::write(dir.file("weir.toml"), text).unwrap();
    Weir::run(&dir.file("weir.toml"))
}

fn analysis(ledger: &Snapshot) -> &HopSnapshot {
    ledger.hop(HopKind::Analysis, "flows", None).unwrap()
}

/// What the relay counts as taken by the analysis is what the analysis counts as received: nobody but the two knows.
fn assert_equal_accounts(ledger: &Snapshot) {
    let taps = ledger.hops.iter().filter(|hop| hop.hop == HopKind::Target);
    let taps = taps.filter(|hop| hop.target.as_deref() == Some("flows"));
    let given = taps.map(|hop| hop.delivered).sum();
    assert_eq!(analysis(ledger).received, given, "{}", ledger::waterfall(ledger));
    assert_eq!(ledger.violations, 0, "{}", ledger::waterfall(ledger));
}

#[test]
fn the_same_datagrams_are_relayed_and_analyzed() {
    let dir = TempDir::new();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let weir = start(
        &dir,
        &format!(
            "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
             [[listener.target]]\nname = \"old\"\nto = \"{}\"\n\
             [[listener.target]]\nname = \"dead\"\nto = \"{dead}\"\n\
             [flows]\nfrom = [\"in\"]\nagents_max = 2\n",
            receiver.local_addr().unwrap()
        ),
    );
    assert!(weir.process.said().contains("  analyzing sFlow of in by 1 definition\n"));

    // Of the first agent one datagram comes twice, and five never.
    let mut sent = Vec::new();
    let first = datagrams(&mut agent(1), 60);
    sent.extend(first[..20].iter().chain(&first[19..20]).chain(&first[25..]).cloned());
    sent.extend(datagrams(&mut agent(2), 40));
    sent.extend(datagrams(&mut agent(3), 7));
    sent.extend([b"no sflow".to_vec(), Vec::new(), first[0][..20].to_vec()]);

    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut buffer = [0; 2_000];
    for payload in &sent {
        sender.send_to(payload, weir.address()).unwrap();
        let len = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], payload);
    }

    let total = sent.len() as u64;
    let ledger = weir.wait_for(|ledger| {
        let hop = analysis(ledger);
        hop.received.count == total && hop.gauge(Gauge::FlowAgents) == Some(2)
    });
    let hop = analysis(&ledger);
    assert_eq!(hop.delivered.count, 55 + 40);
    assert_eq!(hop.dropped_for(Reason::DuplicateDatagram).count, 1);
    assert_eq!(hop.dropped_for(Reason::AgentLimit).count, 7);
    assert_eq!(hop.dropped_for(Reason::NotSflow).count, 3);
    assert_eq!(hop.gauge(Gauge::MissingDatagrams), Some(5));
    assert_eq!(hop.gauge(Gauge::NetworkMissing), Some(5), "nothing was dropped here");
    assert_eq!(hop.event(Event::CollectorDropped), 0);
    let metrics = weir.page("/metrics", "text/plain");
    assert!(metrics.contains("weir_flows_network_missing_datagrams 5\n"), "{metrics}");

    let ended = weir.stop();
    assert_equal_accounts(&ended.ledger);
    assert_eq!(ended.account("old").delivered, total);
    assert!(ended.account("dead").lost_for(Reason::Refused) > 0);
    assert!(ended.said.contains("network            5  missing"), "{}", ended.said);
}

#[test]
fn a_listener_whose_datagrams_are_analyzed_needs_no_target_and_hostile_ones_are_counted() {
    let dir = TempDir::new();
    let text = "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n[flows]\nfrom = [\"in\"]\n";
    let weir = start(&dir, text);

    let good = datagrams(&mut agent(1), 1).remove(0);
    let mut state = 7_u64;
    let mut random = || {
        // Knuth's constants for 64 bits; the upper half is random enough.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    const COUNT: u64 = 2_000;
    for number in 0..COUNT {
        let mut bytes = good.clone();
        for _ in 0..=number % 4 {
            let at = random() % bytes.len();
            bytes[at] = random() as u8;
        }
        bytes.truncate(random() % (bytes.len() + 1));
        sender.send_to(&bytes, weir.address()).unwrap();
    }

    weir.wait_for(|ledger| hop(ledger, HopKind::Socket, "").received.count == COUNT);
    let ended = weir.stop();
    assert_equal_accounts(&ended.ledger);
    let hop = analysis(&ended.ledger);
    assert!(hop.dropped_for(Reason::NotSflow).count > 0 && !hop.delivered.is_zero(), "{hop:?}");
    assert_eq!(
        ended.hop(HopKind::Target, Some("flows")).dropped_for(Reason::SinkPanicked).count,
        0
    );
}

/// A file with these listeners, of which some are analyzed, and a definition of these keys.
fn file(listeners: &[(&str, SocketAddr)], analyzed: &[&str], keys: &str) -> String {
    let mut text = String::new();
    for (name, listen) in listeners {
        text += &format!(
            "[[listener]]\nname = \"{name}\"\nlisten = \"{listen}\"\n[[listener.target]]\nto = \"null:\"\n"
        );
    }
    if !analyzed.is_empty() {
        text += &format!("[flows]\nfrom = {analyzed:?}\n[[flow]]\nname = \"a\"\nkeys = {keys}\n");
    }
    text
}

#[test]
fn where_addresses_are_is_read_again_at_a_reload() {
    let (dir, path) = (TempDir::new(), "places.mmdb");
    let place = |code| mmdb("test", &[("10.1.0.0/16", &[("country_code", MmdbField::Text(code))])]);
    fs::write(dir.file(path), place("NL")).unwrap();
    let text = format!(
        "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
         [flows]\nfrom = [\"in\"]\nmmdb = [\"{}\"]\n[[flow]]\nname = \"to\"\nkeys = [\"country(dst)\"]\n",
        dir.text(path)
    );
    let weir = start(&dir, &text);
    let (mut agent, sender) = (agent(1), UdpSocket::bind("127.0.0.1:0").unwrap());
    let mut wait_for_country = |code: &str| {
        let shown = format!("\"country(dst)\":\"{code}\"");
        wait_for("a flow to the country", || {
            sender.send_to(&datagrams(&mut agent, 1)[0], weir.address()).unwrap();
            weir.page("/flows/top?flow=to", "application/json").contains(&shown).then_some(())
        });
    };
    wait_for_country("NL");

    fs::write(dir.file(path), place("PT")).unwrap();
    signal(weir.process(), "HUP");
    wait_for_country("PT");

    // One that is broken changes nothing, and that is said.
    fs::write(dir.file(path), "no such file").unwrap();
    signal(weir.process(), "HUP");
    weir.wait_for_line("addresses stay where they were");
    wait_for_country("PT");
    assert_eq!(weir.stop().code, Some(0));
}

#[test]
fn reloads_under_load_lose_nothing() {
    let dir = TempDir::new();
    let free = || SocketAddr::from(([127, 0, 0, 1], testkit::free_port()));
    let (a, b) = (free(), free());
    let weir = start(&dir, &file(&[("a", a), ("b", b)], &["a"], "[\"src\"]"));
    let is_over = AtomicBool::new(false);

    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut one, sender) = (agent(1), UdpSocket::bind("127.0.0.1:0").unwrap());
            while !is_over.load(Ordering::Relaxed) {
                for bytes in datagrams(&mut one, 20) {
                    sender.send_to(&bytes, a).unwrap();
                }
                thread::park_timeout(Duration::from_millis(5));
            }
        });

        let files = [
            file(&[("a", a), ("b", b)], &["a", "b"], "[\"dst\"]"),
            file(&[("a", a)], &["a"], "[\"dst\"]"),
            file(&[("a", a), ("b", b)], &[], ""),
            file(&[("a", a), ("b", b)], &["b"], "[\"dst\"]"),
            file(&[("a", a), ("b", b)], &["a", "b"], "[\"group(dst)\"]"),
        ];
        let mut reloads = 0;
        for text in files.iter().cycle().take(10) {
            fs::write(dir.file("weir.toml"), text).unwrap();
            signal(weir.process(), "HUP");
            reloads += 1;
            let wanted = format!("weir_config_reloads_total {reloads}\n");
            wait_for(
                || wanted.clone(),
                || weir.page("/metrics", "text/plain").contains(&wanted).then_some(()),
            );
            let before = hop(&weir.ledger(), HopKind::Receive, "").received.count;
            weir.wait_for(|ledger| hop(ledger, HopKind::Receive, "").received.count > before);
        }
        is_over.store(true, Ordering::Relaxed);
    });

    let ended = weir.stop();
    assert_equal_accounts(&ended.ledger);
    for hop in ended.ledger.hops.iter().filter(|hop| hop.target.as_deref() == Some("flows")) {
        assert_eq!(hop.received, hop.delivered, "{hop:?}");
    }
    assert!(analysis(&ended.ledger).delivered.count > 0);
}

/// The rows of a file of JSON lines.
fn rows(path: &std::path::Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn flows_and_counters_are_rows_that_add_up_and_prove_themselves_complete() {
    let dir = TempDir::new();
    let path = dir.file("flows.jsonl");
    let weir = start(
        &dir,
        &format!(
            "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\n\
             [flows]\nfrom = [\"in\"]\nexport_every = \"1s\"\n\
             [[flow]]\nname = \"pairs\"\nkeys = [\"src\", \"dst/24\", \"dst_port\"]\n\
             [[sink]]\nname = \"rows\"\nfrom = [\"flows\"]\nto = \"file:{}\"\n",
            path.display()
        ),
    );
    // The analysis tells of its flows from its first tick on.
    weir.wait_for(|ledger| {
        let hop = ledger.hop(HopKind::Sink, "flows", Some("rows"));
        hop.is_some_and(|hop| hop.received.count > 0)
    });

    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sent = 0;
    for number in 1..=3 {
        for payload in datagrams(&mut agent(number), 40) {
            sender.send_to(&payload, weir.address()).unwrap();
            sent += 1;
        }
    }
    weir.wait_for(|ledger| analysis(ledger).received.count == sent);
    let ended = weir.stop();
    assert_equal_accounts(&ended.ledger);

    let rows = rows(&path);
    let sink = ended.ledger.hop(HopKind::Sink, "flows", Some("rows")).unwrap();
    assert_eq!((sink.delivered.count, sink.received.count), (rows.len() as u64, rows.len() as u64));
    let of = |kind: &str| rows.iter().filter(|row| row["record_kind"] == kind).collect::<Vec<_>>();
    let sum = |rows: &[&serde_json::Value], field: &str| -> u64 {
        rows.iter().filter_map(|row| row[field].as_u64()).sum()
    };

    // Every number from 0 on is there once, and the last totals say how many.
    let (flows, counters, totals) = (of("flow"), of("counters"), of("flow_totals"));
    let numbered = flows.iter().chain(&counters).map(|row| row["sequence"].as_u64().unwrap());
    let mut numbers: Vec<u64> = numbered.collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
    let last = totals.last().unwrap();
    assert_eq!(last["next_sequence"], numbers.len());
    assert_eq!((&last["datagrams"], &last["samples"]), (&sent.into(), &last["flow_samples"]));
    assert_eq!(sum(&flows, "samples"), last["samples"].as_u64().unwrap());

    let first = flows[0];
    assert_eq!(first["definition"], "pairs");
    assert_eq!((&first["dst_port"], &first["dst_prefix_bits"]), (&4_000.into(), &24.into()));
    assert_eq!(first["key"]["dst/24/48"], "10.1.0.0/24");
    assert!(first["bytes_low"].as_u64() <= first["bytes"].as_u64(), "{first}");
    assert!(first["bytes_high"].as_u64() >= first["bytes"].as_u64(), "{first}");
    assert!(first["begin_unix_ns"].as_u64() <= first["end_unix_ns"].as_u64(), "{first}");
    let agents: Vec<_> = counters.iter().filter(|row| row["subject"] == "agent").collect();
    assert_eq!(agents.last().unwrap()["datagrams_received"], 40);
}
