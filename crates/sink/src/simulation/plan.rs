//! The setup of one history.

use super::encoder::Numbers;
use super::world::Shared;
use crate::destination::{BatchEncoder, Form};
use crate::durability::SYNC_INTERVAL;
use crate::options::{BatchLimits, DeliveryOptions, QueueOptions, SpoolSync, WhenFull};
use record::RowKind;
use std::time::Duration;
use testkit::Random;

/// The setup of one history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) queue: QueueOptions,
    pub(super) batch: BatchLimits,
    pub(super) delivery: DeliveryOptions,
    /// How many kinds of rows can be encoded, and whether kinds share batches or each has its own.
    pub(super) kinds: u64,
    pub(super) part_rows: u32,
    pub(super) sync: Option<SpoolSync>,
    /// Whether the destination is on this machine.
    pub(super) is_local: bool,
    pub(super) offer_every_ms: u64,
    /// What a call of the spool's disk takes at first.
    pub(super) call_ms: u64,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn new(random: &mut Random) -> Plan {
        let ms = |random: &mut Random, max: u64| Duration::from_millis(random.below(max));
        let when_full = [WhenFull::DropOldest, WhenFull::DropNewest][random.index(2)];
        let expire = random.below(4) == 0;
        let sync = match random.below(6) {
            0 => Some(SpoolSync::Always),
            1 => Some(SpoolSync::Every(ms(random, 2_000))),
            _ => None,
        };
        // A source that is faster than the disk, in some.
        let is_slow = sync.is_some() && random.below(4) == 0;
        let (call_ms, most_ms) = if is_slow { (1 + random.below(8), 8) } else { (0, 400) };
        let mut plan = Plan {
            queue: QueueOptions { bytes_max: 2_500 + random.below(30_000) as usize, when_full },
            batch: BatchLimits {
                rows: 1 + random.index(30),
                bytes: 8 + random.index(400),
                age: ms(random, 1_000) * (random.below(2) as u32),
            },
            delivery: DeliveryOptions {
                in_flight_max: 1 + random.index(5),
                retry_max: ms(random, 3_000) + Duration::from_millis(1),
                answer_max: ms(random, 2_000) + Duration::from_millis(300),
                expire_after: expire.then(|| ms(random, 8_000)),
            },
            kinds: random.below(3),
            part_rows: 1 + random.below(6) as u32,
            sync,
            is_local: sync.is_some() && random.below(2) == 0,
            offer_every_ms: 1 + random.below(most_ms),
            call_ms,
            seed: random.next(),
        };
        if plan.is_local {
            // As for every destination that waits for a sync before it answers.
            plan.delivery.answer_max += SYNC_INTERVAL;
        }
        plan
    }

    /// The longest time of a turn: moving chunks to the disk, batching and waiting for answers take 20 ms each, and what is begun
    /// then goes on. A change of segments, with both slots of the cursor, is 20 calls.
    pub(super) fn turn_max_ms(&self) -> u64 {
        150 + 60 * self.call_ms
    }

    pub(super) fn form(&self, world: &Shared) -> Form {
        let numbers = || Box::new(Numbers::new(world, self.part_rows)) as Box<dyn BatchEncoder>;
        match self.kinds {
            0 => Form::Mixed(numbers()),
            1 => Form::ByKind(vec![(RowKind::Record, numbers())]),
            _ => Form::ByKind(vec![(RowKind::Totals, numbers()), (RowKind::Record, numbers())]),
        }
    }
}
