#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::gate::Gate;
use crate::outlet::SocketOutlet;
use crate::pump::{HOUSEKEEPING_INTERVAL, Pump, Pumped, Replaced, Targets};
use crate::target::Target;
use crate::worker::{Lifetime, Worker};
use crate::{RING_BYTES_MIN, SocketOwner, TargetKind, TargetOptions};
use ledger::{Amount, Reason, Tally};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::time::Instant;
use sys::poll::EventFd;

/// Long enough for a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < DEADLINE, "{what}");
        thread::park_timeout(Duration::from_millis(1));
    }
    begin.elapsed()
}

fn listener_options(name: &str) -> ListenerOptions {
    ListenerOptions {
        name: name.to_owned(),
        ring_bytes: RING_BYTES_MIN,
        schedule: Schedule::Inline,
        allow_sources: vec![],
        deny_sources: vec![],
        socket_owner: SocketOwner::Relay,
        trust_header_from: Vec::new(),
        cpus: Default::default(),
        sockets_max: 1,
        link: None,
        gather: None,
        balance: sys::socket::Balance::default(),
        order: crate::Order::default(),
    }
}

fn start(ledger: &Arc<Ledger>) -> (Listener, UdpSocket) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(socket.local_addr().unwrap()).unwrap();
    let listener =
        Listener::start(listener_options("l"), OwnedFd::from(socket), Vec::new(), ledger).unwrap();
    (listener, sender)
}

/// A target that loses one datagram without counting it.
struct Leaky {
    target: Target<SocketOutlet>,
    has_leaked: bool,
}

/// Forwards every other method to the inner target.
macro_rules! as_the_target {
    ($($name:ident(&mut self $(, $arg:ident: $kind:ty)*) $(-> $out:ty)?;)*) => {
        $(fn $name(&mut self $(, $arg: $kind)*) $(-> $out)? {
            Pump::$name(&mut self.target $(, $arg)*)
        })*
    };
}

impl Pump for Leaky {
    fn name(&self) -> &str {
        Pump::name(&self.target)
    }

    fn pump(&mut self, now_ns: u64, claims_max: usize) -> Pumped {
        self.has_leaked = self.has_leaked || self.target.leak_one();
        Pump::pump(&mut self.target, now_ns, claims_max)
    }

    fn blocked_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_idle(&self) -> bool {
        Pump::is_idle(&self.target)
    }

    fn head(&self) -> u64 {
        Pump::head(&self.target)
    }

    fn has_reached(&self, end: u64) -> bool {
        Pump::has_reached(&self.target, end)
    }

    as_the_target! {
        keep_house(&mut self, now_ns: u64);
        has_outstanding(&mut self) -> bool;
        discard_until(&mut self, end: u64, reason: Reason);
        replace(&mut self, destination: TargetKind, gate: Option<Gate>) -> Replaced;
        stop_at(&mut self, end: u64);
        leave(&mut self);
    }
}

#[test]
fn a_leak_of_one_datagram_is_seen_within_a_second() {
    let ledger = Arc::new(Ledger::new(String::new()));
    let (listener, sender) = start(&ledger);
    let lost = Arc::<Tally>::default();
    let (reply, answer) = mpsc::channel();
    listener.request(Request::Join { lost: Arc::clone(&lost), reply }).unwrap();
    let (reader, joined) = answer.recv().unwrap();
    let meter = Arc::new(TargetMeter::new(
        "t".into(),
        Arc::clone(&listener.meter),
        joined,
        listener.ring_capacity,
        lost,
    ));
    ledger.register(Arc::clone(&meter) as Arc<dyn Meter>);
    let gate = Gate::new(&TargetOptions::default(), 1);
    let target = Target::new(SocketOutlet::Null, reader, gate, Arc::clone(&meter));
    listener
        .request(Request::Targets(Command::Add(Box::new(Leaky { target, has_leaked: false }))))
        .unwrap();
    for _ in 0..100 {
        sender.send(b"datagram").unwrap();
    }
    wait_for("the datagrams", || meter.sender.delivered.load().count == 99);
    let delay = wait_for("the leak", || ledger.check().violations > 0);
    let snapshot = ledger.check();
    let hop = snapshot.hop(ledger::HopKind::Target, "l", Some("t")).unwrap();
    assert_eq!((hop.in_flight.count, hop.unaccounted), (1, 1), "{delay:?}");
}

