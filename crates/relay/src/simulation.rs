//! The relay's core under simulated faults: one seed, one history.
//!
//! Ring, intake, targets and gates are the real ones; the kernel is not there. A simulated way out takes, refuses, blocks,
//! is interrupted, takes a part, cuts runs off, or gives back what it took. Datagrams of random sizes come in batches;
//! targets join, leave and change their destination in between. After each few steps the law must hold at every hop; each
//! target must have got datagrams that went in, unchanged, in order, none twice; and at the end everything that was
//! offered to it is delivered or counted under a reason, to the last datagram and byte.
//!
//! `WEIR_SIM_SEEDS` sets the number of seeds, `WEIR_SIM_SEED` runs a single one again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::gate::Gate;
use crate::intake::{Admission, Intake};
use crate::meter::{ListenerMeter, TargetMeter};
use crate::pump::{Change, Command, Replaced, Targets};
use crate::ring::ring_with_slots;
use crate::target::{Outlet, Target};
use crate::{Destination, ListenerOptions, Sample, SampleBy, Schedule, SocketOwner, TargetOptions};
use ledger::{Amount, HopKind, Ledger, Meter, Reason};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, mpsc};
use sys::recv::{Payload, Received};
use sys::send::{Message, SEGMENTS_MAX};
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

/// What the simulated network has got from one target, and how it behaves.
#[derive(Default)]
struct Wire {
    /// Datagrams taken, in order.
    taken: Vec<Vec<u8>>,
    given_back: Amount,
    /// No more faults: the end of the run.
    is_calm: bool,
}

struct SimOutlet {
    random: Random,
    /// One in so many calls goes wrong in some way.
    trouble_one_in: u64,
    run_datagram_bytes_max: usize,
    last_message: Amount,
    /// Datagrams that came back and wait in the error queue.
    returned: Amount,
    /// The error that the next call reports instead of sending.
    pending: Option<Errno>,
    wire: Arc<Mutex<Wire>>,
}

impl SimOutlet {
    fn fault(&mut self, first: &Message<'_>) -> Option<Errno> {
        let errnos = [
            Errno::AGAIN,
            Errno::INTR,
            Errno::NOBUFS,
            Errno::PERM,
            Errno::CONNREFUSED,
            Errno::HOSTUNREACH,
            Errno::NETDOWN,
            Errno::NOMEM,
            Errno::MSGSIZE,
            Errno::INVAL,
        ];
        if first.datagrams > 1 && self.random.one_in(8) {
            return Some(Errno::MSGSIZE);
        }
        Some(errnos[self.random.below(errnos.len() as u64) as usize])
    }
}

impl Outlet for SimOutlet {
    fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno> {
        let is_calm = self.wire.lock().unwrap().is_calm;
        if let Some(errno) = self.pending.take() {
            return Err(errno);
        }
        if !is_calm
            && self.random.one_in(self.trouble_one_in)
            && let Some(errno) = self.fault(&messages[0])
        {
            return Err(errno);
        }
        let mut count = messages.len();
        if !is_calm && self.random.one_in(4) {
            count = 1 + self.random.below(count as u64) as usize;
        }
        let mut wire = self.wire.lock().unwrap();
        for message in &messages[..count] {
            assert!(message.datagrams as usize <= SEGMENTS_MAX, "segments of one message");
            let is_single = message.datagrams == 1;
            assert!(
                is_single || usize::from(message.datagram_bytes) <= self.run_datagram_bytes_max
            );
            assert_eq!(message.datagrams().count(), message.datagrams as usize);
            wire.taken.extend(message.datagrams().map(<[u8]>::to_vec));
            self.last_message =
                Amount { count: u64::from(message.datagrams), bytes: message.bytes.len() as u64 };
        }
        if !is_calm && self.random.one_in(self.trouble_one_in) {
            self.returned += self.last_message;
            self.pending = Some(Errno::CONNREFUSED);
        }
        Ok(count)
    }

    fn run_datagram_bytes_max(&self, _now_ns: u64) -> usize {
        self.run_datagram_bytes_max
    }

    fn limit_runs(&mut self, datagram_bytes: usize) {
        self.run_datagram_bytes_max = datagram_bytes / 2;
    }

    fn take_returned(&mut self, meter: &TargetMeter, _now_ns: u64) {
        meter.egress.drop(Reason::Refused, self.returned);
        self.wire.lock().unwrap().given_back += self.returned;
        self.returned = Amount::default();
    }

