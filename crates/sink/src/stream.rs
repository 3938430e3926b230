//! A destination that is a stream: standard output, wherever it leads.
//!
//! A row is written to its end before another begins, whatever becomes of its batch meanwhile. While a write fails that may
//! succeed later, a row that is written in part stays in hand, and nothing else is accepted. If its batch is given up, what is
//! left of the row goes before everything that follows, so its readers never take two rows for one.

use crate::batch::{Attempt, Failure, Fate, Outcome, Parts, Sent};
use crate::byte_stream::Held;
use crate::destination::{Connector, Destination, Form, OwnFigures};
use crate::durability::{Due, Durability, SyncTimer};
use crate::encode::{Content, Partition};
use ledger::{Reason, Trouble};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use sys::poll::{Interest, PollSet};

/// A pipe that is writable accepts this much without blocking (pipe(7), `PIPE_BUF`). The descriptor is shared with the
/// process that gave it to us, so it is left blocking.
const PART_BYTES: usize = 4_096;

/// How long one call waits for a slow reader.
const WRITABLE_WAIT: Duration = Duration::from_millis(100);

/// Time between attempts after an error that may be temporary, such as a full disk behind a redirection.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// What a stream must get before another row may begin: a header, or the rest of a row. It belongs to the stream, not to what
/// writes it: a destination that is replaced, because it hung or in a reload, leaves it to the next.
pub(crate) type Rest = Arc<Mutex<Vec<u8>>>;

/// That of standard output, which is one for the whole process.
static STDOUT_REST: LazyLock<Rest> = LazyLock::new(Rest::default);

/// The standard output of this process. If it leads to a file, rows are acknowledged as `durability` says.
///
/// # Errors
/// `EBADF` when it is closed.
pub fn stdout(content: Content, durability: Durability) -> io::Result<Connector> {
    let fd = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(stream(fd, Arc::clone(&STDOUT_REST), content, durability))
}

fn stream(fd: OwnedFd, rest: Rest, content: Content, durability: Durability) -> Connector {
    // Each row is a part, so that a stream that ends within a batch leaves no doubt about more than one row.
    let form = move || Form::Mixed(content.encoder(Partition::StreamRows));
    let mut header = Some(content.framing().header);
    let destination = move || {
        let failed = |error: io::Error| Trouble {
            what: format!("standard output: {error}"),
            fix: "raise the limit of open files: ulimit -n".to_owned(),
        };
        let fd = fd.try_clone().map_err(failed)?;
        // Here and not earlier: a former sink may still have been writing.
        lock(&rest).extend(header.take().unwrap_or_default());
        Ok(Box::new(Stream::new(fd, Arc::clone(&rest), durability)) as Box<dyn Destination>)
    };
    Connector { form: Box::new(form), destination: Box::new(destination) }
}

fn lock(rest: &Rest) -> MutexGuard<'_, Vec<u8>> {
    // Nothing panics between two related changes, so a poisoned lock is still consistent.
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream to which rows are written one after another.
pub(crate) struct Stream {
    file: File,
    rest: Rest,
    set: PollSet,
    writing: Option<Held>,
    /// What keeps a row that is written in part from being finished, and when to try again.
    stuck: Option<(Trouble, Instant)>,
    /// Acknowledgments that wait for a sync, and outcomes that wait for nothing.
    unsynced: Vec<Outcome>,
    done: Vec<Outcome>,
    timer: SyncTimer,
}

/// How far a write got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Done,
    /// The reader is slow.
    Waiting,
}

impl Stream {
    pub(crate) fn new(fd: OwnedFd, rest: Rest, durability: Durability) -> Stream {
        let file = File::from(fd);
        // A pipe and a terminal have no disk, and refuse a sync.
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let durability = if is_file { durability } else { Durability::Written };
        Stream {
            file,
            rest,
            set: PollSet::default(),
            writing: None,
            stuck: None,
            unsynced: Vec::new(),
            done: Vec::new(),
            timer: SyncTimer::new(durability),
        }
    }

    /// Writes what must come first, and then what is left of the batch.
    fn write_next(&mut self, held: &mut Held) -> io::Result<Progress> {
        let mut rest = lock(&self.rest);
        let mut written = 0;
        let progress = write(&mut self.file, &mut self.set, &rest, &mut written);
        rest.drain(..written);
        drop(rest);
        if progress? == Progress::Waiting {
            return Ok(Progress::Waiting);
        }

        let mut taken = held.taken;
        let progress = write(&mut self.file, &mut self.set, held.bytes(), &mut taken);
        held.taken = taken;
        progress
    }

    fn write_on(&mut self) {
        let Some(mut held) = self.writing.take() else { return };
        match self.write_next(&mut held) {
            Ok(Progress::Waiting) => self.writing = Some(held),
            Ok(Progress::Done) => {
                self.stuck = None;
                let parts = held.attempt.parts.clone();
                self.wrote(held.outcome(parts, Fate::Acknowledged));
            }
            Err(error) => self.failed(held, &error),
        }
    }

