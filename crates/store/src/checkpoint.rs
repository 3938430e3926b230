//! Checkpoints: the pages of SQLite's write-ahead log are copied into the database on a thread of their own. The disk may take long
//! to confirm them, and a batch would wait meanwhile.

use crate::error::{Error, file, sqlite};
use crate::schema;
use std::path::Path;
use std::thread::{self, JoinHandle};

/// A checkpoint in progress.
pub(crate) struct Checkpoint {
    thread: JoinHandle<Result<(), Error>>,
}

impl Checkpoint {
    /// Starts on a thread of low priority.
    pub(crate) fn start(folder: &Path) -> Result<Checkpoint, Error> {
        let folder = folder.to_owned();
        let work = move || {
            sys::process::lower_thread_priority();
            let connection = schema::open_beside_writer(&folder)?;
            // It waits for nobody; what it cannot copy now is left to the next one.
            connection
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
                .map_err(sqlite("cannot write to the store"))
        };
        let thread = thread::Builder::new().name("store-checkpoint".to_owned()).spawn(work);
        Ok(Checkpoint { thread: thread.map_err(file("the thread of checkpoints"))? })
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> Result<(), Error> {
        // The panic was printed to standard error; a later checkpoint copies the same pages.
        let panicked = |_| Err(Error::Refused("the thread of checkpoints panicked".to_owned()));
        self.thread.join().unwrap_or_else(panicked)
    }
}
