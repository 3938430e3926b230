//! Opening and configuring datagram sockets, and reading what the kernel counts for them.

use crate::Errno;
use crate::errno::check;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockAddr, Socket, Type};
use std::ffi::CString;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

/// How a listener's UDP socket is opened.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    /// Interface that joins the group when the address is a multicast one: a name (`eth0`) or, for IPv4, its address.
    /// Without it the kernel chooses by its routes.
    pub multicast_interface: Option<String>,
}

/// Opens and binds a UDP socket; joins the group if the address is a multicast one.
///
/// # Errors
/// Any of `socket(2)`, `bind(2)`, or of joining the group.
pub fn listen_udp(addr: SocketAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let socket =
        Socket::new(Domain::for_address(addr), Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    own_groups_only(&socket, addr)?;
    if addr.is_ipv6() {
        // One address, one family: `[::]` must not take the port of `0.0.0.0` too, or the two cannot both be named.
        socket.set_only_v6(true)?;
    }
    if addr.ip().is_multicast() {
        // Several programs on a host may listen to one group (ip(7), SO_REUSEADDR); a unicast port is never shared.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&with_scope(addr, options.multicast_interface.as_deref())?.into())?;
    if addr.ip().is_multicast() {
        join_group(&socket, addr.ip(), options.multicast_interface.as_deref())?;
    }
    Ok(socket.into())
}

/// Without this a socket on a wildcard address hears every group that any socket of the host has joined (ip(7),
/// `IP_MULTICAST_ALL`): what a relay sends to a group would come back to it as soon as another program joins.
fn own_groups_only(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    if addr.is_ipv4() {
        return set_int(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
    }
    match set_int(socket.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0) {
        // Kernels before 4.20 do not have it.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        result => result,
    }
}

/// A group of interface-local or link-local scope is one only together with its interface (RFC 4007 section 6).
fn with_scope(addr: SocketAddr, interface: Option<&str>) -> io::Result<SocketAddr> {
    match (addr, interface) {
        (SocketAddr::V6(v6), Some(name)) if v6.ip().is_multicast() && v6.scope_id() == 0 => {
            let index = interface_index(name)?;
            Ok(SocketAddrV6::new(*v6.ip(), v6.port(), 0, index).into())
        }
        _ => Ok(addr),
    }
}

fn join_group(socket: &Socket, group: IpAddr, interface: Option<&str>) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            let by = match interface {
                None => InterfaceIndexOrAddress::Address(Ipv4Addr::UNSPECIFIED),
                Some(text) => match text.parse::<Ipv4Addr>() {
                    Ok(addr) => InterfaceIndexOrAddress::Address(addr),
                    Err(_) => InterfaceIndexOrAddress::Index(interface_index(text)?),
                },
            };
            socket.join_multicast_v4_n(&group, &by)
        }
        IpAddr::V6(group) => {
            let index = interface.map_or(Ok(0), interface_index)?;
            socket.join_multicast_v6(&group, index)
        }
    }
}

/// The index of a network interface.
///
/// # Errors
/// `ENODEV` when there is none of that name.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `name` is a C string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Opens a unix datagram socket at a path. A socket file that nobody listens on any more is replaced; nothing else is.
///
/// # Errors
/// `EADDRINUSE` when another process listens there or the path is not a socket; any of `socket(2)`, `bind(2)`.
pub fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM.cloexec(), None)?;
    let addr = SockAddr::unix(path)?;
    match socket.bind(&addr) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale_socket(path) => {
            std::fs::remove_file(path)?;
            socket.bind(&addr)?;
        }
        result => result?,
    }
    Ok(socket.into())
}

