//! The figures that a sink's thread reports, and its check of the law.

use super::{REJECTION_TIME, Shown, Worker, panicked};
use crate::batch::{Fate, Outcome};
use crate::delivery::Now;
use crate::spool::Disk;
use ledger::Trouble;
use std::time::Duration;

/// How often to compare what is inside with what was received and what left.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl<C: Fn() -> Now, D: Disk> Worker<C, D> {
    /// Compares what is inside with what was received and what left, and updates the figures.
    pub(super) fn measure(&mut self) {
        let now = (self.clock)();
        if now.at.duration_since(self.checked_at) < CHECK_INTERVAL {
            return;
        }
        self.checked_at = now.at;

        let queued = self.queue.inside();
        let batches = self.batcher.inside() + self.delivery.inside();
        let inside = queued.amount + self.backlog.unread() + batches;
        self.accounts.compare(queued.received, queued.left, inside);

        let figures = &self.accounts.figures;
        if let Some(spool) = self.backlog.figures() {
            figures.spool_rows.set(spool.waiting.rows);
            figures.spool_bytes.set(spool.bytes);
        }
        let trouble = self.backlog.trouble();
        if trouble.is_some() || self.shows_spool == Shown::Yes {
            self.accounts.set_trouble(trouble.cloned());
        }
        self.shows_spool = if trouble.is_some() { Shown::Yes } else { Shown::No };
        figures.queue_rows.set(queued.amount.count);
        figures.queue_bytes.set(queued.memory_bytes as u64);
        figures.encoder_bytes.set(batches.bytes);
        figures.batches_in_flight.set(self.delivery.submitted() as u64);
        figures.is_failing.set(u64::from(self.delivery.is_failing()));

        let is_open = u64::from(self.delivery.is_circuit_open());
        if is_open > figures.circuit_open.load() {
            figures.circuit_openings.add(1);
        }
        figures.circuit_open.set(is_open);

        let times =
            [self.delivery.oldest_unix_ns(), self.batcher.oldest_unix_ns(), queued.oldest_unix_ns];
        let oldest = times.into_iter().filter(|time| *time > 0).min();
        let age = oldest.map_or(Duration::ZERO, |oldest| self.delivery.age(oldest, now));
        figures.oldest_age_ms.set(age.as_millis() as u64);
        let had_destination = self.destination.is_some();
        match self.with_destination(|destination| destination.figures()) {
            Some(own) => {
                if let Some(trouble) = &own.trouble {
                    self.accounts.set_trouble(Some(trouble.clone()));
                }
                self.accounts.set_own_figures(own);
            }
            None if had_destination => self.unmade(now, &panicked()),
            None => {}
        }
    }

    pub(super) fn measure_end(&mut self) {
        self.checked_at -= CHECK_INTERVAL;
        self.measure();
    }

    /// Keeps the message of an outcome, and counts failed attempts.
    pub(super) fn note(&mut self, outcome: &Outcome, now: Now) {
        let figures = &self.accounts.figures;
        match &outcome.fate {
            Fate::Acknowledged => {
                if self.rejection_until.is_none_or(|until| now.at >= until) {
                    self.accounts.set_trouble(None);
                }
                figures.last_acknowledged_unix_ms.set(now.unix_ns / 1_000_000);
            }
            Fate::Rejected { class, says } => {
                self.rejection_until = Some(now.at + REJECTION_TIME);
                figures.errors.add(1);
                let fix = class.advice().to_owned();
                self.accounts.set_trouble(Some(Trouble { what: says.clone(), fix }));
            }
            Fate::Dropped(_) | Fate::Uncertain => figures.errors.add(1),
            Fate::Failed(failure) => {
                figures.retries.add(1);
                if failure.reason.is_some() {
                    figures.errors.add(1);
                    self.accounts.set_trouble(Some(failure.trouble.clone()));
                }
            }
        }
    }
}
