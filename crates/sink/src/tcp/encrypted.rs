//! TLS over a non-blocking TCP connection.

use crate::byte_stream::plain::{HEARD_BYTES_MAX, unconfirmed, write_some};
use crate::byte_stream::{CONNECT_TIMEOUT, Link};
use crate::secret::TlsOptions;
use crate::tls::{client, cure};
use ledger::Trouble;
use rustls::ClientConnection;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;
use sys::poll::{Interest, PollSet};

/// Most bytes in one TLS record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;

pub(super) struct Encrypted {
    stream: TcpStream,
    tls: ClientConnection,
    /// Bytes accepted, before encryption.
    taken: u64,
    /// Encrypted bytes that the socket has accepted since the handshake.
    sent: u64,
    /// Corresponding offsets in both streams: once the second is confirmed, so is the first.
    marks: VecDeque<(u64, u64)>,
    confirmed: u64,
}

impl Encrypted {
    /// Performs the handshake.
    pub(super) fn shake_hands(
        stream: TcpStream,
        host: &str,
        options: &TlsOptions,
        shown: &str,
    ) -> Result<Encrypted, Trouble> {
        let tls = client(host, options, shown)?;
        let mut this =
            Encrypted { stream, tls, taken: 0, sent: 0, marks: VecDeque::new(), confirmed: 0 };
        this.finish_handshake().map_err(|error| Trouble {
            what: format!("{shown}: the TLS handshake failed: {error}"),
            fix: cure(&error).to_owned(),
        })?;
        // The bytes of the handshake belong to no row, and no row must wait for that many bytes to be
        // confirmed again.
        this.sent = 0;
        this.marks.clear();
        Ok(this)
    }

    fn finish_handshake(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let mut set = PollSet::default();
        loop {
            let written = self.send_records();
            would_block_is_fine(written)?;
            if !self.tls.is_handshaking() && !self.tls.wants_write() {
                return Ok(());
            }
            self.hear()?;

            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            if !self.tls.wants_write() && self.tls.is_handshaking() {
                set.clear();
                set.add(self.stream.as_fd(), Interest::Readable);
                let _ = set.wait(left);
            }
        }
    }

    /// Sends encrypted records, as many as there is room for.
    fn send_records(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            let mut counted = Counted { stream: &mut self.stream, count: 0 };
            let result = self.tls.write_tls(&mut counted);
            self.sent += counted.count;
            result?;
        }
        if self.marks.back().is_none_or(|(taken, _)| *taken < self.taken) {
            self.marks.push_back((self.taken, self.sent));
        }
        Ok(())
    }
}

fn would_block_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// Counts what the socket accepts.
struct Counted<'a> {
    stream: &'a mut TcpStream,
    count: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = write_some(self.stream, bytes)?;
        self.count += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Link for Encrypted {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One record at a time: all accepted bytes except the last record have been sent.
        self.send_records()?;
        let count = self.tls.writer().write(&bytes[..bytes.len().min(RECORD_BYTES)])?;
        self.taken += count as u64;
        // These bytes are accepted, and may be sent. An error is one of the connection, which the next call meets too.
        let _ = self.send_records();
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_records()
    }

    fn hear(&mut self) -> io::Result<()> {
        let mut heard = 0;
        while heard < HEARD_BYTES_MAX {
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => heard += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }

            let state = self.tls.process_new_packets();
            let state = state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            let mut unread = state.plaintext_bytes_to_read();
            let mut buffer = [0; 1_024];
            while unread > 0 {
                unread = unread.saturating_sub(self.tls.reader().read(&mut buffer)?.max(1));
            }
            if state.peer_has_closed() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn confirmed(&mut self) -> u64 {
        let confirmed = self.sent.saturating_sub(unconfirmed(self.stream.as_fd()));
        while let Some((taken, sent)) = self.marks.front()
            && *sent <= confirmed
        {
            self.confirmed = *taken;
            self.marks.pop_front();
        }
        self.confirmed
    }

    fn confirmed_at_end(&mut self, before: u64) -> u64 {
        before.max(self.confirmed())
    }

    fn finish(&mut self) {
        self.tls.send_close_notify();
        let _ = self.send_records();
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}
