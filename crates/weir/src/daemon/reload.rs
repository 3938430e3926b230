//! SIGHUP: read the file again, and change what differs.
//!
//! First everything that the file asks for anew is opened, while nothing changes: whatever fails there refuses the
//! reload whole. Then the differences are applied. What did not change is not touched, a changed target keeps its place
//! in the ring, and a changed listener hands its socket on with what waits in it.

use super::open::{self, OpenSocket, OpenTarget};
use super::{
    Daemon, NAMES_WAIT, Prepared, Retiring, Running, Source, Targets, collector, fingerprint, http,
    watched_names,
};
use relay::SocketOwner;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use weir::config::{Config, Host, ListenAddress, ListenerConfig, LoadError, TargetConfig};

/// Everything that a new configuration needs, opened.
struct Plan {
    config: Config,
    /// One for each listener of the configuration.
    fates: Vec<Fate>,
    admin: Admin,
    collector: NextCollector,
}

/// What becomes of the socket collector.
enum NextCollector {
    Same,
    /// It ends; this one follows, if any.
    Replace(Option<Box<Prepared>>),
}

/// What becomes of a listener. `at` is its place among the running ones.
enum Fate {
    /// Goes on; some of its targets may change.
    Keep { at: usize, steps: Vec<Step> },
    /// Hands its socket on to a listener with other settings.
    Renew { at: usize, targets: Targets },
    /// Is new.
    Open { socket: OpenSocket, targets: Targets },
}

/// What becomes of a target of a listener that goes on.
enum Step {
    Change(TargetConfig, OpenTarget),
    Add(TargetConfig, OpenTarget),
    Remove(String),
}

/// What becomes of the admin server.
enum Admin {
    Same,
    /// Listens there, or nowhere, from now on.
    Move(Option<TcpListener>),
}

