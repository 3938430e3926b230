//! What the service manager is told: ready, reloading, stopping, alive (sd_notify(3)). Without one nothing is sent.

use sd_notify::NotifyState;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the status line is sent.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);
/// How much longer a drain may take each time it is told, and how often it is told.
const EXTENSION: Duration = Duration::from_secs(5);
const EXTENSION_INTERVAL: Duration = Duration::from_secs(1);

/// The service manager's side of the daemon.
pub(crate) struct Service {
    is_there: bool,
    watchdog: Option<Watchdog>,
    status_due: Instant,
    extension_due: Instant,
}

struct Watchdog {
    interval: Duration,
    due: Instant,
    /// Each data loop's heartbeat when the watchdog was last fed, by name.
    beats: BTreeMap<String, u64>,
}

impl Service {
    pub(crate) fn new() -> Service {
        let now = Instant::now();
        // Fed three times as often as asked, so that one late turn is no death.
        let watchdog = sd_notify::watchdog_enabled().map(|limit| Watchdog {
            interval: limit / 3,
            due: now,
            beats: BTreeMap::new(),
        });
        let is_there = std::env::var_os("NOTIFY_SOCKET").is_some();
        Service { is_there, watchdog, status_due: now, extension_due: now }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if self.is_there {
            // A service manager that does not listen finds out by its own timeouts.
            let _ = sd_notify::notify(states);
        }
    }

    pub(crate) fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    pub(crate) fn reloading(&self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.tell(&[NotifyState::Reloading, now]);
        }
    }

    pub(crate) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// Asks for more time while draining.
    pub(crate) fn extend_timeout(&mut self, now: Instant) {
        if self.is_there && now >= self.extension_due {
            self.extension_due = now + EXTENSION_INTERVAL;
            self.tell(&[NotifyState::ExtendTimeoutUsec(EXTENSION.as_micros() as u32)]);
        }
    }

    /// Sends the status line when it is due.
    pub(crate) fn status(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if self.is_there && now >= self.status_due {
            self.status_due = now + STATUS_INTERVAL;
            self.tell(&[NotifyState::Status(&text())]);
        }
    }

    /// Feeds the watchdog if every data loop has turned since it was fed last. `beats` are their heartbeats by name.
    pub(crate) fn feed_watchdog<'a>(
        &mut self,
        now: Instant,
        beats: impl Iterator<Item = (&'a str, u64)>,
    ) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| now >= watchdog.due) else {
            return;
        };
        let beats: BTreeMap<String, u64> =
            beats.map(|(name, beat)| (name.to_owned(), beat)).collect();
        let is_alive =
            |(name, beat): (&String, &u64)| watchdog.beats.get(name).is_none_or(|old| old != beat);
        if beats.iter().all(is_alive) {
            watchdog.beats = beats;
            watchdog.due = now + watchdog.interval;
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    /// Feeds the watchdog while draining: the loops end one by one, and the drain has a limit of its own.
    pub(crate) fn feed_watchdog_while_draining(&mut self, now: Instant) {
        if let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| now >= watchdog.due) {
            watchdog.due = now + watchdog.interval;
            self.tell(&[NotifyState::Watchdog]);
        }
    }
}
