//! Passes descriptors from one process to another, with bytes that say what they are.
//!
//! Channels are unix sockets of type `SOCK_SEQPACKET`: they keep message boundaries and order, and when the other side closes,
//! an empty message is received (unix(7)).

use crate::Errno;
use crate::errno::check;
use socket2::{Domain, SockAddr, Type};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr;
use std::time::Duration;

/// Most descriptors in one message. The kernel's own limit is 253 (`SCM_MAX_FD`, include/net/scm.h).
pub const DESCRIPTORS_MAX: usize = 64;

/// Room for the control message that carries them, with the alignment that the kernel requires.
const CONTROL_WORDS: usize = 40;

// SAFETY: CMSG_SPACE computes from its argument alone.
const _: () = assert!(
    unsafe { libc::CMSG_SPACE((DESCRIPTORS_MAX * mem::size_of::<RawFd>()) as u32) } as usize
        <= CONTROL_WORDS * 8
);
// `[u64; n]` has the alignment that a control message requires.
const _: () = assert!(mem::align_of::<libc::cmsghdr>() <= mem::align_of::<u64>());

/// The process at the other end of a channel, as of when it was connected or created (`SO_PEERCRED`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its process id, as this process sees it; 0 when it is in a pid namespace that this process cannot see into.
    pub process: u32,
    /// Its effective user id.
    pub uid: u32,
    /// Its effective group id.
    pub gid: u32,
}

/// One message, without its descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Bytes written to the buffer; 0 when the other side is gone, or sent nothing but descriptors.
    pub len: usize,
    /// The message was larger than the buffer and its end is gone (`MSG_TRUNC`).
    pub is_truncated: bool,
    /// Descriptors that came with it.
    pub descriptors: usize,
}

