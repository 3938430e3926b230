use super::listener::Bound;
use super::tracker::Tracker;
use super::{ListenerReport, Options, Progress};
use crate::Timeline;
use crate::rate::per_sec;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use sys::Errno;
use sys::recv::{ReceiveBatch, Wait};

/// How often to read the kernel's drop counter while datagrams arrive, so that 2^32 drops cannot pass
/// unnoticed.
const MEM_INFO_EVERY: Duration = Duration::from_millis(100);

/// Silence after the end when nothing is outstanding: only a duplicate may still arrive.
const COMPLETE_IDLE: Duration = Duration::from_millis(50);

/// Longest time to read after the end. A full buffer of 64 MiB takes a tenth of it.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Why a listener stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedBy {
    Stopped,
    Duration,
    Count,
    Done,
    Silence,
}

/// A running listener.
pub(super) struct Receiving<'a> {
    bound: &'a Bound,
    options: &'a Options,
    progress: &'a Progress,
    batch: ReceiveBatch,
    tracker: Tracker,
    timeline: Timeline,
    start_ns: u64,
    first_ns: Option<u64>,
    /// Time of the last datagram of any kind.
    last_ns: u64,
    /// Time of the last data datagram.
    last_data_ns: u64,
    kernel_dropped: u64,
    dropped_before: u32,
    mem_info_due_ns: u64,
    receive_errors: u64,
}

impl<'a> Receiving<'a> {
    pub(super) fn start(
        bound: &'a Bound,
        options: &'a Options,
        progress: &'a Progress,
    ) -> Receiving<'a> {
        let start_ns = sys::clock::monotonic_ns();
        Receiving {
            bound,
            options,
            progress,
            batch: ReceiveBatch::default(),
            tracker: Tracker::new(options),
            timeline: Timeline::default(),
            start_ns,
            first_ns: None,
            last_ns: start_ns,
            last_data_ns: start_ns,
            kernel_dropped: 0,
            dropped_before: bound.dropped_at_bind,
            mem_info_due_ns: start_ns,
            receive_errors: 0,
        }
    }

    pub(super) fn until_end(&mut self, stop: &AtomicBool) -> EndedBy {
        loop {
            if stop.load(Ordering::Relaxed) {
                return EndedBy::Stopped;
            }

            self.receive(Wait::ForOne);
            let now_ns = sys::clock::monotonic_ns();
            if now_ns >= self.mem_info_due_ns {
                self.mem_info_due_ns = now_ns + MEM_INFO_EVERY.as_nanos() as u64;
                self.read_kernel_drops();
            }

            if let Some(ended_by) = self.is_over(now_ns) {
                return ended_by;
            }

            if !self.options.read_interval.is_zero() {
                thread::sleep(self.options.read_interval);
            }
        }
    }

    fn is_over(&self, now_ns: u64) -> Option<EndedBy> {
        let until = &self.options.until;
        let since = |then_ns: u64| Duration::from_nanos(now_ns.saturating_sub(then_ns));

        if until.duration.is_some_and(|duration| since(self.start_ns) >= duration) {
            return Some(EndedBy::Duration);
        }
        if until.count.is_some_and(|count| self.tracker.counts.received >= count) {
            return Some(EndedBy::Count);
        }

        let done = until.done.as_ref()?;
        let quiet = since(self.last_ns);
        let counts = &self.tracker.counts;
        let is_complete = counts.missing() == 0 && counts.heartbeats >= counts.heartbeats_expected;
        let idle = if is_complete { done.idle.min(COMPLETE_IDLE) } else { done.idle };

        if quiet >= idle && self.tracker.has_ended(done.runs) {
            return Some(EndedBy::Done);
        }
        (self.first_ns.is_some() && quiet >= done.silence).then_some(EndedBy::Silence)
    }

    /// Reads the queue to its end.
    pub(super) fn drain(&mut self) {
        let until_ns = sys::clock::monotonic_ns() + DRAIN_MAX.as_nanos() as u64;
        while self.receive(Wait::No) && sys::clock::monotonic_ns() < until_ns {}
        self.read_kernel_drops();
        self.progress.publish(&self.tracker.counts, self.kernel_dropped);
    }

    /// Receives one batch; returns whether the socket may have more.
    fn receive(&mut self, wait: Wait) -> bool {
        match self.batch.receive(self.bound.socket.as_fd(), wait) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return false,
            Err(Errno::INTR) => return true,
            Err(_) => {
                self.receive_errors += 1;
                return true;
            }
        }

        let realtime_ns = sys::clock::realtime_ns();
        let now_ns = sys::clock::monotonic_ns();
        let data_before = self.tracker.counts.received;

        for datagram in self.batch.datagrams() {
            if datagram.truncated {
                self.tracker.observe_truncated(datagram.bytes());
            } else {
                self.tracker.observe(datagram.bytes(), realtime_ns);
            }
        }

        let first_ns = *self.first_ns.get_or_insert(now_ns);
        self.last_ns = now_ns;
        let data = self.tracker.counts.received - data_before;
        if data > 0 {
            self.last_data_ns = now_ns;
            self.timeline.add(now_ns - first_ns, data);
        }

        self.progress.publish(&self.tracker.counts, self.kernel_dropped);
        true
    }

    fn read_kernel_drops(&mut self) {
        // It cannot fail on an open socket; if it does, the next reading includes the difference.
        if let Ok(info) = sys::socket::mem_info(self.bound.socket.as_fd()) {
            let delta = info.dropped_datagrams.wrapping_sub(self.dropped_before);
            self.kernel_dropped += u64::from(delta);
            self.dropped_before = info.dropped_datagrams;
        }
    }

    pub(super) fn finish(self, ended_by: EndedBy) -> Finished {
        let elapsed_ns = self.last_data_ns.saturating_sub(self.first_ns.unwrap_or(u64::MAX));
        Finished {
            listen: self.bound.address.to_string(),
            receive_buffer_bytes: self.bound.receive_buffer_bytes,
            tracker: self.tracker,
            ended_by,
            kernel_dropped: self.kernel_dropped,
            receive_errors: self.receive_errors,
            elapsed: Duration::from_nanos(elapsed_ns),
            thread_cpu: Duration::from_nanos(sys::clock::thread_cpu_ns()),
            timeline: self.timeline,
        }
    }
}

