//! Turns counters into rates: handles wraps, restarts and missing counters.

/// How a counter wraps. All ones mean that the agent does not have the counter (sFlow version 5, section 5.3, "unknown counter").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    /// Wraps at 2^32.
    Bits32,
    /// Wraps at 2^64.
    Bits64,
}

/// The difference between two readings of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delta {
    /// It grew by this much.
    Grew(u64),
    /// The agent does not have it.
    Absent,
    /// It cannot have grown by that much in the time: the agent restarted without saying so.
    Implausible,
}

/// The difference between two readings. `max` is the most by which the counter can have grown in between.
pub(crate) fn delta(width: Width, before: u64, after: u64, max: u64) -> Delta {
    let absent = match width {
        Width::Bits32 => u64::from(u32::MAX),
        Width::Bits64 => u64::MAX,
    };
    if before == absent || after == absent {
        return Delta::Absent;
    }
    let grew = after.wrapping_sub(before) & absent;
    if grew <= max { Delta::Grew(grew) } else { Delta::Implausible }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        let check = |width, before, after, max, expected| {
            assert_eq!(delta(width, before, after, max), expected, "{before} {after}");
        };
        check(Width::Bits32, 5, 9, 100, Delta::Grew(4));
        check(Width::Bits32, 5, 5, 0, Delta::Grew(0));
        check(Width::Bits32, 0xffff_fffe, 3, 100, Delta::Grew(5));
        check(Width::Bits32, 9, 5, 1_000, Delta::Implausible);
        check(Width::Bits32, 0xffff_ffff, 5, 100, Delta::Absent);
        check(Width::Bits32, 5, 0xffff_ffff, u64::MAX, Delta::Absent);
        check(Width::Bits64, u64::MAX - 1, 1, 100, Delta::Grew(3));
        check(Width::Bits64, 0xffff_fffe, 0x1_0000_0000, 100, Delta::Grew(2));
        check(Width::Bits64, 5, u64::MAX, u64::MAX, Delta::Absent);
        check(Width::Bits64, 1 << 40, 7, 1 << 50, Delta::Implausible);
    }
}
