//! What `recvmsg` writes in addition to the bytes: sender, group and namespace.

use super::{NETLINK_LISTEN_ALL_NSID, Received, SOL_NETLINK, kernel_address};
use std::mem;
use std::ptr;

/// Room for the control messages of one datagram: one int takes 24 bytes, and nothing else is requested.
const CONTROL_WORDS: usize = 8;

// SAFETY: CMSG_SPACE computes from its argument alone.
const _: () = assert!(unsafe { libc::CMSG_SPACE(4) } as usize <= CONTROL_WORDS * 8);
// `[u64; n]` has the alignment that a control message requires.
const _: () = assert!(mem::align_of::<libc::cmsghdr>() <= mem::align_of::<u64>());

/// Where the kernel writes the sender and the control messages of one datagram.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    sender: libc::sockaddr_nl,
    control: [u64; CONTROL_WORDS],
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { sender: kernel_address(), control: [0; CONTROL_WORDS] }
    }
}

impl Slot {
    /// A header that points at this slot and at `part`; both must outlive its use.
    pub(super) fn header(&mut self, part: &mut libc::iovec) -> libc::msghdr {
        // SAFETY: all-zero bytes are a valid `msghdr`: null pointers, zero lengths.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_name = ptr::from_mut(&mut self.sender).cast();
        header.msg_namelen = mem::size_of_val(&self.sender) as libc::socklen_t;
        header.msg_iov = part;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        header.msg_controllen = mem::size_of_val(&self.control) as _;
        header
    }

    /// Reads what the kernel wrote through `header`, which [`Self::header`] of this slot made.
    pub(super) fn received<'b>(&self, header: &libc::msghdr, bytes: &'b [u8]) -> Received<'b> {
        let groups = self.sender.nl_groups;
        Received {
            bytes,
            truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            sender_port_id: self.sender.nl_pid,
            // The kernel reports the group as a bit (netlink_group_mask).
            group: if groups == 0 { 0 } else { groups.trailing_zeros() + 1 },
            nsid: self.nsid(header.msg_controllen as u64),
        }
    }

    /// The namespace id, if the first control message holds one. Lengths are u32 with musl and usize with glibc.
    fn nsid(&self, control_bytes: u64) -> Option<i32> {
        // SAFETY: CMSG_LEN computes from its argument alone.
        let wanted_bytes = u64::from(unsafe { libc::CMSG_LEN(4) });
        if control_bytes < wanted_bytes {
            return None;
        }

        let first = self.control.as_ptr().cast::<libc::cmsghdr>();
        // SAFETY: `control` is larger than and aligned for a `cmsghdr`, every bit pattern of which is valid.
        let header = unsafe { &*first };

        let is_nsid = header.cmsg_level == SOL_NETLINK
            && header.cmsg_type == NETLINK_LISTEN_ALL_NSID
            && header.cmsg_len as u64 >= wanted_bytes;

        // SAFETY: CMSG_DATA is within `control`, which holds CMSG_LEN(4) bytes and more (asserted above).
        is_nsid.then(|| unsafe { ptr::read_unaligned(libc::CMSG_DATA(first).cast::<i32>()) })
    }
}
