//! The collector's side: asks the helper for what it may not open itself.

use super::protocol::{Answer, MESSAGE_BYTES_MAX, Request};
use crate::access::{Access, Direct, Found, Hears, Scope};
use crate::quiet::TcpCounts;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::Errno;
use sys::gro::Counter;
use sys::namespace::{Error, Identity, Scan};
use sys::netlink::{Protocol, Socket};
use sys::pass::Channel;

/// Maximum wait for an answer: a scan of many processes takes tens of milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Access to other namespaces through the helper that listens at a path, and to the own one with the rights of this process.
///
/// If the helper is missing, ends, hangs or refuses, one poll lacks the other namespaces: the discovery fails, but finds the own
/// namespace if the scope includes it. The next discovery reconnects.
pub struct Remote {
    path: PathBuf,
    channel: Option<Channel>,
    buffer: Vec<u8>,
    direct: Direct,
    /// What the helper found last, its own namespace first. Empty when it could not be reached.
    listed: Vec<Found>,
    /// The namespaces of the last discovery.
    places: Vec<Place>,
    /// The helper's name for the namespace of this process.
    own_name: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The namespace of this process.
    Own,
    /// The namespace at this index of the helper's list.
    Listed(u32),
}

impl Remote {
    /// Access through the helper at this path. Connects on first use.
    #[must_use]
    pub fn new(path: &Path) -> Remote {
        Remote {
            path: path.to_owned(),
            channel: None,
            buffer: vec![0; MESSAGE_BYTES_MAX],
            direct: Direct::new(),
            listed: Vec::new(),
            places: Vec::new(),
            own_name: None,
        }
    }

    /// As [`Self::new`], but connects at once, for callers that want to know whether the helper is available.
    ///
    /// # Errors
    /// Nobody listens there, or connecting is not allowed.
    pub fn connect(path: &Path) -> io::Result<Remote> {
        let mut remote = Remote::new(path);
        remote.channel()?;
        Ok(remote)
    }

