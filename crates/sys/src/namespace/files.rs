//! Watches the files that stand for namespaces.

use crate::Errno;
use crate::errno::check;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Directories in which `ip netns` and container engines mount namespaces (`/var/run` leads to `/run`).
const FOLDERS: [&CStr; 2] = [c"/run/netns", c"/run/docker/netns"];

/// What happened to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileChange<'a> {
    /// A file with this name was created. The namespace is mounted over it a moment later.
    Created(&'a [u8]),
    /// The file was deleted, and no namespace is mounted there any more.
    Deleted(&'a [u8]),
    /// Some changes were lost, because they came faster than they were read (`fs.inotify.max_queued_events`).
    Lost,
}

/// Records which files came and went in the namespace directories, for callers that look later (inotify(7)): a namespace that
/// existed only between two scans is still noticed. Needs no capability.
#[derive(Debug)]
pub struct FileChanges {
    inotify: OwnedFd,
    buffer: Box<[u8]>,
}

const BUFFER_BYTES: usize = 16 * 1024;
/// `struct inotify_event` without the name: watch, mask, cookie, length of the name.
const HEAD_BYTES: usize = 16;

impl FileChanges {
    /// Starts recording, in those directories that exist; see [`Self::watch`].
    ///
    /// # Errors
    /// `EMFILE` at the limit of open files, or of watchers (`fs.inotify.max_user_instances`).
    pub fn open() -> io::Result<FileChanges> {
        // SAFETY: inotify_init1 takes no pointers.
        let fd = check(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
        let inotify = unsafe { OwnedFd::from_raw_fd(fd) };
        let changes = FileChanges { inotify, buffer: vec![0; BUFFER_BYTES].into_boxed_slice() };
        changes.watch();
        Ok(changes)
    }

    /// Adds directories that did not exist before: the first `ip netns add` creates its own.
    pub fn watch(&self) {
        let mask = libc::IN_CREATE | libc::IN_DELETE | libc::IN_ONLYDIR;
        for folder in FOLDERS {
            // SAFETY: the path ends with a zero byte and outlives the call. A watched directory stays watched; a missing one is
            // tried again.
            unsafe { libc::inotify_add_watch(self.inotify.as_raw_fd(), folder.as_ptr(), mask) };
        }
    }

    /// Passes everything that has happened so far to `each`.
    pub fn drain(&mut self, mut each: impl FnMut(FileChange<'_>)) {
        loop {
            // SAFETY: the pointer and the length describe `buffer`, which outlives the call.
            let rc = unsafe {
                libc::read(
                    self.inotify.as_raw_fd(),
                    self.buffer.as_mut_ptr().cast(),
                    self.buffer.len(),
                )
            };

            match usize::try_from(rc) {
                Ok(0) => return,
                Ok(len) => changes(self.buffer.get(..len).unwrap_or_default(), &mut each),
                Err(_) if Errno::last() == Errno::INTR => {}
                // Empty. Other errors cannot occur on a descriptor that is only read.
                Err(_) => return,
            }
        }
    }
}

fn changes(mut bytes: &[u8], each: &mut impl FnMut(FileChange<'_>)) {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes)
    };

    while let (Some(mask), Some(len)) = (word(bytes, 4), word(bytes, 12)) {
        let end = HEAD_BYTES + len as usize;
        let Some(padded) = bytes.get(HEAD_BYTES..end) else { return };
        let name = padded.split(|&byte| byte == 0).next().unwrap_or_default();

        if mask & libc::IN_Q_OVERFLOW != 0 {
            each(FileChange::Lost);
        } else if mask & libc::IN_CREATE != 0 {
            each(FileChange::Created(name));
        } else if mask & libc::IN_DELETE != 0 {
            each(FileChange::Deleted(name));
        }

        bytes = bytes.get(end..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(mask: u32, name: &[u8]) -> Vec<u8> {
        let words = [1, mask, 0, name.len() as u32];
        words.iter().flat_map(|word| word.to_ne_bytes()).chain(name.iter().copied()).collect()
    }

    fn told(bytes: &[u8]) -> Vec<String> {
        let mut told = Vec::new();
        changes(bytes, &mut |change| told.push(format!("{change:?}")));
        told
    }

    #[test]
    fn events_are_read_one_after_another_and_a_cut_one_is_none() {
        let all = [
            event(libc::IN_CREATE, b"a\0\0\0"),
            event(libc::IN_Q_OVERFLOW, b""),
            event(libc::IN_IGNORED, b""),
            event(libc::IN_DELETE, b"bc\0\0\0\0\0\0"),
        ]
        .concat();
        assert_eq!(told(&all), ["Created([97])", "Lost", "Deleted([98, 99])"]);
        for cut in 0..all.len() {
            assert!(told(&all[..cut]).len() < 3);
        }
        assert!(told(&[255; 40]).is_empty());
    }
}
