//! A store on the same machine: it has what was written at once, and on its disk after a sync.

use super::BASE;
use super::faults::Fault;
use super::world::{Answer, World, trouble};
use crate::batch::{BatchId, Failure, Fate, Sent};
use ledger::Reason;
use std::time::{Duration, Instant};

impl World {
    /// Writes a batch on this machine: its acknowledgment waits for a sync.
    pub(super) fn write(&mut self, id: BatchId, places: Vec<usize>) {
        let (fate, at_ns) = if self.chance(|mood| mood.fails) {
            self.fired.add(Fault::FailedUnsent);
            let reason = Some(Reason::WriteError);
            let failure = Failure { sent: Sent::No, reason, after: None, trouble: trouble() };
            (Fate::Failed(failure), Some(self.now_ns))
        } else {
            self.store(id, &places);
            let rows = places.iter().flat_map(|at| &self.seen[&id.0].rows[*at]);
            self.cached.extend(rows);
            (Fate::Acknowledged, None)
        };
        self.say(|| format!("{id:?} parts {places:?} are written: {fate:?}"));
        self.answers.push(Answer { id, places, at_ns, fate, is_late: false });
        if let Some(timer) = &mut self.local {
            timer.wrote();
        }
    }

    fn instant(&self) -> Instant {
        *BASE + Duration::from_nanos(self.now_ns)
    }

    /// Time until a sync is due.
    pub(super) fn sync_in(&self) -> Option<Duration> {
        self.local.as_ref()?.due_in(self.instant())
    }

    /// Syncs a store on this machine.
    pub(super) fn sync(&mut self) {
        let (now_ns, now) = (self.now_ns, self.instant());
        let Some(timer) = &mut self.local else { return };
        timer.synced(now);
        let has_failed = self.chance(|mood| mood.sync_fails);
        self.say(|| format!("it is synced, failed: {has_failed}"));

        let cached = std::mem::take(&mut self.cached);
        let mut fate = Fate::Acknowledged;
        if has_failed {
            self.fired.add(Fault::SyncFails);
            self.forget(cached);
            let (sent, reason) = (Sent::Maybe, Some(Reason::WriteError));
            fate = Fate::Failed(Failure { sent, reason, after: None, trouble: trouble() });
        }
        for answer in self.answers.iter_mut().filter(|answer| answer.at_ns.is_none()) {
            (answer.fate, answer.at_ns) = (fate.clone(), Some(now_ns));
        }
    }

    /// The machine stops: what a store on it has not synced may be gone.
    pub(super) fn cut_power(&mut self) {
        let cached = std::mem::take(&mut self.cached);
        if !cached.is_empty() {
            self.fired.add(Fault::PowerCut);
        }
        self.forget(cached);
    }

    /// Half of these rows never got to the disk.
    fn forget(&mut self, cached: Vec<usize>) {
        for row in cached {
            if self.random.below(2) == 0 {
                self.rows[row].stored -= 1;
            }
        }
    }
}
