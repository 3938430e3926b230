//! When the sender acts without outside input.

use super::Sender;

/// How long the sender waits for a new datagram before it announces the floor in a packet of its own, in nanoseconds. A new
/// datagram's packet would carry the floor.
const QUIET_NS: u64 = 200_000_000;

/// Longest time between two floor packets, in nanoseconds.
const FLOOR_PAUSE_NS: u64 = 1_000_000_000;

/// Shortest silence, while packets are unreported, after which the sender stops sending, in nanoseconds.
const SILENCE_NS: u64 = 3_000_000_000;

/// Consecutive timeouts that are normal on a lossy path.
const SILENCES_USUAL: u32 = 4;

/// Shortest such silence in patience intervals: the longer of the two limits counts.
const SILENCE_PATIENCES: u64 = 10;

impl Sender {
    /// When the floor is due in a packet of its own.
    pub(super) fn floor_due_ns(&self) -> u64 {
        // There is nothing to announce, or something in flight will carry the floor.
        if self.settled == 0 || self.settled < self.items.len() {
            return u64::MAX;
        }
        match self.floor_said_ns {
            None if self.is_draining => 0,
            None => self.last_new_ns + QUIET_NS,
            // Each repeat waits twice as long for an answer.
            Some(said_ns) => {
                let patience_ns = self.round_trip.patience_ns() + self.peer_interval_ns;
                said_ns + (patience_ns << self.floor_repeats.min(16)).min(FLOOR_PAUSE_NS)
            }
        }
    }

    /// When the sender next has to act without outside input.
    pub(super) fn due_ns(&self, now_ns: u64) -> u64 {
        let timer_ns = self.timer_ns(now_ns).unwrap_or(u64::MAX);
        timer_ns.min(self.next_expiry_ns()).min(self.floor_due_ns())
    }

    pub(super) fn next_expiry_ns(&self) -> u64 {
        self.items.get(self.settled).map_or(u64::MAX, |item| item.expires_ns)
    }

    /// When the oldest unreported packet counts as lost.
    pub(super) fn timer_ns(&self, now_ns: u64) -> Option<u64> {
        let oldest_ns = self.sent.oldest_open_ns()?;
        let patience_ns = self.patience_ns();
        // While reports arrive, they decide.
        let interval_ns = self.peer_interval_ns;
        let is_streaming = now_ns.saturating_sub(self.last_sent_ns) < interval_ns;
        let guard_ns = if is_streaming { 4 * interval_ns } else { interval_ns + 500_000 };
        Some((oldest_ns + patience_ns).max(self.last_report_ns + guard_ns))
    }

    /// How long to wait for an answer to a packet. After several timeouts the time doubles with each further one: the path may be
    /// dead, and no report says how much of what is sent is lost.
    pub(super) fn patience_ns(&self) -> u64 {
        let patience_ns = self.round_trip.patience_ns() + self.peer_interval_ns;
        patience_ns << self.silences.saturating_sub(SILENCES_USUAL).min(10)
    }

    /// Whether the receiver has been silent for so long that the sender stops. The caller then sends a hello now and then.
    pub fn is_unanswered(&self, now_ns: u64) -> bool {
        let patience_ns = self.round_trip.patience_ns() + self.peer_interval_ns;
        let silence_ns = SILENCE_NS.max(SILENCE_PATIENCES * patience_ns);
        self.unanswered_since_ns.is_some_and(|since_ns| now_ns >= since_ns + silence_ns)
    }
}
