//! The cases: what is asked, with which datagrams, to how many targets, how thoroughly.

use crate::contender::{Contender, Schedule};
use crate::site::Reach;
use load::spin::Sizes;
use serde::Serialize;
use std::time::Duration;

/// 200 bytes in the mean, as lines of a log vary.
pub(crate) const VARYING: Sizes = Sizes::Varying { min: 64, max: 336 };

/// Datagrams a second of the steady case.
pub(crate) const STEADY_RATE_PER_SEC: f64 = 20_000.0;

/// Repetitions by default: with fewer than six, the interval of a median cannot cover 95 %.
pub(crate) const REPETITIONS: usize = 7;

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Question {
    /// Highest rate with nothing lost, CPU per copy, latency, memory: relays against each other.
    Compare,
    /// The highest rate of one relay, alone and with a target more that takes nothing.
    Isolation(Schedule),
    /// CPU per copy and latency at a rate at which every datagram is a wake-up.
    Steady,
}

/// What is compared on which load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    pub(crate) question: Question,
    pub(crate) sizes: Sizes,
    /// Targets that receive.
    pub(crate) targets: usize,
    pub(crate) reach: Reach,
    /// Senders that take turns datagram by datagram, where it is about what their addresses cost to keep.
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

    /// Datagrams that are handed to the kernel with one call.
    pub(crate) fn burst(self) -> usize {
        if self.senders.is_some() { 1 } else { self.sizes.burst() }
    }

    /// What is sent to how many.
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

    /// Whether it is one of the two for which memory and more time are asked: 200 bytes in the mean to two targets.
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
    /// Halvings of the range in which the rate is searched.
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

    /// Roughly how long it takes, with the waits for what is still on its way.
    pub(crate) fn duration(&self, case: Case, contenders: &[Contender]) -> Duration {
        // An attempt that loses something ends 100 ms after the last arrival; about one in two does.
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
