use super::peer::UnixPeer;
use ledger::Reason;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::Errno;
use sys::send::{Message, send_messages};

/// How long a stop waits for a missing receiver, in nanoseconds: one that restarts is back by then.
const ABSENCE_MAX_NS: u64 = 1_000_000_000;

/// A unix datagram socket that is reconnected whenever its peer comes back.
///
/// A full peer is back-pressure, not loss, and so is a missing one: `send` reports that it would block, and the ring holds the
/// datagrams until the peer reads again or is back.
pub(crate) struct UnixOutlet {
    peer: UnixPeer,
    socket: Option<OwnedFd>,
    /// Sockets that were followed by another one, and are not counted yet.
    renewals: u64,
    /// When a stop began to wait for this target.
    drains_since_ns: Option<u64>,
}

impl UnixOutlet {
    pub(crate) fn new(peer: UnixPeer) -> UnixOutlet {
        UnixOutlet { peer, socket: None, renewals: 0, drains_since_ns: None }
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_ref().map_or(self.peer.connected(), AsFd::as_fd))
    }

    pub(crate) fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno> {
        // One atomic load unless another receiver is at the path.
        if let Some(newer) = self.peer.take() {
            self.renewals += u64::from(self.socket.replace(newer).is_some());
        }
        let Some(socket) = &self.socket else { return Err(Errno::AGAIN) };

        let result = send_messages(socket.as_fd(), messages);
        if let Err(Errno::CONNREFUSED | Errno::NOTCONN | Errno::CONNRESET | Errno::PIPE) = result {
            // The peer has closed its socket, so nothing sent over this one can arrive.
            self.socket = None;
            self.peer.renew();
            return Err(Errno::AGAIN);
        }

        result
    }

    pub(crate) fn take_renewals(&mut self) -> u64 {
        std::mem::take(&mut self.renewals)
    }

    pub(crate) fn begin_drain(&mut self, now_ns: u64) {
        self.drains_since_ns = Some(now_ns);
    }

    /// Why a call would be pointless now: the relay stops, and there is no receiver.
    pub(crate) fn refusing(&self, now_ns: u64) -> Option<Reason> {
        let since_ns = self.drains_since_ns?;
        let is_late = now_ns.saturating_sub(since_ns) >= ABSENCE_MAX_NS;
        (is_late && self.socket.is_none() && self.peer.is_absent()).then_some(Reason::Shutdown)
    }
}
