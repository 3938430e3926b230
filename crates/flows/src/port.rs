//! An interface: what its counters say, and whether its samples agree.

use crate::counter::{Delta, Width, delta};
use crate::sequence::{Seen, Sequence, SequenceTotals};
use wire::sflow::counter::IfCounters;

/// Factor by which counters may run faster than the interface's stated speed.
const SPEED_SLACK: f64 = 1.2;

/// Smallest Ethernet frame, in octets as counters count them.
const FRAME_OCTETS_MIN: u64 = 60;

/// Readings that arrive closer together than this are one moment, in nanoseconds.
const MOMENT_NS: u64 = 100_000_000;

/// Speeds outside of this are no speeds of interfaces, in bits per second: the slowest Ethernet, and 16 ports of 800 Gbit/s.
const SPEEDS: std::ops::RangeInclusive<u64> = 10_000_000..=12_800_000_000_000;

/// What agents send for a speed that does not fit in 32 bits (`ifSpeed`, RFC 2863).
const SPEED_TOO_HIGH: u64 = u32::MAX as u64;

/// Number of polls without a rate after which the last one is no longer shown.
const WITHOUT_MAX: u8 = 3;

/// Traffic of an interface in one direction, per second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// Bits.
    pub bits_per_s: Option<f64>,
    /// Frames of all kinds.
    pub frames_per_s: Option<f64>,
    /// Frames discarded although nothing was wrong with them.
    pub discards_per_s: Option<f64>,
    /// Broken frames.
    pub errors_per_s: Option<f64>,
}

/// Rates of an interface between two counter samples.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PortRates {
    /// Incoming traffic.
    pub input: Rates,
    /// Outgoing traffic.
    pub output: Rates,
    /// Length of the averaging period, in milliseconds of the agent's clock.
    pub over_ms: u32,
    /// Counter samples in between that did not arrive. The averages are right anyway.
    pub missed: u32,
    /// Scaled bytes from samples per byte from counters, for incoming traffic; for outgoing traffic if the interface is sampled
    /// there. 1 for an agent that samples as it says, 2 for one that counts each frame twice.
    pub sampled_ratio: Option<f64>,
}

/// One interface.
#[derive(Clone, Debug, Default)]
pub struct Port {
    sequence: Sequence,
    /// The counters of the last sample, and the agent's clock at that time.
    last: Option<(IfCounters, u32)>,
    rates: Option<PortRates>,
    /// The rates of the moment before that of `rates`.
    earlier: Option<Levels>,
    /// When the moment of `rates` began.
    moment_ns: u64,
    /// Number of polls since `rates` was set.
    without: u8,
    sampled: SampledBytes,
    implausible: u64,
    /// When it was last heard of.
    heard_ns: u64,
}

/// Rates in less memory, in both directions: bits, frames, discards, errors. What is absent is no number.
#[derive(Clone, Copy, Debug)]
struct Levels([[f32; 4]; 2]);

impl Levels {
    fn of(PortRates { input, output, .. }: &PortRates) -> Levels {
        let level = |of: &Rates| {
            let all = [of.bits_per_s, of.frames_per_s, of.discards_per_s, of.errors_per_s];
            all.map(|one| one.map_or(f32::NAN, |one| one as f32))
        };
        Levels([level(input), level(output)])
    }

    fn rates(&self) -> (Rates, Rates) {
        let Levels([input, output]) = self;
        let rates = |of: &[f32; 4]| {
            let [bits_per_s, frames_per_s, discards_per_s, errors_per_s] =
                of.map(|one| Some(f64::from(one)).filter(|one| !one.is_nan()));
            Rates { bits_per_s, frames_per_s, discards_per_s, errors_per_s }
        };
        (rates(input), rates(output))
    }
}

/// What received counters could be compared with.
#[derive(Clone, Copy, Debug)]
pub enum Compared {
    /// The previous counters, from the same run of the agent: rates and differences are right.
    With(IfCounters),
    /// Nothing: they are the first, the agent restarted, or they jumped.
    Nothing,
}

/// Bytes from samples since the last counter sample.
#[derive(Clone, Copy, Debug, Default)]
struct SampledBytes {
    input: f64,
    output: f64,
}

impl Port {
    /// What the interface last reported about itself.
    pub fn counters(&self) -> Option<&IfCounters> {
        self.last.as_ref().map(|(counters, _)| counters)
    }

