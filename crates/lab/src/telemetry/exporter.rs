//! The source and its exporter: what there is to know, and what is reported of it.

use super::Plan;
use super::message::{Message, capacity};
use crate::transport::{Sending, Sent};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use sys::clock::monotonic_ns;

/// The truth: a counter and events that depend on the time alone, so that both ends know them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// On the monotonic clock.
    pub(super) began_ns: u64,
    pub(super) duration_ns: u64,
    event_interval_ns: f64,
    step_interval_ns: f64,
}

impl Source {
    pub(super) fn new(plan: &Plan, began_ns: u64) -> Source {
        Source {
            began_ns,
            duration_ns: plan.duration.as_nanos() as u64,
            event_interval_ns: 1e9 / plan.events_per_sec,
            step_interval_ns: 1e9 / plan.steps_per_sec,
        }
    }

    /// Events until `at_ns`.
    pub(super) fn events(&self, at_ns: u64) -> u64 {
        (self.age_ns(at_ns) as f64 / self.event_interval_ns) as u64
    }

    /// The counter's value at `at_ns`.
    pub(super) fn counter(&self, at_ns: u64) -> u64 {
        (self.age_ns(at_ns) as f64 / self.step_interval_ns) as u64
    }

    /// When the event with this number, from 0, happened.
    pub(super) fn event_ns(&self, event: u64) -> u64 {
        self.began_ns + ((event + 1) as f64 * self.event_interval_ns) as u64
    }

    /// When the counter left this value.
    pub(super) fn step_ns(&self, step: u64) -> u64 {
        self.began_ns + ((step + 1) as f64 * self.step_interval_ns) as u64
    }

    /// End of what is judged; the source goes on.
    pub(super) fn end_ns(&self) -> u64 {
        self.began_ns + self.duration_ns
    }

    fn age_ns(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.began_ns)
    }
}

/// The exporter's log.
#[derive(Default, Debug)]
pub(super) struct Exported {
    pub(super) sent: u64,
    pub(super) refused: u64,
    pub(super) woken_late_ns: u64,
    pub(super) failure: String,
}

/// Tells what is new every `interval`: at its own time, or, after a transport has held it up, at once with what is true then.
/// What was refused is not reported again. Goes on until `end`, which lies a window behind what is judged: its last moments too
/// have a next message.
pub(super) fn export(
    sender: &mut dyn Sending,
    plan: &Plan,
    source: Source,
    end: Instant,
    stop: &AtomicBool,
) -> Exported {
    let mut exported = Exported::default();
    let mut buffer = vec![0; plan.message_bytes.max(Plan::MESSAGE_BYTES_MIN)];
    let per_message = capacity(buffer.len()) as u64;

    let mut reported = 0;
    let mut due = Instant::now();
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        due += plan.interval;
        let pause = due.min(end).saturating_duration_since(Instant::now());
        if !pause.is_zero() {
            thread::sleep(pause);
            let late_ns = due.min(end).elapsed().as_nanos() as u64;
            exported.woken_late_ns = exported.woken_late_ns.max(late_ns);
        }

        loop {
            let at_ns = monotonic_ns();
            let events = source.events(at_ns);
            let until = events.min(reported + per_message);
            let message = Message {
                at_ns,
                counter: source.counter(at_ns),
                events: (reported..until).collect(),
            };
            message.encode(&mut buffer);

            match send(sender, &buffer, end, stop) {
                Ok(Sent::Taken) => exported.sent += 1,
                Ok(Sent::Refused) => exported.refused += 1,
                Ok(Sent::Waits) => return exported,
                Err(error) => {
                    exported.failure = error.to_string();
                    return exported;
                }
            }

            reported = until;
            if reported == events {
                break;
            }
        }

        // Held up for longer than an interval: what was due meanwhile is in the next message.
        due = due.max(Instant::now() - plan.interval);
    }
    exported
}

/// Sends one message. [`Sent::Waits`] only when the end came first.
fn send(
    sender: &mut dyn Sending,
    message: &[u8],
    end: Instant,
    stop: &AtomicBool,
) -> std::io::Result<Sent> {
    const LOOK_AROUND: Duration = Duration::from_millis(200);
    let mut sent = sender.send(message, end.min(Instant::now() + LOOK_AROUND))?;
    while sent == Sent::Waits && Instant::now() < end && !stop.load(Ordering::Relaxed) {
        sent = sender.go_on(end.min(Instant::now() + LOOK_AROUND))?;
    }
    Ok(sent)
}
