//! The sinks that run. They come, are replaced and go while their sources go on: what did not change is not touched, and
//! what was replaced delivers by itself what it has.

use super::collector;
use super::names::Names;
use super::open;
use super::stop::{LastLedger, LedgerForm};
use crate::exit::Failure;
use anyhow::Context as _;
use config::{Config, Opening, Sink, SinkConfig, Source};
use ledger::{Ledger, Meter, Trouble};
use record::FieldSet;
use sink::{Connector, Fanout, Remote, SinkOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the name of a UDP sink is resolved again.
pub(crate) const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

/// Most sinks that were replaced or removed and still deliver. Each has a queue; the oldest is given up for the next.
const DRAINING_MAX: usize = 16;

/// How much longer than its deadline a sink's thread is waited for, before it is given up.
const END_GRACE: Duration = Duration::from_millis(500);

/// All sinks of the daemon.
#[derive(Default)]
pub(super) struct Sinks {
    running: Vec<Running>,
    draining: Vec<Draining>,
    sockets: Fanout,
}

struct Running {
    config: SinkConfig,
    /// What its records of sockets are written with.
    fields: FieldSet,
    /// Where it sends datagrams to, if it is of that kind.
    remote: Remote,
    sink: sink::Sink,
    feeds: Vec<(Source, Fanout)>,
}

/// A sink that nothing feeds any longer.
struct Draining {
    sink: sink::Sink,
    deadline: Instant,
    /// For the one that took its place.
    has_ended: Arc<AtomicBool>,
}

/// What becomes of all sinks, with everything opened that can fail.
pub(super) struct Plan(Vec<Fate>);

enum Fate {
    /// Goes on; its place among the running ones.
    Keep(usize),
    Open(Box<Opened>),
}

struct Opened {
    config: SinkConfig,
    fields: FieldSet,
    remote: Remote,
    connector: Connector,
}

impl Sinks {
    /// Where the rows of the socket collector go.
    pub(super) fn sockets(&self) -> &Fanout {
        &self.sockets
    }

    /// Opens what a configuration asks for anew, and changes nothing but that empty files may appear.
    ///
    /// # Errors
    /// A sink can never work as it is configured on this host; the message says what to do.
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
            let own = match &config.sockets {
                Some(sockets) => sockets.fields_of(wanted),
                None => FieldSet::ALL,
            };
            // Absent fields are nowhere: with and without them the same is written.
            let is_same = |one: &Running| {
                one.config == *wanted && one.fields.without(&absent) == own.without(&absent)
            };
            fates.push(match self.running.iter().position(is_same) {
                Some(at) => Fate::Keep(at),
                None => {
                    let is_protobuf = wanted.to.encoding() == record::Encoding::Protobuf;
                    // Protobuf has no trace of what is absent, and is written fastest whole.
                    let fields = if is_protobuf { own.with(&absent) } else { own };
                    Fate::Open(Box::new(open_one(wanted, fields, names, last)?))
                }
            });
        }
        Ok(Plan(fates))
    }

    /// Puts a plan into force. Returns what failed, in words: a sink that does not start leaves the former one in its place.
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
                    self.start(*opened, old, (ledger, deadline)).unwrap_or_else(|(old, error)| {
                        failures.push(error);
                        old
                    })
                }
            };
            self.running.extend(next);
        }

        for one in former.into_iter().flatten() {
            one.feeds.iter().for_each(|(_, fanout)| fanout.detach(&one.sink));
            self.retire(one, deadline);
        }
        failures
    }

    /// Starts a sink, in the place of another if there is one.
    fn start(
        &mut self,
        opened: Opened,
        old: Option<Running>,
        (ledger, deadline): (&Ledger, Instant),
    ) -> Result<Option<Running>, (Option<Running>, String)> {
        let Opened { config, fields, remote, mut connector } = opened;
        let has_ended = Arc::new(AtomicBool::new(old.is_none()));
        if config.to.is_exclusive() && old.is_some() {
            connector = after(connector, &config.name, Arc::clone(&has_ended));
        }

        let started = sink::Sink::open(SinkOptions {
            name: config.name.clone(),
            origin: origin(&config),
            queue: config.queue(),
            batch: config.batch(),
            delivery: config.delivery(),
            spool: config.spool_options(),
            connector,
        });
        let sink = match started {
            Ok(sink) => sink,
            Err(error) => return Err((old, format!("sink {}: {error}", config.name))),
        };
        ledger.register(sink.meter());

        let feeds: Vec<_> =
            config.from.iter().map(|source| (source.clone(), self.feed(source))).collect();
        for (source, fanout) in &feeds {
            match &old {
                Some(old) if old.config.from.contains(source) => fanout.replace(&old.sink, &sink),
                _ => fanout.attach(&sink),
            }
        }
        if let Some(old) = old {
            let gone = old.feeds.iter().filter(|(source, _)| !config.from.contains(source));
            gone.for_each(|(_, fanout)| fanout.detach(&old.sink));
            self.retire_for(old, deadline, has_ended);
        }
        Ok(Some(Running { config, fields, remote, sink, feeds }))
    }

    fn feed(&self, source: &Source) -> Fanout {
        match source {
            Source::Sockets => self.sockets.clone(),
        }
    }

    fn retire(&mut self, one: Running, deadline: Instant) {
        self.retire_for(one, deadline, Arc::default());
    }

    fn retire_for(&mut self, one: Running, deadline: Instant, has_ended: Arc<AtomicBool>) {
        one.sink.close(deadline);
        self.draining.push(Draining { sink: one.sink, deadline, has_ended });
        let too_many = self.draining.len().saturating_sub(DRAINING_MAX);
        for oldest in &mut self.draining[..too_many] {
            oldest.hurry(Instant::now());
        }
    }

    /// Closes the accounts of sinks that have ended.
    pub(super) fn turn(&mut self, now: Instant, ledger: &Ledger) {
        for at in (0..self.draining.len()).rev() {
            let one = &self.draining[at];
            if one.sink.has_ended() || now >= one.deadline + END_GRACE {
                self.draining.swap_remove(at).finish(ledger);
            }
        }
    }

    /// Sends on where names stand for other addresses.
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

    /// Lets nothing more in; what is inside may leave until the deadline.
    pub(super) fn close(&mut self, deadline: Instant) {
        for one in std::mem::take(&mut self.running) {
            one.sink.close(deadline);
            let has_ended = Arc::default();
            self.draining.push(Draining { sink: one.sink, deadline, has_ended });
        }
        self.hurry(deadline);
    }

    /// Leaves those that end less time.
    pub(super) fn hurry(&mut self, deadline: Instant) {
        self.draining.iter_mut().for_each(|one| one.hurry(deadline));
    }

    /// Whether all that were to end have.
    pub(super) fn has_drained(&self) -> bool {
        self.draining.iter().all(|one| one.sink.has_ended())
    }

    /// Ends all that were to end, but for a moment for their threads to come back.
    pub(super) fn finish(&mut self, ledger: &Ledger) {
        self.draining.drain(..).for_each(|one| one.finish(ledger));
    }
}

