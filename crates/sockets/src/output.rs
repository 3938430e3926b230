//! Where the collector's records go.

use record::{PollTotals, SocketRecord};
use std::fmt;

/// Receives what the collector makes. Called on the collector's thread, so implementations must not block.
pub trait Output: Send {
    /// One record of a socket, or of a connection that closed.
    fn record(&mut self, record: &SocketRecord<'_>);

    /// The totals of the poll that has just ended.
    fn end_of_poll(&mut self, totals: &PollTotals<'_>);

    /// Called between two polls, a moment after the last record: send what has been gathered.
    fn flush(&mut self) {}

    /// Something that does not work. Reported once; the ledger counts how often it happened since.
    fn problem(&mut self, problem: &Problem);
}

/// Something that does not work, while everything else continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// One of a few words: the same problem always has the same word.
    pub cause: &'static str,
    /// What failed, why, what is lost, and what would help.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
