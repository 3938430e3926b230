//! What an experiment is made of: settings, points, runs, and what both ends measured.
//!
//! Everything here is plain data that goes to JSON and back unchanged, so that a report can be drawn again later.
//! Times are in nanoseconds, as the unit in each name says.

use crate::About;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One experiment: where, how, and everything that came out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Experiment {
    #[serde(flatten)]
    pub about: About,
    /// The preset's name (`quick`, `default`, `article`), or empty if none was named.
    pub preset: String,
    pub settings: Settings,
    /// One per transport, schedule and configured loss, in any order.
    pub points: Vec<Point>,
}

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Bytes in one message.
    pub message_bytes: usize,
    /// Messages per second that the sender means to send. The closed loop falls short of it: it pauses for
    /// `1 / rate_per_sec` after each message, and sending takes time too.
    pub rate_per_sec: f64,
    /// Length of one run in seconds, where a point does not say otherwise.
    pub duration_s: f64,
    /// Independent runs per point.
    pub runs: u32,
    /// What the loss rates on the command line meant. `Point::configured_loss` is per path whatever this says.
    pub loss_is: LossIs,
    /// The schedules that were run.
    pub schedules: Vec<Schedule>,
    /// The transports that were run, in the order in which reports name them.
    pub transports: Vec<TransportName>,
    /// Between two samples of the age of information, in milliseconds.
    pub age_sample_interval_ms: f64,
    /// Where the loss happens, for example `clsact ingress, classic BPF, both ends of each link`.
    pub injector: String,
    /// `root` or `user namespace`.
    pub privilege: String,
    /// Time there and back that the network adds to what the host takes, in milliseconds.
    pub round_trip_ms: f64,
    /// Bits a second that the path carries each way; `None`: as many as come.
    pub path_bits_per_sec: Option<u64>,
    /// Packets of a flow that are lost one after another, on average; `None`: each packet is lost by itself.
    pub loss_burst_packets: Option<f64>,
    /// Path MTU in bytes.
    pub mtu_bytes: u32,
    /// Segments in one skb at most (`gso_max_segs`); 1 means that loss is strictly per segment.
    pub gso_max_segs: Option<u32>,
    /// Runs that were under way at the same time.
    pub parallel_runs: u32,
    /// The transports' own settings, in words: name and value, for example `tcp-cubic-rto1s`: `TCP_RTO_MAX_MS 1000`.
    pub transport_options: Vec<(TransportName, String)>,
}

/// What a loss rate is the rate of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossIs {
    /// One way through the whole path.
    #[default]
    PerPath,
    /// One way across one end of a link; a path crosses two such ends: path = 1 - (1 - link)².
    PerLink,
}

/// When the sender sends.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Send, pause, send: the article's. A sender that is blocked makes fewer messages, so its worst delays are
    /// measured on few of them.
    #[default]
    ClosedLoop,
    /// Messages become due at fixed times, whatever happened to the ones before; delay counts from the due time.
    OpenLoop,
}

impl Schedule {
    /// In words, for headings.
    pub fn label(self) -> &'static str {
        match self {
            Schedule::ClosedLoop => "closed loop",
            Schedule::OpenLoop => "open loop",
        }
    }
}

/// Name of a transport, for example `udp`, `tcp-cubic`, `tcp-bbr-nodelay`: lower case, words joined by `-`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransportName(pub String);

impl TransportName {
    /// The datagrams of the article.
    pub const UDP: &'static str = "udp";
    /// The stream of the article: cubic, Nagle's algorithm on.
    pub const TCP: &'static str = "tcp-cubic";

    pub fn new(name: &str) -> TransportName {
        TransportName(name.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TransportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// All runs of one transport, on one schedule, at one loss rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Point {
    pub transport: TransportName,
    pub schedule: Schedule,
    /// Probability that a packet is lost on its way through the whole path, one way: 0 to 1. It is the same each way.
    pub configured_loss: f64,
    pub runs: Vec<Run>,
}

/// One run: one flow from its first message to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Seed of what the run draws itself. The kernel's own randomness, and so the loss, cannot be seeded.
    pub seed: u64,
    pub began_unix_ns: u64,
    /// From the first message's time to the end of the run, when the last message may be made. What is under way then has
    /// a moment more to arrive ([`super::flow::DRAIN`]).
    pub duration_ns: u64,
    /// Messages that the schedule asked for until the end: `rate_per_sec` × the duration.
    pub offered: u64,
    /// Messages that were handed to the transport. The rest was never made (closed loop), was due while the sender was
    /// blocked, or was refused because the send buffer was full.
    pub sent: u64,
    /// Different messages that arrived whole.
    pub delivered: u64,
    /// Messages that arrived once more.
    pub duplicates: u64,
    /// Packets lost one way, measured next to this run with datagrams over the same path. Runs of one number share it, whatever
    /// their transport; the runs of a point do not, so that it can be added up over them.
    pub measured_loss: Option<MeasuredLoss>,
    /// Delay of each delivered message from its making (closed loop) or due time (open loop) to its arrival, ascending.
    pub delays_ns: Vec<u64>,
    /// Of each message that was still under way when the receiver stopped listening: how long it had been, ascending. Its
    /// delay is more than that. On the open loop with those that were due and that a blocked sender never came to, counted
    /// from their due time. Empty for transports that do not retransmit, and without what a transport has given up for its age: what
    /// they lose is lost, and `sent - delivered` counts it.
    pub censored_ns: Vec<u64>,
    /// Age of information at regular times: now minus the making of the newest message that has arrived; until the
    /// first has, minus the run's beginning. Ascending.
    pub age_ns: Vec<u64>,
    /// What the kernel said of the sending TCP socket.
    pub tcp: Option<TcpSummary>,
    /// What both ends counted, if the transport counts its packets itself.
    pub link: Option<LinkSummary>,
    /// Counters of the hosts over the run. All flows of one network share them: they are no sums to be added over runs.
    pub kernel: KernelCounters,
    /// The flow ended before its time (for example `connection timed out`); empty if it did not.
    pub failure: String,
}

/// A count of packets of which some were lost, one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredLoss {
    pub packets: u64,
    pub lost: u64,
}

