//! Sending datagrams: `sendmmsg`, with runs of datagrams as one `UDP_SEGMENT` message.

use crate::Errno;
use crate::errno::check;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Messages to send with one system call.
pub const BATCH: usize = 64;

/// Most datagrams in one `UDP_SEGMENT` message that every kernel since 4.18 accepts (`UDP_MAX_SEGMENTS`, include/linux/udp.h;
/// raised to 128 in 6.9).
pub const SEGMENTS_MAX: usize = 64;

/// `UDP_SEGMENT` of include/uapi/linux/udp.h: the size at which the kernel splits a message into datagrams.
const UDP_SEGMENT: libc::c_int = 103;

/// One entry of a batch: a datagram, or a run of consecutive datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The payload of the datagram, or of all datagrams of the run.
    pub bytes: &'a [u8],
    /// Datagrams in this message, at least 1 and at most [`SEGMENTS_MAX`].
    pub datagrams: u32,
    /// Length of each datagram in bytes; only the last one may be shorter, and a run has no empty datagrams.
    pub datagram_bytes: u16,
}

impl<'a> Message<'a> {
    /// A message with one datagram of at most 65,527 bytes.
    pub fn single(bytes: &'a [u8]) -> Message<'a> {
        Message { bytes, datagrams: 1, datagram_bytes: bytes.len() as u16 }
    }

    /// A run of datagrams of `datagram_bytes` each, of which the last one may be shorter, as `UDP_SEGMENT` splits them
    /// (`__udp_gso_segment`, net/ipv4/udp_offload.c).
    ///
    /// # Panics
    /// If `datagram_bytes` is 0.
    pub fn run(bytes: &'a [u8], datagram_bytes: u16) -> Message<'a> {
        let datagrams = bytes.len().div_ceil(usize::from(datagram_bytes)) as u32;
        Message { bytes, datagrams, datagram_bytes }
    }

    /// The datagrams, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> {
        let (head, rest) = self.bytes.split_at(self.bytes.len().min(self.datagram_bytes.into()));
        let rest = rest.chunks(usize::from(self.datagram_bytes).max(1));
        std::iter::once(head).chain(rest)
    }
}

/// Room for the one control message that [`send_messages`] attaches, with the alignment that the kernel requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct SegmentControl {
    header: libc::cmsghdr,
    segment_bytes: u16,
    padding: [u8; 6],
}

// The layout that CMSG_SPACE(2) describes: a header, then two bytes padded to eight.
// SAFETY: CMSG_SPACE and CMSG_LEN compute from their argument alone.
const _: () = assert!(mem::size_of::<SegmentControl>() == unsafe { libc::CMSG_SPACE(2) } as usize);

/// Sends one datagram to an address, on an unconnected socket.
///
/// # Errors
/// The reason why it was not sent.
pub fn send_to(socket: BorrowedFd<'_>, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
    socket2::SockRef::from(&socket).send_to_with_flags(bytes, &to.into(), libc::MSG_DONTWAIT)?;
    Ok(())
}

/// Sends up to [`BATCH`] messages in order on a connected socket and returns how many the kernel accepted.
///
/// A number below `messages.len()` means that the next message failed and the kernel has discarded the reason (`sendmmsg(2)`,
/// BUGS): call again from that message to send it or to learn why it cannot be sent.
///
/// # Errors
/// Why the first message was not sent. A pending ICMP error is reported this way too (`ECONNREFUSED` and the like); the same
/// message may then be sent again at once.
pub fn send_messages(socket: BorrowedFd<'_>, messages: &[Message<'_>]) -> Result<usize, Errno> {
    submit(socket, messages, |_, message, control| {
        (message.datagrams > 1).then(|| {
            let control = control.write(segment_control(message.datagram_bytes));
            (ptr::from_mut(control).cast(), mem::size_of::<SegmentControl>())
        })
    })
}

