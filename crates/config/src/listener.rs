//! `[[listener]]`: where datagrams are received.

use crate::address::{Host, HostPort, ListenAddress};
use crate::document::Table;
use crate::flows::FLOWS_NAME;
use crate::form::{
    Bool, Choice, Kind, List, OrAuto, OrOff, PREFIXES, Span, parsed, size, text, whole,
};
use crate::host::{
    Absence, Finding, Severity, both_families, interface as interface_there, not_ours,
    one_of_several, resolved, unix_listener,
};
use crate::keys::{Section, Values, keys};
use crate::loops::would_loop;
use crate::name::{NAME, interface as interface_name, name_of};
use crate::paths::is_same_file;
use crate::reader::{Placed, Reader, Report, repeated};
use crate::sockets::COLLECTOR_NAME;
use crate::target::{self, TargetConfig};
use crate::threshold::EVENTS_NAME;
use crate::time_zone::{ABBREVIATIONS, NETWORKS, NetworkZone, TIME_ZONE, TimeZone};
use crate::unix_listener::UnixListener;
use crate::weir_listener::WeirListener;
use relay::{ListenerOptions, Order, Prefix, Schedule, SocketOwner};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use sys::cpus::CpuList;
use sys::socket::{Balance, ListenOptions, MEMBERS_MAX};

pub(crate) const SECTION: Section = Section {
    path: "listener",
    header: "[[listener]]",
    tables: &[ListenerConfig::TABLE, UdpListener::TABLE, UnixListener::TABLE, WeirListener::TABLE],
    subsections: &["target"],
};

/// The default receive buffer of a listener, in bytes as the kernel accounts them.
pub const RECEIVE_BUFFER_BYTES: usize = 16 << 20;

keys! {
    /// A listener and its targets.
    pub struct ListenerConfig in "listener" given {
        /// At least one, names differ.
        targets: Vec<TargetConfig>
    } {
        /// Name in the ledger and in metrics. No two listeners share one.
        name => name: String = NAME, derived("the text of `listen`", name_of(&listen));
        /// Where datagrams are received. `:PORT` is every IPv4 address of this host, `[::]:PORT` every IPv6
        /// address; a multicast address is a group to join; port 0 lets the kernel choose one.
        listen => listen: Listen = LISTEN, chosen();
        /// Memory that holds the datagrams which targets have still to send, whatever the number of
        /// targets. Rounded up to a power of two.
        ring_size => ring_bytes: usize = size(relay::RING_BYTES_MIN as u64, 64 << 30), default(8 << 20);
        /// Who sends: the receiving thread itself (`inline`) or threads of their own (`threaded`). `auto` is
        /// inline on at most two processors or with one target.
        schedule => schedule: Schedule = Choice(&[
            ("auto", Schedule::Auto),
            ("inline", Schedule::Inline),
            ("threaded", Schedule::Threaded),
        ]), default(Schedule::Auto);
        /// How long a datagram may be kept waiting for others, so that they share a wake-up and its calls. Only where
        /// at least one more is likely to come in that time, from 12500 a second on with `80us`. `off`: never.
        gather => gather: Option<Duration> =
            OrOff(Span(Duration::from_micros(10), Duration::from_millis(1))), default(None);
        /// Processors that its threads run on, such as `0-3` or `0,2,4-7`: those that receive take turns, those that send have all of them.
        /// Threads of files and sinks run anywhere.
        cpus => cpus: Option<CpuList> = text("processors, such as `0-3`", parsed::<CpuList>),
            unset("any that this process may use");
        /// The zone of times in syslog messages that name none: a name of the IANA database, whose daylight saving applies, an offset, or
        /// `local` for this host's. The offsets are read with the configuration. Only for sinks with `parse = "syslog"`.
        time_zone => time_zone: TimeZone = TIME_ZONE, default(TimeZone::utc());
        /// The zones of senders in some networks: `time_zones = { "10.1.0.0/16" = "Europe/Vienna" }`. The longest prefix counts, and before
        /// the `time_zone` of the listener and of the sink.
        time_zones => time_zones: BTreeMap<String, NetworkZone> = NETWORKS, empty("one zone for all")
            where ListenerConfig::has_source_addresses, "its datagrams have no source address. Fix: write time_zone";
        /// Words behind times that name a zone here: `time_zone_abbreviations = { CEST = "+02:00" }`. Besides them `UTC` and `GMT` are known;
        /// any other word that can only be a zone leaves the time in `time_zone`.
        time_zone_abbreviations => time_zone_abbreviations: BTreeMap<String, TimeZone> = ABBREVIATIONS, empty("none");
    }
}

