//! The relay's core under simulated faults. One seed gives one history.
//!
//! Ring, intake, targets, gates and the UDP outlet are the real ones. The kernel is simulated (`kernel`): it takes, refuses,
//! blocks, is interrupted, takes a part, rejects runs, returns messages through an error queue, and loses what waits for a
//! neighbor that does not answer. Datagrams of random sizes come in batches. Targets join, leave and change their socket in
//! between, and a reader holds its claim for a whole turn of the ring. Some targets are receivers of rows (`receiver`) that run
//! out of room, are slow, signal readiness wrongly, and panic. Every few steps the law must hold at every hop. Each target must
//! have got only datagrams that went in, unchanged, in order, none twice. At the end, everything offered to it must be delivered
//! or counted under a reason, to the last datagram and byte. And what is reported as returned must match what the kernel
//! returned: exactly if the target is on this host, within bounds if not.
//!
//! `WEIR_SIM_SEEDS` sets the number of seeds; `WEIR_SIM_SEED` replays a single one.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arriving;
mod kernel;
mod receiver;

use crate::gate::Gate;
use crate::intake::{Admission, Intake};
use crate::meter::{ListenerMeter, TargetMeter};
use crate::outlet::UdpOutlet;
use crate::pump::{Change, Command, Pump, Replaced, Targets};
use crate::ring::{Reader, ring_with_slots};
use crate::rows::RowsTarget;
use crate::socket::CountedDrops;
use crate::target::{Outlet, Sources, Target};
use crate::{
    Gso, Header, ListenerOptions, Sample, SampleBy, Schedule, SocketOwner, SourceAddress,
    TargetKind, TargetOptions,
};
use kernel::{FakeKernel, Place, Wire};
use ledger::{Amount, Event, HopKind, HopSnapshot, Ledger, Meter, Reason, Snapshot};
use receiver::{FakeReceiver, Shelf};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use sys::Errno;
use sys::poll::PollSet;
use sys::send::Message;
use sys::socket::Balance;

/// Sebastiano Vigna's splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

fn payload(number: u64, len: usize) -> Vec<u8> {
    let bytes = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len).map(|at| bytes[at % 8] ^ (at / 8) as u8).collect()
}

/// The source of a datagram: one of five hosts.
fn source_of(number: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, (Random(number).next() % 5) as u8)
}

/// Maximum time until a lookup is answered, in nanoseconds.
const ANSWERED_NS: u64 = 50_000_000;

/// The real outlet on the simulated kernel.
struct SimOutlet {
    random: Random,
    clock: Arc<AtomicU64>,
    /// The last time that no lookup was pending.
    unasked_ns: u64,
    udp: UdpOutlet<FakeKernel>,
}

impl SimOutlet {
    fn new(mut random: Random, clock: Arc<AtomicU64>, wire: Arc<Mutex<Wire>>) -> SimOutlet {
        let kernel = FakeKernel::new(Random(random.next()), Arc::clone(&clock), wire);
        let path = kernel.path.clone();
        let unasked_ns = clock.load(Ordering::Relaxed);
        let source_address = match random.below(8) {
            0 | 1 => SourceAddress::Kept,
            2 => SourceAddress::Said(Header::PROXY_V2),
            3 => SourceAddress::Said(Header::SyslogOrigin),
            _ => SourceAddress::Own,
        };
        SimOutlet {
            random,
            clock,
            unasked_ns,
            udp: UdpOutlet::new(kernel, Gso::Auto, source_address, path),
        }
    }

    /// Gives others a turn between any two actions of the outlet.
    fn others(&mut self) {
        if self.random.one_in(8) {
            self.udp.kernel.happen();
        }
        // Lookups are answered before the outlet's patience runs out. Otherwise it decides by what it knows, and the row says "at
        // least".
        let now_ns = self.clock.load(Ordering::Relaxed);
        if !self.udp.kernel.path.is_asked() {
            self.unasked_ns = now_ns;
        }
        if self.random.one_in(2) || now_ns >= self.unasked_ns + ANSWERED_NS {
            self.udp.kernel.tell();
        }
    }
}

