use crate::destination::{Delivery, Destination};
use crate::queue::{Queue, QueueLimits, Work};
use crate::udp::DatagramLimit;
use crate::{Error, Payload};
use ledger::{Amount, Meter, Reason};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time without payloads after which a destination is looked after.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// How much longer than its deadline a close waits for a thread to come back from what it does, before it gives it up.
const RETURN_GRACE: Duration = Duration::from_millis(200);

/// What stands around the records of a stream or file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// What a stream and every file begins with.
    pub header: Vec<u8>,
    /// The byte that every record ends with, where the format has one.
    pub record_end: Option<u8>,
}

/// A bounded queue, a thread, and a destination.
///
/// Dropped without a [`close`](Self::close), it gives up what is inside; everything is counted all the same.
pub struct Sink {
    queue: Arc<Queue>,
    datagram_limit: Option<DatagramLimit>,
}

impl Sink {
    /// Starts a sink. `origin` is what makes the records, for the ledger; `name` tells the sink from others of that
    /// origin.
    ///
    /// What can be mended while the process runs is no error: a file that cannot be written or a network that is down is
    /// tried again and again.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn open(
        origin: &str,
        name: &str,
        limits: QueueLimits,
        mut destination: Box<dyn Destination>,
        framing: Framing,
    ) -> Result<Sink, Error> {
        let datagram_limit = destination.datagram_limit();
        destination.begin(framing);
        let queue = Arc::new(Queue::new(origin.to_owned(), name.to_owned(), limits));
        Ok(Sink { queue: start(queue, destination)?, datagram_limit })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.queue.name()
    }

    /// What the ledger reads.
    pub fn meter(&self) -> Arc<dyn Meter> {
        Arc::clone(&self.queue) as Arc<dyn Meter>
    }

    /// Most bytes that a payload may have to get through unharmed; `None`: any number.
    pub fn payload_bytes_max(&self) -> Option<usize> {
        self.datagram_limit.as_ref().map(DatagramLimit::bytes)
    }

    /// Queues a payload, or counts what a full queue gives up. Never waits for the destination.
    pub fn offer(&self, payload: &Payload) {
        self.queue.offer(payload);
    }

    /// The same while more follows: the sink's thread is woken for a batch, or by [`wake`](Self::wake).
    pub(crate) fn offer_more(&self, payload: &Payload) {
        self.queue.offer_more(payload);
    }

    /// Has what was offered delivered now.
    pub(crate) fn wake(&self) {
        self.queue.wake();
    }

    /// Counts what was made for this sink and cannot become a payload.
    pub fn refuse(&self, amount: Amount, reason: Reason) {
        self.queue.refuse(amount, reason);
    }

    /// Lets nothing more in; what is inside may leave until the deadline. Does not wait.
    pub fn close(&self, deadline: Instant) {
        self.queue.close(deadline);
    }

    /// Waits after a [`close`](Self::close) until everything has left or the deadline is there, and returns what did not
    /// leave; it is counted as dropped.
    ///
    /// A thread that is stuck in a system call beyond the deadline is given up: what it had in its hands counts as
    /// dropped and may arrive all the same.
    pub fn wait(self, deadline: Instant) -> Amount {
        if !self.queue.wait_for_end(deadline + RETURN_GRACE) {
            self.queue.end();
        }
        self.queue.left_at_end()
    }
}

/// Starts the thread that serves the queue.
fn start(queue: Arc<Queue>, destination: Box<dyn Destination>) -> Result<Arc<Queue>, Error> {
    let mut worker = Worker { queue: Arc::clone(&queue), destination };
    let spawned =
        thread::Builder::new().name(format!("sink {}", queue.name())).spawn(move || worker.run());
    match spawned {
        Ok(_) => Ok(queue),
        Err(source) => Err(Error::Thread { name: queue.name().to_owned(), source }),
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // A thread that nobody waits for ends by itself, with what is inside counted.
        self.queue.close(Instant::now());
    }
}

struct Worker {
    queue: Arc<Queue>,
    destination: Box<dyn Destination>,
}

impl Worker {
    fn run(&mut self) {
        let mut batch = Vec::new();
        let mut gone = None;
        loop {
            match self.queue.next(&mut batch, TICK_INTERVAL) {
                Work::End => break,
                Work::Tick if gone.is_some() => {}
                Work::Tick => self.destination.tick(&self.queue.events),
                Work::Deliver => match gone {
                    None => gone = self.deliver(&batch),
                    Some(reason) => self.queue.dropped(batch.len(), reason),
                },
            }
        }
        if gone.is_none() {
            self.destination.finish(&self.queue.events);
        }
        self.queue.end();
    }

    /// Returns the reason if the destination has gone for good.
    fn deliver(&mut self, batch: &[Payload]) -> Option<Reason> {
        match self.destination.deliver(batch, &self.queue.events) {
            Delivery::Delivered(count) => self.queue.delivered(count),
            Delivery::Dropped(count, reason) => self.queue.dropped(count, reason),
            Delivery::Retry(after, failing) => {
                self.queue.events.retries.add(1);
                self.queue.pause(after, failing);
            }
            Delivery::Gone(reason) => return Some(reason),
        }
        None
    }
}

#[cfg(test)]
mod tests;
