//! An interface: what its counters say, and whether its samples agree.

use crate::counter::{Delta, Width, delta};
use crate::sequence::{Seen, Sequence, SequenceTotals};
use wire::sflow::counter::IfCounters;

/// Counters may run so much faster than the interface says that it can.
const SPEED_SLACK: f64 = 1.2;

/// The smallest frame of Ethernet, in octets as counters count them.
const FRAME_OCTETS_MIN: u64 = 60;

/// Polls without a rate after which the last one is not shown any more.
const WITHOUT_MAX: u8 = 3;

/// What passes an interface in one direction, per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// Bits.
    pub bits_per_s: Option<f64>,
    /// Frames of all kinds.
    pub frames_per_s: Option<f64>,
    /// Frames that were discarded although nothing was wrong with them.
    pub discards_per_s: Option<f64>,
    /// Frames that were broken.
    pub errors_per_s: Option<f64>,
}

/// An interface between two counter samples.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PortRates {
    /// What comes in.
    pub input: Rates,
    /// What leaves.
    pub output: Rates,
    /// The time that the rates are averages of, in milliseconds of the agent's clock.
    pub over_ms: u32,
    /// Counter samples between the two that did not arrive. The averages are right all the same.
    pub missed: u32,
    /// Bytes by samples, scaled, for each byte by counters, of what comes in; of what leaves if the interface is sampled there. 1 is an agent that samples
    /// as it says; 2, one that counts each frame twice.
    pub sampled_ratio: Option<f64>,
}

/// One interface.
#[derive(Clone, Debug, Default)]
pub struct Port {
    sequence: Sequence,
    /// The counters of the last sample, and the agent's clock then.
    last: Option<(IfCounters, u32)>,
    rates: Option<PortRates>,
    /// Polls since `rates` was set.
    without: u8,
    sampled: SampledBytes,
    implausible: u64,
}

/// Bytes by samples since the last counter sample.
#[derive(Clone, Copy, Debug, Default)]
struct SampledBytes {
    input: f64,
    output: f64,
}

impl Port {
    /// What the interface said last of itself.
    pub fn counters(&self) -> Option<&IfCounters> {
        self.last.as_ref().map(|(counters, _)| counters)
    }

    /// Its rates, if two samples could be compared lately.
    pub fn rates(&self) -> Option<&PortRates> {
        self.rates.as_ref()
    }

    /// Counter samples by their numbers.
    pub fn samples(&self) -> SequenceTotals {
        self.sequence.totals()
    }

    /// Differences that cannot be, and were not shown.
    pub fn implausible(&self) -> u64 {
        self.implausible
    }

    /// The agent has begun anew, so that nothing it says can be compared.
    pub fn restart(&mut self) {
        self.sequence.restart();
        self.last = None;
    }

    /// A frame that was sampled where it came in stands for so many bytes.
    pub fn sampled_in(&mut self, bytes: f64) {
        self.sampled.input += bytes;
    }

    /// The same where it left.
    pub fn sampled_out(&mut self, bytes: f64) {
        self.sampled.output += bytes;
    }

    /// Takes what a counter sample says.
    pub fn take(&mut self, sequence: u32, uptime_ms: u32, counters: IfCounters) {
        let seen = self.sequence.take(sequence, 0);
        if matches!(seen, Seen::Late | Seen::Duplicate | Seen::Strange) {
            return;
        }

        let before = self.last.replace((counters, uptime_ms));
        let sampled = std::mem::take(&mut self.sampled);
        let rates = match (before, seen) {
            (Some((before, at_ms)), Seen::Next { lost }) => {
                self.compare(&before, &counters, uptime_ms.wrapping_sub(at_ms), lost, sampled)
            }
            _ => None,
        };
        self.without = if rates.is_some() { 0 } else { self.without.saturating_add(1) };
        if rates.is_some() || self.without > WITHOUT_MAX {
            self.rates = rates;
        }
    }

    fn compare(
        &mut self,
        before: &IfCounters,
        after: &IfCounters,
        over_ms: u32,
        missed: u32,
        sampled: SampledBytes,
    ) -> Option<PortRates> {
        // Two samples of one moment, or a clock that went back.
        if over_ms == 0 || over_ms > u32::MAX / 2 {
            return None;
        }
        let seconds = f64::from(over_ms) / 1e3;
        let speed = after.speed_bits_per_sec;
        let octets_max =
            if speed == 0 { u64::MAX } else { (speed as f64 / 8.0 * seconds * SPEED_SLACK) as u64 };
        // Frames are bounded by octets, so that a 32-bit counter that wrapped twice does not pass for one that wrapped once.
        let frames_max = octets_max / FRAME_OCTETS_MIN;

        let octets = |before: u64, after: u64| delta(Width::Bits64, before, after, octets_max);
        let frames =
            |before: u32, after: u32| delta(Width::Bits32, before.into(), after.into(), frames_max);
        let input = [
            octets(before.in_octets.0, after.in_octets.0),
            frames(before.in_ucast_packets.0, after.in_ucast_packets.0),
            frames(before.in_multicast_packets.0, after.in_multicast_packets.0),
            frames(before.in_broadcast_packets.0, after.in_broadcast_packets.0),
            frames(before.in_discards.0, after.in_discards.0),
            frames(before.in_errors.0, after.in_errors.0),
        ];
        let output = [
            octets(before.out_octets.0, after.out_octets.0),
            frames(before.out_ucast_packets.0, after.out_ucast_packets.0),
            frames(before.out_multicast_packets.0, after.out_multicast_packets.0),
            frames(before.out_broadcast_packets.0, after.out_broadcast_packets.0),
            frames(before.out_discards.0, after.out_discards.0),
            frames(before.out_errors.0, after.out_errors.0),
        ];

        // One counter that leapt says that all of them began anew.
        // Discards may be more than the interface carries: others send to it.
        let carried = input[..4].iter().chain(&output[..4]);
        let leapt = carried.filter(|one| **one == Delta::Implausible).count();
        if leapt > 0 {
            self.implausible += leapt as u64;
            return None;
        }
        let ratio = match (sampled.input > 0.0, input[0], output[0]) {
            (true, Delta::Grew(octets), _) if octets > 0 => Some(sampled.input / octets as f64),
            (false, _, Delta::Grew(octets)) if octets > 0 && sampled.output > 0.0 => {
                Some(sampled.output / octets as f64)
            }
            _ => None,
        };
        let (input, output) = (rates(&input, seconds), rates(&output, seconds));
        Some(PortRates { input, output, over_ms, missed, sampled_ratio: ratio })
    }
}

/// `deltas`: octets, frames of three kinds, discards, errors.
fn rates(deltas: &[Delta; 6], seconds: f64) -> Rates {
    let grew = |delta: &Delta| match delta {
        Delta::Grew(by) => Some(*by as f64 / seconds),
        Delta::Absent | Delta::Implausible => None,
    };
    let [octets, frames @ .., discards, errors] = deltas;
    // Some agents count only unicast frames.
    let frames: Vec<f64> = frames.iter().filter_map(grew).collect();
    Rates {
        bits_per_s: grew(octets).map(|octets| octets * 8.0),
        frames_per_s: (!frames.is_empty()).then(|| frames.iter().sum()),
        discards_per_s: grew(discards),
        errors_per_s: grew(errors),
    }
}
