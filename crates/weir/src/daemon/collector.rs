//! The socket collector in the daemon: prepared without changing anything, started, and ended so that its sinks get everything
//! it has made.

mod outlet;
mod page;

pub(crate) use page::{Asked, own_page, page};

use super::Daemon;
use crate::exit::Failure;
use config::{COLLECTOR_NAME, Config, Namespaces, SocketsConfig, Source};
use ledger::{Ledger, Meter};
use outlet::Outlet;
use record::FieldSet;
use sink::Fanout;
use sockets::attribution::{Host, HostOptions};
use sockets::filter::Filter;
use sockets::helper::Remote;
use sockets::{Closes, Collector, Options, Questions, Scope, Served};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long past its deadline an end waits for the collector's thread before giving it up.
const RETURN_GRACE: Duration = Duration::from_secs(1);

/// A collector that is checked and ready to start.
pub(crate) struct Prepared {
    config: SocketsConfig,
    options: Options,
    /// Opens what this process may not open itself; `None`: this process opens everything itself.
    helper: Option<Remote>,
}

/// Checks everything about a collector that can fail, and changes nothing.
///
/// # Errors
/// It can never work as configured on this host; the message says what to do.
pub(crate) fn prepare(config: &Config) -> anyhow::Result<Option<Prepared>> {
    let Some(sockets) = config.sockets.clone() else { return Ok(None) };
    let options = options(config, &sockets)?;
    // A missing helper costs only the other namespaces, and may appear later.
    let helper = sockets.helper.as_deref().map(Remote::new);
    Ok(Some(Prepared { config: sockets, options, helper }))
}

impl Daemon {
    /// Starts the prepared collector, if there is one.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn start_prepared(&mut self) -> anyhow::Result<()> {
        let Some(mut prepared) = self.prepared.take() else { return Ok(()) };
        prepared.options.served = self.served.clone();
        let collecting = Collecting::start(prepared, self.sinks.sockets(), &self.ledger)?;
        self.asked.set(Some(collecting.questions()));
        self.collecting = Some(collecting);
        Ok(())
    }

    /// Takes the collector out of service.
    pub(super) fn end_collector(&mut self) {
        let Some(collecting) = self.collecting.take() else { return };
        self.asked.set(None);
        self.health.forget(COLLECTOR_NAME);
        self.ending = Some(collecting.begin_stop());
    }

    /// Finishes the end of a replaced collector, and then starts the next.
    pub(super) fn follow_collector(&mut self) {
        if let Some(ending) = self.ending.take_if(|ending| ending.thread.is_finished()) {
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
}

/// A running collector.
pub(crate) struct Collecting {
    collector: Collector,
    meter: Arc<dyn Meter>,
}

impl Collecting {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    fn start(prepared: Prepared, fanout: &Fanout, ledger: &Ledger) -> anyhow::Result<Collecting> {
        let Prepared { config, options, helper } = prepared;
        let outlet = Box::new(Outlet(fanout.writer(source_id())));
        let host = Host::read(HostOptions {
            name: config.host,
            host_id: config.host_id,
            tags: config.tags.into_iter().collect(),
        });

        let collector = match helper {
            Some(helper) => {
                Collector::start_with(options, host, outlet, Box::new(|| Box::new(helper)))
            }
            None => Collector::start(options, host, outlet),
        }?;

        let meter = collector.meter();
        ledger.register(Arc::clone(&meter));
        Ok(Collecting { collector, meter })
    }

    /// Switches the collector to the fields that its sinks want from now on.
    pub(super) fn change_fields(&self, prepared: &Prepared) {
        self.collector.change_fields(&prepared.options);
    }

    pub(crate) fn heartbeat(&self) -> u64 {
        self.collector.heartbeat()
    }

    pub(crate) fn questions(&self) -> Questions {
        self.collector.questions()
    }

    /// Starts to end the collector.
    fn begin_stop(self) -> Ending {
        let Collecting { collector, meter } = self;
        // The thread first finishes what it is doing, which may be a whole walk of the sockets. Do not wait for that here.
        let thread = thread::spawn(move || {
            // `stop` also hands on what the collector has made. A panic was reported on standard error.
            drop(collector.stop());
        });
        Ending { thread, meter }
    }
}

/// The collector options of a configuration.
///
/// # Errors
/// Its filter cannot be used on this host.
pub(super) fn options(whole: &Config, config: &SocketsConfig) -> anyhow::Result<Options> {
    let filter = config.filter.as_deref().map(Filter::parse).transpose();
    let filter = filter.map_err(|error| {
        Failure::Config.error(format!("the filter of [sockets] cannot be used: {error}"))
    })?;
    // Without a sink, records are made for followers alone.
    let takes_any = whole.sinks_from(&Source::Sockets).next().is_some();
    let unasked = if takes_any { FieldSet::NONE } else { config.field_set() };
    let sinks = whole.sinks_from(&Source::Sockets);

    Ok(Options {
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
        served: Served::default(),
        fields: sinks.fold(unasked, |all, sink| all.with(&config.fields_of(sink))),
    })
}

/// The kernel's random id of this boot; all zeros if it is not available.
pub(super) fn source_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map_or([0; 16], u128::to_be_bytes)
}

/// A collector that is ending.
pub(crate) struct Ending {
    thread: JoinHandle<()>,
    meter: Arc<dyn Meter>,
}

impl Ending {
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread to return, until the deadline plus a second.
    pub(super) fn finish(&self, deadline: Instant) {
        let limit = deadline.max(Instant::now()) + RETURN_GRACE;
        while !self.thread.is_finished() && Instant::now() < limit {
            thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// Keeps only the final counts in the ledger.
    fn retire(self, ledger: &Ledger) {
        ledger.retire(&self.meter);
    }
}
