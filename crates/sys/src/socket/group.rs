//! Several sockets on one port: who may join, and which of them receives a datagram.

use super::listen::{ListenOptions, new_listener};
use super::{FilterInstruction, set, set_int, set_program};
use crate::recv::{Aggregates, Ask, ReceiveBatch, Sources, Stamps, Wait};
use socket2::Socket;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most sockets in one group.
pub const MEMBERS_MAX: usize = 64;

/// Which socket of a group receives a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Balance {
    /// A random one for each datagram, whatever its flow: evenly.
    #[default]
    Even,
    /// The same one for all datagrams of a flow, by the kernel's hash of addresses and ports.
    Flow,
    /// The one with the number of the CPU that received the datagram, modulo the number of sockets.
    Cpu,
}

/// A socket that will share another one's port and is not bound yet: nothing arrives at it.
#[derive(Debug)]
pub struct Joining {
    socket: Socket,
    addr: SocketAddr,
}

impl Joining {
    /// Opens a socket for the address of another one with the same options, which must allow it ([`share_port`]).
    ///
    /// # Errors
    /// Any of `socket(2)` or `setsockopt(2)`.
    pub fn open(addr: SocketAddr, options: &ListenOptions) -> io::Result<Joining> {
        let socket = new_listener(addr, options)?;
        set_int(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        Ok(Joining { socket, addr })
    }

    /// The socket, so that a reader can be ready before it is bound.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone().map(OwnedFd::from)
    }

    /// Binds it; from then on it receives its share.
    ///
    /// # Errors
    /// `EADDRINUSE` when the other socket belongs to another user, or does not allow sharing; any other of `bind(2)`.
    pub fn bind(self) -> io::Result<()> {
        self.socket.bind(&self.addr.into())
    }
}

