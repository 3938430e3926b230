//! The collector's side: asks the helper for what it may not open itself.

use super::protocol::{Answer, MESSAGE_BYTES_MAX, Request};
use crate::access::{Access, Found, Hears, Scope};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::Errno;
use sys::namespace::{Error, Scan};
use sys::netlink::{Protocol, Socket};
use sys::pass::Channel;

/// Longest wait for an answer: a scan of many processes takes some tens of milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Access through the helper that listens at a path. A helper that was restarted is connected to again.
pub struct Remote {
    path: PathBuf,
    channel: Option<Channel>,
    buffer: Vec<u8>,
}

impl Remote {
    /// Connects to the helper.
    ///
    /// # Errors
    /// Nobody listens there, or it may not be connected to.
    pub fn connect(path: &Path) -> io::Result<Remote> {
        let mut remote =
            Remote { path: path.to_owned(), channel: None, buffer: vec![0; MESSAGE_BYTES_MAX] };
        remote.channel()?;
        Ok(remote)
    }

    fn channel(&mut self) -> io::Result<&Channel> {
        if self.channel.is_none() {
            let channel = Channel::connect(&self.path)?;
            channel.set_timeout(Some(ANSWER_TIMEOUT))?;
            self.channel = Some(channel);
        }
        self.channel.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Sends a request. What an earlier helper knew is gone with it, so that only a discovery may connect anew.
    fn ask(&mut self, request: &Request) -> Result<(), Errno> {
        let channel = match request {
            Request::Discover(_) | Request::Events(..) => {
                self.channel().map_err(|error| Errno::from(&error))?
            }
            _ => self.channel.as_ref().ok_or(Errno::NOTCONN)?,
        };
        channel.send(&request.encode(), &[])
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

    /// Asks and takes one answer. After any failure the connection is given up: a late answer must not be taken for the
    /// next one.
    fn exchange(&mut self, request: &Request) -> Result<(Answer, Option<OwnedFd>), Errno> {
        let result = self.ask(request).and_then(|()| self.receive());
        if result.is_err() {
            self.channel = None;
        }
        result
    }

    fn discover_once(&mut self, scope: &Scope, found: &mut Vec<Found>) -> Result<Scan, Errno> {
        found.clear();
        self.ask(&Request::Discover(scope.clone()))?;
        loop {
            match self.receive()?.0 {
                Answer::Found(mut more) => found.append(&mut more),
                Answer::Scanned(scan) => return Ok(scan),
                Answer::Failed { errno, .. } => return Err(Errno(errno)),
                _ => return Err(Errno::PROTO),
            }
        }
    }

    fn socket(answer: Answer, descriptor: Option<OwnedFd>) -> Result<Socket, Error> {
        let syscall = |errno| Error::Syscall { call: "the helper's answer", errno };
        match (answer, descriptor) {
            (Answer::Descriptor, Some(fd)) => {
                Socket::from_fd(fd, Protocol::SockDiag).map_err(syscall)
            }
            (Answer::Gone, _) => Err(Error::Gone),
            (Answer::Failed { capability, .. }, _) if capability != 0 => {
                Err(Error::NotPermitted { call: "setns (by the helper)", capability })
            }
            (Answer::Failed { errno, .. }, _) => Err(syscall(Errno(errno))),
            _ => Err(syscall(Errno::PROTO)),
        }
    }
}

impl Access for Remote {
    fn discover(&mut self, scope: &Scope, found: &mut Vec<Found>) -> io::Result<Scan> {
        let first = self.discover_once(scope, found);
        let result = match first {
            Ok(scan) => Ok(scan),
            // It may have been restarted since.
            Err(_) => {
                self.channel = None;
                self.discover_once(scope, found)
            }
        };
        result.map_err(|errno| {
            self.channel = None;
            let path = self.path.display();
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("the helper at {path} does not answer: {error}"))
        })
    }

    fn open(&mut self, at: usize) -> Result<Socket, Error> {
        let place = u32::try_from(at).map_err(|_| Error::Gone)?;
        let (answer, descriptor) = self
            .exchange(&Request::Open(place))
            .map_err(|errno| Error::Syscall { call: "asking the helper", errno })?;
        Remote::socket(answer, descriptor)
    }

    fn nsid(&mut self, at: usize) -> Result<i32, Errno> {
        let place = u32::try_from(at).map_err(|_| Errno::INVAL)?;
        match self.exchange(&Request::Nsid(place))?.0 {
            Answer::Nsid(nsid) => Ok(nsid),
            Answer::Failed { errno, .. } => Err(Errno(errno)),
            _ => Err(Errno::PROTO),
        }
    }

    fn events(&mut self, hears: Hears, buffer_bytes: usize) -> Result<Socket, Errno> {
        let buffer_bytes = u32::try_from(buffer_bytes).unwrap_or(u32::MAX);
        let (answer, descriptor) = self.exchange(&Request::Events(hears, buffer_bytes))?;
        Remote::socket(answer, descriptor).map_err(|error| match error {
            Error::Syscall { errno, .. } => errno,
            Error::NotPermitted { .. } => Errno::PERM,
            Error::Gone => Errno::NOENT,
        })
    }
}
