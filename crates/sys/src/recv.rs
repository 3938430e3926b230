//! Receiving datagrams: `recvmmsg` into a block of buffers.

mod control;

use crate::errno::check;
use crate::{Errno, Source, sockaddr};
use control::{CONTROL_BYTES, Control, segment_bytes, stamp_ns};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Datagrams to receive with one system call. More gains nothing: at 64 the call itself is under 1 % of the cost of a datagram.
pub const BATCH: usize = 64;

/// Size of one buffer: the largest UDP payload is 65,507 bytes (IPv4) or 65,527 (IPv6), so no UDP datagram is ever truncated.
pub const BUFFER_BYTES: usize = 65_536;

/// Distance between two buffers. Not a power of two: buffers 64 KiB apart would share the same few cache sets.
const STRIDE_BYTES: usize = BUFFER_BYTES + 448;

/// How long a receive call may wait for the first datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Up to the socket's receive timeout, then [`Errno::AGAIN`].
    ForOne,
    /// Not at all.
    No,
}

/// One datagram of the last batch.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The payload; incomplete if `truncated`.
    pub payload: Payload<'a>,
    /// The datagram was larger than the buffer and its end is gone (`MSG_TRUNC`).
    pub truncated: bool,
    /// The sender.
    pub source: Source,
    /// When the device delivered it, in nanoseconds since 1970; `None` if not requested.
    pub stamp_unix_ns: Option<u64>,
    /// Length of each datagram of an aggregate, of which the last one may be shorter; 0 for a single datagram.
    pub segment_bytes: usize,
}

/// Whether to ask the kernel for the sender's address: 45 ns of the 450 that receiving a datagram takes (64 at a time on
/// loopback).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sources {
    Wanted,
    /// Every source is [`Source::UNKNOWN`].
    Unwanted,
}

/// Whether to ask the kernel when a datagram arrived; the socket must have [timestamps](crate::socket::stamp_arrivals) on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamps {
    Wanted,
    Unwanted,
}

/// Whether the socket delivers [aggregates](crate::gro::aggregate).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aggregates {
    Never,
    /// Use [`ReceiveBatch::segments`] for the datagrams.
    Some,
}

/// Parameters of a receive call.
pub struct Ask<'a> {
    /// Most messages to receive, 1 to [`BATCH`]: datagrams or aggregates.
    pub count_max: usize,
    pub sources: Sources,
    pub stamps: Stamps,
    pub aggregates: Aggregates,
    /// Where to put the payloads; `None` for the batch's own buffers.
    pub room: Option<Room<'a>>,
}

/// Where the payload of a received datagram is.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// In the batch's own buffers.
    Bytes(&'a [u8]),
    /// In the caller's [`Room`], `offset` bytes from its beginning.
    InRoom { offset: usize, len: usize },
}

impl Payload<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::InRoom { len, .. } => *len,
        }
    }

    /// The payload after its first `bytes`.
    ///
    /// # Panics
    /// If it is shorter.
    #[must_use]
    pub fn behind(self, bytes: usize) -> Self {
        match self {
            Payload::Bytes(all) => Payload::Bytes(&all[bytes..]),
            Payload::InRoom { offset, len } => {
                Payload::InRoom { offset: offset + bytes, len: len - bytes }
            }
        }
    }

    /// The first `bytes` of the payload, or all of it if it is shorter.
    fn first(self, bytes: usize) -> Self {
        match self {
            Payload::Bytes(all) => Payload::Bytes(&all[..bytes.min(all.len())]),
            Payload::InRoom { offset, len } => Payload::InRoom { offset, len: len.min(bytes) },
        }
    }

    /// Whether the datagram is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The caller's memory for the payloads of a batch, one every `stride_bytes`.
pub struct Room<'a> {
    /// At least `stride_bytes` for each requested datagram.
    pub bytes: &'a mut [u8],
    /// At least 1 and at most [`BUFFER_BYTES`].
    pub stride_bytes: usize,
}

/// Buffers for one batch, reused by every call. Only pages that were touched use memory.
pub struct ReceiveBatch {
    buffers: Box<[u8]>,
    buffer_bytes: usize,
    stride_bytes: usize,
    names: Box<[libc::sockaddr_storage; BATCH]>,
    lens: [(u32, libc::socklen_t, bool); BATCH],
    len: usize,
    sources: Sources,
    stamps: Stamps,
    aggregates: Aggregates,
    controls: Box<[Control; BATCH]>,
    /// Bytes that the kernel has written to each of `controls`.
    control_lens: [usize; BATCH],
    /// How many datagrams, the first ones, are in the caller's room; the others are in `buffers`.
    in_room: usize,
    room_stride_bytes: usize,
}

