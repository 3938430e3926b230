//! A target at a UDP address.

use super::{Target, TargetConfig};
use crate::address::{Host, HostPort};
use crate::document::{TRUTH_VALUE, Value};
use crate::form::{Bool, Choice, Form, OrOff, Slot, Span, size, text, whole};
use crate::host::{
    Absence, Finding, Severity, interface as interface_there, not_ours, udp_receiver,
};
use crate::keys::keys;
use crate::listener::{ListenerConfig, overlap};
use crate::name::interface as interface_name;
use crate::reader::{Placed, Reader, Report};
use relay::{Gso, Header, SenderSockets, SourceAddress};
use serde_json::Value as Json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use sys::process::{CAP_NET_ADMIN, CAP_NET_RAW, effective_capabilities};
use sys::socket::SendOptions;

keys! {
    /// What a target at a UDP address has.
    pub struct UdpTarget in "listener.target" of "UDP targets" given {
        /// Unicast, multicast or broadcast.
        addr: HostPort
    } {
        /// Send buffer to ask the kernel for, in bytes of its own accounting. It grants at most
        /// twice `net.core.wmem_max`. From 208KiB on, the kernel loses datagrams in silence while it looks
        /// for the next hop's link address.
        send_buffer => send_buffer_bytes: Option<usize> = size(4 << 10, 1 << 30), unset("128KiB");
        /// Address that the datagrams leave from.
        source_address => source_address: Option<IpAddr> =
            text("IP address of this host", source_address), unset("chosen by route");
        /// Port that the datagrams leave from, for receivers that know their clients by address and port.
        source_port => source_port: Option<u16> = whole(1, 65_535), unset("chosen by the kernel");
        /// Whether the datagrams leave from the address that sent them here, so that the receiver knows its clients by it. `true`, or
        /// `address`: the port is that of this host. `address+port`: the sender's port too, by a socket for each sender. Needs
        /// `CAP_NET_RAW`, and for ports below 1024 `CAP_NET_BIND_SERVICE`. What comes back for them goes to their senders: that a receiver refuses them is not
        /// known here. Networks on the way may drop what does not come from this host (`rp_filter`, BCP 38, rules of a cloud).
        preserve_source => preserve_source: PreserveSource = PreserveSourceForm, default(PreserveSource::No);
        /// Most sockets of senders at a time. Of more senders, one that was not heard for long gives its socket up, which costs a
        /// few system calls (`sender_turnover`) and loses nothing. Each takes a descriptor.
        source_sockets => source_sockets_max: usize = whole(1, 65_536), default(4_096)
            where |target| target.preserve_source == PreserveSource::AddressAndPort,
            "only preserve_source = \"address+port\" has a socket for each sender. Fix: write that, or remove the key";
        /// What says in each datagram who sent it, for receivers that cannot see it because a network on the way lets nothing
        /// pass that does not come from this host. `proxy-v2`: a header in front, which the receiver must know (PROXY
        /// protocol version 2; Weir's own `trust_header_from` does). `syslog-origin`: in RFC 5424 messages the
        /// parameter `ip` of the element `origin`, in RFC 3164 messages with a time the host name. Every datagram leaves
        /// as a message of its own.
        header => header: Option<Header> = Choice(&[
            ("proxy-v2", Header::PROXY_V2),
            ("syslog-origin", Header::SyslogOrigin),
        ]), unset("the datagrams leave as they are");
        /// Time to live, or hop limit.
        ttl => ttl: Option<u8> = whole(1, 255),
            unset("the kernel's: 64 for one receiver, 1 for a multicast group");
        /// Differentiated services code point (RFC 2474).
        dscp => dscp: Option<u8> = whole(0, 63), unset("0");
        /// Whether runs of datagrams of equal length leave in one system call message. `auto` does
        /// so where the way out takes it and cannot lose a part of it unseen.
        gso => gso: Gso = Choice(&[("auto", Gso::Auto), ("off", Gso::Off)]), default(Gso::Auto);
        /// Interface, or VRF, by which alone the datagrams leave, whatever the routes of others say (`SO_BINDTODEVICE`). Kernels before 5.7
        /// want `CAP_NET_RAW`.
        interface => interface: Option<String> = text("interface name", interface_name), unset("chosen by route");
        /// Whether `source_address` may be one that this host does not have yet, as on the standby of a pair (`IP_FREEBIND`).
        freebind => freebind: bool = Bool, default(false)
            where |target| target.source_address.is_some(),
            "there is no source_address to bind. Fix: remove the key";
        /// How often a new socket takes the place of the open one, with another source port, so that a load balancer or the address
        /// translation on the way chooses anew. The next socket is open before the old one is closed.
        rebind_interval => rebind_interval: Option<Duration> =
            OrOff(Span(Duration::from_secs(1), Duration::from_secs(86_400))), default(None)
            where |target| target.source_port.is_none(),
            "source_port is fixed. Fix: remove one of the two keys";
        /// Interface by which datagrams to a multicast group leave.
        multicast_interface => multicast_interface: Option<String> = text("interface name", interface_name),
            unset("the kernel chooses by its routes");
        /// How often a host name is resolved again. A changed address opens the next socket before
        /// the old one is closed.
        resolve_interval => resolve_interval: Duration =
            Span(Duration::from_secs(1), Duration::from_secs(86_400)), default(Duration::from_secs(30));
    }
}

