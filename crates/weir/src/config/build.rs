//! From what was typed to typed values.

mod sockets;

pub(super) use sockets::PlacedSockets;

use super::document::{self, Table, Value};
use super::keys::{self, SectionKeys};
use super::rules::Placed;
use super::section::{Report, Section, tables};
use super::show::Origins;
use super::{
    AdminConfig, AdminListen, Config, ConfigError, DaemonConfig, LOG_LEVELS, ListenAddress,
    ListenerConfig, StatsdConfig, TargetAddress, TargetConfig, address, errors, rules,
};
use relay::{FileFormat, Gso, Prefix, Sample, SampleBy, Schedule};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;
use sys::socket::SendOptions;

pub(super) fn from_file(text: &str, origin: &str) -> Result<(Config, Origins), Vec<ConfigError>> {
    let mut mistakes = Vec::new();
    let document = document::parse(text, origin, &mut mistakes);
    if !mistakes.is_empty() {
        // What could be read around the mistakes is not what was meant; more messages would mislead.
        return Err(mistakes);
    }
    let report = Report::new(origin);
    unknown_sections(
        &report,
        &document,
        &["admin", "daemon", "metrics", "listener", "sockets"],
        "",
    );
    let headers = tables(&report, &document, "listener", "listener", "[[listener]]");
    // A listener without an address is a mistake that is reported already.
    let listeners: Vec<Placed> = headers
        .into_iter()
        .enumerate()
        .filter_map(|(at, table)| listener(&report, table, format!("listener[{at}]")))
        .collect();
    let sockets = sockets::sockets(&report, &document);
    if document.get("listener").is_none() && document.get("sockets").is_none() {
        report.error(None, "listener", NO_LISTENER);
    }
    let admin = admin(&report, &document);
    let daemon = daemon(&report, &document);
    let statsd = statsd(&report, &document);
    if let Some(statsd) = &statsd {
        rules::statsd(&report, &listeners, statsd);
    }
    if let Some(sockets) = &sockets {
        rules::sockets(&report, &listeners, sockets);
    }
    let sockets = sockets.map(|placed| placed.config);
    finish(report, origin, listeners, |listeners| Config {
        admin,
        daemon,
        statsd,
        listeners,
        sockets,
    })
}

const NO_LISTENER: &str = "there is no listener and no [sockets]; add [[listener]] with listen = \"127.0.0.1:5514\" and a \
                           [[listener.target]] with to = \"…\" (weir config example shows a whole file)";

pub(super) fn from_addresses(listen: &[String], to: &[String]) -> Result<Config, Vec<ConfigError>> {
    let mut mistakes = Vec::new();
    let one = |flag: &str, key: &str, text: &str, keys: &'static SectionKeys| {
        let (addr, options) = address::split_options(text);
        let report = Report::new(&format!("{flag} {text}"));
        let table = document::from_options(key, addr, &options);
        duplicates(&report, &table, keys);
        (report, table)
    };
    let mut targets = Vec::new();
    for text in to {
        let (report, table) = one("--to", "to", text, &keys::TARGET);
        targets.extend(target(&report, &table, "target".to_owned()));
        mistakes.extend(report.into_parts().0);
    }
    let mut listeners = Vec::new();
    for text in listen {
        let (report, table) = one("--listen", "listen", text, &keys::LISTENER);
        if let Some(mut listener) = listener_alone(&report, &table, "listener") {
            listener.targets.clone_from(&targets);
            let target_places = vec!["target".to_owned(); targets.len()];
            listeners.push(Placed { place: "listener".to_owned(), target_places, listener });
        }
        mistakes.extend(report.into_parts().0);
    }
    let report = Report::new("command line");
    report.add(mistakes);
    if listen.is_empty() {
        report.error(None, "", "there is nothing to listen on; add --listen 127.0.0.1:5514");
    }
    if to.is_empty() {
        report.error(None, "", "there is no target; add --to 10.0.0.1:514");
    }
    let nothing = Table::default();
    let admin = admin(&report, &nothing);
    let daemon = daemon(&report, &nothing);
    finish(report, "command line", listeners, |listeners| Config {
        admin,
        daemon,
        statsd: None,
        listeners,
        sockets: None,
    })
    .map(|(config, _)| config)
}

fn finish(
    report: Report,
    origin: &str,
    listeners: Vec<Placed>,
    build: impl FnOnce(Vec<ListenerConfig>) -> Config,
) -> Result<(Config, Origins), Vec<ConfigError>> {
    rules::check(&report, &listeners);
    let (errors, lines) = report.into_parts();
    if !errors.is_empty() {
        return Err(errors);
    }
    let config = build(listeners.into_iter().map(|placed| placed.listener).collect());
    Ok((config, Origins::new(origin, lines)))
}

/// An option given twice: a file cannot have that, a command line can.
fn duplicates(report: &Report, table: &Table, keys: &SectionKeys) {
    for (at, entry) in table.entries.iter().enumerate() {
        if table.entries[..at].iter().any(|earlier| earlier.key == entry.key) {
            report.error(
                None,
                &format!("{}.{}", keys.path, entry.key),
                "it is given twice; keep one",
            );
        }
    }
}

