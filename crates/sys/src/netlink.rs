//! Netlink sockets: the only way to query the kernel and to receive its events.
//!
//! Everything that a byte slice does not show is checked here: whether the kernel truncated a datagram, who sent it, to which
//! group, and from which namespace. Decoding the bytes is up to the caller.

pub(crate) mod ask;
mod batch;
mod message;

pub use batch::EventBatch;

use crate::errno::check;
use crate::{Errno, socket};
use message::Slot;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

/// A receive buffer size that no dump of this kernel or an older one exceeds: a dump's datagrams are as large as the largest
/// buffer seen on the socket, up to 32 KiB (net/netlink/af_netlink.c, netlink_dump).
pub const DUMP_BUFFER_BYTES: usize = 32 * 1024;

const SOL_NETLINK: libc::c_int = 270;
const NETLINK_ADD_MEMBERSHIP: libc::c_int = 1;
const NETLINK_NO_ENOBUFS: libc::c_int = 5;
const NETLINK_LISTEN_ALL_NSID: libc::c_int = 8;

/// The part of the kernel at the other end (include/uapi/linux/netlink.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Routes, links, queues, neighbors and namespace ids (`NETLINK_ROUTE`).
    Route,
    /// Sockets, and events when they are destroyed (`NETLINK_SOCK_DIAG`).
    SockDiag,
}

impl Protocol {
    pub(crate) const fn number(self) -> libc::c_int {
        match self {
            Protocol::Route => 0,
            Protocol::SockDiag => 4,
        }
    }
}

/// One datagram from the kernel, which holds one or more netlink messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received<'a> {
    /// The messages; incomplete if `truncated`.
    pub bytes: &'a [u8],
    /// The datagram was larger than the buffer and its end is gone (`MSG_TRUNC`).
    pub truncated: bool,
    /// Port id of the sender; 0 is the kernel, anything else a process that must not be trusted.
    pub sender_port_id: u32,
    /// The multicast group it was sent to; 0 for a reply. Groups above 32 read as 0 (netlink(7)).
    pub group: u32,
    /// The id by which the socket's own namespace knows the sender's. `None` when the sender is in the socket's own namespace
    /// (unless that namespace was assigned an id for itself), or when [`Socket::listen_all_namespaces`] was not called.
    pub nsid: Option<i32>,
}

impl Received<'_> {
    /// Whether the kernel sent it and it is complete.
    pub fn is_whole_and_from_the_kernel(&self) -> bool {
        !self.truncated && self.sender_port_id == 0
    }
}

