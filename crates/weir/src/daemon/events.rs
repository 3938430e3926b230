//! What thresholds say: to the log, to the mitigations that answer them, and as rows to the sinks that take events.
//!
//! A row is one of a datagram: its listener is `events`, its payload the event as JSON. So every destination takes it, and with
//! `body = "payload"` a webhook has the event itself.

use super::collector;
use super::flows::{Outlets, Shared};
use super::mitigation::Mitigations;
use crate::event_text;
use ::flows::{Change, Event};
use config::{Config, EVENTS_NAME};
use record::{DatagramRecord, Tags};
use sink::ChunkWriter;
use sockets::attribution::{Host, HostOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Events are looked for this often; most of the time that is a look at one number.
const LOOK: Duration = Duration::from_millis(50);

/// How long the thread rests after a panic, which may have written to the log.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Events that are copied at a time, while the analysis waits.
const COPIED_MAX: usize = 256;

/// Lines that the log gets in ten seconds. The others are counted there, and are with the sinks and pages as all are.
const LINES_MAX: u64 = 50;
const LINES_EVERY_NS: u64 = 10_000_000_000;

/// Most tags that a host has (`[sockets]`).
const TAGS_MAX: usize = 16;

/// The thread that hands events on.
pub(super) struct Telling {
    /// Ends the thread when it is dropped.
    stop: Sender<()>,
    thread: JoinHandle<()>,
    shared: Arc<Told>,
}

/// What the thread and its owner both see.
#[derive(Default)]
struct Told {
    /// Turns of the thread.
    heartbeat: AtomicU64,
    /// Whether mitigations are told no more: its analysis ends, and the next one's events have the same numbers.
    is_silent: AtomicBool,
}

impl Telling {
    /// Hands on what happens from now on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        shared: Arc<Shared>,
        outlets: Outlets<'_>,
        config: &Config,
    ) -> std::io::Result<Telling> {
        let (stop, stopped) = mpsc::channel();
        let mitigations = Arc::clone(outlets.mitigations);
        let writer = outlets.events.writer(collector::source_id());
        let mut teller = Teller::new(writer, mitigations, config);
        let told = Arc::clone(&teller.told);
        let turn = move || {
            let news = shared.events();
            let (mut wait, mut is_last) = (LOOK, false);
            while !is_last {
                is_last = stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
                // A panic has said so on standard error; the next turn goes on behind the event that it was about.
                let turn = catch_unwind(AssertUnwindSafe(|| teller.turn(&shared, *news.borrow())));
                wait = if turn.is_ok() { LOOK } else { PANIC_PAUSE };
                teller.told.heartbeat.fetch_add(1, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name(EVENTS_NAME.to_owned()).spawn(turn)?;
        Ok(Telling { stop, thread, shared: told })
    }

    /// How often the thread has turned.
    pub(super) fn heartbeat(&self) -> u64 {
        self.shared.heartbeat.load(Ordering::Relaxed)
    }

    /// Tells mitigations nothing from now on.
    pub(super) fn silence(&self) {
        self.shared.is_silent.store(true, Ordering::Relaxed);
    }

    /// Hands on what has happened, and ends.
    pub(super) fn finish(self) {
        drop(self.stop);
        // A panic has said so on standard error.
        let _ = self.thread.join();
    }
}

struct Teller {
    writer: ChunkWriter,
    mitigations: Arc<Mitigations>,
    host: Host,
    last_id: u64,
    /// Up to here mitigations have been told by what is above thresholds.
    answered_id: u64,
    /// How often the configuration had been applied then.
    changes: u64,
    sequence: u64,
    log: Lines,
    told: Arc<Told>,
}

impl Teller {
    fn new(writer: ChunkWriter, mitigations: Arc<Mitigations>, config: &Config) -> Teller {
        let about = config.sockets.as_ref();
        let host = Host::read(HostOptions {
            name: about.and_then(|one| one.host.clone()),
            host_id: about.and_then(|one| one.host_id.clone()),
            tags: about.map(|one| one.tags.clone()).unwrap_or_default().into_iter().collect(),
        });
        Teller {
            writer,
            mitigations,
            host,
            last_id: 0,
            answered_id: 0,
            changes: 0,
            sequence: 0,
            log: Lines::default(),
            told: Arc::default(),
        }
    }

    /// Hands on what is there; `newest` is the number of the last event.
    fn turn(&mut self, shared: &Shared, newest: u64) {
        self.mitigations.turn();
        if newest != self.last_id || self.mitigations.changes() != self.changes {
            // All that there is, a part at a time.
            while self.take(shared) {}
        }
    }

    /// Takes some events. Returns whether there may be more.
    fn take(&mut self, shared: &Shared) -> bool {
        let changes = self.mitigations.changes();
        let (missed, events, raised) = shared.with(|analysis| {
            let log = analysis.events();
            let events: Vec<Arc<Event>> =
                log.after(self.last_id).take(COPIED_MAX).cloned().collect();
            let missed = log.missed_after(self.last_id);
            let raised = (missed > 0 || changes != self.changes)
                .then(|| (log.last_id(), analysis.raised().cloned().collect::<Vec<_>>()));
            (missed, events, raised)
        });
        if missed > 0 {
            shared.add_missed_events(missed);
            tracing::warn!(
                "{missed} events are in no sink: more came at once than are kept. Fix: raise events_max in [flows]"
            );
        }

        let is_silent = self.told.is_silent.load(Ordering::Relaxed);
        if let Some((last_id, raised)) = raised {
            (self.answered_id, self.changes) = (last_id, changes);
            if !is_silent {
                self.mitigations.set(&raised);
            }
        }
        for event in &events {
            self.last_id = event.id;
            if !is_silent && event.id > self.answered_id {
                self.mitigations.take(event);
            }
            self.log.say(event);
            self.send(event);
        }
        events.len() == COPIED_MAX
    }

    fn send(&mut self, event: &Event) {
        let payload = event_text::json(event).to_string();
        let mut tags = [("", ""); TAGS_MAX];
        let count = tags.iter_mut().zip(self.host.tags()).map(|(slot, tag)| *slot = tag).count();
        let record = DatagramRecord {
            time_unix_ns: Some(event.time_unix_ns),
            sequence: Some(self.sequence),
            host: self.host.name(),
            host_id: self.host.host_id(),
            tags: (count > 0).then(|| Tags::new(&tags[..count])),
            run_id: Some(self.writer.stream()),
            listener: Some(EVENTS_NAME),
            payload: Some(payload.as_bytes()),
            ..DatagramRecord::new()
        };
        // What is raised and what is cleared belong together.
        self.writer.event(&record, event.raised_id);
        self.sequence += 1;
    }
}

/// How many lines the log has had lately.
#[derive(Default)]
struct Lines {
    since_ns: u64,
    count: u64,
    unsaid: u64,
}

impl Lines {
    fn say(&mut self, event: &Event) {
        if event.time_unix_ns.saturating_sub(self.since_ns) >= LINES_EVERY_NS {
            if self.unsaid > 0 {
                tracing::warn!("{} more events, which are not in this log", self.unsaid);
            }
            *self = Lines { since_ns: event.time_unix_ns, count: 0, unsaid: 0 };
        }
        self.count += 1;
        if self.count > LINES_MAX {
            self.unsaid += 1;
            return;
        }

        // Names are of the file and keys are addresses and numbers; all the same nothing of it may be obeyed by a terminal.
        let line = text::escaped(&event_text::line(event));
        match event.change {
            Change::Raised => tracing::warn!("{line}"),
            Change::Cleared => tracing::info!("{line}"),
        }
    }
}
