//! Kernel drops at a service manager's sockets, across restarts: the next process counts what was dropped while none was
//! running.
//!
//! Each process notes, by socket, the kernel's drop count up to which its ledger has counted, in a file that the service
//! manager holds for the next process (sd_notify(3), `FDSTORE=1`). Without such a file, counting begins when the socket is
//! taken over.

use relay::{Listener, SocketOwner};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use sys::activation::memory_file;
use sys::socket::cookie;

/// The file's name in the service manager's descriptor store.
pub(crate) const NAME: &str = "weir-drops";
/// Most bytes read from the file, enough for a thousand sockets.
const BYTES_MAX: usize = 32 * 1_024;

/// The kernel's count of drops by socket cookie.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    /// `None` if no memory file could be created.
    file: Option<File>,
    counts: BTreeMap<u64, u32>,
}

impl Drops {
    /// Continues with the file that the service manager held, or creates one for it to hold.
    pub(crate) fn open(held: Option<OwnedFd>) -> Drops {
        match held.map(File::from) {
            Some(file) => {
                let counts = read(&file);
                Drops { file: Some(file), counts }
            }
            None => Drops { file: memory_file().ok().map(File::from), counts: BTreeMap::new() },
        }
    }

    /// The file, for the service manager to hold.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// The kernel count up to which an earlier ledger has counted this socket; `None` if unknown.
    pub(crate) fn counted(&self, socket: BorrowedFd<'_>, owner: SocketOwner) -> Option<u32> {
        let cookie = (owner == SocketOwner::ServiceManager).then(|| cookie(socket).ok())??;
        self.counts.get(&cookie).copied()
    }

    /// Notes the kernel counts up to which the ledger has counted these listeners' sockets.
    pub(crate) fn note<'a>(&mut self, listeners: impl Iterator<Item = &'a Listener>) {
        let theirs =
            listeners.filter(|one| one.options().socket_owner == SocketOwner::ServiceManager);
        let counts =
            theirs.filter_map(|one| Some((cookie(one.socket()).ok()?, one.counted_drops())));
        self.note_counts(counts.collect());
    }

    /// Notes the final count of one socket, after its listener has ended.
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
            // The file is in memory and written by one call, so a killed process leaves either the old text or the new one. The
            // zero byte ends the text; the rest of a longer old text may follow it.
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
