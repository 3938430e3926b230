//! The world around a sink: the time, the store, and what is known about each row outside the code under test.

use super::faults::{Fault, Fired, Mood};
use crate::batch::{Batch, BatchId, Failure, Fate, Outcome, Parts, Sent};
use crate::durability::SyncTimer;
use ledger::{Amount, Reason, RejectClass, SinkCounters, Trouble};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use testkit::Random;

pub(super) const MS: u64 = 1_000_000;

/// One row, as seen from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    pub(super) bytes: u64,
    /// When it arrived, on a clock that never steps: for rows of an earlier life, as the wall clock says when this one begins.
    pub(super) arrived_ns: i64,
    /// How far off the wall clock was then.
    pub(super) unix_step_ns: i64,
    pub(super) stored: u32,
    /// The store had it before this life began.
    pub(super) was_stored: bool,
    /// An attempt in this life ended without a report on it.
    pub(super) is_maybe: bool,
    /// The destination acknowledged, rejected or dropped it in this life.
    pub(super) has_fate: bool,
}

/// One batch that was submitted in this life.
pub(super) struct Seen {
    batch: Arc<Batch>,
    /// The rows in each part.
    pub(super) rows: Vec<Vec<usize>>,
    has_fate: Vec<bool>,
    not_before_ns: u64,
    /// Number of its last attempt.
    attempt: u64,
    /// Its current attempt has failed for some of its parts.
    has_failed: bool,
}

/// What the destination will report on some parts of an attempt.
pub(super) struct Answer {
    pub(super) id: BatchId,
    pub(super) places: Vec<usize>,
    /// `None`: never, or after a sync.
    pub(super) at_ns: Option<u64>,
    pub(super) fate: Fate,
    /// Late answers are about an attempt that has ended.
    pub(super) is_late: bool,
}

/// What the ledger must show.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) acknowledged: Amount,
    pub(super) rejected: BTreeMap<u8, Amount>,
    pub(super) dropped: BTreeMap<u8, Amount>,
    pub(super) duplicates: u64,
    pub(super) encoder_panics: u64,
}

impl Expected {
    pub(super) fn check(&self, counters: &SinkCounters) {
        let acknowledged = counters.counters.delivered.load();
        assert_eq!(acknowledged, self.acknowledged, "acknowledged");
        for class in RejectClass::ALL {
            let amount = self.rejected.get(&(*class as u8)).copied().unwrap_or_default();
            assert_eq!(counters.rejected(*class), amount, "{class:?}");
        }

        for reason in
            [Reason::Refused, Reason::HostUnreachable, Reason::EncodeError, Reason::TooBig]
        {
            let amount = self.dropped.get(&(reason as u8)).copied().unwrap_or_default();
            assert_eq!(counters.counters.dropped(reason), amount, "{reason:?}");
        }
        // A chunk has at most 20 rows, and two lanes are lost with an encoder.
        let most = self.encoder_panics * (20 + 2 * 30);
        let lost = counters.counters.dropped(Reason::SinkPanicked).count;
        assert!(lost <= most, "{lost} rows lost to {} panics", self.encoder_panics);
    }
}

pub(super) struct World {
    pub(super) random: Random,
    pub(super) now_ns: u64,
    pub(super) unix_step_ns: i64,
    pub(super) mood: Mood,
    pub(super) rows: Vec<Row>,
    pub(super) seen: BTreeMap<u64, Seen>,
    pub(super) answers: Vec<Answer>,
    pub(super) expected: Expected,
    pub(super) fired: Fired,
    /// Attempts so far, and how many there had been at the last failure.
    attempts: u64,
    failed_with: u64,
    /// Failures in a row that the sink was told of, not counting attempts that were in flight at the previous one.
    failures: u32,
    pub(super) in_flight_max: usize,
    pub(super) may_be_late: bool,
    /// The time of the next sync, where the store is on this machine.
    pub(super) local: Option<SyncTimer>,
    /// Rows that such a store has not on its disk, once for each time that they were written.
    pub(super) cached: Vec<usize>,
    /// Calls to the destination, to tell progress from spinning.
    pub(super) calls: u64,
    /// A wrong call by the sink. The sink would catch a panic.
    pub(super) wrong: Option<String>,
    pub(super) log: Option<Vec<String>>,
    maybe_rows: u64,
}

pub(super) type Shared = Arc<Mutex<World>>;

pub(super) fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(super) fn trouble() -> Trouble {
    Trouble { what: "as planned".into(), fix: "none".into() }
}

