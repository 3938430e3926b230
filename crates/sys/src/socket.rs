//! Opening and configuring datagram sockets, and reading the kernel's counters for them.

mod connect;
mod group;
mod listen;
mod membership;

pub use connect::{SEND_BUFFER_BYTES, SendOptions, connect_udp, connect_unix, connect_unix_stream};
pub use group::{
    Balance, Joining, MEMBERS_MAX, await_stamps, gather, share_port, spread, stamp_arrivals,
    unshare_port,
};
pub use listen::{
    ListenOptions, interface_index, listen_udp, listen_unix, listen_unix_stream, share_address,
    share_socket_file,
};
pub use membership::{Followed, Membership};

use crate::Errno;
use crate::errno::check;
use socket2::Type;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::ptr;
use std::time::Duration;

/// The address that a socket is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAddress {
    /// An internet address; UDP if [`is_datagram`].
    Inet(SocketAddr),
    /// A unix socket's path.
    Unix(PathBuf),
}

/// The address a socket is bound to; `None` for an unnamed unix socket or another family.
pub fn local_address(socket: BorrowedFd<'_>) -> Option<LocalAddress> {
    let addr = socket2::SockRef::from(&socket).local_addr().ok()?;
    match addr.as_socket() {
        Some(inet) => Some(LocalAddress::Inet(inet)),
        None => addr.as_pathname().map(|path| LocalAddress::Unix(path.to_owned())),
    }
}

/// The addresses at which a socket receives: an IPv6 wildcard that takes IPv4 too is two. None for a unix socket.
pub fn receiving_addresses(socket: BorrowedFd<'_>) -> Vec<SocketAddr> {
    let Some(LocalAddress::Inet(addr)) = local_address(socket) else { return Vec::new() };
    let is_dual = addr.is_ipv6()
        && addr.ip().is_unspecified()
        && socket2::SockRef::from(&socket).only_v6().is_ok_and(|only_v6| !only_v6);
    let v4 = is_dual.then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port())));
    v4.into_iter().chain([addr]).collect()
}

/// Whether a socket carries datagrams (`SOCK_DGRAM`).
pub fn is_datagram(socket: BorrowedFd<'_>) -> bool {
    socket2::SockRef::from(&socket).r#type().is_ok_and(|kind| kind == Type::DGRAM)
}

/// Makes a socket blocking, with a limit on how long a receive call waits.
///
/// # Errors
/// Any of `fcntl(2)` or `setsockopt(2)`.
pub fn set_receive_timeout(socket: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let socket = socket2::SockRef::from(&socket);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(timeout))
}

/// Requests a receive buffer size and returns the size granted, both in bytes of the kernel's accounting.
///
/// Tries `SO_RCVBUFFORCE` first, which with `CAP_NET_ADMIN` can exceed `net.core.rmem_max`, then `SO_RCVBUF`.
///
/// # Errors
/// Any of `setsockopt(2)` except the missing capability.
pub fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    // The kernel stores double the requested value (net/core/sock.c, __sock_set_rcvbuf).
    let half = i32::try_from(bytes.div_ceil(2)).unwrap_or(i32::MAX / 2);
    let fd = socket.as_raw_fd();
    if set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, half).is_err() {
        set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, half)?;
    }
    receive_buffer(socket)
}

/// The largest request that this process may make without a capability (`net.core.rmem_max`), in bytes: half of what a socket is
/// granted that asks for all there is. In a container the sysctl itself may not be there to be read (Linux before 6.10).
///
/// # Errors
/// Any of `socket(2)` or `setsockopt(2)`.
pub fn receive_buffer_max() -> io::Result<usize> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, Type::DGRAM.cloexec(), None)?;
    socket.set_recv_buffer_size(i32::MAX as usize / 2)?;
    Ok(socket.recv_buffer_size()? / 2)
}

/// How long a receive call on an empty socket polls the device before it sleeps, if the device has queues that can be polled
/// (`SO_BUSY_POLL`, socket(7)). 0 turns polling off.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`, above `net.core.busy_read`, on some kernels (6.18 does not check).
pub fn set_busy_poll(socket: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    let us = i32::try_from(time.as_micros()).unwrap_or(i32::MAX);
    set_int(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BUSY_POLL, us)
}

/// The granted receive buffer size in bytes of the kernel's accounting.
///
/// # Errors
/// Any of `getsockopt(2)`.
pub fn receive_buffer(socket: BorrowedFd<'_>) -> io::Result<usize> {
    socket2::SockRef::from(&socket).recv_buffer_size()
}

