//! A sink: its thread, and the handle to feed, watch and close it.

use crate::Error;
use crate::accounts::{Accounts, ROW_MEMORY_BYTES, SpoolFound};
use crate::backlog::{Backlog, OpenSpool};
use crate::delivery::Now;
use crate::options::{QueueOptions, SinkOptions, SpoolOptions};
use crate::queue::{Intake, Queue};
use crate::spool::{self, Disk, Folder, OpenError, Spool};
use crate::worker::{Turn, Worker};
use ledger::{Amount, Meter, Reason, Trouble};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How much longer than its deadline a close waits for the thread: a sound destination answers within 100 ms.
const END_GRACE: Duration = Duration::from_millis(500);

/// A running sink. If dropped without [`wait`](Self::wait), its thread ends by itself once everything is delivered.
pub struct Sink {
    accounts: Arc<Accounts>,
}

impl Sink {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started, or no descriptor is available.
    pub fn open(options: SinkOptions) -> Result<Sink, Error> {
        Sink::open_after(options, Vec::new())
    }

    /// Starts the thread of a sink whose spool is still used by earlier sinks: it opens the spool when they have ended.
    ///
    /// The directory's lock keeps two sinks apart but not in order: of several waiting sinks, the last could get the spool first
    /// and keep it, and the rows of the others would never get there.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_after(options: SinkOptions, formers: Vec<SinkEnd>) -> Result<Sink, Error> {
        let SinkOptions { name, origin, queue, batch, delivery, spool, connector } = options;
        let failed = |source| Error::Thread { name: name.clone(), source };

        // The queue, the batches in flight and being filled, and one chunk more.
        let in_batches = batch.rows.saturating_mul(delivery.in_flight_max + 3);
        let in_spool = spool.as_ref().map_or(0, |spool| spool.bytes_max / ROW_KEPT_BYTES);
        let in_queue = 2 * queue.bytes_max / ROW_MEMORY_BYTES;
        let capacity_rows = in_spool.saturating_add(in_queue.saturating_add(in_batches) as u64);
        let queue = Arc::new(Queue::new(queue).map_err(failed)?);
        let accounts = Accounts::new(origin, name.clone(), Arc::clone(&queue), capacity_rows);
        let accounts = Arc::new(accounts);
        let spool = spool.map(|options| {
            accounts.set_spool_capacity(options.bytes_max);
            (opener(&options, formers), options.sync)
        });

        let of_thread = Arc::clone(&accounts);
        let run = move || {
            let backlog = Backlog::new(Arc::clone(&of_thread.queue), spool);
            let limits = (batch, delivery);
            let accounts = Arc::clone(&of_thread);
            let worker = Worker::new(now, accounts, backlog, limits, connector, random());
            run(worker, &of_thread);
        };
        thread::Builder::new().name(name.clone()).spawn(run).map_err(failed)?;
        Ok(Sink { accounts })
    }

    /// The stand-in for a sink that could not be started: what it is given is counted under its name, as lost.
    ///
    /// # Errors
    /// No descriptor is available.
    pub fn absent(name: String, origin: String) -> Result<Sink, Error> {
        let failed = |source| Error::Thread { name: name.clone(), source };
        let queue = Arc::new(Queue::new(QueueOptions::default()).map_err(failed)?);
        queue.refuse(Reason::NoSink);
        Ok(Sink { accounts: Arc::new(Accounts::new(origin, name, queue, 0)) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.accounts.name
    }

    /// Where to offer its rows.
    pub fn intake(&self) -> Intake {
        Intake { queue: Arc::clone(&self.accounts.queue) }
    }

    /// The ledger's view of it.
    pub fn meter(&self) -> Arc<dyn Meter> {
        Arc::clone(&self.accounts) as Arc<dyn Meter>
    }

    /// What is wrong with its destination at this moment.
    pub fn trouble(&self) -> Option<Trouble> {
        self.accounts.trouble()
    }

    /// What its spool held at opening; `None` without a spool, and until it is open.
    pub fn spool_found(&self) -> Option<SpoolFound> {
        self.accounts.spool_found()
    }

    /// Closes the sink to new rows. What is inside may leave until the deadline.
    pub fn close(&self, deadline: Instant) {
        self.accounts.queue.close(deadline);
    }

    /// A handle for the end of its thread.
    pub fn end(&self) -> SinkEnd {
        SinkEnd(Arc::clone(&self.accounts))
    }

    /// Whether its thread has ended.
    pub fn has_ended(&self) -> bool {
        self.accounts.queue.wait_for_end(Instant::now())
    }

    /// Waits for the end after [`close`](Self::close) and a moment more, and then abandons the thread. Returns what did not
    /// leave, which is counted.
    pub fn wait(self, deadline: Instant) -> Amount {
        let queue = &self.accounts.queue;
        queue.close(deadline);
        if !queue.wait_for_end(deadline + END_GRACE) {
            // Its client hangs. What is in its hands may have arrived.
            let queued = queue.end();
            return queued + self.accounts.abandon();
        }
        self.accounts.left_at_end()
    }
}

/// Bytes that each row takes in the spool in addition to its own.
const ROW_KEPT_BYTES: u64 = 13;

/// The function that opens the spool, called as often as necessary.
fn opener(options: &SpoolOptions, formers: Vec<SinkEnd>) -> OpenSpool<Folder> {
    let SpoolOptions { folder, bytes_max, .. } = options.clone();
    Box::new(move || {
        if !formers.iter().all(|former| former.wait(Instant::now())) {
            return Err(OpenError::Locked);
        }
        let options = spool::Options { bytes_max, ..spool::Options::default() };
        Spool::open(Folder::open(&folder)?, options)
    })
}

/// A handle for the end of a sink's thread, after which it writes nothing any more.
#[derive(Clone)]
pub struct SinkEnd(Arc<Accounts>);

impl SinkEnd {
    /// Waits for the end until this time, and returns whether it has come.
    pub fn wait(&self, until: Instant) -> bool {
        self.0.queue.wait_for_end(until)
    }

    /// What was wrong with the sink's spool at the end: it could not be made durable, or not be closed.
    pub fn spool_trouble(&self) -> Option<Trouble> {
        self.0.spool_trouble()
    }
}

fn run<C: Fn() -> Now>(mut worker: Worker<C, Folder>, accounts: &Accounts) {
    let queue = &accounts.queue;
    loop {
        let phase = queue.phase();
        match worker.turn() {
            Turn::Again => {}
            Turn::Rest(time) => queue.wait(time, phase),
            Turn::RestAlone(time) => queue.wait_for_phase(time, phase),
            Turn::End => break,
        }
    }
    end(worker, accounts);
}

pub(crate) fn end<C: Fn() -> Now, D: Disk>(worker: Worker<C, D>, accounts: &Accounts) {
    let left = worker.end();
    // Rows that arrived in the meantime are refused, and those still waiting are counted, before the end is announced.
    accounts.set_left_at_end(left + accounts.queue.inside().amount);
    accounts.queue.end();
}

fn now() -> Now {
    Now { at: Instant::now(), unix_ns: sys::clock::realtime_ns() }
}

/// A unique number. The standard library seeds its hash maps from the kernel's random numbers.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
