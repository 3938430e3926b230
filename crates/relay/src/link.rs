//! The repaired link to another Weir: a target that sends into it, and what a listener hears of it.
//!
//! What repairs is the crate `hop`, which has neither sockets nor clocks; here it gets both.

mod inlet;
mod kept;
mod target;

pub(crate) use inlet::LinkInlet;
pub use kept::check_link_state;
pub(crate) use target::LinkTarget;

use std::path::PathBuf;
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
    /// Where is kept what names after a crash what was on its way; `None`: nowhere.
    pub state: Option<PathBuf>,
}

/// A listener that other Weirs send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkListenOptions {
    /// Whose packets are taken.
    pub keys: hop::Keys,
    /// What is kept of what they sent.
    pub receiver: hop::ReceiverOptions,
    /// Where is kept what was accepted, so that nothing comes twice after a crash; `None`: nowhere.
    pub state: Option<PathBuf>,
}

/// How long a state that another one has is waited for: who goes leaves it to who comes, as with a reload.
const STATE_PATIENCE: Duration = Duration::from_secs(10);

/// How often it is tried.
const STATE_PAUSE: Duration = Duration::from_millis(10);
