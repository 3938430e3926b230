//! A listener's datagrams as rows of a sink: copied out of the ring into the chunk being filled.

use config::{Config, Parse, SinkConfig, TimeZones};
use record::{DatagramRecord, Tags};
use relay::{Datagram, Flushed, RowTarget, Taken, TargetOptions};
use sink::ChunkWriter;
use sockets::attribution::{Host, HostOptions};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use sys::clock::Clock;
use wire::syslog;

/// A sink that a listener feeds, and what its rows say about the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::daemon) struct Fed {
    pub(super) sink: String,
    /// In which zones its messages are read, if they are.
    syslog: Option<TimeZones>,
    host: Option<String>,
    host_id: Option<String>,
    tags: BTreeMap<String, String>,
}

impl Fed {
    /// The sinks that a configuration feeds with this listener's datagrams.
    pub(in crate::daemon) fn by(config: &Config, listener: &str) -> Vec<Fed> {
        let is_fed = |sink: &&SinkConfig| sink.listeners().any(|name| name == listener);
        let about = config.sockets.as_ref();
        let named = config.listeners.iter().find(|one| one.name == listener);
        let zones = |sink: &SinkConfig| match sink.parse {
            Parse::None => None,
            Parse::Syslog => named.map(|listener| TimeZones::of(listener, sink)),
        };
        let fed = |sink: &SinkConfig| Fed {
            sink: sink.name.clone(),
            syslog: zones(sink),
            host: about.and_then(|one| one.host.clone()),
            host_id: about.and_then(|one| one.host_id.clone()),
            tags: about.map(|one| one.tags.clone()).unwrap_or_default(),
        };
        config.sinks.iter().filter(is_fed).map(fed).collect()
    }

    /// Options for the relay: the target has the sink's name and takes every datagram.
    pub(in crate::daemon) fn target_options(&self) -> TargetOptions {
        TargetOptions {
            name: self.sink.clone(),
            only_sources: Vec::new(),
            sample: None,
            rate_limit_per_sec: None,
        }
    }

    pub(in crate::daemon) fn name(&self) -> &str {
        &self.sink
    }
}

/// Most tags of a host (`[sockets]`).
const TAGS_MAX: usize = 16;

/// Makes rows for one sink out of one listener's datagrams.
pub(super) struct Rows {
    writer: ChunkWriter,
    host: Host,
    listener: String,
    syslog: Option<TimeZones>,
    sequence: u64,
    clock: Clock,
    /// Held for as long as rows may come: a retired sink waits for its release.
    _feeding: Arc<()>,
}

impl Rows {
    pub(super) fn new(writer: ChunkWriter, listener: &str, fed: &Fed, feeding: Arc<()>) -> Rows {
        let host = Host::read(HostOptions {
            name: fed.host.clone(),
            host_id: fed.host_id.clone(),
            tags: fed.tags.clone().into_iter().collect(),
        });
        let (listener, syslog) = (listener.to_owned(), fed.syslog.clone());
        let clock = Clock::default();
        Rows { writer, host, listener, syslog, sequence: 0, clock, _feeding: feeding }
    }
}

impl RowTarget for Rows {
    fn take(&mut self, datagram: &Datagram<'_>) -> Taken {
        let source = datagram.source.address();
        let mut tags = [("", ""); TAGS_MAX];
        let count = tags.iter_mut().zip(self.host.tags()).map(|(slot, tag)| *slot = tag).count();
        let mut record = DatagramRecord {
            time_unix_ns: Some(datagram.received_unix_ns),
            sequence: Some(self.sequence),
            host: self.host.name(),
            host_id: self.host.host_id(),
            tags: (count > 0).then(|| Tags::new(&tags[..count])),
            run_id: Some(self.writer.stream()),
            listener: Some(&self.listener),
            source_address: source.map(|source| source.ip()),
            source_port: source.map(|source| source.port()),
            payload: Some(datagram.bytes),
            ..DatagramRecord::new()
        };
        if let Some(zones) = &self.syslog {
            let arrival = zones.arrival(datagram.received_unix_ns, &datagram.source);
            record.fill_syslog(&syslog::parse(datagram.bytes, arrival));
        }

        let arrived_unix_ns = self.clock.realtime_of(datagram.arrived_ns);
        match self.writer.try_datagram(&record, key_of(datagram), arrived_unix_ns) {
            Ok(()) => {
                self.sequence += 1;
                Taken::Yes
            }
            Err(sink::Full) => Taken::Full,
        }
    }

    fn flush(&mut self) -> Flushed {
        match self.writer.try_flush() {
            Ok(()) => Flushed::Yes,
            Err(sink::Full) => Flushed::Full,
        }
    }

    /// A sink's queue has no descriptor to wait for, so the relay retries until there is room.
    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The same for all datagrams of one sender, across restarts of the program.
fn key_of(datagram: &Datagram<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (datagram.source.ip_bytes(), datagram.source.port()).hash(&mut hasher);
    hasher.finish()
}
