//! Changes between two polls, socket by socket.

use record::SocketRecord;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Changes since the last poll that saw the socket.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Moved {
    /// For connections only.
    pub(super) rates: Option<Rates>,
    /// Packets that the socket dropped, per second.
    pub(super) drops_per_sec: Option<f64>,
}

/// Rates per second, from the counters of two polls.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rates {
    /// Bytes sent, including retransmissions.
    pub(super) sent_bytes: f64,
    pub(super) received_bytes: f64,
    pub(super) segs_out: f64,
    pub(super) segs_in: f64,
    pub(super) retrans_segments: f64,
}

/// The counters of the last poll by cookie, some 64 bytes per connection.
#[derive(Default)]
pub(super) struct History {
    seen: HashMap<u64, Seen>,
    poll: u64,
}

#[derive(Clone, Copy)]
struct Seen {
    counters: Option<Counters>,
    drops: Option<u32>,
    poll: u64,
    first: Instant,
    last: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counters {
    sent_bytes: u64,
    received_bytes: u64,
    segs_out: u32,
    segs_in: u32,
    retrans_segments: u32,
}

impl Counters {
    fn of(record: &SocketRecord<'_>) -> Option<Counters> {
        Some(Counters {
            // Linux before 4.19 counts only acknowledged bytes.
            sent_bytes: record.bytes_sent.or(record.bytes_acked)?,
            received_bytes: record.bytes_received?,
            segs_out: record.segs_out?,
            segs_in: record.segs_in?,
            retrans_segments: record.total_retrans_segments?,
        })
    }

    /// Handles wrapping: segment counters have 32 bits in the kernel.
    fn per_second_since(self, before: Counters, elapsed: Duration) -> Option<Rates> {
        let seconds = elapsed.as_secs_f64();
        let rate = |more: u64| more as f64 / seconds;
        let segments = |now: u32, before: u32| rate(now.wrapping_sub(before).into());
        (seconds > 0.0).then(|| Rates {
            sent_bytes: rate(self.sent_bytes.wrapping_sub(before.sent_bytes)),
            received_bytes: rate(self.received_bytes.wrapping_sub(before.received_bytes)),
            segs_out: segments(self.segs_out, before.segs_out),
            segs_in: segments(self.segs_in, before.segs_in),
            retrans_segments: segments(self.retrans_segments, before.retrans_segments),
        })
    }
}

impl History {
    /// Begins a poll, and forgets the sockets that the last one did not see.
    pub(super) fn begin_poll(&mut self) {
        let last = self.poll;
        self.seen.retain(|_, seen| seen.poll == last);
        self.poll += 1;
    }

    /// How long a connection has been seen.
    pub(super) fn age(&self, cookie: u64, now: Instant) -> Option<Duration> {
        self.seen.get(&cookie).map(|seen| now.saturating_duration_since(seen.first))
    }

    /// Stores the counters of this poll, and returns the change since the last one.
    pub(super) fn note(&mut self, cookie: u64, record: &SocketRecord<'_>, now: Instant) -> Moved {
        let before = self.seen.get(&cookie).copied();
        let first = before.map_or(now, |seen| seen.first);
        let (counters, drops) = (Counters::of(record), record.drops);
        self.seen.insert(cookie, Seen { counters, drops, poll: self.poll, first, last: now });

        let Some(before) = before else { return Moved::default() };
        let elapsed = now.saturating_duration_since(before.last);
        let rates = counters.zip(before.counters);
        let drops = drops.zip(before.drops).filter(|_| !elapsed.is_zero());
        Moved {
            rates: rates.and_then(|(now, before)| now.per_second_since(before, elapsed)),
            // The kernel's counter has 32 bits and wraps.
            drops_per_sec: drops
                .map(|(now, before)| f64::from(now.wrapping_sub(before)) / elapsed.as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sent: u64, segs: u32) -> SocketRecord<'static> {
        SocketRecord {
            bytes_sent: Some(sent),
            bytes_received: Some(7),
            segs_out: Some(segs),
            segs_in: Some(segs),
            total_retrans_segments: Some(0),
            ..SocketRecord::default()
        }
    }

    #[test]
    fn rates_are_of_the_time_between_and_survive_a_wrap() {
        let mut history = History::default();
        let start = Instant::now();
        history.begin_poll();
        let first = SocketRecord { drops: Some(u32::MAX), ..record(1_000, u32::MAX - 1) };
        assert_eq!(history.note(1, &first, start), Moved::default());
        history.begin_poll();
        let now = start + Duration::from_secs(2);
        let second = SocketRecord { drops: Some(5), ..record(5_000, 8) };
        let moved = history.note(1, &second, now);
        assert_eq!(moved.drops_per_sec, Some(3.0));
        let rates = moved.rates.unwrap();
        assert_eq!((rates.sent_bytes, rates.received_bytes, rates.segs_out), (2_000.0, 0.0, 5.0));
        assert_eq!(history.age(1, now), Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_udp_socket_has_the_rate_of_its_drops_alone() {
        let mut history = History::default();
        let start = Instant::now();
        let udp = |drops| SocketRecord { drops: Some(drops), ..SocketRecord::default() };
        history.note(1, &udp(10), start);
        let moved = history.note(1, &udp(30), start + Duration::from_secs(4));
        assert_eq!(moved, Moved { rates: None, drops_per_sec: Some(5.0) });
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut history = History::default();
        let now = Instant::now();
        history.begin_poll();
        history.note(1, &record(1, 1), now);
        history.begin_poll();
        history.begin_poll();
        assert_eq!((history.age(1, now), history.seen.len()), (None, 0));
    }
}
