//! The daemon's life: open what the configuration names, run, reload, stop.
//!
//! The main thread is the control loop. It waits for signals, resolved names and the next tick, and never for data: the data
//! loops are the relay's own threads. A start goes in order of importance: sockets, then data loops, then everything that
//! reports on them.

mod banner;
mod collector;
mod crowding;
mod drops;
mod events;
mod files;
mod flow_pages;
pub(crate) mod flows;
mod follow;
mod followers;
mod http;
mod inherited;
mod link;
mod listeners;
mod listening;
mod mitigation;
mod names;
mod open;
mod pipes;
mod progress;
#[cfg(feature = "store")]
mod query;
mod receive;
mod reload;
mod renewals;
mod rest;
mod service;
mod sinks;
mod stop;
mod troubles;
mod waiting;
mod ways;

#[cfg(feature = "store")]
pub(crate) use flow_pages::on_a_thread;
pub(crate) use flows::check_places;
pub(crate) use http::check_token;
#[cfg(feature = "store")]
pub(crate) use http::served_store;
pub(crate) use link::check_link_keys;
pub(crate) use progress::{say, say_folded};
pub(crate) use stop::{LastLedger, LedgerForm, OnLoss};

use crate::exit::Failure;
use crate::log::{self, Log, Repeated};
use crate::progress::ProgressMode;
use admin::Changes;
use admin::{Health, Phase, statsd};
use collector::{Asked, Collecting, Ending, Prepared};
use config::{
    COLLECTOR_NAME, Config, EVENTS_NAME, FLOWS_NAME, Host, ListenAddress, ListenerConfig,
    Overrides, Target, memory,
};
use crowding::Crowding;
use drops::Drops;
use files::Files;
use flow_pages::Exported;
use flows::Flows;
use follow::Look;
use followers::{Followers, Why};
use http::{Bound, Http, Shown, ShownFlows};
use inherited::Inherited;
use ledger::{Ledger, Snapshot};
use listeners::{Running, Targets, open_listeners, open_targets};
use mitigation::Mitigations;
use names::Names;
use pipes::Pipes;
use progress::{Progress, Rates};
use relay::{Listener, SocketOwner};
use renewals::Renewals;
use rest::Site;
use service::Service;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use sinks::Sinks;
use sockets::Served;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use troubles::Troubles;
use waiting::Waiting;
use ways::Ways;

/// Time between two checks of the ledger and of everything else that changes without an event.
const TICK: Duration = Duration::from_millis(100);
/// How long a start or a reload waits for names to resolve. A target whose name takes longer starts without an address.
const NAMES_WAIT: Duration = Duration::from_secs(1);
/// How often the name of a listener's address is resolved again.
const LISTENER_RESOLVE_INTERVAL: Duration = Duration::from_secs(30);
/// Time between two attempts to open targets that have an address but could not be opened.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);
/// A data loop that has not turned for this long is stuck.
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(5);

/// What a daemon starts from.
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) source: Source,
    pub(crate) progress: ProgressMode,
    pub(crate) last_ledger: LastLedger,
}

/// Where the configuration came from, which decides whether a reload can read it again.
pub(crate) enum Source {
    /// From flags or from standard input.
    ReadOnce,
    File {
        path: PathBuf,
        overrides: Overrides,
    },
}

/// What the control loop waits for.
pub(crate) enum Event {
    Signal(i32),
    /// A name resolved for the first time, or to a different answer.
    Name,
    /// Standard input has ended, and its listener has every line.
    InputEnded,
}

/// A listener that a reload took out of service and that is still draining.
struct Retiring {
    listener: Listener,
    /// The address it listened on.
    listen: ListenAddress,
}

/// The running daemon.
pub(crate) struct Daemon {
    config: Config,
    source: Source,
    ledger: Arc<Ledger>,
    health: Arc<Health>,
    names: Names,
    ways: Ways,
    events: Receiver<Event>,
    running: Vec<Running>,
    waiting: Vec<Waiting>,
    retiring: Vec<Retiring>,
    sinks: Sinks,
    followers: Followers,
    collecting: Option<Collecting>,
    flows: Flows,
    mitigations: Arc<Mitigations>,
    /// The collector that a reload took out of service, until its thread has ended.
    ending: Option<Ending>,
    /// The collector to start once `ending` is gone.
    prepared: Option<Prepared>,
    asked: Asked,
    /// Where the admin server serves, for the collector.
    served: Served,
    last_ledger: LastLedger,
    inherited: Inherited,
    drops: Drops,
    http: Option<Http>,
    /// The admin server's sockets, kept for the server that a reload restarts.
    admin_bound: Bound,
    /// The flow definitions exported as metrics.
    exported: Arc<Exported>,
    /// The REST API for sFlow-RT scripts.
    rest: Option<Arc<Site>>,
    statsd: Arc<statsd::Counts>,
    service: Service,
    log: Log,
    progress: Progress,
    rates: Rates,
    reopen_due: Instant,
    broken: Repeated,
    refused: Repeated,
    crowding: Crowding,
    /// Number of ledger violations when we last logged them.
    violations: u64,
    troubles: Troubles,
    files: Files,
    renewals: Renewals,
    pipes: Pipes,
}