#[test]
fn what_vanishes_before_it_is_stored_is_seen() {
    let ledger = Arc::new(Ledger::new(String::new()));
    let (listener, sender) = start(&ledger);
    sender.send(b"datagram").unwrap();
    wait_for("the datagram", || listener.meter.receive.delivered.load().count == 1);
    assert_eq!(ledger.check().violations, 0);
    // As if one had been read and then forgotten. The receiving thread, which waits for more, adds nothing meanwhile.
    listener.meter.read.add(Amount::one(8));
    wait_for("the loss", || ledger.check().violations > 0);
    let snapshot = ledger.check();
    let hop = snapshot.hop(ledger::HopKind::Receive, "l", None).unwrap();
    assert_eq!((hop.in_flight.count, hop.unaccounted), (1, 1));
}

/// What two targets of one worker did.
#[derive(Default)]
struct Turns {
    busy: AtomicU32,
    /// Turns of the target that is always blocked, on a descriptor that is always ready.
    blocked: AtomicU32,
}

struct Always {
    turns: Arc<Turns>,
    ready: Option<OwnedFd>,
}

impl Pump for Always {
    fn name(&self) -> &str {
        "always"
    }

    fn pump(&mut self, _now_ns: u64, _claims_max: usize) -> Pumped {
        let (turns, pumped) = match self.ready {
            Some(_) => (&self.turns.blocked, Pumped::Blocked),
            None => (&self.turns.busy, Pumped::More),
        };
        turns.fetch_add(1, Ordering::Relaxed);
        pumped
    }

    fn blocked_on(&self) -> Option<BorrowedFd<'_>> {
        self.ready.as_ref().map(AsFd::as_fd)
    }

    fn keep_house(&mut self, _now_ns: u64) {}

    fn is_idle(&self) -> bool {
        false
    }

    fn head(&self) -> u64 {
        0
    }

    fn has_reached(&self, _end: u64) -> bool {
        false
    }

    fn has_outstanding(&mut self) -> bool {
        false
    }

    fn discard_until(&mut self, _end: u64, _reason: Reason) {}

    fn replace(&mut self, _destination: TargetKind, _gate: Option<Gate>) -> Replaced {
        Replaced::No
    }

    fn stop_at(&mut self, _end: u64) {}

    fn leave(&mut self) {}
}

fn targets_of(turns: &Arc<Turns>) -> Targets {
    let mut targets = Targets::default();
    for ready in [None, Some(UdpSocket::bind("127.0.0.1:0").unwrap())] {
        let ready = ready.map(OwnedFd::from);
        targets.add(Box::new(Always { turns: Arc::clone(turns), ready }));
    }
    targets
}

fn check_turns(turns: &Turns) {
    let [busy, blocked] = [&turns.busy, &turns.blocked].map(|count| count.load(Ordering::Relaxed));
    assert!(busy >= 1_000 && blocked + 2 >= busy, "{blocked} turns beside {busy} of the busy one");
}

#[test]
fn a_blocked_target_is_looked_at_in_each_turn_of_a_busy_one() {
    let turns = Arc::new(Turns::default());
    let stop = Arc::<StopState>::default();
    let (_commands, inbox) = mpsc::channel();
    let worker = Worker {
        targets: targets_of(&turns),
        commands: inbox,
        waker: Arc::new(Waker::new().unwrap()),
        stop: Arc::clone(&stop),
        ticks: Arc::default(),
        lifetime: Lifetime::Listener,
    };
    stop.deadline_ns.store(1, Ordering::Release);
    let thread = thread::spawn(move || worker.run());
    wait_for("a thousand turns", || turns.busy.load(Ordering::Relaxed) >= 1_000);
    stop.is_input_closed.store(true, Ordering::Release);
    thread.join().unwrap();
    check_turns(&turns);
}

