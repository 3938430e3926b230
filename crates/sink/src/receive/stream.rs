use super::window::{Seen, Window};
use record::DatagramView;
use std::net::SocketAddr;

/// What a receiver knows of one stream.
///
/// Each datagram says how many records and datagrams were sent before it, so that every figure is exact as of the latest
/// one that arrived: whatever was lost, the next datagram says so. Only what was sent behind the latest is not known; the
/// totals are the last datagram of a poll, so that after them nothing of that poll is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// Where its datagrams come from.
    pub source: SocketAddr,
    /// The sender's random number of the stream. A sender that starts again has another.
    pub stream_id: u64,
    /// Datagrams received, each counted once.
    pub datagrams_received: u64,
    /// Records received, each counted once. Totals are not counted as records.
    pub records_received: u64,
    /// Totals received.
    pub totals_received: u64,
    /// Datagrams that are known to have been sent.
    pub datagrams_sent: u64,
    /// Records that are known to have been sent.
    pub records_sent: u64,
    /// The part of the missing records that was sent before the first datagram that arrived: lost, or sent before anybody
    /// listened.
    pub records_before_first: u64,
    /// Records that the sender left out so far because each alone is larger than a datagram may be. They count neither
    /// as sent nor as missing.
    pub records_too_big: u64,
    /// Copies of datagrams that had arrived before. They were thrown away.
    pub duplicate_datagrams: u64,
    /// Datagrams that were overtaken by later ones.
    pub reordered_datagrams: u64,
    /// Datagrams that were overtaken by so many others that a copy could not be told from the first. They were thrown away and
    /// stay missing.
    pub late_datagrams: u64,
}

impl StreamReport {
    /// Records that were sent and have not arrived. A datagram that was overtaken is missing until it comes.
    pub fn records_missing(&self) -> u64 {
        self.records_sent.saturating_sub(self.records_received)
    }

    /// Datagrams that were sent and have not arrived.
    pub fn datagrams_missing(&self) -> u64 {
        self.datagrams_sent.saturating_sub(self.datagrams_received)
    }
}

/// A stream that is followed.
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

    /// The number that was given with the latest datagram.
    pub(super) fn heard_at(&self) -> u64 {
        self.heard_at
    }

    /// Counts a datagram, and says whether it is to be handed on.
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

        // Numbers that a forger may have written: they must not overflow.
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
