//! Addresses and files that the system refuses: which, why, and what helps.

use crate::exit::Failure;
use ::load::{Address, generate, verify};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// This program's path, for a command that gives it a capability.
pub(crate) fn program() -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "weir".into());
    program.display().to_string()
}

/// What was asked of the system.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// To receive datagrams at a UDP address.
    Udp(SocketAddr),
    /// To serve at a TCP address.
    Tcp(SocketAddr),
    /// To listen at the path of a unix socket.
    Unix(&'a Path),
    /// To send by UDP, from this address and port if given.
    SendUdp(Option<IpAddr>, Option<u16>),
    /// To send by UDP from other hosts' addresses, from this port if given.
    SendFromAny(Option<u16>),
    /// To send to a unix socket.
    SendUnix,
    /// To poll a device's queue before sleeping.
    BusyPoll,
}

/// An error that ends the program: `what` failed, the system's reason, and what helps.
pub(crate) fn refused(
    what: impl fmt::Display,
    wanted: Wanted<'_>,
    error: &io::Error,
) -> anyhow::Error {
    match reason(wanted, error) {
        Some((failure, why)) => failure.error(format!("{what}: {error}: {why}")),
        None => Failure::Io.error(format!("{what}: {error}")),
    }
}

/// As [`refused`], for a generator that could not start.
pub(crate) fn by_sender(
    error: &generate::Error,
    source: Option<IpAddr>,
    source_port: Option<u16>,
) -> anyhow::Error {
    match error {
        generate::Error::Open { address: Address::Udp(_), source: why } => {
            refused(error, Wanted::SendUdp(source, source_port), why)
        }
        generate::Error::Open { address: Address::Unix(_), source: why } => {
            refused(error, Wanted::SendUnix, why)
        }
        generate::Error::Input(why) => Failure::Io.error(format!("{error}: {why}")),
        wrong_options => Failure::Usage.error(wrong_options),
    }
}

/// As [`refused`], for a verifying receiver that could not start.
pub(crate) fn by_receiver(error: &verify::Error) -> anyhow::Error {
    match error {
        verify::Error::Listen { address: Address::Udp(addr), source } => {
            refused(error, Wanted::Udp(*addr), source)
        }
        verify::Error::Listen { address: Address::Unix(path), source } => {
            refused(error, Wanted::Unix(path), source)
        }
        wrong_options => Failure::Usage.error(wrong_options),
    }
}

/// The reason in words and what helps; `None` if there is nothing to add to the system's message.
fn reason(wanted: Wanted<'_>, error: &io::Error) -> Option<(Failure, String)> {
    Some(match (error.kind(), wanted) {
        (io::ErrorKind::AddrInUse, _) => (Failure::Unavailable, holder(wanted)),
        (io::ErrorKind::PermissionDenied, _) => (Failure::Permission, privilege(wanted)),
        (io::ErrorKind::AddrNotAvailable, _) => (Failure::Unavailable, not_of_this_host(wanted)),
        (io::ErrorKind::NotFound, Wanted::Unix(path)) => {
            (Failure::Unavailable, format!("its folder is missing. Fix: {}", mkdir(path)))
        }
        (io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused, Wanted::SendUnix) => {
            (Failure::Unavailable, "nobody listens there. Fix: start the receiver first".to_owned())
        }
        (_, Wanted::Udp(group)) if group.ip().is_multicast() && is_no_device(error) => (
            Failure::Unavailable,
            format!(
                "no route leads to the group, so an interface has to be named. Fix: add multicast_interface, as in \
                 '{group}?multicast_interface=NAME', with a NAME that `ip link` lists"
            ),
        ),
        _ if is_no_device(error) => (
            Failure::Unavailable,
            "there is no such interface. Fix: name one that `ip link` lists".to_owned(),
        ),
        _ => return None,
    })
}

/// Whether there is no interface of a name.
pub(crate) fn is_no_device(error: &io::Error) -> bool {
    error.raw_os_error() == Some(sys::Errno::NODEV.0)
}

fn holder(wanted: Wanted<'_>) -> String {
    let (what, options, filter) = match wanted {
        Wanted::Udp(addr) => ("holds the port", "-ulpn", format!("'sport = :{}'", addr.port())),
        Wanted::Tcp(addr) => ("holds the port", "-tlpn", format!("'sport = :{}'", addr.port())),
        Wanted::SendUdp(_, port) | Wanted::SendFromAny(port) => {
            ("holds the source port", "-uapn", format!("'sport = :{}'", port.unwrap_or(0)))
        }
        Wanted::Unix(path) => (
            "listens there, or the file is not a socket",
            "-xlp",
            format!("src {}", path.display()),
        ),
        Wanted::SendUnix | Wanted::BusyPoll => ("listens there", "-xlp", String::new()),
    };
    format!(
        "another program {what}. Fix: stop it, or use another address; it is found with: ss {options} {filter}"
    )
}

