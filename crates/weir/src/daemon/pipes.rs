//! Standard input as a listener, standard output as a target: a relay between pipes.

use super::Event;
use super::stop::{LastLedger, LedgerForm};
use crate::exit::Failure;
use config::{Config, FileTarget, Target};
use ledger::{HopKind, Reason, Snapshot};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use sys::poll::{Interest, PollSet};

/// Most bytes sent of a line. This is more than any datagram holds, so the listener counts a longer line as truncated.
const LINE_BYTES_MAX: u64 = 100_000;

/// State of both pipes.
#[derive(Default)]
pub(crate) struct Pipes {
    /// Whether every line of standard input has been handed to its listener; `None` if no listener reads it.
    input_has_ended: Option<Arc<AtomicBool>>,
    /// Whether standard input could not be read.
    input_has_failed: Arc<AtomicBool>,
    /// Why nothing can be written to standard output any more, where it is a target.
    pub(crate) output: Option<OutputEnded>,
}

impl Pipes {
    /// Starts a thread that sends every line of standard input to `socket`, if there is one, and reports the end.
    pub(crate) fn feed(
        &mut self,
        socket: Option<UnixDatagram>,
        events: Sender<Event>,
    ) -> io::Result<()> {
        let Some(socket) = socket else { return Ok(()) };
        let ended = Arc::clone(self.input_has_ended.get_or_insert_default());
        let failed = Arc::clone(&self.input_has_failed);
        thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            match send_lines(io::stdin(), &socket) {
                Ok(()) => ended.store(true, Ordering::Release),
                Err(Ended::Input(error)) => {
                    failed.store(true, Ordering::Release);
                    tracing::error!("cannot read standard input: {error}");
                }
                // The daemon stops already, and says what this means.
                Err(Ended::Listener) => return,
            }
            // This fails only when the daemon has ended.
            let _ = events.send(Event::InputEnded);
        })?;
        Ok(())
    }

    /// Checks whether standard output still accepts data.
    pub(crate) fn look(&mut self, config: &Config, snapshot: &Snapshot) {
        self.output = self.output.or_else(|| output_ended(config, snapshot));
    }

    /// Whether the daemon ends because of either.
    pub(crate) fn has_failed(&self) -> bool {
        self.output == Some(OutputEnded::Failed) || self.input_has_failed.load(Ordering::Acquire)
    }

    /// Says at a stop what the ledger cannot.
    pub(crate) fn say_why_they_end(&self) {
        if self.output == Some(OutputEnded::Failed) {
            tracing::error!("standard output can no longer be written, so Weir stops receiving");
        }
        if self.input_has_ended.as_ref().is_some_and(|ended| !ended.load(Ordering::Acquire)) {
            tracing::warn!(
                "standard input was not read to its end: the remaining lines are in no ledger"
            );
        }
    }
}

/// Why no more lines are sent.
enum Ended {
    /// Standard input cannot be read.
    Input(io::Error),
    /// The listener accepts nothing more.
    Listener,
}

/// Sends each line as a datagram, without its line feed. Blocks while the listener's queue is full.
fn send_lines(input: impl Read, socket: &UnixDatagram) -> Result<(), Ended> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(Ended::Input)? == 0 {
            return Ok(());
        }

        let is_whole = line.last() == Some(&b'\n');
        if is_whole {
            line.pop();
        } else if line.len() as u64 == LINE_BYTES_MAX {
            input.skip_until(b'\n').map_err(Ended::Input)?;
        }
        socket.send(&line).map_err(|_| Ended::Listener)?;
    }
}

/// Why standard output cannot be written any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutputEnded {
    /// The reader has gone: `| head` has seen enough.
    ReaderGone,
    /// A write failed, because the disk is full, for example.
    Failed,
}

/// Whether standard output is a target that accepts nothing more.
fn output_ended(config: &Config, snapshot: &Snapshot) -> Option<OutputEnded> {
    let (listener, target) = output_target(config)?;
    let mut set = PollSet::default();
    let stdout = io::stdout();
    // Polls for an error only, which a pipe without a reader reports.
    set.add(stdout.as_fd(), Interest::Priority);
    if set.wait(Duration::ZERO).is_ok() && set.is_ready(0) {
        return Some(OutputEnded::ReaderGone);
    }

    let hop = snapshot.hop(HopKind::Target, listener, Some(target));
    let failed = hop.is_some_and(|hop| hop.dropped_for(Reason::WriteError).count > 0);
    failed.then_some(OutputEnded::Failed)
}

/// The listener and the name of the target that writes to standard output.
fn output_target(config: &Config) -> Option<(&str, &str)> {
    let is_output = |to: &Target| matches!(to, Target::File(FileTarget { path: None, .. }));
    config.listeners.iter().find_map(|listener| {
        let target = listener.targets.iter().find(|target| is_output(&target.to))?;
        Some((listener.name.as_str(), target.name.as_str()))
    })
}

/// Refuses a last ledger that would be mixed with datagrams.
///
/// # Errors
/// Both would go to standard output.
pub(crate) fn refuse_two_writers(config: &Config, last: LastLedger) -> anyhow::Result<()> {
    match output_target(config) {
        Some((_, target)) if last.form == LedgerForm::Json => Err(Failure::Usage.error(format!(
            "target {target} writes to standard output, where --json writes the last ledger: one would spoil the other. \
             Fix: leave --json out, or send the datagrams to a file"
        ))),
        _ => Ok(()),
    }
}
