//! Receives many events with one system call.

use super::message::Slot;
use super::{Received, Socket};
use crate::Errno;
use crate::errno::check;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Buffers for a batch of small datagrams, reused by every call. Only pages that were touched use memory.
pub struct EventBatch {
    buffers: Box<[u8]>,
    buffer_bytes: usize,
    slots: Box<[Slot]>,
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    len: usize,
}

// SAFETY: each `receive` rewrites the pointers in `parts` and `headers` before the kernel follows them; they point into the
// boxes of the same value, and nothing else follows them.
unsafe impl Send for EventBatch {}

impl EventBatch {
    /// Room for `datagrams` of at most `buffer_bytes` each; larger ones arrive truncated. Values below 1 count as 1.
    pub fn new(datagrams: usize, buffer_bytes: usize) -> EventBatch {
        let (datagrams, buffer_bytes) = (datagrams.max(1), buffer_bytes.max(1));
        // SAFETY: all-zero bytes are a valid `mmsghdr`: null pointers, zero lengths.
        let header: libc::mmsghdr = unsafe { mem::zeroed() };
        let part = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        EventBatch {
            // `vec![0; n]` allocates zeroed pages, which the kernel provides on first write.
            buffers: vec![0; datagrams * buffer_bytes].into_boxed_slice(),
            buffer_bytes,
            slots: vec![Slot::default(); datagrams].into_boxed_slice(),
            parts: vec![part; datagrams].into_boxed_slice(),
            headers: vec![header; datagrams].into_boxed_slice(),
            len: 0,
        }
    }

    /// Receives what is queued, without waiting, and returns the number of datagrams, at least one. A number below the number
    /// of buffers means that the queue was empty at that moment, or that an error comes next.
    ///
    /// # Errors
    /// As [`Socket::receive`]; `EAGAIN` when the queue is empty.
    pub fn receive(&mut self, socket: &Socket) -> Result<usize, Errno> {
        self.len = 0;

        let buffers = self.buffers.chunks_exact_mut(self.buffer_bytes);
        for (((part, header), slot), buffer) in
            self.parts.iter_mut().zip(&mut self.headers).zip(&mut self.slots).zip(buffers)
        {
            *part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            header.msg_hdr = slot.header(part);
            header.msg_len = 0;
        }

        // SAFETY: every header points at its part and its slot, and every part at its own buffer; all of them live in boxes
        // of this value, which nobody moves or frees during the call.
        let rc = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as u32,
                // An int with glibc, an unsigned int with musl.
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };

        self.len = check(rc)? as usize;
        Ok(self.len)
    }

    /// The datagrams of the last successful [`Self::receive`], in order of arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = Received<'_>> {
        let buffers = self.buffers.chunks_exact(self.buffer_bytes);
        self.headers.iter().zip(&self.slots).zip(buffers).take(self.len).map(
            |((header, slot), buffer)| {
                let bytes = buffer.get(..header.msg_len as usize).unwrap_or(buffer);
                slot.received(&header.msg_hdr, bytes)
            },
        )
    }
}
