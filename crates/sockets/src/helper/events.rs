//! Limits how many sockets for close events the helper's clients hold.
//!
//! Each has a larger receive buffer than an unprivileged process is granted, and lives as long as its client likes. So the helper
//! gives each user a few, and asks the kernel which of them are still alive. It keeps no copies: a copy would keep the socket
//! alive, and its queue growing, after the client has gone.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use sys::Errno;
use sys::netlink::Socket;

/// Largest receive buffer per socket, in bytes of the kernel's accounting.
pub const EVENT_BUFFER_BYTES_MAX: u32 = 64 << 20;
/// Maximum number per user: the collector's, its successor's, and some for `weir sockets --closed`.
pub(super) const PER_USER: usize = 4;
/// Maximum number for all users together.
pub(super) const MAX: usize = 16;

/// The sockets that were passed on and may still be alive.
#[derive(Default)]
pub(super) struct Passed(Vec<Event>);

struct Event {
    uid: u32,
    port_id: u32,
    inode: u64,
}

impl Passed {
    /// Checks that a user may have one more.
    ///
    /// # Errors
    /// `EUSERS` when this user, or all users together, hold the maximum; any error from reading the kernel's list.
    pub(super) fn check(&mut self, uid: u32) -> Result<(), Errno> {
        let of_user = |passed: &Passed| passed.0.iter().filter(|event| event.uid == uid).count();
        if of_user(self) >= PER_USER || self.0.len() >= MAX {
            // Read only when needed: the list has every netlink socket of the namespace.
            let list = fs::read("/proc/thread-self/net/netlink");
            self.forget_closed(&list.map_err(|error| Errno::from(&error))?);
        }
        let is_full = of_user(self) >= PER_USER || self.0.len() >= MAX;
        if is_full { Err(Errno::USERS) } else { Ok(()) }
    }

    /// Records a socket that is being passed on.
    ///
    /// # Errors
    /// Any error from querying the kernel about it.
    pub(super) fn note(&mut self, uid: u32, socket: &Socket) -> Result<(), Errno> {
        let copy = socket.as_fd().try_clone_to_owned();
        let meta = copy.and_then(|copy| File::from(copy).metadata());
        let inode = meta.map_err(|error| Errno::from(&error))?.ino();
        self.0.push(Event { uid, port_id: socket.port_id()?, inode });
        Ok(())
    }

    /// Forgets sockets that are no longer in the kernel's list of this namespace's netlink sockets: address, protocol, port id,
    /// groups, memory, and so on, with the inode last (net/netlink/af_netlink.c, netlink_native_seq_show).
    fn forget_closed(&mut self, list: &[u8]) {
        let list = String::from_utf8_lossy(list);
        let lines = list.lines().map(|line| line.split_ascii_whitespace());
        let live: Vec<(Option<u32>, Option<u64>)> = lines
            .map(|mut columns| {
                let port_id = columns.nth(2).and_then(|column| column.parse().ok());
                (port_id, columns.next_back().and_then(|column| column.parse().ok()))
            })
            .collect();

        self.0.retain(|event| live.contains(&(Some(event.port_id), Some(event.inode))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::netlink::Protocol;

    fn open() -> Socket {
        let socket = Socket::open(Protocol::SockDiag).unwrap();
        socket.join_group(1).unwrap();
        socket
    }

    #[test]
    fn a_user_holds_a_few_and_gets_another_for_each_that_is_closed() {
        let mut passed = Passed::default();
        let mut held: Vec<Socket> = Vec::new();
        for _ in 0..PER_USER {
            passed.check(1_000).unwrap();
            held.push(open());
            passed.note(1_000, &held[held.len() - 1]).unwrap();
        }
        assert_eq!(passed.check(1_000), Err(Errno::USERS));
        assert_eq!(passed.check(1_001), Ok(()), "others have their own");
        held.remove(1);
        assert_eq!(passed.check(1_000), Ok(()));
        assert_eq!(passed.0.len(), PER_USER - 1);
    }

    #[test]
    fn all_users_together_hold_no_more_than_all_may() {
        let mut passed = Passed::default();
        let held: Vec<Socket> = (0..MAX).map(|_| open()).collect();
        for (uid, socket) in (0..).zip(&held) {
            passed.check(uid).unwrap();
            passed.note(uid, socket).unwrap();
        }
        assert_eq!(passed.check(99), Err(Errno::USERS));
        drop(held);
        assert_eq!(passed.check(99), Ok(()));
    }

    #[test]
    fn a_list_that_says_nothing_has_none_of_them() {
        let mut passed = Passed(vec![Event { uid: 0, port_id: 7, inode: 9 }]);
        passed.forget_closed(b"sk Eth Pid Groups\nffff 4 7 00000000 0 0 0 2 0 9\n");
        assert_eq!(passed.0.len(), 1);
        passed.forget_closed(b"ffff 4 7 00000000 0 0 0 2 0 8\n\n4 7\n");
        assert_eq!(passed.0.len(), 0);
    }
}
