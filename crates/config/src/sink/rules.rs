//! Rules between sinks, their sources, and their destinations.

use super::{Body, Sink, SinkConfig, Source, Written};
use crate::document::Entry;
use crate::errors::nearest;
use crate::flows::FLOWS_NAME;
use crate::keys::Key;
use crate::listener::{ReadListener, who_hears};
use crate::paths::is_same_file;
use crate::reader::{Placed, Report};
use crate::sockets::COLLECTOR_NAME;
use crate::threshold::EVENTS_NAME;
use ::sink::WhenFull;

/// Reports mistakes that show only in comparison with other sections. `made` are the sections of the sources, valid or not:
/// sockets, flows, thresholds.
pub(crate) fn check(
    report: &Report,
    sinks: &[Placed<SinkConfig>],
    made: [Option<&Entry>; 3],
    listeners: &[ReadListener],
) {
    for (at, sink) in sinks.iter().enumerate() {
        let earlier = sinks[..at].iter().map(|earlier| &earlier.thing);
        is_taken(report, sink, earlier);
        has_sources(report, sink, made, listeners);
        fits_sources(report, sink);
        comes_back(report, sink, listeners);
    }
}

/// Reports what two sinks cannot share.
fn is_taken<'a>(
    report: &Report,
    sink: &Placed<SinkConfig>,
    mut earlier: impl Iterator<Item = &'a SinkConfig> + Clone,
) {
    const NAMES: (&Key, &Key) = (&SinkConfig::name, &SinkConfig::to);
    let SinkConfig { name, to, spool_folder, .. } = &sink.thing;

    if earlier.clone().any(|other| other.name == *name) {
        let message = format!("\"{name}\" is the name of another sink too. Fix: give each its own");
        sink.name_error(report, NAMES, &message);
    } else if matches!(to, Sink::Stdout(_))
        && let Some(other) = earlier.clone().find(|other| matches!(other.to, Sink::Stdout(_)))
    {
        let message = format!(
            "standard output belongs to sink {} already. Fix: choose another place",
            other.name
        );
        sink.error(report, &SinkConfig::to, message);
    }

    let same_folder = |other: &&SinkConfig| {
        let folders = spool_folder.as_ref().zip(other.spool_folder.as_ref());
        folders.is_some_and(|(own, other)| is_same_file(own, other))
    };
    if let Some(other) = earlier.find(same_folder) {
        let message = format!(
            "the folder is the spool of sink {} already. Fix: give each its own",
            other.name
        );
        sink.error(report, &SinkConfig::spool, message);
    }
}

fn has_sources(
    report: &Report,
    sink: &Placed<SinkConfig>,
    [sockets, flows, thresholds]: [Option<&Entry>; 3],
    listeners: &[ReadListener],
) {
    let SinkConfig { name: sink_name, from, .. } = &sink.thing;
    if from.contains(&Source::Sockets) && sockets.is_none() {
        let message =
            "there is no [sockets] to take records from. Fix: add [sockets], or remove the sink";
        sink.error(report, &SinkConfig::from, message);
    }
    if from.contains(&Source::Events) && thresholds.is_none() {
        let message = "there is no [[threshold]] whose events it could take. Fix: add one, or remove the sink";
        sink.error(report, &SinkConfig::from, message);
    }

    if from.contains(&Source::Flows) && flows.is_none() {
        let message = "there is no [flows] to take rows from. Fix: add [flows], or remove the sink";
        sink.error(report, &SinkConfig::from, message);
    }

    let names = || listeners.iter().map(|one| one.listener.thing.name.as_str());
    for name in sink.thing.listeners() {
        let Some(listener) = listeners.iter().find(|one| one.listener.thing.name == name) else {
            let shown = name.escape_debug();
            let known: Vec<_> = names().chain([COLLECTOR_NAME, FLOWS_NAME, EVENTS_NAME]).collect();
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("write one of {}", known.join(", ")),
            };
            let message = format!("there is no listener called \"{shown}\". Fix: {hint}");
            sink.error(report, &SinkConfig::from, message);
            continue;
        };
        // In the ledger, both are destinations of the listener with lines of their own.
        if sink_name == FLOWS_NAME {
            let message = format!(
                "\"{FLOWS_NAME}\" is the name of the analysis of sFlow in the ledger, next to what else listener {name} \
                 feeds. Fix: choose another"
            );
            sink.name_error(report, (&SinkConfig::name, &SinkConfig::to), &message);
        }
        if listener.targets.iter().any(|target| target.thing.name == *sink_name) {
            let message = format!(
                "\"{sink_name}\" is the name of a target of listener {name} too. Fix: give each its own"
            );
            sink.name_error(report, (&SinkConfig::name, &SinkConfig::to), &message);
        }
    }
}

fn fits_sources(report: &Report, sink: &Placed<SinkConfig>) {
    let SinkConfig { from, when_full, to, .. } = &sink.thing;
    if let Some(twice) = from.iter().enumerate().find(|(at, one)| from[..*at].contains(one)) {
        let message = format!("{} is there twice. Fix: remove one", twice.1);
        sink.error(report, &SinkConfig::from, message);
    }
    let Some(made) = from.iter().find(|one| !matches!(one, Source::Listener(_))) else { return };

    if *when_full == WhenFull::LeaveAtSource {
        let message = format!(
            "the rows of {made} have no ring to stay in. Fix: write \"drop_oldest\" or \"drop_newest\", and give the \
                       sink a spool if nothing may be lost"
        );
        sink.error(report, &SinkConfig::when_full, message);
    }
    if matches!(to, Sink::File(file) if file.template.is_some()) {
        let message = format!(
            "the rows of {made} have no sender to name a file by. Fix: write a path without braces, or take \"{made}\" out of from"
        );
        sink.error(report, &SinkConfig::to, message);
    }

    let has_no_payload = |one: &&Source| matches!(one, Source::Sockets | Source::Flows);
    if let Some(made) = from.iter().find(has_no_payload)
        && to.kind().written().is_some_and(|written| written.body == Body::Payload)
    {
        let message = format!(
            "the rows of {made} have no payload. Fix: write \"record\", or take \"{made}\" out of from"
        );
        sink.error(report, &Written::body, message);
    }
}

/// Refuses a sink that sends to one of our listeners: it would receive its own rows, or those of another source.
fn comes_back(report: &Report, sink: &Placed<SinkConfig>, listeners: &[ReadListener]) {
    let to = &sink.thing.to;
    let mut all = listeners.iter().map(|one| &one.listener.thing);
    let owner = match to {
        Sink::Udp(udp) => who_hears(all, &udp.addr),
        Sink::Unix(unix) if unix.framed.is_none() => {
            all.find(|one| one.unix_path().is_some_and(|on| is_same_file(on, &unix.path)))
        }
        _ => None,
    };
    if let Some(owner) = owner {
        let message = format!(
            "{to} is where listener {} receives, which would take the rows for data. Fix: send them elsewhere",
            owner.name
        );
        sink.error(report, &SinkConfig::to, message);
    }
}
