//! Routes in the syntax of ExaBGP's commands.

use crate::{Actions, Flow, Nlri};
use std::fmt::Write as _;

/// The command that announces a route, with its line end.
pub(super) fn announce(nlri: &Nlri, actions: &Actions) -> String {
    format!("announce {}\n", route(nlri, actions))
}

/// The command that withdraws a route.
pub(super) fn withdraw(nlri: &Nlri) -> String {
    format!("withdraw {}\n", route(nlri, &Actions::withdrawal_of(nlri)))
}

fn route(nlri: &Nlri, actions: &Actions) -> String {
    let then = match actions {
        Actions::Blackhole { next_hop, communities } => {
            let communities: String =
                communities.iter().map(|community| format!(" {community}")).collect();
            match communities.is_empty() {
                true => format!("next-hop {next_hop}"),
                false => format!("next-hop {next_hop} community [{communities} ]"),
            }
        }
        Actions::RateLimit { bytes_per_sec: 0.0 } => "discard".to_owned(),
        Actions::RateLimit { bytes_per_sec } => format!("rate-limit {bytes_per_sec:.0}"),
    };
    match nlri {
        Nlri::Unicast(prefix) => format!("route {prefix} {then}"),
        Nlri::Flowspec(flow) => {
            format!("flow route {{ match {{ {}}} then {{ {then}; }} }}", matched(flow))
        }
    }
}

fn matched(flow: &Flow) -> String {
    let is_v6 = flow.destination.addr().is_ipv6();
    // IPv6 prefixes include the offset of the bits to compare.
    let offset = if is_v6 { "/0" } else { "" };
    let protocol = if is_v6 { "next-header" } else { "protocol" };

    let mut out = String::new();
    let mut part = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            write!(out, "{name} {value}; ").expect("writing to a string does not fail");
        }
    };
    part("destination", Some(format!("{}{offset}", flow.destination)));
    part("source", flow.source.map(|source| format!("{source}{offset}")));
    part(protocol, flow.protocol.map(|number| format!("={number}")));
    part("destination-port", flow.destination_port.map(|port| format!("={port}")));
    part("source-port", flow.source_port.map(|port| format!("={port}")));
    part("tcp-flags", flow.tcp_flags.map(flags));
    part("packet-length", flow.length_min_bytes.map(|bytes| format!(">={bytes}")));
    part("fragment", flow.is_fragment.then(|| "is-fragment".to_owned()));
    out
}

/// ExaBGP's names of the flags that are set.
fn flags(bits: u8) -> String {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "push", "ack", "urgent", "ece", "cwr"];
    let is_set = |(at, _): &(usize, &&str)| bits >> at & 1 == 1;
    let names: Vec<_> = NAMES.iter().enumerate().filter(is_set).map(|(_, name)| *name).collect();
    format!("={}", names.join("+"))
}
