use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use sys::Errno;
use sys::send::{Message, send_messages};
use sys::socket::connect_unix;

/// Time between two attempts to connect.
const CONNECT_INTERVAL_NS: u64 = 100_000_000;

/// A unix datagram socket that connects again whenever its peer has come back.
///
/// A full peer is back-pressure, not loss: `send` says that it would block, and the ring holds the datagrams.
pub(crate) struct UnixOutlet {
    path: PathBuf,
    socket: Option<OwnedFd>,
    connected_ns: u64,
}

impl UnixOutlet {
    pub(crate) fn new(path: PathBuf) -> UnixOutlet {
        let socket = connect_unix(&path).ok();
        UnixOutlet { path, socket, connected_ns: sys::clock::monotonic_ns() }
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// The connected socket, or a new one if the last attempt is long enough ago.
    fn connected(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        if self.socket.is_none() {
            let now_ns = sys::clock::monotonic_ns();
            if now_ns < self.connected_ns + CONNECT_INTERVAL_NS {
                return Err(Errno::CONNREFUSED);
            }
            self.connected_ns = now_ns;
            self.socket = connect_unix(&self.path).ok();
        }
        self.socket.as_ref().map(AsFd::as_fd).ok_or(Errno::CONNREFUSED)
    }
}

impl UnixOutlet {
    pub(crate) fn send(&mut self, messages: &[Message<'_>]) -> Result<usize, Errno> {
        let result = send_messages(self.connected()?, messages);
        if let Err(Errno::CONNREFUSED | Errno::NOTCONN | Errno::CONNRESET | Errno::PIPE) = result {
            // The peer has closed its socket; nothing sent over this one can arrive any more.
            self.socket = None;
            return Err(Errno::CONNREFUSED);
        }
        result
    }
}
