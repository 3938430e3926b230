//! Several sockets of one listener: adding and removing them, down to a single one, while datagrams arrive.

use super::Listener;
use super::place::thread_name;
use crate::arrivals::Arrivals;
use crate::inlet::Inlet;
use crate::intake::{Admission, Intake};
use crate::member::{Closing, Member, MemberState};
use crate::merge::{Merge, Seat};
use crate::meter::{ListenerMeter, MemberMeter};
use crate::receiver::Request;
use crate::ring::{Writer, ring};
use crate::socket::CountedDrops;
use crate::thread_time::ReadingTime;
use crate::{Error, ListenSocket, Order, RING_BYTES_MIN, Receive, SocketOwner};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::clock::{Clock, monotonic_ns};
use sys::gro;
use sys::recv::{ReceiveBatch, Stamps};
use sys::socket::{Balance, Joining};

/// How long the kernel may take to begin stamping arrivals.
const STAMPS_WAIT: Duration = Duration::from_secs(1);
/// How long threads may take to carry out a request.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How long a socket's thread may take to read what came before arrivals were stamped.
const CATCH_UP_WAIT: Duration = Duration::from_secs(1);
/// Time between two calls of `keep_alive` while waiting.
const LIFE_INTERVAL: Duration = Duration::from_millis(10);

/// One of several sockets, and the thread that reads it.
pub(super) struct MemberHandle {
    state: Arc<MemberState>,
    pub(super) meter: Arc<MemberMeter>,
    pub(super) socket: Arc<ListenSocket>,
    ticks: Arc<AtomicU64>,
    pub(super) thread: JoinHandle<Option<Box<Inlet>>>,
}

/// The parts of a member whose creation can fail.
struct Prepared {
    place: usize,
    name: String,
    writer: Writer,
    /// Starts the member's thread, which waits for its work here.
    start: mpsc::Sender<(Member, Closing)>,
    thread: JoinHandle<Option<Box<Inlet>>>,
}

/// Memory of each member's ring in bytes, for a listener whose ring has `ring_bytes`.
pub(crate) fn member_ring_bytes(ring_bytes: usize, sockets: usize) -> usize {
    (ring_bytes / sockets.max(1)).next_power_of_two().max(RING_BYTES_MIN)
}

impl Listener {
    /// Number of sockets that the listener reads.
    pub fn socket_count(&self) -> usize {
        self.members.len().max(1)
    }

