//! Draws a frame of `weir top`.

use super::figures::State;
use super::lines::{chart, largest, range_ms, sparkline};
use super::model::{Mode, Model, Pace};
use super::pages::{Content, Trend, content};
use super::wanted::Page;
use super::width::{cut, left, right, width};
use super::words::{KEYS, help, words};
use ledger::{Speaker, verdict_lines};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use std::time::Duration;
use text::units::display_duration;
use text::{Ink, Tint, grouped, short_time};

/// Rows outside the page: head, pages, and the keys at the bottom.
const FRAME_ROWS: usize = 3;
/// Screens with fewer rows have no room for the ledger's verdict, and for lines over time.
const VERDICT_FROM_ROWS: usize = 14;
const TRENDS_FROM_ROWS: usize = 20;
/// From this size on there are charts of several rows.
const CHARTS_FROM: (usize, usize) = (120, 40);
const CHART_ROWS: usize = 8;
/// Columns for the name and the figure before a line, and for a chart's scale.
const TREND_NAME: usize = 24;
const SCALE: usize = 9;

/// Lines of a part of the screen.
type Lines = Vec<(String, Tint)>;

/// How many rows the page has, and how many of them are on a screen of this size.
pub(super) fn shown(model: &Model, (columns, rows): (usize, usize)) -> (usize, usize) {
    let content = content(model);
    (content.grid.entries.len(), Parts::of(model, &content, (columns, rows)).page)
}

/// Draws the frame.
pub(super) fn draw(model: &Model, ink: Ink, area: Rect, buffer: &mut Buffer) {
    let (columns, height) = (usize::from(area.width), usize::from(area.height));
    let mut put = |row: usize, text: &str, style: Style| {
        if row < height {
            let y = area.y.saturating_add(u16::try_from(row).unwrap_or(u16::MAX));
            buffer.set_stringn(area.x, y, cut(text, columns), columns, style);
        }
    };

    put(0, &head(model), Style::new().add_modifier(Modifier::BOLD));
    put(1, &tabs(model, columns), Style::new());
    let content = content(model);
    let parts = Parts::of(model, &content, (columns, height));

    let all = match model.mode {
        Mode::Help => read(&help(model.page), model.read, columns),
        Mode::Words => read(&words(model), model.read, columns),
        Mode::Rows | Mode::Filter => body(model, &content, &parts, columns),
    };
    let room = height.saturating_sub(FRAME_ROWS + parts.verdict.len());
    for (at, (line, tint)) in all.iter().take(room).enumerate() {
        put(2 + at, line, style(*tint, ink));
    }

    let below = height.saturating_sub(1 + parts.verdict.len());
    for (at, line) in parts.verdict.iter().enumerate() {
        put(below + at, line, Style::new());
    }
    let (line, tint) = last_line(model, &content, parts.page);
    put(height.saturating_sub(1), &line, style(tint, ink));
}

/// The parts of a page between the pages' names and the keys.
struct Parts {
    /// Sentences and lines over time.
    above: Lines,
    verdict: Vec<String>,
    /// Rows of the table.
    page: usize,
}

impl Parts {
    fn of(model: &Model, content: &Content<'_>, (columns, height): (usize, usize)) -> Parts {
        let verdict = verdict(model, height);
        let mut above = content.said.clone();
        above.extend(trends(model, &content.trends, (columns, height)));
        let page = height.saturating_sub(FRAME_ROWS + 1 + above.len() + verdict.len()).max(1);
        Parts { above, verdict, page }
    }
}

fn body(model: &Model, content: &Content<'_>, parts: &Parts, columns: usize) -> Lines {
    let grid = &content.grid;
    let scrolled = model.view().scrolled.min(grid.entries.len().saturating_sub(parts.page));
    let layout = grid.layout(columns, (scrolled, parts.page));
    let mut lines = parts.above.clone();
    lines.push((left(&grid.titles(&layout), columns), Tint::Heading));
    for entry in grid.entries.iter().skip(scrolled).take(parts.page) {
        lines.push((grid.row(&layout, entry), entry.tint));
    }
    lines
}

fn read(text: &str, from: usize, columns: usize) -> Lines {
    let folded = text::folded(text, columns);
    let line = |line: &str| (line.to_owned(), Tint::Plain);
    folded.lines().skip(from).map(line).collect()
}

fn head(model: &Model) -> String {
    let paused = if model.pace == Pace::Paused { "  PAUSED, p goes on" } else { "" };
    match &model.ledger {
        Some(ledger) => {
            let up = short_time(ledger.uptime_ms.saturating_mul(1_000));
            let run = text::escaped(&ledger.run_id);
            // With the address that is asked, which may be one of several.
            let address = || Some(model.admin.clone());
            let daemon = ledger.daemon.clone().map(|one| Speaker { address: address(), ..one });
            let who = daemon.map_or_else(|| model.admin.clone(), |daemon| daemon.line());
            format!("weir top{paused}  {who}  up {up}  run {run}")
        }
        None => format!("weir top{paused}  {}", model.admin),
    }
}

