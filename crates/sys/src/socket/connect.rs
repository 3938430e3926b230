//! Sockets for sending.

use super::listen::bind_to_interface;
use super::{interface_index, refuse_new_datagrams, set, set_int};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Default send buffer of a UDP socket, in bytes of the kernel's accounting.
///
/// While a neighbor's link address is unknown, datagrams wait in a queue of `net.ipv4.neigh.*.unres_qlen_bytes` (212,992), which
/// silently drops its oldest ones. The kernel's default send buffer is as large, and accepts one more message beyond its limit.
/// With a smaller buffer, the socket is full before the queue is, and reports it. Measured with 26,474 datagrams to a neighbor
/// that answered after a second: 480 were silently lost with 208 KiB, none with this size.
pub const SEND_BUFFER_BYTES: usize = 128 << 10;

/// How a target's UDP socket is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Source address of the datagrams. Chosen by route when absent.
    pub source_address: Option<IpAddr>,
    /// Source port of the datagrams. Ephemeral when absent.
    pub source_port: Option<u16>,
    /// Time to live or hop limit, for unicast and multicast.
    pub ttl: Option<u8>,
    /// Differentiated services code point, 0 to 63 (RFC 2474).
    pub dscp: Option<u8>,
    /// Send buffer size to request, in bytes of the kernel's accounting. [`SEND_BUFFER_BYTES`] when absent.
    pub send_buffer_bytes: Option<usize>,
    /// Interface for outgoing multicast datagrams.
    pub multicast_interface: Option<String>,
    /// The only interface, or VRF, by which datagrams may leave (`SO_BINDTODEVICE`, socket(7)).
    pub interface: Option<String>,
    /// Whether the datagrams may leave from a source address that this host does not have yet (`IP_FREEBIND`, ip(7)).
    pub is_free: bool,
    /// Whether routers may fragment datagrams, as they must where "fragmentation needed" would reach another host than this one.
    pub is_fragmented_by_routers: bool,
    /// Whether datagrams may have source addresses that are not this host's
    /// ([`send_messages_from`](crate::send::send_messages_from)). Needs `CAP_NET_ADMIN` or `CAP_NET_RAW` (ip(7),
    /// `IP_TRANSPARENT`).
    pub is_transparent: bool,
    /// Whether replies from the peer are read. If so, an error about a sent datagram is reported once, by the next call, and not
    /// in the error queue.
    pub is_answered: bool,
}

/// Opens a connected, non-blocking UDP socket whose errors are reported to us (`IP_RECVERR`).
///
/// Without `IP_RECVERR` a full queue loses datagrams while `send` reports success (ip(7)). Replies from the peer are refused:
/// nobody would read them, and they share the buffer with the error queue (net/core/skbuff.c, sock_queue_err_skb).
///
/// # Errors
/// Any of `socket(2)`, `bind(2)`, `connect(2)`, or an option that the kernel refuses.
pub fn connect_udp(remote: SocketAddr, options: &SendOptions) -> io::Result<OwnedFd> {
    let remote = match remote {
        // An IPv4-mapped address is reached over IPv4, whose errors an IPv6 socket would not report.
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(remote.ip().to_canonical(), remote.port())
        }
        other => other,
    };

    let socket =
        Socket::new(Domain::for_address(remote), Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_broadcast(true)?;

    let fd = socket.as_raw_fd();
    match remote {
        _ if options.is_answered => {}
        SocketAddr::V4(_) => set_int(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?,
        SocketAddr::V6(_) => set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?,
    }

    if options.is_transparent {
        let (level, name) = if remote.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_TRANSPARENT)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT)
        };
        set_int(fd, level, name, 1)?;
    }

    if let Some(name) = &options.interface {
        bind_to_interface(&socket, name)?;
    }
    if options.is_free {
        match remote {
            SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
            SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
        }
    }

    if options.source_address.is_some() || options.source_port.is_some() {
        // The socket of a replaced target, or of another listener, may still hold the same fixed port.
        socket.set_reuse_address(options.source_port.is_some())?;
        let any = if remote.is_ipv4() { "0.0.0.0" } else { "::" };
        let ip = match options.source_address {
            Some(ip) => ip,
            None => any.parse().expect("a literal address"),
        };
        socket.bind(&SocketAddr::new(ip, options.source_port.unwrap_or(0)).into())?;
    }

    apply_send_options(&socket, remote, options)?;
    if options.is_fragmented_by_routers {
        leave_fragmentation_to_routers(fd, remote)?;
    }
    socket.connect(&remote.into())?;
    let socket = OwnedFd::from(socket);
    if !options.is_answered {
        refuse_new_datagrams(socket.as_fd())?;
    }
    Ok(socket)
}

/// Over IPv4, clears the bit that forbids fragments. Over IPv6 no router fragments: what is longer than this host's own way out takes
/// leaves in packets that every path takes (RFC 8200 section 5). What fits that way leaves whole, whatever the option says
/// (net/ipv6/ip6_output.c, ip6_finish_output), unless the route has a smaller MTU.
fn leave_fragmentation_to_routers(fd: i32, remote: SocketAddr) -> io::Result<()> {
    match remote {
        SocketAddr::V4(_) => {
            set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
        }
        SocketAddr::V6(_) => {
            set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)?;
            set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU, IPV6_PACKET_BYTES_MIN)
        }
    }
}

/// The packet that every IPv6 path takes, in bytes.
const IPV6_PACKET_BYTES_MIN: i32 = 1_280;

fn apply_send_options(
    socket: &Socket,
    remote: SocketAddr,
    options: &SendOptions,
) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    let send_buffer_bytes = options.send_buffer_bytes.unwrap_or(SEND_BUFFER_BYTES);
    // The kernel doubles the requested value to cover its own bookkeeping (socket(7), SO_SNDBUF).
    socket.set_send_buffer_size(send_buffer_bytes.div_ceil(2))?;

    let interface = options.multicast_interface.as_deref();

    if remote.is_ipv4() {
        if let Some(ttl) = options.ttl {
            socket.set_ttl_v4(u32::from(ttl))?;
            socket.set_multicast_ttl_v4(u32::from(ttl))?;
        }
        if let Some(dscp) = options.dscp {
            set_int(fd, libc::IPPROTO_IP, libc::IP_TOS, i32::from(dscp) << 2)?;
        }
        if let Some(name) = interface {
            let request = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr { s_addr: 0 },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: interface_index(name)? as i32,
            };
            set(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)?;
        }
        return Ok(());
    }

    if let Some(ttl) = options.ttl {
        socket.set_unicast_hops_v6(u32::from(ttl))?;
        socket.set_multicast_hops_v6(u32::from(ttl))?;
    }
    if let Some(dscp) = options.dscp {
        set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, i32::from(dscp) << 2)?;
    }
    if let Some(name) = interface {
        socket.set_multicast_if_v6(interface_index(name)?)?;
    }

    Ok(())
}

/// Opens a connected, non-blocking unix datagram socket.
///
/// # Errors
/// `ENOENT` when the path does not exist, `ECONNREFUSED` when nobody listens there.
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    connect_unix_of(Type::DGRAM, path)
}

/// Opens a connected, non-blocking unix stream.
///
/// # Errors
/// As [`connect_unix`], and `EAGAIN` when the listener's backlog is full.
pub fn connect_unix_stream(path: &Path) -> io::Result<OwnedFd> {
    connect_unix_of(Type::STREAM, path)
}

fn connect_unix_of(kind: Type, path: &Path) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, kind.cloexec(), None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket.into())
}
