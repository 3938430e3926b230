//! Chunks between the queue and the batches: in memory, or through a spool.
//!
//! With a spool, every chunk is written to it before it is batched, in order. While nothing waits in the spool, the chunk also
//! continues from memory. Chunks that the batches have no room for wait on disk, so the queue stays short. An entry is
//! acknowledged once the fate of all its rows, and of all entries before it, is known. A full or failing spool holds up nothing
//! that can be delivered: a chunk then bypasses it, if nothing waits before it.

mod troubles;

use crate::batcher::{EntryId, Fed};
use crate::delivery::Now;
use crate::options::SpoolSync;
use crate::queue::{Queue, amount_of};
use crate::spool::{self, Disk, Folder, OpenError, Read, Recovered, Spool};
use ledger::{Amount, Reason, Trouble};
use record::Chunk;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use troubles::{Troubles, append_trouble, io_trouble};

/// Longest time that a turn spends on moving chunks to a disk, and the most bytes that it moves: the destination, the next sync
/// and rows that expire wait meanwhile.
pub(crate) const TURN_MAX: Duration = Duration::from_millis(20);
const TURN_BYTES_MAX: usize = 4 << 20;

/// Time before retrying a disk operation that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The same, while another sink still holds the directory.
const LOCKED_INTERVAL: Duration = Duration::from_millis(100);

/// Opens a spool, on the sink's thread.
pub(crate) type OpenSpool<D> = Box<dyn FnMut() -> Result<(Spool<D>, Recovered), OpenError> + Send>;

/// Where chunks wait until a batch has room for them.
pub(crate) struct Backlog<D: Disk = Folder> {
    queue: Arc<Queue>,
    shelf: Shelf<D>,
    /// A chunk taken from the queue that the spool does not accept.
    held: Option<Arc<Chunk>>,
    /// Rows that the spool has lost, not counted yet.
    pub(crate) corrupt: Amount,
    /// What the spool held at its opening, not counted as received yet.
    pub(crate) recovered: Option<Recovered>,
    /// When the oldest recovered row was made, in nanoseconds since 1970; 0 if unknown.
    pub(crate) recovered_unix_ns: u64,
    troubles: Troubles,
}

enum Shelf<D: Disk> {
    /// There is no spool.
    None,
    Closed {
        open: OpenSpool<D>,
        sync: SpoolSync,
        /// Do not try to open before this time.
        at: Option<Instant>,
        /// Another sink holds the spool: new chunks wait for it.
        is_locked: bool,
    },
    Open(Box<Spooled<D>>),
}

struct Spooled<D: Disk> {
    spool: Spool<D>,
    sync: SpoolSync,
    /// Do not sync before this time.
    sync_at: Instant,
    /// Something was written or acknowledged since the last sync.
    is_dirty: bool,
    /// Entries up to this one may have been delivered by an earlier process.
    repeated_until: EntryId,
    /// Entries that were passed on, oldest first.
    out: VecDeque<Out>,
    /// Do not append before this time; likewise for reading.
    append_at: Option<Instant>,
    read_at: Option<Instant>,
    scratch: Vec<u8>,
}

/// An entry that was passed on, and how many of its rows have no fate yet.
struct Out {
    id: spool::EntryId,
    rows: u64,
    /// All of its rows.
    all: Amount,
    /// Some of its rows have left: they would be repeated if the entry were read again.
    has_begun: bool,
}

impl Out {
    fn new(id: spool::EntryId, all: Amount) -> Out {
        Out { id, rows: all.count, all, has_begun: false }
    }

    /// Its rows without a fate. Which of them have one is not known, so their bytes are an even share.
    fn open(&self) -> Amount {
        let bytes = u128::from(self.all.bytes) * u128::from(self.rows);
        let bytes = bytes.checked_div(self.all.count.into()).unwrap_or_default();
        Amount { count: self.rows, bytes: bytes as u64 }
    }
}

impl<D: Disk> Backlog<D> {
    pub(crate) fn new(queue: Arc<Queue>, spool: Option<(OpenSpool<D>, SpoolSync)>) -> Backlog<D> {
        let shelf = match spool {
            None => Shelf::None,
            Some((open, sync)) => Shelf::Closed { open, sync, at: None, is_locked: false },
        };
        Backlog {
            queue,
            shelf,
            held: None,
            corrupt: Amount::default(),
            recovered: None,
            recovered_unix_ns: 0,
            troubles: Troubles::default(),
        }
    }