fn is_stale_socket(path: &Path) -> bool {
    // connect(2) answers ECONNREFUSED for a regular file too (net/unix/af_unix.c, unix_find_bsd), and a symbolic link is
    // not ours to remove.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket
        && connect_unix(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The send buffer of a UDP socket for which no other is asked, in bytes of the kernel's accounting.
///
/// While a neighbour's link address is not known, datagrams wait in a queue of `net.ipv4.neigh.*.unres_qlen_bytes`
/// (212,992), which drops its oldest ones without telling anybody. The kernel's own default for send buffers is as large,
/// and one message more fits beyond it. With less, the socket is full before the queue is, and says so: measured, of 26,474
/// datagrams to a neighbour that answered after a second 480 were lost in silence with 208 KiB, and none with this.
pub const SEND_BUFFER_BYTES: usize = 128 << 10;

/// How a target's UDP socket is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Address that datagrams leave from. Chosen by route when absent.
    pub source_address: Option<IpAddr>,
    /// Port that datagrams leave from. Ephemeral when absent.
    pub source_port: Option<u16>,
    /// Time to live or hop limit, for unicast and multicast.
    pub ttl: Option<u8>,
    /// Differentiated services code point, 0 to 63 (RFC 2474).
    pub dscp: Option<u8>,
    /// Send buffer to ask for, in bytes of the kernel's accounting. [`SEND_BUFFER_BYTES`] when absent.
    pub send_buffer_bytes: Option<usize>,
    /// Interface that multicast datagrams leave by.
    pub multicast_interface: Option<String>,
}

/// Opens a connected, non-blocking UDP socket whose errors are reported to us (`IP_RECVERR`).
///
/// Without `IP_RECVERR` a full queue loses datagrams while `send` says that all is well (ip(7)). What the peer sends back is
/// refused: nobody would read it, and the error queue shares its room with it (net/core/skbuff.c, sock_queue_err_skb).
///
/// # Errors
/// Any of `socket(2)`, `bind(2)`, `connect(2)`, or an option that the kernel refuses.
pub fn connect_udp(remote: SocketAddr, options: &SendOptions) -> io::Result<OwnedFd> {
    let remote = match remote {
        // An IPv4-mapped address is reached by IPv4, whose errors an IPv6 socket would not report.
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
    if remote.is_ipv4() {
        set_int(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
    } else {
        set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    if options.source_address.is_some() || options.source_port.is_some() {
        // The socket of a replaced target, or of another listener's, may still hold the same fixed port.
        socket.set_reuse_address(options.source_port.is_some())?;
        let any = if remote.is_ipv4() { "0.0.0.0" } else { "::" };
        let ip = match options.source_address {
            Some(ip) => ip,
            None => any.parse().expect("a literal address"),
        };
        socket.bind(&SocketAddr::new(ip, options.source_port.unwrap_or(0)).into())?;
    }
    apply_send_options(&socket, remote, options)?;
    socket.connect(&remote.into())?;
    let socket = OwnedFd::from(socket);
    refuse_new_datagrams(socket.as_fd())?;
    Ok(socket)
}

fn apply_send_options(
    socket: &Socket,
    remote: SocketAddr,
    options: &SendOptions,
) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    let send_buffer_bytes = options.send_buffer_bytes.unwrap_or(SEND_BUFFER_BYTES);
    // The kernel doubles what is asked for, to cover its own bookkeeping (socket(7), SO_SNDBUF).
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
/// `ENOENT` when there is no such path, `ECONNREFUSED` when nobody listens there.
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM.cloexec(), None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket.into())
}

/// The address that a socket is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAddress {
    /// An internet address; UDP unless [`is_datagram`] says otherwise.
    Inet(SocketAddr),
    /// A unix socket's path.
    Unix(PathBuf),
}

/// Where a socket is bound; `None` for an unnamed unix socket or another family.
pub fn local_address(socket: BorrowedFd<'_>) -> Option<LocalAddress> {
    let addr = socket2::SockRef::from(&socket).local_addr().ok()?;
    match addr.as_socket() {
        Some(inet) => Some(LocalAddress::Inet(inet)),
        None => addr.as_pathname().map(|path| LocalAddress::Unix(path.to_owned())),
    }
}

/// Where an internet socket is connected to; `None` for any other socket.
pub fn remote_address(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    socket2::SockRef::from(&socket).peer_addr().ok()?.as_socket()
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

/// Asks for a receive buffer and returns what was granted, both in bytes of the kernel's accounting.
///
/// `SO_RCVBUFFORCE` first, which `CAP_NET_ADMIN` allows beyond `net.core.rmem_max`, then `SO_RCVBUF`.
///
/// # Errors
/// Any of `setsockopt(2)` but the missing capability.
pub fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    // The kernel stores the double of what is asked (net/core/sock.c, __sock_set_rcvbuf).
    let half = i32::try_from(bytes.div_ceil(2)).unwrap_or(i32::MAX / 2);
    let fd = socket.as_raw_fd();
    if set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, half).is_err() {
        set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, half)?;
    }
    receive_buffer(socket)
}

/// The granted receive buffer in bytes of the kernel's accounting.
///
/// # Errors
/// Any of `getsockopt(2)`.
pub fn receive_buffer(socket: BorrowedFd<'_>) -> io::Result<usize> {
    socket2::SockRef::from(&socket).recv_buffer_size()
}

/// Bytes that the kernel charges to a receive buffer for one UDP datagram of this payload (`skb->truesize`).
///
/// Measured on Linux 6.18 over loopback: 832 up to 128 bytes of payload or so, then a power-of-two head plus 256, and
/// 256 bytes of bookkeeping. Other kernels and drivers differ by some tens of percent.
pub fn charged_bytes(payload_bytes: usize) -> usize {
    match payload_bytes {
        0..=160 => 832,
        161..=600 => 1_280,
        601..=1_600 => 2_304,
        _ => (payload_bytes + 320).next_power_of_two().min(payload_bytes + 1_024) + 256,
    }
}

