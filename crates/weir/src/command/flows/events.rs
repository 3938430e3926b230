//! The command line's thresholds, and their events as lines.

use crate::event_text;
use crate::exit::{self, Failure, Reader};
use ::flows::{AgentFigure, Analysis, Event, PortFigure, Threshold, Watched};
use ::text::date;
use ::text::units::parse_duration;
use config::{Level, LevelUnit};
use std::io::Write as _;
use std::time::Duration;

/// Time between two looks for events.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// The name of the command line's only definition.
pub(super) const FLOWS: &str = "flows";

/// Parses `--threshold`: `[NAME:] flow|interface FIGURE|agent FIGURE > LEVEL [for TIME]`. `unit` is the unit of flows.
pub(super) fn threshold(text: &str, unit: LevelUnit) -> anyhow::Result<(Watched, Threshold)> {
    let wrong = |what: String| {
        let expected = "expected for example 'flow > 1Gbit/s for 2s', 'uplinks: interface in_use > 90%' or 'agent silent > 30s'";
        Failure::Usage.error(format!("--threshold '{text}': {what}; {expected}"))
    };
    let (name, rest) = match text.split_once(':') {
        Some((name, rest)) if !name.contains('>') => (Some(name.trim()), rest),
        _ => (None, text),
    };
    let (what, level) = rest.split_once('>').ok_or_else(|| wrong("there is no >".into()))?;
    let (level, hold) = level.split_once(" for ").unwrap_or((level, "0s"));
    let hold = parse_duration(hold.trim()).map_err(|error| wrong(error.to_string()))?;
    let level: Level = level
        .trim()
        .parse()
        .map_err(|error: &str| wrong(format!("\"{}\": {error}", level.trim())))?;

    let words: Vec<&str> = what.split_whitespace().collect();
    let (of, unit) = match words[..] {
        ["flow"] => (Watched::Flow(FLOWS.into()), unit),
        ["interface", word] => {
            let figure = named(PortFigure::ALL, word).map_err(wrong)?;
            (Watched::Port(figure), LevelUnit::of_port(figure))
        }
        ["agent", word] => {
            let figure = named(AgentFigure::ALL, word).map_err(wrong)?;
            (Watched::Agent(figure), LevelUnit::of_agent(figure))
        }
        _ => return Err(wrong(format!("\"{}\" is nothing to watch", what.trim()))),
    };
    if level.unit() != unit {
        return Err(wrong(format!("what is watched has {}", unit.form())));
    }

    let name = name.filter(|name| !name.is_empty()).unwrap_or(what.trim());
    // Flows measured in bytes are counted in bytes.
    let each = if matches!(of, Watched::Flow(_)) && unit == LevelUnit::Bits { 8.0 } else { 1.0 };
    let threshold = Threshold::new(name, level.amount() / each);
    Ok((of, Threshold { hold, ..threshold }))
}

fn named<T: Copy>(all: &[(&'static str, T)], word: &str) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == word).map(|(_, figure)| *figure);
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        format!("\"{word}\" is none of {}", names.join(", "))
    })
}

/// Prints the events after event `after`. Returns the number of the last one.
pub(super) fn print(
    analysis: &Analysis,
    after: u64,
    as_json: bool,
) -> anyhow::Result<(u64, Reader)> {
    let log = analysis.events();
    let missed = log.missed_after(after);
    if missed > 0 {
        let shown = "are not shown: there were more at once than are kept";
        // Ignore the error: standard error may be closed.
        let _ = writeln!(std::io::stderr(), "weir: {missed} events {shown}");
    }
    for event in log.after(after) {
        let line = if as_json { json_line(event) } else { line(event) };
        if exit::print(&line)? == Reader::Gone {
            return Ok((event.id, Reader::Gone));
        }
    }
    Ok((log.last_id(), Reader::Listens))
}

fn json_line(event: &Event) -> String {
    format!("{}\n", event_text::json(event))
}

fn line(event: &Event) -> String {
    format!("{}  {}\n", date(event.time_unix_ns), event_text::line(event))
}
