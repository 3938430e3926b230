//! Follows what open sockets depend on: names that resolve to another address, and this host's addresses, routes and interfaces.
//! Also retries targets that could not be opened.
//!
//! A connected UDP socket keeps the source address and the interface that it got when it was opened. When this host loses the
//! address, IPv4 refuses every datagram from then on, and IPv6 sends from an address that is no longer there
//! (net/ipv4/route.c, ip_route_output_key_hash_rcu; net/ipv6/datagram.c, ip6_datagram_dst_update). So after each change a
//! socket is opened for comparison: what the kernel gives that one is what all of its rules say now.

use super::open::{self, Anchor, CannotSend};
use super::{Daemon, Running, link};
use crate::daemon::names::Names;
use crate::daemon::ways::Ways;
use crate::log::Repeated;
use config::{Target, TargetConfig};
use relay::{TargetChange, TargetKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Which sockets may have to be replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// Those whose name has another address, and those that could not be opened.
    Names,
    /// All of them: this host has changed.
    Host,
}

/// A target's new destination.
struct Move {
    target: String,
    anchor: Anchor,
    destination: TargetKind,
}

impl Daemon {
    /// Opens the sockets anew of targets that a new one would serve differently, and those that could not be opened before.
    pub(super) fn follow(&mut self, look: Look, now: Instant) {
        let listen_addrs = self.listen_addrs();
        let mut under_way = Vec::new();
        for one in &mut self.running {
            let host = Host { names: &self.names, ways: &self.ways, listen_addrs: &listen_addrs };
            let moves = host.moves(one, look, &mut self.refused, now);
            let redirect = |Move { target, anchor, destination }: Move| {
                (TargetChange::Redirect(target.clone(), destination), (target, anchor))
            };
            let (changes, moves): (Vec<_>, Vec<_>) = moves.into_iter().map(redirect).unzip();
            under_way.push((one.listener.begin_changes(changes, Duration::ZERO), moves));
        }

        let keep_alive = &mut || self.service.feed_watchdog_while_busy(Instant::now());
        for (one, (changes, moves)) in self.running.iter_mut().zip(under_way) {
            let results = one.listener.finish_changes(changes, keep_alive);
            for ((target, anchor), result) in moves.into_iter().zip(results) {
                if let Err(error) = result {
                    tracing::error!("target {target}: {error}");
                    continue;
                }
                let former = one.anchors.insert(target.clone(), anchor);
                if former.is_none_or(|former| !anchor.is_like(&former)) {
                    tracing::info!("target {target}: {}", anchor.differences(former.as_ref()));
                }
            }
        }
    }
}

/// What new sockets are opened by.
struct Host<'a> {
    names: &'a Names,
    ways: &'a Ways,
    listen_addrs: &'a [SocketAddr],
}

impl Host<'_> {
    /// The targets of a listener that should move, each with its new socket open.
    fn moves(&self, one: &Running, look: Look, refused: &mut Repeated, now: Instant) -> Vec<Move> {
        let mut moves = Vec::new();
        for target in &one.config.targets {
            let current = one.anchors.get(&target.name);
            let Some(addr) = self.wanted(target, current) else { continue };
            let is_there = current.is_some_and(|current| current.remote == addr);
            let is_rebound = is_there && is_rebind_due(target, current);
            if look == Look::Names && is_there && !is_rebound {
                continue;
            }

            match self.open(target, addr, current.filter(|_| !is_rebound)) {
                Ok(None) | Err(CannotSend::NoRoute(_)) => {}
                Ok(Some((destination, anchor))) => {
                    moves.push(Move { target: target.name.clone(), anchor, destination });
                }
                Err(CannotSend::Never(error)) => {
                    if let Some(count) = refused.count(now) {
                        tracing::error!("{error:#} ({count} times since the last such line)");
                    }
                }
            }
        }
        moves
    }

    /// The address that a target should be connected to: the one that it has, as long as its name has it.
    fn wanted(&self, target: &TargetConfig, current: Option<&Anchor>) -> Option<SocketAddr> {
        let (known, choice) = match &target.to {
            Target::Udp(udp) => {
                let known = self.names.addresses(&udp.addr);
                let choice = config::choose(&known, udp.source_address);
                (known, choice)
            }
            Target::Weir(weir) => {
                let known = self.names.addresses(&weir.addr);
                let choice = known.first().copied();
                (known, choice)
            }
            _ => return None,
        };
        let current = current.map(|current| current.remote);
        current.filter(|current| known.is_empty() || known.contains(current)).or(choice)
    }

    /// Opens a socket. `None` if it would be as the current one is.
    fn open(
        &self,
        target: &TargetConfig,
        addr: SocketAddr,
        current: Option<&Anchor>,
    ) -> Result<Option<(TargetKind, Anchor)>, CannotSend> {
        let Host { ways, listen_addrs, .. } = self;
        let is_other = |anchor: &Anchor| current.is_none_or(|current| !anchor.is_like(current));
        match &target.to {
            Target::Udp(udp) => {
                let (socket, anchor) = open::connect(target, udp, addr)?;
                let open = |_| open::udp(target, udp, (socket, anchor), ways, listen_addrs);
                let opened = is_other(&anchor).then_some(()).map(open).transpose()?;
                Ok(opened.map(|destination| (destination, anchor)))
            }
            Target::Weir(_) => {
                let (socket, anchor) = link::socket(target, addr, ways, listen_addrs)?;
                Ok(is_other(&anchor).then_some((TargetKind::LinkSocket(socket), anchor)))
            }
            _ => Ok(None),
        }
    }
}

/// Ends this process's TCP connections whose address this host has lost, so that their clients connect anew. Nothing tells a client
/// that its connection can receive nothing any more, and those of libraries, which most sinks have, would wait for half a minute.
pub(super) fn end_lost_connections() {
    let is_gone = |own| sys::route::is_own(own).is_ok_and(|is_own| !is_own);
    // Without /proc there is still the timeout of each client.
    for own in sys::tcp::end_connections(is_gone).unwrap_or_default() {
        tracing::info!("the connection from {own} was ended: this host has lost the address");
    }
}

/// Whether a target is to have another source port by now.
fn is_rebind_due(target: &TargetConfig, current: Option<&Anchor>) -> bool {
    let interval = target.udp().and_then(|udp| udp.rebind_interval);
    interval.zip(current).is_some_and(|(interval, current)| current.opened.elapsed() >= interval)
}
