//! The kernel behind a simulated UDP socket: it takes, refuses, blocks, is interrupted, takes a part, rejects runs, keeps an
//! error queue, and loses what waits for a neighbor that does not answer. It knows what became of every datagram.

use super::Random;
use crate::outlet::UdpKernel;
use crate::path::Path;
use ledger::Amount;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use sys::errqueue::Returned;
use sys::route::{Egress, Neighbour};
use sys::send::{Insert, Message, SEGMENTS_MAX};
use sys::{Errno, Source};

const OWN: &str = "10.9.0.1:5000";
const OTHER: &str = "10.9.0.2:9";

/// Minimum and maximum time for which a neighbor is resolved before it counts as failed.
const ASKED_NS: (u64, u64) = (300_000_000, 900_000_000);

/// Minimum time for which a neighbor that answered stays known.
const PROBED_NS: u64 = 1_000_000_000;

/// Where a target is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// On this host: a closed port answers each message before the next one.
    Local,
    /// Behind a device that keeps datagrams for long, with forged reports arriving.
    Slow,
    /// Behind a neighbor that comes and goes.
    Flaky,
}

/// What became of the datagrams of one target, over all its sockets.
#[derive(Default)]
pub(super) struct Wire {
    /// Datagrams taken, in order.
    pub(super) taken: Vec<Vec<u8>>,
    /// Datagrams that a closed port on this host refused.
    pub(super) refused: Amount,
    /// Datagrams that waited for a neighbor when it failed.
    pub(super) purged: Amount,
    /// Upper bound for those: everything since the socket was last seen with nothing outstanding.
    pub(super) purged_max: Amount,
    /// Reports from elsewhere, including forged ones. Each may count for one datagram.
    pub(super) reports: u64,
    /// The places of its sockets.
    pub(super) was: Vec<Place>,
    /// Nobody waited for what was in flight.
    pub(super) was_given_up: bool,
    /// No more faults: the end of the run.
    pub(super) is_calm: bool,
}

pub(super) struct FakeKernel {
    random: Random,
    clock: Arc<AtomicU64>,
    pub(super) wire: Arc<Mutex<Wire>>,
    pub(super) path: Path,
    place: Place,
    /// One in this many calls goes wrong in some way.
    trouble_one_in: u64,
    datagram_bytes_max: usize,
    takes_runs: bool,
    is_closed: bool,
    errors: VecDeque<Returned>,
    /// The error that the next call reports instead of sending.
    pending: Option<Errno>,
    /// Waits for the neighbor, which is being resolved until `asked_until_ns`.
    waiting: Amount,
    asked_until_ns: Option<u64>,
    is_dead: bool,
    /// When the neighbor last answered.
    known_ns: u64,
    /// Taken since the outlet last saw nothing outstanding.
    since_idle: Amount,
    /// The same, before it last saw that.
    idle_last: Amount,
    was_purged: bool,
    /// The device holds something until then.
    busy_until_ns: u64,
    /// Events that the kernel has not reported yet.
    untold: VecDeque<Neighbour>,
}

impl FakeKernel {
    pub(super) fn new(
        mut random: Random,
        clock: Arc<AtomicU64>,
        wire: Arc<Mutex<Wire>>,
    ) -> FakeKernel {
        let place = [Place::Local, Place::Slow, Place::Flaky][random.below(3) as usize];
        let path = match place {
            Place::Local => Path::fixed(&Egress { is_local: true, ..Egress::default() }),
            Place::Slow | Place::Flaky => Path::told(),
        };
        {
            let mut wire = wire.lock().unwrap();
            wire.was.push(place);
        }
        FakeKernel {
            trouble_one_in: 2 + random.below(20),
            datagram_bytes_max: 1 + random.below(300) as usize,
            takes_runs: !random.one_in(4),
            random,
            clock,
            wire,
            path,
            place,
            is_closed: false,
            errors: VecDeque::new(),
            pending: None,
            waiting: Amount::default(),
            asked_until_ns: None,
            is_dead: false,
            known_ns: 0,
            since_idle: Amount::default(),
            idle_last: Amount::default(),
            was_purged: false,
            busy_until_ns: 0,
            untold: VecDeque::new(),
        }
    }