    /// Opens the spool when due, syncs it, and moves chunks to it that would otherwise wait in memory, for the time of a turn.
    pub(crate) fn keep(&mut self, clock: impl Fn() -> Now, room: Room) -> Share {
        let begun = clock();
        self.open(begun);
        let is_open = matches!(self.shelf, Shelf::Open(_));
        let is_wanted = is_open && (room == Room::No || !self.spooled_unread().is_zero());

        // A source may fill the queue as fast as the disk takes chunks.
        let (mut now, mut bytes, mut share) = (begun, 0, Share::Enough);
        while is_wanted && let Some(chunk) = self.take() {
            if self.append(&chunk, now).is_none() {
                self.held = Some(chunk);
                break;
            }
            bytes += chunk.memory_bytes();
            now = clock();
            if bytes >= TURN_BYTES_MAX || now.at.duration_since(begun.at) >= TURN_MAX {
                share = Share::Spent;
                break;
            }
        }
        self.sync(now);
        share
    }

    /// The oldest waiting chunk.
    pub(crate) fn next(&mut self, now: Now) -> Option<Fed> {
        match &self.shelf {
            Shelf::Closed { is_locked: true, .. } => return None,
            Shelf::Open(spooled) if !spooled.spool.figures().unread.is_zero() => {
                return self.read(now);
            }
            Shelf::None | Shelf::Closed { .. } | Shelf::Open(_) => {}
        }

        let chunk = self.take()?;
        let entry = self.append(&chunk, now);
        let entry = entry.and_then(|id| self.pass(id, &chunk));
        self.sync_if_always(now);
        Some(Fed { chunk, entry, is_repeated: false })
    }

    fn take(&mut self) -> Option<Arc<Chunk>> {
        self.held.take().or_else(|| self.queue.pop())
    }

    /// Writes a chunk to the spool. `None` if that failed.
    fn append(&mut self, chunk: &Chunk, now: Now) -> Option<spool::EntryId> {
        let Shelf::Open(spooled) = &mut self.shelf else { return None };
        if spooled.append_at.is_some_and(|at| now.at < at) {
            return None;
        }

        spooled.scratch.clear();
        chunk.encode(&mut spooled.scratch);
        let amount = amount_of(chunk);
        match spooled.spool.append(amount.count as u32, amount.bytes, &spooled.scratch) {
            Ok(id) => {
                spooled.is_dirty = true;
                spooled.append_at = None;
                self.troubles.append = None;
                Some(id)
            }
            Err(error) => {
                spooled.append_at = Some(now.at + RETRY_INTERVAL);
                self.troubles.append = Some(append_trouble(error));
                None
            }
        }
    }

    /// Passes the last appended entry on from memory.
    fn pass(&mut self, id: spool::EntryId, chunk: &Chunk) -> Option<EntryId> {
        let Shelf::Open(spooled) = &mut self.shelf else { return None };
        spooled.spool.pass(id);
        spooled.out.push_back(Out::new(id, amount_of(chunk)));
        Some(id.number())
    }

    /// Reads the oldest chunk of the spool.
    fn read(&mut self, now: Now) -> Option<Fed> {
        let Shelf::Open(spooled) = &mut self.shelf else { return None };
        if spooled.read_at.take_if(|at| now.at >= *at).is_none() && spooled.read_at.is_some() {
            return None;
        }
        loop {
            let (id, lost) = match spooled.spool.read() {
                Ok(None) => return None,
                Ok(Some(Read::Entry(entry))) => match Chunk::decode(entry.bytes) {
                    Ok(chunk) => {
                        let id = entry.id;
                        spooled.out.push_back(Out::new(id, amount_of(&chunk)));
                        self.troubles.read = None;
                        if self.recovered_unix_ns == 0 && self.recovered.is_some() {
                            self.recovered_unix_ns = chunk.arrivals().oldest_unix_ns;
                        }
                        let is_repeated = id.number() <= spooled.repeated_until;
                        let entry = Some(id.number());
                        return Some(Fed { chunk: Arc::new(chunk), entry, is_repeated });
                    }
                    // The entry is intact, but a different version wrote it, whose chunks this one cannot read.
                    Err(_) => {
                        let lost = Amount { count: entry.rows.into(), bytes: entry.row_bytes };
                        (entry.id, lost)
                    }
                },
                Ok(Some(Read::Gap(gap))) => {
                    (gap.id, Amount { count: gap.lost.rows, bytes: gap.lost.row_bytes })
                }
                Err(errno) => {
                    self.troubles.read = Some(io_trouble("reading", errno));
                    spooled.read_at = Some(now.at + RETRY_INTERVAL);
                    return None;
                }
            };
            self.corrupt += lost;
            spooled.out.push_back(Out::new(id, Amount::default()));
        }
    }

