//! Listeners follow this host: groups are joined anew, and a socket is made again that can hear nothing any more.

use super::listeners::Running;
use super::reload::RETIRING_MAX;
use super::waiting::Waiting;
use super::{Daemon, Names};
use config::{Host, Listen};
use relay::SocketOwner;
use std::io;
use std::time::Instant;
use sys::socket::{Followed, Membership, interface_index};

/// What a listener's socket took from this host when it was opened.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    /// The group that it has joined.
    membership: Option<Membership>,
    /// Index of the interface that it is bound to; 0 if it is bound to none.
    interface_index: u32,
    /// Why it hears nothing at the moment.
    deaf: Option<String>,
}

impl Hearing {
    pub(super) fn of(one: &Running) -> Hearing {
        let mut hearing = Hearing {
            interface_index: one
                .bound_interface()
                .map_or(0, |name| interface_index(name).unwrap_or(0)),
            ..Hearing::default()
        };
        // The group of a socket that was handed over is its owner's.
        if one.owner() == SocketOwner::Relay
            && let (Some(udp), Some(addr)) = (one.config.udp(), one.address())
        {
            hearing.membership = Membership::wanted(addr, &udp.listen_options());
            hearing.membership.iter_mut().for_each(Membership::note_joined);
        }
        hearing
    }
}

impl Running {
    /// The interface that its socket is bound to: one that a key names, or that of a group which has a meaning on one link only.
    fn bound_interface(&self) -> Option<&str> {
        let udp = self.config.udp()?;
        let is_of_one_link =
            matches!(self.address(), Some(std::net::SocketAddr::V6(v6)) if v6.scope_id() != 0);
        let scope = udp.multicast_interface.as_deref().filter(|_| is_of_one_link);
        udp.interface.as_deref().or(scope)
    }

    /// Why it hears nothing, in words.
    pub(super) fn deafness(&self) -> Option<String> {
        let why = self.hearing.deaf.as_ref()?;
        Some(format!("listener {}: {why}", self.config.name))
    }

    /// Joins its group anew if that is needed.
    fn follow_group(&mut self) {
        let socket = self.listener.socket();
        let Some(membership) = &mut self.hearing.membership else { return };
        let followed = membership.follow(socket);
        match followed {
            Ok(Followed::Same) => self.hearing.deaf = None,
            Ok(Followed::Joined) => {
                self.hearing.deaf = None;
                self.listener.note_renewal();
                tracing::info!(
                    "listener {}: its group is joined anew, by the interface that is there now",
                    self.config.name
                );
            }
            Ok(Followed::Absent) => self.become_deaf("there is no interface to join its group by"),
            Err(error) => self.become_deaf(&format!("its group cannot be joined: {error}")),
        }
    }

    fn become_deaf(&mut self, why: &str) {
        if self.hearing.deaf.is_none() {
            tracing::warn!(
                "listener {}: {why}; it hears nothing until there is. Fix: make the interface, until `ip link` lists it",
                self.config.name
            );
        }
        self.hearing.deaf = Some(why.to_owned());
    }

    /// Why its socket must be made again, if it must.
    fn why_anew(&mut self, names: &Names) -> Option<&'static str> {
        if self.owner() != SocketOwner::Relay {
            return None;
        }
        if let Listen::Unix(unix) = &self.config.listen {
            let is_gone = std::fs::symlink_metadata(&unix.path)
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            return is_gone.then_some("its socket file was removed");
        }

        if let Some(name) = self.bound_interface() {
            match interface_index(name) {
                Ok(index) if index != self.hearing.interface_index => {
                    return Some("its interface was made again");
                }
                Ok(_) => self.hearing.deaf = None,
                Err(_) => self.become_deaf("its interface is gone"),
            }
        }

        let port = self.config.listen.port().filter(|port| matches!(port.host, Host::Name(_)))?;
        let (known, own) = (names.addresses(port), self.addresses());
        let is_there = match (&own[..], self.config.udp()) {
            ([_, _], Some(udp)) => udp.is_dual(&known),
            _ => known.iter().any(|known| own.iter().any(|own| own.ip() == known.ip())),
        };
        let has_moved = !known.is_empty() && !is_there;
        has_moved.then_some("its name has another address")
    }
}

impl Daemon {
    /// Looks after the sockets of listeners, after changes of this host and of names, and every so often.
    pub(super) fn follow_listeners(&mut self, now: Instant) {
        self.running.iter_mut().for_each(Running::follow_group);
        for at in (0..self.running.len()).rev() {
            if let Some(why) = self.running[at].why_anew(&self.names) {
                self.listen_anew(at, why);
            }
        }
        self.open_waiting(now);
    }

    /// Takes a listener out of service, whose socket hears nothing any more, and another one into it. What it has received is still
    /// sent.
    fn listen_anew(&mut self, at: usize, why: &'static str) {
        // Each keeps its ring until it has drained.
        if self.retiring.len() >= RETIRING_MAX {
            return;
        }
        let one = self.running.remove(at);
        let (config, grace) = (one.config.clone(), self.config.daemon.drain_grace);
        self.close(one, grace);
        match self.try_open(&config) {
            Ok(one) => {
                tracing::info!("listener {}: {why}; it listens anew", config.name);
                one.listener.note_renewal();
                self.running.push(one);
                self.put_in_order();
            }
            Err(error) => {
                let trouble = error.into_trouble();
                self.waiting.push(Waiting::new(config, trouble, &self.ledger));
            }
        }
    }
}
