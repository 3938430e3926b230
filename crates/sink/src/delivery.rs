//! Batches in delivery: the time of each attempt, and the state of each batch. Performs no I/O and has no clock.
//!
//! A batch stays here until the fate of each of its parts is known. A retry sends the same bytes under the same id. After a
//! failure the next attempt waits for a random time up to a bound that doubles with each failure in a row ("full jitter"). After
//! [`CIRCUIT_FAILURES`] failures in a row the circuit is open: only one batch is tried at a time, until one succeeds. Attempts
//! that were in flight when a failure was counted are part of the same failure: a connection lost with eight batches in flight is
//! one failure.

mod pause;
mod pending;

use crate::backlog::Attempted;
use crate::batch::{Attempt, BatchId, Failure, Fate, Outcome, Parts};
use crate::batcher::{EntryId, Made};
use crate::options::DeliveryOptions;
use ledger::{Amount, Reason, RejectClass};
use pause::Random;
use pending::{Part, PartState, Pending, Stage};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use sys::clock::Ages;

/// Failures in a row after which only one batch is tried at a time.
const CIRCUIT_FAILURES: u32 = 3;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) at: Instant,
    /// Nanoseconds since 1970, UTC.
    pub(crate) unix_ns: u64,
}

/// How rows leave the sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    Acknowledged {
        /// An earlier attempt may have delivered them too, in the same batch.
        is_repeated: bool,
        /// An earlier process may have delivered them, in batches cut differently, so that no destination can recognize them.
        of_former_life: bool,
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

/// The batches of one sink from completion to their fate.
pub(crate) struct Delivery {
    options: DeliveryOptions,
    pending: VecDeque<Pending>,
    /// Attempts so far, and how many there had been when the last failure was counted.
    attempts: u64,
    failed_with: u64,
    /// Failures since the last success.
    failures: u32,
    is_failing: bool,
    /// The reason to count for rows that have to be dropped, from the last failure.
    reason: Option<Reason>,
    /// Make no attempt before this time.
    pause_until: Option<Instant>,
    /// The destination has no room before this time, unless it answers. Nothing overtakes what it gave back.
    full_until: Option<Instant>,
    random: Random,
    /// The first moment that was seen, and the ages of rows.
    began_at: Option<Instant>,
    ages: Ages,
    /// Rows that left since this was last drained.
    pub(crate) left: Vec<Left>,
    /// Rows of spool entries that left since this was last drained.
    pub(crate) entries: Vec<(EntryId, u64)>,
}

