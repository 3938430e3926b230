//! A destination that is a byte stream to another process: TCP, TLS, or a unix socket.
//!
//! None of these acknowledges what it receives. A row counts as acknowledged when the other host's kernel has it, which the local
//! kernel knows (`SIOCOUTQ`), not when the local kernel has accepted it. So rows that are still in a send buffer when a
//! connection is lost are retransmitted over the next one. Rows that the receiving program had not read by then are lost without
//! a trace: only an answer from that program could reveal that.

mod held;
pub(crate) mod plain;

pub(crate) use held::Held;

use crate::batch::{Attempt, Failure, Fate, Outcome, Parts, Sent};
use crate::destination::Destination;
use ledger::{Reason, Trouble};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use sys::poll::{Interest, PollSet};
use sys::socket::{LocalAddress, local_address};

/// Timeout of one attempt to connect to one address.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest interval between checks of what the other end has: there is no notification when that changes.
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(5);

/// A non-blocking connection.
pub(crate) trait Link: Send {
    fn fd(&self) -> BorrowedFd<'_>;

    /// Accepts some of these bytes. The accepted ones may be sent at any time.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; anything else ends the connection.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Sends bytes that it buffers itself.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Reads what the other end sends.
    ///
    /// # Errors
    /// The connection has ended.
    fn hear(&mut self) -> io::Result<()>;

    /// How many of the accepted bytes the other end has.
    fn confirmed(&mut self) -> u64;

    /// The same, once the connection has ended: the number known for certain.
    fn confirmed_at_end(&mut self, before: u64) -> u64;

    /// Ends the stream: nothing follows.
    fn finish(&mut self);
}

/// Connects, on a separate thread, because name resolution may take long.
pub(crate) type Connect = Arc<dyn Fn() -> Result<Box<dyn Link>, Trouble> + Send + Sync>;

pub(crate) struct ByteStream {
    /// Address for messages: `tcp://host:port`.
    address: String,
    connect: Connect,
    /// Bytes at the start of each connection.
    header: Vec<u8>,
    state: State,
    /// Batches without a fate, in stream order.
    held: VecDeque<Held>,
    done: Vec<Outcome>,
    set: PollSet,
}

enum State {
    Idle,
    Connecting(Receiver<Result<Box<dyn Link>, Trouble>>),
    Connected(Connected),
}

struct Connected {
    link: Box<dyn Link>,
    /// Bytes of the header that the link has accepted.
    header_taken: usize,
    /// Bytes that the link has accepted, including the header.
    taken: u64,
    confirmed: u64,
}

impl ByteStream {
    pub(crate) fn new(address: String, header: Vec<u8>, connect: Connect) -> ByteStream {
        ByteStream {
            address,
            connect,
            header,
            state: State::Idle,
            held: VecDeque::new(),
            done: Vec::new(),
            set: PollSet::default(),
        }
    }

    /// Makes progress until nothing more can be done at once.
    fn step(&mut self, wait: Duration) {
        match &mut self.state {
            State::Idle if self.held.is_empty() => {}
            State::Idle => self.begin_to_connect(),
            State::Connecting(answer) => match answer.recv_timeout(wait) {
                Ok(Ok(link)) => {
                    let connected = Connected { link, header_taken: 0, taken: 0, confirmed: 0 };
                    self.state = State::Connected(connected);
                    self.drive();
                }
                Ok(Err(trouble)) => self.failed_to_connect(trouble),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.failed_to_connect(Trouble {
                    what: format!("{}: the thread that connects has ended", self.address),
                    fix: "report it: it is a defect".to_owned(),
                }),
            },
            State::Connected(_) => self.drive(),
        }
    }

    fn begin_to_connect(&mut self) {
        let (tell, answer) = mpsc::channel();
        let connect = Arc::clone(&self.connect);
        // The receiver may be gone by then. The thread ends by itself: each address has its timeout.
        let run = move || drop(tell.send(connect()));
        match thread::Builder::new().name("connect".to_owned()).spawn(run) {
            Ok(_) => self.state = State::Connecting(answer),
            Err(error) => self.failed_to_connect(Trouble {
                what: format!("{}: no thread to connect with: {error}", self.address),
                fix: "raise the limit of tasks: TasksMax of the unit, ulimit -u".to_owned(),
            }),
        }
    }

    fn failed_to_connect(&mut self, trouble: Trouble) {
        self.state = State::Idle;
        for held in self.held.drain(..) {
            let fate = failed(Sent::No, trouble.clone());
            self.done.push(held.outcome(held.attempt.parts.clone(), fate));
        }
    }

