//! Where records go, and what they have in common.

use crate::identity::Identity;
use crate::output::{Output, Problem};
use record::SocketRecord;
use std::time::Instant;

/// The output end of the collector's thread.
pub(crate) struct Emission<'h> {
    pub(crate) identity: Identity<'h>,
    pub(crate) output: Box<dyn Output>,
    /// Number of the next record.
    pub(crate) sequence: u64,
    /// Its value when the last totals were made.
    pub(crate) told_sequence: u64,
    /// Since when records wait for the output's next flush.
    pub(crate) unflushed_since: Option<Instant>,
    /// Causes of problems already reported.
    reported: Vec<&'static str>,
}

impl<'h> Emission<'h> {
    pub(crate) fn new(identity: Identity<'h>, output: Box<dyn Output>) -> Emission<'h> {
        Emission {
            identity,
            output,
            sequence: 0,
            told_sequence: 0,
            unflushed_since: None,
            reported: Vec::new(),
        }
    }

    /// Passes a record of this poll to the output, with the next number.
    pub(crate) fn emit(&mut self, record: &mut SocketRecord<'_>, poll: u32, at: Instant) {
        record.poll = Some(u64::from(poll));
        record.sequence = Some(self.sequence);
        self.sequence += 1;
        self.unflushed_since.get_or_insert(at);
        self.output.record(record);
    }

    /// Reports something that does not work, once per cause.
    pub(crate) fn problem(&mut self, cause: &'static str, text: impl FnOnce() -> String) {
        if !self.reported.contains(&cause) {
            self.reported.push(cause);
            self.output.problem(&Problem { cause, text: text() });
        }
    }
}