    fn channel(&mut self) -> io::Result<&Channel> {
        if self.channel.is_none() {
            self.channel = Some(Channel::connect_within(&self.path, ANSWER_TIMEOUT)?);
        }
        self.channel.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn receive(&mut self) -> Result<(Answer, Option<OwnedFd>), Errno> {
        let channel = self.channel.as_ref().ok_or(Errno::NOTCONN)?;
        let mut descriptors = Vec::new();
        let message = loop {
            match channel.receive(&mut self.buffer, &mut descriptors) {
                Err(Errno::INTR) => {}
                result => break result?,
            }
        };

        let bytes = self.buffer.get(..message.len).filter(|bytes| !bytes.is_empty());
        let answer = Answer::decode(bytes.ok_or(Errno::PIPE)?).ok_or(Errno::PROTO)?;
        Ok((answer, descriptors.pop()))
    }

    /// Sends a request and receives the answer. After any failure the connection is closed: a late answer must not be taken for
    /// the next one. The helper's state belongs to the connection, so only a discovery opens a new one.
    fn exchange(&mut self, request: Request) -> Result<(Answer, Option<OwnedFd>), Errno> {
        let channel = self.channel.as_ref().ok_or(Errno::NOTCONN)?;
        let sent = channel.send(&request.encode(), &[]);
        let mut result = match sent {
            Err(errno) if !is_hangup(errno) => Err(errno),
            _ => self.receive(),
        };

        if result.as_ref().is_err_and(|errno| is_hangup(*errno)) {
            // What the helper sent before closing can still be read, and gives the reason.
            result = self.receive().or(result);
        }

        if result.is_err() {
            self.channel = None;
        }
        result
    }

    /// Asks the helper to search, and updates [`Self::listed`].
    fn look(&mut self, request: Request) -> io::Result<Scan> {
        self.listed.clear();
        let is_new = self.channel.is_none();
        let mut result = self.look_once(request);
        if !is_new && result.as_ref().is_err_and(|error| is_hangup(Errno::from(error))) {
            // The helper was restarted since.
            self.channel = None;
            result = self.look_once(request);
        }

        result.map_err(|error| {
            self.channel = None;
            self.listed.clear();
            let what = match error.kind() {
                io::ErrorKind::PermissionDenied => "refuses this user",
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => "is not there",
                _ => "does not answer",
            };
            let path = self.path.display();
            io::Error::new(error.kind(), format!("the helper at {path} {what}: {error}"))
        })
    }

    fn look_once(&mut self, request: Request) -> io::Result<Scan> {
        self.channel()?;
        let (scan, count) = match self.exchange(request)?.0 {
            Answer::Scanned(scan, count) => (scan, count as usize),
            answer => return Err(error_of(&answer).into()),
        };

        // In pages: they do not all fit one message.
        while self.listed.len() < count {
            let from = u32::try_from(self.listed.len()).map_err(|_| Errno::PROTO)?;
            match self.exchange(Request::List(from))?.0 {
                Answer::Found(mut more) if !more.is_empty() => self.listed.append(&mut more),
                answer => return Err(error_of(&answer).into()),
            }
        }

        Ok(scan)
    }

    fn find(
        &mut self,
        scope: &Scope,
        found: &mut Vec<Found>,
        request: Request,
    ) -> io::Result<Scan> {
        found.clear();
        self.places.clear();

        // The own namespace is found without the helper, so it is there even if the helper fails.
        let own_scan = self.direct.discover(&Scope::Own, found)?;
        let own = found.pop().ok_or(io::ErrorKind::NotFound)?;

        let result = if *scope == Scope::Own { Ok(own_scan) } else { self.look(request) };
        self.choose(&own, scope, found);
        result
    }

    /// Fills `found` with what is in the scope. The own namespace is that of this process, wherever the helper runs.
    fn choose(&mut self, own: &Found, scope: &Scope, found: &mut Vec<Found>) {
        let is_wanted = |name: Option<&String>| match scope {
            Scope::Own => false,
            Scope::All => true,
            Scope::Named(names) => name.is_some_and(|name| names.contains(name)),
        };

        let listed_own = self.listed.iter().find(|one| one.id == own.id);
        // The name stays while the helper cannot be reached.
        if !self.listed.is_empty() {
            self.own_name = listed_own.and_then(|own| own.name.clone());
        }

        if *scope == Scope::Own || is_wanted(self.own_name.as_ref()) {
            let process = listed_own.and_then(|own| own.process);
            found.push(Found { id: own.id, name: self.own_name.clone(), process });
            self.places.push(Place::Own);
        }

        for (place, one) in (0..).zip(&self.listed) {
            if one.id != own.id && is_wanted(one.name.as_ref()) {
                found.push(one.clone());
                self.places.push(Place::Listed(place));
            }
        }
    }

    /// Checks that the helper's own namespace is also ours: events of the own namespace carry no id.
    fn check_is_in(&mut self, own: Identity) -> Result<(), Errno> {
        if self.listed.is_empty() {
            self.look(Request::Discover).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => Errno::ACCES,
                _ => Errno::NOTCONN,
            })?;
        }
        let is_same = self.listed.first().is_some_and(|first| first.id == own);
        if is_same { Ok(()) } else { Err(Errno::NONET) }
    }

    fn socket(answer: &Answer, descriptor: Option<OwnedFd>) -> Result<Socket, Error> {
        let syscall = |errno| Error::Syscall { call: "the helper's opening", errno };
        match (answer, descriptor) {
            (Answer::Descriptor, Some(fd)) => {
                Socket::from_fd(fd, Protocol::SockDiag).map_err(syscall)
            }
            (Answer::Gone, _) => Err(Error::Gone),
            (Answer::Failed { capability, .. }, _) if *capability != 0 => {
                Err(Error::NotPermitted { call: "setns (by the helper)", capability: *capability })
            }
            (answer, _) => Err(syscall(error_of(answer))),
        }
    }
}

