//! What the socket has taken of each stream of an HTTP/2 connection.
//!
//! The library may hold data back until the client allows more, so neither handing it over nor a flush says that it has left.
//! The frames that are written say it: each begins with its length, its kind and its stream (RFC 9113, section 4.1).

use crate::connection::Connection;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The streams that follow what is written of them.
#[derive(Default)]
pub(super) struct Streams(Mutex<HashMap<u32, Stream>>);

struct Stream {
    answer: Arc<Connection>,
    /// Bytes of its pieces up to now.
    expected: u64,
    /// Ends of the pieces that are not sent, in bytes from the beginning.
    ends: VecDeque<u64>,
    /// Bytes handed to the socket.
    written: u64,
}

impl Streams {
    pub(super) fn add(&self, id: u32, answer: &Arc<Connection>) {
        let answer = Arc::clone(answer);
        let stream = Stream { answer, expected: 0, ends: VecDeque::new(), written: 0 };
        self.lock().insert(id, stream);
    }

    pub(super) fn remove(&self, id: u32) {
        self.lock().remove(&id);
    }

    /// Says that a stream gets a piece of this length.
    pub(super) fn expect(&self, id: u32, bytes: usize) {
        if let Some(stream) = self.lock().get_mut(&id) {
            stream.expected += bytes as u64;
            stream.ends.push_back(stream.expected);
        }
    }

    fn wrote(&self, id: u32, bytes: usize) {
        if let Some(stream) = self.lock().get_mut(&id) {
            stream.written += bytes as u64;
        }
    }

    /// The socket has everything that was handed to it.
    fn flushed(&self) {
        for stream in self.lock().values_mut() {
            while stream.ends.front().is_some_and(|end| *end <= stream.written) {
                stream.ends.pop_front();
                stream.answer.sent_piece();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Stream>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a frame before its payload.
const HEAD_BYTES: usize = 9;
/// The kind of frame with a stream's data.
const DATA: u8 = 0;

/// Reads the frames that a server writes.
#[derive(Default)]
struct Frames {
    head: Vec<u8>,
    /// Stream of the frame under way, if it has data.
    of: Option<u32>,
    /// Bytes of its payload that are still to come.
    left: usize,
}

impl Frames {
    fn read(&mut self, mut bytes: &[u8], streams: &Streams) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let len = self.left.min(bytes.len());
                if let Some(id) = self.of {
                    streams.wrote(id, len);
                }
                self.left -= len;
                bytes = &bytes[len..];
                continue;
            }

            let len = (HEAD_BYTES - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            if let [a, b, c, kind, _flags, id @ ..] = &self.head[..]
                && let Ok(id) = <[u8; 4]>::try_from(id)
            {
                self.left = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                let id = u32::from_be_bytes(id) & (u32::MAX >> 1);
                self.of = (*kind == DATA).then_some(id);
                self.head.clear();
            }
        }
    }
}

/// A connection that tells its streams what the socket has taken.
pub(super) struct Counted<S> {
    stream: S,
    frames: Frames,
    streams: Arc<Streams>,
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S, streams: Arc<Streams>) -> Counted<S> {
        Counted { stream, frames: Frames::default(), streams }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buf)
    }
}

// Without vectored writes, so that there is one place to count.
impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, buf);
        if let Poll::Ready(Ok(len)) = written {
            this.frames.read(&buf[..len], &this.streams);
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        if let Poll::Ready(Ok(())) = flushed {
            this.streams.flushed();
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn frame(kind: u8, id: u32, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        [&len[1..], &[kind, 0], &id.to_be_bytes(), payload].concat()
    }

    #[test]
    fn a_piece_is_sent_once_its_last_byte_is_written_and_flushed_however_it_is_cut() {
        let bytes = [
            frame(1, 3, b"headers"),
            frame(DATA, 3, b"abc"),
            frame(DATA, 5, b"other"),
            frame(DATA, 3, b""),
            frame(8, 3, &[0; 4]),
            frame(DATA, 3, b"defg"),
        ]
        .concat();
        for step in 1..bytes.len() {
            let (streams, mut frames) = (Streams::default(), Frames::default());
            let answer = Arc::new(Connection::default());
            streams.add(3, &answer);
            streams.expect(3, 5);
            streams.expect(3, 2);
            let sent = || answer.wait_until_sent(0, Duration::ZERO).sent;
            let all_but_last = &bytes[..bytes.len() - 1];
            all_but_last.chunks(step).for_each(|chunk| frames.read(chunk, &streams));
            assert_eq!(sent(), 0, "nothing is flushed");
            streams.flushed();
            assert_eq!(sent(), 1, "the last byte is missing; {step}");
            frames.read(&bytes[bytes.len() - 1..], &streams);
            streams.flushed();
            assert_eq!(sent(), 2, "{step}");
        }
    }
}
