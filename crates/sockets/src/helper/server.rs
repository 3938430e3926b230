//! The helper's side: it has the capabilities, and does the four things that need them.

use super::protocol::{Answer, MESSAGE_BYTES_MAX, Request};
use crate::access::{Access, Direct, Found};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use sys::Errno;
use sys::namespace::Error;
use sys::netlink::Socket;
use sys::pass::{Channel, Listener};

/// Connections that are served at once; the collector has one, `weir sockets --helper` another.
const CONNECTIONS_MAX: usize = 8;

/// Who may ask: the superuser, this process's own user, and the users named.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Allowed {
    /// User ids.
    pub uids: Vec<u32>,
}

impl Allowed {
    fn contains(&self, uid: u32) -> bool {
        uid == 0 || uid == sys::process::effective_uid() || self.uids.contains(&uid)
    }
}

/// Serves whoever connects and is allowed to, each on a thread of its own, until accepting fails. `refused` is told of each
/// user id that was turned away.
///
/// # Errors
/// The listener fails.
pub fn serve(listener: &Listener, allowed: &Allowed, refused: impl Fn(u32)) -> io::Result<()> {
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        let channel = match listener.accept() {
            Ok(channel) => channel,
            Err(error) if is_about_the_client(&error) => continue,
            Err(error) => return Err(error),
        };
        let uid = channel.peer().map_or(u32::MAX, |peer| peer.uid);
        if !allowed.contains(uid) {
            refused(uid);
            continue;
        }
        if connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            connections.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let ends = Arc::clone(&connections);
        thread::Builder::new().name("helper".to_owned()).spawn(move || {
            Session { access: Direct::new(), found: Vec::new(), channel }.serve();
            ends.fetch_sub(1, Ordering::AcqRel);
        })?;
    }
}

/// Whether the connection, not the listener, failed.
fn is_about_the_client(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

/// One client.
struct Session {
    access: Direct,
    /// What the last discovery found: requests name places in it.
    found: Vec<Found>,
    channel: Channel,
}

impl Session {
    /// Answers until the client goes, or sends what is no request.
    fn serve(mut self) {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let mut descriptors = Vec::new();
        loop {
            let message = match self.channel.receive(&mut buffer, &mut descriptors) {
                Ok(message) if message.len > 0 && !message.is_truncated => message,
                Err(Errno::INTR) => continue,
                _ => return,
            };
            // Nobody is to leave descriptors here.
            descriptors.clear();
            let Some(request) = buffer.get(..message.len).and_then(Request::decode) else { return };
            if self.answer(&request).is_err() {
                return;
            }
        }
    }

    fn answer(&mut self, request: &Request) -> Result<(), Errno> {
        match request {
            Request::Discover(scope) => match self.access.discover(scope, &mut self.found) {
                Ok(scan) => {
                    for message in Answer::found_messages(&self.found) {
                        self.channel.send(&message, &[])?;
                    }
                    self.send(&Answer::Scanned(scan))
                }
                Err(error) => self.send(&failed(Errno::from(&error))),
            },
            Request::Open(place) => match self.access.open(*place as usize) {
                Ok(socket) => self.pass(&socket),
                Err(Error::Gone) => self.send(&Answer::Gone),
                Err(Error::NotPermitted { capability, .. }) => {
                    self.send(&Answer::Failed { errno: Errno::PERM.0, capability })
                }
                Err(Error::Syscall { errno, .. }) => self.send(&failed(errno)),
            },
            Request::Nsid(place) => match self.access.nsid(*place as usize) {
                Ok(nsid) => self.send(&Answer::Nsid(nsid)),
                Err(errno) => self.send(&failed(errno)),
            },
            Request::Events(hears, buffer_bytes) => {
                match self.access.events(*hears, *buffer_bytes as usize) {
                    Ok(socket) => self.pass(&socket),
                    Err(errno) => self.send(&failed(errno)),
                }
            }
        }
    }

    fn pass(&self, socket: &Socket) -> Result<(), Errno> {
        self.channel.send(&Answer::Descriptor.encode(), &[socket.as_fd()])
    }

    fn send(&self, answer: &Answer) -> Result<(), Errno> {
        self.channel.send(&answer.encode(), &[])
    }
}

fn failed(errno: Errno) -> Answer {
    Answer::Failed { errno: errno.0, capability: 0 }
}
