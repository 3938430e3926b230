//! Waits for a condition, never for a fixed time.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything that should happen may take; machines under load are slow.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Interval between checks of a condition.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// What is being waited for, in words: text, or a closure that can also report progress.
pub trait What {
    /// The words, requested when the deadline has passed.
    fn words(&self) -> String;
}

impl What for &str {
    fn words(&self) -> String {
        (*self).to_owned()
    }
}

impl What for String {
    fn words(&self) -> String {
        self.clone()
    }
}

impl<F: Fn() -> String> What for F {
    fn words(&self) -> String {
        self()
    }
}

/// Waits until `look` returns something, and returns it. After [`DEADLINE`] the test fails with the words of
/// `what`.
#[track_caller]
pub fn wait_for<T>(what: impl What, look: impl FnMut() -> Option<T>) -> T {
    wait_for_up_to(DEADLINE, what, look)
}

/// The same with a custom deadline, for what is slow by itself.
#[track_caller]
pub fn wait_for_up_to<T>(
    limit: Duration,
    what: impl What,
    mut look: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {}", what.words());

        // A pause between checks: the condition decides, not the time.
        thread::park_timeout(LOOK_INTERVAL);
    }
}

/// Waits for a condition, checking as often as possible, and returns whether it became true in time.
pub fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        thread::yield_now();
    }
}