/// A netlink socket, closed on exec. It belongs to the namespace in which it was opened and keeps that namespace alive.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket in the namespace of the calling thread. It does not block; see [`Self::set_receive_timeout`].
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` when this kernel is built without the protocol; `EMFILE` and the like.
    pub fn open(protocol: Protocol) -> Result<Socket, Errno> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol.number()) })?;
        // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Takes a socket that another process opened, after checking with the kernel that it is the right kind.
    ///
    /// # Errors
    /// `EPROTO` when it is not a netlink socket of this protocol; `ENOTSOCK` when it is not a socket.
    pub fn from_fd(fd: OwnedFd, protocol: Protocol) -> Result<Socket, Errno> {
        let domain: libc::c_int = option(fd.as_fd(), libc::SO_DOMAIN)?;
        let number: libc::c_int = option(fd.as_fd(), libc::SO_PROTOCOL)?;
        if domain == libc::AF_NETLINK && number == protocol.number() {
            Ok(Socket(fd))
        } else {
            Err(Errno::PROTO)
        }
    }

    /// Joins a multicast group. Groups are numbers from 1, not bits.
    ///
    /// # Errors
    /// `EINVAL` when the kernel has no such group, `EPERM` when the group requires a capability.
    pub fn join_group(&self, group: u32) -> Result<(), Errno> {
        // The kernel's own port id is 0. It takes a member without a port id for itself and does not deliver to it
        // (net/netlink/af_netlink.c, do_one_broadcast).
        if self.port_id()? == 0 {
            self.bind()?;
        }
        self.set(NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Receives the groups of every namespace that the socket's own namespace has an id for (`NETLINK_LISTEN_ALL_NSID`); the
    /// others stay silent, see [`crate::namespace::Nsids`].
    ///
    /// Whether an event of another namespace is delivered depends on whether the process that opened the socket had
    /// `CAP_NET_BROADCAST` over that namespace's user namespace (net/netlink/af_netlink.c, do_one_broadcast, file_ns_capable): a
    /// helper may open the socket, and the process that reads needs no capability.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_BROADCAST`; `ENOPROTOOPT` before Linux 4.2.
    pub fn listen_all_namespaces(&self) -> Result<(), Errno> {
        self.set(NETLINK_LISTEN_ALL_NSID, 1)
    }

    /// Loses only the events that do not fit the receive buffer, and does not report it (`NETLINK_NO_ENOBUFS`):
    /// [`crate::socket::mem_info`] has their exact number.
    ///
    /// Without it, one loss makes the kernel drop everything until the reader has emptied the queue, and the next call returns
    /// `ENOBUFS` (net/netlink/af_netlink.c, netlink_overrun).
    ///
    /// # Errors
    /// Any of `setsockopt(2)`.
    pub fn lose_only_what_does_not_fit(&self) -> Result<(), Errno> {
        self.set(NETLINK_NO_ENOBUFS, 1)
    }

    /// Makes the socket blocking, with a limit on how long [`Self::receive`] waits.
    ///
    /// # Errors
    /// Any of `fcntl(2)` or `setsockopt(2)`.
    pub fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        socket::set_receive_timeout(self.as_fd(), timeout)
    }

    /// The socket's port id; 0 until it has sent something or joined a group.
    ///
    /// # Errors
    /// Any of `getsockname(2)`.
    pub fn port_id(&self) -> Result<u32, Errno> {
        let mut addr = kernel_address();
        let mut len = ADDRESS_BYTES;
        // SAFETY: the kernel writes at most `len` bytes, the size of `addr`.
        check(unsafe {
            libc::getsockname(self.0.as_raw_fd(), ptr::from_mut(&mut addr).cast(), &raw mut len)
        })?;
        Ok(addr.nl_pid)
    }

    /// Sends one or more messages to the kernel.
    ///
    /// # Errors
    /// Any of `sendto(2)`: `EAGAIN`, `ENOBUFS`, `EPERM`. The kernel answers the request itself with a message.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        let addr = kernel_address();

        // SAFETY: both pointers and lengths describe memory that outlives the call, which only reads it.
        let rc = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL,
                ptr::from_ref(&addr).cast(),
                ADDRESS_BYTES,
            )
        };

        if rc == -1 { Err(Errno::last()) } else { Ok(()) }
    }

    /// Receives the next datagram. For dumps, use at least [`DUMP_BUFFER_BYTES`].
    ///
    /// A dump is produced while it is read, so it never waits and is never lost: `EAGAIN` means that it is over, and a message of
    /// type `NLMSG_DONE` announces that first. Events are lost when the receive buffer is full; then `ENOBUFS` is returned once,
    /// and [`crate::socket::mem_info`] has the exact number.
    ///
    /// # Errors
    /// `EAGAIN` when there is nothing (within the timeout, on a blocking socket); `ENOBUFS`; `EINTR`; any other of `recvmsg(2)`.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Received<'b>, Errno> {
        let mut slot = Slot::default();
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut header = slot.header(&mut part);
        // SAFETY: the header points at `part`, which describes `buffer`, and into `slot`; all of them outlive the call.
        let rc = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut header, 0) };
        let len = usize::try_from(rc).map_err(|_| Errno::last())?;
        Ok(slot.received(&header, buffer.get(..len).unwrap_or_default()))
    }

    /// Has the kernel choose a port id.
    fn bind(&self) -> Result<(), Errno> {
        let addr = kernel_address();
        // SAFETY: the pointer and the length describe `addr`, which outlives the call.
        let rc =
            unsafe { libc::bind(self.0.as_raw_fd(), ptr::from_ref(&addr).cast(), ADDRESS_BYTES) };
        check(rc).map(drop)
    }

    fn set(&self, name: libc::c_int, value: u32) -> Result<(), Errno> {
        // SAFETY: the pointer and the length describe `value`, which outlives the call.
        check(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                SOL_NETLINK,
                name,
                ptr::from_ref(&value).cast(),
                mem::size_of::<u32>() as libc::socklen_t,
            )
        })
        .map(drop)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> OwnedFd {
        socket.0
    }
}

const ADDRESS_BYTES: libc::socklen_t = mem::size_of::<libc::sockaddr_nl>() as libc::socklen_t;

/// The kernel's own address as a destination, or "any" as an address to bind to: port id 0, no groups.
fn kernel_address() -> libc::sockaddr_nl {
    // SAFETY: all-zero bytes are a valid `sockaddr_nl`: it holds integers only.
    let mut addr: libc::sockaddr_nl = unsafe { mem::zeroed() };
    addr.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    addr
}

fn option(fd: BorrowedFd<'_>, name: libc::c_int) -> Result<libc::c_int, Errno> {
    let mut value: libc::c_int = 0;
    let mut len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `value`; the kernel writes at most `len` bytes.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            ptr::from_mut(&mut value).cast(),
            &raw mut len,
        )
    })?;

    Ok(value)
}
