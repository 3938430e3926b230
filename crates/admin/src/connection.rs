//! A connection, as its server and the source of a live answer see it: how far an answer has got, and whether it goes on.

use crate::holder::Holder;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// One connection. Its server makes it; a live answer marks it as its own and follows what becomes of each piece.
#[derive(Default)]
pub struct Connection {
    holder: Holder,
    progress: Mutex<Progress>,
    changed: Condvar,
    cut: Notify,
}

/// How far a live answer has got, in pieces from its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Pieces that the HTTP server has taken.
    pub taken: u64,
    /// Of these, pieces that the connection's socket has taken whole.
    pub sent: u64,
    /// Nothing more is taken: the answer is complete, or the client has left.
    pub is_over: bool,
    is_live: bool,
}

impl Connection {
    /// A connection of this client.
    pub(crate) fn of(holder: Holder) -> Connection {
        Connection { holder, ..Connection::default() }
    }

    /// Whose it is.
    pub fn holder(&self) -> Holder {
        self.holder
    }

    /// Waits until this many pieces are sent or nothing more is taken, for at most `time`.
    pub fn wait_until_sent(&self, pieces: u64, time: Duration) -> Progress {
        let until = Instant::now() + time;
        let mut progress = self.lock();
        while progress.sent < pieces && !progress.is_over {
            let now = Instant::now();
            if now >= until {
                break;
            }
            let waited = self.changed.wait_timeout(progress, until - now);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *progress
    }

    /// Closes the connection at once, whatever it still holds: its client reads nothing.
    pub fn cut(&self) {
        self.cut.notify_one();
    }

    /// Begins a live answer: the limit on the life of a connection ends, and the connection is not closed for the sake of others.
    pub(crate) fn begin_live(&self) {
        self.lock().is_live = true;
    }

    pub(crate) fn is_live(&self) -> bool {
        self.lock().is_live
    }

    pub(crate) fn took_piece(&self) {
        self.lock().taken += 1;
    }

    /// Ends a live answer: the usual limits apply again.
    pub(crate) fn end_live(&self) {
        let mut progress = self.lock();
        progress.is_live = false;
        progress.is_over = true;
        drop(progress);
        self.changed.notify_all();
    }

    pub(crate) async fn was_cut(&self) {
        self.cut.notified().await;
    }

    /// The socket has one more piece whole.
    #[cfg(feature = "grpc")]
    pub(crate) fn sent_piece(&self) {
        self.lock().sent += 1;
        self.changed.notify_all();
    }

    /// The socket has everything that the HTTP server had to write.
    fn flushed(&self) {
        let mut progress = self.lock();
        if progress.sent == progress.taken {
            return;
        }
        progress.sent = progress.taken;
        drop(progress);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Nothing panics while it holds the lock.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that tells its connection what the socket has taken.
///
/// hyper flushes the stream only once its own buffer is empty (`Buffered::poll_flush`), and it takes a piece and flushes on one
/// task. So when a flush succeeds, the socket has every piece that was taken.
pub(crate) struct Watched<S> {
    pub(crate) stream: S,
    pub(crate) connection: Arc<Connection>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        if let Poll::Ready(Ok(())) = flushed {
            this.connection.flushed();
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
