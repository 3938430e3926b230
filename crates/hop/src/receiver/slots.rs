//! What is known of each sequence number from the floor up, in blocks that exist where something arrived.

use super::room::{Room, Share};
use crate::Amount;
use std::collections::BTreeMap;

/// State of one sequence number. Bit 31: it has arrived. Bit 30: the datagram that ends with it was accepted. Low 16 bits: the
/// length of that datagram.
pub(super) type Slot = u32;
pub(super) const HAS_ARRIVED: Slot = 1 << 31;
pub(super) const IS_ACCEPTED: Slot = 1 << 30;
pub(super) const BYTES: Slot = 0xffff;

/// Sequence numbers of one block.
pub(crate) const BLOCK: u64 = 64;

/// Memory of one block, in bytes: its slots, and its entry in a tree whose nodes are half full.
pub(super) const BLOCK_BYTES: usize = BLOCK as usize * size_of::<Slot>() + 64;

type Block = [Slot; BLOCK as usize];

/// The slots of one run.
#[derive(Default, Debug)]
pub(super) struct Slots {
    blocks: BTreeMap<u64, Box<Block>>,
    /// One above the highest sequence number that has arrived or was settled.
    end: u64,
}

impl Slots {
    /// Slots of a run that begins at `floor`.
    pub(super) fn new(floor: u64) -> Slots {
        Slots { blocks: BTreeMap::new(), end: floor }
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn get(&self, sequence: u64) -> Slot {
        let block = self.blocks.get(&(sequence / BLOCK));
        block.map_or(0, |block| block[(sequence % BLOCK) as usize])
    }

    /// Makes sure that a sequence number can be marked. False when there is no room for it.
    pub(super) fn reserve(&mut self, sequence: u64, room: &mut Room, share: &mut Share) -> bool {
        let at = sequence / BLOCK;
        if self.blocks.contains_key(&at) {
            return true;
        }
        let has_room = room.take(share, BLOCK_BYTES);
        if has_room {
            self.blocks.insert(at, Box::new([0; BLOCK as usize]));
        }
        has_room
    }

    /// Marks a sequence number that was [reserved](Self::reserve).
    pub(super) fn mark(&mut self, sequence: u64, bits: Slot) {
        if let Some(block) = self.blocks.get_mut(&(sequence / BLOCK)) {
            block[(sequence % BLOCK) as usize] |= bits;
            self.end = self.end.max(sequence + 1);
        }
    }

    /// Forgets everything below `floor`, and returns what was accepted there.
    pub(super) fn pass(&mut self, floor: u64, room: &mut Room, share: &mut Share) -> Amount {
        let mut accepted = Amount::default();
        self.end = self.end.max(floor);
        while let Some(mut entry) = self.blocks.first_entry()
            && let Some(passed) =
                floor.checked_sub(*entry.key() * BLOCK).filter(|passed| *passed > 0)
        {
            for slot in entry.get_mut().iter_mut().take(passed as usize) {
                if *slot & IS_ACCEPTED != 0 {
                    accepted += Amount::one((*slot & BYTES).into());
                }
                *slot = 0;
            }
            if passed < BLOCK {
                break;
            }
            entry.remove();
            room.give_back(share, BLOCK_BYTES);
        }
        accepted
    }

    /// Gives all blocks back, once nothing in them is above the floor.
    pub(super) fn clear(&mut self, room: &mut Room, share: &mut Share) {
        room.give_back(share, self.blocks.len() * BLOCK_BYTES);
        self.blocks.clear();
    }

    /// Every block, by its first sequence number.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u64, &Block)> {
        self.blocks.iter().map(|(at, block)| (at * BLOCK, &**block))
    }
}
