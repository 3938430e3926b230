//! What both ends agree on: counting it, and continuing after a session or a process has ended.

use super::fates::{difference, least};
use super::item::State;
use super::{GivenUp, Loss, Sender, Transmissions};
use crate::{Amount, Totals};

/// Row after the [`GivenUp`] reasons: datagrams that were given up but may have been accepted before.
const UNCERTAIN: usize = 3;

impl Sender {
    /// Counts the datagrams that both ends now agree on.
    pub(super) fn confirm(&mut self, totals: Totals) {
        if totals.floor <= self.base {
            return;
        }

        let mut all = Amount::default();
        let mut given_up = [Amount::default(); 4];
        for _ in self.base..totals.floor {
            let Some(item) = self.items.pop_front() else { break };
            if item.part.begins() {
                self.front_given_up = None;
            }
            if let State::GivenUp { why, .. } = item.state {
                self.front_given_up = Some(why);
            }
            if item.part.ends() && item.state != State::Counted {
                let amount = Amount::one(item.bytes.into());
                all += amount;
                if let Some(why) = self.front_given_up {
                    // An earlier life of the receiver may have accepted it.
                    let row = if item.may_be_second { UNCERTAIN } else { why as usize };
                    given_up[row] += amount;
                }
            }
        }
        let settled = (totals.floor - self.base) as usize;
        self.base = totals.floor;
        self.settled = self.settled.saturating_sub(settled);
        self.begun = self.begun.saturating_sub(settled);

        let accepted = difference(totals.accepted, self.accepted);
        self.accepted = totals.accepted;
        self.count(all, accepted, given_up);
    }

    /// Counts `all` datagrams, `accepted` of which were accepted. Those given up may be among them, and nobody knows which, so
    /// the rest is attributed to the reasons in order, the most common first.
    pub(super) fn count(&mut self, all: Amount, accepted: Amount, given_up: [Amount; 4]) {
        let delivered = Amount {
            datagrams: accepted.datagrams.min(all.datagrams),
            bytes: accepted.bytes.min(all.bytes),
        };
        self.fates.delivered += delivered;
        if delivered != accepted {
            self.fates.contradictions += 1;
        }

        let mut missing = difference(all, delivered);
        let [expired, lapped, ended, uncertain] = given_up;
        let rows = [
            (&mut self.fates.lapped, lapped),
            (&mut self.fates.ended, ended),
            (&mut self.fates.expired, expired),
            (&mut self.fates.uncertain, uncertain),
        ];
        for (row, most) in rows {
            let is_all = most.datagrams >= missing.datagrams;
            let part = match is_all && most.datagrams > 0 {
                true => missing,
                // Which datagrams the missing bytes belong to is not known.
                false => Amount { bytes: most.bytes.min(missing.bytes), ..most },
            };
            *row += part;
            missing = difference(missing, part);
        }
        if missing.datagrams > 0 {
            // Reported as arrived but not accepted: the receiver contradicts itself.
            self.fates.uncertain += missing;
            self.fates.contradictions += 1;
        }
    }

    /// Continues in a new session. `known` is what the receiver remembers of this run; `None` means that it has lost its memory,
    /// and that a new run begins at the sequence number returned.
    pub fn begin_session(&mut self, now_ns: u64, known: Option<Totals>) -> u64 {
        self.sent = Transmissions::default();
        self.loss = Loss::default();
        self.last_report_ns = now_ns;
        self.silences = 0;
        self.unanswered_since_ns = None;
        self.floor_said_ns = None;
        self.greets = true;
        self.peer_window = self.options.window;
        self.lost.clear();

        if std::mem::take(&mut self.asks_for_earlier) {
            self.settle_earlier(known);
        }
        match known {
            Some(totals) if totals.floor <= self.next_sequence() => {
                // A receiver that heard nothing for minutes settles what it had heard of.
                self.give_up_before(totals.floor);
                self.ask_for_parts_again();
                self.confirm(totals);
            }
            Some(_) => {
                self.fates.contradictions += 1;
                self.begin_run();
            }
            None => self.begin_run(),
        }

        // Resend everything sent and not reported, oldest first.
        for (at, item) in self.items.iter_mut().enumerate() {
            if matches!(item.state, State::Sent { .. } | State::Lost) {
                item.state = State::Lost;
                self.lost.push_back(self.base + at as u64);
            }
        }
        self.base
    }

