//! The repaired link to another Weir: a target that sends over it, and a listener that receives from it.
//!
//! The crate `hop` does the repair and has neither sockets nor clocks. This module supplies both.

mod inlet;
mod kept;
mod target;

pub(crate) use inlet::LinkInlet;
pub use kept::check_link_state;
pub(crate) use target::LinkTarget;

use std::path::PathBuf;
use std::time::Duration;

/// Options of a target that is another Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// The key shared with the other Weir.
    pub key: hop::Key,
    /// How this end introduces itself to the other.
    pub identity: hop::Identity,
    /// Limits on sending and resending.
    pub sender: hop::SenderOptions,
    /// How long after its arrival here a datagram is still worth sending.
    pub deadline: Duration,
    /// File with the state that, after a crash, accounts for what was in flight. `None` for no file.
    pub state: Option<PathBuf>,
}

/// Options of a listener that other Weirs send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkListenOptions {
    /// The senders whose packets are accepted.
    pub keys: hop::Keys,
    /// Limits on what is held for each sender.
    pub receiver: hop::ReceiverOptions,
    /// File that records what was accepted, so that a crash causes no duplicates. `None` for no file.
    pub state: Option<PathBuf>,
}

/// How long to wait for a state file that another listener or target holds, as during a reload.
const STATE_PATIENCE: Duration = Duration::from_secs(10);

/// Time between attempts to open it.
const STATE_PAUSE: Duration = Duration::from_millis(10);
