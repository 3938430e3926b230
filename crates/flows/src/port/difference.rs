//! The differences between two readings of an interface's counters.

use super::{PortCounters, Rates};
use crate::counter::{Delta, Width, delta};

/// Smallest Ethernet frame, in octets as counters count them.
pub(super) const FRAME_OCTETS_MIN: u64 = 60;

/// An interface's counters in one direction: octets; and frames by unicast, multicast, broadcast, discarded, broken.
pub(super) type Counted = (u64, [u32; 5]);

pub(super) fn input_of(of: &PortCounters) -> Counted {
    let frames = [
        of.in_ucast_packets,
        of.in_multicast_packets,
        of.in_broadcast_packets,
        of.in_discards,
        of.in_errors,
    ];
    (of.in_octets, frames)
}

pub(super) fn output_of(of: &PortCounters) -> Counted {
    let frames = [
        of.out_ucast_packets,
        of.out_multicast_packets,
        of.out_broadcast_packets,
        of.out_discards,
        of.out_errors,
    ];
    (of.out_octets, frames)
}

/// Differences of octets, and of frames of five kinds.
pub(super) fn deltas(before: Counted, after: Counted, octets_max: u64) -> [Delta; 6] {
    let octets = match delta(Width::Bits64, before.0, after.0, octets_max) {
        Delta::Implausible if is_wrap_of_32_bits(before, after) => {
            delta(Width::Bits32, before.0, after.0, octets_max)
        }
        delta => delta,
    };
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
pub(super) fn rates(deltas: &[Delta; 6], seconds: f64) -> Rates {
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

/// Whether octets went back because the agent counts them with 32 bits: no frame counter went back with them, as all do at a
/// restart.
fn is_wrap_of_32_bits(before: Counted, after: Counted) -> bool {
    let is_narrow = before.0 < u64::from(u32::MAX) && after.0 < before.0;
    let went_on = |(before, after): (&u32, &u32)| before <= after;
    let has_frames = before.1.iter().any(|one| *one != 0 && *one != u32::MAX);
    is_narrow && has_frames && before.1[..3].iter().zip(&after.1[..3]).all(went_on)
}

/// The larger of the differences of octets in and out, if any is known and none went back.
pub(super) fn octets_between(before: &PortCounters, after: &PortCounters) -> Option<u64> {
    let both = [(input_of(before), input_of(after)), (output_of(before), output_of(after))];
    let deltas = both.map(|(before, after)| deltas(before, after, u64::MAX / 2)[0]);
    let mut most = None;
    for delta in deltas {
        match delta {
            Delta::Grew(octets) => most = most.max(Some(octets)),
            Delta::Absent => {}
            Delta::Implausible => return None,
        }
    }
    most
}