/// The part of the sender's address that a target preserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PreserveSource {
    No,
    Address,
    AddressAndPort,
}

/// `true` and `false`, or a word.
struct PreserveSourceForm;

impl PreserveSourceForm {
    const WORDS: Choice<PreserveSource> = Choice(&[
        ("address", PreserveSource::Address),
        ("address+port", PreserveSource::AddressAndPort),
    ]);
}

impl Form for PreserveSourceForm {
    type Value = PreserveSource;

    fn describe(&self) -> String {
        format!("{}, {}", Bool.describe().replace(" or", ","), Self::WORDS.describe())
    }

    fn read(&self, slot: &Slot<'_>) -> Option<PreserveSource> {
        let is_word = match slot.value {
            Value::Text(_) => true,
            Value::Bare(text) => text.parse::<bool>().is_err(),
            Value::Other { what, .. } => *what != TRUTH_VALUE,
            _ => false,
        };
        if is_word {
            return Self::WORDS.read(slot);
        }
        Bool.read(slot).map(|is_kept| match is_kept {
            true => PreserveSource::Address,
            false => PreserveSource::No,
        })
    }

    fn show(&self, value: &PreserveSource) -> Json {
        match value {
            PreserveSource::No => false.into(),
            PreserveSource::Address | PreserveSource::AddressAndPort => Self::WORDS.show(value),
        }
    }
}

fn source_address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| "it is not an IP address. Fix: write one that `ip address` lists".to_owned())
}

impl UdpTarget {
    /// The options for opening its socket.
    pub fn send_options(&self) -> SendOptions {
        SendOptions {
            source_address: self.source_address,
            source_port: self.source_port,
            ttl: self.ttl,
            dscp: self.dscp,
            send_buffer_bytes: self.send_buffer_bytes,
            multicast_interface: self.multicast_interface.clone(),
            interface: self.interface.clone(),
            is_free: self.freebind,
            // "Fragmentation needed" goes to the sender whose address the datagram carries.
            is_fragmented_by_routers: self.keeps_source(),
            is_transparent: self.keeps_source(),
            is_answered: false,
        }
    }

    /// Whether its datagrams carry the addresses of their senders.
    pub fn keeps_source(&self) -> bool {
        self.preserve_source != PreserveSource::No
    }

    /// The source address that its receiver at `to` sees.
    pub fn seen_from(&self, to: SocketAddr) -> SourceAddress {
        match (self.preserve_source, self.header) {
            (PreserveSource::No, None) => SourceAddress::Own,
            (PreserveSource::No, Some(header)) => SourceAddress::Said(header),
            (PreserveSource::Address, _) => SourceAddress::Kept,
            (PreserveSource::AddressAndPort, _) => SourceAddress::KeptWithPort(SenderSockets {
                to,
                options: self.send_options(),
                count_max: self.source_sockets_max,
            }),
        }
    }

