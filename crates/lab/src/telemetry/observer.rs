//! The observer: what came, and what was on its screen when.

use super::exporter::{Exported, Source};
use super::message::Message;
use super::{Plan, Run};
use crate::experiment::AGE_INTERVAL;
use crate::statistics::{Delivery, age_at_intervals};
use crate::transport::{Received, Receiving};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use sys::clock::monotonic_ns;

/// A message and the time at which it came.
pub(super) type Arrival = (u64, Message);

/// Takes messages until `end`.
pub(super) fn observe(
    receiver: &mut dyn Receiving,
    message_bytes: usize,
    end: Instant,
    stop: &AtomicBool,
) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let mut buffer = vec![0; message_bytes.max(Plan::MESSAGE_BYTES_MIN)];

    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        let until = end.min(Instant::now() + Duration::from_millis(200));
        match receiver.receive(&mut buffer, until) {
            Ok(Received::Message) => {
                let at_ns = monotonic_ns();
                arrivals.extend(Message::decode(&buffer).map(|message| (at_ns, message)));
            }
            Ok(Received::Nothing) => {}
            // Of a connection that broke, the exporter says why.
            Ok(Received::End) | Err(_) => break,
        }
    }
    arrivals
}

/// Holds what came against the truth. Arrivals are in the order of time.
pub(super) fn judge(
    source: Source,
    window: Duration,
    exported: Exported,
    arrivals: &[Arrival],
) -> Run {
    let window_ns = window.as_nanos() as u64;
    let events = source.events(source.end_ns());
    let steps = source.counter(source.end_ns());
    let (events_seen, events_on_screen) = judge_events(source, events, window_ns, arrivals);

    let deliveries: Vec<Delivery> = arrivals
        .iter()
        .map(|(arrived_ns, message)| Delivery { made_ns: message.at_ns, arrived_ns: *arrived_ns })
        .collect();

    let step_ns = AGE_INTERVAL.as_nanos() as u64;
    let mut ages_ns = age_at_intervals(&deliveries, source.began_ns, source.end_ns(), step_ns);
    ages_ns.sort_unstable();

    Run {
        events,
        events_on_screen,
        events_seen,
        steps,
        steps_on_screen: steps_on_screen(source, steps, window_ns, arrivals),
        sent: exported.sent,
        refused: exported.refused,
        received: arrivals.len() as u64,
        ages_ns,
        woken_late_ns: exported.woken_late_ns,
        failure: exported.failure,
    }
}

/// How many were seen, and how many of them in time.
fn judge_events(source: Source, events: u64, window_ns: u64, arrivals: &[Arrival]) -> (u64, u64) {
    let mut seen = vec![false; events as usize];
    let (mut count, mut in_time) = (0, 0);
    for (at_ns, message) in arrivals {
        for &event in &message.events {
            let Some(seen) = seen.get_mut(event as usize).filter(|seen| !**seen) else { continue };
            *seen = true;
            count += 1;
            in_time += u64::from(*at_ns <= source.event_ns(event) + window_ns);
        }
    }
    (count, in_time)
}

/// Steps of which, at the end of their window, the observer had a value at least as high.
fn steps_on_screen(source: Source, steps: u64, window_ns: u64, arrivals: &[Arrival]) -> u64 {
    let (mut known, mut on_screen) = (0, 0);
    for (at_ns, message) in arrivals {
        for step in known..message.counter.min(steps) {
            on_screen += u64::from(*at_ns <= source.step_ns(step) + window_ns);
        }
        known = known.max(message.counter.min(steps));
    }
    on_screen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_s_value_makes_up_for_what_was_lost_and_an_event_that_was_lost_is_gone() {
        // Ten steps and five events in a second from 0; the window is 300 ms.
        let plan = Plan {
            duration: Duration::from_secs(1),
            events_per_sec: 5.0,
            steps_per_sec: 10.0,
            ..Plan::default()
        };
        let source = Source::new(&plan, 0);
        let message = |at_ms: u64, events: &[u64]| {
            let at_ns = at_ms * 1_000_000;
            Message { at_ns, counter: source.counter(at_ns), events: events.to_vec() }
        };
        // Those made at 400 and 800 ms were lost with events 1 and 3; that of 600 ms came 500 ms late, after that of 1,000.
        let arrivals = [
            (210_000_000, message(200, &[0])),
            (1_010_000_000, message(1_000, &[4, 99])),
            (1_100_000_000, message(600, &[2])),
        ];
        let run = judge(source, Duration::from_millis(300), Exported::default(), &arrivals);
        assert_eq!((run.events, run.events_seen, run.events_on_screen), (5, 3, 2));
        // 1 and 2 came at 210 ms; 3 to 7 (300 to 700 ms) were known at 1,010 ms, too late; 8 to 10 in time.
        assert_eq!((run.steps, run.steps_on_screen), (10, 2 + 3));
        assert_eq!(run.ages_ns.last(), Some(&800_000_000));
        assert_eq!(run.received, 3);
    }
}
