//! Merges the rings of a listener's sockets into the listener's own ring.
//!
//! In order of arrival, the oldest datagram of all rings goes first, by the kernel's stamp. A member whose ring is empty may
//! still deliver an older datagram. So before one is sent, such a member must be known to be quiet: nothing in its ring, in its
//! socket or held by its thread, all checked after the datagram to be sent was seen. The kernel queues the datagrams of one flow
//! in the order of their stamps, so one check is enough, without waiting on the clock. Only a thread that is kept from running is
//! waited for, up to a limit in the options. What it delivers after that is out of order, and counted.

use crate::Order;
use crate::intake::Intake;
use crate::member::MemberState;
use crate::meter::{ListenerMeter, MemberMeter};
use crate::pump::Targets;
use crate::ring::{Claim, Reader};
use crate::socket::ListenSocket;
use ledger::{Amount, Reason};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use sys::poll::{Interest, PollSet};
use sys::socket::MEMBERS_MAX;

/// A member, as the merging thread sees it.
pub(crate) struct Seat {
    pub(crate) state: Arc<MemberState>,
    pub(crate) meter: Arc<MemberMeter>,
    pub(crate) socket: Arc<ListenSocket>,
    /// Arrival time of the newest datagram taken from it: the next one is not older.
    newest_ns: u64,
    /// Whether the merge has waited for it as long as the options allow and it has not moved since.
    is_given_up: bool,
}

impl Seat {
    pub(crate) fn new(
        state: Arc<MemberState>,
        meter: Arc<MemberMeter>,
        socket: Arc<ListenSocket>,
    ) -> Seat {
        Seat { state, meter, socket, newest_ns: 0, is_given_up: false }
    }
}

/// The merging thread's state about all members.
pub(crate) struct Merge {
    order: Order,
    readers: Vec<Reader>,
    /// One per reader, in the same order.
    seats: Vec<Seat>,
    /// Arrival time of the newest datagram that has left.
    newest_ns: u64,
    /// How far the wall clock was ahead of the monotonic clock.
    clock_offset_ns: Option<i64>,
    /// When the merge began to wait for a member that may deliver something older.
    waiting_since_ns: Option<u64>,
    set: PollSet,
}

/// A wall clock that falls back by more than this at once was set: slewing takes a second for half of it (adjtimex(2)).
const CLOCK_STEP_NS: i64 = 1_000_000;

/// Result of one pass over the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pulled {
    /// Datagrams were taken.
    Some,
    /// There are none.
    Nothing,
    /// There are some, which wait for what a member may deliver, for at most this long.
    Waits(Duration),
}

/// The claims of one pass, in the order of the readers.
type Claims<'a> = [Option<Claim<'a>>; MEMBERS_MAX];

impl Merge {
    pub(crate) fn new(order: Order) -> Merge {
        Merge {
            order,
            readers: Vec::new(),
            seats: Vec::new(),
            newest_ns: 0,
            clock_offset_ns: None,
            waiting_since_ns: None,
            set: PollSet::default(),
        }
    }

    /// Records how far the wall clock, which dates arrivals, is ahead of the monotonic clock. If the wall clock was set back,
    /// datagrams from here on only look older than those that have left.
    pub(crate) fn note_clock(&mut self, offset_ns: i64) {
        let former = self.clock_offset_ns.replace(offset_ns);
        if former.is_some_and(|former| former.saturating_sub(offset_ns) > CLOCK_STEP_NS) {
            self.newest_ns = 0;
            self.seats.iter_mut().for_each(|seat| seat.newest_ns = 0);
        }
    }

