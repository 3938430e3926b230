//! Rtnetlink queries: how a destination is reached, which queues its outgoing device has, and whether the next hop answers;
//! and the kernel's events when any of that changes.

mod watch;

pub use watch::{Change, Watch};

use crate::netlink::ask::{Asker, NLM_F_DUMP, append_attribute, attribute};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How datagrams to one destination leave this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// The destination is this host: a datagram is delivered before the send call returns, and so is an ICMP error about it.
    pub is_local: bool,
    /// The destination is a broadcast address: sockets on this host receive the datagrams too.
    pub is_broadcast: bool,
    /// Index of the device, 0 if unknown.
    pub interface_index: u32,
    /// The first receiver of the datagrams: a gateway, or the destination itself. `None` if the route names no device.
    pub next_hop: Option<NextHop>,
    /// Kinds of the queueing disciplines at that device (`noqueue`, `fq_codel`, `tbf`, …).
    pub queue_kinds: Vec<String>,
}

impl Egress {
    /// Whether a queue at this device may split a `UDP_SEGMENT` message into datagrams and drop some of them without an
    /// error.
    pub fn may_drop_within_messages(&self) -> bool {
        self.queue_kinds
            .iter()
            .any(|kind| matches!(kind.as_str(), "tbf" | "cake" | "netem" | "taprio"))
    }
}

/// A neighbor: an address at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// Index of the device.
    pub interface_index: u32,
    /// Address of the gateway or of the destination.
    pub address: IpAddr,
}

/// What the kernel knows about a neighbor (`ndm_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Neighbour {
    /// There is no entry, or no answer was ever recorded.
    #[default]
    Unknown,
    /// Requested, no answer yet (`NUD_INCOMPLETE`): datagrams wait for it.
    Awaited,
    /// It did not answer (`NUD_FAILED`): the datagrams that waited for it were dropped.
    Failed,
    /// Its link address is known, or none is needed: nothing waits for it.
    Known,
}

/// The two ends of a route query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The destination. Its scope id chooses the device, as it does for `connect`.
    pub dst: SocketAddr,
    /// The source address of the datagrams, if known: routing rules may depend on it.
    pub src: Option<SocketAddr>,
}

/// Asks the kernel for the route to `dst` and the queues of its device.
///
/// # Errors
/// `ENETUNREACH` when there is no route; any error of the netlink socket.
pub fn egress(dst: IpAddr) -> io::Result<Egress> {
    Routes::open()?.egress(&Ends { dst: SocketAddr::new(dst, 0), src: None })
}

/// Whether this is an address of this host: one that it receives, or one of an interface, which may be down or in a VRF.
///
/// # Errors
/// Any error of the netlink socket.
pub fn is_own(addr: SocketAddr) -> io::Result<bool> {
    let mut routes = Routes::open()?;
    let addr = match addr.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::from((v4, addr.port())),
        IpAddr::V6(_) => addr,
    };
    match routes.route(&Ends { dst: addr, src: None }) {
        Ok(egress) if egress.is_local => return Ok(true),
        Ok(_) => {}
        Err(error) => match error.kind() {
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {}
            _ => return Err(error),
        },
    }
    routes.interface_of(addr.ip()).map(|found| found.is_some())
}

/// A netlink socket for many queries. A query may wait for the kernel's lock over its tables (RTNL), which others may hold
/// for seconds, so do not use it on a thread that moves data.
pub struct Routes(Asker);

impl Routes {
    /// Opens the socket, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Any error of the netlink socket.
    pub fn open() -> io::Result<Routes> {
        Ok(Routes(Asker::open()?))
    }

    /// Queries the route between the ends and the queues of its device.
    ///
    /// When several next hops share a route (ECMP), the answer is the one that the kernel's hash of the addresses selects; a
    /// hash that includes ports (`fib_multipath_hash_policy` 1) may select another for the datagrams.
    ///
    /// # Errors
    /// `ENETUNREACH` when there is no route; any error of the netlink socket.
    pub fn egress(&mut self, ends: &Ends) -> io::Result<Egress> {
        let mut egress = self.route(ends)?;

        // A local destination leaves by loopback, whose queues are passed before the send call returns.
        let wanted = egress.interface_index;
        self.0.ask((RTM_GETQDISC, NLM_F_DUMP), &[0; TCMSG_BYTES], |kind, body| {
            // struct tcmsg: family and padding (4 bytes), then tcm_ifindex.
            if kind == RTM_NEWQDISC
                && body.len() >= TCMSG_BYTES
                && body[4..8] == wanted.to_ne_bytes()
                && let Some(name) = attribute(&body[TCMSG_BYTES..], TCA_KIND)
            {
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                egress.queue_kinds.push(String::from_utf8_lossy(name).into_owned());
            }
        })?;

        Ok(egress)
    }

