//! Hands threshold events to the log, to the mitigations that answer them, and as rows to the sinks that take events.
//!
//! A row looks like a datagram's: its listener is `events`, its payload is the event as JSON. So every destination can take it,
//! and with `body = "payload"` a webhook receives the event itself.

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
use std::time::{Duration, Instant};

/// Time between two looks for events; most looks read only one number.
const LOOK: Duration = Duration::from_millis(50);

/// How long the thread rests after a panic, so that repeated panics do not flood the log.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Events copied at a time while the analysis is locked.
const COPIED_MAX: usize = 256;

/// Most event lines that the log gets in ten seconds. It counts the others; sinks and pages get all events.
const LINES_MAX: u64 = 50;
const LINES_EVERY: Duration = Duration::from_secs(10);

/// Most tags of a host (`[sockets]`).
const TAGS_MAX: usize = 16;

/// The thread that hands events on.
pub(super) struct Telling {
    /// Dropping it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
    shared: Arc<Told>,
}

/// Shared by the thread and its owner.
#[derive(Default)]
struct Told {
    /// Turns of the thread.
    heartbeat: AtomicU64,
    /// Whether to tell mitigations nothing more: its analysis is ending, and the next one numbers its events from the start
    /// again.
    is_silent: AtomicBool,
}

impl Telling {
    /// Hands on events from now on.
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
                // The panic was reported on standard error. The next turn continues after the event that caused it.
                let turn = catch_unwind(AssertUnwindSafe(|| teller.turn(&shared, *news.borrow())));
                wait = if turn.is_ok() { LOOK } else { PANIC_PAUSE };
                teller.told.heartbeat.fetch_add(1, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name(EVENTS_NAME.to_owned()).spawn(turn)?;
        Ok(Telling { stop, thread, shared: told })
    }

    /// Turns of the thread.
    pub(super) fn heartbeat(&self) -> u64 {
        self.shared.heartbeat.load(Ordering::Relaxed)
    }

    /// Stops telling mitigations anything.
    pub(super) fn silence(&self) {
        self.shared.is_silent.store(true, Ordering::Relaxed);
    }

    /// Hands on all pending events, and ends.
    pub(super) fn finish(self) {
        drop(self.stop);
        // A panic was reported on standard error.
        let _ = self.thread.join();
    }
}

struct Teller {
    writer: ChunkWriter,
    mitigations: Arc<Mitigations>,
    host: Host,
    last_id: u64,
    /// Mitigations know everything up to this event, from the list of what was above thresholds.
    answered_id: u64,
    /// The mitigations' count of applied configurations at that time.
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

    /// Hands on pending events; `newest` is the number of the last event.
    fn turn(&mut self, shared: &Shared, newest: u64) {
        self.mitigations.turn();
        if newest != self.last_id || self.mitigations.changes() != self.changes {
            // Everything pending, in batches.
            while self.take(shared) {}
        }
    }

    /// Takes a batch of events. Returns whether there may be more.
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
                "{missed} events are in no sink: more came at once than Weir buffers. Fix: raise events_max in [flows]"
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
        // Raised and cleared have the same key, which keeps them together.
        self.writer.event(&record, event.raised_id);
        self.sequence += 1;
    }
}

/// How many lines the log got lately.
#[derive(Default)]
struct Lines {
    since: Option<Instant>,
    count: u64,
    unsaid: u64,
}

impl Lines {
    fn say(&mut self, event: &Event) {
        // Not by the time of the event: the clock may be set back.
        if self.since.is_none_or(|since| since.elapsed() >= LINES_EVERY) {
            if self.unsaid > 0 {
                tracing::warn!("{} more events, which are not in this log", self.unsaid);
            }
            *self = Lines { since: Some(Instant::now()), count: 0, unsaid: 0 };
        }
        self.count += 1;
        if self.count > LINES_MAX {
            self.unsaid += 1;
            return;
        }

        // Names come from the file, and keys are addresses and numbers. Escape them anyway, so that no terminal acts on them.
        let line = text::escaped(&event_text::line(event));
        match event.change {
            Change::Raised => tracing::warn!("{line}"),
            Change::Cleared => tracing::info!("{line}"),
        }
    }
}
