use super::samples::NONE;
use super::table::Figure;
use super::{FAMILIES, Family, FamilyId as Id, Samples, Value, flows, sockets};
use crate::health::{View, unix_seconds};
use crate::host::{Host, Interface, UdpErrors};
use crate::process::Process;
use crate::{Build, FlowFigures, HttpCounts, Phase, statsd};
use ledger::{
    Delay, Event, Gauge, HopKind, HopSnapshot, Reason, RejectClass, SendError, Snapshot, Unit,
};
use std::borrow::Cow;
use std::sync::atomic::Ordering;

/// Everything that is shown, from one moment.
pub(crate) struct Figures<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// Whether the ledger's law was violated a moment ago.
    pub(crate) is_violation_recent: bool,
    pub(crate) host: &'a Host,
    pub(crate) process: &'a Process,
    pub(crate) health: &'a View,
    pub(crate) build: &'a Build,
    pub(crate) http: &'a HttpCounts,
    pub(crate) statsd: &'a statsd::Counts,
    /// `None` if no flows are analyzed.
    pub(crate) flows: Option<&'a FlowFigures>,
}

const STATES: [&str; 5] = ["starting", "ok", "degraded", "failed", "stopping"];

impl<'a> Figures<'a> {
    /// Every series.
    pub(crate) fn samples(&self) -> Samples<'a> {
        let mut samples = Samples::new();
        self.add_daemon(&mut samples);
        self.add_components(&mut samples);
        if let Some(figures) = self.flows {
            flows::add(&mut samples, figures);
        }
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
            // A target only shows its current state: there may be a thousand targets.
            let is_shown = |known: &&str| *known == state || !component.starts_with("target/");
            for known in STATES.iter().copied().filter(is_shown) {
                let labels = [Cow::from(component.clone()), known.into()];
                samples.whole(Id::ComponentState, labels, u64::from(known == state));
            }
        };

        let daemon = match self.health.stalled().next() {
            Some(_) => "failed",
            None if self.is_violation_recent => "degraded",
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
                let kind = if hop.hop == HopKind::Sink { "sink" } else { "target" };
                let component = format!("{kind}/{}/{target}", hop.origin);
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

/// The relay's own figures, which are also pushed as StatsD.
pub(crate) fn add_ledger<'a>(samples: &mut Samples<'a>, snapshot: &'a Snapshot) {
    samples.whole(Id::LedgerViolations, NONE, snapshot.violations);
    for (origin, lost) in snapshot.lost_by_origin() {
        samples.whole(Id::LedgerLost, [origin], lost);
    }

    for hop in &snapshot.hops {
        let [origin, target] = pair(hop);
        // `in_flight` stops at 0; a deficit below that is in `unaccounted`.
        let residual = hop.in_flight.count as f64 + hop.unaccounted.min(0) as f64;
        if residual != 0.0 || !is_of_target(hop) {
            samples.number(Id::LedgerResidual, [hop.hop.label(), origin, target], residual);
        }

        add_figures(samples, hop);
        match hop.hop {
            HopKind::Target => add_send_errors(samples, hop),
            HopKind::Egress => add_icmp_errors(samples, hop),
            HopKind::Poll => sockets::add_poll(samples, hop),
            HopKind::Close => sockets::add_ends(samples, hop),
            HopKind::Socket
            | HopKind::Receive
            | HopKind::Member
            | HopKind::Receiver
            | HopKind::Analysis
            | HopKind::Sink => {}
        }
    }
}

