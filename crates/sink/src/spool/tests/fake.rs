//! An in-memory disk that loses unsynced data, and fails on request.

use crate::spool::{Disk, DiskFile};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use sys::Errno;
use testkit::Random;

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// What a disk can do to a spool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    NoSpace,
    IoError,
    ReadOnly,
    PartialWrite,
    FailedSync,
    ForgottenPages,
    LyingSync,
    TornPage,
    ReorderedPages,
    LostName,
    BitFlip,
    CrashInCall,
}

/// How often each fault has occurred.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fired(pub(crate) [u64; Fault::CrashInCall as usize + 1]);

impl Fired {
    pub(crate) fn count(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }
}

/// Chances of faults in each call, in thousandths, and lasting states.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) no_space: u64,
    pub(crate) io_error: u64,
    pub(crate) failed_sync: u64,
    pub(crate) lying_sync: u64,
    /// Limit on the bytes of all files.
    pub(crate) room_bytes: Option<usize>,
    /// An unreadable page: index of the file in order of creation, and of the page.
    pub(crate) bad_page: Option<(usize, usize)>,
    pub(crate) is_read_only: bool,
    pub(crate) is_away: bool,
    /// The machine stops after this many more calls: every call fails until [`FakeDisk::crash`].
    pub(crate) stops_after: Option<u64>,
}

#[derive(Default)]
struct Inode {
    /// What reads return.
    now: Vec<u8>,
    /// What has reached the disk.
    durable: Vec<u8>,
    /// Pages of `now` that a sync would write.
    dirty: BTreeSet<usize>,
}

/// What a call costs: called with the number of bytes, while the disk is not locked.
type Work = Arc<dyn Fn(Call, usize) + Send + Sync>;

struct State {
    work: Option<Work>,
    random: Random,
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    faults: Faults,
    fired: Fired,
    salt: u32,
}

/// The disk; clones share it.
#[derive(Clone)]
pub(crate) struct FakeDisk(Arc<Mutex<State>>);

/// A file on it.
pub(crate) struct FakeFile(FakeDisk, usize);

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Read,
    Change,
    Sync,
}

impl FakeDisk {
    pub(crate) fn new(seed: u64) -> FakeDisk {
        FakeDisk(Arc::new(Mutex::new(State {
            work: None,
            random: Random(seed),
            inodes: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            faults: Faults::default(),
            fired: Fired::default(),
            salt: seed as u32,
        })))
    }

    /// Has `work` take the time that calls take.
    pub(crate) fn set_work(&self, work: impl Fn(Call, usize) + Send + Sync + 'static) {
        self.lock().work = Some(Arc::new(work));
    }

