//! Detects whether the path loses packets because it is full, and slows down if so.
//!
//! A link has a configured rate and does not slow down for losses: on a noisy path that would make it slow without helping
//! anybody (RFC 8085 section 3.1.3 lets traffic of a known rate do without, if a circuit breaker can end it). Congestion loss is
//! different: packets wait in a queue before some are lost, so the round-trip time grows with the loss, or nearly all are lost. A
//! busy host makes the round-trip time grow too. So loss without a queue is noise, and only loss beyond the noise counts.

use super::round_trip::RoundTrip;

/// Time between two checks, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// Consecutive checks that must find the path full before the rate drops.
const LOOKS: u32 = 2;

/// Loss beyond the noise that counts as congestion together with a queue, and total loss that counts without one, in parts per
/// million.
const LOSS_QUEUED: u64 = 5_000;
const LOSS_ALONE: u64 = 400_000;

/// Standard deviations of the noise that are added to the first threshold.
const NOISE_DEVIATIONS: u64 = 3;

/// Shortest queueing time that counts as a queue: this many nanoseconds plus this fraction of the shortest round trip.
const QUEUED_MIN_NS: u64 = 10_000_000;
const QUEUED_PART: u64 = 4;

/// Rate for the next second on a full path, as a percentage of what arrived, so that the queue drains.
const LESS_PERCENT: u64 = 90;

/// Maximum loss that one check takes into account, in parts per million.
const LOSS_MAX: u64 = 500_000;

/// Each second on a path that is not full, the rate grows by this fraction of itself.
const MORE_PART: u64 = 20;

/// Fraction of what arrived when the path became full that is always sent: others get most of the path, but not all of it.
const LEAST_PART: u64 = 4;

/// If loss exceeds this even so, in parts per million, others have a minimum share too: ours shrinks, down to this fraction of
/// what arrived.
const LOSS_CROWDED: u64 = 100_000;
const LEAST_CROWDED_PART: u64 = 20;

/// Consecutive checks that must not find the path full before congestion counts as new.
const EMPTY_LOOKS: u32 = 30;

