//! The kernel's notifications about namespaces: changed mounts, and ids that are assigned and removed.

use super::nsid::{NETNSA_NSID, RTGENMSG_BYTES, RTM_DELNSID, RTM_NEWNSID};
use crate::netlink::ask::{attribute, drain};
use crate::netlink::{Protocol, Socket};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Reports when anything is mounted or unmounted in the mount namespace of this process, including the network namespaces that
/// `ip netns add` and container engines mount.
///
/// [`crate::poll::PollSet::wait`] with [`crate::poll::Interest::Priority`] finds it ready once for each change, or once for
/// several (fs/proc_namespace.c, `mounts_poll`). The mount exists by then. A watch on the directory would wake too early: the
/// file is created first and mounted over a moment later.
#[derive(Debug)]
pub struct MountChanges(File);

impl MountChanges {
    /// Starts watching; later changes are reported. Needs no capability.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn open() -> io::Result<MountChanges> {
        File::open("/proc/self/mountinfo").map(MountChanges)
    }
}

impl AsFd for MountChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What happened to an id by which our own namespace knows another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdChange {
    /// A namespace now has this id. The kernel assigns one by itself, for instance to the namespace at the other end of a veth
    /// pair, and reports it before it delivers an event from there.
    Given(i32),
    /// The namespace with this id has ended. The kernel reports it before the inode can be reused (net/core/net_namespace.c,
    /// `cleanup_net`: `unhash_nsid` comes before the exit of the subsystems, which frees the number).
    Ended(i32),
    /// Some changes were lost, because they came faster than they were read.
    Lost,
}

/// A socket that receives changes of ids in the namespace in which it was opened. Needs no capability.
pub struct IdChanges {
    socket: Socket,
    buffer: Box<[u8]>,
}

/// `RTNLGRP_NSID` (include/uapi/linux/rtnetlink.h, `enum rtnetlink_groups`).
const RTNLGRP_NSID: u32 = 28;
/// A message about an id has 28 bytes.
const BUFFER_BYTES: usize = 4_096;

impl IdChanges {
    /// Opens the socket and starts receiving. It does not block.
    ///
    /// # Errors
    /// Any error of the netlink socket.
    pub fn open() -> io::Result<IdChanges> {
        let socket = Socket::open(Protocol::Route)?;
        socket.join_group(RTNLGRP_NSID)?;
        Ok(IdChanges { socket, buffer: vec![0; BUFFER_BYTES].into_boxed_slice() })
    }

    /// Passes everything reported so far to `each`.
    pub fn drain(&mut self, each: impl FnMut(IdChange)) {
        drain(&self.socket, &mut self.buffer, IdChange::Lost, change, each);
    }
}

impl AsFd for IdChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn change(kind: u16, body: &[u8]) -> Option<IdChange> {
    let value = attribute(body.get(RTGENMSG_BYTES..)?, NETNSA_NSID)?;
    let id = i32::from_ne_bytes(value.try_into().ok()?);
    match kind {
        RTM_NEWNSID => Some(IdChange::Given(id)),
        RTM_DELNSID => Some(IdChange::Ended(id)),
        _ => None,
    }
}
