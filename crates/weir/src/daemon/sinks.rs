//! The running sinks. They come, get replaced and go while their sources continue: what did not change is not touched, and a
//! replaced sink delivers by itself what it still holds.

mod rows;
mod spools;

pub(super) use rows::Fed;

use super::collector;
use super::flows::Outlets;
use super::mitigation::Mitigations;
use super::names::Names;
use super::open;
use super::stop::{LastLedger, LedgerForm};
use crate::exit::Failure;
use anyhow::Context as _;
use config::{Config, Opening, Sink, SinkConfig, Source};
use ledger::{Amount, Ledger, Meter, Trouble};
use record::FieldSet;
use relay::TargetKind;
use rows::Rows;
use sink::{Connector, Fanout, HostChanges, Remote, SinkEnd, SinkOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How often the name of a UDP sink is resolved again.
pub(crate) const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

/// Most replaced or removed sinks that are still delivering. Each has a queue. Beyond this, the oldest is given up.
const DRAINING_MAX: usize = 64;

/// How long a sink waits at a time for the sinks it replaces. Most end at once.
const FORMER_WAIT: Duration = Duration::from_secs(1);

/// How long past its deadline we wait for a sink's thread before giving it up.
const END_GRACE: Duration = Duration::from_millis(500);

/// All sinks of the daemon.
#[derive(Default)]
pub(super) struct Sinks {
    running: Vec<Running>,
    draining: Vec<Draining>,
    sockets: Fanout,
    events: Fanout,
    flows: Fanout,
    /// What feeds a listener's datagrams to a sink, by the names of both. Each has its own ring reader.
    listeners: BTreeMap<(String, String), Feed>,
    /// For sinks that record the ledger.
    ledger: Option<Arc<Ledger>>,
    /// What sinks are told about this host.
    host: HostChanges,
}

/// What one listener feeds to one sink.
#[derive(Clone, Default)]
struct Feed {
    fanout: Fanout,
    /// Held by the ring readers that make the rows.
    feeding: Weak<()>,
}

struct Running {
    config: SinkConfig,
    /// The fields of its socket records, if it takes any.
    fields: Option<FieldSet>,
    /// The address it sends datagrams to, if it is a UDP sink.
    remote: Remote,
    sink: sink::Sink,
    feeds: Vec<(Source, Feed)>,
    /// Replaced sinks that may still write to the same place.
    formers: Vec<SinkEnd>,
    /// Whether we have reported what its spool held.
    is_spool_told: bool,
}

/// A sink that nothing feeds any longer.
struct Draining {
    sink: sink::Sink,
    spool_folder: Option<PathBuf>,
    deadline: Instant,
    /// Tokens of the ring readers that may still feed it.
    feeding: Vec<Weak<()>>,
}

/// What happens to all sinks, with everything that can fail already opened.
pub(super) struct Plan(Vec<Fate>);

enum Fate {
    /// Continues; its index among the running ones.
    Keep(usize),
    Open(Box<Opened>),
}

struct Opened {
    config: SinkConfig,
    fields: Option<FieldSet>,
    remote: Remote,
    connector: Connector,
}

impl Sinks {
    /// Starts all sinks of a configuration.
    ///
    /// # Errors
    /// A sink can never work as configured on this host, or its thread cannot be started.
    pub(super) fn start(
        config: &Config,
        names: &Names,
        last: LastLedger,
        ledger: &Arc<Ledger>,
    ) -> anyhow::Result<Sinks> {
        let mut sinks = Sinks { ledger: Some(Arc::clone(ledger)), ..Sinks::default() };
        for (source, fanout) in [
            (Source::Sockets, &sinks.sockets),
            (Source::Events, &sinks.events),
            (Source::Flows, &sinks.flows),
        ] {
            ledger.register(fanout.meter(&source.to_string()));
        }
        let plan = sinks.prepare(config, names, last)?;
        match sinks.apply(plan, ledger, Duration::ZERO).into_iter().next() {
            Some(failure) => Err(Failure::Unavailable.error(failure)),
            None => Ok(sinks),
        }
    }

    /// Where the socket collector's rows go.
    pub(super) fn sockets(&self) -> &Fanout {
        &self.sockets
    }

    /// Where rows of flows go.
    pub(super) fn flows(&self) -> &Fanout {
        &self.flows
    }

    /// Where events go.
    pub(super) fn events(&self) -> &Fanout {
        &self.events
    }

    /// Where the output of the sFlow analysis goes.
    pub(super) fn of_flows<'a>(&'a self, mitigations: &'a Arc<Mitigations>) -> Outlets<'a> {
        Outlets { rows: &self.flows, events: &self.events, mitigations }
    }

    /// Opens what is new in a configuration. Changes nothing, except that empty files may be created.
    ///
    /// # Errors
    /// A sink can never work as configured on this host; the message says what to do.
    pub(super) fn prepare(
        &self,
        config: &Config,
        names: &Names,
        last: LastLedger,
    ) -> anyhow::Result<Plan> {
        let absent = match &config.sockets {
            Some(sockets) => collector::options(config, sockets)?.absent_fields(),
            None => FieldSet::NONE,
        };

        let mut fates = Vec::new();
        for wanted in &config.sinks {
            let sockets =
                config.sockets.as_ref().filter(|_| wanted.from.contains(&Source::Sockets));
            let own = sockets.map(|sockets| sockets.fields_of(wanted));
            // Fields that this host does not have are never written, so they make no difference.
            let present = |fields: Option<FieldSet>| fields.map(|fields| fields.without(&absent));
            let is_same = |one: &Running| {
                let is_configured_so = one.config == *wanted && present(one.fields) == present(own);
                is_configured_so && !one.sink.has_ended()
            };
            fates.push(match self.running.iter().position(is_same) {
                Some(at) => Fate::Keep(at),
                None => {
                    let is_protobuf = wanted.to.encoding() == record::Encoding::Protobuf;
                    // Protobuf leaves no trace of absent fields and is fastest when all fields are written.
                    let whole = |own: FieldSet| if is_protobuf { own.with(&absent) } else { own };
                    let fields = own.map(whole);
                    Fate::Open(Box::new(open_one(
                        wanted,
                        fields,
                        (names, self.ledger.as_ref(), &self.host),
                        last,
                    )?))
                }
            });
        }
        Ok(Plan(fates))
    }

    /// Applies a plan. Returns the failures, in words. If a sink does not start, the former one stays in its place.
    pub(super) fn apply(&mut self, plan: Plan, ledger: &Ledger, grace: Duration) -> Vec<String> {
        let deadline = Instant::now() + grace;
        let mut failures = Vec::new();
        let mut former: Vec<_> = self.running.drain(..).map(Some).collect();

        for fate in plan.0 {
            let next = match fate {
                Fate::Keep(at) => former[at].take(),
                Fate::Open(opened) => {
                    let is_former = |one: &&mut Option<Running>| {
                        one.as_ref().is_some_and(|one| one.config.name == opened.config.name)
                    };
                    let old = former.iter_mut().find(is_former).and_then(Option::take);
                    self.start_one(*opened, old, (ledger, deadline), &mut failures)
                }
            };
            self.running.extend(next);
        }

        for one in former.into_iter().flatten() {
            self.retire(one, deadline);
        }
        failures
    }

    /// The ring reader that feeds a listener's datagrams to a sink.
    pub(super) fn receiver(&mut self, listener: &str, fed: &Fed) -> TargetKind {
        let feed = self.listeners.entry((listener.to_owned(), fed.sink.clone())).or_default();
        // One token for all readers that feed this sink: the old reader of a ring may still be draining next to the new one.
        let feeding = feed.feeding.upgrade().unwrap_or_default();
        feed.feeding = Arc::downgrade(&feeding);
        let writer = feed.fanout.writer(collector::source_id());
        TargetKind::Rows(Box::new(Rows::new(writer, listener, fed, feeding)))
    }

    /// Starts a sink, in place of `old` if given. If that fails, `old` stays.
    fn start_one(
        &mut self,
        opened: Opened,
        old: Option<Running>,
        (ledger, deadline): (&Ledger, Instant),
        failures: &mut Vec<String>,
    ) -> Option<Running> {
        let Opened { config, fields, remote, mut connector } = opened;
        let mut formers = Vec::new();
        if let Some(old) = &old {
            let earlier = old.formers.iter().filter(|former| !former.wait(Instant::now())).cloned();
            formers.extend(earlier.chain([old.sink.end()]));
        }
        if config.to.is_exclusive() {
            connector = after(connector, &config.name, formers.clone());
        }

        let options = SinkOptions {
            name: config.name.clone(),
            origin: origin(&config),
            queue: config.queue(),
            batch: config.batch(),
            delivery: config.delivery(),
            spool: config.spool_options(),
            connector,
        };
        let before = self.with_the_spool_of(&config, old.as_ref());
        let sink = match (sink::Sink::open_after(options, before), &old) {
            (Ok(sink), _) => sink,
            (Err(error), Some(_)) => {
                failures.push(format!("sink {}: {error}", config.name));
                return old;
            }
            (Err(error), None) => {
                failures.push(format!("sink {}: {error}", config.name));
                sink::Sink::absent(config.name.clone(), origin(&config)).ok()?
            }
        };
        ledger.register(sink.meter());

        let feed = |source: &Source| (source.clone(), self.feed(source, &config.name));
        let feeds: Vec<_> = config.from.iter().map(feed).collect();
        for (source, feed) in &feeds {
            match &old {
                Some(old) if old.config.from.contains(source) => {
                    feed.fanout.replace(&old.sink, &sink);
                }
                _ => feed.fanout.attach(&sink),
            }
        }
        if let Some(mut old) = old {
            // Sources that both take now feed the new one only.
            old.feeds.retain(|(source, _)| !config.from.contains(source));
            self.retire(old, deadline);
        }
        let is_spool_told = config.spool_folder.is_none();
        Some(Running { config, fields, remote, sink, feeds, formers, is_spool_told })
    }

    /// The sinks that use this one's spool before it: draining ones, and the one it replaces.
    fn with_the_spool_of(&self, config: &SinkConfig, old: Option<&Running>) -> Vec<SinkEnd> {
        let draining = self.draining.iter().map(|one| (&one.spool_folder, &one.sink));
        let old = old.map(|old| (&old.config.spool_folder, &old.sink));
        let has_it = |(folder, _): &(&Option<PathBuf>, _)| **folder == config.spool_folder;
        draining.chain(old).filter(has_it).map(|(_, sink)| sink.end()).collect()
    }

    fn feed(&mut self, source: &Source, sink: &str) -> Feed {
        match source {
            Source::Sockets => Feed { fanout: self.sockets.clone(), feeding: Weak::new() },
            Source::Events => Feed { fanout: self.events.clone(), feeding: Weak::new() },
            Source::Flows => Feed { fanout: self.flows.clone(), feeding: Weak::new() },
            Source::Listener(name) => {
                self.listeners.entry((name.clone(), sink.to_owned())).or_default().clone()
            }
        }
    }

    /// Takes a sink out of service. It can still receive what listeners hold for it in their rings.
    fn retire(&mut self, one: Running, deadline: Instant) {
        let Running { config, sink, feeds, .. } = one;
        let mut feeding = Vec::new();
        for (source, feed) in feeds {
            match source {
                Source::Sockets | Source::Events | Source::Flows => feed.fanout.detach(&sink),
                Source::Listener(listener) => {
                    let key = (listener, config.name.clone());
                    feeding.extend(self.listeners.remove(&key).map(|feed| feed.feeding));
                }
            }
        }

        let spool_folder = config.spool_folder;
        self.draining.push(Draining { sink, spool_folder, deadline, feeding });
        let too_many = self.draining.len().saturating_sub(DRAINING_MAX);
        for oldest in &mut self.draining[..too_many] {
            oldest.hurry(Instant::now());
        }
    }

    /// Closes the accounts of sinks that have ended, and reports what spools hold.
    pub(super) fn turn(&mut self, now: Instant, ledger: &Ledger) {
        self.running.iter_mut().for_each(spools::tell);
        for at in (0..self.draining.len()).rev() {
            let one = &self.draining[at];
            one.close_if_nothing_comes(now);
            if one.sink.has_ended() || now >= one.deadline + END_GRACE {
                let (name, folder, kept) = self.draining.swap_remove(at).finish(ledger);
                if let Some(folder) = folder {
                    let sinks = self.running.iter().map(|one| &one.config);
                    spools::tell_orphan(&name, &folder, kept, sinks);
                }
            }
        }
    }

    /// Redirects UDP sinks whose names resolve to other addresses.
    pub(super) fn follow_names(&self, names: &Names) {
        for one in &self.running {
            let Some(receiver) = one.config.to.receiver() else { continue };
            let known = names.addresses(receiver);
            let current = one.remote.address();
            if current.is_some_and(|current| known.contains(&current)) {
                continue;
            }
            if let Some(addr) = known.first() {
                let before = current.map_or("nowhere".to_owned(), |addr| addr.to_string());
                tracing::info!("sink {}: sending to {addr}, before {before}", one.config.name);
                one.remote.set(*addr);
            }
        }
    }

    /// This host's addresses, routes or interfaces have changed: sinks look at what they hold open.
    pub(super) fn follow_host(&self) {
        self.host.note();
    }

    /// Stops all input. What is queued may leave until the deadline.
    pub(super) fn close(&mut self, deadline: Instant) {
        for mut one in std::mem::take(&mut self.running) {
            spools::tell(&mut one);
            let Running { sink, config, .. } = one;
            let spool_folder = config.spool_folder;
            self.draining.push(Draining { sink, spool_folder, deadline, feeding: Vec::new() });
        }
        self.draining.iter_mut().for_each(|one| {
            one.feeding.clear();
            one.hurry(deadline);
        });
    }

    /// Shortens the deadline of sinks that are ending.
    pub(super) fn hurry(&mut self, deadline: Instant) {
        self.draining.iter_mut().for_each(|one| one.hurry(deadline));
    }

    /// Whether all retired sinks have ended.
    pub(super) fn has_drained(&self) -> bool {
        self.draining.iter().all(|one| one.sink.has_ended())
    }

    /// Ends all retired sinks, after a last short wait for their threads.
    pub(super) fn finish(&mut self, ledger: &Ledger) {
        for one in self.draining.drain(..) {
            one.finish(ledger);
        }
    }
}

impl Draining {
    fn hurry(&mut self, deadline: Instant) {
        self.deadline = self.deadline.min(deadline);
        self.close_if_nothing_comes(Instant::now());
    }

    fn close_if_nothing_comes(&self, now: Instant) {
        let comes = self.feeding.iter().any(|feeding| feeding.strong_count() > 0);
        if !comes || now >= self.deadline {
            self.sink.close(self.deadline);
        }
    }

    /// Closes its account. Waits at most half a second past the deadline, then gives the thread up. Returns the sink's name,
    /// its spool folder, and the amount kept there.
    fn finish(self, ledger: &Ledger) -> (String, Option<PathBuf>, Amount) {
        let name = self.sink.name().to_owned();
        let meter: Arc<dyn Meter> = self.sink.meter();
        let end = self.sink.end();
        self.sink.wait(self.deadline);
        spools::tell_trouble(&name, &end, &meter);
        ledger.retire(&meter);
        (name, self.spool_folder, spools::kept(&meter))
    }
}

fn open_one(
    wanted: &SinkConfig,
    fields: Option<FieldSet>,
    (names, ledger, host): (&Names, Option<&Arc<Ledger>>, &HostChanges),
    last: LastLedger,
) -> anyhow::Result<Opened> {
    match &wanted.to {
        Sink::Stdout(_) if last.form == LedgerForm::Json => {
            return Err(Failure::Config.error(format!(
                "sink {} writes records to standard output, where --json writes the last ledger: one would spoil the other. \
                 Fix: leave --json out, or send the records to a file",
                wanted.name
            )));
        }
        Sink::File(file) => match file.folder() {
            Some(folder) => open::sink_folder(wanted, &folder)?,
            None => open::sink_file(wanted, &file.path)?,
        },
        _ => {}
    }

    let remote = Remote::default();
    if let Some(receiver) = wanted.to.receiver() {
        match names.addresses(receiver).first() {
            Some(addr) => remote.set(*addr),
            None => tracing::warn!(
                "sink {}: {} has no address yet; its records are dropped as target_unresolved until it has",
                wanted.name,
                wanted.to
            ),
        }
    }
    let takes_flows = wanted.from.contains(&Source::Flows);
    let (name, remote_addr) = (wanted.name.clone(), remote.clone());
    let durability = wanted.durability();
    let opening = Opening {
        name,
        fields,
        takes_flows,
        ledger: ledger.cloned(),
        durability,
        remote: remote_addr,
        host: host.clone(),
    };
    let connector = wanted.to.open(&opening).with_context(|| format!("sink {}", wanted.name))?;
    Ok(Opened { config: wanted.clone(), fields, remote, connector })
}

/// The origin of a sink's rows, as the ledger names it.
pub(super) fn origin(config: &SinkConfig) -> String {
    config.from.iter().map(Source::to_string).collect::<Vec<_>>().join("+")
}

/// Delays connecting until the former sinks have ended: two at once would mix their writes.
fn after(connector: Connector, name: &str, formers: Vec<SinkEnd>) -> Connector {
    let Connector { form, mut destination } = connector;
    let name = name.to_owned();
    let destination = move || {
        let until = Instant::now() + FORMER_WAIT;
        match formers.iter().all(|former| former.wait(until)) {
            true => destination(),
            false => Err(Trouble {
                what: format!("the former sink {name} still writes there"),
                fix: "nothing: it ends within drain_grace".to_owned(),
            }),
        }
    };
    Connector { form, destination: Box::new(destination) }
}