    /// Records rows whose fate is now known, by entry.
    pub(crate) fn settle(&mut self, rows: &[(EntryId, u64)]) {
        let Shelf::Open(spooled) = &mut self.shelf else { return };
        for (entry, rows) in rows {
            let at = spooled.out.binary_search_by_key(entry, |out| out.id.number());
            if let Some(out) = at.ok().and_then(|at| spooled.out.get_mut(at)) {
                out.rows = out.rows.saturating_sub(*rows);
                out.has_begun = true;
            }
        }

        let mut done = None;
        while let Some(out) = spooled.out.front()
            && out.rows == 0
        {
            done = Some(out.id);
            spooled.out.pop_front();
        }
        if let Some(id) = done {
            spooled.spool.acknowledge(id);
            spooled.is_dirty = true;
            // There may be room again.
            spooled.append_at = None;
        }
    }

    /// Rows that wait here, not counting entries that were passed on.
    pub(crate) fn unread(&self) -> Amount {
        let held = self.held.as_ref().map_or(Amount::default(), |chunk| amount_of(chunk));
        held + self.spooled_unread()
    }

    /// Those of them that are in the spool.
    pub(crate) fn spooled_unread(&self) -> Amount {
        let Shelf::Open(spooled) = &self.shelf else { return Amount::default() };
        let unread = spooled.spool.figures().unread;
        Amount { count: unread.rows, bytes: unread.row_bytes }
    }

    /// The spool's figures, if there is one.
    pub(crate) fn figures(&self) -> Option<spool::Figures> {
        match &self.shelf {
            Shelf::Open(spooled) => Some(spooled.spool.figures()),
            Shelf::None | Shelf::Closed { .. } => None,
        }
    }

    /// When the backlog can make progress.
    pub(crate) fn ready(&self, now: Now, room: Room) -> Ready {
        let is_past = |at: Option<Instant>| at.is_none_or(|at| now.at >= at);
        let left = |at: Option<Instant>| {
            at.map_or(RETRY_INTERVAL, |at| at.saturating_duration_since(now.at))
        };
        let spooled = match &self.shelf {
            Shelf::Closed { is_locked: true, at, .. } => return Ready::In(left(*at)),
            Shelf::None | Shelf::Closed { .. } => None,
            Shelf::Open(spooled) => Some(spooled),
        };

        let is_unread = !self.spooled_unread().is_zero();
        match (room, spooled) {
            (Room::Yes, Some(spooled)) if is_unread && is_past(spooled.read_at) => Ready::Now,
            (Room::Yes, _) if !is_unread && self.held.is_some() => Ready::Now,
            (Room::Yes, _) if !is_unread => Ready::WhenQueued,
            (Room::No, None) => Ready::In(RETRY_INTERVAL),
            // Queued chunks can go to the spool.
            (_, Some(spooled)) if is_past(spooled.append_at) && self.held.is_some() => Ready::Now,
            (_, Some(spooled)) if is_past(spooled.append_at) => Ready::WhenQueued,
            (Room::Yes, Some(spooled)) => {
                Ready::In(left(spooled.append_at).min(left(spooled.read_at)))
            }
            (Room::No, Some(spooled)) => Ready::In(left(spooled.append_at)),
            (Room::Yes, None) => Ready::WhenQueued,
        }
    }

    /// Takes the rows of a chunk that was waiting for room in the spool. They are lost when the sink ends.
    pub(crate) fn take_held(&mut self) -> Amount {
        self.held.take().map_or(Amount::default(), |chunk| amount_of(&chunk))
    }

    /// Whether everything here is in the spool, as far as its disk lets it.
    pub(crate) fn is_spooled(&self) -> bool {
        let is_open = matches!(self.shelf, Shelf::Open(_)) && self.held.is_none();
        is_open && self.troubles.sync.is_none()
    }

    /// The reason for losing rows that find no room.
    pub(crate) fn full_reason(&self) -> Option<Reason> {
        match &self.shelf {
            Shelf::Open(spooled) if spooled.append_at.is_some() => Some(Reason::SpoolFull),
            _ => None,
        }
    }

