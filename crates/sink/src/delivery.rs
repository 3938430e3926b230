//! Batches on their way: which is tried when, and what is known of each. No I/O and no clock of its own.
//!
//! A batch stays here until the fate of each of its parts is known. A retry is the same bytes under the same id. After a failure
//! the next attempt waits for a random time up to a bound that doubles with each failure in a row ("full jitter"). After
//! [`CIRCUIT_FAILURES`] failures in a row with no success between them the circuit is open: one batch alone is tried, until
//! one comes through.

use crate::backlog::Attempted;
use crate::batch::{Attempt, Batch, BatchId, Failure, Fate, Outcome, Parts, Sent};
use crate::batcher::{EntryId, Made};
use crate::options::DeliveryOptions;
use ledger::{Amount, Reason, RejectClass};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bound of the first pause.
const RETRY_MIN: Duration = Duration::from_millis(100);

/// Failures in a row after which one batch alone is tried.
const CIRCUIT_FAILURES: u32 = 3;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) at: Instant,
    /// Since 1970, UTC.
    pub(crate) unix_ns: u64,
}

/// What is known of one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PartState {
    /// No byte of it has left.
    Open,
    /// It may have arrived, and nobody said so.
    Maybe,
    /// Its fate is known.
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    state: PartState,
    /// The destination has been given it and has not said what became of it.
    is_in_hand: bool,
}

struct Pending {
    made: Made,
    parts: Vec<Part>,
    /// Parts without a fate.
    open: usize,
    /// Parts in the destination's hands.
    in_hand: usize,
    stage: Stage,
    /// When the next attempt may be made, once a part of this one has failed.
    retry_at: Option<Instant>,
    failures: u32,
    /// What it is counted under if it has to go.
    reason: Option<Reason>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// May be submitted from then on.
    Waiting(Instant),
    /// Some of it is in the destination's hands, which said something of it then.
    Submitted(Instant),
}

/// How rows leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// `true`: an earlier attempt may have delivered them too.
    Acknowledged {
        is_repeated: bool,
    },
    Rejected(RejectClass),
    Dropped(Reason),
    Uncertain,
}

/// Rows that left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    pub(crate) exit: Exit,
    pub(crate) amount: Amount,
}

/// The batches of one sink between their making and their fate.
pub(crate) struct Delivery {
    options: DeliveryOptions,
    pending: VecDeque<Pending>,
    /// Failures since the last success.
    failures: u32,
    is_failing: bool,
    /// What rows are counted under that have to go, by the last failure.
    reason: Option<Reason>,
    /// No attempt before then.
    pause_until: Option<Instant>,
    random: Random,
    /// Rows that left since this was last emptied.
    pub(crate) left: Vec<Left>,
    /// Rows of entries of the spool that left since this was last emptied.
    pub(crate) entries: Vec<(EntryId, u64)>,
}