/// The families that show one figure of this hop. An event that never happened is 0; a figure that the hop does not have is
/// absent.
fn add_figures<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    let shown = FAMILIES.iter().filter_map(|family| Some((family, family.figure?)));
    for (family, (_, figure)) in shown.filter(|(_, (kind, _))| *kind == hop.hop) {
        let value = match figure {
            Figure::Received => Some(Value::Whole(hop.received.count)),
            Figure::ReceivedBytes => Some(Value::Whole(hop.received.bytes)),
            Figure::Delivered => Some(Value::Whole(hop.delivered.count)),
            Figure::DeliveredBytes => Some(Value::Whole(hop.delivered.bytes)),
            Figure::Uncertain => Some(Value::Whole(hop.uncertain.count)),
            Figure::Kept => Some(Value::Whole(hop.kept.count)),
            Figure::InFlight => Some(Value::Whole(hop.in_flight.count)),
            Figure::Capacity => hop.capacity.map(Value::Whole),
            Figure::Delay => hop.delay.as_ref().map(histogram),
            Figure::AllDropped => {
                Some(Value::Whole(hop.dropped.iter().map(|drop| drop.amount.count).sum()))
            }
            Figure::Event(event) => {
                let count = Some(hop.event(event)).filter(|count| *count > 0 || !is_of_target(hop));
                count.map(|count| in_base_unit(count, event.unit()))
            }
            Figure::Gauge(gauge) => hop.gauge(gauge).map(|value| in_base_unit(value, gauge.unit())),
            Figure::Dropped => {
                add_drops(samples, family, hop);
                None
            }
            Figure::Rejected => {
                add_rejections(samples, family, hop);
                None
            }
        };

        if let Some(value) = value {
            samples.add(family.id, pair(hop).into_iter().take(family.labels.len()), value);
        }
    }
}

/// Whether the hop belongs to a target. There may be a thousand targets, so losses that never occurred there are absent.
fn is_of_target(hop: &HopSnapshot) -> bool {
    matches!(hop.hop, HopKind::Target | HopKind::Egress | HopKind::Receiver)
}

/// Every reason that can occur at this hop, even at 0, and any other that occurred. For a target, only those that occurred.
fn add_drops<'a>(samples: &mut Samples<'a>, family: &Family, hop: &'a HopSnapshot) {
    let others = hop.dropped.iter().map(|drop| drop.reason);
    let others = others.filter(|reason| !reason.places().contains(&hop.hop));
    let has_occurred = |reason: &Reason| !hop.dropped_for(*reason).is_zero();
    for reason in Reason::at(hop.hop).chain(others) {
        if is_of_target(hop) && !has_occurred(&reason) {
            continue;
        }
        let place = pair(hop).into_iter().take(family.labels.len() - 1);
        samples.whole(family.id, place.chain([reason.label()]), hop.dropped_for(reason).count);
    }
}

/// Every class, even at 0.
fn add_rejections<'a>(samples: &mut Samples<'a>, family: &Family, hop: &'a HopSnapshot) {
    for class in RejectClass::ALL {
        let place = pair(hop).into_iter().take(family.labels.len() - 1);
        let labels = place.chain([class.label()]);
        samples.whole(family.id, labels, hop.rejected_with(*class).count);
    }
}

/// Converts to the base units of metrics, seconds and ratios.
pub(super) fn in_base_unit(value: u64, unit: Unit) -> Value {
    match unit {
        Unit::Milliseconds => Value::Number(value as f64 / 1e3),
        Unit::Microseconds | Unit::Millionths => Value::Number(value as f64 / 1e6),
        Unit::Count | Unit::Bytes | Unit::Flag | Unit::Code => Value::Whole(value),
    }
}

fn histogram(delay: &Delay) -> Value {
    Value::Histogram {
        bounds: delay.bounds_us.iter().map(|&bound_us| bound_us as f64 / 1e6).collect(),
        counts: delay.counts.clone(),
        sum: delay.sum_us as f64 / 1e6,
    }
}

fn add_send_errors<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    let [origin, target] = pair(hop);
    // Without an address no call fails: those drops of a target are `target_unresolved`.
    for error in SendError::ALL.iter().filter(|error| **error != SendError::Unresolved) {
        let count = hop.event(Event::SendErrors(*error));
        if count > 0 {
            samples.whole(Id::TargetSendErrors, [origin, target, error.label()], count);
        }
    }
}

fn add_icmp_errors<'a>(samples: &mut Samples<'a>, hop: &'a HopSnapshot) {
    let [origin, target] = pair(hop);
    // A series for each type and code that was received, and no others: most never are.
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

/// The values of the labels `origin` and `target`, or `sink`.
fn pair(hop: &HopSnapshot) -> [&str; 2] {
    [&hop.origin, hop.target.as_deref().unwrap_or_default()]
}
