//! Control messages: what the kernel says about a datagram in addition to its bytes (cmsg(3)).

use std::mem;
use std::ptr;

/// Room for two control messages, each with a header: a time (`SCM_TIMESTAMPNS` of socket(7)) and a number (`UDP_GRO` of udp(7)).
pub(super) const CONTROL_BYTES: usize = 64;

/// Room for the control messages of one datagram, aligned as the kernel's headers are.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub(super) struct Control(pub(super) [u8; CONTROL_BYTES]);

/// When the message arrived, in nanoseconds since 1970.
pub(super) fn stamp_ns(control: &[u8]) -> Option<u64> {
    let time = value_of(control, libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)?;
    let half = mem::size_of::<libc::timespec>() / 2;
    let number = |at: usize| {
        let mut word = [0; 8];
        let part = time.get(at..at + half)?;
        match cfg!(target_endian = "little") {
            true => word[..half].copy_from_slice(part),
            false => word[8 - half..].copy_from_slice(part),
        }
        Some(u64::from_ne_bytes(word))
    };
    Some(number(0)?.wrapping_mul(1_000_000_000).wrapping_add(number(half)?))
}

/// Length of each datagram of an aggregate; the last one may be shorter.
pub(super) fn segment_bytes(control: &[u8]) -> Option<usize> {
    let len = value_of(control, libc::SOL_UDP, libc::UDP_GRO)?;
    usize::try_from(i32::from_ne_bytes(len.get(..4)?.try_into().ok()?)).ok()
}

/// The value of the first control message of this level and kind.
fn value_of(mut bytes: &[u8], level: libc::c_int, kind: libc::c_int) -> Option<&[u8]> {
    const HEADER_BYTES: usize = mem::size_of::<libc::cmsghdr>();

    while bytes.len() >= HEADER_BYTES {
        // SAFETY: there are as many bytes as a `cmsghdr` has, which is made of integers only, and the read needs no alignment.
        let header: libc::cmsghdr = unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) };
        // As wide as a pointer with glibc, half as wide with musl.
        let len = header.cmsg_len as usize;
        if (header.cmsg_level, header.cmsg_type) == (level, kind) {
            return bytes.get(HEADER_BYTES..len);
        }

        // The next one begins at the alignment of a pointer (CMSG_NXTHDR).
        let end = len.max(HEADER_BYTES).checked_next_multiple_of(mem::size_of::<usize>())?;
        bytes = bytes.get(end..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A control message as the kernel writes it.
    fn message(level: libc::c_int, kind: libc::c_int, value: &[u8]) -> Vec<u8> {
        let head = mem::size_of::<libc::cmsghdr>();
        let len = head + value.len();
        let mut bytes = vec![0; head];
        // As wide as a pointer with glibc, half as wide and padded with musl.
        let at =
            if cfg!(all(target_endian = "big", not(target_env = "musl"))) { head - 12 } else { 0 };
        bytes[at..at + 4].copy_from_slice(&(len as u32).to_ne_bytes());
        bytes[head - 8..head - 4].copy_from_slice(&level.to_ne_bytes());
        bytes[head - 4..].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(len.next_multiple_of(mem::size_of::<usize>()), 0);
        bytes
    }

    #[test]
    fn each_message_is_found_in_whatever_order_and_cut_ones_are_not() {
        let time = [3_u64.to_ne_bytes(), 7_u64.to_ne_bytes()].concat();
        let time = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time);
        let segment = message(libc::SOL_UDP, libc::UDP_GRO, &1_400_i32.to_ne_bytes());
        for both in [[&time[..], &segment].concat(), [&segment[..], &time].concat()] {
            assert!(both.len() <= CONTROL_BYTES);
            assert_eq!((stamp_ns(&both), segment_bytes(&both)), (Some(3_000_000_007), Some(1_400)));
        }
        assert_eq!(segment_bytes(&time), None);
        for len in 0..time.len() {
            assert_eq!((stamp_ns(&time[..len]), segment_bytes(&time[..len])), (None, None));
        }
        assert_eq!(segment_bytes(&[0; CONTROL_BYTES]), None);
        assert_eq!(segment_bytes(&[255; CONTROL_BYTES]), None);
    }
}
