//! The law, looked at ten times a second under full load: `received = delivered + dropped + in flight` at every hop, with
//! no more in flight than fits, while a target comes and goes by reloads; and nothing in flight at rest.
//!
//! 60 seconds where the test is root, as in CI, else 10; `WEIR_LAW_SECONDS` says otherwise.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use ledger::{Amount, HopKind, Snapshot};
use rig::netns::Place;
use rig::{Folder, Generator, Relay, free_udp_address, say, wait_for};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(100);

fn seconds() -> u64 {
    let own = if sys::process::effective_uid() == 0 { 60 } else { 10 };
    let has_no_rights = sys::process::effective_capabilities() == Some(0);
    let usual = if has_no_rights { 10 } else { own };
    std::env::var("WEIR_LAW_SECONDS").map_or(usual, |text| text.parse().unwrap())
}

/// A unix socket whose owner takes a few datagrams every few milliseconds, until it is told to hurry.
struct SlowReader {
    hurry: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl SlowReader {
    fn at(path: &Path) -> SlowReader {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (hurry, end) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (hurries, ends) = (Arc::clone(&hurry), Arc::clone(&end));
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2_048];
            let mut taken = 0;
            loop {
                let has_ended = ends.load(Ordering::Acquire);
                let is_slow = !hurries.load(Ordering::Acquire);
                let portion = if is_slow { 5 } else { 1_000 };
                let got = (0..portion).take_while(|_| socket.recv(&mut buffer).is_ok()).count();
                taken += got as u64;
                if has_ended && got == 0 {
                    return taken;
                }
                if is_slow {
                    thread::park_timeout(Duration::from_millis(2));
                } else {
                    thread::yield_now();
                }
            }
        });
        SlowReader { hurry, end, thread: Some(thread) }
    }

    fn finish(mut self) -> u64 {
        self.end.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }
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
            assert_eq!(hop.received.count, left.count + hop.in_flight.count, "{hop:#?}");
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
    }
}

const WITH: &str = "[[listener.target]]\nname = 'passing'\nto = 'null:'\n";

/// Adds the passing target or takes it out, and waits until the ledger shows it.
fn toggle(relay: &Relay, path: &Path, base: &str, round: u64) {
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
fn the_law_holds_at_every_look_under_full_load() {
    let folder = Folder::new("law");
    let slow = SlowReader::at(&folder.path("slow"));
    // Nobody reads what it gets: the kernel drops there, which is not the relay's affair.
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let targets = [
        ("sink", sink.local_addr().unwrap().to_string()),
        ("dead", free_udp_address().to_string()),
        ("slow", format!("unix:{}", folder.path("slow").display())),
        ("tenth", "null:?sample=10".to_owned()),
    ];
    let targets = targets.map(|(name, to)| {
        let (to, sample) = match to.split_once("?sample=") {
            Some((to, sample)) => (to.to_owned(), format!("sample = {sample}\n")),
            None => (to, String::new()),
        };
        format!("[[listener.target]]\nname = '{name}'\nto = '{to}'\n{sample}")
    });
    let base = format!(
        "[admin]\nlisten = '127.0.0.1:0'\n[[listener]]\nname = 'in'\nlisten = '127.0.0.1:0'\n\
         schedule = 'threaded'\n{}",
        targets.concat()
    );
    let path = folder.path("weir.toml");
    std::fs::write(&path, &base).unwrap();
    let relay = Relay::run(&Place::Here, &path);
    let load = ["--rate", "max", "--gso", "--duration", "0s"];
    let generator = Generator::start(&Place::Here, relay.listen(), &load);

    let mut watch = Watch::default();
    let mut reloads = 0;
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds());
    let mut due = begin;
    while Instant::now() < end {
        due += INTERVAL;
        thread::park_timeout(due.saturating_duration_since(Instant::now()));
        watch.look(&relay.ledger());
        if watch.samples.is_multiple_of(15) {
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
    let socket = ended.hop(HopKind::Socket, None);
    say(&format!(
        "{} samples in {:?}, {reloads} reloads, {} sent, {} read, at most {} in flight at a hop, 0 violations",
        watch.samples,
        begin.elapsed(),
        sent.all(),
        socket.delivered.count,
        watch.in_flight_max
    ));
    assert_eq!(socket.received.count, sent.all());
    assert_eq!(ended.account("slow").delivered, slow.finish());
    assert!(ended.account("passing").delivered > 0);
    assert!(watch.in_flight_max > 1_000, "nothing waited anywhere");
    assert!(watch.samples >= seconds() * 5, "{} samples", watch.samples);
    assert!(reloads >= 2, "{reloads} reloads");
    assert_eq!(ended.code, 0, "{}", ended.said);
}