    /// Writes what can be written, and checks what has arrived.
    fn drive(&mut self) {
        let State::Connected(connected) = &mut self.state else { return };
        let written = connected.write(&self.header, &mut self.held);
        // Check this before whether the connection is alive: a unix socket whose other end has closed forgets what was not read.
        let confirmed = connected.link.confirmed();
        if let Err(error) = written.and_then(|()| connected.link.hear()) {
            return self.lost(&error);
        }

        connected.confirmed = connected.confirmed.max(confirmed);
        let confirmed = connected.confirmed;
        while self.held.front().is_some_and(|held| held.is_confirmed(confirmed)) {
            let Some(held) = self.held.pop_front() else { break };
            let outcome = held.outcome(held.attempt.parts.clone(), Fate::Acknowledged);
            self.done.push(outcome);
        }
    }

    fn lost(&mut self, error: &io::Error) {
        let is_homeless = match &self.state {
            State::Connected(connected) => has_lost_its_address(connected.link.fd()),
            _ => false,
        };
        let what = match error.kind() {
            _ if is_homeless => {
                format!("{}: this host has lost the connection's address", self.address)
            }
            io::ErrorKind::UnexpectedEof => format!("{}: the other end has closed", self.address),
            _ => format!("{}: the connection was lost: {error}", self.address),
        };
        let fix = "see why the receiver ends connections: its log, its limits, what is between";
        self.end(&Trouble { what, fix: fix.to_owned() });
    }

    /// Ends the connection, and reports what is known about each part.
    fn end(&mut self, trouble: &Trouble) {
        let State::Connected(mut connected) = std::mem::replace(&mut self.state, State::Idle)
        else {
            return self.failed_to_connect(trouble.clone());
        };

        let confirmed = connected.link.confirmed_at_end(connected.confirmed);
        for held in self.held.drain(..) {
            let [there, maybe, unsent] = held.divide(confirmed);
            let fates = [
                (there, Fate::Acknowledged),
                (maybe, failed(Sent::Maybe, trouble.clone())),
                (unsent, failed(Sent::No, trouble.clone())),
            ];
            let known = fates.into_iter().filter(|(places, _)| !places.is_empty());
            self.done.extend(known.map(|(places, fate)| held.outcome(Parts::Some(places), fate)));
        }
    }

    /// Waits until the connection has room or input, or the next check is due.
    fn rest(&mut self, wait: Duration) {
        let State::Connected(connected) = &self.state else { return };
        self.set.clear();
        self.set.add(connected.link.fd(), Interest::Readable);
        if self.held.iter().any(|held| !held.is_taken()) {
            self.set.add(connected.link.fd(), Interest::Writable);
        }
        // Whatever ended the wait, the next step handles it.
        let _ = self.set.wait(wait);
    }

    fn go_on(&mut self, wait: Duration) {
        let deadline = Instant::now() + wait;
        let mut look_in = Duration::from_millis(1);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            self.step(left);
            if !self.done.is_empty() || self.held.is_empty() || left.is_zero() {
                return;
            }
            self.rest(look_in.min(left));
            look_in = (2 * look_in).min(LOOK_INTERVAL_MAX);
        }
    }
}

impl Connected {
    fn write(&mut self, header: &[u8], held: &mut VecDeque<Held>) -> io::Result<()> {
        match self.write_all(header, held) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    fn write_all(&mut self, header: &[u8], held: &mut VecDeque<Held>) -> io::Result<()> {
        self.link.flush()?;
        while let Some(rest) = header.get(self.header_taken..).filter(|rest| !rest.is_empty()) {
            let count = self.link.write(rest)?;
            self.header_taken += count;
            self.taken += count as u64;
        }

        for held in held.iter_mut().filter(|held| !held.is_taken()) {
            if held.taken == 0 {
                held.start = self.taken;
            }
            while let Some(rest) = held.bytes().get(held.taken..).filter(|rest| !rest.is_empty()) {
                let count = self.link.write(rest)?;
                held.taken += count;
                self.taken += count as u64;
            }
        }
        Ok(())
    }
}

/// Whether the connection's address on this host is gone: whoever hears of that ends such connections
/// (`sys::tcp::end_connections`).
fn has_lost_its_address(connection: BorrowedFd<'_>) -> bool {
    let Some(LocalAddress::Inet(addr)) = local_address(connection) else { return false };
    sys::route::is_own(addr).is_ok_and(|is_own| !is_own)
}

fn failed(sent: Sent, trouble: Trouble) -> Fate {
    let reason = Some(Reason::Unavailable);
    Fate::Failed(Failure { sent, reason, after: None, trouble })
}

impl Destination for ByteStream {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        self.held.push_back(Held::new(attempt));
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        self.go_on(wait);
        done.append(&mut self.done);
    }

    fn close(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let deadline = Instant::now() + wait;
        while !self.held.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            self.go_on(left);
            done.append(&mut self.done);
            if left.is_zero() {
                break;
            }
        }
        if let State::Connected(connected) = &mut self.state {
            connected.link.finish();
        }
        self.end(&Trouble {
            what: format!("{} had not taken everything at the end", self.address),
            fix: "raise drain_grace, or see whether the receiver hangs".to_owned(),
        });
        done.append(&mut self.done);
    }
}
