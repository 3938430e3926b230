//! How targets are reached: asked once for each, with a limit on the wait, and followed from then on.

use relay::{Path, Paths};
use std::io;
use std::time::Duration;
use sys::Errno;
use sys::route::{Egress, Ends};

/// How long the opening of a target waits for the kernel's tables. Others may lock them for seconds; then the target starts
/// without runs, as one on another host, and learns it when the answer comes.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the last ledger waits for it.
const REFRESH_PATIENCE: Duration = Duration::from_millis(200);

/// The thread that asks, or why there is none.
pub(crate) struct Ways(Result<Paths, Errno>);

impl Ways {
    /// Starts the thread. Without one, nothing is known of any way, and each target says so when it is opened.
    pub(crate) fn start() -> Ways {
        Ways(Paths::start().map_err(|error| Errno::from(&error)))
    }

    /// Has what is known of receivers on this host made new, for the last ledger.
    pub(crate) fn refresh(&self) {
        if let Ok(paths) = &self.0 {
            paths.refresh(REFRESH_PATIENCE);
        }
    }

    /// The way between two ends, and what is known of it now.
    pub(crate) fn follow(&self, ends: Ends) -> (Path, io::Result<Egress>) {
        match &self.0 {
            Ok(paths) => paths.follow(ends, PATIENCE),
            Err(errno) => (Path::unknown(), Err((*errno).into())),
        }
    }
}
