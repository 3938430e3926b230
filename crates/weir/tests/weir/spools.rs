//! What a spool promises of the daemon: over a process that is killed, over reloads, and over its sink's end.

use super::collector::wait_for_reloads;
use super::datagram_sinks::write;
use crate::support::{Weir, hop};
use ledger::{Event, Gauge, HopKind, HopSnapshot, Reason};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use testkit::{SmallDisk, TempDir, free_port, say, signal, skip, wait_for};

const KILLS: usize = 5;

/// Datagrams that wait on disk before the next thing happens.
const STEP_ROWS: u64 = 2_000;

/// Datagrams with the numbers 0, 1, 2 …, some 10,000 a second, until it is stopped.
struct Load {
    next: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Load {
    fn start(to: String) -> Load {
        let (next, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (sent, ends) = (Arc::clone(&next), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !ends.load(Ordering::Acquire) {
                for _ in 0..20 {
                    let number = sent.load(Ordering::Relaxed);
                    socket.send_to(number.to_string().as_bytes(), &to).unwrap();
                    sent.store(number + 1, Ordering::Release);
                }
                thread::park_timeout(Duration::from_millis(2));
            }
        });
        Load { next, stop, thread }
    }

    /// All numbers below it were sent.
    fn sent(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    fn wait_for_more(&self, count: u64) {
        let until = self.sent() + count;
        wait_for("more load", || (self.sent() >= until).then_some(()));
    }

    fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap();
        self.next.load(Ordering::Acquire)
    }
}

/// Where rows are to arrive, and does not take any at first.
enum Store {
    /// A port where nobody listens.
    Port(SocketAddr, Arc<Mutex<Vec<u64>>>),
    /// A file on a disk that is full.
    File(PathBuf, SmallDisk),
}

impl Store {
    fn port() -> Store {
        Store::Port(([127, 0, 0, 1], free_port()).into(), Arc::default())
    }

    fn full_disk() -> Option<Store> {
        let disk = SmallDisk::mount("4m")?;
        let filler = fs::write(disk.path().join("filler"), vec![0; 8 << 20]);
        assert!(filler.is_err(), "4 MiB take 8");
        Some(Store::File(disk.path().join("rows"), disk))
    }

    fn to(&self) -> String {
        match self {
            Store::Port(addr, _) => format!("tcp://{addr}"),
            Store::File(path, _) => format!("file:{}", path.display()),
        }
    }

    /// From here on it takes rows.
    fn begin(&self) {
        match self {
            Store::Port(addr, numbers) => {
                let listener = testkit::listen(*addr);
                let numbers = Arc::clone(numbers);
                // It ends with the test.
                thread::spawn(move || {
                    for connection in listener.incoming().map_while(Result::ok) {
                        let numbers = Arc::clone(&numbers);
                        thread::spawn(move || {
                            for line in BufReader::new(connection).lines().map_while(Result::ok) {
                                numbers.lock().unwrap().push(line.parse().unwrap());
                            }
                        });
                    }
                });
            }
            Store::File(_, disk) => fs::remove_file(disk.path().join("filler")).unwrap(),
        }
    }

