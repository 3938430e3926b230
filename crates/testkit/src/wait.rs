//! Waiting for a condition, never for a time.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that is meant to happen; machines under load are slow.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Time between two looks at a condition.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// What is waited for, in words: text, or a closure that also says how far it got.
pub trait What {
    /// The words, asked for when the deadline has passed.
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

/// Waits until `look` finds something, and returns it. After [`DEADLINE`] the test fails with the words of `what`.
#[track_caller]
pub fn wait_for<T>(what: impl What, look: impl FnMut() -> Option<T>) -> T {
    wait_for_up_to(DEADLINE, what, look)
}

/// The same with a deadline of the test's own, for what takes long by itself.
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

        // A pause between two looks: what is found decides, not the time.
        thread::park_timeout(LOOK_INTERVAL);
    }
}

/// Waits for a condition, looks as often as it can, and says whether it came within the time.
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
