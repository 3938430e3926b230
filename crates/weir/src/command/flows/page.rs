//! Figures for people.

use super::input::Input;
use crate::screen::{Room, ink_of};
use ::flows::{
    Agent, AgentId, Counting, Engine, Estimate, Field, Groups, Measure, PortRate, Traffic,
};
use ::text::{Align, Table, bit_rate, cut_middle, grouped, percent, plural, short_count};
use std::fmt::Write as _;
use std::io;
use std::time::Instant;

/// Columns of a bar.
pub(super) const BAR_COLUMNS: usize = 12;
/// Columns of a rate, its interval and its samples.
const FIGURE_COLUMNS: usize = 12 + 2 + 12 + 2 + 9;
/// Keys are not cut below this.
const KEY_COLUMNS_MIN: usize = 10;

/// The counts when figures were last shown.
pub(super) struct Before {
    datagrams: u64,
    samples: u64,
    at: Instant,
}

impl Before {
    pub(super) fn of(engine: &Engine) -> Before {
        let totals = engine.totals();
        Before { datagrams: totals.datagrams, samples: totals.flow_samples, at: Instant::now() }
    }
}

/// The source of the figures, and what is missing from it.
pub(super) fn head(engine: &Engine, input: &Input, before: Option<&Before>) -> String {
    let totals = engine.totals();
    let mut text = format!("{}  {}", input.name(), plural_of(engine.agents().count(), "agent"));
    match before {
        Some(before) => {
            let seconds = before.at.elapsed().as_secs_f64().max(1e-3);
            let rate = |now: u64, then: u64| short_count((now - then) as f64 / seconds);
            put(
                &mut text,
                format_args!(
                    "  {} datagrams/s  {} samples/s",
                    rate(totals.datagrams, before.datagrams),
                    rate(totals.flow_samples, before.samples)
                ),
            );
        }
        None => put(
            &mut text,
            format_args!(
                "  {}  {}",
                plural(totals.datagrams, "datagram", "datagrams"),
                plural(totals.flow_samples, "sample", "samples")
            ),
        ),
    }
    text.push('\n');

    let (mut received, mut lost) = (0, 0);
    for (_, agent) in engine.agents() {
        received += agent.datagrams().received;
        lost += agent.datagrams().lost;
    }
    let sent = received + lost;
    let mut notes = Vec::new();
    if lost > 0 {
        let share = percent(lost as f64 / sent as f64);
        notes.push(format!(
            "{} of {} datagrams lost on the way ({share})",
            grouped(lost),
            grouped(sent)
        ));
    }
    if input.dropped() > 0 {
        notes.push(format!("{} of them at our socket", grouped(input.dropped())));
    }
    let broken: u64 = totals.faults.values().sum();
    if broken > 0 {
        notes.push(format!("{} broken", grouped(broken)));
    }
    for (version, (datagrams, sender)) in &totals.versions {
        notes.push(format!(
            "{} of sFlow version {version}, which is not read, the last from {sender}",
            grouped(*datagrams)
        ));
    }
    let unknown: u64 = totals.unknown.values().sum::<u64>() + totals.unknown_other;
    if unknown > 0 {
        notes.push(format!("{} unknown structures skipped", grouped(unknown)));
    }
    if !notes.is_empty() {
        put(&mut text, format_args!("{}\n", notes.join(", ")));
    }
    text
}