/// Asks the helper at this path to create a counter for a socket's datagrams.
///
/// # Errors
/// Nobody listens there, the helper refuses this user, or it cannot create the counter.
pub fn counter(path: &Path) -> io::Result<Counter> {
    let channel = Channel::connect_within(path, ANSWER_TIMEOUT)?;
    channel.send(&Request::Counter.encode(), &[])?;
    let (mut buffer, mut descriptors) = (vec![0; MESSAGE_BYTES_MAX], Vec::new());
    let message = channel.receive(&mut buffer, &mut descriptors)?;

    let answer = Answer::decode(&buffer[..message.len]).ok_or(Errno::PROTO)?;
    match (answer, <[OwnedFd; 3]>::try_from(descriptors)) {
        (Answer::Descriptor, Ok(descriptors)) => Ok(Counter::from_descriptors(descriptors)?),
        (answer, _) => Err(error_of(&answer).into()),
    }
}

/// Whether the other end is closed.
fn is_hangup(errno: Errno) -> bool {
    matches!(errno, Errno::PIPE | Errno::CONNRESET)
}

fn error_of(answer: &Answer) -> Errno {
    match answer {
        Answer::Failed { errno, .. } => Errno(*errno),
        _ => Errno::PROTO,
    }
}

impl Access for Remote {
    fn is_direct(&self) -> bool {
        false
    }

    fn discover(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        self.find(scope, found, Request::Discover)
    }

    fn discover_mounted(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        self.find(scope, found, Request::DiscoverMounted)
    }

    fn open(&mut self, at: usize) -> Result<Socket, Error> {
        match *self.places.get(at).ok_or(Error::Gone)? {
            // The only namespace that `direct` was asked for.
            Place::Own => self.direct.open(0),
            Place::Listed(place) => {
                let asking = |errno| Error::Syscall { call: "the helper's opening", errno };
                let (answer, descriptor) = self.exchange(Request::Open(place)).map_err(asking)?;
                Remote::socket(&answer, descriptor)
            }
        }
    }

    fn nsid(&mut self, at: usize) -> Result<i32, Errno> {
        let Some(Place::Listed(place)) = self.places.get(at).copied() else {
            return Err(Errno::NOENT);
        };
        match self.exchange(Request::Nsid(place))?.0 {
            Answer::Nsid(nsid) => Ok(nsid),
            answer => Err(error_of(&answer)),
        }
    }

    fn tcp_counts(&mut self, at: usize) -> Result<TcpCounts, Error> {
        match *self.places.get(at).ok_or(Error::Gone)? {
            Place::Own => self.direct.tcp_counts(0),
            Place::Listed(place) => {
                let asking = |errno| Error::Syscall { call: "the helper's counting", errno };
                match self.exchange(Request::TcpCounts(place)).map_err(asking)?.0 {
                    Answer::TcpCounts(counts) => Ok(counts),
                    Answer::Gone => Err(Error::Gone),
                    answer => Err(asking(error_of(&answer))),
                }
            }
        }
    }

    fn second(&self) -> Option<Box<dyn Access>> {
        Some(Box::new(Remote::new(&self.path)))
    }

    fn events(&mut self, hears: Hears, buffer_bytes: usize) -> Result<Socket, Errno> {
        if hears == Hears::Own {
            return self.direct.events(hears, buffer_bytes);
        }

        let own = sys::namespace::own().map_err(|error| Errno::from(&error))?;
        self.check_is_in(own)?;
        let buffer_bytes = u32::try_from(buffer_bytes).unwrap_or(u32::MAX);

        let (answer, descriptor) = self.exchange(Request::Events(buffer_bytes))?;
        Remote::socket(&answer, descriptor).map_err(|error| match error {
            Error::Syscall { errno, .. } => errno,
            Error::NotPermitted { .. } => Errno::PERM,
            Error::Gone => Errno::NOENT,
        })
    }
}
