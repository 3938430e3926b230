use super::samples::NONE;
use super::table::Figure;
use super::{FAMILIES, FamilyId as Id, Samples, Value, sockets};
use crate::health::{View, unix_seconds};
use crate::host::{Host, Interface, UdpErrors};
use crate::process::Process;
use crate::{Build, HttpCounts, Phase, statsd};
use ledger::{Delay, Event, Gauge, HopKind, HopSnapshot, Reason, SendError, Snapshot, Unit};
use std::borrow::Cow;
use std::sync::atomic::Ordering;

/// Everything that is shown, read at one moment.
pub(crate) struct Figures<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) host: &'a Host,
    pub(crate) process: &'a Process,
    pub(crate) health: &'a View,
    pub(crate) build: &'a Build,
    pub(crate) http: &'a HttpCounts,
    pub(crate) statsd: &'a statsd::Counts,
}

const STATES: [&str; 5] = ["starting", "ok", "degraded", "failed", "stopping"];

impl<'a> Figures<'a> {
    /// Every series.
    pub(crate) fn samples(&self) -> Samples<'a> {
        let mut samples = Samples::new();
        self.add_daemon(&mut samples);
        self.add_components(&mut samples);
        add_ledger(&mut samples, self.snapshot);
        add_host(&mut samples, self.host);
        self.add_server(&mut samples);
        add_process(&mut samples, self.process);
        samples
    }

    fn add_daemon(&self, samples: &mut Samples<'a>) {
        let Build { version, commit, target } = self.build;
        samples.whole(Id::BuildInfo, [version, commit, target], 1);
        samples.number(Id::StartTime, NONE, unix_seconds(self.health.started_at));

        let config = &self.health.config;
        if let Some(applied_at) = config.applied_at {
            let generation = config.generation.to_string();
            samples.whole(Id::ConfigInfo, [Cow::from(&config.hash), generation.into()], 1);
            samples.number(Id::ConfigLastReloadTimestamp, NONE, unix_seconds(applied_at));
        }

        samples.whole(Id::ConfigReloads, NONE, config.reloads);
        samples.whole(Id::ConfigReloadFailures, NONE, config.reload_failures);
        let successful = u64::from(!config.last_reload_failed);
        samples.whole(Id::ConfigLastReloadSuccessful, NONE, successful);

        for (listener, age) in &self.health.beats {
            samples.number(Id::HeartbeatAge, [listener], age.as_secs_f64());
        }
    }

    fn add_components(&self, samples: &mut Samples<'a>) {
        let by_phase = |otherwise| match self.health.phase {
            Phase::Starting => "starting",
            Phase::Ready => otherwise,
            Phase::Draining => "stopping",
        };

        let loses = |component: &str| self.health.losing.contains(component);
        let mut add = |component: String, state: &str| {
            for known in STATES {
                let labels = [Cow::from(component.clone()), known.into()];
                samples.whole(Id::ComponentState, labels, u64::from(known == state));
            }
        };

        let daemon = match self.health.stalled().next() {
            Some(_) => "failed",
            None if !self.snapshot.is_balanced() => "degraded",
            None => by_phase("ok"),
        };
        add("daemon".to_owned(), daemon);

        for (listener, age) in &self.health.beats {
            let stalled = *age > self.health.heartbeat_limit;
            let component = format!("listener/{listener}");
            let otherwise = by_phase(if loses(&component) { "degraded" } else { "ok" });
            add(component, if stalled { "failed" } else { otherwise });
        }

        for hop in &self.snapshot.hops {
            if let (Some(target), Some(up)) = (&hop.target, hop.gauge(Gauge::Up)) {
                let component = format!("target/{}/{target}", hop.origin);
                let is_well = up != 0 && !loses(&component);
                add(component, by_phase(if is_well { "ok" } else { "degraded" }));
            }
        }
    }

    fn add_server(&self, samples: &mut Samples<'a>) {
        let pushes = self.statsd.pushes.load(Ordering::Relaxed);
        samples.whole(Id::StatsdPushes, NONE, pushes);
        let failures = self.statsd.failures.load(Ordering::Relaxed);
        samples.whole(Id::StatsdPushFailures, NONE, failures);

        for (handler, requests, failures) in self.http.handlers() {
            samples.whole(Id::HttpRequests, [handler], requests);
            samples.whole(Id::HttpRequestFailures, [handler], failures);
        }

        for (cause, count) in [("crowded", &self.http.crowded), ("timeout", &self.http.timeouts)] {
            samples.whole(Id::HttpConnectionsDropped, [cause], count.load(Ordering::Relaxed));
        }
    }
}

