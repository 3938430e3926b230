//! `[[mitigation]]`: routes that threshold events trigger and a BGP speaker announces.

mod acting;
mod speaker;

pub use speaker::SpeakerAddress;

use crate::document::Table;
use crate::errors::nearest;
use crate::flows::{FlowConfig, FlowsConfig};
use crate::form::{Bool, Choice, List, Span, Text, parsed, path, text, whole};
use crate::keys::{Section, keys};
use crate::listener::ReadListener;
use crate::name::NAME;
use crate::reader::{Placed, Reader, Report, repeated};
use crate::threshold::{Level, LevelUnit, ThresholdConfig};
use ::flows::{Field, Part};
use mitigate::{Action, Community, Limits, Mode, OnStop, Policy, Prefix};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const SECTION: Section = Section {
    path: "mitigation",
    header: "[[mitigation]]",
    tables: &[MitigationConfig::TABLE],
    subsections: &[],
};

const DAY: Duration = Duration::from_secs(24 * 3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// What is announced against an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteKind {
    /// A route to nowhere for the target.
    Blackhole,
    /// A rule that matches the flow.
    Flowspec,
}

keys! {
    /// What is announced when a threshold is passed.
    pub struct MitigationConfig in "mitigation" {
        /// Name in the log and the audit log. No two mitigations share one.
        name => name: String = NAME, required("give it a name that routes can be known by");
        /// The thresholds that it answers. Each watches a `[[flow]]` that has one destination among its keys: `dst`, or a network such as `dst/24`.
        thresholds => thresholds: Vec<String> = List { of: "names of thresholds", parse: threshold },
            listed("write thresholds = [\"NAME\"] with the name of a [[threshold]]");
        /// The BGP speaker that announces: GoBGP's gRPC as `gobgp://HOST:PORT`, or `exabgp:` with the path of the socket that
        /// `weir mitigate bridge` connects to.
        speaker => speaker: SpeakerAddress = text("`gobgp://HOST:PORT` or `exabgp:/PATH`", parsed),
            required("write speaker = \"gobgp://127.0.0.1:50051\" or \"exabgp:/run/weir/exabgp.sock\"");
        /// Networks outside of which nothing is announced.
        own_networks => own_networks: Vec<Prefix> = PREFIXES, listed("write own_networks = [\"192.0.2.0/24\"] with your own networks");
        /// What is announced: a `blackhole`, which drops all traffic to the target, or a `flowspec` rule, which matches what the flow's keys say.
        action => action: RouteKind =
            Choice(&[("blackhole", RouteKind::Blackhole), ("flowspec", RouteKind::Flowspec)]), required("write action = \"blackhole\" or \"flowspec\"");
        /// Whether everything is decided and written down, and nothing is sent. With `false`, each of the thresholds needs an `above_for`,
        /// each UDP listener of `[flows]` needs `allow_sources`, and `audit_log` has to be set.
        dry_run => dry_run: bool = Bool, default(true);
        /// The blackhole's next hops, one for each family. A target of a family without one is refused.
        next_hops => next_hops: Vec<IpAddr> = List { of: "addresses", parse: parsed }, empty("a blackhole needs one")
            where |one| one.action == RouteKind::Blackhole, "only a blackhole has a next hop. Fix: remove it";
        /// The blackhole's communities.
        communities => communities: Vec<Community> = List { of: "communities", parse: parsed }, empty("`65535:666`, BLACKHOLE of RFC 7999")
            where |one| one.action == RouteKind::Blackhole, "only a blackhole has communities. Fix: remove them";
        /// What the Flowspec rule lets through, such as `10Mbit/s`.
        rate_limit => rate_limit: Option<Level> = RATE, unset("the traffic is discarded")
            where |one| one.action == RouteKind::Flowspec, "a blackhole drops everything. Fix: write action = \"flowspec\", or remove it";
        /// Addresses and networks that are never touched: no target may overlap one of them.
        allow => allow: Vec<Prefix> = PREFIXES, empty("none");
        /// Shortest IPv4 prefix that is announced, in bits.
        shortest_v4 => shortest_v4_bits: u8 = whole(8, 32), default(32);
        /// Shortest IPv6 prefix that is announced, in bits.
        shortest_v6 => shortest_v6_bits: u8 = whole(16, 128), default(128);
        /// Most routes at a time. An attack that finds no room waits for it.
        routes_max => routes_max: usize = whole(1, 10_000), default(10);
        /// Most new routes within 60 s.
        new_routes_per_minute => new_routes_per_minute: usize = whole(1, 10_000), default(10);
        /// Shortest life of a route.
        hold => hold: Duration = Span(Duration::ZERO, DAY), default(MINUTE);
        /// Longest life of a route, even while the traffic goes on. If it still does after a rest as long as `hold`, the route comes again.
        expire_after => expire_after: Duration = Span(Duration::from_secs(1), DAY.saturating_mul(30)), default(MINUTE.saturating_mul(60));
        /// For how long the traffic has to be gone before the route is withdrawn. It counts from the event that says so.
        withdraw_after => withdraw_after: Duration = Span(Duration::ZERO, DAY), default(MINUTE);
        /// What becomes of routes when Weir stops.
        on_stop => on_stop: OnStop = Choice(&[("withdraw", OnStop::Withdraw), ("keep", OnStop::Keep)]), default(OnStop::Withdraw);
        /// A file to which everything that is decided, and every answer of the speaker, is appended as a line of JSON. A file next to it has the
        /// routes that the next start looks for.
        audit_log => audit_log: Option<PathBuf> = path("path", audit_path), unset("Weir's own log alone");
    }
}