impl Default for ReceiveBatch {
    fn default() -> ReceiveBatch {
        ReceiveBatch::with_buffers(BUFFER_BYTES, STRIDE_BYTES)
    }
}

impl ReceiveBatch {
    /// A batch whose buffers hold `buffer_bytes` each; larger datagrams arrive truncated.
    pub fn with_buffer_bytes(buffer_bytes: usize) -> ReceiveBatch {
        ReceiveBatch::with_buffers(buffer_bytes, buffer_bytes.next_multiple_of(64) + 448)
    }

    fn with_buffers(buffer_bytes: usize, stride_bytes: usize) -> ReceiveBatch {
        // SAFETY: all-zero bytes are a valid `sockaddr_storage`: it holds integers and padding only.
        let name: libc::sockaddr_storage = unsafe { mem::zeroed() };
        ReceiveBatch {
            // `vec![0; n]` allocates zeroed pages, which the kernel provides on first write.
            buffers: vec![0; BATCH * stride_bytes].into_boxed_slice(),
            buffer_bytes,
            stride_bytes,
            names: Box::new([name; BATCH]),
            lens: [(0, 0, false); BATCH],
            len: 0,
            sources: Sources::Wanted,
            stamps: Stamps::Unwanted,
            aggregates: Aggregates::Never,
            controls: Box::new([Control([0; CONTROL_BYTES]); BATCH]),
            control_lens: [0; BATCH],
            in_room: 0,
            room_stride_bytes: 0,
        }
    }