/// What a stopped listener received.
pub(super) struct Finished {
    listen: String,
    receive_buffer_bytes: usize,
    pub(super) tracker: Tracker,
    ended_by: EndedBy,
    kernel_dropped: u64,
    receive_errors: u64,
    elapsed: Duration,
    thread_cpu: Duration,
    timeline: Timeline,
}

impl Finished {
    /// Whether it should have seen the end of every run. One that stopped at a count should not.
    pub(super) fn should_know_ends(&self) -> bool {
        self.ended_by != EndedBy::Count
    }

    pub(super) fn report(self, options: &Options) -> ListenerReport {
        let counts = self.tracker.counts.clone();
        let runs = self.tracker.run_reports();

        let faults = counts.missing()
            + counts.duplicate
            + counts.corrupt
            + counts.truncated
            + counts.beyond_window;

        let waited_in_vain = match &options.until.done {
            Some(done) => !self.tracker.has_ended(done.runs),
            None => false,
        };

        ListenerReport {
            listen: self.listen,
            clean: faults == 0 && counts.received > 0 && !waited_in_vain,
            ended_by: self.ended_by.name(),
            missing: counts.missing(),
            kernel_dropped: self.kernel_dropped,
            receive_errors: self.receive_errors,
            receive_buffer_asked_bytes: options.receive_buffer_bytes,
            receive_buffer_bytes: self.receive_buffer_bytes,
            elapsed_seconds: self.elapsed.as_secs_f64(),
            datagrams_per_sec: per_sec(counts.received, counts.received, self.elapsed),
            bits_per_sec: per_sec(counts.bytes, counts.received, self.elapsed) * 8.0,
            latency: self.tracker.latencies.report(),
            thread_cpu_seconds: self.thread_cpu.as_secs_f64(),
            timeline: self.timeline,
            runs,
            counts,
        }
    }
}

impl EndedBy {
    fn name(self) -> &'static str {
        match self {
            EndedBy::Stopped => "stopped",
            EndedBy::Duration => "duration",
            EndedBy::Count => "count",
            EndedBy::Done => "done",
            EndedBy::Silence => "silence",
        }
    }
}
