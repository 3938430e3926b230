//! The error queue: datagrams that were sent and came back as errors (`IP_RECVERR`, ip(7)).

use crate::errno::check;
use crate::{Errno, Source, sockaddr};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// One entry of the error queue: an ICMP message, or the kernel's own report, about a datagram that we sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The error as the next call on the socket would have reported it.
    pub errno: Errno,
    /// Made by this host's own stack (`SO_EE_ORIGIN_LOCAL`), such as "message too long", rather than by an ICMP message.
    pub is_local: bool,
    /// ICMP type, 0 if `is_local`.
    pub icmp_type: u8,
    /// ICMP code, 0 if `is_local`.
    pub icmp_code: u8,
    /// Who sent the ICMP message: a router, the target, or this host itself when a neighbor did not answer.
    pub offender: Source,
}

const OFFENDER_BYTES: libc::socklen_t = mem::size_of::<libc::sockaddr_in6>() as libc::socklen_t;

#[repr(C, align(8))]
struct Control([u8; 256]);

/// Takes one entry off the error queue; `None` when it is empty.
pub fn take(socket: BorrowedFd<'_>) -> Option<Returned> {
    let mut control = Control([0; 256]);
    // SAFETY: all-zero bytes are a valid `msghdr`: null pointers, zero lengths.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_control = ptr::from_mut(&mut control).cast();
    header.msg_controllen = mem::size_of::<Control>() as _;

    // SAFETY: the header points at `control` and says its length; no payload buffer is offered, which truncates the
    // quoted payload and nothing else.
    let rc = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    check(rc as libc::c_int).ok()?;

    // SAFETY: the header was filled by the kernel a moment ago and `control` is alive.
    let mut entry = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !entry.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return pointers to whole headers inside `control` or null.
        let cmsg = unsafe { entry.read_unaligned() };
        let is_error = matches!(
            (cmsg.cmsg_level, cmsg.cmsg_type),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        );

        if is_error {
            // SAFETY: an entry of this type carries a `sock_extended_err` (linux/errqueue.h), within `control`.
            let error = unsafe {
                libc::CMSG_DATA(entry).cast::<libc::sock_extended_err>().read_unaligned()
            };

            // SAFETY: all-zero bytes are a valid `sockaddr_storage`: it holds integers and padding only.
            let mut offender: libc::sockaddr_storage = unsafe { mem::zeroed() };
            // SAFETY: the offender's address lies behind the error, inside `control`, which has 256 bytes: at least 200
            // behind the two headers, and a `sockaddr_in6` has 28.
            unsafe {
                let from = libc::CMSG_DATA(entry).add(mem::size_of::<libc::sock_extended_err>());
                let to = ptr::from_mut(&mut offender).cast();
                ptr::copy_nonoverlapping(from, to, mem::size_of::<libc::sockaddr_in6>());
            }

            let is_local = error.ee_origin == libc::SO_EE_ORIGIN_LOCAL;
            return Some(Returned {
                errno: Errno(error.ee_errno as i32),
                is_local,
                icmp_type: error.ee_type,
                icmp_code: error.ee_code,
                offender: sockaddr::source_of(&offender, OFFENDER_BYTES),
            });
        }
        // SAFETY: `entry` is a header inside `control`, described by `header`.
        entry = unsafe { libc::CMSG_NXTHDR(&raw const header, entry) };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{SendOptions, connect_udp};
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_closed_port_comes_back() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let socket = connect_udp(closed, &SendOptions::default()).unwrap();
        assert_eq!(take(socket.as_fd()), None);
        crate::send::send_messages(socket.as_fd(), &[crate::send::Message::single(b"x")]).unwrap();
        let returned = take(socket.as_fd()).unwrap();
        assert_eq!(
            (returned.errno, returned.icmp_type, returned.icmp_code),
            (Errno::CONNREFUSED, 3, 3)
        );
        assert!(!returned.is_local);
        assert_eq!(returned.offender.address().unwrap().ip().to_string(), "127.0.0.1");
        assert_eq!(take(socket.as_fd()), None);
    }
}
