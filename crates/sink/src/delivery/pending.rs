//! One batch on its way, and what is known of each of its parts.

use crate::batch::{Attempt, BatchId, Parts, Sent};
use crate::batcher::Made;
use ledger::{Amount, Reason};
use std::sync::Arc;
use std::time::Instant;

/// What is known of one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PartState {
    /// No byte of it has left.
    Open,
    /// It may have arrived, and nobody said so.
    Maybe,
    /// Its fate is known.
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) state: PartState,
    /// The destination has been given it and has not said what became of it.
    pub(super) is_in_hand: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// May be submitted from then on.
    Waiting(Instant),
    /// Some of it is in the destination's hands, which said something of it then.
    Submitted(Instant),
}

pub(super) struct Pending {
    pub(super) made: Made,
    pub(super) parts: Vec<Part>,
    /// Parts without a fate, and their rows.
    open: usize,
    open_amount: Amount,
    /// Parts in the destination's hands.
    in_hand: usize,
    pub(super) stage: Stage,
    /// When the next attempt may be made, once a part of this one has failed.
    pub(super) retry_at: Option<Instant>,
    pub(super) failures: u32,
    /// What it is counted under if it has to go.
    pub(super) reason: Option<Reason>,
    /// Number of the last attempt among all of the sink.
    pub(super) attempt: u64,
    /// Some of it may have arrived by an attempt that has ended.
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

    /// Whether a spool has it.
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

    /// Whether some part has a fate.
    pub(super) fn has_begun(&self) -> bool {
        self.open < self.parts.len()
    }

    /// Whether no part is without a fate.
    pub(super) fn is_done(&self) -> bool {
        self.open == 0
    }

    /// Goes into the destination's hands, as the attempt of this number.
    pub(super) fn submit(&mut self, attempt: u64, now: Instant) -> Attempt {
        (self.stage, self.retry_at) = (Stage::Submitted(now), None);
        self.attempt = attempt;
        self.in_hand = self.open;
        for part in &mut self.parts {
            part.is_in_hand = part.state != PartState::Done;
        }
        Attempt { batch: Arc::clone(&self.made.batch), parts: self.open_parts() }
    }

    /// The destination did not take it.
    pub(super) fn given_back(&mut self, until: Instant) {
        self.stage = Stage::Waiting(until);
        self.in_hand = 0;
        self.parts.iter_mut().for_each(|part| part.is_in_hand = false);
    }

    /// An attempt has failed for these parts. Says whether any of them was in the destination's hands.
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

    /// A part leaves. Returns what was known of it, and its rows; `None`: its fate was known.
    pub(super) fn end_part(&mut self, at: usize) -> Option<(Part, Amount)> {
        let part = self.parts.get_mut(at).filter(|part| part.state != PartState::Done)?;
        self.in_hand -= usize::from(part.is_in_hand);
        self.open -= 1;
        let before = std::mem::replace(part, Part { state: PartState::Done, is_in_hand: false });

        let amount = self.made.batch.amount_of(at);
        self.open_amount = self.open_amount.saturating_sub(amount);
        Some((before, amount))
    }

    /// The destination has said something of it. Once it has said everything, what is left is tried again.
    pub(super) fn heard(&mut self, now: Instant) {
        if self.is_submitted() {
            self.stage = match self.in_hand {
                0 => Stage::Waiting(self.retry_at.unwrap_or(now)),
                _ => Stage::Submitted(now),
            };
        }
    }

    /// Its parts that the destination has and has said nothing of.
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
