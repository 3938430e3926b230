//! Listeners that cannot listen yet: this host does not have their address or their interface, or their name has no address. The
//! rest of the daemon works meanwhile, and they join when they can.

use super::Daemon;
use super::listeners::{Opened, Running, Targets};
use super::open::{self, CannotListen};
use crate::log::Repeated;
use config::{ListenerConfig, Target};
use ledger::{Amount, HopBuilder, HopKind, HopSnapshot, Ledger, Meter, Trouble};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A listener that waits.
pub(super) struct Waiting {
    pub(super) config: ListenerConfig,
    place: Arc<Place>,
    failed: Repeated,
}

/// Its place in the ledger.
struct Place {
    name: String,
    trouble: Mutex<Trouble>,
}

impl Meter for Place {
    fn read(&self, hops: &mut Vec<HopSnapshot>) {
        let nothing = Amount::default();
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let hop = HopBuilder::new(HopKind::Socket, &self.name, None, nothing);
        hops.push(hop.trouble(Some(trouble)).finish(nothing));
    }
}

impl Waiting {
    /// Those of the listeners whose sockets could not be opened yet.
    pub(super) fn of(
        listeners: &[ListenerConfig],
        sockets: &[Opened],
        ledger: &Ledger,
    ) -> Vec<Waiting> {
        let waits = |(config, socket): (&ListenerConfig, &Opened)| {
            let (trouble, _) = socket.as_ref().err()?;
            Some(Waiting::new(config.clone(), trouble.clone(), ledger))
        };
        listeners.iter().zip(sockets).filter_map(waits).collect()
    }

    pub(super) fn new(config: ListenerConfig, trouble: Trouble, ledger: &Ledger) -> Waiting {
        tracing::warn!(
            "listener {} waits: {}. It begins when it can. Fix: {}",
            config.name,
            trouble.what,
            trouble.fix
        );
        let place = Place { name: config.name.clone(), trouble: Mutex::new(trouble) };
        let place = Arc::new(place);
        ledger.register(Arc::clone(&place) as Arc<dyn Meter>);
        Waiting { config, place, failed: Repeated::default() }
    }

    /// Takes it out of the ledger, where it has counted nothing.
    pub(super) fn end(self, ledger: &Ledger) -> ListenerConfig {
        ledger.withdraw(&(self.place as Arc<dyn Meter>));
        self.config
    }

    fn note(&mut self, trouble: Trouble) {
        *self.place.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    fn words(&self) -> String {
        let trouble = self.place.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        format!("listener {}: {}", self.config.name, trouble.what)
    }
}

impl Daemon {
    /// Takes the listeners into service that can listen by now.
    pub(super) fn open_waiting(&mut self, now: Instant) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            match self.try_open(&waiting.config) {
                Ok(one) => {
                    let config = waiting.end(&self.ledger);
                    tracing::info!("listener {}: listening on {}", config.name, config.listen);
                    self.running.push(one);
                    self.put_in_order();
                }
                Err(CannotListen::Waits(trouble, _)) => {
                    waiting.note(trouble);
                    self.waiting.push(waiting);
                }
                Err(CannotListen::Never(error)) => {
                    if let Some(count) = waiting.failed.count(now) {
                        tracing::error!("{error:#} ({count} times since the last such line)");
                    }
                    waiting.note(CannotListen::Never(error).into_trouble());
                    self.waiting.push(waiting);
                }
            }
        }
    }

    pub(super) fn try_open(&mut self, config: &ListenerConfig) -> Result<Running, CannotListen> {
        let helper = self.config.daemon.helper.clone();
        let socket = self.open_listener(config, helper.as_deref())?;
        let mut listen_addrs = self.listen_addrs();
        listen_addrs.extend(socket.addresses());

        // What others send to an address that this host has only now would come back.
        for one in &self.running {
            for target in &one.config.targets {
                if let Some(anchor) = one.anchors.get(&target.name) {
                    open::refuse_loop(target, anchor.remote, &self.ways, &listen_addrs)?;
                }
            }
        }

        let mut targets = Targets::open(config, &self.names, &self.ways, &listen_addrs)?;
        targets.feed(&self.config, &config.name, &mut self.sinks, self.flows.shared());
        Ok(Running::start(config.clone(), socket, targets, &self.drops, &self.ledger)?)
    }

    /// The listeners in the order of the configuration.
    pub(super) fn put_in_order(&mut self) {
        let listeners = &self.config.listeners;
        let place =
            |one: &Running| listeners.iter().position(|listener| listener.name == one.config.name);
        self.running.sort_by_key(place);
    }

    /// What waits for this host or for names, a line each.
    pub(super) fn waits(&self) -> Vec<String> {
        let listeners = self.waiting.iter().map(Waiting::words);
        let deaf = self.running.iter().filter_map(Running::deafness);
        let targets = self.running.iter().flat_map(|one| {
            let has_none = |target: &&config::TargetConfig| {
                let is_addressed = matches!(target.to, Target::Udp(_) | Target::Weir(_));
                is_addressed && !one.anchors.contains_key(&target.name)
            };
            one.config.targets.iter().filter(has_none).map(|target| {
                format!(
                    "target {}: {} has no address yet, or no route leads there",
                    target.name, target.to
                )
            })
        });
        listeners.chain(deaf).chain(targets).collect()
    }
}
