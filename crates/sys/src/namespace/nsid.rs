//! Namespace ids: the numbers by which one namespace refers to others in netlink messages.

use crate::Errno;
use crate::clock::boottime_ns;
use crate::netlink::ask::{Asker, NLM_F_ACK, append_attribute, attribute};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which namespace to ask about.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A namespace that is held open.
    Open(BorrowedFd<'a>),
    /// The namespace of a process. The process may end and its id be reused, so the answer is only a hint.
    Process(u32),
}

/// Looks up and assigns the ids by which the namespace of the thread that opened this refers to other namespaces.
///
/// Ids belong to the observing namespace: each has its own table, and the same namespace has other ids elsewhere (ip-netns(8),
/// net/core/net_namespace.c, netns_ids). An id vanishes with its namespace, which is announced to the group `RTNLGRP_NSID` as
/// `RTM_DELNSID`, and the lowest free id is given to the next namespace. So an event that was queued before may carry an id that
/// refers to another namespace by the time it is read. To prevent that, ids assigned by [`Self::assign`] are never reused.
///
/// The kernel finds an id by walking the observer's table (net/core/net_namespace.c, __peernet2id): a lookup takes 14 µs with
/// 1,000 ids, 2.4 µs with a few (Linux 6.18, 2 CPUs). Ask once per namespace.
pub struct Nsids {
    asker: Asker,
    body: Vec<u8>,
    next: i32,
}

impl Nsids {
    /// Opens a socket in the namespace of the calling thread.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn open() -> io::Result<Nsids> {
        // Milliseconds since boot are beyond all ids that an earlier run assigned, unless it assigned more than a thousand a
        // second.
        let since_boot_ms = (boottime_ns() / 1_000_000) % NUMBERS;
        Ok(Nsids { asker: Asker::open()?, body: Vec::new(), next: FIRST + since_boot_ms as i32 })
    }

    /// The id of a namespace; `None` when it has none here. Needs no capability.
    ///
    /// # Errors
    /// `EINVAL` or `ESRCH` when there is no such namespace.
    pub fn lookup(&mut self, target: Target<'_>) -> Result<Option<i32>, Errno> {
        self.question(target);

        let mut id = None;
        self.asker.ask((RTM_GETNSID, 0), &self.body, |kind, body| {
            if kind == RTM_NEWNSID {
                id = body
                    .get(RTGENMSG_BYTES..)
                    .and_then(|attributes| attribute(attributes, NETNSA_NSID))
                    .and_then(|value| value.try_into().ok())
                    .map(i32::from_ne_bytes);
            }
        })?;

        Ok(id.filter(|&id| id != NOT_ASSIGNED))
    }

    /// The id of a namespace; assigns a new one if it has none. It lasts until the namespace is gone: an id cannot be taken back.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` over the own namespace, when a new id is needed; as [`Self::lookup`] otherwise.
    pub fn assign(&mut self, target: Target<'_>) -> Result<i32, Errno> {
        if let Some(id) = self.lookup(target)? {
            return Ok(id);
        }

        for _ in 0..TRIES_MAX {
            let wanted = self.next;
            self.next = if wanted == i32::MAX { FIRST } else { wanted + 1 };
            match self.assign_number(target, wanted) {
                Ok(()) => return Ok(wanted),
                // The id belongs to another namespace, or another process assigned one first.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }

            if let Some(id) = self.lookup(target)? {
                return Ok(id);
            }
        }

        // Let the kernel choose the lowest free id, whether or not it was used before.
        match self.assign_number(target, NOT_ASSIGNED) {
            Err(Errno::EXIST) | Ok(()) => {}
            Err(errno) => return Err(errno),
        }
        self.lookup(target)?.ok_or(Errno::NOENT)
    }

    fn assign_number(&mut self, target: Target<'_>, number: i32) -> Result<(), Errno> {
        self.question(target);
        append_attribute(&mut self.body, NETNSA_NSID, &number.to_ne_bytes());
        self.asker.ask((RTM_NEWNSID, NLM_F_ACK), &self.body, |_, _| {})
    }

    /// Writes `struct rtgenmsg` (a family and padding), then the target.
    fn question(&mut self, target: Target<'_>) {
        self.body.clear();
        self.body.extend_from_slice(&[0; RTGENMSG_BYTES]);
        let (kind, value) = match target {
            Target::Open(fd) => (NETNSA_FD, fd.as_raw_fd().unsigned_abs()),
            Target::Process(process) => (NETNSA_PID, process),
        };
        append_attribute(&mut self.body, kind, &value.to_ne_bytes());
    }
}

/// The lowest id to ask for: the kernel assigns small ones by itself.
const FIRST: i32 = 1 << 20;
/// The first id is within this many above `FIRST`: 12 days of milliseconds, with as many ids left above.
const NUMBERS: u64 = 1 << 30;
/// Ids to try before letting the kernel choose.
const TRIES_MAX: usize = 16;

pub(super) const RTM_NEWNSID: u16 = 88;
pub(super) const RTM_DELNSID: u16 = 89;
const RTM_GETNSID: u16 = 90;
pub(super) const NETNSA_NSID: u16 = 1;
const NETNSA_PID: u16 = 2;
const NETNSA_FD: u16 = 3;
/// `NETNSA_NSID_NOT_ASSIGNED` (linux/net_namespace.h): "none" in an answer, "any" in a request.
const NOT_ASSIGNED: i32 = -1;
/// `struct rtgenmsg` is one byte, padded to four.
pub(super) const RTGENMSG_BYTES: usize = 4;
