//! One batch in delivery, and what is known about each of its parts.

use crate::batch::{Attempt, BatchId, Parts, Sent};
use crate::batcher::Made;
use ledger::{Amount, Reason};
use std::sync::Arc;
use std::time::Instant;

/// What is known about one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PartState {
    /// No byte of it has been sent.
    Open,
    /// It may have arrived, without an acknowledgment.
    Maybe,
    /// Its fate is known.
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) state: PartState,
    /// The destination has it and has not reported its fate.
    pub(super) is_in_hand: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// May be submitted from this time on.
    Waiting(Instant),
    /// The destination has some of it, and last reported something about it at this time.
    Submitted(Instant),
}

pub(super) struct Pending {
    pub(super) made: Made,
    pub(super) parts: Vec<Part>,
    /// Parts without a fate, and their rows.
    open: usize,
    open_amount: Amount,
    /// Number of parts in the destination's hands.
    in_hand: usize,
    pub(super) stage: Stage,
    /// When to retry, once a part of this attempt has failed.
    pub(super) retry_at: Option<Instant>,
    pub(super) failures: u32,
    /// The reason to count if it has to be dropped.
    pub(super) reason: Option<Reason>,
    /// Number of its last attempt, counted over all batches of the sink.
    pub(super) attempt: u64,
    /// Some of it may have arrived through an attempt that has ended.
    is_maybe: bool,
}

impl Pending {
    pub(super) fn new(made: Made, now: Instant) -> Pending {
        let count = made.batch.encoded.parts.len();
        let is_maybe = made.is_repeated;
        let state = if is_maybe { PartState::Maybe } else { PartState::Open };
        Pending {
            parts: vec![Part { state, is_in_hand: false }; count],
            open: count,
            open_amount: made.batch.amount(),
            in_hand: 0,
            stage: Stage::Waiting(now),
            retry_at: None,
            failures: 0,
            reason: None,
            attempt: 0,
            is_maybe,
            made,
        }
    }

    pub(super) fn id(&self) -> BatchId {
        self.made.batch.id
    }

    /// Whether it is in the spool.
    pub(super) fn is_spooled(&self) -> bool {
        !self.made.entries.is_empty()
    }

    pub(super) fn is_submitted(&self) -> bool {
        matches!(self.stage, Stage::Submitted(_))
    }

    /// Whether some of it may be with the destination.
    pub(super) fn is_exposed(&self) -> bool {
        self.is_submitted() || self.is_maybe
    }

    /// Its rows without a fate.
    pub(super) fn open_amount(&self) -> Amount {
        self.open_amount
    }

    /// Whether any part has a fate.
    pub(super) fn has_begun(&self) -> bool {
        self.open < self.parts.len()
    }

    /// Whether every part has a fate.
    pub(super) fn is_done(&self) -> bool {
        self.open == 0
    }

    /// Passes it to the destination, as the attempt with this number.
    pub(super) fn submit(&mut self, attempt: u64, now: Instant) -> Attempt {
        (self.stage, self.retry_at) = (Stage::Submitted(now), None);
        self.attempt = attempt;
        self.in_hand = self.open;
        for part in &mut self.parts {
            part.is_in_hand = part.state != PartState::Done;
        }
        Attempt { batch: Arc::clone(&self.made.batch), parts: self.open_parts() }
    }

    /// The destination did not accept it.
    pub(super) fn given_back(&mut self, now: Instant) {
        self.stage = Stage::Waiting(now);
        self.in_hand = 0;
        self.parts.iter_mut().for_each(|part| part.is_in_hand = false);
    }

    /// Notes that an attempt has failed for these parts. Returns whether any of them was in the
    /// destination's hands.
    pub(super) fn fail(&mut self, parts: &Parts, sent: Sent) -> bool {
        let mut was_in_hand = false;
        for at in parts.places(self.parts.len()) {
            let Some(part) = self.parts.get_mut(at) else { continue };
            if sent == Sent::Maybe && part.state == PartState::Open {
                part.state = PartState::Maybe;
                self.is_maybe = true;
            }
            if std::mem::take(&mut part.is_in_hand) {
                self.in_hand -= 1;
                was_in_hand = true;
            }
        }
        was_in_hand
    }

    /// Gives a part its fate. Returns what was known about it, and its rows; `None` if it had a fate
    /// already.
    pub(super) fn end_part(&mut self, at: usize) -> Option<(Part, Amount)> {
        let part = self.parts.get_mut(at).filter(|part| part.state != PartState::Done)?;
        self.in_hand -= usize::from(part.is_in_hand);
        self.open -= 1;
        let before = std::mem::replace(part, Part { state: PartState::Done, is_in_hand: false });

        let amount = self.made.batch.amount_of(at);
        self.open_amount = self.open_amount.saturating_sub(amount);
        Some((before, amount))
    }

    /// The destination has reported something about it. Once it has reported on every part, what is left
    /// is retried.
    pub(super) fn heard(&mut self, now: Instant) {
        if self.is_submitted() {
            self.stage = match self.in_hand {
                0 => Stage::Waiting(self.retry_at.unwrap_or(now)),
                _ => Stage::Submitted(now),
            };
        }
    }

    /// The parts that the destination has and has not reported on.
    pub(super) fn in_hand(&self) -> (BatchId, Parts) {
        let in_hand = self.parts.iter().enumerate().filter(|(_, part)| part.is_in_hand);
        (self.id(), Parts::Some(in_hand.map(|(at, _)| at as u32).collect()))
    }

    fn open_parts(&self) -> Parts {
        if self.open == self.parts.len() {
            return Parts::All;
        }
        let open = self.parts.iter().enumerate().filter(|(_, part)| part.state != PartState::Done);
        Parts::Some(open.map(|(at, _)| at as u32).collect())
    }
}