    /// All its sockets, the first one first.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let more = self.members.iter().skip(1).map(|member| member.socket.as_fd());
        std::iter::once(self.socket.as_fd()).chain(more)
    }

    /// How each thread that reads a socket spent its time, the first socket's thread first.
    pub fn reading_times(&self) -> Vec<ReadingTime> {
        if self.members.is_empty() {
            return vec![self.time.look()];
        }
        self.members.iter().map(|member| member.state.time.look()).collect()
    }

    /// Sets how several sockets share what arrives, and in which order it leaves. Has no effect while the listener has several
    /// sockets.
    pub fn spread_by(&mut self, balance: Balance, order: Order) {
        if self.members.is_empty() {
            (self.options.balance, self.options.order) = (balance, order);
        }
    }

    /// Reads `count` sockets of its port from now on, 1 to [`sys::socket::MEMBERS_MAX`]. `open` opens additional ones;
    /// `keep_alive` is called several times a second while threads are awaited. Nothing is lost, and the order is kept if the
    /// options ask for it.
    ///
    /// # Errors
    /// A socket or a thread cannot be created, or threads do not answer. The listener then keeps the sockets that it got.
    pub fn set_sockets(
        &mut self,
        count: usize,
        open: &mut dyn FnMut() -> io::Result<(Joining, Receive)>,
        keep_alive: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        match count.cmp(&self.socket_count()) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => self.grow(count, open, keep_alive),
            std::cmp::Ordering::Less => self.shrink(count, keep_alive),
        }
    }

    /// A listener that reads these bound sockets in addition to its own, each with the kernel's drop count from before.
    ///
    /// # Errors
    /// A thread or memory cannot be had. The sockets are then left as they are.
    pub(super) fn with_sockets(
        mut self,
        more: impl ExactSizeIterator<Item = (ListenSocket, CountedDrops)>,
    ) -> Result<Listener, Error> {
        if more.len() == 0 {
            return Ok(self);
        }

        let count = more.len() + 1;
        let begin = || {
            self.begin_group(count, &mut || ())?;
            for (socket, before) in more {
                let inlet = self.inlet(Arc::new(socket), SocketOwner::Relay);
                self.add_member(inlet, before, count, &mut || ())?;
            }
            self.spread(count)
        };
        match begin() {
            Ok(()) => Ok(self),
            Err(error) => {
                self.stop.keeps_socket.store(true, Ordering::Release);
                Err(error)
            }
        }
    }

    fn grow(
        &mut self,
        count: usize,
        open: &mut dyn FnMut() -> io::Result<(Joining, Receive)>,
        keep_alive: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        if self.members.is_empty() {
            self.begin_group(count, keep_alive)?;
        }

        let opened = self.open_members(count, open, keep_alive);
        // The sockets that are there get their share, whatever became of the others.
        opened.and(self.spread(self.members.len()))
    }

    fn open_members(
        &mut self,
        count: usize,
        open: &mut dyn FnMut() -> io::Result<(Joining, Receive)>,
        keep_alive: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        for _ in self.members.len()..count {
            let (joining, receive) = open().map_err(self.failed("opening one more socket"))?;
            let socket = joining.socket().map_err(self.failed("duplicating a socket"))?;
            self.stamp(socket.as_fd())?;
            let socket = ListenSocket::new(socket, receive);
            let inlet = self.inlet(Arc::new(socket), SocketOwner::Relay);
            // It is read and merged before anything arrives at it, so its first datagrams are as recent as those of the others.
            self.add_member(inlet, CountedDrops::default(), count, keep_alive)?;
            if let Err(source) = joining.bind() {
                let failed = self.failed("binding one more socket")(source);
                self.remove_last_member(keep_alive)?;
                return Err(failed);
            }
        }
        Ok(())
    }

    /// Moves the only socket to a thread of its own, and merges what that reads. If this fails, the socket is read as before.
    fn begin_group(&mut self, count: usize, keep_alive: &mut dyn FnMut()) -> Result<(), Error> {
        // First what can fail: the socket is still unchanged then, and it is never without a reader.
        let prepared = self.prepare_member(count)?;
        sys::socket::share_port(self.socket.as_fd()).map_err(self.failed("sharing the port"))?;
        self.stamp(self.socket.as_fd())?;
        if self.is_ordered() {
            // Without the kernel's stamps datagrams carry the time of their reading, which orders them almost as well.
            keep_alive();
            sys::socket::await_stamps(STAMPS_WAIT);
        }

        let (reply, answer) = mpsc::sync_channel(0);
        self.request(Request::Spread { merge: Box::new(Merge::new(self.options.order)), reply })?;
        let mut inlet = self.answer(&answer, keep_alive)?;
        inlet.stamps = self.stamps();
        let before = self.meter.hand_over();

        if let Err((inlet, error)) = self.enter(prepared, inlet, before, keep_alive) {
            self.return_to_one(inlet, before, keep_alive)?;
            return Err(error);
        }

        // Datagrams from before stamping carry the time of their reading, which is later than the arrival times that others get.
        let first = Arc::clone(&self.members[0].state);
        wait_until(CATCH_UP_WAIT, keep_alive, || first.has_caught_up.load(Ordering::Acquire));
        Ok(())
    }

    fn is_ordered(&self) -> bool {
        self.options.order != Order::None
    }

    fn stamps(&self) -> Stamps {
        if self.is_ordered() { Stamps::Wanted } else { Stamps::Unwanted }
    }

    fn stamp(&self, socket: BorrowedFd<'_>) -> Result<(), Error> {
        if !self.is_ordered() {
            return Ok(());
        }
        sys::socket::stamp_arrivals(socket, Stamps::Wanted)
            .map_err(self.failed("asking for times of arrival"))
    }

    fn inlet(&self, socket: Arc<ListenSocket>, owner: SocketOwner) -> Box<Inlet> {
        Box::new(Inlet {
            socket,
            owner,
            arrivals: Arrivals::new(None),
            asks_for_sources: Arc::clone(&self.asks_for_sources),
            stamps: self.stamps(),
            batch: ReceiveBatch::default(),
            clock: Clock::default(),
        })
    }

    /// Adds a socket with a thread of its own. Its ring is being merged when this returns.
    fn add_member(
        &mut self,
        inlet: Box<Inlet>,
        before: CountedDrops,
        count: usize,
        keep_alive: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        let prepared = self.prepare_member(count)?;
        self.enter(prepared, inlet, before, keep_alive).map_err(|(_, error)| error)
    }

    /// Creates what can fail: the member's ring, and a thread that waits for the rest.
    fn prepare_member(&self, count: usize) -> Result<Prepared, Error> {
        let place = self.members.len();
        let name = format!("{}-{place}", self.options.name);
        let bytes = member_ring_bytes(self.options.ring_bytes, count.max(self.options.sockets_max));
        let no_memory = |_| Error::NoMemory { name: self.options.name.clone(), bytes };
        let writer = ring(bytes).map_err(no_memory)?;

        let (start, begins) = mpsc::channel::<(Member, Closing)>();
        let cpus = self.options.cpus.in_turn(place);
        let thread = thread::Builder::new()
            .name(thread_name("rx", &name))
            .spawn(move || {
                let _ = cpus.bind_this_thread();
                let (member, _closing) = begins.recv().ok()?;
                Some(member.run())
            })
            .map_err(self.failed("starting a receiving thread"))?;
        Ok(Prepared { place, name, writer, start, thread })
    }

    /// Starts merging the ring, and then reading the socket into it. Returns the socket if the receiving thread does not answer.
    fn enter(
        &mut self,
        prepared: Prepared,
        inlet: Box<Inlet>,
        before: CountedDrops,
        keep_alive: &mut dyn FnMut(),
    ) -> Result<(), (Box<Inlet>, Error)> {
        let Prepared { place, name, mut writer, start, thread } = prepared;
        let socket = Arc::clone(&inlet.socket);
        let own = Arc::new(ListenerMeter::new(name, Some(Arc::clone(&socket)), before));
        let meter = Arc::new(MemberMeter::new(place, Arc::clone(&own), writer.capacity()));
        let reader = writer.reader(Arc::clone(&meter.lost));
        let (state, ticks) = (Arc::<MemberState>::default(), Arc::<AtomicU64>::default());

        let (reply, answer) = mpsc::channel();
        let seat = Seat::new(Arc::clone(&state), Arc::clone(&meter), Arc::clone(&socket));
        let closing = Closing { state: Arc::clone(&state), waker: Arc::clone(&self.waker) };
        let entered = self.request(Request::Enter { reader, seat, reply });
        if let Err(error) = entered.and_then(|()| self.answer(&answer, keep_alive)) {
            // If it is seated after all, it delivers nothing and is dropped, because of `closing`.
            drop(closing);
            return Err((inlet, error));
        }

        let member = Member {
            inlet,
            intake: Intake { writer, admission: Admission::new(&self.options), meter: own },
            state: Arc::clone(&state),
            waker: Arc::clone(&self.waker),
            ticks: Arc::clone(&ticks),
        };
        if let Err(mpsc::SendError((member, _))) = start.send((member, closing)) {
            return Err((member.inlet, self.unanswering()));
        }
        self.pulses.push(Arc::clone(&ticks));
        self.members.push(MemberHandle { state, meter, socket, ticks, thread });
        Ok(())
    }

    /// Lets the merging thread read the only socket.
    fn return_to_one(
        &mut self,
        mut inlet: Box<Inlet>,
        before: CountedDrops,
        keep_alive: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        inlet.stamps = Stamps::Unwanted;
        inlet.arrivals = Arrivals::new(self.options.gather);
        let (reply, answer) = mpsc::channel();
        self.request(Request::Gather { inlet, reply })?;
        self.answer(&answer, keep_alive)?;

        self.meter.take_back(Arc::clone(&self.socket), before);
        // The host keeps stamping arrivals as long as one socket asks for it.
        sys::socket::stamp_arrivals(self.socket.as_fd(), Stamps::Unwanted)
            .map_err(self.failed("asking for no times of arrival"))?;
        sys::socket::unshare_port(self.socket.as_fd()).map_err(self.failed("keeping the port"))
    }

    /// Makes the kernel spread arriving datagrams over the first `members` sockets.
    fn spread(&self, members: usize) -> Result<(), Error> {
        sys::socket::spread(self.socket.as_fd(), self.options.balance, members)
            .map_err(self.failed("spreading datagrams over sockets"))
    }

    fn shrink(&mut self, count: usize, keep_alive: &mut dyn FnMut()) -> Result<(), Error> {
        // The kernel's hash includes all bound sockets, so one gets everything while others leave.
        match self.options.balance {
            Balance::Even | Balance::Cpu if count > 1 => self.spread(count)?,
            _ => sys::socket::gather(self.socket.as_fd())
                .map_err(self.failed("gathering datagrams at one socket"))?,
        }
        // A datagram whose socket was chosen before may still be on its way to it, for as long as the host keeps that processor
        // from running. Where the kernel cannot be asked to finish those, a leaving socket's silence is all there is.
        let _ = gro::settle();

        for member in &self.members[count..] {
            member.state.is_leaving.store(true, Ordering::Release);
        }
        while self.members.len() > count {
            self.remove_last_member(keep_alive)?;
        }

        if count > 1 { self.spread(count) } else { self.end_group(keep_alive) }
    }

    /// Waits until the newest member has ended and everything it read is merged, then closes its socket.
    fn remove_last_member(&mut self, keep_alive: &mut dyn FnMut()) -> Result<(), Error> {
        let Some(member) = self.members.pop() else { return Ok(()) };
        let MemberHandle { state, meter, socket, ticks, thread } = member;
        self.pulses.retain(|one| !Arc::ptr_eq(one, &ticks));
        state.is_leaving.store(true, Ordering::Release);

        let inlet = self.inlet_of(thread, keep_alive)?;
        drop((inlet, meter));
        // The ledger's meter and the merging thread release it once it is merged.
        let is_closed = wait_until(ANSWER_WAIT, keep_alive, || Arc::strong_count(&socket) == 1);
        if is_closed { Ok(()) } else { Err(self.unanswering()) }
    }

    /// Lets the merging thread read the one socket that is left.
    fn end_group(&mut self, keep_alive: &mut dyn FnMut()) -> Result<(), Error> {
        let Some(member) = self.members.pop() else { return Ok(()) };
        let MemberHandle { state, meter, socket: _, ticks, thread } = member;
        self.pulses.retain(|one| !Arc::ptr_eq(one, &ticks));
        state.stop.keeps_socket.store(true, Ordering::Release);
        state.stop.deadline_ns.store(monotonic_ns(), Ordering::Release);

        let inlet = self.inlet_of(thread, keep_alive)?;
        self.return_to_one(inlet, meter.own.counted_drops(), keep_alive)
    }

    fn inlet_of(
        &self,
        thread: JoinHandle<Option<Box<Inlet>>>,
        keep_alive: &mut dyn FnMut(),
    ) -> Result<Box<Inlet>, Error> {
        if !wait_until(ANSWER_WAIT, keep_alive, || thread.is_finished()) {
            return Err(self.unanswering());
        }
        // A thread that panicked has reported it on standard error.
        thread.join().ok().flatten().ok_or_else(|| self.stopped())
    }

    fn answer<T>(
        &self,
        answer: &mpsc::Receiver<T>,
        keep_alive: &mut dyn FnMut(),
    ) -> Result<T, Error> {
        let mut value = None;
        wait_until(ANSWER_WAIT, keep_alive, || {
            value = answer.try_recv().ok();
            value.is_some()
        });
        value.ok_or_else(|| self.unanswering())
    }

    fn unanswering(&self) -> Error {
        Error::Unanswered { listener: self.options.name.clone() }
    }
}

/// Waits for a condition, for at most `limit`. Returns whether it became true.
fn wait_until(
    limit: Duration,
    keep_alive: &mut dyn FnMut(),
    mut is_so: impl FnMut() -> bool,
) -> bool {
    let give_up = Instant::now() + limit;
    let mut life_due = Instant::now() + LIFE_INTERVAL;
    while !is_so() {
        if Instant::now() >= give_up {
            return false;
        }
        if Instant::now() >= life_due {
            keep_alive();
            life_due = Instant::now() + LIFE_INTERVAL;
        }
        thread::park_timeout(Duration::from_micros(200));
    }
    true
}
