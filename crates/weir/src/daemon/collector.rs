//! The socket collector in the daemon: prepared while nothing changes yet, started with its sinks, and ended so that
//! whatever was on its way is delivered or counted.

mod outlet;
mod page;

pub(crate) use page::{Asked, page};

use super::Daemon;
use super::names::Names;
use super::open;
use super::stop::{LastLedger, LedgerForm};
use crate::exit::Failure;
use anyhow::Context as _;
use config::{COLLECTOR_NAME, Config, Namespaces, Sink, SinkConfig, SocketsConfig, Source};
use ledger::{Ledger, Meter};
use outlet::{Outlet, Slot, Unresolved};
use record::FieldSet;
use sink::{Fanout, SinkOptions};
use sockets::attribution::{Host, HostOptions};
use sockets::filter::Filter;
use sockets::helper::Remote;
use sockets::{Closes, Collector, Options, Questions, Scope};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the name of a UDP sink is resolved again.
pub(crate) const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);
/// How much longer than its deadline an end waits for the collector's thread, before it gives it up.
const RETURN_GRACE: Duration = Duration::from_secs(1);

/// A collector that nothing keeps from starting any more.
pub(crate) struct Prepared {
    config: SocketsConfig,
    sinks: Vec<SinkConfig>,
    filter: Option<Filter>,
    /// Opens what this process may not; `None`: this process opens everything itself.
    helper: Option<Remote>,
    /// Where each UDP sink sends to; `None` for other kinds, and while no address is known.
    remotes: Vec<Option<SocketAddr>>,
}

/// Checks everything about a collector that can fail, and changes nothing but that empty files may appear.
///
/// # Errors
/// It can never work as it is configured on this host; the message says what to do.
pub(crate) fn prepare(
    config: &Config,
    names: &Names,
    last: LastLedger,
) -> anyhow::Result<Option<Prepared>> {
    let Some(sockets) = config.sockets.clone() else { return Ok(None) };
    let sinks: Vec<_> = config.sinks_from(Source::Sockets).cloned().collect();
    let filter = sockets.filter.as_deref().map(Filter::parse).transpose();
    let filter = filter.map_err(|error| {
        Failure::Config.error(format!("the filter of [sockets] cannot be used: {error}"))
    })?;

    // One that is not there costs other namespaces only, and may come later.
    let helper = sockets.helper.as_deref().map(Remote::new);

    for sink in &sinks {
        match &sink.to {
            Sink::Stdout(_) if last.form == LedgerForm::Json => {
                return Err(Failure::Config.error(format!(
                    "sink {} writes records to standard output, where --json writes the last ledger: one would spoil the \
                     other. Fix: leave --json out, or send the records to a file",
                    sink.name
                )));
            }
            Sink::File(file) => open::sink_file(sink, &file.path)?,
            _ => {}
        }
    }

    let remote = |sink: &SinkConfig| names.addresses(sink.to.receiver()?).first().copied();
    let remotes = sinks.iter().map(remote).collect();
    Ok(Some(Prepared { config: sockets, sinks, filter, helper, remotes }))
}

impl Daemon {
    /// Starts the collector that was prepared, if there is one.
    ///
    /// # Errors
    /// A thread cannot be started, or there is no standard output.
    pub(super) fn start_prepared(&mut self) -> anyhow::Result<()> {
        let Some(prepared) = self.prepared.take() else { return Ok(()) };
        let collecting = Collecting::start(prepared, &self.ledger)?;
        self.asked.set(Some(collecting.questions()));
        self.collecting = Some(collecting);
        Ok(())
    }

    /// Takes the collector out of service; what it has made is delivered until the grace period ends.
    pub(super) fn end_collector(&mut self) {
        let Some(collecting) = self.collecting.take() else { return };
        self.asked.set(None);
        self.health.forget(COLLECTOR_NAME);
        self.ending = Some(collecting.begin_stop(Instant::now() + self.config.daemon.drain_grace));
    }

