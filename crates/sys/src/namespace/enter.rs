//! Entering another namespace and returning.

use super::{Error, OWN_PATH, OpenNamespace};
use crate::Errno;
use crate::errno::check;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::process;
use std::thread;

/// The calling thread's namespace, and how to return to it. Made once and kept: it holds only a namespace that this process is in
/// anyway.
pub struct Home {
    namespace: OpenNamespace,
    way: Way,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The calling thread enters and returns: two calls, about a microsecond.
    Return,
    /// A separate thread enters and ends there, because the kernel would not let it return.
    OneWay,
}

impl Home {
    /// Remembers the calling thread's namespace, and finds out whether the thread may return to it.
    ///
    /// It may not when the process is in a user namespace that does not own its network namespace, as under `unshare --user` or
    /// `podman unshare`. Entering others still works there, with one thread per visit.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn remember() -> Result<Home, Error> {
        let namespace = OpenNamespace::open(Path::new(OWN_PATH))?;
        // Entering the own namespace requires the same capabilities as returning (net/core/net_namespace.c, netns_install).
        let way = if set(namespace.as_fd()).is_ok() { Way::Return } else { Way::OneWay };
        Ok(Home { namespace, way })
    }

    /// Runs `f` in another namespace. When this returns, or when `f` panics, every thread including the caller is in its own
    /// namespace. If `namespace` is our own, it is not entered, since even that needs a capability.
    ///
    /// Anything that `f` opens belongs to the other namespace and keeps it alive.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] naming `CAP_SYS_ADMIN`; [`Error::Gone`] when the descriptor is not a network namespace. In both
    /// cases `f` did not run.
    ///
    /// # Aborts
    /// When the kernel refuses the return that it allowed before because `f` gave up `CAP_SYS_ADMIN`. A thread left behind would
    /// report on the wrong namespace from then on, and nothing can fix that.
    pub fn enter<R: Send>(
        &self,
        namespace: &OpenNamespace,
        f: impl FnOnce() -> R + Send,
    ) -> Result<R, Error> {
        if namespace.id() == self.namespace.id() {
            return Ok(f());
        }

        match self.way {
            Way::Return => {
                set(namespace.as_fd()).map_err(Error::from_setns)?;
                // Returns when it is dropped, also when `f` panics.
                let _return = Return(self.namespace.as_fd());
                Ok(f())
            }
            Way::OneWay => on_a_thread(|| {
                set(namespace.as_fd()).map_err(Error::from_setns)?;
                Ok(f())
            }),
        }
    }
}

impl OpenNamespace {
    /// Creates a network namespace that only this descriptor, and what is opened inside, keeps alive: it is mounted nowhere, and
    /// the kernel removes it and its devices when the process ends, however it ends. It has a loopback device, which is down.
    ///
    /// The calling thread does not move.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] naming `CAP_SYS_ADMIN`, which [`super::isolate`] may grant; [`Error::Syscall`] with `ENOSPC` at
    /// the limit `user.max_net_namespaces`, or `EINVAL` from a kernel without network namespaces.
    pub fn create() -> Result<OpenNamespace, Error> {
        on_a_thread(|| {
            // SAFETY: unshare takes no pointers. It moves only this thread, which ends in a moment.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map_err(Error::from_unshare)?;
            OpenNamespace::open(Path::new(OWN_PATH))
        })
    }

    /// Moves the calling thread into the namespace permanently, for a thread started for that purpose; for a visit use
    /// [`Home::enter`].
    ///
    /// # Errors
    /// As [`Home::enter`].
    pub fn move_this_thread(&self) -> Result<(), Error> {
        set(self.as_fd()).map_err(Error::from_setns)
    }

    /// Runs `f` in the namespace on a separate thread, and waits for it. Needs no return, so it works wherever the namespace can
    /// be entered at all. A panic of `f` is resumed here.
    ///
    /// # Errors
    /// As [`Home::enter`]; [`Error::Syscall`] when the thread cannot be started.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> Result<R, Error> {
        on_a_thread(|| {
            self.move_this_thread()?;
            Ok(f())
        })
    }
}

fn on_a_thread<R: Send>(go: impl FnOnce() -> Result<R, Error> + Send) -> Result<R, Error> {
    thread::scope(|scope| {
        let visit = thread::Builder::new()
            .name("weir-visit".into())
            .spawn_scoped(scope, go)
            .map_err(|error| Error::Syscall { call: "clone", errno: Errno::from(&error) })?;
        visit.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Returns to the home namespace when dropped.
struct Return<'a>(BorrowedFd<'a>);

impl Drop for Return<'_> {
    fn drop(&mut self) {
        if let Err(errno) = set(self.0) {
            let _ = writeln!(
                io::stderr(),
                "weir: cannot return to the own network namespace: {errno}; stopping"
            );
            process::abort();
        }
    }
}

/// Moves the calling thread.
fn set(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: setns takes no pointers.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}
