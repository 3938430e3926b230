use super::window::{Seen, Window};
use record::DatagramView;
use std::net::SocketAddr;

/// What a receiver knows about one stream.
///
/// Each datagram says how many records and datagrams were sent before it, so every figure is exact as of the latest datagram
/// that arrived: the next datagram reveals any loss. Only what was sent after the latest is unknown. Totals are in the last
/// datagram of a poll, so once they arrive the figures cover that poll completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// Source address of its datagrams.
    pub source: SocketAddr,
    /// The sender's random id of the stream. A restarted sender has another.
    pub stream_id: u64,
    /// Datagrams received, each counted once.
    pub datagrams_received: u64,
    /// Records received, each counted once. Totals are not counted as records.
    pub records_received: u64,
    /// Totals received.
    pub totals_received: u64,
    /// Datagrams known to have been sent.
    pub datagrams_sent: u64,
    /// Records known to have been sent.
    pub records_sent: u64,
    /// The part of the missing records that was sent before the first datagram arrived: lost, or sent before this receiver
    /// listened.
    pub records_before_first: u64,
    /// Records that the sender has omitted so far because each alone exceeds the maximum datagram size. They count neither as
    /// sent nor as missing.
    pub records_too_big: u64,
    /// Copies of datagrams that had already arrived. They were discarded.
    pub duplicate_datagrams: u64,
    /// Datagrams that were overtaken by later ones.
    pub reordered_datagrams: u64,
    /// Datagrams overtaken by so many others that a copy could not be distinguished from the first. They were discarded and
    /// remain missing.
    pub late_datagrams: u64,
}

impl StreamReport {
    /// Records that were sent and have not arrived. A reordered datagram is missing until it arrives.
    pub fn records_missing(&self) -> u64 {
        self.records_sent.saturating_sub(self.records_received)
    }

    /// Datagrams that were sent and have not arrived.
    pub fn datagrams_missing(&self) -> u64 {
        self.datagrams_sent.saturating_sub(self.datagrams_received)
    }
}

/// A tracked stream.
pub(super) struct Stream {
    report: StreamReport,
    window: Window,
    heard_at: u64,
}

impl Stream {
    pub(super) fn new(source: SocketAddr, stream_id: u64) -> Stream {
        let report = StreamReport {
            source,
            stream_id,
            datagrams_received: 0,
            records_received: 0,
            totals_received: 0,
            datagrams_sent: 0,
            records_sent: 0,
            records_before_first: u64::MAX,
            records_too_big: 0,
            duplicate_datagrams: 0,
            reordered_datagrams: 0,
            late_datagrams: 0,
        };
        Stream { report, window: Window::new(), heard_at: 0 }
    }

    pub(super) fn report(&self) -> StreamReport {
        self.report
    }

    /// The time value of the latest datagram.
    pub(super) fn heard_at(&self) -> u64 {
        self.heard_at
    }

    /// Counts a datagram, and returns whether to pass it on.
    pub(super) fn note(&mut self, view: &DatagramView<'_>, now: u64) -> bool {
        self.heard_at = now;
        let report = &mut self.report;

        match self.window.note(view.sequence) {
            Seen::Next => {}
            Seen::Reordered => report.reordered_datagrams += 1,
            Seen::Duplicate => {
                report.duplicate_datagrams += 1;
                return false;
            }
            Seen::TooOld => {
                report.late_datagrams += 1;
                return false;
            }
        }

        report.datagrams_received += 1;
        report.records_received += view.record_count;
        report.records_before_first = report.records_before_first.min(view.first_record);

        // A forger may have chosen these numbers: they must not overflow.
        let records_sent = view.first_record.saturating_add(view.record_count);
        report.records_sent = report.records_sent.max(records_sent);
        report.datagrams_sent = report.datagrams_sent.max(view.sequence.saturating_add(1));

        if let Some(totals) = &view.totals {
            report.totals_received += 1;
            report.records_too_big =
                report.records_too_big.max(totals.records_too_big.unwrap_or(0));
        }
        true
    }
}