    /// What it has, once that is as much as was delivered.
    fn numbers(&self, delivered: u64) -> Vec<u64> {
        let numbers = || match self {
            Store::Port(_, numbers) => numbers.lock().unwrap().clone(),
            Store::File(path, _) => {
                let text = fs::read_to_string(path).unwrap();
                text.lines().map(|line| line.parse().unwrap()).collect()
            }
        };
        wait_for("what was delivered", || {
            Some(numbers()).filter(|numbers| numbers.len() as u64 >= delivered)
        })
    }
}

fn store_of(weir: &Weir) -> HopSnapshot {
    hop(&weir.ledger(), HopKind::Sink, "store").clone()
}

/// Waits until so many rows are in the spool of the sink `store`.
fn wait_for_spooled(weir: &Weir, rows: u64) {
    weir.wait_for(|ledger| {
        let store = ledger
            .hops
            .iter()
            .find(|hop| hop.target.as_deref() == Some("store") && hop.hop == HopKind::Sink);
        store.and_then(|hop| hop.gauge(Gauge::SpoolRows)).is_some_and(|spooled| spooled >= rows)
    });
}

fn wait_for_recovered(weir: &Weir, more_than: u64) -> u64 {
    let recovered = |hop: &HopSnapshot| hop.event(Event::Recovered);
    weir.wait_for(|ledger| recovered(hop(ledger, HopKind::Sink, "store")) > more_than);
    recovered(&store_of(weir))
}

/// Each life of the daemon is killed under load. What was in its spool is recovered by the next one, and arrives once.
fn killed_under_load(store: &Store, sync: &str) {
    let dir = TempDir::new();
    let listen = format!("127.0.0.1:{}", free_port());
    let sink = format!(
        "name = \"store\"\nfrom = [\"in\"]\nbody = \"payload\"\nto = \"{}\"\nspool = \"{}\"\nspool_sync = \"{sync}\"",
        store.to(),
        dir.text("spool")
    );
    write(&dir, &[("in", &listen)], &[sink]);
    let config = dir.file("weir.toml");

    let mut weir = Weir::run(&config);
    weir.wait_for_line("sink store: its spool is empty");
    let load = Load::start(listen);
    // For each life: what its ledger said to be in the spool, what was sent when it was dead, what the next one found.
    let mut lives = Vec::new();
    let mut recovered = 0;
    for _ in 0..KILLS {
        wait_for_spooled(&weir, recovered + STEP_ROWS);
        let spooled = store_of(&weir).gauge(Gauge::SpoolRows).unwrap();
        weir.kill();
        let sent = load.sent();

        weir = Weir::run(&config);
        let said = weir.wait_for_line("sink store: its spool has");
        assert!(said.contains("It was not closed: records"), "{said}");
        recovered = wait_for_recovered(&weir, 0);
        assert!(recovered >= spooled, "{recovered} of {spooled}");
        assert_eq!(store_of(&weir).event(Event::SpoolsUnclosed), 1);
        lives.push((spooled, sent, recovered));
    }

    load.wait_for_more(STEP_ROWS);
    let sent = load.finish();
    store.begin();
    weir.wait_for(|ledger| ledger.hops.iter().all(|hop| hop.in_flight.is_zero()));
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    let sink = hop(&ended.ledger, HopKind::Sink, "store");
    assert_eq!((sink.delivered, sink.dropped.len()), (sink.received, 0), "{}", ended.said);
    assert_eq!(
        sink.received.count,
        recovered + hop(&ended.ledger, HopKind::Target, "store").delivered.count
    );

    let mut numbers = store.numbers(sink.delivered.count);
    numbers.sort_unstable();
    assert_eq!(numbers.len() as u64, sink.delivered.count, "each once");
    for (at, (spooled, sent, recovered)) in lives.iter().enumerate() {
        let arrived = numbers.iter().filter(|number| *number < sent).count() as u64;
        assert_eq!(arrived, *recovered, "life {at}: all that was found again, and nothing else");
        assert!(arrived >= *spooled, "life {at}");
    }
    // What a life lost is what came last: its other rows follow one another.
    let gaps = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert!(gaps <= KILLS, "{gaps} gaps, {KILLS} kills");
    numbers.dedup();
    assert_eq!(numbers.len() as u64, sink.delivered.count, "each once");
    say(&format!(
        "{KILLS} kills, {sent} sent, {} lost in memory and while nobody listened; in the spool, sent and recovered: {lives:?}",
        sent - sink.delivered.count
    ));
}

#[test]
fn a_daemon_that_is_killed_again_and_again_delivers_what_its_spool_had() {
    killed_under_load(&Store::port(), "always");
}

#[test]
fn a_daemon_that_is_killed_while_the_disk_behind_its_sink_is_full_delivers_what_its_spool_had() {
    let Some(store) = Store::full_disk() else {
        skip("mounting a small file system needs root", &["REQUIRE_ALL"]);
        return;
    };
    killed_under_load(&store, "100ms");
}

#[test]
fn a_sink_with_a_spool_is_changed_removed_and_added_under_load_and_nothing_of_it_is_lost() {
    const RELOADS: u32 = 5;
    let (dir, store) = (TempDir::new(), Store::port());
    let listen = format!("127.0.0.1:{}", free_port());
    let steady = "name = \"steady\"\nfrom = [\"in\"]\nto = \"null:\"".to_owned();
    let of_store = |retry: u32| {
        format!(
            "name = \"store\"\nfrom = [\"in\"]\nbody = \"payload\"\nto = \"{}\"\nspool = \"{}\"\nretry_max = \"{retry}s\"",
            store.to(),
            dir.text("spool")
        )
    };
    let file = |sinks: &[String]| write(&dir, &[("in", &listen)], sinks);
    file(&[steady.clone(), of_store(1)]);
    let weir = Weir::run(&dir.file("weir.toml"));
    let load = Load::start(listen.clone());
    let mut reloads = 0;
    let mut reload = |sinks: &[String]| {
        file(sinks);
        signal(weir.process(), "HUP");
        reloads += 1;
        wait_for_reloads(&weir, reloads);
    };

    // While nothing can be delivered: the next one goes on with what the former one kept.
    let mut recovered = 0;
    for turn in 1..=RELOADS {
        wait_for_spooled(&weir, recovered + STEP_ROWS / 4);
        reload(&[steady.clone(), of_store(1 + turn)]);
        recovered = wait_for_recovered(&weir, recovered);
    }

    // Removed: what it had stays on disk, and that is said.
    let from = load.sent();
    reload(std::slice::from_ref(&steady));
    let said = weir.wait_for_line("sink store is gone, and ");
    assert!(said.contains(&format!("spool = \"{}\"", dir.text("spool"))), "{said}");
    load.wait_for_more(STEP_ROWS);
    reload(&[steady.clone(), of_store(1)]);
    let to = load.sent();
    wait_for_recovered(&weir, recovered);

    // While it delivers.
    store.begin();
    for turn in 1..=RELOADS {
        load.wait_for_more(STEP_ROWS / 4);
        reload(&[steady.clone(), of_store(1 + turn)]);
    }

    let sent = load.finish();
    weir.wait_for(|ledger| ledger.hops.iter().all(|hop| hop.in_flight.is_zero()));
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(ended.ledger.violations, 0, "{}", ended.said);
    assert_eq!(hop(&ended.ledger, HopKind::Sink, "steady").delivered.count, sent);

    let (sink, target) =
        (hop(&ended.ledger, HopKind::Sink, "store"), hop(&ended.ledger, HopKind::Target, "store"));
    assert_eq!(sink.kept.count, sink.event(Event::Recovered), "{}", ended.said);
    assert!(sink.dropped.is_empty() && sink.event(Event::SpoolsUnclosed) == 0, "{}", ended.said);
    assert_eq!(sink.delivered.count, target.delivered.count, "{}", ended.said);
    assert_eq!(target.dropped_total(), target.dropped_for(Reason::TargetRemoved), "{}", ended.said);

    let mut numbers = store.numbers(sink.delivered.count);
    numbers.sort_unstable();
    let twice = numbers.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert!(twice <= sink.event(Event::PossibleDuplicates), "{twice}: {}", ended.said);
    numbers.dedup();
    let gaps: Vec<_> = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).collect();
    assert!(
        matches!(gaps[..], [[last, first]] if *last + 1 >= from && *first <= to),
        "{gaps:?}, and it was removed from {from} to {to}"
    );
    assert_eq!((numbers.first(), numbers.last()), (Some(&0), Some(&(sent - 1))));
}

