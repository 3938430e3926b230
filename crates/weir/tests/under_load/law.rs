//! The law under full load, held against what the ledger cannot know by itself: a generator that counts what it sent, and a
//! reader behind each target that counts what arrived, while a target comes and goes by reloads. Ten times a second the
//! ledger is looked at: nothing unaccounted, no more in flight than fits, no count that goes back, and never more
//! delivered than the hop before has let through.
//!
//! 60 seconds where the test is root, as in CI, else 10, over both schedules; `WEIR_LAW_SECONDS` says otherwise.

use crate::support::{Generator, Place, Weir, free_udp_address};
use ledger::{Amount, HopKind, Snapshot};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::{TempDir, say, wait_for};

const INTERVAL: Duration = Duration::from_millis(100);

fn seconds() -> u64 {
    let own = if sys::process::effective_uid() == 0 { 60 } else { 10 };
    let has_no_rights = sys::process::effective_capabilities() == Some(0);
    let usual = if has_no_rights { 10 } else { own };
    std::env::var("WEIR_LAW_SECONDS").map_or(usual, |text| text.parse().unwrap())
}

/// How fast a reader takes what it gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// As fast as it can.
    Full,
    /// A few datagrams every few milliseconds, until it is told to hurry.
    Slow,
}

/// The receiving end of a target: counts what arrives.
struct Arrivals {
    hurry: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Arrivals {
    /// `receive` takes one datagram, and returns whether there was one.
    fn count(pace: Pace, mut receive: impl FnMut() -> bool + Send + 'static) -> Arrivals {
        let (hurry, end) = (Arc::new(AtomicBool::new(pace == Pace::Full)), Arc::default());
        let (hurries, ends) = (Arc::clone(&hurry), Arc::<AtomicBool>::clone(&end));
        let thread = thread::spawn(move || {
            let mut taken = 0;
            loop {
                let has_ended = ends.load(Ordering::Acquire);
                let is_slow = !hurries.load(Ordering::Acquire);
                let portion = if is_slow { 5 } else { 1_000 };
                let got = (0..portion).take_while(|_| receive()).count();
                taken += got as u64;
                if has_ended && got == 0 {
                    return taken;
                }
                if is_slow || got == 0 {
                    thread::park_timeout(Duration::from_millis(2));
                }
            }
        });
        Arrivals { hurry, end, thread: Some(thread) }
    }

    fn at_unix(path: &Path) -> Arrivals {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Arrivals::count(Pace::Slow, move || socket.recv(&mut [0; 2_048]).is_ok())
    }

    fn at_udp(socket: &UdpSocket) -> Arrivals {
        let socket = socket.try_clone().unwrap();
        socket.set_nonblocking(true).unwrap();
        Arrivals::count(Pace::Full, move || socket.recv(&mut [0; 2_048]).is_ok())
    }

    /// Takes the rest, and returns how many datagrams arrived. Nothing may be under way any more.
    fn finish(mut self) -> u64 {
        self.hurry.store(true, Ordering::Release);
        self.end.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// A UDP socket whose buffer holds some thousand datagrams.
fn receiver() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    sys::socket::set_receive_buffer(socket.as_fd(), 4 << 20).unwrap();
    socket
}

/// What the kernel has dropped for want of room at a socket: it counts those alone.
fn dropped_at(socket: &UdpSocket) -> u64 {
    sys::socket::mem_info(socket.as_fd()).unwrap().dropped_datagrams.into()
}

/// What the samples have shown so far.
#[derive(Default)]
struct Watch {
    samples: u64,
    in_flight_max: u64,
    /// Received and left of every hop, which never go back.
    before: BTreeMap<(HopKind, String), (Amount, Amount)>,
}

impl Watch {
    fn look(&mut self, ledger: &Snapshot) {
        self.samples += 1;
        assert_eq!(ledger.violations, 0, "{ledger:#?}");
        for hop in &ledger.hops {
            assert_eq!(hop.unaccounted, 0, "{hop:#?}");
            let left = hop.delivered + hop.dropped_total();
            // A look that the scheduler interrupted between what left and what came in shows more inside than fits; whether
            // it did fit at the first of the two moments is in `unaccounted`.
            self.in_flight_max = self.in_flight_max.max(hop.in_flight.count);
            let key = (hop.hop, hop.target.clone().unwrap_or_default());
            if let Some((received, gone)) = self.before.insert(key, (hop.received, left)) {
                assert!(
                    received.count <= hop.received.count && gone.count <= left.count,
                    "{hop:#?}"
                );
            }
        }
        // Counters of different threads: what a target has sent was accepted before, which was read before.
        let count = |kind, target| ledger.hop(kind, "in", target).map(|hop| hop.delivered.count);
        let (read, accepted) = (count(HopKind::Socket, None), count(HopKind::Receive, None));
        assert!(accepted <= read, "{accepted:?} accepted of {read:?}");
        assert!(count(HopKind::Target, Some("sink")) <= accepted, "{ledger:#?}");
    }
}

const WITH: &str = "[[listener.target]]\nname = 'passing'\nto = 'null:'\n";

/// Adds the passing target or takes it out, and waits until the ledger shows it.
fn toggle(relay: &Weir, path: &Path, base: &str, round: u64) {
    let is_there = round.is_multiple_of(2);
    std::fs::write(path, if is_there { format!("{base}{WITH}") } else { base.to_owned() }).unwrap();
    relay.process.signal("HUP");
    wait_for("a reload", || {
        let ledger = relay.ledger();
        // The hop of a target that has gone keeps its counts and has no gauges.
        let hop = ledger.hop(HopKind::Target, "in", Some("passing"));
        (hop.is_some_and(|hop| !hop.gauges.is_empty()) == is_there).then_some(())
    });
}

#[test]
fn the_law_holds_at_every_look_under_full_load_threaded() {
    the_law_holds_at_every_look("threaded");
}

#[test]
fn the_law_holds_at_every_look_under_full_load_inline() {
    the_law_holds_at_every_look("inline");
}

fn config(schedule: &str, sink: &UdpSocket, folder: &TempDir) -> String {
    let targets = [
        ("sink", sink.local_addr().unwrap().to_string(), ""),
        ("dead", free_udp_address().to_string(), ""),
        ("slow", format!("unix:{}", folder.file("slow").display()), ""),
        (
            "copy",
            format!("file:{}", folder.file("copy").display()),
            "format = 'length-prefixed'\nsample = 50\n",
        ),
        ("tenth", "null:".to_owned(), "sample = 10\n"),
    ];
    let targets = targets.map(|(name, to, more)| {
        format!("[[listener.target]]\nname = '{name}'\nto = '{to}'\n{more}")
    });
    format!(
        "[admin]\nlisten = '127.0.0.1:0'\n[[listener]]\nname = 'in'\nlisten = '127.0.0.1:0'\n\
         schedule = '{schedule}'\n{}",
        targets.concat()
    )
}

/// Records of a length-prefixed file.
fn records(path: &Path) -> u64 {
    let file = std::fs::read(path).unwrap();
    let mut rest = &file[..];
    let mut count = 0;
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        rest = &after[u32::from_be_bytes(*len) as usize..];
        count += 1;
    }
    assert!(rest.is_empty(), "a torn length");
    count
}

fn the_law_holds_at_every_look(schedule: &str) {
    let folder = TempDir::new();
    let slow = Arrivals::at_unix(&folder.file("slow"));
    let socket = receiver();
    let sink = Arrivals::at_udp(&socket);
    let base = config(schedule, &socket, &folder);
    let path = folder.file("weir.toml");
    std::fs::write(&path, &base).unwrap();
    let relay = Weir::run(&path);
    let load = ["--rate", "max", "--gso", "--duration", "0s"];
    let generator = Generator::start(&Place::Here, relay.listen(), &load);

    let mut watch = Watch::default();
    let mut reloads = 0;
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds() / 2);
    let mut due = begin;
    while Instant::now() < end {
        due += INTERVAL;
        thread::park_timeout(due.saturating_duration_since(Instant::now()));
        watch.look(&relay.ledger());
        if watch.samples.is_multiple_of(12) {
            toggle(&relay, &path, &base, reloads);
            reloads += 1;
        }
    }
    generator.0.signal("TERM");
    let sent = generator.finish();
    slow.hurry.store(true, Ordering::Release);
    wait_for("rest", || {
        let ledger = relay.ledger();
        watch.look(&ledger);
        ledger.hops.iter().all(|hop| hop.in_flight.is_zero()).then_some(())
    });
    let ended = relay.stop();
    watch.look(&ended.ledger);
    let read = ended.hop(HopKind::Socket, None);
    say(&format!(
        "{schedule}: {} samples in {:?}, {reloads} reloads, {} sent, {} read, at most {} in flight at a hop",
        watch.samples,
        begin.elapsed(),
        sent.all(),
        read.delivered.count,
        watch.in_flight_max
    ));

    // What the generator sent is what the first hop got, and what each target is said to have got has arrived there.
    assert_eq!(read.received.count, sent.all());
    assert_eq!(ended.account("slow").delivered, slow.finish());
    assert_eq!(ended.account("copy").delivered, records(&folder.file("copy")));
    let arrived = sink.finish();
    assert_eq!(ended.account("sink").delivered, arrived + dropped_at(&socket));
    assert!(arrived > 1_000, "{arrived} arrived");
    assert!(ended.account("passing").delivered > 0);
    assert!(watch.in_flight_max > 1_000, "nothing waited anywhere");
    assert!(watch.samples >= seconds() * 5 / 2, "{} samples", watch.samples);
    assert!(reloads >= 2, "{reloads} reloads");
    assert_eq!(ended.code, Some(0), "{}", ended.said);
}
