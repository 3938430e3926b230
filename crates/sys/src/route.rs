//! Questions to rtnetlink: how a destination is reached, and which queues stand at the device that it leaves by.

use crate::netlink::ask::{Asker, NLM_F_DUMP, append_attribute, attribute};
use std::io;
use std::net::IpAddr;

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
    let mut netlink = Asker::open()?;
    let mut egress = Egress::default();
    netlink.ask((RTM_GETROUTE, 0), &route_question(dst), |kind, body| {
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
    netlink.ask((RTM_GETQDISC, NLM_F_DUMP), &[0; TCMSG_BYTES], |kind, body| {
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

/// Whether the next hop towards `dst` did not answer when the kernel last asked for its link address.
///
/// Linux before 5.0 answers for no single neighbour; there it is always an error.
///
/// # Errors
/// `ENOENT` when the kernel knows no such neighbour; any other error of the netlink socket.
pub fn neighbour_has_failed(dst: IpAddr) -> io::Result<bool> {
    let mut netlink = Asker::open()?;
    let mut hop = octets(dst);
    let mut interface = 0_u32.to_ne_bytes();
    netlink.ask((RTM_GETROUTE, 0), &route_question(dst), |kind, body| {
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
    netlink.ask((RTM_GETNEIGH, 0), &body, |kind, body| {
        if kind == RTM_NEWNEIGH && body.len() >= NDMSG_BYTES {
            let state = u16::from_ne_bytes([body[8], body[9]]);
            has_failed = state & (NUD_FAILED | NUD_INCOMPLETE) != 0;
        }
    })?;
    Ok(has_failed)
}

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

/// `struct rtmsg` (linux/rtnetlink.h) and the destination.
fn route_question(dst: IpAddr) -> Vec<u8> {
    let addr = octets(dst);
    let mut body = vec![0; RTMSG_BYTES];
    body[0] = family(dst);
    body[1] = addr.len() as u8 * 8;
    append_attribute(&mut body, RTA_DST, &addr);
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
    fn loopback_is_no_neighbour_that_failed() {
        assert!(!neighbour_has_failed("127.0.0.1".parse().unwrap()).unwrap_or(false));
        assert!(!neighbour_has_failed("::1".parse().unwrap()).unwrap_or(false));
    }
}
