//! The kernel's counters for a UDP socket on this host that another program reads, through `sock_diag`. Needs no privilege.

use crate::Errno;
use crate::netlink::Protocol;
use crate::netlink::ask::{Asker, attribute};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A receiving socket and its drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivingSocket {
    /// A number unique to this socket in its namespace until the host reboots.
    pub cookie: u64,
    /// Datagrams from any sender dropped at it since it was opened. Wraps at 2^32.
    pub dropped_datagrams: u32,
}

/// A netlink socket for these queries. Do not use it on a thread that moves data: the kernel may load a module to answer.
pub struct Receivers(Asker);

impl Receivers {
    /// Opens the socket, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Any error of the netlink socket.
    pub fn open() -> io::Result<Receivers> {
        Ok(Receivers(Asker::open_on(Protocol::SockDiag)?))
    }

    /// The socket that receives what `from` sends to `to`; `None` when there is none, or when the kernel cannot say (no
    /// `udp_diag`). Of several sockets on one port it is the one that the kernel selects for these two ends.
    ///
    /// # Errors
    /// Any other error of the netlink socket.
    pub fn find(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<Option<ReceivingSocket>> {
        let mut found = None;
        let answer = self.0.ask((SOCK_DIAG_BY_FAMILY, 0), &question(from, to), |kind, body| {
            if kind == SOCK_DIAG_BY_FAMILY {
                found = socket_of(body);
            }
        });

        match answer {
            Ok(()) | Err(Errno::NOENT) => Ok(found),
            Err(errno) => Err(errno.into()),
        }
    }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// Index of the drops in it (`SK_MEMINFO_DROPS`).
const DROPS: usize = 8;
const INET_DIAG_MSG_BYTES: usize = 72;

/// `struct inet_diag_req_v2` (linux/inet_diag.h). The lookup works as for an incoming datagram, so the "source" is our end
/// (net/ipv4/udp_diag.c, udp_dump_one).
fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut body = vec![family as u8, libc::IPPROTO_UDP as u8];
    // The wanted attributes as bits, and padding; then the state mask, with all states set.
    body.extend_from_slice(&[1 << (INET_DIAG_SKMEMINFO - 1), 0]);
    body.extend_from_slice(&u32::MAX.to_ne_bytes());
    body.extend_from_slice(&from.port().to_be_bytes());
    body.extend_from_slice(&to.port().to_be_bytes());
    body.extend_from_slice(&sixteen(from.ip()));
    body.extend_from_slice(&sixteen(to.ip()));
    // Any device; any cookie (INET_DIAG_NOCOOKIE).
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&[255; 8]);
    body
}

fn sixteen(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// `struct inet_diag_msg` and its attributes.
fn socket_of(body: &[u8]) -> Option<ReceivingSocket> {
    // Family, state, timer and retransmits (4 bytes), ports, addresses and device (40), then the cookie.
    let cookie = u64::from_ne_bytes(body.get(44..52)?.try_into().ok()?);
    let memory = attribute(body.get(INET_DIAG_MSG_BYTES..)?, INET_DIAG_SKMEMINFO)?;
    let drops = memory.get(DROPS * 4..DROPS * 4 + 4)?.try_into().ok()?;
    Some(ReceivingSocket { cookie, dropped_datagrams: u32::from_ne_bytes(drops) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn check(host: &str) {
        let (receiver, sender) = (UdpSocket::bind(host).unwrap(), UdpSocket::bind(host).unwrap());
        let (from, to) = (sender.local_addr().unwrap(), receiver.local_addr().unwrap());
        let mut receivers = Receivers::open().unwrap();
        let before = receivers.find(from, to).unwrap().expect("the socket is there");
        assert_eq!(before.dropped_datagrams, 0);
        crate::socket::set_receive_buffer(receiver.as_fd(), 1).unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1_000], to).unwrap();
        }
        let after = receivers.find(from, to).unwrap().unwrap();
        let own = crate::socket::mem_info(receiver.as_fd()).unwrap();
        assert!(own.dropped_datagrams > 0);
        let dropped_datagrams = own.dropped_datagrams;
        assert_eq!(after, ReceivingSocket { cookie: before.cookie, dropped_datagrams });
        drop(receiver);
        assert_eq!(receivers.find(from, to).unwrap(), None);
    }

    #[test]
    fn the_drops_of_a_receiver_are_its_own() {
        check("127.0.0.1:0");
        check("[::1]:0");
    }
}