    /// Gives a turn to the thread that hears events: it reports what there is, then answers lookups.
    pub(super) fn tell(&mut self) {
        self.pass();
        for neighbour in self.untold.drain(..) {
            self.path.tell(neighbour);
        }
        if self.path.is_asked()
            && matches!(self.path.neighbour(), Neighbour::Unknown | Neighbour::Awaited)
        {
            self.path.tell(match (self.asked_until_ns, self.is_dead) {
                (Some(_), _) => Neighbour::Awaited,
                (None, true) => Neighbour::Unknown,
                (None, false) => Neighbour::Known,
            });
        }
        self.path.answer();
    }

    /// Triggers an event at the target that its socket has no part in.
    pub(super) fn happen(&mut self) {
        let is_calm = self.wire.lock().unwrap().is_calm;
        match self.place {
            Place::Local => self.is_closed = !is_calm && !self.is_closed,
            Place::Slow => {}
            Place::Flaky if self.is_dead || is_calm => self.revive(),
            // The entry is probed for seconds first.
            Place::Flaky if self.now_ns() < self.known_ns + PROBED_NS => {}
            Place::Flaky => self.die(),
        }
    }

    /// Lets the neighbor die: an entry known for seconds is probed, fails, and is reported before anything waits for it.
    fn die(&mut self) {
        // Lookups take milliseconds.
        self.tell();
        self.is_dead = true;
        if self.path.neighbour() == Neighbour::Known {
            self.path.tell(Neighbour::Failed);
            // What was on its way to the dying neighbor may be taken for lost if the outlet did not look in between.
            self.was_purged = true;
        }
    }

    /// Records that what still waits may be taken for lost.
    pub(super) fn note_given_up(&mut self) {
        if self.place == Place::Flaky {
            let mut wire = self.wire.lock().unwrap();
            wire.purged_max += self.since_idle + self.idle_last;
            wire.was_given_up |= self.path.is_asked() || !self.waiting.is_zero();
        }
    }

    fn revive(&mut self) {
        self.pass();
        if std::mem::take(&mut self.is_dead) {
            self.asked_until_ns = None;
            self.waiting = Amount::default();
            self.untold.push_back(Neighbour::Known);
            self.known_ns = self.now_ns();
        }
    }

    /// Lets time pass: a neighbor resolved for long enough has failed, and what waited for it is gone.
    fn pass(&mut self) {
        if self.asked_until_ns.is_none_or(|until_ns| self.now_ns() < until_ns) {
            return;
        }
        self.asked_until_ns = None;
        self.wire.lock().unwrap().purged += std::mem::take(&mut self.waiting);
        self.was_purged = true;
        self.untold.push_back(Neighbour::Failed);
        for _ in 0..self.random.below(3) {
            self.report(Errno::HOSTUNREACH, (3, 1), OWN);
        }
    }

    fn report(&mut self, errno: Errno, (icmp_type, icmp_code): (u8, u8), offender: &str) {
        let offender = Source::from(offender.parse::<SocketAddr>().unwrap());
        self.errors.push_back(Returned { errno, is_local: false, icmp_type, icmp_code, offender });
        self.pending = Some(errno);
    }

    fn fault(&mut self, first: &Message<'_>) -> Option<Errno> {
        let errnos = [
            Errno::AGAIN,
            Errno::INTR,
            Errno::NOBUFS,
            Errno::PERM,
            Errno::NETDOWN,
            Errno::NOMEM,
            Errno::MSGSIZE,
            Errno::INVAL,
        ];
        let datagram_bytes = usize::from(first.datagram_bytes);
        if first.datagrams > 1 && (!self.takes_runs || datagram_bytes > self.datagram_bytes_max) {
            return Some([Errno::INVAL, Errno::IO, Errno::MSGSIZE][self.random.below(3) as usize]);
        }
        let is_calm = self.wire.lock().unwrap().is_calm;
        (!is_calm && self.random.one_in(self.trouble_one_in))
            .then(|| errnos[self.random.below(errnos.len() as u64) as usize])
    }

