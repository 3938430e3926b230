use ledger::{Event, EventCounter, Gauge, HopBuilder};
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
    /// Times that a file was opened because its path led elsewhere: it had been moved or removed.
    pub(crate) reopens: EventCounter,
    /// Datagrams that the network gave back after they were counted as delivered: the network lost at least these.
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
            .event(Event::Errors, self.errors.load())
            .event(Event::Retries, self.retries.load())
            .event(Event::Rotations, self.rotations.load())
            .event(Event::Reopens, self.reopens.load())
            .event(Event::ReturnedDatagrams, self.returned_datagrams.load());

        for (gauge, value) in [
            (Gauge::LastErrno, &self.last_errno),
            (Gauge::DatagramLimitBytes, &self.datagram_limit_bytes),
        ] {
            if value.load() > 0 {
                hop = hop.gauge(gauge, value.load());
            }
        }
        hop
    }
}
