//! Sums of records.

use crate::sketch::{Sketch, Tally};
use record::{CloseReason, RecordKind, SocketRecord, SocketState};

/// Number of summed columns.
pub(super) const NUMBERS: usize = 12;

#[derive(Default)]
pub(super) struct Sums {
    /// In the order of the table.
    pub(super) numbers: [u64; NUMBERS],
    pub(super) rtt: Sketch,
    pub(super) rttvar: Sketch,
}

impl Sums {
    /// The number of records.
    pub(super) fn records(&self) -> u64 {
        self.numbers[0]
    }

    pub(super) fn add(&mut self, record: &SocketRecord<'_>) {
        let is_close = record.record_kind == Some(RecordKind::CLOSE);
        let is_abort = is_close
            && !matches!(
                record.close_reason,
                None | Some(CloseReason::OUR_CLOSE | CloseReason::PEER_CLOSE)
            );
        let has_no_window =
            record.state == Some(SocketState::ESTABLISHED) && record.snd_wnd_bytes == Some(0);
        let added = [
            1,
            record.bytes_sent_delta.unwrap_or_default(),
            record.bytes_received_delta.unwrap_or_default(),
            record.bytes_retrans_delta.unwrap_or_default(),
            record.segs_out_delta.unwrap_or_default().into(),
            record.total_retrans_segments_delta.unwrap_or_default().into(),
            record.busy_time_us_delta.unwrap_or_default(),
            record.rwnd_limited_us_delta.unwrap_or_default(),
            record.sndbuf_limited_us_delta.unwrap_or_default(),
            has_no_window.into(),
            is_close.into(),
            is_abort.into(),
        ];
        add_numbers(&mut self.numbers, &added);

        // The value is 0 until the connection has a sample.
        if let Some(rtt_us) = record.rtt_us.filter(|rtt_us| *rtt_us > 0) {
            self.rtt.add(rtt_us.into());
            self.rttvar.add(record.rttvar_us.unwrap_or_default().into());
        }
    }
}

/// Sums to which many others are added.
#[derive(Default)]
pub(super) struct Total {
    numbers: [u64; NUMBERS],
    rtt: Tally,
    rttvar: Tally,
}

impl Total {
    pub(super) fn merge(&mut self, other: &Sums) {
        add_numbers(&mut self.numbers, &other.numbers);
        self.rtt.merge(&other.rtt);
        self.rttvar.merge(&other.rttvar);
    }

    pub(super) fn into_sums(self) -> Sums {
        let Total { numbers, rtt, rttvar } = self;
        Sums { numbers, rtt: rtt.into_sketch(), rttvar: rttvar.into_sketch() }
    }
}

fn add_numbers(sums: &mut [u64; NUMBERS], added: &[u64; NUMBERS]) {
    sums.iter_mut().zip(added).for_each(|(sum, one)| *sum = sum.saturating_add(*one));
}
