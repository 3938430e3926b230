//! ExaBGP through its process interface: it starts a program, reads commands from that program's standard output, and answers
//! each with `done` or `error` on its standard input.
//!
//! The program is [`bridge`], which connects ExaBGP to a unix socket on which the daemon listens. So a restart of ExaBGP is a new
//! connection, and a restart of the daemon does not disturb ExaBGP.

mod joining;
mod text_of;

pub use joining::bridge;

use super::{ANSWER_TIMEOUT, Session, SpeakError, Speaker};
use crate::{Actions, Nlri};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Longest line to read from ExaBGP. A longer one is not an answer.
const LINE_BYTES_MAX: usize = 64 << 10;

/// An ExaBGP that connects through [`bridge`].
pub struct ExaBgp {
    path: PathBuf,
    /// Device and inode of the socket created at `path`.
    made: (u64, u64),
    listener: UnixListener,
    stream: Option<UnixStream>,
    /// Bytes read that are not a complete line yet.
    rest: Vec<u8>,
}

impl ExaBgp {
    /// Listens at `path`, for this user and group. Replaces a socket left there by a dead process.
    ///
    /// # Errors
    /// It cannot be created there, or another process listens there (`AddrInUse`).
    pub fn listen(path: &Path) -> io::Result<ExaBgp> {
        remove_dead_socket(path)?;
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o660))?;
        listener.set_nonblocking(true)?;

        let made = inode(path)?;
        Ok(ExaBgp { path: path.to_owned(), made, listener, stream: None, rest: Vec::new() })
    }

    fn command(&mut self, line: &str) -> Result<(), SpeakError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let result = self.write(line, deadline).and_then(|()| self.answer(deadline));
        result.map_err(|error| {
            // A late answer would be taken for that of the next command; the bridge discards it.
            self.stream = None;
            SpeakError::Lost(format!("ExaBGP: {error}"))
        })?
    }

    fn write(&mut self, line: &str, deadline: Instant) -> io::Result<()> {
        let mut stream = self.stream.as_ref().ok_or(ErrorKind::NotConnected)?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(deadline.saturating_duration_since(Instant::now())))?;
        stream.write_all(line.as_bytes())
    }

    /// Reads lines until one is an answer. Others are session events, which ExaBGP can be configured to send.
    fn answer(&mut self, deadline: Instant) -> io::Result<Result<(), SpeakError>> {
        loop {
            while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                match line.trim_ascii() {
                    b"done" => return Ok(Ok(())),
                    b"error" => {
                        let error = "ExaBGP does not take it; its log says why".to_owned();
                        return Ok(Err(SpeakError::Refused(error)));
                    }
                    _ => {}
                }
            }

            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let stream = self.stream.as_ref().ok_or(ErrorKind::NotConnected)?;
            stream.set_read_timeout(Some(left))?;
            self.read()?;
        }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buf = [0; 4_096];
        let mut stream = self.stream.as_ref().ok_or(ErrorKind::NotConnected)?;
        match stream.read(&mut buf)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => self.rest.extend(&buf[..n]),
        }
        if self.rest.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a line that does not end"));
        }
        Ok(())
    }

    /// Whether the connection is still alive. Discards unsolicited input.
    fn lives(&mut self) -> bool {
        let Some(stream) = &self.stream else { return false };
        if stream.set_nonblocking(true).is_err() {
            return false;
        }
        loop {
            self.rest.clear();
            match self.read() {
                Ok(()) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }
}

impl Speaker for ExaBgp {
    fn name(&self) -> String {
        format!("exabgp:{}", self.path.display())
    }

    fn session(&mut self) -> Result<Session, SpeakError> {
        let mut session = Session::Same;
        // The last one is the running ExaBGP.
        while let Ok((stream, _)) = self.listener.accept() {
            (self.stream, self.rest) = (Some(stream), Vec::new());
            session = Session::Fresh;
        }

        if self.lives() {
            return Ok(session);
        }
        self.stream = None;
        Err(SpeakError::Lost(format!("no ExaBGP is connected to {}", self.path.display())))
    }

    fn announce(&mut self, nlri: &Nlri, actions: &Actions) -> Result<(), SpeakError> {
        self.command(&text_of::announce(nlri, actions))
    }

    fn withdraw(&mut self, nlri: &Nlri) -> Result<(), SpeakError> {
        self.command(&text_of::withdraw(nlri))
    }
}

impl Drop for ExaBgp {
    fn drop(&mut self) {
        // Another process may have put its socket there.
        if inode(&self.path).is_ok_and(|now| now == self.made) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Removes a socket that no process listens on.
///
/// # Errors
/// A process listens on it, or it cannot be removed.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        return Ok(());
    }

    // A datagram socket cannot connect to a stream socket: the kernel returns EPROTOTYPE if one is alive and ECONNREFUSED if not
    // (`unix_find_bsd` in net/unix/af_unix.c), and a listening process does not notice.
    match UnixDatagram::unbound()?.connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        _ => {
            let error = "another process listens there, a running Weir for example; end it, or name another path";
            Err(io::Error::new(ErrorKind::AddrInUse, error))
        }
    }
}