/// One end of a connection, closed on exec.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Two ends of a connection, for a process and its child.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let (one, other) = socket2::Socket::pair(Domain::UNIX, kind(), None)?;
        Ok((Channel(one.into()), Channel(other.into())))
    }

    /// Connects to a [`Listener`].
    ///
    /// # Errors
    /// `ENOENT` when there is no such file, `ECONNREFUSED` when nobody listens at it, `EACCES`.
    pub fn connect(path: &Path) -> io::Result<Channel> {
        let socket = socket2::Socket::new(Domain::UNIX, kind(), None)?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(Channel(socket.into()))
    }

    /// Like [`Self::connect`], but with a limit on every wait, including the connection itself: a listener that does not
    /// accept makes others wait forever once its queue is full.
    ///
    /// # Errors
    /// As [`Self::connect`]; `EAGAIN` when the timeout expires.
    pub fn connect_within(path: &Path, timeout: Duration) -> io::Result<Channel> {
        let channel = Channel(socket2::Socket::new(Domain::UNIX, kind(), None)?.into());
        channel.set_timeout(Some(timeout))?;
        socket2::SockRef::from(&channel.0).connect(&SockAddr::unix(path)?)?;
        Ok(channel)
    }

    /// Takes one end that this process inherited.
    ///
    /// # Errors
    /// `EPROTO` when it is not a unix socket of type `SOCK_SEQPACKET`; `ENOTSOCK` when it is not a socket.
    pub fn from_fd(fd: OwnedFd) -> Result<Channel, Errno> {
        checked(fd).map(Channel)
    }

    /// Limits how long [`Self::receive`] and [`Self::send`] wait; `None` waits forever.
    ///
    /// # Errors
    /// Any of `setsockopt(2)`.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let socket = socket2::SockRef::from(&self.0);
        socket.set_read_timeout(timeout)?;
        socket.set_write_timeout(timeout)
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// Any of `getsockopt(2)`.
    pub fn peer(&self) -> Result<Peer, Errno> {
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = mem::size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the pointer and the length describe `found`; the kernel writes at most `len` bytes.
        check(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                ptr::from_mut(&mut found).cast(),
                &raw mut len,
            )
        })?;

        Ok(Peer { process: found.pid.unsigned_abs(), uid: found.uid, gid: found.gid })
    }

    /// Sends one message. The descriptors stay open here; the other side gets copies.
    ///
    /// # Errors
    /// `EPIPE` when the other side is gone; `EINVAL` above [`DESCRIPTORS_MAX`]; `EMSGSIZE` when the message does not fit the
    /// send buffer; `EAGAIN` after the timeout; `ETOOMANYREFS` when too many descriptors are in flight.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        send_to_peer(self.0.as_fd(), bytes, descriptors)
    }

    /// Receives the next message, and appends its descriptors, closed on exec, to `descriptors`.
    ///
    /// # Errors
    /// `EAGAIN` after the timeout; `EPROTO` when more than [`DESCRIPTORS_MAX`] descriptors were sent or this process may not
    /// open that many (`MSG_CTRUNC`): those that did arrive are closed, since nobody can tell which are missing.
    pub fn receive(
        &self,
        buffer: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<Message, Errno> {
        let mut control = [0_u64; CONTROL_WORDS];
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut header = header(&mut part);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = mem::size_of_val(&control) as _;

        // SAFETY: the header points at `part`, which describes `buffer`, and at `control`; all of them outlive the call.
        let rc =
            unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
        let len = usize::try_from(rc).map_err(|_| Errno::last())?;

        let before = descriptors.len();
        // SAFETY: the kernel has just filled `control` through `header`.
        unsafe { take_descriptors(&header, descriptors) };

        if header.msg_flags & libc::MSG_CTRUNC != 0 {
            descriptors.truncate(before);
            return Err(Errno::PROTO);
        }

        let is_truncated = header.msg_flags & libc::MSG_TRUNC != 0;
        Ok(Message { len, is_truncated, descriptors: descriptors.len() - before })
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> OwnedFd {
        channel.0
    }
}

/// A unix socket that channels are connected to.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens at a path, which must not exist. The file's mode decides who may connect; it starts with the umask's.
    ///
    /// # Errors
    /// `EADDRINUSE` when the path exists; any other of `bind(2)`.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let socket = socket2::Socket::new(Domain::UNIX, kind(), None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        socket.listen(16)?;
        Ok(Listener(socket.into()))
    }

    /// Takes a listening socket from a service manager ([`crate::activation`]).
    ///
    /// # Errors
    /// As [`Channel::from_fd`].
    pub fn from_fd(fd: OwnedFd) -> Result<Listener, Errno> {
        checked(fd).map(Listener)
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// Any of `accept4(2)`.
    pub fn accept(&self) -> io::Result<Channel> {
        let (socket, _) = socket2::SockRef::from(&self.0).accept()?;
        Ok(Channel(socket.into()))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn kind() -> Type {
    Type::SEQPACKET.cloexec()
}

fn checked(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    let socket = socket2::SockRef::from(&fd);
    let error = |error: io::Error| Errno::from(&error);
    let is_unix = socket.domain().map_err(error)? == Domain::UNIX;
    let is_seqpacket = socket.r#type().map_err(error)? == Type::SEQPACKET;
    if is_unix && is_seqpacket { Ok(fd) } else { Err(Errno::PROTO) }
}

fn header(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all-zero bytes are a valid `msghdr`: null pointers, zero lengths.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header
}

/// Writes one control message of type `SCM_RIGHTS`. At most [`DESCRIPTORS_MAX`].
fn write_descriptors(control: &mut [u64; CONTROL_WORDS], descriptors: &[BorrowedFd<'_>]) {
    assert!(descriptors.len() <= DESCRIPTORS_MAX, "the caller has checked");
    let message = control.as_mut_ptr().cast::<libc::cmsghdr>();
    let value_bytes = mem::size_of_val(descriptors) as u32;

    // SAFETY: `control` is aligned for a `cmsghdr` and holds it and DESCRIPTORS_MAX descriptors (both asserted above), so
    // every write is inside; a `BorrowedFd` is a `RawFd` in memory (repr(transparent)), and the two areas do not overlap.
    unsafe {
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(value_bytes) as _;
        let value = libc::CMSG_DATA(message).cast::<RawFd>();
        ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<RawFd>(), value, descriptors.len());
    }
}

/// Takes the descriptors out of what `recvmsg` wrote, so that each has one owner.
///
/// # Safety
/// `header` must be as a successful `recvmsg` with a control buffer left it, and this must be the only call for it.
unsafe fn take_descriptors(header: &libc::msghdr, descriptors: &mut Vec<OwnedFd>) {
    // SAFETY: the kernel has written whole control messages to `msg_control`, `msg_controllen` bytes of them.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };

    // SAFETY: either null, or a control message inside the buffer.
    while let Some(found) = unsafe { message.as_ref() } {
        if found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: CMSG_LEN computes from its argument alone.
            let header_bytes = u64::from(unsafe { libc::CMSG_LEN(0) });
            // The length is u32 with musl and usize with glibc.
            let value_bytes = (found.cmsg_len as u64).saturating_sub(header_bytes) as usize;
            // SAFETY: the data follows the header inside the buffer.
            let value = unsafe { libc::CMSG_DATA(found) }.cast::<RawFd>();
            for index in 0..value_bytes / mem::size_of::<RawFd>() {
                // SAFETY: the message holds that many descriptors, which the kernel has just opened for this process.
                let fd = unsafe { OwnedFd::from_raw_fd(ptr::read_unaligned(value.add(index))) };
                descriptors.push(fd);
            }
        }

        // SAFETY: `found` is a control message of this header.
        message = unsafe { libc::CMSG_NXTHDR(header, found) };
    }
}

/// Sends one message with copies of descriptors to the peer of any connected unix socket.
///
/// # Errors
/// As [`Channel::send`].
pub fn send_to_peer(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(Errno::INVAL);
    }

    let mut control = [0_u64; CONTROL_WORDS];
    // The kernel only reads the bytes, so the shared reference may be cast to a mutable pointer.
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut header = header(&mut part);

    if !descriptors.is_empty() {
        let value_bytes = mem::size_of_val(descriptors) as u32;
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE computes from its argument alone.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(value_bytes) } as _;
        write_descriptors(&mut control, descriptors);
    }

    // SAFETY: the header points at `part` and `control`; they and the bytes outlive the call, which only reads them.
    let rc = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if rc == -1 { Err(Errno::last()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Protocol, Socket};
    use std::fs::File;
    use std::io::Read;

    fn is_closed_on_exec(fd: &OwnedFd) -> bool {
        // SAFETY: F_GETFD takes no argument.
        (unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }) & libc::FD_CLOEXEC != 0
    }

    #[test]
    fn a_descriptor_arrives_with_its_message() {
        let (one, other) = Channel::pair().unwrap();
        let file = File::open("/proc/self/stat").unwrap();
        one.send(b"the file", &[file.as_fd()]).unwrap();
        one.send(b"nothing", &[]).unwrap();
        drop(one);
        let (mut buffer, mut descriptors) = ([0; 16], Vec::new());
        let message = other.receive(&mut buffer, &mut descriptors).unwrap();
        assert_eq!(message, Message { len: 8, is_truncated: false, descriptors: 1 });
        assert_eq!(&buffer[..8], b"the file");
        assert!(is_closed_on_exec(&descriptors[0]));
        let mut text = String::new();
        File::from(descriptors.pop().unwrap()).read_to_string(&mut text).unwrap();
        assert!(text.starts_with(&std::process::id().to_string()));
        assert_eq!(other.receive(&mut buffer, &mut descriptors).unwrap().len, 7);
        let end = Message { len: 0, is_truncated: false, descriptors: 0 };
        assert_eq!(other.receive(&mut buffer, &mut descriptors), Ok(end));
        assert_eq!(other.send(b"", &[]), Err(Errno::PIPE));
    }

    #[test]
    fn as_many_as_fit_and_not_one_more() {
        let (one, other) = Channel::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        let too_many = [file.as_fd(); DESCRIPTORS_MAX + 1];
        assert_eq!(one.send(b"x", &too_many), Err(Errno::INVAL));
        one.send(b"long", &too_many[1..]).unwrap();
        let mut descriptors = Vec::new();
        let message = other.receive(&mut [0; 2], &mut descriptors).unwrap();
        assert_eq!(message, Message { len: 2, is_truncated: true, descriptors: DESCRIPTORS_MAX });
        assert_eq!(descriptors.len(), DESCRIPTORS_MAX);
    }

    #[test]
    fn a_channel_and_a_netlink_socket_are_told_from_anything_else() {
        let (one, _other) = Channel::pair().unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let route = Socket::open(Protocol::Route).unwrap();
        assert!(Channel::from_fd(udp.into()).is_err());
        assert!(Channel::from_fd(File::open("/dev/null").unwrap().into()).is_err());
        let route = Socket::from_fd(route.into(), Protocol::Route).unwrap();
        assert_eq!(Socket::from_fd(route.into(), Protocol::SockDiag).unwrap_err(), Errno::PROTO);
        assert_eq!(Socket::from_fd(one.into(), Protocol::Route).unwrap_err(), Errno::PROTO);
        let file = File::open("/dev/null").unwrap();
        assert_eq!(
            Socket::from_fd(file.into(), Protocol::Route).unwrap_err(),
            Errno(libc::ENOTSOCK)
        );
    }

    #[test]
    fn the_peer_is_known_on_both_sides_of_a_path() {
        let path = std::env::temp_dir().join(format!("weir-pass-{}.sock", std::process::id()));
        let listener = Listener::bind(&path).unwrap();
        assert_eq!(Listener::bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let client = Channel::connect(&path).unwrap();
        let server = listener.accept().unwrap();
        for channel in [&client, &server] {
            let peer = channel.peer().unwrap();
            assert_eq!(
                (peer.process, peer.uid),
                (std::process::id(), crate::process::effective_uid())
            );
        }
        server.set_timeout(Some(Duration::from_millis(1))).unwrap();
        assert_eq!(server.receive(&mut [0], &mut Vec::new()), Err(Errno::AGAIN));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_listener_that_does_not_accept_holds_nobody_up_for_ever() {
        let path = std::env::temp_dir().join(format!("weir-full-{}.sock", std::process::id()));
        let _listener = Listener::bind(&path).unwrap();
        let connect = || Channel::connect_within(&path, Duration::from_millis(1));
        let waiting: Vec<_> = std::iter::from_fn(|| connect().ok()).take(1_000).collect();
        assert!(waiting.len() < 1_000);
        assert_eq!(connect().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std::fs::remove_file(&path).unwrap();
    }
}
