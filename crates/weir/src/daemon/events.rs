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
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Events are looked for this often; most of the time that is a look at one number.
const LOOK: Duration = Duration::from_millis(50);

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
        let turn = move || {
            let news = shared.events();
            let mut is_last = false;
            while !is_last {
                is_last = stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout);
                teller.mitigations.turn();
                if *news.borrow() == teller.last_id {
                    continue;
                }
                // All that there is, a part at a time.
                while teller.take(&shared) {}
            }
        };
        let thread = thread::Builder::new().name(EVENTS_NAME.to_owned()).spawn(turn)?;
        Ok(Telling { stop, thread })
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
    sequence: u64,
    log: Lines,
}

impl Teller {
    fn new(writer: ChunkWriter, mitigations: Arc<Mitigations>, config: &Config) -> Teller {
        let about = config.sockets.as_ref();
        let host = Host::read(HostOptions {
            name: about.and_then(|one| one.host.clone()),
            host_id: about.and_then(|one| one.host_id.clone()),
            tags: about.map(|one| one.tags.clone()).unwrap_or_default().into_iter().collect(),
        });
        Teller { writer, mitigations, host, last_id: 0, sequence: 0, log: Lines::default() }
    }

    /// Takes some events. Returns whether there may be more.
    fn take(&mut self, shared: &Shared) -> bool {
        let (missed, events) = shared.with(|analysis| {
            let log = analysis.events();
            let events: Vec<Arc<Event>> =
                log.after(self.last_id).take(COPIED_MAX).cloned().collect();
            (log.missed_after(self.last_id), events)
        });
        if missed > 0 {
            tracing::warn!(
                "{missed} events are in no sink, and no mitigation answers them: more came at once than are kept. Fix: raise events_max in [flows]"
            );
        }
        for event in &events {
            self.mitigations.take(event);
            self.log.say(event);
            self.send(event);
            self.last_id = event.id;
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
