//! What no value shows alone: names twice, addresses twice, files twice, loops, keys that do not fit the address.

mod sockets;

pub(super) use sockets::{FILE_SINK_KEYS, collector, sink, sockets};

use super::paths::{is_same_file, real_path};
use super::section::{Report, Section};
use super::{
    COLLECTOR_NAME, Host, HostPort, ListenAddress, ListenerConfig, StatsdConfig, TargetAddress,
    TargetConfig,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The listening address, if any, at which datagrams sent to `target` would come back to us.
///
/// `local_addrs` are addresses of this host (and broadcast addresses of its networks) beside loopback, as far as the
/// caller knows them: they decide about listeners on a wildcard address.
pub fn would_loop(
    listen_addrs: &[SocketAddr],
    target: SocketAddr,
    local_addrs: &[IpAddr],
) -> Option<SocketAddr> {
    let to = target.ip().to_canonical();
    let comes_back = |listen: &&SocketAddr| {
        let on = listen.ip().to_canonical();
        if listen.port() != target.port() || listen.port() == 0 || on.is_ipv4() != to.is_ipv4() {
            return false;
        }
        // Connecting to the wildcard address reaches loopback (net/ipv4/route.c, ip_route_output_key_hash_rcu).
        let reaches_loopback = to.is_unspecified() && on.is_loopback();
        // A wildcard socket that a service manager handed over hears every group that any socket of this host joined
        // (ip(7), IP_MULTICAST_ALL).
        let is_joined = || {
            to.is_multicast() && listen_addrs.iter().any(|other| other.ip().to_canonical() == to)
        };
        let is_here = || {
            to.is_loopback()
                || to.is_unspecified()
                || to == IpAddr::V4(Ipv4Addr::BROADCAST)
                || local_addrs.iter().any(|local| local.to_canonical() == to)
                || is_joined()
        };
        on == to || reaches_loopback || on.is_unspecified() && is_here()
    };
    listen_addrs.iter().find(comes_back).copied()
}

/// A listener and where in the document it and its targets stand.
pub(super) struct Placed {
    pub(super) place: String,
    pub(super) target_places: Vec<String>,
    pub(super) listener: ListenerConfig,
}

impl Placed {
    fn targets(&self) -> impl Iterator<Item = (&str, &TargetConfig)> {
        self.target_places.iter().map(String::as_str).zip(&self.listener.targets)
    }
}

/// A listener with its address as far as it is known before names are resolved.
struct Listening<'a> {
    config: &'a ListenerConfig,
    addr: Option<SocketAddr>,
}

impl Listening<'_> {
    fn of(placed: &Placed) -> Listening<'_> {
        let addr = match &placed.listener.listen {
            ListenAddress::Udp(addr) => known_address(addr),
            ListenAddress::Unix(_) => None,
        };
        Listening { config: &placed.listener, addr }
    }
}

/// Rules between sections.
pub(super) fn check(report: &Report, placed: &[Placed]) {
    let listening: Vec<_> = placed.iter().map(Listening::of).collect();
    for (at, this) in placed.iter().enumerate() {
        for earlier in &placed[..at] {
            listener_pair(report, earlier, this);
        }
        reserved_name(report, this);
        target_names(report, this);
        for (place, target) in this.targets() {
            loops(report, &listening, &this.listener, (place, target));
            fixed_port(report, &listening, place, target);
            sourceless(report, &this.listener, place, target);
        }
    }
    files(report, placed);
}

fn listener_pair(report: &Report, earlier: &Placed, this: &Placed) {
    let (name, listen) = (&this.listener.name, &this.listener.listen);
    if same_socket(&earlier.listener.listen, listen) {
        let other = &earlier.listener.name;
        let message = format!(
            "{listen} is listened on by listener {other} already; merge the two, or choose another port"
        );
        report.error(report.line_of(&this.place, "listen"), "listener.listen", message);
    } else if earlier.listener.name == *name {
        let message = format!("\"{name}\" is the name of another listener too; give each its own");
        report.error(named_at(report, &this.place, "listen"), "listener.name", message);
    }
}

