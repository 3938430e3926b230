//! Views that run until Ctrl-C. All end the same way, with the last output left above the prompt.

use crate::progress::rewrites_lines;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    GoOn,
    Stop,
}

/// Waits until a time or a signal.
pub(crate) fn wait(stop: &AtomicBool, until: Instant) -> Next {
    const LOOK: Duration = Duration::from_millis(50);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Next::Stop;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Next::GoOn;
        }
        thread::sleep(left.min(LOOK));
    }
}

/// Clears the cursor's row, where a terminal shows Ctrl-C as `^C`.
pub(crate) fn end() {
    let mut stderr = io::stderr();
    if rewrites_lines(&stderr) {
        let _ = stderr.write_all(b"\r\x1b[K");
    }
}
