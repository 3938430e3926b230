//! The table of known sockets: what the last poll saw of each, by cookie. Bounded; what it forgets for lack of room is counted.

mod block;

use crate::delta::Recorded;
use crate::ends::Role;
use crate::filter::Verdict;
use block::{BLOCK_ENTRIES, Block};
use std::net::IpAddr;

/// What is kept of one socket between polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The kernel's cookie: unique per boot, across namespaces.
    pub(crate) cookie: u64,
    /// Hash of everything that counts as a change.
    pub(crate) fingerprint: u64,
    pub(crate) first_seen_unix_ns: u64,
    pub(crate) last_seen_unix_ns: u64,
    /// When a poll first saw it, by the clock that nobody sets (`CLOCK_BOOTTIME`).
    pub(crate) first_seen_boot_ns: u64,
    /// Number of the poll that saw it last.
    pub(crate) seen_poll: u32,
    /// Polls that saw it.
    pub(crate) polls_seen: u32,
    /// Place of its namespace in the collector's list.
    pub(crate) namespace: u32,
    pub(crate) cgroup_id: u64,
    /// As the last poll that knew it says.
    pub(crate) uid: Option<u32>,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) state: u8,
    pub(crate) life: Life,
    /// Who opened the connection, as far as the polls say.
    pub(crate) role: Option<Role>,
    /// A poll saw it with counters, and `last` holds them.
    pub(crate) has_counters: bool,
    /// When these were read, everything that was written had been sent and acknowledged.
    pub(crate) is_all_acked: bool,
    /// A poll saw it as a socket, not only what is left of it as a minisock.
    pub(crate) was_socket: bool,
    /// A poll saw what is left of it as a minisock, before its close event came.
    pub(crate) was_remnant: bool,
    /// What the filter said of it: true once it has passed in a poll; else false if it was rejected in one.
    pub(crate) verdict: Verdict,
    /// Place of its congestion control's name in the collector's list.
    pub(crate) congestion: u8,
    /// Counters as the last poll saw them: an aborted socket's event has only zeros.
    pub(crate) last: LastCounters,
    /// What differences are taken from, in addition to `last`.
    pub(crate) recorded: Recorded,
}

/// How far a socket is through its life, as far as we know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// It was in the last poll, or is new.
    Open,
    /// It is absent from polls. A dump is not a snapshot: one absence proves nothing. And a connection that the peer has reset is in
    /// no dump while its descriptor stays open, and its close event is still to come.
    Missing,
    /// Only a minisock is left of it in dumps. Its close event comes once its descriptor is closed, if it is not on its way.
    Remnant,
    /// Its close event has come.
    Closed,
}

/// Counters of `tcp_info` that a closing record falls back to, and that the end is judged by.
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

/// No place.
const EMPTY: u32 = u32::MAX;

/// Where the table holds an entry, until one is removed or put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

/// Sockets by cookie: an index of 4-byte places, half empty, over blocks of entries.
#[derive(Debug)]
pub(crate) struct Table {
    blocks: Vec<Block>,
    /// Places whose entry was removed.
    free: Vec<u32>,
    /// Linear probing; a power of two long.
    index: Vec<u32>,
    len: usize,
    capacity: usize,
    /// Where the search for an entry to forget goes on.
    hand: usize,
    /// Insertions until the search is tried again, because it found nothing.
    rest: usize,
    /// What was to be put in last and found no room.
    spare: Option<Entry>,
    /// After the entry that was found last.
    next: u32,
    evicted: u64,
}

impl Table {
    /// An empty table for at most `capacity` sockets, at least 1. Memory grows with what is in it.
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

    /// Entries forgotten, or not put in, for lack of room since the start.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Where the entry with this cookie is.
    ///
    /// The kernel lists the same sockets in the same order in each poll, and they were inserted in that order. So the place after
    /// the last one is tried first: it is in the processor's cache, where an index slot in the order of a hash and the entry that
    /// it leads to are not.
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

    /// Puts an entry in whose cookie is not there yet. A full table forgets one whose socket is gone, or else the new one: what
    /// is returned then is forgotten with the next.
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

    /// Visits every entry and removes those for which `keep` is false. In the order of the blocks, which the processor reads ahead:
    /// in that of the index each entry would be a miss of its caches.
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

        // The last first, so that what comes next fills the free places in their order.
        for cookie in gone.into_iter().rev() {
            self.remove(cookie);
        }
    }

    fn push(&mut self, entry: Entry) -> u32 {
        if self.blocks.last().is_none_or(|block| block.entries.len() == BLOCK_ENTRIES) {
            self.blocks.push(Block::new());
        }
        // All blocks but the last are full, so that a place is a plain number.
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

    /// The cookie at a place that may be free or not there at all.
    fn cookie_if_used(&self, place: u32) -> Option<u64> {
        let (block, at) = split(place);
        let block = self.blocks.get(block).filter(|block| block.is_used(at))?;
        block.entries.get(at).map(|entry| entry.cookie)
    }

    /// The slot that holds the cookie, or else the empty one where it would go.
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

    /// Empties a slot and moves those after it that would no longer be found (Knuth, The Art of Computer Programming, volume 3,
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
            // It may move if its home is not between the hole (exclusive) and where it is (inclusive).
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

    /// Forgets an entry whose socket is gone, if the hand meets one soon. Returns whether it did.
    ///
    /// Polls meet the same sockets in the same order. A table that forgot one that is still there would forget each just before
    /// its turn comes, and know nearly none once it is a little too small. And one that searched for each of a million sockets
    /// that do not fit would do little else: each slot is another line of memory.
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

/// The block of a place, and where it is in there.
fn split(place: u32) -> (usize, usize) {
    (place as usize / BLOCK_ENTRIES, place as usize % BLOCK_ENTRIES)
}

/// Slots that are looked at for an entry to forget.
const TURN_SLOTS_MAX: usize = 32;
/// Insertions without a search after one that found nothing: a slot for two insertions, then.
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
