//! Notifications to the service manager: ready, reloading, stopping, alive (sd_notify(3)). Without a service manager nothing is
//! sent.

use sd_notify::NotifyState;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use sys::pass::send_to_peer;

/// How often the status line is sent.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);
/// How much more time each notice gives a drain, and how often it is sent.
const EXTENSION: Duration = Duration::from_secs(5);
const EXTENSION_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for room in the service manager's queue.
const SEND_WAIT: Duration = Duration::from_millis(100);

/// The connection to the service manager.
pub(crate) struct Service {
    /// The service manager's socket; `None` without a service manager.
    socket: Option<PathBuf>,
    watchdog: Option<Watchdog>,
    status_due: Instant,
    extension_due: Instant,
}

struct Watchdog {
    interval: Duration,
    due: Cell<Instant>,
    /// Each data loop's heartbeat when the watchdog was last fed, by name.
    beats: BTreeMap<String, u64>,
}

/// Sends a message with a time limit; the standard call waits forever if the service manager does not read.
fn send(path: &Path, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(path)?,
    }
    socket.set_write_timeout(Some(SEND_WAIT))?;
    Ok(send_to_peer(socket.as_fd(), text, descriptors)?)
}

impl Service {
    pub(crate) fn new() -> Service {
        let now = Instant::now();
        // Feed it three times as often as required, so that one late turn does no harm.
        let watchdog = sd_notify::watchdog_enabled().map(|limit| Watchdog {
            interval: limit / 3,
            due: Cell::new(now),
            beats: BTreeMap::new(),
        });
        let socket = std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from);
        Service { socket, watchdog, status_due: now, extension_due: now }
    }

    /// Ignores errors: a service manager that does not listen notices by its own timeouts, and must hold up nothing here.
    fn tell(&self, states: &[NotifyState<'_>]) {
        if let Some(path) = &self.socket {
            let text: String = states.iter().map(|state| format!("{state}\n")).collect();
            let _ = send(path, text.as_bytes(), &[]);
        }
    }

    /// Asks the service manager to hold a descriptor for the next process. One that it already holds stays. A service manager
    /// that holds none (`FileDescriptorStoreMax=0`) closes it.
    pub(crate) fn hold(&self, name: &str, descriptor: BorrowedFd<'_>) {
        if let Some(path) = &self.socket {
            let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0\n");
            let _ = send(path, text.as_bytes(), &[descriptor]);
        }
    }

    pub(crate) fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    pub(crate) fn reloading(&self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.tell(&[NotifyState::Reloading, now]);
        }
    }

    pub(crate) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// Asks for more time while draining.
    pub(crate) fn extend_timeout(&mut self, now: Instant) {
        if self.socket.is_some() && now >= self.extension_due {
            self.extension_due = now + EXTENSION_INTERVAL;
            self.tell(&[NotifyState::ExtendTimeoutUsec(EXTENSION.as_micros() as u32)]);
        }
    }

    /// Says that the stop goes on: asks for more time, and feeds the watchdog.
    pub(crate) fn keep_stopping(&mut self) {
        let now = Instant::now();
        self.extend_timeout(now);
        self.feed_watchdog_while_busy(now);
    }

    /// Sends the status line when it is due.
    pub(crate) fn status(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if self.socket.is_some() && now >= self.status_due {
            self.status_due = now + STATUS_INTERVAL;
            self.tell(&[NotifyState::Status(&text())]);
        }
    }

    /// Feeds the watchdog if every data loop has turned since the last time. `beats` are their heartbeats by name.
    pub(crate) fn feed_watchdog<'a>(
        &mut self,
        now: Instant,
        beats: impl Iterator<Item = (&'a str, u64)>,
    ) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| now >= watchdog.due.get())
        else {
            return;
        };

        let beats: BTreeMap<String, u64> =
            beats.map(|(name, beat)| (name.to_owned(), beat)).collect();
        let is_alive =
            |(name, beat): (&String, &u64)| watchdog.beats.get(name).is_none_or(|old| old != beat);

        if beats.iter().all(is_alive) {
            watchdog.beats = beats;
            watchdog.due.set(now + watchdog.interval);
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    /// Feeds the watchdog while draining and while a reload is applied: data loops then start and end one by one, and each step
    /// has its own time limit.
    pub(crate) fn feed_watchdog_while_busy(&self, now: Instant) {
        if let Some(watchdog) = self.watchdog.as_ref().filter(|watchdog| now >= watchdog.due.get())
        {
            watchdog.due.set(now + watchdog.interval);
            self.tell(&[NotifyState::Watchdog]);
        }
    }
}
