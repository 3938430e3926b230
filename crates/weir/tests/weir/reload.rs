//! SIGHUP: what did not change loses nothing, what changed goes on, and a bad file changes nothing.

use crate::support::{Weir, hop};
use ledger::HopKind;
use load::Address;
use load::generate::{self, Limit, Rate};
use load::verify::{Done, Options, Until, Verifier};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testkit::{TempDir, free_port, receive, receiver, sender, signal, wait_for};

/// A daemon whose file is written again and again.
struct Reloaded {
    weir: Weir,
    folder: TempDir,
    reloads: u64,
    failures: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expect {
    Applied,
    Refused,
}

impl Reloaded {
    fn start(text: &str) -> Reloaded {
        let folder = TempDir::new();
        std::fs::write(folder.file("weir.toml"), text).unwrap();
        let weir = Weir::run(&folder.file("weir.toml"));
        Reloaded { weir, folder, reloads: 0, failures: 0 }
    }

    /// Writes the file, and has it read.
    fn reload(&mut self, text: &str, expect: Expect) {
        std::fs::write(self.folder.file("weir.toml"), text).unwrap();
        self.reload_as_it_is(expect);
    }

    /// Sends the signal, and waits until the daemon has dealt with it.
    fn reload_as_it_is(&mut self, expect: Expect) {
        signal(self.weir.process(), "HUP");
        self.reloads += 1;
        self.failures += u64::from(expect == Expect::Refused);
        let wanted = [
            format!("weir_config_reloads_total {}\n", self.reloads),
            format!("weir_config_reload_failures_total {}\n", self.failures),
        ];
        wait_for(
            || format!("reload {} {expect:?}", self.reloads),
            || {
                let page = self.weir.page("/metrics", "text/plain");
                wanted.iter().all(|line| page.contains(line)).then_some(())
            },
        );
    }
}

fn listener(text: &mut String, name: &str, listen: &str, settings: &str) {
    write!(text, "[[listener]]\nname = \"{name}\"\nlisten = \"{listen}\"\n{settings}\n").unwrap();
}

fn target(text: &mut String, name: &str, to: &str, settings: &str) {
    write!(text, "[[listener.target]]\nname = \"{name}\"\nto = \"{to}\"\n{settings}\n").unwrap();
}

/// 20,000 datagrams a second to each of these until told to stop.
fn load(targets: Vec<SocketAddr>, stop: &AtomicBool) -> generate::Report {
    let options = generate::Options {
        rate: Rate::DatagramsPerSec(20_000 * targets.len() as u64),
        limit: Limit::default(),
        heartbeat: Some(Duration::from_millis(10)),
        ..generate::Options::to(targets.into_iter().map(Address::Udp).collect())
    };
    generate::run(&options, stop, &generate::Progress::default()).unwrap()
}

fn verifier(count: usize) -> (Verifier, Vec<String>) {
    let until = Until { done: Some(Done::default()), ..Until::default() };
    let any = Address::Udp("127.0.0.1:0".parse().unwrap());
    let verifier = Verifier::bind(Options { until, ..Options::on(vec![any; count]) }).unwrap();
    let addresses = verifier.addresses().into_iter().map(|address| match address {
        Address::Udp(addr) => addr.to_string(),
        Address::Unix(_) => panic!("a UDP address was bound"),
    });
    let addresses = addresses.collect();
    (verifier, addresses)
}

#[test]
fn two_hundred_reloads_half_of_them_invalid_lose_nothing() {
    let (verifier, addresses) = verifier(3);
    let [steady, changed, renewed] = &addresses[..] else { panic!() };
    let folder = TempDir::new();
    let ports = [free_port(), free_port(), free_port()];
    let listens = ports.map(|port| format!("127.0.0.1:{port}"));
    // Room for what a busy machine keeps waiting.
    let buffers = |ring: &str| format!("ring_size = \"{ring}\"\nreceive_buffer = \"64MiB\"");
    // The first listener and its first target stay; everything else changes in one way or another.
    let file = |turn: usize| {
        let mut text = String::new();
        listener(&mut text, "one", &listens[0], &buffers("32MiB"));
        target(&mut text, "steady", steady, "");
        if turn.is_multiple_of(2) {
            target(&mut text, "guest", "null:", "");
        }
        listener(&mut text, "two", &listens[1], &buffers("32MiB"));
        target(
            &mut text,
            "changed",
            changed,
            &format!("rate_limit = {}", 4_000_000_000_u32 + turn as u32 % 2),
        );
        let ring = if turn.is_multiple_of(2) { "32MiB" } else { "16MiB" };
        listener(&mut text, "three", &listens[2], &buffers(ring));
        target(&mut text, "renewed", renewed, "");
        if turn % 3 == 1 {
            let listen = format!("unix:{}", folder.text("four.sock"));
            listener(&mut text, "four", &listen, "");
            target(&mut text, "nowhere", "null:", "");
        }
        text
    };
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let invalid = |turn: usize| match turn % 4 {
        0 => file(turn) + "[[listener]\n",
        1 => file(turn).replace("ring_size", "rnig_size"),
        // Valid to read; what it wants cannot be had.
        2 => {
            let mut text = file(turn);
            listener(&mut text, "taken", &taken.local_addr().unwrap().to_string(), "");
            target(&mut text, "nowhere", "null:", "");
            text
        }
        _ => file(turn).replace(steady.as_str(), "file:/no/such/folder/x.log"),
    };
    let mut daemon = Reloaded::start(&file(0));
    let to = listens.iter().map(|listen| listen.parse().unwrap()).collect();
    let (stop_load, stop_verifier) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sent, got, ended) = thread::scope(|scope| {
        let got = scope.spawn(|| verifier.run(&stop_verifier));
        let load = scope.spawn(|| load(to, &stop_load));
        for turn in 1..=100 {
            daemon.reload(&invalid(turn), Expect::Refused);
            daemon.reload(&file(turn), Expect::Applied);
        }
        stop_load.store(true, Ordering::Relaxed);
        let sent = load.join().unwrap();
        daemon.weir.wait_for_rest(sent.sent_datagrams + sent.heartbeats);
        let ended = daemon.weir.stop();
        (sent, got.join().unwrap(), ended)
    });
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(!folder.file("four.sock").exists());
    let waterfall = ledger::waterfall(&ended.ledger);
    assert!(ended.ledger.unintended_losses().is_empty(), "{waterfall}");
    assert_eq!((got.missing, got.total.duplicate, got.total.corrupt), (0, 0, 0), "{got:#?}");
    for (received, sent) in got.listeners.iter().zip(&sent.targets) {
        assert_eq!(received.counts.received, sent.sent_datagrams);
    }
    // What did not change kept its order too.
    assert_eq!(got.listeners[0].counts.reordered, 0);
    let refused = ended.said.lines().filter(|line| line.contains("reload refused")).count();
    assert_eq!(refused, 100);
}

