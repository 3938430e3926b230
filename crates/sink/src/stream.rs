//! A destination that is a stream: standard output, whatever it leads to.

use crate::destination::{Delivery, Destination};
use crate::events::Events;
use crate::{Framing, Payload};
use ledger::Reason;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use sys::Errno;
use sys::poll::{Interest, PollSet};

/// A pipe that says it is writable takes this much without waiting (pipe(7), `PIPE_BUF`). The descriptor is shared with
/// the process that gave it to us, so that it is left blocking as it is.
const PART_BYTES: usize = 4_096;

/// How long one call waits for a slow reader.
const WRITABLE_WAIT: Duration = Duration::from_millis(100);

/// Standard output of this process.
///
/// # Errors
/// `EBADF` when it is closed.
pub fn stdout() -> io::Result<Box<dyn Destination>> {
    Ok(Box::new(Stream::new(io::stdout().as_fd().try_clone_to_owned()?)))
}

/// A stream that takes payloads one behind the other.
pub(crate) struct Stream {
    file: File,
    /// What is written before the first payload.
    header: Vec<u8>,
    /// How much of the header, or once that is written of the oldest payload, is written.
    written: usize,
    has_header: bool,
    set: PollSet,
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd) -> Stream {
        let set = PollSet::default();
        Stream { file: fd.into(), header: Vec::new(), written: 0, has_header: true, set }
    }

    /// Waits for the stream to take more, for at most `wait`.
    fn is_writable(&mut self, wait: Duration) -> bool {
        self.set.clear();
        self.set.add(self.file.as_fd(), Interest::Writable);
        // An interrupted wait is a short one.
        self.set.wait(wait).is_ok_and(|ready| ready > 0)
    }

    /// Writes what is left of `bytes`; `false` when the reader is slow.
    fn write(&mut self, bytes: &[u8]) -> io::Result<bool> {
        while let Some(rest) = bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
            if !self.is_writable(Duration::ZERO) && !self.is_writable(WRITABLE_WAIT) {
                return Ok(false);
            }
            match self.file.write(&rest[..rest.len().min(PART_BYTES)]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Whoever shares the descriptor has made it non-blocking.
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
    fn begin(&mut self, framing: Framing) {
        self.has_header = framing.header.is_empty();
        self.header = framing.header;
    }

    fn deliver(&mut self, payloads: &[Payload], events: &Events) -> Delivery {
        let Some(first) = payloads.first() else { return Delivery::Delivered(0) };
        match self.write_next(first.bytes()) {
            Ok(true) => Delivery::Delivered(1),
            Ok(false) => Delivery::Retry(Duration::ZERO, None),
            // A reader that has seen enough closes the pipe: `weir … | head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                Delivery::Gone(Reason::WriteError)
            }
            Err(error) => {
                events.count_error(Errno::from(&error));
                Delivery::Retry(RETRY_INTERVAL, Some(Reason::WriteError))
            }
        }
    }
}

/// Time between two attempts after an error that may pass, such as a full disk behind a redirection.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_header_that_could_not_be_written_is_written_with_the_next_attempt() {
        let path = std::env::temp_dir().join(format!("weir-stream-{}", std::process::id()));
        fs::write(&path, b"").unwrap();
        let events = Events::default();
        let payloads = [Payload::new(b"1,2\n", 1)];
        // A descriptor that is open for reading refuses each write.
        let mut stream = Stream::new(File::open(&path).unwrap().into());
        stream.begin(Framing { header: b"a,b\n".to_vec(), record_end: None });
        for _ in 0..2 {
            let failed = Delivery::Retry(RETRY_INTERVAL, Some(Reason::WriteError));
            assert_eq!(stream.deliver(&payloads, &events), failed);
        }
        stream.file = File::options().write(true).open(&path).unwrap();
        assert_eq!(stream.deliver(&payloads, &events), Delivery::Delivered(1));
        assert_eq!(stream.deliver(&payloads, &events), Delivery::Delivered(1));
        assert_eq!(fs::read(&path).unwrap(), b"a,b\n1,2\n1,2\n");
        fs::remove_file(&path).unwrap();
    }
}