/// Like [`send_messages`], on a socket that may send from any address (see
/// [`SendOptions::is_transparent`](crate::socket::SendOptions::is_transparent)): `source_of` returns the source address for the
/// message at an index, in the socket's family, or `None` for the socket's own.
///
/// # Errors
/// As [`send_messages`]. ICMP errors about such a datagram go to its source, not to this socket.
pub fn send_messages_from(
    socket: BorrowedFd<'_>,
    messages: &[Message<'_>],
    source_of: impl Fn(usize) -> Option<IpAddr>,
) -> Result<usize, Errno> {
    submit(socket, messages, |at, message, room: &mut MaybeUninit<SourceControl>| {
        let control = room.write(SourceControl([0; SourceControl::BYTES]));
        let mut used = 0;
        if message.datagrams > 1 {
            let size = message.datagram_bytes.to_ne_bytes();
            used += control.put(used, libc::SOL_UDP, UDP_SEGMENT, &size);
        }
        used += match source_of(at) {
            Some(IpAddr::V4(ip)) => {
                control.put(used, libc::IPPROTO_IP, libc::IP_PKTINFO, &packet_info_v4(ip))
            }
            Some(IpAddr::V6(ip)) => {
                control.put(used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &packet_info_v6(ip))
            }
            None => 0,
        };
        (used > 0).then_some((ptr::from_mut(control).cast(), used))
    })
}

/// Bytes to insert into a datagram as it is sent, without copying the datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insert<'a> {
    /// Bytes of the payload before the insert.
    pub at: usize,
    /// Bytes of the payload that the insert replaces.
    pub replaced_bytes: usize,
    pub bytes: &'a [u8],
}

/// Like [`send_messages`], for single datagrams, each with the insert that `insert_of` returns for its index.
///
/// # Errors
/// As [`send_messages`].
///
/// # Panics
/// If a message has more than one datagram, or is shorter than its [`Insert`] says.
pub fn send_messages_with<'a>(
    socket: BorrowedFd<'_>,
    messages: &[Message<'_>],
    insert_of: impl Fn(usize) -> Insert<'a>,
) -> Result<usize, Errno> {
    let parts_of = |at: usize, message: &Message<'_>| {
        assert_eq!(message.datagrams, 1, "a run has one place only");
        let insert = insert_of(at);
        let (before, rest) = message.bytes.split_at(insert.at);
        [part(before), part(insert.bytes), part(&rest[insert.replaced_bytes..])]
    };
    submit_parts(socket, messages, parts_of, |_, _, _: &mut MaybeUninit<()>| None)
}

