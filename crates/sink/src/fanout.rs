//! One source, many sinks: each row is encoded once, whatever their number.

use crate::queue::{Full, Intake};
use crate::sink::{Sink, random};
use record::{Chunk, ChunkBuilder, DatagramRecord, PollTotals, SocketRecord};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A chunk is cut when its rows have reached this many bytes, so that it is longer by less than one row.
const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks whose memory is kept for the next: as many as a sink's thread and the one that fills them have in hand. Memory that
/// one thread allocates and another frees is given back to the kernel each time, and taken again page by page.
const KEPT_CHUNKS: usize = 8;

/// The sinks of a source. Clones are the same: sinks come and go while the source runs.
#[derive(Clone, Default)]
pub struct Fanout {
    intakes: Arc<Mutex<Arc<[Intake]>>>,
}

impl Fanout {
    /// Adds a sink: it has every chunk that is cut from now on.
    pub fn attach(&self, sink: &Sink) {
        let mut intakes = self.lock();
        *intakes = intakes.iter().cloned().chain([sink.intake()]).collect();
    }

    /// Takes a sink away: what was cut before is in it.
    pub fn detach(&self, sink: &Sink) {
        let mut intakes = self.lock();
        let queue = sink.intake().queue;
        *intakes = intakes.iter().filter(|intake| !intake.is_of(&queue)).cloned().collect();
    }

    /// Puts one in the place of another, between two chunks: each chunk goes to one of the two.
    pub fn replace(&self, old: &Sink, new: &Sink) {
        let mut intakes = self.lock();
        let queue = old.intake().queue;
        let others = intakes.iter().filter(|intake| !intake.is_of(&queue)).cloned();
        *intakes = others.chain([new.intake()]).collect();
    }

    /// What fills chunks for these sinks: one for each source. `source_id` says where it runs: the host's boot.
    pub fn writer(&self, source_id: [u8; 16]) -> ChunkWriter {
        let builder = ChunkBuilder::new((random() >> 1).max(1), source_id);
        ChunkWriter { fanout: self.clone(), builder, kept: VecDeque::new(), waiting: None }
    }

    fn offer(&self, chunk: &Arc<Chunk>) {
        // Offered under the lock: a sink that was taken away has been given nothing since.
        self.lock().iter().for_each(|intake| intake.offer(chunk));
    }

    /// Offers a chunk to the one sink that is attached.
    fn try_offer(&self, chunk: &Arc<Chunk>) -> Result<(), Full> {
        let intakes = self.lock();
        debug_assert!(intakes.len() < 2, "one of two could have it already");
        match intakes.first() {
            Some(intake) => intake.try_offer(chunk),
            None => Err(Full),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<[Intake]>> {
        // Nothing panics between two changes that belong together.
        self.intakes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a source's rows on its thread. Nothing here waits for a sink, and a row costs no allocation.
pub struct ChunkWriter {
    fanout: Fanout,
    builder: ChunkBuilder,
    /// The last chunks, the oldest first.
    kept: VecDeque<Arc<Chunk>>,
    /// A chunk that found no room.
    waiting: Option<Arc<Chunk>>,
}

impl ChunkWriter {
    /// Random number of this stream of rows, above 0 and below 2^63.
    pub fn stream(&self) -> u64 {
        self.builder.stream()
    }

    /// Takes a record. It is on its way once its chunk is full, or with [`flush`](Self::flush).
    pub fn record(&mut self, record: &SocketRecord<'_>) {
        self.builder.record(record);
        self.cut_if_full();
    }

    /// Takes the totals of a poll, and sends everything on its way.
    pub fn end_of_poll(&mut self, totals: &PollTotals<'_>) {
        self.builder.totals(totals);
        self.flush();
    }

    /// Takes a datagram, unless what was taken before found no room with the sink: then it is to wait where it is. For a fanout of
    /// one sink. Those with one key are of one sender.
    ///
    /// # Errors
    /// There is no room, or no sink.
    pub fn try_datagram(&mut self, record: &DatagramRecord<'_>, key: u64) -> Result<(), Full> {
        if self.waiting.is_some() || self.builder.row_bytes() >= CHUNK_BYTES {
            self.try_flush()?;
        }
        self.builder.datagram(record, key);
        Ok(())
    }

    /// Sends everything on its way, if there is room. For a fanout of one sink.
    ///
    /// # Errors
    /// There is no room, or no sink. What was taken is kept.
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

    /// Sends everything on its way.
    pub fn flush(&mut self) {
        let reuse = self.free_chunk();
        let Some(chunk) = self.builder.cut(reuse) else { return };
        let chunk = Arc::new(chunk);
        self.fanout.offer(&chunk);
        self.kept.push_back(chunk);
    }

    fn cut_if_full(&mut self) {
        if self.builder.row_bytes() >= CHUNK_BYTES {
            self.flush();
        }
    }

    /// A chunk that no sink needs any longer.
    fn free_chunk(&mut self) -> Option<Chunk> {
        let is_free = self.kept.front().is_some_and(|oldest| Arc::strong_count(oldest) == 1);
        if !is_free && self.kept.len() < KEPT_CHUNKS {
            return None;
        }
        // A sink that is slow keeps it.
        self.kept.pop_front().and_then(Arc::into_inner)
    }
}

impl Drop for ChunkWriter {
    fn drop(&mut self) {
        // Nobody can wait any longer: what finds no room is dropped by the sink, and counted.
        if let Some(chunk) = self.waiting.take() {
            self.fanout.offer(&chunk);
        }
        self.flush();
    }
}
