//! Addresses from the command line, whose names are resolved once.

use crate::exit::Failure;
use ::load::Address;
use config::{HostPort, ListenAddress, TargetAddress, resolve};
use std::net::SocketAddr;

/// An address to send to.
///
/// # Errors
/// The name does not resolve, or the target is not one that datagrams can be sent to.
pub(crate) fn target(address: &TargetAddress) -> anyhow::Result<Address> {
    match address {
        TargetAddress::Udp(host_port) => first(host_port).map(Address::Udp),
        TargetAddress::Unix(path) => Ok(Address::Unix(path.clone())),
        TargetAddress::File(_)
        | TargetAddress::Stdout
        | TargetAddress::Weir(_)
        | TargetAddress::Null => Err(Failure::Usage
            .error(format!("cannot send to {address}. Fix: write udp://HOST:PORT or unix:/path"))),
    }
}

/// An address to listen at.
///
/// # Errors
/// The name does not resolve, or the kind of listener is not supported here.
pub(crate) fn listener(address: &ListenAddress) -> anyhow::Result<Address> {
    match address {
        ListenAddress::Udp(host_port) => first(host_port).map(Address::Udp),
        ListenAddress::Unix(path) => Ok(Address::Unix(path.clone())),
        ListenAddress::Weir(_) | ListenAddress::Stdin => Err(Failure::Usage.error(format!(
            "cannot listen on {address} here. Fix: write udp://HOST:PORT or unix:/path"
        ))),
    }
}

fn first(host_port: &HostPort) -> anyhow::Result<SocketAddr> {
    let found = resolve(host_port).map_err(|error| {
        Failure::Unavailable.error(format!(
            "cannot resolve {host_port}: {error}. Fix: write the address itself, or a name that `getent ahosts` resolves"
        ))
    })?;
    Ok(found[0])
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
