//! Links to other Weirs: keys from files, sockets, options.

use super::names::Names;
use super::open::{Anchor, CannotSend, OpenTarget, cannot_send, check_loop, way_out};
use super::ways::Ways;
use crate::exit::Failure;
use config::{ListenerConfig, TargetConfig, WeirTarget};
use hop::{Identity, Key, Keys};
use relay::{LinkListenOptions, LinkOptions, TargetKind};
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use sys::route::Ends;
use sys::socket::{self, SendOptions};

/// The link options of a listener for other Weirs; `None` for any other listener.
///
/// # Errors
/// The key file cannot be read, or is wrong.
pub(crate) fn listen_options(config: &ListenerConfig) -> anyhow::Result<Option<LinkListenOptions>> {
    let Some(weir) = config.weir() else { return Ok(None) };
    let what = format!("listener {}", config.name);
    let keys = read_keys(&what, &weir.keys_file)?;
    let state = checked_state(&what, weir.state.as_deref())?;
    Ok(Some(LinkListenOptions { keys, receiver: weir.receiver_options(), state }))
}

/// Opens the link to another Weir, for a target of the listener `origin`. Without an address or a route it waits for one.
///
/// # Errors
/// The key cannot be read, or it is an address that we listen on.
pub(crate) fn target(
    config: &TargetConfig,
    weir: &WeirTarget,
    origin: &str,
    names: &Names,
    ways: &Ways,
    listen_addrs: &[SocketAddr],
) -> anyhow::Result<OpenTarget> {
    let what = format!("target {}", config.name);
    let key = read_key(&what, &weir.key_file)?;
    let host = sys::process::host_name().unwrap_or_default();
    let options = Box::new(LinkOptions {
        key,
        identity: Identity { host, listener: origin.to_owned() },
        sender: weir.sender_options(),
        deadline: weir.deadline,
        state: checked_state(&what, weir.state.as_deref())?,
    });

    let waits = |why: String, fix: String| {
        tracing::warn!(
            "{what}: {why}; what it gets waits for its deadline, and expires. Fix: {fix}"
        );
    };
    let socket = match names.addresses(&weir.addr).first().copied() {
        None => {
            let why = format!("{} has no address: {}", weir.addr, names.error(&weir.addr));
            waits(why, "correct the name, or the resolver".to_owned());
            None
        }
        Some(addr) => match socket(config, addr, ways, listen_addrs) {
            Ok(opened) => Some(opened),
            Err(CannotSend::NoRoute(error)) => {
                waits(format!("{addr} cannot be reached ({error})"), way_out(addr, &error));
                None
            }
            Err(CannotSend::Never(error)) => return Err(error),
        },
    };
    let (socket, anchor) = socket.unzip();
    Ok(OpenTarget { destination: TargetKind::Link { socket, options }, anchor, absent: None })
}

/// Opens the socket of a link to the Weir at this address.
pub(crate) fn socket(
    config: &TargetConfig,
    addr: SocketAddr,
    ways: &Ways,
    listen_addrs: &[SocketAddr],
) -> Result<(OwnedFd, Anchor), CannotSend> {
    let (path, _) = ways.follow(Ends { dst: addr, src: None });
    check_loop(config, addr, &path, listen_addrs).map_err(CannotSend::Never)?;

    let options = SendOptions { is_answered: true, ..SendOptions::default() };
    let socket = socket::connect_udp(addr, &options)
        .map_err(|error| cannot_send(config, None, addr, error))?;
    let anchor = Anchor::of(socket.as_fd(), addr, &options);
    Ok((socket, anchor))
}

/// The state file that outlives the process, if configured, checked for use.
fn checked_state(what: &str, path: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = path else { return Ok(None) };
    relay::check_link_state(path).map_err(|error| {
        let (failure, fix) = match error.kind() {
            ErrorKind::PermissionDenied => {
                (Failure::Permission, "a file in a folder that this process may write to")
            }
            ErrorKind::NotFound => (Failure::Config, "make its folder, which is not there"),
            ErrorKind::InvalidData => (Failure::Config, "a file of its own, made by Weir"),
            _ => (Failure::Config, "a file in a folder of this host, as /run/weir"),
        };
        let shown = path.display();
        failure.error(format!("{what}: its state cannot be kept in {shown}: {error}. Fix: {fix}"))
    })?;
    Ok(Some(path.to_owned()))
}

/// Whether a file has keys of links.
///
/// # Errors
/// It cannot be read, or is wrong.
pub(crate) fn check_link_keys(path: &Path) -> anyhow::Result<()> {
    read_keys("a link", path).map(drop)
}

fn read_keys(what: &str, path: &Path) -> anyhow::Result<Keys> {
    let shown = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        let failure = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Failure::Permission,
            _ => Failure::Config,
        };
        failure.error(format!(
            "{what}: cannot read its key from {shown}: {error}. Fix: weir hop key NAME > {shown}, and the same line into the keys \
             of the other Weir"
        ))
    })?;
    Keys::parse(&text)
        .map_err(|error| Failure::Config.error(format!("{what}: in {shown}, {error}")))
}

fn read_key(what: &str, path: &Path) -> anyhow::Result<Key> {
    let keys = read_keys(what, path)?;
    keys.only()
        .map_err(|error| Failure::Config.error(format!("{what}: in {}, {error}", path.display())))
}