impl World {
    pub(super) fn new(seed: u64, log: Option<Vec<String>>) -> World {
        World {
            random: Random(seed),
            now_ns: 0,
            unix_step_ns: 0,
            mood: Mood::default(),
            rows: Vec::new(),
            seen: BTreeMap::new(),
            answers: Vec::new(),
            expected: Expected::default(),
            fired: Fired::default(),
            attempts: 0,
            failed_with: 0,
            failures: 0,
            in_flight_max: 1,
            may_be_late: false,
            local: None,
            cached: Vec::new(),
            calls: 0,
            wrong: None,
            log,
            maybe_rows: 0,
        }
    }

    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>9} ms  {}", self.now_ns / MS, what()));
        }
    }

    /// Draws whether an event with this chance happens.
    pub(super) fn chance(&mut self, of: impl FnOnce(&Mood) -> u64) -> bool {
        let thousandths = of(&self.mood);
        thousandths > 0 && self.random.below(1_000) < thousandths
    }

    pub(super) fn unix_ns(&self) -> u64 {
        (1_800_000_000_000_000_000 + self.now_ns).saturating_add_signed(self.unix_step_ns)
    }

    /// Begins another life of the sink, which knows nothing of earlier attempts.
    pub(super) fn begin_life(&mut self) {
        for row in &mut self.rows {
            row.arrived_ns += row.unix_step_ns - self.unix_step_ns;
            row.unix_step_ns = self.unix_step_ns;
        }
        self.seen.clear();
        self.answers.clear();
        self.expected = Expected::default();
        self.failures = 0;
        self.maybe_rows = 0;
        for row in &mut self.rows {
            (row.is_maybe, row.has_fate) = (false, false);
            row.was_stored = row.stored > 0;
        }
    }

    /// Rows of this life that may have arrived, with nothing else known about them.
    pub(super) fn maybe_rows(&self) -> u64 {
        self.maybe_rows
    }

    /// Rows of batches that were submitted in this life and have no fate.
    pub(super) fn rows_without_fate(&self) -> u64 {
        let open = |seen: &Seen| {
            let parts = seen.rows.iter().zip(&seen.has_fate);
            parts.map(|(rows, has_fate)| if *has_fate { 0 } else { rows.len() as u64 }).sum::<u64>()
        };
        self.seen.values().map(open).sum()
    }

    /// Rows older than this that have no fate from the destination.
    pub(super) fn older_than(&self, limit_ns: i64) -> u64 {
        let is_old = |row: &&Row| row.arrived_ns < limit_ns && !row.has_fate;
        self.rows.iter().filter(is_old).count() as u64
    }

    /// Checks an attempt against what is known, and decides its fate.
    pub(super) fn submit(&mut self, batch: &Arc<Batch>, parts: &Parts) {
        let id = batch.id;
        let open: Vec<usize> = parts.places(batch.encoded.parts.len()).collect();
        assert!(!open.is_empty(), "an attempt at nothing: {id:?}");
        assert!(open.is_sorted(), "parts out of order: {id:?}");
        if !self.seen.contains_key(&id.0) {
            self.first_seen(batch);
        }

        let now_ns = self.now_ns;
        let in_hand = self.in_hand();
        assert!(in_hand.len() < self.in_flight_max, "too many in flight: {in_hand:?} and {id:?}");
        assert!(!in_hand.contains(&id.0), "{id:?} is in its hands already");
        assert!(self.failures < 3 || in_hand.is_empty(), "more than one probe of an open circuit");
        let seen = &self.seen[&id.0];
        assert!(now_ns >= seen.not_before_ns, "{id:?} before its pause has passed");
        assert_eq!(**batch, *seen.batch, "a retry is not the same batch");
        let expected: Vec<usize> =
            (0..seen.has_fate.len()).filter(|at| !seen.has_fate[*at]).collect();
        assert_eq!(open, expected, "an attempt at other parts than those without a fate: {id:?}");

        self.attempts += 1;
        let attempt = self.attempts;
        let seen = self.seen.get_mut(&id.0).unwrap();
        (seen.has_failed, seen.attempt) = (false, attempt);
        self.plan(id, open);
    }

    fn first_seen(&mut self, batch: &Arc<Batch>) {
        let mut rows = Vec::new();
        for at in 0..batch.encoded.parts.len() {
            let ids = batch
                .part(at)
                .chunks_exact(8)
                .map(|id| u64::from_le_bytes(id.try_into().unwrap()) as usize);
            let ids: Vec<usize> = ids.collect();
            let amount = ids.iter().map(|id| Amount::one(self.rows[*id].bytes as usize)).sum();
            assert_eq!(batch.amount_of(at), amount, "a part with other rows than it says");
            rows.push(ids);
        }
        let has_fate = vec![false; rows.len()];
        let seen = Seen {
            batch: Arc::clone(batch),
            rows,
            has_fate,
            not_before_ns: 0,
            attempt: 0,
            has_failed: false,
        };
        self.seen.insert(batch.id.0, seen);
    }

    /// Batches that it has and has not completely reported on.
    fn in_hand(&self) -> Vec<u64> {
        let waits = |answer: &&Answer| {
            let has_fate = &self.seen[&answer.id.0].has_fate;
            !answer.is_late && answer.places.iter().any(|at| !has_fate[*at])
        };
        let mut ids: Vec<u64> = self.answers.iter().filter(waits).map(|one| one.id.0).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    fn plan(&mut self, id: BatchId, mut places: Vec<usize>) {
        if self.local.is_some() {
            return self.write(id, places);
        }
        while !places.is_empty() {
            let mut some = std::mem::take(&mut places);
            if some.len() > 1 && self.chance(|mood| mood.splits) {
                self.fired.add(Fault::Split);
                places = some.split_off(1 + self.random.index(some.len() - 1));
            }

            let (fate, is_stored, says) = self.fate();
            let delay_ms = self.random.below(self.mood.delay_ms + 1);
            let at_ns = says.then_some(self.now_ns + delay_ms * MS);
            if is_stored {
                self.store(id, &some);
            }
            self.say(|| {
                format!("{id:?} parts {some:?}: {fate:?}, stored {is_stored}, at {at_ns:?}")
            });
            self.answers.push(Answer { id, places: some, at_ns, fate, is_late: false });
        }
    }

    pub(super) fn store(&mut self, id: BatchId, places: &[usize]) {
        for at in places {
            for row in &self.seen[&id.0].rows[*at] {
                self.rows[*row].stored += 1;
                if self.rows[*row].stored == 2 {
                    self.fired.add(Fault::StoredTwice);
                }
            }
        }
    }

    /// The fate of parts, whether the store has them, and whether it is reported.
    fn fate(&mut self) -> (Fate, bool, bool) {
        if self.chance(|mood| mood.hangs) {
            self.fired.add(Fault::Hangs);
            return (Fate::Acknowledged, self.random.below(2) == 0, false);
        }
        if self.chance(|mood| mood.rejects) {
            self.fired.add(Fault::Rejected);
            let class = RejectClass::ALL[self.random.index(RejectClass::COUNT)];
            return (Fate::Rejected { class, says: "no".into() }, false, true);
        }
        if self.chance(|mood| mood.drops) {
            self.fired.add(Fault::DroppedByIt);
            let reason = [Reason::Refused, Reason::HostUnreachable][self.random.index(2)];
            return (Fate::Dropped(reason), false, true);
        }
        if !self.chance(|mood| mood.fails) {
            return (Fate::Acknowledged, true, true);
        }

        let is_maybe = self.random.below(2) == 0;
        let is_stored = is_maybe && self.random.below(2) == 0;
        self.fired.add(match (is_maybe, is_stored) {
            (true, true) => Fault::FailedMaybeStored,
            (true, false) => Fault::FailedMaybe,
            (false, _) => Fault::FailedUnsent,
        });
        let after =
            (self.random.below(3) == 0).then(|| Duration::from_millis(self.random.below(5_000)));
        let is_slow = self.random.below(8) == 0;
        if is_slow {
            self.fired.add(Fault::Slow);
        }
        let reason = (!is_slow).then_some(Reason::Unavailable);
        let sent = if is_maybe { Sent::Maybe } else { Sent::No };
        let failure = Failure { sent, reason, after, trouble: trouble() };
        (Fate::Failed(failure), is_stored, true)
    }

    /// When the next answer is due.
    pub(super) fn next_answer_ns(&self) -> Option<u64> {
        self.answers.iter().filter_map(|answer| answer.at_ns).min()
    }

    /// Reports the answers that are due.
    pub(super) fn answer(&mut self, done: &mut Vec<Outcome>) {
        let now_ns = self.now_ns;
        while let Some(at) =
            self.answers.iter().position(|one| one.at_ns.is_some_and(|at| at <= now_ns))
        {
            let answer = self.answers.remove(at);
            let outcome = self.outcome(answer);
            if self.chance(|mood| mood.noise) {
                self.fired.add(Fault::AnsweredTwice);
                // Only an outcome without further effect may be repeated: the first one counts.
                if !matches!(outcome.fate, Fate::Failed(_)) {
                    done.push(outcome.clone());
                }
            }
            if self.chance(|mood| mood.noise) {
                self.fired.add(Fault::UnknownBatch);
                let fate = [Fate::Acknowledged, Fate::Dropped(Reason::Refused)]
                    [self.random.index(2)]
                .clone();
                done.push(Outcome::all(BatchId(u64::MAX - self.random.below(9)), fate));
            }
            done.push(outcome);
        }
    }

    fn outcome(&mut self, answer: Answer) -> Outcome {
        let Answer { id, places, fate, .. } = answer;
        self.say(|| format!("{id:?} parts {places:?} are told {fate:?}"));
        let Some(seen) = self.seen.get_mut(&id.0) else { unreachable!("unknown {id:?}") };
        let open: Vec<usize> = places.iter().copied().filter(|at| !seen.has_fate[*at]).collect();

        match &fate {
            Fate::Failed(failure) => {
                if let Some(after) = failure.after
                    && !open.is_empty()
                {
                    seen.not_before_ns =
                        seen.not_before_ns.max(self.now_ns + after.as_nanos() as u64);
                }
                let is_stored = open
                    .iter()
                    .all(|at| seen.rows[*at].iter().all(|row| self.rows[*row].stored > 0));
                let is_first = !std::mem::replace(&mut seen.has_failed, true);
                let is_new = is_first && seen.attempt > self.failed_with;
                if failure.reason.is_some() && !open.is_empty() && is_new {
                    self.failures += 1;
                    self.failed_with = self.attempts;
                }
                if failure.sent == Sent::Maybe {
                    self.lost(id, &open);
                    self.plan_late(id, &open, is_stored);
                }
            }
            fate => {
                open.iter().for_each(|at| seen.has_fate[*at] = true);
                self.count(id, &open, fate);
            }
        }
        let places = places.into_iter().map(|at| at as u32).collect();
        Outcome { batch: id, parts: Parts::Some(places), fate }
    }

    fn plan_late(&mut self, id: BatchId, places: &[usize], is_stored: bool) {
        if self.may_be_late
            && self.local.is_none()
            && is_stored
            && !places.is_empty()
            && self.chance(|mood| mood.noise * 4)
        {
            self.fired.add(Fault::LateAnswer);
            let at_ns = Some(self.now_ns + self.random.below(3_000) * MS);
            let (places, fate) = (places.to_vec(), Fate::Acknowledged);
            self.answers.push(Answer { id, places, at_ns, fate, is_late: true });
        }
    }

    fn count(&mut self, id: BatchId, places: &[usize], fate: &Fate) {
        let rows: Vec<usize> =
            places.iter().flat_map(|at| &self.seen[&id.0].rows[*at]).copied().collect();
        let amount: Amount =
            rows.iter().map(|row| Amount::one(self.rows[*row].bytes as usize)).sum();
        let expected = &mut self.expected;
        match fate {
            Fate::Acknowledged => {
                self.failures = 0;
                expected.acknowledged += amount;
                let rows = rows.iter().map(|row| &self.rows[*row]);
                let again = rows.filter(|row| row.is_maybe || row.was_stored);
                expected.duplicates += again.count() as u64;
            }
            Fate::Rejected { class, .. } => {
                self.failures = 0;
                *expected.rejected.entry(*class as u8).or_default() += amount;
            }
            Fate::Dropped(reason) => *expected.dropped.entry(*reason as u8).or_default() += amount,
            // The simulated store leaves nothing uncertain by itself.
            Fate::Failed(_) | Fate::Uncertain => {}
        }
        for row in rows {
            self.maybe_rows -= u64::from(self.rows[row].is_maybe);
            self.rows[row].has_fate = true;
        }
    }

    /// Nobody will report on these parts.
    fn lost(&mut self, id: BatchId, places: &[usize]) {
        for at in places {
            for row in &self.seen[&id.0].rows[*at] {
                let row = &mut self.rows[*row];
                if !row.has_fate && !row.is_maybe {
                    row.is_maybe = true;
                    self.maybe_rows += 1;
                }
            }
        }
    }

    /// The destination is gone, with everything in its hands.
    pub(super) fn gone(&mut self) {
        for answer in std::mem::take(&mut self.answers) {
            let seen = &self.seen[&answer.id.0];
            let open: Vec<usize> =
                answer.places.iter().copied().filter(|at| !seen.has_fate[*at]).collect();
            if !open.is_empty() {
                self.lost(answer.id, &open);
            }
        }
    }
}

/// Unwinds without printing to standard error.
pub(super) fn panic(mut world: MutexGuard<'_, World>, what: &str) -> ! {
    world.say(|| format!("it panics while {what}"));
    drop(world);
    std::panic::resume_unwind(Box::new("planned"))
}
