//! Follows targets whose name resolves to another address, and retries those that could not be opened.

use super::open::{self, CannotSend};
use super::{Daemon, Running};
use crate::daemon::names::Names;
use crate::daemon::ways::Ways;
use crate::log::Repeated;
use relay::{TargetChange, TargetKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A target's new destination.
struct Move {
    target: String,
    addr: SocketAddr,
    destination: TargetKind,
}

impl Daemon {
    /// Moves targets whose name resolves to another address, and opens those that could not be opened before.
    pub(super) fn follow_names(&mut self, now: Instant) {
        let listen_addrs = self.listen_addrs();
        let mut under_way = Vec::new();
        for one in &mut self.running {
            let moves =
                moves(one, (&self.names, &self.ways), &listen_addrs, &mut self.refused, now);
            let redirect = |Move { target, addr, destination }: Move| {
                (TargetChange::Redirect(target.clone(), destination), (target, addr))
            };
            let (changes, moves): (Vec<_>, Vec<_>) = moves.into_iter().map(redirect).unzip();
            under_way.push((one.listener.begin_changes(changes, Duration::ZERO), moves));
        }

        let keep_alive = &mut || self.service.feed_watchdog_while_busy(Instant::now());
        for (one, (changes, moves)) in self.running.iter_mut().zip(under_way) {
            let results = one.listener.finish_changes(changes, keep_alive);
            for ((target, addr), result) in moves.into_iter().zip(results) {
                if let Err(error) = result {
                    tracing::error!("target {target}: {error}");
                    continue;
                }

                let before = one.addresses.insert(target.clone(), Some(addr)).flatten();
                let before = before.map_or("nowhere".to_owned(), |addr| addr.to_string());
                tracing::info!("target {target}: sending to {addr}, before {before}");
            }
        }
    }
}

/// The targets of a listener that should move, each with its new socket open.
fn moves(
    one: &Running,
    (names, ways): (&Names, &Ways),
    listen_addrs: &[SocketAddr],
    refused: &mut Repeated,
    now: Instant,
) -> Vec<Move> {
    let mut moves = Vec::new();
    for target in &one.config.targets {
        let Some(udp) = target.udp() else { continue };

        let known = names.addresses(&udp.addr);
        let current = one.addresses.get(&target.name).copied().flatten();
        if current.is_some_and(|current| known.is_empty() || known.contains(&current)) {
            continue;
        }
        let Some(addr) = open::choose(&known, udp) else { continue };

        match open::udp(target, udp, addr, ways, listen_addrs) {
            Ok(opened) => moves.push(Move {
                target: target.name.clone(),
                addr,
                destination: opened.destination,
            }),
            Err(CannotSend::NoRoute(_)) => {}
            Err(CannotSend::Never(error)) => {
                if let Some(count) = refused.count(now) {
                    tracing::error!("{error:#} ({count} times since the last such line)");
                }
            }
        }
    }
    moves
}
