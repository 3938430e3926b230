//! Whether a right file would work on this host: names, addresses, paths, interfaces, and what `weir doctor` looks at.

use crate::allowed::users;
use crate::command::doctor::{self, Finding, Host, Severity};
use config::{
    AdminConfig, Config, HostPort, Listen, ListenerConfig, Sink, SinkConfig, SocketsConfig, Target,
    TargetConfig, resolve, would_loop,
};
use sockets::filter::Filter;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// Everything that is found, the worst first. No port of the configuration is bound, and nothing is sent.
pub(super) fn examine(host: &Host, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listen_addrs = Vec::new();
    admin(&config.admin, &mut findings);
    for listener in &config.listeners {
        self::listener(listener, &mut listen_addrs, &mut findings);
    }
    for target in config.listeners.iter().flat_map(|listener| &listener.targets) {
        self::target(target, &listen_addrs, &mut findings);
    }
    for sink in &config.sinks {
        self::sink(sink, &mut findings);
    }
    if let Some(sockets) = &config.sockets {
        collector(sockets, &mut findings);
    }
    findings.extend(doctor::examine(host, Some(config)));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn finding(severity: Severity, what: &str, value: String, why: &str, mend: String) -> Finding {
    Finding { severity, what: what.to_owned(), value, why: why.to_owned(), fix: Some(mend) }
}

fn fine(what: &str, value: String) -> Finding {
    Finding { severity: Severity::Ok, what: what.to_owned(), value, why: String::new(), fix: None }
}

fn admin(config: &AdminConfig, findings: &mut Vec<Finding>) {
    if let Some(path) = &config.socket {
        findings.push(unix_listener("admin socket", path));
    }
    if let Err(error) = users(&config.socket_users) {
        findings.push(finding(
            Severity::Error,
            "admin socket",
            error.to_string(),
            "the daemon looks its users up when it starts",
            "getent passwd".to_owned(),
        ));
    }
}

fn listener(listener: &ListenerConfig, addrs: &mut Vec<SocketAddr>, findings: &mut Vec<Finding>) {
    let what = format!("listener {}", listener.name);
    match &listener.listen {
        Listen::Udp(udp) => match resolved(&what, &udp.addr, Severity::Error) {
            Ok(found) => {
                addrs.extend(&found);
                for addr in found.iter().filter(|addr| !is_ours(addr.ip())) {
                    findings.push(finding(
                        Severity::Error,
                        &what,
                        format!("{} is not an address of this host", addr.ip()),
                        "only an address of this host, or a multicast group, can be listened on",
                        "ip -brief address".to_owned(),
                    ));
                }
            }
            Err(error) => findings.push(error),
        },
        Listen::Unix(path) => findings.push(unix_listener(&what, path)),
    }
    let interface = listener.udp().and_then(|udp| udp.multicast_interface.as_deref());
    findings.extend(self::interface(&what, interface));
}

fn target(target: &TargetConfig, listen_addrs: &[SocketAddr], findings: &mut Vec<Finding>) {
    let what = format!("target {}", target.name);
    match &target.to {
        Target::Udp(udp) => match resolved(&what, &udp.addr, Severity::Warning) {
            Ok(found) => findings.push(udp_target(&what, &udp.addr, &found, listen_addrs)),
            Err(error) => findings.push(error),
        },
        Target::Unix(path) => findings.push(unix_target(&what, path)),
        Target::File(file) => findings.push(file_target(&what, &file.path)),
        Target::Null => (),
    }
    let Some(udp) = target.udp() else { return };
    if let Some(ip) = udp.source_address.filter(|ip| !is_ours(*ip)) {
        findings.push(finding(
            Severity::Error,
            &what,
            format!("source_address {ip} is not an address of this host"),
            "datagrams can leave from an address of this host only",
            "ip -brief address".to_owned(),
        ));
    }
    findings.extend(interface(&what, udp.multicast_interface.as_deref()));
}

fn sink(sink: &SinkConfig, findings: &mut Vec<Finding>) {
    let what = format!("sink {}", sink.name);
    match &sink.to {
        Sink::Udp(udp) => match resolved(&what, &udp.addr, Severity::Warning) {
            Ok(found) => findings.push(udp_target(&what, &udp.addr, &found, &[])),
            Err(error) => findings.push(error),
        },
        Sink::File(file) => findings.push(file_target(&what, &file.path)),
        Sink::Stdout(_) | Sink::Null(_) => (),
    }
}

fn collector(config: &SocketsConfig, findings: &mut Vec<Finding>) {
    if let Some(text) = &config.filter
        && let Err(error) = Filter::parse(text)
    {
        findings.push(finding(
            Severity::Error,
            "sockets",
            format!("filter: {}", error.message),
            "the collector looks the names of its filter up when it starts",
            "correct filter in [sockets]".to_owned(),
        ));
    }
}

fn resolved(what: &str, addr: &HostPort, severity: Severity) -> Result<Vec<SocketAddr>, Finding> {
    let wrong = |error: io::Error| {
        finding(
            severity,
            what,
            format!("{addr} does not resolve: {error}"),
            "a listener needs its address at the start; a target drops everything until its name resolves",
            format!(
                "getent hosts {}",
                addr.to_string().rsplit_once(':').map_or("", |(host, _)| host)
            ),
        )
    };
    resolve(addr).map_err(wrong)
}

/// Whether this host has the address: a socket on any free port of it tells, and disturbs nobody.
fn is_ours(ip: IpAddr) -> bool {
    ip.is_multicast() || UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

fn udp_target(
    what: &str,
    addr: &HostPort,
    found: &[SocketAddr],
    listen_addrs: &[SocketAddr],
) -> Finding {
    for to in found {
        let route = sys::route::egress(to.ip());
        let local: &[IpAddr] = match &route {
            Ok(route) if route.is_local => &[to.ip()],
            _ => &[],
        };
        if let Some(listen) = would_loop(listen_addrs, *to, local) {
            return finding(
                Severity::Error,
                what,
                format!("{addr} is {to}, where this relay itself listens ({listen})"),
                "its datagrams would come back for ever",
                "name another address in `to`".to_owned(),
            );
        }
        if let Err(error) = route {
            return finding(
                Severity::Warning,
                what,
                format!("no way to {to}: {error}"),
                "what is sent there is dropped as unreachable",
                format!("ip route get {}", to.ip()),
            );
        }
    }
    let all: Vec<_> = found.iter().map(SocketAddr::to_string).collect();
    fine(what, format!("{addr} can be reached by route ({})", all.join(", ")))
}

fn interface(what: &str, name: Option<&str>) -> Option<Finding> {
    // A listener may name an interface by its address.
    let name = name.filter(|name| name.parse::<IpAddr>().is_err())?;
    let error = sys::socket::interface_index(name).err()?;
    let value = format!("there is no interface {name}: {error}");
    let why = "the group cannot be joined or sent to by it";
    Some(finding(Severity::Error, what, value, why, "ip -brief link".to_owned()))
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Why nothing can be created in a folder, if so: a file of a name that nobody uses is made and removed at once.
fn folder_refuses(folder: &Path) -> Option<io::Error> {
    let path = folder.join(format!(".weir-check-{}", std::process::id()));
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(_) => fs::remove_file(path).err(),
        Err(error) => Some(error),
    }
}

fn unix_listener(what: &str, path: &Path) -> Finding {
    let folder = folder_of(path);
    let is_other = fs::symlink_metadata(path).is_ok_and(|meta| !meta.file_type().is_socket());
    if is_other {
        let value = format!("{} is there and is no socket", path.display());
        let why = "a socket cannot be bound over a file";
        return finding(Severity::Error, what, value, why, format!("ls -l {}", path.display()));
    }
    match folder_refuses(&folder) {
        None => fine(what, format!("{} can be made", path.display())),
        Some(error) => {
            let value = format!("cannot make {}: {error}", path.display());
            let why = "the socket is a file in that folder";
            finding(Severity::Error, what, value, why, folder_mend(&folder, &error))
        }
    }
}

fn unix_target(what: &str, path: &Path) -> Finding {
    match sys::socket::connect_unix(path) {
        Ok(_) => fine(what, format!("somebody listens at {}", path.display())),
        Err(error) => finding(
            Severity::Warning,
            what,
            format!("nobody listens at {}: {error}", path.display()),
            "everything for it is dropped until its owner is there",
            format!("ss -xl src {}", path.display()),
        ),
    }
}

/// Appending nothing to a file that is there changes nothing; a new one only needs its folder.
fn file_target(what: &str, path: &Path) -> Finding {
    let folder = folder_of(path);
    let refused = match OpenOptions::new().append(true).open(path) {
        Ok(_) => None,
        // The daemon makes the folder if only its last part is missing.
        Err(_) if !folder.exists() => folder_refuses(&folder_of(&folder)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder_refuses(&folder),
        Err(error) => Some(error),
    };
    match refused {
        None => fine(what, format!("{} can be written", path.display())),
        Some(error) => finding(
            Severity::Error,
            what,
            format!("cannot write {}: {error}", path.display()),
            "everything for this target would be dropped",
            folder_mend(&folder, &error),
        ),
    }
}

fn folder_mend(folder: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("mkdir -p {}", folder.display()),
        _ => format!("ls -ld {}", folder.display()),
    }
}