/// The name of the collector is kept for it even where it does not run, so that the ledger's rows mean the same everywhere.
fn reserved_name(report: &Report, Placed { place, listener, .. }: &Placed) {
    if listener.name == COLLECTOR_NAME {
        let message = format!(
            "\"{COLLECTOR_NAME}\" is the name of the socket collector in the ledger; choose another"
        );
        report.error(named_at(report, place, "listen"), "listener.name", message);
    }
}

fn target_names(report: &Report, placed: &Placed) {
    let mut seen: Vec<&str> = Vec::new();
    for (place, target) in placed.targets() {
        if seen.contains(&target.name.as_str()) {
            let (name, listener) = (&target.name, &placed.listener.name);
            let message = format!(
                "\"{name}\" is the name of another target of listener {listener} too; give each its own"
            );
            report.error(named_at(report, place, "to"), "listener.target.name", message);
        }
        seen.push(&target.name);
    }
}

/// The line of `name`, or of the address that is the name when none is given.
fn named_at(report: &Report, place: &str, address_key: &str) -> Option<usize> {
    report.line_of(place, "name").or_else(|| report.line_of(place, address_key))
}

fn same_socket(a: &ListenAddress, b: &ListenAddress) -> bool {
    match (a, b) {
        (ListenAddress::Udp(a), ListenAddress::Udp(b)) if a.port == b.port && a.port != 0 => {
            match (&a.host, &b.host) {
                // A port of the wildcard address leaves none of it for another address (udp(7)); groups share ports.
                (Host::Ip(a), Host::Ip(b)) => a == b || overlap(*a, *b),
                (a, b) => a == b,
            }
        }
        (ListenAddress::Unix(a), ListenAddress::Unix(b)) => is_same_file(a, b),
        _ => false,
    }
}

fn overlap(a: IpAddr, b: IpAddr) -> bool {
    let wildcard = a.is_unspecified() || b.is_unspecified();
    a.is_ipv4() == b.is_ipv4() && wildcard && !a.is_multicast() && !b.is_multicast()
}

fn files(report: &Report, placed: &[Placed]) {
    let mut seen: Vec<(PathBuf, &TargetConfig, &str)> = Vec::new();
    for listener in placed {
        for (place, target) in listener.targets() {
            let TargetAddress::File(path) = &target.to else { continue };
            let path = real_path(path);
            let clash = seen.iter().find(|(other, owner, _)| {
                is_same_file(other, &path)
                    || is_rotated(other, kept_files(owner), &path)
                    || is_rotated(&path, kept_files(target), other)
            });
            if let Some((_, owner, of)) = clash {
                let message = format!(
                    "{} is written by target {} of listener {of} already, or set aside under that name; \
                     choose another path",
                    target.to, owner.name
                );
                report.error(report.line_of(place, "to"), "listener.target.to", message);
            }
            seen.push((path, target, &listener.listener.name));
        }
    }
}

/// How many files a target sets aside.
fn kept_files(target: &TargetConfig) -> u32 {
    if target.rotate_bytes.is_some() { target.rotate_keep } else { 0 }
}

/// Whether `path` is one of the names under which `keeps` rotated files of `base` are kept.
fn is_rotated(base: &Path, keeps: u32, path: &Path) -> bool {
    let (Some(base), Some(path)) = (base.to_str(), path.to_str()) else { return false };
    let number = path.strip_prefix(base).and_then(|tail| tail.strip_prefix('.'));
    let number = number.and_then(|number| number.parse::<u32>().ok());
    number.is_some_and(|number| (1..=keeps).contains(&number))
}