#[test]
fn sockets_come_and_go_under_load_with_every_datagram_in_order() {
    let (verifier, addresses) = verifier(1);
    let listen = format!("127.0.0.1:{}", free_port());
    let file = |sockets: usize| {
        let mut text = String::new();
        // Room and time for what a busy machine keeps waiting.
        let wait = if sockets > 1 { "order_wait = \"10s\"" } else { "" };
        let settings = format!(
            "ring_size = \"32MiB\"\nreceive_buffer = \"64MiB\"\nsockets = {sockets}\n{wait}"
        );
        listener(&mut text, "one", &listen, &settings);
        target(&mut text, "out", &addresses[0], "");
        text
    };

    let mut daemon = Reloaded::start(&file(1));
    let mut members = Vec::new();
    let to = vec![listen.parse().unwrap()];
    let (stop_load, stop_verifier) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sent, got, ended) = thread::scope(|scope| {
        let got = scope.spawn(|| verifier.run(&stop_verifier));
        let load = scope.spawn(|| load(to, &stop_load));
        for (turn, count) in (1..).zip([4, 2, 1, 3]) {
            daemon.reload(&file(count), Expect::Applied);
            daemon.weir.wait_for(|ledger| {
                ledger.received_at(HopKind::Socket).count >= testkit::datagrams(0) / 4 * turn
            });
            let page = daemon.weir.page("/metrics", "text/plain");
            let of_members = |line: &&str| line.starts_with("weir_relay_member_received");
            members.push(page.lines().filter(of_members).count());
        }
        stop_load.store(true, Ordering::Relaxed);
        let sent = load.join().unwrap();
        daemon.weir.wait_for_rest(sent.sent_datagrams + sent.heartbeats);
        let ended = daemon.weir.stop();
        (sent, got.join().unwrap(), ended)
    });

    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let waterfall = ledger::waterfall(&ended.ledger);
    assert!(ended.ledger.losses().is_empty(), "{waterfall}");
    assert!(waterfall.contains("socket 1"), "{waterfall}");
    assert_eq!(members, [4, 2, 0, 3]);
    let receive = hop(&ended.ledger, HopKind::Receive, "");
    let overtaken = receive.event(ledger::Event::Overtaken);
    let (received, reordered) = (got.total.received, got.total.reordered);
    testkit::say(&format!(
        "{received} over 1, 4, 2, 1, 3 sockets by SIGHUP: {reordered} reordered"
    ));
    assert_eq!((got.total.reordered, overtaken), (0, 0), "{:#?}", got.total);
    assert_eq!(got.total.received, sent.sent_datagrams);
    assert_eq!((got.missing, got.total.duplicate, got.total.corrupt), (0, 0, 0), "{got:#?}");
}

