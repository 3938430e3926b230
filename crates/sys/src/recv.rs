//! Datagrams in: `recvmmsg` into a block of buffers.

use crate::errno::check;
use crate::{Errno, Source, sockaddr};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Datagrams taken with one system call. More gains nothing: at 64 the call itself costs under 1 % a datagram.
pub const BATCH: usize = 64;

/// Bytes of one buffer: the largest UDP payload is 65,507 (IPv4) or 65,527 (IPv6), so nothing over UDP is ever truncated.
pub const BUFFER_BYTES: usize = 65_536;

/// Distance between two buffers. Not a power of two: buffers 64 KiB apart would share the same few cache sets.
const STRIDE_BYTES: usize = BUFFER_BYTES + 448;

/// How long a receive call may wait for the first datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// As long as the socket's receive timeout says, then [`Errno::AGAIN`].
    ForOne,
    /// Not at all.
    No,
}

/// One datagram of the last batch.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The payload; cut short if `truncated`.
    pub bytes: &'a [u8],
    /// The datagram was larger than the buffer and its end is gone (`MSG_TRUNC`).
    pub truncated: bool,
    /// The sender.
    pub source: Source,
}

/// Buffers for one batch, reused by every call. Only touched pages cost memory.
pub struct ReceiveBatch {
    buffers: Box<[u8]>,
    buffer_bytes: usize,
    stride_bytes: usize,
    names: Box<[libc::sockaddr_storage; BATCH]>,
    lens: [(u32, libc::socklen_t, bool); BATCH],
    len: usize,
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
            // `vec![0; n]` asks for zeroed pages, which the kernel hands out when they are first written.
            buffers: vec![0; BATCH * stride_bytes].into_boxed_slice(),
            buffer_bytes,
            stride_bytes,
            names: Box::new([name; BATCH]),
            lens: [(0, 0, false); BATCH],
            len: 0,
        }
    }

    /// Takes up to [`BATCH`] datagrams from the socket and returns their number, which is at least one.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when nothing came within the wait; any other error of `recvmmsg(2)`. A pending socket error
    /// (an ICMP message about something sent earlier) is returned once and does not mean that a datagram was lost.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> Result<usize, Errno> {
        self.len = 0;
        let mut parts = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; BATCH];
        // SAFETY: all-zero bytes are a valid `mmsghdr`: null pointers, zero lengths.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let buffers = self.buffers.chunks_exact_mut(self.stride_bytes);
        for (((part, header), buffer), name) in
            parts.iter_mut().zip(&mut headers).zip(buffers).zip(self.names.iter_mut())
        {
            part.iov_base = buffer.as_mut_ptr().cast();
            part.iov_len = self.buffer_bytes;
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = ptr::from_mut(name).cast();
            header.msg_hdr.msg_namelen =
                mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        }
        let flags = match wait {
            Wait::ForOne => libc::MSG_WAITFORONE,
            Wait::No => libc::MSG_DONTWAIT,
        };
        // SAFETY: every header points at one element of `parts` and one of `names`, and every part at a buffer of
        // `buffer_bytes` writable bytes; all of them outlive the call.
        let rc = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as u32,
                // An int with glibc, an unsigned int with musl.
                flags as _,
                ptr::null_mut(),
            )
        };
        let received = check(rc)? as usize;
        for (len, header) in self.lens.iter_mut().zip(&headers[..received]) {
            let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            *len = (header.msg_len, header.msg_hdr.msg_namelen, truncated);
        }
        self.len = received;
        Ok(received)
    }

    /// The datagrams of the last successful [`receive`](Self::receive), in order of arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = Received<'_>> {
        self.buffers
            .chunks_exact(self.stride_bytes)
            .zip(&self.lens[..self.len])
            .zip(self.names.iter())
            .map(|((buffer, &(len, name_len, truncated)), name)| Received {
                bytes: &buffer[..len as usize],
                truncated,
                source: sockaddr::source_of(name, name_len),
            })
    }
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
        let got: Vec<_> = batch.datagrams().map(|d| (d.bytes.len(), d.truncated)).collect();
        assert_eq!(got, [(0, false), (1, false), (100, false), (100, true)]);
        let from = batch.datagrams().next().unwrap().source.address();
        assert_eq!(from, Some(sender.local_addr().unwrap()));
        assert_eq!(batch.receive(receiver.as_fd(), Wait::No), Err(Errno::AGAIN));
        assert_eq!(batch.datagrams().count(), 0);
    }
}
