use crate::{LatencyReport, Timeline};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a listener has received, every datagram in exactly one of: `received`, `duplicate`, `beyond_window`, `corrupt`,
/// `truncated`, `foreign`, `heartbeats`, `untracked`. (A heartbeat of an untracked stream counts as a heartbeat.)
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Data datagrams sent, as far as sequence numbers and heartbeats show.
    pub expected: u64,
    /// Distinct data datagrams that arrived intact.
    pub received: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Data datagrams that had already arrived.
    pub duplicate: u64,
    /// Data datagrams in `received` that arrived after one with a higher sequence number.
    pub reordered: u64,
    /// Largest distance in sequence numbers between a reordered datagram and the highest one before it.
    pub reorder_extent_max: u64,
    /// Data datagrams so far behind that the window cannot tell whether they are duplicates. They remain in `missing`.
    pub beyond_window: u64,
    /// Changed on the way. Their sequence numbers are missing.
    pub corrupt: u64,
    /// Shorter than sent, or larger than the receive buffer. Their sequence numbers are missing.
    pub truncated: u64,
    /// Without check data.
    pub foreign: u64,
    /// Data datagrams in `received` older than the limit.
    pub late: u64,
    /// Data datagrams in `received` with a timestamp later than their arrival: the clocks differ, or one was set.
    pub from_future: u64,
    /// Heartbeats, not in any other count.
    pub heartbeats: u64,
    /// Heartbeats sent, as far as the datagrams of each stream show.
    pub heartbeats_expected: u64,
    /// Their payload bytes.
    pub heartbeat_bytes: u64,
    /// Data datagrams of streams beyond the limit.
    pub untracked: u64,
    /// Bytes of everything that was read.
    pub all_bytes: u64,
}

impl Counts {
    /// Data datagrams that were sent and have not arrived intact.
    pub fn missing(&self) -> u64 {
        self.expected - self.received
    }

    /// Everything that was read from the socket.
    pub fn all_datagrams(&self) -> u64 {
        self.received
            + self.duplicate
            + self.beyond_window
            + self.corrupt
            + self.truncated
            + self.foreign
            + self.heartbeats
            + self.untracked
    }

    pub(super) fn add(&mut self, other: &Counts) {
        self.expected = self.expected.saturating_add(other.expected);
        self.received += other.received;
        self.bytes += other.bytes;
        self.duplicate += other.duplicate;
        self.reordered += other.reordered;
        self.reorder_extent_max = self.reorder_extent_max.max(other.reorder_extent_max);
        self.beyond_window += other.beyond_window;
        self.corrupt += other.corrupt;
        self.truncated += other.truncated;
        self.foreign += other.foreign;
        self.late += other.late;
        self.from_future += other.from_future;
        self.heartbeats += other.heartbeats;
        self.heartbeats_expected += other.heartbeats_expected;
        self.heartbeat_bytes += other.heartbeat_bytes;
        self.untracked += other.untracked;
        self.all_bytes += other.all_bytes;
    }
}

/// One listener's counts so far, for a caller that displays progress. Each is correct by itself; together they may be a batch
/// apart.
#[derive(Debug, Default)]
pub struct Progress {
    /// Distinct data datagrams that arrived intact.
    pub received: AtomicU64,
    /// Data datagrams known to have been sent that have not arrived.
    pub missing: AtomicU64,
    /// Duplicate, corrupt, truncated and foreign datagrams.
    pub faulty: AtomicU64,
    /// Datagrams that the kernel dropped at this listener's socket.
    pub kernel_dropped: AtomicU64,
}

impl Progress {
    pub(super) fn publish(&self, counts: &Counts, kernel_dropped: u64) {
        self.received.store(counts.received, Ordering::Relaxed);
        self.missing.store(counts.missing(), Ordering::Relaxed);
        let faulty = counts.duplicate + counts.corrupt + counts.truncated + counts.foreign;
        self.faulty.store(faulty, Ordering::Relaxed);
        self.kernel_dropped.store(kernel_dropped, Ordering::Relaxed);
    }
}

/// What all listeners received.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether something arrived on every listener, nothing is missing, duplicate, corrupt or truncated, and every sender that
    /// was waited for has announced its end.
    pub clean: bool,
    /// The sum over all listeners.
    pub total: Counts,
    /// `total.expected - total.received`.
    pub missing: u64,
    /// Datagrams, including heartbeats, that the kernel dropped at our own sockets.
    pub kernel_dropped: u64,
    pub listeners: Vec<ListenerReport>,
}

impl Report {
    pub(super) fn new(listeners: Vec<ListenerReport>) -> Report {
        let mut total = Counts::default();
        listeners.iter().for_each(|listener| total.add(&listener.counts));
        Report {
            clean: listeners.iter().all(|listener| listener.clean),
            missing: total.missing(),
            total,
            kernel_dropped: listeners.iter().map(|listener| listener.kernel_dropped).sum(),
            listeners,
        }
    }
}

/// What one listener received.
#[derive(Clone, Debug, Serialize)]
pub struct ListenerReport {
    pub listen: String,
    /// See [`Report::clean`].
    pub clean: bool,
    /// Why it stopped: `stopped`, `duration`, `count`, `done`, or `silence`.
    pub ended_by: &'static str,
    pub counts: Counts,
    /// `counts.expected - counts.received`.
    pub missing: u64,
    /// Datagrams, including heartbeats, that the kernel dropped at this socket from bind to close. The kernel counts modulo
    /// 2^32; the differences are added up here.
    pub kernel_dropped: u64,
    /// Errors of receive calls.
    pub receive_errors: u64,
    pub receive_buffer_asked_bytes: usize,
    pub receive_buffer_bytes: usize,
    /// From the first datagram to the last data datagram.
    pub elapsed_seconds: f64,
    /// Distinct data datagrams over that time.
    pub datagrams_per_sec: f64,
    pub bits_per_sec: f64,
    /// From the timestamp in the datagram to the return of the receive call.
    pub latency: LatencyReport,
    /// CPU time of this listener's thread.
    pub thread_cpu_seconds: f64,
    /// Distinct data datagrams over time.
    pub timeline: Timeline,
    pub runs: Vec<RunReport>,
}

/// One run of a generator, as seen by one listener.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// 16 hexadecimal digits.
    pub run: String,
    /// Streams to this target, according to its heartbeats; 0 if none arrived.
    pub streams_announced: u16,
    pub streams_seen: usize,
    /// Streams that announced their end. Whether the last datagrams of the others are missing is unknown.
    pub streams_ended: usize,
    pub senders: Vec<SenderReport>,
    /// Ranges of missing sequence numbers, as far as the window reaches back; the first 32.
    pub gaps: Vec<Gap>,
    pub gaps_omitted: u64,
}

/// One sending thread of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SenderReport {
    pub sender: u16,
    pub streams: usize,
    pub expected: u64,
    pub received: u64,
    pub missing: u64,
    pub duplicate: u64,
    pub reordered: u64,
    pub beyond_window: u64,
}

/// A range of missing sequence numbers of a stream, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    pub sender: u16,
    pub flow: u16,
    pub first: u64,
    pub last: u64,
}
