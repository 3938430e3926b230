//! BGP speakers, which announce routes.

mod exabgp;
#[cfg(feature = "gobgp")]
mod gobgp;

pub use exabgp::{ExaBgp, bridge};
#[cfg(feature = "gobgp")]
pub use gobgp::GoBgp;

use crate::{Actions, Nlri};
use std::time::Duration;

/// Timeout for one answer of a speaker.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether the speaker is still the process that we talked to before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    Same,
    /// A new connection: it may have forgotten everything it was told.
    Fresh,
}

/// Why a speaker did not do it.
#[derive(Debug, thiserror::Error)]
pub enum SpeakError {
    /// It refused; other routes may work.
    #[error("refused: {0}")]
    Refused(String),
    /// It is gone, or does not answer. Whether it has the route is unknown.
    #[error("{0}")]
    Lost(String),
}

/// A process that announces routes. Every call ends within a few seconds.
pub trait Speaker: Send {
    /// Its address, for messages.
    fn name(&self) -> String;

    /// Connects if there is no connection, and checks whether an existing one is still alive.
    ///
    /// # Errors
    /// It cannot be reached.
    fn session(&mut self) -> Result<Session, SpeakError>;

    /// Announces a route, or replaces the one with this NLRI.
    ///
    /// # Errors
    /// It refused, or cannot be reached.
    fn announce(&mut self, nlri: &Nlri, actions: &Actions) -> Result<(), SpeakError>;

    /// Withdraws a route.
    ///
    /// # Errors
    /// It refused, or cannot be reached.
    fn withdraw(&mut self, nlri: &Nlri) -> Result<(), SpeakError>;
}