    fn give_up_outstanding(&mut self) {}

    fn has_outstanding(&mut self) -> bool {
        false
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn reports_all(&self) -> bool {
        true
    }

    fn replace(&mut self, _destination: Destination) -> Replaced {
        self.run_datagram_bytes_max = 1 + self.random.below(200) as usize;
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
    now_ns: u64,
    faults: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let mut random = Random(seed);
        let bytes = 1 << (9 + random.below(4));
        let slots = 1 << (2 + random.below(4));
        let writer = ring_with_slots(bytes, slots).unwrap();
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
            now_ns: 1_000_000_000,
            faults: 0,
        }
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
        let outlet = SimOutlet {
            trouble_one_in: 2 + self.random.below(20),
            run_datagram_bytes_max: self.random.below(3) as usize * 100,
            random: Random(self.random.next()),
            last_message: Amount::default(),
            returned: Amount::default(),
            pending: None,
            wire: Arc::clone(&wire),
        };
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
        let before = self.intake.writer.appended();
        let datagrams = || {
            batch.iter().zip(0..).map(|((_, bytes, source), at)| Received {
                payload: Payload::Bytes(bytes),
                truncated: truncated == Some(at),
                source: Source::from(std::net::SocketAddr::from((*source, 514))),
            })
        };
        // Without the targets, as where another thread owns them: then the ring takes from them.
        let mut nobody = Targets::default();
        let targets = if self.random.one_in(2) { &mut self.targets } else { &mut nobody };
        self.intake.take_in(datagrams, self.now_ns, targets);
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
        assert!(guarded == 0, "no claim is held here, and every payload fits the ring");
        self.appended.append(&mut passed);
    }

    fn step(&mut self) {
        self.now_ns += self.random.below(2_000_000);
        match self.random.below(20) {
            0 if self.joined.len() < 6 => self.join(),
            1 if !self.joined.is_empty() => {
                let name = format!("t{}", self.random.below(self.joined.len() as u64));
                let (done, _) = mpsc::channel();
                let deadline_ns = self.now_ns + self.random.below(20_000_000);
                self.targets.apply(Command::Remove { target: name, end: None, deadline_ns, done });
            }
            2 if !self.joined.is_empty() => {
                let target = format!("t{}", self.random.below(self.joined.len() as u64));
                let (done, _) = mpsc::channel();
                let change = Change { destination: Destination::Null, gate: None };
                self.targets.apply(Command::Replace { target, change, done });
            }
            3..=10 => self.receive(),
            _ => {
                self.targets.pump(self.now_ns, self.now_ns, 8);
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
        if self.random.one_in(2) {
            for joined in self.joined.values() {
                joined.wire.lock().unwrap().is_calm = true;
            }
            while self.targets.pump(self.now_ns, self.now_ns, 8) || self.targets.has_work() {
                self.now_ns += 200_000_000;
            }
        }
        self.targets.discard_rest(self.now_ns, self.now_ns);
        let snapshot = self.ledger.check();
        assert!(snapshot.is_balanced() && snapshot.unaccounted() == 0, "{snapshot:#?}");
        for (name, Joined { wire, first }) in &self.joined {
            let wire = wire.lock().unwrap();
            let hop = |kind| snapshot.hop(kind, "l", Some(name)).unwrap();
            let (target, egress) = (hop(HopKind::Target), hop(HopKind::Egress));
            let bytes = wire.taken.iter().map(Vec::len).sum::<usize>() as u64;
            let taken = Amount { count: wire.taken.len() as u64, bytes };
            assert_eq!(target.delivered, taken, "{name}");
            assert_eq!(egress.dropped_total(), wire.given_back, "{name}");
            assert_eq!(target.received, target.delivered + target.dropped_total(), "{name}");
            self.check_in_order(&wire.taken, *first);
        }
        self.faults = snapshot.hops.iter().flat_map(|hop| hop.events.values()).sum();
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

fn run(seed: u64) -> u64 {
    let mut history = History::new(seed);
    history.join();
    for _ in 0..20 + history.random.below(60) {
        history.step();
    }
    history.finish();
    history.faults
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
    let faults: u64 = std::thread::scope(|scope| {
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
                        .sum::<u64>()
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).sum()
    });
    assert!(faults > seeds, "the faults did happen: {faults} over {seeds} seeds");
}