#[test]
fn a_refused_reload_says_every_reason_and_changes_nothing() {
    let (socket, addr) = receiver();
    let listen = format!("127.0.0.1:{}", free_port());
    let mut text = String::new();
    listener(&mut text, "in", &listen, "");
    target(&mut text, "out", &addr, "");
    let mut daemon = Reloaded::start(&text);
    let wrong =
        text.replace("[[listener.target]]", "rnig_size = \"1MiB\"\n[[listener.target]]\nttl = 0\n");
    daemon.reload(&wrong, Expect::Refused);
    let looped = text.replace(&addr, &listen);
    daemon.reload(&looped, Expect::Refused);
    std::fs::remove_file(daemon.folder.file("weir.toml")).unwrap();
    daemon.reload_as_it_is(Expect::Refused);
    sender(daemon.weir.address()).send(b"still here").unwrap();
    assert_eq!(receive(&socket), b"still here");
    daemon.reload(&text, Expect::Applied);
    let ended = daemon.weir.stop();
    for part in ["did you mean ring_size?", "ttl", "come back for ever", "cannot read"] {
        assert!(ended.said.contains(part), "no {part:?} in {}", ended.said);
    }
}

#[test]
fn targets_move_between_kinds_and_listeners_come_and_go() {
    let (first, first_addr) = receiver();
    let (second, second_addr) = receiver();
    let folder = TempDir::new();
    let copy = format!("file:{}", folder.text("copy.log"));
    let listens = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let one = |listen: &str, to: &str| {
        let mut text = String::new();
        listener(&mut text, "in", listen, "");
        target(&mut text, "out", to, "");
        text
    };
    let mut daemon = Reloaded::start(&one(&listens[0], &first_addr));
    let before = sender(listens[0].parse().unwrap());
    before.send(b"1").unwrap();
    assert_eq!(receive(&first), b"1");
    daemon.reload(&one(&listens[0], &copy), Expect::Applied);
    before.send(b"2").unwrap();
    daemon.weir.wait_for_rest(2);
    daemon.reload(&one(&listens[0], &second_addr), Expect::Applied);
    before.send(b"3").unwrap();
    assert_eq!(receive(&second), b"3");
    // The listener moves to another port: the new socket is open before the old one closes.
    daemon.reload(&one(&listens[1], &second_addr), Expect::Applied);
    sender(listens[1].parse().unwrap()).send(b"4").unwrap();
    assert_eq!(receive(&second), b"4");
    wait_for(
        || "the old port is still open".to_owned(),
        || std::net::UdpSocket::bind(listens[0].as_str()).ok().map(drop),
    );
    assert_eq!(std::fs::read(folder.file("copy.log")).unwrap(), b"2\n");
    let ended = daemon.weir.stop();
    assert_eq!(ended.code, Some(0), "what a reload closed is no part of this stop: {}", ended.said);
    let out = hop(&ended.ledger, HopKind::Egress, "out");
    // What arrives while the file takes the socket's place may go to both.
    first.set_nonblocking(true).unwrap();
    let doubled = std::iter::from_fn(|| first.recv(&mut [0; 8]).ok()).count() as u64;
    assert!(doubled <= 1, "{doubled}: {}", ended.said);
    let all = "all lives of a target together";
    assert_eq!(out.delivered.count, 4 + doubled, "{all}: {}", ended.said);
}