impl Delivery {
    pub(crate) fn new(options: DeliveryOptions, seed: u64) -> Delivery {
        Delivery {
            options,
            pending: VecDeque::new(),
            attempts: 0,
            failed_with: 0,
            failures: 0,
            is_failing: false,
            reason: None,
            pause_until: None,
            full_until: None,
            random: Random(seed),
            began_at: None,
            ages: Ages::default(),
            left: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Whether another batch may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() < self.options.in_flight_max
    }

    /// Number of batches here.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Number of batches that wait for an answer.
    pub(crate) fn submitted(&self) -> usize {
        self.pending.iter().filter(|one| one.is_submitted()).count()
    }

    /// Whether the destination has failed repeatedly and not recovered yet.
    pub(crate) fn is_circuit_open(&self) -> bool {
        self.failures >= CIRCUIT_FAILURES
    }

    /// Whether the most recent news was that rows did not get through.
    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Notes that there is a destination again. Whether rows get through is unknown, so an open circuit stays open.
    pub(crate) fn regained(&mut self) {
        self.is_failing = false;
    }

    /// The reason to count for rows that have to be dropped now.
    pub(crate) fn failing_reason(&self) -> Option<Reason> {
        self.reason.filter(|_| self.failures > 0)
    }

    /// Rows without a fate.
    pub(crate) fn inside(&self) -> Amount {
        self.pending.iter().map(Pending::open_amount).sum()
    }

    /// Of these, those in the spool; and of the others, those that may be with the destination.
    pub(crate) fn spooled_and_exposed(&self) -> [Amount; 2] {
        let sum = |is: fn(&&Pending) -> bool| {
            self.pending.iter().filter(is).map(Pending::open_amount).sum()
        };
        [sum(|one| one.is_spooled()), sum(|one| !one.is_spooled() && one.is_exposed())]
    }

    /// Time of the oldest row inside; 0 if no row has a time.
    pub(crate) fn oldest_unix_ns(&self) -> u64 {
        let times = self.pending.iter().map(|one| one.made.batch.oldest_unix_ns);
        times.filter(|time| *time > 0).min().unwrap_or(0)
    }

    /// Adds a batch.
    pub(crate) fn add(&mut self, made: Made, now: Now) {
        self.pending.push_back(Pending::new(made, now.at));
    }

    /// Whether a batch can be submitted now.
    pub(crate) fn is_ready(&self, now: Now) -> bool {
        self.due_in(now).is_some_and(|due| due.is_zero())
    }

    /// Makes no attempt before this time.
    pub(crate) fn hold(&mut self, until: Instant) {
        self.pause_until = self.pause_until.max(Some(until));
    }

    /// The next attempt to submit. It counts as submitted until its outcome, or [`given_back`](Self::given_back).
    pub(crate) fn next(&mut self, now: Now) -> Option<Attempt> {
        if !self.is_ready(now) {
            return None;
        }

        let is_ready = |one: &&mut Pending| matches!(one.stage, Stage::Waiting(at) if at <= now.at);
        let next = self.pending.iter_mut().find(is_ready)?;
        self.attempts += 1;
        Some(next.submit(self.attempts, now.at))
    }

    /// The destination had no room for this batch. The next attempt is at that time, or after an answer.
    pub(crate) fn given_back(&mut self, id: BatchId, now: Now, until: Instant) {
        self.full_until = Some(until);
        if let Some(one) = self.find(id) {
            one.given_back(now.at);
        }
    }

    /// Applies the outcome of an attempt. Ignores parts whose fate is already known.
    pub(crate) fn outcome(&mut self, outcome: &Outcome, now: Now) {
        self.full_until = None;
        let Some(one) = self.find(outcome.batch) else { return };
        let of_former_life = one.made.is_repeated;
        match &outcome.fate {
            Fate::Acknowledged => {
                self.succeeded();
                self.leave(outcome, now, |part| {
                    let is_repeated = part.state == PartState::Maybe;
                    Exit::Acknowledged { is_repeated, of_former_life }
                });
            }
            Fate::Rejected { class, .. } => {
                // The destination has answered, so it is reachable.
                self.succeeded();
                let class = *class;
                self.leave(outcome, now, |_| Exit::Rejected(class));
            }
            Fate::Dropped(reason) => {
                let reason = *reason;
                self.is_failing = true;
                self.leave(outcome, now, |_| Exit::Dropped(reason));
            }
            Fate::Uncertain => {
                self.is_failing = true;
                self.leave(outcome, now, |_| Exit::Uncertain);
            }
            Fate::Failed(failure) => self.failed(outcome.batch, &outcome.parts, failure, now),
        }
    }

    /// The destination is gone. Everything submitted to it may have arrived.
    pub(crate) fn lost_destination(&mut self, failure: &Failure, now: Now) {
        self.full_until = None;
        let submitted = self.pending.iter().filter(|one| one.is_submitted());
        let lost: Vec<_> = submitted.map(Pending::in_hand).collect();
        for (batch, parts) in &lost {
            self.failed(*batch, parts, failure, now);
        }
        if lost.is_empty() {
            self.note_failure(None, failure, now);
        }
    }

    /// Whether an answer of the destination is overdue.
    pub(crate) fn is_overdue(&self, now: Now) -> bool {
        let answer_max = self.options.answer_max;
        self.pending.iter().any(
            |one| matches!(one.stage, Stage::Submitted(at) if now.at.duration_since(at) > answer_max),
        )
    }

    /// Drops batches that are too old to be retried. A batch expires with its newest row, so no row is dropped too early. Batches
    /// in the destination's hands stay.
    pub(crate) fn expire(&mut self, now: Now) {
        self.note_time(now);
        let Some(after) = self.options.expire_after else { return };

        while let Some(at) = self.pending.iter().position(|one| {
            let newest = one.made.newest_unix_ns;
            !one.is_submitted() && newest > 0 && self.ages.age(newest) > after
        }) {
            self.give_up(at, Reason::Expired, now);
        }
    }

    /// The wall clock may be set at any time, so ages are measured against a clock that is not.
    fn note_time(&mut self, now: Now) {
        let began_at = *self.began_at.get_or_insert(now.at);
        let steady = now.at.saturating_duration_since(began_at);
        self.ages.note(now.unix_ns, steady.as_nanos() as u64);
    }

    /// The age of rows that arrived at this time by the wall clock.
    pub(crate) fn age(&mut self, unix_ns: u64, now: Now) -> Duration {
        self.note_time(now);
        self.ages.age(unix_ns)
    }

    /// Drops everything that is not in the spool, because time is up. `reason` applies to batches that have no reason of their
    /// own. Returns how much was dropped.
    pub(crate) fn give_up_unspooled(&mut self, reason: Reason, now: Now) -> Amount {
        let mut lost = Amount::default();
        while let Some(at) = self.pending.iter().position(|one| !one.is_spooled()) {
            lost += self.pending[at].open_amount();
            let reason = self.pending[at].reason.unwrap_or(reason);
            self.give_up(at, reason, now);
        }
        lost
    }

    /// Whether rows in the spool may be with the destination: either their own fate is unknown, or some rows of their batch have
    /// left.
    pub(crate) fn attempted_and_spooled(&self) -> Attempted {
        let mut spooled = self.pending.iter().filter(|one| one.is_spooled());
        let is_tried = spooled.any(|one| one.is_exposed() || one.has_begun());
        if is_tried { Attempted::Some } else { Attempted::None }
    }

    /// Whether all rows here are in the spool.
    pub(crate) fn is_spooled(&self) -> bool {
        self.pending.iter().all(Pending::is_spooled)
    }

    /// Time until a batch can be submitted, if no outcome arrives before.
    pub(crate) fn due_in(&self, now: Now) -> Option<Duration> {
        if self.is_circuit_open() && self.submitted() > 0 {
            return None;
        }
        let ready = self.pending.iter().filter_map(|one| match one.stage {
            Stage::Waiting(at) => Some(at),
            Stage::Submitted(_) => None,
        });
        let held = self.pause_until.max(self.full_until).unwrap_or(now.at);
        let ready = ready.min()?.max(held);
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

        // Late news about an earlier attempt.
        if !one.fail(parts, failure.sent) {
            return;
        }

        // An attempt fails only once, no matter how many of its parts fail.
        let is_first = one.retry_at.is_none();
        one.failures += u32::from(is_first);
        one.reason = failure.reason;
        let pause = failure.after.unwrap_or_else(|| random.pause(one.failures, retry_max));
        one.retry_at = one.retry_at.max(Some(now.at + pause));
        one.heard(now.at);
        let attempt = one.attempt;
        if is_first {
            self.note_failure(Some(attempt), failure, now);
        }
    }

    /// Counts a failure of this attempt, or of the destination itself.
    fn note_failure(&mut self, attempt: Option<u64>, failure: &Failure, now: Now) {
        // A slow destination is not broken.
        if failure.reason.is_none() {
            return;
        }
        self.reason = failure.reason;
        self.is_failing = true;
        // It was in flight when the last failure was counted.
        if attempt.is_some_and(|attempt| attempt <= self.failed_with) {
            return;
        }

        self.failed_with = self.attempts;
        self.failures = self.failures.saturating_add(1);
        if self.is_circuit_open() {
            let pause = failure.after;
            let pause =
                pause.unwrap_or_else(|| self.random.pause(self.failures, self.options.retry_max));
            self.pause_until = Some(now.at + pause);
        }
    }

    /// Counts parts of a batch as gone, and removes the batch with its last part.
    fn leave(&mut self, outcome: &Outcome, now: Now, exit: impl Fn(Part) -> Exit) {
        let Some(at) = self.pending.iter().position(|one| one.id() == outcome.batch) else {
            return;
        };
        let one = &mut self.pending[at];
        for place in outcome.parts.places(one.parts.len()) {
            let Some((part, amount)) = one.end_part(place) else { continue };
            push(&mut self.left, Left { exit: exit(part), amount });
        }

        if one.is_done() {
            self.entries.append(&mut one.made.entries);
            self.pending.remove(at);
        } else {
            one.heard(now.at);
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

/// Merges rows that leave the same way: a batch of thousands of parts is one entry.
fn push(left: &mut Vec<Left>, one: Left) {
    match left.last_mut() {
        Some(last) if last.exit == one.exit => last.amount += one.amount,
        _ => left.push(one),
    }
}

#[cfg(test)]
mod tests;
