//! The repaired link to another Weir: a target that sends into it, and what a listener hears of it.
//!
//! What repairs is the crate `hop`, which has neither sockets nor clocks; here it gets both.

mod inlet;
mod target;

pub(crate) use inlet::LinkInlet;
pub(crate) use target::LinkTarget;

use std::time::Duration;

/// A target that is another Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// The key that the other Weir has, too.
    pub key: hop::Key,
    /// Who sends, as the other one gets to know it.
    pub identity: hop::Identity,
    /// How much may be sent, and sent again.
    pub sender: hop::SenderOptions,
    /// How long after it was received here a datagram is worth sending.
    pub deadline: Duration,
}

/// A listener that other Weirs send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkListenOptions {
    /// Whose packets are taken.
    pub keys: hop::Keys,
    /// What is kept of what they sent.
    pub receiver: hop::ReceiverOptions,
}
