use super::*;
use ledger::{Amount, Gauge, HopBuilder, HopKind, Reason};

fn amount(count: u64) -> Amount {
    Amount { count, bytes: count * 10 }
}

fn snapshot(listener: &str, sent: u64, dropped: u64) -> Snapshot {
    let hop = HopBuilder::new(HopKind::Target, listener, Some("old"), amount(0))
        .gauge(Gauge::Up, 1)
        .delivered(amount(sent))
        .dropped(Reason::QueueFull, amount(dropped))
        .finish(amount(sent + dropped));
    Snapshot { hops: vec![hop], ..Snapshot::default() }
}

fn lines(packets: &[Packet]) -> Vec<String> {
    let text = |packet: &Packet| String::from_utf8(packet.bytes.clone()).unwrap();
    packets.iter().flat_map(|p| text(p).lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn counters(packets: &[Packet]) -> Vec<String> {
    lines(packets).into_iter().filter(|line| line.contains("|c")).collect()
}

#[test]
fn counters_are_differences_and_only_what_moved() {
    let mut encoder = Encoder::new("weir");
    let packets = encoder.encode(&snapshot("syslog", 5, 0));
    assert_eq!(
        counters(&packets),
        [
            "weir.relay.target_offered_datagrams.syslog.old:5|c",
            "weir.relay.target_sent_bytes.syslog.old:50|c",
            "weir.relay.target_sent_datagrams.syslog.old:5|c",
        ]
    );
    assert!(lines(&packets).contains(&"weir.relay.target_up.syslog.old:1|g".to_owned()));
    packets.iter().for_each(|packet| encoder.sent(packet));
    assert!(counters(&encoder.encode(&snapshot("syslog", 5, 0))).is_empty());
    let packets = encoder.encode(&snapshot("syslog", 5, 2));
    assert_eq!(
        counters(&packets),
        [
            "weir.ledger.lost.syslog:2|c",
            "weir.relay.target_dropped_datagrams.syslog.old.queue_full:2|c",
            "weir.relay.target_offered_datagrams.syslog.old:2|c",
            "weir.relay.target_unsent_datagrams.syslog.old:2|c",
        ]
    );
}

#[test]
fn what_a_store_refused_or_never_answered_goes_out() {
    let sink = ledger::SinkCounters::default();
    sink.reject(ledger::RejectClass::Schema, amount(2));
    sink.uncertain(amount(3));
    let hop = HopBuilder::new(HopKind::Sink, "sockets", Some("s"), amount(0));
    let hops = vec![hop.left_sink(&sink).finish(amount(5))];
    let snapshot = Snapshot { hops, ..Snapshot::default() };
    assert_eq!(
        counters(&Encoder::new("weir").encode(&snapshot)),
        [
            "weir.ledger.lost.sockets:5|c",
            "weir.sink.offered_records.sockets.s:5|c",
            "weir.sink.rejected_records.sockets.s.schema:2|c",
            "weir.sink.uncertain_records.sockets.s:3|c",
        ]
    );
}

#[test]
fn what_was_not_sent_is_in_the_next_push() {
    let mut encoder = Encoder::new("weir");
    encoder.encode(&snapshot("l", 5, 0));
    let packets = encoder.encode(&snapshot("l", 7, 0));
    assert!(counters(&packets).contains(&"weir.relay.target_sent_datagrams.l.old:7|c".into()));
    packets.iter().for_each(|packet| encoder.sent(packet));
    packets.iter().for_each(|packet| encoder.take_back(packet));
    assert_eq!(encoder.encode(&snapshot("l", 7, 0)), packets);
}

#[test]
fn names_cannot_break_the_protocol() {
    let encoder = Encoder::new("my site.weir.");
    let hostile = "a.b:1|c\n#@é";
    let expected = "my_site.weir.relay.target_sent_datagrams.a_b_1_c____.old:5|c";
    assert!(counters(&encoder.encode(&snapshot(hostile, 5, 0))).contains(&expected.into()));
}

#[test]
fn names_that_become_equal_are_added_up() {
    let encoder = Encoder::new("weir");
    let mut both = snapshot("a.b", 5, 0);
    both.hops.extend(snapshot("a_b", 6, 0).hops);
    let expected = "weir.relay.target_sent_datagrams.a_b.old:11|c";
    assert!(counters(&encoder.encode(&both)).contains(&expected.into()));
}

#[test]
fn a_negative_gauge_is_not_taken_as_a_difference() {
    let broken = HopBuilder::new(HopKind::Receive, "l", None, amount(0))
        .delivered(amount(3))
        .finish(amount(1));
    let snapshot = Snapshot { hops: vec![broken], ..Snapshot::default() };
    let lines = lines(&Encoder::new("weir").encode(&snapshot));
    let at = lines.iter().position(|line| line == "weir.ledger.residual.receive.l:0|g").unwrap();
    assert_eq!(lines[at + 1], "weir.ledger.residual.receive.l:-2|g");
}

#[test]
fn datagrams_fit_into_a_frame_and_hold_every_line_once() {
    let long = "x".repeat(500);
    let mut many = Snapshot::default();
    for at in 0..100 {
        many.hops.extend(snapshot(&format!("{at}{long}"), 5, 1).hops);
    }
    let packets = Encoder::new(&long).encode(&many);
    assert!(packets.iter().all(|packet| packet.bytes.len() <= DATAGRAM_BYTES_MAX));
    assert_eq!(counters(&packets).len(), 100 * 6);
}

fn to(address: SocketAddr, prefix: &str, interval: Duration) -> Options {
    let resolve = |text: &str| Ok(vec![text.parse().unwrap()]);
    let resolve_interval = Duration::from_secs(30);
    Options { resolve, to: address.to_string(), resolve_interval, prefix: prefix.into(), interval }
}

/// The old server goes on taking what comes: nothing but the name says that another one is meant.
#[test]
fn a_name_that_moves_is_followed_although_no_error_comes() {
    static MOVED: std::sync::Mutex<Vec<SocketAddr>> = std::sync::Mutex::new(Vec::new());
    let servers = [0, 1].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let addresses = servers.each_ref().map(|server| server.local_addr().unwrap());
    servers.iter().for_each(|server| server.set_nonblocking(true).unwrap());
    let mut options = to(addresses[0], "weir", Duration::from_secs(1));
    options.resolve = |_| Ok(MOVED.lock().unwrap().clone());
    options.resolve_interval = Duration::ZERO;
    let mut pusher = Pusher::new(options, Arc::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (at, server) in servers.iter().enumerate() {
        *MOVED.lock().unwrap() = vec![addresses[at]];
        runtime.block_on(pusher.push(&snapshot("l", 5 + at as u64, 0)));
        let mut buf = [0; 2048];
        assert!(server.recv(&mut buf).is_ok(), "server {at}");
        assert!(servers[1 - at].recv(&mut buf).is_err(), "not to the other");
    }
    // The resolver fails: the last good address stays.
    *MOVED.lock().unwrap() = Vec::new();
    pusher.options.resolve = |_| Err(io::ErrorKind::NotFound.into());
    runtime.block_on(pusher.push(&snapshot("l", 9, 0)));
    assert!(servers[1].recv(&mut [0; 2048]).is_ok());
}

#[test]
fn counts_survive_a_server_that_is_down() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    drop(server);
    let counts = Arc::new(Counts::default());
    let options = to(address, "weir", Duration::from_secs(1));
    let mut pusher = Pusher::new(options, Arc::clone(&counts));
    runtime.block_on(async {
        for sent in 1..=4 {
            pusher.push(&snapshot("l", sent, 0)).await;
        }
    });
    assert!(counts.failures.load(Ordering::Relaxed) > 0);
    let server = std::net::UdpSocket::bind(address).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    runtime.block_on(pusher.push(&snapshot("l", 5, 0)));
    let mut buf = [0; 2048];
    let len = server.recv(&mut buf).unwrap();
    let text = std::str::from_utf8(&buf[..len]).unwrap();
    assert!(text.contains("weir.relay.target_sent_datagrams.l.old:5|c"), "{text}");
}

struct Idle;

impl ledger::Meter for Idle {
    fn read(&self, hops: &mut Vec<ledger::HopSnapshot>) {
        hops.extend(snapshot("l", 5, 0).hops);
    }
}

#[test]
fn the_last_push_is_at_the_shutdown() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let options = to(server.local_addr().unwrap(), "site", Duration::from_secs(3600));
    let ledger = Arc::new(ledger::Ledger::new("1".into()));
    let health = Arc::new(crate::Health::new(Duration::from_secs(5)));
    let state = Arc::new(AdminState::new(ledger, health, [127, 0, 0, 1].into()));
    state.ledger.register(Arc::new(Idle));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(push(options, Arc::clone(&state), async {}));
    let mut buf = [0; 2048];
    let len = server.recv(&mut buf).unwrap();
    let text = std::str::from_utf8(&buf[..len]).unwrap();
    assert!(text.contains("site.relay.target_sent_datagrams.l.old:5|c"), "{text}");
    assert!(!text.contains("http"), "only the relay's own figures: {text}");
    assert_eq!(state.statsd.pushes.load(Ordering::Relaxed), 1);
}
