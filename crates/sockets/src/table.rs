//! The table of known sockets: what the last poll saw of each, by cookie. Bounded; sockets forgotten for lack of room are
//! counted.

mod block;

use crate::attribution::Holder;
use crate::delta::Recorded;
use crate::ends::Role;
use crate::filter::Verdict;
use block::{BLOCK_ENTRIES, Block};
use std::net::IpAddr;

/// What is kept about one socket between polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The kernel's cookie: unique per boot, across namespaces.
    pub(crate) cookie: u64,
    /// Hash of everything that counts as a change.
    pub(crate) fingerprint: u64,
    pub(crate) first_seen_unix_ns: u64,
    pub(crate) last_seen_unix_ns: u64,
    /// When a poll first saw it, on the clock that nobody sets (`CLOCK_BOOTTIME`).
    pub(crate) first_seen_boot_ns: u64,
    /// The last poll that saw it.
    pub(crate) seen_poll: u32,
    /// Number of polls that saw it.
    pub(crate) polls_seen: u32,
    /// Place of its namespace in the collector's list.
    pub(crate) namespace: u32,
    pub(crate) cgroup_id: u64,
    /// From the last poll that knew it.
    pub(crate) uid: Option<u32>,
    /// The process that held it, from the last poll that found one.
    pub(crate) holder: Option<Holder>,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) state: u8,
    pub(crate) life: Life,
    /// Who opened the connection, judging by the polls.
    pub(crate) role: Option<Role>,
    /// Whether a poll saw it with counters, which are in `last`.
    pub(crate) has_counters: bool,
    /// Whether everything written had been sent and acknowledged when those were read.
    pub(crate) is_all_acked: bool,
    /// Whether a poll saw it as a socket, and not only its remnant as a minisock.
    pub(crate) was_socket: bool,
    /// Whether a poll saw its remnant as a minisock before its close event came.
    pub(crate) was_remnant: bool,
    /// The filter's verdict: true once it has passed in a poll; otherwise false if it was rejected in one.
    pub(crate) verdict: Verdict,
    /// Place of its congestion control's name in the collector's list.
    pub(crate) congestion: u8,
    /// Counters from the last poll: the event of an aborted socket has only zeros.
    pub(crate) last: LastCounters,
    /// The base for differences, in addition to `last`.
    pub(crate) recorded: Recorded,
}

/// How far a socket is through its life, as far as we know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// It was in the last poll, or is new.
    Open,
    /// It is absent from polls. A dump is not a snapshot, so one absence proves nothing. And a connection that the peer has reset
    /// is in no dump while its descriptor stays open, with its close event still to come.
    Missing,
    /// Dumps show only a minisock of it. Its close event comes once its descriptor is closed, unless it is already on its way.
    Remnant,
    /// Its close event has come.
    Closed,
}

/// Counters of `tcp_info` that a closing record falls back on and that the end is judged by.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LastCounters {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_retrans: u64,
    pub(crate) segs_out: u32,
    pub(crate) segs_in: u32,
    pub(crate) total_retrans: u32,
    pub(crate) rtt_us: u32,
    pub(crate) min_rtt_us: u32,
    pub(crate) unacked_segments: u32,
    pub(crate) data_segs_in: u32,
    pub(crate) data_segs_out: u32,
}

const _: () = assert!(size_of::<Entry>() <= 216);

/// Not a place.
const EMPTY: u32 = u32::MAX;

/// Where the table holds an entry, until an entry is removed or inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

/// Sockets by cookie: an index of 4-byte places, at least half empty, over blocks of entries.
#[derive(Debug)]
pub(crate) struct Table {
    blocks: Vec<Block>,
    /// Places whose entry was removed.
    free: Vec<u32>,
    /// Linear probing; its length is a power of two.
    index: Vec<u32>,
    len: usize,
    capacity: usize,
    /// Where the search for an entry to forget continues.
    hand: usize,
    /// Insertions until the search is tried again after it found nothing.
    rest: usize,
    /// The last entry that found no room.
    spare: Option<Entry>,
    /// The place after the entry that was found last.
    next: u32,
    evicted: u64,
}

