//! One source, many sinks: each row is encoded once, whatever their number.

use crate::queue::{Full, Intake, Wake, amount_of};
use crate::sink::{Sink, random};
use ledger::{Counters, HopBuilder, HopKind, HopSnapshot, Meter, Reason};
use record::{
    Chunk, ChunkBuilder, CounterRecord, DatagramRecord, FlowRecord, FlowTotals, PollTotals,
    SocketRecord,
};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A chunk is cut when its rows have reached this many bytes, so it exceeds this by less than one row.
const CHUNK_BYTES: usize = 64 * 1024;

/// The place in the ledger of rows that no sink was there to take. No sink has such a name.
const NO_SINK: &str = "(no sink)";

/// Chunks whose memory is kept for reuse: as many as a sink's thread and the writer use at a time. Memory that one thread
/// allocates and another frees would go back to the kernel each time and be faulted in again page by page.
const KEPT_CHUNKS: usize = 8;

/// The sinks of a source. Clones share the same sinks, which come and go while the source runs.
#[derive(Clone, Default)]
pub struct Fanout {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    intakes: Mutex<Vec<Intake>>,
    /// Whether there are sinks, checked for each row. Written under the lock.
    has_sinks: AtomicBool,
    /// Rows in chunks that no sink was there to take. Written under the lock.
    unclaimed: Counters,
}

impl Fanout {
    /// Adds a sink: it receives every chunk that is cut from now on.
    pub fn attach(&self, sink: &Sink) {
        self.change(|intakes| intakes.push(sink.intake()));
    }

    /// Removes a sink: it has received everything cut before.
    pub fn detach(&self, sink: &Sink) {
        let queue = sink.intake().queue;
        self.change(|intakes| intakes.retain(|intake| !intake.is_of(&queue)));
    }

