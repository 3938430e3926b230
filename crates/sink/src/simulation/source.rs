//! The source: bursts of chunks of all sizes.

use super::Run;
use super::life::Life;
use super::world::{MS, Row, lock};
use crate::queue::Wake;
use ledger::Amount;
use record::{Chunk, PollTotals, SocketRecord};
use std::sync::Arc;

impl Run {
    pub(super) fn offer(&mut self, life: &mut Life) {
        let rows = 1 + self.random.index(20);
        let chunk = self.chunk(rows);
        life.offered += Amount { count: chunk.row_count() as u64, bytes: chunk.row_bytes() as u64 };
        life.accounts.queue.offer(&Arc::new(chunk), Wake::Yes);
        let every_ms = self.plan.offer_every_ms;
        // Sometimes without a pause, as a burst.
        let pause_ms = if self.random.below(10) < 3 { 0 } else { self.random.below(2 * every_ms) };
        self.next_offer_ns = self.now_ns() + pause_ms * MS;
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
            world.rows.push(Row { bytes, arrived_ns, ..Row::default() });
        }
        self.builder.cut(None).unwrap()
    }
}