impl Daemon {
    /// Reads the file again and applies what differs; a file with any mistake changes nothing.
    pub(super) fn reload(&mut self) {
        self.service.reloading();
        match self.read_again().and_then(|config| self.prepare(config)) {
            Ok(plan) => self.apply(plan),
            Err(errors) => {
                self.health.reload_failed();
                for error in errors {
                    tracing::error!("reload: {error}");
                }
                tracing::error!("reload refused: the former configuration stays in force");
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

    /// Opens everything that is new, and changes nothing.
    fn prepare(&mut self, config: Config) -> Result<Plan, Vec<String>> {
        let mut opened = Vec::new();
        match self.try_prepare(&config, &mut opened) {
            Ok((fates, admin, collector)) => Ok(Plan { config, fates, admin, collector }),
            Err(error) => {
                for socket in opened.into_iter().flatten() {
                    self.give_back(socket);
                }
                // The names of the refused file are of no interest; the former ones are watched already.
                let _ = self.names.watch(&watched_names(&self.config));
                Err(vec![format!("{error:#}")])
            }
        }
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
    ) -> anyhow::Result<(Vec<Fate>, Admin, NextCollector)> {
        self.names.watch_too(&watched_names(config))?;
        self.names.wait_for_answers(Instant::now() + NAMES_WAIT);
        let matches = match_listeners(&self.running, &config.listeners);
        for (listener, at) in config.listeners.iter().zip(&matches) {
            opened.push(match at {
                Some(_) => None,
                None => Some(open::listener(listener, &mut self.inherited, &self.names)?),
            });
        }
        let listen_addrs: Vec<SocketAddr> = matches
            .iter()
            .zip(opened.iter())
            .filter_map(|(at, socket)| match (at, socket) {
                (Some(at), _) => self.running[*at].address(),
                (None, socket) => socket.as_ref().and_then(OpenSocket::address),
            })
            .collect();
        let mut ways = Vec::new();
        for (listener, at) in config.listeners.iter().zip(&matches) {
            ways.push(match at.map(|at| &self.running[at]) {
                Some(one) if is_same(&one.config, listener) => {
                    Ways::Steps(self.steps(one, listener, &listen_addrs)?)
                }
                _ => Ways::All(Targets::open(
                    &listener.targets,
                    &self.names,
                    &self.ways,
                    &listen_addrs,
                )?),
            });
        }
        let collector = self.next_collector(config)?;
        let shows_the_same = config.statsd == self.config.statsd
            && config.sockets.is_some() == self.config.sockets.is_some();
        let admin = match config.admin == self.config.admin && shows_the_same {
            true => Admin::Same,
            false if config.admin == self.config.admin => {
                Admin::Move(self.admin_listener.as_ref().map(TcpListener::try_clone).transpose()?)
            }
            false => Admin::Move(http::bind(&config.admin)?),
        };
        // Nothing can fail any more: what was opened goes into the plan.
        let fates = ways.into_iter().zip(matches).zip(opened.drain(..));
        let fates = fates.filter_map(|((ways, at), socket)| match (ways, at, socket) {
            (Ways::Steps(steps), Some(at), _) => Some(Fate::Keep { at, steps }),
            (Ways::All(targets), Some(at), _) => Some(Fate::Renew { at, targets }),
            (Ways::All(targets), None, Some(socket)) => Some(Fate::Open { socket, targets }),
            _ => None,
        });
        Ok((fates.collect(), admin, collector))
    }

    fn next_collector(&self, config: &Config) -> anyhow::Result<NextCollector> {
        let is_there =
            self.collecting.is_some() || self.ending.is_some() || self.prepared.is_some();
        if config.sockets == self.config.sockets && config.sockets.is_some() == is_there {
            return Ok(NextCollector::Same);
        }
        let sockets = config.sockets.as_ref();
        let prepared = sockets.map(|one| collector::prepare(one, &self.names, self.last_ledger));
        Ok(NextCollector::Replace(prepared.transpose()?.map(Box::new)))
    }

    /// What differs between the targets of a listener that goes on.
    fn steps(
        &self,
        one: &Running,
        wanted: &ListenerConfig,
        listen_addrs: &[SocketAddr],
    ) -> anyhow::Result<Vec<Step>> {
        let mut steps = Vec::new();
        for target in &wanted.targets {
            let earlier = one.config.targets.iter().find(|earlier| earlier.name == target.name);
            if earlier == Some(target) {
                let address = one.addresses.get(&target.name).copied().flatten();
                address.map_or(Ok(()), |addr| {
                    open::refuse_loop(target, addr, &self.ways, listen_addrs)
                })?;
                continue;
            }
            let opened = open::target(target, &self.names, &self.ways, listen_addrs)?;
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

    fn apply(&mut self, plan: Plan) {
        let Plan { config, fates, admin, collector } = plan;
        let grace = config.daemon.drain_grace;
        let mut former: Vec<_> = self.running.drain(..).map(Some).collect();
        let mut report = Report::default();
        for (listener, fate) in config.listeners.iter().zip(fates) {
            let running = match fate {
                Fate::Keep { at, steps } => {
                    former[at].take().map(|one| keep(one, listener, steps, grace, &mut report))
                }
                Fate::Renew { at, targets } => {
                    let one = former[at].take();
                    one.map(|one| self.renew(one, listener, targets, grace, &mut report))
                }
                Fate::Open { socket, targets } => {
                    report.opened += 1;
                    Running::start(listener.clone(), socket, targets, &self.ledger)
                        .map_err(|error| report.failed(format!("{error:#}")))
                        .ok()
                }
            };
            self.running.extend(running);
        }
        for one in former.into_iter().flatten() {
            report.closed += 1;
            self.close(one, grace);
        }
        self.level.set(config.daemon.log_level);
        self.config = config;
        if let Err(error) = self.names.watch(&watched_names(&self.config)) {
            report.failed(format!("names are not followed: {error}"));
        }
        if let NextCollector::Replace(prepared) = collector {
            report.collector = if prepared.is_some() { "started anew" } else { "ended" };
            // It starts when the former one has ended: two would tell every close twice, and share files.
            self.prepared = prepared.map(|prepared| *prepared);
            self.end_collector();
        }
        if let Admin::Move(bound) = admin {
            if let Some(http) = self.http.take() {
                http.stop();
            }
            if let Err(error) = self.start_http(bound) {
                report.failed(format!("{error:#}"));
            }
        }
        self.health.config_applied(&fingerprint(&self.config));
        tracing::info!("{}", report.line());
    }

    /// Starts a listener with other settings on the socket of a running one.
    fn renew(
        &mut self,
        one: Running,
        wanted: &ListenerConfig,
        targets: Targets,
        grace: Duration,
        report: &mut Report,
    ) -> Running {
        adjust_receive_buffer(&one, wanted);
        let options = wanted.listener_options(one.owner());
        let deadline = Instant::now() + grace;
        match one.listener.hand_over(options, targets.destinations, deadline) {
            Ok(listener) => {
                report.renewed += 1;
                if one.config.name != wanted.name {
                    self.health.forget(&one.config.name);
                }
                self.retiring.push(Retiring { listener: one.listener });
                let config = wanted.clone();
                Running { config, listener, file: one.file, addresses: targets.addresses }
            }
            Err(error) => {
                report.failed(format!("listener {} stays as it was: {error}", one.config.name));
                one
            }
        }
    }

    /// Takes a listener out of service; what it has received is sent.
    fn close(&mut self, one: Running, grace: Duration) {
        if one.owner() == SocketOwner::ServiceManager
            && let Ok(socket) = one.listener.socket().try_clone_to_owned()
        {
            self.inherited.put_back(socket);
        }
        one.listener.begin_stop(Instant::now() + grace);
        if let Some(file) = &one.file {
            // At once: a later reload may bind the path again.
            file.remove();
        }
        if self.running.iter().all(|other| other.config.name != one.config.name) {
            self.health.forget(&one.config.name);
        }
        self.retiring.push(Retiring { listener: one.listener });
    }
}

/// The targets of one listener of a plan.
enum Ways {
    Steps(Vec<Step>),
    All(Targets),
}

/// For each wanted listener the running one that has its socket: of the same name first.
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

/// Whether a running listener's socket is the one that is wanted. Another interface for a group needs another socket.
fn has_its_socket(one: &Running, wanted: &ListenerConfig) -> bool {
    let group = |ip: &IpAddr| ip.is_multicast();
    let is_group = matches!(
        &wanted.listen,
        ListenAddress::Udp(on) if matches!(&on.host, Host::Ip(ip) if group(ip))
    );
    one.config.listen == wanted.listen
        && (!is_group || one.config.multicast_interface == wanted.multicast_interface)
}

/// Whether a listener goes on as it is: its targets, and its receive buffer, can be changed as it runs.
fn is_same(running: &ListenerConfig, wanted: &ListenerConfig) -> bool {
    let receive_buffer_bytes = running.receive_buffer_bytes;
    running.is_same_listener(&ListenerConfig { receive_buffer_bytes, ..wanted.clone() })
}

fn adjust_receive_buffer(one: &Running, wanted: &ListenerConfig) {
    if one.config.receive_buffer_bytes == wanted.receive_buffer_bytes {
        return;
    }
    match one.owner() {
        SocketOwner::Relay => {
            open::set_receive_buffer(one.listener.socket(), wanted.receive_buffer_bytes);
        }
        SocketOwner::ServiceManager => {
            open::enlarge_receive_buffer(one.listener.socket(), wanted.receive_buffer_bytes);
        }
    }
}

fn keep(
    mut one: Running,
    wanted: &ListenerConfig,
    steps: Vec<Step>,
    grace: Duration,
    report: &mut Report,
) -> Running {
    adjust_receive_buffer(&one, wanted);
    for step in steps {
        report.targets += 1;
        let result = match step {
            Step::Change(target, opened) => {
                one.addresses.insert(target.name.clone(), opened.address);
                one.listener.change_target(target.target_options(), opened.destination, grace)
            }
            Step::Add(target, opened) => {
                one.addresses.insert(target.name.clone(), opened.address);
                one.listener.add_target(target.target_options(), opened.destination)
            }
            Step::Remove(name) => {
                one.addresses.remove(&name);
                one.listener.remove_target(&name, grace)
            }
        };
        if let Err(error) = result {
            report.failed(error.to_string());
        }
    }
    one.config = wanted.clone();
    one
}

/// What a reload did.
#[derive(Default)]
struct Report {
    opened: usize,
    renewed: usize,
    closed: usize,
    targets: usize,
    /// What became of the socket collector; empty: nothing.
    collector: &'static str,
    failures: usize,
}

impl Report {
    /// Something that could not be foreseen went wrong while the differences were applied.
    fn failed(&mut self, message: String) {
        self.failures += 1;
        tracing::error!("reload: {message}");
    }

    fn line(&self) -> String {
        let Report { opened, renewed, closed, targets, collector, failures } = self;
        let collector = match *collector {
            "" => String::new(),
            fate => format!("socket collector {fate}; "),
        };
        format!(
            "reloaded: listeners opened {opened}, changed {renewed}, closed {closed}; targets changed {targets}; \
             {collector}failures {failures}"
        )
    }
}