#[test]
fn the_admin_server_moves_and_keeps_its_counts() {
    let mut text = String::new();
    listener(&mut text, "in", "127.0.0.1:0", "");
    target(&mut text, "out", "null:", "");
    let (socket, addr) = receiver();
    let statsd = format!("[metrics.statsd]\nto = \"{addr}\"\ninterval = \"100ms\"\n{text}");
    let mut daemon = Reloaded::start(&text);
    // The same address: the server starts anew on its socket, with a push beside it.
    daemon.reload(&statsd, Expect::Applied);
    assert!(receive(&socket).starts_with(b"weir."));
    daemon.reload(&text, Expect::Applied);
    assert_eq!(daemon.weir.stop().code, Some(0));
}

#[test]
fn a_ring_that_no_memory_holds_refuses_the_reload_and_nothing_else() {
    let (socket, addr) = receiver();
    let listen = format!("127.0.0.1:{}", free_port());
    let file = |ring: &str, more: usize| {
        let mut text = String::new();
        listener(&mut text, "in", &listen, &format!("ring_size = \"{ring}\""));
        target(&mut text, "out", &addr, "");
        for at in 0..more {
            listener(
                &mut text,
                &format!("in{at}"),
                "127.0.0.1:0",
                &format!("ring_size = \"{ring}\""),
            );
            target(&mut text, "nowhere", "null:", "");
        }
        text
    };
    let mut daemon = Reloaded::start(&file("8MiB", 0));
    // So many that no machine has the memory for all.
    daemon.reload(&file("64GiB", 64), Expect::Refused);
    daemon.weir.wait_for_line("the largest is ring_size = \"64 GiB\" of listener in");
    sender(daemon.weir.address()).send(b"still here").unwrap();
    assert_eq!(receive(&socket), b"still here");
    daemon.reload(&file("16MiB", 1), Expect::Applied);
    assert_eq!(daemon.weir.stop().code, Some(0));
}

/// A listener with a unix target that takes nothing, in a daemon that would drain for an hour.
struct Draining {
    folder: TempDir,
    _stuck: std::os::unix::net::UnixDatagram,
    daemon: Reloaded,
    addr: String,
}

impl Draining {
    /// `file(stuck, addr)` is the daemon's file: it begins with a listener and the stuck target.
    fn start(file: impl Fn(&str, &str) -> String, addr: String) -> Draining {
        let folder = TempDir::new();
        let stuck = std::os::unix::net::UnixDatagram::bind(folder.file("stuck.sock")).unwrap();
        let to = format!("unix:{}", folder.text("stuck.sock"));
        let daemon = Reloaded::start(&file(&to, &addr));
        let load = sender(daemon.weir.address());
        daemon.weir.wait_for(|ledger| {
            (0..100).for_each(|_| drop(load.send(b"more than it takes")));
            !hop(ledger, HopKind::Target, "stuck").in_flight.is_zero()
        });
        Draining { folder, _stuck: stuck, daemon, addr }
    }

    fn to(&self) -> String {
        format!("unix:{}", self.folder.text("stuck.sock"))
    }

    /// Ends the drain by a second signal.
    fn stop(self) -> crate::support::Ended {
        signal(self.daemon.weir.process(), "TERM");
        self.daemon.weir.hurry("TERM")
    }
}

