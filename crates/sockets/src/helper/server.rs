//! The helper's side: it has the capabilities, and does the few things that need them.

use super::events::{EVENT_BUFFER_BYTES_MAX, Passed};
use super::protocol::{Answer, MESSAGE_BYTES_MAX, Request};
use crate::access::{Access, Direct, Found, Hears, Scope};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use sys::Errno;
use sys::gro::Counter;
use sys::namespace::{Error, Scan};
use sys::netlink::Socket;
use sys::pass::{Channel, Listener};
use sys::poll::{Interest, PollSet};

/// Maximum connections per user. One more closes the one idle for longest, so a user can lock out only itself. The collector has
/// one, and each `weir sockets --helper` another.
const CONNECTIONS_PER_USER: usize = 8;
/// Maximum connections of all users together.
const CONNECTIONS_MAX: usize = 64;
/// Maximum counters per connection: as many as a listener may have sockets. Each takes some kilobytes of kernel memory.
const COUNTERS_PER_CONNECTION: u32 = 64;
/// Maximum wait for a client to take its answer. A client that asks and then reads has room for it.
const CLIENT_TIMEOUT: Duration = Duration::from_millis(1);
/// Maximum sleep.
const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);

/// Who may connect: the superuser, and the users listed. A confined process cannot look up its own user id, so list that one too.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Allowed {
    /// User ids.
    pub uids: Vec<u32>,
}

impl Allowed {
    /// Whether this user may connect.
    #[must_use]
    pub fn contains(&self, uid: u32) -> bool {
        uid == 0 || self.uids.contains(&uid)
    }
}

