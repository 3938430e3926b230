//! The start banner, at most eight lines.

use super::Running;
use super::open::rmem_max;
use config::{Config, Namespaces, Source, Target};
use relay::{Schedule, SocketOwner};
use std::fmt::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use sys::socket::{self, LocalAddress};
use text::size;
use text::units::display_duration;

/// Most listeners that get a line of their own.
const LISTENERS_MAX: usize = 2;
/// Most targets that are named.
const TARGETS_MAX: usize = 4;
/// The banner says how many datagrams of this size a full buffer holds.
const EXAMPLE_BYTES: usize = 200;

/// The banner's text. `page` is the command that prints the link to the page, where the bare address shows less.
pub(crate) fn banner(
    run_id: &str,
    running: &[Running],
    config: &Config,
    admin: Option<SocketAddr>,
    page: Option<&str>,
) -> String {
    let mut text = format!("weir {} (run {run_id})\n", env!("CARGO_PKG_VERSION"));

    for one in running.iter().take(LISTENERS_MAX) {
        line(&mut text, &format!("listening on {}", listener(one)));
    }
    if running.len() > LISTENERS_MAX {
        line(&mut text, &format!("… and {} more listeners", running.len() - LISTENERS_MAX));
    }

    if let Some(warning) = buffer_warning(running) {
        line(&mut text, &warning);
    }
    let receivers = receivers(running, config);
    if !receivers.is_empty() {
        line(&mut text, &format!("sending to {receivers}"));
    }

    if let Some(collector) = collector(config) {
        line(&mut text, &collector);
    }

    if let Some(flows) = &config.flows {
        let (from, count) = (flows.from.join(", "), flows.definitions.len());
        let plural = if count == 1 { "" } else { "s" };
        let sinks = config.sinks.iter().filter(|sink| {
            sink.from.iter().any(|source| matches!(source, Source::Flows | Source::Events))
        });
        let sinks: Vec<_> = sinks.map(|sink| (sink.name.as_str(), sink.to.to_string())).collect();
        let to = match sinks.is_empty() {
            true => String::new(),
            false => format!(" for {}", listed(sinks.into_iter())),
        };
        line(&mut text, &format!("analyzing sFlow of {from} by {count} definition{plural}{to}"));
    }

    let admin =
        admin.map_or("admin off (for `weir ledger`: --admin 127.0.0.1:9464)".to_owned(), |addr| {
            let scheme = if config.admin.certificate.is_some() { "https" } else { "http" };
            let page = page.map(|command| format!("page: {command}; ")).unwrap_or_default();
            format!("{page}ledger and metrics on {scheme}://{addr}")
        });
    line(&mut text, &format!("schedule {}; {admin}", schedule(running, config)));
    text
}

/// The targets of all listeners, and the sinks that listeners feed.
fn receivers(running: &[Running], config: &Config) -> String {
    let targets = running.iter().flat_map(|one| &one.config.targets);
    let targets = targets.map(|target| (target.name.as_str(), target.to.to_string()));
    let sinks = config.sinks.iter().filter(|sink| sink.listeners().next().is_some());
    let sinks = sinks.map(|sink| (sink.name.as_str(), sink.to.to_string()));

    let mut all = Vec::new();
    for one in targets.chain(sinks) {
        // All listeners of `weir relay` have the same targets.
        if !all.contains(&one) {
            all.push(one);
        }
    }
    listed(all.into_iter())
}

/// Names with their addresses; the first [`TARGETS_MAX`], then the number of others.
fn listed<'a>(all: impl ExactSizeIterator<Item = (&'a str, String)>) -> String {
    let count = all.len();
    let named = all.take(TARGETS_MAX).map(|(name, address)| {
        if name == address { address } else { format!("{name} ({address})") }
    });
    let mut named: Vec<_> = named.collect();
    if count > TARGETS_MAX {
        named.push(format!("{} more", count - TARGETS_MAX));
    }
    named.join(", ")
}

