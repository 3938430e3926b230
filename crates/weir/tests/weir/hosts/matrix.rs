//! Every kind of way out through every kind of change, while datagrams flow.
//!
//! | way | address | route | interface anew | link down | name | socket file |
//! |---|---|---|---|---|---|---|
//! | UDP v4 | x | x | x | x | x | - |
//! | UDP v6 | x | x | x | x | - (as v4) | - |
//! | multicast | x | x | x | x | - (no name) | - |
//! | unix | - (other targets lose nothing) | - | - | - | - | x |
//! | `weir://` | x | x | x | x | - (as v4) | - |
//! | UDP sink | x | x | x | x | - (as v4) | - |
//! | TCP sink | x | x | x | x | - (at a connection) | - |
//! | StatsD | x | x | x | x | - (unit test) | - |
//!
//! At another rate, and with a link that is down for longer:
//! `WEIR_MATRIX_RATE=50000 WEIR_MATRIX_DOWN_SECONDS=10 cargo test -p weir --test weir hosts::matrix`

use super::Rig;
use crate::link::key;
use crate::support::{Weir, hop};
use ledger::HopKind;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::{Netns, TempDir, say, sender, wait_for};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 9, 9, 9);

/// A number from the environment.
pub(super) fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Datagrams a second.
fn rate() -> u64 {
    setting("WEIR_MATRIX_RATE", 5_000)
}

/// What has arrived by one way.
#[derive(Default)]
pub(super) struct Way {
    arrived: AtomicU64,
    last: AtomicU64,
    reordered: AtomicU64,
}

impl Way {
    /// A datagram of ours is its number in digits; of others, only that it came is known.
    fn note(&self, bytes: &[u8]) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok());
        let Some(number) = number else { return };
        if self.last.swap(number, Ordering::Relaxed) >= number {
            self.reordered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Threads that receive until the end.
#[derive(Default)]
pub(super) struct Judges {
    /// Number of the newest datagram.
    sent: Arc<AtomicU64>,
    pub(super) ways: Vec<(&'static str, Arc<Way>)>,
    stop: Arc<AtomicBool>,
}

impl Judges {
    pub(super) fn watch_unix(&self, socket: &UnixDatagram, way: Arc<Way>) {
        let socket = socket.try_clone().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        self.watch(way, move |buffer| socket.recv(buffer));
    }

    pub(super) fn way(&mut self, name: &'static str) -> Arc<Way> {
        let way = Arc::<Way>::default();
        self.ways.push((name, Arc::clone(&way)));
        way
    }

    /// Notes what `receive` returns; it waits for a moment at most.
    fn watch(
        &self,
        way: Arc<Way>,
        receive: impl Fn(&mut [u8]) -> std::io::Result<usize> + Send + 'static,
    ) {
        let stop = Arc::clone(&self.stop);
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !stop.load(Ordering::Relaxed) {
                match receive(&mut buffer) {
                    // It was shut down.
                    Ok(0) => return,
                    Ok(len) => way.note(&buffer[..len]),
                    Err(_) => {}
                }
            }
        });
    }

    fn udp(&mut self, name: &'static str, socket: UdpSocket) -> SocketAddr {
        let at = socket.local_addr().unwrap();
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let way = self.way(name);
        self.watch(way, move |buffer| socket.recv(buffer));
        at
    }

    /// Lines of every connection.
    fn tcp(&mut self, name: &'static str, listener: TcpListener) -> SocketAddr {
        let (at, way) = (listener.local_addr().unwrap(), self.way(name));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let way = Arc::clone(&way);
                thread::spawn(move || {
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        // A connection that was given up has its rest again in the next.
                        drop(line);
                        way.note(b"");
                    }
                });
            }
        });
        at
    }

    /// Waits until every way brings what was sent from now on, and returns how long the slowest took.
    pub(super) fn expect_more(&self, what: &str) -> Duration {
        let (begin, sent) = (Instant::now(), self.sent.load(Ordering::Relaxed));
        let arrived = |way: &Way| way.arrived.load(Ordering::Relaxed);
        let mut waiting: Vec<_> =
            self.ways.iter().map(|(name, way)| (*name, way, arrived(way))).collect();
        let mut slowest = ("", Duration::ZERO);
        while !waiting.is_empty() {
            let names: Vec<_> = waiting.iter().map(|(name, ..)| *name).collect();
            let is_late = |(_, way, before): &(_, &Arc<Way>, u64)| {
                let last = way.last.load(Ordering::Relaxed);
                arrived(way) <= *before || (last != 0 && last <= sent)
            };
            let done = wait_for(
                || format!("more by {names:?} after: {what}"),
                || waiting.iter().position(|way| !is_late(way)),
            );
            slowest = (waiting.swap_remove(done).0, begin.elapsed());
        }
        say(&format!("{what}: {} after {:?}", slowest.0, slowest.1));
        slowest.1
    }
}

