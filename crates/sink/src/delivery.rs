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

struct Pending {
    made: Made,
    parts: Vec<PartState>,
    /// Parts without a fate.
    open: usize,
    stage: Stage,
    failures: u32,
    /// What it is counted under if it has to go.
    reason: Option<Reason>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// May be submitted from then on.
    Waiting(Instant),
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
        self.pending.iter().filter(|_| self.failures > 0).find_map(|one| one.reason)
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
        let parts = vec![state; count];
        let pending = Pending { made, parts, open: count, stage, failures: 0, reason: None };
        self.pending.push_back(pending);
    }

    /// What is to be submitted now. It counts as submitted until its outcome, or [`given_back`](Self::given_back).
    pub(crate) fn next(&mut self, now: Now) -> Option<Attempt> {
        if self.pause_until.is_some_and(|until| now.at < until) {
            return None;
        }
        if self.is_circuit_open() && self.submitted() > 0 {
            return None;
        }

        let is_ready = |one: &&mut Pending| matches!(one.stage, Stage::Waiting(at) if at <= now.at);
        let next = self.pending.iter_mut().find(is_ready)?;
        next.stage = Stage::Submitted(now.at);
        Some(Attempt { batch: Arc::clone(&next.made.batch), parts: next.open_parts() })
    }

    /// The destination has no room for this one until then.
    pub(crate) fn given_back(&mut self, id: BatchId, until: Instant) {
        if let Some(one) = self.find(id) {
            one.stage = Stage::Waiting(until);
        }
    }

    /// Takes what became of an attempt. What is said of parts whose fate is known already changes nothing.
    pub(crate) fn outcome(&mut self, outcome: &Outcome, now: Now) {
        match &outcome.fate {
            Fate::Acknowledged => {
                self.succeeded();
                self.leave(outcome, |state| Exit::Acknowledged {
                    is_repeated: state == PartState::Maybe,
                });
            }
            Fate::Rejected { class, .. } => {
                // It has answered: it is there.
                self.succeeded();
                let class = *class;
                self.leave(outcome, |_| Exit::Rejected(class));
            }
            Fate::Dropped(reason) => {
                let reason = *reason;
                self.is_failing = true;
                self.leave(outcome, |_| Exit::Dropped(reason));
            }
            Fate::Failed(failure) => self.failed(outcome, failure, now),
        }
    }

    /// Everything that was submitted has lost its destination: it may have arrived.
    pub(crate) fn lost_destination(&mut self, failure: &Failure, now: Now) {
        let is_submitted = |one: &&Pending| matches!(one.stage, Stage::Submitted(_));
        let ids: Vec<_> = self.pending.iter().filter(is_submitted).map(Pending::id).collect();
        for id in &ids {
            self.failed(&Outcome::all(*id, Fate::Failed(failure.clone())), failure, now);
        }
        if ids.is_empty() {
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
            self.give_up(at, Reason::Expired);
        }
    }

    /// Lets go of everything that no spool has: the time is over. `reason` names what was never tried and has no reason of its own.
    /// Returns how much it was.
    pub(crate) fn give_up_unspooled(&mut self, reason: Reason) -> Amount {
        let mut lost = Amount::default();
        while let Some(at) = self.pending.iter().position(|one| one.made.entries.is_empty()) {
            lost += self.pending[at].open_amount();
            let reason = self.pending[at].reason.unwrap_or(reason);
            self.give_up(at, reason);
        }
        lost
    }

    /// Whether rows that a spool has were given to the destination, and their fate is not known.
    pub(crate) fn attempted_and_spooled(&self) -> Attempted {
        let was_tried = |one: &Pending| {
            let is_submitted = matches!(one.stage, Stage::Submitted(_));
            is_submitted || one.parts.iter().any(|state| *state != PartState::Open)
        };
        let mut spooled = self.pending.iter().filter(|one| !one.made.entries.is_empty());
        if spooled.any(was_tried) { Attempted::Some } else { Attempted::None }
    }

    /// How long until there is something to do, if nothing is heard.
    pub(crate) fn due_in(&self, now: Now) -> Option<Duration> {
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

    fn failed(&mut self, outcome: &Outcome, failure: &Failure, now: Now) {
        let retry_max = self.options.retry_max;
        let mut random = Random(self.random.next());
        let Some(one) = self.find(outcome.batch) else { return };

        if failure.sent == Sent::Maybe {
            for at in outcome.parts.places(one.parts.len()) {
                if let Some(state @ PartState::Open) = one.parts.get_mut(at) {
                    *state = PartState::Maybe;
                }
            }
        }

        one.failures += 1;
        one.reason = failure.reason;
        let pause = failure.after.unwrap_or_else(|| random.pause(one.failures, retry_max));
        one.stage = Stage::Waiting(now.at + pause);
        self.note_failure(failure, now);
    }

    fn note_failure(&mut self, failure: &Failure, now: Now) {
        // One that is merely slow is not broken.
        if failure.reason.is_none() {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.is_failing = true;
        if self.is_circuit_open() {
            let pause = failure.after;
            let pause =
                pause.unwrap_or_else(|| self.random.pause(self.failures, self.options.retry_max));
            self.pause_until = Some(now.at + pause);
        }
    }

    /// Counts parts of a batch as gone, and lets go of the batch with its last part.
    fn leave(&mut self, outcome: &Outcome, exit: impl Fn(PartState) -> Exit) {
        let Some(at) = self.pending.iter().position(|one| one.id() == outcome.batch) else {
            return;
        };
        let one = &mut self.pending[at];
        for place in outcome.parts.places(one.parts.len()) {
            let Some(state) = one.parts.get_mut(place) else { continue };
            if *state == PartState::Done {
                continue;
            }
            let exit = exit(*state);
            *state = PartState::Done;
            one.open -= 1;
            push(&mut self.left, Left { exit, amount: one.made.batch.amount_of(place) });
        }

        if one.open == 0 {
            self.entries.append(&mut one.made.entries);
            self.pending.remove(at);
        }
    }

    fn give_up(&mut self, at: usize, reason: Reason) {
        let one = &self.pending[at];
        let was_submitted = matches!(one.stage, Stage::Submitted(_));
        let outcome = Outcome::all(one.id(), Fate::Dropped(reason));
        self.leave(&outcome, |state| match state {
            PartState::Maybe => Exit::Uncertain,
            _ if was_submitted => Exit::Uncertain,
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

    fn open_amount(&self) -> Amount {
        let batch: &Batch = &self.made.batch;
        if self.open == self.parts.len() {
            return batch.amount();
        }
        let open = self.parts.iter().enumerate().filter(|(_, state)| **state != PartState::Done);
        open.map(|(at, _)| batch.amount_of(at)).sum()
    }

    fn open_parts(&self) -> Parts {
        if self.open == self.parts.len() {
            return Parts::All;
        }
        let open = self.parts.iter().enumerate().filter(|(_, state)| **state != PartState::Done);
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
