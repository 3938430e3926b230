use super::estimates::{bound_sign, short_times};
use super::page::escape;
use super::{Report, sample_size};
use crate::statistics::{Estimate, Interval, Summary};
use text::{grouped, percent, time};

/// Every point with its figures: one table per transport and schedule, all but the first two
/// collapsed.
pub(super) fn figures(report: &Report<'_>) -> String {
    let mut html = String::from(
        "<section>\n<h2>Figures</h2>\n<p>Below each figure its 95 % interval over runs; ≥ marks a lower bound. Loss measured: \
         with its 99.9 % interval. Under way: at the end of its run.</p>\n",
    );

    for (index, (transport, schedule)) in report.series_names().into_iter().enumerate() {
        let series: Vec<&Summary> =
            report.series(&transport, schedule).into_iter().map(|(_, summary)| summary).collect();
        let open = if index < 2 { " open" } else { "" };
        html.push_str(&format!(
            "<details{open}><summary><b>{}</b>, {} <span class=\"meta\">{}</span></summary>\n<div class=\"wide\"><table \
             class=\"figures\">\n",
            escape(transport.as_str()),
            schedule.label(),
            sample_size(&series)
        ));

        html.push_str(HEAD);
        series.iter().for_each(|summary| html.push_str(&row(summary)));
        html.push_str("</tbody>\n</table></div>\n</details>\n");
    }

    html.push_str("</section>\n");
    html
}

const HEAD: &str = "<thead><tr><th>loss</th><th>measured</th><th>deliv. / offered</th><th>per s</th><th>mean</th>\
                    <th>p50</th><th>p90</th><th>p99</th><th>p99.9</th><th>max</th><th>age p50</th><th>age p99</th>\
                    <th>sent again</th><th>timeouts</th><th>under way</th><th>runs</th></tr></thead>\n<tbody>\n";

fn row(summary: &Summary) -> String {
    let cell = |Cell { value, interval }: Cell| match interval.as_str() {
        "" => format!("<td>{value}</td>"),
        interval => format!("<td>{value}<small>{interval}</small></td>"),
    };
    let cells: String = cells(summary, Room::Page).into_iter().map(cell).collect();
    format!("<tr>{cells}</tr>\n")
}

/// A figure of a point, with its interval over runs if it has one.
pub(super) struct Cell {
    pub(super) value: String,
    pub(super) interval: String,
}

/// Where figures appear.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Page,
    /// With fewer digits, and without the last columns.
    Terminal,
}

/// The figures of a point, in the order of the columns.
pub(super) fn cells(summary: &Summary, room: Room) -> Vec<Cell> {
    let alone = |value: String| Cell { value, interval: String::new() };
    let or_unknown = |value: Option<u64>| alone(value.map_or("–".to_owned(), grouped));
    let estimated = |estimate: &Option<Estimate>, text: &dyn Fn(f64) -> String, range: &Range| {
        let Some(estimate) = estimate else { return alone("–".to_owned()) };
        let value = format!("{}{}", bound_sign(estimate), text(estimate.value));
        Cell { value, interval: estimate.interval.map(range).unwrap_or_default() }
    };

    let (loss_digits, digits) = if room == Room::Page { (2, 1) } else { (1, 0) };
    let range = |scale: f64, digits: usize| {
        move |i: Interval| format!("{:.digits$}-{:.digits$}", i.low * scale, i.high * scale)
    };
    let measured = summary.measured_loss.map_or(alone("–".to_owned()), |loss| Cell {
        value: format!("{:.loss_digits$} %", loss.share * 100.0),
        interval: match room {
            Room::Page => range(100.0, 2)(loss.interval),
            Room::Terminal => String::new(),
        },
    });

    let share = |share: f64| format!("{:.1} %", share * 100.0);
    let rate = |rate: f64| format!("{rate:.1}");
    let mut cells = vec![
        alone(percent(summary.configured_loss)),
        measured,
        estimated(&summary.delivered_share, &share, &range(100.0, digits)),
        estimated(&summary.rate_per_sec, &rate, &range(1.0, digits)),
    ];
    let times = [
        &summary.mean_ns,
        &summary.p50_ns,
        &summary.p90_ns,
        &summary.p99_ns,
        &summary.p99_9_ns,
        &summary.max_ns,
        &summary.age_p50_ns,
        &summary.age_p99_ns,
    ];
    cells.extend(times.map(|estimate| estimated(estimate, &time, &short_times)));

    cells.push(or_unknown(summary.retransmits));
    if room == Room::Page {
        cells.push(or_unknown(summary.timeouts));
        cells.push(alone(grouped(summary.censored)));
        cells.push(alone(format!("{} × {} s", summary.runs, summary.longest_run_s.round())));
    }
    cells
}

type Range = dyn Fn(Interval) -> String;
