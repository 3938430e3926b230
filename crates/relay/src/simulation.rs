//! The relay's core under simulated faults: one seed, one history.
//!
//! Ring, intake, targets, gates and the UDP outlet are the real ones; the kernel is simulated (`kernel`): it takes, refuses,
//! blocks, is interrupted, takes a part, cuts runs off, returns what it took through an error queue, and loses what waits for
//! a neighbour that does not answer. Datagrams of random sizes come in batches; targets join, leave and change their socket
//! in between, and a reader holds its claim for as long as the ring lasts. After each few steps the law must hold at every
//! hop; each target must have got datagrams that went in, unchanged, in order, none twice; at the end everything that was
//! offered to it is delivered or counted under a reason, to the last datagram and byte; and what is said to have come back
//! is what the kernel knows to have: exactly where the target is on this host, within bounds where it is not.
//!
//! `WEIR_SIM_SEEDS` sets the number of seeds, `WEIR_SIM_SEED` runs a single one again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kernel;

use crate::gate::Gate;
use crate::intake::{Admission, Intake};
use crate::meter::{ListenerMeter, TargetMeter};
use crate::outlet::UdpOutlet;
use crate::pump::{Change, Command, Replaced, Targets};
use crate::ring::{Claim, Reader, ring_with_slots};
use crate::target::{Outlet, Target};
use crate::{
    Gso, ListenerOptions, Sample, SampleBy, Schedule, SocketOwner, TargetKind, TargetOptions,
};
use kernel::{FakeKernel, Place, Wire};
use ledger::{Amount, Counters, Event, HopKind, HopSnapshot, Ledger, Meter, Reason};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use sys::recv::{Payload, Received};
use sys::send::Message;
use sys::{Errno, Source};

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

/// The real outlet on the simulated kernel.
/// Longest that a look takes to be answered, in nanoseconds.
const ANSWERED_NS: u64 = 50_000_000;

struct SimOutlet {
    random: Random,
    clock: Arc<AtomicU64>,
    /// When no look was waited for last.
    unasked_ns: u64,
    udp: UdpOutlet<FakeKernel>,
}

impl SimOutlet {
    fn new(mut random: Random, clock: Arc<AtomicU64>, wire: Arc<Mutex<Wire>>) -> SimOutlet {
        let kernel = FakeKernel::new(Random(random.next()), Arc::clone(&clock), wire);
        let path = kernel.path.clone();
        let unasked_ns = clock.load(Ordering::Relaxed);
        SimOutlet { random, clock, unasked_ns, udp: UdpOutlet::new(kernel, Gso::Auto, path) }
    }

    /// Others have a turn between any two things that the outlet does.
    fn others(&mut self) {
        if self.random.one_in(8) {
            self.udp.kernel.happen();
        }
        // Looks are answered before the outlet's patience ends: without an answer it decides by what it knows, and then the
        // row says "at least".
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
    fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno> {
        self.others();
        // A call takes its time.
        self.clock.fetch_add(self.random.below(300_000), Ordering::Relaxed);
        self.udp.send(messages)
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
    wire: Arc<Mutex<Wire>>,
    first: u64,
}

struct History {
    random: Random,
    ledger: Ledger,
    intake: Intake,
    targets: Targets,
    slots: u64,
    /// Each target's wire, and the number of the first datagram that it was offered.
    joined: BTreeMap<String, Joined>,
    /// Lengths of the datagrams that entered the ring.
    appended: Vec<(u64, usize)>,
    next_number: u64,
    clock: Arc<AtomicU64>,
    /// Reads everything that enters, and holds its claim while it does.
    guard: Reader,
    guarded: u64,
    is_order_known: bool,
    faults: u64,
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
            gather: None,
        };
        let meter = Arc::new(ListenerMeter::new("l".into(), None, 0));
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
            // Above the real clock, which the intake reads.
            clock: Arc::new(AtomicU64::new(1 << 60)),
            guard,
            guarded: 0,
            is_order_known: true,
            faults: 0,
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
        let wire = Arc::<Mutex<Wire>>::default();
        let random = Random(self.random.next());
        let outlet = SimOutlet::new(random, Arc::clone(&self.clock), Arc::clone(&wire));
        let gate = Gate::new(&options, self.random.next());
        self.targets.add(Box::new(Target::new(outlet, reader, gate, Arc::clone(&meter))));
        self.ledger.register(meter);
        self.joined.insert(name, Joined { wire, first: first.count });
    }