/// Runs a daemon until a signal, or the end of its input or output, stops it.
///
/// # Errors
/// It cannot start with this configuration; the message says what to do.
pub(crate) fn run(setup: Setup) -> anyhow::Result<ExitCode> {
    sys::memory::return_large_blocks();
    let mut daemon = Daemon::start(setup)?;
    while daemon.turn() {}
    daemon.stop()
}

impl Daemon {
    fn start(setup: Setup) -> anyhow::Result<Daemon> {
        let Setup { config, source, progress, last_ledger } = setup;
        let (log, (sender, events)) = (log::start(&config.daemon), mpsc::channel());
        forward_signals(sender.clone())?;
        let names = names_of(&config, sender.clone())?;

        // Before any socket is open: an open socket would take datagrams that nothing reads.
        refuse_what_cannot_run(&config, last_ledger)?;
        let (mut inherited, drops) = Inherited::take()?;
        let (sockets, input) = open_listeners(&config, &mut inherited, &names)?;
        let bound = Bound::open(&config)?;

        // The sockets are open and the kernel queues what arrives, so there is time to wait for names.
        names.wait_for_answers(Instant::now() + NAMES_WAIT);
        let prepared = collector::prepare(&config)?;

        let (ways, run_id, mut running) = (Ways::start(), run_id(), Vec::new());
        let ledger = new_ledger(&run_id, &config);

        // Before everything that feeds the sinks.
        let mut sinks = Sinks::start(&config, &names, last_ledger, &ledger)?;
        let followers = Followers::new(&sinks, &config, &ledger);
        let mitigations = Mitigations::start(&config)?;
        let flows = Flows::start(&config, sinks.of_flows(&mitigations), &ledger)?;

        let targets = open_targets(&config.listeners, &names, &ways, &sockets, &source)?;
        let waiting = Waiting::of(&config.listeners, &sockets, &ledger);
        for ((listener, socket), mut targets) in config.listeners.iter().zip(sockets).zip(targets) {
            let Ok(socket) = socket else { continue };
            targets.feed(&config, &listener.name, &mut sinks, flows.shared());
            running.push(Running::start(listener.clone(), socket, targets, &drops, &ledger)?);
        }

        tell_start(&run_id, &running, &config, &bound);

        let mut daemon = Daemon {
            config,
            source,
            ledger,
            health: Arc::new(Health::new(HEARTBEAT_LIMIT)),
            names,
            ways,
            events,
            running,
            waiting,
            retiring: Vec::new(),
            sinks,
            followers,
            collecting: None,
            flows,
            mitigations,
            ending: None,
            prepared,
            asked: Asked::default(),
            served: Served::default(),
            last_ledger,
            inherited,
            drops,
            http: None,
            admin_bound: Bound::default(),
            exported: Arc::default(),
            rest: None,
            statsd: Arc::default(),
            service: Service::new(),
            log,
            progress: Progress::new(progress),
            rates: Rates::default(),
            reopen_due: Instant::now() + REOPEN_INTERVAL,
            broken: Repeated::default(),
            refused: Repeated::default(),
            crowding: Crowding::default(),
            violations: 0,
            troubles: Troubles::default(),
            files: Files::default(),
            renewals: Renewals::default(),
            pipes: Pipes::default(),
        };

        daemon.begin(bound)?;
        daemon.pipes.feed(input, sender)?;
        // Last: a program that starts after this daemon may send to it at once.
        daemon.service.ready();
        Ok(daemon)
    }

    /// Starts what serves and watches the listeners.
    fn begin(&mut self, bound: Bound) -> anyhow::Result<()> {
        self.tell_collector(&bound);
        self.start_prepared()?;
        self.become_ready();
        self.start_http(bound)?;
        self.hold_drops();
        Ok(())
    }