/// The heaviest flows, each with a bar if there is room. Long keys lose their middle.
pub(super) fn flows(counting: &Counting, groups: &Groups, now_ns: u64, room: Room) -> String {
    let definition = counting.definition();
    let top = counting.top(now_ns);
    if top.is_empty() {
        return format!("{}\n{}", why_none(counting), lacking(counting));
    }

    let unit = match definition.measure {
        Measure::Bytes => "bits/s",
        Measure::Frames => "frames/s",
        Measure::Samples => "samples/s",
    };
    let names: Vec<String> = definition.keys.iter().map(|part| part.word()).collect();
    let mut rows: Vec<Vec<String>> =
        top.iter().map(|one| counting.shown(&one.key, groups)).collect();
    let columns = room.columns.unwrap_or(usize::MAX);
    let used = fit_keys(&names, &mut rows, columns.saturating_sub(FIGURE_COLUMNS));
    let bars = used + FIGURE_COLUMNS + 2 + BAR_COLUMNS <= room.columns.unwrap_or(80);

    // Titles are as wide as figures usually are, so that columns of a live view stay in place.
    let figures = [format!("{unit:>12}"), format!("{:>12}", "95 %"), format!("{:>9}", "samples")];
    let keys = names.iter().map(|name| (name.as_str(), Align::Left));
    let figures = figures.iter().map(|title| (title.as_str(), Align::Right));
    let mut table = Table::new(keys.chain(figures).chain(bars.then_some(("", Align::Left))));
    let most = top.first().map_or(0.0, |figure| figure.rate.value);
    for (figure, keys) in top.iter().zip(rows) {
        let figures = [
            rate(definition.measure, figure.rate.value),
            either_way(&figure.rate),
            short_count(figure.rate_samples),
        ];
        let bar = bars.then(|| bar(figure.rate.value, most));
        table.push(keys.into_iter().chain(figures).chain(bar));
    }
    format!("{}{}", table.text(room.columns, ink_of(&io::stdout())), lacking(counting))
}

