//! What a UDP outlet needs from the kernel, as a trait, so that the simulation can supply another kernel.

use super::senders::{SenderCounts, Senders, Wait};
use crate::SourceAddress;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::errqueue::{self, Returned};
use sys::send::{Insert, Message, send_messages, send_messages_from, send_messages_with};
use sys::socket::{LocalAddress, local_address, outstanding_bytes, path_mtu_bytes};
use sys::{Errno, Source};

/// One or more connected UDP sockets, and a clock.
pub(crate) trait UdpKernel {
    /// See [`send_messages`].
    fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno>;

    /// See [`send_messages_from`]. Uses the source's port too if that is to be kept.
    fn send_from(
        &mut self,
        messages: &[Message<'_>],
        source_of: &dyn Fn(usize) -> Option<SocketAddr>,
    ) -> Result<usize, Errno>;

    /// See [`send_messages_with`].
    fn send_with<'a>(
        &mut self,
        messages: &[Message<'_>],
        insert_of: &dyn Fn(usize) -> Insert<'a>,
    ) -> Result<usize, Errno>;

    /// What became of the senders' sockets since the last call.
    fn take_sender_counts(&mut self) -> SenderCounts {
        SenderCounts::default()
    }

    /// Takes one entry off the error queue.
    fn take_returned(&mut self) -> Option<Returned>;

    /// Whether everything taken has left or was dropped. `false` when that is not known.
    fn has_nothing_outstanding(&mut self) -> bool;

    /// Largest datagram that leaves as one packet, in bytes. 0 if unknown.
    fn datagram_bytes_max(&self) -> usize;

    /// Address that datagrams leave from.
    fn own_address(&self) -> Option<Source>;

    /// Nanoseconds of a clock that never steps.
    fn now_ns(&self) -> u64;

    /// The descriptor to poll for writability.
    fn socket(&self) -> Option<BorrowedFd<'_>>;
}

/// The packet that every IPv6 path takes, in bytes: what [`SendOptions`](sys::socket::SendOptions) limits packets of others to.
const IPV6_PACKET_BYTES_MIN: usize = 1_280;

/// The sockets of a target.
pub(crate) struct Sockets {
    /// The one with this host's address.
    own: OwnedFd,
    /// Those with the senders' addresses, if their ports are kept.
    senders: Option<Senders>,
    /// The datagrams carry the addresses of their senders, so no report about the path comes back here.
    is_for_others: bool,
}

impl Sockets {
    pub(crate) fn new(own: OwnedFd, source_address: &SourceAddress) -> Sockets {
        let senders = match source_address {
            SourceAddress::KeptWithPort(how) => Some(Senders::new(how.clone())),
            SourceAddress::Own | SourceAddress::Kept | SourceAddress::Said(_) => None,
        };
        let is_for_others =
            matches!(source_address, SourceAddress::Kept | SourceAddress::KeptWithPort(_));
        Sockets { own, senders, is_for_others }
    }
}

impl UdpKernel for Sockets {
    fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno> {
        send_messages(self.own.as_fd(), messages)
    }

    fn send_from(
        &mut self,
        messages: &[Message<'_>],
        source_of: &dyn Fn(usize) -> Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        match &mut self.senders {
            Some(senders) => senders.send(self.own.as_fd(), messages, source_of),
            None => {
                let ip_of = |at| source_of(at).map(|source| source.ip());
                send_messages_from(self.own.as_fd(), messages, ip_of)
            }
        }
    }

    fn send_with<'a>(
        &mut self,
        messages: &[Message<'_>],
        insert_of: &dyn Fn(usize) -> Insert<'a>,
    ) -> Result<usize, Errno> {
        send_messages_with(self.own.as_fd(), messages, insert_of)
    }

    fn take_sender_counts(&mut self) -> SenderCounts {
        self.senders.as_mut().map_or_else(SenderCounts::default, Senders::take_counts)
    }

    fn take_returned(&mut self) -> Option<Returned> {
        let of_sender = self.senders.as_mut().and_then(Senders::take_returned);
        of_sender.or_else(|| errqueue::take(self.own.as_fd()))
    }

    fn has_nothing_outstanding(&mut self) -> bool {
        outstanding_bytes(self.own.as_fd()) == Ok(0)
            && self.senders.as_mut().is_none_or(Senders::have_nothing_outstanding)
    }

    fn datagram_bytes_max(&self) -> usize {
        // IPv4 header without options, or IPv6 header, and the UDP header.
        let is_v6 = inet_address(&self.own).is_some_and(|addr| addr.is_ipv6());
        let header_bytes = if is_v6 { 48 } else { 28 };
        if is_v6 && self.is_for_others {
            return IPV6_PACKET_BYTES_MIN - header_bytes;
        }
        path_mtu_bytes(self.own.as_fd())
            .map_or(0, |mtu| (mtu as usize).saturating_sub(header_bytes))
    }

    fn own_address(&self) -> Option<Source> {
        inet_address(&self.own).map(Source::from)
    }

    fn now_ns(&self) -> u64 {
        sys::clock::monotonic_ns()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self.senders.as_ref().map(Senders::wait) {
            None | Some(Wait::ForOwn) => Some(self.own.as_fd()),
            Some(Wait::For(socket)) => Some(socket),
            Some(Wait::ForTime) => None,
        }
    }
}

fn inet_address(socket: &OwnedFd) -> Option<std::net::SocketAddr> {
    match local_address(socket.as_fd()) {
        Some(LocalAddress::Inet(addr)) => Some(addr),
        _ => None,
    }
}
