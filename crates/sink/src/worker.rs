//! One turn of a sink: chunks into batches, batches to the destination, outcomes into the accounts.
//!
//! Everything that waits, reads a clock or does I/O is behind the destination, the backlog and the clock, so that a simulation
//! can drive the same code as the sink's thread.

mod ending;
mod figures;
mod remake;

use crate::accounts::{Accounts, SpoolFound, Standing};
use crate::backlog::{Backlog, Room, Share, TURN_MAX};
use crate::batch::{Failure, Outcome, Sent};
use crate::batcher::{Batcher, Fed, Quiet};
use crate::delivery::{Delivery, Exit, Left, Now};
use crate::destination::{Connector, Destination, Form};
use crate::options::{BatchLimits, DeliveryOptions};
use crate::queue::{Phase, Queue};
use crate::spool::Disk;
use ledger::{Reason, Trouble};
use remake::Remake;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for an answer: anything queued meanwhile is delayed until it ends.
const POLL_MAX: Duration = Duration::from_millis(20);

/// The same while chunks go to the spool as fast as its disk takes them. The runtimes of clients need some time to do anything.
const POLL_MIN: Duration = Duration::from_millis(1);

/// How often to poll the destination while nothing is in flight, and the longest rest.
const IDLE: Duration = Duration::from_secs(1);

/// How long to show the message of a rejection: the next batch may be acknowledged at once.
const REJECTION_TIME: Duration = Duration::from_secs(10);

/// What the thread should do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Run another turn: there may be more to do.
    Again,
    /// Nothing to do for this long, unless something is queued.
    Rest(Duration),
    /// Nothing to do for this long; anything queued would have to wait too.
    RestAlone(Duration),
    /// Everything that can leave has left.
    End,
}

/// Whether the sink's trouble is that of its spool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Yes,
    No,
}

/// The logic of a sink's thread, without the thread.
pub(crate) struct Worker<C, D: Disk> {
    clock: C,
    queue: Arc<Queue>,
    accounts: Arc<Accounts>,
    backlog: Backlog<D>,
    connector: Connector,
    batcher: Batcher,
    delivery: Delivery,
    destination: Option<Box<dyn Destination>>,
    remake: Remake,
    /// Whether the batcher has its encoders: not before the first turn, nor after creating them failed.
    has_form: bool,
    remake_form: Remake,
    /// Whether a batch that is delivered twice is stored once, according to the last destination.
    is_idempotent: bool,
    /// Whether this turn has used its time for chunks.
    share: Share,
    /// Whether the spool's trouble is shown.
    shows_spool: Shown,
    /// The message of a rejection stays until this time.
    rejection_until: Option<Instant>,
    done: Vec<Outcome>,
    looked_at: Instant,
    checked_at: Instant,
    ends_at: Option<Instant>,
}

impl<C: Fn() -> Now, D: Disk> Worker<C, D> {
    pub(crate) fn new(
        clock: C,
        accounts: Arc<Accounts>,
        backlog: Backlog<D>,
        limits: (BatchLimits, DeliveryOptions),
        connector: Connector,
        seed: u64,
    ) -> Worker<C, D> {
        let at = clock().at;
        Worker {
            queue: Arc::clone(&accounts.queue),
            accounts,
            backlog,
            connector,
            batcher: Batcher::new(limits.0, no_form()),
            delivery: Delivery::new(limits.1, seed),
            destination: None,
            remake: Remake::default(),
            has_form: false,
            remake_form: Remake::default(),
            is_idempotent: false,
            share: Share::Enough,
            shows_spool: Shown::No,
            rejection_until: None,
            done: Vec::new(),
            looked_at: at,
            checked_at: at,
            ends_at: None,
            clock,
        }
    }

