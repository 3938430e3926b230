//! The data of an experiment: settings, points, runs, and the measurements of both ends.
//!
//! Everything here is plain data that converts to JSON and back without change, so that a report can be created again later.
//! Times are in nanoseconds unless the name has another unit.

use crate::About;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One experiment: settings, machine and all results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Experiment {
    #[serde(flatten)]
    pub about: About,
    /// The preset's name (`quick`, `default`, `article`), or empty if none was named.
    pub preset: String,
    pub settings: Settings,
    /// One point per transport, schedule and configured loss, in any order.
    pub points: Vec<Point>,
}

/// What was requested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Bytes in one message.
    pub message_bytes: usize,
    /// Messages per second that the sender aims for. The closed loop sends fewer: it pauses for `1 / rate_per_sec` after each
    /// message, and sending takes time too.
    pub rate_per_sec: f64,
    /// Length of one run in seconds, unless a point states otherwise.
    pub duration_s: f64,
    /// Independent runs per point.
    pub runs: u32,
    /// How the loss rates on the command line were meant. `Point::configured_loss` is always per path.
    pub loss_is: LossIs,
    /// The schedules that were run.
    pub schedules: Vec<Schedule>,
    /// The transports that were run, in the order in which reports name them.
    pub transports: Vec<TransportName>,
    /// Time between two samples of the age of information, in milliseconds.
    pub age_sample_interval_ms: f64,
    /// Where packets are dropped, for example `clsact ingress, classic BPF, both ends of each link`.
    pub injector: String,
    /// `root` or `user namespace`.
    pub privilege: String,
    /// Round-trip time that the network adds to that of the host, in milliseconds.
    pub round_trip_ms: f64,
    /// Bits per second that the path carries each way; `None`: no limit.
    pub path_bits_per_sec: Option<u64>,
    /// Mean number of consecutive packets of a flow that are lost in a burst; `None`: each packet is lost independently.
    pub loss_burst_packets: Option<f64>,
    /// Path MTU in bytes.
    pub mtu_bytes: u32,
    /// Maximum number of segments in one skb (`gso_max_segs`); 1 means that loss applies strictly per segment.
    pub gso_max_segs: Option<u32>,
    /// Number of runs at the same time.
    pub parallel_runs: u32,
    /// The settings of each transport as text, for example `TCP_RTO_MAX_MS 1000` for `tcp-cubic-rto1s`.
    pub transport_options: Vec<(TransportName, String)>,
}

/// What a loss rate refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossIs {
    /// The whole path in one direction.
    #[default]
    PerPath,
    /// One end of a link in one direction; a path crosses two such ends: path = 1 - (1 - link)².
    PerLink,
}

/// When the sender sends.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Send, pause, send, as in the article. A blocked sender makes fewer messages, so its worst delays rest on few messages.
    #[default]
    ClosedLoop,
    /// Messages become due at fixed times, regardless of earlier ones; the delay counts from the due time.
    OpenLoop,
}

impl Schedule {
    /// The schedule as text, for headings.
    pub fn label(self) -> &'static str {
        match self {
            Schedule::ClosedLoop => "closed loop",
            Schedule::OpenLoop => "open loop",
        }
    }
}

/// Name of a transport, for example `udp`, `tcp-cubic`, `tcp-bbr-nodelay`: lowercase words joined by `-`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransportName(pub String);

impl TransportName {
    /// The article's datagrams.
    pub const UDP: &'static str = "udp";
    /// The article's stream: cubic with Nagle's algorithm.
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
    /// Probability that a packet is lost on the whole path in one direction: 0 to 1. Both directions have the same probability.
    pub configured_loss: f64,
    pub runs: Vec<Run>,
}