    /// Replaces a sink between two chunks: each chunk goes to exactly one of the two.
    pub fn replace(&self, old: &Sink, new: &Sink) {
        let queue = old.intake().queue;
        self.change(|intakes| {
            intakes.retain(|intake| !intake.is_of(&queue));
            intakes.push(new.intake());
        });
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Intake>)) {
        let mut intakes = self.lock();
        change(&mut intakes);
        self.shared.has_sinks.store(!intakes.is_empty(), Ordering::Relaxed);
    }

    /// A writer that fills chunks for these sinks; one per source. `source_id` identifies the host's boot.
    pub fn writer(&self, source_id: [u8; 16]) -> ChunkWriter {
        let builder = ChunkBuilder::new((random() >> 1).max(1), source_id);
        let (kept, waiting) = (VecDeque::new(), None);
        ChunkWriter { fanout: self.clone(), builder, kept, waiting, is_quiet: false }
    }

    /// Offers a chunk of rows that were encoded before, for example in a benchmark.
    pub fn hand_over(&self, chunk: &Arc<Chunk>) {
        self.offer(chunk, Wake::Yes);
    }

    fn has_sinks(&self) -> bool {
        // A newly attached sink is seen a moment later at the latest.
        self.shared.has_sinks.load(Ordering::Relaxed)
    }

    /// The ledger's view of rows that no sink was there to take; empty until there are any.
    pub fn meter(&self, origin: &str) -> Arc<dyn Meter> {
        Arc::new(Unclaimed { shared: Arc::clone(&self.shared), origin: origin.to_owned() })
    }

    fn offer(&self, chunk: &Arc<Chunk>, wake: Wake) {
        // Offered under the lock, so that a removed sink receives nothing afterwards.
        let intakes = self.lock();
        intakes.iter().for_each(|intake| intake.queue.offer(chunk, wake));
        if intakes.is_empty() {
            self.shared.unclaimed.drop(Reason::NoSink, amount_of(chunk));
        }
    }

    fn wake(&self) {
        self.lock().iter().for_each(|intake| intake.queue.wake());
    }

    /// Offers a chunk, unless the first sink has no room. Another sink drops what finds no room there, and counts it: left at the
    /// source, the chunk would come to the first one twice.
    fn try_offer(&self, chunk: &Arc<Chunk>) -> Result<(), Full> {
        let intakes = self.lock();
        let (first, others) = intakes.split_first().ok_or(Full)?;
        first.try_offer(chunk)?;
        others.iter().for_each(|intake| intake.queue.offer(chunk, Wake::Yes));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Intake>> {
        // Nothing panics between two related changes, so a poisoned lock is still consistent.
        self.shared.intakes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the ledger shows of a fanout.
struct Unclaimed {
    shared: Arc<Shared>,
    origin: String,
}

impl Meter for Unclaimed {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        let lost = self.shared.unclaimed.dropped(Reason::NoSink);
        if !lost.is_zero() {
            let hop = HopBuilder::new(HopKind::Sink, &self.origin, Some(NO_SINK), lost);
            hops.push(hop.dropped(Reason::NoSink, lost).finish(lost));
        }
    }
}

/// Accepts a source's rows on its thread. It never waits for a sink, and a row costs no allocation.
pub struct ChunkWriter {
    fanout: Fanout,
    builder: ChunkBuilder,
    /// The most recent chunks, oldest first.
    kept: VecDeque<Arc<Chunk>>,
    /// A chunk that the sink had no room for.
    waiting: Option<Arc<Chunk>>,
    /// Chunks were offered without waking the sinks.
    is_quiet: bool,
}

impl ChunkWriter {
    /// Random number of this stream of rows, above 0 and below 2^63.
    pub fn stream(&self) -> u64 {
        self.builder.stream()
    }

    /// Adds a record. It is offered with the next full chunks, or by [`flush`](Self::flush). Without a sink it costs nothing.
    pub fn record(&mut self, record: &SocketRecord<'_>) {
        if self.is_for_nobody() {
            return self.builder.skip();
        }
        self.builder.record(record);
        self.cut_if_long();
    }

    /// Adds a flow, as [`record`](Self::record) adds a record. Flows with the same key belong to one definition.
    pub fn flow(&mut self, flow: &FlowRecord<'_>, key: u64) {
        if self.is_for_nobody() {
            return self.builder.skip();
        }
        self.builder.flow(flow, key);
        self.cut_if_long();
    }

    /// Adds counters, likewise. Counters with the same key belong to one agent.
    pub fn counters(&mut self, counters: &CounterRecord<'_>, key: u64) {
        if self.is_for_nobody() {
            return self.builder.skip();
        }
        self.builder.counters(counters, key);
        self.cut_if_long();
    }

    /// Adds the totals of flow and counter rows, and flushes.
    pub fn flow_totals(&mut self, totals: &FlowTotals<'_>) {
        if self.is_for_nobody() {
            return self.builder.skip();
        }
        self.builder.flow_totals(totals);
        self.flush();
    }

    /// Whether a sink is attached.
    pub fn has_sinks(&self) -> bool {
        self.fanout.has_sinks()
    }

    /// Adds the totals of a poll, and flushes.
    pub fn end_of_poll(&mut self, totals: &PollTotals<'_>) {
        if self.is_for_nobody() {
            return self.builder.skip();
        }
        self.builder.totals(totals);
        self.flush();
    }

    /// Adds an event of this host as a datagram row, and flushes. Events with the same key belong together.
    pub fn event(&mut self, record: &DatagramRecord<'_>, key: u64) {
        if self.is_for_nobody() {
            return self.builder.skip();
        }
        self.builder.datagram(record, key, record.time_unix_ns.unwrap_or_default());
        self.flush();
    }

    /// Adds a datagram, unless an earlier one is still waiting for room in the sink: then the caller keeps it. For a fanout with
    /// one sink. Datagrams with the same key come from one sender. `arrived_unix_ns` is when it arrived at this host, by its clock.
    ///
    /// # Errors
    /// There is no room, or no sink.
    pub fn try_datagram(
        &mut self,
        record: &DatagramRecord<'_>,
        key: u64,
        arrived_unix_ns: u64,
    ) -> Result<(), Full> {
        if self.waiting.is_some() || self.builder.row_bytes() >= CHUNK_BYTES {
            self.try_flush()?;
        }
        self.builder.datagram(record, key, arrived_unix_ns);
        Ok(())
    }

    /// Flushes, if there is room. For a fanout with one sink.
    ///
    /// # Errors
    /// There is no room, or no sink. Rows added so far are kept.
    pub fn try_flush(&mut self) -> Result<(), Full> {
        if self.waiting.is_none() {
            let reuse = self.free_chunk();
            self.waiting = self.builder.cut(reuse).map(Arc::new);
        }
        let Some(chunk) = self.waiting.take() else { return Ok(()) };
        if self.fanout.try_offer(&chunk).is_err() {
            self.waiting = Some(chunk);
            return Err(Full);
        }
        self.kept.push_back(chunk);
        Ok(())
    }

    /// Offers everything added so far.
    pub fn flush(&mut self) {
        self.cut(Wake::Yes);
        if std::mem::take(&mut self.is_quiet) {
            self.fanout.wake();
        }
    }

    fn cut_if_long(&mut self) {
        if self.builder.row_bytes() >= CHUNK_BYTES {
            self.cut(Wake::IfMuch);
        }
    }

    fn cut(&mut self, wake: Wake) {
        let reuse = self.free_chunk();
        let Some(chunk) = self.builder.cut(reuse) else { return };
        let chunk = Arc::new(chunk);
        self.fanout.offer(&chunk, wake);
        self.is_quiet = wake == Wake::IfMuch;
        self.kept.push_back(chunk);
    }

    /// Whether no sink would get a row added now: none is attached, and none waits for the rest of a chunk.
    fn is_for_nobody(&self) -> bool {
        !self.fanout.has_sinks() && self.builder.row_count() == 0
    }

    /// A chunk that no sink uses any more.
    fn free_chunk(&mut self) -> Option<Chunk> {
        let is_free = self.kept.front().is_some_and(|oldest| Arc::strong_count(oldest) == 1);
        if !is_free && self.kept.len() < KEPT_CHUNKS {
            return None;
        }
        // A slow sink keeps its chunk.
        self.kept.pop_front().and_then(Arc::into_inner)
    }
}

impl Drop for ChunkWriter {
    fn drop(&mut self) {
        // Nobody can wait any more: the sink drops and counts what finds no room.
        if let Some(chunk) = self.waiting.take() {
            self.fanout.offer(&chunk, Wake::Yes);
        }
        self.flush();
    }
}