    /// Goes on with the end of a collector that was replaced, and then starts the next.
    pub(super) fn follow_collector(&mut self, now: Instant) {
        if self.ending.as_mut().is_some_and(|ending| ending.turn(now))
            && let Some(ending) = self.ending.take()
        {
            ending.retire(&self.ledger);
        }
        if self.ending.is_none()
            && let Err(error) = self.start_prepared()
        {
            tracing::error!(
                "the socket collector does not start: {error:#}. Fix: weir config check, and reload"
            );
        }
    }

    /// Starts the collector anew when the name of one of its sinks stands for another address.
    pub(super) fn follow_sinks(&mut self) {
        if !self.collecting.as_ref().is_some_and(|one| one.has_moved(&self.names)) {
            return;
        }

        match prepare(&self.config, &self.names, self.last_ledger) {
            Ok(prepared) => {
                tracing::info!("{COLLECTOR_NAME}: the address of a sink has changed");
                self.prepared = prepared;
                self.end_collector();
            }
            Err(error) => {
                if let Some(count) = self.refused.count(Instant::now()) {
                    tracing::error!("{error:#} ({count} times since the last such line)");
                }
            }
        }
    }
}

/// A collector that runs, and its sinks.
pub(crate) struct Collecting {
    sinks: Vec<SinkConfig>,
    remotes: Vec<Option<SocketAddr>>,
    collector: Collector,
    meters: Vec<Arc<dyn Meter>>,
    slot: Slot,
}

impl Collecting {
    /// Opens the sinks and starts the thread.
    ///
    /// # Errors
    /// A thread cannot be started, or there is no standard output.
    pub(crate) fn start(prepared: Prepared, ledger: &Ledger) -> anyhow::Result<Collecting> {
        let Prepared { config, sinks, filter, helper, remotes } = prepared;
        let options = options(&config, &sinks, filter);
        let absent = options.absent_fields();

        let fanout = Fanout::default();
        let mut open = Vec::new();
        let mut unresolved = Vec::new();
        for (sink, remote) in sinks.iter().zip(&remotes) {
            let fields = written_fields(&config, sink, &absent);
            let connector =
                sink.to.open(*remote, fields).with_context(|| format!("sink {}", sink.name))?;
            match connector {
                Some(connector) => {
                    let sink = ::sink::Sink::open(SinkOptions {
                        name: sink.name.clone(),
                        origin: COLLECTOR_NAME.to_owned(),
                        queue: sink.queue(),
                        batch: sink.batch(),
                        delivery: sink.delivery(),
                        spool: None,
                        connector,
                    })?;
                    fanout.attach(&sink);
                    open.push(sink);
                }
                None => {
                    tracing::warn!(
                        "sink {}: {} has no address yet; its records are dropped as target_unresolved until it has",
                        sink.name,
                        sink.to
                    );
                    unresolved.push(Arc::new(Unresolved::new(&sink.name)));
                }
            }
        }

        let mut meters: Vec<_> = open.iter().map(::sink::Sink::meter).collect();
        meters.extend(unresolved.iter().map(|one| Arc::clone(one) as Arc<dyn Meter>));
        let slot = Slot::default();
        let outlet = Outlet::new(fanout.writer(source_id()), open, unresolved, &slot);

        let host = Host::read(HostOptions {
            name: config.host.clone(),
            host_id: config.host_id.clone(),
            tags: config.tags.clone().into_iter().collect(),
        });

        let collector = match helper {
            Some(helper) => {
                Collector::start_with(options, host, outlet, Box::new(|| Box::new(helper)))
            }
            None => Collector::start(options, host, outlet),
        }?;

        meters.push(collector.meter());
        for meter in &meters {
            ledger.register(Arc::clone(meter));
        }

        Ok(Collecting { sinks, remotes, collector, meters, slot })
    }

    pub(crate) fn heartbeat(&self) -> u64 {
        self.collector.heartbeat()
    }

    pub(crate) fn questions(&self) -> Questions {
        self.collector.questions()
    }

    /// Whether a UDP sink's name stands for another address than the one in use.
    pub(crate) fn has_moved(&self, names: &Names) -> bool {
        self.sinks.iter().zip(&self.remotes).any(|(sink, remote)| {
            let Some(to) = sink.to.receiver() else { return false };
            let known = names.addresses(to);
            !known.is_empty() && remote.is_none_or(|remote| !known.contains(&remote))
        })
    }

