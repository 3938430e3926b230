//! The options of a listener and its targets. Plain values: files, flags and names are resolved by the caller.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroU32;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use sys::cpus::CpuList;
use sys::socket::{LocalAddress, SendOptions, local_address};

use sys::socket::Balance;

use crate::{LinkListenOptions, LinkOptions, Path, Prefix, RowTarget, UnixPeer};

/// Who drives the targets of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// Inline on at most two processors or with a single target, else threaded.
    #[default]
    Auto,
    /// The receiving thread sends to the targets itself: no wake-ups, one thread.
    Inline,
    /// One thread receives, others send.
    Threaded,
}

/// Whose socket a listener reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SocketOwner {
    /// Ours alone: on stop it is closed to new datagrams, emptied, and what was left is counted.
    #[default]
    Relay,
    /// A service manager holds it too: on stop it is left as it is, so that what waits in it reaches the next process.
    ServiceManager,
}

/// In which order datagrams of several sockets leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As they arrived at this host.
    Arrival {
        /// Longest time that what is there waits for the thread of a socket that may have something older and does not run.
        wait: Duration,
    },
    /// As they are read.
    None,
}

impl Default for Order {
    fn default() -> Order {
        Order::Arrival { wait: Duration::from_millis(100) }
    }
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerOptions {
    /// Name in the ledger and in metrics.
    pub name: String,
    /// Bytes of the ring's payload memory. At least [`RING_BYTES_MIN`](crate::RING_BYTES_MIN); rounded up to a power of two.
    pub ring_bytes: usize,
    /// Who drives the targets.
    pub schedule: Schedule,
    /// Sources that may pass; empty: all.
    pub allow_sources: Vec<Prefix>,
    /// Sources that may not pass, even if allowed above.
    pub deny_sources: Vec<Prefix>,
    /// Senders that put a PROXY header (version 2) in front of each datagram, which says who sent it first.
    pub trust_header_from: Vec<Prefix>,
    /// Whose socket it is.
    pub socket_owner: SocketOwner,
    /// How long a datagram may be kept waiting for others, where so many arrive that a wake-up for each would be most of the
    /// work; `None`: not at all.
    pub gather: Option<Duration>,
    /// Most sockets that it may have: their rings are sized so that all have the memory of one.
    pub sockets_max: usize,
    /// Which of several sockets a datagram goes to.
    pub balance: Balance,
    /// In which order datagrams of several sockets leave.
    pub order: Order,
    /// It is other Weirs that send here, by repaired links; `None`: whoever sends datagrams.
    pub link: Option<LinkListenOptions>,
    /// Processors of the threads that receive and send; empty: any. Of several that receive, each has one of them.
    pub cpus: CpuList,
}

/// What chooses the datagrams of a 1-in-N sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SampleBy {
    /// Each datagram has a chance of 1 in N.
    #[default]
    Random,
    /// One source address in N passes, with all its datagrams, by a hash that does not change over restarts.
    Source,
}

/// A 1-in-N sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    pub one_in: NonZeroU32,
    pub by: SampleBy,
}

/// Which datagrams a target takes, in the order in which they are asked: source, sample, rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetOptions {
    /// Name in the ledger and in metrics.
    pub name: String,
    /// Only datagrams of these sources; empty: all.
    pub only_sources: Vec<Prefix>,
    /// Take a part of them.
    pub sample: Option<Sample>,
    /// Most datagrams a second that it takes; bursts of up to a tenth of a second's worth pass.
    pub rate_limit_per_sec: Option<NonZeroU32>,
}

/// Whether runs of equal length leave as one `UDP_SEGMENT` message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gso {
    /// Where the way out takes it and cannot drop a part of a message unseen.
    #[default]
    Auto,
    /// Never: every datagram is a message.
    Off,
}

/// Where the datagrams of a UDP target come from, as its receiver sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SourceAddress {
    /// From this host.
    #[default]
    Own,
    /// From the address that sent them here; the port is the socket's own. The socket is transparent
    /// ([`sys::socket::SendOptions::is_transparent`]). What has no address, or one of the other family, comes from this host, and is counted.
    Kept,
    /// As `Kept`, and from the sender's port, by a socket for each sender.
    KeptWithPort(SenderSockets),
    /// From this host, and who sent it stands in each datagram. What has no address, or no place for it, leaves as it is, and is counted.
    Said(Header),
}

