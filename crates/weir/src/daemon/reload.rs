//! SIGHUP: read the file again, and change what differs.
//!
//! First, open everything new that the file asks for, and change nothing: any failure there refuses the whole reload. Then
//! apply the differences. What did not change is not touched, a changed target keeps its place in the ring, and a changed
//! listener hands on its socket with the datagrams waiting in it.

mod apply;

use super::flows::{self, Flowing, Shared};
use super::http::{Bound, rest_address, served_flows, served_store, sockets_elsewhere};
use super::mitigation;
use super::open::{self, CannotListen, OpenSocket, OpenTarget, Place};
use super::sinks::{Fed, Sinks};
use super::{
    Daemon, NAMES_WAIT, Prepared, Running, Source, Targets, collector, sinks, warn_of_memory,
    watched_names,
};
use crate::exit::Failure;
use admin::Said;
use config::{
    Config, FlowsConfig, Host, Listen, ListenerConfig, LoadError, SocketsConfig, TargetConfig,
    memory,
};
use ledger::Trouble;
use relay::{SocketOwner, TargetKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use sys::socket::share_address;

/// Most listeners that a reload took out of service and that are still draining. Each keeps its ring and its threads, and one
/// whose file target hangs on a disk keeps them for as long as the disk hangs.
pub(super) const RETIRING_MAX: usize = 8;

/// Everything that a new configuration needs, already opened.
struct Plan {
    config: Config,
    /// One for each listener of the configuration.
    fates: Vec<Fate>,
    admin: Admin,
    collector: NextCollector,
    /// The analysis to start, if there is a new one.
    flowing: Option<Flowing>,
    mitigations: Vec<mitigation::Next>,
    sinks: sinks::Plan,
}

/// What happens to the socket collector.
enum NextCollector {
    /// It continues, and asks the kernel for the fields of the new configuration. `None`: there is no collector.
    Same(Option<Box<Prepared>>),
    /// It ends, and this one follows, if any.
    Replace(Option<Box<Prepared>>),
}

/// What happens to a listener. `at` is its index among the running ones.
enum Fate {
    /// Continues; some of its targets may change.
    Keep { at: usize, steps: Vec<Step> },
    /// Hands its socket on to a listener with other settings.
    Renew { at: usize, targets: Targets },
    /// Is new.
    Open { socket: Box<OpenSocket>, targets: Targets },
    /// Has to wait.
    Wait(Trouble),
}

/// What happens to one target of a listener that continues.
enum Step {
    Change(TargetConfig, OpenTarget),
    Add(TargetConfig, OpenTarget),
    Remove(String),
    /// Starts to feed a sink.
    Feed(Fed, TargetKind),
    /// Feeds the same sink, with different rows.
    FeedAnew(Fed, TargetKind),
    /// Starts to feed the analysis.
    Tap(Arc<Shared>),
    /// Stops feeding the analysis.
    Untap,
}

/// What happens to the admin server.
enum Admin {
    Same,
    /// It moves to these sockets (possibly none), or shows something else.
    Move(Bound),
}

impl Daemon {
    /// Reads the file again and applies the differences. A file with any mistake changes nothing.
    pub(super) fn reload(&mut self) {
        self.service.reloading();
        match self.read_again().and_then(|config| self.prepare(config)) {
            Ok(plan) => self.apply(plan),
            Err(errors) => {
                for error in &errors {
                    tracing::error!("reload: {error}");
                }
                const REFUSED: &str = "reload refused: the former configuration stays in force";
                tracing::error!("{REFUSED}");
                let lines = errors.into_iter().chain([REFUSED.to_owned()]).collect();
                self.health.reload_said(Said { code: Failure::Config as u8, lines });
                self.health.reload_failed();
            }
        }
        self.service.ready();
    }

    fn read_again(&self) -> Result<Config, Vec<String>> {
        let Source::File { path, overrides } = &self.source else {
            return Err(vec!["there is no file to read again".to_owned()]);
        };
        match Config::load(path) {
            Ok(config) => Ok(config.overridden_by(overrides)),
            Err(LoadError::Invalid(errors)) => {
                Err(errors.iter().map(ToString::to_string).collect())
            }
            Err(error) => Err(vec![format!("{:#}", anyhow::Error::new(error))]),
        }
    }

    /// Opens everything new, and changes nothing.
    fn prepare(&mut self, config: Config) -> Result<Plan, Vec<String>> {
        let mut opened = Vec::new();
        self.try_prepare(&config, &mut opened).map_err(|error| {
            for socket in opened.into_iter().flatten() {
                self.give_back(socket);
            }
            // Stop watching the refused file's names. The former ones are watched already.
            let _ = self.names.watch(&watched_names(&self.config));
            vec![format!("{error:#}")]
        })
    }

    fn give_back(&mut self, socket: OpenSocket) {
        if let Some(file) = &socket.file {
            file.remove();
        }
        if socket.owner == SocketOwner::ServiceManager {
            self.inherited.put_back(socket.socket);
        }
    }

    fn try_prepare(
        &mut self,
        config: &Config,
        opened: &mut Vec<Option<OpenSocket>>,
    ) -> anyhow::Result<Plan> {
        self.names.watch_too(&watched_names(config))?;
        self.names.wait_for_answers(Instant::now() + NAMES_WAIT);

        // Sockets first: the check for target loops needs the listeners' addresses.
        let matches = match_listeners(&self.running, &config.listeners);
        let mut waits = Vec::new();
        for (listener, at) in config.listeners.iter().zip(&matches) {
            open::refuse_cpus(listener)?;
            let helper = config.daemon.helper.as_deref();
            let socket = at.is_none().then(|| self.open_listener(listener, helper)).transpose();
            let (socket, trouble) = match socket {
                Ok(socket) => (socket, None),
                Err(CannotListen::Waits(trouble, _)) => (None, Some(trouble)),
                Err(CannotListen::Never(error)) => return Err(error),
            };
            opened.push(socket);
            waits.push(trouble);
        }

        self.refuse_what_does_not_fit(config, &matches)?;

        let listen_addrs: Vec<SocketAddr> = matches
            .iter()
            .zip(opened.iter())
            .flat_map(|(at, socket)| match (at, socket) {
                (Some(at), _) => self.running[*at].addresses(),
                (None, socket) => socket.as_ref().map(OpenSocket::addresses).unwrap_or_default(),
            })
            .collect();

        let flowing = self.flows.prepare(config, self.sinks.of_flows(&self.mitigations))?;
        let analysis = flowing.as_ref().map(Flowing::shared).or(self.flows.shared());

        let mut ways = Vec::new();
        for ((listener, at), trouble) in config.listeners.iter().zip(&matches).zip(waits) {
            self.keep_alive(&[]);
            if let Some(trouble) = trouble {
                ways.push(Ways::Wait(trouble));
                continue;
            }
            ways.push(match at.map(|at| &self.running[at]) {
                Some(one) if is_same(&one.config, listener) => {
                    let mut steps = self.steps(one, listener, &listen_addrs)?;
                    let wanted = Fed::by(config, &listener.name);
                    feeding_steps(&mut self.sinks, &one.fed, &listener.name, wanted, &mut steps);
                    let tapped = analysis.filter(|_| flows::is_source(config, &listener.name));
                    steps.extend(tap_step(one.tapped.as_ref(), tapped));
                    Ways::Steps(steps)
                }
                _ => {
                    let mut targets =
                        Targets::open(listener, &self.names, &self.ways, &listen_addrs)?;
                    targets.feed(config, &listener.name, &mut self.sinks, analysis);
                    Ways::All(targets)
                }
            });
        }

        let sinks = self.sinks.prepare(config, &self.names, self.last_ledger)?;
        let mitigations = self.mitigations.prepare(config)?;
        let collector = self.next_collector(config)?;
        let admin = self.next_admin(config)?;

        // Nothing can fail from here on: what was opened goes into the plan.
        let fates = ways.into_iter().zip(matches).zip(opened.drain(..));
        let fates = fates.filter_map(|((ways, at), socket)| match (ways, at, socket) {
            (Ways::Steps(steps), Some(at), _) => Some(Fate::Keep { at, steps }),
            (Ways::All(targets), Some(at), _) => Some(Fate::Renew { at, targets }),
            (Ways::All(targets), None, Some(socket)) => {
                Some(Fate::Open { socket: Box::new(socket), targets })
            }
            (Ways::Wait(trouble), ..) => Some(Fate::Wait(trouble)),
            _ => None,
        });
        let (config, fates) = (config.clone(), fates.collect());
        Ok(Plan { config, fates, admin, collector, flowing, mitigations, sinks })
    }

    /// Whether the admin server goes on, or anew at the addresses and with the answers of the new configuration.
    fn next_admin(&mut self, config: &Config) -> anyhow::Result<Admin> {
        let shows_the_same = config.statsd == self.config.statsd
            && config.sockets.is_some() == self.config.sockets.is_some()
            && sockets_elsewhere(config) == sockets_elsewhere(&self.config)
            && served_flows(config) == served_flows(&self.config)
            && served_store(config) == served_store(&self.config);

        let answers_the_same = config.admin == self.config.admin
            && self.admin_bound.has_the_same_files(&config.admin)?;
        if answers_the_same && shows_the_same {
            return Ok(Admin::Same);
        }
        let now = (&self.config.admin, rest_address(&self.config));
        Ok(Admin::Move(self.admin_bound.reopen(now, config)?))
    }

    /// Opens the socket of a new listener. If a draining listener is still bound to the address, both share it: the old one has
    /// left the port or receives nothing more.
    pub(super) fn open_listener(
        &mut self,
        wanted: &ListenerConfig,
        helper: Option<&Path>,
    ) -> Result<OpenSocket, CannotListen> {
        let was_there = |one: &&super::Retiring| one.listen == wanted.listen.address();
        let former: Vec<_> = self.retiring.iter().filter(was_there).collect();
        for socket in former.iter().flat_map(|one| one.listener.sockets()) {
            share_address(socket).map_err(anyhow::Error::from)?;
        }
        let place = if former.is_empty() { Place::Free } else { Place::LeftByFormer };
        open::listener(wanted, place, &mut self.inherited, &self.names, helper)
    }

    /// Fails if there is not enough memory for the new rings that a configuration asks for.
    fn refuse_what_does_not_fit(
        &self,
        config: &Config,
        matches: &[Option<usize>],
    ) -> anyhow::Result<()> {
        let runs_on = |at: &Option<usize>, wanted: &ListenerConfig| {
            at.is_some_and(|at| is_same(&self.running[at].config, wanted))
        };
        let fresh: Vec<bool> =
            config.listeners.iter().zip(matches).map(|(wanted, at)| !runs_on(at, wanted)).collect();

        let analyzed = self.config.flows.as_ref().map_or(0, FlowsConfig::memory_max_bytes);
        memory::refuse_rings_that_do_not_fit(
            config,
            |at| fresh[at],
            analyzed,
            memory::Limits::now(),
        )
        .map_err(|why| Failure::Config.error(why))?;
        warn_of_memory(config);

        let renewed = matches.iter().zip(&fresh).any(|(at, fresh)| at.is_some() && *fresh);
        let mut draining = self.retiring.iter().filter(|one| !one.listener.has_ended());

        match draining.clone().count() {
            count if renewed && count >= RETIRING_MAX => {
                let name = draining.next().map_or("", |one| one.listener.name());
                Err(Failure::Unavailable.error(format!(
                    "{count} listeners that former reloads replaced still drain (the first is {name}), each with a ring of \
                     its own: a target of theirs takes nothing, or hangs in its disk. Fix: repair that target \
                     (`weir ledger` names it), change targets only, or restart"
                )))
            }
            _ => Ok(()),
        }
    }

    fn next_collector(&self, config: &Config) -> anyhow::Result<NextCollector> {
        let is_there =
            self.collecting.is_some() || self.ending.is_some() || self.prepared.is_some();
        let prepared = collector::prepare(config)?.map(Box::new);
        // Sinks do not matter here: they come and go while the collector runs, and its fields are the union of what they all
        // take.
        let is_same = collects_the_same(self.config.sockets.as_ref(), config.sockets.as_ref());
        Ok(match is_same && config.sockets.is_some() == is_there {
            true => NextCollector::Same(prepared),
            false => NextCollector::Replace(prepared),
        })
    }

    /// The differences between the targets of a listener that continues.
    fn steps(
        &self,
        one: &Running,
        wanted: &ListenerConfig,
        listen_addrs: &[SocketAddr],
    ) -> anyhow::Result<Vec<Step>> {
        let mut steps = Vec::new();

        for target in &wanted.targets {
            self.keep_alive(&[]);
            let earlier = one.config.targets.iter().find(|earlier| earlier.name == target.name);
            if earlier == Some(target) {
                if let Some(anchor) = one.anchors.get(&target.name) {
                    open::refuse_loop(target, anchor.remote, &self.ways, listen_addrs)?;
                }
                continue;
            }

            let opened = open::target(target, &wanted.name, &self.names, &self.ways, listen_addrs)?;
            steps.push(match earlier {
                Some(_) => Step::Change(target.clone(), opened),
                None => Step::Add(target.clone(), opened),
            });
        }

        let is_gone = |name: &String| wanted.targets.iter().all(|target| target.name != *name);
        let gone = one.config.targets.iter().map(|target| target.name.clone()).filter(is_gone);
        steps.extend(gone.map(Step::Remove));

        Ok(steps)
    }
}

/// The differences between the sinks that a listener feeds and the ones it should feed.
fn feeding_steps(
    sinks: &mut Sinks,
    fed: &[Fed],
    listener: &str,
    wanted: Vec<Fed>,
    steps: &mut Vec<Step>,
) {
    let is_gone = |one: &&Fed| wanted.iter().all(|wanted| wanted.name() != one.name());
    let gone = fed.iter().filter(is_gone).map(|one| Step::Remove(one.name().to_owned()));
    steps.extend(gone);

    for wanted in wanted {
        let step = match fed.iter().find(|one| one.name() == wanted.name()) {
            Some(same) if *same == wanted => continue,
            Some(_) => Step::FeedAnew,
            None => Step::Feed,
        };
        let receiver = sinks.receiver(listener, &wanted);
        steps.push(step(wanted, receiver));
    }
}

/// Whether a listener should start or stop feeding the analysis.
fn tap_step(tapped: Option<&Arc<Shared>>, wanted: Option<&Arc<Shared>>) -> Option<Step> {
    match (tapped, wanted) {
        (None, Some(wanted)) => Some(Step::Tap(Arc::clone(wanted))),
        (Some(_), None) => Some(Step::Untap),
        _ => None,
    }
}

/// Whether two configurations have the same collector, apart from the fields that their sinks write.
fn collects_the_same(old: Option<&SocketsConfig>, new: Option<&SocketsConfig>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => {
            *old == SocketsConfig { fields: old.fields.clone(), ..new.clone() }
        }
        (old, new) => old.is_none() && new.is_none(),
    }
}