    /// Takes one message.
    fn take(&mut self, message: &Message<'_>) {
        let amount =
            Amount { count: u64::from(message.datagrams), bytes: message.bytes.len() as u64 };
        assert!(message.datagrams as usize <= SEGMENTS_MAX, "segments of one message");
        assert_eq!(message.datagrams().count(), message.datagrams as usize);
        self.wire.lock().unwrap().taken.extend(message.datagrams().map(<[u8]>::to_vec));
        self.since_idle += amount;
        match self.place {
            Place::Local if self.is_closed => {
                self.wire.lock().unwrap().refused += amount;
                self.report(Errno::CONNREFUSED, (3, 3), OWN);
            }
            Place::Local => {}
            Place::Slow => self.take_slowly(),
            Place::Flaky if self.is_dead => {
                self.waiting += amount;
                let (least, most) = ASKED_NS;
                let until_ns = self.now_ns() + least + self.random.below(most - least);
                self.asked_until_ns.get_or_insert(until_ns);
            }
            Place::Flaky => {}
        }
    }

    fn take_slowly(&mut self) {
        if self.random.one_in(8) {
            self.busy_until_ns = self.now_ns() + self.random.below(400_000_000);
        }
        if self.random.one_in(16) {
            self.wire.lock().unwrap().reports += 1;
            self.report(Errno::CONNREFUSED, (3, 3), OTHER);
        }
        if self.random.one_in(32) {
            // Forged: our own stack has nothing to report.
            self.report(Errno::HOSTUNREACH, (3, 1), OWN);
        }
    }
}

impl UdpKernel for FakeKernel {
    fn send_from(
        &mut self,
        messages: &[Message<'_>],
        source_of: &dyn Fn(usize) -> Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        // Called for each message, whatever becomes of it.
        assert!((0..messages.len()).filter_map(source_of).all(|source| source.is_ipv4()));
        self.send(messages)
    }

    fn send_with<'a>(
        &mut self,
        messages: &[Message<'_>],
        insert_of: &dyn Fn(usize) -> Insert<'a>,
    ) -> Result<usize, Errno> {
        for (at, message) in messages.iter().enumerate() {
            let insert = insert_of(at);
            assert!(
                message.datagrams == 1 && insert.at + insert.replaced_bytes <= message.bytes.len()
            );
        }
        self.send(messages)
    }

    fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno> {
        self.pass();
        if let Some(errno) = self.pending.take() {
            return Err(errno);
        }
        let is_calm = self.wire.lock().unwrap().is_calm;
        let mut count = messages.len();
        if !is_calm && self.random.one_in(4) {
            count = 1 + self.random.below(count as u64) as usize;
        }
        for (index, message) in messages[..count].iter().enumerate() {
            // The error of a later message is forgotten, but its entry in the queue is not.
            let error = self.pending.take().or_else(|| self.fault(message));
            match error {
                Some(errno) if index == 0 => return Err(errno),
                Some(_) => return Ok(index),
                None => self.take(message),
            }
        }
        Ok(count)
    }

    fn take_returned(&mut self) -> Option<Returned> {
        self.pass();
        let returned = self.errors.pop_front();
        self.pending = self.errors.front().map(|next| next.errno);
        returned
    }

    fn has_nothing_outstanding(&mut self) -> bool {
        self.pass();
        let is_idle = self.waiting.is_zero() && self.now_ns() >= self.busy_until_ns;
        if is_idle {
            self.idle_last = std::mem::take(&mut self.since_idle);
            if std::mem::take(&mut self.was_purged) {
                self.wire.lock().unwrap().purged_max += self.idle_last;
            }
        }
        is_idle
    }

    fn datagram_bytes_max(&self) -> usize {
        self.datagram_bytes_max
    }

    fn own_address(&self) -> Option<Source> {
        Some(Source::from(OWN.parse::<SocketAddr>().unwrap()))
    }

    fn now_ns(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