    /// Receives up to [`BATCH`] datagrams and returns their number, at least one.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when nothing arrived in time; any other error of `recvmmsg(2)`. A pending socket error (an ICMP message
    /// about something sent earlier) is returned once and does not mean that a datagram was lost.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> Result<usize, Errno> {
        let ask = Ask {
            count_max: BATCH,
            sources: Sources::Wanted,
            stamps: Stamps::Unwanted,
            aggregates: Aggregates::Never,
            room: None,
        };
        self.receive_into(socket, wait, ask)
    }

    /// Like [`receive`](Self::receive), with these parameters. Received into a room, a payload is copied only once, by the
    /// kernel. A datagram longer than the stride ends up in a buffer of the batch, and so does every one after it.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    ///
    /// # Panics
    /// If the room is too small for `count_max` datagrams, or its stride out of range.
    pub fn receive_into(
        &mut self,
        socket: BorrowedFd<'_>,
        wait: Wait,
        ask: Ask<'_>,
    ) -> Result<usize, Errno> {
        (self.len, self.in_room) = (0, 0);
        let Ask { count_max, sources, stamps, aggregates, mut room } = ask;
        let count_max = count_max.clamp(1, BATCH);
        let has_controls = stamps == Stamps::Wanted || aggregates == Aggregates::Some;

        let mut parts = [const { MaybeUninit::<[libc::iovec; 2]>::uninit() }; BATCH];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];

        let buffers = self.buffers.chunks_exact_mut(self.stride_bytes);
        let mut slots = room.as_mut().map(|room| {
            assert!((1..=self.buffer_bytes).contains(&room.stride_bytes), "stride of the room");
            assert!(room.bytes.len() >= count_max * room.stride_bytes, "too little room");
            room.bytes.chunks_exact_mut(room.stride_bytes)
        });
        // Without a room, yields `None` for each datagram.
        let slots = std::iter::from_fn(|| Some(slots.as_mut().and_then(Iterator::next)));

        for ((((part, header), (buffer, slot)), name), control) in parts
            .iter_mut()
            .zip(&mut headers)
            .zip(buffers.zip(slots))
            .zip(self.names.iter_mut())
            .zip(self.controls.iter_mut())
            .take(count_max)
        {
            let (part, part_count) = self::parts(&mut buffer[..self.buffer_bytes], slot, part);
            // SAFETY: all-zero bytes are a valid `mmsghdr`: null pointers, zero lengths.
            let header = header.write(unsafe { mem::zeroed() });
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = part_count as _;
            if sources == Sources::Wanted {
                header.msg_hdr.msg_name = ptr::from_mut(name).cast();
                header.msg_hdr.msg_namelen =
                    mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            }
            if has_controls {
                header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            }
        }

        let flags = match wait {
            Wait::ForOne => libc::MSG_WAITFORONE,
            Wait::No => libc::MSG_DONTWAIT,
        };

        // SAFETY: the first `count_max` headers are initialized; each points at one or two initialized elements of `parts`
        // and at one of `names` and `controls`, and every part at writable bytes of a buffer or of the room; all of them outlive
        // the call.
        let rc = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                count_max as u32,
                // An int with glibc, an unsigned int with musl.
                flags as _,
                ptr::null_mut(),
            )
        };

        let received = check(rc)? as usize;

        for (len, header) in self.lens.iter_mut().zip(&headers[..received]) {
            // SAFETY: fewer were received than headers were initialized.
            let header = unsafe { header.assume_init_ref() };
            let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            *len = (header.msg_len, header.msg_hdr.msg_namelen, truncated);
        }

        if has_controls {
            for (len, header) in self.control_lens.iter_mut().zip(&headers[..received]) {
                // SAFETY: fewer were received than headers were initialized.
                let header = unsafe { header.assume_init_ref() };
                // Narrower with musl.
                *len = header.msg_hdr.msg_controllen as _;
            }
        }

        self.len = received;
        (self.sources, self.stamps, self.aggregates) = (sources, stamps, aggregates);
        if let Some(room) = room {
            self.sort_out(&room);
        }
        Ok(received)
    }

    /// Determines which datagrams are in the room, and completes the others in their buffers.
    fn sort_out(&mut self, room: &Room<'_>) {
        let stride_bytes = room.stride_bytes;
        let lens = &self.lens[..self.len];
        let is_longer = |(len, ..): &(u32, libc::socklen_t, bool)| *len as usize > stride_bytes;
        self.in_room = lens.iter().position(is_longer).unwrap_or(self.len);
        self.room_stride_bytes = stride_bytes;

        let slots = room.bytes.chunks_exact(stride_bytes);
        let buffers = self.buffers.chunks_exact_mut(self.stride_bytes);
        // The kernel has put the part that did not fit the slot at its place in the buffer; the part before it is still in the
        // slot.
        for ((slot, buffer), (len, ..)) in slots.zip(buffers).zip(lens).skip(self.in_room) {
            let head = stride_bytes.min(*len as usize);
            buffer[..head].copy_from_slice(&slot[..head]);
        }
    }

    /// The datagrams of the last successful [`receive`](Self::receive), in order of arrival, with aggregates split up.
    pub fn segments(&self) -> impl Iterator<Item = Received<'_>> {
        self.datagrams().flat_map(Received::segments)
    }

    /// The messages of the last successful [`receive`](Self::receive), in order of arrival, each a datagram unless the socket
    /// [aggregates](crate::gro::aggregate).
    pub fn datagrams(&self) -> impl Iterator<Item = Received<'_>> {
        let buffers = self.buffers.chunks_exact(self.stride_bytes).enumerate();
        buffers.zip(&self.lens[..self.len]).zip(self.names.iter()).map(
            |(((index, buffer), &(len, name_len, truncated)), name)| {
                let len = len as usize;
                let payload = if index < self.in_room {
                    Payload::InRoom { offset: index * self.room_stride_bytes, len }
                } else {
                    Payload::Bytes(&buffer[..len])
                };
                let source = match self.sources {
                    Sources::Wanted => sockaddr::source_of(name, name_len),
                    Sources::Unwanted => Source::UNKNOWN,
                };
                let control = || self.controls[index].0.get(..self.control_lens[index]);
                let stamp_unix_ns = match self.stamps {
                    Stamps::Wanted => control().and_then(stamp_ns),
                    Stamps::Unwanted => None,
                };
                let segment_bytes = match self.aggregates {
                    Aggregates::Some => control().and_then(segment_bytes).unwrap_or(0),
                    Aggregates::Never => 0,
                };
                Received { payload, truncated, source, stamp_unix_ns, segment_bytes }
            },
        )
    }
}

impl<'a> Received<'a> {
    /// The payload of a datagram received without a [`Room`]; empty if it is in the room.
    pub fn bytes(&self) -> &'a [u8] {
        match self.payload {
            Payload::Bytes(bytes) => bytes,
            Payload::InRoom { .. } => &[],
        }
    }

    /// The datagrams of an aggregate, or the single datagram.
    fn segments(self) -> impl Iterator<Item = Received<'a>> {
        let len = self.payload.len();
        let (count, segment_bytes) = match self.segment_bytes {
            0 => (1, len),
            bytes => (len.div_ceil(bytes).max(1), bytes),
        };
        (0..count).map(move |at| Received {
            payload: self.payload.behind(at * segment_bytes).first(segment_bytes),
            segment_bytes: 0,
            ..self
        })
    }
}

