//! Whether a valid configuration would work on this host: names, addresses, paths, interfaces.
//!
//! Each module checks what it needs; the checks that several of them share are here.

use crate::{Config, HostPort, UnixListener, resolve, would_loop};
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The relay will not start.
    Error,
    /// Data will be lost, or a secret be known.
    Warning,
    /// Worth knowing; loses nothing by itself.
    Advice,
    Ok,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// What was checked.
    pub what: String,
    /// What was found.
    pub value: String,
    /// The consequence.
    pub why: String,
    /// The command that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// A finding that says how something is.
    pub fn new(severity: Severity, what: impl Into<String>, value: impl Into<String>) -> Finding {
        Finding { severity, what: what.into(), value: value.into(), why: String::new(), fix: None }
    }

    /// Adds the consequence.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Finding {
        self.why = why.into();
        self
    }

    /// The same about an address that is not used as long as the name has `used`.
    fn of_unused(mut self, used: SocketAddr) -> Finding {
        self.severity = Severity::Advice;
        self.why = format!("if its name loses {used}, which is used: {}", self.why);
        self
    }

    /// Adds the command that fixes it.
    #[must_use]
    pub fn fixed_by(mut self, command: impl Into<String>) -> Finding {
        self.fix = Some(command.into());
        self
    }
}

impl Config {
    /// Checks this host. Binds no port of the configuration, and sends nothing.
    pub fn examine_host(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut listen_addrs = Vec::new();

        self.admin.examine(&mut findings);
        for listener in &self.listeners {
            listener.examine(&mut listen_addrs, &mut findings);
        }
        for target in self.listeners.iter().flat_map(|listener| &listener.targets) {
            target.examine(&listen_addrs, &mut findings);
        }

        for sink in &self.sinks {
            sink.examine(&mut findings);
        }
        findings.extend(self.sockets.iter().filter_map(|sockets| sockets.examine()));
        findings
    }
}

pub(crate) fn resolved(
    what: &str,
    addr: &HostPort,
    severity: Severity,
) -> Result<Vec<SocketAddr>, Finding> {
    resolve(addr).map_err(|error| {
        let host = addr.to_string();
        let host = host.rsplit_once(':').map_or("", |(host, _)| host);
        Finding::new(severity, what, format!("{addr} does not resolve: {error}"))
            .because("a listener waits, and a target drops everything, until its name resolves")
            .fixed_by(format!("getent hosts {host}"))
    })
}

/// What the daemon does as long as an address or an interface of this host is not there.
#[derive(Clone, Copy)]
pub(crate) enum Absence {
    /// A listener waits: what is sent to an address that is not here does not arrive here.
    ListenerWaits,
    /// A target drops what it gets.
    TargetDrops,
}

impl Absence {
    fn finding(self, what: &str, value: String) -> Finding {
        let (severity, why) = match self {
            Absence::ListenerWaits => {
                (Severity::Advice, "the daemon starts, and the listener waits until it is there")
            }
            Absence::TargetDrops => (
                Severity::Warning,
                "the daemon starts, and the target drops everything as unreachable until it is there",
            ),
        };
        Finding::new(severity, what, value).because(why)
    }
}

/// A finding if this host does not have an address to receive at or send from. The check binds a socket to any free port of the
/// address, which disturbs nothing.
pub(crate) fn not_ours(
    what: &str,
    value: &str,
    mut at: SocketAddr,
    absence: Absence,
) -> Option<Finding> {
    at.set_port(0);
    let error = match UdpSocket::bind(at) {
        Err(error) if !at.ip().is_multicast() => error,
        _ => return None,
    };
    let ip = at.ip();
    let finding = match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            absence.finding(what, format!("{value}{ip} is not an address of this host"))
        }
        _ => Finding::new(Severity::Error, what, format!("{value}{ip} cannot be used: {error}"))
            .because("the daemon does not start"),
    };
    Some(finding.fixed_by("ip -brief address"))
}

/// What a listener's name is whose addresses are both loopback addresses.
pub(crate) fn both_families(what: &str, addr: &HostPort, found: &[SocketAddr]) -> Finding {
    let found: Vec<_> = found.iter().map(SocketAddr::to_string).collect();
    let value = format!("{addr} is {}, and it listens at both", found.join(" and "));
    Finding::new(Severity::Ok, what, value)
}

/// A finding if a listener's name has addresses besides the first, at which alone it listens.
pub(crate) fn one_of_several(what: &str, addr: &HostPort, found: &[SocketAddr]) -> Option<Finding> {
    let (first, others) = found.split_first().filter(|(_, others)| !others.is_empty())?;
    let others: Vec<_> = others.iter().map(SocketAddr::to_string).collect();
    let others = others.join(" and ");
    let finding =
        Finding::new(Severity::Advice, what, format!("{addr} is {first}, and also {others}"));
    let why = "it listens at the first alone: what is sent to another does not reach it";
    Some(finding.because(why).fixed_by(format!("add a listener for {others}")))
}

/// Whether datagrams sent to a UDP address leave this host and do not come back. Of a name, one address is used: the first of the
/// family of `source`. The others are judged too, because the name may lose that one.
pub(crate) fn udp_receiver(
    what: &str,
    addr: &HostPort,
    source: Option<IpAddr>,
    listen_addrs: &[SocketAddr],
) -> Vec<Finding> {
    let found = match resolved(what, addr, Severity::Warning) {
        Ok(found) => found,
        Err(finding) => return vec![finding],
    };
    let all: Vec<_> = found.iter().map(SocketAddr::to_string).collect();
    let all = all.join(", ");
    let Some(used) = choose(&found, source) else {
        let value = format!("{addr} is {all}, and source_address is of the other family");
        let why = "everything for it is dropped as unresolved";
        let finding = Finding::new(Severity::Warning, what, value).because(why);
        return vec![finding.fixed_by("set source_address to an address of that family")];
    };

    let mut findings: Vec<_> = found
        .iter()
        .filter_map(|to| {
            let finding = wrong_with(what, addr, *to, listen_addrs)?;
            Some(if *to == used { finding } else { finding.of_unused(used) })
        })
        .collect();
    if findings.iter().all(|finding| finding.severity > Severity::Warning) {
        let value = format!("{addr} can be reached by route ({all})");
        findings.push(Finding::new(Severity::Ok, what, value));
    }
    findings
}

