//! What the network stack does to datagrams on their way: connection tracking, neighbors, ICMP, reverse path filters.

use super::{Finding, Host, Severity, udp_listeners, udp_targets};
use config::{Config, Host as HostName, HostPort, ListenerConfig, PreserveSource, TargetConfig};
use sys::process::{CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_NET_RAW};

pub(super) fn examine(host: &Host, config: Option<&Config>, findings: &mut Vec<Finding>) {
    conntrack(host, config, findings);
    let Some(config) = config else { return };
    neighbors(host, config, findings);
    icmp(host, config, findings);
    reverse_paths(host, config, findings);
    kept_sources(host, config, findings);
}

fn conntrack(host: &Host, config: Option<&Config>, findings: &mut Vec<Finding>) {
    let Some(max) = host.sysctl("net.netfilter.nf_conntrack_max") else {
        findings.push(Finding::new(Severity::Ok, "connection tracking", "not loaded"));
        return;
    };

    let used = host.sysctl("net.netfilter.nf_conntrack_count").unwrap_or(0);
    let value = format!("{used} of {max} entries in use");
    findings.push(if used * 10 >= max * 8 {
        Finding::new(Severity::Warning, "connection tracking", value)
            .because("datagrams of a flow that finds no free entry are dropped")
            .fixed_by(format!("sudo sysctl -w net.netfilter.nf_conntrack_max={}", max * 2))
    } else {
        Finding::new(Severity::Ok, "connection tracking", value)
    });

    for (target, udp) in config.into_iter().flat_map(udp_targets) {
        let Some(port) = udp.source_port else { continue };
        let value = format!("fixed source_port {port} while connection tracking is loaded");
        let tables = if is_v6(&udp.addr) { "ip6tables" } else { "iptables" };
        findings.push(
            Finding::new(Severity::Warning, format!("target {}", target.name), value)
                .because(
                    "its entry never expires while datagrams flow, so that they keep going to where a translated address \
                     (a Kubernetes service, a moved receiver) was; let the port change, or do not track it",
                )
                .fixed_by(format!("sudo {tables} -t raw -A OUTPUT -p udp --sport {port} -j CT --notrack")),
        );
    }
}

fn is_v6(addr: &HostPort) -> bool {
    matches!(&addr.host, HostName::Ip(ip) if ip.is_ipv6())
}

fn is_loopback(addr: &HostPort) -> bool {
    matches!(&addr.host, HostName::Ip(ip) if ip.is_loopback())
}

/// The kernel queues datagrams for about three seconds while it resolves the next hop's hardware address.
fn neighbors(host: &Host, config: &Config, findings: &mut Vec<Finding>) {
    const USUAL_BYTES: u64 = 212_992;

    let name = "net.ipv4.neigh.default.unres_qlen_bytes";
    let Some(bytes) = host.sysctl(name) else { return };
    if !udp_targets(config).any(|(_, udp)| !is_loopback(&udp.addr)) {
        return;
    }

    let value =
        format!("{} wait for a next hop that does not answer", super::buffers::capacity(bytes));

    findings.push(if bytes < USUAL_BYTES {
        Finding::new(Severity::Warning, name, value)
            .because("more are dropped while a next hop is being found, after each time it was forgotten")
            .fixed_by(format!("sudo sysctl -w {name}={USUAL_BYTES}"))
    } else {
        Finding::new(Severity::Ok, name, value)
    });
}

/// If a receiver's host limits its ICMP errors, `refused` is a lower bound.
fn icmp(host: &Host, config: &Config, findings: &mut Vec<Finding>) {
    let Some(interval_ms) = host.sysctl("net.ipv4.icmp_ratelimit").filter(|ms| *ms > 0) else {
        return;
    };
    if !udp_targets(config).any(|(_, udp)| !is_loopback(&udp.addr)) {
        return;
    }

    let value = format!(
        "at most one error each {interval_ms} ms to one peer (net.ipv4.icmp_ratelimit here)"
    );

    findings.push(
        Finding::new(Severity::Advice, "ICMP errors", value).because(
            "a receiver's host limits them the same way: while a receiver is down, `refused` counts the errors that \
             came back, which are fewer than the datagrams that were lost there",
        ),
    );
}