impl Delivery {
    pub(crate) fn new(options: DeliveryOptions, seed: u64) -> Delivery {
        Delivery {
            options,
            pending: VecDeque::new(),
            failures: 0,
            is_failing: false,
            reason: None,
            pause_until: None,
            random: Random(seed),
            left: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Whether another batch may come.
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() < self.options.in_flight_max
    }

    /// Batches that are here.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Batches whose answer is awaited.
    pub(crate) fn submitted(&self) -> usize {
        self.pending.iter().filter(|one| matches!(one.stage, Stage::Submitted(_))).count()
    }

    /// Whether the destination has failed lately and has not come back.
    pub(crate) fn is_circuit_open(&self) -> bool {
        self.failures >= CIRCUIT_FAILURES
    }

    /// Whether what was heard last is that rows did not get through.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// What rows are counted under that have to go now.
    pub(crate) fn failing_reason(&self) -> Option<Reason> {
        self.reason.filter(|_| self.failures > 0)
    }

    /// Rows without a fate.
    pub(crate) fn inside(&self) -> Amount {
        self.pending.iter().map(Pending::open_amount).sum()
    }

    /// Time of the oldest row inside; 0 if none says.
    pub(crate) fn oldest_unix_ns(&self) -> u64 {
        let times = self.pending.iter().map(|one| one.made.batch.oldest_unix_ns);
        times.filter(|time| *time > 0).min().unwrap_or(0)
    }

    /// Takes a batch.
    pub(crate) fn add(&mut self, made: Made, now: Now) {
        let count = made.batch.encoded.parts.len();
        let state = if made.is_repeated { PartState::Maybe } else { PartState::Open };
        let stage = Stage::Waiting(now.at);
        let parts = vec![Part { state, is_in_hand: false }; count];
        self.pending.push_back(Pending {
            made,
            parts,
            open: count,
            in_hand: 0,
            stage,
            retry_at: None,
            failures: 0,
            reason: None,
        });
    }

    /// Whether there is something to be submitted now.
    pub(crate) fn is_ready(&self, now: Now) -> bool {
        self.due_in(now).is_some_and(|due| due.is_zero())
    }

    /// Makes no attempt before then.
    pub(crate) fn hold(&mut self, until: Instant) {
        self.pause_until = self.pause_until.max(Some(until));
    }

    /// What is to be submitted now. It counts as submitted until its outcome, or [`given_back`](Self::given_back).
    pub(crate) fn next(&mut self, now: Now) -> Option<Attempt> {
        if !self.is_ready(now) {
            return None;
        }

        let is_ready = |one: &&mut Pending| matches!(one.stage, Stage::Waiting(at) if at <= now.at);
        let next = self.pending.iter_mut().find(is_ready)?;
        (next.stage, next.retry_at) = (Stage::Submitted(now.at), None);
        next.in_hand = next.open;
        for part in &mut next.parts {
            part.is_in_hand = part.state != PartState::Done;
        }
        Some(Attempt { batch: Arc::clone(&next.made.batch), parts: next.open_parts() })
    }

    /// The destination has no room for this one until then.
    pub(crate) fn given_back(&mut self, id: BatchId, until: Instant) {
        if let Some(one) = self.find(id) {
            one.stage = Stage::Waiting(until);
            one.in_hand = 0;
            one.parts.iter_mut().for_each(|part| part.is_in_hand = false);
        }
    }

    /// Takes what became of an attempt. What is said of parts whose fate is known already changes nothing.
    pub(crate) fn outcome(&mut self, outcome: &Outcome, now: Now) {
        if self.find(outcome.batch).is_none() {
            return;
        }
        match &outcome.fate {
            Fate::Acknowledged => {
                self.succeeded();
                self.leave(outcome, now, |part| Exit::Acknowledged {
                    is_repeated: part.state == PartState::Maybe,
                });
            }
            Fate::Rejected { class, .. } => {
                // It has answered: it is there.
                self.succeeded();
                let class = *class;
                self.leave(outcome, now, |_| Exit::Rejected(class));
            }
            Fate::Dropped(reason) => {
                let reason = *reason;
                self.is_failing = true;
                self.leave(outcome, now, |_| Exit::Dropped(reason));
            }
            Fate::Failed(failure) => self.failed(outcome.batch, &outcome.parts, failure, now),
        }
    }

    /// Everything that was submitted has lost its destination: it may have arrived.
    pub(crate) fn lost_destination(&mut self, failure: &Failure, now: Now) {
        let is_submitted = |one: &&Pending| matches!(one.stage, Stage::Submitted(_));
        let lost: Vec<_> = self.pending.iter().filter(is_submitted).map(Pending::in_hand).collect();
        for (batch, parts) in &lost {
            self.failed(*batch, parts, failure, now);
        }
        if lost.is_empty() {
            self.note_failure(failure, now);
        }
    }

    /// Whether the destination owes an answer for longer than it may.
    pub(crate) fn is_overdue(&self, now: Now) -> bool {
        let answer_max = self.options.answer_max;
        self.pending.iter().any(
            |one| matches!(one.stage, Stage::Submitted(at) if now.at.duration_since(at) > answer_max),
        )
    }

    /// Lets go of batches that are too old to be tried again. Those in the destination's hands stay.
    pub(crate) fn expire(&mut self, now: Now) {
        let Some(after) = self.options.expire_after else { return };
        let limit = now.unix_ns.saturating_sub(after.as_nanos() as u64);
        let is_expired = |one: &Pending| {
            let oldest = one.made.batch.oldest_unix_ns;
            matches!(one.stage, Stage::Waiting(_)) && oldest > 0 && oldest < limit
        };

        while let Some(at) = self.pending.iter().position(is_expired) {
            self.give_up(at, Reason::Expired, now);
        }
    }

    /// Lets go of everything that no spool has: the time is over. `reason` names what was never tried and has no reason of its own.
    /// Returns how much it was.
    pub(crate) fn give_up_unspooled(&mut self, reason: Reason, now: Now) -> Amount {
        let mut lost = Amount::default();
        while let Some(at) = self.pending.iter().position(|one| one.made.entries.is_empty()) {
            lost += self.pending[at].open_amount();
            let reason = self.pending[at].reason.unwrap_or(reason);
            self.give_up(at, reason, now);
        }
        lost
    }

    /// Whether rows that a spool has were given to the destination, and their fate is not known.
    pub(crate) fn attempted_and_spooled(&self) -> Attempted {
        let was_tried = |one: &Pending| {
            let is_submitted = matches!(one.stage, Stage::Submitted(_));
            is_submitted || one.parts.iter().any(|part| part.state != PartState::Open)
        };
        let mut spooled = self.pending.iter().filter(|one| !one.made.entries.is_empty());
        if spooled.any(was_tried) { Attempted::Some } else { Attempted::None }
    }

    /// Whether all of it is in the spool.
    pub(crate) fn is_spooled(&self) -> bool {
        self.pending.iter().all(|one| !one.made.entries.is_empty())
    }

    /// How long until there is something to submit, if nothing is heard.
    pub(crate) fn due_in(&self, now: Now) -> Option<Duration> {
        if self.is_circuit_open() && self.submitted() > 0 {
            return None;
        }
        let ready = self.pending.iter().filter_map(|one| match one.stage {
            Stage::Waiting(at) => Some(at),
            Stage::Submitted(_) => None,
        });
        let ready = ready.min()?.max(self.pause_until.unwrap_or(now.at));
        Some(ready.saturating_duration_since(now.at))
    }

    fn find(&mut self, id: BatchId) -> Option<&mut Pending> {
        self.pending.iter_mut().find(|one| one.id() == id)
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        self.is_failing = false;
        self.pause_until = None;
    }

    fn failed(&mut self, batch: BatchId, parts: &Parts, failure: &Failure, now: Now) {
        let retry_max = self.options.retry_max;
        let mut random = Random(self.random.next());
        let Some(one) = self.find(batch) else { return };

        let mut was_in_hand = false;
        for at in parts.places(one.parts.len()) {
            let Some(part) = one.parts.get_mut(at) else { continue };
            if failure.sent == Sent::Maybe && part.state == PartState::Open {
                part.state = PartState::Maybe;
            }
            if std::mem::take(&mut part.is_in_hand) {
                one.in_hand -= 1;
                was_in_hand = true;
            }
        }
        // A late word about an earlier attempt.
        if !was_in_hand {
            return;
        }

        // An attempt fails once, by however many parts.
        let is_first = one.retry_at.is_none();
        one.failures += u32::from(is_first);
        one.reason = failure.reason;
        let pause = failure.after.unwrap_or_else(|| random.pause(one.failures, retry_max));
        one.retry_at = one.retry_at.max(Some(now.at + pause));
        one.heard(now);
        if is_first {
            self.note_failure(failure, now);
        }
    }

    fn note_failure(&mut self, failure: &Failure, now: Now) {
        // One that is merely slow is not broken.
        if failure.reason.is_none() {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.reason = failure.reason;
        self.is_failing = true;
        if self.is_circuit_open() {
            let pause = failure.after;
            let pause =
                pause.unwrap_or_else(|| self.random.pause(self.failures, self.options.retry_max));
            self.pause_until = Some(now.at + pause);
        }
    }

    /// Counts parts of a batch as gone, and lets go of the batch with its last part.
    fn leave(&mut self, outcome: &Outcome, now: Now, exit: impl Fn(Part) -> Exit) {
        let Some(at) = self.pending.iter().position(|one| one.id() == outcome.batch) else {
            return;
        };
        let one = &mut self.pending[at];
        for place in outcome.parts.places(one.parts.len()) {
            let Some(part) = one.parts.get_mut(place) else { continue };
            if part.state == PartState::Done {
                continue;
            }
            let exit = exit(*part);
            one.in_hand -= usize::from(part.is_in_hand);
            one.open -= 1;
            *part = Part { state: PartState::Done, is_in_hand: false };
            push(&mut self.left, Left { exit, amount: one.made.batch.amount_of(place) });
        }

        if one.open == 0 {
            self.entries.append(&mut one.made.entries);
            self.pending.remove(at);
        } else {
            one.heard(now);
        }
    }

    fn give_up(&mut self, at: usize, reason: Reason, now: Now) {
        let outcome = Outcome::all(self.pending[at].id(), Fate::Dropped(reason));
        self.leave(&outcome, now, |part| match part {
            Part { state: PartState::Maybe, .. } | Part { is_in_hand: true, .. } => Exit::Uncertain,
            _ => Exit::Dropped(reason),
        });
    }
}

/// Adds up what leaves the same way: a batch of thousands of parts is one entry.
fn push(left: &mut Vec<Left>, one: Left) {
    match left.last_mut() {
        Some(last) if last.exit == one.exit => last.amount += one.amount,
        _ => left.push(one),
    }
}

impl Pending {
    fn id(&self) -> BatchId {
        self.made.batch.id
    }

    /// The destination has said something of it. Once it has said everything, what is left is tried again.
    fn heard(&mut self, now: Now) {
        if matches!(self.stage, Stage::Submitted(_)) {
            self.stage = match self.in_hand {
                0 => Stage::Waiting(self.retry_at.unwrap_or(now.at)),
                _ => Stage::Submitted(now.at),
            };
        }
    }

    fn open_amount(&self) -> Amount {
        let batch: &Batch = &self.made.batch;
        if self.open == self.parts.len() {
            return batch.amount();
        }
        let open = self.parts.iter().enumerate().filter(|(_, part)| part.state != PartState::Done);
        open.map(|(at, _)| batch.amount_of(at)).sum()
    }

    /// Its parts that the destination has and has said nothing of.
    fn in_hand(&self) -> (BatchId, Parts) {
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

/// Small random numbers (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>): for pauses, not for secrets.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A pause after that many failures in a row.
    fn pause(&mut self, failures: u32, max: Duration) -> Duration {
        let doubled = RETRY_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let bound_us = doubled.min(max).as_micros() as u64;
        Duration::from_micros(self.next() % bound_us.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_anything_up_to_a_bound_that_doubles() {
        let max = Duration::from_secs(5);
        let mut random = Random(1);
        for (failures, bound_ms) in
            [(1, 100), (2, 200), (3, 400), (6, 3_200), (7, 5_000), (u32::MAX, 5_000)]
        {
            let pauses: Vec<_> = (0..2_000).map(|_| random.pause(failures, max)).collect();
            let bound = Duration::from_millis(bound_ms);
            assert!(pauses.iter().all(|pause| *pause < bound), "{failures}");
            // Full jitter: every part of it is hit alike.
            for quarter in 0..4 {
                let range = bound * quarter / 4..bound * (quarter + 1) / 4;
                let hits = pauses.iter().filter(|pause| range.contains(*pause)).count();
                assert!(
                    (400..600).contains(&hits),
                    "{hits} of 2,000 in quarter {quarter} of {bound:?}"
                );
            }
        }
    }
}
