//! Sockets handed over by a service manager (sd_listen_fds(3)).

use std::env;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// First descriptor that a service manager passes (`SD_LISTEN_FDS_START`).
const FIRST_FD: i32 = 3;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the sockets that the service manager opened for this process; none on the second call or without a manager.
///
/// Each is closed on exec from here on.
pub fn take_sockets() -> Vec<OwnedFd> {
    let is_ours = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    if !is_ours || TAKEN.swap(true, Ordering::SeqCst) {
        return Vec::new();
    }
    let count: i32 = env::var("LISTEN_FDS").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    (FIRST_FD..FIRST_FD.saturating_add(count.clamp(0, 1_024))).filter_map(take).collect()
}

fn take(fd: i32) -> Option<OwnedFd> {
    // SAFETY: F_SETFD takes an integer; a descriptor that is not open makes it fail.
    let rc = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: the descriptor is open, the protocol gives it to this process, and `TAKEN` makes sure that it is taken once.
    (rc == 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
