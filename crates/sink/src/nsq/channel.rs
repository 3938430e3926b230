//! The byte stream of a connection to nsqd, encrypted from the moment both ends have agreed on it.

use crate::secret::TlsOptions;
use ledger::Trouble;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// Our end of a TLS connection, before its handshake.
#[cfg(feature = "tls")]
pub(super) type Tls = Box<rustls::ClientConnection>;
#[cfg(not(feature = "tls"))]
pub(super) type Tls = std::convert::Infallible;

/// Creates our end of a TLS connection to `host`.
#[cfg(feature = "tls")]
pub(super) fn client(host: &str, options: &TlsOptions, shown: &str) -> Result<Tls, Trouble> {
    crate::tls::client(host, options, shown).map(Box::new)
}

#[cfg(not(feature = "tls"))]
pub(super) fn client(_host: &str, _options: &TlsOptions, shown: &str) -> Result<Tls, Trouble> {
    Err(Trouble {
        what: format!("{shown}: this build has no TLS"),
        fix: "build with the feature tls, or use the image".to_owned(),
    })
}

/// How to fix the cause of a connection's end.
pub(super) fn cure(error: &io::Error) -> &'static str {
    #[cfg(feature = "tls")]
    if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) {
        return crate::tls::cure(error);
    }
    let _ = error;
    "see that nsqd runs, and its log"
}

/// A non-blocking connection.
pub(super) struct Channel {
    stream: TcpStream,
    /// `None`: not encrypted, or not yet.
    tls: Option<Tls>,
}

impl Channel {
    pub(super) fn new(stream: TcpStream) -> Channel {
        Channel { stream, tls: None }
    }

    /// Encrypts everything that follows.
    pub(super) fn secure(&mut self, tls: Tls) {
        self.tls = Some(tls);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(not(feature = "tls"))]
impl Channel {
    /// Accepts some bytes.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; anything else ends the connection.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    /// Sends bytes that it buffers itself.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(super) fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether it has buffered bytes to send.
    pub(super) fn wants_write(&self) -> bool {
        false
    }

    /// Reads some bytes; 0 is the end.
    ///
    /// # Errors
    /// `WouldBlock` when there are none now; anything else ends the connection.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

#[cfg(feature = "tls")]
impl Channel {
    /// Accepts some bytes. When encrypted, it may buffer less than a record.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room; anything else ends the connection.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        /// Most bytes in one TLS record (RFC 8446, section 5.1).
        const RECORD_BYTES: usize = 16 << 10;
        self.flush()?;
        let Some(tls) = &mut self.tls else { return self.stream.write(bytes) };
        let first = bytes.get(..RECORD_BYTES).unwrap_or(bytes);
        tls.writer().write(first)
    }

    /// Sends bytes that it buffers itself.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            tls.write_tls(&mut self.stream)?;
        }
        Ok(())
    }

    /// Whether it has buffered bytes to send.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Reads some bytes; 0 is the end.
    ///
    /// # Errors
    /// `WouldBlock` when there are none now; anything else ends the connection.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.read(buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if tls.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            let state = tls.process_new_packets();
            if let Err(error) = state {
                // Sends a TLS alert to the other end, if possible.
                let _ = self.flush();
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }
}
