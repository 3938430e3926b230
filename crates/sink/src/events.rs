use ledger::{EventCounter, HopBuilder};
use sys::Errno;

/// What a sink's thread and destination count outside the law.
#[derive(Debug, Default)]
pub struct Events {
    /// Attempts that failed: writes, sends, opens.
    errors: EventCounter,
    /// Number of the last error; 0: none.
    last_errno: EventCounter,
    /// Times that payloads were kept to be tried again.
    pub(crate) retries: EventCounter,
    /// Times that a file was put aside and a next one begun.
    pub(crate) rotations: EventCounter,
    /// Times that a file was opened because its path led elsewhere: somebody had moved or removed it.
    pub(crate) reopens: EventCounter,
    /// Datagrams that the network gave back after they were counted as delivered: at least so many were lost there.
    pub(crate) returned_datagrams: EventCounter,
    /// 1 while the network gives back what it is sent.
    pub(crate) gives_back: EventCounter,
    /// Largest datagram that the path takes, in bytes of UDP payload; 0 for other destinations.
    pub(crate) datagram_limit_bytes: EventCounter,
}

impl Events {
    pub(crate) fn count_error(&self, errno: Errno) {
        self.errors.add(1);
        self.last_errno.set(u64::from(errno.0.unsigned_abs()));
    }

    pub(crate) fn add_to(&self, hop: HopBuilder) -> HopBuilder {
        let mut hop = hop
            .event("errors", self.errors.load())
            .event("retries", self.retries.load())
            .event("rotations", self.rotations.load())
            .event("reopens", self.reopens.load())
            .event("returned_datagrams", self.returned_datagrams.load());
        for (name, gauge) in
            [("last_errno", &self.last_errno), ("datagram_limit_bytes", &self.datagram_limit_bytes)]
        {
            if gauge.load() > 0 {
                hop = hop.gauge(name, gauge.load());
            }
        }
        hop
    }
}