    /// Does everything that can be done now.
    pub(crate) fn turn(&mut self) -> Turn {
        let phase = self.queue.phase();
        let now = (self.clock)();
        match phase {
            Phase::Open => {}
            Phase::Closing(deadline) => self.ends_at = Some(deadline),
            // It hung past its deadline, and nobody waits for it any more.
            Phase::Closed => self.ends_at = Some(now.at),
        }

        self.delivery.expire(now);
        self.make_form(now);
        let room = if self.has_room() { Room::Yes } else { Room::No };
        self.share = self.backlog.keep(&self.clock, room);
        self.fill(phase, (self.clock)());
        // After the last batch was made: one that is not due yet would be overtaken by the next.
        let now = (self.clock)();
        // A call below may never return; what was counted before it then stands.
        self.settle();
        if !self.is_over(now) {
            self.submit(now);
        }
        self.listen(now);
        // Outcomes may have made room for complete batches.
        self.pass_on(now);
        self.settle();
        self.measure();
        self.what_next(phase)
    }

    /// Feeds chunks to the batcher while it has room, for the time of a turn: each may have to be read from a disk, or written.
    fn fill(&mut self, phase: Phase, begun: Now) {
        let (mut quiet, mut now) = (Quiet::No, begun);
        while self.has_room() {
            let Some(fed) = self.backlog.next(now) else {
                quiet = Quiet::Yes;
                break;
            };
            self.feed(&fed, now);
            self.pass_on(now);
            now = (self.clock)();
            if now.at.duration_since(begun.at) >= TURN_MAX {
                self.share = Share::Spent;
                break;
            }
        }

        let ends_all = phase != Phase::Open && quiet == Quiet::Yes;
        self.end_batches(now, |batcher| match ends_all {
            true => batcher.end_all(),
            false => batcher.end_aged(now.at, quiet),
        });
        self.pass_on(now);
    }

    /// Whether the deadline has passed: nothing is tried any more.
    fn is_over(&self, now: Now) -> bool {
        self.ends_at.is_some_and(|end| now.at >= end)
    }

    /// Whether more rows may be batched: the next batch is filled while those before it are in flight.
    fn has_room(&self) -> bool {
        self.batcher.out.made.is_empty() && self.has_form
    }

    fn pass_on(&mut self, now: Now) {
        while self.delivery.has_room()
            && let Some(made) = self.batcher.out.made.pop_front()
        {
            self.delivery.add(made, now);
        }
    }

    /// An encoder that panics loses its rows, and is recreated.
    fn feed(&mut self, fed: &Fed, now: Now) {
        let batcher = &mut self.batcher;
        let mut fed_rows = 0;
        if catch_unwind(AssertUnwindSafe(|| batcher.feed(fed, now.at, &mut fed_rows))).is_ok() {
            return;
        }

        self.lose_form(now);
        self.batcher.skip_from(fed, fed_rows);
    }

    /// Completes batches; an encoder may panic here too.
    fn end_batches(&mut self, now: Now, end: impl FnOnce(&mut Batcher)) {
        let batcher = &mut self.batcher;
        if catch_unwind(AssertUnwindSafe(|| end(batcher))).is_err() {
            self.lose_form(now);
        }
    }

    /// Handles a panic of an encoder: rows being encoded are lost, and the form is recreated.
    fn lose_form(&mut self, now: Now) {
        self.accounts.figures.panics.add(1);
        self.batcher.replace(no_form());
        self.has_form = false;
        self.make_form(now);
    }

    /// Creates the form if there is none and it is time. Nothing is batched without it.
    fn make_form(&mut self, now: Now) {
        if self.has_form || !self.remake_form.may(now.at) {
            return;
        }

        match catch_unwind(AssertUnwindSafe(&mut self.connector.form)) {
            Ok(form) => {
                self.batcher.replace(form);
                self.has_form = true;
                self.remake_form = Remake::default();
            }
            Err(_) => {
                self.accounts.figures.panics.add(1);
                self.accounts.set_trouble(Some(panicked()));
                self.remake_form.failed(now.at);
            }
        }
    }

