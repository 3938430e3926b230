//! The protocol of a socket, as far as a message reveals it.

use std::fmt;

use crate::inet_diag::request::{IPPROTO_MPTCP, IPPROTO_TCP, SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK};
use crate::inet_diag::tcp_info::TCP_INFO_MIN_BYTES;
use crate::inet_diag::{Family, SOCKET_HEADER_BYTES, State, attribute};
use crate::netlink::{Attributes, Message, NLM_F_MULTI};

/// `DCCPDIAG_GETSOCK`: the older request for DCCP, and its replies.
pub(super) const DCCPDIAG_GETSOCK: u16 = 19;
/// `INET_DIAG_REQ_PROTOCOL`, which takes precedence over the byte in the request.
const REQUEST_PROTOCOL: u16 = 3;
/// Bytes of `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;

const AF_TIPC: u8 = 30;
/// The other families known to `sock_diag`, by number (`include/linux/socket.h`).
const FAMILIES: &[(u8, &str)] = &[
    (1, "unix"),
    (16, "netlink"),
    (17, "packet"),
    (AF_TIPC, "TIPC"),
    (40, "vsock"),
    (43, "SMC"),
    (44, "XDP"),
];

/// A protocol whose sockets the kernel can list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// Another protocol over IPv4 or IPv6, by number: UDP 17, SCTP 132, raw sockets 255, MPTCP 262.
    Inet(u32),
    /// Sockets of another address family, by Linux's number: unix 1, netlink 16, packet 17.
    Family(u8),
}

impl fmt::Display for Protocol {
    /// `TCP`, `UDP`, `unix`, or a number where there is no name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Tcp => "TCP",
            Self::Inet(17) => "UDP",
            Self::Inet(33) => "DCCP",
            Self::Inet(132) => "SCTP",
            Self::Inet(136) => "UDP-Lite",
            Self::Inet(255) => "raw",
            Self::Inet(262) => "MPTCP",
            Self::Inet(number) => return write!(f, "IP protocol {number}"),
            Self::Family(number) => match FAMILIES.iter().find(|(known, _)| known == number) {
                Some((_, name)) => name,
                None => return write!(f, "address family {number}"),
            },
        };
        f.write_str(name)
    }
}

impl Protocol {
    const RAW: Self = Self::Inet(255);
    const SCTP: Self = Self::Inet(132);
    const DCCP: Self = Self::Inet(33);
    const MPTCP: Self = Self::Inet(IPPROTO_MPTCP as u32);

    const fn inet(number: u32) -> Self {
        if number == IPPROTO_TCP as u32 { Self::Tcp } else { Self::Inet(number) }
    }

    /// The protocol that a request asks for; `None` if the request is too short.
    pub(super) fn of_request(message: &Message<'_>) -> Option<Self> {
        match message.kind {
            TCPDIAG_GETSOCK => Some(Self::Tcp),
            DCCPDIAG_GETSOCK => Some(Self::DCCP),
            _ => {
                let [family, protocol]: [u8; 2] = *message.body.first_chunk()?;
                if Family::from_number(family).is_err() {
                    return Some(Self::Family(family));
                }
                let attributes = message.body.get(REQUEST_BYTES..).unwrap_or_default();
                let large = Attributes::new(attributes).flatten().find_map(|(kind, payload)| {
                    let bytes = *payload.first_chunk().filter(|_| kind == REQUEST_PROTOCOL)?;
                    Some(u32::from_ne_bytes(bytes))
                });
                Some(Self::inet(large.unwrap_or_else(|| protocol.into())))
            }
        }
    }

    /// The protocol of the socket that a reply or event itself reveals; `None` if it fits several.
    ///
    /// Only TCP has minisockets, names a congestion control, and fills at least 104 bytes of `INET_DIAG_INFO`: MPTCP
    /// fills 96 in Linux 6.18, SCTP comes with its addresses, UDP with none of these.
    pub(super) fn of_reply(message: &Message<'_>) -> Option<Self> {
        match message.kind {
            TCPDIAG_GETSOCK => return Some(Self::Tcp),
            DCCPDIAG_GETSOCK => return Some(Self::DCCP),
            _ => {}
        }

        let [family, state]: [u8; 2] = *message.body.first_chunk()?;

        if Family::from_number(family).is_err() {
            return FAMILIES
                .iter()
                .any(|(known, _)| *known == family)
                .then_some(Self::Family(family));
        }

        let is_remnant = matches!(
            State::from_number(state),
            State::SynReceived | State::TimeWait | State::NewSynReceived
        );
        let mut said = is_remnant.then_some(Self::Tcp);

        let attributes = message.body.get(SOCKET_HEADER_BYTES..).unwrap_or_default();
        for (kind, payload) in Attributes::new(attributes).flatten() {
            match kind {
                // The kernel includes the number in events, and in replies only for raw sockets (`inet_sk_diag_fill`).
                attribute::PROTOCOL if is_event(message) => {
                    return payload.first().map(|number| Self::inet((*number).into()));
                }
                attribute::PROTOCOL => return Some(Self::RAW),
                attribute::LOCALS | attribute::PEERS => return Some(Self::SCTP),
                attribute::INFO => {
                    let is_whole = payload.len() >= TCP_INFO_MIN_BYTES;
                    said = said.or(Some(if is_whole { Self::Tcp } else { Self::MPTCP }));
                }
                attribute::CONG
                | attribute::VEGASINFO
                | attribute::DCTCPINFO
                | attribute::BBRINFO
                | attribute::ULP_INFO
                | attribute::MD5SIG => said = Some(Self::Tcp),
                _ => {}
            }
        }

        said
    }
}

/// Whether the kernel multicast it: to no port, and not in reply to a request.
pub(super) const fn is_event(message: &Message<'_>) -> bool {
    message.kind == SOCK_DIAG_BY_FAMILY
        && message.port_id == 0
        && message.sequence == 0
        && message.flags & NLM_F_MULTI == 0
}

/// A number for families whose requests and replies belong together: the same for IPv4 and IPv6, because a lookup by
/// mapped addresses finds a socket of the other family. `None` for a number that `sock_diag` does not know, or that
/// replies do not carry.
pub(super) fn kin(protocol: Option<Protocol>) -> Option<u8> {
    match protocol? {
        Protocol::Tcp | Protocol::Inet(_) => Some(Family::Inet.number()),
        Protocol::Family(AF_TIPC) => None,
        Protocol::Family(family) => Some(family),
    }
}

/// The [`kin`] of a reply, by its first byte.
pub(super) fn kin_of_reply(message: &Message<'_>) -> Option<u8> {
    let family = *message.body.first()?;
    match Family::from_number(family) {
        Ok(_) => Some(Family::Inet.number()),
        Err(_) => FAMILIES.iter().any(|(known, _)| *known == family).then_some(family),
    }
}