fn tabs(model: &Model, columns: usize) -> String {
    let tab = |page: Page| {
        let mark = if model.worst(page) >= State::Losing { "!" } else { "" };
        let (number, title) = (page.number() + 1, page.title());
        match model.page == page {
            true => format!("[{number} {title}{mark}]"),
            false => format!(" {number} {title}{mark} "),
        }
    };
    let tabs = Page::ALL.map(tab).concat();
    let group = model.group_word().map_or(String::new(), |group| format!("  group: {group}"));
    let filter = match (&*model.view().filter, model.mode) {
        ("", _) | (_, Mode::Filter) => String::new(),
        (filter, _) => format!("  filter: {}", text::escaped(filter)),
    };
    // The filter comes first: what leaves rows out is not hidden behind the end of the line.
    let how = format!("{filter}  sort: {}{group}", model.sort());
    let how = cut(&how, columns.saturating_sub(width(&tabs)));
    format!("{tabs}{how}")
}

/// The ledger's verdict, where the page is the ledger's and there is room for it.
fn verdict(model: &Model, height: usize) -> Vec<String> {
    let is_of_ledger = matches!(model.page, Page::Overview | Page::Sinks);
    match &model.ledger {
        Some(ledger) if is_of_ledger && height >= VERDICT_FROM_ROWS => {
            verdict_lines(ledger).lines().map(text::escaped).collect()
        }
        _ => Vec::new(),
    }
}

/// Figures over time: charts side by side where there is room, or a row each.
fn trends(model: &Model, trends: &[Trend<'_>], (columns, height): (usize, usize)) -> Lines {
    if trends.is_empty() || height < TRENDS_FROM_ROWS {
        return Vec::new();
    }
    let begins = trends.iter().filter_map(|trend| trend.line.begin_ms());
    let range = range_ms(begins.min().unwrap_or(u64::MAX), model.now_ms());
    let time = (model.now_ms(), range);
    let span = display_duration(Duration::from_millis(range));

    if columns < CHARTS_FROM.0 || height < CHARTS_FROM.1 {
        let row = |trend: &Trend<'_>| {
            let name = format!("{} {} ", trend.title, trend.now());
            let bars = trend.line.bars(time, columns.saturating_sub(TREND_NAME + span.len() + 1));
            (format!("{}{} {span}", left(&name, TREND_NAME), sparkline(&bars)), Tint::Plain)
        };
        return trends.iter().map(row).collect();
    }

    let each = columns / trends.len();
    let charts: Vec<Vec<String>> = trends.iter().map(|trend| drawn(trend, time, each)).collect();
    let row = |at: usize| {
        let parts = charts.iter().map(|chart| left(&chart[at], each));
        (parts.collect::<String>(), Tint::Plain)
    };
    (0..=CHART_ROWS).map(row).collect()
}

/// A chart with its name above and its scale at the left.
fn drawn(trend: &Trend<'_>, time: (u64, u64), columns: usize) -> Vec<String> {
    let bars = trend.line.bars(time, columns.saturating_sub(SCALE + 2));
    let span = display_duration(Duration::from_millis(time.1));
    let title = format!("{} {}, over {span}", trend.title, trend.now());
    let scale = |at: usize| match at {
        0 => (trend.figure)(largest(&bars)),
        _ if at == CHART_ROWS - 1 => "0".to_owned(),
        _ => String::new(),
    };
    let rows = chart(&bars, CHART_ROWS).into_iter().enumerate();
    let rows = rows.map(|(at, bars)| format!("{} {bars}", right(&scale(at), SCALE)));
    std::iter::once(title).chain(rows).collect()
}

fn last_line(model: &Model, content: &Content<'_>, page: usize) -> (String, Tint) {
    if model.mode == Mode::Filter {
        let filter = text::escaped(&model.view().filter);
        return (format!("/{filter}▏ Enter keeps it, Esc clears it"), Tint::Plain);
    }
    if let Some(failure) = &model.failure {
        return (format!("trying again: {}", text::escaped(failure)), Tint::Alarm);
    }
    if model.ledger.is_none() {
        return ("waiting for the first answer".to_owned(), Tint::Plain);
    }
    let hidden = content.grid.entries.len().saturating_sub(page) as u64;
    let rest =
        if hidden > 0 { format!("{} rows hidden  ", grouped(hidden)) } else { String::new() };
    (format!("{rest}{KEYS}"), Tint::Dim)
}

fn style(tint: Tint, ink: Ink) -> Style {
    match (tint, ink) {
        (Tint::Heading, _) => Style::new().add_modifier(Modifier::REVERSED),
        (Tint::Dim, _) => Style::new().add_modifier(Modifier::DIM),
        (Tint::Notice, Ink::Color) => Style::new().fg(Color::Yellow),
        (Tint::Alarm, Ink::Color) => Style::new().fg(Color::Red),
        (Tint::Good, Ink::Color) => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

/// The pages that have something to show as text, one below the other, for `--once`.
pub(super) fn frames(model: &mut Model, columns: usize) -> String {
    let mut text = head(model) + "\n";
    for page in Page::ALL {
        model.turn_to(page);
        let content = content(model);
        let grid = &content.grid;
        if grid.entries.is_empty() {
            continue;
        }
        let layout = grid.layout(columns, (0, grid.entries.len()));
        text.push_str(&format!("\n{}\n", page.title()));
        for (line, _) in &content.said {
            text.push_str(&text::folded(&format!("{line}\n"), columns));
        }
        let rows = grid.entries.iter().map(|entry| grid.row(&layout, entry));
        for line in std::iter::once(grid.titles(&layout)).chain(rows) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    if let Some(ledger) = &model.ledger {
        text.push_str(&format!("\n{}", text::folded(&verdict_lines(ledger), columns)));
    }
    text
}

#[cfg(test)]
mod tests;
