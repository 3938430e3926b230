//! How targets are reached: each route is asked for once, with a limit on the wait, and followed from then on.

use relay::{Path, Paths};
use std::io;
use std::time::Duration;
use sys::Errno;
use sys::route::{Egress, Ends};

/// How long opening a target waits for the kernel's tables. Others may lock them for seconds; then the target starts without
/// runs of datagrams in one message, like one on another host, and switches when the answer comes.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the last ledger waits for current data.
const REFRESH_PATIENCE: Duration = Duration::from_millis(200);

/// The thread that asks the kernel, or the error if there is none.
pub(crate) struct Ways {
    paths: Result<Paths, Errno>,
    /// How many changes of this host were handled.
    changes: u64,
}

impl Ways {
    /// Starts the thread. Without it no route is known, and each target logs that when it is opened.
    pub(crate) fn start() -> Ways {
        Ways { paths: Paths::start().map_err(|error| Errno::from(&error)), changes: 0 }
    }

    /// Whether this host's addresses, routes or interfaces have changed since the last call. `None` where the kernel does not say.
    pub(crate) fn take_change(&mut self) -> Option<bool> {
        let changes = self.paths.as_ref().ok()?.changes();
        Some(std::mem::replace(&mut self.changes, changes) != changes)
    }

    /// Refreshes what is known of receivers on this host, for the last ledger.
    pub(crate) fn refresh(&self) {
        if let Ok(paths) = &self.paths {
            paths.refresh(REFRESH_PATIENCE);
        }
    }

    /// The path between two ends, and what is known of it now.
    pub(crate) fn follow(&self, ends: Ends) -> (Path, io::Result<Egress>) {
        match &self.paths {
            Ok(paths) => paths.follow(ends, PATIENCE),
            Err(errno) => (Path::unknown(), Err((*errno).into())),
        }
    }
}
