//! The program that ExaBGP starts: it connects ExaBGP's pipes to the daemon's socket.

use super::LINE_BYTES_MAX;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time between attempts to reach the daemon.
const CONNECT_INTERVAL: Duration = Duration::from_millis(200);

/// The connection to the daemon, and the outstanding answers of ExaBGP.
#[derive(Default)]
struct Joined {
    stream: Option<UnixStream>,
    /// Commands passed to ExaBGP and not answered.
    open: u64,
    /// How many of them came from connections that have ended: their answers, which come next, are discarded.
    of_former: u64,
}

impl Joined {
    fn begin(&mut self, stream: UnixStream) {
        (self.stream, self.of_former) = (Some(stream), self.open);
    }

    /// Passes a line from ExaBGP to the daemon, if it is for this one.
    fn hear(&mut self, line: &[u8]) {
        if matches!(line.trim_ascii(), b"done" | b"error") {
            self.open = self.open.saturating_sub(1);
            if self.of_former > 0 {
                self.of_former -= 1;
                return;
            }
        }
        // Without a daemon nobody asks.
        if let Some(stream) = &mut self.stream {
            let _ = stream.write_all(line);
        }
    }
}

/// Connects `input` and `output`, which are ExaBGP's, to the socket at `path`, whenever a daemon listens there. Returns
/// when `input` ends, which means that ExaBGP has ended.
///
/// # Errors
/// ExaBGP no longer reads.
pub fn bridge(path: &Path, input: impl Read + Send, mut output: impl Write) -> io::Result<()> {
    let joined = Mutex::new(Joined::default());
    let has_ended = AtomicBool::new(false);
    let current = || joined.lock().unwrap_or_else(PoisonError::into_inner);

    thread::scope(|scope| {
        scope.spawn(|| {
            let mut input = BufReader::new(input);
            while let Ok(Some(line)) = next_line(&mut input) {
                current().hear(&line);
            }
            has_ended.store(true, Ordering::Release);
            if let Some(stream) = &current().stream {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });

        while !has_ended.load(Ordering::Acquire) {
            let Ok(stream) = UnixStream::connect(path) else {
                thread::park_timeout(CONNECT_INTERVAL);
                continue;
            };
            let mut commands = BufReader::new(stream.try_clone()?);
            current().begin(stream);
            // A partial line comes from a daemon that died while writing it. ExaBGP would join it with the next daemon's
            // first command.
            while let Ok(Some(line)) = next_line(&mut commands)
                && line.ends_with(b"\n")
            {
                current().open += 1;
                output.write_all(&line)?;
                output.flush()?;
            }
            current().stream = None;
        }
        Ok(())
    })
}

/// The next line with its end, or as much of it as there is; `None` at the end of input.
///
/// # Errors
/// Any error of reading.
fn next_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
    Ok((!line.is_empty()).then_some(line))
}
