//! An interface: what its counters say, and whether its samples agree.

mod counters;
mod difference;

use crate::counter::Delta;
use crate::discrepancy::Discrepancy;
use crate::sequence::{Seen, Sequence, SequenceTotals};
pub use counters::PortCounters;
use difference::{deltas, input_of, octets_between, output_of, rates};

/// Factor by which counters may run faster than the interface's stated speed.
const SPEED_SLACK: f64 = 1.2;

/// Readings that arrive closer together than this are one moment, in nanoseconds.
const MOMENT_NS: u64 = 100_000_000;

/// Speeds outside of this are no speeds of interfaces, in bits per second: the slowest Ethernet, and 16 ports of 800 Gbit/s.
const SPEEDS: std::ops::RangeInclusive<u64> = 10_000_000..=12_800_000_000_000;

/// How long a datagram may wait for others after its counters were read, in seconds.
const WAIT_S: f64 = 1.0;

/// Two intervals are uneven, so that rates are averaged over both, if one is shorter than this share of the other.
const EVEN: f64 = 0.8;

/// The agent's clock is slow if ours runs this much faster; and they are compared after this many seconds.
const CLOCKS_APART: f64 = 1.25;
const CLOCKS_MIN_S: f64 = 5.0;

/// A difference that no interface can have is believed if the next one is no more than this many times as large, or as small.
const SAME_AGAIN: f64 = 2.0;

/// Number of polls without a rate after which the last one is no longer shown.
const WITHOUT_MAX: u8 = 3;

