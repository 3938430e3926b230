//! Sockets for receiving.

use super::membership::Membership;
use super::{connect_unix, set_int};
use crate::errno::check;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::ffi::CString;
use std::fs::{OpenOptions, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// How a listener's UDP socket is opened.
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    /// Interface on which to join the group when the address is a multicast one: a name (`eth0`) or, for IPv4, its address.
    /// Without it the kernel chooses by its routes.
    pub multicast_interface: Option<String>,
    /// The only senders to a group whose datagrams are wanted (source-specific multicast, RFC 4607). Empty for all.
    pub multicast_sources: Vec<IpAddr>,
    /// The only interface, or VRF, by which datagrams may arrive (`SO_BINDTODEVICE`, socket(7)).
    pub interface: Option<String>,
    /// Whether an address is bound that this host does not have yet (`IP_FREEBIND`, ip(7)).
    pub is_free: bool,
    /// Whether an IPv6 wildcard address takes IPv4 too.
    pub is_dual: bool,
    /// Whether another socket of this process, which receives nothing any more, is bound to the address and
    /// [shares](share_address) it.
    pub shares_address: bool,
}

/// Lets one more socket bind to this one's address, with [`ListenOptions::shares_address`].
///
/// # Errors
/// None for a socket.
pub fn share_address(socket: BorrowedFd<'_>) -> io::Result<()> {
    socket2::SockRef::from(&socket).set_reuse_address(true)
}

/// Opens and binds a UDP socket; joins the group if the address is a multicast one.
///
/// # Errors
/// Any of `socket(2)`, `bind(2)`, or of joining the group.
pub fn listen_udp(addr: SocketAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let socket = new_listener(addr, options)?;
    let scope = options.multicast_interface.as_deref().or(options.interface.as_deref());
    socket.bind(&with_scope(addr, scope)?.into())?;
    // The kernel checks both sockets when the second one is bound (net/ipv4/udp.c, udp_lib_lport_inuse): nobody can join
    // later.
    socket.set_reuse_address(addr.ip().is_multicast())?;

    if let Some(mut membership) = Membership::wanted(addr, options) {
        membership.join(socket.as_fd())?;
    }

    Ok(socket.into())
}

/// A socket for that address, not bound yet.
pub(super) fn new_listener(addr: SocketAddr, options: &ListenOptions) -> io::Result<Socket> {
    let socket =
        Socket::new(Domain::for_address(addr), Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    own_groups_only(&socket, addr, options)?;
    if addr.is_ipv6() {
        // One address, one family: `[::]` must not take the port of `0.0.0.0` too, or a configuration could not name both.
        socket.set_only_v6(!options.is_dual)?;
    }

    if let Some(name) = &options.interface {
        bind_to_interface(&socket, name)?;
    }
    if options.is_free {
        match addr {
            SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
            SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
        }
    }

    // Several programs on a host may listen to one group (ip(7), SO_REUSEADDR); a unicast port is never shared with another
    // program.
    socket.set_reuse_address(addr.ip().is_multicast() || options.shares_address)?;
    Ok(socket)
}

/// Without this, a socket on a wildcard address receives every group that any socket of the host has joined (ip(7),
/// `IP_MULTICAST_ALL`): datagrams that a relay sends to a group would come back to it as soon as another program joins.
fn own_groups_only(socket: &Socket, addr: SocketAddr, options: &ListenOptions) -> io::Result<()> {
    if addr.is_ipv4() || options.is_dual {
        set_int(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
    }
    if addr.is_ipv4() {
        return Ok(());
    }
    match set_int(socket.as_raw_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0) {
        // Kernels before 4.20 do not have it.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        result => result,
    }
}

/// A group of interface-local or link-local scope is only defined together with an interface (RFC 4007 section 6).
fn with_scope(addr: SocketAddr, interface: Option<&str>) -> io::Result<SocketAddr> {
    match (addr, interface) {
        (SocketAddr::V6(v6), Some(name)) if v6.ip().is_multicast() && v6.scope_id() == 0 => {
            let index = interface_index(name)?;
            Ok(SocketAddrV6::new(*v6.ip(), v6.port(), 0, index).into())
        }
        _ => Ok(addr),
    }
}

/// Makes a socket use an interface, or the interfaces of a VRF, alone. The socket keeps the interface's index: one that is made
/// again under the name needs another socket.
pub(super) fn bind_to_interface(socket: &Socket, name: &str) -> io::Result<()> {
    // Linux before 5.7 needs CAP_NET_RAW.
    socket.bind_device(Some(name.as_bytes()))
}

/// The index of a network interface.
///
/// # Errors
/// `ENODEV` when there is no interface of that name.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `name` is a C string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Opens a unix datagram socket at a path. Replaces a socket file that nobody listens on any more, and nothing else. Only the owner
/// can send until [`share_socket_file`] changes that.
///
/// # Errors
/// `EADDRINUSE` when another process listens there or the path is not a socket; any of `socket(2)`, `bind(2)`.
pub fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM.cloexec(), None)?;
    // As for a stream.
    // SAFETY: fchmod takes integers.
    check(unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) })?;
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

/// Opens a unix stream socket at a path, non-blocking, and listens. Replaces a socket file that nobody listens on any more,
/// and nothing else. Only the owner can connect until [`share_socket_file`] changes that.
///
/// # Errors
/// As [`listen_unix`].
pub fn listen_unix_stream(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec().nonblocking(), None)?;

    // The file's mode is the socket's mode less the umask (net/unix/af_unix.c, unix_bind_bsd).
    // SAFETY: fchmod takes integers.
    check(unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) })?;

    let addr = SockAddr::unix(path)?;
    match socket.bind(&addr) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale_stream(path) => {
            std::fs::remove_file(path)?;
            socket.bind(&addr)?;
        }
        result => result?,
    }

    socket.listen(128)?;
    Ok(OwnedFd::from(socket).into())
}

fn is_stale_stream(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    // Non-blocking: a listener that does not accept would block this forever once its queue is full.
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec().nonblocking(), None)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    is_socket && connect().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Sets the mode of a unix socket file that this process has just bound, and its owner and group if given: who may connect. If another
/// user with write access to the directory has replaced the file meanwhile, the replacement is not touched.
///
/// # Errors
/// `EPERM` when the path is no longer a socket of this user with a single link; any of `open(2)`, `fchownat(2)`, `chmod(2)`.
pub fn share_socket_file(
    path: &Path,
    mode: u32,
    (uid, gid): (Option<u32>, Option<u32>),
) -> io::Result<()> {
    // This neither follows a link nor opens the socket: it only pins down which file is meant.
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;

    let meta = file.metadata()?;
    let is_ours = meta.file_type().is_socket()
        && meta.uid() == crate::process::effective_uid()
        && meta.nlink() == 1;
    if !is_ours {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }

    // fchmod(2) refuses such a descriptor; its name in /proc leads to exactly that file (open(2), O_PATH). First, because only the
    // owner may.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::set_permissions(name, Permissions::from_mode(mode))?;

    if uid.is_some() || gid.is_some() {
        let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
        // SAFETY: the path is an empty C string that is static; the rest are integers.
        check(unsafe {
            libc::fchownat(file.as_raw_fd(), c"".as_ptr(), uid, gid, libc::AT_EMPTY_PATH)
        })?;
    }
    Ok(())
}

fn is_stale_socket(path: &Path) -> bool {
    // connect(2) returns ECONNREFUSED for a regular file too (net/unix/af_unix.c, unix_find_bsd), and a symbolic link is not
    // ours to remove.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket
        && connect_unix(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
