//! Multicast groups that sockets join, by interfaces that come and go.

use super::listen::{ListenOptions, interface_index};
use super::set;
use crate::route::{Ends, Routes};
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The membership of a socket in a group.
///
/// The kernel ties it to an interface. When that is deleted, the membership is gone and the socket hears nothing, also when an
/// interface of the same name, or the same one from another namespace, is there again (net/ipv4/igmp.c, ip_mc_destroy_dev); when
/// it merely goes down and up, the membership stays.
#[derive(Clone, Debug)]
pub struct Membership {
    group: IpAddr,
    interface: Option<String>,
    /// Only datagrams of these senders are wanted (RFC 4607). Empty for those of all.
    sources: Vec<IpAddr>,
    /// Index of the interface by which the group was joined last.
    index: Option<u32>,
}

/// What following a membership has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Followed {
    /// The socket is a member as before.
    Same,
    /// It has joined anew.
    Joined,
    /// There is no interface to join by. The socket hears nothing until there is.
    Absent,
}

impl Membership {
    /// The membership that a listener at this address should have, not joined yet. `None` if the address is no group.
    pub fn wanted(addr: SocketAddr, options: &ListenOptions) -> Option<Membership> {
        let group = addr.ip();
        group.is_multicast().then(|| Membership {
            group,
            interface: options.multicast_interface.clone().or_else(|| options.interface.clone()),
            sources: options.multicast_sources.clone(),
            index: None,
        })
    }

    /// Joins the group.
    ///
    /// # Errors
    /// `ENODEV` when there is no such interface, and none is named and no route leads to the group; any of `setsockopt(2)`.
    pub fn join(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let index = self.interface_now()?;
        self.join_by(socket, index)
    }

    /// Joins the group anew if the socket is no longer a member of it by the interface that is to be used. Call it after changes of
    /// this host.
    ///
    /// # Errors
    /// Any of `setsockopt(2)`.
    pub fn follow(&mut self, socket: BorrowedFd<'_>) -> io::Result<Followed> {
        let Ok(index) = self.interface_now() else {
            self.leave(socket);
            return Ok(Followed::Absent);
        };
        if self.index == Some(index) && is_joined_by(self.group, index) {
            return Ok(Followed::Same);
        }
        self.leave(socket);
        self.join_by(socket, index)?;
        Ok(Followed::Joined)
    }

    /// Takes a membership that the socket already has by the interface to be used now.
    pub fn note_joined(&mut self) {
        self.index = self.interface_now().ok();
    }

    fn join_by(&mut self, socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
        if self.sources.is_empty() {
            set(socket.as_raw_fd(), self.level(), MCAST_JOIN_GROUP, &self.request(index))?;
        }
        for source in &self.sources {
            let request =
                GroupSourceRequest { group: self.request(index), source: storage(*source) };
            set(socket.as_raw_fd(), self.level(), MCAST_JOIN_SOURCE_GROUP, &request)?;
        }
        self.index = Some(index);
        Ok(())
    }

    /// Drops what is left of the former membership: each counts towards `net.ipv4.igmp_max_memberships`.
    fn leave(&mut self, socket: BorrowedFd<'_>) {
        if let Some(index) = self.index.take() {
            // It may be gone already.
            let _ = set(socket.as_raw_fd(), self.level(), MCAST_LEAVE_GROUP, &self.request(index));
        }
    }

    fn request(&self, index: u32) -> GroupRequest {
        GroupRequest { index, group: storage(self.group) }
    }

    fn level(&self) -> libc::c_int {
        if self.group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 }
    }

    /// The interface by which the group is to be joined now.
    fn interface_now(&self) -> io::Result<u32> {
        let no_device = || io::Error::from(crate::Errno::NODEV);
        match &self.interface {
            Some(name) => match name.parse::<Ipv4Addr>() {
                Ok(addr) => Routes::open()?.interface_of(addr.into())?.ok_or_else(no_device),
                Err(_) => interface_index(name),
            },
            None => {
                let ends = Ends { dst: SocketAddr::new(self.group, 0), src: None };
                let index = Routes::open()?.route(&ends).map_or(0, |egress| egress.interface_index);
                if index == 0 { Err(no_device()) } else { Ok(index) }
            }
        }
    }
}