    /// Submits what is ready, while the destination accepts it.
    fn submit(&mut self, now: Now) {
        // Check for a destination first: without one nothing was sent.
        while self.delivery.is_ready(now) && self.has_destination(now) {
            let Some(attempt) = self.delivery.next(now) else { return };
            let id = attempt.batch.id;
            self.settle();
            match self.with_destination(|destination| destination.submit(attempt)) {
                Some(Ok(())) => self.accounts.figures.attempts.add(1),
                Some(Err(_)) => {
                    self.delivery.given_back(id, now, now.at + POLL_MAX);
                    return;
                }
                None => return self.unmade(now, &panicked()),
            }
            // A destination that answers at once makes room at once.
            self.hear(Duration::ZERO, now);
            self.pass_on(now);
        }
    }

    /// Collects outcomes of batches; waits for them if there is nothing else to do.
    fn listen(&mut self, now: Now) {
        if self.delivery.submitted() == 0 {
            // A destination may have work to do even before its first batch, such as removing old files.
            let is_due = now.at.duration_since(self.looked_at) >= IDLE;
            if is_due && self.has_destination(now) {
                self.hear(Duration::ZERO, now);
            }
            return;
        }

        let due = [self.delivery.due_in(now), self.batcher.due_in(now.at)];
        let most = if self.share == Share::Spent { POLL_MIN } else { POLL_MAX };
        let wait = due.into_iter().flatten().fold(most, Duration::min);
        self.hear(wait, now);

        let now = (self.clock)();
        if self.delivery.is_overdue(now) {
            self.drop_destination();
            self.fail_all(now, "it answers nothing", "see whether it hangs, and restart it");
        }
    }

    fn hear(&mut self, wait: Duration, now: Now) {
        self.looked_at = now.at;
        let mut done = std::mem::take(&mut self.done);
        let polled = self.with_destination(|destination| destination.poll(wait, &mut done));

        let now = (self.clock)();
        self.take(&mut done, now);
        self.done = done;
        if polled.is_none() {
            self.unmade(now, &panicked());
        }
    }

    fn take(&mut self, done: &mut Vec<Outcome>, now: Now) {
        for outcome in done.drain(..) {
            self.note(&outcome, now);
            self.delivery.outcome(&outcome, now);
        }
    }

    /// Creates the destination if there is none and it is time.
    fn has_destination(&mut self, now: Now) -> bool {
        if self.destination.is_some() {
            return true;
        }
        if !self.remake.may(now.at) {
            return false;
        }

        let make = &mut self.connector.destination;
        let make = || make().map(|destination| (destination.is_idempotent(), destination));
        match catch_unwind(AssertUnwindSafe(make)) {
            Ok(Ok((is_idempotent, destination))) => {
                self.accounts.figures.connects.add(1);
                self.is_idempotent = is_idempotent;
                self.destination = Some(destination);
                self.made();
                true
            }
            Ok(Err(trouble)) => {
                self.accounts.figures.errors.add(1);
                self.unmade(now, &trouble);
                false
            }
            Err(_) => {
                self.accounts.figures.panics.add(1);
                self.unmade(now, &panicked());
                false
            }
        }
    }

    /// Calls the destination. `None` if there is none, or if it has panicked and was dropped; the caller must then call
    /// [`unmade`](Self::unmade).
    fn with_destination<T>(&mut self, call: impl FnOnce(&mut dyn Destination) -> T) -> Option<T> {
        let destination = self.destination.as_mut()?;
        let answer = catch_unwind(AssertUnwindSafe(|| call(destination.as_mut())));
        if answer.is_err() {
            self.accounts.figures.panics.add(1);
            self.drop_destination();
        }
        answer.ok()
    }

    /// A broken destination may panic again when it is dropped.
    fn drop_destination(&mut self) {
        let broken = self.destination.take();
        drop(catch_unwind(AssertUnwindSafe(|| drop(broken))));
    }

    /// There is a destination again. If nothing is waiting, no outcome would clear the trouble reported meanwhile.
    fn made(&mut self) {
        let was_unmade = self.remake.at.take().is_some();
        if was_unmade && self.delivery.len() == 0 {
            self.delivery.regained();
            self.accounts.set_trouble(None);
        }
    }