    /// Settles what earlier processes left open: the receiver has settled everything that they sent.
    pub(super) fn settle_earlier(&mut self, known: Option<Totals>) {
        let open = difference(self.earlier.taken, self.earlier.settled());
        let Some(totals) = known.filter(|totals| totals.floor == self.base) else {
            self.earlier.uncertain += open;
            return;
        };
        let accepted = difference(totals.accepted, self.accepted);
        let delivered = least(accepted, open);
        self.earlier.delivered += delivered;
        self.earlier.lost_in_crash += difference(open, delivered);
        // An earlier process that ended without an answer counted some as uncertain; their outcome is known now.
        let known_now = least(difference(accepted, delivered), self.earlier.uncertain);
        self.earlier.delivered += known_now;
        self.earlier.uncertain = difference(self.earlier.uncertain, known_now);
        self.accepted = totals.accepted;
        self.accepted_earlier = totals.accepted;
    }

    /// Resends the parts of incomplete datagrams: a receiver that restarted from what it kept no longer has them.
    pub(super) fn ask_for_parts_again(&mut self) {
        let mut at = 0;
        while at < self.items.len() {
            let number = self.items[at].number;
            let parts = self.items.iter().skip(at).take_while(|item| item.number == number).count();
            let items = || self.items.iter().skip(at).take(parts);
            let has_missing = items()
                .any(|item| matches!(item.state, State::Sent { .. } | State::Lost | State::Fresh));
            for item in self.items.iter_mut().skip(at).take(parts) {
                if has_missing && item.state == State::Arrived {
                    item.state = State::Lost;
                }
            }
            at += parts;
        }
    }

    /// Starts over with a receiver that remembers nothing: what it reported was accepted, and this end decides about the rest.
    pub(super) fn begin_run(&mut self) {
        (self.accepted, self.accepted_earlier) = Default::default();
        let mut at = 0;
        while at < self.items.len() {
            let number = self.items[at].number;
            let parts = self.items.iter().skip(at).take_while(|item| item.number == number).count();
            self.settle_datagram(at, parts);
            at += parts;
        }

        // Sequence numbers continue. Datagrams already counted at the front need no further agreement.
        while self.items.front().is_some_and(|item| item.state == State::Counted) {
            self.items.pop_front();
            self.base += 1;
        }
        self.delivered_before = self.fates.delivered;
        self.settled = 0;
        self.begun = self.items.iter().take_while(|item| item.state != State::Fresh).count();
    }

    /// Decides about one datagram whose receiver has lost its memory.
    pub(super) fn settle_datagram(&mut self, at: usize, parts: usize) {
        let items = || self.items.iter().skip(at).take(parts);
        let amount = Amount::one(self.items[at].bytes.into());
        let is_fresh = items().all(|item| item.state == State::Fresh);
        let is_there = items().all(|item| item.state == State::Arrived);
        let given_up = items().find_map(|item| match item.state {
            State::GivenUp { why, .. } => Some(why),
            _ => None,
        });
        let was_sent = items().any(|item| {
            !matches!(item.state, State::Fresh | State::GivenUp { was_sent: false, .. })
        });
        if is_fresh || items().all(|item| item.state == State::Counted) {
            return;
        }

        let state = if is_there {
            self.fates.delivered += amount;
            State::Counted
        } else if let Some(why) = given_up.filter(|_| !was_sent) {
            *self.fates.of(why) += amount;
            State::Counted
        } else if given_up.is_some() || !self.options.redelivers {
            self.fates.uncertain += amount;
            State::Counted
        } else {
            self.fates.possible_duplicates += 1;
            State::Lost
        };
        for item in self.items.iter_mut().skip(at).take(parts) {
            item.state = state;
            item.may_be_second = true;
        }
    }

    /// Shuts down: reported datagrams count as delivered, unsent ones as ended, and the rest as uncertain.
    pub fn end(&mut self) {
        self.options.redelivers = false;
        for item in &mut self.items {
            if item.state == State::Fresh {
                item.state = State::GivenUp { why: GivenUp::Ended, was_sent: false };
            }
        }
        let (mut accepted, before) = (self.accepted, self.fates.delivered);
        self.begin_run();
        accepted += difference(self.fates.delivered, before);
        self.accepted = accepted;
    }
}