    fn receive(&mut self) {
        let batch_len = 1 + self.random.below(12);
        let same_len = self.random.one_in(2).then(|| self.random.below(120) as usize);
        let batch: Vec<_> = (0..batch_len)
            .map(|at| {
                let len = same_len.unwrap_or_else(|| self.random.below(300) as usize);
                let source = std::net::Ipv4Addr::new(10, 0, 0, self.random.below(5) as u8);
                (self.next_number + at, payload(self.next_number + at, len), source)
            })
            .collect();
        self.next_number += batch_len;
        let truncated = self.random.one_in(10).then(|| self.random.below(batch_len));
        if self.random.one_in(2) {
            // With a guard that never catches up the ring would never be empty.
            self.seen_of(&[], u64::MAX);
        }
        let lens: Vec<_> = batch.iter().map(|(_, bytes, _)| bytes.len()).collect();
        self.intake.writer.rewind_if_empty(lens.iter().sum());
        let stride = self.fill_room(&batch);
        let before = self.intake.writer.appended();
        let datagrams = || {
            batch.iter().zip(0..).map(|((_, bytes, source), at)| Received {
                payload: match stride {
                    Some(stride) => {
                        Payload::InRoom { offset: at as usize * stride, len: bytes.len() }
                    }
                    None => Payload::Bytes(bytes),
                },
                truncated: truncated == Some(at),
                source: Source::from(std::net::SocketAddr::from((*source, 514))),
            })
        };
        // Without the targets, as where another thread owns them: then the ring takes from them.
        let mut nobody = Targets::default();
        let targets = if self.random.one_in(2) { &mut self.targets } else { &mut nobody };
        // A claim that is held for as long as the ring lasts costs the newest datagrams.
        let now_ns = self.clock.load(Ordering::Relaxed);
        let holds = {
            let nobodys = Counters::default();
            let held = if self.random.one_in(4) { self.guard.claim(&nobodys) } else { None };
            self.intake.take_in(datagrams, now_ns, targets);
            let commit = |mut claim: Claim<'_>| claim.advance(claim.len());
            held.map(commit).is_some()
        };
        // Which of the batch got in is what the counters say about each kind; the order is the batch's.
        let entered = (self.intake.writer.appended().count - before.count) as usize;
        let is_denied = |source| source == std::net::Ipv4Addr::new(10, 0, 0, 3);
        let denies = !self.intake.meter.receive.dropped(Reason::SourceDenied).is_zero();
        let mut passed: Vec<_> = batch
            .iter()
            .zip(0..)
            .filter(|((_, _, source), at)| {
                truncated != Some(*at) && !(denies && is_denied(*source))
            })
            .map(|((number, bytes, _), _)| (*number, bytes.len()))
            .collect();
        let guarded = passed.len() - entered;
        assert!(guarded == 0 || holds, "no claim is held here, and every payload fits the ring");
        if guarded > 0 {
            self.guarded += guarded as u64;
            passed = self.seen_of(&passed, before.count);
            assert!(passed.len() <= entered);
            // A reader that is far behind gives up its oldest: then nobody knows which they were.
            self.is_order_known &= passed.len() == entered;
        }
        let counted = self.intake.meter.receive.dropped(Reason::RingGuard).count;
        assert_eq!(counted, self.guarded);
        self.appended.append(&mut passed);
    }

    /// Writes the payloads straight into the ring, half of the times that it has room, and returns how far apart they lie.
    fn fill_room(&mut self, batch: &[(u64, Vec<u8>, std::net::Ipv4Addr)]) -> Option<usize> {
        let stride = batch.iter().map(|(_, bytes, _)| bytes.len()).max().filter(|len| *len > 0)?;
        let is_wanted = self.random.one_in(2);
        let writer = &mut self.intake.writer;
        let room = is_wanted.then(|| writer.room(batch.len(), batch.len() * stride))??;
        for (slot, (_, bytes, _)) in room.chunks_exact_mut(stride).zip(batch) {
            slot[..bytes.len()].copy_from_slice(bytes);
        }
        Some(stride)
    }

