//! Namespace ids: the numbers by which one namespace knows others in netlink messages.

use crate::Errno;
use crate::clock::boottime_ns;
use crate::netlink::ask::{Asker, NLM_F_ACK, append_attribute, attribute};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Which namespace to ask about.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// One that is held open.
    Open(BorrowedFd<'a>),
    /// That of a process. The process may end and its id be used again, so that the answer is a hint.
    Process(u32),
}

/// Looks up and assigns the ids by which the namespace of the thread that opened this knows other namespaces.
///
/// Ids belong to the observing namespace: each has its own table, and the same namespace has other ids elsewhere (ip-netns(8),
/// net/core/net_namespace.c, netns_ids). An id vanishes with the namespace that it stands for, which is announced to the group
/// `RTNLGRP_NSID` as `RTM_DELNSID`, and the lowest free number is given to the next one: an event that was queued before
/// that carries a number that may stand for another namespace by the time it is read. Numbers that [`Self::assign`] gives are
/// therefore not used a second time.
///
/// The kernel finds an id by walking the observer's table (net/core/net_namespace.c, __peernet2id): with 1,000 ids a question takes
/// 14 µs, with a few 2.4 µs (Linux 6.18, 2 processors). Ask once for each namespace.
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
        // Milliseconds since boot are past whatever an earlier run has assigned, unless that was a thousand a second.
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

    /// The id of a namespace, a new one if it had none. It stays until the namespace is gone: no id can be taken back.
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
                // Either the number is another's, or somebody else was quicker.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }

            if let Some(id) = self.lookup(target)? {
                return Ok(id);
            }
        }

        // The lowest free one, as it was used before or not.
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

    /// `struct rtgenmsg` (a family and padding), then the target.
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

/// The lowest number that is asked for: others have the small ones, which the kernel chooses by itself.
const FIRST: i32 = 1 << 20;
/// The first number is one of this many from there on: 12 days of milliseconds, which leaves as many above it.
const NUMBERS: u64 = 1 << 30;
/// Numbers that are tried before the kernel may choose.
const TRIES_MAX: usize = 16;

pub(super) const RTM_NEWNSID: u16 = 88;
pub(super) const RTM_DELNSID: u16 = 89;
const RTM_GETNSID: u16 = 90;
pub(super) const NETNSA_NSID: u16 = 1;
const NETNSA_PID: u16 = 2;
const NETNSA_FD: u16 = 3;
/// `NETNSA_NSID_NOT_ASSIGNED` (linux/net_namespace.h): as an answer "none", as a request "any".
const NOT_ASSIGNED: i32 = -1;
/// `struct rtgenmsg` is one byte, padded to four.
pub(super) const RTGENMSG_BYTES: usize = 4;