    /// Queries only the route, which waits for no lock.
    ///
    /// # Errors
    /// As [`Self::egress`].
    pub fn route(&mut self, ends: &Ends) -> io::Result<Egress> {
        let mut egress = Egress::default();
        let dst = ends.dst.ip();

        self.0.ask((RTM_GETROUTE, 0), &route_question(ends), |kind, body| {
            if kind == RTM_NEWROUTE && body.len() >= RTMSG_BYTES {
                // struct rtmsg (linux/rtnetlink.h): rtm_type is its eighth byte.
                egress.is_local = body[7] == RTN_LOCAL;
                egress.is_broadcast = body[7] == RTN_BROADCAST;
                egress.next_hop = next_hop(dst, &body[RTMSG_BYTES..]);
                egress.interface_index = egress.next_hop.map_or(0, |hop| hop.interface_index);
            }
        })?;

        Ok(egress)
    }

    /// Queries the interface that has an address of this host. `None` when none has.
    ///
    /// # Errors
    /// Any error of the netlink socket.
    pub fn interface_of(&mut self, addr: IpAddr) -> io::Result<Option<u32>> {
        // struct ifaddrmsg (linux/if_addr.h): family, prefix length, flags and scope (a byte each), then the index.
        let mut question = [0; IFADDRMSG_BYTES];
        question[0] = family(addr);
        let wanted = octets(addr);
        let mut found = None;
        self.0.ask((RTM_GETADDR, NLM_F_DUMP), &question, |kind, body| {
            // Where there is no other end, IPv6 has only the one (net/ipv6/addrconf.c, inet6_fill_ifaddr).
            let own = |attributes| {
                attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))
            };
            if kind == RTM_NEWADDR
                && body.len() >= IFADDRMSG_BYTES
                && own(&body[IFADDRMSG_BYTES..]) == Some(wanted.as_slice())
            {
                found = body[4..8].try_into().ok().map(u32::from_ne_bytes);
            }
        })?;
        Ok(found)
    }

    /// Queries what the kernel knows about a neighbor.
    ///
    /// # Errors
    /// Any error of the netlink socket except "no such neighbour". Linux before 5.0 cannot be asked about a single neighbor.
    pub fn neighbour(&mut self, hop: &NextHop) -> io::Result<Neighbour> {
        // struct ndmsg (linux/neighbour.h): family and padding (4 bytes), ndm_ifindex, ndm_state (2 bytes), flags and type.
        let mut body = vec![0; NDMSG_BYTES];
        body[0] = family(hop.address);
        body[4..8].copy_from_slice(&hop.interface_index.to_ne_bytes());
        append_attribute(&mut body, NDA_DST, &octets(hop.address));

        let mut found = Neighbour::Unknown;
        let answer = self.0.ask((RTM_GETNEIGH, 0), &body, |kind, body| {
            if let (RTM_NEWNEIGH, Some((_, state))) = (kind, neighbour_of(body)) {
                found = state;
            }
        });

        match answer {
            Ok(()) | Err(crate::Errno::NOENT) => Ok(found),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The next hop in the attributes of a route to `dst`.
fn next_hop(dst: IpAddr, attributes: &[u8]) -> Option<NextHop> {
    let interface_index = u32::from_ne_bytes(attribute(attributes, RTA_OIF)?.try_into().ok()?);
    let gateway = attribute(attributes, RTA_GATEWAY).and_then(address);
    // struct rtvia: family (2 bytes), then an address, which may be of the other family (RFC 5549).
    let via = || attribute(attributes, RTA_VIA).and_then(|via| address(via.get(2..)?));
    let address = gateway.or_else(via).unwrap_or(dst);
    Some(NextHop { interface_index, address })
}

/// The neighbor that a message is about, and its state.
fn neighbour_of(body: &[u8]) -> Option<(NextHop, Neighbour)> {
    let interface_index = u32::from_ne_bytes(body.get(4..8)?.try_into().ok()?);
    let state = u16::from_ne_bytes(body.get(8..10)?.try_into().ok()?);
    let address = address(attribute(body.get(NDMSG_BYTES..)?, NDA_DST)?)?;
    let state = match state {
        state if state & NUD_FAILED != 0 => Neighbour::Failed,
        state if state & NUD_INCOMPLETE != 0 => Neighbour::Awaited,
        0 => Neighbour::Unknown,
        _ => Neighbour::Known,
    };
    Some((NextHop { interface_index, address }, state))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    let v6 = || <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into());
    v4().or_else(|_| v6()).ok()
}

const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFADDRMSG_BYTES: usize = 8;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;
const NDA_DST: u16 = 1;
const NUD_INCOMPLETE: u16 = 0x01;
const NUD_FAILED: u16 = 0x20;
const TCA_KIND: u16 = 1;
const RTN_LOCAL: u8 = 2;
const RTN_BROADCAST: u8 = 3;
const RTMSG_BYTES: usize = 12;
const TCMSG_BYTES: usize = 20;
const NDMSG_BYTES: usize = 12;

fn family(addr: IpAddr) -> u8 {
    (if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// `struct rtmsg` (linux/rtnetlink.h) and the addresses.
fn route_question(ends: &Ends) -> Vec<u8> {
    let dst = octets(ends.dst.ip());
    let mut body = vec![0; RTMSG_BYTES];
    body[0] = family(ends.dst.ip());
    body[1] = dst.len() as u8 * 8;
    append_attribute(&mut body, RTA_DST, &dst);

    if let Some(src) = ends.src.map(|src| src.ip()).filter(|src| !src.is_unspecified()) {
        body[2] = dst.len() as u8 * 8;
        append_attribute(&mut body, RTA_SRC, &octets(src));
    }

    if let SocketAddr::V6(v6) = ends.dst
        && v6.scope_id() != 0
    {
        append_attribute(&mut body, RTA_OIF, &v6.scope_id().to_ne_bytes());
    }

    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local_and_has_no_dropping_queue() {
        let egress = egress("127.0.0.1".parse().unwrap()).unwrap();
        assert!(egress.is_local && !egress.is_broadcast);
        assert_eq!(egress.queue_kinds, ["noqueue"]);
        assert!(!egress.may_drop_within_messages());
    }

    #[test]
    fn the_broadcast_address_of_loopback_is_known_as_one() {
        assert!(egress("127.255.255.255".parse().unwrap()).unwrap().is_broadcast);
    }

    #[test]
    fn the_interface_of_an_address_is_found() {
        let mut routes = Routes::open().unwrap();
        let lo = crate::socket::interface_index("lo").unwrap();
        let mut find = |ip: &str| routes.interface_of(ip.parse().unwrap()).unwrap();
        assert_eq!(["127.0.0.1", "::1", "192.0.2.1"].map(&mut find), [Some(lo), Some(lo), None]);
    }

    #[test]
    fn an_address_is_this_host_s_own_or_not() {
        assert!(is_own("127.0.0.1:1".parse().unwrap()).unwrap());
        assert!(is_own("[::ffff:127.0.0.1]:1".parse().unwrap()).unwrap());
        assert!(!is_own("192.0.2.1:1".parse().unwrap()).unwrap());
        assert!(!is_own("[2001:db8::1]:1".parse().unwrap()).unwrap());
    }

    #[test]
    fn loopback_is_no_neighbour_that_failed() {
        let mut routes = Routes::open().unwrap();
        for loopback in ["127.0.0.1:9", "[::1]:9"] {
            let ends = Ends { dst: loopback.parse().unwrap(), src: None };
            let hop = routes.egress(&ends).unwrap().next_hop.unwrap();
            assert_eq!(hop.address, ends.dst.ip());
            let state = routes.neighbour(&hop).unwrap();
            assert!(matches!(state, Neighbour::Unknown | Neighbour::Known), "{state:?}");
        }
    }

    #[test]
    fn a_gateway_of_the_other_family_is_the_next_hop() {
        let mut attributes = Vec::new();
        append_attribute(&mut attributes, RTA_OIF, &7_u32.to_ne_bytes());
        let dst = "192.0.2.1".parse().unwrap();
        assert_eq!(next_hop(dst, &attributes), Some(NextHop { interface_index: 7, address: dst }));
        let gateway: Ipv6Addr = "fe80::1".parse().unwrap();
        let via = [&10_u16.to_ne_bytes()[..], &gateway.octets()].concat();
        append_attribute(&mut attributes, RTA_VIA, &via);
        let address = gateway.into();
        assert_eq!(next_hop(dst, &attributes), Some(NextHop { interface_index: 7, address }));
    }
}
