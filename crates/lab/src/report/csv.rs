//! CSV (RFC 4180): one row per point, and one per run. Times are in nanoseconds, shares are 0 to 1; an empty cell
//! means unknown.

use super::Report;
use crate::experiment::model::{Point, Run, Schedule};
use crate::statistics::{Estimate, Pool, Summary};

pub(super) fn points(report: &Report<'_>) -> String {
    let mut table = Table::default();
    for summary in &report.summaries {
        point(&mut table.row(), summary);
    }
    table.text
}

pub(super) fn runs(report: &Report<'_>) -> String {
    let mut table = Table::default();
    for point in &report.points {
        for (index, one) in point.runs.iter().enumerate() {
            run(&mut table.row(), point, index, one);
        }
    }
    table.text
}

fn point(row: &mut Row<'_>, summary: &Summary) {
    row.cell("transport", summary.transport.to_string());
    row.cell("schedule", schedule(summary.schedule));
    row.cell("configured_loss", summary.configured_loss);

    row.maybe("measured_loss", summary.measured_loss.map(|loss| loss.share));
    row.maybe("measured_loss_low", summary.measured_loss.map(|loss| loss.interval.low));
    row.maybe("measured_loss_high", summary.measured_loss.map(|loss| loss.interval.high));
    row.maybe("measured_loss_packets", summary.measured_loss.map(|loss| loss.packets));

    row.cell("runs", summary.runs);
    row.cell("shortest_run_s", summary.shortest_run_s);
    row.cell("longest_run_s", summary.longest_run_s);
    row.cell("failed_runs", summary.failed_runs);
    row.cell("offered", summary.offered);
    row.cell("sent", summary.sent);
    row.cell("delivered", summary.delivered);
    row.cell("duplicates", summary.duplicates);
    row.cell("under_way_at_end", summary.censored);

    for (name, estimate) in [
        ("rate_per_sec", &summary.rate_per_sec),
        ("delivered_share", &summary.delivered_share),
        ("arrived_share", &summary.arrived_share),
        ("mean_ns", &summary.mean_ns),
        ("p50_ns", &summary.p50_ns),
        ("p90_ns", &summary.p90_ns),
        ("p99_ns", &summary.p99_ns),
        ("p99_9_ns", &summary.p99_9_ns),
        ("max_ns", &summary.max_ns),
        ("age_mean_ns", &summary.age_mean_ns),
        ("age_p50_ns", &summary.age_p50_ns),
        ("age_p99_ns", &summary.age_p99_ns),
        ("age_max_ns", &summary.age_max_ns),
        ("age_over_1s_share", &summary.age_over_1s_share),
    ] {
        estimated(row, name, estimate);
    }

    row.maybe("retransmits", summary.retransmits);
    row.maybe("timeouts", summary.timeouts);
    row.maybe("packets_per_message", summary.link.map(|link| ratio(link.packets, link.taken)));
    row.maybe(
        "report_bytes_share",
        summary.link.map(|link| ratio(link.report_bytes, link.sent_bytes)),
    );
    row.cell("retransmit_failures", summary.retransmit_failures);
}

pub(super) fn estimated(row: &mut Row<'_>, name: &str, estimate: &Option<Estimate>) {
    row.maybe(name, estimate.map(|e| e.value));
    row.maybe(&format!("{name}_low"), estimate.and_then(|e| e.interval).map(|i| i.low));
    row.maybe(&format!("{name}_high"), estimate.and_then(|e| e.interval).map(|i| i.high));
    row.maybe(&format!("{name}_is_lower_bound"), estimate.map(|e| e.at_least));
}

