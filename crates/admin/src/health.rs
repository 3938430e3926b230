use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A stage of the daemon's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Listeners are being bound.
    Starting,
    /// Every listener is bound and the configuration is applied.
    Ready,
    /// No more datagrams are accepted; those in flight are being sent.
    Draining,
}

impl Phase {
    /// The phase's word in `/readyz`.
    pub fn label(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Ready => "ready",
            Phase::Draining => "draining",
        }
    }
}

/// Whether the data loops are alive, and which configuration they run. The daemon updates it, the server shows it.
pub struct Health {
    heartbeat_limit: Duration,
    started_at: SystemTime,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    beats: BTreeMap<String, Beat>,
    losing: BTreeSet<String>,
    waiting: Vec<String>,
    config: Config,
    ended: Option<Said>,
}

struct Beat {
    value: u64,
    moved_at: Instant,
}

/// The configuration in force and the results of reloads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// 0 before the first configuration and 1 after it; each successful reload adds 1.
    pub(crate) generation: u64,
    pub(crate) hash: String,
    pub(crate) reloads: u64,
    pub(crate) reload_failures: u64,
    pub(crate) last_reload_failed: bool,
    pub(crate) applied_at: Option<SystemTime>,
    /// The result of the last reload.
    pub(crate) last_reload: Option<Said>,
}

/// The result of something that a command asked the daemon to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The exit code of the command that asked for it.
    pub code: u8,
    /// What happened, in words.
    pub lines: Vec<String>,
}

/// A snapshot of [`Health`].
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) phase: Phase,
    /// Each listener, and the time since its data loops last moved.
    pub(crate) beats: Vec<(String, Duration)>,
    /// Components that are losing data at the moment.
    pub(crate) losing: BTreeSet<String>,
    /// What waits for this host or for a name, in words.
    pub(crate) waiting: Vec<String>,
    pub(crate) heartbeat_limit: Duration,
    pub(crate) config: Config,
    /// How the daemon ended, if it has.
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
    /// The health of a starting daemon. A data loop that does not move for longer than `heartbeat_limit` is stuck.
    pub fn new(heartbeat_limit: Duration) -> Health {
        Health {
            heartbeat_limit,
            started_at: SystemTime::now(),
            state: Mutex::new(State {
                phase: Phase::Starting,
                beats: BTreeMap::new(),
                losing: BTreeSet::new(),
                waiting: Vec::new(),
                config: Config::default(),
                ended: None,
            }),
        }
    }

    /// Enters another phase.
    pub fn set_phase(&self, phase: Phase) {
        self.lock().phase = phase;
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Records the listener's heartbeat, a number that grows while all its data loops are alive. Call it at least once a second
    /// for each listener: a loop is judged by when its number last changed.
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

    /// Sets the components that are losing data without a setting that asks for it: `listener/NAME`, `target/LISTENER/NAME`,
    /// `sink/ORIGIN/NAME`. They show as degraded; the health of the process is not affected.
    pub fn set_losing(&self, components: BTreeSet<String>) {
        self.lock().losing = components;
    }

    /// Sets what waits for an address, an interface or a route of this host, or for a name, a line each. The daemon is ready without.
    pub fn set_waiting(&self, waiting: Vec<String>) {
        self.lock().waiting = waiting;
    }

    /// Records the result of a reload. Call it before [`config_applied`](Self::config_applied) or
    /// [`reload_failed`](Self::reload_failed), which counts it.
    pub fn reload_said(&self, said: Said) {
        self.lock().config.last_reload = Some(said);
    }

    /// Records how the daemon ended. Call it before the server stops.
    pub fn ended(&self, said: Said) {
        self.lock().ended = Some(said);
    }

    /// Records that a configuration with this hash is in force: the first one at the start, each further one by a reload.
    pub fn config_applied(&self, hash: &str) {
        let mut state = self.lock();
        let config = &mut state.config;
        config.reloads += u64::from(config.generation > 0);
        config.generation += 1;
        hash.clone_into(&mut config.hash);
        config.last_reload_failed = false;
        config.applied_at = Some(SystemTime::now());
    }

    /// Records a refused reload; the previous configuration stays in force.
    pub fn reload_failed(&self) {
        let mut state = self.lock();
        state.config.reloads += 1;
        state.config.reload_failures += 1;
        state.config.last_reload_failed = true;
    }

    /// Listeners whose data loops have not moved for longer than the limit, with the time since they did. If empty, the daemon
    /// is alive: `/healthz` and the service manager's watchdog go by this.
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
            waiting: state.waiting.clone(),
            heartbeat_limit: self.heartbeat_limit,
            config: state.config.clone(),
            ended: state.ended.clone(),
            started_at: self.started_at,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while holding the lock, and even then each field would be consistent on its own.
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