keys! {
    /// What a listener on a UDP port has.
    pub struct UdpListener in "listener" of "UDP listeners" given {
        /// A multicast address is a group to join. Port 0 lets the kernel choose one.
        addr: HostPort,
        /// Whether other listeners have the port too, at other addresses.
        shares_port: bool
    } {
        /// Receive buffer to ask the kernel for, in bytes of its own accounting (a datagram of 200 bytes is
        /// charged 1280). Without `CAP_NET_ADMIN` it grants at most twice `net.core.rmem_max`; what it
        /// granted is printed at the start.
        receive_buffer => receive_buffer_bytes: usize = size(4 << 10, 1 << 30),
            default(RECEIVE_BUFFER_BYTES);
        /// Source addresses that may pass, such as `10.0.0.0/8` or `2001:db8::1`; the others are counted as denied.
        allow_sources => allow_sources: Vec<Prefix> = PREFIXES, empty("all sources");
        /// Source addresses that may not pass, even if `allow_sources` has them.
        deny_sources => deny_sources: Vec<Prefix> = PREFIXES, empty("none");
        /// How many sockets have the port, each with a thread and a ring of its own: what one thread cannot read, several can,
        /// of a single sender too. `auto` begins with one and adds another whenever the reading of one is what datagrams are
        /// lost by. The sockets belong to this program: one that a service manager hands over stays alone.
        sockets => sockets: Option<usize> = OrAuto(whole(1, MEMBERS_MAX as u64)), default(Some(1));
        /// How long a receive call that finds nothing looks at the network card's queue before it sleeps, which saves an interrupt and a wake-up
        /// and takes a processor. Only for cards whose drivers can (not loopback). Some kernels want `CAP_NET_ADMIN` for more than `net.core.busy_read`.
        busy_poll => busy_poll: Option<Duration> =
            OrOff(Span(Duration::from_micros(1), Duration::from_millis(10))), default(None);
        /// How the kernel hands datagrams over: each alone (`single`), or those of one sender and length together (`gro`), which
        /// takes less time where they arrive together: from a network card, or a sender that hands them over so. What the kernel drops
        /// then is counted by a program of ours in it, which takes `CAP_BPF` or the `helper` of `[daemon]`; without, the drops
        /// are marked as the fewest that it can have been. `auto`: together where every drop is counted.
        receive => receive: ReceiveMode = Choice(&[
            ("single", ReceiveMode::Single),
            ("gro", ReceiveMode::Gro),
            ("auto", ReceiveMode::Auto),
        ]), default(ReceiveMode::Single);
        /// Which of several sockets a datagram goes to: to each in turn of chance, whatever the senders (`even`), all of a sender's
        /// port to the same (`flow`), or to the one of the processor that received it (`cpu`).
        balance => balance: Balance = Choice(&[
            ("even", Balance::Even),
            ("flow", Balance::Flow),
            ("cpu", Balance::Cpu),
        ]), default(Balance::Even) where UdpListener::has_group, "with one socket there is nothing to choose";
        /// In which order datagrams of several sockets leave: as they arrived at this host (`arrival`), or as they are read
        /// (`none`), which costs a little less.
        order => order: Ordering = Choice(&[
            ("arrival", Ordering::Arrival),
            ("none", Ordering::None),
        ]), default(Ordering::Arrival) where UdpListener::has_group, "one socket keeps the order by itself";
        /// Longest time that datagrams wait for a socket's thread that does not run and may have older ones. Those leave late then,
        /// and are counted as `overtaken`. Nothing waits for a thread that runs.
        order_wait => order_wait: Duration = Span(Duration::from_millis(1), Duration::from_secs(10)),
            default(Duration::from_millis(100))
            where |udp| udp.has_group() && udp.order == Ordering::Arrival, "nothing waits for the sake of an order";
        /// Senders that put a PROXY header (version 2) in front of each datagram, such as a Weir with `header = "proxy-v2"`. It is taken
        /// off, and the sender that it names counts as the datagram's: for `allow_sources` and `only_sources`, in records, and
        /// where it is passed on. Without a valid one their datagrams are dropped (`bad_header`). Those of others stay as they
        /// are. Whoever can send from such an address can name any sender.
        trust_header_from => trust_header_from: Vec<Prefix> = PREFIXES, empty("nobody");
        /// Interface by which a multicast group is joined.
        multicast_interface => multicast_interface: Option<String> =
            text("interface name, or its IPv4 address", interface_name),
            unset("the kernel chooses by its routes");
        /// The only senders to the group whose datagrams are wanted (source-specific multicast, RFC 4607). In 232.0.0.0/8 and ff3x::/32
        /// routers bring no others.
        multicast_sources => multicast_sources: Vec<IpAddr> = SOURCES, empty("all");
        /// Interface, or VRF, by which alone datagrams arrive (`SO_BINDTODEVICE`). Kernels before 5.7 want `CAP_NET_RAW`.
        interface => interface: Option<String> = text("interface name", interface_name), unset("all of them");
        /// Whether the address is bound although this host does not have it yet, as on the standby of a pair (`IP_FREEBIND`). Without,
        /// the listener waits until it has.
        freebind => freebind: bool = Bool, default(false);
    }
}