    pub(crate) fn add(&mut self, reader: Reader, seat: Seat) {
        self.readers.push(reader);
        self.seats.push(seat);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    pub(crate) fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Compares the counts with the cursors, and with each other.
    pub(crate) fn check_law(&self, listener: &ListenerMeter) {
        for (seat, reader) in self.seats.iter().zip(&self.readers) {
            seat.meter.check_law(reader);
        }
        let given = self.seats.iter().map(|seat| seat.meter.merged.delivered.load().count);
        listener.check_merge(given.sum());
    }

    /// Removes the members that have ended and whose rings are empty. Calls `removed` for each.
    pub(crate) fn remove_ended(&mut self, mut removed: impl FnMut(&Arc<MemberMeter>)) {
        for at in (0..self.seats.len()).rev() {
            // Checked first, so that what a member showed before it closed is visible then.
            if self.seats[at].state.is_closed() && self.readers[at].is_empty() {
                let seat = self.seats.remove(at);
                self.readers.remove(at).leave(&seat.meter.merged);
                removed(&seat.meter);
            }
        }
    }

    /// Counts what the rings of ended members still hold as dropped by the stop.
    pub(crate) fn discard_closed(&mut self) {
        for (seat, reader) in self.seats.iter().zip(&mut self.readers) {
            if seat.state.is_closed() {
                reader.discard_until(reader.head(), Reason::Shutdown, &seat.meter.merged);
            }
        }
    }

    /// Moves what may go into the ring of `intake`, from at most one claim per member.
    pub(crate) fn pull(
        &mut self,
        intake: &mut Intake,
        targets: &mut Targets,
        now_ns: u64,
    ) -> Pulled {
        // A rewound ring starts over in memory that is still in the processor's cache.
        intake.writer.rewind_if_empty(0);

        let mut turns = [Turn::Busy; MEMBERS_MAX];
        for (turn, seat) in turns.iter_mut().zip(&self.seats) {
            *turn = Turn::of(&seat.state);
        }

        let mut claims: Claims<'_> = [const { None }; MEMBERS_MAX];
        let readers = self.readers.iter_mut().zip(&self.seats);
        for (claim, (reader, seat)) in claims.iter_mut().zip(readers) {
            *claim = reader.claim(&seat.meter.merged);
        }
        let claims = &mut claims[..self.seats.len()];
        if claims.iter().all(Option::is_none) {
            self.waiting_since_ns = None;
            return Pulled::Nothing;
        }

        let mut sending = Sending {
            intake,
            targets,
            newest_ns: &mut self.newest_ns,
            accepted: Amount::default(),
        };
        let taken = match self.order {
            Order::None => sending.take_all(claims, &mut self.seats),
            Order::Arrival { wait } => {
                let mut watch = Watch {
                    seats: &mut self.seats,
                    set: &mut self.set,
                    turns: &turns,
                    waiting_since_ns: &mut self.waiting_since_ns,
                };
                let limit_ns = watch.limit_ns(claims);
                let taken = sending.take_oldest(claims, watch.seats, limit_ns);
                if taken == 0 {
                    match watch.patience(claims, now_ns, wait) {
                        Some(rest) => return Pulled::Waits(rest),
                        // Members that were waited for in vain do not hold up the next pass.
                        None => return Pulled::Some,
                    }
                }
                *watch.waiting_since_ns = None;
                taken
            }
        };

        let mut accepted = sending.accepted;
        intake.show(&mut accepted);
        if taken == 0 {
            // A claim covers a datagram at least. Whatever this one covers would stay where it is, uncounted.
            intake.meter.violations.add(1);
            return Pulled::Nothing;
        }
        Pulled::Some
    }
}

/// What a member's thread was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// It held nothing, at this turn number.
    Idle(u64),
    /// It may have held something.
    Busy,
    /// It had ended.
    Closed,
}

impl Turn {
    fn of(state: &MemberState) -> Turn {
        if state.is_closed() {
            return Turn::Closed;
        }
        match state.turns.load() {
            turn if turn & 1 == 0 => Turn::Idle(turn),
            _ => Turn::Busy,
        }
    }
}

/// How far datagrams may go while members are empty.
struct Watch<'a> {
    seats: &'a mut [Seat],
    set: &'a mut PollSet,
    /// The members' turns before the claims.
    turns: &'a [Turn; MEMBERS_MAX],
    waiting_since_ns: &'a mut Option<u64>,
}