/// How far a session has got, according to a report.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Seen {
    /// Packets sent up to the highest one that arrived.
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Seen {
    fn lost_per_million_since(self, before: Seen) -> u64 {
        let sent = self.sent.saturating_sub(before.sent);
        let received = self.received.saturating_sub(before.received);
        sent.saturating_sub(received) * 1_000_000 / sent.max(1)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    declared: u64,
    rate: u64,
    /// What arrived per second when the path became full, and the minimum rate derived from it.
    began: u64,
    least: u64,
    /// Bytes sent since the last check.
    sent_bytes: u64,
    looked_ns: u64,
    /// Packets that the receiver had, and the highest one that it knew of, at the last check.
    seen: Seen,
    /// Loss without a queue, in parts per million, smoothed over a few checks.
    noise: u64,
    /// Consecutive checks that found the path full, and that did not.
    full: u32,
    empty: u32,
}

impl Congestion {
    pub(super) fn new(declared: u64, now_ns: u64) -> Congestion {
        Congestion {
            declared,
            rate: declared,
            began: 0,
            least: 0,
            sent_bytes: 0,
            looked_ns: now_ns,
            seen: Seen::default(),
            noise: 0,
            full: 0,
            empty: EMPTY_LOOKS,
        }
    }

    /// Allowed rate, in bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    pub(super) fn note_sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// Checks the path, once per second. Returns whether the rate has changed.
    pub(super) fn look(&mut self, now_ns: u64, round_trip: &RoundTrip, seen: Seen) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.looked_ns);
        if elapsed_ns < LOOK_NS {
            return false;
        }
        let before = self.rate;
        let sent = u128::from(self.sent_bytes) * 1_000_000_000 / u128::from(elapsed_ns);
        let sent = u64::try_from(sent).unwrap_or(u64::MAX);
        // A new session counts from 0.
        let is_same = seen.sent >= self.seen.sent;
        let lost = if is_same { seen.lost_per_million_since(self.seen) } else { 0 };
        let packets = seen.sent.saturating_sub(self.seen.sent).max(1);
        (self.looked_ns, self.sent_bytes, self.seen) = (now_ns, 0, seen);

        // The part of the round-trip time above the shortest one is spent in queues.
        let shortest_ns = round_trip.shortest_ns();
        let is_queued =
            round_trip.smoothed_ns() > shortest_ns + shortest_ns / QUEUED_PART + QUEUED_MIN_NS;
        let deviation = (self.noise * (1_000_000 - self.noise) / packets).isqrt();
        let beyond = lost.saturating_sub(self.noise);
        let is_beyond = beyond > LOSS_QUEUED + NOISE_DEVIATIONS * deviation;
        let is_full = (is_queued && is_beyond) || lost > LOSS_ALONE;
        // Noise cannot exceed the total loss.
        if (!is_queued && lost <= LOSS_ALONE) || lost < self.noise {
            self.noise = (3 * self.noise + lost) / 4;
        }
        if !is_full {
            self.full = 0;
            self.empty = (self.empty + 1).min(EMPTY_LOOKS);
            // A sender that fell behind others catches up as fast as they grow.
            let more = self.rate.max(self.began / LEAST_PART) / MORE_PART;
            self.rate = (self.rate + more + 1).min(self.declared);
            return self.rate != before;
        }
        self.full += 1;
        if self.full >= LOOKS {
            self.slow_down(sent.min(self.rate), lost, beyond);
        }
        self.rate != before
    }

    /// Sends less than the `sent` bytes per second of the last check. `lost` is the loss, and `beyond` the part of it above the
    /// noise, in parts per million.
    fn slow_down(&mut self, sent: u64, lost: u64, beyond: u64) {
        if self.empty == EMPTY_LOOKS {
            // When many start at once, each loses most of what it sends at first: its share of the path is small.
            self.began = scaled(sent, 1_000_000 - lost.min(1_000_000));
            self.least = self.began / LEAST_PART;
        } else if self.rate == self.least && lost > LOSS_CROWDED {
            self.least = (self.least / 100 * LESS_PERCENT).max(self.began / LEAST_CROWDED_PART);
        }
        // The next check still sees some of the traffic from before.
        (self.full, self.empty) = (0, 0);
        // What the path carries, before noise takes its part.
        let lost = if lost > LOSS_ALONE { lost } else { beyond };
        let carried = scaled(sent, 1_000_000 - lost.min(LOSS_MAX));
        self.rate = (carried / 100 * LESS_PERCENT).max(self.least).min(self.rate).max(1);
    }
}