fn run(row: &mut Row<'_>, point: &Point, index: usize, run: &Run) {
    let delays = Pool::new([(run.delays_ns.as_slice(), run.censored_ns.as_slice())]);
    let ages = Pool::new([(run.age_ns.as_slice(), &[][..])]);

    row.cell("transport", point.transport.to_string());
    row.cell("schedule", schedule(point.schedule));
    row.cell("configured_loss", point.configured_loss);
    row.cell("run", index + 1);
    row.cell("seed", run.seed);
    row.cell("began_unix_ns", run.began_unix_ns);
    row.cell("duration_ns", run.duration_ns);
    row.cell("offered", run.offered);
    row.cell("sent", run.sent);
    row.cell("delivered", run.delivered);
    row.cell("duplicates", run.duplicates);
    row.cell("under_way_at_end", run.censored_ns.len());

    row.maybe("measured_loss", run.measured_loss.and_then(|loss| loss.share()));
    row.maybe("measured_loss_packets", run.measured_loss.map(|loss| loss.packets));
    row.maybe("mean_ns", delays.mean(&[1]).map(|figure| figure.value));
    for (name, share) in QUANTILES {
        row.maybe(&format!("{name}_ns"), delays.quantile(&[1], share).map(|figure| figure.value));
    }
    row.maybe("age_mean_ns", ages.mean(&[1]).map(|figure| figure.value));
    for (name, share) in QUANTILES {
        row.maybe(&format!("age_{name}_ns"), ages.quantile(&[1], share).map(|figure| figure.value));
    }

    let tcp = run.tcp.as_ref();
    row.cell(
        "congestion_control",
        tcp.map(|tcp| tcp.congestion_control.clone()).unwrap_or_default(),
    );
    row.maybe("retransmits", tcp.map(|tcp| tcp.retransmits));
    row.maybe("bytes_retransmitted", tcp.map(|tcp| tcp.bytes_retransmitted));
    row.maybe("segments_out", tcp.map(|tcp| tcp.segments_out));
    row.maybe("timeouts", tcp.map(|tcp| tcp.timeouts));

    let link = run.link.as_ref();
    row.maybe("link_packets", link.map(|link| link.packets));
    row.maybe("link_repairs", link.map(|link| link.repairs));
    row.maybe("link_spurious_repairs", link.map(|link| link.spurious_repairs));
    row.maybe("link_sent_bytes", link.map(|link| link.sent_bytes));
    row.maybe("link_reports", link.map(|link| link.reports));
    row.maybe("link_report_bytes", link.map(|link| link.report_bytes));
    row.maybe("link_taken", link.map(|link| link.taken));
    row.maybe("link_delivered", link.map(|link| link.delivered));
    row.maybe("link_expired", link.map(|link| link.expired));
    row.maybe("link_uncertain", link.map(|link| link.uncertain));
    row.maybe("link_open", link.map(|link| link.open));
    row.maybe("link_accepted", link.map(|link| link.accepted));

    row.cell("kernel_retransmitted_segments", run.kernel.retransmitted_segments);
    row.cell("kernel_timeouts", run.kernel.timeouts);
    row.cell("kernel_lost_retransmits", run.kernel.lost_retransmits);
    row.cell("kernel_spurious_timeouts", run.kernel.spurious_timeouts);
    row.cell("kernel_retransmit_failures", run.kernel.retransmit_failures);
    row.cell("kernel_udp_receive_buffer_errors", run.kernel.udp_receive_buffer_errors);
    row.cell("failure", run.failure.clone());
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999), ("max", 1.0)];

fn schedule(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::ClosedLoop => "closed_loop",
        Schedule::OpenLoop => "open_loop",
    }
}

/// Rows with the same columns in the same order; the header comes from the first row.
#[derive(Default)]
pub(super) struct Table {
    pub(super) text: String,
}

impl Table {
    pub(super) fn row(&mut self) -> Row<'_> {
        Row { table: self, names: Vec::new(), cells: Vec::new() }
    }
}

pub(super) struct Row<'a> {
    table: &'a mut Table,
    names: Vec<String>,
    cells: Vec<String>,
}

impl Row<'_> {
    pub(super) fn cell(&mut self, name: &str, value: impl ToString) {
        self.names.push(name.to_owned());
        self.cells.push(quoted(&value.to_string()));
    }

    pub(super) fn maybe(&mut self, name: &str, value: Option<impl ToString>) {
        self.cell(name, value.map(|value| value.to_string()).unwrap_or_default());
    }
}

impl Drop for Row<'_> {
    fn drop(&mut self) {
        let text = &mut self.table.text;
        if text.is_empty() {
            text.push_str(&self.names.join(","));
            text.push_str("\r\n");
        }
        text.push_str(&self.cells.join(","));
        text.push_str("\r\n");
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}
