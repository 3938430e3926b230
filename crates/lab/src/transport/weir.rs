//! Weir's own link: datagrams, with retransmission of lost messages until they are too old.
//!
//! Both ends are from the crate `hop`, each with a thread and a socket, as in the relay. The relay itself is left out, because
//! the other transports have none either.

use super::udp::RECEIVE_BUFFER_BYTES;
use super::{Listening, Received, Receiving, Sending, Sent, Transport};
use crate::experiment::model::{LinkSummary, TransportName};
use hop::packet::{Origin, Sender as From};
use hop::{
    Far, Heard, Identity, Key, Keys, Moment, Near, Next, ReceiverOptions, SenderOptions, Taken,
};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use sys::clock::{monotonic_ns, realtime_ns};
use sys::poll::{EventFd, Interest, PollSet};

/// Maximum age of a message in transit.
const DEADLINE: Duration = Duration::from_secs(1);

/// More than any experiment sends.
const RATE_BYTES_PER_SEC: u64 = 125_000_000;

/// Longest time between two checks of whether to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

const SENDER: SenderOptions = SenderOptions {
    rate_bytes_per_sec: RATE_BYTES_PER_SEC,
    repair_percent: 50,
    part_bytes: 1_150,
    window: 65_536,
    redelivers: true,
};
const RECEIVER: ReceiverOptions = ReceiverOptions {
    window: 65_536,
    parts_bytes: 1 << 20,
    hold_ns: None,
    room_bytes: 64 << 20,
    senders_max: 1,
};

pub(super) struct Weir;

/// Both ends belong to one process, in separate networks, so a secret would not keep anyone out.
fn key() -> Key {
    Key::new("lab", [1; hop::KEY_BYTES])
}

impl Transport for Weir {
    fn name(&self) -> TransportName {
        TransportName::new("weir-hop")
    }

    fn options(&self) -> String {
        let SenderOptions { repair_percent, .. } = SENDER;
        format!("encrypted, deadline {} s, repair budget {repair_percent} %", DEADLINE.as_secs())
    }

    fn repairs_for(&self) -> Duration {
        DEADLINE
    }

    fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listening>> {
        let socket = UdpSocket::bind(addr)?;
        sys::socket::set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER_BYTES)?;
        socket.set_nonblocking(true)?;
        let keys = Keys::parse(&key().line()).map_err(io::Error::other)?;
        let end = Receiver {
            socket: socket.try_clone()?,
            far: Far::new(keys, RECEIVER, moment()),
            arrived: VecDeque::new(),
            buffer: vec![0; 65_536],
            answer: Vec::new(),
            report_bytes: 0,
            poll: PollSet::default(),
        };

        // The sender waits for a session before anyone accepts it.
        let is_accepted = Arc::<AtomicBool>::default();
        let thread = thread::Builder::new().name("weir-listen".to_owned()).spawn({
            let is_accepted = Arc::clone(&is_accepted);
            let mut end = end;
            move || {
                while !is_accepted.load(Ordering::Acquire) {
                    end.turn(Instant::now() + Duration::from_millis(1));
                }
                end
            }
        })?;
        Ok(Box::new(Waiting { socket, is_accepted, thread: Some(thread) }))
    }

    fn connect(&self, to: SocketAddr, deadline: Instant) -> io::Result<Box<dyn Sending>> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        let identity = Identity { host: "h1".to_owned(), listener: "lab".to_owned() };
        let shared = Arc::new(Shared {
            socket,
            bell: EventFd::new()?,
            is_over: AtomicBool::new(false),
            state: Mutex::new(State {
                near: Near::new(key(), identity, SENDER, monotonic_ns()),
                memory: VecDeque::new(),
                first: 0,
                taken: 0,
                buffer: vec![0; 2_048],
                packet: Vec::new(),
                sent_bytes: 0,
            }),
        });
        let thread = thread::Builder::new().name("weir-send".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?;

        let sender = Sender { shared, thread: Some(thread) };
        while !sender.shared.is_answered() {
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::park_timeout(Duration::from_millis(1));
        }
        Ok(Box::new(sender))
    }
}

