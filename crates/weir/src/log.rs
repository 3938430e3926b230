//! Log lines on standard error, and errors that repeat.

mod form;

use config::{DaemonConfig, LogLevel};
pub(crate) use form::{Form, choose, lines_written, say, say_to_people};
use std::time::{Duration, Instant};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// Changes the level and form of the log while the daemon runs.
pub(crate) struct Log(reload::Handle<LevelFilter, Registry>);

/// Sends the log to standard error.
pub(crate) fn start(config: &DaemonConfig) -> Log {
    choose(config.log_format);
    let (filter, handle) = reload::Layer::new(filter(config.log_level));
    let lines = fmt::layer().with_writer(form::counted).event_format(form::Lines::new());
    // A second subscriber would be refused, but the program has only one daemon.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    Log(handle)
}

impl Log {
    pub(crate) fn set(&self, config: &DaemonConfig) {
        choose(config.log_format);
        // This fails only if the subscriber is gone, and it lives as long as the process.
        let _ = self.0.modify(|old| *old = filter(config.log_level));
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

/// Something that may happen often and is logged at most once a minute, with the count since the last line.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    written: Option<Instant>,
    since: u64,
}

impl Repeated {
    /// Counts one occurrence. `Some` means to log now; the number is the count since the last line.
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