/// The relay's own figures: what is pushed as StatsD too.
pub(crate) fn add_ledger<'a>(samples: &mut Samples<'a>, snapshot: &'a Snapshot) {
    samples.whole(Id::LedgerViolations, NONE, snapshot.violations);

    for hop in &snapshot.hops {
        let [origin, target] = pair(hop);
        // In flight stops at 0; what is missing below that is in `unaccounted`.
        let residual = hop.in_flight.count as f64 + hop.unaccounted.min(0) as f64;
        samples.number(Id::LedgerResidual, [hop.hop.label(), origin, target], residual);

        add_figures(samples, hop);
        match hop.hop {
            HopKind::Socket => {
                for (reason, count) in drops(hop) {
                    samples.whole(Id::SocketDropped, [origin, reason.label()], count);
                }
            }
            HopKind::Receive => add_receive(samples, hop),
            HopKind::Target => add_target(samples, hop),
            HopKind::Egress => add_egress(samples, hop),
            HopKind::Receiver => {}
            HopKind::Poll => sockets::add_poll(samples, hop),
            HopKind::Close => sockets::add_close(samples, hop),
            HopKind::Sink => sockets::add_sink(samples, hop),
        }
    }
}

/// The families that show one figure of this hop each. An event that never happened is 0; a gauge that is not there is absent.
fn add_figures<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    let labels = pair(hop);
    for family in FAMILIES {
        let Some((_, figure)) = family.figure.filter(|(kind, _)| *kind == hop.hop) else {
            continue;
        };

        let (value, unit) = match figure {
            Figure::Event(event) => (Some(hop.event(event)), event.unit()),
            Figure::Gauge(gauge) => (hop.gauge(gauge), gauge.unit()),
        };
        if let Some(value) = value {
            let labels = &labels[..family.labels.len()];
            samples.add(family.id, labels.iter().copied(), in_base_unit(value, unit));
        }
    }
}

/// Metrics are in seconds, whatever the ledger counts in.
pub(super) fn in_base_unit(value: u64, unit: Unit) -> Value {
    match unit {
        Unit::Milliseconds => Value::Number(value as f64 / 1e3),
        Unit::Microseconds => Value::Number(value as f64 / 1e6),
        Unit::Count | Unit::Bytes | Unit::Flag | Unit::Code => Value::Whole(value),
    }
}

fn add_receive<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    let labels = [hop.origin.as_str()];
    samples.whole(Id::Received, labels, hop.received.count);
    samples.whole(Id::ReceivedBytes, labels, hop.received.bytes);
    samples.whole(Id::Accepted, labels, hop.delivered.count);
    for (reason, count) in drops(hop) {
        samples.whole(Id::Dropped, [&hop.origin, reason.label()], count);
    }
}

fn add_target<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    let [origin, target] = pair(hop);
    let labels = [origin, target];
    samples.whole(Id::TargetOffered, labels, hop.received.count);
    samples.whole(Id::TargetSent, labels, hop.delivered.count);
    samples.whole(Id::TargetSentBytes, labels, hop.delivered.bytes);
    for (reason, count) in drops(hop) {
        samples.whole(Id::TargetDropped, [origin, target, reason.label()], count);
    }

    // The drops of a target without an address are `target_unresolved`: no call failed.
    for error in SendError::ALL.iter().filter(|error| **error != SendError::Unresolved) {
        let count = hop.event(Event::SendErrors(*error));
        samples.whole(Id::TargetSendErrors, [origin, target, error.label()], count);
    }

    samples.whole(Id::TargetQueue, labels, hop.in_flight.count);
    if let Some(capacity) = hop.capacity {
        samples.whole(Id::TargetQueueCapacity, labels, capacity);
    }
    if let Some(delay) = &hop.delay {
        samples.add(Id::TargetDelay, labels, histogram(delay));
    }
}

