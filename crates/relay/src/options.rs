//! The options of a listener and its targets. Plain values: callers resolve files, flags and names.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::num::NonZeroU32;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use sys::cpus::CpuList;
use sys::socket::{LocalAddress, SendOptions, local_address};

use sys::socket::Balance;

use crate::{LinkListenOptions, LinkOptions, Path, Prefix, RowTarget, UnixPeer};

/// Which threads serve the targets of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// Inline with at most two processors or a single target, otherwise threaded.
    #[default]
    Auto,
    /// The receiving thread sends to the targets itself: no wake-ups, one thread.
    Inline,
    /// One thread receives, others send.
    Threaded,
}

/// Who owns the socket that a listener reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SocketOwner {
    /// Ours alone. On stop it is closed to new datagrams and emptied, and the rest is counted.
    #[default]
    Relay,
    /// Shared with a service manager. On stop it is left as it is, so that what waits in it reaches the next process.
    ServiceManager,
}

/// The order in which datagrams of several sockets leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As they arrived at this host.
    Arrival {
        /// Maximum time that datagrams wait for the thread of a socket that may have an older one but is not running.
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

/// Options of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerOptions {
    /// Name in the ledger and in metrics.
    pub name: String,
    /// Size of the ring's payload memory, in bytes. At least [`RING_BYTES_MIN`](crate::RING_BYTES_MIN); rounded up to a power of
    /// two.
    pub ring_bytes: usize,
    /// Which threads serve the targets.
    pub schedule: Schedule,
    /// Sources that may pass. Empty for all.
    pub allow_sources: Vec<Prefix>,
    /// Sources that may not pass, even if allowed above.
    pub deny_sources: Vec<Prefix>,
    /// Senders that put a PROXY header (version 2) in front of each datagram to name its original sender.
    pub trust_header_from: Vec<Prefix>,
    /// Who owns the socket.
    pub socket_owner: SocketOwner,
    /// How long a datagram may wait for others when so many arrive that waking up for each would be most of the work. `None` for
    /// not at all.
    pub gather: Option<Duration>,
    /// Maximum number of sockets. Their rings are sized so that together they take the memory of one.
    pub sockets_max: usize,
    /// How datagrams are distributed over several sockets.
    pub balance: Balance,
    /// The order in which datagrams of several sockets leave.
    pub order: Order,
    /// Set if only other Weirs send here, over repaired links. `None` for ordinary senders.
    pub link: Option<LinkListenOptions>,
    /// Processors for the threads that receive and send. Empty for any. Several receiving threads get one each.
    pub cpus: CpuList,
}

/// How a 1-in-N sample is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SampleBy {
    /// Each datagram has a chance of 1 in N.
    #[default]
    Random,
    /// One in N source addresses passes, with all its datagrams, by a hash that is the same after a restart.
    Source,
}

/// A 1-in-N sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    pub one_in: NonZeroU32,
    pub by: SampleBy,
}

/// Which datagrams a target takes. The filters apply in this order: source, sample, rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetOptions {
    /// Name in the ledger and in metrics.
    pub name: String,
    /// Only datagrams from these sources. Empty for all.
    pub only_sources: Vec<Prefix>,
    /// Take only a sample.
    pub sample: Option<Sample>,
    /// Maximum rate in datagrams per second. Bursts of up to a tenth of a second's worth pass.
    pub rate_limit_per_sec: Option<NonZeroU32>,
}

/// Whether runs of datagrams of equal length leave as one `UDP_SEGMENT` message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Gso {
    /// If the egress path supports it and cannot drop a part of a message unnoticed.
    #[default]
    Auto,
    /// Never: every datagram is a message.
    Off,
}

