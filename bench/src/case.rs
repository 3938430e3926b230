//! The cases: the question, the datagrams, the number of targets, and how thoroughly to measure.

use crate::contender::{Contender, Schedule};
use crate::site::Reach;
use load::spin::Sizes;
use serde::Serialize;
use std::time::Duration;

/// 200 bytes on average, varying like the lines of a log.
pub(crate) const VARYING: Sizes = Sizes::Varying { min: 64, max: 336 };

/// Datagrams a second of the steady case.
pub(crate) const STEADY_RATE_PER_SEC: f64 = 20_000.0;

/// Default number of repetitions. With fewer than six, the interval of a median cannot cover 95 %.
pub(crate) const REPETITIONS: usize = 7;

/// The question that a case answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Question {
    /// Compares relays: highest rate without loss, CPU per copy, latency, memory.
    Compare,
    /// The highest rate of one relay, with and without an additional target that takes nothing.
    Isolation(Schedule),
    /// CPU per copy and latency at a rate at which every datagram causes a wake-up.
    Steady,
}

/// A comparison under one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    pub(crate) question: Question,
    pub(crate) sizes: Sizes,
    /// Number of receiving targets.
    pub(crate) targets: usize,
    pub(crate) reach: Reach,
    /// Number of senders that alternate with each datagram, for cases about the cost of preserving their addresses.
    pub(crate) senders: Option<usize>,
}

impl Case {
    pub(crate) fn new(question: Question, sizes: Sizes, targets: usize) -> Case {
        Case { question, sizes, targets, reach: Reach::Loopback, senders: None }
    }

    pub(crate) fn over_cable(self) -> Case {
        Case { reach: Reach::Cable, ..self }
    }

    pub(crate) fn of_senders(self, senders: usize) -> Case {
        Case { senders: Some(senders), ..self }
    }

    /// Datagrams passed to the kernel in one call.
    pub(crate) fn burst(self) -> usize {
        if self.senders.is_some() { 1 } else { self.sizes.burst() }
    }

    /// The load in words: datagram sizes, senders and targets.
    pub(crate) fn load_label(self) -> String {
        let sizes = match self.sizes {
            Sizes::Equal(bytes) => format!("{bytes} B"),
            Sizes::Varying { min, max } => format!("{min} to {max} B"),
        };
        let over = if self.reach == Reach::Cable { " over a veth pair" } else { "" };
        let senders = self.senders.map(|count| format!(" of {count} senders")).unwrap_or_default();
        format!("{sizes}{senders}, 1 to {}{over}", self.targets)
    }

    pub(crate) fn label(self) -> String {
        let load = self.load_label();
        match self.question {
            Question::Compare => load,
            Question::Isolation(schedule) => {
                format!("{load} and one that takes nothing, {}", schedule.name())
            }
            Question::Steady => format!("{load}, 20,000/s one at a time"),
        }
    }

    /// Whether it is one of the two cases that measure memory and run for longer: 200 bytes on average to two targets.
    pub(crate) fn is_main(self) -> bool {
        let is_compared = self.question == Question::Compare && self.reach == Reach::Loopback;
        is_compared && self.senders.is_none() && self.targets == 2 && self.sizes.mean_bytes() == 200
    }
}

/// How thoroughly a case is measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Plan {
    pub(crate) repetitions: usize,
    pub(crate) saturation: Duration,
    pub(crate) attempt: Duration,
    /// Number of times that the search halves its range of rates.
    pub(crate) steps: usize,
    pub(crate) cpu: Duration,
    pub(crate) latency: Duration,
}

/// How much time a run may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Quick,
    Full,
}

impl Plan {
    pub(crate) fn new(case: Case, pace: Pace, repetitions: usize) -> Plan {
        let ms = Duration::from_millis;
        let plan = |saturation, attempt, steps, cpu, latency| Plan {
            repetitions,
            saturation: ms(saturation),
            attempt: ms(attempt),
            steps,
            cpu: ms(cpu),
            latency: ms(latency),
        };

        match (pace, case.question) {
            (Pace::Quick, Question::Steady) => plan(0, 0, 0, 0, 250),
            (Pace::Quick, _) => plan(200, 250, 3, 200, 200),
            (Pace::Full, Question::Steady) => plan(0, 0, 0, 0, 1_000),
            (Pace::Full, _) if case.is_main() => plan(400, 800, 4, 800, 800),
            (Pace::Full, _) => plan(250, 400, 3, 300, 300),
        }
    }

    /// Rough duration, including the waits for datagrams in flight.
    pub(crate) fn duration(&self, case: Case, contenders: &[Contender]) -> Duration {
        // An attempt with losses ends 100 ms after the last arrival; about every second attempt has losses.
        let wait = Duration::from_millis(50);
        let steps = u32::try_from(self.steps).unwrap_or(u32::MAX);
        let search = self.saturation + (self.attempt + wait) * (steps + 1);
        let one = match case.question {
            Question::Compare => search + self.cpu + self.latency * 2,
            Question::Isolation(_) => search + self.attempt,
            Question::Steady => self.latency * 2,
        };
        let count = contenders.len() * self.repetitions;
        one * u32::try_from(count).unwrap_or(u32::MAX)
    }
}