    /// Data flows under the configuration: from now on the health page says so.
    fn become_ready(&mut self) {
        self.health.config_applied(&fingerprint(&self.config));
        self.health.set_phase(Phase::Ready);
        self.observe(Instant::now());
    }

    /// Asks the service manager to keep the drop counts of the sockets it owns, if there are any.
    fn hold_drops(&self) {
        let is_theirs = |one: &Running| one.owner() == SocketOwner::ServiceManager;
        if let Some(file) = self.drops.file().filter(|_| self.running.iter().any(is_theirs)) {
            self.service.hold(drops::NAME, file);
        }
    }

    fn start_http(&mut self, bound: Bound) -> anyhow::Result<()> {
        let shown = Shown {
            ledger: Arc::clone(&self.ledger),
            health: Arc::clone(&self.health),
            config_file: match &self.source {
                // Commands read it from another folder.
                Source::File { path, .. } => {
                    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                    Some(path.display().to_string())
                }
                Source::ReadOnce => None,
            },
            statsd: Arc::clone(&self.statsd),
            sockets: self.config.sockets.is_some().then(|| collector::page(&self.asked)),
            own_sockets: self.config.sockets.is_some().then(|| collector::own_page(&self.asked)),
            sockets_elsewhere: http::sockets_elsewhere(&self.config),
            hidden: http::hidden(&self.config),
            flows: self.shown_flows(),
            query: shown_query(&self.config),
            records: self.followers.records(),
        };
        self.tell_collector(&bound);
        self.admin_bound.remove_file(&bound);
        self.admin_bound = bound.try_clone()?;
        self.http = Http::start(bound, self.config.statsd.as_ref(), &shown)?;
        Ok(())
    }

    /// Tells the collector whose connections it leaves out.
    fn tell_collector(&self, bound: &Bound) {
        let wants = self.config.sockets.as_ref().is_some_and(|sockets| sockets.admin_connections);
        self.served.set(if wants { Vec::new() } else { bound.addresses() });
    }

    /// What the HTTP server shows of flows. Discards everything that scripts have defined so far.
    fn shown_flows(&mut self) -> Option<ShownFlows> {
        self.forget_scripts();
        let config = self.config.flows.as_ref()?;
        let shared = Arc::clone(self.flows.shared()?);
        self.exported.set(config.exported().map(str::to_owned).collect());

        self.rest = config.rest.map(|_| Site::new(&shared, config.rest_flows_max));
        let changes = match (config.takes_changes(), self.config.announces()) {
            (false, _) => Changes::Refused,
            (true, false) => Changes::Allowed,
            // The server knows the token.
            (true, true) => Changes::WithToken(None),
        };
        let rest = self.rest.clone().map(|site| (site, changes));
        let mitigated = self.mitigations.recent();
        Some(ShownFlows { mitigated, shared, exported: Arc::clone(&self.exported), rest })
    }

    /// Discards everything that scripts have defined.
    fn forget_scripts(&self) {
        self.rest.iter().for_each(|site| site.forget());
    }

