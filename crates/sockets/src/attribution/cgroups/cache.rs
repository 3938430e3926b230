use super::Cgroup;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Instant;

/// Cgroups by id, limited in number and bytes. Entries not requested since the clock hand passed are evicted first (the clock
/// algorithm).
#[derive(Debug)]
pub(super) struct Cache {
    index: HashMap<u64, u32, BuildHasherDefault<IdHasher>>,
    entries: Vec<Entry>,
    /// The last id found, and its place: sockets of one cgroup often follow each other.
    last: Option<(u64, Slot)>,
    hand: usize,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
    evicted: u64,
}

/// Place of an entry, valid until the next `put`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

#[derive(Debug)]
struct Entry {
    id: u64,
    asked: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Known(Arc<Cgroup>),
    Unknown { asked_at: Instant, retry_at: Instant },
}

impl Cache {
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Cache {
        Cache {
            index: HashMap::default(),
            entries: Vec::new(),
            last: None,
            hand: 0,
            bytes: 0,
            max_entries: max_entries.clamp(1, u32::MAX as usize),
            max_bytes,
            evicted: 0,
        }
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(super) fn find(&mut self, id: u64) -> Option<Slot> {
        if let Some((last, slot)) = self.last
            && last == id
        {
            return Some(slot);
        }

        let slot = Slot(*self.index.get(&id)?);
        if let Some(entry) = self.entries.get_mut(slot.0 as usize) {
            entry.asked = true;
        }

        self.last = Some((id, slot));
        Some(slot)
    }

    /// Whether the entry is current: a cgroup, or an unknown id not yet due for another try.
    pub(super) fn is_settled(&self, slot: Slot, now: Instant) -> bool {
        match self.entries.get(slot.0 as usize).map(|entry| &entry.state) {
            Some(State::Known(_)) => true,
            Some(State::Unknown { retry_at, .. }) => now < *retry_at,
            None => false,
        }
    }

    pub(super) fn cgroup(&self, slot: Slot) -> Option<&Arc<Cgroup>> {
        match &self.entries.get(slot.0 as usize)?.state {
            State::Known(cgroup) => Some(cgroup),
            State::Unknown { .. } => None,
        }
    }

    pub(super) fn knows(&self, id: u64) -> bool {
        self.index.get(&id).is_some_and(|slot| self.cgroup(Slot(*slot)).is_some())
    }

    /// When an unknown id was last searched for.
    pub(super) fn unknown_since(&self, id: u64) -> Option<Instant> {
        match self.entries.get(*self.index.get(&id)? as usize)?.state {
            State::Unknown { asked_at, .. } => Some(asked_at),
            State::Known(_) => None,
        }
    }

    /// Whether another cgroup can be kept without evicting one.
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < self.max_entries && self.bytes < self.max_bytes
    }

    pub(super) fn put(&mut self, cgroup: Cgroup) -> Slot {
        self.insert(cgroup.id(), State::Known(Arc::new(cgroup)))
    }

    pub(super) fn put_unknown(&mut self, id: u64, asked_at: Instant, retry_at: Instant) {
        self.insert(id, State::Unknown { asked_at, retry_at });
    }

    fn insert(&mut self, id: u64, state: State) -> Slot {
        self.remove(id);
        let bytes = state.bytes();
        while !self.entries.is_empty()
            && (self.entries.len() >= self.max_entries || self.bytes + bytes > self.max_bytes)
        {
            self.evict();
        }

        let slot = u32::try_from(self.entries.len()).expect("max_entries is at most u32::MAX");
        self.bytes += bytes;
        self.entries.push(Entry { id, asked: true, state });
        self.index.insert(id, slot);
        Slot(slot)
    }

    fn remove(&mut self, id: u64) {
        if let Some(slot) = self.index.get(&id) {
            self.take_out(*slot as usize);
        }
    }

    fn evict(&mut self) {
        // At most two rounds: the first clears every mark.
        loop {
            self.hand = if self.hand < self.entries.len() { self.hand } else { 0 };
            match self.entries.get_mut(self.hand) {
                Some(entry) if entry.asked => entry.asked = false,
                Some(_) => break,
                None => return,
            }
            self.hand += 1;
        }

        self.evicted += 1;
        self.take_out(self.hand);
    }

