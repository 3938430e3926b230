//! What `weir gen` and `weir verify` share: addresses on the command line, the stop signal, the progress line.

use crate::exit::Failure;
use clap::ValueEnum;
use config::{Host, HostPort, ListenAddress, TargetAddress};
use lab::Address;
use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Whether and how progress is shown on standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ProgressMode {
    /// Rewritten in place on a terminal, else new lines every ten seconds.
    Auto,
    /// New lines every second.
    Lines,
    /// None.
    Off,
}

/// A flag that Ctrl-C and SIGTERM set. A second signal ends the program at once, unless it follows within half a second.
pub(crate) fn stop_flag() -> io::Result<&'static AtomicBool> {
    Ok(sys::signal::stop_flag()?)
}

/// Whether it is a terminal on which a line can be written over.
pub(crate) fn rewrites_lines(stream: &impl IsTerminal) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    stream.is_terminal() && !is_dumb
}

/// Runs `work` while lines about it go to standard error.
pub(crate) fn with_progress<T>(
    mode: ProgressMode,
    line: impl Fn() -> String + Send,
    work: impl FnOnce() -> T,
) -> T {
    let on_terminal = rewrites_lines(&io::stderr());
    let every = match mode {
        ProgressMode::Off => return work(),
        ProgressMode::Lines => Duration::from_secs(1),
        ProgressMode::Auto if on_terminal => Duration::from_millis(500),
        ProgressMode::Auto => Duration::from_secs(10),
    };
    let rewrites = on_terminal && mode == ProgressMode::Auto;
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Progress is a courtesy: nothing depends on whether it can be written.
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let (before, after) = if rewrites { ("\r\x1b[K", "") } else { ("", "\n") };
                let _ = write!(io::stderr(), "{before}{}{after}", line());
            }
            if rewrites {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        let result = work();
        drop(end);
        result
    })
}

/// Where to send, of a target on the command line; host names are resolved, once.
pub(crate) fn target(address: &TargetAddress) -> anyhow::Result<Address> {
    match address {
        TargetAddress::Udp(host_port) => resolve(host_port).map(Address::Udp),
        TargetAddress::Unix(path) => Ok(Address::Unix(path.clone())),
        TargetAddress::File(_) | TargetAddress::Null => Err(Failure::Usage
            .error(format!("cannot send to {address}: write udp://HOST:PORT or unix:/path"))),
    }
}

/// Where to listen, of an address on the command line.
pub(crate) fn listener(address: &ListenAddress) -> anyhow::Result<Address> {
    match address {
        ListenAddress::Udp(host_port) => resolve(host_port).map(Address::Udp),
        ListenAddress::Unix(path) => Ok(Address::Unix(path.clone())),
    }
}

fn resolve(host_port: &HostPort) -> anyhow::Result<SocketAddr> {
    let unavailable = |why: &str| {
        Failure::Unavailable
            .error(format!("cannot resolve {host_port}: {why}; see `getent ahosts` for the name"))
    };
    let name = match &host_port.host {
        Host::Ip(ip) => return Ok(SocketAddr::new(*ip, host_port.port)),
        Host::Name(name) => name,
    };
    let found = (name.as_str(), host_port.port).to_socket_addrs();
    let mut found = found.map_err(|error| unavailable(&error.to_string()))?;
    found.next().ok_or_else(|| unavailable("it has no address"))
}

/// An address that the system refused: says which, why, and what mends it.
pub(crate) fn address_error(error: &(dyn std::error::Error + 'static)) -> anyhow::Error {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let (failure, hint) = match source.map(io::Error::kind) {
        Some(io::ErrorKind::AddrInUse) => (
            Failure::Unavailable,
            "; another program holds it: `ss -lunxp` shows which, or choose another",
        ),
        Some(io::ErrorKind::AddrNotAvailable) => {
            (Failure::Unavailable, "; this host does not have the address: see `ip address`")
        }
        Some(io::ErrorKind::PermissionDenied) => (
            Failure::Permission,
            "; ports below 1024 need a privilege: choose a higher one, or `setcap cap_net_bind_service+ep` on the binary",
        ),
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            (Failure::Unavailable, "; nobody listens there: start the receiver first")
        }
        Some(_) => (Failure::Unavailable, ""),
        None => (Failure::Usage, ""),
    };
    match source {
        Some(source) => failure.error(format!("{error}: {source}{hint}")),
        None => failure.error(format!("{error}{hint}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_target(text: &str, expected: &str) {
        assert_eq!(target(&text.parse().unwrap()).unwrap().to_string(), expected, "{text}");
    }

    #[test]
    fn addresses() {
        check_target("127.0.0.1:514", "udp://127.0.0.1:514");
        check_target("udp://[::1]:514", "udp://[::1]:514");
        check_target("unix:/run/x.sock", "unix:/run/x.sock");
        assert_eq!(listener(&":0".parse().unwrap()).unwrap().to_string(), "udp://0.0.0.0:0");
        assert!(target(&"null:".parse().unwrap()).is_err());
    }
}
