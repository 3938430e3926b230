//! Where the collector's records go.

use record::{PollTotals, SocketRecord};
use std::fmt;

/// Takes what the collector makes, on the collector's thread: implementations must not wait.
pub trait Output: Send {
    /// One record of a socket, or of a connection that closed.
    fn record(&mut self, record: &SocketRecord<'_>);

    /// What the poll that just ended adds up to.
    fn end_of_poll(&mut self, totals: &PollTotals<'_>);

    /// Between two polls, a moment after the last record: what is gathered should be on its way.
    fn flush(&mut self) {}

    /// Something that does not work, reported once; how often it happened since is counted in the ledger.
    fn problem(&mut self, problem: &Problem);
}

/// Something that does not work, while the rest goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// One of a few words: the same problem has the same word.
    pub cause: &'static str,
    /// What failed, why, what is lost, and what helps.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