    fn wrote(&mut self, outcome: Outcome) {
        if self.timer.is_used() {
            self.unsynced.push(outcome);
            self.timer.wrote();
        } else {
            self.done.push(outcome);
        }
    }

    /// Reports on a batch of which a part is written.
    fn failed(&mut self, held: Held, error: &io::Error) {
        let [whole, torn, unsent] = held.divide(held.taken as u64);
        if !whole.is_empty() {
            self.wrote(held.outcome(Parts::Some(whole), Fate::Acknowledged));
        }

        // A reader that has seen enough closes the pipe: `weir … | head`.
        if error.kind() == io::ErrorKind::BrokenPipe {
            self.stuck = None;
            lock(&self.rest).extend_from_slice(held.rest_of_part());
            self.report(&held, torn, Fate::Uncertain);
            self.report(&held, unsent, Fate::Dropped(Reason::WriteError));
            return;
        }

        let failure = failure(error, Sent::No);
        let trouble = failure.trouble.clone();
        self.report(&held, unsent, Fate::Failed(failure));
        self.stuck = None;
        if !torn.is_empty() {
            self.stuck = Some((trouble, Instant::now() + RETRY_INTERVAL));
            self.writing = Some(held.only_part(torn));
        }
    }

    fn report(&mut self, held: &Held, places: Vec<u32>, fate: Fate) {
        if !places.is_empty() {
            self.done.push(held.outcome(Parts::Some(places), fate));
        }
    }

    fn sync(&mut self) {
        let synced = self.file.sync_data();
        self.timer.synced(Instant::now());
        if let Err(error) = synced {
            // The kernel reports a failed write-back once (fsync(2)): whether these rows are in the file is not known.
            let fate = Fate::Failed(failure(&error, Sent::Maybe));
            self.unsynced.iter_mut().for_each(|outcome| outcome.fate = fate.clone());
        }
        self.done.append(&mut self.unsynced);
    }
}

/// Writes `bytes` from `written` on, and counts there what is written.
fn write(
    file: &mut File,
    set: &mut PollSet,
    bytes: &[u8],
    written: &mut usize,
) -> io::Result<Progress> {
    while let Some(rest) = bytes.get(*written..).filter(|rest| !rest.is_empty()) {
        if !is_writable(file, set, Duration::ZERO) && !is_writable(file, set, WRITABLE_WAIT) {
            return Ok(Progress::Waiting);
        }
        match file.write(&rest[..rest.len().min(PART_BYTES)]) {
            Ok(count) => *written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another process that shares the descriptor has made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Progress::Waiting);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Progress::Done)
}

/// Waits until the stream accepts more, for at most `wait`.
fn is_writable(file: &File, set: &mut PollSet, wait: Duration) -> bool {
    set.clear();
    set.add(file.as_fd(), Interest::Writable);
    // An interrupted wait just ends early.
    set.wait(wait).is_ok_and(|ready| ready > 0)
}

fn failure(error: &io::Error, sent: Sent) -> Failure {
    Failure {
        sent,
        reason: Some(Reason::WriteError),
        after: Some(RETRY_INTERVAL),
        trouble: Trouble {
            what: format!("standard output: {error}"),
            fix: "see where it leads: ls -l /dev/stdout".to_owned(),
        },
    }
}

impl Destination for Stream {
    fn submit(&mut self, attempt: Attempt) -> Result<(), Attempt> {
        if self.writing.is_some() {
            return Err(attempt);
        }
        self.writing = Some(Held::new(attempt));
        Ok(())
    }

    fn poll(&mut self, wait: Duration, done: &mut Vec<Outcome>) {
        let now = Instant::now();
        let retry_in = self.stuck.as_ref().map(|(_, at)| at.saturating_duration_since(now));
        if retry_in.is_none_or(|time| time.is_zero()) {
            self.write_on();
        }

        // A slow reader was waited for already.
        let is_at_rest = self.writing.is_none() || self.stuck.is_some();
        let wait = if self.done.is_empty() && is_at_rest { wait } else { Duration::ZERO };
        if self.timer.wait(wait) == Due::Now {
            self.sync();
        } else if let Some(retry_in) = retry_in
            && self.timer.is_idle()
        {
            thread::sleep(retry_in.min(wait));
        }
        done.append(&mut self.done);
    }

    fn figures(&self) -> OwnFigures {
        let trouble = self.stuck.as_ref().map(|(trouble, _)| trouble.clone());
        OwnFigures { trouble, ..OwnFigures::default() }
    }

    fn close(&mut self, _wait: Duration, done: &mut Vec<Outcome>) {
        if self.timer.is_used() {
            self.sync();
        }
        done.append(&mut self.done);
    }
}

impl Drop for Stream {
    /// Leaves the rest of a row to what writes next.
    fn drop(&mut self) {
        if let Some(held) = &self.writing {
            lock(&self.rest).extend_from_slice(held.rest_of_part());
        }
    }
}

#[cfg(test)]
mod tests;
