//! Options of TCP sockets that the standard library lacks, and the kernel's `tcp_info`.

use crate::Errno;
use crate::errno::check;
use socket2::{SockRef, TcpKeepalive};
use std::fs;
use std::io;
use std::mem;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The state of a connection that both ends hold open (include/net/tcp_states.h, `TCP_ESTABLISHED`).
const ESTABLISHED: u8 = 1;

/// `TCP_RTO_MAX_MS` (include/uapi/linux/tcp.h), Linux 6.15.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Sets the socket's congestion control by name, such as `cubic`.
///
/// # Errors
/// `ENOENT` when the kernel has none of that name; `EPERM` when it is not listed in `net.ipv4.tcp_allowed_congestion_control`.
pub fn set_congestion_control(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_congestion(name.as_bytes())
}

/// The name of the socket's congestion control.
///
/// # Errors
/// Any of `getsockopt(2)`.
pub fn congestion_control(socket: BorrowedFd<'_>) -> io::Result<String> {
    let name = SockRef::from(&socket).tcp_congestion()?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Limits how far the retransmission timeout may back off, from 1 s to 120 s (`TCP_RTO_MAX_MS`).
///
/// # Errors
/// `ENOPROTOOPT` before Linux 6.15; `EINVAL` outside the range.
pub fn set_rto_max(socket: BorrowedFd<'_>, limit: Duration) -> Result<(), Errno> {
    let limit_ms = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the pointer and the length describe `limit_ms`, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const limit_ms).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Requests a send buffer of `bytes` in the kernel's accounting, which stores double the value that it is given.
///
/// # Errors
/// Any of `setsockopt(2)`.
pub fn set_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    SockRef::from(&socket).set_send_buffer_size(bytes.div_ceil(2))
}

/// Has the kernel probe a silent peer after `idle`, three times, and end the connection when sent data has not been acknowledged
/// for `unanswered_max`, whether the peer is gone or reads nothing (`TCP_USER_TIMEOUT`, tcp(7)).
///
/// # Errors
/// Any of `setsockopt(2)`.
pub fn set_liveness(
    socket: BorrowedFd<'_>,
    idle: Duration,
    unanswered_max: Duration,
) -> io::Result<()> {
    let socket = SockRef::from(&socket);
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(idle / 3).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(unanswered_max))
}

/// Fills `buffer` with the socket's `tcp_info`, as far as this kernel has it, and returns the part that was filled. 280 bytes
/// hold that of Linux 6.18.
///
/// # Errors
/// Any of `getsockopt(2)`.
pub fn info<'b>(socket: BorrowedFd<'_>, buffer: &'b mut [u8]) -> Result<&'b [u8], Errno> {
    let mut len = libc::socklen_t::try_from(buffer.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: the pointer and the length describe `buffer`; the kernel writes at most `len` bytes.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            buffer.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;

    Ok(buffer.get(..len as usize).unwrap_or_default())
}

/// Ends those of this process's open TCP connections whose own address `is_gone`, whichever part of the process holds them, and
/// returns these addresses. The holder reads the end of the stream, and what it writes fails: a client in a library cannot be told
/// in another way that nothing will reach its connection any more.
///
/// # Errors
/// `/proc` is not mounted.
pub fn end_connections(mut is_gone: impl FnMut(SocketAddr) -> bool) -> io::Result<Vec<SocketAddr>> {
    let mut ended = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(connection) = number.and_then(stream_of) else { continue };
        let socket = SockRef::from(&connection);
        let Some(own) = socket.local_addr().ok().and_then(|addr| addr.as_socket()) else {
            continue;
        };
        // The first byte is `tcpi_state`. A socket that listens waits for its address.
        let is_open = info(connection.as_fd(), &mut [0; 8])
            .is_ok_and(|info| info.first() == Some(&ESTABLISHED));
        if is_open && is_gone(own) && socket.shutdown(Shutdown::Both).is_ok() {
            ended.push(own);
        }
    }
    Ok(ended)
}

/// A second descriptor of a stream socket: another thread may close the first one at any time, and its number be that of
/// something else.
fn stream_of(number: RawFd) -> Option<OwnedFd> {
    let mut kind: libc::c_int = 0;
    let mut len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointers describe `kind` and `len`, which outlive the call. A number that is no open socket is an error.
    let asked = check(unsafe {
        libc::getsockopt(
            number,
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            (&raw mut kind).cast(),
            &raw mut len,
        )
    });
    if asked.is_err() || kind != libc::SOCK_STREAM {
        return None;
    }
    // SAFETY: the call takes numbers, and leaves the first descriptor to whoever owns it.
    let second = check(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) }).ok()?;
    // SAFETY: the kernel has just made it, and nothing else knows its number.
    Some(unsafe { OwnedFd::from_raw_fd(second) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_is_set_is_in_force() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_congestion_control(stream.as_fd(), "reno").unwrap();
        assert_eq!(congestion_control(stream.as_fd()).unwrap(), "reno");
        let missing = set_congestion_control(stream.as_fd(), "nosuch").unwrap_err();
        assert_eq!(Errno::from(&missing), Errno::NOENT);
        let mut buffer = [0; 512];
        let info = info(stream.as_fd(), &mut buffer).unwrap();
        // State ESTABLISHED, and at least the length of Linux 5.4.
        assert!(info.len() >= 232 && info[0] == 1, "{info:?}");
    }

    #[test]
    fn a_connection_whose_address_is_gone_is_ended_once_and_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut streams =
            [(); 2].map(|()| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let gone = streams[0].local_addr().unwrap();
        assert_eq!(end_connections(|own| own == gone).unwrap(), [gone]);
        assert_eq!(streams[0].read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(streams[0].write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert!(end_connections(|own| own == gone).unwrap().is_empty());
        streams[1].write_all(b"x").unwrap();
        // It listens on.
        let at = listener.local_addr().unwrap();
        assert!(end_connections(|own| own == at).unwrap().is_empty());
        TcpStream::connect(at).unwrap();
    }
}