/// When counters were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// On the agent's clock, in milliseconds since it started; wraps after 49.7 days.
    pub uptime_ms: u32,
    /// On ours, when they arrived, in nanoseconds.
    pub arrival_ns: u64,
}

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
    /// Time since the counters before, in milliseconds: what differences from those are of. Shorter than `over_ms` where polls come
    /// unevenly and two of them are averaged.
    pub since_ms: u32,
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
    /// The counters of the last sample, and when they were read.
    last: Option<(PortCounters, Times)>,
    /// The counters of the sample before, and the seconds between the two.
    before: Option<(PortCounters, f64)>,
    /// Seconds that have passed on the agent's clock and on ours, decayed.
    clocks_s: [f64; 2],
    /// The last counters came later than by the agent's clock.
    is_slow: bool,
    /// Whether the agent has restarted since the last sample, so that its clock says nothing.
    is_restarted: bool,
    /// The rate in bits per second of the last difference, if that was more than the interface can carry.
    leap: Option<f64>,
    /// The highest rate in bits per second that is believed although the interface states a lower speed.
    believed: f64,
    /// The aggregated link to which the interface belongs. 0 for none.
    aggregate: u32,
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
    With(PortCounters),
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
    pub fn counters(&self) -> Option<&PortCounters> {
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
        let speed = self.counters()?.stated_bits_per_sec()?;
        (SPEEDS.contains(&speed) && self.implausible == 0).then_some(speed)
    }

    /// The speed of which its use is a share, in bits per second. `None` if it states none, or carries more.
    pub fn full_bits_per_sec(&self) -> Option<u64> {
        self.counters()?.stated_bits_per_sec().filter(|_| self.believed == 0.0)
    }

    /// The aggregated link to which it belongs.
    pub(crate) fn aggregate(&self) -> Option<u32> {
        (self.aggregate != 0).then_some(self.aggregate)
    }

    /// It belongs to this aggregated link, or to none with 0.
    pub(crate) fn set_aggregate(&mut self, if_index: u32) {
        self.aggregate = if_index;
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

    /// The agent has restarted: its clock has, and its counters may have.
    pub fn restart(&mut self) {
        self.sequence.restart();
        self.is_restarted = true;
        self.before = None;
    }

    /// Records that a frame sampled on entry stands for this many bytes.
    pub fn sampled_in(&mut self, bytes: f64) {
        self.sampled.input += bytes;
    }

    /// The same for a frame sampled on exit.
    pub fn sampled_out(&mut self, bytes: f64) {
        self.sampled.output += bytes;
    }

    /// Processes a counter sample. `None` when it could not be used. `note` hears what contradicts something else.
    pub(crate) fn take(
        &mut self,
        sequence: u32,
        times: Times,
        counters: PortCounters,
        mut note: impl FnMut(Discrepancy),
    ) -> Option<Compared> {
        let seen = self.sequence.take(sequence, 0);
        if matches!(seen, Seen::Late | Seen::Duplicate | Seen::Strange) {
            return None;
        }

        let before = self.last.replace((counters, times));
        let sampled = std::mem::take(&mut self.sampled);
        let rates = match (before, seen) {
            (Some((before, at)), Seen::Next { lost }) => {
                let seconds = self.seconds_between(at, times, &mut note);
                self.compare((&before, &counters), seconds, lost, &mut note)
            }
            (Some((before, at)), Seen::First) if self.is_restarted => {
                self.compare_restarted((&before, &counters), at, times)
            }
            _ => None,
        };
        self.is_restarted = false;
        let rates = rates.map(|rates| PortRates {
            sampled_ratio: before.and_then(|(before, _)| sampled.ratio(&before, &counters)),
            ..rates
        });

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

    /// Seconds between two readings: by the agent's clock, which does not know how long datagrams were under way; by ours if that one
    /// stands still, goes back, or is slow. 0 if neither says.
    fn seconds_between(
        &mut self,
        before: Times,
        after: Times,
        note: &mut impl FnMut(Discrepancy),
    ) -> f64 {
        let uptime_ms = after.uptime_ms.wrapping_sub(before.uptime_ms);
        let uptime_s = if uptime_ms <= u32::MAX / 2 { f64::from(uptime_ms) / 1e3 } else { 0.0 };
        let arrival_s = after.arrival_ns.saturating_sub(before.arrival_ns) as f64 / 1e9;
        // Without arrival times (they are all the same) there is only one clock.
        if arrival_s == 0.0 {
            return uptime_s;
        }

        let [theirs, ours] = &mut self.clocks_s;
        *theirs = *theirs * 0.75 + uptime_s;
        *ours = *ours * 0.75 + arrival_s;
        // One that is faster than ours is right about datagrams that were held up and come all at once. One such datagram comes late
        // and those behind it early; by a clock that is slow, all come late.
        let was_slow = std::mem::replace(&mut self.is_slow, uptime_s * CLOCKS_APART < arrival_s);
        let is_apart =
            was_slow && self.is_slow && *ours >= CLOCKS_MIN_S && *theirs * CLOCKS_APART < *ours;
        if is_apart {
            note(Discrepancy::Clock);
        }
        // A clock of whole seconds is off by up to one of them, ours by how long the datagram waited.
        let is_whole = [before, after].iter().all(|at| at.uptime_ms.is_multiple_of(1_000));
        let is_coarse = is_whole && (uptime_s - arrival_s).abs() <= 1.0;
        if is_apart || is_coarse || uptime_s == 0.0 { arrival_s } else { uptime_s }
    }

    fn compare(
        &mut self,
        (before, after): (&PortCounters, &PortCounters),
        seconds: f64,
        missed: u32,
        note: &mut impl FnMut(Discrepancy),
    ) -> Option<PortRates> {
        if seconds <= 0.0 {
            return None;
        }
        let earlier = self.before.replace((*before, seconds));
        let octets = octets_between(before, after);
        let octets_s = octets.map_or(0.0, |octets| octets as f64);
        // A link that lost a member carried what all of them could.
        let stated = speed_of_either(before, after) / 8.0;
        let full = if stated == 0.0 { f64::INFINITY } else { stated.max(self.believed / 8.0) };
        let full = full * SPEED_SLACK;

        if octets_s > full * (seconds + WAIT_S) && !self.is_believed(octets_s * 8.0 / seconds) {
            self.implausible += 1;
            self.before = None;
            return None;
        }
        if octets_s * 8.0 / seconds > stated * 8.0 * SPEED_SLACK && self.believed > 0.0 {
            note(Discrepancy::Speed);
        }
        let is_uneven = |other: f64| other.min(seconds) < EVEN * other.max(seconds);
        let rates = match earlier.filter(|(_, other)| is_uneven(*other)) {
            Some((earlier, other)) => self.difference((&earlier, after), other + seconds, missed),
            None => None,
        };
        // Counters that were read up to a second before their datagram left may be those of a longer time.
        let is_longer = octets_s > full * seconds && self.believed == 0.0;
        let seconds = if is_longer { octets_s / stated } else { seconds };
        let rates = rates.or_else(|| self.difference((before, after), seconds, missed));
        let rates = rates.map(|rates| PortRates { since_ms: (seconds * 1e3) as u32, ..rates });
        if rates.is_none() {
            // If one counter jumped, all of them restarted.
            self.implausible += 1;
            self.before = None;
        } else {
            self.leap = None;
        }
        rates
    }

    /// Whether a rate above the stated speed is that of the interface: no leap is of the same size twice.
    fn is_believed(&mut self, bits_per_s: f64) -> bool {
        let is_same = |leap: f64| leap.min(bits_per_s) * SAME_AGAIN >= leap.max(bits_per_s);
        let is_believed = self.leap.is_some_and(is_same) && bits_per_s <= *SPEEDS.end() as f64;
        if is_believed {
            self.believed = self.believed.max(bits_per_s * SAME_AGAIN);
        }
        self.leap = Some(bits_per_s);
        is_believed
    }

    /// Counters of an agent that has restarted: if they go on, it kept them, and our clock says for how long.
    fn compare_restarted(
        &self,
        (before, after): (&PortCounters, &PortCounters),
        at: Times,
        times: Times,
    ) -> Option<PortRates> {
        let seconds = times.arrival_ns.saturating_sub(at.arrival_ns) as f64 / 1e9;
        let speed = self.speed_bits_per_sec()? as f64 / 8.0;
        let octets = octets_between(before, after)? as f64;
        let went_on = |before: u64, after: u64| after >= before;
        let goes_on = went_on(before.in_octets, after.in_octets)
            && went_on(before.out_octets, after.out_octets);
        let is_carried = seconds > 0.0 && octets <= speed * (seconds + WAIT_S) * SPEED_SLACK;
        if goes_on && is_carried { self.difference((before, after), seconds, 0) } else { None }
    }

    /// The rates of a difference. `None` if a counter has jumped. Discards may exceed what the interface carries, because others send
    /// to it.
    fn difference(
        &self,
        (before, after): (&PortCounters, &PortCounters),
        seconds: f64,
        missed: u32,
    ) -> Option<PortRates> {
        let speed = speed_of_either(before, after);
        let bits_max = speed.max(self.believed) * SPEED_SLACK * (seconds + WAIT_S);
        let octets_max = if speed == 0.0 { u64::MAX } else { (bits_max / 8.0) as u64 };
        let input = deltas(input_of(before), input_of(after), octets_max);
        let output = deltas(output_of(before), output_of(after), octets_max);
        let mut carried = input[..4].iter().chain(&output[..4]);
        if carried.any(|one| *one == Delta::Implausible) {
            return None;
        }
        Some(PortRates {
            input: rates(&input, seconds),
            output: rates(&output, seconds),
            over_ms: (seconds * 1e3) as u32,
            since_ms: (seconds * 1e3) as u32,
            missed,
            sampled_ratio: None,
        })
    }
}

/// The higher speed that two readings state, in bits per second. 0 if neither states one.
fn speed_of_either(before: &PortCounters, after: &PortCounters) -> f64 {
    before.stated_bits_per_sec().max(after.stated_bits_per_sec()).unwrap_or(0) as f64
}

impl SampledBytes {
    /// What was sampled for each byte counted.
    fn ratio(&self, before: &PortCounters, after: &PortCounters) -> Option<f64> {
        let grew = |of: fn(&PortCounters) -> difference::Counted| match deltas(
            of(before),
            of(after),
            u64::MAX / 2,
        )[0]
        {
            Delta::Grew(octets) if octets > 0 => Some(octets as f64),
            _ => None,
        };
        match (self.input > 0.0, self.output > 0.0) {
            (true, _) => Some(self.input / grew(input_of)?),
            (false, true) => Some(self.output / grew(output_of)?),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests;
