//! Host names. Their own threads look them up again and again, because the standard resolver does not say how long an answer is
//! valid.
//!
//! `getaddrinfo` may hang for as long as the resolver's configuration says. Only these threads wait for it without a limit.

use super::Event;
use crate::log::Repeated;
use config::{Host, HostPort, resolve};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Names that are looked up at the same time, so that one that hangs does not hold up the others.
const WORKERS_MAX: usize = 4;
/// Time until the second attempt after a failure. It doubles with each failure, up to the name's interval.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The watched names and their addresses.
pub(crate) struct Names {
    shared: Arc<Shared>,
    events: Sender<Event>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<String, Entry>,
    workers: usize,
}

struct Entry {
    interval: Duration,
    due: Instant,
    is_busy: bool,
    is_answered: bool,
    failures_in_row: u32,
    /// The last good answer, with port 0; empty if there was none.
    addresses: Vec<SocketAddr>,
    error: Option<String>,
    failures: Repeated,
}

impl Names {
    pub(crate) fn new(events: Sender<Event>) -> Names {
        Names { shared: Arc::default(), events }
    }

    /// Watches these names and no others, each at its interval. New ones are looked up at once.
    pub(crate) fn watch(&self, names: &BTreeMap<String, Duration>) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.entries.retain(|name, _| names.contains_key(name));
        drop(state);
        self.watch_too(names)
    }

    /// Watches these names in addition to those already watched.
    pub(crate) fn watch_too(&self, names: &BTreeMap<String, Duration>) -> io::Result<()> {
        let mut state = self.shared.lock();
        for (name, &interval) in names {
            let entry = state.entries.entry(name.clone()).or_insert_with(|| Entry::new(interval));
            entry.interval = interval;
        }

        while state.workers < state.entries.len().min(WORKERS_MAX) {
            let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
            thread::Builder::new()
                .name("names".to_owned())
                .spawn(move || look_up_forever(&shared, &events))?;
            state.workers += 1;
        }

        self.shared.changed.notify_all();
        Ok(())
    }

    /// Looks up at once, after a change of this host, what had no answer or has the name of an interface in it (`fe80::1%eth0`).
    pub(crate) fn look_again(&self) {
        let mut state = self.shared.lock();
        for (name, entry) in &mut state.entries {
            if entry.error.is_some() || name.contains('%') {
                entry.due = Instant::now();
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until every name has been looked up once, or until the deadline.
    pub(crate) fn wait_for_answers(&self, deadline: Instant) {
        let mut state = self.shared.lock();
        while state.entries.values().any(|entry| !entry.is_answered) {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }

            state = self
                .shared
                .changed
                .wait_timeout(state, rest)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The last known addresses of a host; empty if none are known.
    pub(crate) fn addresses(&self, host_port: &HostPort) -> Vec<SocketAddr> {
        match &host_port.host {
            Host::Ip(ip) => vec![SocketAddr::new(*ip, host_port.port)],
            Host::Name(name) => {
                let state = self.shared.lock();
                let known = state.entries.get(name).map_or(&[][..], |entry| &entry.addresses);
                let with_port = |mut addr: SocketAddr| {
                    addr.set_port(host_port.port);
                    addr
                };
                known.iter().copied().map(with_port).collect()
            }
        }
    }

    /// Whether the resolver has answered for this host yet.
    pub(crate) fn has_answer(&self, host_port: &HostPort) -> bool {
        self.with_entry(host_port, |entry| entry.is_none_or(|entry| entry.is_answered))
    }

    /// Why a host has no address.
    pub(crate) fn error(&self, host_port: &HostPort) -> String {
        let error = self.with_entry(host_port, |entry| entry.and_then(|entry| entry.error.clone()));
        error.unwrap_or_else(|| "the resolver has not answered yet".to_owned())
    }

    fn with_entry<T>(&self, host_port: &HostPort, look: impl FnOnce(Option<&Entry>) -> T) -> T {
        let state = self.shared.lock();
        match &host_port.host {
            Host::Ip(_) => look(None),
            Host::Name(name) => look(state.entries.get(name)),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(interval: Duration) -> Entry {
        Entry {
            interval,
            due: Instant::now(),
            is_busy: false,
            is_answered: false,
            failures_in_row: 0,
            addresses: Vec::new(),
            error: None,
            failures: Repeated::default(),
        }
    }

    /// Notes an answer. Returns whether it differs from the last one.
    fn take_answer(&mut self, name: &str, answer: io::Result<Vec<SocketAddr>>) -> bool {
        let is_first = !self.is_answered;
        self.is_answered = true;
        self.is_busy = false;

        match answer {
            Ok(addresses) => {
                let is_other = is_first || addresses != self.addresses;
                if self.failures_in_row > 0 {
                    tracing::info!("{name} resolves again");
                }
                self.failures_in_row = 0;
                self.error = None;
                self.addresses = addresses;
                self.due = Instant::now() + self.interval;
                is_other
            }
            Err(error) => {
                let wait = RETRY_FIRST.saturating_mul(1 << self.failures_in_row.min(16));
                self.failures_in_row += 1;
                self.due = Instant::now() + wait.min(self.interval);

                if let Some(count) = self.failures.count(Instant::now()) {
                    let kept = if self.addresses.is_empty() {
                        "its targets drop what they get as target_unresolved"
                    } else {
                        "its last good address stays in use"
                    };
                    let since = match count {
                        1 => String::new(),
                        count => format!(" ({count} failures since the last such line)"),
                    };
                    tracing::warn!(
                        "cannot resolve {name}{since}: {error}; {kept}. Fix: correct the name, or the resolver until \
                         `getent hosts {name}` prints an address"
                    );
                }

                self.error = Some(error.to_string());
                is_first
            }
        }
    }
}

fn look_up_forever(shared: &Shared, events: &Sender<Event>) {
    loop {
        let name = next_due(shared);
        let answer = resolve(&HostPort { host: Host::Name(name.clone()), port: 0 });

        let mut state = shared.lock();
        // A reload may have removed the name meanwhile.
        let is_news =
            state.entries.get_mut(&name).is_some_and(|entry| entry.take_answer(&name, answer));

        drop(state);
        shared.changed.notify_all();

        if is_news && events.send(Event::Name).is_err() {
            return;
        }
    }
}

/// Waits until a name is due, and marks it as taken.
fn next_due(shared: &Shared) -> String {
    let mut state = shared.lock();
    loop {
        let next = state.entries.iter_mut().filter(|(_, entry)| !entry.is_busy);
        let next = next.min_by_key(|(_, entry)| entry.due);

        let now = Instant::now();
        let wait = match next {
            Some((name, entry)) if entry.due <= now => {
                entry.is_busy = true;
                return name.clone();
            }
            Some((_, entry)) => entry.due - now,
            None => Duration::from_secs(3_600),
        };

        state = shared.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn addresses(hosts: &[u8]) -> Vec<SocketAddr> {
        hosts.iter().map(|host| SocketAddr::from(([192, 0, 2, *host], 0))).collect()
    }

    fn failure() -> io::Result<Vec<SocketAddr>> {
        Err(io::ErrorKind::NotFound.into())
    }

    #[test]
    fn a_failure_keeps_the_last_good_addresses_and_is_tried_again_ever_later() {
        let mut entry = Entry::new(INTERVAL);
        assert!(entry.take_answer("h", Ok(addresses(&[1, 2]))));
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(!entry.take_answer("h", failure()), "nothing has changed");
            waits.push(entry.due.duration_since(Instant::now()).as_secs_f64().round() as u64);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(entry.addresses, addresses(&[1, 2]));
        assert!(!entry.take_answer("h", Ok(addresses(&[1, 2]))));
        assert!(entry.error.is_none());
    }

    #[test]
    fn only_an_answer_that_differs_is_news() {
        let mut entry = Entry::new(INTERVAL);
        assert!(entry.take_answer("h", failure()), "the first answer, whatever it is");
        assert!(entry.take_answer("h", Ok(addresses(&[1]))));
        assert!(!entry.take_answer("h", Ok(addresses(&[1]))));
        assert!(entry.take_answer("h", Ok(addresses(&[2]))));
    }

    #[test]
    fn waiting_for_names_ends_with_the_first_answers() {
        let (events, inbox) = std::sync::mpsc::channel();
        let names = Names::new(events);
        let watched = [("localhost", INTERVAL), ("no-such-host.invalid", INTERVAL)];
        let watched = watched.map(|(name, interval)| (name.to_owned(), interval));
        names.watch(&watched.into()).unwrap();
        names.wait_for_answers(Instant::now() + Duration::from_secs(60));
        let local: HostPort = "localhost:514".parse().unwrap();
        assert!(
            names
                .addresses(&local)
                .iter()
                .all(|addr| addr.port() == 514 && addr.ip().is_loopback())
        );
        let lost: HostPort = "no-such-host.invalid:514".parse().unwrap();
        assert!(names.has_answer(&lost) && names.addresses(&lost).is_empty());
        assert!(matches!(inbox.recv(), Ok(Event::Name)));
    }
}
