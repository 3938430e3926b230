//! What a message of the kernel's says, and what in it only looks like it: zeros that stand for nothing.

use std::net::IpAddr;
use wire::inet_diag::{SocketMessage, State, Timer};

/// Whether the message is about what is left of a connection for the kernel to answer late segments.
pub(crate) fn is_remnant(message: &SocketMessage<'_>) -> bool {
    match message.state {
        State::TimeWait => true,
        // The kernel shows an orphan in FIN-WAIT-2 under its state, but without an inode and with the timer of TIME-WAIT
        // (net/ipv4/inet_diag.c, inet_twsk_diag_fill).
        State::FinWait2 => message.inode == 0 && message.timer == Timer::TimeWait,
        _ => false,
    }
}

/// Whether it is about a minisock: what the kernel keeps of a connection after, or before, its socket. It has neither owner nor
/// file nor cgroup nor `tcp_info`.
fn is_minisock(message: &SocketMessage<'_>) -> bool {
    is_remnant(message) || matches!(message.state, State::SynReceived | State::NewSynReceived)
}

/// The owner that a row of a dump names. The kernel writes 0, which is root, where there is none: of a minisock, and up to Linux
/// 6.16 of a socket without a file (`sock_i_uid` in net/core/sock.c), one that nobody has accepted yet or that its program has
/// closed. From 6.17 on root's own sockets without a file look the same.
pub(crate) fn uid(message: &SocketMessage<'_>) -> Option<u32> {
    let is_known = !is_minisock(message) && (message.inode != 0 || message.uid != 0);
    is_known.then_some(message.uid)
}

/// The inode that a row of a dump names; 0 is a socket without a file, and a minisock has none.
pub(crate) fn inode(message: &SocketMessage<'_>) -> Option<u32> {
    (!is_minisock(message)).then_some(message.inode)
}

/// Whether the reader was given what only `CAP_NET_ADMIN` gets of a socket with `tcp_info`, keys and ULP included: the mark is
/// in every message to such a reader (net/ipv4/inet_diag.c, inet_diag_msg_attrs_fill; tcp_diag.c, tcp_diag_get_aux).
pub(crate) fn is_for_admin(message: &SocketMessage<'_>) -> bool {
    message.mark.is_some() && message.tcp_info.is_some()
}

/// Whether a close event is that of an abort, which clears the peer's port first (`tcp_disconnect` in net/ipv4/tcp.c), and our
/// address where the socket was not bound, the queues and nearly all of `tcp_info` with it.
pub(crate) fn is_aborted(event: &SocketMessage<'_>) -> bool {
    event.id.dst.port() == 0
}

/// An address of a close event; an abort has cleared what is unspecified.
pub(crate) fn closed_address(address: IpAddr) -> Option<IpAddr> {
    Some(address).filter(|address| !address.to_canonical().is_unspecified())
}

/// A port of a close event; an abort has cleared what is 0.
pub(crate) fn closed_port(port: u16) -> Option<u16> {
    Some(port).filter(|&port| port != 0)
}

/// Fields of `tcp_info` that are 0 in every close event: the kernel empties the queue first (`tcp_write_queue_purge` in
/// net/ipv4/tcp.c).
pub(crate) const CLEARED_BEFORE_CLOSE: [&str; 2] = ["unacked_segments", "backoff"];
