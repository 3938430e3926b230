use super::stream::{Arrival, Stream};
use super::{Counts, Gap, Options, RunReport, SenderReport};
use crate::check::{self, Check, Kind, Reject};
use crate::latency::Latencies;
use std::collections::{BTreeMap, HashMap};

/// Most gaps to list for each run; the counts are exact whatever their number.
const GAPS_MAX: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct StreamKey {
    run: u64,
    sender: u16,
    flow: u16,
}

/// Everything that one listener has received.
pub(super) struct Tracker {
    streams: Vec<(StreamKey, Stream)>,
    idx_by_key: HashMap<StreamKey, usize>,
    /// The stream of the last datagram: the next one usually belongs to the same.
    last: Option<(StreamKey, usize)>,
    runs: BTreeMap<u64, Run>,
    streams_max: usize,
    window: usize,
    late_after_ns: u64,
    pub(super) counts: Counts,
    pub(super) latencies: Latencies,
}

/// How many datagrams a stream had when it ended.
#[derive(Clone, Copy)]
pub(super) struct Total {
    key: StreamKey,
    datagrams: u64,
    heartbeats: u64,
}

#[derive(Default)]
struct Run {
    /// Streams to this target, according to the run's heartbeats.
    streams: u16,
    ended: usize,
}

impl Tracker {
    pub(super) fn new(options: &Options) -> Tracker {
        Tracker {
            streams: Vec::new(),
            idx_by_key: HashMap::new(),
            last: None,
            runs: BTreeMap::new(),
            streams_max: options.streams_max,
            window: options.window,
            late_after_ns: options.late_after.as_nanos() as u64,
            counts: Counts::default(),
            latencies: Latencies::new(),
        }
    }

    /// Counts a datagram for which the socket's buffer was too small.
    pub(super) fn observe_truncated(&mut self, bytes: &[u8]) {
        self.counts.truncated += 1;
        self.counts.all_bytes += bytes.len() as u64;
    }

    /// Counts a complete datagram, read at `now_ns` of the real-time clock.
    pub(super) fn observe(&mut self, bytes: &[u8], now_ns: u64) {
        self.counts.all_bytes += bytes.len() as u64;

        let check = match check::decode(bytes) {
            // A stream of 2^63 datagrams would take centuries: such a number is bogus.
            Ok(datagram) if datagram.check.sequence <= i64::MAX as u64 => datagram.check,
            Ok(_) | Err(Reject::Corrupt) => {
                self.counts.corrupt += 1;
                return;
            }
            Err(Reject::Truncated) => {
                self.counts.truncated += 1;
                return;
            }
            Err(Reject::Foreign) => {
                self.counts.foreign += 1;
                return;
            }
        };

        if check.kind != Kind::Data {
            self.counts.heartbeats += 1;
            self.counts.heartbeat_bytes += bytes.len() as u64;
        }

        let Some(idx) = self.stream_of(&check) else {
            self.counts.untracked += u64::from(check.kind == Kind::Data);
            return;
        };

        let stream = &mut self.streams[idx].1;
        let further = u64::from(check.heartbeats).saturating_sub(stream.heartbeats_expected);
        stream.heartbeats_expected += further;
        self.counts.heartbeats_expected += further;

        if check.kind == Kind::Data {
            self.observe_data(idx, &check, bytes.len(), now_ns);
        } else {
            self.observe_heartbeat(idx, &check);
        }
    }

    fn observe_data(&mut self, idx: usize, check: &Check, len: usize, now_ns: u64) {
        let stream = &mut self.streams[idx].1;
        let expected_before = stream.expected();
        let arrival = stream.arrive(check.sequence);
        let counts = &mut self.counts;
        counts.expected = counts.expected.saturating_add(stream.expected() - expected_before);

        match arrival {
            Arrival::Duplicate => {
                counts.duplicate += 1;
                return;
            }
            Arrival::BeyondWindow => {
                counts.beyond_window += 1;
                return;
            }
            Arrival::InOrder => {}
            Arrival::Reordered { extent } => {
                counts.reordered += 1;
                counts.reorder_extent_max = counts.reorder_extent_max.max(extent);
            }
        }

        counts.received += 1;
        counts.bytes += len as u64;

        match now_ns.checked_sub(check.stamp_ns) {
            Some(age_ns) => {
                self.latencies.record(age_ns);
                self.counts.late += u64::from(age_ns > self.late_after_ns);
            }
            None => self.counts.from_future += 1,
        }
    }

