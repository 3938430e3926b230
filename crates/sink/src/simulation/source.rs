//! The source: bursts of chunks of all sizes, also while the sink's thread waits for its disk.

use super::world::{MS, Row, Shared, lock};
use crate::queue::{Queue, Wake};
use ledger::Amount;
use record::{Chunk, ChunkBuilder, PollTotals, SocketRecord};
use std::sync::Arc;
use testkit::Random;

/// Most chunks that it offers at one moment.
const BURST_MAX: usize = 20;

pub(super) struct Source {
    random: Random,
    builder: ChunkBuilder,
    world: Shared,
    every_ms: u64,
    /// When the next chunk is offered.
    pub(super) next_ns: u64,
    /// The current sink's queue, and what it was offered.
    pub(super) queue: Option<Arc<Queue>>,
    pub(super) offered: Amount,
}

impl Source {
    pub(super) fn new(mut random: Random, world: Shared, every_ms: u64) -> Source {
        let builder = ChunkBuilder::new(random.next() >> 1, [1; 16]);
        let (next_ns, queue, offered) = (0, None, Amount::default());
        Source { random, builder, world, every_ms, next_ns, queue, offered }
    }

    /// Feeds another sink.
    pub(super) fn begin(&mut self, queue: &Arc<Queue>) {
        (self.queue, self.offered) = (Some(Arc::clone(queue)), Amount::default());
    }

    /// Offers what is due.
    pub(super) fn offer_due(&mut self) {
        for _ in 0..BURST_MAX {
            if lock(&self.world).now_ns < self.next_ns {
                return;
            }
            self.offer();
        }
    }

    pub(super) fn offer(&mut self) {
        let rows = 1 + self.random.index(20);
        let chunk = self.chunk(rows);
        let Some(queue) = &self.queue else { return };
        self.offered += Amount { count: chunk.row_count() as u64, bytes: chunk.row_bytes() as u64 };
        queue.offer(&Arc::new(chunk), Wake::Yes);
        // Sometimes without a pause, as a burst.
        let pause_ms =
            if self.random.below(10) < 3 { 0 } else { self.random.below(2 * self.every_ms) };
        self.next_ns = lock(&self.world).now_ns + pause_ms * MS;
    }

    fn chunk(&mut self, rows: usize) -> Chunk {
        let mut world = lock(&self.world);
        for _ in 0..rows {
            let number = world.rows.len() as u64;
            let age_ns = self.random.below(2_000) * MS;
            let unix_ns = world.unix_ns() - age_ns;
            let before = self.builder.row_bytes();
            if self.random.below(10) == 0 {
                self.builder.totals(&PollTotals {
                    poll: Some(number),
                    time_unix_ns: Some(unix_ns),
                    ..PollTotals::default()
                });
            } else {
                let host = &"hhhhhhhhhhhhhhhhhhhhhhhh"[..self.random.index(24)];
                self.builder.record(&SocketRecord {
                    sequence: Some(number),
                    cookie: Some(number),
                    time_unix_ns: Some(unix_ns),
                    host: Some(host),
                    ..SocketRecord::default()
                });
            }
            let bytes = (self.builder.row_bytes() - before) as u64;
            let arrived_ns = world.now_ns.cast_signed() - age_ns.cast_signed();
            let unix_step_ns = world.unix_step_ns;
            world.rows.push(Row { bytes, arrived_ns, unix_step_ns, ..Row::default() });
        }
        self.builder.cut(None).unwrap()
    }
}