    /// Its rates, if two samples could be compared recently.
    pub fn rates(&self) -> Option<&PortRates> {
        self.rates.as_ref()
    }

    /// Its rates at the reading before, in and out, if that came at least 100 ms earlier.
    pub(crate) fn earlier_rates(&self) -> Option<(Rates, Rates)> {
        self.rates.and(self.earlier.as_ref()).map(Levels::rates)
    }

    /// The speed that it states, in bits per second. `None` if it states none, or if its counters contradict it.
    pub(crate) fn speed_bits_per_sec(&self) -> Option<u64> {
        let speed = self.counters()?.speed_bits_per_sec;
        let is_one = SPEEDS.contains(&speed) && speed != SPEED_TOO_HIGH;
        (is_one && self.implausible == 0).then_some(speed)
    }

    /// Counter samples by sequence number.
    pub fn samples(&self) -> SequenceTotals {
        self.sequence.totals()
    }

    /// Number of impossible differences, which are not shown.
    pub fn implausible(&self) -> u64 {
        self.implausible
    }

    /// When it was last heard.
    pub(crate) fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// Records that it was heard now.
    pub(crate) fn hear(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
    }

    /// The agent has restarted, so its counters cannot be compared with the previous ones.
    pub fn restart(&mut self) {
        self.sequence.restart();
        self.last = None;
    }

    /// Records that a frame sampled on entry stands for this many bytes.
    pub fn sampled_in(&mut self, bytes: f64) {
        self.sampled.input += bytes;
    }

    /// The same for a frame sampled on exit.
    pub fn sampled_out(&mut self, bytes: f64) {
        self.sampled.output += bytes;
    }

    /// Processes a counter sample. `None` when it could not be used.
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
            if self.heard_ns.saturating_sub(self.moment_ns) >= MOMENT_NS {
                self.moment_ns = self.heard_ns;
                self.earlier = self.rates.as_ref().map(Levels::of);
            }
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
        // Two samples with the same time, or a clock that went back.
        if over_ms == 0 || over_ms > u32::MAX / 2 {
            return None;
        }
        let seconds = f64::from(over_ms) / 1e3;
        let speed = after.speed_bits_per_sec;
        let octets_max =
            if speed == 0 { u64::MAX } else { (speed as f64 / 8.0 * seconds * SPEED_SLACK) as u64 };
        let input = deltas(input_of(before), input_of(after), octets_max);
        let output = deltas(output_of(before), output_of(after), octets_max);

        // If one counter jumped, all of them restarted. Discards may exceed what the interface carries, because others send to
        // it.
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

/// An interface's counters in one direction: octets; and frames by unicast, multicast, broadcast, discarded, broken.
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

/// Differences of octets, and of frames of five kinds.
fn deltas(before: Counted, after: Counted, octets_max: u64) -> [Delta; 6] {
    let octets = delta(Width::Bits64, before.0, after.0, octets_max);
    let frames_max = octets_max / FRAME_OCTETS_MIN;
    // This many octets may be more frames than 32 bits can count, so the frame counters may have wrapped more than once.
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

/// Rates from `deltas`: octets, frames of three kinds, discards, errors.
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

    /// The rate of incoming frames between two polls 20 s apart.
    fn frames_per_s(before: IfCounters, after: IfCounters) -> Option<f64> {
        let mut port = Port::default();
        port.take(1, 0, before);
        port.take(2, 20_000, after);
        port.rates()?.input.frames_per_s
    }

    #[test]
    fn a_counter_of_frames_that_may_have_wrapped_twice_shows_no_rate() {
        const GBIT: u64 = 1_000_000_000;
        // 400 Gbit/s of 64-byte frames for 20 s: 15.6 billion frames, 3.6 times what 32 bits count.
        let octets = 400 * GBIT / 8 * 20;
        let shown = frames_per_s(counters(0, 0, 400 * GBIT), counters(octets, 77, 400 * GBIT));
        assert_eq!(shown, None);
        // As many octets as one wrap of smallest frames.
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
        // Later counters are compared with the last ones received.
        port.take(3, 40_000, counters(1_002_000_000, 2_001, 1_000_000));
        assert_eq!(port.rates().unwrap().input.frames_per_s, Some(100.0));
    }
}