    fn observe_heartbeat(&mut self, idx: usize, check: &Check) {
        let stream = &mut self.streams[idx].1;
        let expected_before = stream.expected();
        stream.announce(check.sequence);
        let added = stream.expected() - expected_before;
        self.counts.expected = self.counts.expected.saturating_add(added);
        let run = self.runs.entry(check.run).or_default();
        run.streams = run.streams.max(check.streams);
        if check.kind == Kind::End && !stream.has_ended {
            stream.has_ended = true;
            run.ended += 1;
        }
    }

    fn stream_of(&mut self, check: &Check) -> Option<usize> {
        let key = StreamKey { run: check.run, sender: check.sender, flow: check.flow };
        if let Some((last, idx)) = self.last
            && last == key
        {
            return Some(idx);
        }

        let idx = match self.idx_by_key.get(&key) {
            Some(idx) => *idx,
            None if self.streams.len() >= self.streams_max => return None,
            None => {
                let idx = self.streams.len();
                self.streams.push((key, Stream::new(self.window)));
                self.idx_by_key.insert(key, idx);
                self.runs.entry(key.run).or_default();
                idx
            }
        };

        self.last = Some((key, idx));
        Some(idx)
    }

    /// The totals of the streams that have ended.
    pub(super) fn totals(&self) -> impl Iterator<Item = Total> {
        self.streams.iter().filter(|(_, stream)| stream.has_ended).map(|(key, stream)| Total {
            key: *key,
            datagrams: stream.expected(),
            heartbeats: stream.heartbeats_expected,
        })
    }

    /// Applies a total known to another listener. Ignores streams of which nothing arrived here:
    /// they may be for others.
    pub(super) fn learn(&mut self, total: &Total) {
        let Some(&idx) = self.idx_by_key.get(&total.key) else { return };
        let stream = &mut self.streams[idx].1;
        let further = total.heartbeats.saturating_sub(stream.heartbeats_expected);
        stream.heartbeats_expected += further;
        self.counts.heartbeats_expected += further;
        let expected_before = stream.expected();
        stream.announce(total.datagrams);
        let added = stream.expected() - expected_before;
        self.counts.expected = self.counts.expected.saturating_add(added);
    }

    /// Whether at least `runs` runs were seen, and all their streams have ended.
    pub(super) fn has_ended(&self, runs: usize) -> bool {
        self.runs.len() >= runs
            && self.runs.values().all(|run| run.ended > 0 && run.ended >= usize::from(run.streams))
    }

    pub(super) fn run_reports(&self) -> Vec<RunReport> {
        self.runs.iter().map(|(id, run)| self.run_report(*id, run)).collect()
    }

