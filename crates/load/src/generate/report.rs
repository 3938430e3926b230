use super::Options;
use super::sender::Sender;
use crate::LatencyReport;
use crate::latency::Latencies;
use crate::rate::per_sec;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use sys::Errno;

/// Progress of a run, for a caller that displays it.
#[derive(Default, Debug)]
pub struct Progress {
    /// Data datagrams accepted by the kernel.
    pub sent_datagrams: AtomicU64,
    /// Slots abandoned because the kernel refused the datagram.
    pub failed_datagrams: AtomicU64,
}

/// How often each error occurred, by its name in errno(3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ErrorCounts(BTreeMap<String, u64>);

impl ErrorCounts {
    pub(super) fn add(&mut self, errno: Errno) {
        *self.0.entry(name(errno)).or_default() += 1;
    }

    fn add_all(&mut self, other: &ErrorCounts) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }

    /// Names and counts, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

fn name(errno: Errno) -> String {
    let name = match errno {
        Errno::AGAIN => "EAGAIN",
        Errno::CONNREFUSED => "ECONNREFUSED",
        Errno::HOSTUNREACH => "EHOSTUNREACH",
        Errno::NETUNREACH => "ENETUNREACH",
        Errno::NETDOWN => "ENETDOWN",
        Errno::NOBUFS => "ENOBUFS",
        Errno::PERM => "EPERM",
        Errno::ACCES => "EACCES",
        Errno::MSGSIZE => "EMSGSIZE",
        Errno::INVAL => "EINVAL",
        Errno::IO => "EIO",
        Errno::NOTCONN => "ENOTCONN",
        Errno::DESTADDRREQ => "EDESTADDRREQ",
        Errno::NOENT => "ENOENT",
        Errno::CONNRESET => "ECONNRESET",
        Errno::NOMEM => "ENOMEM",
        Errno::PIPE => "EPIPE",
        Errno(other) => return format!("errno {other}"),
    };
    name.to_owned()
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The run id, 16 hexadecimal digits.
    pub run: String,
    /// From the start to the last data datagram; the end heartbeats follow later.
    pub elapsed_seconds: f64,
    /// Data datagrams accepted by the kernel.
    pub sent_datagrams: u64,
    /// Their payload bytes.
    pub sent_bytes: u64,
    /// Heartbeats accepted by the kernel; a relay counts `sent_datagrams + heartbeats`.
    pub heartbeats: u64,
    /// Their payload bytes.
    pub heartbeat_bytes: u64,
    /// Slots abandoned because the kernel refused the datagram permanently; not in `sent_datagrams`.
    pub failed_datagrams: u64,
    /// Slots due before the end that were not reached, because the sender was too slow.
    pub slots_behind: u64,
    pub datagrams_per_sec: f64,
    pub bits_per_sec: f64,
    /// How late slots were sent; empty for unpaced runs.
    pub lateness: LatencyReport,
    /// CPU time of the process, including anything else that it did.
    pub process_cpu_seconds: f64,
    pub targets: Vec<TargetReport>,
}

/// What was sent to one target.
#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    pub to: String,
    pub sent_datagrams: u64,
    pub sent_bytes: u64,
    pub heartbeats: u64,
    pub heartbeat_bytes: u64,
    /// Slots abandoned, by the error that caused it.
    pub failed: ErrorCounts,
    /// All errors of send calls. Most of them only cause a retry of the same datagram.
    pub errors: ErrorCounts,
}

pub(super) fn collect(
    options: &Options,
    run: u64,
    elapsed: Duration,
    senders: &[Sender],
) -> Report {
    let mut targets: Vec<TargetReport> = options.targets.iter().map(empty_target).collect();
    let mut lateness = Latencies::new();

    for sender in senders {
        lateness.add(&sender.lateness);
        for flow in &sender.flows {
            let target = &mut targets[flow.target_idx];
            target.sent_datagrams += flow.sent_datagrams;
            target.sent_bytes += flow.sent_bytes;
            target.heartbeats += flow.heartbeats;
            target.heartbeat_bytes += flow.heartbeat_bytes;
            target.failed.add_all(&flow.failed);
            target.errors.add_all(&flow.errors);
        }
    }

    let sent_datagrams = targets.iter().map(|t| t.sent_datagrams).sum();
    let sent_bytes = targets.iter().map(|t| t.sent_bytes).sum();

    Report {
        run: format!("{run:016x}"),
        elapsed_seconds: elapsed.as_secs_f64(),
        sent_datagrams,
        sent_bytes,
        heartbeats: targets.iter().map(|t| t.heartbeats).sum(),
        heartbeat_bytes: targets.iter().map(|t| t.heartbeat_bytes).sum(),
        failed_datagrams: targets.iter().map(|t| t.failed.total()).sum(),
        slots_behind: senders.iter().map(|sender| sender.slots_behind).sum(),
        datagrams_per_sec: per_sec(sent_datagrams, sent_datagrams, elapsed),
        bits_per_sec: per_sec(sent_bytes, sent_datagrams, elapsed) * 8.0,
        lateness: lateness.report(),
        process_cpu_seconds: sys::clock::process_cpu_ns() as f64 / 1e9,
        targets,
    }
}

fn empty_target(to: &crate::Address) -> TargetReport {
    TargetReport {
        to: to.to_string(),
        sent_datagrams: 0,
        sent_bytes: 0,
        heartbeats: 0,
        heartbeat_bytes: 0,
        failed: ErrorCounts::default(),
        errors: ErrorCounts::default(),
    }
}