    /// Begins the end. What the collector has made leaves until the deadline.
    pub(crate) fn begin_stop(self, deadline: Instant) -> Ending {
        let Collecting { collector, meters, slot, .. } = self;
        // The thread ends after what it is doing, which may be a walk: nobody waits for that here.
        let stage = thread::Builder::new()
            .name("sockets end".to_owned())
            .spawn(move || {
                // A thread that panicked has said so on standard error.
                drop(collector.stop());
                slot.take()
            })
            .map_or(Stage::Ended, Stage::Collecting);
        Ending { stage, meters, deadline }
    }
}

fn options(config: &SocketsConfig, sinks: &[SinkConfig], filter: Option<Filter>) -> Options {
    Options {
        name: COLLECTOR_NAME.to_owned(),
        interval: config.interval,
        jitter: config.jitter,
        scope: match &config.namespaces {
            Namespaces::Own => Scope::Own,
            Namespaces::All => Scope::All,
            Namespaces::Named(names) => Scope::Named(names.clone()),
        },
        states: config.state_set(),
        filter,
        listen_every: config.listen_every,
        keyframe_every: config.skip_unchanged.then_some(config.keyframe_every),
        sample: config.sample,
        closes: if config.closes { Closes::On } else { Closes::Off },
        closes_undecided: config.closes_undecided,
        event_buffer_bytes: config.event_buffer_bytes,
        namespaces_max: config.namespaces_max,
        table_entries_max: config.table_entries_max,
        processes: config.processes,
        fields: sinks.iter().fold(FieldSet::NONE, |all, sink| all.with(&config.fields_of(sink))),
    }
}

/// The fields that a sink writes. Protobuf has no trace of those that are absent, and is written fastest whole.
fn written_fields(config: &SocketsConfig, sink: &SinkConfig, absent: &FieldSet) -> FieldSet {
    let fields = config.fields_of(sink);
    let is_protobuf = sink.to.encoding() == record::Encoding::Protobuf;
    if is_protobuf { fields.with(absent) } else { fields }
}

/// The kernel's random id of this boot; zero where it does not say.
fn source_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map_or([0; 16], u128::to_be_bytes)
}

/// A collector that ends: first its thread, then its sinks.
pub(crate) struct Ending {
    stage: Stage,
    meters: Vec<Arc<dyn Meter>>,
    deadline: Instant,
}

enum Stage {
    /// The thread finishes what it is doing.
    Collecting(JoinHandle<Option<Vec<::sink::Sink>>>),
    /// The sinks deliver what they have.
    Delivering(Vec<::sink::Sink>),
    Ended,
}

impl Ending {
    /// Leaves less time.
    pub(crate) fn hurry(&mut self, deadline: Instant) {
        self.deadline = self.deadline.min(deadline);
    }

    /// Goes on as far as it can without waiting. Returns whether all has ended.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Collecting(thread) if !thread.is_finished() => Stage::Collecting(thread),
            Stage::Collecting(thread) => match thread.join() {
                Ok(Some(sinks)) => {
                    sinks.iter().for_each(|sink| sink.close(self.deadline));
                    Stage::Delivering(sinks)
                }
                // A thread that panicked has said so on standard error.
                Ok(None) | Err(_) => Stage::Ended,
            },
            Stage::Delivering(sinks) if self.is_delivered() || now >= self.deadline => {
                // Nothing is inside, or nothing may be any more: this closes files and counts the rest.
                for sink in sinks {
                    sink.wait(now.max(self.deadline));
                }
                Stage::Ended
            }
            stage => stage,
        };

        matches!(self.stage, Stage::Ended)
    }

    fn is_delivered(&self) -> bool {
        let mut hops = Vec::new();
        for meter in &self.meters {
            meter.read(&mut hops);
        }
        hops.iter().all(|hop| hop.in_flight.count == 0)
    }

    /// Ends now, but for a moment for the thread to come back.
    pub(crate) fn finish(mut self) {
        let limit = Instant::now() + RETURN_GRACE;
        while !self.turn(Instant::now()) && Instant::now() < limit {
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Keeps the final counts, and no more.
    pub(crate) fn retire(self, ledger: &Ledger) {
        for meter in &self.meters {
            ledger.retire(meter);
        }
    }
}
