use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the daemon is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Listeners are being bound.
    Starting,
    /// Every listener is bound and the configuration is applied.
    Ready,
    /// No more datagrams are taken; the rest is being sent.
    Draining,
}

impl Phase {
    /// The word for it in `/readyz`.
    pub fn label(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Ready => "ready",
            Phase::Draining => "draining",
        }
    }
}

/// Whether the data loops live, and which configuration they run. The daemon feeds it, the server shows it.
pub struct Health {
    heartbeat_limit: Duration,
    started_at: SystemTime,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    beats: BTreeMap<String, Beat>,
    losing: BTreeSet<String>,
    config: Config,
    ended: Option<Said>,
}

struct Beat {
    value: u64,
    moved_at: Instant,
}

/// The configuration in force and how reloads went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// 0 before the first configuration, 1 after it, one more with each successful reload.
    pub(crate) generation: u64,
    pub(crate) hash: String,
    pub(crate) reloads: u64,
    pub(crate) reload_failures: u64,
    pub(crate) last_reload_failed: bool,
    pub(crate) applied_at: Option<SystemTime>,
    /// How the last reload went.
    pub(crate) last_reload: Option<Said>,
}

/// How something went that the daemon was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The exit code of a command that asked for it.
    pub code: u8,
    /// What happened, for people.
    pub lines: Vec<String>,
}

/// One look at [`Health`].
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) phase: Phase,
    /// Each listener and how long ago its data loops last moved.
    pub(crate) beats: Vec<(String, Duration)>,
    /// Components that lose something now.
    pub(crate) losing: BTreeSet<String>,
    pub(crate) heartbeat_limit: Duration,
    pub(crate) config: Config,
    /// How it ended, if it has.
    pub(crate) ended: Option<Said>,
    pub(crate) started_at: SystemTime,
}

impl View {
    /// Listeners whose data loops have not moved for longer than the limit.
    pub(crate) fn stalled(&self) -> impl Iterator<Item = &(String, Duration)> {
        self.beats.iter().filter(|(_, age)| *age > self.heartbeat_limit)
    }
}

impl Health {
    /// Health of a daemon that starts now. A data loop that has not moved for longer than `heartbeat_limit` is stuck.
    pub fn new(heartbeat_limit: Duration) -> Health {
        Health {
            heartbeat_limit,
            started_at: SystemTime::now(),
            state: Mutex::new(State {
                phase: Phase::Starting,
                beats: BTreeMap::new(),
                losing: BTreeSet::new(),
                config: Config::default(),
                ended: None,
            }),
        }
    }

    /// Moves on to another phase.
    pub fn set_phase(&self, phase: Phase) {
        self.lock().phase = phase;
    }

    /// The present phase.
    pub fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Notes the listener's heartbeat, a number that grows while all its data loops are alive. Call it at least once a
    /// second for each listener: what counts is when the number last changed.
    pub fn heartbeat(&self, listener: &str, value: u64) {
        self.heartbeat_at(listener, value, Instant::now());
    }

    fn heartbeat_at(&self, listener: &str, value: u64, now: Instant) {
        let mut state = self.lock();
        match state.beats.get_mut(listener) {
            Some(beat) if beat.value == value => {}
            Some(beat) => *beat = Beat { value, moved_at: now },
            None => {
                state.beats.insert(listener.to_owned(), Beat { value, moved_at: now });
            }
        }
    }

    /// Forgets a listener that was closed.
    pub fn forget(&self, listener: &str) {
        self.lock().beats.remove(listener);
    }

    /// Notes which components lose something now that no setting asks for: `listener/NAME`, `target/LISTENER/NAME`, `sink/ORIGIN/NAME`. They show
    /// as degraded; the process is as healthy as before.
    pub fn set_losing(&self, components: BTreeSet<String>) {
        self.lock().losing = components;
    }

    /// Notes how a reload went, before [`config_applied`](Self::config_applied) or [`reload_failed`](Self::reload_failed) counts it.
    pub fn reload_said(&self, said: Said) {
        self.lock().config.last_reload = Some(said);
    }

    /// Notes how the daemon ended, before its server stops.
    pub fn ended(&self, said: Said) {
        self.lock().ended = Some(said);
    }

    /// A configuration with this hash is in force: the first at start, every further one by a reload.
    pub fn config_applied(&self, hash: &str) {
        let mut state = self.lock();
        let config = &mut state.config;
        config.reloads += u64::from(config.generation > 0);
        config.generation += 1;
        hash.clone_into(&mut config.hash);
        config.last_reload_failed = false;
        config.applied_at = Some(SystemTime::now());
    }

    /// A reload was refused; the former configuration stays in force.
    pub fn reload_failed(&self) {
        let mut state = self.lock();
        state.config.reloads += 1;
        state.config.reload_failures += 1;
        state.config.last_reload_failed = true;
    }

    /// Every listener whose data loops have not moved for longer than the limit, with the time since they did. Empty
    /// means alive: the condition for `/healthz` and for feeding the service manager's watchdog.
    pub fn stalled(&self) -> Vec<(String, Duration)> {
        self.view().stalled().cloned().collect()
    }

    pub(crate) fn view(&self) -> View {
        self.view_at(Instant::now())
    }

    fn view_at(&self, now: Instant) -> View {
        let state = self.lock();
        let age = |beat: &Beat| now.saturating_duration_since(beat.moved_at);
        View {
            phase: state.phase,
            beats: state.beats.iter().map(|(name, beat)| (name.clone(), age(beat))).collect(),
            losing: state.losing.clone(),
            heartbeat_limit: self.heartbeat_limit,
            config: state.config.clone(),
            ended: state.ended.clone(),
            started_at: self.started_at,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock; and if it did, each field is whole on its own.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds since 1970.
pub(crate) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_that_does_not_change_is_a_stuck_loop() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let health = Health::new(Duration::from_secs(5));
        let stuck = |seconds| {
            health.view_at(at(seconds)).stalled().map(|s| s.0.clone()).collect::<Vec<_>>()
        };
        health.heartbeat_at("a", 1, at(0));
        health.heartbeat_at("b", 1, at(0));
        health.heartbeat_at("a", 2, at(4));
        health.heartbeat_at("b", 1, at(4));
        assert!(stuck(5).is_empty());
        assert_eq!(stuck(6), ["b"]);
        health.heartbeat_at("b", 2, at(7));
        assert!(stuck(8).is_empty());
        health.forget("a");
        assert_eq!(stuck(20), ["b"]);
    }

    #[test]
    fn reloads_and_failures_are_counted_and_the_first_configuration_is_no_reload() {
        let health = Health::new(Duration::from_secs(5));
        health.config_applied("aa");
        let config = health.view().config;
        assert_eq!((config.generation, config.reloads), (1, 0));
        health.reload_failed();
        let config = health.view().config;
        assert_eq!((config.generation, config.reloads, config.reload_failures), (1, 1, 1));
        assert!(config.last_reload_failed);
        assert_eq!(config.hash, "aa");
        health.config_applied("bb");
        let config = health.view().config;
        assert_eq!((config.generation, config.reloads, config.reload_failures), (2, 2, 1));
        assert!(!config.last_reload_failed);
    }
}
