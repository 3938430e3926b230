//! How messages travel: one file for each kind of transport, and the list of those that an experiment can name.

mod tcp;
mod udp;
mod weir;

pub use udp::RECEIVE_BUFFER_BYTES;

use crate::experiment::model::{LinkSummary, TransportName};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use tcp::{Tcp, Variant};

/// A way for messages to get from one host to another.
pub trait Transport: Send + Sync {
    /// Its name in results.
    fn name(&self) -> TransportName;

    /// What is set on its sockets, in words; empty for the system's defaults.
    fn options(&self) -> String;

    /// How old a message may get and still arrive. Zero where what the path loses is not sent again.
    fn repairs_for(&self) -> Duration;

    /// Opens the receiving end. Called in the receiver's namespace.
    ///
    /// # Errors
    /// The socket cannot be opened.
    fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listening>>;

    /// Opens the sending end. Called in the sender's namespace, where the receiving end listens; fails at `deadline`.
    ///
    /// # Errors
    /// No connection within the time, or a socket option that this kernel has not.
    fn connect(&self, to: SocketAddr, deadline: Instant) -> io::Result<Box<dyn Sending>>;
}

/// A receiving end to which the sender may not have connected yet.
pub trait Listening: Send {
    /// Where it listens.
    ///
    /// # Errors
    /// Any of `getsockname(2)`.
    fn address(&self) -> io::Result<SocketAddr>;

    /// Waits for the sender.
    ///
    /// # Errors
    /// Nobody came until the deadline.
    fn accept(self: Box<Self>, deadline: Instant) -> io::Result<Box<dyn Receiving>>;
}

/// What became of a message that was to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The kernel has all of it.
    Taken,
    /// There was no room, and it was thrown away whole.
    Refused,
    /// The deadline came first: the kernel has a part of it, or nothing. [`Sending::go_on`] sends the rest.
    Waits,
}

/// The sending end.
pub trait Sending: Send {
    /// Sends one message, waiting until the deadline if the transport waits at all. Not to be called while one waits.
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&mut self, message: &[u8], deadline: Instant) -> io::Result<Sent>;

    /// Sends the rest of the message that waits.
    ///
    /// # Errors
    /// As [`Self::send`].
    fn go_on(&mut self, deadline: Instant) -> io::Result<Sent>;

    /// The socket, for a network that drops what it receives.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Its socket, if it is TCP's.
    fn tcp(&self) -> Option<BorrowedFd<'_>>;

    /// What it counted, if it counts its packets itself.
    fn link(&self) -> Option<LinkSummary> {
        None
    }
}

/// What came of waiting for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    Message,
    /// The deadline came first.
    Nothing,
    /// The sender has ended: nothing will come any more.
    End,
}

/// The receiving end.
pub trait Receiving: Send {
    /// Waits for the next message of `message.len()` bytes and fills it in.
    ///
    /// # Errors
    /// The connection is broken, or what came is not such a message.
    fn receive(&mut self, message: &mut [u8], deadline: Instant) -> io::Result<Received>;

    /// The socket, for a network that drops what it receives.
    fn socket(&self) -> BorrowedFd<'_>;

    /// As [`Sending::link`], of the other end.
    fn link(&self) -> Option<LinkSummary> {
        None
    }
}

/// Every transport, in the order in which reports name them. The first two are the article's.
pub fn all() -> Vec<Box<dyn Transport>> {
    let tcp = |congestion_control, variant| -> Box<dyn Transport> {
        Box::new(Tcp { congestion_control, variant })
    };
    vec![
        Box::new(udp::Udp),
        tcp("cubic", Variant::Plain),
        tcp("cubic", Variant::NoDelay),
        tcp("bbr", Variant::Plain),
        tcp("reno", Variant::Plain),
        tcp("cubic", Variant::Rto1s),
        tcp("cubic", Variant::Bounded),
        tcp("cubic", Variant::Syslog),
        Box::new(weir::Weir),
    ]
}

/// The transport of that name.
pub fn named(name: &str) -> Option<Box<dyn Transport>> {
    all().into_iter().find(|transport| transport.name().as_str() == name)
}