/// Senders to a multicast group.
const SOURCES: List<IpAddr> = List { of: "IP addresses", parse: parsed };

/// Whether datagrams received on several sockets are forwarded in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ordering {
    Arrival,
    None,
}

/// How the kernel delivers received datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveMode {
    /// One at a time.
    Single,
    /// Coalesced where possible (GRO).
    Gro,
    /// Coalesced if the kernel counts the datagrams it drops.
    Auto,
}

/// Where a listener receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Udp(UdpListener),
    /// A unix datagram socket.
    Unix(UnixListener),
    /// A UDP port that receives repaired links from other Weirs.
    Weir(WeirListener),
    /// The lines of standard input, each a datagram.
    Stdin,
}

const LISTEN: Kind<Listen> = Kind {
    form: || {
        "`udp://HOST:PORT`, `HOST:PORT`, `:PORT`, `unix:/path` or `weir://HOST:PORT`".to_owned()
    },
    read: |slot| match slot.parse(str::parse)? {
        ListenAddress::Udp(addr) => UdpListener::read(slot.reader, addr, false).map(Listen::Udp),
        ListenAddress::Stdin => Some(Listen::Stdin),
        ListenAddress::Unix(path) => UnixListener::read(slot.reader, path).map(Listen::Unix),
        ListenAddress::Weir(addr) => WeirListener::read(slot.reader, addr).map(Listen::Weir),
    },
};

impl Listen {
    /// The address alone.
    pub fn address(&self) -> ListenAddress {
        match self {
            Listen::Udp(udp) => ListenAddress::Udp(udp.addr.clone()),
            Listen::Unix(unix) => ListenAddress::Unix(unix.path.clone()),
            Listen::Weir(weir) => ListenAddress::Weir(weir.addr.clone()),
            Listen::Stdin => ListenAddress::Stdin,
        }
    }

    fn values(&self) -> Values {
        match self {
            Listen::Udp(udp) => udp.values(),
            Listen::Unix(unix) => unix.values(),
            Listen::Stdin => Vec::new(),
            Listen::Weir(weir) => weir.values(),
        }
    }

    /// Its UDP port.
    pub fn port(&self) -> Option<&HostPort> {
        match self {
            Listen::Udp(udp) => Some(&udp.addr),
            Listen::Weir(weir) => Some(&weir.addr),
            Listen::Unix(_) | Listen::Stdin => None,
        }
    }

