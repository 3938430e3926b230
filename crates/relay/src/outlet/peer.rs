//! The other end of a unix target: connected to by a thread of its own, because a path may lead to a file system that hangs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use sys::poll::{EventFd, Interest, PollSet};
use sys::socket::connect_unix;

/// Time between two attempts to connect, while nobody listens.
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// Between two looks of an idle thread; it is woken when it is needed.
const SLEEP_MAX: Duration = Duration::from_secs(10);

/// The receiver at the path of a unix datagram socket, which comes and goes. Its thread connects until there is a socket, and
/// again when that one is found dead; it ends with this handle.
pub struct UnixPeer(Arc<Shared>);

struct Shared {
    path: PathBuf,
    /// A connected socket that was not taken yet. Touched by the data thread only after `is_connected` said that it is there.
    socket: Mutex<Option<OwnedFd>>,
    is_connected: AtomicBool,
    is_wanted: AtomicBool,
    is_closed: AtomicBool,
    /// The last attempt found nobody: no such path, or no receiver behind it.
    is_absent: AtomicBool,
    /// Wakes the thread.
    wake: EventFd,
    /// Writable while there is a socket to be taken.
    connected: EventFd,
}

impl UnixPeer {
    /// Begins to connect.
    ///
    /// # Errors
    /// When an eventfd or the thread cannot be made. That nobody listens is not an error.
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

    /// A connected socket, if there is one. Neither waits nor asks for one.
    pub(super) fn take(&self) -> Option<OwnedFd> {
        if !self.0.is_connected.load(Ordering::Acquire) {
            return None;
        }
        // A data thread waits for no lock: the other side holds it while it puts a new socket there.
        let socket = self.0.socket.try_lock().ok()?.take()?;
        self.0.is_connected.store(false, Ordering::Relaxed);
        Some(socket)
    }

    /// The socket that was taken is dead: has another one connected.
    pub(super) fn renew(&self) {
        self.0.connected.fill();
        self.0.is_wanted.store(true, Ordering::Release);
        self.0.wake.wake();
    }

    /// Becomes writable when there is a socket to be taken.
    pub(super) fn connected(&self) -> BorrowedFd<'_> {
        self.0.connected.as_fd()
    }

    /// Nobody listens at the path, as far as is known.
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
        while !self.is_closed.load(Ordering::Acquire) {
            let is_connected = self.is_wanted.load(Ordering::Acquire) && self.connect();
            let is_waiting = self.is_wanted.load(Ordering::Acquire) && !is_connected;

            set.clear();
            set.add(self.wake.as_fd(), Interest::Readable);
            // An interrupted wait is a short one.
            let _ = set.wait(if is_waiting { CONNECT_INTERVAL } else { SLEEP_MAX });
            self.wake.clear();
        }
    }

    fn connect(&self) -> bool {
        let socket = connect_unix(&self.path);
        self.is_absent.store(socket.is_err(), Ordering::Relaxed);
        let Ok(socket) = socket else { return false };
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
        // In this order: a socket that is seen may be taken, found dead, and another one be wanted, all before the next line.
        self.is_wanted.store(false, Ordering::Relaxed);
        self.connected.clear();
        self.is_connected.store(true, Ordering::Release);
        true
    }
}
