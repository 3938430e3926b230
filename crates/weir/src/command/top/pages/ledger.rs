//! The overview and the page of sinks: the ledger, row by row.

use super::super::figures::Row;
use super::super::grid::{Column, Entry, Kind, column};
use super::super::model::Model;
use super::super::wanted::Page;
use super::{Content, Trend, bytes, or_dash, per_second};
use std::cmp::Ordering;
use text::{grouped, short_count, short_time};

const OVERVIEW: &[Column] = &[
    column("state", Kind::Word, 0),
    column("name", Kind::Name(16), 0),
    column("in/s", Kind::Figure, 0),
    column("out/s", Kind::Figure, 0),
    column("lost/s", Kind::Figure, 6),
    column("received", Kind::Figure, 8),
    column("delivered", Kind::Figure, 7),
    column("lost", Kind::Figure, 0),
    column("reason", Kind::Word, 2),
    column("inside", Kind::Figure, 1),
    column("oldest", Kind::Figure, 3),
    column("out/s over time", Kind::Line, 5),
];

const SINKS: &[Column] = &[
    column("state", Kind::Word, 0),
    column("name", Kind::Name(16), 0),
    column("out/s", Kind::Figure, 0),
    column("received", Kind::Figure, 4),
    column("delivered", Kind::Figure, 2),
    column("lost", Kind::Figure, 0),
    column("reason", Kind::Word, 3),
    column("inside", Kind::Figure, 0),
    column("oldest", Kind::Figure, 1),
    column("queue", Kind::Word, 5),
    column("spool", Kind::Word, 6),
    column("trouble", Kind::Text(20), 8),
    column("out/s over time", Kind::Line, 7),
];

pub(super) fn content(model: &Model) -> Content<'_> {
    let is_overview = model.page == Page::Overview;
    let mut rows: Vec<&Row> = model.rows.iter().collect();
    rows.retain(|row| is_overview || row.is_of_sinks());
    rows.sort_by(|a, b| order(model.sort(), a, b));

    let (columns, cells): (_, fn(&Row) -> Vec<String>) =
        if is_overview { (OVERVIEW, of_overview) } else { (SINKS, of_sinks) };
    let entry = |row: &Row| Entry {
        cells: cells(row),
        line: model.lines.of_hops.get(&row.place),
        tint: row.state.tint(),
    };
    let entries = rows.into_iter().map(entry).collect();

    let mut content = Content::of(model, columns, entries).filtered(model);
    if is_overview {
        let trend = |title, line| Trend { title, line, figure: per_second };
        content.trends =
            vec![trend("arrived", &model.lines.arrived), trend("lost", &model.lines.lost)];
    }
    content
}

fn rate(rate: Option<f64>) -> String {
    or_dash(rate, short_count)
}

fn oldest(row: &Row) -> String {
    or_dash(row.oldest_ms, |ms| short_time(ms.saturating_mul(1_000)).replace(' ', ""))
}

fn name(row: &Row) -> String {
    match row.what {
        "listener" | "target" | "sink" => row.name.clone(),
        what => format!("{what} {}", row.name),
    }
}

fn of_overview(row: &Row) -> Vec<String> {
    vec![
        row.state.label().to_owned(),
        name(row),
        rate(row.received),
        rate(row.delivered),
        rate(row.lost),
        grouped(row.received_total),
        grouped(row.delivered_total),
        grouped(row.lost_total),
        row.reason.clone(),
        grouped(row.inside),
        oldest(row),
    ]
}

fn of_sinks(row: &Row) -> Vec<String> {
    let full = |(used, most)| format!("{} of {}", bytes(used), bytes(most));
    vec![
        row.state.label().to_owned(),
        name(row),
        rate(row.delivered),
        grouped(row.received_total),
        grouped(row.delivered_total),
        grouped(row.lost_total),
        row.reason.clone(),
        grouped(row.inside),
        oldest(row),
        or_dash(row.queue, full),
        or_dash(row.spool, full),
        row.trouble.clone().unwrap_or_default(),
    ]
}

/// Largest first, except for names; equal rows stay in the daemon's order.
fn order(sort: &str, a: &Row, b: &Row) -> Ordering {
    let rate = |of: Option<f64>| of.unwrap_or(-1.0);
    match sort {
        "name" => a.name.cmp(&b.name),
        "in" => rate(b.received).total_cmp(&rate(a.received)),
        "out" => rate(b.delivered).total_cmp(&rate(a.delivered)),
        "lost" => b.lost_total.cmp(&a.lost_total),
        "inside" => b.inside.cmp(&a.inside),
        "oldest" => b.oldest_ms.cmp(&a.oldest_ms),
        _ => (b.state.cmp(&a.state))
            .then(rate(b.lost).total_cmp(&rate(a.lost)))
            .then(b.lost_total.cmp(&a.lost_total)),
    }
}
