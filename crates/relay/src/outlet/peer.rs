//! The other end of a unix target. A thread of its own connects to it, because a path may lead to a file system that hangs.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use sys::poll::{EventFd, Interest, PollSet};
use sys::socket::connect_unix;

/// Time between attempts to connect while nobody listens, or while one listens who takes nothing: a receiver that has shut its
/// socket down for reading is found, and refuses.
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// Time between two looks at which socket is at the path: a receiver may bind another one there while its old one lives on, which
/// takes datagrams and gives no error.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The receiver at the path of a unix datagram socket, which comes and goes. Its thread connects until there is a socket, and
/// again when that one is dead, or when another one is at the path. The thread ends when this handle is dropped.
pub struct UnixPeer(Arc<Shared>);

struct Shared {
    path: PathBuf,
    /// A connected socket that was not taken yet. The data thread accesses it only after `is_connected` is set.
    socket: Mutex<Option<OwnedFd>>,
    is_connected: AtomicBool,
    is_wanted: AtomicBool,
    is_closed: AtomicBool,
    /// The last attempt found no such path, or no receiver behind it.
    is_absent: AtomicBool,
    /// Wakes the thread.
    wake: EventFd,
    /// Writable while there is a socket to take.
    connected: EventFd,
}

impl UnixPeer {
    /// Starts connecting.
    ///
    /// # Errors
    /// An eventfd or the thread cannot be created. A path without a receiver is not an error.
    pub fn follow(path: PathBuf) -> io::Result<UnixPeer> {
        let shared = Arc::new(Shared {
            path,
            socket: Mutex::default(),
            is_connected: AtomicBool::new(false),
            is_wanted: AtomicBool::new(true),
            is_closed: AtomicBool::new(false),
            is_absent: AtomicBool::new(false),
            wake: EventFd::new()?,
            connected: EventFd::new()?,
        });

        // A full eventfd is not writable: the data thread waits for it as for a socket.
        shared.connected.fill();

        let for_thread = Arc::clone(&shared);
        thread::Builder::new().name("unix-peer".to_owned()).spawn(move || for_thread.run())?;

        Ok(UnixPeer(shared))
    }

    /// A connected socket that was not taken before, if there is one. Does not wait and does not request one.
    pub(super) fn take(&self) -> Option<OwnedFd> {
        if !self.0.is_connected.load(Ordering::Acquire) {
            return None;
        }
        // A data thread never waits for a lock; the other thread holds it while it stores a new socket.
        let socket = self.0.socket.try_lock().ok()?.take()?;
        self.0.is_connected.store(false, Ordering::Relaxed);
        Some(socket)
    }

    /// The socket that was taken is dead: asks the thread for another.
    pub(super) fn renew(&self) {
        self.0.connected.fill();
        self.0.is_wanted.store(true, Ordering::Release);
        self.0.wake.wake();
    }

    /// A descriptor that becomes writable when there is a socket to take.
    pub(super) fn connected(&self) -> BorrowedFd<'_> {
        self.0.connected.as_fd()
    }

    /// Whether nobody listens at the path, as far as is known.
    pub(super) fn is_absent(&self) -> bool {
        self.0.is_absent.load(Ordering::Relaxed)
    }
}

impl Drop for UnixPeer {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.wake.wake();
    }
}

impl std::fmt::Debug for UnixPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("UnixPeer").field(&self.0.path).finish()
    }
}

impl Shared {
    fn run(&self) {
        let mut set = PollSet::default();
        let mut connected_at: Option<Instant> = None;
        // The socket file that the newest connection leads to.
        let mut file = None;
        while !self.is_closed.load(Ordering::Acquire) {
            let is_early = connected_at.is_some_and(|at| at.elapsed() < CONNECT_INTERVAL);
            let is_wanted = self.is_wanted.load(Ordering::Acquire);
            let is_due = is_wanted || self.has_other_file(file);
            if is_due && !is_early && self.connect(&mut file) {
                connected_at = Some(Instant::now());
            }
            let is_waiting = self.is_wanted.load(Ordering::Acquire);

            set.clear();
            set.add(self.wake.as_fd(), Interest::Readable);
            // An interrupted wait is just a short one.
            let _ = set.wait(if is_waiting { CONNECT_INTERVAL } else { LOOK_INTERVAL });
            self.wake.clear();
        }
    }

    /// Whether a socket is at the path that is not the one connected to. A path without one says nothing: the receiver that was
    /// there may live on.
    fn has_other_file(&self, file: Option<SocketFile>) -> bool {
        let now = socket_file(&self.path);
        now.is_some() && now != file
    }

    fn connect(&self, file: &mut Option<SocketFile>) -> bool {
        // Before the connection: if the file is replaced in between, the next look finds another one.
        let before = socket_file(&self.path);
        let socket = connect_unix(&self.path);
        self.is_absent.store(socket.is_err(), Ordering::Relaxed);
        let Ok(socket) = socket else { return false };
        *file = before;
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
        // The order matters: once visible, a socket may be taken, found dead and requested again, all before the next line.
        self.is_wanted.store(false, Ordering::Relaxed);
        self.connected.clear();
        self.is_connected.store(true, Ordering::Release);
        true
    }
}

/// Device and inode of a socket's file.
type SocketFile = (u64, u64);

/// The socket file at a path now; `None` if there is none.
fn socket_file(path: &Path) -> Option<SocketFile> {
    let meta = fs::metadata(path).ok()?;
    meta.file_type().is_socket().then(|| (meta.dev(), meta.ino()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use testkit::{TempDir, wait_for};

    #[test]
    fn a_receiver_that_takes_nothing_is_not_tried_without_a_pause() {
        let dir = TempDir::new();
        let path = dir.file("shut.sock");
        let _shut = UnixDatagram::bind(&path).unwrap();
        let peer = UnixPeer::follow(path).unwrap();
        let begin = Instant::now();
        for _ in 0..5 {
            wait_for("a socket", || peer.take());
            peer.renew();
        }
        assert!(begin.elapsed() >= 4 * CONNECT_INTERVAL, "{:?}", begin.elapsed());
    }

    #[test]
    fn a_receiver_that_is_replaced_while_its_socket_lives_is_followed() {
        let dir = TempDir::new();
        let path = dir.file("out.sock");
        let _first = UnixDatagram::bind(&path).unwrap();
        let peer = UnixPeer::follow(path.clone()).unwrap();
        wait_for("a socket", || peer.take());
        assert!(peer.take().is_none(), "the same file");

        fs::remove_file(&path).unwrap();
        let second = UnixDatagram::bind(&path).unwrap();
        let socket = UnixDatagram::from(wait_for("a socket to the second", || peer.take()));
        socket.send(b"x").unwrap();
        assert_eq!(second.recv(&mut [0; 8]).unwrap(), 1);
    }
}