#[test]
fn an_address_comes_back_while_its_former_listener_drains() {
    let (socket, addr) = receiver();
    let listens = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let file = |stuck: &str, addr: &str, listen: &str| {
        let mut text = "[daemon]\ndrain_grace = \"1h\"\n".to_owned();
        listener(&mut text, "in", listen, "");
        target(&mut text, "stuck", stuck, "");
        target(&mut text, "out", addr, "");
        text
    };
    let first = |stuck: &str, addr: &str| file(stuck, addr, &listens[0]);
    let mut rig = Draining::start(first, addr);
    let (to, addr) = (rig.to(), rig.addr.clone());
    rig.daemon.reload(&file(&to, &addr, &listens[1]), Expect::Applied);
    rig.daemon.reload(&file(&to, &addr, &listens[0]), Expect::Applied);
    // The new one has the port to itself: another program is refused, and each datagram arrives once.
    assert!(std::net::UdpSocket::bind(listens[0].as_str()).is_err());
    sender(listens[0].parse().unwrap()).send(b"back").unwrap();
    while receive(&socket) != b"back" {}
    let ended = rig.stop();
    assert_eq!(ended.code, Some(75), "{}", ended.said);
}

#[test]
fn listeners_that_reloads_replaced_and_that_do_not_drain_are_few() {
    let listen = format!("127.0.0.1:{}", free_port());
    let file = |stuck: &str, turn: u32| {
        let mut text = "[daemon]\ndrain_grace = \"1h\"\n".to_owned();
        listener(&mut text, &format!("in{turn}"), &listen, "ring_size = \"1MiB\"");
        target(&mut text, "stuck", stuck, "");
        text
    };
    let mut rig = Draining::start(|stuck: &str, _: &str| file(stuck, 0), String::new());
    let to = rig.to();
    let load = sender(rig.daemon.weir.address());
    for turn in 1..=8 {
        // Another name is another listener on the same socket.
        rig.daemon.reload(&file(&to, turn), Expect::Applied);
        let name = format!("in{turn}");
        rig.daemon.weir.wait_for(|ledger| {
            load.send(b"one more").unwrap();
            let waits = ledger.hop(HopKind::Target, &name, Some("stuck"));
            waits.is_some_and(|hop| !hop.in_flight.is_zero())
        });
    }
    rig.daemon.reload(&file(&to, 9), Expect::Refused);
    rig.daemon.weir.wait_for_line("8 listeners that former reloads replaced still drain");
    let more = file(&to, 8) + "rate_limit = 100000\n";
    rig.daemon.reload(&more, Expect::Applied);
    assert_eq!(rig.stop().code, Some(75));
}

#[test]
fn hundreds_of_changed_targets_of_an_idle_listener_take_about_as_long_as_one() {
    const COUNT: u32 = 400;
    let file = |first: u32, rest: u32| {
        let mut text = String::new();
        listener(&mut text, "in", "127.0.0.1:0", "schedule = \"inline\"");
        for at in 0..COUNT {
            let limit = if at == 0 { first } else { rest };
            target(&mut text, &format!("t{at}"), "null:", &format!("rate_limit = {limit}"));
        }
        text
    };
    let mut daemon = Reloaded::start(&file(1, 1_000));
    let mut timed = |text: &str| {
        let begin = std::time::Instant::now();
        daemon.reload(text, Expect::Applied);
        begin.elapsed()
    };
    let one = (2..=4).map(|first| timed(&file(first, 1_000))).max().unwrap();
    let all = timed(&file(5, 2_000));
    // One after the other they take 1.4 s and more: some answers come when an idle loop turns, a tenth of a second later.
    assert!(all < 4 * one + Duration::from_millis(400), "{COUNT} took {all:?}, one {one:?}");
    let said = daemon.weir.wait_for_line("target t1: ");
    assert!(
        said.contains("target t0: rate_limit 4 -> 5; target t1: rate_limit 1000 -> 2000"),
        "{said}"
    );
    assert!(said.contains("and 388 more"), "{said}");
    assert_eq!(daemon.weir.stop().code, Some(0));
}

#[test]
fn a_reload_says_what_it_changed() {
    let file = |settings: &str| {
        let mut text = String::new();
        listener(&mut text, "in", "127.0.0.1:0", settings);
        target(&mut text, "out", "null:", "");
        text
    };
    let mut daemon = Reloaded::start(&file(""));
    daemon.reload(&file("receive_buffer = \"1MiB\""), Expect::Applied);
    daemon.weir.wait_for_line("reloaded: listener in: receive_buffer \"16MiB\" -> \"1MiB\"");
    daemon.reload_as_it_is(Expect::Applied);
    daemon.weir.wait_for_line("reloaded: nothing has changed");
    assert_eq!(daemon.weir.stop().code, Some(0));
}