/// Serves allowed clients until `stop` is readable. Calls `refused` with each user id that was turned away.
///
/// Everything runs on the calling thread, one request at a time, so the process does not need the right to create threads or
/// processes.
///
/// # Errors
/// The listener fails, or there is no memory for a connection.
pub fn serve(
    listener: &Listener,
    allowed: &Allowed,
    stop: BorrowedFd<'_>,
    mut refused: impl FnMut(u32),
) -> io::Result<()> {
    let mut server = Server {
        sessions: Vec::new(),
        requests: 0,
        passed: Passed::default(),
        buffer: vec![0; MESSAGE_BYTES_MAX],
    };
    let mut poll_set = PollSet::default();
    loop {
        poll_set.clear();
        poll_set.add(stop, Interest::Readable);
        poll_set.add(listener.as_fd(), Interest::Readable);
        for session in &server.sessions {
            poll_set.add(session.channel.as_fd(), Interest::Readable);
        }

        match poll_set.wait(LOOK_INTERVAL) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }

        if poll_set.is_ready(0) {
            return Ok(());
        }

        // Before a new client is admitted, which may end an older session and so shift the others.
        server.answer(|place| poll_set.is_ready(2 + place));
        if poll_set.is_ready(1) {
            match listener.accept() {
                Ok(channel) => server.admit(channel, allowed, &mut refused),
                Err(error) if is_about_the_client(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the connection failed, not the listener.
fn is_about_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock)
}

struct Server {
    sessions: Vec<Session>,
    /// Requests so far: the clock by which sessions age.
    requests: u64,
    /// Sockets for close events that clients hold.
    passed: Passed,
    buffer: Vec<u8>,
}

impl Server {
    /// Serves one request of each ready session, and removes those that have ended.
    fn answer(&mut self, is_ready: impl Fn(usize) -> bool) {
        let Server { sessions, requests, passed, buffer } = self;
        let mut place = 0;

        sessions.retain_mut(|session| {
            place += 1;
            if !is_ready(place - 1) {
                return true;
            }

            *requests += 1;
            session.last_request = *requests;
            session.turn(buffer, passed).is_ok()
        });
    }

    fn admit(&mut self, channel: Channel, allowed: &Allowed, refused: &mut impl FnMut(u32)) {
        // There is only one thread: a client that does not read must not hold up the others.
        if channel.set_timeout(Some(CLIENT_TIMEOUT)).is_err() {
            return;
        }

        // An unknown user counts as nobody: -1 (`u32::MAX`) is never a user id.
        let uid = channel.peer().map_or(u32::MAX, |peer| peer.uid);
        if !allowed.contains(uid) {
            // A client that does not read the reason does not get it.
            let _ = channel.send(&failed(Errno::ACCES).encode(), &[]);
            return refused(uid);
        }

        let of_user = self.sessions.iter().filter(|session| session.uid == uid);
        if of_user.clone().count() >= CONNECTIONS_PER_USER {
            let oldest = of_user.map(|session| session.last_request).min();
            self.sessions
                .retain(|session| session.uid != uid || Some(session.last_request) != oldest);
        }

        if self.sessions.len() >= CONNECTIONS_MAX {
            let _ = channel.send(&failed(Errno::AGAIN).encode(), &[]);
            return;
        }

        self.requests += 1;
        self.sessions.push(Session {
            access: Direct::new(),
            found: Vec::new(),
            channel,
            uid,
            last_request: self.requests,
            counters: 0,
        });
    }
}

/// One client.
struct Session {
    access: Direct,
    /// What the last discovery found: requests refer to its indices.
    found: Vec<Found>,
    channel: Channel,
    uid: u32,
    last_request: u64,
    /// Number of counters that it was given.
    counters: u32,
}

impl Session {
    /// Receives one request and answers it.
    ///
    /// # Errors
    /// The client has gone, sent something that is not a request, or does not take its answers.
    fn turn(&mut self, buffer: &mut [u8], passed: &mut Passed) -> Result<(), Errno> {
        let mut descriptors = Vec::new();
        let message = match self.channel.receive(buffer, &mut descriptors) {
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            message => message?,
        };

        // An empty message means the end of the connection. Clients must not send descriptors.
        if message.len == 0 || message.is_truncated || message.descriptors > 0 {
            return Err(Errno::PROTO);
        }

        let request = buffer.get(..message.len).and_then(Request::decode).ok_or(Errno::PROTO)?;
        self.answer(request, passed)
    }

    fn answer(&mut self, request: Request, passed: &mut Passed) -> Result<(), Errno> {
        match request {
            Request::Discover => {
                let scan = self.access.discover(&Scope::All, &mut self.found);
                self.scanned(scan)
            }
            Request::DiscoverMounted => {
                let scan = self.access.discover_mounted(&Scope::All, &mut self.found);
                self.scanned(scan)
            }
            Request::List(from) => {
                self.channel.send(&Answer::encode_found(&self.found, from as usize), &[])
            }
            Request::Open(place) => match self.access.open(place as usize) {
                Ok(socket) => self.pass(&socket),
                Err(error) => self.send(&refusal(&error)),
            },
            Request::TcpCounts(place) => match self.access.tcp_counts(place as usize) {
                Ok(counts) => self.send(&Answer::TcpCounts(counts)),
                Err(error) => self.send(&refusal(&error)),
            },
            Request::Nsid(place) => match self.access.nsid(place as usize) {
                Ok(nsid) => self.send(&Answer::Nsid(nsid)),
                Err(errno) => self.send(&failed(errno)),
            },
            Request::Events(buffer_bytes) => match self.events(buffer_bytes, passed) {
                Ok(socket) => self.pass(&socket),
                Err(errno) => self.send(&failed(errno)),
            },
            Request::Counter => match self.counter() {
                Ok(counter) => {
                    self.channel.send(&Answer::Descriptor.encode(), &counter.descriptors())
                }
                Err(errno) => self.send(&failed(errno)),
            },
        }
    }

    fn scanned(&self, scan: io::Result<Scan>) -> Result<(), Errno> {
        match scan {
            Ok(scan) => {
                let found = u32::try_from(self.found.len()).unwrap_or(u32::MAX);
                self.send(&Answer::Scanned(scan, found))
            }
            Err(error) => self.send(&failed(Errno::from(&error))),
        }
    }

    fn events(&mut self, buffer_bytes: u32, passed: &mut Passed) -> Result<Socket, Errno> {
        passed.check(self.uid)?;
        let buffer_bytes = buffer_bytes.min(EVENT_BUFFER_BYTES_MAX) as usize;
        let socket = self.access.events(Hears::All, buffer_bytes)?;
        passed.note(self.uid, &socket)?;
        Ok(socket)
    }

    fn counter(&mut self) -> Result<Counter, Errno> {
        if self.counters >= COUNTERS_PER_CONNECTION {
            return Err(Errno::USERS);
        }
        let counter = Counter::make()?;
        self.counters += 1;
        Ok(counter)
    }

    fn pass(&self, socket: &Socket) -> Result<(), Errno> {
        self.channel.send(&Answer::Descriptor.encode(), &[socket.as_fd()])
    }

    fn send(&self, answer: &Answer) -> Result<(), Errno> {
        self.channel.send(&answer.encode(), &[])
    }
}

fn refusal(error: &Error) -> Answer {
    match *error {
        Error::Gone => Answer::Gone,
        Error::NotPermitted { capability, .. } => {
            Answer::Failed { errno: Errno::PERM.0, capability }
        }
        Error::Syscall { errno, .. } => failed(errno),
    }
}

fn failed(errno: Errno) -> Answer {
    Answer::Failed { errno: errno.0, capability: 0 }
}
