//! A destination that is a UDP socket: one part, one datagram.
//!
//! UDP gives no answer, so "delivered" means passed to the kernel. Losses that this host knows of are counted as such.
//! Datagrams that a remote network returns later are an event, `returned_datagrams`, and a lower bound: hosts and routers
//! limit how many they report. The exact figure is the receiver's, from the sequence numbers and the totals.

use crate::batch::{Attempt, BatchId, Fate, Outcome, Parts};
use crate::datagrams::DatagramEncoder;
use crate::destination::{Connector, Destination, Form, OwnFigures};
use crate::host::HostChanges;
use ledger::{Event, Gauge, Reason};
use record::FieldSet;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use sys::poll::{Interest, PollSet};
use sys::send::{BATCH, Message, send_messages};
use sys::socket::{LocalAddress, SendOptions, connect_udp, local_address, path_mtu_bytes};
use sys::{Errno, errqueue};

/// Time between attempts to open a socket.
const OPEN_INTERVAL: Duration = Duration::from_secs(1);

/// How long a destination counts as down after the network has returned something: only one datagram in many causes an
/// ICMP message.
const DOWN_TIME: Duration = Duration::from_secs(5);

/// How long one call waits for room in the socket.
const WRITABLE_WAIT: Duration = Duration::from_millis(100);

/// How often to resend one datagram after an error that may have been about an earlier one.
const RETRIES_MAX: u32 = 2;

/// Most entries to take off the error queue at once, so that a flood of ICMP cannot occupy the thread.
const RETURNED_MAX: usize = 256;

/// Largest datagram, whatever the path MTU: what fits the 9,000 bytes of a jumbo frame, including IPv6 and UDP headers.
/// Loopback allows more, but there a receive buffer of the default size would hold only three of the largest.
const DATAGRAM_BYTES_MAX: usize = 8_952;

/// The current address of the destination, shared with the code that follows its name: a new address takes effect with the
/// next datagram. While there is none, datagrams are dropped as `target_unresolved`.
#[derive(Clone, Debug, Default)]
pub struct Remote(Arc<Mutex<Option<SocketAddr>>>);

impl Remote {
    /// The address.
    pub fn address(&self) -> Option<SocketAddr> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the address.
    pub fn set(&self, addr: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(addr);
    }
}

impl From<SocketAddr> for Remote {
    fn from(addr: SocketAddr) -> Remote {
        let remote = Remote::default();
        remote.set(addr);
        remote
    }
}

/// A UDP destination.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// Address for the datagrams.
    pub remote: Remote,
    /// How the socket is opened.
    pub send: SendOptions,
    /// When to look whether a new socket would have another source address.
    pub host: HostChanges,
}

/// Most bytes of UDP payload that one datagram may have at present: the socket's thread learns it from the kernel, and the
/// encoder complies.
#[derive(Clone, Debug)]
pub(crate) struct DatagramLimit(Arc<AtomicUsize>);

impl DatagramLimit {
    /// What every path carries, until the kernel reports more: 1,280 bytes for IPv6 (RFC 8200 section 5), and for IPv4
    /// Ethernet's 1,500, below which the kernel fragments datagrams by itself.
    fn new(remote: Option<SocketAddr>) -> DatagramLimit {
        DatagramLimit(Arc::new(AtomicUsize::new(DatagramLimit::safe(remote))))
    }