    /// Waits for one event or tick and handles it. Returns whether to continue.
    fn turn(&mut self) -> bool {
        match self.events.recv_timeout(TICK) {
            Ok(Event::Signal(SIGHUP)) if matches!(self.source, Source::File { .. }) => {
                self.reload();
            }
            Ok(Event::Signal(SIGUSR1)) => self.say_ledger(),
            Ok(Event::Signal(_) | Event::InputEnded) => return false,
            Ok(Event::Name) => {
                self.follow(Look::Names, Instant::now());
                self.follow_listeners(Instant::now());
                self.sinks.follow_names(&self.names);
            }
            // `names` holds a sender for as long as the daemon lives, so the channel never disconnects.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }

        let now = Instant::now();
        self.observe(now);
        let is_due = now >= self.reopen_due;
        if is_due {
            self.reopen_due = now + REOPEN_INTERVAL;
        }
        match self.ways.take_change() {
            Some(true) => self.follow_host(now),
            // Without events, every so often.
            None if is_due => self.follow_host(now),
            _ if is_due => {
                self.follow(Look::Names, now);
                self.follow_listeners(now);
            }
            _ => {}
        }

        self.finish_retired();
        self.add_sockets(now);
        self.follow_collector();
        self.flows.turn(&self.ledger);
        self.mitigations.turn();
        self.sinks.turn(now, &self.ledger);
        self.pipes.output.is_none()
    }

    /// This host's addresses, routes or interfaces have changed.
    fn follow_host(&mut self, now: Instant) {
        self.names.look_again();
        self.follow_listeners(now);
        self.follow(Look::Host, now);
        self.sinks.follow_host();
        follow::end_lost_connections();
    }

    /// Checks the ledger, and reports the result to the health page, the service manager and the screen.
    fn observe(&mut self, now: Instant) {
        let snapshot = self.ledger.check();
        self.note_violations(now, &snapshot);
        self.pipes.look(&self.config, &snapshot);
        if self.pipes.output.is_none() {
            // A reader that closed the pipe is not a problem to report.
            self.troubles.look(now, &snapshot).iter().for_each(troubles::Line::log);
        }
        self.files.look(&snapshot).iter().for_each(|line| tracing::warn!("{line}"));
        let is_logged = |listener: &str, target: &str| {
            let of = self.running.iter().filter(|one| one.config.name == listener);
            of.into_iter().any(|one| one.anchors.contains_key(target))
        };
        let renewals = self.renewals.look(&snapshot, is_logged);
        renewals.iter().for_each(|line| tracing::info!("{line}"));
        self.drops.note(self.running.iter().map(|one| &one.listener));
        self.flows.look(&self.config, &snapshot);
        self.health.set_losing(self.troubles.losing());
        self.health.set_waiting(self.waits());

        let listeners = self.running.iter().map(|one| &one.listener);
        let listeners = listeners.map(|listener| (listener.name(), listener.heartbeat()));
        let collector = self.collecting.iter().map(|one| (COLLECTOR_NAME, one.heartbeat()));
        let analysis = self.flows.shared().map(|one| (FLOWS_NAME, one.heartbeat())).into_iter();
        let events = self.flows.events_heartbeat().map(|beat| (EVENTS_NAME, beat));
        let analysis = analysis.chain(events);
        let beats = || listeners.clone().chain(collector.clone()).chain(analysis.clone());

        for (name, beat) in beats() {
            self.health.heartbeat(name, beat);
        }
        if self.health.phase() == Phase::Ready {
            self.service.feed_watchdog(now, beats());
        }

        let rates = &mut self.rates;
        self.service.status(now, || rates.line(now, &snapshot));
        self.progress.show(now, &snapshot);
    }

    /// Prints the current ledger, on SIGUSR1.
    fn say_ledger(&self) {
        say_folded(&format!("\n{}", ledger::waterfall(&self.ledger.check())));
    }

    fn note_violations(&mut self, now: Instant, snapshot: &Snapshot) {
        if snapshot.violations <= self.violations {
            return;
        }

        self.violations = snapshot.violations;
        if let Some(count) = self.broken.count(now) {
            let hops = snapshot.hops.iter().filter(|hop| hop.unaccounted != 0);
            let place = hops.map(|hop| {
                let target = hop.target.as_deref().unwrap_or("-");
                format!("{} of {} {target} by {}", hop.hop.label(), hop.origin, hop.unaccounted)
            });
            tracing::error!(
                "the ledger does not balance ({count} times since the last such line): {}. This is a defect of Weir",
                place.collect::<Vec<_>>().join(", ")
            );
        }
    }

    /// Tells the supervisors that the daemon is alive during a long reload step. `entering` are listeners that are not in
    /// `running` at the moment.
    fn keep_alive(&self, entering: &[&Listener]) {
        let running = self.running.iter().map(|one| &one.listener);
        for listener in running.chain(entering.iter().copied()) {
            self.health.heartbeat(listener.name(), listener.heartbeat());
        }
        self.service.feed_watchdog_while_busy(Instant::now());
    }

    fn listen_addrs(&self) -> Vec<SocketAddr> {
        self.running.iter().flat_map(Running::addresses).collect()
    }

    /// Closes the ledger accounts of listeners that have drained after a reload.
    fn finish_retired(&mut self) {
        for at in (0..self.retiring.len()).rev() {
            if self.retiring[at].listener.has_ended() {
                self.retiring.swap_remove(at).listener.finish_removal();
            }
        }
    }
}

/// Refuses a configuration that is valid but cannot run here.
fn refuse_what_cannot_run(config: &Config, last_ledger: LastLedger) -> anyhow::Result<()> {
    pipes::refuse_two_writers(config, last_ledger)?;
    memory::refuse_rings_that_do_not_fit(config, |_| true, 0, memory::Limits::at_start())
        .map_err(|why| Failure::Config.error(why))?;
    warn_of_memory(config);
    Ok(())
}

/// Says so where the limit of the service does not fit the configuration, which may have been changed since.
fn warn_of_memory(config: &Config) {
    if let Some(warning) = memory::warning(config, memory::Limits::at_start()) {
        tracing::warn!("{warning}");
    }
}

fn new_ledger(run_id: &str, config: &Config) -> Arc<Ledger> {
    let ledger = Ledger::new(run_id.to_owned());
    arrange(&ledger, config);
    Arc::new(ledger)
}

/// Makes the ledger list everything in the order of the configuration.
fn arrange(ledger: &Ledger, config: &Config) {
    let targets = config.listeners.iter().flat_map(|listener| {
        listener.targets.iter().map(|target| (listener.name.clone(), target.name.as_str()))
    });
    let fed = config.sinks.iter().flat_map(|sink| {
        let own = [(sinks::origin(sink), sink.name.as_str())];
        let sources = sink.from.iter().map(|source| (source.to_string(), sink.name.as_str()));
        own.into_iter().chain(sources)
    });
    // A listener that feeds only sinks also has its place among the listeners.
    let listeners = config.listeners.iter().map(|listener| (listener.name.clone(), ""));
    let all: Vec<_> = listeners.chain(targets).chain(fed).collect();
    ledger.arrange(all.iter().map(|(origin, target)| (origin.as_str(), *target)));
}

/// Prints what runs, and warns about unix targets that nobody listens at yet.
fn tell_start(run_id: &str, running: &[Running], config: &Config, bound: &Bound) {
    let admin_addr = bound.tcp.as_ref().and_then(|listener| listener.local_addr().ok());
    let page = bound.run_token.as_ref().map(|_| http::link_command(admin_addr));
    say_folded(&banner::banner(run_id, running, config, admin_addr, page.as_deref()));
    for (name, to) in banner::absent_unix_targets(running) {
        tracing::warn!("target {name}: nobody listens at {to} yet; Weir keeps trying");
    }
}

fn names_of(config: &Config, events: Sender<Event>) -> anyhow::Result<Names> {
    let names = Names::new(events);
    names.watch(&watched_names(config))?;
    Ok(names)
}

/// Every name in a configuration, with the shortest resolve interval that any use of it asks for.
fn watched_names(config: &Config) -> BTreeMap<String, Duration> {
    let listeners = config.listeners.iter().filter_map(|listener| listener.listen.port());
    let listeners = listeners.map(|addr| (addr, LISTENER_RESOLVE_INTERVAL));
    let targets = config.listeners.iter().flat_map(|listener| &listener.targets);
    let targets = targets.filter_map(|target| match &target.to {
        Target::Udp(udp) => Some((&udp.addr, udp.resolve_interval)),
        Target::Weir(weir) => Some((&weir.addr, weir.resolve_interval)),
        _ => None,
    });
    let sinks = config.sinks.iter().filter_map(|sink| sink.to.receiver());
    let sinks = sinks.map(|addr| (addr, sinks::RESOLVE_INTERVAL));

    let mut names: BTreeMap<String, Duration> = BTreeMap::new();
    for (addr, wanted) in listeners.chain(targets).chain(sinks) {
        if let Host::Name(name) = &addr.host {
            let interval = names.entry(name.clone()).or_insert(wanted);
            *interval = wanted.min(*interval);
        }
    }

    names
}

fn has_name(listener: &ListenerConfig) -> bool {
    listener.listen.port().is_some_and(|addr| matches!(addr.host, Host::Name(_)))
}

fn forward_signals(events: Sender<Event>) -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// A random id for this run of the process, in hexadecimal.
fn run_id() -> String {
    let mut bytes = [0; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    let number = match read {
        Ok(()) => u64::from_ne_bytes(bytes),
        // The standard library seeds its hashers from the kernel's random numbers.
        Err(_) => std::hash::RandomState::new().build_hasher().finish(),
    };
    format!("{number:016x}")
}

/// A short text that differs between configurations.
fn fingerprint(config: &Config) -> String {
    // FNV-1a with 64 bits: the hashers of the standard library have no fixed keys.
    let hash = config.to_toml(None).bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The history pages, if a store is configured.
#[cfg(feature = "store")]
fn shown_query(config: &Config) -> Option<admin::Query> {
    let folder = served_store(config)?;
    let for_known = query::ForKnown {
        sockets: http::only_for_known(&config.admin, http::FOREIGN_SOCKETS, "query"),
        contents: http::only_for_known(&config.admin, http::CONTENTS, "query"),
    };
    Some(admin::Query { pages: query::pages(folder, for_known) })
}

#[cfg(not(feature = "store"))]
fn shown_query(_config: &Config) -> Option<admin::Query> {
    None
}