/// The address that is used of those that a name has: the first of the family of `source`, if that is given.
pub fn choose(known: &[SocketAddr], source: Option<IpAddr>) -> Option<SocketAddr> {
    let fits = |addr: &&SocketAddr| source.is_none_or(|ip| ip.is_ipv4() == addr.is_ipv4());
    known.iter().find(fits).copied()
}

/// What is wrong with one address of a receiver, if anything is.
fn wrong_with(
    what: &str,
    addr: &HostPort,
    to: SocketAddr,
    listen_addrs: &[SocketAddr],
) -> Option<Finding> {
    let route = sys::route::egress(to.ip());
    let local: &[IpAddr] = match &route {
        Ok(route) if route.is_local => &[to.ip()],
        _ => &[],
    };
    if let Some(listen) = would_loop(listen_addrs, to, local) {
        let value = format!("{addr} is {to}, where this relay itself listens ({listen})");
        let finding = Finding::new(Severity::Error, what, value);
        let finding = finding.because("its datagrams would come back for ever");
        return Some(finding.fixed_by("name another address in `to`"));
    }
    let error = route.err()?;
    let finding = Finding::new(Severity::Warning, what, format!("no way to {to}: {error}"))
        .because("what is sent there is dropped as unreachable")
        .fixed_by(format!("ip route get {}", to.ip()));
    Some(finding)
}

/// A finding if this host does not have an interface.
pub(crate) fn interface(what: &str, name: Option<&str>, absence: Absence) -> Option<Finding> {
    // A listener may give an interface by its address.
    let name = name.filter(|name| name.parse::<IpAddr>().is_err())?;
    let error = sys::socket::interface_index(name).err()?;
    let finding = absence.finding(what, format!("there is no interface {name}: {error}"));
    Some(finding.fixed_by("ip -brief link"))
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Why no file can be created in a folder, or `None` if one can. Creates and removes a file with an unused name.
fn folder_refuses(folder: &Path) -> Option<io::Error> {
    let path = folder.join(format!(".weir-check-{}", std::process::id()));
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(_) => fs::remove_file(path).err(),
        Err(error) => Some(error),
    }
}

fn folder_fix(folder: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("mkdir -p {}", folder.display()),
        _ => format!("ls -ld {}", folder.display()),
    }
}

/// Whether a unix listener's socket can be bound and be its owner's and group's.
pub(crate) fn unix_listener(what: &str, unix: &UnixListener) -> Finding {
    if let Err(error) = unix.ids() {
        let (why, fix) = error.split_once(". Fix: ").unwrap_or((error.as_str(), "remove the key"));
        return Finding::new(Severity::Error, what, why)
            .because("the daemon does not start")
            .fixed_by(fix);
    }
    socket_file(what, &unix.path)
}

/// Whether a unix socket can be bound at a path.
pub(crate) fn socket_file(what: &str, path: &Path) -> Finding {
    let (folder, shown) = (folder_of(path), path.display());
    let is_other = fs::symlink_metadata(path).is_ok_and(|meta| !meta.file_type().is_socket());
    if is_other {
        return Finding::new(
            Severity::Error,
            what,
            format!("{shown} is there and is not a socket"),
        )
        .because("a socket cannot be bound over a file")
        .fixed_by(format!("ls -l {shown}"));
    }

    match folder_refuses(&folder) {
        None => Finding::new(Severity::Ok, what, format!("{shown} can be made")),
        Some(error) => Finding::new(Severity::Error, what, format!("cannot make {shown}: {error}"))
            .because("the socket is a file in that folder")
            .fixed_by(folder_fix(&folder, &error)),
    }
}

/// Whether a file can be written. Opens an existing file for appending, which changes nothing; a new one only needs its folder.
pub(crate) fn file(what: &str, path: &Path) -> Finding {
    let (folder, shown) = (folder_of(path), path.display());
    let refused = match OpenOptions::new().append(true).open(path) {
        Ok(_) => None,
        // The daemon creates the folder if only its last part is missing.
        Err(_) if !folder.exists() => folder_refuses(&folder_of(&folder)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder_refuses(&folder),
        Err(error) => Some(error),
    };

    match refused {
        None => Finding::new(Severity::Ok, what, format!("{shown} can be written")),
        Some(error) => {
            Finding::new(Severity::Error, what, format!("cannot write {shown}: {error}"))
                .because("everything for this target would be dropped")
                .fixed_by(folder_fix(&folder, &error))
        }
    }
}

/// Whether files can be created in a folder. The daemon creates the folder itself if it is missing.
pub(crate) fn folder(what: &str, folder: &Path) -> Finding {
    let shown = folder.display();
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    match folder_refuses(there) {
        None => Finding::new(Severity::Ok, what, format!("{shown} can be written")),
        Some(error) => {
            Finding::new(Severity::Error, what, format!("cannot write {shown}: {error}"))
                .because("records would wait, and be dropped once the queue is full")
                .fixed_by(folder_fix(there, &error))
        }
    }
}