    /// There is no destination: everything submitted may have arrived, and the next one is created after a pause.
    fn unmade(&mut self, now: Now, trouble: &Trouble) {
        let at = self.remake.failed(now.at);
        self.fail_all(now, &trouble.what, &trouble.fix);
        self.delivery.hold(at);
    }

    fn fail_all(&mut self, now: Now, what: &str, fix: &str) {
        let trouble = Trouble { what: what.to_owned(), fix: fix.to_owned() };
        self.accounts.set_trouble(Some(trouble.clone()));
        let reason = Some(Reason::Unavailable);
        let failure = Failure { sent: Sent::Maybe, reason, after: None, trouble };
        self.delivery.lost_destination(&failure, now);
    }

    /// Counts what has left since the last time.
    fn settle(&mut self) {
        let standing = self.standing();
        let Worker { accounts, delivery, batcher, backlog, .. } = self;
        if delivery.left.iter().any(|left| matches!(left.exit, Exit::Acknowledged { .. })) {
            self.remake = Remake::default();
        }

        let recovered = backlog.recovered.take();
        if let Some(recovered) = recovered {
            accounts.set_found(SpoolFound { recovered, oldest_unix_ns: backlog.recovered_unix_ns });
        }
        let corrupt = std::mem::take(&mut backlog.corrupt);
        let is_idempotent = self.is_idempotent;
        accounts.settle(standing, || {
            if let Some(recovered) = recovered {
                accounts.add_recovered(recovered);
            }
            for left in &delivery.left {
                count(accounts, *left, is_idempotent);
            }
            for skipped in &batcher.out.skipped {
                accounts.counters.drop(skipped.reason, skipped.amount);
            }
            if !corrupt.is_zero() {
                accounts.counters.drop(Reason::SpoolCorrupt, corrupt);
            }
            accounts.violations.add(std::mem::take(&mut batcher.out.violations));
        });

        delivery.left.clear();
        let skipped = batcher.out.skipped.drain(..);
        let skipped = skipped.filter_map(|one| Some((one.entry?, one.amount.count)));
        delivery.entries.extend(skipped);
        backlog.settle(&delivery.entries);
        delivery.entries.clear();
        self.queue.set_failing(self.failing_reason());
    }

    /// Where the rows are, in case this thread is never heard of again.
    fn standing(&self) -> Standing {
        let [spooled, exposed] = self.delivery.spooled_and_exposed();
        let kept = self.backlog.spooled_unread() + self.batcher.spooled() + spooled;
        Standing { kept: kept.saturating_sub(self.backlog.at_risk()), exposed }
    }

    /// The reason to count for rows that have to be dropped now.
    fn failing_reason(&self) -> Option<Reason> {
        if self.remake_form.at.is_some() {
            return Some(Reason::SinkPanicked);
        }
        self.backlog.full_reason().or_else(|| self.delivery.failing_reason())
    }
}

fn count(accounts: &Accounts, left: Left, is_idempotent: bool) {
    let counters = &accounts.counters;
    match left.exit {
        Exit::Acknowledged { is_repeated, of_former_life } => {
            counters.acknowledge(left.amount);
            if of_former_life || (is_repeated && !is_idempotent) {
                accounts.figures.possible_duplicates.add(left.amount.count);
            }
        }
        Exit::Rejected(class) => counters.reject(class, left.amount),
        Exit::Dropped(reason) => counters.drop(reason, left.amount),
        Exit::Uncertain => counters.uncertain(left.amount),
    }
}

/// The batcher's form before the real one is created.
fn no_form() -> Form {
    Form::ByKind(Vec::new())
}

fn panicked() -> Trouble {
    Trouble {
        what: "the client of this destination panicked: a defect".to_owned(),
        fix: "report it with what standard error says; the client is started anew".to_owned(),
    }
}
