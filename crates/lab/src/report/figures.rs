use super::page::escape;
use super::text::{bound_sign, count, percent, short_times, time};
use super::{Report, sample_size};
use crate::statistics::{Estimate, Interval, Summary};

/// Every point with its figures: one table per transport and schedule, folded but for the first two.
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
    let mut cells = vec![
        percent(summary.configured_loss),
        summary.measured_loss.map_or("–".to_owned(), |loss| {
            let (low, high) = (loss.interval.low * 100.0, loss.interval.high * 100.0);
            cell(&format!("{:.2} %", loss.share * 100.0), Some(format!("{low:.2}-{high:.2}")))
        }),
        estimated(
            &summary.delivered_share,
            |share| format!("{:.1} %", share * 100.0),
            |i| format!("{:.1}-{:.1}", i.low * 100.0, i.high * 100.0),
        ),
        estimated(
            &summary.rate_per_sec,
            |rate| format!("{rate:.1}"),
            |i| format!("{:.1}-{:.1}", i.low, i.high),
        ),
    ];

    for estimate in [
        &summary.mean_ns,
        &summary.p50_ns,
        &summary.p90_ns,
        &summary.p99_ns,
        &summary.p99_9_ns,
        &summary.max_ns,
        &summary.age_p50_ns,
        &summary.age_p99_ns,
    ] {
        cells.push(estimated(estimate, time, short_times));
    }

    cells.push(summary.retransmits.map_or("–".to_owned(), count));
    cells.push(summary.timeouts.map_or("–".to_owned(), count));
    cells.push(count(summary.censored));
    cells.push(format!("{} × {} s", summary.runs, summary.longest_run_s.round()));

    let cells: Vec<String> = cells.into_iter().map(|cell| format!("<td>{cell}</td>")).collect();
    format!("<tr>{}</tr>\n", cells.concat())
}

fn estimated(
    estimate: &Option<Estimate>,
    text: fn(f64) -> String,
    range: fn(Interval) -> String,
) -> String {
    let Some(estimate) = estimate else { return "–".to_owned() };
    cell(&format!("{}{}", bound_sign(estimate), text(estimate.value)), estimate.interval.map(range))
}

fn cell(value: &str, interval: Option<String>) -> String {
    let interval = interval.map(|text| format!("<small>{text}</small>"));
    format!("{value}{}", interval.unwrap_or_default())
}
