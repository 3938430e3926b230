//! A destination that is a stream: standard output, wherever it leads.

use crate::batch::{Attempt, Failure, Fate, Outcome, Sent};
use crate::destination::{Connector, Destination, Form};
use crate::encode::{Content, Partition};
use ledger::{Reason, Trouble};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use sys::poll::{Interest, PollSet};

/// A pipe that is writable accepts this much without blocking (pipe(7), `PIPE_BUF`). The descriptor is shared with the
/// process that gave it to us, so it is left blocking.
const PART_BYTES: usize = 4_096;

/// How long one call waits for a slow reader.
const WRITABLE_WAIT: Duration = Duration::from_millis(100);

/// The standard output of this process.
///
/// # Errors
/// `EBADF` when it is closed.
pub fn stdout(content: Content) -> io::Result<Connector> {
    let fd = io::stdout().as_fd().try_clone_to_owned()?;
    let form = move || Form::Mixed(content.encoder(Partition::Whole));
    let destination = move || {
        let failed = |error: io::Error| Trouble {
            what: format!("standard output: {error}"),
            fix: "raise the limit of open files: ulimit -n".to_owned(),
        };
        let fd = fd.try_clone().map_err(failed)?;
        let header = content.framing().header;
        Ok(Box::new(Stream::new(fd, header)) as Box<dyn Destination>)
    };
    Ok(Connector { form: Box::new(form), destination: Box::new(destination) })
}

/// A stream to which payloads are written one after another.
pub(crate) struct Stream {
    file: File,
    /// Bytes to write before the first payload.
    header: Vec<u8>,
    /// How many bytes of the header or, once that is written, of the oldest payload are written.
    written: usize,
    has_header: bool,
    set: PollSet,
    writing: Option<Attempt>,
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd, header: Vec<u8>) -> Stream {
        let has_header = header.is_empty();
        let set = PollSet::default();
        Stream { file: fd.into(), header, written: 0, has_header, set, writing: None }
    }

    /// Waits until the stream accepts more, for at most `wait`.
    fn is_writable(&mut self, wait: Duration) -> bool {
        self.set.clear();
        self.set.add(self.file.as_fd(), Interest::Writable);
        // An interrupted wait just ends early.
        self.set.wait(wait).is_ok_and(|ready| ready > 0)
    }

    /// Writes the rest of `bytes`; `false` when the reader is slow.
    fn write(&mut self, bytes: &[u8]) -> io::Result<bool> {
        while let Some(rest) = bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
            if !self.is_writable(Duration::ZERO) && !self.is_writable(WRITABLE_WAIT) {
                return Ok(false);
            }
            match self.file.write(&rest[..rest.len().min(PART_BYTES)]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process that shares the descriptor has made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }

        self.written = 0;
        Ok(true)
    }

    fn write_next(&mut self, payload: &[u8]) -> io::Result<bool> {
        if !self.has_header {
            let header = std::mem::take(&mut self.header);
            let result = self.write(&header);
            self.header = header;
            self.has_header = result?;
            if !self.has_header {
                return Ok(false);
            }
        }
        self.write(payload)
    }
}

impl Destination for Stream {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.writing.is_some() {
            return Err(attempt);
        }
        self.writing = Some(attempt);
        Ok(())
    }

    fn poll(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        let Some(attempt) = self.writing.take() else { return };
        let fate = match self.write_next(&attempt.batch.encoded.bytes) {
            Ok(true) => Fate::Acknowledged,
            Ok(false) => {
                // The reader is slow. What is written of the batch stays written.
                self.writing = Some(attempt);
                return;
            }
            // A reader that has seen enough closes the pipe: `weir … | head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Fate::Dropped(Reason::WriteError)
            }
            Err(error) => Fate::Failed(Failure {
                // The written part is not written again.
                sent: Sent::No,
                reason: Some(Reason::WriteError),
                after: Some(RETRY_INTERVAL),
                trouble: Trouble {
                    what: format!("standard output: {error}"),
                    fix: "see where it leads: ls -l /dev/stdout".to_owned(),
                },
            }),
        };
        done.push(Outcome::all(attempt.batch.id, fate));
    }
}

/// Time between attempts after an error that may be temporary, such as a full disk behind a redirection.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, BatchId, Encoded, Parts};
    use std::fs;
    use std::sync::Arc;

    fn outcome(stream: &mut Stream) -> Fate {
        let encoded = Encoded { bytes: b"1,2\n".to_vec(), parts: Vec::new() };
        let (id, token) = (BatchId(1), 0);
        let batch = Batch { id, kind: None, token, encoded, rows: 1, oldest_unix_ns: 0 };
        stream.submit(Attempt { batch: Arc::new(batch), parts: Parts::All }).unwrap();
        let mut done = Vec::new();
        stream.poll(Duration::ZERO, &mut done);
        done.remove(0).fate
    }

    #[test]
    fn a_header_that_could_not_be_written_is_written_with_the_next_attempt() {
        let path = std::env::temp_dir().join(format!("weir-stream-{}", std::process::id()));
        fs::write(&path, b"").unwrap();
        // A read-only descriptor refuses each write.
        let mut stream = Stream::new(File::open(&path).unwrap().into(), b"a,b\n".to_vec());
        for _ in 0..2 {
            assert!(matches!(outcome(&mut stream), Fate::Failed(_)));
        }
        stream.file = File::options().write(true).open(&path).unwrap();
        assert_eq!(outcome(&mut stream), Fate::Acknowledged);
        assert_eq!(outcome(&mut stream), Fate::Acknowledged);
        assert_eq!(fs::read(&path).unwrap(), b"a,b\n1,2\n1,2\n");
        fs::remove_file(&path).unwrap();
    }
}