impl Watch<'_> {
    /// Arrival time up to which nothing older can come.
    fn limit_ns(&mut self, claims: &[Option<Claim<'_>>]) -> u64 {
        self.set.clear();
        for (at, (seat, claim)) in self.seats.iter_mut().zip(claims).enumerate() {
            seat.is_given_up &= claim.is_none();
            if claim.is_none() && matches!(self.turns[at], Turn::Idle(_)) {
                self.set.add(seat.socket.as_fd(), Interest::Readable);
            }
        }

        // An interrupted check proves nothing.
        let is_looked = self.set.wait(Duration::ZERO).is_ok();
        let mut limit_ns = u64::MAX;
        let mut in_set = 0;

        for (at, (seat, claim)) in self.seats.iter_mut().zip(claims).enumerate() {
            if claim.is_some() {
                continue;
            }
            let is_quiet = match self.turns[at] {
                Turn::Closed => true,
                Turn::Busy => false,
                Turn::Idle(turn) => {
                    let has_queued = self.set.is_ready(in_set);
                    in_set += 1;
                    is_looked && !has_queued && seat.state.turns.load_again() == turn
                }
            };
            if is_quiet {
                seat.is_given_up = false;
            } else if !seat.is_given_up {
                limit_ns = limit_ns.min(seat.newest_ns);
            }
        }
        limit_ns
    }

    /// How much longer the datagrams may wait. `None` when they must go.
    fn patience(
        &mut self,
        claims: &[Option<Claim<'_>>],
        now_ns: u64,
        wait: Duration,
    ) -> Option<Duration> {
        let since_ns = *self.waiting_since_ns.get_or_insert(now_ns);
        let waited = Duration::from_nanos(now_ns.saturating_sub(since_ns));
        // Waiting datagrams must not be lost for the sake of order.
        let is_full = claims.iter().flatten().any(Claim::fills_half);
        if waited < wait && !is_full {
            return Some(wait - waited);
        }

        *self.waiting_since_ns = None;
        for (seat, claim) in self.seats.iter_mut().zip(claims) {
            seat.is_given_up |= claim.is_none();
        }
        None
    }
}

/// Moves datagrams from claims into the listener's ring.
struct Sending<'a> {
    intake: &'a mut Intake,
    targets: &'a mut Targets,
    newest_ns: &'a mut u64,
    accepted: Amount,
}

impl Sending<'_> {
    /// Takes everything, member by member.
    fn take_all(&mut self, claims: &mut [Option<Claim<'_>>], seats: &mut [Seat]) -> usize {
        let mut taken = 0;
        for (claim, seat) in claims.iter_mut().zip(seats) {
            if let Some(mut claim) = claim.take() {
                taken += self.take_run(&mut claim, 0, u64::MAX, seat);
            }
        }
        taken
    }

    /// Takes the oldest datagram of all claims, repeatedly, until one claim is used up or the rest is newer than `limit_ns`.
    fn take_oldest(
        &mut self,
        claims: &mut [Option<Claim<'_>>],
        seats: &mut [Seat],
        limit_ns: u64,
    ) -> usize {
        let mut taken = 0;
        // Arrival time of each claim's next datagram, and its position in the claim.
        let mut next = [(u64::MAX, 0); MEMBERS_MAX];
        for (next, claim) in next.iter_mut().zip(claims.iter()) {
            if let Some(claim) = claim {
                *next = (claim.get(0).0.times.received_unix_ns, 0);
            }
        }

        loop {
            let (mut oldest, mut first_ns, mut second_ns) = (0, u64::MAX, u64::MAX);
            for (at, (arrived_ns, _)) in next[..claims.len()].iter().enumerate() {
                if *arrived_ns < first_ns {
                    (oldest, second_ns, first_ns) = (at, first_ns, *arrived_ns);
                } else {
                    second_ns = second_ns.min(*arrived_ns);
                }
            }
            if first_ns == u64::MAX || first_ns > limit_ns {
                return taken;
            }

            let Some(claim) = &mut claims[oldest] else { return taken };
            let begin = next[oldest].1;
            let run = self.take_run(claim, begin, second_ns.min(limit_ns), &mut seats[oldest]);
            taken += run;
            if begin + run == claim.len() {
                return taken;
            }
            next[oldest] = (claim.get(begin + run).0.times.received_unix_ns, begin + run);
        }
    }

    /// Takes the datagrams of a claim from `begin` on that arrived up to `until_ns`; always at least the first.
    fn take_run(
        &mut self,
        claim: &mut Claim<'_>,
        begin: usize,
        until_ns: u64,
        seat: &mut Seat,
    ) -> usize {
        let mut end = begin;
        let mut amount = Amount::default();

        while end < claim.len() {
            let (descriptor, bytes) = claim.get(end);
            let stamp_ns = descriptor.times.received_unix_ns;
            if end > begin && stamp_ns > until_ns {
                break;
            }

            if stamp_ns < *self.newest_ns {
                self.intake.meter.overtaken.add(1);
            }
            *self.newest_ns = stamp_ns.max(*self.newest_ns);
            seat.newest_ns = stamp_ns;

            // Counted before it is dropped or taken in, like datagrams read from a socket.
            let one = Amount::one(bytes.len());
            self.intake.meter.merged.add(one);
            amount += one;
            let (intake, targets) = (&mut *self.intake, &mut *self.targets);
            intake.store(descriptor.source, descriptor.times, bytes, &mut self.accepted, targets);
            end += 1;
        }

        // Before `advance`, which lets the writer overwrite what was taken.
        seat.meter.merged.delivered.add(amount);
        claim.advance(end);
        end - begin
    }
}
