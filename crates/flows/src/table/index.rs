//! Maps hashes to places: open addressing with linear probing.
//!
//! The hash is stored with the place, so a search reads neither keys nor flows before it finds a match: most searches read one
//! cache line.

use sys::memory::prefer_huge_pages;
use sys::prefetch::prefetch;

/// Not a place.
const NONE: u32 = u32::MAX;

/// Eight fit a cache line.
#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    place: u32,
}

const EMPTY: Slot = Slot { hash: 0, place: NONE };

/// Maximum number of places.
pub(super) const PLACES_MAX: usize = (NONE / 4) as usize;

/// At least twice as many slots as places; a power of two.
pub(super) struct Index {
    slots: Vec<Slot>,
}

impl Index {
    /// An empty index.
    pub(super) fn new() -> Index {
        Index { slots: vec![EMPTY; 64] }
    }

    /// Memory for this many places, in bytes.
    pub(super) const fn memory_max_bytes(places: usize) -> usize {
        (places * 2).next_power_of_two() * size_of::<Slot>()
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    /// Makes room for this many places.
    pub(super) fn make_room(&mut self, places: usize) {
        while places * 2 > self.slots.len() {
            let mut more = Vec::with_capacity(self.slots.len() * 2);
            prefer_huge_pages(&more);
            more.resize(self.slots.len() * 2, EMPTY);
            for slot in std::mem::replace(&mut self.slots, more) {
                if slot.place != NONE {
                    self.insert(slot.hash, slot.place);
                }
            }
        }
    }

    /// The places whose keys have this hash.
    pub(super) fn places(&self, hash: u32) -> impl Iterator<Item = u32> {
        let taken = self.ways(hash).map(|at| self.slots[at]).take_while(|slot| slot.place != NONE);
        taken.filter(move |slot| slot.hash == hash).map(|slot| slot.place)
    }

    /// Prefetches the memory where the search for a hash starts.
    pub(super) fn prefetch(&self, hash: u32) {
        prefetch(&self.slots[hash as usize & self.mask()]);
    }

    /// Maps a hash to a place. There must be room for it: see [`make_room`](Self::make_room).
    pub(super) fn insert(&mut self, hash: u32, place: u32) {
        let empty = self.ways(hash).find(|at| self.slots[*at].place == NONE);
        if let Some(at) = empty {
            self.slots[at] = Slot { hash, place };
        }
    }

    /// Removes the mapping from a hash to a place.
    pub(super) fn remove(&mut self, hash: u32, place: u32) {
        let found = self.ways(hash).find(|at| self.slots[*at].place == place);
        let Some(mut hole) = found else { return };

        // An entry behind the hole that belongs in front of it moves up, so that no search ends at the hole.
        let mask = self.mask();
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            let other = self.slots[next];
            if other.place == NONE {
                break;
            }
            let home = other.hash as usize & mask;
            let from_home = next.wrapping_sub(home) & mask;
            let from_hole = next.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.slots[hole] = other;
                hole = next;
            }
        }
        self.slots[hole] = EMPTY;
    }

    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// Every slot, in the order in which a search for a hash visits them.
    fn ways(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask();
        (0..=mask).map(move |step| (hash as usize + step) & mask)
    }
}
