//! What a sink's thread does after a turn, and how the sink ends.

use super::{IDLE, Turn, Worker, panicked};
use crate::backlog::{Ready, Room, Share};
use crate::batcher::Batcher;
use crate::delivery::Now;
use crate::queue::Phase;
use crate::spool::Disk;
use ledger::{Amount, Reason};
use std::time::Duration;

impl<C: Fn() -> Now, D: Disk> Worker<C, D> {
    pub(super) fn what_next(&mut self, phase: Phase) -> Turn {
        let now = (self.clock)();
        let is_empty = self.delivery.len() == 0 && self.batcher.inside().is_zero();
        let is_queue_empty = self.queue.inside().amount.is_zero();
        let has_left = is_empty && is_queue_empty && self.backlog.unread().is_zero();
        if phase != Phase::Open && (self.is_over(now) || has_left || self.is_kept()) {
            return Turn::End;
        }
        if self.delivery.submitted() > 0 || self.share == Share::Spent {
            return Turn::Again;
        }

        let due = [
            self.delivery.due_in(now),
            self.batcher.due_in(now.at),
            self.backlog.sync_in(now),
            self.remake_form.at.map(|at| at.saturating_duration_since(now.at)),
            self.ends_at.map(|end| end.saturating_duration_since(now.at)),
        ];
        let rest = due.into_iter().flatten().fold(IDLE, Duration::min);
        let room = if self.has_room() { Room::Yes } else { Room::No };
        match self.backlog.ready(now, room) {
            _ if rest.is_zero() => Turn::Again,
            Ready::Now => Turn::Again,
            Ready::WhenQueued if !is_queue_empty => Turn::Again,
            Ready::WhenQueued => Turn::Rest(rest),
            Ready::In(time) => Turn::RestAlone(rest.min(time)),
        }
    }

    /// Whether everything inside is in the spool and the destination is failing: then it need not leave now.
    fn is_kept(&self) -> bool {
        let is_spooled =
            self.backlog.is_spooled() && self.batcher.is_spooled() && self.delivery.is_spooled();
        is_spooled
            && self.queue.inside().amount.is_zero()
            && self.delivery.is_circuit_open()
            && self.delivery.submitted() == 0
    }

    /// Ends the sink: closes the destination, and counts what is still inside. Returns that amount.
    pub(crate) fn end(mut self) -> Amount {
        let now = (self.clock)();
        let left_over =
            self.ends_at.map_or(Duration::ZERO, |end| end.saturating_duration_since(now.at));
        let mut done = Vec::new();
        let had_destination = self.destination.is_some();
        let closed = self.with_destination(|destination| destination.close(left_over, &mut done));
        self.take(&mut done, now);
        if closed.is_none() && had_destination {
            self.unmade(now, &panicked());
        }
        self.settle();

        // Rows lost now are counted under the reason that held them up, else as `shutdown`. Rows in the spool are not lost.
        self.end_batches(now, Batcher::end_all);
        while let Some(made) = self.batcher.out.made.pop_front() {
            self.delivery.add(made, now);
        }
        let attempted = self.delivery.attempted_and_spooled();
        let reason = self.failing_reason().unwrap_or(Reason::Shutdown);
        let held = self.backlog.take_held();
        self.accounts.settle(self.standing(), || self.accounts.counters.drop(reason, held));
        let lost = self.delivery.give_up_unspooled(reason, now);
        self.settle();
        self.backlog.sync_last(now);
        self.measure_end();
        let inside = self.batcher.inside() + self.delivery.inside() + self.backlog.unread();
        let kept = inside.saturating_sub(self.backlog.at_risk());
        let unsynced = inside.saturating_sub(kept);
        self.accounts.settle(self.standing(), || {
            self.accounts.counters.drop(Reason::SpoolUnsynced, unsynced);
            self.accounts.counters.keep(kept);
        });
        let trouble = self.backlog.trouble().cloned().filter(|_| !unsynced.is_zero());
        let closed = self.backlog.close(attempted);
        self.accounts.set_spool_trouble(trouble.or(closed.err()));
        lost + held + unsynced
    }

    /// Rows without a fate that are in the spool.
    #[cfg(test)]
    pub(crate) fn kept_rows(&self) -> u64 {
        self.standing().kept.count
    }

    /// Rows in the spool.
    #[cfg(test)]
    pub(crate) fn spooled_rows(&self) -> u64 {
        self.backlog.figures().map_or(0, |figures| figures.waiting.rows)
    }
}
