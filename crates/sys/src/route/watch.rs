//! The kernel's events about neighbors, routes, addresses, devices and queues.

use super::{Neighbour, NextHop, RTM_DELNEIGH, RTM_NEWNEIGH, neighbour_of};
use crate::netlink::ask::drain;
use crate::netlink::{DUMP_BUFFER_BYTES, Protocol, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Multicast groups of rtnetlink (include/uapi/linux/rtnetlink.h, `enum rtnetlink_groups`): links, neighbors, queues,
/// and the addresses, routes and routing rules of both families.
const GROUPS: [u32; 9] = [1, 3, 4, 5, 7, 8, 9, 11, 19];

/// Next hops that routes share, which change without the routes. Kernels before 5.3 have neither.
const NEXT_HOPS: u32 = 32;

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A neighbor's state has changed. `NUD_INCOMPLETE` is not reported (net/core/neighbour.c, `__neigh_event_send`).
    ///
    /// The kernel reports a failure just after it has dropped the packets that waited for the neighbor
    /// (`neigh_timer_handler`), and an answer just after it has sent them (`__neigh_update`).
    Neighbour(NextHop, Neighbour),
    /// A neighbor's entry is gone, and with it the packets that waited for it.
    Forgotten(NextHop),
    /// A route, a routing rule, an address, a device or a queue has changed: query again.
    Routes,
    /// Events were lost, because they came faster than they were read.
    Lost,
}

/// A socket that receives the events of the network namespace in which it was opened.
pub struct Watch {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Watch {
    /// Opens the socket and starts receiving. It does not block.
    ///
    /// # Errors
    /// Any error of the netlink socket. `EINVAL` where the kernel lacks one of the groups.
    pub fn open() -> io::Result<Watch> {
        let socket = Socket::open(Protocol::Route)?;
        for group in GROUPS {
            socket.join_group(group)?;
        }
        let _ = socket.join_group(NEXT_HOPS);
        Ok(Watch { socket, buffer: vec![0; DUMP_BUFFER_BYTES] })
    }

    /// Passes everything reported so far to `each`.
    pub fn drain(&mut self, each: impl FnMut(Change)) {
        drain(&self.socket, &mut self.buffer, Change::Lost, change, each);
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn change(kind: u16, body: &[u8]) -> Option<Change> {
    // Entries of a bridge's forwarding table have no IP address and do not concern us.
    let neighbour = neighbour_of(body);
    match kind {
        RTM_NEWNEIGH => neighbour.map(|(hop, state)| Change::Neighbour(hop, state)),
        RTM_DELNEIGH => neighbour.map(|(hop, _)| Change::Forgotten(hop)),
        _ => Some(Change::Routes),
    }
}
