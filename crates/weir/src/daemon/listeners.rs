//! Listeners and their targets, opened and running.

use super::drops::Drops;
use super::flows::{self, Shared};
use super::inherited::Inherited;
use super::listening::Hearing;
use super::names::Names;
use super::open::{self, Anchor, Awaited, CannotListen, OpenSocket, SocketFile};
use super::sinks::{Fed, Sinks};
use super::ways::Ways;
use super::{NAMES_WAIT, Source, has_name};
use crate::exit::Failure;
use config::{Config, ListenerConfig};
use ledger::{Ledger, Trouble};
use relay::{ListenSocket, Listener, ListenerOptions, SocketOwner, TargetKind, TargetOptions};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// A running listener and what it was built from.
pub(crate) struct Running {
    pub(super) config: ListenerConfig,
    pub(super) listener: Listener,
    /// The helper that counts what the kernel drops of aggregated datagrams, where this process may not.
    pub(super) helper: Option<PathBuf>,
    pub(super) file: Option<SocketFile>,
    /// What the open socket of each target depends on.
    pub(super) anchors: BTreeMap<String, Anchor>,
    /// What its own socket depends on.
    pub(super) hearing: Hearing,
    /// The sinks it feeds.
    pub(super) fed: Vec<Fed>,
    /// The analysis it feeds, if any.
    pub(super) tapped: Option<Arc<Shared>>,
}

/// The socket of a listener, or why it has to wait.
pub(super) type Opened = Result<OpenSocket, (Trouble, Awaited)>;

/// Opens the sockets of all listeners, or takes over the ones that a service manager passed in. Also returns the socket to
/// write lines of standard input to, if a listener reads them.
pub(super) fn open_listeners(
    config: &Config,
    inherited: &mut Inherited,
    names: &Names,
) -> anyhow::Result<(Vec<Opened>, Option<UnixDatagram>)> {
    let listeners = &config.listeners;
    let helper = config.daemon.helper.as_deref();
    if listeners.iter().any(has_name) {
        names.wait_for_answers(Instant::now() + NAMES_WAIT);
    }

    let sockets = listeners.iter().map(|listener| {
        match open::listener(listener, open::Place::Free, inherited, names, helper) {
            Ok(socket) => Ok(Ok(socket)),
            Err(CannotListen::Waits(trouble, awaited)) => Ok(Err((trouble, awaited))),
            Err(CannotListen::Never(error)) => Err(error),
        }
    });
    let mut sockets = sockets.collect::<anyhow::Result<Vec<_>>>()?;

    inherited.expect_none(listeners)?;
    let input = sockets.iter_mut().flatten().find_map(|one| one.input.take());
    Ok((sockets, input))
}

/// Opens the targets of all listeners that have a socket. `sockets` are the listeners' own sockets, to detect loops.
pub(super) fn open_targets(
    listeners: &[ListenerConfig],
    names: &Names,
    ways: &Ways,
    sockets: &[Opened],
    source: &Source,
) -> anyhow::Result<Vec<Targets>> {
    let listen_addrs: Vec<_> = sockets.iter().flatten().flat_map(OpenSocket::addresses).collect();
    let open = |(listener, socket): (&ListenerConfig, &Opened)| match socket {
        Ok(_) => Targets::open(listener, names, ways, &listen_addrs),
        Err(_) => Ok(Targets::default()),
    };
    let targets = listeners.iter().zip(sockets).map(open).collect::<anyhow::Result<_>>()?;
    refuse_mistakes(source, sockets, targets)
}

/// Refuses a command line whose listeners or targets name what this host does not have: somebody waits for its answer, and most
/// often has mistyped it. A file may be read while a host is still starting.
fn refuse_mistakes(
    source: &Source,
    sockets: &[Opened],
    mut targets: Vec<Targets>,
) -> anyhow::Result<Vec<Targets>> {
    if matches!(source, Source::File { .. }) {
        return Ok(targets);
    }
    let is_mistaken = |one: &Opened| matches!(one, Err((_, Awaited::Address)));
    if let Some(Err((trouble, _))) = sockets.first().filter(|_| sockets.iter().all(is_mistaken)) {
        let Trouble { what, fix } = trouble;
        return Err(Failure::Unavailable.error(format!("{what}. Fix: {fix}")));
    }
    match targets.iter_mut().find_map(|one| one.absent.take()) {
        Some(absent) => Err(absent),
        None => Ok(targets),
    }
}

