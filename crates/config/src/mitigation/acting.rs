//! What has to be there before a mitigation announces routes: a sender of UDP proves nothing about itself.

use super::MitigationConfig;
use crate::flows::FlowsConfig;
use crate::listener::{Listen, ReadListener, UdpListener};
use crate::reader::{Placed, Report};
use crate::threshold::ThresholdConfig;

/// Reports what is missing for a mitigation with `dry_run = false`.
pub(super) fn check(
    report: &Report,
    one: &Placed<MitigationConfig>,
    thresholds: &[Placed<ThresholdConfig>],
    flows: Option<&FlowsConfig>,
    listeners: &[ReadListener],
) {
    let MitigationConfig { name, thresholds: answered, audit_log, dry_run, .. } = &one.thing;
    if *dry_run {
        return;
    }

    if audit_log.is_none() {
        let message = format!(
            "mitigation {name} announces and has none: after a crash nobody would withdraw its routes. \
             Fix: write audit_log = \"/var/lib/weir/mitigation.jsonl\", or dry_run = true"
        );
        one.error(report, &MitigationConfig::audit_log, message);
    }
    for threshold in thresholds {
        if answered.contains(&threshold.thing.name) && threshold.thing.above_for.is_zero() {
            let message = format!(
                "threshold {} has none, and mitigation {name} announces a route for it: a moment above the limit can be forged. \
                 Fix: write above_for = \"1s\", or dry_run = true for {name}",
                threshold.thing.name
            );
            threshold.error(report, &ThresholdConfig::above_for, message);
        }
    }
    for listener in listeners {
        let ListenerAllows::Everyone = allows(listener) else { continue };
        let ReadListener { listener, .. } = listener;
        if flows.is_some_and(|flows| flows.from.contains(&listener.thing.name)) {
            let message = format!(
                "listener {} takes datagrams from everyone, who then can be any agent, and mitigation {name} announces what agents say. \
                 Fix: write allow_sources = [\"ADDRESS\"] with the addresses of your agents, or dry_run = true for {name}",
                listener.thing.name
            );
            listener.error(report, &UdpListener::allow_sources, message);
        }
    }
}

/// Whose datagrams a listener takes.
enum ListenerAllows {
    Everyone,
    Some,
}

fn allows(listener: &ReadListener) -> ListenerAllows {
    match &listener.listener.thing.listen {
        Listen::Udp(udp) => {
            let is_everyone = |prefix: String| prefix.ends_with("/0");
            let mut allowed = udp.allow_sources.iter().map(ToString::to_string);
            if udp.allow_sources.is_empty() || allowed.any(is_everyone) {
                ListenerAllows::Everyone
            } else {
                ListenerAllows::Some
            }
        }
        // Other Weirs prove that they have a key, and users of a unix socket have its file's permissions.
        Listen::Weir(_) | Listen::Unix(_) | Listen::Stdin => ListenerAllows::Some,
    }
}