/// Strict reverse path filtering drops a group's datagrams if their source is reached through another interface.
fn reverse_paths(host: &Host, config: &Config, findings: &mut Vec<Finding>) {
    let all = host.sysctl("net.ipv4.conf.all.rp_filter").unwrap_or(0);
    for (listener, udp) in udp_listeners(config) {
        let HostName::Ip(std::net::IpAddr::V4(ip)) = &udp.addr.host else { continue };
        if !ip.is_multicast() {
            continue;
        }
        let interface = udp
            .multicast_interface
            .as_deref()
            .filter(|name| name.parse::<std::net::IpAddr>().is_err());

        // The kernel uses the larger of the two (Documentation/networking/ip-sysctl.rst, rp_filter).
        let part = interface.unwrap_or("default").replace('.', "/");
        let own = format!("net.ipv4.conf.{part}.rp_filter");
        let mode = all.max(host.sysctl(&own).unwrap_or(0));
        let what = format!("reverse path filter for {}", listener.name);
        findings.push(if mode == 1 {
            let which = if all == 1 { "net.ipv4.conf.all.rp_filter" } else { own.as_str() };
            Finding::new(Severity::Warning, what, format!("strict ({which} = 1)"))
                .because(format!(
                    "datagrams to {ip} from a source that is not reached by the interface that received them are dropped uncounted"
                ))
                .fixed_by(format!("sudo sysctl -w {own}=2"))
        } else {
            Finding::new(Severity::Ok, what, if mode == 0 { "off" } else { "loose" })
        });
    }
}

/// What keeps datagrams from their receiver, or senders from their ports, when source addresses are preserved.
fn kept_sources(host: &Host, config: &Config, findings: &mut Vec<Finding>) {
    for (target, udp) in udp_targets(config).filter(|(_, udp)| udp.keeps_source()) {
        let what = format!("source addresses for {}", target.name);
        if !host.has_capability(CAP_NET_RAW) && !host.has_capability(CAP_NET_ADMIN) {
            findings.push(
                Finding::new(Severity::Error, &what, "preserve_source needs CAP_NET_RAW")
                    .because("the daemon does not start without it")
                    .fixed_by(super::process::setcap(host, config)),
            );
        }

        findings.push(
            Finding::new(Severity::Advice, &what, "those of the senders (preserve_source)")
                .because(
                    "a receiver that filters strictly (rp_filter = 1) drops what comes by another interface than the sender would be \
                     answered by, and counts it in TcpExtIPReversePathFilter alone; networks with BCP 38, and clouds, drop it on the way",
                )
                .fixed_by(
                    "at the receiver: nstat -az TcpExtIPReversePathFilter; sudo sysctl -w net.ipv4.conf.all.rp_filter=2",
                ),
        );
        if udp.preserve_source == PreserveSource::AddressAndPort {
            findings.extend(lost_ports(host, config, target, &what));
        }
    }
}

/// Sender ports that cannot be preserved on the way to this target.
fn lost_ports(host: &Host, config: &Config, target: &TargetConfig, what: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let start = host.sysctl("net.ipv4.ip_unprivileged_port_start").unwrap_or(1_024);
    if start > 0 && !host.has_capability(CAP_NET_BIND_SERVICE) {
        findings.push(
            Finding::new(Severity::Advice, what, format!("but no ports below {start}"))
                .because(
                    "they need CAP_NET_BIND_SERVICE: what was sent from one keeps its address and leaves from another port, which \
                     is counted (without_port)",
                )
                .fixed_by("AmbientCapabilities=CAP_NET_RAW CAP_NET_BIND_SERVICE in the unit"),
        );
    }

    let is_of_target = |listener: &&ListenerConfig| {
        listener.targets.iter().any(|other| std::ptr::eq(other, target))
    };
    let listener = config.listeners.iter().find(is_of_target).and_then(ListenerConfig::udp);
    let is_any = |addr: &&HostPort| matches!(&addr.host, HostName::Ip(ip) if ip.is_unspecified());
    if let Some(addr) = listener.map(|udp| &udp.addr).filter(is_any) {
        let port = addr.port;
        findings.push(
            Finding::new(Severity::Advice, what, format!("but not port {port}"))
                .because(format!(
                    "a listener on every address of this host has port {port} to itself: what was sent from port {port} leaves from \
                     another one, which is counted (without_port)"
                ))
                .fixed_by(format!("listen = \"ADDRESS:{port}\", with the address that the senders send to")),
        );
    }
    findings
}
