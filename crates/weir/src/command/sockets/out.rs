//! Standard output, written in large pieces. A reader that goes away is not an error.

use crate::exit::Reader;
use std::io::{self, Write as _};

/// Bytes gathered before a write.
const PIECE_BYTES: usize = 64 * 1024;

/// The output. After the reader has gone or a write has failed, nothing more is written.
pub(super) struct Out {
    buffer: Vec<u8>,
    state: State,
}

enum State {
    Open,
    Gone,
    Failed(io::Error),
    #[cfg(test)]
    Memory,
}

impl Out {
    pub(super) fn to_stdout() -> Out {
        Out { buffer: Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4), state: State::Open }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.with(|buffer| buffer.extend_from_slice(bytes));
    }

    /// Lets `append` add to the buffer, and writes it when it is large enough.
    pub(super) fn with(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.buffer);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        match self.state {
            State::Open => {
                let mut stdout = io::stdout().lock();
                if let Err(error) = stdout.write_all(&self.buffer).and_then(|()| stdout.flush()) {
                    self.state = match error.kind() {
                        io::ErrorKind::BrokenPipe => State::Gone,
                        _ => State::Failed(error),
                    };
                }
            }
            State::Gone | State::Failed(_) => {}
            #[cfg(test)]
            State::Memory => return,
        }

        self.buffer.clear();
    }

    /// Whether there is no point in continuing.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Gone | State::Failed(_))
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// A write failed for a reason other than a reader that went away.
    pub(super) fn finish(mut self) -> anyhow::Result<Reader> {
        self.flush();
        match self.state {
            State::Failed(error) => {
                Err(anyhow::Error::new(error).context("cannot write to standard output"))
            }
            State::Gone => Ok(Reader::Gone),
            _ => Ok(Reader::Listens),
        }
    }

    #[cfg(test)]
    pub(super) fn to_memory() -> Out {
        Out { buffer: Vec::new(), state: State::Memory }
    }

    #[cfg(test)]
    pub(super) fn into_memory(self) -> Vec<u8> {
        self.buffer
    }
}
