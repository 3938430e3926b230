//! Log lines on standard error, and errors that repeat.

use config::LogLevel;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// Lines written so far.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Lines written so far, so that code which rewrites the screen knows that something stands below.
pub(crate) fn lines_written() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

/// Changes the level of what is written while the daemon runs.
pub(crate) struct Level(reload::Handle<LevelFilter, Registry>);

/// Sends what is logged to standard error.
pub(crate) fn start(level: LogLevel) -> Level {
    let (filter, handle) = reload::Layer::new(filter(level));
    let lines = fmt::layer().with_writer(counted).with_ansi(false).with_target(false);
    // A second subscriber is refused: the program has one daemon, so there is none.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Level(handle)
}

fn counted() -> std::io::Stderr {
    WRITTEN.fetch_add(1, Ordering::Relaxed);
    std::io::stderr()
}

impl Level {
    pub(crate) fn set(&self, level: LogLevel) {
        // It fails only when the subscriber is gone, which lives as long as the process.
        let _ = self.0.modify(|old| *old = filter(level));
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

/// Time between two lines about the same thing.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Something that may happen often and is written at most once a minute, with the count since the last line.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    written: Option<Instant>,
    since: u64,
}

impl Repeated {
    /// Counts one more. `Some`: write a line now; the number is how often it happened since the last one.
    pub(crate) fn count(&mut self, now: Instant) -> Option<u64> {
        self.since += 1;
        let is_due =
            self.written.is_none_or(|at| now.saturating_duration_since(at) >= REPEAT_INTERVAL);
        is_due.then(|| {
            self.written = Some(now);
            std::mem::take(&mut self.since)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_error_is_written_once_a_minute_with_its_count() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut repeated = Repeated::default();
        let written: Vec<_> = (0..=120).filter_map(|second| repeated.count(at(second))).collect();
        assert_eq!(written, [1, 60, 60]);
    }
}
