use crate::events::Events;
use crate::udp::DatagramLimit;
use crate::{Framing, Payload};
use ledger::Reason;
use std::time::Duration;

/// Where a sink's payloads go. One file of this crate each; the sink's thread owns it and makes every call.
pub trait Destination: Send {
    /// Says before the first payload what stands around the records.
    fn begin(&mut self, _framing: Framing) {}

    /// Most bytes that a payload may have to get through unharmed, if it goes in datagrams of protobuf.
    fn datagram_limit(&self) -> Option<DatagramLimit> {
        None
    }

    /// Takes the oldest payloads that wait, at least one, and says what became of the first of them. The others, and
    /// all after `Delivery::Retry`, come again with the next call, in the same order.
    ///
    /// It should return within a second: a close waits for it no longer than its deadline.
    fn deliver(&mut self, payloads: &[Payload], events: &Events) -> Delivery;

    /// Looks after the destination. Called when nothing has come for a second.
    fn tick(&mut self, _events: &Events) {}

    /// Completes the destination after the last payload.
    fn finish(&mut self, _events: &Events) {}
}

/// What became of payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// The destination has the first so many, at least one.
    Delivered(usize),
    /// The first so many, at least one, do not get through and are not tried again.
    Dropped(usize, Reason),
    /// Nothing was taken: try again after so long. The reason is what payloads are counted under that have to go
    /// meanwhile; `None`: the destination is merely slow.
    Retry(Duration, Option<Reason>),
    /// The destination has gone for good: everything from here on is dropped for this reason.
    Gone(Reason),
}
