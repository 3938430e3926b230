//! A connection that sends its bytes unchanged, and asks the kernel how many of them the other end has.

use super::Link;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use sys::socket::outstanding_bytes;

/// Most bytes of input to read at a time; the input is discarded.
pub(crate) const HEARD_BYTES_MAX: usize = 16 << 10;

/// A non-blocking stream socket.
pub(crate) trait Socket: Read + Write + AsFd + Send {
    /// Whether the kernel still reports the number of unconfirmed bytes once the connection has ended.
    const COUNTS_AT_END: bool;

    /// Shuts down the writing half.
    fn shut_writing(&self) -> io::Result<()>;
}

/// Sends bytes unchanged, and counts them.
pub(crate) struct Plain<S> {
    socket: S,
    taken: u64,
}

impl<S: Socket> Plain<S> {
    pub(crate) fn new(socket: S) -> Plain<S> {
        Plain { socket, taken: 0 }
    }
}

impl<S: Socket> Link for Plain<S> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = write_some(&mut self.socket, bytes)?;
        self.taken += count as u64;
        Ok(count)
    }

    /// Discards what the other end sends, and detects when it closes.
    fn hear(&mut self) -> io::Result<()> {
        let mut buffer = [0; 1_024];
        let mut heard = 0;
        while heard < HEARD_BYTES_MAX {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => heard += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn confirmed(&mut self) -> u64 {
        self.taken.saturating_sub(unconfirmed(self.socket.as_fd()))
    }

    fn confirmed_at_end(&mut self, before: u64) -> u64 {
        if S::COUNTS_AT_END { before.max(self.confirmed()) } else { before }
    }

    fn finish(&mut self) {
        let _ = self.socket.shut_writing();
    }
}

/// Writes, and retries when a signal interrupts.
pub(crate) fn write_some(socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match socket.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Bytes that the other host's kernel has not acknowledged; if the local kernel cannot tell, all of them.
pub(crate) fn unconfirmed(socket: BorrowedFd<'_>) -> u64 {
    outstanding_bytes(socket).map_or(u64::MAX, u64::from)
}