impl Rig {
    /// What the receiver's host needs so that groups reach it by both wires.
    pub(super) fn join(&self, group: &UdpSocket) {
        for n in [1, 2] {
            let own = Ipv4Addr::new(10, 9, n, 9);
            // It is a member already, or has no such address at the moment.
            let _ = group.join_multicast_v4(&GROUP, &own);
        }
    }

    pub(super) fn route_all(&self, n: u32) {
        self.route(n);
        self.relay.ip(&format!("route replace 239.0.0.0/8 dev v{n}"));
    }

    pub(super) fn make_wire(&self, n: u32) {
        Netns::connect(&self.relay, &format!("v{n}"), &self.far, &format!("w{n}"));
        self.far.ip(&format!("address add 10.9.{n}.9/24 dev w{n}"));
        self.far.ip(&format!("address add fd09:{n}::9/64 dev w{n} nodad"));
        self.add(n, 1);
    }
}

fn config(folder: &TempDir, ways: &[(&str, String)]) -> String {
    let targets: String = ways
        .iter()
        .map(|(name, to)| {
            let key = folder.file("matrix.key");
            let more = match *name {
                "link" => format!(
                    "key = \"{}\"\nbandwidth = \"1Gbit/s\"\ndeadline = \"1m\"\n",
                    key.display()
                ),
                "named" => "resolve_interval = \"1s\"\n".to_owned(),
                _ => String::new(),
            };
            format!("[[listener.target]]\nname = \"{name}\"\nto = \"{to}\"\n{more}")
        })
        .collect();
    format!(
        "[[listener]]\nname = \"in\"\nlisten = \"127.0.0.1:0\"\nring_size = \"64MiB\"\n{targets}"
    )
}