/// `from` is the listener whose target it is.
fn loops(
    report: &Report,
    listeners: &[Listening<'_>],
    from: &ListenerConfig,
    (place, target): (&str, &TargetConfig),
) {
    let known = match &target.to {
        TargetAddress::Udp(to) => known_address(to),
        _ => None,
    };
    let addrs = || listeners.iter().filter_map(|listening| listening.addr).collect::<Vec<_>>();
    let back = known.and_then(|to| would_loop(&addrs(), to, &[]));
    let owner = listeners.iter().find(|listening| match (&listening.config.listen, &target.to) {
        (ListenAddress::Udp(on), TargetAddress::Udp(to)) => {
            on == to || back.is_some() && listening.addr == back
        }
        (ListenAddress::Unix(on), TargetAddress::Unix(to)) => is_same_file(on, to),
        _ => false,
    });
    if let Some(Listening { config: owner, .. }) = owner {
        let (to, listen) = (target.to.to_string(), owner.listen.to_string());
        let receiver = match (owner.name == listen, to == listen) {
            (true, true) => "the relay itself".to_owned(),
            (true, false) => format!("listener {listen}"),
            (false, true) => format!("listener {}", owner.name),
            (false, false) => format!("listener {} ({listen})", owner.name),
        };
        let follows = if owner.listen == from.listen {
            "its datagrams would come back for ever; send them elsewhere"
        } else {
            "its datagrams would come back to this relay; send them where they are to go in the end"
        };
        let message = format!("{to} is where {receiver} receives: {follows}");
        report.error(report.line_of(place, "to"), "listener.target.to", message);
    }
}

/// The daemon's own figures must not come in as data.
pub(super) fn statsd(report: &Report, placed: &[Placed], statsd: &StatsdConfig) {
    let listening: Vec<_> = placed.iter().map(Listening::of).collect();
    let addrs: Vec<_> = listening.iter().filter_map(|listening| listening.addr).collect();
    let back = known_address(&statsd.to).and_then(|to| would_loop(&addrs, to, &[]));
    let owner = placed.iter().zip(&listening).find(|(placed, listening)| {
        placed.listener.listen == ListenAddress::Udp(statsd.to.clone())
            || back.is_some() && listening.addr == back
    });
    if let Some((owner, _)) = owner {
        let message = format!(
            "{} is where listener {} receives, which would take the figures for data; name a StatsD server",
            statsd.to, owner.listener.name
        );
        report.error(report.line_of("metrics.statsd", "to"), "metrics.statsd.to", message);
    }
}

/// The address as far as it is known before names are resolved.
fn known_address(addr: &HostPort) -> Option<SocketAddr> {
    match &addr.host {
        Host::Name(name) if name == "localhost" => {
            Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), addr.port))
        }
        _ => addr.literal(),
    }
}

/// A fixed source port that a listener of ours holds cannot be bound.
fn fixed_port(report: &Report, listeners: &[Listening<'_>], place: &str, target: &TargetConfig) {
    let (Some(port), TargetAddress::Udp(to)) = (target.send.source_port, &target.to) else {
        return;
    };
    let source = target.send.source_address.or_else(|| match to.host {
        Host::Ip(IpAddr::V4(_)) => Some(Ipv4Addr::UNSPECIFIED.into()),
        Host::Ip(IpAddr::V6(_)) => Some(std::net::Ipv6Addr::UNSPECIFIED.into()),
        Host::Name(_) => None,
    });
    let Some(source) = source else { return };
    let holds = |listening: &&Listening<'_>| {
        listening
            .addr
            .is_some_and(|on| on.port() == port && (on.ip() == source || overlap(on.ip(), source)))
    };
    if let Some(Listening { config: owner, .. }) = listeners.iter().find(holds) {
        let message = format!(
            "port {port} is held by listener {} ({}), so nothing can be sent from it; choose another",
            owner.name, owner.listen
        );
        report.error(report.line_of(place, "source_port"), "listener.target.source_port", message);
    }
}

/// Keys of a listener that mean something for UDP only, and why.
pub(super) const UDP_LISTENER_KEYS: &[(&str, &str)] = &[
    ("receive_buffer", "the queue of a unix socket is bounded by net.unix.max_dgram_qlen instead"),
    ("allow_sources", "datagrams of a unix socket have no source address"),
    ("deny_sources", "datagrams of a unix socket have no source address"),
];

