//! One socket per sender, for a target that keeps the senders' addresses and ports.

use crate::SenderSockets;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::Errno;
use sys::clock::monotonic_ns;
use sys::errqueue::{self, Returned};
use sys::send::{Message, send_messages, send_messages_from};
use sys::socket::{SendOptions, connect_udp, outstanding_bytes};

/// Time after which a socket that could not be opened is tried again, in nanoseconds.
const RETRY_INTERVAL_NS: u64 = 1_000_000_000;

/// Sockets bound to the addresses and ports of senders and connected to the target. A sender costs system calls once, and then
/// one table lookup per message. When there are too many, one that was not used for a while makes room: each use sets a mark, and
/// a clock hand takes the first socket without a mark and clears the marks that it passes.
pub(super) struct Senders {
    how: SenderSockets,
    by_sender: HashMap<SocketAddr, usize>,
    places: Vec<Place>,
    hand: usize,
    /// Places whose sockets may have something outstanding.
    busy: Vec<usize>,
    /// The place where the last call failed: its socket may have something in the error queue.
    failed: Option<usize>,
    blocked: Blocked,
    counts: SenderCounts,
}

struct Place {
    sender: SocketAddr,
    /// `None` when it could not be opened.
    socket: Option<OwnedFd>,
    retry_due_ns: u64,
    is_used: bool,
    /// Whether the place is listed in `busy`.
    is_busy: bool,
}

/// Why the last call would have blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blocked {
    /// It would not, or the target's own socket was full.
    Own,
    Sender(usize),
    /// No socket can make room, because each has data that has not left yet.
    NoRoom,
}

/// What to wait for after [`Errno::AGAIN`].
pub(super) enum Wait<'a> {
    ForOwn,
    For(BorrowedFd<'a>),
    ForTime,
}

/// What became of the sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SenderCounts {
    /// Datagrams that left with their sender's address but another port.
    pub(crate) without_port: u64,
    /// Sockets closed to make room for others.
    pub(crate) turnover: u64,
}

impl Senders {
    pub(super) fn new(how: SenderSockets) -> Senders {
        Senders {
            how,
            by_sender: HashMap::new(),
            places: Vec::new(),
            hand: 0,
            busy: Vec::new(),
            failed: None,
            blocked: Blocked::Own,
            counts: SenderCounts::default(),
        }
    }