/// What receives at the far end, and what the near one is told about it.
pub(super) struct Receivers {
    /// The listener's targets, but for the link.
    ways: Vec<(&'static str, String)>,
    behind: SocketAddr,
    row: SocketAddr,
    lines: SocketAddr,
    statsd: SocketAddr,
    /// Joins the group anew with its interface.
    pub(super) member: UdpSocket,
    /// Which of two hosts the name has.
    pub(super) named_at: Arc<Mutex<usize>>,
    pub(super) path: PathBuf,
    unix: Arc<Way>,
    _unix_socket: UnixDatagram,
}

impl Receivers {
    fn open(rig: &Rig, folder: &TempDir, judges: &mut Judges) -> Receivers {
        let bind = |ip: &str| rig.far.inside(|| UdpSocket::bind((ip, 0)).unwrap());
        let v4 = judges.udp("v4", bind("10.9.9.9"));
        let v6 = judges.udp("v6", bind("fd09:9::9"));
        let group = bind("0.0.0.0");
        rig.join(&group);
        let member = group.try_clone().unwrap();
        let group = SocketAddr::from((GROUP, judges.udp("group", group).port()));
        let behind = judges.udp("link", bind("10.9.9.9"));
        let row = judges.udp("udp sink", bind("10.9.9.9"));
        let statsd = judges.udp("statsd", bind("10.9.9.9"));
        let listener = rig.far.inside(|| TcpListener::bind("10.9.9.9:0").unwrap());
        let lines = judges.tcp("tcp sink", listener);
        let named_at = named(rig, judges);

        let path = folder.file("out.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        let unix = judges.way("unix");
        judges.watch_unix(&socket, Arc::clone(&unix));
        let ways = vec![
            ("v4", v4.to_string()),
            ("v6", v6.to_string()),
            ("group", group.to_string()),
            ("named", "collector.test:7777".to_owned()),
            ("unix", format!("unix:{}", path.display())),
        ];
        Receivers {
            ways,
            behind,
            row,
            lines,
            statsd,
            member,
            named_at,
            path,
            unix,
            _unix_socket: socket,
        }
    }
}

/// Two hosts that a name may have. The old one goes on to receive: only what comes to the one that the name has counts.
fn named(rig: &Rig, judges: &mut Judges) -> Arc<Mutex<usize>> {
    let (way, named_at) = (judges.way("named"), Arc::<Mutex<usize>>::default());
    for (at, ip) in ["10.9.9.9", "10.9.9.8"].into_iter().enumerate() {
        let socket = rig.far.inside(|| UdpSocket::bind((ip, 7_777)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (way, current) = (Arc::clone(&way), Arc::clone(&named_at));
        judges.watch(Arc::default(), move |buffer| {
            let len = socket.recv(buffer)?;
            if *current.lock().unwrap() == at {
                way.note(&buffer[..len]);
            }
            Ok(len)
        });
    }
    named_at
}

fn start_near(rig: &Rig, folder: &TempDir, receivers: &Receivers, link: &str) -> Weir {
    let mut ways = receivers.ways.clone();
    ways.push(("link", link.to_owned()));
    let Receivers { row, lines, statsd, .. } = receivers;
    let text = format!(
        "{}[sockets]\ninterval = \"100ms\"\nskip_unchanged = false\n\
         [[sink]]\nname = \"row\"\nfrom = [\"sockets\"]\nto = \"udp://{row}\"\nbatch_age = \"20ms\"\n\
         [[sink]]\nname = \"lines\"\nfrom = [\"in\"]\nto = \"tcp://{lines}\"\nbody = \"payload\"\nbatch_age = \"20ms\"\n\
         [metrics.statsd]\nto = \"{statsd}\"\ninterval = \"100ms\"\n",
        config(folder, &ways)
    );
    std::fs::write(folder.file("weir.toml"), text).unwrap();
    let mut command = rig.relay.place().weir();
    command.args(["run", "-c"]).arg(folder.file("weir.toml"));
    Weir::run_at(rig.relay.place(), command)
}

/// Sends until `stop`. Returns how many datagrams it sent.
fn load(rig: &Rig, at: SocketAddr, stop: &Arc<AtomicBool>, judges: &Judges) -> JoinHandle<u64> {
    let client = rig.relay.inside(|| sender(at));
    let (stop, newest) = (Arc::clone(stop), Arc::clone(&judges.sent));
    thread::spawn(move || {
        let (rate, begin) = (rate(), Instant::now());
        let mut sent = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let due = begin.elapsed().as_millis() as u64 * rate / 1_000;
            while sent < due {
                sent += 1;
                // Refused once the relay has ended.
                let _ = client.send(sent.to_string().as_bytes());
            }
            newest.store(sent, Ordering::Relaxed);
            thread::park_timeout(Duration::from_millis(2));
        }
        sent
    })
}

/// Makes every change, and returns the longest time until everything went on.
fn change_all(rig: &Rig, receivers: &Receivers, judges: &mut Judges) -> Duration {
    let mut slowest = Duration::ZERO;
    let mut after = |what: &str| slowest = slowest.max(judges.expect_more(what));

    rig.remove(1, 1);
    rig.add(1, 77);
    rig.route_all(1);
    rig.relay.ip("route replace 10.9.9.8 via 10.9.1.9");
    after("another address");
    rig.route_all(2);
    after("a route by another interface");
    rig.relay.ip("link del v2");
    rig.make_wire(2);
    rig.join(&receivers.member);
    rig.route_all(2);
    after("an interface made again");
    rig.relay.ip("link set v2 down");
    let down = Duration::from_secs(setting("WEIR_MATRIX_DOWN_SECONDS", 0));
    thread::park_timeout(down);
    rig.relay.ip("link set v2 up");
    rig.relay.ip("address add fd09:2::1/64 dev v2 nodad");
    rig.route_all(2);
    after("a link that was down");
    *receivers.named_at.lock().unwrap() = 1;
    rig.relay.write_hosts("10.9.9.8 collector.test\n");
    after("a name that moved");

    std::fs::remove_file(&receivers.path).unwrap();
    let second = UnixDatagram::bind(&receivers.path).unwrap();
    judges.ways.retain(|(name, _)| *name != "unix");
    let unix_anew = judges.way("unix anew");
    judges.watch_unix(&second, unix_anew);
    slowest.max(judges.expect_more("another receiver at the path"))
}

/// A relay, what it sends to, and load.
pub(super) struct Bench {
    pub(super) rig: Rig,
    _folder: TempDir,
    pub(super) judges: Judges,
    pub(super) receivers: Receivers,
    pub(super) near: Weir,
    far: Weir,
    load_end: Arc<AtomicBool>,
    load: JoinHandle<u64>,
}

impl Bench {
    /// `None` where namespaces cannot be made.
    pub(super) fn start() -> Option<Bench> {
        let rig = Rig::new()?;
        rig.far.ip("address add 10.9.9.8/32 dev lo");
        rig.relay.ip("route add 10.9.9.8 via 10.9.1.9");
        rig.route_all(1);
        let folder = TempDir::new();
        let key = key(&folder, "matrix");
        let mut judges = Judges::default();
        let receivers = Receivers::open(&rig, &folder, &mut judges);

        let listen = format!("weir://10.9.9.9:0?name=in&keys={}", key.display());
        let behind = receivers.behind.to_string();
        let far = Weir::relay_at(rig.far.place(), &["--listen", &listen, "--to", &behind]);
        rig.relay.write_hosts("10.9.9.9 collector.test\n");
        let near = start_near(&rig, &folder, &receivers, far.listen());
        let load_end = Arc::<AtomicBool>::default();
        let load = load(&rig, near.address(), &load_end, &judges);
        judges.expect_more("the start");
        Some(Bench { rig, _folder: folder, judges, receivers, near, far, load_end, load })
    }

    /// Ends everything, and holds it to what must be true. Returns what the relay said.
    pub(super) fn end(self) -> String {
        self.load_end.store(true, Ordering::Relaxed);
        let sent = self.load.join().unwrap();
        let (ended, there) = (self.near.stop(), self.far.stop());
        // Only now: what nobody reads is left behind.
        self.judges.stop.store(true, Ordering::Relaxed);
        for (one, name) in [(&ended, "near"), (&there, "far")] {
            assert!(one.ledger.is_balanced(), "{name}: {}", one.said);
            assert!(one.ledger.hops.iter().all(|hop| hop.unaccounted == 0), "{name}: {}", one.said);
        }
        let socket = hop(&ended.ledger, HopKind::Socket, "");
        assert_eq!(socket.received.count, sent, "{}", ended.said);
        for (name, way) in self.judges.ways.iter().chain([("unix", self.receivers.unix)].iter()) {
            let reordered = way.reordered.load(Ordering::Relaxed);
            // A link repairs, and what it repairs comes later.
            assert!(reordered == 0 || *name == "link", "{name}: {reordered}: {}", ended.said);
        }
        // Other targets lose nothing.
        let unix = hop(&ended.ledger, HopKind::Target, "unix");
        assert!(unix.dropped.is_empty(), "{}", ended.said);
        if std::env::var_os("WEIR_MATRIX_RATE").is_some() {
            say(&format!("{sent} datagrams\n{}", ledger::waterfall(&ended.ledger)));
        }
        ended.said
    }
}

#[test]
fn every_way_goes_on_after_every_change() {
    let Some(mut bench) = Bench::start() else { return };
    let slowest = change_all(&bench.rig, &bench.receivers, &mut bench.judges);
    let said = bench.end();
    // Measured from the change on: 0.2 s. A name has its resolve_interval of a second, which counts here too; the rest is for a
    // busy machine.
    assert!(slowest < Duration::from_secs(3), "{slowest:?}: {said}");
}
