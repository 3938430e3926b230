//! The signal that asks a program to stop.

use crate::clock::monotonic_ns;
use crate::errno::check;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{io, mem, ptr};

/// How long after the first signal further ones count as the same request. A terminal's Ctrl-C, timeout(1) and supervisors
/// signal both a process and its group: two signals within microseconds.
pub const SAME_REQUEST_NS: u64 = 500_000_000;

static STOP: AtomicBool = AtomicBool::new(false);
/// When the first signal arrived, by the monotonic clock; 0 if none has.
static FIRST_NS: AtomicU64 = AtomicU64::new(0);

/// A flag that SIGINT and SIGTERM set. A further signal more than half a second after the first ends the program at once, as
/// it would without a handler.
///
/// # Errors
/// None for these signals.
pub fn stop_flag() -> io::Result<&'static AtomicBool> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all bytes zero is a valid sigaction: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: `action` outlives the call; the handler calls nothing but what signal-safety(7) lists, and touches atomics.
        check(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) })?;
    }
    Ok(&STOP)
}

extern "C" fn handle(signal: libc::c_int) {
    let now = monotonic_ns();
    match FIRST_NS.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => STOP.store(true, Ordering::Relaxed),
        Err(first) if now.saturating_sub(first) < SAME_REQUEST_NS => {}
        Err(_) => {
            // SAFETY: both are async-signal-safe. The signal is blocked until the handler returns, and ends the process then.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
    }
}