/// Rules within a listener.
pub(super) fn listener(section: &Section<'_>, listener: &ListenerConfig) {
    if let Some(interface) = &listener.multicast_interface {
        multicast_listener(section, &listener.listen, interface);
    }
    if let ListenAddress::Unix(_) = listener.listen {
        for (key, why) in UDP_LISTENER_KEYS.iter().filter(|(key, _)| section.has(key)) {
            section.error(key, format!("{why}; remove the key"));
        }
    }
}

/// A target's choice by source needs sources.
fn sourceless(report: &Report, listener: &ListenerConfig, place: &str, target: &TargetConfig) {
    let ListenAddress::Unix(_) = listener.listen else { return };
    let by_source = target.sample.is_some_and(|sample| sample.by == relay::SampleBy::Source);
    let keys = [("only_sources", !target.only_sources.is_empty()), ("sample_by", by_source)];
    for (key, _) in keys.into_iter().filter(|(_, is_used)| *is_used) {
        let message = format!(
            "datagrams of {} have no source address to choose by; remove the key",
            listener.listen
        );
        report.error(report.line_of(place, key), &format!("listener.target.{key}"), message);
    }
}

/// A listener's interface joins a group: there must be one, and by address only for IPv4.
fn multicast_listener(section: &Section<'_>, listen: &ListenAddress, interface: &str) {
    let group = match listen {
        ListenAddress::Udp(HostPort { host: Host::Ip(ip), .. }) if ip.is_multicast() => Some(*ip),
        _ => None,
    };
    match group {
        None => section.error(
            "multicast_interface",
            format!("{listen} is no multicast group, so there is nothing to join; remove the key"),
        ),
        Some(IpAddr::V6(_)) if interface.parse::<Ipv4Addr>().is_ok() => section.error(
            "multicast_interface",
            format!(
                "\"{interface}\": an IPv6 group is joined by interface name; write for example eth0"
            ),
        ),
        Some(_) => (),
    }
}

pub(super) const UDP_KEYS: &[&str] = &[
    "send_buffer",
    "source_address",
    "source_port",
    "ttl",
    "dscp",
    "gso",
    "multicast_interface",
    "resolve_interval",
];
pub(super) const FILE_KEYS: &[&str] = &["format", "rotate_size", "rotate_keep"];

/// Rules within a target.
pub(super) fn target(section: &Section<'_>, target: &TargetConfig) {
    let (udp, file) = match &target.to {
        TargetAddress::Udp(to) => {
            addresses_fit(section, to, target);
            (true, false)
        }
        TargetAddress::File(_) => (false, true),
        TargetAddress::Unix(_) | TargetAddress::Null => (false, false),
    };
    let misfits = UDP_KEYS.iter().map(|key| (key, udp, "UDP targets"));
    let misfits = misfits.chain(FILE_KEYS.iter().map(|key| (key, file, "file targets")));
    for (key, _, of) in misfits.filter(|(key, fits, _)| !fits && section.has(key)) {
        let message = format!("it is for {of} only and this one is {}; remove the key", target.to);
        section.error(key, message);
    }
    if section.has("sample_by") && !section.has("sample") {
        section.error("sample_by", "there is nothing to sample; add sample = 10 for one in ten");
    }
    if file && section.has("rotate_keep") && section.is_absent_or("rotate_size", "off") {
        section.error("rotate_keep", "nothing is rotated; add rotate_size = \"64MiB\"");
    }
}

fn addresses_fit(section: &Section<'_>, to: &HostPort, target: &TargetConfig) {
    let Host::Ip(ip) = to.host else { return };
    if let Some(source) = target.send.source_address
        && source.is_ipv4() != ip.is_ipv4()
    {
        let (from, to) = (family(source), family(ip));
        let message =
            format!("{source} is {from} and the target {ip} is {to}; write an {to} address");
        section.error("source_address", message);
    }
    if target.send.multicast_interface.is_some() && !ip.is_multicast() {
        section.error("multicast_interface", format!("{ip} is no multicast group; remove the key"));
    }
}

fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IPv4" } else { "IPv6" }
}