/// What the kernel counts for one socket (`SO_MEMINFO`, include/uapi/linux/sock_diag.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// Bytes charged for datagrams that wait to be read.
    pub receive_queued_bytes: u32,
    /// Limit of the former.
    pub receive_buffer_bytes: u32,
    /// Bytes charged for datagrams that were sent and have not left yet.
    pub send_queued_bytes: u32,
    /// Limit of the former.
    pub send_buffer_bytes: u32,
    /// Datagrams dropped at this socket since it was opened: buffer full, checksum wrong, or refused by a filter.
    /// Wraps at 2^32.
    pub dropped_datagrams: u32,
}

/// Reads the kernel's counts for a socket. Costs well under a microsecond.
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

/// Bytes that were sent and have not left this host yet (`SIOCOUTQ`, udp(7)): zero once the device has them all.
///
/// # Errors
/// Any of `ioctl(2)`.
pub fn outstanding_bytes(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (the number of SIOCOUTQ) writes one int to the address given.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.unsigned_abs())
}

/// Largest IP packet that the path of a connected socket is known to carry, in bytes (`IP_MTU`, ip(7)).
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

/// Makes a socket refuse everything that arrives from now on; what is already queued stays readable.
///
/// The refused datagrams count in [`MemInfo::dropped_datagrams`], so that a socket can be emptied and closed without
/// one datagram leaving the account: a plain `close` forgets what is queued without counting it.
///
/// A unix datagram socket's filter would swallow without counting (net/unix/af_unix.c, unix_dgram_sendmsg), so there the
/// reading half is shut instead, and the senders get `EPIPE`.
///
/// # Errors
/// Any of `setsockopt(2)` or `shutdown(2)`.
pub fn refuse_new_datagrams(socket: BorrowedFd<'_>) -> io::Result<()> {
    if !matches!(local_address(socket), Some(LocalAddress::Inet(_))) {
        return socket2::SockRef::from(&socket).shutdown(std::net::Shutdown::Read);
    }
    let mut program =
        [libc::sock_filter { code: 0x06 /* BPF_RET | BPF_K */, jt: 0, jf: 0, k: 0 }];
    let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

/// Takes a socket out of the way of everybody's datagrams: from here on they find no socket and are the host's `NoPorts`,
/// as after a close. Its counters can then be read for the last time with nothing arriving in between.
///
/// It does so by connecting the socket to a peer that sends nothing: the discard port of this host. Where that cannot be
/// reached from the socket's address, nothing changes.
pub fn leave_port(socket: BorrowedFd<'_>) {
    let nobody: SocketAddr = match local_address(socket) {
        Some(LocalAddress::Inet(addr)) if addr.is_ipv4() => (Ipv4Addr::LOCALHOST, 9).into(),
        Some(LocalAddress::Inet(_)) => (Ipv6Addr::LOCALHOST, 9).into(),
        _ => return,
    };
    let _ = socket2::SockRef::from(&socket).connect(&nobody.into());
}

fn set_int(fd: i32, level: libc::c_int, name: libc::c_int, value: i32) -> io::Result<()> {
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

/// `T` must be made of integers only, of which every bit pattern is valid.
fn get<T: Copy>(
    fd: i32,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut T,
) -> Result<(), Errno> {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `value`; the kernel writes at most `len` bytes, and the two callers
    // pass an int and an array of integers.
    let rc =
        unsafe { libc::getsockopt(fd, level, name, ptr::from_mut(value).cast(), &raw mut len) };
    check(rc).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

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
        let by_lo = ListenOptions { multicast_interface: Some("lo".into()) };
        let _member = listen_udp("239.1.2.4:0".parse().unwrap(), &by_lo).unwrap();
        let by_lo = SendOptions { multicast_interface: Some("lo".into()), ..Default::default() };
        for to in [Ipv4Addr::new(239, 1, 2, 4), Ipv4Addr::LOCALHOST] {
            let sender = connect_udp((to, addr.port()).into(), &by_lo).unwrap();
            UdpSocket::from(sender).send(to.to_string().as_bytes()).unwrap();
        }
        let mut buffer = [0; 16];
        let len = UdpSocket::from(listener).recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"127.0.0.1");
        // Loopback has no IPv6 route for groups to send by.
        let listener = listen_udp("[::]:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let mut all: libc::c_int = 1;
        get(listener.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, &mut all).unwrap();
        assert_eq!(all, 0);
    }

    #[test]
    fn groups_of_every_scope_can_be_joined_on_an_interface() {
        let options = ListenOptions { multicast_interface: Some("lo".into()) };
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