impl Table {
    /// An empty table for at most `capacity` sockets, at least 1. Its memory grows with its content.
    pub(crate) fn new(capacity: usize) -> Table {
        Table {
            blocks: Vec::new(),
            free: Vec::new(),
            index: vec![EMPTY; 64],
            len: 0,
            capacity: capacity.clamp(1, EMPTY as usize - 1),
            hand: 0,
            rest: 0,
            spare: None,
            next: 0,
            evicted: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Entries forgotten or not inserted for lack of room, since the start.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The place of the entry with this cookie.
    ///
    /// The kernel lists the same sockets in the same order in each poll, and they were inserted in that order. So the place after
    /// the last one is tried first: it is in the processor's cache, unlike an index slot in hash order and the entry that it
    /// leads to.
    pub(crate) fn find(&mut self, cookie: u64) -> Option<Place> {
        let place = match self.cookie_if_used(self.next) {
            Some(next) if next == cookie => self.next,
            _ => self.index[self.slot_of(cookie).ok()?],
        };
        self.next = place + 1;
        Some(Place(place))
    }

    /// The entry at a place.
    pub(crate) fn at_mut(&mut self, place: Place) -> &mut Entry {
        self.entry_mut(place.0)
    }

    pub(crate) fn get_mut(&mut self, cookie: u64) -> Option<&mut Entry> {
        let place = self.find(cookie)?;
        Some(self.at_mut(place))
    }

    /// Inserts an entry whose cookie is not in the table yet. A full table forgets one whose socket is gone, or else the new one:
    /// the returned entry is then lost at the next such insertion.
    pub(crate) fn insert(&mut self, entry: Entry) -> &mut Entry {
        if self.len >= self.capacity {
            self.evicted += 1;
            if !self.forget_one() {
                return self.spare.insert(entry);
            }
        }

        // At most half full, so that a search ends after a few slots.
        if (self.len + 1) * 2 > self.index.len() {
            self.grow_index();
        }

        let place = match self.free.pop() {
            Some(place) => {
                *self.entry_mut(place) = entry;
                place
            }
            None => self.push(entry),
        };

        let (block, at) = split(place);
        self.blocks[block].set_used(at);
        let slot = match self.slot_of(entry.cookie) {
            Ok(slot) | Err(slot) => slot,
        };
        self.index[slot] = place;
        self.len += 1;

        self.entry_mut(place)
    }

    pub(crate) fn remove(&mut self, cookie: u64) -> Option<Entry> {
        let slot = self.slot_of(cookie).ok()?;
        let place = self.index[slot];
        let entry = *self.entry_mut(place);
        self.vacate(slot);
        let (block, at) = split(place);
        self.blocks[block].set_free(at);
        self.free.push(place);
        self.len -= 1;
        Some(entry)
    }

    /// Visits every entry and removes those for which `keep` returns false. In the order of the blocks, which the processor
    /// prefetches; in index order, each entry would be a cache miss.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut Entry) -> bool) {
        let mut gone = Vec::new();
        for Block { entries, used } in &mut self.blocks {
            for (entries, used) in entries.chunks_mut(64).zip(used) {
                let mut left = *used;
                while left != 0 {
                    let entry = &mut entries[left.trailing_zeros() as usize];
                    if !keep(entry) {
                        gone.push(entry.cookie);
                    }
                    // Clears the lowest bit.
                    left &= left - 1;
                }
            }
        }

        // The last first, so that new entries fill the free places in order.
        for cookie in gone.into_iter().rev() {
            self.remove(cookie);
        }
    }

    fn push(&mut self, entry: Entry) -> u32 {
        if self.blocks.last().is_none_or(|block| block.entries.len() == BLOCK_ENTRIES) {
            self.blocks.push(Block::new());
        }
        // All blocks but the last are full, so a place is a plain number.
        let before = (self.blocks.len() - 1) * BLOCK_ENTRIES;
        let entries = &mut self.blocks[before / BLOCK_ENTRIES].entries;
        entries.push(entry);
        (before + entries.len() - 1) as u32
    }

    fn entry_mut(&mut self, place: u32) -> &mut Entry {
        let (block, at) = split(place);
        &mut self.blocks[block].entries[at]
    }

    fn cookie_at(&self, place: u32) -> u64 {
        let (block, at) = split(place);
        self.blocks[block].entries[at].cookie
    }

    /// The cookie at a place that may be free or may not exist.
    fn cookie_if_used(&self, place: u32) -> Option<u64> {
        let (block, at) = split(place);
        let block = self.blocks.get(block).filter(|block| block.is_used(at))?;
        block.entries.get(at).map(|entry| entry.cookie)
    }

    /// The slot that holds the cookie, or else the empty slot where it would go.
    fn slot_of(&self, cookie: u64) -> Result<usize, usize> {
        let mask = self.index.len() - 1;
        let mut slot = mix(cookie) as usize & mask;
        loop {
            match self.index[slot] {
                EMPTY => return Err(slot),
                place if self.cookie_at(place) == cookie => return Ok(slot),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// Empties a slot and moves those after it that could no longer be found (Knuth, The Art of Computer Programming, volume 3,
    /// section 6.4, algorithm R).
    fn vacate(&mut self, mut hole: usize) {
        let mask = self.index.len() - 1;
        let mut slot = hole;

        loop {
            slot = (slot + 1) & mask;
            let place = self.index[slot];
            if place == EMPTY {
                break;
            }

            let home = mix(self.cookie_at(place)) as usize & mask;
            // It may move if its home is not between the hole (exclusive) and its slot (inclusive).
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(hole) & mask {
                self.index[hole] = place;
                hole = slot;
            }
        }

        self.index[hole] = EMPTY;
    }

    fn grow_index(&mut self) {
        let old = std::mem::take(&mut self.index);
        self.index = vec![EMPTY; old.len() * 2];
        for place in old.into_iter().filter(|&place| place != EMPTY) {
            let slot = match self.slot_of(self.cookie_at(place)) {
                Ok(slot) | Err(slot) => slot,
            };
            self.index[slot] = place;
        }
    }

    /// Forgets an entry whose socket is gone, if the hand soon meets one. Returns whether it did.
    ///
    /// Polls meet the same sockets in the same order. A table that forgot existing sockets would forget each one just before its
    /// turn, and know almost none as soon as it is slightly too small. And a table that searched for each of a million sockets
    /// that do not fit would do little else: each slot is another cache line.
    fn forget_one(&mut self) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }

        let mask = self.index.len() - 1;
        for _ in 0..TURN_SLOTS_MAX {
            self.hand = (self.hand + 1) & mask;
            let place = self.index[self.hand];
            if place != EMPTY && self.entry_mut(place).life != Life::Open {
                let cookie = self.cookie_at(place);
                self.remove(cookie);
                return true;
            }
        }

        self.rest = REST_INSERTIONS;
        false
    }
}

/// The block of a place, and its index in the block.
fn split(place: u32) -> (usize, usize) {
    (place as usize / BLOCK_ENTRIES, place as usize % BLOCK_ENTRIES)
}

/// Slots examined when searching for an entry to forget.
const TURN_SLOTS_MAX: usize = 32;
/// Insertions without a search after one that found nothing: that makes one slot per two insertions.
const REST_INSERTIONS: usize = 64;

/// Spreads cookies, which are consecutive numbers, over the index and over samples (the finalizer of splitmix64).
pub(crate) fn mix(cookie: u64) -> u64 {
    let mut z = cookie.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
pub(crate) mod tests;