pub(super) fn histogram(delay: &Delay) -> Value {
    Value::Histogram {
        bounds: delay.bounds_us.iter().map(|&bound_us| bound_us as f64 / 1e6).collect(),
        counts: delay.counts.clone(),
        sum: delay.sum_us as f64 / 1e6,
    }
}

fn add_egress<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    let [origin, target] = pair(hop);
    for (reason, count) in drops(hop) {
        samples.whole(Id::TargetReturned, [origin, target, reason.label()], count);
    }

    // A series for each type and code that has come back, and no others: most never do.
    for (&event, &count) in &hop.events {
        if let Event::IcmpErrors(error) = event {
            let code = Cow::from(error.label().replace('_', "/"));
            samples.whole(Id::TargetIcmpErrors, [origin.into(), target.into(), code], count);
        }
    }
}

fn add_host<'a>(samples: &mut Samples<'a>, host: &'a Host) {
    for (family, udp) in [("ipv4", &host.udp4), ("ipv6", &host.udp6)] {
        let Some(udp) = udp else { continue };
        if let Some(count) = udp.in_errors {
            samples.whole(Id::HostUdpReceiveErrors, [family], count);
        }
        for (cause, count) in UdpErrors::causes(udp) {
            if let Some(count) = count {
                samples.whole(Id::HostUdpErrors, [family, cause], count);
            }
        }
    }

    if let Some(softnet) = &host.softnet {
        samples.whole(Id::HostSoftnetDropped, NONE, softnet.dropped);
        samples.whole(Id::HostSoftnetSqueezed, NONE, softnet.squeezed);
    }

    let Some(interfaces) = &host.interfaces else { return };
    for Interface { device, rx_dropped, rx_missed_errors, rx_errors, tx_dropped } in
        &interfaces.listed
    {
        for (id, count) in [
            (Id::HostInterfaceReceiveDropped, rx_dropped),
            (Id::HostInterfaceReceiveMissed, rx_missed_errors),
            (Id::HostInterfaceReceiveErrors, rx_errors),
            (Id::HostInterfaceTransmitDropped, tx_dropped),
        ] {
            if let Some(count) = *count {
                samples.whole(id, [device], count);
            }
        }
    }

    samples.whole(Id::HostInterfacesOmitted, NONE, interfaces.omitted);
}

fn add_process(samples: &mut Samples<'_>, process: &Process) {
    for (id, value) in
        [(Id::ProcessCpu, process.cpu_seconds), (Id::ProcessStartTime, process.start_time_seconds)]
    {
        if let Some(value) = value {
            samples.number(id, NONE, value);
        }
    }

    for (id, value) in [
        (Id::ProcessResident, process.resident_bytes),
        (Id::ProcessVirtual, process.virtual_bytes),
        (Id::ProcessOpenFds, process.open_fds),
        (Id::ProcessMaxFds, process.max_fds),
        (Id::ProcessThreads, process.threads),
    ] {
        if let Some(value) = value {
            samples.whole(id, NONE, value);
        }
    }
}

pub(super) fn pair(hop: &HopSnapshot) -> [&str; 2] {
    [&hop.origin, hop.target.as_deref().unwrap_or_default()]
}

/// Every reason that can occur at this hop, with 0 where it has not, and any other that has.
pub(super) fn drops(hop: &HopSnapshot) -> impl Iterator<Item = (Reason, u64)> {
    let others = hop.dropped.iter().map(|drop| drop.reason);
    let others = others.filter(|reason| !reason.places().contains(&hop.hop));
    Reason::at(hop.hop).chain(others).map(|reason| (reason, hop.dropped_for(reason).count))
}
