//! What the kernel dropped at a service manager's sockets, over restarts: the next process counts what was dropped while
//! none ran.
//!
//! Each process notes the kernel's count up to which its ledger goes, by socket, in a file that the service manager holds for the
//! next one (sd_notify(3), `FDSTORE=1`). Without such a file the count begins when the socket is taken over.

use relay::{Listener, SocketOwner};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use sys::activation::memory_file;
use sys::socket::cookie;

/// Its name among what the service manager holds.
pub(crate) const NAME: &str = "weir-drops";
/// Most bytes that are read of it: a thousand sockets.
const BYTES_MAX: usize = 32 * 1_024;

/// The kernel's count of drops by socket cookie.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    /// `None`: no service manager would hold it.
    file: Option<File>,
    counts: BTreeMap<u64, u32>,
}

impl Drops {
    /// Goes on with what the service manager held, or begins a file for it to hold.
    pub(crate) fn open(held: Option<OwnedFd>) -> Drops {
        match held.map(File::from) {
            Some(file) => {
                let counts = read(&file);
                Drops { file: Some(file), counts }
            }
            None => Drops { file: memory_file().ok().map(File::from), counts: BTreeMap::new() },
        }
    }

    /// The file, to be held.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Up to where an earlier ledger counted at this socket; `None` if that is not known.
    pub(crate) fn counted(&self, socket: BorrowedFd<'_>, owner: SocketOwner) -> Option<u32> {
        let cookie = (owner == SocketOwner::ServiceManager).then(|| cookie(socket).ok())??;
        self.counts.get(&cookie).copied()
    }

    /// Notes up to where the ledger counts at the sockets of these listeners.
    pub(crate) fn note<'a>(&mut self, listeners: impl Iterator<Item = &'a Listener>) {
        let theirs =
            listeners.filter(|one| one.options().socket_owner == SocketOwner::ServiceManager);
        let counts =
            theirs.filter_map(|one| Some((cookie(one.socket()).ok()?, one.counted_drops())));
        self.note_counts(counts.collect());
    }

    /// The same for one listener that ends, after its last look.
    pub(crate) fn note_last(&mut self, cookie: u64, drops: u32) {
        self.note_counts(BTreeMap::from([(cookie, drops)]));
    }

    fn note_counts(&mut self, counts: BTreeMap<u64, u32>) {
        let is_known = |(cookie, drops): (&u64, &u32)| self.counts.get(cookie) == Some(drops);
        if counts.iter().all(is_known) {
            return;
        }
        self.counts.extend(counts);
        let text: String =
            self.counts.iter().map(|(cookie, drops)| format!("{cookie} {drops}\n")).collect();
        if let Some(file) = &self.file {
            // It is memory, and one call: a process that is killed leaves the one text or the other. What an earlier, longer text
            // left stands behind the zero.
            let _ = file.write_all_at(format!("{text}\0").as_bytes(), 0);
        }
    }
}

fn read(file: &File) -> BTreeMap<u64, u32> {
    let mut bytes = vec![0; BYTES_MAX];
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    let text = bytes[..len].split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(cookie, drops)| Some((cookie.parse().ok()?, drops.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_notes_the_next_one_knows() {
        let mut first = Drops::open(None);
        first.note_counts(BTreeMap::from([(7, 4_000_000_000), (9, 1)]));
        first.note_last(7, 3);
        let held = first.file().unwrap().try_clone_to_owned().unwrap();
        assert_eq!(Drops::open(Some(held)).counts, BTreeMap::from([(7, 3), (9, 1)]));
    }
}
