//! Several agents that say the same address: told apart by where their datagrams come from, once it is certain.
//!
//! One agent may be heard from several addresses too, and through several relays, with the same datagrams. So two senders are two
//! agents only if they send different datagrams with the same number, or if each goes on with numbers far from the other's.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;
use std::net::IpAddr;

/// Datagrams that are remembered, by number.
const WINDOW: usize = 32;

/// Numbers that are further apart than this belong to two senders, or to one that has restarted.
const FAR: u32 = 128;

/// How often the numbers of two senders have to be apart, while both send.
const APART: u8 = 8;

/// A datagram: its number, what was in it, and whether another than the first sender sent it.
#[derive(Clone, Copy, Default, Debug)]
struct Trace {
    number: u32,
    hash: u32,
    is_other: bool,
    /// Whether there was one.
    is_known: bool,
}

/// What the senders of one agent's datagrams have sent lately.
#[derive(Clone, Debug)]
pub(crate) struct Twins {
    traces: [Trace; WINDOW],
    hasher: FixedState,
    /// The last number of the first sender, and whether it has sent since the last one that was far from it.
    last: Option<u32>,
    has_sent: bool,
    apart: u8,
}

impl Twins {
    pub(crate) fn new() -> Twins {
        let hasher = FixedState::default();
        Twins { traces: [Trace::default(); WINDOW], hasher, last: None, has_sent: false, apart: 0 }
    }

    /// Notes a datagram. Returns whether its sender is another agent than the first one.
    pub(crate) fn note(
        &mut self,
        first: IpAddr,
        sender: IpAddr,
        number: u32,
        bytes: &[u8],
    ) -> bool {
        let is_other = sender != first;
        if self.is_certain() {
            return is_other;
        }
        let hash = self.hasher.hash_one(bytes) as u32;
        let trace = Trace { number, hash, is_other, is_known: true };
        let before = std::mem::replace(&mut self.traces[number as usize % WINDOW], trace);
        if before.is_known
            && before.number == number
            && before.is_other != is_other
            && before.hash != trace.hash
        {
            self.apart = APART;
            return is_other;
        }
        if !is_other {
            (self.last, self.has_sent) = (Some(number), true);
        } else if let Some(last) = self.last
            && self.has_sent
        {
            let distance = number.wrapping_sub(last).min(last.wrapping_sub(number));
            self.has_sent = false;
            self.apart = if distance > FAR { self.apart + 1 } else { 0 };
        }
        is_other && self.is_certain()
    }

    fn is_certain(&self) -> bool {
        self.apart >= APART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDERS: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)),
    ];

    /// Whether the second sender is told apart after these datagrams: who sends it, its number, and what is in it.
    fn is_apart(datagrams: impl IntoIterator<Item = (usize, u32, u8)>) -> bool {
        let mut twins = Twins::new();
        let note = |(sender, number, content)| {
            twins.note(SENDERS[0], SENDERS[sender], number, &[content; 100])
        };
        datagrams.into_iter().map(note).last().unwrap_or(false)
    }

    #[test]
    fn the_same_numbers_with_other_content_are_two_agents() {
        assert!(is_apart([(0, 1, 1), (1, 1, 2)]));
        assert!(is_apart([(0, 7, 1), (0, 8, 1), (0, 9, 1), (1, 7, 2)]));
    }

    #[test]
    fn numbers_far_apart_while_both_send_are_two_agents() {
        assert!(is_apart((0..20).flat_map(|n| [(0, n, 1), (1, 5_000 + n, 2)])));
        // One that has moved, or restarted, and is heard from its new address alone.
        assert!(!is_apart((0..20).map(|n| (0, 900 + n, 1)).chain((1..200).map(|n| (1, n, 1)))));
    }

    #[test]
    fn the_same_datagrams_over_two_ways_are_one_agent() {
        assert!(!is_apart((0..1_000).flat_map(|n| [(0, n, 1), (1, n, 1)])));
        assert!(!is_apart((0..1_000).map(|n| (n as usize % 2, n, n as u8))));
    }
}
