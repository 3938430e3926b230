//! Sockets handed over by a service manager (sd_listen_fds(3)).
//!
//! And the reverse: a file that the service manager keeps for the next process (`FDSTORE=1`).

use crate::errno::check;
use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// First descriptor that a service manager passes (`SD_LISTEN_FDS_START`).
const FIRST_FD: i32 = 3;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// A descriptor passed by a service manager.
#[derive(Debug)]
pub struct Handed {
    pub fd: OwnedFd,
    /// The name the service manager gave it (`FileDescriptorName=`, `FDNAME=`); empty if it has none.
    pub name: String,
}

/// Takes the descriptors that the service manager holds for this process: sockets that it opened, and descriptors that an
/// earlier process stored. Empty on the second call, or without a service manager.
///
/// All of them are set close-on-exec.
pub fn take() -> Vec<Handed> {
    let is_ours = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    if !is_ours || TAKEN.swap(true, Ordering::SeqCst) {
        return Vec::new();
    }

    let count: i32 = env::var("LISTEN_FDS").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));

    let fds = FIRST_FD..FIRST_FD.saturating_add(count.clamp(0, 1_024));
    fds.zip(names).filter_map(|(fd, name)| Some(Handed { fd: take_one(fd)?, name })).collect()
}

/// As [`take`], without the names.
pub fn take_sockets() -> Vec<OwnedFd> {
    take().into_iter().map(|one| one.fd).collect()
}

fn take_one(fd: i32) -> Option<OwnedFd> {
    // SAFETY: F_SETFD takes an integer; a descriptor that is not open makes it fail.
    let rc = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: the descriptor is open, the protocol gives it to this process, and `TAKEN` makes sure that it is taken once.
    (rc == 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Creates a file that exists only in memory and lives as long as a process holds its descriptor (memfd_create(2)).
///
/// # Errors
/// Any of `memfd_create(2)`.
pub fn memory_file() -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string that outlives the call.
    let fd = unsafe { libc::memfd_create(c"weir".as_ptr(), libc::MFD_CLOEXEC) };
    let fd = check(fd)?;
    // SAFETY: the call returned a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