/// Whether any socket of this host has joined the group by the interface. `true` if that cannot be read.
fn is_joined_by(group: IpAddr, index: u32) -> bool {
    match group {
        IpAddr::V4(group) => {
            let table = std::fs::read_to_string("/proc/net/igmp");
            table.map_or(true, |table| has_v4(&table, group, index))
        }
        IpAddr::V6(group) => {
            let table = std::fs::read_to_string("/proc/net/igmp6");
            let octets = group.octets().map(|octet| format!("{octet:02x}")).concat();
            let has = |line: &str| {
                let mut words = line.split_whitespace();
                let of = words.next().and_then(|word| word.parse::<u32>().ok());
                of == Some(index) && words.nth(1) == Some(octets.as_str())
            };
            table.map_or(true, |table| table.lines().any(has))
        }
    }
}

/// Whether `/proc/net/igmp` has the group: a line for each interface, which begins with its index, and below it one for each group,
/// as a number in this host's byte order.
fn has_v4(table: &str, group: Ipv4Addr, index: u32) -> bool {
    let group = format!("{:08X}", u32::from_ne_bytes(group.octets()));
    let mut is_of = false;
    table.lines().skip(1).any(|line| {
        let word = line.split_whitespace().next().unwrap_or_default();
        if !line.starts_with('\t') {
            is_of = word.parse() == Ok(index);
            return false;
        }
        is_of && word == group
    })
}

/// `struct group_req` (linux/in.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct GroupRequest {
    index: u32,
    group: libc::sockaddr_storage,
}

/// `struct group_source_req` (linux/in.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct GroupSourceRequest {
    group: GroupRequest,
    source: libc::sockaddr_storage,
}

// The kernel aligns its storage for a pointer (linux/socket.h, _K_SS_ALIGNSIZE).
const _: () = assert!(
    mem::offset_of!(GroupRequest, group) == mem::size_of::<usize>()
        && mem::size_of::<GroupSourceRequest>() == mem::size_of::<usize>() + 2 * 128
);

/// linux/in.h.
const MCAST_JOIN_GROUP: libc::c_int = 42;
const MCAST_LEAVE_GROUP: libc::c_int = 45;
const MCAST_JOIN_SOURCE_GROUP: libc::c_int = 46;

fn storage(ip: IpAddr) -> libc::sockaddr_storage {
    let addr = socket2::SockAddr::from(SocketAddr::new(ip, 0));
    // SAFETY: an all-zero `sockaddr_storage` is valid: it consists of integers.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    // SAFETY: `addr` holds `addr.len()` initialized bytes, at most the size of `sockaddr_storage`, of which both are integers.
    unsafe {
        std::ptr::copy_nonoverlapping(
            addr.as_ptr().cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            addr.len() as usize,
        );
    }
    storage
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::listen_udp;
    use std::os::fd::AsFd;

    const TABLE: &str = "Idx\tDevice    : Count Querier\tReporter\n\
        1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n\
        12\tm0        :     2      V3\n\t\t\t\t030201EF     1 0:00000000\t\t0\n\t\t\t\t010000E0     1 0:00000000\t\t0\n";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_table_of_groups_is_read() {
        let group = Ipv4Addr::new(239, 1, 2, 3);
        assert!(has_v4(TABLE, group, 12) && !has_v4(TABLE, group, 1) && !has_v4(TABLE, group, 2));
        assert!(has_v4(TABLE, Ipv4Addr::new(224, 0, 0, 1), 1));
    }

    #[test]
    fn a_membership_that_is_there_stays_and_one_that_is_gone_is_joined_anew() {
        for group in ["239.255.77.9:0", "[ff15::77:9]:0"] {
            let group: SocketAddr = group.parse().unwrap();
            let options = ListenOptions {
                multicast_interface: Some("lo".to_owned()),
                ..ListenOptions::default()
            };
            let socket = listen_udp(group, &options).unwrap();
            let mut membership = Membership::wanted(group, &options).unwrap();
            membership.note_joined();
            assert_eq!(membership.follow(socket.as_fd()).unwrap(), Followed::Same);
            // As after the interface was deleted and made again: the socket still has the entry, and the interface has no group.
            membership.leave(socket.as_fd());
            assert_eq!(membership.follow(socket.as_fd()).unwrap(), Followed::Joined);
            membership.interface = Some("no-such-link".to_owned());
            assert_eq!(membership.follow(socket.as_fd()).unwrap(), Followed::Absent);
        }
        let unicast = "127.0.0.1:0".parse().unwrap();
        assert!(Membership::wanted(unicast, &ListenOptions::default()).is_none());
    }
}