/// A listener's targets in a plan.
enum Ways {
    Steps(Vec<Step>),
    All(Targets),
    Wait(Trouble),
}

/// For each wanted listener, the index of the running one that owns its socket; one with the same name is preferred.
fn match_listeners(running: &[Running], wanted: &[ListenerConfig]) -> Vec<Option<usize>> {
    let mut matches = vec![None; wanted.len()];
    let same_name = |one: &Running, listener: &ListenerConfig| one.config.name == listener.name;
    let any_name = |_: &Running, _: &ListenerConfig| true;

    for fits in [same_name as fn(&Running, &ListenerConfig) -> bool, any_name] {
        for (index, listener) in wanted.iter().enumerate() {
            if matches[index].is_some() {
                continue;
            }

            matches[index] = running.iter().enumerate().position(|(at, one)| {
                !matches.contains(&Some(at)) && has_its_socket(one, listener) && fits(one, listener)
            });
        }
    }
    matches
}

/// Whether a running listener's socket is the wanted one. A group on another interface, or other options of the bind, need another.
fn has_its_socket(one: &Running, wanted: &ListenerConfig) -> bool {
    let interface = |config: &ListenerConfig| {
        let udp =
            config.udp().filter(|udp| matches!(&udp.addr.host, Host::Ip(ip) if ip.is_multicast()));
        udp.and_then(|udp| udp.multicast_interface.clone())
    };
    let bound_by = |config: &ListenerConfig| {
        config.udp().map(|udp| (udp.interface.clone(), udp.freebind, udp.multicast_sources.clone()))
    };
    let is_same_file = match (&one.config.listen, &wanted.listen) {
        (Listen::Unix(one), Listen::Unix(wanted)) => one == wanted,
        _ => true,
    };
    one.config.listen.address() == wanted.listen.address()
        && interface(&one.config) == interface(wanted)
        && bound_by(&one.config) == bound_by(wanted)
        && is_same_file
}

/// Whether a listener can continue as it is: its targets, its receive buffer and its number of sockets can change while it
/// runs.
fn is_same(running: &ListenerConfig, wanted: &ListenerConfig) -> bool {
    let mut wanted = wanted.clone();
    if let (Listen::Udp(running), Listen::Udp(wanted)) = (&running.listen, &mut wanted.listen) {
        wanted.receive_buffer_bytes = running.receive_buffer_bytes;
        wanted.busy_poll = running.busy_poll;
        // Fixed when the socket is opened.
        wanted.receive = running.receive;
        let has_group = running.has_group() && wanted.has_group();
        wanted.sockets = running.sockets;
        if !has_group {
            // These settings concern several sockets only; they start and end with them.
            (wanted.balance, wanted.order) = (running.balance, running.order);
            wanted.order_wait = running.order_wait;
        }
    }
    running.is_same_listener(&wanted)
}