/// Bytes that the kernel charges to a receive buffer for one UDP datagram with a payload of this size (`skb->truesize`).
///
/// Measured on Linux 6.18 over loopback: 832 up to about 128 bytes of payload, above that a power-of-two head plus 256, and 256
/// bytes of bookkeeping. Other kernels and drivers differ by tens of percent.
pub fn charged_bytes(payload_bytes: usize) -> usize {
    match payload_bytes {
        0..=160 => 832,
        161..=600 => 1_280,
        601..=1_600 => 2_304,
        _ => (payload_bytes + 320).next_power_of_two().min(payload_bytes + 1_024) + 256,
    }
}

/// The kernel's counters for one socket (`SO_MEMINFO`, include/uapi/linux/sock_diag.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// Bytes charged for datagrams that wait to be read.
    pub receive_queued_bytes: u32,
    /// Limit on `receive_queued_bytes`.
    pub receive_buffer_bytes: u32,
    /// Bytes charged for datagrams that were sent but have not left yet.
    pub send_queued_bytes: u32,
    /// Limit on `send_queued_bytes`.
    pub send_buffer_bytes: u32,
    /// Datagrams dropped at this socket since it was opened: buffer full, checksum wrong, or refused by a filter.
    /// Wraps at 2^32.
    pub dropped_datagrams: u32,
}

/// Reads the kernel's counters for a socket. Takes well under a microsecond.
///
/// # Errors
/// Any of `getsockopt(2)`.
pub fn mem_info(socket: BorrowedFd<'_>) -> Result<MemInfo, Errno> {
    const SO_MEMINFO: libc::c_int = 55;
    let mut words = [0_u32; 9];
    get(socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, &mut words)?;
    Ok(MemInfo {
        receive_queued_bytes: words[0],
        receive_buffer_bytes: words[1],
        send_queued_bytes: words[2],
        send_buffer_bytes: words[3],
        dropped_datagrams: words[8],
    })
}

/// A socket's number, unique on this host until it reboots, across all processes (`SO_COOKIE`).
///
/// # Errors
/// None for a socket.
pub fn cookie(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut cookie = 0_u64;
    get(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE, &mut cookie)?;
    Ok(cookie)
}

/// A number for the socket's network namespace, unique until the host reboots (`SO_NETNS_COOKIE`, Linux 5.14). The inode of a
/// namespace, by contrast, is reused soon after it is gone.
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel.
pub fn namespace_cookie(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut cookie = 0_u64;
    get(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie)?;
    Ok(cookie)
}

/// include/uapi/asm-generic/socket.h.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Bytes sent that this host still holds (`SIOCOUTQ`): for UDP, those that the device has not taken (udp(7)); for TCP, those that
/// the other end has not acknowledged (tcp(7)); for a unix stream, at least as many as the other end has not read, and zero when
/// it has read all.
///
/// # Errors
/// Any of `ioctl(2)`.
pub fn outstanding_bytes(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (the number of SIOCOUTQ) writes one int to the address given.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.unsigned_abs())
}

/// Largest IP packet, in bytes, that the path of a connected socket is known to carry (`IP_MTU`, ip(7)).
///
/// # Errors
/// `ENOTCONN` on an unconnected socket.
pub fn path_mtu_bytes(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut mtu: libc::c_int = 0;
    let is_v6 = matches!(local_address(socket), Some(LocalAddress::Inet(addr)) if addr.is_ipv6());
    let (level, name) =
        if is_v6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    get(socket.as_raw_fd(), level, name, &mut mtu)?;
    Ok(mtu.unsigned_abs())
}

/// What the kernel does with a datagram larger than the path MTU (`IP_MTU_DISCOVER`, ip(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragmentation {
    /// Fragments it, the default for sockets (`IP_PMTUDISC_WANT`).
    Allowed,
    /// Refuses it with `EMSGSIZE` (`IP_PMTUDISC_DO`); [`path_mtu_bytes`] then has the size that fits.
    Forbidden,
}

/// Sets what happens to datagrams that are too large for their path.
///
/// # Errors
/// Any of `setsockopt(2)`.
pub fn set_fragmentation(socket: BorrowedFd<'_>, fragmentation: Fragmentation) -> io::Result<()> {
    let (want, forbid) = (libc::IP_PMTUDISC_WANT, libc::IP_PMTUDISC_DO);
    // IPv6 has options of its own with the same values (linux/in6.h).
    let value = if fragmentation == Fragmentation::Allowed { want } else { forbid };
    let is_v6 = matches!(local_address(socket), Some(LocalAddress::Inet(addr)) if addr.is_ipv6());
    let (level, name) = if is_v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
    };
    set_int(socket.as_raw_fd(), level, name, value)
}