    /// Whether the two cannot be bound at the same time.
    fn is_same_socket(&self, other: &Listen) -> bool {
        if let (Listen::Unix(this), Listen::Unix(other)) = (self, other) {
            return is_same_file(&this.path, &other.path);
        }
        if (self, other) == (&Listen::Stdin, &Listen::Stdin) {
            return true;
        }
        if let (Listen::Udp(this), Listen::Udp(other)) = (self, other)
            && let (Some(this), Some(other)) = (&this.interface, &other.interface)
            && this != other
        {
            // The kernel keeps ports apart by the interface that they are bound to (net/ipv4/udp.c, udp_lib_lport_inuse).
            return false;
        }
        match (self.port(), other.port()) {
            (Some(this), Some(other)) => {
                this.port == other.port
                    && this.port != 0
                    && match (&this.host, &other.host) {
                        // A port on the wildcard address excludes the same port on any other address (udp(7)); multicast groups
                        // share ports.
                        (Host::Ip(this), Host::Ip(other)) => {
                            this == other || overlap(*this, *other)
                        }
                        (this, other) => this == other,
                    }
            }
            _ => false,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

impl ListenerConfig {
    /// The settings of a listener on a UDP port.
    pub fn udp(&self) -> Option<&UdpListener> {
        match &self.listen {
            Listen::Udp(udp) => Some(udp),
            Listen::Unix(_) | Listen::Weir(_) | Listen::Stdin => None,
        }
    }

    /// The settings of a listener for other Weirs.
    pub fn weir(&self) -> Option<&WeirListener> {
        match &self.listen {
            Listen::Weir(weir) => Some(weir),
            Listen::Udp(_) | Listen::Unix(_) | Listen::Stdin => None,
        }
    }

    /// The receive buffer that it asks the kernel for, in bytes as the kernel accounts them; 0 if the senders are charged
    /// instead.
    pub fn receive_buffer_bytes(&self) -> usize {
        match &self.listen {
            Listen::Udp(udp) => udp.receive_buffer_bytes,
            Listen::Weir(weir) => weir.receive_buffer_bytes,
            Listen::Unix(_) | Listen::Stdin => 0,
        }
    }

    /// The unix socket that it listens on.
    pub fn unix_path(&self) -> Option<&Path> {
        match &self.listen {
            Listen::Unix(unix) => Some(&unix.path),
            Listen::Udp(_) | Listen::Weir(_) | Listen::Stdin => None,
        }
    }

    /// The relay's options for this listener.
    pub fn listener_options(&self, socket_owner: SocketOwner) -> ListenerOptions {
        let sources =
            |of: fn(&UdpListener) -> &Vec<Prefix>| self.udp().map(of).cloned().unwrap_or_default();
        ListenerOptions {
            name: self.name.clone(),
            ring_bytes: self.ring_bytes,
            schedule: self.schedule,
            allow_sources: sources(|udp| &udp.allow_sources),
            deny_sources: sources(|udp| &udp.deny_sources),
            trust_header_from: sources(|udp| &udp.trust_header_from),
            socket_owner,
            gather: self.gather,
            balance: self.udp().map_or_else(Balance::default, |udp| udp.balance),
            cpus: self.cpus.clone().unwrap_or_default(),
            sockets_max: self.sockets_max(),
            // Its keys are in a file, which is read when the listener is opened.
            link: None,
            order: match self.udp() {
                Some(udp) if udp.order == Ordering::None => Order::None,
                Some(udp) => Order::Arrival { wait: udp.order_wait },
                None => Order::default(),
            },
        }
    }

    /// Number of sockets at the start.
    pub fn sockets(&self) -> usize {
        self.udp().and_then(|udp| udp.sockets).unwrap_or(1)
    }

    /// Most sockets that it may have.
    pub fn sockets_max(&self) -> usize {
        match self.udp() {
            Some(UdpListener { sockets: None, .. }) => sockets_at_most(),
            _ => self.sockets(),
        }
    }

    /// The message about processors that this process may not use, with the fix; `None` if it may use all of them.
    pub fn missing_cpus(&self) -> Option<String> {
        let wanted = self.cpus.as_ref()?;
        // If they cannot be read on this host, the threads will report it.
        let there = CpuList::of_this_thread().ok()?;
        let missing = wanted.without(&there);
        (!missing.is_empty()).then(|| {
            format!(
                "cpus = \"{wanted}\": this process may not run on {missing}. Fix: write cpus = \"{there}\", or allow it more \
                 (AllowedCPUs= of the unit, the cpuset of the container)"
            )
        })
    }

    /// Whether only its targets differ, or how rows are made of its datagrams: on reload its socket and ring are then kept.
    pub fn is_same_listener(&self, other: &ListenerConfig) -> bool {
        let alone = |config: &ListenerConfig| ListenerConfig {
            targets: Vec::new(),
            time_zone: TimeZone::utc(),
            time_zones: BTreeMap::new(),
            time_zone_abbreviations: BTreeMap::new(),
            ..config.clone()
        };
        alone(self) == alone(other)
    }

    /// Checks what it needs of this host, and appends the addresses that it would listen on to `addrs`.
    pub(crate) fn examine(&self, addrs: &mut Vec<SocketAddr>, findings: &mut Vec<Finding>) {
        let what = format!("listener {}", self.name);
        findings.extend(self.missing_cpus().map(|why| Finding::new(Severity::Error, &what, why)));
        let addr = match &self.listen {
            Listen::Udp(udp) => &udp.addr,
            Listen::Weir(weir) => &weir.addr,
            Listen::Unix(unix) => return findings.push(unix_listener(&what, unix)),
            Listen::Stdin => return,
        };

        match resolved(&what, addr, Severity::Warning) {
            Ok(found) => {
                // `freebind` needs no address.
                if self.udp().is_none_or(|udp| !udp.freebind) {
                    let waits = |at: &SocketAddr| not_ours(&what, "", *at, Absence::ListenerWaits);
                    findings.extend(found.iter().filter_map(waits));
                }
                if self.udp().is_some_and(|udp| udp.is_dual(&found)) {
                    findings.push(both_families(&what, addr, &found));
                    // The way in which it hears both hears the host's other addresses from this host too.
                    let any = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
                    addrs.extend(any.map(|ip| SocketAddr::new(ip, addr.port)));
                } else {
                    findings.extend(one_of_several(&what, addr, &found));
                }
                addrs.extend(found);
            }
            Err(finding) => findings.push(finding),
        }

        for name in self.udp().iter().flat_map(|udp| [&udp.multicast_interface, &udp.interface]) {
            findings.extend(interface_there(&what, name.as_deref(), Absence::ListenerWaits));
        }
    }
}

impl UdpListener {
    /// The options for opening its socket.
    pub fn listen_options(&self) -> ListenOptions {
        ListenOptions {
            multicast_interface: self.multicast_interface.clone(),
            multicast_sources: self.multicast_sources.clone(),
            interface: self.interface.clone(),
            is_free: self.freebind,
            ..ListenOptions::default()
        }
    }

    /// Whether one socket hears both families: if its name, whose addresses are `known`, is both loopback addresses, as `localhost` is.
    /// Not if other listeners have the port: that socket takes it at every address.
    pub fn is_dual(&self, known: &[SocketAddr]) -> bool {
        let is_both =
            known.iter().any(SocketAddr::is_ipv4) && known.iter().any(SocketAddr::is_ipv6);
        is_both
            && known.iter().all(|addr| addr.ip().is_loopback())
            && self.interface.is_none()
            && !self.shares_port
    }

    /// The options for a socket of both families, bound to `[::]`. Only by loopback does anything arrive at it, so only from this host.
    pub fn dual_options(&self) -> ListenOptions {
        ListenOptions { interface: Some("lo".to_owned()), is_dual: true, ..self.listen_options() }
    }

    /// Whether it has several sockets, or may get them.
    pub fn has_group(&self) -> bool {
        self.sockets != Some(1)
    }

    /// Refuses several sockets for a multicast group: each would receive every datagram.
    fn check_sockets(&self, reader: &Reader<'_>) {
        if self.has_group()
            && let Host::Ip(ip) = self.addr.host
            && ip.is_multicast()
        {
            let message = format!(
                "the kernel gives every socket all datagrams of the group {ip}. Fix: remove the key"
            );
            reader.error(&UdpListener::sockets, message);
        }
    }

    /// Refuses an interface without a group, and one given by address for an IPv6 group.
    fn check_interface(&self, reader: &Reader<'_>) {
        let Some(interface) = &self.multicast_interface else { return };

        let message = match &self.addr.host {
            Host::Ip(IpAddr::V6(ip)) if ip.is_multicast() => match interface.parse::<Ipv4Addr>() {
                Ok(_) => format!(
                    "\"{interface}\": an IPv6 group is joined by interface name. Fix: write for example eth0"
                ),
                Err(_) => return,
            },
            Host::Ip(ip) if ip.is_multicast() => return,
            _ => format!(
                "udp://{} is not a multicast group, so there is nothing to join. Fix: remove the key",
                self.addr
            ),
        };

        reader.error(&UdpListener::multicast_interface, message);
    }
}

impl UdpListener {
    /// Refuses senders where there is no group, and those of the other family.
    fn check_sources(&self, reader: &Reader<'_>) {
        let group = match self.addr.host {
            Host::Ip(ip) if ip.is_multicast() => Some(ip),
            _ => None,
        };
        let message = match (group, self.multicast_sources.first()) {
            (_, None) => return,
            (None, Some(_)) => format!(
                "udp://{} is not a multicast group. Fix: write allow_sources instead",
                self.addr
            ),
            (Some(group), Some(_)) => {
                let is_other = |source: &&IpAddr| source.is_ipv4() != group.is_ipv4();
                let Some(other) = self.multicast_sources.iter().find(is_other) else { return };
                format!(
                    "{other} cannot send to {group}, which is of the other family. Fix: remove it"
                )
            }
        };
        reader.error(&UdpListener::multicast_sources, message);
    }
}

/// A listener as read, with its targets separate.
pub(crate) struct ReadListener {
    pub(crate) listener: Placed<ListenerConfig>,
    pub(crate) targets: Vec<Placed<TargetConfig>>,
}

impl ReadListener {
    /// The listener with its targets.
    pub(crate) fn whole(self) -> ListenerConfig {
        let targets = self.targets.into_iter().map(|target| target.thing).collect();
        ListenerConfig { targets, ..self.listener.thing }
    }
}

/// Reads all listeners with their targets. One without an address is reported and left out.
pub(crate) fn read_all(report: &Report, document: &Table) -> Vec<ReadListener> {
    let tables = repeated(report, document, "listener", &SECTION);

    let read = |(at, table)| {
        let place = format!("listener[{at}]");
        let listener = read(report, table, &place);
        if let Some(one) = listener.as_ref().filter(|one| one.thing.listen == Listen::Stdin) {
            let message = "a file's daemon does not end with its input. Fix: write weir relay --listen stdin: --to …";
            one.error(report, &ListenerConfig::listen, message);
        }
        let targets = target::read_all(report, table, &place);
        let name = listener.as_ref().map_or("this listener", |one| &one.thing.name);
        let is_source =
            crate::sink::is_source(document, name) || crate::flows::is_source(document, name);
        if !table.has_section("target") && !is_source {
            let message =
                format!("{name} has no target. Fix: add [[listener.target]] with to = \"…\"");
            report.error(table.line, target::SECTION.path, message);
        }
        Some(ReadListener { listener: listener?, targets })
    };

    tables.into_iter().enumerate().filter_map(read).collect()
}

/// Reads a listener without its targets.
pub(crate) fn read(report: &Report, table: &Table, place: &str) -> Option<Placed<ListenerConfig>> {
    let reader = Reader::open(report, table, &SECTION, place);

    let mut listener = ListenerConfig::read(&reader, Vec::new())?;
    listener.ring_bytes = listener.ring_bytes.next_power_of_two();

    match &listener.listen {
        Listen::Udp(udp) => {
            udp.check_interface(&reader);
            udp.check_sources(&reader);
            udp.check_sockets(&reader);
            if udp.has_group() && listener.gather.is_some() {
                let message =
                    "with several sockets nothing is gathered. Fix: remove one of the two keys";
                reader.error(&ListenerConfig::gather, message);
            }
        }
        Listen::Weir(_) => reader.refuse_others(&listener.listen, |_| None),
        Listen::Stdin => reader.refuse_others(&listener.listen, |key| match key {
            "receive_buffer" => Some("lines wait where they come from"),
            "allow_sources" | "deny_sources" | "trust_header_from" => {
                Some("lines have no source address")
            }
            _ => None,
        }),
        Listen::Unix(_) => reader.refuse_others(&listener.listen, |key| match key {
            "receive_buffer" => {
                Some("the queue of a unix socket is bounded by net.unix.max_dgram_qlen instead")
            }
            "allow_sources" | "deny_sources" | "trust_header_from" => {
                Some("datagrams of a unix socket have no source address")
            }
            _ => None,
        }),
    }

    Some(Placed { place: place.to_owned(), thing: listener })
}

/// Notes which listeners have the port of another.
pub(crate) fn note_shared_ports(all: &mut [ReadListener]) {
    let port = |one: &ReadListener| one.listener.thing.listen.port().map_or(0, |addr| addr.port);
    let ports: Vec<_> = all.iter().map(port).collect();
    for one in all {
        if let Listen::Udp(udp) = &mut one.listener.thing.listen {
            let port = udp.addr.port;
            udp.shares_port = port != 0 && ports.iter().filter(|other| **other == port).count() > 1;
        }
    }
}

/// Checks the listeners against each other.
pub(crate) fn check(report: &Report, all: &[ReadListener]) {
    const NAMES: (&crate::Key, &crate::Key) = (&ListenerConfig::name, &ListenerConfig::listen);

    for (at, ReadListener { listener, .. }) in all.iter().enumerate() {
        let (name, listen) = (&listener.thing.name, &listener.thing.listen);
        for earlier in all[..at].iter().map(|earlier| &earlier.listener.thing) {
            if earlier.listen.is_same_socket(listen) {
                let message = format!(
                    "{listen} is listened on by listener {} already. Fix: merge the two, or choose another port",
                    earlier.name
                );
                listener.error(report, &ListenerConfig::listen, message);
            } else if earlier.name == *name {
                let message = format!(
                    "\"{name}\" is the name of another listener too. Fix: give each its own"
                );
                listener.name_error(report, NAMES, &message);
            }
        }

        // Reserved even if neither runs, so that the ledger's rows mean the same everywhere.
        for (own, what) in [
            (COLLECTOR_NAME, "the socket collector"),
            (FLOWS_NAME, "the analysis of sFlow"),
            (EVENTS_NAME, "the events of thresholds"),
        ] {
            if name == own {
                let message =
                    format!("\"{own}\" is the name of {what} in the ledger. Fix: choose another");
                listener.name_error(report, NAMES, &message);
            }
        }
    }
}

/// Most sockets that `auto` opens: one per processor.
fn sockets_at_most() -> usize {
    sys::process::cpu_count().clamp(1, MEMBERS_MAX)
}

/// Whether binding a port on one address excludes it on the other.
pub(crate) fn overlap(a: IpAddr, b: IpAddr) -> bool {
    let wildcard = a.is_unspecified() || b.is_unspecified();
    a.is_ipv4() == b.is_ipv4() && wildcard && !a.is_multicast() && !b.is_multicast()
}

/// The listener that would receive datagrams sent to a UDP address, as far as names are known.
pub(crate) fn who_hears<'a>(
    listeners: impl Iterator<Item = &'a ListenerConfig> + Clone,
    to: &HostPort,
) -> Option<&'a ListenerConfig> {
    let known = |listener: &ListenerConfig| listener.listen.port().and_then(HostPort::known);
    let addrs: Vec<SocketAddr> = listeners.clone().filter_map(known).collect();
    let back = to.known().and_then(|to| would_loop(&addrs, to, &[]));
    listeners.clone().find(|listener| {
        listener.listen.port().is_some_and(|port| port == to)
            || back.is_some() && known(listener) == back
    })
}
