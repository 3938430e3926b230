//! Listeners and their targets, opened and running.

use super::drops::Drops;
use super::flows::{self, Shared};
use super::inherited::Inherited;
use super::names::Names;
use super::open::{self, OpenSocket, SocketFile};
use super::sinks::{Fed, Sinks};
use super::ways::Ways;
use super::{NAMES_WAIT, has_name};
use config::{Config, ListenerConfig};
use ledger::Ledger;
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
    /// The address each UDP target's socket is connected to; `None` while no socket is open.
    pub(super) addresses: BTreeMap<String, Option<SocketAddr>>,
    /// The sinks it feeds.
    pub(super) fed: Vec<Fed>,
    /// The analysis it feeds, if any.
    pub(super) tapped: Option<Arc<Shared>>,
}

/// Opens the sockets of all listeners, or takes over the ones that a service manager passed in. Also returns the socket to
/// write lines of standard input to, if a listener reads them.
pub(super) fn open_listeners(
    config: &Config,
    inherited: &mut Inherited,
    names: &Names,
) -> anyhow::Result<(Vec<OpenSocket>, Option<UnixDatagram>)> {
    let listeners = &config.listeners;
    let helper = config.daemon.helper.as_deref();
    if listeners.iter().any(has_name) {
        names.wait_for_answers(Instant::now() + NAMES_WAIT);
    }

    let sockets = listeners
        .iter()
        .map(|listener| open::listener(listener, open::Place::Free, inherited, names, helper));
    let mut sockets = sockets.collect::<anyhow::Result<Vec<_>>>()?;

    inherited.expect_none(listeners)?;
    let input = sockets.iter_mut().find_map(|one| one.input.take());
    Ok((sockets, input))
}

/// Opens the targets of all listeners. `sockets` are the listeners' own sockets, to detect loops.
pub(super) fn open_targets(
    listeners: &[ListenerConfig],
    names: &Names,
    ways: &Ways,
    sockets: &[OpenSocket],
) -> anyhow::Result<Vec<Targets>> {
    let listen_addrs: Vec<_> = sockets.iter().filter_map(OpenSocket::address).collect();
    let open = |listener: &ListenerConfig| Targets::open(listener, names, ways, &listen_addrs);
    listeners.iter().map(open).collect()
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
        let Targets { destinations, addresses, fed, tapped } = targets;
        let socket = ListenSocket::new(socket, receive);
        let listener =
            Listener::start_counting_from(options, socket, before, destinations, ledger)?;
        let mut running = Running { config, listener, helper, file, addresses, fed, tapped };
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

    pub(super) fn owner(&self) -> SocketOwner {
        self.listener.options().socket_owner
    }
}

/// A listener's targets, opened.
#[derive(Default)]
pub(super) struct Targets {
    pub(super) destinations: Vec<(TargetOptions, TargetKind)>,
    pub(super) addresses: BTreeMap<String, Option<SocketAddr>>,
    pub(super) fed: Vec<Fed>,
    pub(super) tapped: Option<Arc<Shared>>,
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
            targets.addresses.insert(config.name.clone(), opened.address);
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
