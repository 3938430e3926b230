//! The terminal that a program writes to.

use crate::errno::check;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

/// Columns and rows of a terminal; `None` when it is not one, or its size is unknown.
pub fn size(stream: &impl AsFd) -> Option<(usize, usize)> {
    // SAFETY: all bytes zero is a valid winsize.
    let mut size: libc::winsize = unsafe { mem::zeroed() };
    // SAFETY: the descriptor is borrowed for the call, and TIOCGWINSZ writes one winsize, which `size` has room for.
    check(unsafe { libc::ioctl(stream.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) })
        .ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}