/// The memory for one datagram: all of it goes into `buffer`, or its beginning into `slot` and the rest into `buffer`, at the
/// same offset as in the datagram.
fn parts(
    buffer: &mut [u8],
    slot: Option<&mut [u8]>,
    parts: &mut MaybeUninit<[libc::iovec; 2]>,
) -> (*mut libc::iovec, usize) {
    let part = |bytes: &mut [u8]| libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };

    let (first, second, count) = match slot {
        Some(slot) => {
            let rest = slot.len();
            (part(slot), part(&mut buffer[rest..]), 2)
        }
        None => (part(buffer), part(&mut []), 1),
    };

    (parts.write([first, second]).as_mut_ptr(), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn empty_full_and_truncated_datagrams() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        for len in [0, 1, 100, 101] {
            sender.send(&vec![7; len]).unwrap();
        }
        let mut batch = ReceiveBatch::with_buffer_bytes(100);
        assert_eq!(batch.receive(receiver.as_fd(), Wait::ForOne), Ok(4));
        let got: Vec<_> = batch.datagrams().map(|d| (d.payload.len(), d.truncated)).collect();
        assert_eq!(got, [(0, false), (1, false), (100, false), (100, true)]);
        let from = batch.datagrams().next().unwrap().source.address();
        assert_eq!(from, Some(sender.local_addr().unwrap()));
        assert_eq!(batch.receive(receiver.as_fd(), Wait::No), Err(Errno::AGAIN));
        assert_eq!(batch.datagrams().count(), 0);
    }

    /// Receives into a room of 10 bytes per datagram; returns (payload, whether it is in the room).
    fn receive_in_room(sent: &[&[u8]]) -> Vec<(Vec<u8>, bool)> {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sent.iter().for_each(|bytes| {
            sender.send_to(bytes, receiver.local_addr().unwrap()).unwrap();
        });
        let mut batch = ReceiveBatch::with_buffer_bytes(100);
        let mut room = [0; 80];
        let given = Room { bytes: &mut room, stride_bytes: 10 };
        let ask = Ask {
            count_max: 8,
            sources: Sources::Unwanted,
            stamps: Stamps::Unwanted,
            aggregates: Aggregates::Never,
            room: Some(given),
        };
        let count = batch.receive_into(receiver.as_fd(), Wait::ForOne, ask).unwrap();
        assert_eq!(count, sent.len());
        let whole = |received: Received<'_>| match received.payload {
            Payload::Bytes(bytes) => (bytes.to_vec(), false),
            Payload::InRoom { offset, len } => (room[offset..offset + len].to_vec(), true),
        };
        assert!(batch.datagrams().all(|datagram| datagram.source.is_unknown()));
        batch.datagrams().map(whole).collect()
    }

    #[test]
    fn a_room_is_filled_in_place() {
        let got = receive_in_room(&[b"0123456789", b"", b"abc"]);
        let expected = [&b"0123456789"[..], b"", b"abc"].map(|bytes| (bytes.to_vec(), true));
        assert_eq!(got, expected);
    }

    #[test]
    fn what_is_longer_than_the_stride_lies_in_a_buffer_and_so_does_what_follows() {
        let got = receive_in_room(&[b"abc", b"0123456789x", b"d", b"abcdefghijklmn"]);
        let expected = [(&b"abc"[..], true), (b"0123456789x", false), (b"d", false)];
        let expected = expected.map(|(bytes, in_room)| (bytes.to_vec(), in_room));
        assert_eq!(got[..3], expected);
        assert_eq!(got[3], (b"abcdefghijklmn".to_vec(), false));
    }

    #[test]
    fn no_more_than_asked_for_are_taken() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..5 {
            sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
        }
        let mut batch = ReceiveBatch::default();
        let ask = || Ask {
            count_max: 4,
            sources: Sources::Wanted,
            stamps: Stamps::Unwanted,
            aggregates: Aggregates::Never,
            room: None,
        };
        assert_eq!(batch.receive_into(receiver.as_fd(), Wait::ForOne, ask()), Ok(4));
        assert_eq!(batch.receive_into(receiver.as_fd(), Wait::No, ask()), Ok(1));
        assert_eq!(batch.datagrams().next().unwrap().source.address(), sender.local_addr().ok());
    }

    #[test]
    fn a_stamp_says_when_a_datagram_arrived() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        crate::socket::stamp_arrivals(receiver.as_fd(), Stamps::Wanted).unwrap();
        let before_ns = crate::clock::realtime_ns();
        for _ in 0..3 {
            sender.send_to(b"x", receiver.local_addr().unwrap()).unwrap();
        }
        let mut batch = ReceiveBatch::default();
        let stamps = Stamps::Wanted;
        let (sources, aggregates) = (Sources::Wanted, Aggregates::Never);
        let ask = Ask { count_max: 8, sources, stamps, aggregates, room: None };
        assert_eq!(batch.receive_into(receiver.as_fd(), Wait::ForOne, ask), Ok(3));
        let stamps: Vec<_> = batch.datagrams().filter_map(|one| one.stamp_unix_ns).collect();
        assert_eq!(stamps.len(), 3);
        assert!(stamps.is_sorted(), "{stamps:?}");
        assert!((before_ns..=crate::clock::realtime_ns()).contains(&stamps[0]));
    }
}
