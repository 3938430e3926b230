//! How messages travel: one file for each kind of transport, and the list of transports for experiments.

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

/// A way to send messages from one host to another.
pub trait Transport: Send + Sync {
    /// The transport's name in results.
    fn name(&self) -> TransportName;

    /// The options of its sockets as text; empty for the system's defaults.
    fn options(&self) -> String;

    /// The maximum age of a message on arrival. Zero if lost messages are not retransmitted.
    fn repairs_for(&self) -> Duration;

    /// Opens the receiving end. Called in the receiver's namespace.
    ///
    /// # Errors
    /// The socket cannot be opened.
    fn listen(&self, addr: SocketAddr) -> io::Result<Box<dyn Listening>>;

    /// Opens the sending end, after the receiving end listens. Called in the sender's namespace. Fails at `deadline`.
    ///
    /// # Errors
    /// No connection until the deadline, or a socket option that this kernel does not support.
    fn connect(&self, to: SocketAddr, deadline: Instant) -> io::Result<Box<dyn Sending>>;
}

/// A receiving end to which the sender may not have connected yet.
pub trait Listening: Send {
    /// The address where it listens.
    ///
    /// # Errors
    /// Any error of `getsockname(2)`.
    fn address(&self) -> io::Result<SocketAddr>;

    /// Waits for the sender.
    ///
    /// # Errors
    /// No sender connected until the deadline.
    fn accept(self: Box<Self>, deadline: Instant) -> io::Result<Box<dyn Receiving>>;
}

/// The result of sending a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The kernel has accepted the whole message.
    Taken,
    /// There was no space, and the whole message was discarded.
    Refused,
    /// The deadline came first: the kernel has accepted a part of the message, or nothing. [`Sending::go_on`] sends
    /// the rest.
    Waits,
}

/// The sending end.
pub trait Sending: Send {
    /// Sends one message. Waits until the deadline if the transport waits at all. Do not call this while a message
    /// waits.
    ///
    /// # Errors
    /// The connection is broken.
    fn send(&mut self, message: &[u8], deadline: Instant) -> io::Result<Sent>;

    /// Sends the rest of the waiting message.
    ///
    /// # Errors
    /// As [`Self::send`].
    fn go_on(&mut self, deadline: Instant) -> io::Result<Sent>;

    /// The socket, for a network that drops packets at sockets.
    fn socket(&self) -> BorrowedFd<'_>;

    /// The socket, if it is a TCP socket.
    fn tcp(&self) -> Option<BorrowedFd<'_>>;

    /// The transport's counts, if it counts its own packets.
    fn link(&self) -> Option<LinkSummary> {
        None
    }
}

/// The result of waiting for a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    Message,
    /// The deadline came first.
    Nothing,
    /// The sender has ended: nothing more will arrive.
    End,
}

/// The receiving end.
pub trait Receiving: Send {
    /// Waits for the next message of `message.len()` bytes and writes it to `message`.
    ///
    /// # Errors
    /// The connection is broken, or the received data is not such a message.
    fn receive(&mut self, message: &mut [u8], deadline: Instant) -> io::Result<Received>;

    /// The socket, for a network that drops packets at sockets.
    fn socket(&self) -> BorrowedFd<'_>;

    /// As [`Sending::link`], for the receiving end.
    fn link(&self) -> Option<LinkSummary> {
        None
    }
}

/// Every transport, in the order of the reports. The first two are those of the article.
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

/// Returns the transport with this name.
pub fn named(name: &str) -> Option<Box<dyn Transport>> {
    all().into_iter().find(|transport| transport.name().as_str() == name)
}
