//! Destinations that are unix sockets at a path: streams, and datagrams with one row each.

use crate::batch::{Attempt, Failure, Fate, Outcome, Parts, Sent};
use crate::byte_stream::Link;
use crate::byte_stream::plain::{Plain, Socket};
use crate::destination::{Connector, Destination, Form};
use crate::encode::{Content, Partition};
use crate::frames::StreamFraming;
use crate::tcp::connector;
use ledger::{Reason, Trouble};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use sys::Errno;
use sys::poll::{Interest, PollSet};
use sys::send::{BATCH, Message, send_messages};
use sys::socket::{connect_unix, connect_unix_stream};

/// Sends rows over a stream to the socket at this path.
pub fn unix(path: PathBuf, framing: StreamFraming, content: Content) -> Connector {
    let address = format!("unix:{}", path.display());
    let connect = move || match open(&path) {
        Ok(stream) => Ok(Box::new(Plain::new(stream)) as Box<dyn Link>),
        Err(error) => Err(unconnected(&path, &error)),
    };
    connector(address, (framing, content), Arc::new(connect))
}

fn open(path: &Path) -> io::Result<UnixStream> {
    Ok(UnixStream::from(connect_unix_stream(path)?))
}

fn unconnected(path: &Path, error: &io::Error) -> Trouble {
    let path = path.display();
    let fix = match error.kind() {
        ErrorKind::NotFound => "start the receiver, which makes it, or correct the path".to_owned(),
        ErrorKind::ConnectionRefused => {
            "start the receiver: nobody listens on the socket that is there".to_owned()
        }
        ErrorKind::WouldBlock => "see whether the receiver hangs: it accepts nobody".to_owned(),
        ErrorKind::PermissionDenied => format!("let this user write to it: ls -l {path}"),
        _ if error.raw_os_error() == Some(libc::EPROTOTYPE) => {
            "it is a socket of the other type: write unix: for streams, unixgram: for datagrams"
                .to_owned()
        }
        _ => format!("see what is there: ls -l {path}"),
    };
    Trouble { what: format!("no connection to {path}: {error}"), fix }
}

impl Socket for UnixStream {
    /// Bytes that the other end had not read when it closed are gone and no longer counted. While it is open, the kernel counts
    /// the memory of unread bytes, which exceeds their number, so any bytes in excess of that have been read.
    const COUNTS_AT_END: bool = false;

    fn shut_writing(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// Sends rows as datagrams to the socket at this path. A row is acknowledged when it is in the receiver's queue.
pub fn unixgram(path: PathBuf, content: Content) -> Connector {
    let form = move || Form::Mixed(content.encoder(Partition::Rows));
    let destination = move || {
        let path = path.clone();
        let set = PollSet::default();
        Ok(Box::new(Datagrams { path, socket: None, sending: None, set }) as Box<dyn Destination>)
    };
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

struct Datagrams {
    path: PathBuf,
    socket: Option<OwnedFd>,
    sending: Option<Sending>,
    set: PollSet,
}

struct Sending {
    attempt: Attempt,
    places: Vec<u32>,
    /// How many of them have a fate.
    next: usize,
    /// How many of them have a fate that was reported.
    told: usize,
}

impl Sending {
    fn tell(&mut self, end: usize, fate: Fate, done: &mut Vec<Outcome>) {
        let places = self.places.get(self.told..end).unwrap_or_default();
        if !places.is_empty() {
            let parts = Parts::Some(places.to_vec());
            done.push(Outcome { batch: self.attempt.batch.id, parts, fate });
        }
        self.told = end;
    }
}

impl Datagrams {
    /// Sends until there is no room. An error is about the next datagram.
    fn send(&mut self, sending: &mut Sending) -> io::Result<()> {
        let socket = match &self.socket {
            Some(socket) => socket,
            None => self.socket.insert(connect_unix(&self.path)?),
        };
        while let Some(rest) = sending.places.get(sending.next..).filter(|rest| !rest.is_empty()) {
            let batch = &sending.attempt.batch;
            let part = |place: &u32| Message::single(batch.part(*place as usize));
            let messages: Vec<_> = rest.iter().take(BATCH).map(part).collect();
            sending.next += send_messages(socket.as_fd(), &messages)?;
        }
        Ok(())
    }

    fn wait_for_room(&mut self, wait: Duration) {
        self.set.clear();
        let Some(socket) = &self.socket else { return };
        self.set.add(socket.as_fd(), Interest::Writable);
        // Whatever ended the wait, the next send shows more.
        let _ = self.set.wait(wait);
    }
}

impl Destination for Datagrams {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.sending.is_some() {
            return Err(attempt);
        }
        let count = attempt.batch.encoded.parts.len();
        let places = attempt.parts.places(count).map(|place| place as u32).collect();
        self.sending = Some(Sending { attempt, places, next: 0, told: 0 });
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let deadline = Instant::now() + wait;
        while let Some(mut sending) = self.sending.take() {
            let result = self.send(&mut sending);
            sending.tell(sending.next, Fate::Acknowledged, done);
            let Err(error) = result else { return };

            match Errno::from(&error) {
                // The receiver's queue, or this host's memory for it, is full.
                Errno::AGAIN | Errno::NOBUFS | Errno::INTR => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    self.sending = Some(sending);
                    if left.is_zero() || !done.is_empty() {
                        return;
                    }
                    self.wait_for_room(left);
                }
                Errno::MSGSIZE => {
                    sending.next += 1;
                    sending.tell(sending.next, Fate::Dropped(Reason::TooBig), done);
                    self.sending = (sending.next < sending.places.len()).then_some(sending);
                }
                _ => {
                    self.socket = None;
                    let trouble = unconnected(&self.path, &error);
                    let (reason, end) = (Some(Reason::Unavailable), sending.places.len());
                    let failure = Failure { sent: Sent::No, reason, after: None, trouble };
                    sending.tell(end, Fate::Failed(failure), done);
                }
            }
        }
    }
}