    /// Sends messages in order, consecutive ones from the same sender with one call. Messages without a source leave through
    /// `own`. Returns how many were taken.
    ///
    /// # Errors
    /// As [`send_messages`].
    pub(super) fn send(
        &mut self,
        own: BorrowedFd<'_>,
        messages: &[Message<'_>],
        source_of: &dyn Fn(usize) -> Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        self.blocked = Blocked::Own;

        let mut done = 0;
        while done < messages.len() {
            let sender = source_of(done);
            let others = (done + 1..messages.len()).take_while(|at| source_of(*at) == sender);
            let of_one = &messages[done..=done + others.count()];

            let taken = match sender {
                Some(sender) => self.send_of_one(own, of_one, sender),
                None => send_messages(own, of_one),
            };
            match taken {
                Ok(taken) => done += taken,
                Err(errno) if done == 0 => return Err(errno),
                // The error comes again when the caller resumes from there.
                Err(_) => break,
            }
            if taken != Ok(of_one.len()) {
                break;
            }
        }
        Ok(done)
    }

    fn send_of_one(
        &mut self,
        own: BorrowedFd<'_>,
        messages: &[Message<'_>],
        sender: SocketAddr,
    ) -> Result<usize, Errno> {
        let Some(at) = self.place_of(sender) else {
            self.blocked = Blocked::NoRoom;
            return Err(Errno::AGAIN);
        };

        let place = &mut self.places[at];
        let Some(socket) = &place.socket else {
            let taken = send_messages_from(own, messages, |_| Some(sender.ip()))?;
            let datagrams = messages[..taken].iter().map(|message| u64::from(message.datagrams));
            self.counts.without_port += datagrams.sum::<u64>();
            return Ok(taken);
        };

        let taken = send_messages(socket.as_fd(), messages);
        if taken.is_ok() && !place.is_busy {
            place.is_busy = true;
            self.busy.push(at);
        }
        if taken != Ok(messages.len()) {
            self.failed = Some(at);
        }
        if taken == Err(Errno::AGAIN) {
            self.blocked = Blocked::Sender(at);
        }
        taken
    }

    /// The place of a sender, possibly a new one. `None` when there is no room for another now.
    fn place_of(&mut self, sender: SocketAddr) -> Option<usize> {
        if let Some(&at) = self.by_sender.get(&sender) {
            let place = &mut self.places[at];
            place.is_used = true;
            if place.socket.is_none() && monotonic_ns() >= place.retry_due_ns {
                place.open(&self.how);
            }
            return Some(at);
        }

        let at = if self.places.len() < self.how.count_max {
            let (is_used, is_busy) = (true, false);
            self.places.push(Place { sender, socket: None, retry_due_ns: 0, is_used, is_busy });
            self.places.len() - 1
        } else {
            let at = self.make_room()?;
            let place = &mut self.places[at];
            self.by_sender.remove(&place.sender);
            self.counts.turnover += u64::from(place.socket.take().is_some());
            (place.sender, place.is_used) = (sender, true);
            if self.failed == Some(at) {
                self.failed = None;
            }
            at
        };

        self.places[at].open(&self.how);
        self.by_sender.insert(sender, at);
        Some(at)
    }

    /// Finds a place whose sender was quiet for a while and whose data has all left. What a silent neighbor would lose of it must
    /// still be seen.
    fn make_room(&mut self) -> Option<usize> {
        for _ in 0..2 * self.places.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.places.len();

            let place = &mut self.places[at];
            if std::mem::take(&mut place.is_used) || place.is_busy && place.has_outstanding() {
                continue;
            }
            return Some(at);
        }
        None
    }

    /// Whether everything taken has left or was dropped. Asks each socket at most once per use.
    pub(super) fn have_nothing_outstanding(&mut self) -> bool {
        while let Some(&at) = self.busy.last() {
            let place = &mut self.places[at];
            if place.has_outstanding() {
                return false;
            }
            place.is_busy = false;
            self.busy.pop();
        }
        true
    }

    /// Takes one entry off the error queue of the socket whose call failed last.
    pub(super) fn take_returned(&mut self) -> Option<Returned> {
        let socket = self.places.get(self.failed?)?.socket.as_ref()?;
        let returned = errqueue::take(socket.as_fd());
        if returned.is_none() {
            self.failed = None;
        }
        returned
    }

    pub(super) fn wait(&self) -> Wait<'_> {
        match self.blocked {
            Blocked::Own => Wait::ForOwn,
            Blocked::NoRoom => Wait::ForTime,
            Blocked::Sender(at) => match &self.places[at].socket {
                Some(socket) => Wait::For(socket.as_fd()),
                None => Wait::ForTime,
            },
        }
    }

    pub(super) fn take_counts(&mut self) -> SenderCounts {
        std::mem::take(&mut self.counts)
    }
}

impl Place {
    /// Opens its socket. If that fails, most often because this host uses the port, it is retried later.
    fn open(&mut self, how: &SenderSockets) {
        let options = SendOptions {
            source_address: Some(self.sender.ip()),
            source_port: Some(self.sender.port()),
            ..how.options.clone()
        };
        self.socket = connect_udp(how.to, &options).ok();
        if self.socket.is_none() {
            self.retry_due_ns = monotonic_ns() + RETRY_INTERVAL_NS;
        }
    }

    fn has_outstanding(&self) -> bool {
        let socket = self.socket.as_ref();
        socket.is_some_and(|socket| outstanding_bytes(socket.as_fd()) != Ok(0))
    }
}