    pub(crate) fn set(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    pub(crate) fn fired(&self) -> Fired {
        self.lock().fired
    }

    /// Stops the machine and restarts it: synced data is there, and a random part of the rest.
    pub(crate) fn crash(&self) {
        let mut state = self.lock();
        let State { random, inodes, names, durable_names, faults, fired, .. } = &mut *state;
        faults.stops_after = None;

        // Each change of a name since the last sync of the directory may or may not be there.
        let mut after = durable_names.clone();
        for (name, inode) in names.iter() {
            if !durable_names.contains_key(name) {
                if random.below(2) == 0 {
                    after.insert(name.clone(), *inode);
                } else {
                    fired.add(Fault::LostName);
                }
            }
        }
        for name in durable_names.keys().filter(|name| !names.contains_key(*name)) {
            if random.below(2) == 0 {
                after.remove(name);
            }
        }
        *names = after.clone();
        *durable_names = after;

        for inode in inodes {
            inode.crash(random, fired);
        }
    }

    /// Flips one bit on the disk. Returns whether there was one to flip.
    pub(crate) fn flip_bit(&self) -> bool {
        let mut state = self.lock();
        let State { random, inodes, names, fired, .. } = &mut *state;
        let files: Vec<usize> =
            names.values().copied().filter(|idx| !inodes[*idx].now.is_empty()).collect();
        if files.is_empty() {
            return false;
        }
        let inode = &mut inodes[files[random.index(files.len())]];
        let at = random.index(inode.now.len());
        let bit = 1 << random.below(8);
        inode.now[at] ^= bit;
        if let Some(byte) = inode.durable.get_mut(at) {
            *byte ^= bit;
        }
        fired.add(Fault::BitFlip);
        true
    }

    /// Bytes of all files that have a name.
    pub(crate) fn bytes(&self) -> usize {
        let state = self.lock();
        state.names.values().map(|inode| state.inodes[*inode].now.len()).sum()
    }

    /// Reads or replaces the contents of a file.
    pub(crate) fn with_file<T>(&self, name: &str, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut state = self.lock();
        let idx = state.names[name];
        let inode = &mut state.inodes[idx];
        let done = change(&mut inode.now);
        inode.durable = inode.now.clone();
        inode.dirty.clear();
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn enter(&self, call: Call, bytes: usize) -> Result<(), Errno> {
        let work = self.lock().work.clone();
        if let Some(work) = work {
            work(call, bytes);
        }
        let mut state = self.lock();
        if let Some(calls) = &mut state.faults.stops_after {
            if *calls == 0 {
                state.fired.add(Fault::CrashInCall);
                return Err(Errno::IO);
            }
            *calls -= 1;
        }
        if state.faults.is_away {
            state.fired.add(Fault::IoError);
            return Err(Errno::IO);
        }
        if state.faults.is_read_only && call != Call::Read {
            state.fired.add(Fault::ReadOnly);
            return Err(Errno(libc::EROFS));
        }
        let io_error = state.faults.io_error;
        if state.random.below(1000) < io_error {
            state.fired.add(Fault::IoError);
            return Err(Errno::IO);
        }
        Ok(())
    }

    fn has_stopped(&self) -> bool {
        self.lock().faults.stops_after == Some(0)
    }
}

impl Inode {
    fn write(&mut self, bytes: &[u8], at: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        let first = at.min(self.now.len()) / PAGE;
        self.now.resize(self.now.len().max(end), 0);
        self.now[at..end].copy_from_slice(bytes);
        self.dirty.extend(first..=(end - 1) / PAGE);
    }

    /// Makes the first `sectors` sectors of a page durable.
    fn store(&mut self, page: usize, sectors: usize) {
        let start = page * PAGE;
        let end = (start + sectors * SECTOR).min(self.now.len());
        if start < end {
            self.durable.resize(self.durable.len().max(end), 0);
            self.durable[start..end].copy_from_slice(&self.now[start..end]);
        }
    }

    fn sync(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            self.store(page, PAGE / SECTOR);
        }
        self.durable.resize(self.now.len(), 0);
    }

    fn crash(&mut self, random: &mut Random, fired: &mut Fired) {
        let mut has_lost = false;
        let len_bytes = self.now.len();
        for page in std::mem::take(&mut self.dirty) {
            match random.below(4) {
                0 => has_lost = true,
                1 => {
                    self.store(page, random.index(PAGE / SECTOR));
                    fired.add(Fault::TornPage);
                    has_lost = true;
                }
                _ => {
                    self.store(page, PAGE / SECTOR);
                    if has_lost {
                        fired.add(Fault::ReorderedPages);
                    }
                }
            }
        }
        // The length is written separately from the pages, so a file may have been extended or shortened without
        // them.
        if random.below(2) == 0 {
            self.durable.resize(len_bytes, 0);
        }
        self.now = self.durable.clone();
    }
}

impl Disk for FakeDisk {
    type File = FakeFile;

