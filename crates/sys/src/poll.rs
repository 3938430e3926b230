//! `poll(2)` over a handful of descriptors, and the eventfd that wakes it.

use crate::Errno;
use crate::errno::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// What to wait for on one descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    Readable,
    Writable,
    /// An exceptional condition (`POLLPRI`): the contents of a `/proc` file have changed.
    Priority,
}

/// A set of descriptors to wait for. Refilled before each wait; keeps its memory.
#[derive(Default)]
pub struct PollSet {
    entries: Vec<libc::pollfd>,
}

impl PollSet {
    /// Forgets all descriptors.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Adds a descriptor, which the caller keeps open until after the next [`wait`](Self::wait).
    pub fn add(&mut self, fd: BorrowedFd<'_>, interest: Interest) {
        let events = match interest {
            Interest::Readable => libc::POLLIN,
            Interest::Writable => libc::POLLOUT,
            Interest::Priority => libc::POLLPRI,
        };
        self.entries.push(libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 });
    }

    /// Whether the `index`th descriptor added is ready or has an error, after a wait.
    pub fn is_ready(&self, index: usize) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.revents != 0)
    }

    /// Waits until a descriptor is ready or has an error, or the timeout expires. Returns the number of ready descriptors.
    ///
    /// # Errors
    /// [`Errno::INTR`] when a signal came first.
    pub fn wait(&mut self, timeout: Duration) -> Result<usize, Errno> {
        let time = timespec(timeout);
        // SAFETY: the pointer and the length describe `entries`, which outlives the call, as `time` does; no signal mask is
        // given.
        let rc = unsafe {
            libc::ppoll(
                self.entries.as_mut_ptr(),
                self.entries.len() as libc::nfds_t,
                &raw const time,
                ptr::null(),
            )
        };
        check(rc).map(|ready| ready as usize)
    }
}

/// Waits for `duration`, or until a signal arrives. How late it wakes depends on [`set_timer_slack`] and the scheduler.
pub fn pause(duration: Duration) {
    let time = timespec(duration);
    // SAFETY: no descriptors and no signal mask are given, and `time` outlives the call. An interrupted pause is a short one.
    unsafe { libc::ppoll(ptr::null_mut(), 0, &raw const time, ptr::null()) };
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos() as libc::c_long,
    }
}

/// Lets the kernel delay the calling thread's timers by at most `slack`, to wake it together with others (`PR_SET_TIMERSLACK`).
/// The default is 50 µs, the minimum one nanosecond.
pub fn set_timer_slack(slack: Duration) {
    let slack_ns = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX).max(1);
    // SAFETY: the call takes numbers only. It cannot fail for the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}

/// A descriptor that one thread makes readable to wake another.
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Opens an eventfd(2), not readable yet.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: eventfd takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes are read from `one`. It can fail only when the counter is full, and then it is readable.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes the descriptor unwritable until the next [`clear`](Self::clear), so that a thread can wait for that by waiting to
    /// write.
    pub fn fill(&self) {
        self.clear();
        // The largest value that the counter can hold (eventfd(2)).
        let most = u64::MAX - 1;
        // SAFETY: eight bytes are read from `most`. It can fail only when another thread has woken it in between.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const most).cast(), 8) };
    }

    /// Makes the descriptor unreadable until the next [`wake`](Self::wake).
    pub fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: at most eight bytes are written to `count`. It can fail only when nothing is to be cleared.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_wakes_and_clears() {
        let event = EventFd::new().unwrap();
        let mut set = PollSet::default();
        set.add(event.as_fd(), Interest::Readable);
        assert_eq!(set.wait(Duration::ZERO), Ok(0));
        event.wake();
        assert_eq!(set.wait(Duration::from_secs(5)), Ok(1));
        assert!(set.is_ready(0));
        event.clear();
        assert_eq!(set.wait(Duration::ZERO), Ok(0));
    }

    #[test]
    fn a_full_event_is_writable_again_when_it_is_cleared() {
        let event = EventFd::new().unwrap();
        event.fill();
        let mut set = PollSet::default();
        set.add(event.as_fd(), Interest::Writable);
        assert_eq!(set.wait(Duration::ZERO), Ok(0));
        event.clear();
        assert_eq!(set.wait(Duration::from_secs(5)), Ok(1));
    }
}
