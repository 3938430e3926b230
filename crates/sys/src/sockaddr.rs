//! Conversion of the kernel's socket addresses to ours.

use crate::Source;
use std::mem;
use std::net::Ipv4Addr;

/// Reads the sender that `recvmsg` wrote to `msg_name`.
pub(crate) fn source_of(name: &libc::sockaddr_storage, len: libc::socklen_t) -> Source {
    let len = len as usize;
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET if len >= mem::size_of::<libc::sockaddr_in>() => {
            // SAFETY: `sockaddr_storage` is larger than and aligned for `sockaddr_in` (RFC 3493 section 3.10),
            // and the kernel wrote at least `size_of::<sockaddr_in>()` bytes of it.
            let v4 = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            Source::v4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)), u16::from_be(v4.sin_port))
        }
        libc::AF_INET6 if len >= mem::size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above, for `sockaddr_in6`.
            let v6 = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            Source::v6(v6.sin6_addr.s6_addr, u16::from_be(v6.sin6_port), v6.sin6_scope_id)
        }
        _ => Source::NONE,
    }
}