impl Outlet for SimOutlet {
    fn send(&mut self, messages: &[Message<'_>], sources: Sources<'_>) -> Result<usize, Errno> {
        self.others();
        // A call takes time.
        self.clock.fetch_add(self.random.below(300_000), Ordering::Relaxed);
        self.udp.send(messages, sources)
    }

    fn refusing(&self, now_ns: u64) -> Option<Reason> {
        self.udp.refusing(now_ns)
    }

    fn run_datagram_bytes_max(&self, _now_ns: u64) -> usize {
        self.udp.run_datagram_bytes_max()
    }

    fn limit_runs(&mut self, datagram_bytes: usize) {
        self.udp.limit_runs(datagram_bytes);
    }

    fn take_returned(&mut self, meter: &TargetMeter, now_ns: u64) {
        self.others();
        self.udp.take_returned(meter, now_ns);
    }

    fn give_up_outstanding(&mut self) {
        self.udp.kernel.note_given_up();
        self.udp.give_up_outstanding();
    }

    fn has_outstanding(&mut self) -> bool {
        self.others();
        self.udp.has_outstanding()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn reports_all(&self) -> bool {
        self.udp.reports_all()
    }

    fn replace(&mut self, _destination: TargetKind) -> Replaced {
        let wire = Arc::clone(&self.udp.kernel.wire);
        *self = SimOutlet::new(Random(self.random.next()), Arc::clone(&self.clock), wire);
        Replaced::Yes
    }
}

struct Joined {
    to: To,
    first: u64,
}

/// Where a target's datagrams went.
#[derive(Clone)]
enum To {
    Wire(Arc<Mutex<Wire>>),
    Shelf(Arc<Mutex<Shelf>>),
}

struct History {
    random: Random,
    ledger: Ledger,
    intake: Intake,
    targets: Targets,
    slots: u64,
    /// Where each target's datagrams went, and the number of the first one that it was offered.
    joined: BTreeMap<String, Joined>,
    /// Numbers and lengths of the datagrams that entered the ring.
    appended: Vec<(u64, usize)>,
    next_number: u64,
    clock: Arc<AtomicU64>,
    /// Reads everything that enters, and holds its claim meanwhile.
    guard: Reader,
    is_order_known: bool,
    seen: Seen,
}

/// How often the events that the simulation is for have happened.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Failed socket calls.
    faults: u64,
    /// Datagrams that the ring dropped because of the guard's claim.
    guarded: u64,
    /// Datagrams on which receivers of rows panicked.
    panicked: u64,
    /// How often receivers had no room.
    refusals: u64,
}

impl Seen {
    fn and(self, other: Seen) -> Seen {
        Seen {
            faults: self.faults + other.faults,
            guarded: self.guarded + other.guarded,
            panicked: self.panicked + other.panicked,
            refusals: self.refusals + other.refusals,
        }
    }
}

impl History {
    fn new(seed: u64) -> History {
        let mut random = Random(seed);
        let bytes = 1 << (9 + random.below(4));
        let slots = 1 << (2 + random.below(4));
        let mut writer = ring_with_slots(bytes, slots).unwrap();
        let guard = writer.reader(Arc::default());
        let deny = random.one_in(4).then(|| "10.0.0.3".parse().unwrap());
        let options = ListenerOptions {
            name: "l".into(),
            ring_bytes: bytes,
            schedule: Schedule::Inline,
            allow_sources: vec![],
            deny_sources: deny.into_iter().collect(),
            socket_owner: SocketOwner::Relay,
            trust_header_from: Vec::new(),
            cpus: Default::default(),
            sockets_max: 1,
            link: None,
            gather: None,
            balance: Balance::default(),
            order: crate::Order::default(),
        };
        let meter = Arc::new(ListenerMeter::new("l".into(), None, CountedDrops::default()));
        let ledger = Ledger::new(String::new());
        ledger.register(Arc::clone(&meter) as Arc<dyn Meter>);
        History {
            random,
            ledger,
            slots: slots as u64,
            intake: Intake { writer, admission: Admission::new(&options), meter },
            targets: Targets::default(),
            joined: BTreeMap::new(),
            appended: Vec::new(),
            next_number: 0,
            // Ahead of the real clock, which the intake reads.
            clock: Arc::new(AtomicU64::new(1 << 60)),
            guard,
            is_order_known: true,
            seen: Seen::default(),
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn join(&mut self) {
        let name = format!("t{}", self.joined.len());
        let mut options = TargetOptions { name: name.clone(), ..TargetOptions::default() };
        let one_in = NonZeroU32::new(1 + self.random.below(4) as u32).unwrap();
        match self.random.below(6) {
            0 => options.sample = Some(Sample { one_in, by: SampleBy::Random }),
            1 => options.sample = Some(Sample { one_in, by: SampleBy::Source }),
            2 => options.rate_limit_per_sec = NonZeroU32::new(1_000_000),
            3 => options.only_sources = vec!["10.0.0.0/31".parse().unwrap()],
            _ => {}
        }
        let lost = Arc::default();
        let first = self.intake.writer.appended();
        let reader = self.intake.writer.reader(Arc::clone(&lost));
        let meter =
            TargetMeter::new(name.clone(), self.intake.meter.clone(), first, self.slots, lost);
        let meter = Arc::new(meter);
        let random = Random(self.random.next());
        let gate = Gate::new(&options, self.random.next());
        let to = match self.random.one_in(3) {
            false => To::Wire(Arc::default()),
            true => To::Shelf(Arc::default()),
        };
        let pump: Box<dyn Pump> = match &to {
            To::Wire(wire) => {
                let outlet = SimOutlet::new(random, Arc::clone(&self.clock), Arc::clone(wire));
                Box::new(Target::new(outlet, reader, gate, Arc::clone(&meter)))
            }
            To::Shelf(shelf) => {
                let receiver =
                    FakeReceiver::new(random, Arc::clone(&self.clock), Arc::clone(shelf));
                Box::new(RowsTarget::new(Box::new(receiver), reader, gate, Arc::clone(&meter)))
            }
        };
        self.targets.add(pump);
        self.ledger.register(meter);
        self.joined.insert(name, Joined { to, first: first.count });
    }

    /// Gives a target another socket or receiver. One that takes rows does not become a socket.
    fn replace(&mut self) {
        let target = format!("t{}", self.random.below(self.joined.len() as u64));
        let destination = match &self.joined[&target].to {
            To::Shelf(shelf) if !self.random.one_in(4) => {
                let (random, clock) = (Random(self.random.next()), Arc::clone(&self.clock));
                TargetKind::Rows(Box::new(FakeReceiver::new(random, clock, Arc::clone(shelf))))
            }
            _ => TargetKind::Null,
        };

        let (done, answer) = mpsc::channel();
        let is_refused =
            matches!((&self.joined[&target].to, &destination), (To::Shelf(_), TargetKind::Null));
        let change = Box::new(Change { destination, gate: None });
        self.targets.apply(Command::Replace { target, change, done });
        assert!(!is_refused || answer.recv() == Ok(Replaced::No));
    }

    fn step(&mut self) {
        let most_ns = if self.random.one_in(8) { 400_000_000 } else { 2_000_000 };
        self.clock.fetch_add(self.random.below(most_ns), Ordering::Relaxed);
        match self.random.below(20) {
            0 if self.joined.len() < 6 => self.join(),
            1 if !self.joined.is_empty() => {
                let name = format!("t{}", self.random.below(self.joined.len() as u64));
                let (done, _) = mpsc::channel();
                let deadline_ns = self.now_ns() + self.random.below(20_000_000);
                self.targets.apply(Command::Remove { target: name, end: None, deadline_ns, done });
            }
            2 if !self.joined.is_empty() => self.replace(),
            3..=10 => self.receive(),
            11 => self.targets.revive(&mut PollSet::default()),
            _ => {
                self.targets.pump(self.now_ns(), 8);
            }
        }
        if self.random.one_in(8) {
            self.check_law();
        }
    }

    fn check_law(&self) {
        let snapshot = self.ledger.check();
        assert!(snapshot.is_balanced(), "{snapshot:#?}");
    }

    fn finish(&mut self) {
        let is_calm = self.random.one_in(2);
        if is_calm {
            for joined in self.joined.values() {
                match &joined.to {
                    To::Wire(wire) => wire.lock().unwrap().is_calm = true,
                    To::Shelf(shelf) => shelf.lock().unwrap().is_calm = true,
                }
            }
            while self.targets.pump(self.now_ns(), 8) || self.targets.has_work() {
                self.clock.fetch_add(200_000_000, Ordering::Relaxed);
            }
            // Late reports arrive and are counted.
            for _ in 0..20 {
                self.clock.fetch_add(200_000_000, Ordering::Relaxed);
                self.targets.pump(self.now_ns(), 8);
            }
        }
        self.targets.discard_rest(self.now_ns());
        self.targets = Targets::default();
        let snapshot = self.ledger.check();
        assert!(snapshot.is_balanced() && snapshot.unaccounted() == 0, "{snapshot:#?}");
        for (name, Joined { to, first }) in &self.joined {
            let taken = match to {
                To::Wire(wire) => {
                    let wire = wire.lock().unwrap();
                    self.seen.faults += check_wire(name, &wire, &snapshot, is_calm);
                    wire.taken.clone()
                }
                To::Shelf(shelf) => {
                    let shelf = shelf.lock().unwrap();
                    shelf.check(name, &snapshot);
                    self.seen.panicked += shelf.panicked.count;
                    self.seen.refusals += shelf.refusals;
                    shelf.taken.clone()
                }
            };
            if self.is_order_known {
                self.check_in_order(&taken, *first);
            }
        }
    }

    /// Checks that what was taken is a subset of what entered from `first` on, in the same order.
    fn check_in_order(&self, taken: &[Vec<u8>], first: u64) {
        let mut candidates = self.appended[first as usize..].iter();
        for bytes in taken {
            let is_it = |&&(number, len): &&(u64, usize)| {
                len == bytes.len() && payload(number, len) == *bytes
            };
            assert!(candidates.any(|candidate| is_it(&candidate)), "out of order or not ours");
        }
    }
}

/// Compares the ledger's counts for a socket target with what its wire took. Returns how often a call failed.
fn check_wire(name: &str, wire: &Wire, snapshot: &Snapshot, is_calm: bool) -> u64 {
    let hop = |kind| snapshot.hop(kind, "l", Some(name)).unwrap();
    let (target, egress) = (hop(HopKind::Target), hop(HopKind::Egress));
    let bytes = wire.taken.iter().map(Vec::len).sum::<usize>() as u64;
    let taken = Amount { count: wire.taken.len() as u64, bytes };
    assert_eq!(target.delivered, taken, "{name}");
    assert_eq!(target.received, target.delivered + target.dropped_total(), "{name}");
    check_returned(name, wire, egress, is_calm);

    let is_fault = |event: &Event| matches!(event, Event::SendErrors(_) | Event::Retries);
    target.events.iter().filter(|(event, _)| is_fault(event)).map(|(_, count)| count).sum()
}

/// Compares what the ledger counts as returned with what the kernel knows.
fn check_returned(name: &str, wire: &Wire, egress: &HopSnapshot, is_calm: bool) {
    let refused = egress.dropped_for(Reason::Refused);
    let unreachable = egress.dropped_for(Reason::HostUnreachable);
    // On this host every refusal is known, along with its message.
    if wire.reports == 0 {
        assert_eq!(refused, wire.refused, "{name}");
    }
    assert!(refused.count >= wire.refused.count, "{name}: {refused:?} of {:?}", wire.refused);
    assert!(refused.count <= wire.refused.count + wire.reports, "{name}: {refused:?}");
    // What waited for a neighbor that failed, and at most what was handed over since nothing was outstanding.
    assert!(unreachable.count <= wire.purged_max.count, "{name}: {unreachable:?}");
    let was_one_socket = wire.was.len() == 1;
    if is_calm && was_one_socket && !wire.was_given_up {
        assert!(unreachable.count >= wire.purged.count, "{name}: {unreachable:?}");
    }
    if !wire.was.contains(&Place::Flaky) {
        assert!(wire.purged.is_zero());
    }
    assert_eq!(egress.dropped_total(), refused + unreachable, "{name}");
}

fn run(seed: u64) -> Seen {
    let mut history = History::new(seed);
    history.join();
    for _ in 0..20 + history.random.below(60) {
        history.step();
    }
    history.finish();
    history.seen
}

#[test]
fn every_seed_accounts_for_every_datagram() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("WEIR_SIM_SEED") {
        run(seed);
        return;
    }
    let seeds = number("WEIR_SIM_SEEDS").unwrap_or(100_000);
    let threads = std::thread::available_parallelism().unwrap().get() as u64;
    let seen = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|thread| {
                let seeds = (thread..seeds).step_by(threads as usize);
                scope.spawn(move || {
                    seeds
                        .map(|seed| match std::panic::catch_unwind(|| run(seed)) {
                            Ok(seen) => seen,
                            Err(panic) => {
                                eprintln!("seed {seed} failed: WEIR_SIM_SEED={seed} runs it again");
                                std::panic::resume_unwind(panic);
                            }
                        })
                        .fold(Seen::default(), Seen::and)
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).fold(Seen::default(), Seen::and)
    });
    let Seen { faults, guarded, panicked, refusals } = seen;
    assert!(faults > 5 * seeds, "the faults did happen: {faults} over {seeds} seeds");
    assert!(guarded > seeds / 4, "the guard did drop: {guarded} over {seeds} seeds");
    assert!(panicked > seeds / 4, "receivers did panic: {panicked} over {seeds} seeds");
    assert!(refusals > seeds, "receivers had no room: {refusals} over {seeds} seeds");
}