impl Running {
    pub(super) fn start(
        config: ListenerConfig,
        socket: OpenSocket,
        targets: Targets,
        drops: &Drops,
        ledger: &Arc<Ledger>,
    ) -> anyhow::Result<Running> {
        let OpenSocket { socket, owner, receive, helper, file, link, input: _ } = socket;
        let options = ListenerOptions { link, ..config.listener_options(owner) };
        let before = drops.counted(socket.as_fd(), owner);
        let Targets { destinations, anchors, fed, tapped, absent: _ } = targets;
        let socket = ListenSocket::new(socket, receive);
        let listener =
            Listener::start_counting_from(options, socket, before, destinations, ledger)?;
        let hearing = Hearing::default();
        let mut running = Running { config, listener, helper, file, anchors, hearing, fed, tapped };
        running.hearing = Hearing::of(&running);
        running.set_sockets(running.config.sockets(), &mut || {})?;
        Ok(running)
    }

    /// Changes the number of sockets of the listener to `count`.
    pub(super) fn set_sockets(
        &mut self,
        count: usize,
        keep_alive: &mut dyn FnMut(),
    ) -> anyhow::Result<()> {
        let Some(addr) = self.address().filter(|_| count != self.listener.socket_count()) else {
            return Ok(());
        };
        if self.owner() == SocketOwner::ServiceManager {
            return Err(open::stays_alone(&self.config));
        }
        let (config, helper) = (&self.config, self.helper.as_deref());
        let ListenerOptions { balance, order, .. } = config.listener_options(self.owner());
        self.listener.spread_by(balance, order);
        let first = self.listener.socket().try_clone_to_owned()?;
        let mut open = || open::joining(config, addr, first.as_fd(), helper);
        self.listener.set_sockets(count, &mut open, keep_alive)?;
        Ok(())
    }

    /// The UDP address it listens on.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match sys::socket::local_address(self.listener.socket()) {
            Some(sys::socket::LocalAddress::Inet(addr)) => Some(addr),
            _ => None,
        }
    }

    /// The UDP addresses at which it receives.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        sys::socket::receiving_addresses(self.listener.socket())
    }

    pub(super) fn owner(&self) -> SocketOwner {
        self.listener.options().socket_owner
    }
}

/// A listener's targets, opened.
#[derive(Default)]
pub(super) struct Targets {
    pub(super) destinations: Vec<(TargetOptions, TargetKind)>,
    pub(super) anchors: BTreeMap<String, Anchor>,
    pub(super) fed: Vec<Fed>,
    pub(super) tapped: Option<Arc<Shared>>,
    /// What this host does not have that a target is to send by.
    pub(super) absent: Option<anyhow::Error>,
}

impl Targets {
    pub(super) fn open(
        listener: &ListenerConfig,
        names: &Names,
        ways: &Ways,
        listen_addrs: &[SocketAddr],
    ) -> anyhow::Result<Targets> {
        let mut targets = Targets::default();
        for config in &listener.targets {
            let opened = open::target(config, &listener.name, names, ways, listen_addrs)?;
            let anchor = opened.anchor.map(|anchor| (config.name.clone(), anchor));
            targets.anchors.extend(anchor);
            targets.absent = targets.absent.or(opened.absent);
            targets.destinations.push((config.target_options(), opened.destination));
        }
        Ok(targets)
    }

    /// Adds the sinks and the analysis that the listener feeds.
    pub(super) fn feed(
        &mut self,
        config: &Config,
        listener: &str,
        sinks: &mut Sinks,
        analysis: Option<&Arc<Shared>>,
    ) {
        self.fed = Fed::by(config, listener);
        let destination = |one: &Fed| (one.target_options(), sinks.receiver(listener, one));
        self.destinations.extend(self.fed.iter().map(destination));

        self.tapped = analysis.filter(|_| flows::is_source(config, listener)).cloned();
        self.destinations.extend(self.tapped.as_ref().map(flows::tap));
    }
}