    fn names(&mut self) -> Result<Vec<String>, Errno> {
        self.enter(Call::Read, 0)?;
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn create(&mut self, name: &str) -> Result<FakeFile, Errno> {
        self.enter(Call::Change, 0)?;
        let mut state = self.lock();
        if state.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let idx = state.inodes.len();
        state.inodes.push(Inode::default());
        state.names.insert(name.to_owned(), idx);
        drop(state);
        Ok(FakeFile(self.clone(), idx))
    }

    fn open(&mut self, name: &str) -> Result<FakeFile, Errno> {
        self.enter(Call::Read, 0)?;
        let idx = *self.lock().names.get(name).ok_or(Errno::NOENT)?;
        Ok(FakeFile(self.clone(), idx))
    }

    fn remove(&mut self, name: &str) -> Result<(), Errno> {
        self.enter(Call::Change, 0)?;
        self.lock().names.remove(name).map(|_| ()).ok_or(Errno::NOENT)
    }

    fn sync(&mut self) -> Result<(), Errno> {
        self.enter(Call::Sync, 0)?;
        let mut state = self.lock();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn salt(&mut self) -> u32 {
        let mut state = self.lock();
        state.salt = state.salt.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.salt
    }
}

impl DiskFile for FakeFile {
    fn len_bytes(&self) -> Result<u64, Errno> {
        self.0.enter(Call::Read, 0)?;
        Ok(self.0.lock().inodes[self.1].now.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
        self.0.enter(Call::Read, bytes.len())?;
        let state = self.0.lock();
        if let Some((inode, page)) = state.faults.bad_page {
            let bad = page * PAGE..(page + 1) * PAGE;
            let at = at as usize;
            if inode == self.1 && at < bad.end && at + bytes.len() > bad.start {
                return Err(Errno::IO);
            }
        }
        let rest = state.inodes[self.1].now.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<usize, Errno> {
        let entered = self.0.enter(Call::Change, bytes.len());
        let has_stopped = self.0.has_stopped();
        let used = self.0.bytes();
        let mut state = self.0.lock();
        let State { random, inodes, faults, fired, .. } = &mut *state;
        let inode = &mut inodes[self.1];
        let at = at as usize;

        if entered.is_err() || has_stopped {
            // Part of it may have been written although the call failed.
            if !faults.is_read_only {
                inode.write(&bytes[..random.index(bytes.len())], at);
            }
            return entered.map(|()| 0);
        }

        let growth = (at + bytes.len()).saturating_sub(inode.now.len());
        let room = faults.room_bytes.map_or(usize::MAX, |room| room.saturating_sub(used));
        if growth > room || random.below(1000) < faults.no_space {
            fired.add(Fault::NoSpace);
            let fits = (bytes.len() - growth.min(bytes.len())).saturating_add(room);
            let part = random.index(bytes.len()).min(fits);
            inode.write(&bytes[..part], at);
            return if part == 0 || random.below(2) == 0 { Err(Errno::NOSPC) } else { Ok(part) };
        }

        let len = match random.below(20) {
            0 => {
                fired.add(Fault::PartialWrite);
                1 + random.index(bytes.len())
            }
            _ => bytes.len(),
        };
        inode.write(&bytes[..len], at);
        Ok(len)
    }

    fn cut(&self, len_bytes: u64) -> Result<(), Errno> {
        self.0.enter(Call::Change, 0)?;
        let mut state = self.0.lock();
        state.inodes[self.1].now.resize(len_bytes as usize, 0);
        Ok(())
    }

    fn sync(&self) -> Result<(), Errno> {
        self.0.enter(Call::Sync, 0)?;
        let mut state = self.0.lock();
        let State { random, inodes, faults, fired, .. } = &mut *state;
        let inode = &mut inodes[self.1];

        if random.below(1000) < faults.lying_sync {
            fired.add(Fault::LyingSync);
            return Ok(());
        }
        if random.below(1000) < faults.failed_sync {
            // The pages count as clean: no later sync writes them. Some file systems also forget their contents.
            fired.add(Fault::FailedSync);
            let forgets = random.below(2) == 0;
            for page in std::mem::take(&mut inode.dirty) {
                if random.below(2) == 0 {
                    inode.store(page, PAGE / SECTOR);
                } else if forgets {
                    fired.add(Fault::ForgottenPages);
                    let start = page * PAGE;
                    let end = (start + PAGE).min(inode.now.len());
                    for at in start..end {
                        inode.now[at] = inode.durable.get(at).copied().unwrap_or(0);
                    }
                }
            }
            return Err(Errno::IO);
        }
        inode.sync();
        Ok(())
    }
}
