//! By what a ranking sorts.

use record::SocketRecord;
use std::fmt;
use std::str::FromStr;

/// Rows are `Name = "label", record => figure;`.
macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $record:ident => $figure:expr;)+) => {
        /// A figure of a socket. The labels are names of the record's fields, but for [`Figure::RttRatio`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Figure { $($(#[$doc])* $name,)+ }

        impl Figure {
            /// Every figure.
            pub const ALL: &'static [Figure] = &[$(Figure::$name,)+];

            /// Its name in a question.
            pub fn label(self) -> &'static str {
                match self { $(Figure::$name => $label,)+ }
            }

            /// `None` where the kernel does not say it.
            pub(super) fn of(self, record: &SocketRecord<'_>) -> Option<u64> {
                match self { $(Figure::$name => { let $record = record; $figure })+ }
            }
        }
    };
}

figures! {
    /// Smoothed round-trip time.
    Rtt = "rtt_us", record => record.rtt_us.map(u64::from);
    /// Its mean deviation.
    RttVariance = "rttvar_us", record => record.rttvar_us.map(u64::from);
    /// Smallest round-trip time.
    MinRtt = "min_rtt_us", record => record.min_rtt_us.map(u64::from);
    /// The round-trip time as a multiple of the smallest, in thousandths.
    RttRatio = "rtt_ratio", record => per_mille(record.rtt_us, record.min_rtt_us);
    /// Congestion window.
    CongestionWindow = "snd_cwnd_segments", record => record.snd_cwnd_segments.map(u64::from);
    /// Segments retransmitted.
    Retransmitted = "total_retrans_segments", record => record.total_retrans_segments.map(u64::from);
    /// Bytes retransmitted.
    BytesRetransmitted = "bytes_retrans", record => record.bytes_retrans;
    /// Bytes sent.
    BytesSent = "bytes_sent", record => record.bytes_sent;
    /// Bytes received.
    BytesReceived = "bytes_received", record => record.bytes_received;
    /// What waits to be read.
    ReceiveQueue = "receive_queue", record => record.receive_queue.map(u64::from);
    /// What waits to be acknowledged.
    SendQueue = "send_queue", record => record.send_queue.map(u64::from);
    /// Time with something to send.
    Busy = "busy_time_us", record => record.busy_time_us;
    /// The part of it that the peer's window held up.
    WindowLimited = "rwnd_limited_us", record => record.rwnd_limited_us;
    /// The part of it that our buffer held up.
    BufferLimited = "sndbuf_limited_us", record => record.sndbuf_limited_us;
    /// Delivery rate.
    DeliveryRate = "delivery_rate_bytes_per_sec", record => record.delivery_rate_bytes_per_sec;
    /// Our port.
    SourcePort = "src_port", record => record.src_port.map(u64::from);
    /// The peer's port.
    DestinationPort = "dst_port", record => record.dst_port.map(u64::from);
}

fn per_mille(part: Option<u32>, whole: Option<u32>) -> Option<u64> {
    let whole = whole.filter(|whole| *whole > 0)?;
    Some(u64::from(part?) * 1_000 / u64::from(whole))
}

/// Which come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    LargestFirst,
    SmallestFirst,
}

impl Order {
    /// The place of a figure: the larger, the earlier. Sockets without one come last.
    pub(super) fn rank(self, figure: Option<u64>) -> i128 {
        match (self, figure) {
            (_, None) => i128::MIN,
            (Order::LargestFirst, Some(figure)) => figure.into(),
            (Order::SmallestFirst, Some(figure)) => -i128::from(figure),
        }
    }
}

/// There is no figure of this name.
#[derive(Debug)]
pub struct UnknownFigure;

impl fmt::Display for UnknownFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Figure::ALL.iter().map(|figure| figure.label()).collect();
        write!(f, "expected one of {}", names.join(", "))
    }
}

impl std::error::Error for UnknownFigure {}

impl FromStr for Figure {
    type Err = UnknownFigure;

    fn from_str(text: &str) -> Result<Figure, UnknownFigure> {
        Figure::ALL.iter().copied().find(|figure| figure.label() == text).ok_or(UnknownFigure)
    }
}