impl MeasuredLoss {
    /// Share that was lost, 0 to 1; `None` when nothing was sent.
    pub fn share(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.lost as f64 / self.packets as f64)
    }
}

/// A TCP socket over one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpSummary {
    /// Congestion control in use, as the socket names it.
    pub congestion_control: String,
    /// Segments sent again (`tcpi_total_retrans`).
    pub retransmits: u64,
    /// Bytes sent again (`tcpi_bytes_retrans`).
    pub bytes_retransmitted: u64,
    /// Segments sent, with those sent again (`tcpi_segs_out`).
    pub segments_out: u64,
    /// Retransmission timeouts (`tcpi_total_rto`, or samples with a higher `tcpi_backoff`).
    pub timeouts: u64,
    /// `tcp_info` at regular times.
    pub samples: Vec<TcpSample>,
}

/// A transport that counts its packets itself, as Weir's own link does, over one run, after the moment that the last messages had to arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkSummary {
    /// Packets with messages, and those among them that carried what had been sent before.
    pub packets: u64,
    pub repairs: u64,
    /// Repairs that were not needed: the message had arrived.
    pub spurious_repairs: u64,
    /// Everything that the sending end sent, in bytes of UDP payload.
    pub sent_bytes: u64,
    /// What the receiving end sent back, in reports and in bytes of UDP payload.
    pub reports: u64,
    pub report_bytes: u64,
    /// What the sending end says of the messages: all of them, and what became of them.
    pub taken: u64,
    pub delivered: u64,
    pub expired: u64,
    pub uncertain: u64,
    /// Messages that it has no final word of: on their way, or arrived without the sender knowing.
    pub open: u64,
    /// Messages that the receiving end says it has accepted.
    pub accepted: u64,
}

impl LinkSummary {
    /// Whether both ends say the same, as far as they have said it.
    pub fn is_agreed(&self) -> bool {
        let is_complete = self.taken == self.delivered + self.expired + self.uncertain + self.open;
        is_complete && (self.delivered..=self.delivered + self.open).contains(&self.accepted)
    }
}

impl std::ops::AddAssign for LinkSummary {
    fn add_assign(&mut self, more: LinkSummary) {
        self.packets += more.packets;
        self.repairs += more.repairs;
        self.spurious_repairs += more.spurious_repairs;
        self.sent_bytes += more.sent_bytes;
        self.reports += more.reports;
        self.report_bytes += more.report_bytes;
        self.taken += more.taken;
        self.delivered += more.delivered;
        self.expired += more.expired;
        self.uncertain += more.uncertain;
        self.open += more.open;
        self.accepted += more.accepted;
    }
}

/// A few fields of `tcp_info` at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSample {
    /// Since the run's beginning.
    pub at_ns: u64,
    pub rtt_us: u32,
    pub rto_us: u32,
    pub cwnd_segments: u32,
    pub unacked_segments: u32,
    pub backoff: u32,
    pub retransmits: u32,
    /// Bytes that the application wrote and the kernel has not sent (`tcpi_notsent_bytes`).
    pub unsent_bytes: u32,
}

/// Differences of `/proc/net/snmp` and `/proc/net/netstat` over a run, by their names there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelCounters {
    /// `Tcp: RetransSegs`.
    pub retransmitted_segments: u64,
    /// `TcpExt: TCPTimeouts`.
    pub timeouts: u64,
    /// `TcpExt: TCPLostRetransmit`.
    pub lost_retransmits: u64,
    /// `TcpExt: TCPSpuriousRTOs`.
    pub spurious_timeouts: u64,
    /// `TcpExt: TCPRetransFail`. Not 0 means that TCP saw drops on its own host, which a lossy wire does not show.
    pub retransmit_failures: u64,
    /// `Udp: RcvbufErrors`. Not 0 means that the receiver lost datagrams that the path had delivered.
    pub udp_receive_buffer_errors: u64,
}