/// The sockets of a target that keeps its senders' ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SenderSockets {
    /// The target.
    pub to: SocketAddr,
    /// How they are opened, but for address and port.
    pub options: SendOptions,
    /// Most of them at a time; at least 1. One that was not used for long makes room for the next sender's.
    pub count_max: usize,
}

/// What says in a datagram who sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// PROXY protocol version 2.
    ProxyV2 {
        /// Where the datagrams were sent to. The listener fills it in with the address that it is bound to.
        received_at: SocketAddr,
    },
    /// In syslog messages (see [`wire::syslog::write_origin`]).
    SyslogOrigin,
}

impl Header {
    /// PROXY protocol version 2, before the listener says where it receives.
    pub const PROXY_V2: Header = Header::ProxyV2 {
        received_at: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
    };
}

/// How a file target separates datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileFormat {
    /// The payload and a line feed, unless it ends with one.
    #[default]
    Lines,
    /// The payload's length as four bytes, big-endian, then the payload.
    LengthPrefixed,
    /// A capture file with the payloads as UDP over IP, with receive time and source, for tcpdump and Wireshark.
    Pcap,
}

/// A file target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// The file that is written; rotated ones get `.1` (newest), `.2`, … appended.
    pub path: PathBuf,
    pub format: FileFormat,
    /// Rotate before the file would grow beyond this; `None`: never.
    pub rotate_bytes: Option<u64>,
    /// Rotated files to keep.
    pub rotate_keep: u32,
}

/// What a target is: where its datagrams go.
#[derive(Debug)]
pub enum TargetKind {
    /// A connected, non-blocking UDP socket with `IP_RECVERR` (see [`sys::socket::connect_udp`]).
    Udp {
        socket: OwnedFd,
        gso: Gso,
        source_address: SourceAddress,
        /// How the socket's datagrams leave this host, as it changes.
        path: Path,
    },
    /// A unix datagram socket; connected, and connected again, as its owner comes and goes.
    Unix { peer: UnixPeer },
    /// Another Weir, by a repaired link: a socket that is connected to it and does not block.
    Link { socket: OwnedFd, options: Box<LinkOptions> },
    /// A file.
    File(FileOptions),
    /// A receiver that copies datagrams out of the ring: a sink. It has a thread of its own, and sources are recorded for it.
    Rows(Box<dyn RowTarget>),
    /// Nowhere: counted as delivered.
    Null,
    /// No address is known (yet): everything is dropped as `target_unresolved`.
    Unresolved,
    /// No route leads to the address (yet): everything is dropped as `network_unreachable`.
    NoRoute,
}

impl TargetKind {
    /// Fills in where the listener's datagrams are received.
    pub(crate) fn note_listener(&mut self, listener: BorrowedFd<'_>) {
        if let TargetKind::Udp {
            source_address: SourceAddress::Said(Header::ProxyV2 { received_at }),
            ..
        } = self
            && let Some(LocalAddress::Inet(addr)) = local_address(listener)
        {
            *received_at = addr;
        }
    }

    /// Whether it needs to know who sent each datagram.
    pub(crate) fn asks_for_sources(&self) -> bool {
        match self {
            TargetKind::File(file) => file.format == FileFormat::Pcap,
            TargetKind::Udp { source_address, .. } => *source_address != SourceAddress::Own,
            TargetKind::Rows(_) | TargetKind::Link { .. } => true,
            TargetKind::Unix { .. }
            | TargetKind::Null
            | TargetKind::Unresolved
            | TargetKind::NoRoute => false,
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self {
            TargetKind::File(_) => Class::File,
            TargetKind::Rows(_) => Class::Rows,
            TargetKind::Link { .. } => Class::Link,
            TargetKind::Udp { .. }
            | TargetKind::Unix { .. }
            | TargetKind::Null
            | TargetKind::Unresolved
            | TargetKind::NoRoute => Class::Socket,
        }
    }
}

/// Targets of one class can take each other's place without leaving the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Sockets, and nothing: they share threads.
    Socket,
    /// A thread of its own, which a disk may hold.
    File,
    /// A thread of its own, on which the receiver's code runs.
    Rows,
    /// A thread of its own, which seals, listens to the other end and watches the clock.
    Link,
}