/// The kernel only reads the payload, so the shared reference may be cast to a mutable pointer.
fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Sends messages as they are, each with the control messages that `control` writes into its room.
fn submit<C: Copy>(
    socket: BorrowedFd<'_>,
    messages: &[Message<'_>],
    control: impl Fn(usize, &Message<'_>, &mut MaybeUninit<C>) -> Option<(*mut libc::c_void, usize)>,
) -> Result<usize, Errno> {
    submit_parts(socket, messages, |_, message| [part(message.bytes)], control)
}

/// Sends messages, each made of `PARTS` pieces of memory that outlive the call.
fn submit_parts<C: Copy, const PARTS: usize>(
    socket: BorrowedFd<'_>,
    messages: &[Message<'_>],
    parts_of: impl Fn(usize, &Message<'_>) -> [libc::iovec; PARTS],
    control: impl Fn(usize, &Message<'_>, &mut MaybeUninit<C>) -> Option<(*mut libc::c_void, usize)>,
) -> Result<usize, Errno> {
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
    let mut parts = [const { MaybeUninit::<[libc::iovec; PARTS]>::uninit() }; BATCH];
    let mut controls = [const { MaybeUninit::<C>::uninit() }; BATCH];
    let count = messages.len().min(BATCH);

    let places = headers.iter_mut().zip(&mut parts).zip(&mut controls);
    for (at, (message, ((header, part), room))) in messages.iter().zip(places).enumerate() {
        let parts = part.write(parts_of(at, message));
        // SAFETY: all-zero bytes are a valid `mmsghdr`: null pointers, zero lengths.
        let header = header.write(unsafe { mem::zeroed() });
        header.msg_hdr.msg_iov = parts.as_mut_ptr();
        header.msg_hdr.msg_iovlen = PARTS as _;
        if let Some((control, bytes)) = control(at, message, room) {
            header.msg_hdr.msg_control = control;
            header.msg_hdr.msg_controllen = bytes as _;
        }
    }

    // SAFETY: the first `count` headers are initialized and point at initialized parts and controls; all of them and
    // the payloads outlive the call, which writes nothing but `msg_len` of each header.
    let rc = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            count as u32,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };

    Ok(check(rc)? as usize)
}

/// Room for a `UDP_SEGMENT` and a source address, with the alignment that the kernel requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct SourceControl([u8; SourceControl::BYTES]);

impl SourceControl {
    // SAFETY: CMSG_SPACE computes from its argument alone.
    const BYTES: usize = unsafe { libc::CMSG_SPACE(2) + libc::CMSG_SPACE(20) } as usize;

    /// Writes a control message at the aligned offset `from` and returns its size including padding.
    fn put(&mut self, from: usize, level: libc::c_int, kind: libc::c_int, payload: &[u8]) -> usize {
        let len = payload.len() as u32;
        // SAFETY: CMSG_LEN and CMSG_SPACE compute from their argument alone, and all-zero bytes are a valid `cmsghdr`.
        let (mut header, header_bytes, all_bytes) = unsafe {
            (mem::zeroed::<libc::cmsghdr>(), libc::CMSG_LEN(0) as usize, libc::CMSG_SPACE(len))
        };
        header.cmsg_level = level;
        header.cmsg_type = kind;
        header.cmsg_len = (header_bytes + payload.len()) as _;

        let place = &mut self.0[from..from + all_bytes as usize];
        // SAFETY: `place` is as long as CMSG_SPACE says, which is a header at least; a `cmsghdr` may be written unaligned.
        unsafe { place.as_mut_ptr().cast::<libc::cmsghdr>().write_unaligned(header) };
        place[header_bytes..header_bytes + payload.len()].copy_from_slice(payload);
        all_bytes as usize
    }
}

/// `struct in_pktinfo` (ip(7)): no interface, the source, and a field that is not read.
fn packet_info_v4(source: Ipv4Addr) -> [u8; 12] {
    let mut info = [0; 12];
    info[4..8].copy_from_slice(&source.octets());
    info
}

/// `struct in6_pktinfo` (ipv6(7)): the source, and no interface.
fn packet_info_v6(source: Ipv6Addr) -> [u8; 20] {
    let mut info = [0; 20];
    info[..16].copy_from_slice(&source.octets());
    info
}

fn segment_control(segment_bytes: u16) -> SegmentControl {
    // SAFETY: all-zero bytes are a valid `cmsghdr`.
    let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
    header.cmsg_level = libc::SOL_UDP;
    header.cmsg_type = UDP_SEGMENT;
    // SAFETY: CMSG_LEN computes from its argument alone.
    header.cmsg_len = unsafe { libc::CMSG_LEN(2) } as _;
    SegmentControl { header, segment_bytes, padding: [0; 6] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn runs_arrive_as_separate_datagrams() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let run: Vec<u8> = (0..64).flat_map(|n| [n; 10]).collect();
        let messages = [
            Message::single(b""),
            Message::run(&run, 10),
            Message::single(b"end"),
            Message::run(b"aaabbbc", 3),
        ];
        assert_eq!(messages.map(|message| message.datagrams), [1, 64, 1, 3]);
        assert_eq!(send_messages(sender.as_fd(), &messages), Ok(4));
        let mut buffer = [0; 100];
        for expected in messages.iter().flat_map(Message::datagrams) {
            let len = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], expected);
        }
    }

    #[test]
    fn what_goes_into_a_datagram_arrives_in_its_place() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let messages = [Message::single(b"text"), Message::single(b""), Message::single(b"a - b")];
        let inserts = [
            Insert { at: 0, replaced_bytes: 0, bytes: b"head " },
            Insert { at: 0, replaced_bytes: 0, bytes: b"alone" },
            Insert { at: 2, replaced_bytes: 1, bytes: b"[x]" },
        ];
        assert_eq!(send_messages_with(sender.as_fd(), &messages, |at| inserts[at]), Ok(3));
        let mut buffer = [0; 100];
        for expected in ["head text", "alone", "a [x] b"] {
            let len = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], expected.as_bytes());
        }
    }

    #[test]
    fn a_failing_message_in_the_middle_shows_on_the_next_call() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let too_big = vec![0; 70_000];
        let messages = [Message::single(b"a"), Message::single(&too_big), Message::single(b"b")];
        assert_eq!(send_messages(sender.as_fd(), &messages), Ok(1));
        assert_eq!(send_messages(sender.as_fd(), &messages[1..]), Err(Errno::MSGSIZE));
        assert_eq!(send_messages(sender.as_fd(), &messages[2..]), Ok(1));
    }
}