/// The source address that the receiver of a UDP target sees.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SourceAddress {
    /// This host's.
    #[default]
    Own,
    /// The original sender's, with the socket's own port. The socket is transparent
    /// ([`sys::socket::SendOptions::is_transparent`]). Datagrams without an address, or with one of the other family, leave from
    /// this host and are counted.
    Kept,
    /// As `Kept`, but with the sender's port too, using one socket per sender.
    KeptWithPort(SenderSockets),
    /// This host's, with the sender named inside each datagram. Datagrams without an address, or without room for it, leave
    /// unchanged and are counted.
    Said(Header),
}

/// The sockets of a target that keeps its senders' ports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SenderSockets {
    /// Address of the target.
    pub to: SocketAddr,
    /// How the sockets are opened, except for address and port.
    pub options: SendOptions,
    /// Maximum number open at a time, at least 1. One that was not used for a while makes room for the next sender's.
    pub count_max: usize,
}

/// How a datagram names its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// PROXY protocol version 2.
    ProxyV2 {
        /// The address that the datagrams were sent to. The listener fills in the address that it is bound to.
        received_at: SocketAddr,
    },
    /// Inside syslog messages (see [`wire::syslog::write_origin`]).
    SyslogOrigin,
}

impl Header {
    /// PROXY protocol version 2, before the listener has filled in its address.
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

/// Options of a file target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// The file that is written; rotated ones get `.1` (newest), `.2`, … appended. `None`: standard output, which is never rotated,
    /// and not written again once a write has failed: what follows a part of a record cannot be read.
    pub path: Option<PathBuf>,
    pub format: FileFormat,
    /// Rotate before the file would grow beyond this many bytes. `None` for never.
    pub rotate_bytes: Option<u64>,
    /// Number of rotated files to keep.
    pub rotate_keep: u32,
}

/// Where a target sends its datagrams.
#[derive(Debug)]
pub enum TargetKind {
    /// A connected, non-blocking UDP socket with `IP_RECVERR` (see [`sys::socket::connect_udp`]).
    Udp {
        socket: OwnedFd,
        gso: Gso,
        source_address: SourceAddress,
        /// The path that the socket's datagrams take out of this host, kept up to date.
        path: Path,
    },
    /// A unix datagram socket, reconnected as its owner comes and goes.
    Unix { peer: UnixPeer },
    /// Another Weir, over a repaired link: a connected, non-blocking socket. `None` while there is no address or no route: what is
    /// to be sent waits in the ring, and expires.
    Link { socket: Option<OwnedFd>, options: Box<LinkOptions> },
    /// Another socket for a link that continues.
    LinkSocket(OwnedFd),
    /// A file.
    File(FileOptions),
    /// A sink that copies datagrams out of the ring. It has a thread of its own, and sources are recorded for it.
    Rows(Box<dyn RowTarget>),
    /// Nowhere: everything counts as delivered.
    Null,
    /// No address is known (yet): everything is dropped as `target_unresolved`.
    Unresolved,
    /// There is no route to the address (yet): everything is dropped as `network_unreachable`.
    NoRoute,
}

impl TargetKind {
    /// Fills in the address that the listener receives at.
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

    /// Whether it needs the source of each datagram.
    pub(crate) fn asks_for_sources(&self) -> bool {
        match self {
            TargetKind::File(file) => file.format == FileFormat::Pcap,
            TargetKind::Udp { source_address, .. } => *source_address != SourceAddress::Own,
            TargetKind::Rows(_) | TargetKind::Link { .. } | TargetKind::LinkSocket(_) => true,
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
            TargetKind::Link { .. } | TargetKind::LinkSocket(_) => Class::Link,
            TargetKind::Udp { .. }
            | TargetKind::Unix { .. }
            | TargetKind::Null
            | TargetKind::Unresolved
            | TargetKind::NoRoute => Class::Socket,
        }
    }
}

/// Targets of one class can replace each other without leaving the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Sockets, and the targets that send nothing: they share threads.
    Socket,
    /// Files: each has a thread of its own, which a disk may block.
    File,
    /// Sinks: each has a thread of its own, on which the receiver's code runs.
    Rows,
    /// Links: each has a thread of its own, which seals, listens to the other end and watches the clock.
    Link,
}
