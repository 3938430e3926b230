//! ExaBGP through its process interface: it starts a program, takes commands from that program's standard output, and
//! answers each with `done` or `error` on its standard input.
//!
//! The program that it starts is [`bridge`], which joins it to a unix socket that the daemon listens on. So a restart of
//! ExaBGP is a new connection, and a restart of the daemon leaves ExaBGP alone.

mod text_of;

use super::{ANSWER_TIMEOUT, Session, SpeakError, Speaker};
use crate::{Actions, Nlri};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest line that is read from ExaBGP. What is longer is no answer.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Time between two attempts of the bridge to reach the daemon.
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);

/// An ExaBGP that connects through [`bridge`].
pub struct ExaBgp {
    path: PathBuf,
    listener: UnixListener,
    stream: Option<UnixStream>,
    /// What was read and is not a whole line yet.
    rest: Vec<u8>,
}

impl ExaBgp {
    /// Listens at `path`, for this user and group. A socket that is there is replaced.
    ///
    /// # Errors
    /// It cannot be made there.
    pub fn listen(path: &Path) -> io::Result<ExaBgp> {
        if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o660))?;
        listener.set_nonblocking(true)?;
        Ok(ExaBgp { path: path.to_owned(), listener, stream: None, rest: Vec::new() })
    }

    fn command(&mut self, line: &str) -> Result<(), SpeakError> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let result = self.write(line).and_then(|()| self.answer(deadline));
        result.map_err(|error| {
            // An answer that comes late would be taken for that of the next command.
            self.stream = None;
            SpeakError::Lost(format!("ExaBGP: {error}"))
        })?
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let mut stream = self.stream.as_ref().ok_or(ErrorKind::NotConnected)?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        stream.write_all(line.as_bytes())
    }

    /// Reads lines until one is an answer. Others are events of sessions, which ExaBGP can be told to send.
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

    /// Whether the connection still lives. What has come without being asked for is left behind.
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
        // The last one is the ExaBGP that runs.
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
        let _ = fs::remove_file(&self.path);
    }
}

/// Joins `input` and `output`, which are ExaBGP's, to the socket at `path`, whenever a daemon listens there. Returns when
/// `input` has ended: ExaBGP has.
///
/// # Errors
/// ExaBGP does not read any more.
pub fn bridge(path: &Path, mut input: impl Read + Send, mut output: impl Write) -> io::Result<()> {
    let joined: Mutex<Option<UnixStream>> = Mutex::new(None);
    let has_ended = AtomicBool::new(false);
    let current = || joined.lock().unwrap_or_else(PoisonError::into_inner);

    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buf = [0; 4_096];
            while let Ok(n @ 1..) = input.read(&mut buf) {
                // Without a daemon nobody asks.
                if let Some(mut stream) = current().as_ref() {
                    let _ = stream.write_all(&buf[..n]);
                }
            }
            has_ended.store(true, Ordering::Release);
            if let Some(stream) = current().as_ref() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });

        while !has_ended.load(Ordering::Acquire) {
            let Ok(mut stream) = UnixStream::connect(path) else {
                thread::park_timeout(CONNECT_INTERVAL);
                continue;
            };
            *current() = Some(stream.try_clone()?);
            copy_lines(&mut stream, &mut output)?;
            *current() = None;
        }
        Ok(())
    })
}

/// Copies until the stream ends.
///
/// # Errors
/// Of the output.
fn copy_lines(stream: &mut UnixStream, output: &mut impl Write) -> io::Result<()> {
    let mut buf = [0; 4_096];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        output.write_all(&buf[..n])?;
        output.flush()?;
    }
    Ok(())
}
