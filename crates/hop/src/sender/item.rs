//! One sequence number on the sending end.

use super::GivenUp;
use crate::packet::Part;
use std::collections::VecDeque;

/// State of one sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Never sent.
    Fresh,
    /// Sent in packet `packet`, and possibly in earlier ones.
    Sent {
        packet: u64,
    },
    /// Waiting to be resent.
    Lost,
    /// Arrived, according to a report.
    Arrived,
    GivenUp {
        why: GivenUp,
        was_sent: bool,
    },
    /// Already counted in an earlier life of the receiver.
    Counted,
}

/// One sequence number: a datagram, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) number: u64,
    pub(super) expires_ns: u64,
    /// Length of the whole datagram.
    pub(super) bytes: u16,
    pub(super) offset: u16,
    pub(super) part: Part,
    pub(super) state: State,
    pub(super) may_be_second: bool,
}

impl Item {
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.state, State::Arrived | State::GivenUp { .. } | State::Counted)
    }
}

/// Marks a sequence number as arrived.
pub(super) fn arrive(items: &mut VecDeque<Item>, base: u64, sequence: u64) {
    let at = sequence.checked_sub(base).map(|at| at as usize);
    if let Some(item) = at.and_then(|at| items.get_mut(at))
        && matches!(item.state, State::Sent { .. } | State::Lost)
    {
        item.state = State::Arrived;
    }
}

/// Marks a sequence number as lost with packet `packet`, unless it was sent in another packet since.
pub(super) fn lose(
    items: &mut VecDeque<Item>,
    lost: &mut VecDeque<u64>,
    base: u64,
    sequence: u64,
    packet: u64,
) {
    let at = sequence.checked_sub(base).map(|at| at as usize);
    if let Some(item) = at.and_then(|at| items.get_mut(at))
        && item.state == (State::Sent { packet })
    {
        item.state = State::Lost;
        lost.push_back(sequence);
    }
}
