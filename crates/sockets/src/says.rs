//! What a kernel message says, and which of its zeros mean nothing.

use std::net::IpAddr;
use wire::inet_diag::{SocketMessage, State, Timer};

/// Whether the message describes the remnant of a connection, with which the kernel answers late segments.
pub(crate) fn is_remnant(message: &SocketMessage<'_>) -> bool {
    match message.state {
        State::TimeWait => true,
        // The kernel shows an orphan in FIN-WAIT-2 with its state, but without an inode and with the timer of TIME-WAIT
        // (net/ipv4/inet_diag.c, inet_twsk_diag_fill).
        State::FinWait2 => message.inode == 0 && message.timer == Timer::TimeWait,
        _ => false,
    }
}

/// Whether it describes a minisock: what the kernel keeps of a connection after, or before, its socket. A minisock has neither
/// owner nor file nor cgroup nor `tcp_info`.
fn is_minisock(message: &SocketMessage<'_>) -> bool {
    is_remnant(message) || matches!(message.state, State::SynReceived | State::NewSynReceived)
}

/// The owner in a row of a dump. The kernel writes 0, which is root, when there is none: for a minisock and, up to Linux 6.16,
/// for a socket without a file (`sock_i_uid` in net/core/sock.c), which has not been accepted yet or was closed by its program.
/// From 6.17 on, root's own sockets without a file look the same.
pub(crate) fn uid(message: &SocketMessage<'_>) -> Option<u32> {
    let is_known = !is_minisock(message) && (message.inode != 0 || message.uid != 0);
    is_known.then_some(message.uid)
}

/// The inode in a row of a dump. 0 for a socket without a file; a minisock has none.
pub(crate) fn inode(message: &SocketMessage<'_>) -> Option<u32> {
    (!is_minisock(message)).then_some(message.inode)
}

/// Whether the reader gets what only `CAP_NET_ADMIN` gets for a socket with `tcp_info`, such as keys and ULP: every message to
/// such a reader includes the mark (net/ipv4/inet_diag.c, inet_diag_msg_attrs_fill; tcp_diag.c, tcp_diag_get_aux).
pub(crate) fn is_for_admin(message: &SocketMessage<'_>) -> bool {
    message.mark.is_some() && message.tcp_info.is_some()
}

/// Whether a close event is from an abort. An abort first clears the peer's port (`tcp_disconnect` in net/ipv4/tcp.c), and along
/// with it our address if the socket was not bound, the queues, and nearly all of `tcp_info`.
pub(crate) fn is_aborted(event: &SocketMessage<'_>) -> bool {
    event.id.dst.port() == 0
}

/// An address in a close event. `None` if it is unspecified, because an abort has cleared it.
pub(crate) fn closed_address(address: IpAddr) -> Option<IpAddr> {
    Some(address).filter(|address| !address.to_canonical().is_unspecified())
}

/// A port in a close event. `None` if it is 0, because an abort has cleared it.
pub(crate) fn closed_port(port: u16) -> Option<u16> {
    Some(port).filter(|&port| port != 0)
}

/// Fields of `tcp_info` that are 0 in every close event, because the kernel empties the queue first (`tcp_write_queue_purge` in
/// net/ipv4/tcp.c).
pub(crate) const CLEARED_BEFORE_CLOSE: [&str; 2] = ["unacked_segments", "backoff"];
