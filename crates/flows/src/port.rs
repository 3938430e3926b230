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
    /// When it was last heard of.
    heard_ns: u64,
}

/// What counters that came could be compared with.
#[derive(Clone, Copy, Debug)]
pub enum Compared {
    /// The counters before, of the same life of the agent: rates and differences are right.
    With(IfCounters),
    /// They are the first, or the agent began anew, or they leapt.
    Nothing,
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

    /// When it was last heard of.
    pub(crate) fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// It is heard of now.
    pub(crate) fn hear(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
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

    /// Takes what a counter sample says. `None`: it was not for use.
    pub fn take(
        &mut self,
        sequence: u32,
        uptime_ms: u32,
        counters: IfCounters,
    ) -> Option<Compared> {
        let seen = self.sequence.take(sequence, 0);
        if matches!(seen, Seen::Late | Seen::Duplicate | Seen::Strange) {
            return None;
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
        Some(match before {
            Some((before, _)) if rates.is_some() => Compared::With(before),
            _ => Compared::Nothing,
        })
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
        let input = deltas(input_of(before), input_of(after), octets_max);
        let output = deltas(output_of(before), output_of(after), octets_max);

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

/// What an interface counts in one direction: octets; and frames to one, to several, to all, discarded, broken.
type Counted = (u64, [u32; 5]);

fn input_of(of: &IfCounters) -> Counted {
    let frames = [
        of.in_ucast_packets,
        of.in_multicast_packets,
        of.in_broadcast_packets,
        of.in_discards,
        of.in_errors,
    ];
    (of.in_octets.0, frames.map(|one| one.0))
}

fn output_of(of: &IfCounters) -> Counted {
    let frames = [
        of.out_ucast_packets,
        of.out_multicast_packets,
        of.out_broadcast_packets,
        of.out_discards,
        of.out_errors,
    ];
    (of.out_octets.0, frames.map(|one| one.0))
}

/// Octets, and frames of five kinds.
fn deltas(before: Counted, after: Counted, octets_max: u64) -> [Delta; 6] {
    let octets = delta(Width::Bits64, before.0, after.0, octets_max);
    let frames_max = octets_max / FRAME_OCTETS_MIN;
    // So many octets may be more frames than 32 bits count: then they may have wrapped more than once.
    let may_wrap_twice =
        matches!(octets, Delta::Grew(octets) if octets / FRAME_OCTETS_MIN > u32::MAX.into());

    let mut all = [octets; 6];
    for (place, (before, after)) in all[1..].iter_mut().zip(before.1.into_iter().zip(after.1)) {
        *place = match delta(Width::Bits32, before.into(), after.into(), frames_max) {
            Delta::Grew(_) if may_wrap_twice => Delta::Absent,
            delta => delta,
        };
    }
    all
}

/// `deltas`: octets, frames of three kinds, discards, errors.
fn rates(deltas: &[Delta; 6], seconds: f64) -> Rates {
    let grew = |delta: &Delta| match delta {
        Delta::Grew(by) => Some(*by as f64 / seconds),
        Delta::Absent | Delta::Implausible => None,
    };
    let [octets, frames @ .., discards, errors] = deltas;
    // Some agents count only unicast frames.
    let frames = frames.iter().filter_map(grew).reduce(|sum, one| sum + one);
    Rates {
        bits_per_s: grew(octets).map(|octets| octets * 8.0),
        frames_per_s: frames,
        discards_per_s: grew(discards),
        errors_per_s: grew(errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::sflow::{Counter32, Counter64};

    fn counters(octets: u64, frames: u32, speed_bits_per_sec: u64) -> IfCounters {
        let absent = Counter32(u32::MAX);
        IfCounters {
            if_index: 1,
            if_type: 6,
            speed_bits_per_sec,
            direction: 1,
            status: 3,
            in_octets: Counter64(octets),
            in_ucast_packets: Counter32(frames),
            in_multicast_packets: absent,
            in_broadcast_packets: absent,
            in_discards: absent,
            in_errors: absent,
            in_unknown_protos: absent,
            out_octets: Counter64(u64::MAX),
            out_ucast_packets: absent,
            out_multicast_packets: absent,
            out_broadcast_packets: absent,
            out_discards: absent,
            out_errors: absent,
            promiscuous_mode: 2,
        }
    }

    /// The rate of frames that come in between two polls 20 s apart.
    fn frames_per_s(before: IfCounters, after: IfCounters) -> Option<f64> {
        let mut port = Port::default();
        port.take(1, 0, before);
        port.take(2, 20_000, after);
        port.rates()?.input.frames_per_s
    }

    #[test]
    fn a_counter_of_frames_that_may_have_wrapped_twice_shows_no_rate() {
        const GBIT: u64 = 1_000_000_000;
        // 400 Gbit/s of frames of 64 bytes for 20 s: 15.6 thousand million frames, 3.6 times what 32 bits count.
        let octets = 400 * GBIT / 8 * 20;
        let shown = frames_per_s(counters(0, 0, 400 * GBIT), counters(octets, 77, 400 * GBIT));
        assert_eq!(shown, None);
        // As many octets as one wrap of the smallest frames.
        let octets = FRAME_OCTETS_MIN * u64::from(u32::MAX);
        let shown = frames_per_s(counters(0, 100, 400 * GBIT), counters(octets, 80, 400 * GBIT));
        assert_eq!(shown, Some((f64::from(u32::MAX) - 19.0) / 20.0));
    }

    #[test]
    fn what_an_interface_cannot_carry_is_implausible_and_not_shown() {
        let mut port = Port::default();
        port.take(1, 0, counters(0, 0, 1_000_000));
        port.take(2, 20_000, counters(1_000_000_000, 1, 1_000_000));
        assert_eq!((port.rates(), port.implausible()), (None, 1));
        // What comes after is compared with what was said last.
        port.take(3, 40_000, counters(1_002_000_000, 2_001, 1_000_000));
        assert_eq!(port.rates().unwrap().input.frames_per_s, Some(100.0));
    }
}