fn privilege(wanted: Wanted<'_>) -> String {
    match wanted {
        Wanted::Udp(addr) | Wanted::Tcp(addr) => {
            format!(
                "a port under 1024 needs a privilege. Fix: setcap cap_net_bind_service=+ep {}, or \
                 sysctl -w net.ipv4.ip_unprivileged_port_start={}",
                program(),
                addr.port()
            )
        }
        Wanted::Unix(_) => {
            format!("this user may not write to its folder. Fix: {}", own_folder())
        }
        Wanted::SendFromAny(_) => {
            format!(
                "preserve_source needs CAP_NET_RAW (IP_TRANSPARENT); without it every datagram seems to come from this host. Fix: setcap \
                 cap_net_raw=+ep {}, AmbientCapabilities=CAP_NET_RAW in the unit, or remove the key",
                program()
            )
        }
        Wanted::SendUdp(..) => {
            "this user may not send like that. Fix: use a --source-port above 1023, or look for a firewall: nft list ruleset".to_owned()
        }
        Wanted::BusyPoll => format!(
            "busy_poll beyond net.core.busy_read needs CAP_NET_ADMIN; without it a datagram costs an interrupt and a wake-up. Fix: \
             setcap cap_net_admin=+ep {}, AmbientCapabilities=CAP_NET_ADMIN in the unit, or remove the key",
            program()
        ),
        Wanted::SendUnix => "this user may not write to that socket. Fix: run this as one who may, which `ls -l` shows".to_owned(),
    }
}

fn not_of_this_host(wanted: Wanted<'_>) -> String {
    match wanted {
        Wanted::SendUdp(source, _) => {
            let source = source.map_or("any address".to_owned(), |ip| ip.to_string());
            format!(
                "{source} is not an address of this host that leads there. Fix: use one that `ip address` lists"
            )
        }
        _ => "no interface of this host has the address. Fix: use one that `ip address` lists"
            .to_owned(),
    }
}

/// As [`refused`], for the search for a relay's highest rate.
#[cfg(feature = "lab")]
pub(crate) fn by_load(error: &::load::spin::Error) -> anyhow::Error {
    use ::load::spin::Error::{Listen, Open, Send};
    match error {
        Listen { address: Address::Udp(addr), source } => {
            refused(error, Wanted::Udp(*addr), source)
        }
        Listen { address: Address::Unix(path), source } => {
            refused(error, Wanted::Unix(path), source)
        }
        Open { address: Address::Udp(_), source } | Send { address: Address::Udp(_), source } => {
            refused(error, Wanted::SendUdp(None, None), source)
        }
        Open { address: Address::Unix(_), source } | Send { address: Address::Unix(_), source } => {
            refused(error, Wanted::SendUnix, source)
        }
    }
}

/// The error for a file or folder that cannot be written, whatever the reason. It never means a missing input.
pub(crate) fn unwritable(what: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let failure = match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::Permission,
        _ => Failure::Io,
    };
    let fix = match error.kind() {
        io::ErrorKind::NotFound => format!(". Fix: {}", mkdir(path)),
        io::ErrorKind::PermissionDenied => format!(". Fix: {}", own_folder()),
        _ => format!(". Fix: choose another path than {}", path.display()),
    };
    failure.error(format!("{what} {}: {error}{fix}", path.display()))
}

/// The error for a file that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> anyhow::Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).display();
    let fix = match error.kind() {
        io::ErrorKind::PermissionDenied => format!(". Fix: sudo chmod a+r {}", path.display()),
        io::ErrorKind::NotFound => {
            format!(". Fix: correct the path; `ls {folder}` shows what is there")
        }
        io::ErrorKind::IsADirectory => ". Fix: name a file in it".to_owned(),
        _ => String::new(),
    };
    let failure = match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::Permission,
        _ => Failure::InputMissing,
    };
    failure.error(format!("cannot read {}: {error}{fix}", path.display()))
}

/// The command that creates a file's folder.
pub(crate) fn mkdir(path: &Path) -> String {
    format!("mkdir -p {}", path.parent().unwrap_or(Path::new(".")).display())
}

/// The fix for a folder that this user may not write to. A new folder of the user's own gives access to nothing else.
pub(crate) fn own_folder() -> String {
    format!(
        "choose a path in a folder of this user's, made for instance with: install -d -o {} /var/lib/weir",
        sys::process::effective_uid()
    )
}
