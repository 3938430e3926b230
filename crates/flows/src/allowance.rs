//! How much a sampler's samples may stand for: what its interface can carry.
//!
//! A sample says itself how many frames it stands for, and how long they are. Nothing proves either. But an interface carries no
//! more than its speed, so a sampler has an allowance that grows with the time, and a sample that claims more than is left of it
//! stands for what is left.

/// Speed of an interface that states none, in bits per second: that of the fastest ports in common use.
pub const SPEED_BITS_PER_SEC: u64 = 400_000_000_000;

/// Longest frame that a sample can be of, in bytes: the longest that Linux hands to a device (`GSO_MAX_SIZE`,
/// include/linux/netdevice.h). A sample on the wire has less than 10,000.
pub const FRAME_BYTES_MAX: u32 = 524_280;

/// An allowance is this multiple of the speed: two directions that share a sampler, and a fifth for chance and wrong clocks.
const SLACK: f64 = 2.4;
/// Largest allowance, as time at the full rate, in seconds. Samples arrive late and together (an agent may hold them for a
/// second), and a slow interface that is sampled rarely has seconds between two samples.
const DEPTH_S: f64 = 10.0;
/// The allowance of a sampler that was never heard before, in bytes: 100 ms at the usual speed. At 1 in 65,536 frames of 9,216
/// bytes, a sample stands for 0.6 GB.
const FIRST_BYTES: f64 = SPEED_BITS_PER_SEC as f64 / 8.0 * 0.1;
/// A frame's least bytes, and the bytes between two frames (IEEE 802.3: preamble, delimiter and gap).
const LEAST_BYTES: u32 = 64;
const GAP_BYTES: u32 = 20;

/// What a sampler may still claim.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    bytes: f64,
    /// When it last grew. 0 before the first sample.
    at_ns: u64,
}

impl Allowance {
    /// Takes what a sample of a frame of `frame_bytes` claims, and returns how many frames that are allowed. `speed` says that of
    /// the interface, in bits per second, if it is known.
    #[inline]
    pub(crate) fn take(
        &mut self,
        frames: f64,
        frame_bytes: u32,
        now_ns: u64,
        speed: impl FnOnce() -> Option<u64>,
    ) -> f64 {
        let now_ns = now_ns.max(1);
        // Samples of one datagram come at one moment. Threads that hand over datagrams may overtake one another.
        if now_ns > self.at_ns {
            self.grow(speed(), now_ns);
        }

        let each = f64::from(frame_bytes.max(LEAST_BYTES).saturating_add(GAP_BYTES));
        let claimed = frames * each;
        if claimed <= self.bytes {
            self.bytes -= claimed;
            return frames;
        }
        std::mem::take(&mut self.bytes) / each
    }

    fn grow(&mut self, speed: Option<u64>, now_ns: u64) {
        let rate = speed.unwrap_or(SPEED_BITS_PER_SEC) as f64 / 8.0 * SLACK;
        let grown = match self.at_ns {
            0 => FIRST_BYTES,
            at_ns => self.bytes + (now_ns - at_ns) as f64 / 1e9 * rate,
        };
        self.bytes = grown.min(rate * DEPTH_S);
        self.at_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const GBIT: u64 = 1_000_000_000;

    /// Bytes of 1,480-byte frames that samples claiming 2³⁰ of them each get, `each_ns` apart.
    fn claimed(samples: u64, each_ns: u64, speed: Option<u64>) -> f64 {
        let mut allowance = Allowance::default();
        let take =
            |at| allowance.take(f64::from(1 << 30), 1_480, SECOND_NS + at * each_ns, || speed);
        (0..samples).map(take).sum::<f64>() * 1_500.0
    }

    #[test]
    fn a_first_sample_claims_no_more_than_100_ms_of_a_fast_interface() {
        let first = claimed(1, 0, None);
        assert!((first / 5e9 - 1.0).abs() < 1e-9, "{first}");
        assert_eq!(claimed(1_000, 0, None), first);
    }

    #[test]
    fn later_ones_claim_no_more_than_the_interface_carried_meanwhile() {
        // 100 samples over 9.9 s.
        let all = claimed(100, SECOND_NS / 10, Some(10 * GBIT)) - 5e9;
        assert!((all / (10e9 / 8.0 * 2.4 * 9.9) - 1.0).abs() < 1e-9, "{all}");
        // An hour of silence counts as ten seconds.
        let after = claimed(2, 3_600 * SECOND_NS, Some(10 * GBIT)) - 5e9;
        assert!((after / (10e9 / 8.0 * 2.4 * 10.0) - 1.0).abs() < 1e-9, "{after}");
    }

    #[test]
    fn what_an_interface_carries_is_never_cut() {
        for (speed, frame_bytes, sampling_rate) in
            [(Some(GBIT), 64, 100.0), (Some(10 * GBIT), 1_500, 1_000.0), (None, 9_000, 65_536.0)]
        {
            let mut allowance = Allowance::default();
            let rate = speed.unwrap_or(SPEED_BITS_PER_SEC) as f64 / 8.0;
            let each_s = sampling_rate * f64::from(frame_bytes + GAP_BYTES) / rate;
            // Five samples at a time.
            for datagram in 1..10_000 {
                let now_ns = SECOND_NS + (f64::from(datagram) * 5.0 * each_s * 1e9) as u64;
                for _ in 0..5 {
                    let frames = allowance.take(sampling_rate, frame_bytes, now_ns, || speed);
                    assert_eq!(frames, sampling_rate, "{speed:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_claims_nothing() {
        let mut allowance = Allowance::default();
        assert!(allowance.take(f64::NAN, 100, SECOND_NS, || None) <= 5e9);
        assert_eq!(allowance.take(f64::INFINITY, u32::MAX, 2 * SECOND_NS, || Some(0)), 0.0);
        assert!(allowance.take(1.0, 100, 1, || None).is_finite());
    }
}
