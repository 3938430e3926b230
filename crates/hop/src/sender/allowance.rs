//! Sending limits: a rate for everything, and a share of the new bytes for repairs.

/// Minimum burst, in bytes.
const BURST_BYTES_MIN: u64 = 64 * 1024;

/// Minimum burst of repairs, in packets.
const REPAIR_BURST_PACKETS: u64 = 200;

/// Time over which new bytes build up repair allowance, in nanoseconds. Packets in flight when new datagrams stop must still be
/// repairable.
const REPAIR_KEPT_NS: u64 = 1_000_000_000;

/// One token bucket that fills with time, and one that fills with bytes sent for the first time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    bytes_per_sec: u64,
    /// Resent bytes allowed per 100 new bytes.
    repair_percent: u64,
    burst_bytes: u64,
    /// Bytes that may leave now. At 0 or below, nothing leaves.
    left_bytes: i64,
    /// Fraction of a byte left after the last refill, in byte nanoseconds.
    rest: u64,
    filled_ns: u64,
    repair_bytes: u64,
    repair_bytes_min: u64,
    /// New bytes in this second and in the one before, and when this second began.
    new_bytes: [u64; 2],
    since_ns: u64,
}

impl Allowance {
    pub(super) fn new(
        bytes_per_sec: u64,
        repair_percent: u32,
        packet_bytes: usize,
        now_ns: u64,
    ) -> Allowance {
        let burst_bytes = (bytes_per_sec / 100).max(BURST_BYTES_MIN);
        let repair_bytes_min = REPAIR_BURST_PACKETS * packet_bytes as u64;
        Allowance {
            bytes_per_sec: bytes_per_sec.max(1),
            repair_percent: repair_percent.into(),
            burst_bytes,
            left_bytes: burst_bytes.cast_signed(),
            rest: 0,
            filled_ns: now_ns,
            repair_bytes: if repair_percent > 0 { repair_bytes_min } else { 0 },
            repair_bytes_min,
            new_bytes: [0; 2],
            since_ns: now_ns,
        }
    }

    /// Changes the rate from now on.
    pub(super) fn set_rate(&mut self, now_ns: u64, bytes_per_sec: u64) {
        self.fill(now_ns);
        self.bytes_per_sec = bytes_per_sec.max(1);
    }

    pub(super) fn fill(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.filled_ns).min(1_000_000_000);
        self.filled_ns = self.filled_ns.max(now_ns);
        if now_ns >= self.since_ns + REPAIR_KEPT_NS {
            (self.new_bytes, self.since_ns) = ([0, self.new_bytes[0]], now_ns);
        }
        let gained =
            u128::from(elapsed_ns) * u128::from(self.bytes_per_sec) + u128::from(self.rest);
        self.rest = (gained % 1_000_000_000) as u64;
        let bytes = i64::try_from(gained / 1_000_000_000).unwrap_or(i64::MAX);
        self.left_bytes = self.left_bytes.saturating_add(bytes).min(self.burst_bytes.cast_signed());
    }

    /// Whether a packet may leave.
    pub(super) fn is_open(&self) -> bool {
        self.left_bytes > 0
    }

    /// When a packet may leave next, if none leaves until then.
    pub(super) fn opens_ns(&self) -> u64 {
        let missing = u128::from((1 - self.left_bytes).max(0).unsigned_abs());
        let wait_ns = (missing * 1_000_000_000).div_ceil(u128::from(self.bytes_per_sec));
        self.filled_ns + u64::try_from(wait_ns).unwrap_or(u64::MAX / 2)
    }

    /// Whether `bytes` may be resent.
    pub(super) fn allows_repair(&self, bytes: u64) -> bool {
        self.repair_bytes >= bytes
    }

    pub(super) fn take_new(&mut self, bytes: u64) {
        self.left_bytes -= bytes.cast_signed();
        self.new_bytes[0] += bytes;
        let share = |bytes: u64| bytes * self.repair_percent / 100;
        let most = share(self.new_bytes[0].max(self.new_bytes[1])).max(self.repair_bytes_min);
        self.repair_bytes = (self.repair_bytes + share(bytes)).min(most);
    }

    pub(super) fn take_repair(&mut self, bytes: u64) {
        self.left_bytes -= bytes.cast_signed();
        self.repair_bytes = self.repair_bytes.saturating_sub(bytes);
    }

    /// Accounts for a packet that is neither new nor a repair: a floor.
    pub(super) fn take_other(&mut self, bytes: u64) {
        self.left_bytes -= bytes.cast_signed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_leaves_than_the_rate_and_a_burst() {
        let mut allowance = Allowance::new(1_000_000, 50, 1_000, 0);
        let mut sent = 0;
        for now_ms in 0..1_000 {
            allowance.fill(now_ms * 1_000_000);
            while allowance.is_open() {
                allowance.take_new(1_000);
                sent += 1_000;
            }
        }
        assert!((1_000_000..=1_000_000 + BURST_BYTES_MIN + 1_000).contains(&sent), "{sent}");
        let opens_ns = allowance.opens_ns();
        allowance.fill(opens_ns - 2_000);
        assert!(!allowance.is_open());
        allowance.fill(opens_ns);
        assert!(allowance.is_open());
    }

    #[test]
    fn repairs_are_half_of_what_is_new_and_a_burst() {
        let mut allowance = Allowance::new(u64::MAX / 4, 50, 1_000, 0);
        let mut again = 0;
        for _ in 0..10_000 {
            allowance.take_new(1_000);
            while allowance.allows_repair(1_000) {
                allowance.take_repair(1_000);
                again += 1;
            }
        }
        // The bucket is full at the start.
        assert_eq!(again, 200 + 4_999);

        // The allowance of the last second remains when nothing new comes.
        let mut at_once = 0;
        (0..10_000).for_each(|_| allowance.take_new(1_000));
        while allowance.allows_repair(1_000) {
            allowance.take_repair(1_000);
            at_once += 1;
        }
        assert_eq!(at_once, 5_000);
        let none = Allowance::new(1, 0, 1_000, 0);
        assert!(!none.allows_repair(1));
    }
}
