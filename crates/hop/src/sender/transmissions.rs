//! The packets sent, and what reports say about them.

use crate::packet::Report;
use std::collections::VecDeque;

/// What a packet carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// The datagram, or part of one, with this sequence number.
    Item(u64),
    /// Nothing that would be resent.
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    Arrived,
    /// A packet sent later has arrived.
    Overtaken,
    /// Unreported for too long.
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    what: What,
    sent_ns: u64,
    state: State,
}

/// What is new in a report.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct News {
    /// The report covers a packet that no earlier report covered.
    pub(super) any: bool,
    /// When the highest packet reported was sent, if this is the first report on it.
    pub(super) largest_sent_ns: Option<u64>,
    /// Packets that were declared lost but had arrived, so their content was resent for nothing.
    pub(super) spurious: u64,
}

/// Number of round trips that lost packets stay recorded, to learn from late arrivals.
const REMEMBERED_ROUND_TRIPS: u64 = 4;

/// Maximum number of packets recorded.
const RECORDS_MAX: usize = 1 << 20;

#[derive(Default, Debug)]
pub(super) struct Transmissions {
    /// Packet number of the first record.
    first: u64,
    records: VecDeque<Record>,
    /// Number of records at the front that are not open.
    closed: usize,
    data_packets: u64,
    /// When the newest packet that arrived was sent.
    newest_arrived_ns: u64,
    /// How much later a packet must be sent to prove, by arriving, that an earlier one is lost.
    reordering_ns: u64,
}

impl Transmissions {
    /// Number of the next packet.
    pub(super) fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    pub(super) fn data_packets(&self) -> u64 {
        self.data_packets
    }

    pub(super) fn add(&mut self, what: What, now_ns: u64) -> u64 {
        if self.records.len() == RECORDS_MAX {
            self.pop_front();
        }
        let number = self.next();
        self.data_packets += u64::from(matches!(what, What::Item(_)));
        self.records.push_back(Record { what, sent_ns: now_ns, state: State::Open });
        number
    }

    /// When the oldest unreported packet was sent.
    pub(super) fn oldest_open_ns(&self) -> Option<u64> {
        self.records.get(self.closed).map(|record| record.sent_ns)
    }

    fn pop_front(&mut self) {
        self.records.pop_front();
        self.first += 1;
        self.closed = self.closed.saturating_sub(1);
    }

    /// Call this after closing records.
    fn find_open(&mut self) {
        let is_closed = |record: &Record| record.state != State::Open;
        while self.records.get(self.closed).is_some_and(is_closed) {
            self.closed += 1;
        }
    }

    /// Declares lost every open packet sent at or before `until_ns`.
    pub(super) fn lose_until(&mut self, until_ns: u64, lost: &mut dyn FnMut(u64, u64)) {
        let first = self.first;
        for (at, record) in self.records.iter_mut().enumerate().skip(self.closed) {
            if record.sent_ns > until_ns {
                break;
            }
            if record.state == State::Open {
                record.state = State::Silent;
                if let What::Item(sequence) = record.what {
                    lost(sequence, first + at as u64);
                }
            }
        }
        self.find_open();
    }

    /// Applies a report. Calls `mark` with each sequence number, its packet, and whether that packet has arrived.
    pub(super) fn mark(
        &mut self,
        report: &Report<'_>,
        round_trip_ns: u64,
        mark: &mut dyn FnMut(u64, u64, bool),
    ) -> News {
        let (mut news, mut proofs) = (News::default(), 0);
        let Some(until) = (report.largest + 1).checked_sub(self.first) else { return news };
        let until = (until as usize).min(self.records.len());

        // The report does not cover earlier packets.
        let spoken = report.largest.saturating_sub(8 * report.bitmap.len() as u64);
        for at in spoken.saturating_sub(self.first) as usize..until {
            let number = self.first + at as u64;
            let record = &mut self.records[at];
            if record.state == State::Arrived || report.has(number) != Some(true) {
                continue;
            }
            news.spurious += u64::from(record.state != State::Open);
            proofs += u64::from(record.state == State::Overtaken);
            record.state = State::Arrived;
            news.any = true;
            self.newest_arrived_ns = self.newest_arrived_ns.max(record.sent_ns);
            if number == report.largest {
                news.largest_sent_ns = Some(record.sent_ns);
            }
            if let What::Item(sequence) = record.what {
                mark(sequence, number, true);
            }
        }

        self.note_reordering(proofs, round_trip_ns);
        self.lose_overtaken(until, mark);
        self.find_open();
        self.forget(round_trip_ns);
        news
    }

    /// Declares packets lost that were sent before one that has arrived, except for those that may only be late.
    fn lose_overtaken(&mut self, until: usize, mark: &mut dyn FnMut(u64, u64, bool)) {
        for at in self.closed..until {
            let number = self.first + at as u64;
            let record = &mut self.records[at];
            let is_overtaken = record.sent_ns + self.reordering_ns <= self.newest_arrived_ns;
            if record.state == State::Open && is_overtaken {
                record.state = State::Overtaken;
                if let What::Item(sequence) = record.what {
                    mark(sequence, number, false);
                }
            }
        }
    }

    /// Each proof of reordering lengthens the tolerance, and each report without one shortens it a little.
    fn note_reordering(&mut self, proofs: u64, round_trip_ns: u64) {
        if proofs > 0 {
            self.reordering_ns = (self.reordering_ns + round_trip_ns / 16).min(round_trip_ns / 2);
        } else {
            self.reordering_ns -= self.reordering_ns / 64;
        }
    }

    fn forget(&mut self, round_trip_ns: u64) {
        let until_ns =
            self.newest_arrived_ns.saturating_sub(REMEMBERED_ROUND_TRIPS * round_trip_ns);
        while let Some(record) = self.records.front() {
            let is_forgotten = match record.state {
                State::Open => false,
                State::Arrived => true,
                State::Overtaken | State::Silent => record.sent_ns < until_ns,
            };
            if !is_forgotten {
                break;
            }
            self.pop_front();
        }
    }
}