/// How many samples are in no flow because they lack a part of the key.
fn lacking(counting: &Counting) -> String {
    let some = counting.lacking().filter(|(_, samples)| *samples > 0);
    let parts = some.map(|(part, samples)| {
        format!("{} without {}", plural(samples, "sample", "samples"), part.word())
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { String::new() } else { format!("\nnot counted: {}\n", parts.join(", ")) }
}

/// Cuts the longest keys until all fit into `columns`, including the space after each. Returns how many columns they take.
pub(super) fn fit_keys(names: &[String], rows: &mut [Vec<String>], columns: usize) -> usize {
    let width = |(at, name): (usize, &String)| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.chain([name.chars().count()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = names.iter().enumerate().map(width).collect();
    let taken = |widths: &[usize]| widths.iter().map(|width| width + 2).sum::<usize>();
    while taken(&widths) > columns
        && let Some(widest) = widths.iter_mut().max().filter(|width| **width > KEY_COLUMNS_MIN)
    {
        *widest -= 1;
    }
    for row in rows {
        for (cell, width) in row.iter_mut().zip(&widths) {
            *cell = cut_middle(cell, *width);
        }
    }
    taken(&widths)
}

/// Why there is no flow to show.
fn why_none(counting: &Counting) -> &'static str {
    let totals = counting.totals();
    match (totals.seen, totals.counted, totals.without_key) {
        (0, ..) => "no samples yet",
        (_, 0, 0) => "no sample passes the filter",
        (_, 0, _) => "no sample has all of the keys",
        _ => "no flow is active",
    }
}

/// Each agent, with how many of its samples were lost and where.
pub(super) fn agents(engine: &Engine, room: Room) -> String {
    let mut agents = Table::of_figures(&["agent", "datagrams", "lost", "double", "late", "resets"]);
    let mut all = Table::of_figures(&[
        "sampler",
        "1 in",
        "by agent",
        "as arrived",
        "lost in agent",
        "lost on the way",
    ]);
    for (id, agent) in sorted(engine) {
        let totals = agent.datagrams();
        agents.push([
            name(id),
            grouped(totals.received),
            share(totals.lost, totals.received + totals.lost),
            grouped(totals.duplicate),
            grouped(totals.reordered),
            grouped(totals.resets),
        ]);

        let mut samplers: Vec<_> =
            agent.samplers().filter(|(traffic, ..)| *traffic == Traffic::Sampled).collect();
        samplers.sort_by_key(|(_, source, _)| *source);
        for (_, source, sampler) in samplers {
            let rates = sampler.rates();
            all.push([
                format!("{} {}:{}", name(id), source.class, source.index),
                grouped(rates.configured.into()),
                short_count(rates.agent),
                short_count(rates.collector),
                percent(rates.agent_loss),
                percent(rates.path_loss),
            ]);
        }
    }
    let ink = ink_of(&io::stdout());
    let tables = format!("{}\n{}", agents.text(room.columns, ink), all.text(room.columns, ink));
    format!("{tables}{}", discrepancies(engine))
}

/// What is wrong with what agents say, and what is done about it: a line for each.
fn discrepancies(engine: &Engine) -> String {
    let mut text = String::new();
    for (id, agent) in sorted(engine) {
        for (one, count) in agent.discrepancies().seen() {
            if text.is_empty() {
                text.push('\n');
            }
            let (name, count) = (name(id), plural(count, "time", "times"));
            put(&mut text, format_args!("agent {name} {}: {count}; {}\n", one.says(), one.used()));
        }
    }
    text
}

/// Each interface, by its counters.
pub(super) fn counters(engine: &Engine, room: Room) -> String {
    let mut table = Table::of_figures(&[
        "interface",
        "in bits/s",
        "frames/s",
        "out bits/s",
        "frames/s",
        "samples",
    ]);
    for (id, agent) in sorted(engine) {
        let mut ports: Vec<_> = agent.ports().collect();
        ports.sort_by_key(|(index, _)| *index);
        for (index, port) in ports {
            let name = format!("{} {index}", name(id));
            let Some(rates) = port.rates() else {
                table.push([name, "-".to_owned()]);
                continue;
            };
            let bits = |rate: &PortRate| rate.bits_per_s.map_or("-".into(), short_count);
            let frames = |rate: &PortRate| rate.frames_per_s.map_or("-".into(), short_count);
            table.push([
                name,
                bits(&rates.input),
                frames(&rates.input),
                bits(&rates.output),
                frames(&rates.output),
                rates.sampled_ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
            ]);
        }
    }
    let note = "samples: bytes by samples for each byte by counters; 1.00 is an agent that\nsamples as it says\n";
    table.text(room.columns, ink_of(&io::stdout())) + note
}

/// The words of keys and filters.
pub(super) fn fields() -> String {
    let rows = Field::ALL.iter().map(|field| format!("{:<18}{}\n", field.word(), field.meaning()));
    rows.collect()
}

fn sorted(engine: &Engine) -> Vec<(&AgentId, &Agent)> {
    let mut agents: Vec<_> = engine.agents().collect();
    agents.sort_by_key(|(id, _)| **id);
    agents
}

fn name(id: &AgentId) -> String {
    match id.sub_agent {
        0 => id.address.to_string(),
        part => format!("{}/{part}", id.address),
    }
}

fn share(part: u64, all: u64) -> String {
    if all == 0 { "-".into() } else { percent(part as f64 / all as f64) }
}

fn plural_of(count: usize, one: &str) -> String {
    plural(count as u64, one, &format!("{one}s"))
}

fn rate(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Bytes => bit_rate(value * 8.0),
        Measure::Frames | Measure::Samples => short_count(value),
    }
}

/// The confidence interval as an error margin of the value.
fn either_way(estimate: &Estimate) -> String {
    if estimate.value <= 0.0 {
        return "-".into();
    }
    let (down, up) = (1.0 - estimate.low / estimate.value, estimate.high / estimate.value - 1.0);
    if (up - down).abs() < 0.005 {
        format!("±{}", percent(up))
    } else {
        format!("-{:.0} +{:.0} %", down * 100.0, up * 100.0)
    }
}

pub(super) fn bar(value: f64, most: f64) -> String {
    let eighths = if most > 0.0 { (value / most * 8.0 * BAR_COLUMNS as f64).round() } else { 0.0 };
    let (whole, part) = (eighths as usize / 8, eighths as usize % 8);
    let mut bar = "█".repeat(whole);
    if part > 0 {
        bar.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get(part - 1));
    }
    bar
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = text.write_fmt(line);
}