struct Waiting {
    socket: UdpSocket,
    is_accepted: Arc<AtomicBool>,
    thread: Option<JoinHandle<Receiver>>,
}

impl Listening for Waiting {
    fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn accept(mut self: Box<Self>, _deadline: Instant) -> io::Result<Box<dyn Receiving>> {
        self.is_accepted.store(true, Ordering::Release);
        let ended = self.thread.take().and_then(|thread| thread.join().ok());
        let end = ended.ok_or_else(|| io::Error::other("the listening thread panicked"))?;
        Ok(Box::new(end))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.is_accepted.store(true, Ordering::Release);
    }
}

struct Receiver {
    socket: UdpSocket,
    far: Far,
    arrived: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
    answer: Vec<u8>,
    report_bytes: u64,
    poll: PollSet,
}

fn moment() -> Moment {
    Moment { now_ns: monotonic_ns(), unix_ns: realtime_ns() }
}

impl Receiver {
    /// Waits for packets until `until`, or until a report is due, then processes the packets and sends due reports.
    fn turn(&mut self, until: Instant) {
        let due_ns = self.far.due_ns().unwrap_or(u64::MAX);
        let rest = Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()));
        self.poll.clear();
        self.poll.add(self.socket.as_fd(), Interest::Readable);
        // An interrupted wait just ends early.
        let _ = self.poll.wait(rest.min(until.saturating_duration_since(Instant::now())));

        while let Ok((len, from)) = self.socket.recv_from(&mut self.buffer) {
            self.answer.clear();
            let arrived = &mut self.arrived;
            let heard = self.far.on_packet(
                moment(),
                from,
                &mut self.buffer[..len],
                &mut |_, one| arrived.push_back(one.bytes.to_vec()),
                &mut self.answer,
            );
            if heard == Heard::Answer {
                // An answer that cannot be sent is as good as lost.
                let _ = self.socket.send_to(&self.answer, from);
            }
        }
        loop {
            self.answer.clear();
            let Some(to) = self.far.next_report(monotonic_ns(), &mut self.answer) else { return };
            let _ = self.socket.send_to(&self.answer, to);
            self.report_bytes += self.answer.len() as u64;
        }
    }
}

impl Receiving for Receiver {
    fn receive(&mut self, message: &mut [u8], deadline: Instant) -> io::Result<Received> {
        loop {
            if let Some(arrived) = self.arrived.pop_front() {
                if arrived.len() == message.len() {
                    message.copy_from_slice(&arrived);
                    return Ok(Received::Message);
                }
                continue;
            }
            if Instant::now() >= deadline {
                return Ok(Received::Nothing);
            }
            self.turn(deadline);
        }
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn link(&self) -> Option<LinkSummary> {
        Some(LinkSummary {
            reports: self.far.counts().reports,
            report_bytes: self.report_bytes,
            accepted: self.far.accepted().datagrams,
            ..LinkSummary::default()
        })
    }
}

/// State that the sending end shares with its thread.
struct Shared {
    socket: UdpSocket,
    bell: EventFd,
    is_over: AtomicBool,
    state: Mutex<State>,
}

/// A message, and when it was made.
struct Kept {
    made_ns: u64,
    bytes: Vec<u8>,
}

struct State {
    near: Near,
    /// Messages that may have to be retransmitted, starting with number `first`.
    memory: VecDeque<Kept>,
    first: u64,
    /// Number of the next message that the link has not accepted.
    taken: u64,
    buffer: Vec<u8>,
    packet: Vec<u8>,
    sent_bytes: u64,
}

impl Shared {
    fn is_answered(&self) -> bool {
        // The receiver measures the distance to the sender with the first packet, so it must be processing packets at that time.
        self.state().near.counts().reports > 0
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut poll = PollSet::default();
        sys::poll::set_timer_slack(Duration::ZERO);
        while !self.is_over.load(Ordering::Acquire) {
            let due_ns = self.state().turn(&self.socket);
            let rest = Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()));
            poll.clear();
            poll.add(self.socket.as_fd(), Interest::Readable);
            poll.add(self.bell.as_fd(), Interest::Readable);
            // An interrupted wait just ends early.
            let _ = poll.wait(rest.min(LOOK_INTERVAL));
            if poll.is_ready(1) {
                self.bell.clear();
            }
        }
    }
}

