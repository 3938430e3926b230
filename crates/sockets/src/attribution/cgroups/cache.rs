use super::Cgroup;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Instant;

/// Cgroups by id, bounded in number and bytes. What was not asked for since the hand passed goes first (the clock algorithm).
#[derive(Debug)]
pub(super) struct Cache {
    index: HashMap<u64, u32, BuildHasherDefault<IdHasher>>,
    entries: Vec<Entry>,
    /// The id found last and where: sockets of one cgroup often follow each other.
    last: Option<(u64, Slot)>,
    hand: usize,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
    evicted: u64,
}

/// Where an entry is, until the next `put`.
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
    Unknown { retry_at: Instant },
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

    /// Whether the answer stands: a cgroup, or that there is none for some time yet.
    pub(super) fn is_settled(&self, slot: Slot, now: Instant) -> bool {
        match self.entries.get(slot.0 as usize).map(|entry| &entry.state) {
            Some(State::Known(_)) => true,
            Some(State::Unknown { retry_at }) => now < *retry_at,
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

    /// Whether another cgroup can be kept without another's going.
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < self.max_entries && self.bytes < self.max_bytes
    }

    pub(super) fn put(&mut self, cgroup: Cgroup) -> Slot {
        self.insert(cgroup.id(), State::Known(Arc::new(cgroup)))
    }

    pub(super) fn put_unknown(&mut self, id: u64, retry_at: Instant) {
        self.insert(id, State::Unknown { retry_at });
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
        self.last = None;
        let entry = self.entries.swap_remove(at);
        self.bytes -= entry.state.bytes();
        self.index.remove(&entry.id);
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

/// Spreads ids over the table. They are the kernel's numbers in order of creation, which nobody chooses.
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
        // Fibonacci hashing. The table takes a tag from the highest bits and the place from the lowest, so these get a share of
        // the upper half: ids lie some fifty apart, one for each file of a cgroup.
        let product = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ (product >> 32);
    }
}
