//! What this process may do: capabilities, ports, open files.

use super::{Finding, Host, Severity, udp_listeners, udp_targets};
use config::{Config, UdpTarget};
use sys::process::{CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_NET_RAW};

pub(super) fn examine(host: &Host, config: Option<&Config>, findings: &mut Vec<Finding>) {
    let Some(config) = config else {
        findings.push(capabilities(host));
        return;
    };
    ports(host, config, findings);
    findings.push(open_files(host, config));
}

/// Without a configuration: the capabilities there are.
fn capabilities(host: &Host) -> Finding {
    let name = |bit, name| host.has_capability(bit).then_some(name);
    let all = [
        name(CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE (ports below 1024)"),
        name(CAP_NET_ADMIN, "CAP_NET_ADMIN (receive buffers beyond net.core.rmem_max)"),
        name(CAP_NET_RAW, "CAP_NET_RAW (preserve_source)"),
    ];
    let present: Vec<_> = all.into_iter().flatten().collect();
    let value =
        if present.is_empty() { "none, none needed".to_owned() } else { present.join(", ") };
    Finding::new(Severity::Ok, "capabilities", value)
}

/// Ports that only a privileged process may bind.
fn ports(host: &Host, config: &Config, findings: &mut Vec<Finding>) {
    let start = host.sysctl("net.ipv4.ip_unprivileged_port_start").unwrap_or(1_024);
    let is_privileged = |port: u16| port != 0 && u64::from(port) < start;
    let listening =
        udp_listeners(config).map(|(one, udp)| (format!("listener {}", one.name), udp.addr.port));
    let sending = udp_targets(config).filter_map(|(target, udp)| {
        Some((format!("source_port of target {}", target.name), udp.source_port?))
    });

    for (what, port) in listening.chain(sending).filter(|(_, port)| is_privileged(*port)) {
        let finding = if host.has_capability(CAP_NET_BIND_SERVICE) {
            Finding::new(Severity::Ok, what, format!("port {port}, CAP_NET_BIND_SERVICE is there"))
        } else {
            Finding::new(Severity::Error, what, format!("port {port} needs CAP_NET_BIND_SERVICE"))
                .because(format!(
                    "ports below {start} (net.ipv4.ip_unprivileged_port_start) are refused without it; a service \
                     manager may also hand the socket over (deploy/systemd/weir.socket)"
                ))
                .fixed_by(setcap(host, config))
        };
        findings.push(finding);
    }
}

/// The command that gives this program the capabilities it lacks. `setcap` replaces those of the file, so the command names
/// all.
pub(super) fn setcap(host: &Host, config: &Config) -> String {
    let start = host.sysctl("net.ipv4.ip_unprivileged_port_start").unwrap_or(1_024);
    let ports = udp_listeners(config).map(|(_, udp)| udp.addr.port);
    let ports = ports.chain(udp_targets(config).filter_map(|(_, udp)| udp.source_port));
    let needs_bind = ports.into_iter().any(|port| port != 0 && u64::from(port) < start);
    let rmem_max = host.sysctl("net.core.rmem_max").unwrap_or(u64::MAX / 2);
    let needs_admin = udp_listeners(config)
        .any(|(_, udp)| udp.receive_buffer_bytes as u64 > rmem_max.saturating_mul(2));
    let needs_raw = udp_targets(config).any(|(_, udp)| udp.keeps_source());
    let names = [
        (needs_bind, "cap_net_bind_service"),
        (needs_admin, "cap_net_admin"),
        (needs_raw, "cap_net_raw"),
    ];
    let names: Vec<_> =
        names.into_iter().filter(|(needed, _)| *needed).map(|(_, name)| name).collect();
    format!("sudo setcap {}=+ep {}", names.join(","), host.program().display())
}

/// Descriptors other than sockets and files: standard streams, event and netlink descriptors, HTTP connections.
const OTHER_DESCRIPTORS: u64 = 64;

fn open_files(host: &Host, config: &Config) -> Finding {
    // A target has two sockets while its address changes.
    let targets = config.listeners.iter().flat_map(|listener| &listener.targets);
    let sockets = targets.map(|target| target.udp().map_or(1, UdpTarget::sockets_max));
    let sockets: usize = sockets.sum();
    let needed = OTHER_DESCRIPTORS + 4 * config.listeners.len() as u64 + 2 * sockets as u64;

    match host.open_files_limit() {
        Some(limit) if limit < needed => Finding::new(
            Severity::Warning,
            "open files",
            format!("{limit} allowed, {needed} needed"),
        )
        .because(
            "targets without a descriptor cannot be opened, and everything for them is dropped",
        )
        .fixed_by(format!("ulimit -n {needed}   (systemd: LimitNOFILE={needed})")),
        Some(limit) => Finding::new(
            Severity::Ok,
            "open files",
            format!("{limit} allowed, at most {needed} needed"),
        ),
        None => {
            Finding::new(Severity::Ok, "open files", format!("no limit, at most {needed} needed"))
        }
    }
}
