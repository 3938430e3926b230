//! Questions to rtnetlink: how a destination is reached, and which queues stand at the device that it leaves by.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// How datagrams to one destination leave this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// The destination is this host: what is sent is delivered before the call returns, and so is an ICMP error about it.
    pub is_local: bool,
    /// The destination is a broadcast address: what is sent comes back to sockets of this host too.
    pub is_broadcast: bool,
    /// Index of the device, 0 if unknown.
    pub interface_index: u32,
    /// Kinds of the queueing disciplines at that device (`noqueue`, `fq_codel`, `tbf`, …).
    pub queue_kinds: Vec<String>,
}

impl Egress {
    /// A queue at this device may cut a `UDP_SEGMENT` message into datagrams and drop a part of them without an error.
    pub fn may_drop_within_messages(&self) -> bool {
        self.queue_kinds
            .iter()
            .any(|kind| matches!(kind.as_str(), "tbf" | "cake" | "netem" | "taprio"))
    }
}

/// Asks the kernel for the route to `dst` and the queues of its device.
///
/// # Errors
/// `ENETUNREACH` when there is no route; any error of the netlink socket.
pub fn egress(dst: IpAddr) -> io::Result<Egress> {
    let mut netlink = Netlink::open()?;
    let mut egress = Egress::default();
    netlink.ask(&route_request(dst), |kind, body| {
        if kind == RTM_NEWROUTE && body.len() >= RTMSG_BYTES {
            // struct rtmsg (linux/rtnetlink.h): rtm_type is its eighth byte.
            egress.is_local = body[7] == RTN_LOCAL;
            egress.is_broadcast = body[7] == RTN_BROADCAST;
            egress.interface_index = attribute(&body[RTMSG_BYTES..], RTA_OIF)
                .and_then(|value| value.try_into().ok())
                .map_or(0, u32::from_ne_bytes);
        }
    })?;
    let wanted = egress.interface_index;
    netlink.ask(&queue_request(), |kind, body| {
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

const NETLINK_ROUTE: i32 = 0;
/// Whether the next hop towards `dst` did not answer when the kernel last asked for its link address.
///
/// Linux before 5.0 answers for no single neighbour; there it is always an error.
///
/// # Errors
/// `ENOENT` when the kernel knows no such neighbour; any other error of the netlink socket.
pub fn neighbour_has_failed(dst: IpAddr) -> io::Result<bool> {
    let mut netlink = Netlink::open()?;
    let mut hop = octets(dst);
    let mut interface = 0_u32.to_ne_bytes();
    netlink.ask(&route_request(dst), |kind, body| {
        if kind == RTM_NEWROUTE && body.len() >= RTMSG_BYTES {
            let attributes = &body[RTMSG_BYTES..];
            if let Some(index) = attribute(attributes, RTA_OIF).and_then(|v| v.try_into().ok()) {
                interface = index;
            }
            if let Some(gateway) = attribute(attributes, RTA_GATEWAY) {
                hop = gateway.to_vec();
            }
        }
    })?;
    // struct ndmsg (linux/neighbour.h): family and padding (4 bytes), ndm_ifindex, ndm_state (2 bytes), flags and type.
    let mut body = vec![0; NDMSG_BYTES];
    body[0] = family(dst);
    body[4..8].copy_from_slice(&interface);
    append_attribute(&mut body, NDA_DST, &hop);
    let mut has_failed = false;
    netlink.ask(&request(RTM_GETNEIGH, NLM_F_REQUEST, &body), |kind, body| {
        if kind == RTM_NEWNEIGH && body.len() >= NDMSG_BYTES {
            let state = u16::from_ne_bytes([body[8], body[9]]);
            has_failed = state & (NUD_FAILED | NUD_INCOMPLETE) != 0;
        }
    })?;
    Ok(has_failed)
}

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const NDA_DST: u16 = 1;
const NUD_INCOMPLETE: u16 = 0x01;
const NUD_FAILED: u16 = 0x20;
const TCA_KIND: u16 = 1;
const RTN_LOCAL: u8 = 2;
const RTN_BROADCAST: u8 = 3;
const NLMSGHDR_BYTES: usize = 16;
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

fn route_request(dst: IpAddr) -> Vec<u8> {
    let addr = octets(dst);
    let mut body = vec![0; RTMSG_BYTES];
    body[0] = family(dst);
    body[1] = addr.len() as u8 * 8;
    append_attribute(&mut body, RTA_DST, &addr);
    request(RTM_GETROUTE, NLM_F_REQUEST, &body)
}

/// Appends an attribute whose value is a multiple of four bytes long.
fn append_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
}

fn queue_request() -> Vec<u8> {
    request(RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, &[0; TCMSG_BYTES])
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(NLMSGHDR_BYTES + body.len());
    message.extend_from_slice(&((NLMSGHDR_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&[0; 8]); // sequence number and port id: one question at a time, the kernel's answer
    message.extend_from_slice(body);
    message
}

struct Netlink(File);

impl Netlink {
    fn open() -> io::Result<Netlink> {
        let socket = socket2::Socket::new(
            socket2::Domain::from(libc::AF_NETLINK),
            socket2::Type::RAW.cloexec(),
            Some(socket2::Protocol::from(NETLINK_ROUTE)),
        )?;
        // The kernel answers at once; a limit keeps a surprise from hanging the caller.
        socket.set_read_timeout(Some(std::time::Duration::from_secs(2)))?;
        Ok(Netlink(File::from(OwnedFd::from(socket))))
    }

    /// Sends one request and hands every message of the answer to `each`, as type and body.
    fn ask(&mut self, request: &[u8], mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.0.write_all(request)?;
        let is_dump = u16::from_ne_bytes([request[6], request[7]]) & NLM_F_DUMP != 0;
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let len = self.0.read(&mut buffer)?;
            let mut rest = &buffer[..len];
            while let Some((kind, body, next)) = split_message(rest) {
                rest = next;
                match kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let code = body.get(..4).and_then(|code| code.try_into().ok());
                        return match code.map_or(0, i32::from_ne_bytes) {
                            0 => Ok(()),
                            code => Err(io::Error::from_raw_os_error(-code)),
                        };
                    }
                    kind => each(kind, body),
                }
            }
            if !is_dump {
                return Ok(());
            }
        }
    }
}

/// Splits `struct nlmsghdr` and its body off the front; `None` at the end or at a length that lies.
fn split_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(NLMSGHDR_BYTES..len)?;
    let next = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, next))
}

/// Finds an attribute (`struct rtattr`: length, type, value, padded to four) by its type.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
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
    fn loopback_is_no_neighbour_that_failed() {
        assert!(!neighbour_has_failed("127.0.0.1".parse().unwrap()).unwrap_or(false));
        assert!(!neighbour_has_failed("::1".parse().unwrap()).unwrap_or(false));
    }

    #[test]
    fn lengths_that_lie_end_the_walk() {
        assert_eq!(split_message(&[255; 20]), None);
        assert_eq!(attribute(&[0, 0, 0, 0], 1), None);
        assert_eq!(attribute(&[255, 0, 1, 0], 1), None);
    }
}