const PREFIXES: List<Prefix> = List { of: "addresses and networks", parse: parsed };

const RATE: Text<Level> = text("bit rate", |text| match text.parse::<Level>() {
    Ok(level) if level.unit() == LevelUnit::Bits => Ok(level),
    _ => Err("it is not a bit rate. Fix: write for example 10Mbit/s".to_owned()),
});

/// Whether the threshold exists is checked once all are read.
fn threshold(text: &str) -> Result<String, String> {
    match text {
        "" => Err("it is empty. Fix: write a threshold's name".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn audit_path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("it is not a path. Fix: write the path of a file".to_owned()),
        path => Ok(path.into()),
    }
}

impl MitigationConfig {
    /// The policy of the engine.
    pub fn policy(&self) -> Policy {
        let mode = if self.dry_run { Mode::DryRun } else { Mode::Announce };
        Policy {
            name: self.name.clone(),
            thresholds: self.thresholds.clone(),
            action: self.built_action(),
            mode,
            own_networks: self.own_networks.clone(),
            allow_list: self.allow.clone(),
            limits: Limits {
                routes_max: self.routes_max,
                new_routes_per_minute_max: self.new_routes_per_minute,
                shortest_v4_bits: self.shortest_v4_bits,
                shortest_v6_bits: self.shortest_v6_bits,
                withdraw_after: self.withdraw_after,
                hold: self.hold,
                expiry: self.expire_after,
            },
            on_stop: self.on_stop,
        }
    }

    fn built_action(&self) -> Action {
        let mut hops = self.next_hops.iter().copied();
        match self.action {
            RouteKind::Blackhole => Action::Blackhole {
                next_hop_v4: hops.clone().find_map(|ip| match ip {
                    IpAddr::V4(ip) => Some(ip),
                    IpAddr::V6(_) => None,
                }),
                next_hop_v6: hops.find_map(|ip| match ip {
                    IpAddr::V6(ip) => Some(ip),
                    IpAddr::V4(_) => None,
                }),
                communities: match self.communities.as_slice() {
                    [] => vec![Community::BLACKHOLE],
                    all => all.to_vec(),
                },
            },
            RouteKind::Flowspec => {
                let bits_per_sec = self.rate_limit.map_or(0.0, Level::amount);
                Action::Flowspec { rate_limit_bytes_per_sec: (bits_per_sec / 8.0) as f32 }
            }
        }
    }
}

/// Reads all mitigations.
pub(crate) fn read_all(report: &Report, document: &Table) -> Vec<Placed<MitigationConfig>> {
    let tables = repeated(report, document, SECTION.path, &SECTION).into_iter().enumerate();
    tables.filter_map(|(at, table)| read(report, table, format!("mitigation[{at}]"))).collect()
}

fn read(report: &Report, table: &Table, place: String) -> Option<Placed<MitigationConfig>> {
    let reader = Reader::open(report, table, &SECTION, &place);
    for (key, what) in [
        (
            &MitigationConfig::thresholds,
            "it names no threshold. Fix: write thresholds = [\"NAME\"]",
        ),
        (
            &MitigationConfig::own_networks,
            "no network is your own, so nothing would be announced. Fix: write own_networks = [\"PREFIX\"]",
        ),
    ] {
        if reader.is_empty_list(key) {
            reader.error(key, what);
        }
    }
    let thing = MitigationConfig::read(&reader)?;

    if thing.action == RouteKind::Blackhole {
        let of_v4 = thing.next_hops.iter().filter(|ip| ip.is_ipv4()).count();
        let of_v6 = thing.next_hops.len() - of_v4;
        if !reader.has(&MitigationConfig::next_hops)
            || reader.is_empty_list(&MitigationConfig::next_hops)
        {
            let message = "a blackhole has no next hop. Fix: write next_hops = [\"ADDRESS\"] with one that your routers discard";
            reader.error(&MitigationConfig::next_hops, message);
        } else if of_v4 > 1 || of_v6 > 1 {
            let message = "two are of the same family. Fix: keep one of IPv4 and one of IPv6";
            reader.error(&MitigationConfig::next_hops, message);
        }
    }
    if thing.hold > thing.expire_after {
        let message =
            "it is longer than expire_after, the longest life of a route. Fix: write less";
        reader.error(&MitigationConfig::hold, message);
    }
    Some(Placed { place, thing })
}

/// Checks mitigations against the thresholds, flows and listeners.
pub(crate) fn check(
    report: &Report,
    all: &[Placed<MitigationConfig>],
    thresholds: &[Placed<ThresholdConfig>],
    flows: Option<&FlowsConfig>,
    listeners: &[ReadListener],
) {
    let definitions = flows.map_or(&[][..], |flows| &flows.definitions);
    for (at, one) in all.iter().enumerate() {
        let MitigationConfig { name, thresholds: names, .. } = &one.thing;
        if all[..at].iter().any(|earlier| earlier.thing.name == *name) {
            let message =
                format!("\"{name}\" is the name of another mitigation too. Fix: give each its own");
            one.error(report, &MitigationConfig::name, message);
        }
        for name in names {
            let threshold = thresholds.iter().find(|known| known.thing.name == *name);
            let fault = match threshold {
                Some(threshold) => no_target(&threshold.thing, definitions),
                None => Some(no_threshold(name, thresholds)),
            };
            if let Some(message) = fault {
                one.error(report, &MitigationConfig::thresholds, message);
            }
        }
        acting::check(report, one, thresholds, flows, listeners);
    }
}

/// Why events of a threshold name no target; `None` if they do, or if the threshold itself is wrong.
fn no_target(threshold: &ThresholdConfig, flows: &[FlowConfig]) -> Option<String> {
    let name = &threshold.name;
    let Some(flow) = &threshold.flow else {
        return Some(format!(
            "{name} watches no flow, so there is no target. Fix: name one that does"
        ));
    };
    let keys = &flows.iter().find(|known| known.name == *flow)?.keys;
    let is_target =
        |key: &&Part| matches!(key, Part::Field(Field::Dst) | Part::Prefix(Field::Dst, ..));
    match keys.iter().filter(is_target).count() {
        1 => None,
        0 => Some(format!(
            "{name} watches flow {flow}, whose keys have no destination. Fix: add the key dst there, or name another"
        )),
        _ => Some(format!(
            "{name} watches flow {flow}, whose keys have more than one destination. Fix: leave one"
        )),
    }
}

fn no_threshold(name: &str, thresholds: &[Placed<ThresholdConfig>]) -> String {
    let names: Vec<&str> = thresholds.iter().map(|one| one.thing.name.as_str()).collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => "add a [[threshold]] with this name".to_owned(),
        None => format!("write one of {}", names.join(", ")),
    };
    format!("there is no [[threshold]] called \"{}\". Fix: {hint}", name.escape_debug())
}