/// One run: one flow from its first message to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Seed of the random numbers that the run draws itself. The kernel's randomness, and so the loss, cannot be seeded.
    pub seed: u64,
    pub began_unix_ns: u64,
    /// From the time of the first message to the end of the run, after which no message is made. Messages in flight then have
    /// [`super::flow::DRAIN`] more to arrive.
    pub duration_ns: u64,
    /// Messages that the schedule requested until the end: `rate_per_sec` × the duration.
    pub offered: u64,
    /// Messages that were passed to the transport. The others were never made (closed loop), were due while the sender was
    /// blocked, or were refused because the send buffer was full.
    pub sent: u64,
    /// Distinct messages that arrived completely.
    pub delivered: u64,
    /// Messages that arrived again.
    pub duplicates: u64,
    /// Packets lost in one direction, measured alongside this run with datagrams over the same path. Runs with the same number
    /// share this measurement, even with different transports. The runs of one point do not share it, so it can be added up over
    /// them.
    pub measured_loss: Option<MeasuredLoss>,
    /// Delay of each delivered message from when it was made (closed loop) or due (open loop) to its arrival, in ascending order.
    pub delays_ns: Vec<u64>,
    /// For each message still in flight when the receiver stopped listening: its time in flight so far, in ascending order. The
    /// true delay is longer. On the open loop this includes messages that were due but that a blocked sender never sent, counted
    /// from their due time. Empty for transports that do not retransmit, and without messages that a transport gave up because of
    /// their age: these are lost, and `sent - delivered` counts them.
    pub censored_ns: Vec<u64>,
    /// Age of information at regular intervals: the current time minus the time when the newest message that has arrived was
    /// made; before the first arrival, the time since the run began. In ascending order.
    pub age_ns: Vec<u64>,
    /// What the kernel reported about the sending TCP socket.
    pub tcp: Option<TcpSummary>,
    /// What both ends counted, if the transport counts its own packets.
    pub link: Option<LinkSummary>,
    /// Counters of the hosts over the run. All flows of one network share them, so they must not be added up over runs.
    pub kernel: KernelCounters,
    /// Why the flow ended early (for example `connection timed out`); empty if it did not.
    pub failure: String,
}

/// A number of packets, and how many of them were lost, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredLoss {
    pub packets: u64,
    pub lost: u64,
}

impl MeasuredLoss {
    /// Share that was lost, 0 to 1; `None` if nothing was sent.
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
    /// Segments retransmitted (`tcpi_total_retrans`).
    pub retransmits: u64,
    /// Bytes retransmitted (`tcpi_bytes_retrans`).
    pub bytes_retransmitted: u64,
    /// Segments sent, including retransmissions (`tcpi_segs_out`).
    pub segments_out: u64,
    /// Retransmission timeouts (`tcpi_total_rto`, or samples with a higher `tcpi_backoff`).
    pub timeouts: u64,
    /// `tcp_info` at regular intervals.
    pub samples: Vec<TcpSample>,
}

/// The packets of a transport that counts them itself, such as Weir's own link, over one run. Read after the time that the last
/// messages had to arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkSummary {
    /// Packets with messages, and those among them with retransmitted messages.
    pub packets: u64,
    pub repairs: u64,
    /// Retransmissions that were not needed because the message had already arrived.
    pub spurious_repairs: u64,
    /// Everything that the sending end sent, in bytes of UDP payload.
    pub sent_bytes: u64,
    /// What the receiving end sent back, as a number of reports and in bytes of UDP payload.
    pub reports: u64,
    pub report_bytes: u64,
    /// What the sending end reports about the messages: the total, and how each of them ended.
    pub taken: u64,
    pub delivered: u64,
    pub expired: u64,
    pub uncertain: u64,
    /// Messages without a final result: in flight, or arrived before the sender learned of it.
    pub open: u64,
    /// Messages that the receiving end reports as accepted.
    pub accepted: u64,
}

impl LinkSummary {
    /// Whether the counts of both ends agree, as far as they are known.
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
    /// Time since the beginning of the run.
    pub at_ns: u64,
    pub rtt_us: u32,
    pub rto_us: u32,
    pub cwnd_segments: u32,
    pub unacked_segments: u32,
    pub backoff: u32,
    pub retransmits: u32,
    /// Bytes that the application wrote and the kernel has not sent yet (`tcpi_notsent_bytes`).
    pub unsent_bytes: u32,
}

/// Differences of `/proc/net/snmp` and `/proc/net/netstat` over a run, by the names used there.
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
    /// `TcpExt: TCPRetransFail`. Any value but 0 means that TCP saw drops on its own host, which a lossy cable does not show.
    pub retransmit_failures: u64,
    /// `Udp: RcvbufErrors`. Any value but 0 means that the receiver lost datagrams that the path had delivered.
    pub udp_receive_buffer_errors: u64,
}