    fn open(&mut self, now: Now) {
        let Shelf::Closed { open, sync, at, is_locked } = &mut self.shelf else { return };
        if at.is_some_and(|at| now.at < at) {
            return;
        }

        match open() {
            Ok((spool, recovered)) => {
                let acknowledged = spool.figures().oldest.saturating_sub(1);
                let sync = *sync;
                self.recovered = Some(recovered);
                self.troubles.open = None;
                self.shelf = Shelf::Open(Box::new(Spooled {
                    spool,
                    sync,
                    sync_at: now.at,
                    is_dirty: true,
                    repeated_until: acknowledged + recovered.maybe_acknowledged.entries,
                    out: VecDeque::new(),
                    append_at: None,
                    read_at: None,
                    scratch: Vec::new(),
                }));
            }
            Err(error) => {
                *is_locked = error == OpenError::Locked;
                *at = Some(now.at + if *is_locked { LOCKED_INTERVAL } else { RETRY_INTERVAL });
                self.troubles.open = Some(Trouble {
                    what: format!("the spool cannot be used: {error}"),
                    fix: "see that its folder can be written and is this sink's alone".to_owned(),
                });
            }
        }
    }

    fn sync(&mut self, now: Now) {
        let Shelf::Open(spooled) = &mut self.shelf else { return };
        if spooled.is_dirty && now.at >= spooled.sync_at {
            self.sync_now(now);
        }
    }

    /// Time until the next sync is due.
    pub(crate) fn sync_in(&self, now: Now) -> Option<Duration> {
        let Shelf::Open(spooled) = &self.shelf else { return None };
        spooled.is_dirty.then(|| spooled.sync_at.saturating_duration_since(now.at))
    }

    fn sync_if_always(&mut self, now: Now) {
        if let Shelf::Open(spooled) = &self.shelf
            && spooled.sync == SpoolSync::Always
        {
            self.sync_now(now);
        }
    }

    fn sync_now(&mut self, now: Now) {
        let Shelf::Open(spooled) = &mut self.shelf else { return };
        let interval = match spooled.sync {
            SpoolSync::Every(interval) => interval,
            SpoolSync::Always => Duration::ZERO,
        };
        match spooled.spool.sync() {
            Ok(()) => {
                spooled.is_dirty = false;
                spooled.sync_at = now.at + interval;
                self.troubles.sync = None;
            }
            // What could not be synced is written again with the next sync.
            Err(errno) => {
                spooled.sync_at = now.at + interval.max(RETRY_INTERVAL);
                self.troubles.sync = Some(io_trouble("syncing", errno));
            }
        }
    }

    /// What is wrong with the spool.
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.troubles.worst()
    }

    /// Rows without a fate that were written to the spool and may not be on its disk, because the last sync failed.
    pub(crate) fn at_risk(&self) -> Amount {
        let Shelf::Open(spooled) = &self.shelf else { return Amount::default() };
        if self.troubles.sync.is_none() {
            return Amount::default();
        }
        let unsynced = spooled.spool.unsynced();
        let out = spooled.out.iter().filter(|out| out.id.number() > unsynced.after);
        let unread = Amount { count: unsynced.unread.rows, bytes: unsynced.unread.row_bytes };
        out.map(Out::open).sum::<Amount>() + unread
    }

    /// Makes what was written durable, before the sink counts what the spool keeps.
    pub(crate) fn sync_last(&mut self, now: Now) {
        if matches!(&self.shelf, Shelf::Open(spooled) if spooled.is_dirty) {
            self.sync_now(now);
        }
    }

    /// Closes the backlog. `attempts`: whether rows that stay in the spool were already given to the destination, and so may be
    /// delivered twice.
    ///
    /// # Errors
    /// What the disk refused; the next opening looks like one after a crash.
    pub(crate) fn close(self, attempts: Attempted) -> Result<(), Trouble> {
        let Shelf::Open(spooled) = self.shelf else { return Ok(()) };
        let has_begun = spooled.out.iter().any(|out| out.has_begun);
        // Rows that an earlier process may have delivered keep that mark, even if this process never reached them.
        let is_of_before = spooled.spool.figures().oldest <= spooled.repeated_until;
        let attempts = if has_begun || is_of_before { Attempted::Some } else { attempts };
        let closed = match attempts {
            Attempted::None => spooled.spool.close(),
            Attempted::Some => spooled.spool.close_handed_on(),
        };
        closed.map_err(|errno| io_trouble("closing", errno))
    }
}

/// How much of its time a turn has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Share {
    /// There was nothing more to do.
    Enough,
    /// All of it, and there may be more to do.
    Spent,
}

/// Whether the batches have room for more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Yes,
    No,
}

/// When the backlog can make progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ready {
    Now,
    /// Once something is queued.
    WhenQueued,
    /// Not before this time has passed, whatever is queued.
    In(Duration),
}

/// Whether rows that stay in the spool were already given to the destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempted {
    None,
    Some,
}