    /// Those of a batch that the guard sees in the ring from this number on: it held its claim, so that it lost none.
    fn seen_of(&mut self, passed: &[(u64, usize)], from: u64) -> Vec<(u64, usize)> {
        let mut candidates = passed.iter();
        let mut seen = Vec::new();
        let nobodys = Counters::default();
        while let Some(mut claim) = self.guard.claim(&nobodys) {
            let new = (0..claim.len()).filter(|index| claim.first() + *index as u64 >= from);
            for index in new {
                let (_, bytes) = claim.get(index);
                let is_it = |&&(number, len): &&(u64, usize)| payload(number, len) == bytes;
                seen.push(*candidates.find(is_it).expect("of the batch, in its order"));
            }
            claim.advance(claim.len());
        }
        seen
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
            2 if !self.joined.is_empty() => {
                let target = format!("t{}", self.random.below(self.joined.len() as u64));
                let (done, _) = mpsc::channel();
                let change = Change { destination: TargetKind::Null, gate: None };
                self.targets.apply(Command::Replace { target, change, done });
            }
            3..=10 => self.receive(),
            _ => {
                self.targets.pump(self.now_ns(), self.now_ns(), 8);
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
                joined.wire.lock().unwrap().is_calm = true;
            }
            while self.targets.pump(self.now_ns(), self.now_ns(), 8) || self.targets.has_work() {
                self.clock.fetch_add(200_000_000, Ordering::Relaxed);
            }
            // What was told late is heard, and what it says is counted.
            for _ in 0..20 {
                self.clock.fetch_add(200_000_000, Ordering::Relaxed);
                self.targets.pump(self.now_ns(), self.now_ns(), 8);
            }
        }
        self.targets.discard_rest(self.now_ns(), self.now_ns());
        self.targets = Targets::default();
        let snapshot = self.ledger.check();
        assert!(snapshot.is_balanced() && snapshot.unaccounted() == 0, "{snapshot:#?}");
        for (name, Joined { wire, first }) in &self.joined {
            let wire = wire.lock().unwrap();
            let hop = |kind| snapshot.hop(kind, "l", Some(name)).unwrap();
            let (target, egress) = (hop(HopKind::Target), hop(HopKind::Egress));
            let bytes = wire.taken.iter().map(Vec::len).sum::<usize>() as u64;
            let taken = Amount { count: wire.taken.len() as u64, bytes };
            assert_eq!(target.delivered, taken, "{name}");
            assert_eq!(target.received, target.delivered + target.dropped_total(), "{name}");
            check_returned(name, &wire, egress, is_calm);
            if self.is_order_known {
                self.check_in_order(&wire.taken, *first);
            }
            let is_fault = |event: &Event| matches!(event, Event::SendErrors(_) | Event::Retries);
            let faults = target.events.iter().filter(|(event, _)| is_fault(event));
            self.faults += faults.map(|(_, count)| count).sum::<u64>();
        }
    }

    /// What was taken is a part of what entered from `first` on, in its order.
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

/// Holds what the ledger says came back against what the kernel knows.
fn check_returned(name: &str, wire: &Wire, egress: &HopSnapshot, is_calm: bool) {
    let refused = egress.dropped_for(Reason::Refused);
    let unreachable = egress.dropped_for(Reason::HostUnreachable);
    // On this host every refusal is known, and which message it is about.
    if wire.reports == 0 {
        assert_eq!(refused, wire.refused, "{name}");
    }
    assert!(refused.count >= wire.refused.count, "{name}: {refused:?} of {:?}", wire.refused);
    assert!(refused.count <= wire.refused.count + wire.reports, "{name}: {refused:?}");
    // What waited for a neighbour that failed, and at most what was handed over since nothing was outstanding.
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

fn run(seed: u64) -> (u64, u64) {
    let mut history = History::new(seed);
    history.join();
    for _ in 0..20 + history.random.below(60) {
        history.step();
    }
    history.finish();
    (history.faults, history.guarded)
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
    let add = |(a, b): (u64, u64), (c, d): (u64, u64)| (a + c, b + d);
    let (faults, guarded) = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|thread| {
                let seeds = (thread..seeds).step_by(threads as usize);
                scope.spawn(move || {
                    seeds
                        .map(|seed| match std::panic::catch_unwind(|| run(seed)) {
                            Ok(faults) => faults,
                            Err(panic) => {
                                eprintln!("seed {seed} failed: WEIR_SIM_SEED={seed} runs it again");
                                std::panic::resume_unwind(panic);
                            }
                        })
                        .fold((0, 0), add)
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).fold((0, 0), add)
    });
    assert!(faults > 5 * seeds, "the faults did happen: {faults} over {seeds} seeds");
    assert!(guarded > seeds / 4, "the guard did drop: {guarded} over {seeds} seeds");
}
