//! Connects the collector to its sinks.

use config::COLLECTOR_NAME;
use record::{PollTotals, SocketRecord};
use sink::ChunkWriter;
use sockets::{Output, Problem};

/// Takes the collector's output, on the collector's thread.
pub(super) struct Outlet(pub(super) ChunkWriter);

impl Output for Outlet {
    fn record(&mut self, record: &SocketRecord<'_>) {
        self.0.record(record);
    }

    fn end_of_poll(&mut self, totals: &PollTotals<'_>) {
        self.0.end_of_poll(totals);
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn problem(&mut self, problem: &Problem) {
        tracing::warn!("{COLLECTOR_NAME}: {problem}");
    }
}