#[test]
fn a_stop_with_rows_in_the_spool_is_no_loss_and_the_next_start_says_what_it_found() {
    let (dir, store) = (TempDir::new(), Store::port());
    let listen = format!("127.0.0.1:{}", free_port());
    let sink = format!(
        "name = \"store\"\nfrom = [\"in\"]\nbody = \"payload\"\nto = \"{}\"\nspool = \"{}\"",
        store.to(),
        dir.text("spool")
    );
    write(&dir, &[("in", &listen)], &[sink]);
    let weir = Weir::run(&dir.file("weir.toml"));
    let load = Load::start(listen);
    wait_for_spooled(&weir, STEP_ROWS);
    let sent = load.finish();
    weir.wait_for_rest_but_sinks(sent);

    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(hop(&ended.ledger, HopKind::Sink, "store").kept.count, sent, "{}", ended.said);
    assert!(ended.said.contains("in the spool, for the next start"), "{}", ended.said);

    let weir = Weir::run(&dir.file("weir.toml"));
    let said = weir.wait_for_line("sink store: its spool has");
    assert!(said.contains("delivered first; the oldest is"), "{said}");
    assert!(!said.contains("not closed"), "{said}");
    store.begin();
    weir.wait_for(|ledger| hop(ledger, HopKind::Sink, "store").delivered.count == sent);
    let ended = weir.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert_eq!(store.numbers(sent), Vec::from_iter(0..sent));
}