/// Makes a socket refuse everything that arrives from now on; datagrams already queued stay readable.
///
/// The refused datagrams count in [`MemInfo::dropped_datagrams`], so a socket can be emptied and closed with every datagram
/// accounted for: a plain `close` discards what is queued without counting it.
///
/// On a unix datagram socket, a filter would discard without counting (net/unix/af_unix.c, unix_dgram_sendmsg), so the reading
/// half is shut down instead, and senders get `EPIPE`.
///
/// # Errors
/// Any of `setsockopt(2)` or `shutdown(2)`.
pub fn refuse_new_datagrams(socket: BorrowedFd<'_>) -> io::Result<()> {
    if !matches!(local_address(socket), Some(LocalAddress::Inet(_))) {
        return socket2::SockRef::from(&socket).shutdown(std::net::Shutdown::Read);
    }
    const ACCEPT_NO_BYTE: FilterInstruction =
        FilterInstruction { code: 0x06 /* BPF_RET | BPF_K */, jt: 0, jf: 0, k: 0 };
    attach_filter(socket, &[ACCEPT_NO_BYTE])
}

/// One instruction of a classic BPF program (`struct sock_filter`, Documentation/networking/filter.rst).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterInstruction {
    /// What to do, for instance `BPF_LD | BPF_H | BPF_ABS`.
    pub code: u16,
    /// Instructions to skip when a comparison is true.
    pub jt: u8,
    /// Instructions to skip when it is false.
    pub jf: u8,
    /// The operand. Loads convert from network byte order.
    pub k: u32,
}

/// Attaches a program that decides which datagrams are queued on a socket from now on, replacing an earlier one.
///
/// Datagrams that it refuses count in [`MemInfo::dropped_datagrams`] on a UDP socket, and nowhere on a netlink socket
/// (net/netlink/af_netlink.c, do_one_broadcast).
///
/// # Errors
/// `EINVAL` when the program is empty, longer than 4,096 instructions, or has a jump out of bounds.
pub fn attach_filter(socket: BorrowedFd<'_>, program: &[FilterInstruction]) -> io::Result<()> {
    set_program(socket, libc::SO_ATTACH_FILTER, program)
}

fn set_program(
    socket: BorrowedFd<'_>,
    name: libc::c_int,
    program: &[FilterInstruction],
) -> io::Result<()> {
    let mut program: Vec<libc::sock_filter> = program
        .iter()
        .map(|&FilterInstruction { code, jt, jf, k }| libc::sock_filter { code, jt, jf, k })
        .collect();
    let len = u16::try_from(program.len()).map_err(|_| io::Error::from(Errno::INVAL))?;
    let filter = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    set(socket.as_raw_fd(), libc::SOL_SOCKET, name, &filter)
}

/// Takes a socket off its port: datagrams to the port then find no socket and count as the host's `NoPorts`, as after a close.
/// The socket's counters can then be read for the last time with nothing arriving in between.
///
/// It does so by connecting the socket to a peer that sends nothing: the discard port of this host. If that is unreachable from
/// the socket's address, nothing changes.
pub fn leave_port(socket: BorrowedFd<'_>) {
    let nobody: SocketAddr = match local_address(socket) {
        Some(LocalAddress::Inet(addr)) if addr.is_ipv4() => (Ipv4Addr::LOCALHOST, 9).into(),
        Some(LocalAddress::Inet(_)) => (Ipv6Addr::LOCALHOST, 9).into(),
        _ => return,
    };
    let _ = socket2::SockRef::from(&socket).connect(&nobody.into());
}

pub(crate) fn set_int(
    fd: i32,
    level: libc::c_int,
    name: libc::c_int,
    value: i32,
) -> io::Result<()> {
    set(fd, level, name, &value)
}