/// `millionths` parts per million of `rate`.
fn scaled(rate: u64, millionths: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(millionths) / 1_000_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;

    /// The rate after `seconds` with this round-trip time and loss, sending at the full rate.
    fn after(congestion: &mut Congestion, from_s: u64, seconds: u64, ms: u64, lost: u64) -> u64 {
        let mut round_trip = RoundTrip::unknown();
        round_trip.note(0, 20 * MS);
        for second in from_s + 1..=from_s + seconds {
            (0..100).for_each(|_| round_trip.note(second, ms * MS));
            congestion.note_sent(congestion.rate());
            let Seen { sent, received } = congestion.seen;
            let seen = Seen { sent: sent + 1_000, received: received + 1_000 - lost / 1_000 };
            congestion.look(second * SECOND, &round_trip, seen);
        }
        congestion.rate()
    }

    #[test]
    fn noise_slows_nothing_and_a_full_queue_does() {
        let mut congestion = Congestion::new(1_000_000, 0);
        assert_eq!(after(&mut congestion, 0, 60, 21, 300_000), 1_000_000, "noise");
        assert_eq!(after(&mut congestion, 60, 60, 300, 4_000), 1_000_000, "a longer way");
        assert_eq!(after(&mut congestion, 120, 1, 70, 100_000), 1_000_000, "a moment");
        assert_eq!(after(&mut congestion, 121, 1, 70, 100_000), 813_600, "of what arrives");
        assert_eq!(after(&mut congestion, 122, 60, 70, 100_000), 225_000, "the least");
        assert_eq!(after(&mut congestion, 182, 1, 21, 300_000), 236_251);
        assert_eq!(after(&mut congestion, 183, 40, 21, 300_000), 1_000_000);
        assert_eq!(after(&mut congestion, 223, 2, 21, 600_000), 450_000, "most of it is lost");

        let mut congestion = Congestion::new(1_000_000, 0);
        after(&mut congestion, 0, 20, 21, 200_000);
        assert_eq!(after(&mut congestion, 20, 20, 300, 200_000), 1_000_000, "a busy host");
        assert_eq!(after(&mut congestion, 40, 2, 300, 300_000), 809_370, "a queue beside noise");
    }

    /// A link on a path that it shares with others like it.
    struct Flow {
        congestion: Congestion,
        round_trip: RoundTrip,
        sent_bytes: f64,
        lost_bytes: f64,
    }

    /// Runs `count` links for two minutes, each offered a third more than the path carries and with a configured rate that never
    /// limits it. Returns, for the second minute, what all of them sent as a share of what the path carries, and what arrived
    /// from each. Each starts `apart` steps after the one before, when the queue may be full.
    fn crowd(count: usize, apart: u64) -> (f64, Vec<f64>) {
        const STEP_NS: u64 = 10 * MS;
        let way = 1_000_000.0;
        let (step_s, queue_max) = (0.01, 0.05 * way);
        let mut flows: Vec<Flow> = (0..count)
            .map(|_| Flow {
                congestion: Congestion::new(100_000_000, 0),
                round_trip: RoundTrip::unknown(),
                sent_bytes: 0.0,
                lost_bytes: 0.0,
            })
            .collect();
        let (mut queue, mut halves) = (0.0, (vec![0.0; count], vec![0.0; count]));
        for step in 1..=12_000u64 {
            let now_ns = step * STEP_NS;
            let sends: Vec<f64> = flows
                .iter()
                .zip(0..)
                .map(|(flow, at)| match at * apart < step {
                    true => (flow.congestion.rate() as f64).min(1.33 * way * 1.5) * step_s,
                    false => 0.0,
                })
                .collect();
            let all: f64 = sends.iter().sum();
            queue = (queue + all - way * step_s).max(0.0);
            let lost = (queue - queue_max).max(0.0) / all.max(1.0);
            queue = queue.min(queue_max);
            for (at, (flow, sent)) in flows.iter_mut().zip(&sends).enumerate() {
                if *sent == 0.0 {
                    continue;
                }
                flow.sent_bytes += sent;
                flow.lost_bytes += sent * lost;
                flow.congestion.note_sent(*sent as u64);
                flow.round_trip.note(now_ns, 20 * MS + (queue / way * 1e9) as u64);
                let sent_packets = (flow.sent_bytes / 1_000.0) as u64;
                let received = sent_packets - (flow.lost_bytes / 1_000.0) as u64;
                flow.congestion.look(
                    now_ns,
                    &flow.round_trip,
                    Seen { sent: sent_packets, received },
                );
                if step > 6_000 {
                    halves.0[at] += sent / 60.0 / way;
                    halves.1[at] += sent * (1.0 - lost) / 60.0 / way;
                }
            }
        }
        (halves.0.iter().sum(), halves.1)
    }

    #[test]
    fn many_links_share_a_way() {
        for (count, apart) in [(1, 0), (2, 0), (5, 0), (20, 0), (5, 100)] {
            let (sent, arrived) = crowd(count, apart);
            let all: f64 = arrived.iter().sum();
            assert!(sent < 1.2, "{count} links send {sent:.2} of what the way carries");
            assert!(all > 0.85, "{count} links get {all:.2} of what the way carries");
            let fair = all / count as f64;
            assert!(arrived.iter().all(|one| *one > fair / 3.0), "{count} links: {arrived:.3?}");
        }
    }
}
