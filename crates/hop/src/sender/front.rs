//! The oldest datagrams: which are settled, and which are given up.

use super::item::{Item, State, lose};
use super::{GivenUp, Sender};

impl Sender {
    /// Acts on time alone: gives up expired datagrams, and declares packets lost that were unreported for too long.
    pub(super) fn look_at_the_clock(&mut self, now_ns: u64) {
        self.settle_front(now_ns);
        if self.timer_ns(now_ns).is_some_and(|due_ns| now_ns >= due_ns) {
            let patience_ns = self.patience_ns();
            self.silences += 1;
            self.sent.lose_until(now_ns.saturating_sub(patience_ns), &mut |sequence, packet| {
                lose(&mut self.items, &mut self.lost, self.base, sequence, packet);
            });
        }
    }

    /// Gives up expired datagrams at the front, and moves the floor past what is settled.
    pub(super) fn settle_front(&mut self, now_ns: u64) {
        while let Some(item) = self.items.get(self.settled) {
            if now_ns >= item.expires_ns {
                self.give_up_front(GivenUp::Expired);
            } else if !self.front_is_settled() {
                break;
            }
            self.settled += self.front_parts();
        }
        self.begun = self.begun.max(self.settled);
    }

    /// Gives up all datagrams numbered below `number`: their memory has been reused.
    pub fn give_up_below(&mut self, number: u64) {
        while self.items.get(self.settled).is_some_and(|item| item.number < number) {
            self.give_up_front(GivenUp::Lapped);
            self.settled += self.front_parts();
        }
        self.begun = self.begun.max(self.settled);
    }

    /// Gives up all datagrams that begin below this sequence number and are not settled: the receiver accepts them no more.
    pub(super) fn give_up_before(&mut self, floor: u64) {
        while self.floor() < floor && self.front_parts() > 0 {
            self.give_up_front(GivenUp::Expired);
            self.settled += self.front_parts();
        }
        self.begun = self.begun.max(self.settled);
    }

    /// Number of parts of the first unsettled datagram. The floor is never inside a datagram, because the receiver forgets
    /// everything below the floor.
    pub(super) fn front_parts(&self) -> usize {
        let mut parts = self.items.iter().skip(self.settled);
        parts.position(|item| item.part.ends()).map_or(0, |at| at + 1)
    }

    pub(super) fn front_is_settled(&self) -> bool {
        self.items.iter().skip(self.settled).take(self.front_parts()).all(Item::is_settled)
    }

    pub(super) fn give_up_front(&mut self, why: GivenUp) {
        let parts = self.front_parts();
        for item in self.items.iter_mut().skip(self.settled).take(parts) {
            if !item.is_settled() {
                let was_sent = item.state != State::Fresh;
                item.state = State::GivenUp { why, was_sent };
            }
        }
    }
}
