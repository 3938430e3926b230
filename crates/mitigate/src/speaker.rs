//! BGP speakers, which have routes announced.

mod exabgp;
#[cfg(feature = "gobgp")]
mod gobgp;

pub use exabgp::{ExaBgp, bridge};
#[cfg(feature = "gobgp")]
pub use gobgp::GoBgp;

use crate::{Actions, Nlri};
use std::time::Duration;

/// Longest time for one answer of a speaker.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Whether it is the speaker's process that we talked to before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    Same,
    /// A new connection: it may have forgotten all that it was told.
    Fresh,
}

/// Why a speaker did not do it.
#[derive(Debug, thiserror::Error)]
pub enum SpeakError {
    /// It answered no; other routes may do.
    #[error("refused: {0}")]
    Refused(String),
    /// It is not there, or does not answer. Whether it has the route is not known.
    #[error("{0}")]
    Lost(String),
}

/// Something that has routes announced. Every call ends within a few seconds.
pub trait Speaker: Send {
    /// Its address, for people.
    fn name(&self) -> String;

    /// Connects if there is no connection, and finds out whether the one that is there still lives.
    ///
    /// # Errors
    /// It is not there.
    fn session(&mut self) -> Result<Session, SpeakError>;

    /// Announces a route, or replaces the one of this NLRI.
    ///
    /// # Errors
    /// It was refused, or the speaker is not there.
    fn announce(&mut self, nlri: &Nlri, actions: &Actions) -> Result<(), SpeakError>;

    /// Withdraws a route.
    ///
    /// # Errors
    /// It was refused, or the speaker is not there.
    fn withdraw(&mut self, nlri: &Nlri) -> Result<(), SpeakError>;
}