fn collector(config: &Config) -> Option<String> {
    let sockets = config.sockets.as_ref()?;
    let of = match &sockets.namespaces {
        Namespaces::Own => "this network namespace".to_owned(),
        Namespaces::All => "all network namespaces".to_owned(),
        Namespaces::Named(names) => format!("network namespaces {}", names.join(", ")),
    };
    let closes = if sockets.closes { " and their closes" } else { "" };
    let sinks: Vec<_> = config.sinks_from(&Source::Sockets).collect();
    let sinks = sinks.iter().map(|sink| (sink.name.as_str(), sink.to.to_string()));
    Some(format!("collecting TCP sockets of {of}{closes} for {}", listed(sinks)))
}

fn schedule(running: &[Running], config: &Config) -> String {
    let mut parts = Vec::new();

    if !running.is_empty() {
        let is_inline = |one: &Running| one.listener.schedule() == Schedule::Inline;
        let schedule = match running.iter().filter(|one| is_inline(one)).count() {
            count if count == running.len() => "inline",
            0 => "threaded",
            _ => "inline and threaded",
        };
        let ring: usize = running.iter().map(|one| one.config.ring_bytes).sum();
        parts.push(format!("{schedule}; rings of {}", size(ring as u64)));
    }

    if let Some(sockets) = &config.sockets {
        parts.push(format!("a poll every {}", display_duration(sockets.interval)));
    }

    parts.join("; ")
}

fn line(text: &mut String, content: &str) {
    writeln!(text, "  {content}").expect("writing to a string cannot fail");
}

fn listener(one: &Running) -> String {
    let address = match socket::local_address(one.listener.socket()) {
        Some(LocalAddress::Inet(addr)) if one.config.weir().is_some() => format!("weir://{addr}"),
        Some(LocalAddress::Inet(addr))
            if one.addresses().len() > 1 && one.owner() == SocketOwner::Relay =>
        {
            let port = addr.port();
            format!("udp://127.0.0.1:{port} and udp://[::1]:{port}")
        }
        Some(LocalAddress::Inet(addr)) => format!("udp://{addr}"),
        _ => one.config.listen.to_string(),
    };

    let name = match one.config.name == address {
        true => String::new(),
        false => format!(" ({})", one.config.name),
    };

    let buffer = match (one.config.listen.port(), socket::receive_buffer(one.listener.socket())) {
        (Some(_), Ok(bytes)) => format!(
            ": receive buffer {}, room for {} datagrams of {EXAMPLE_BYTES} bytes",
            size(bytes as u64),
            bytes / socket::charged_bytes(EXAMPLE_BYTES)
        ),
        _ => String::new(),
    };

    format!("{address}{name}{buffer}")
}

/// What to do if the kernel granted less than was asked for.
fn buffer_warning(running: &[Running]) -> Option<String> {
    let clamped = |one: &Running| {
        let granted = socket::receive_buffer(one.listener.socket().as_fd()).ok()?;
        one.config.listen.port()?;
        let asked = one.config.receive_buffer_bytes();
        (granted < asked).then_some(asked)
    };

    let asked = running.iter().filter_map(clamped).max()?;
    Some(format!(
        "warning: asked for a receive buffer of {}, the kernel grants twice net.core.rmem_max ({}). \
         Fix: sysctl -w net.core.rmem_max={} (or grant CAP_NET_ADMIN)",
        size(asked as u64),
        size(rmem_max() as u64),
        asked.div_ceil(2)
    ))
}

/// Unix targets that nobody listens at yet, to warn about once.
pub(crate) fn absent_unix_targets(running: &[Running]) -> impl Iterator<Item = (&str, &Target)> {
    running.iter().flat_map(|one| &one.config.targets).filter_map(|target| match &target.to {
        Target::Unix(path) if !path.exists() => Some((target.name.as_str(), &target.to)),
        _ => None,
    })
}