    fn safe(remote: Option<SocketAddr>) -> usize {
        if remote.is_none_or(|remote| remote.is_ipv6()) { 1_232 } else { 1_472 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sends protobuf datagrams to an address.
///
/// Opens the socket, so that the limit is known before anything is packed; if that fails, it is tried again.
pub fn udp(options: UdpOptions, fields: FieldSet) -> Connector {
    let limit = DatagramLimit::new(options.remote.address());
    let first = Udp::open(options.clone(), limit.clone());

    let of_form = limit.clone();
    let form =
        move || Form::Mixed(Box::new(DatagramEncoder::new(of_form.clone(), &fields)) as Box<_>);
    let mut first = Some(first);
    let destination = move || {
        let udp = first.take().unwrap_or_else(|| Udp::open(options.clone(), limit.clone()));
        Ok(Box::new(udp) as Box<dyn Destination>)
    };
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

/// A connected socket, reopened when it fails.
struct Udp {
    options: UdpOptions,
    /// The address that the socket is or should be connected to.
    connected: Option<SocketAddr>,
    limit: DatagramLimit,
    socket: Option<OwnedFd>,
    /// The target is this host: an ICMP error about a datagram arrives before the send returns.
    is_local: bool,
    /// When to retry opening a socket, and why there is none.
    closed: (Option<Instant>, Reason),
    /// How often the oldest payload has been tried.
    attempts: u32,
    /// The oldest payload was sent and refused.
    is_refused: bool,
    /// When the network last returned something.
    returned_at: Option<Instant>,
    set: PollSet,
    sending: Option<Sending>,
    done: Vec<Outcome>,
    returned_datagrams: u64,
    last_errno: Errno,
    /// The changes of this host that were looked at.
    host_seen: u64,
    renewals: u64,
}

/// Datagrams of one batch, and which of them are still to be sent.
struct Sending {
    attempt: Attempt,
    places: VecDeque<usize>,
}

/// What happened to the oldest datagrams.
enum Sent {
    /// The kernel accepted this many of them.
    Delivered(usize),
    /// This many of them cannot be sent.
    Dropped(usize, Reason),
    /// None was accepted: try again.
    Again,
}

impl Udp {
    fn open(options: UdpOptions, limit: DatagramLimit) -> Udp {
        let mut udp = Udp {
            connected: None,
            options,
            limit,
            socket: None,
            is_local: false,
            closed: (None, Reason::TargetUnresolved),
            attempts: 0,
            is_refused: false,
            returned_at: None,
            set: PollSet::default(),
            sending: None,
            done: Vec::new(),
            returned_datagrams: 0,
            last_errno: Errno(0),
            host_seen: 0,
            renewals: 0,
        };

        // An error occurs again with the first payload, and is counted then.
        if udp.reopen().is_ok() {
            udp.refresh_limit();
        }

        udp.closed.0 = None;
        udp
    }

    /// Opens the socket if there is none and a retry is due.
    fn reopen(&mut self) -> Result<(), Reason> {
        let remote = self.options.remote.address();
        if remote != self.connected {
            // The name has another address: datagrams go there from now on, without delay.
            self.renewals += u64::from(self.socket.is_some());
            (self.connected, self.socket, self.closed.0) = (remote, None, None);
            self.limit.0.store(DatagramLimit::safe(remote), Ordering::Relaxed);
        }
        if self.options.host.has_changed(&mut self.host_seen) {
            self.closed.0 = None;
            self.renew();
        }
        if self.socket.is_some() {
            return Ok(());
        }
        let remote = remote.ok_or(Reason::TargetUnresolved)?;

        let now = Instant::now();
        if self.closed.0.is_some_and(|at| now < at) {
            return Err(self.closed.1);
        }

        match connect_udp(remote, &self.options.send) {
            Ok(socket) => {
                self.is_local = sys::route::egress(remote.ip()).is_ok_and(|egress| egress.is_local);
                self.socket = Some(socket);
                Ok(())
            }
            Err(error) => {
                self.last_errno = Errno::from(&error);
                let reason = match Errno::from(&error) {
                    Errno::NETUNREACH | Errno::NETDOWN => Reason::NetworkUnreachable,
                    _ => Reason::TargetUnresolved,
                };
                self.closed = (Some(now + OPEN_INTERVAL), reason);
                Err(reason)
            }
        }
    }

    /// Replaces the socket if a new one would have another source address: the old one keeps its own although this host may have
    /// lost it.
    fn renew(&mut self) {
        let (Some(socket), Some(remote)) = (&self.socket, self.connected) else { return };
        let Ok(renewed) = connect_udp(remote, &self.options.send) else { return };
        let source = |socket: &OwnedFd| match local_address(socket.as_fd()) {
            Some(LocalAddress::Inet(addr)) => Some(addr.ip()),
            _ => None,
        };
        if source(socket) != source(&renewed) {
            // What the old one reported so far.
            self.collect_returned();
            self.is_local = sys::route::egress(remote.ip()).is_ok_and(|egress| egress.is_local);
            self.socket = Some(renewed);
            self.renewals += 1;
        }
    }

    fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        let socket = self.socket.as_ref().map(AsFd::as_fd);
        socket.ok_or_else(|| Errno::NOTCONN.into())
    }

    /// Asks the kernel for the path MTU.
    fn refresh_limit(&self) {
        // IPv4 header without options, or IPv6 header, and the UDP header.
        let is_ipv6 = |remote: SocketAddr| remote.ip().to_canonical().is_ipv6();
        let header_bytes = if self.connected.is_none_or(is_ipv6) { 48 } else { 28 };
        let mtu = self.socket().and_then(|socket| Ok(path_mtu_bytes(socket)?));
        if let Ok(mtu) = mtu
            && let Some(bytes) = (mtu as usize).checked_sub(header_bytes)
        {
            let bytes = bytes.min(DATAGRAM_BYTES_MAX);
            self.limit.0.store(bytes, Ordering::Relaxed);
        }
    }

    /// Drains the error queue. Returns whether a port on this host refused something.
    fn collect_returned(&mut self) -> bool {
        let mut is_refused_here = false;
        let Some(socket) = self.socket.as_ref().map(AsFd::as_fd) else { return false };
        for returned in std::iter::from_fn(|| errqueue::take(socket)).take(RETURNED_MAX) {
            if self.is_local && returned.errno == Errno::CONNREFUSED {
                is_refused_here = true;
            } else if !returned.is_local || returned.errno == Errno::HOSTUNREACH {
                self.returned_datagrams += 1;
                self.returned_at = Some(Instant::now());
            }
        }
        is_refused_here
    }

    fn sent(&mut self, count: usize, asked: usize) -> Sent {
        self.attempts = 0;
        // On this host the ICMP error is there already, and is about the last datagram: the next one would have met it as
        // an error.
        let may_have_answer = self.is_local || count < asked;
        if may_have_answer && self.collect_returned() {
            self.last_errno = Errno::CONNREFUSED;
            self.is_refused = true;
            return match count {
                1 => self.refused(),
                _ => Sent::Delivered(count - 1),
            };
        }
        Sent::Delivered(count)
    }

    fn refused(&mut self) -> Sent {
        self.is_refused = false;
        Sent::Dropped(1, Reason::Refused)
    }

    /// Decides what to do with the oldest payload after this error of the send call.
    fn failed(&mut self, errno: Errno) -> Sent {
        if matches!(errno, Errno::AGAIN | Errno::INTR) {
            self.wait_until_writable();
            return Sent::Again;
        }

        self.last_errno = errno;
        self.collect_returned();

        let reason = match errno {
            Errno::MSGSIZE => Reason::TooBig,
            Errno::NOBUFS => Reason::EgressQueueFull,
            Errno::PERM => Reason::Firewall,
            // An ICMP error about an earlier datagram: this one was not sent (ip(7), IP_RECVERR).
            Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::ACCES | Errno::PROTO
                if self.attempts < RETRIES_MAX =>
            {
                self.attempts += 1;
                return Sent::Again;
            }
            Errno::CONNREFUSED => Reason::Refused,
            Errno::HOSTUNREACH | Errno::PROTO => Reason::HostUnreachable,
            Errno::ACCES => Reason::Firewall,
            errno => {
                // The socket's source address may be gone with its interface: a new socket gets another.
                let reason = match errno {
                    Errno::NETUNREACH | Errno::NETDOWN => Reason::NetworkUnreachable,
                    _ => Reason::SendError,
                };
                self.socket = None;
                self.closed = (Some(Instant::now() + OPEN_INTERVAL), reason);
                reason
            }
        };

        self.attempts = 0;
        self.refresh_limit();
        Sent::Dropped(1, reason)
    }

    fn wait_until_writable(&mut self) {
        self.set.clear();
        let Some(socket) = &self.socket else { return };
        self.set.add(socket.as_fd(), Interest::Writable);
        // Whatever ended the wait, the next send shows more.
        let _ = self.set.wait(WRITABLE_WAIT);
    }
}

impl Udp {
    /// Sends the oldest datagrams.
    fn send(&mut self, sending: &Sending) -> Sent {
        if self.is_refused {
            return self.refused();
        }
        if let Err(reason) = self.reopen() {
            return Sent::Dropped(sending.places.len(), reason);
        }

        self.refresh_limit();
        let mut messages = [Message::single(&[]); BATCH];
        for (message, place) in messages.iter_mut().zip(&sending.places) {
            *message = Message::single(sending.attempt.batch.part(*place));
        }

        let asked = sending.places.len().min(BATCH);
        let result = match self.socket() {
            Ok(socket) => send_messages(socket, &messages[..asked]),
            Err(_) => Err(Errno::NOTCONN),
        };
        match result {
            Ok(count) if count > 0 => self.sent(count, asked),
            Ok(_) => Sent::Again,
            Err(errno) => self.failed(errno),
        }
    }

    fn note(&mut self, id: BatchId, places: impl Iterator<Item = usize>, fate: Fate) {
        let parts = Parts::Some(places.map(|place| place as u32).collect());
        self.done.push(Outcome { batch: id, parts, fate });
    }
}

impl Destination for Udp {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.sending.is_some() {
            return Err(attempt);
        }
        let places = attempt.parts.places(attempt.batch.encoded.parts.len()).collect();
        self.sending = Some(Sending { attempt, places });
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let until = Instant::now() + wait;
        while let Some(mut sending) = self.sending.take() {
            let id = sending.attempt.batch.id;
            let is_waiting = match self.send(&sending) {
                Sent::Delivered(count) => {
                    self.note(id, sending.places.drain(..count), Fate::Acknowledged);
                    false
                }
                Sent::Dropped(count, reason) => {
                    self.note(id, sending.places.drain(..count), Fate::Dropped(reason));
                    false
                }
                Sent::Again => Instant::now() >= until,
            };
            if !sending.places.is_empty() {
                self.sending = Some(sending);
            }
            if is_waiting {
                break;
            }
        }

        self.collect_returned();
        self.refresh_limit();
        done.append(&mut self.done);
    }

    fn figures(&self) -> OwnFigures {
        let mut gauges = vec![(Gauge::DatagramLimitBytes, self.limit.bytes() as u64)];
        if self.last_errno != Errno(0) {
            gauges.push((Gauge::LastErrno, u64::from(self.last_errno.0.unsigned_abs())));
        }
        if self.returned_at.is_some_and(|at| at.elapsed() < DOWN_TIME) {
            gauges.push((Gauge::Up, 0));
        }
        let events = vec![
            (Event::ReturnedDatagrams, self.returned_datagrams),
            (Event::SocketRenewals, self.renewals),
        ];
        OwnFigures { events, gauges, trouble: None }
    }

    fn close(&mut self, _wait: Duration, _done: &mut Vec<Outcome>) {
        self.collect_returned();
    }
}
