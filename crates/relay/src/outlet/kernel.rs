//! What a UDP outlet asks of the kernel, so that the same outlet runs against another one in the simulation.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::errqueue::{self, Returned};
use sys::send::{Message, send_messages, send_messages_from};
use sys::socket::{LocalAddress, local_address, outstanding_bytes, path_mtu_bytes};
use sys::{Errno, Source};

/// One connected UDP socket, and a clock.
pub(crate) trait UdpKernel {
    /// See [`send_messages`].
    fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno>;

    /// See [`send_messages_from`].
    fn send_from(
        &mut self,
        messages: &[Message<'_>],
        source_of: &dyn Fn(usize) -> Option<IpAddr>,
    ) -> Result<usize, Errno>;

    /// Takes one entry off the error queue.
    fn take_returned(&mut self) -> Option<Returned>;

    /// Whether everything that was taken has left, or was dropped. `false` where that is not known.
    fn has_nothing_outstanding(&mut self) -> bool;

    /// Largest datagram that leaves as one packet; 0 if unknown.
    fn datagram_bytes_max(&self) -> usize;

    /// Address that datagrams leave from.
    fn own_address(&self) -> Option<Source>;

    /// Nanoseconds of a clock that never steps.
    fn now_ns(&self) -> u64;

    /// What becomes writable.
    fn socket(&self) -> Option<BorrowedFd<'_>>;
}

impl UdpKernel for OwnedFd {
    fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno> {
        send_messages(self.as_fd(), messages)
    }

    fn send_from(
        &mut self,
        messages: &[Message<'_>],
        source_of: &dyn Fn(usize) -> Option<IpAddr>,
    ) -> Result<usize, Errno> {
        send_messages_from(self.as_fd(), messages, source_of)
    }

    fn take_returned(&mut self) -> Option<Returned> {
        errqueue::take(self.as_fd())
    }

    fn has_nothing_outstanding(&mut self) -> bool {
        outstanding_bytes(self.as_fd()) == Ok(0)
    }

    fn datagram_bytes_max(&self) -> usize {
        // IPv4 header without options, or IPv6 header, and the UDP header.
        let is_v6 = inet_address(self).is_some_and(|addr| addr.is_ipv6());
        let header_bytes = if is_v6 { 48 } else { 28 };
        path_mtu_bytes(self.as_fd()).map_or(0, |mtu| (mtu as usize).saturating_sub(header_bytes))
    }

    fn own_address(&self) -> Option<Source> {
        inet_address(self).map(Source::from)
    }

    fn now_ns(&self) -> u64 {
        sys::clock::monotonic_ns()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

fn inet_address(socket: &OwnedFd) -> Option<std::net::SocketAddr> {
    match local_address(socket.as_fd()) {
        Some(LocalAddress::Inet(addr)) => Some(addr),
        _ => None,
    }
}