    fn take_out(&mut self, at: usize) {
        // Entries change places below.
        self.last = None;
        let entry = self.entries.swap_remove(at);
        self.bytes -= entry.state.bytes();
        self.index.remove(&entry.id);

        // The last entry has moved to this place.
        if let (Some(moved), Ok(slot)) = (self.entries.get(at), u32::try_from(at)) {
            self.index.insert(moved.id, slot);
        }
    }
}

impl State {
    fn bytes(&self) -> usize {
        match self {
            State::Known(cgroup) => cgroup.heap_bytes(),
            State::Unknown { .. } => 0,
        }
    }
}

/// Spreads ids over the table. The ids are kernel numbers in order of creation, which nobody chooses.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // Fibonacci hashing. The table takes a tag from the highest bits and the place from the lowest, so the lowest get a share
        // of the upper half: ids are about fifty apart, one for each file of a cgroup.
        let product = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ (product >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(id: u64) -> Cgroup {
        Cgroup::new(id, &format!("/{id:07}"))
    }

    fn known(cache: &mut Cache, id: u64) -> bool {
        cache.find(id).and_then(|slot| cache.cgroup(slot)).is_some_and(|cgroup| cgroup.id() == id)
    }

    #[test]
    fn number_is_bounded_and_the_unasked_goes_first() {
        let mut cache = Cache::new(100, usize::MAX);
        for id in 1..=100 {
            assert!(cache.has_room());
            cache.put(cgroup(id));
        }
        assert!(!cache.has_room());
        // The hand clears the initial mark of every entry once.
        cache.put(cgroup(101));
        assert_eq!(cache.evicted(), 1);
        let kept: Vec<u64> = (2..=50).filter(|id| known(&mut cache, *id)).collect();
        for id in 200..240 {
            cache.put(cgroup(id));
        }
        assert!(kept.iter().all(|id| known(&mut cache, *id)));
        assert_eq!((cache.evicted(), cache.entries.len(), cache.index.len()), (41, 100, 100));
    }

    #[test]
    fn bytes_are_bounded() {
        let mut cache = Cache::new(1_000, 80);
        for id in 1..=50 {
            cache.put(cgroup(id));
            assert!(cache.bytes <= 80);
        }
        assert_eq!((cache.entries.len(), cache.bytes, cache.evicted()), (10, 80, 40));
        // An entry larger than the limit is kept alone.
        cache.put(Cgroup::new(99, &"/x".repeat(100)));
        assert_eq!((cache.entries.len(), cache.bytes), (1, 200));
        cache.put(cgroup(1));
        assert_eq!((cache.entries.len(), cache.bytes), (1, 8));
    }

    #[test]
    fn unknown_until_the_time_comes() {
        let mut cache = Cache::new(2, usize::MAX);
        let start = Instant::now();
        let later = start + std::time::Duration::from_secs(1);
        cache.put_unknown(7, start, later);
        let slot = cache.find(7).unwrap();
        assert!(cache.is_settled(slot, start) && !cache.is_settled(slot, later));
        assert!(cache.cgroup(slot).is_none() && !cache.knows(7));
        assert_eq!((cache.unknown_since(7), cache.unknown_since(8)), (Some(start), None));
        cache.put(cgroup(7));
        assert!(known(&mut cache, 7) && cache.knows(7));
        assert_eq!((cache.entries.len(), cache.evicted()), (1, 0));
    }

    #[test]
    fn entries_are_what_their_ids_say_through_many_changes() {
        let mut cache = Cache::new(64, 500);
        let start = Instant::now();
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        for _ in 0..100_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let id = state % 200;
            if !known(&mut cache, id) && state & 1 << 40 == 0 {
                cache.put(cgroup(id));
                assert!(known(&mut cache, id));
            } else if cache.find(id).is_none() {
                cache.put_unknown(id, start, start);
            }
        }
        let bytes: usize = cache.entries.iter().map(|entry| entry.state.bytes()).sum();
        assert_eq!((cache.bytes, cache.index.len()), (bytes, cache.entries.len()));
        for (slot, entry) in cache.entries.iter().enumerate() {
            assert_eq!(cache.index[&entry.id] as usize, slot);
        }
    }
}