    /// Most sockets that it has at a time. While its address changes, one more is open.
    pub fn sockets_max(&self) -> usize {
        match self.preserve_source {
            PreserveSource::AddressAndPort => 1 + self.source_sockets_max,
            PreserveSource::No | PreserveSource::Address => 1,
        }
    }

    pub(super) fn examine(
        &self,
        what: &str,
        listen_addrs: &[SocketAddr],
        findings: &mut Vec<Finding>,
    ) {
        findings.extend(udp_receiver(what, &self.addr, self.source_address, listen_addrs));
        let source = self.source_address.filter(|_| !self.freebind);
        findings.extend(source.and_then(|ip| {
            not_ours(what, "source_address ", SocketAddr::new(ip, 0), Absence::TargetDrops)
        }));
        for name in [&self.multicast_interface, &self.interface] {
            findings.extend(interface_there(what, name.as_deref(), Absence::TargetDrops));
        }
        let may = (1 << CAP_NET_RAW) | (1 << CAP_NET_ADMIN);
        if self.keeps_source() && effective_capabilities().unwrap_or_default() & may == 0 {
            let message = "preserve_source needs CAP_NET_RAW, which this process does not have";
            let finding = Finding::new(Severity::Warning, what, message);
            findings.push(
                finding
                    .because("the daemon does not start without it")
                    .fixed_by("AmbientCapabilities=CAP_NET_RAW in the unit"),
            );
        }
    }

    pub(super) fn check(&self, reader: &Reader<'_>) {
        if self.keeps_source() && self.header.is_some() {
            let message = "the receiver sees the sender by its address or reads it. Fix: remove one of header and preserve_source";
            reader.error(&UdpTarget::header, message);
        }
        if self.preserve_source == PreserveSource::AddressAndPort && self.source_port.is_some() {
            let message = "the datagrams leave from one port or from those of their senders. Fix: remove the key, or write preserve_source = \"address\"";
            reader.error(&UdpTarget::source_port, message);
        }
        if self.keeps_source() && self.source_address.is_some() {
            let message = "the datagrams leave from one address or from those of their senders. Fix: remove one of source_address and preserve_source";
            reader.error(&UdpTarget::preserve_source, message);
        }

        let Host::Ip(ip) = self.addr.host else { return };
        let family = |ip: IpAddr| if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        if let Some(source) = self.source_address.filter(|own| own.is_ipv4() != ip.is_ipv4()) {
            let (from, to) = (family(source), family(ip));
            let message = format!(
                "{source} is {from} and the target {ip} is {to}. Fix: write an {to} address"
            );
            reader.error(&UdpTarget::source_address, message);
        }
        if self.multicast_interface.is_some() && !ip.is_multicast() {
            let message = format!("{ip} is not a multicast group. Fix: remove the key");
            reader.error(&UdpTarget::multicast_interface, message);
        }
    }
}

/// Refuses a fixed source port that one of our listeners binds.
pub(super) fn port_is_taken<'a>(
    report: &Report,
    mut listeners: impl Iterator<Item = &'a ListenerConfig>,
    placed: &Placed<TargetConfig>,
) {
    let Target::Udp(target) = &placed.thing.to else { return };
    let source = target.source_address.or_else(|| match target.addr.host {
        Host::Ip(IpAddr::V4(_)) => Some(Ipv4Addr::UNSPECIFIED.into()),
        Host::Ip(IpAddr::V6(_)) => Some(Ipv6Addr::UNSPECIFIED.into()),
        Host::Name(_) => None,
    });
    let (Some(port), Some(source)) = (target.source_port, source) else { return };

    let holds = |listener: &&ListenerConfig| {
        let on = listener.listen.port().and_then(HostPort::known);
        on.is_some_and(|on| on.port() == port && (on.ip() == source || overlap(on.ip(), source)))
    };
    if let Some(owner) = listeners.find(holds) {
        let message = format!(
            "port {port} is held by listener {} ({}), so nothing can be sent from it. Fix: choose another",
            owner.name, owner.listen
        );
        placed.error(report, &UdpTarget::source_port, message);
    }
}
