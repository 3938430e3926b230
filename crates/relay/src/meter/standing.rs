//! Whether a target accepts what it is sent: the gauge `up`.

use ledger::EventCounter;
use std::sync::{Mutex, PoisonError};

/// How long a target counts as down after its last refusal, in nanoseconds. Hosts limit how many refusals they report.
const REFUSED_NS: u64 = 5_000_000_000;

/// How long a target may hold datagrams without letting any go before it counts as stuck, in nanoseconds.
const STUCK_NS: u64 = 1_000_000_000;

/// What had become of a target's datagrams at some moment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Fate {
    /// Handed over.
    pub(super) sent: u64,
    /// Handed over and returned.
    pub(super) returned: u64,
    /// Failed calls, and datagrams dropped because of them.
    pub(super) failed: u64,
    /// Refused, before or after being handed over.
    pub(super) refused: u64,
}

/// Whether the target is up. Written by the thread that owns the target; `last` is written by readers of the ledger.
#[derive(Default)]
pub(super) struct Standing {
    is_down: EventCounter,
    is_unanswered: EventCounter,
    down_until_ns: EventCounter,
    noted: [EventCounter; 4],
    last: Mutex<Option<Progress>>,
}

/// How much had left, and since when nothing more did.
struct Progress {
    left: u64,
    since_ns: u64,
}

impl Standing {
    /// Decides from what became of the datagrams since the last call. Without any, the state is unchanged.
    pub(super) fn note(&self, now: Fate, now_ns: u64) {
        let now = [now.sent, now.returned, now.failed, now.refused];
        let [sent, returned, failed, refused] =
            [0, 1, 2, 3].map(|index: usize| now[index].saturating_sub(self.noted[index].load()));

        if refused > 0 {
            self.down_until_ns.set(now_ns + REFUSED_NS);
        }

        if sent + returned + failed > 0 {
            let is_up = sent > returned && now_ns >= self.down_until_ns.load();
            self.is_down.set(u64::from(!is_up));
        }

        if self.is_unanswered.load() > 0 {
            self.is_unanswered.set(0);
        }

        for (noted, now) in self.noted.iter().zip(now) {
            noted.set(now);
        }
    }

    /// Records that the next hop does not answer.
    pub(super) fn note_unanswered(&self) {
        self.is_unanswered.set(1);
    }

    /// The gauge, from how much has `left` the target and how much is `inside`. Called by readers of the ledger, because the
    /// target's own thread may be stuck.
    pub(super) fn up(&self, left: u64, inside: u64, now_ns: u64) -> u64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let since_ns = match &*last {
            Some(last) if last.left == left && inside > 0 => last.since_ns,
            _ => now_ns,
        };
        *last = Some(Progress { left, since_ns });
        let is_stuck = now_ns.saturating_sub(since_ns) > STUCK_NS;
        let is_down = self.is_down.load() > 0 || self.is_unanswered.load() > 0 || is_stuck;
        u64::from(!is_down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn fate(sent: u64, returned: u64, failed: u64, refused: u64) -> Fate {
        Fate { sent, returned, failed, refused }
    }

    #[test]
    fn a_target_that_refused_is_down_until_it_took_something_seconds_later() {
        let standing = Standing::default();
        assert_eq!(standing.up(0, 0, 0), 1);
        standing.note(fate(100, 1, 0, 1), S);
        assert_eq!(standing.up(100, 0, S), 0);
        standing.note(fate(200, 1, 0, 1), 5 * S);
        assert_eq!(standing.up(200, 0, 5 * S), 0);
        standing.note(fate(200, 1, 0, 1), 7 * S);
        assert_eq!(standing.up(200, 0, 7 * S), 0, "nothing was sent");
        standing.note(fate(201, 1, 0, 1), 8 * S);
        assert_eq!(standing.up(201, 0, 8 * S), 1);
    }

    #[test]
    fn a_target_to_which_every_call_fails_is_down() {
        let standing = Standing::default();
        standing.note(fate(0, 0, 1, 0), S);
        assert_eq!(standing.up(1, 0, S), 0);
        standing.note(fate(1, 0, 1, 0), S);
        assert_eq!(standing.up(2, 0, S), 1);
    }

    #[test]
    fn a_target_that_keeps_what_it_has_is_stuck() {
        let standing = Standing::default();
        assert_eq!(standing.up(5, 3, 0), 1);
        assert_eq!(standing.up(5, 9, 2 * S), 0);
        assert_eq!(standing.up(6, 8, 3 * S), 1);
        assert_eq!(standing.up(6, 0, 9 * S), 1, "nothing waits");
    }

    #[test]
    fn a_next_hop_that_answers_again_is_enough() {
        let standing = Standing::default();
        standing.note_unanswered();
        assert_eq!(standing.up(0, 0, 0), 0);
        standing.note(Fate::default(), 0);
        assert_eq!(standing.up(0, 0, 0), 1);
    }
}