impl State {
    /// Processes received packets and sends what is due. Returns the time of the next turn.
    fn turn(&mut self, socket: &UdpSocket) -> u64 {
        let now_ns = monotonic_ns();
        while let Ok(len) = socket.recv(&mut self.buffer) {
            self.near.on_packet(now_ns, &mut self.buffer[..len]);
        }
        self.packet.clear();
        if self.near.hello(now_ns, realtime_ns(), &mut self.packet) {
            // A packet that cannot be sent is as good as lost.
            let _ = socket.send(&self.packet);
        }

        let due_ns = loop {
            self.packet.clear();
            match self.near.next(now_ns) {
                Next::Data(one) => {
                    let message = &self.memory[(one.number - self.first) as usize].bytes;
                    let origin = Origin {
                        received_unix_ns: 0,
                        sender: From::Unknown,
                        bytes: message.len() as u16,
                    };
                    let part = &message[one.offset.into()..][..one.len.into()];
                    self.near.seal_data(now_ns, &one, origin, part, &mut self.packet);
                }
                Next::Floor { packet, floor } => {
                    self.near.seal_floor(now_ns, packet, floor, &mut self.packet);
                }
                Next::Wait { until_ns } => {
                    if !self.take(now_ns) {
                        break until_ns;
                    }
                    continue;
                }
            }
            let _ = socket.send(&self.packet);
            self.sent_bytes += self.packet.len() as u64;
        };

        let keeps_from = self.near.keeps_from().unwrap_or(self.taken);
        while self.first < keeps_from {
            self.memory.pop_front();
            self.first += 1;
        }
        due_ns
    }

    /// Passes the next message to the link, if the link has space.
    fn take(&mut self, now_ns: u64) -> bool {
        let Some(message) = self.memory.get((self.taken - self.first) as usize) else {
            return false;
        };
        let bytes = message.bytes.len() as u16;
        if !self.near.has_room(now_ns, bytes) {
            return false;
        }
        let expires_ns = message.made_ns + DEADLINE.as_nanos() as u64;
        self.near.take(now_ns, Taken { number: self.taken, bytes, expires_ns });
        self.taken += 1;
        true
    }
}

struct Sender {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sending for Sender {
    fn send(&mut self, message: &[u8], _deadline: Instant) -> io::Result<Sent> {
        let mut state = self.shared.state();
        state.memory.push_back(Kept { made_ns: monotonic_ns(), bytes: message.to_vec() });
        state.turn(&self.shared.socket);
        drop(state);
        // The thread must set its timer.
        self.shared.bell.wake();
        Ok(Sent::Taken)
    }

    fn go_on(&mut self, _deadline: Instant) -> io::Result<Sent> {
        Ok(Sent::Taken)
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.shared.socket.as_fd()
    }

    fn tcp(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn link(&self) -> Option<LinkSummary> {
        let state = self.shared.state();
        let (fates, way) = (state.near.fates(), state.near.way());
        // Messages that wait in memory have not been accepted by the link yet.
        let waiting = state.memory.len() as u64 - (state.taken - state.first);
        Some(LinkSummary {
            packets: way.packets,
            repairs: way.repairs,
            spurious_repairs: way.spurious,
            sent_bytes: state.sent_bytes,
            taken: fates.taken.datagrams + waiting,
            delivered: fates.delivered.datagrams,
            expired: fates.expired.datagrams,
            uncertain: fates.uncertain.datagrams,
            open: state.near.open() + waiting,
            ..LinkSummary::default()
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.bell.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has already printed its message on standard error.
            let _ = thread.join();
        }
    }
}
