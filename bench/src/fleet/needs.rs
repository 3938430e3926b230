//! What a fleet needs, computed from the measurements.

use super::report::Report;
use std::fmt::Write as _;

/// Number of hosts in the table.
const HOSTS: f64 = 20_000.0;
const POLLS_PER_SEC: f64 = 0.1;
const SECONDS_PER_DAY: f64 = 86_400.0;
const REPLICAS: f64 = 3.0;
/// A broker's partition can take more, but then it uses the share of a whole disk and network.
const PARTITION_BYTES_PER_SEC_MAX: f64 = 5e6;
/// A store that is half idle catches up with an outage in the time that the outage took.
const HEADROOM: f64 = 2.0;
/// Flushes of a consumer of ClickHouse's Kafka engine: at least one per interval (`kafka_flush_interval_ms` in
/// deploy/clickhouse/kafka.sql).
const FLUSHES_PER_DAY: f64 = SECONDS_PER_DAY / 10.0;
/// Rows after which it flushes earlier (`kafka_max_block_size`).
const FLUSH_ROWS: f64 = 500_000.0;

/// Sockets per host, for each column.
const SOCKETS: [f64; 3] = [200.0, 1_000.0, 5_000.0];

/// A column: the needs of a fleet of hosts with this number of sockets.
struct Needs {
    sockets: f64,
    records_per_sec: f64,
    /// On the wire and on one broker's disk, as measured with zstd and a host's key.
    broker_bytes_per_sec: f64,
    partitions: f64,
    consumer_cores: f64,
    consumers: f64,
    stored_bytes_per_day: f64,
    stored_lz4_bytes_per_day: f64,
}

impl Needs {
    fn of(report: &Report, sockets: f64) -> Needs {
        let records_per_sec = HOSTS * sockets * report.records_per_socket() * POLLS_PER_SEC;
        let broker_bytes_per_sec = records_per_sec * report.broker_bytes("zstd", "host");
        let insert = &report.stored.with_rollup;
        let consumer_cores = HEADROOM * records_per_sec / insert.rows_per_cpu_second;
        let consumers = consumer_cores.ceil();
        let by_bytes = HEADROOM * broker_bytes_per_sec / PARTITION_BYTES_PER_SEC_MAX;
        Needs {
            sockets,
            records_per_sec,
            broker_bytes_per_sec,
            // Rounded up to a multiple of 12, which many numbers of consumers divide.
            partitions: (by_bytes.max(consumers) / 12.0).ceil() * 12.0,
            consumer_cores,
            consumers,
            stored_bytes_per_day: records_per_sec
                * report.stored_bytes("ZSTD(1)")
                * SECONDS_PER_DAY,
            stored_lz4_bytes_per_day: records_per_sec
                * report.stored_bytes("LZ4")
                * SECONDS_PER_DAY,
        }
    }

    /// By time, or by rows if those come sooner.
    fn parts_per_day(&self) -> f64 {
        let by_rows = self.records_per_sec * SECONDS_PER_DAY / FLUSH_ROWS;
        (FLUSHES_PER_DAY * self.consumers).max(by_rows)
    }
}

/// The table for 20,000 hosts, as Markdown.
pub(super) fn table(report: &Report) -> String {
    let columns: Vec<Needs> = SOCKETS.iter().map(|sockets| Needs::of(report, *sockets)).collect();
    let mut text = String::from("| 20,000 hosts, a poll every 10 s |");
    for needs in &columns {
        let _ = write!(text, " {} sockets a host |", grouped(needs.sockets));
    }
    text.push_str("\n|---|---:|---:|---:|\n");

    let mut row = |name: &str, of: &dyn Fn(&Needs) -> String| {
        let cells: Vec<String> = columns.iter().map(of).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    };
    row("records/s, each a message", &|needs| grouped(needs.records_per_sec));
    row("into the brokers, zstd, MB/s", &|needs| figures(needs.broker_bytes_per_sec / 1e6));
    row("brokers' disk for a day, 3 replicas, TB", &|needs| {
        figures(needs.broker_bytes_per_sec * SECONDS_PER_DAY * REPLICAS / 1e12)
    });
    row("partitions of `weir.sockets`", &|needs| grouped(needs.partitions));
    row("ClickHouse: processors for inserts and rollup, half idle", &|needs| {
        figures(needs.consumer_cores)
    });
    row("ClickHouse: parts/day before merges", &|needs| grouped(needs.parts_per_day()));
    row("ClickHouse: disk/day, ZSTD(1) as shipped, TB", &|needs| {
        figures(needs.stored_bytes_per_day / 1e12)
    });
    row("ClickHouse: disk/day, LZ4, TB", &|needs| figures(needs.stored_lz4_bytes_per_day / 1e12));
    text
}

/// A number with three significant figures.
pub(super) fn figures(number: f64) -> String {
    match number {
        number if number >= 100.0 => grouped(number),
        number if number >= 10.0 => format!("{number:.1}"),
        number => format!("{number:.2}"),
    }
}

/// A whole number rounded to three significant figures, with digits in groups of three.
pub(super) fn grouped(number: f64) -> String {
    let step = 10f64.powf((number.max(1.0).log10().floor() - 2.0).max(0.0));
    let digits = format!("{:.0}", (number / step).round() * step);
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_figures() {
        assert_eq!(
            ["2,350,000", "9", "100", "1,000"],
            [2_345_678.0, 9.4, 99.6, 999.9].map(grouped)
        );
        assert_eq!(["0.12", "1.23", "12.3", "123"], [0.123, 1.234, 12.34, 123.4].map(figures));
    }
}