/// Lets sockets of the same user join this one's port. Set it after its own bind: if that bind was exclusive, nobody else has the
/// port already (net/ipv4/udp.c, udp_lib_lport_inuse; net/core/sock_reuseport.c, reuseport_add_sock).
///
/// # Errors
/// None for a socket.
pub fn share_port(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_int(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

/// Stops others from joining. Set it only when nobody shares the port: the setting of a group's first socket decides whether
/// datagrams go to the group.
///
/// # Errors
/// None for a socket.
pub fn unshare_port(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_int(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 0)
}

/// Spreads what arrives at this socket's port over the first `members` of its group from now on, in the order in which they were
/// bound. Needs no privilege.
///
/// # Errors
/// `EINVAL` for a socket that is not in a group, or no members; `ENOENT` is never returned.
pub fn spread(socket: BorrowedFd<'_>, balance: Balance, members: usize) -> io::Result<()> {
    // include/uapi/linux/filter.h: loads from these offsets return metadata of the packet, not its bytes.
    const AD_OFF: u32 = -0x1000_i32 as u32;
    const AD_CPU: u32 = 36;
    const AD_RANDOM: u32 = 56;
    let instruction = |code, k| FilterInstruction { code, jt: 0, jf: 0, k };
    let by = |what: u32| {
        [
            instruction(0x20 /* BPF_LD | BPF_W | BPF_ABS */, AD_OFF.wrapping_add(what)),
            instruction(0x94 /* BPF_ALU | BPF_MOD | BPF_K */, members as u32),
            instruction(0x16 /* BPF_RET | BPF_A */, 0),
        ]
    };

    match balance {
        Balance::Even => attach(socket, &by(AD_RANDOM)),
        Balance::Cpu => attach(socket, &by(AD_CPU)),
        Balance::Flow => detach(socket),
    }
}

/// Directs everything that arrives at the port to the first socket of the group from now on.
///
/// # Errors
/// `EINVAL` for a socket that is not in a group.
pub fn gather(socket: BorrowedFd<'_>) -> io::Result<()> {
    let first = FilterInstruction { code: 0x06 /* BPF_RET | BPF_K */, jt: 0, jf: 0, k: 0 };
    attach(socket, &[first])
}

fn attach(socket: BorrowedFd<'_>, program: &[FilterInstruction]) -> io::Result<()> {
    set_program(socket, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Leaves the choice to the kernel's hash.
fn detach(socket: BorrowedFd<'_>) -> io::Result<()> {
    match set_int(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0) {
        // There was no program.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

/// Turns the kernel's timestamps of arriving datagrams on or off. They start with a delay ([`await_stamps`]); until then a
/// datagram's time is the time when it was read.
///
/// # Errors
/// None for a socket.
pub fn stamp_arrivals(socket: BorrowedFd<'_>, stamps: Stamps) -> io::Result<()> {
    let on = libc::c_int::from(stamps == Stamps::Wanted);
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)
}

/// Waits until the kernel timestamps arrivals, for at most `limit`: it turns timestamps on for the whole host in a thread of its
/// own, when the first socket asks for them (net/core/dev.c, net_enable_timestamp). Returns whether it does.
///
/// To find out, it sends a datagram to itself and reads it later: the timestamp is either the time of sending or the time of
/// reading.
pub fn await_stamps(limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        match (has_stamps(Ipv4Addr::LOCALHOST.into()), has_stamps(Ipv6Addr::LOCALHOST.into())) {
            (Ok(true), _) | (_, Ok(true)) => return true,
            // No loopback device is up here, so there is nothing to try it on.
            (Err(_), Err(_)) => std::thread::sleep(deadline - Instant::now().min(deadline)),
            _ => {}
        }
    }
    false
}

fn has_stamps(ip: std::net::IpAddr) -> io::Result<bool> {
    const DWELL: Duration = Duration::from_millis(5);
    let socket = UdpSocket::bind((ip, 0))?;
    stamp_arrivals(socket.as_fd(), Stamps::Wanted)?;
    socket.connect(socket.local_addr()?)?;
    socket.send(b"")?;
    let sent_ns = crate::clock::realtime_ns();
    std::thread::sleep(DWELL);

    let mut batch = ReceiveBatch::with_buffer_bytes(64);
    let (sources, stamps) = (Sources::Unwanted, Stamps::Wanted);
    batch.receive_into(
        socket.as_fd(),
        Wait::No,
        Ask { count_max: 1, sources, stamps, aggregates: Aggregates::Never, room: None },
    )?;
    let stamp_ns = batch.datagrams().next().and_then(|one| one.stamp_unix_ns);
    Ok(stamp_ns.is_some_and(|stamp_ns| stamp_ns <= sent_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::listen_udp;

    fn group(count: usize) -> (SocketAddr, Vec<OwnedFd>) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let first = listen_udp(any, &ListenOptions::default()).unwrap();
        let crate::socket::LocalAddress::Inet(addr) =
            crate::socket::local_address(first.as_fd()).unwrap()
        else {
            unreachable!()
        };
        let stranger = Joining::open(addr, &ListenOptions::default()).unwrap().bind();
        assert_eq!(stranger.unwrap_err().kind(), io::ErrorKind::AddrInUse, "nobody was let in");

        share_port(first.as_fd()).unwrap();
        let mut sockets = vec![first];
        for _ in 1..count {
            let joining = Joining::open(addr, &ListenOptions::default()).unwrap();
            sockets.push(joining.socket().unwrap());
            joining.bind().unwrap();
        }
        let stranger = listen_udp(addr, &ListenOptions::default());
        let refused = stranger.unwrap_err().kind();
        assert_eq!(refused, io::ErrorKind::AddrInUse, "who begins alone is not let in");
        (addr, sockets)
    }

    fn send(to: SocketAddr, count: usize) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..count {
            socket.send_to(b"x", to).unwrap();
        }
    }

    fn received(socket: &OwnedFd) -> usize {
        let mut batch = ReceiveBatch::with_buffer_bytes(64);
        let mut count = 0;
        while let Ok(more) = batch.receive(socket.as_fd(), Wait::No) {
            count += more;
        }
        count
    }

    #[test]
    fn one_flow_is_spread_evenly_gathered_and_left_to_the_hash() {
        let (addr, sockets) = group(4);
        spread(sockets[0].as_fd(), Balance::Even, 4).unwrap();
        let mut counts = [0; 4];
        for _ in 0..100 {
            send(addr, 100);
            counts.iter_mut().zip(&sockets).for_each(|(count, socket)| *count += received(socket));
        }
        // Binomial with n = 10,000 and p = 1/4: six standard deviations are 260.
        assert!(counts.iter().all(|count| (2_240..2_760).contains(count)), "{counts:?}");

        spread(sockets[0].as_fd(), Balance::Even, 2).unwrap();
        send(addr, 100);
        assert_eq!(received(&sockets[2]) + received(&sockets[3]), 0);
        assert_eq!(received(&sockets[0]) + received(&sockets[1]), 100);

        gather(sockets[0].as_fd()).unwrap();
        send(addr, 100);
        assert_eq!(received(&sockets[0]), 100);

        spread(sockets[0].as_fd(), Balance::Flow, 4).unwrap();
        send(addr, 100);
        let counts: Vec<_> = sockets.iter().map(received).collect();
        assert!(counts.contains(&100), "{counts:?}");
    }

    #[test]
    fn stamps_come_within_a_moment() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        stamp_arrivals(socket.as_fd(), Stamps::Wanted).unwrap();
        assert!(await_stamps(Duration::from_secs(10)));
    }
}