fn set<T>(fd: i32, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            ptr::from_ref(value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    check(rc).map(drop).map_err(io::Error::from)
}

/// `T` must consist only of integers, for which every bit pattern is valid.
pub(crate) fn get<T: Copy>(
    fd: i32,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> Result<(), Errno> {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `value`; the kernel writes at most `len` bytes, and the callers pass
    // an integer or an array of integers.
    let rc =
        unsafe { libc::getsockopt(fd, level, name, ptr::from_mut(value).cast(), &raw mut len) };

    check(rc).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_socket_shows_the_limit_of_receive_buffers() {
        let max = receive_buffer_max().unwrap();
        if let Ok(text) = std::fs::read_to_string("/proc/sys/net/core/rmem_max") {
            assert_eq!(text.trim().parse(), Ok(max));
        }
    }

    #[test]
    fn drops_are_counted_after_refusing() {
        let receiver =
            listen_udp("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let Some(LocalAddress::Inet(addr)) = local_address(receiver.as_fd()) else { panic!() };
        let sender = connect_udp(addr, &SendOptions::default()).unwrap();
        let sender = UdpSocket::from(sender);
        sender.send(b"kept").unwrap();
        refuse_new_datagrams(receiver.as_fd()).unwrap();
        sender.send(b"refused").unwrap();
        assert_eq!(mem_info(receiver.as_fd()).unwrap().dropped_datagrams, 1);
        let mut buffer = [0; 16];
        assert_eq!(UdpSocket::from(receiver).recv(&mut buffer).unwrap(), 4);
    }

    #[test]
    fn a_socket_that_left_its_port_gets_nothing_and_counts_nothing() {
        for any in ["0.0.0.0:0", "127.0.0.1:0", "[::]:0", "[::1]:0"] {
            let receiver = listen_udp(any.parse().unwrap(), &ListenOptions::default()).unwrap();
            let Some(LocalAddress::Inet(mut addr)) = local_address(receiver.as_fd()) else {
                panic!()
            };
            let localhost = if addr.is_ipv4() { "127.0.0.1" } else { "::1" };
            addr.set_ip(localhost.parse().unwrap());
            leave_port(receiver.as_fd());
            let sender = UdpSocket::from(connect_udp(addr, &SendOptions::default()).unwrap());
            sender.send(b"to nobody").unwrap();
            assert_eq!(
                mem_info(receiver.as_fd()).unwrap(),
                MemInfo {
                    receive_queued_bytes: 0,
                    dropped_datagrams: 0,
                    ..mem_info(receiver.as_fd()).unwrap()
                }
            );
            assert_eq!(crate::errqueue::take(sender.as_fd()).unwrap().errno, Errno::CONNREFUSED);
        }
    }

    #[test]
    fn answers_do_not_crowd_out_reports() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let options = SendOptions::default();
        let sender = UdpSocket::from(connect_udp(peer.local_addr().unwrap(), &options).unwrap());
        for _ in 0..2_000 {
            peer.send_to(&[0; 100], sender.local_addr().unwrap()).unwrap();
        }
        drop(peer);
        sender.send(b"refused").unwrap();
        assert_eq!(crate::errqueue::take(sender.as_fd()).unwrap().errno, Errno::CONNREFUSED);
        assert_eq!(mem_info(sender.as_fd()).unwrap().receive_queued_bytes, 0);
    }

    #[test]
    fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("weir-sys-{}.sock", std::process::id()));
        drop(listen_unix(&path).unwrap());
        let live = listen_unix(&path).unwrap();
        let error = listen_unix(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(live);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_no_socket_is_never_replaced() {
        let file = std::env::temp_dir().join(format!("weir-sys-{}.txt", std::process::id()));
        let link = file.with_extension("link");
        let socket = file.with_extension("stale");
        std::fs::write(&file, "precious").unwrap();
        drop(listen_unix(&socket).unwrap());
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        for path in [&file, &link] {
            let error = listen_unix(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{}", path.display());
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        for path in [file, link, socket] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_wildcard_socket_hears_no_group_that_others_joined() {
        let listener = listen_udp("0.0.0.0:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let Some(LocalAddress::Inet(addr)) = local_address(listener.as_fd()) else { panic!() };
        let by_lo =
            ListenOptions { multicast_interface: Some("lo".into()), ..ListenOptions::default() };
        let _member = listen_udp("239.1.2.4:0".parse().unwrap(), &by_lo).unwrap();
        let by_lo = SendOptions { multicast_interface: Some("lo".into()), ..Default::default() };
        for to in [Ipv4Addr::new(239, 1, 2, 4), Ipv4Addr::LOCALHOST] {
            let sender = connect_udp((to, addr.port()).into(), &by_lo).unwrap();
            UdpSocket::from(sender).send(to.to_string().as_bytes()).unwrap();
        }
        let mut buffer = [0; 16];
        let len = UdpSocket::from(listener).recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"127.0.0.1");
        // Loopback has no IPv6 route for multicast groups.
        let listener = listen_udp("[::]:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let mut all: libc::c_int = 1;
        get(listener.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, &mut all).unwrap();
        assert_eq!(all, 0);
    }

    #[test]
    fn groups_of_every_scope_can_be_joined_on_an_interface() {
        let options =
            ListenOptions { multicast_interface: Some("lo".into()), ..ListenOptions::default() };
        for group in ["[ff11::77]:0", "[ff12::77]:0", "[ff15::77]:0", "239.1.2.3:0"] {
            listen_udp(group.parse().unwrap(), &options).unwrap();
        }
    }

    #[test]
    fn loopback_mtu_is_known_once_connected() {
        let socket = connect_udp("127.0.0.1:9".parse().unwrap(), &SendOptions::default()).unwrap();
        assert!(path_mtu_bytes(socket.as_fd()).unwrap() >= 1_280);
        assert_eq!(outstanding_bytes(socket.as_fd()), Ok(0));
    }
}