fn unknown_sections(report: &Report, table: &Table, known: &[&str], within: &str) {
    for entry in table.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
        let name = format!("{within}{}", entry.key);
        let owner = keys::SECTIONS.iter().find(|section| section.key(&entry.key).is_some());
        let hint = match (errors::nearest(&entry.key, known.iter().copied()), owner) {
            (Some(near), _) => format!("did you mean {within}{near}?"),
            (None, Some(section)) => format!("{} belongs in {}", entry.key, section.header),
            (None, None) => format!("the sections are {}", known.join(", ")),
        };
        report.error(entry.line, &name, format!("unknown section or key; {hint}"));
    }
}

/// A section that stands at most once; an empty one if it is not there.
fn single<'a>(
    report: &Report,
    parent: &'a Table,
    name: &str,
    keys: &SectionKeys,
) -> Option<&'a Table> {
    let entry = parent.get(name)?;
    match &entry.item.value {
        Value::Table(table) => Some(table),
        other => {
            let message =
                format!("{} where a section is expected; write {}", other.describe(), keys.header);
            report.error(entry.line, keys.path, message);
            None
        }
    }
}

fn admin(report: &Report, document: &Table) -> AdminConfig {
    let nothing = Table::default();
    let table = single(report, document, "admin", &keys::ADMIN).unwrap_or(&nothing);
    let section = Section::open(report, table, &keys::ADMIN, "admin".to_owned(), &[]);
    let listen = section.text("listen", str::parse).unwrap_or(AdminListen::Off);
    let socket = section.text("socket", sockets::socket_path);
    let socket_users = section.list("socket_users", user);
    if section.has("socket_users") && !section.has("socket") {
        section.error("socket_users", "there is no socket; add socket = \"/run/weir/admin.sock\"");
    }
    AdminConfig { listen, socket, socket_users }
}

/// Whether there is such a user is the host's to say.
fn user(text: &str) -> Result<String, &'static str> {
    let is_name =
        !text.is_empty() && !text.contains([':', '/']) && !text.contains(char::is_control);
    if is_name { Ok(text.to_owned()) } else { Err("it is neither the name of a user nor a number") }
}

fn daemon(report: &Report, document: &Table) -> DaemonConfig {
    let nothing = Table::default();
    let table = single(report, document, "daemon", &keys::DAEMON).unwrap_or(&nothing);
    let section = Section::open(report, table, &keys::DAEMON, "daemon".to_owned(), &[]);
    DaemonConfig {
        drain_grace: section.duration("drain_grace").unwrap_or_default(),
        log_level: section.choice("log_level", &LOG_LEVELS).unwrap_or_default(),
    }
}

fn statsd(report: &Report, document: &Table) -> Option<StatsdConfig> {
    const METRICS: SectionKeys =
        SectionKeys { path: "metrics", header: "[metrics.statsd]", keys: &[] };
    let metrics = single(report, document, "metrics", &METRICS)?;
    unknown_sections(report, metrics, &["statsd"], "metrics.");
    let table = single(report, metrics, "statsd", &keys::STATSD)?;
    let section = Section::open(report, table, &keys::STATSD, "metrics.statsd".to_owned(), &[]);
    let prefix = section.text("prefix", |text| {
        let is_name =
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if is_name && !text.is_empty() {
            Ok(text.to_owned())
        } else {
            Err("it is not made of letters, digits, _, - and .")
        }
    });
    let interval = section.duration("interval");
    let to = section.text("to", |text| match text.parse::<TargetAddress>() {
        Ok(TargetAddress::Udp(addr)) => Ok(addr),
        Ok(_) => Err("StatsD is pushed over UDP; write for example 127.0.0.1:8125".to_owned()),
        Err(error) => Err(error.to_string()),
    });
    if !section.has("to") && !table.entries.is_empty() {
        report.error(
            table.line,
            "metrics.statsd.to",
            "it is missing; write to = \"127.0.0.1:8125\", or remove the section",
        );
    }
    Some(StatsdConfig { to: to?, prefix: prefix?, interval: interval? })
}

fn listener(report: &Report, table: &Table, place: String) -> Option<Placed> {
    let listener = listener_alone(report, table, &place);
    let headers = tables(report, table, "target", "listener.target", "[[listener.target]]");
    let has_none = headers.is_empty() && table.get("target").is_none();
    let places = (0..headers.len()).map(|at| format!("{place}.target[{at}]"));
    let (target_places, targets) = headers
        .into_iter()
        .zip(places)
        .filter_map(|(table, place)| Some((place.clone(), target(report, table, place)?)))
        .unzip();
    if has_none {
        let name = listener.as_ref().map_or("this listener", |listener| &listener.name);
        let message = format!("{name} has no target; add [[listener.target]] with to = \"…\"");
        report.error(table.line, "listener.target", message);
    }
    let listener = ListenerConfig { targets, ..listener? };
    Some(Placed { place, target_places, listener })
}