impl Draining {
    fn hurry(&mut self, deadline: Instant) {
        self.deadline = self.deadline.min(deadline);
        self.sink.close(self.deadline);
    }

    /// Closes its account. Waits for half a second beyond the deadline at most, and then gives its thread up.
    fn finish(self, ledger: &Ledger) {
        let meter: Arc<dyn Meter> = self.sink.meter();
        self.sink.wait(self.deadline);
        self.has_ended.store(true, Ordering::Release);
        ledger.retire(&meter);
    }
}

fn open_one(
    wanted: &SinkConfig,
    fields: FieldSet,
    names: &Names,
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
        Sink::File(file) => open::sink_file(wanted, &file.path)?,
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
    let opening = Opening { name: wanted.name.clone(), fields, remote: remote.clone() };
    let connector = wanted.to.open(&opening).with_context(|| format!("sink {}", wanted.name))?;
    Ok(Opened { config: wanted.clone(), fields, remote, connector })
}

/// What a sink's rows come from, in the ledger.
fn origin(config: &SinkConfig) -> String {
    config.from.iter().map(Source::to_string).collect::<Vec<_>>().join("+")
}

/// Connects only when another sink has ended: two would write into one another.
fn after(connector: Connector, name: &str, former_has_ended: Arc<AtomicBool>) -> Connector {
    let Connector { form, mut destination } = connector;
    let name = name.to_owned();
    let destination = move || match former_has_ended.load(Ordering::Acquire) {
        true => destination(),
        false => Err(Trouble {
            what: format!("the former sink {name} still writes there"),
            fix: "nothing: it ends within drain_grace".to_owned(),
        }),
    };
    Connector { form, destination: Box::new(destination) }
}
