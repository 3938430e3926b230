//! What became of the datagrams that a sender took.

use crate::Amount;

/// Why the sender gave up on a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// Its deadline has passed.
    Expired,
    /// Its memory was needed for newer datagrams.
    Lapped,
    /// The sender is shutting down.
    Ended,
}

/// What became of the datagrams taken. Those missing from the sum are in flight.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fates {
    pub taken: Amount,
    /// Accepted by the receiver.
    pub delivered: Amount,
    pub expired: Amount,
    pub lapped: Amount,
    pub ended: Amount,
    /// Sent, with an outcome that can never be known.
    pub uncertain: Amount,
    /// In flight when an earlier process of this end stopped, and not accepted since.
    pub lost_in_crash: Amount,
    /// Not part of the sum: datagrams resent to a receiver that may already have them.
    pub possible_duplicates: u64,
    /// Reports that cannot be true.
    pub contradictions: u64,
}

impl Fates {
    pub(super) fn of(&mut self, why: GivenUp) -> &mut Amount {
        match why {
            GivenUp::Expired => &mut self.expired,
            GivenUp::Lapped => &mut self.lapped,
            GivenUp::Ended => &mut self.ended,
        }
    }

    /// All datagrams whose outcome is known, or is known to stay unknown.
    pub fn settled(&self) -> Amount {
        let mut all = Amount::default();
        let Fates { delivered, expired, lapped, ended, uncertain, lost_in_crash, .. } = *self;
        for one in [delivered, expired, lapped, ended, uncertain, lost_in_crash] {
            all += one;
        }
        all
    }
}

impl std::ops::AddAssign for Fates {
    fn add_assign(&mut self, more: Fates) {
        self.taken += more.taken;
        self.delivered += more.delivered;
        self.expired += more.expired;
        self.lapped += more.lapped;
        self.ended += more.ended;
        self.uncertain += more.uncertain;
        self.lost_in_crash += more.lost_in_crash;
        self.possible_duplicates += more.possible_duplicates;
        self.contradictions += more.contradictions;
    }
}

pub(super) fn least(a: Amount, b: Amount) -> Amount {
    Amount { datagrams: a.datagrams.min(b.datagrams), bytes: a.bytes.min(b.bytes) }
}

pub(super) fn difference(a: Amount, b: Amount) -> Amount {
    Amount {
        datagrams: a.datagrams.saturating_sub(b.datagrams),
        bytes: a.bytes.saturating_sub(b.bytes),
    }
}