    fn run_report(&self, id: u64, run: &Run) -> RunReport {
        let mut senders: BTreeMap<u16, SenderReport> = BTreeMap::new();
        let (mut gaps, mut gaps_omitted, mut streams_seen) = (Vec::new(), 0, 0);

        let mut own: Vec<_> = self.streams.iter().filter(|(key, _)| key.run == id).collect();
        own.sort_unstable_by_key(|(key, _)| (key.sender, key.flow));

        for (key, stream) in own {
            streams_seen += 1;
            let report = senders
                .entry(key.sender)
                .or_insert_with(|| SenderReport { sender: key.sender, ..SenderReport::default() });
            report.streams += 1;
            report.expected = report.expected.saturating_add(stream.expected());
            report.received += stream.received;
            report.duplicate += stream.duplicate;
            report.reordered += stream.reordered;
            report.beyond_window += stream.beyond_window;
            report.missing = report.expected - report.received;

            for (first, last) in stream.gaps() {
                if gaps.len() < GAPS_MAX {
                    gaps.push(Gap { sender: key.sender, flow: key.flow, first, last });
                } else {
                    gaps_omitted += 1;
                }
            }
        }

        RunReport {
            run: format!("{id:016x}"),
            streams_announced: run.streams,
            streams_seen,
            streams_ended: run.ended,
            senders: senders.into_values().collect(),
            gaps,
            gaps_omitted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Payload;

    fn tracker() -> Tracker {
        Tracker::new(&Options { streams_max: 2, window: 128, ..Options::on(Vec::new()) })
    }

    fn datagram(kind: Kind, flow: u16, sequence: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let heartbeats = u32::from(kind != Kind::Data);
        let (run, sender, streams, stamp_ns) = (7, 0, 2, 1_000);
        let check = Check { run, sender, flow, streams, kind, sequence, stamp_ns, heartbeats };
        check::encode(Payload::Binary, &check, &mut bytes);
        bytes
    }

    #[test]
    fn each_datagram_is_counted_in_one_place() {
        let mut tracker = tracker();
        for sequence in [0, 1, 3, 2, 2] {
            tracker.observe(&datagram(Kind::Data, 0, sequence), 5_000);
        }
        let mut corrupt = datagram(Kind::Data, 0, 4);
        corrupt[60] ^= 1;
        tracker.observe(&corrupt, 5_000);
        tracker.observe(&datagram(Kind::Data, 0, 5)[..50], 5_000);
        tracker.observe_truncated(b"any");
        tracker.observe(b"hello", 5_000);
        tracker.observe(&datagram(Kind::Heartbeat, 0, 6), 5_000);
        tracker.observe(&datagram(Kind::Data, 1, 0), 999);
        tracker.observe(&datagram(Kind::Data, 2, 0), 5_000);
        tracker.observe(&datagram(Kind::Data, 0, u64::MAX), 5_000);
        let counts = &tracker.counts;
        assert_eq!((counts.expected, counts.received, counts.missing()), (7, 5, 2));
        assert_eq!((counts.duplicate, counts.reordered, counts.reorder_extent_max), (1, 1, 1));
        assert_eq!((counts.corrupt, counts.truncated, counts.foreign), (2, 2, 1));
        assert_eq!((counts.heartbeats, counts.untracked, counts.from_future), (1, 1, 1));
        assert_eq!(counts.heartbeats_expected, 1);
        assert_eq!(counts.all_datagrams(), 13);
        assert_eq!(tracker.latencies.report().samples, 4);
    }

    #[test]
    fn a_lost_end_is_learned_from_another_listener() {
        let (mut whole, mut cut) = (tracker(), tracker());
        for sequence in 0..10 {
            whole.observe(&datagram(Kind::Data, 0, sequence), 5_000);
            if sequence < 7 {
                cut.observe(&datagram(Kind::Data, 0, sequence), 5_000);
            }
        }
        whole.observe(&datagram(Kind::Heartbeat, 1, 3), 5_000);
        assert_eq!(whole.totals().count(), 0, "nothing has ended");
        whole.observe(&datagram(Kind::End, 0, 10), 5_000);
        whole.totals().for_each(|total| cut.learn(&total));
        assert_eq!((cut.counts.expected, cut.counts.missing()), (10, 3));
        assert_eq!(cut.counts.heartbeats_expected, 1);
        assert_eq!(cut.run_reports()[0].gaps, [Gap { sender: 0, flow: 0, first: 7, last: 9 }]);
    }

    #[test]
    fn the_end_needs_all_announced_streams() {
        let mut tracker = tracker();
        assert!(!tracker.has_ended(1));
        tracker.observe(&datagram(Kind::End, 0, 10), 5_000);
        tracker.observe(&datagram(Kind::End, 0, 10), 5_000);
        assert!(!tracker.has_ended(1));
        tracker.observe(&datagram(Kind::End, 1, 0), 5_000);
        assert!(tracker.has_ended(1));
        assert!(!tracker.has_ended(2));
        let report = &tracker.run_reports()[0];
        assert_eq!(report.gaps, [Gap { sender: 0, flow: 0, first: 0, last: 9 }]);
        assert_eq!(
            (report.streams_announced, report.streams_seen, report.streams_ended),
            (2, 2, 2)
        );
    }
}