/// Published datagrams do not wake a thread whose targets all wait for room. A command and the end do.
#[test]
fn a_thread_whose_targets_are_all_blocked_is_woken_by_calls_only() {
    let never = EventFd::new().unwrap();
    never.fill();
    let mut targets = Targets::default();
    targets.add(Box::new(Always {
        turns: Arc::default(),
        ready: Some(never.as_fd().try_clone_to_owned().unwrap()),
    }));
    let (waker, ticks) = (Arc::new(Waker::new().unwrap()), Arc::<AtomicU64>::default());
    let stop = Arc::<StopState>::default();
    stop.deadline_ns.store(1, Ordering::Release);
    let (_commands, inbox) = mpsc::channel();
    let worker = Worker {
        targets,
        commands: inbox,
        waker: Arc::clone(&waker),
        stop: Arc::clone(&stop),
        ticks: Arc::clone(&ticks),
        lifetime: Lifetime::Listener,
    };
    let thread = thread::spawn(move || worker.run());
    let ticks = || ticks.load(Ordering::Relaxed);
    wait_for("its first turns", || ticks() >= 2);

    let before = ticks();
    let begin = Instant::now();
    while ticks() < before + 4 {
        waker.wake();
        assert!(begin.elapsed() < DEADLINE);
    }
    assert!(begin.elapsed() >= HOUSEKEEPING_INTERVAL, "{:?} for four turns", begin.elapsed());

    stop.is_input_closed.store(true, Ordering::Release);
    waker.call();
    thread.join().unwrap();
}

#[test]
fn a_drain_looks_at_blocked_targets_in_each_turn_too() {
    let turns = Arc::new(Turns::default());
    let mut targets = targets_of(&turns);
    let deadline_ns = AtomicU64::new(u64::MAX);
    targets.drain(&deadline_ns, || {
        if turns.busy.load(Ordering::Relaxed) >= 1_000 {
            deadline_ns.store(1, Ordering::Release);
        }
    });
    check_turns(&turns);
}

#[test]
fn a_growth_that_fails_leaves_the_one_socket_read_and_counted() {
    let ledger = Arc::new(Ledger::new("test".into()));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let mut listener =
        Listener::start(listener_options("l"), OwnedFd::from(socket), Vec::new(), &ledger).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let received = || ledger.snapshot().hop(ledger::HopKind::Receive, "l", None).unwrap().received;

    let mut open = || {
        Ok((
            sys::socket::Joining::open(addr, &sys::socket::ListenOptions::default())?,
            crate::Receive::Single,
        ))
    };
    let ring_bytes = std::mem::replace(&mut listener.options.ring_bytes, usize::MAX / 4);
    for sent in 1..=100 {
        let failed = listener.set_sockets(4, &mut open, &mut || ());
        assert!(matches!(failed, Err(Error::NoMemory { .. })), "{failed:?}");
        assert_eq!(listener.socket_count(), 1);
        sender.send_to(b"still read", addr).unwrap();
        wait_for("the datagram", || received().count == sent);
    }

    // Failing to open a socket leaves the existing ones alone.
    listener.options.ring_bytes = ring_bytes;
    let mut refused = || Err(std::io::Error::from_raw_os_error(24));
    assert!(listener.set_sockets(3, &mut refused, &mut || ()).is_err());
    listener.set_sockets(2, &mut open, &mut || ()).unwrap();
    sender.send_to(b"by two", addr).unwrap();
    wait_for("the datagram", || received().count == 101);

    let begin = Instant::now();
    listener.begin_stop(begin + DEADLINE);
    listener.finish_stop();
    assert!(begin.elapsed() < DEADLINE / 2, "no seat is left that nobody closes");
    assert_eq!(ledger.check().unaccounted(), 0);
}

#[test]
fn a_violation_that_the_receiving_thread_sees_is_counted() {
    let ledger = Arc::new(Ledger::new(String::new()));
    let (listener, sender) = start(&ledger);
    sender.send(b"datagram").unwrap();
    wait_for("the datagram", || listener.meter.receive.delivered.load().count == 1);
    assert_eq!(ledger.check().violations, 0);
    // As if a claim had been empty. The receiving thread of one socket does not count here.
    listener.meter.violations.add(1);
    wait_for("the violation", || ledger.check().violations > 0);
    assert_eq!(ledger.check().violations, 1);
}

#[test]
fn what_members_gave_and_nobody_merged_is_seen() {
    let meter = ListenerMeter::new("l".into(), None, Default::default());
    let unaccounted = || {
        let mut hops = Vec::new();
        meter.read(&mut hops);
        hops.iter().map(|hop| hop.unaccounted).sum::<i64>()
    };
    meter.check_merge(0);
    assert_eq!(unaccounted(), 0);
    meter.check_merge(2);
    assert_eq!(unaccounted(), 2);
}
