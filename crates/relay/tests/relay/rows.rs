//! Targets that copy datagrams out of the ring: what arrives, what a receiver without room costs and whom, and the effects of a
//! panic, of a change, and of the stop.

use crate::support::{Bench, change, named, options, sink, target, udp_to};
use ledger::{HopKind, Ledger, Reason, Snapshot};
use relay::{
    Datagram, Flushed, Listener, RowTarget, Schedule, Taken, TargetChange, TargetKind,
    TargetOptions,
};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sys::poll::EventFd;
use testkit::{DEADLINE, TempDir, wait_for};

const BOTH: [Schedule; 2] = [Schedule::Inline, Schedule::Threaded];

/// What receivers got, and what they may take.
struct Memory {
    ready: EventFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rows: Vec<Row>,
    flushed: usize,
    room: usize,
    /// How often there was no room.
    refusals: u64,
    /// The number on which receivers panic.
    cursed: Option<u64>,
    /// Receivers that were dropped, and rows not flushed at that time.
    dropped: (usize, usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    bytes: Vec<u8>,
    source: Option<SocketAddr>,
    is_unknown: bool,
    received_unix_ns: u64,
}

impl Row {
    fn number(&self) -> u64 {
        u64::from_be_bytes(*self.bytes.first_chunk().unwrap())
    }
}

impl Memory {
    fn with_room(room: usize) -> Arc<Memory> {
        let state = Mutex::new(State { room, ..State::default() });
        Arc::new(Memory { ready: EventFd::new().unwrap(), state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_room(&self, room: usize) {
        self.state().room += room;
        self.ready.wake();
    }

    fn target(self: &Arc<Memory>) -> TargetKind {
        TargetKind::Rows(Box::new(Receiver(Arc::clone(self))))
    }

    fn numbers(&self) -> Vec<u64> {
        self.state().rows.iter().map(Row::number).collect()
    }

    fn wait_for_flushed(&self, count: usize) {
        let what = || format!("{count} rows flushed, of {}", self.state().flushed);
        wait_for(what, || (self.state().flushed == count).then_some(()));
    }
}

struct Receiver(Arc<Memory>);

impl RowTarget for Receiver {
    fn take(&mut self, datagram: &Datagram<'_>) -> Taken {
        self.0.ready.clear();
        let mut state = self.0.state();
        if state.room == 0 {
            state.refusals += 1;
            return Taken::Full;
        }

        let row = Row {
            bytes: datagram.bytes.to_vec(),
            source: datagram.source.address(),
            is_unknown: datagram.source.is_unknown(),
            received_unix_ns: datagram.received_unix_ns,
        };
        assert!(state.cursed.is_none_or(|cursed| cursed != row.number()), "as the test wants");
        state.room -= 1;
        state.rows.push(row);
        Taken::Yes
    }

    fn flush(&mut self) -> Flushed {
        let mut state = self.0.state();
        state.flushed = state.rows.len();
        Flushed::Yes
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.ready.as_fd())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.dropped = (state.dropped.0 + 1, state.rows.len() - state.flushed);
    }
}

fn send(bench: &Bench, numbers: std::ops::Range<u64>) {
    for number in numbers {
        bench.sender.send(&number.to_be_bytes()).unwrap();
    }
}

fn wait_for_delivered(bench: &Bench, name: &str, count: u64) {
    bench.wait_until("delivered", |snapshot| {
        target(snapshot, HopKind::Target, name).delivered.count == count
    });
}

#[test]
fn rows_have_every_byte_the_source_and_the_time() {
    for schedule in BOTH {
        let memory = Memory::with_room(usize::MAX);
        let (socket, addr) = sink();
        let targets = vec![(named("udp"), udp_to(addr)), (named("rows"), memory.target())];
        let mut bench = Bench::start(schedule, targets);
        let source = bench.sender.local_addr().unwrap();
        let payload = |n: u64| {
            let len = 8 + (n * 131 % 1_400) as usize;
            n.to_be_bytes().into_iter().cycle().take(len).collect::<Vec<_>>()
        };
        let before_ns = sys::clock::realtime_ns();
        let count = 5_000;
        for n in 0..count {
            bench.sender.send(&payload(n)).unwrap();
        }
        // Nothing more comes and nothing stops, but what was taken is still passed on.
        memory.wait_for_flushed(count as usize);
        let rows = memory.state().rows.clone();
        for (row, n) in rows.iter().zip(0..) {
            assert_eq!(row.bytes, payload(n));
            assert_eq!((row.source, row.is_unknown), (Some(source), false));
            assert!(before_ns <= row.received_unix_ns, "{row:?}");
            assert!(row.received_unix_ns <= sys::clock::realtime_ns(), "{row:?}");
        }
        let mut buffer = [0; 2_000];
        for n in 0..count {
            assert_eq!(socket.recv(&mut buffer).unwrap(), payload(n).len());
        }
        let last = bench.stop();
        let bytes = (0..count).map(|n| payload(n).len() as u64).sum::<u64>();
        for hop in [HopKind::Target, HopKind::Egress] {
            let hop = target(&last, hop, "rows");
            assert_eq!((hop.delivered.count, hop.delivered.bytes), (count, bytes));
        }
        assert_eq!(memory.state().dropped, (1, 0));
    }
}

#[test]
fn a_row_of_a_unix_socket_has_no_source() {
    let folder = TempDir::new();
    let path = folder.path().join("socket");
    let socket = sys::socket::listen_unix(&path).unwrap();
    let ledger = Arc::new(Ledger::new("test".into()));
    let memory = Memory::with_room(usize::MAX);
    let targets = vec![(named("rows"), memory.target())];
    let listener = Listener::start(options(Schedule::Inline), socket, targets, &ledger).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.send_to(&7_u64.to_be_bytes(), &path).unwrap();
    memory.wait_for_flushed(1);
    let row = memory.state().rows[0].clone();
    assert_eq!((row.number(), row.source, row.is_unknown), (7, None, false));
    listener.finish_stop();
}

#[test]
fn a_receiver_without_room_leaves_the_datagrams_in_the_ring() {
    for schedule in BOTH {
        let memory = Memory::with_room(10);
        let mut bench = Bench::start(schedule, vec![(named("rows"), memory.target())]);
        // Far fewer than the ring holds.
        send(&bench, 0..5_000);
        let hop = |snapshot: &Snapshot| target(snapshot, HopKind::Target, "rows").clone();
        bench.wait_until("all in the ring", |snapshot| hop(snapshot).received.count == 5_000);
        wait_for_delivered(&bench, "rows", 10);
        for room in [1, 100, 1_000] {
            let before = memory.numbers().len();
            memory.give_room(room);
            wait_for_delivered(&bench, "rows", (before + room) as u64);
        }
        memory.give_room(10_000);
        let last = bench.stop();
        assert_eq!(hop(&last).delivered.count, 5_000, "{schedule:?} {last:#?}");
        assert!(memory.numbers().into_iter().eq(0..5_000));
    }
}

/// More than the ring has descriptors for (65,536), so a receiver without room loses some to the ring.
const PACED: u64 = 100_000;
const PACED_PER_SEC: u32 = 40_000;

/// Sends at a rate that the listener can take, to a UDP target that reads all the time and to these. Returns how many arrived
/// there, in order, and the last ledger.
fn paced(schedule: Schedule, others: Vec<(TargetOptions, TargetKind)>) -> (u64, Snapshot) {
    let (socket, addr) = sink();
    let udp = (named("udp"), udp_to(addr));
    let targets = std::iter::once(udp).chain(others).collect();
    let mut bench = Bench::start(schedule, targets);

    let reader = std::thread::spawn(move || {
        let mut number = [0; 8];
        let mut next = || socket.recv(&mut number).map(|_| u64::from_be_bytes(number));
        (0..PACED).take_while(|n| next().is_ok_and(|number| number == *n)).count() as u64
    });
    let begin = Instant::now();
    for n in 0..PACED {
        let due = begin + Duration::from_secs(1) * n as u32 / PACED_PER_SEC;
        while Instant::now() < due {
            std::thread::yield_now();
        }
        send(&bench, n..n + 1);
    }
    let arrived = reader.join().unwrap();

    let listener = bench.listener.take().unwrap();
    listener.begin_stop(Instant::now() + Duration::from_millis(500));
    listener.finish_stop();
    let last = bench.ledger.check();
    assert!(last.is_balanced() && last.unaccounted() == 0, "{last:#?}");
    (arrived, last)
}

#[test]
fn a_receiver_that_never_has_room_harms_no_other_and_its_loss_is_exact() {
    for schedule in BOTH {
        let (arrived, last) = paced(schedule, vec![]);
        assert_eq!(arrived, PACED, "without it, {schedule:?} {last:#?}");

        let memory = Memory::with_room(0);
        let (arrived, last) = paced(schedule, vec![(named("rows"), memory.target())]);
        assert_eq!(arrived, PACED, "beside it, {schedule:?} {last:#?}");
        let hop = target(&last, HopKind::Target, "rows");
        let lost = hop.dropped_for(Reason::QueueFull) + hop.dropped_for(Reason::Shutdown);
        assert_eq!((lost.count, lost.bytes), (PACED, PACED * 8), "{hop:#?}");
        assert!(hop.dropped_for(Reason::QueueFull).count >= PACED - 65_536, "{hop:#?}");
        assert_eq!(memory.numbers().len(), 0);
    }
}

#[test]
fn a_panic_costs_its_datagram_and_a_second() {
    let memory = Memory::with_room(usize::MAX);
    let mut bench = Bench::start(Schedule::Threaded, vec![(named("rows"), memory.target())]);
    memory.state().cursed = Some(50);
    let begin = Instant::now();
    send(&bench, 0..100);
    wait_for_delivered(&bench, "rows", 99);
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
    let last = bench.stop();
    let hop = target(&last, HopKind::Target, "rows");
    assert_eq!(hop.dropped_for(Reason::SinkPanicked).count, 1, "{hop:#?}");
    assert!(memory.numbers().into_iter().eq((0..100).filter(|n| *n != 50)));
}

#[test]
fn a_changed_receiver_goes_on_where_it_is() {
    for schedule in BOTH {
        let memories: Vec<_> = (0..10).map(|_| Memory::with_room(usize::MAX)).collect();
        let mut bench = Bench::start(schedule, vec![(named("rows"), memories[0].target())]);
        for (round, memory) in (1..).zip(&memories[1..]) {
            send(&bench, (round - 1) * 100..round * 100);
            change(bench.listener(), TargetChange::Change(named("rows"), memory.target()));
            // The previous receiver has passed on what it took, and is gone.
            assert_eq!(memories[round as usize - 1].state().dropped, (1, 0));
        }
        send(&bench, 900..1_000);
        let last = bench.stop();
        assert_eq!(target(&last, HopKind::Target, "rows").delivered.count, 1_000);
        let numbers = memories.iter().flat_map(|memory| memory.numbers());
        assert!(numbers.eq(0..1_000), "{schedule:?}");
    }
}

#[test]
fn a_receiver_takes_a_sockets_place_and_a_socket_its() {
    let (first, first_addr) = sink();
    let (third, third_addr) = sink();
    let memory = Memory::with_room(usize::MAX);
    let mut bench = Bench::start(Schedule::Inline, vec![(named("t"), udp_to(first_addr))]);
    send(&bench, 0..100);
    bench.wait_until("the first hundred", |snapshot| {
        target(snapshot, HopKind::Egress, "t").delivered.count == 100
    });
    change(bench.listener(), TargetChange::Change(named("t"), memory.target()));
    send(&bench, 100..200);
    memory.wait_for_flushed(100);
    let changes = vec![TargetChange::Redirect("t".into(), udp_to(third_addr))];
    let changes = bench.listener().begin_changes(changes, DEADLINE);
    let results = bench.listener().finish_changes(changes, &mut || {});
    assert!(matches!(results[..], [Err(relay::Error::NotReplaceable { .. })]), "{results:?}");
    change(bench.listener(), TargetChange::Change(named("t"), udp_to(third_addr)));
    send(&bench, 200..300);
    bench.stop();
    assert!(memory.numbers().into_iter().eq(100..200));
    assert_eq!(memory.state().dropped, (1, 0));
    for (socket, numbers) in [(first, 0..100), (third, 200..300)] {
        for n in numbers {
            let mut number = [0; 8];
            socket.recv(&mut number).unwrap();
            assert_eq!(u64::from_be_bytes(number), n);
        }
    }
}

#[test]
fn a_removed_receiver_gets_what_the_ring_holds_for_it() {
    for schedule in BOTH {
        let memory = Memory::with_room(10);
        let mut bench = Bench::start(schedule, vec![(named("rows"), memory.target())]);
        send(&bench, 0..1_000);
        wait_for_delivered(&bench, "rows", 10);
        bench.wait_until("all in the ring", |snapshot| {
            snapshot.received_at(HopKind::Receive).count == 1_000
        });
        bench.listener().remove_target("rows", DEADLINE).unwrap();
        memory.give_room(10_000);
        wait_for("its end", || (memory.state().dropped.0 == 1).then_some(()));
        assert_eq!(memory.state().dropped, (1, 0));
        assert!(memory.numbers().into_iter().eq(0..1_000));
        bench.stop();
    }
}

#[test]
fn a_stop_waits_for_room_until_its_deadline() {
    for schedule in BOTH {
        let memory = Memory::with_room(10);
        let mut bench = Bench::start(schedule, vec![(named("rows"), memory.target())]);
        send(&bench, 0..1_000);
        wait_for_delivered(&bench, "rows", 10);
        let listener = bench.listener.take().unwrap();
        listener.begin_stop(Instant::now() + DEADLINE);
        bench.wait_until("all received", |snapshot| {
            target(snapshot, HopKind::Target, "rows").received.count == 1_000
        });
        memory.give_room(490);
        wait_for_delivered(&bench, "rows", 500);
        assert!(!listener.has_ended());
        listener.begin_stop(Instant::now());
        listener.finish_stop();
        let last = bench.ledger.check();
        assert!(last.is_balanced() && last.unaccounted() == 0, "{last:#?}");
        let hop = target(&last, HopKind::Target, "rows");
        assert_eq!((hop.delivered.count, hop.dropped_for(Reason::Shutdown).count), (500, 500));
        assert_eq!(memory.state().dropped, (1, 0));
    }
}

/// The gate must not decide again each time that there is no room.
#[test]
fn the_gate_is_asked_once_for_each_datagram() {
    let memory = Memory::with_room(0);
    let mut options = named("rows");
    // One passes, and the next a second later.
    options.rate_limit_per_sec = NonZeroU32::new(1);
    let mut bench = Bench::start(Schedule::Inline, vec![(options, memory.target())]);
    send(&bench, 0..1);
    wait_for("three refusals", || (memory.state().refusals >= 3).then_some(()));
    memory.give_room(1);
    let last = bench.stop();
    assert_eq!(target(&last, HopKind::Target, "rows").delivered.count, 1, "{last:#?}");
}
