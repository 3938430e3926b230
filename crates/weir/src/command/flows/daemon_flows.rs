//! The heaviest flows of a running daemon's own definitions.

use super::Args;
use super::page::{BAR_COLUMNS, bar, fit_keys};
use crate::ask::ask;
use crate::command::ledger;
use crate::exit::{self, Failure, Reader};
use crate::live;
use crate::progress::rewrites_lines;
use crate::screen::{Room, ink_of};
use ::text::{Align, Table, bit_rate, escaped, grouped, short_count};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use sys::signal::stop_flag;

/// Longest wait for an answer that the daemon has ready.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait until a request to stop is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// Shows the flows of each definition at each interval, until Ctrl-C, --duration, or the reader of the output goes away.
pub(super) fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let defines = args.keys != super::KEYS_DEFAULT
        || args.filter.is_some()
        || !args.group.is_empty()
        || !args.mmdb.is_empty()
        || args.drops
        || args.agents
        || args.counters
        || args.dump;
    if defines {
        let wanted = "without --listen and --pcap the daemon's own definitions are shown, which are in its file. Fix: leave the other \
                      options out, or add --listen :6343";
        return Err(Failure::Usage.error(wanted));
    }

    let stop = stop_flag()?;
    let end = args.duration.map(|duration| Instant::now() + duration);
    let is_over = || {
        stop.load(std::sync::atomic::Ordering::Relaxed)
            || end.is_some_and(|end| Instant::now() >= end)
    };
    loop {
        let reader = exit::print(&page(args)?)?;
        let due = Instant::now() + args.interval;
        while !is_over() && Instant::now() < due {
            thread::sleep(LOOK.min(args.interval));
        }
        if reader == Reader::Gone || is_over() {
            live::end();
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// One look at every definition.
fn page(args: &Args) -> anyhow::Result<String> {
    let about: Json = answer(args, "/flows")?;
    let definitions = about["definitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = definitions.iter().filter_map(|definition| definition["name"].as_str());
    let tops = names
        .map(|name| answer(args, &format!("/flows/top?flow={}&n={}", encoded(name), args.top)))
        .collect::<anyhow::Result<Vec<Json>>>()?;
    if args.json {
        return Ok(format!("{}\n", Json::Array(tops)));
    }

    let room = Room::of(&io::stdout());
    let daemon = ledger::fetch(&args.daemon)?.daemon.map(|daemon| daemon.line());
    let mut text = format!("{}\n", daemon.unwrap_or_else(|| args.daemon.admin.clone()));
    if tops.is_empty() {
        text.push_str("it has no definition of flows. Fix: a [[flow]] in its file\n");
    }
    tops.iter().for_each(|top| definition(&mut text, top, room));
    let page = room.folded(&text);
    Ok(match rewrites_lines(&io::stdout()) {
        true => format!("\x1b[H\x1b[J{}", room.filled(&page)),
        false => page + "\n",
    })
}

fn answer<T: DeserializeOwned>(args: &Args, page: &str) -> anyhow::Result<T> {
    let text = ask(&args.daemon, page, ANSWER_TIMEOUT)?;
    serde_json::from_str(&text).map_err(|error| {
        let admin = &args.daemon.admin;
        Failure::Unavailable.error(format!("{admin}{page} cannot be read ({error})"))
    })
}

/// A value in an address.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        // Writing to a string does not fail.
        let _ = match byte.is_ascii_alphanumeric() {
            true => write!(all, "{}", char::from(byte)),
            false => write!(all, "%{byte:02X}"),
        };
        all
    })
}

/// Columns of the figures, with the space between them.
const FIGURE_COLUMNS: usize = 50;

/// A definition and its heaviest flows.
fn definition(text: &mut String, top: &Json, room: Room) {
    let definition = &top["definition"];
    let samples = |name: &str| definition["samples"][name].as_u64().unwrap_or(0);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\n{}: {} samples counted of {}, {} without a key",
        escaped(definition["name"].as_str().unwrap_or_default()),
        grouped(samples("counted")),
        grouped(samples("seen")),
        grouped(samples("without_key")),
    );

    let flows = top["flows"].as_array().map(Vec::as_slice).unwrap_or_default();
    if flows.is_empty() {
        text.push_str("no flow is active\n");
        return;
    }
    let keys = definition["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<String> = keys.iter().filter_map(Json::as_str).map(str::to_owned).collect();
    let shown = |value: &Json| match value {
        Json::String(text) => escaped(text),
        value => value.to_string(),
    };
    let mut rows: Vec<Vec<String>> = flows
        .iter()
        .map(|flow| names.iter().map(|name| shown(&flow["key"][name])).collect())
        .collect();
    let columns = room.columns.unwrap_or(usize::MAX);
    let used = fit_keys(&names, &mut rows, columns.saturating_sub(FIGURE_COLUMNS));
    let has_bars = used + FIGURE_COLUMNS + 2 + BAR_COLUMNS <= room.columns.unwrap_or(80);

    let is_bytes = definition["value"].as_str() == Some("bytes");
    let rate = |value: f64| match is_bytes {
        true => bit_rate(value * 8.0),
        false => format!("{}/s", short_count(value)),
    };
    let keys = names.iter().map(|name| (name.as_str(), Align::Left));
    let figures = ["rate", "95 % interval", "samples"].map(|title| (title, Align::Right));
    let bars = has_bars.then_some(("", Align::Left));
    let mut table = Table::new(keys.chain(figures).chain(bars));
    let per_s = |flow: &Json, name: &str| flow["per_s"][name].as_f64().unwrap_or(0.0);
    let most = flows.first().map_or(0.0, |flow| per_s(flow, "value"));
    for (flow, keys) in flows.iter().zip(rows) {
        let value = per_s(flow, "value");
        let figures = [
            rate(value),
            format!("{} – {}", rate(per_s(flow, "low")), rate(per_s(flow, "high"))),
            grouped(flow["samples"].as_u64().unwrap_or(0)),
        ];
        table.push(keys.into_iter().chain(figures).chain(has_bars.then(|| bar(value, most))));
    }
    text.push_str(&table.text(room.columns, ink_of(&io::stdout())));
}