/// A listener without its targets.
fn listener_alone(report: &Report, table: &Table, place: &str) -> Option<ListenerConfig> {
    let section = Section::open(report, table, &keys::LISTENER, place.to_owned(), &["target"]);
    let listen: Option<ListenAddress> = section.text("listen", str::parse);
    let name = section.text("name", name);
    let schedules = [Schedule::Auto, Schedule::Inline, Schedule::Threaded];
    let receive_buffer = section.size("receive_buffer");
    let ring = section.size("ring_size");
    let schedule = section.choice("schedule", &schedules);
    let gather = section.duration("gather");
    let allow_sources = section.list("allow_sources", str::parse::<Prefix>);
    let deny_sources = section.list("deny_sources", str::parse::<Prefix>);
    let multicast_interface = section.text("multicast_interface", interface);
    let listen = listen?;
    let listener = ListenerConfig {
        name: name.unwrap_or_else(|| name_of(&listen)),
        listen,
        receive_buffer_bytes: as_usize(receive_buffer),
        ring_bytes: as_usize(ring).next_power_of_two(),
        schedule: schedule.unwrap_or_default(),
        gather,
        allow_sources,
        deny_sources,
        multicast_interface,
        targets: Vec::new(),
    };
    rules::listener(&section, &listener);
    Some(listener)
}

fn target(report: &Report, table: &Table, place: String) -> Option<TargetConfig> {
    let section = Section::open(report, table, &keys::TARGET, place, &[]);
    let to: Option<TargetAddress> = section.text("to", str::parse);
    let name = section.text("name", name);
    let only_sources = section.list("only_sources", str::parse::<Prefix>);
    let one_in = section.integer("sample").and_then(non_zero);
    let by = section.choice("sample_by", &[SampleBy::Random, SampleBy::Source]).unwrap_or_default();
    let rate_limit_per_sec = section.integer("rate_limit").and_then(non_zero);
    let send = send_options(&section);
    let gso = section.choice("gso", &[Gso::Auto, Gso::Off]).unwrap_or_default();
    let resolve_interval = section.duration("resolve_interval").unwrap_or(Duration::from_secs(30));
    let formats = [FileFormat::Lines, FileFormat::LengthPrefixed, FileFormat::Pcap];
    let format = section.choice("format", &formats).unwrap_or_default();
    let rotate_bytes = section.size("rotate_size");
    let rotate_keep = section.integer("rotate_keep").and_then(|keep| u32::try_from(keep).ok());
    let to = to?;
    let target = TargetConfig {
        name: name.unwrap_or_else(|| name_of(&to)),
        to,
        only_sources,
        sample: one_in.map(|one_in| Sample { one_in, by }),
        rate_limit_per_sec,
        send,
        gso,
        resolve_interval,
        format,
        rotate_bytes,
        rotate_keep: rotate_keep.unwrap_or_default(),
    };
    rules::target(&section, &target);
    Some(target)
}

fn send_options(section: &Section<'_>) -> SendOptions {
    SendOptions {
        source_address: section.text("source_address", |text| {
            text.parse::<IpAddr>().map_err(|_| "it is not an IP address")
        }),
        source_port: section.integer("source_port").and_then(|port| u16::try_from(port).ok()),
        ttl: section.integer("ttl").and_then(|ttl| u8::try_from(ttl).ok()),
        dscp: section.integer("dscp").and_then(|dscp| u8::try_from(dscp).ok()),
        send_buffer_bytes: section
            .size("send_buffer")
            .and_then(|bytes| usize::try_from(bytes).ok()),
        multicast_interface: section.text("multicast_interface", interface),
    }
}

/// Longest name of a listener or target, in characters.
const NAME_CHARS_MAX: usize = 128;

fn name(text: &str) -> Result<String, &'static str> {
    match text.chars().count() {
        0 => Err("a name has at least one character"),
        1..=NAME_CHARS_MAX if text.chars().all(is_name_char) => Ok(text.to_owned()),
        1..=NAME_CHARS_MAX => {
            Err("a name has no spaces, quotes, backslashes or control characters")
        }
        _ => Err("a name has at most 128 characters"),
    }
}

fn is_name_char(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '\'' | '`' | '\\')
}

/// The name of what has none: its address, with `_` for what a name cannot have, and cut where a name must end.
fn name_of(addr: &impl ToString) -> String {
    let plain = |c| if is_name_char(c) { c } else { '_' };
    addr.to_string().chars().take(NAME_CHARS_MAX).map(plain).collect()
}

/// Interface names have at most 15 bytes (linux/if.h, IFNAMSIZ); a listener may name an address instead.
fn interface(text: &str) -> Result<String, &'static str> {
    let is_name = (1..=15).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:".contains(&byte));
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("it is not the name of an interface, such as eth0")
    }
}

fn non_zero(number: u64) -> Option<NonZeroU32> {
    u32::try_from(number).ok().and_then(NonZeroU32::new)
}

/// A size that was read within its range; 0 for one that was not, which is reported.
fn as_usize(bytes: Option<u64>) -> usize {
    bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default()
}
