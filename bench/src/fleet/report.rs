//! The tables of a run, and its raw values.

use super::needs::{figures, grouped, table};
use super::play::Collected;
use crate::machine::Machine;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// Bytes of a record in one encoding.
#[derive(Serialize)]
pub(super) struct Sizes {
    pub(super) encoding: String,
    pub(super) none: f64,
    pub(super) lz4: f64,
    pub(super) zstd_1: f64,
    pub(super) zstd_3: f64,
}

/// What ClickHouse made of the records.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    engine: String,
    codecs: Vec<Inserted>,
    pub(super) with_rollup: Inserted,
    rollup_rows: f64,
    rollup_bytes_per_row: f64,
}

/// One table, filled.
#[derive(Serialize, Deserialize)]
pub(super) struct Inserted {
    codec: String,
    rows: f64,
    rows_per_insert: f64,
    parts_per_insert: f64,
    bytes_per_row_as_inserted: f64,
    bytes_per_row_merged: f64,
    rows_per_second: f64,
    pub(super) rows_per_cpu_second: f64,
}

/// One topic, filled.
#[derive(Serialize, Deserialize)]
pub(super) struct Brokered {
    compression: String,
    key: String,
    messages: u64,
    bytes_per_message: f64,
    messages_per_second: f64,
}

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) connections_per_host: usize,
    pub(super) collected: Collected,
    pub(super) sizes: Vec<Sizes>,
    pub(super) parquet_bytes: f64,
    pub(super) stored: Stored,
    pub(super) brokered: Vec<Brokered>,
}

impl Report {
    /// Records per poll, including closes between two polls, divided by the sockets that it listed.
    pub(super) fn records_per_socket(&self) -> f64 {
        self.collected.records as f64 / self.collected.visited as f64
    }

    /// Bytes of a message on the broker's disk; 0 if not measured.
    pub(super) fn broker_bytes(&self, compression: &str, key: &str) -> f64 {
        let found =
            self.brokered.iter().find(|one| one.compression == compression && one.key == key);
        found.map_or(0.0, |one| one.bytes_per_message)
    }

    /// Bytes of a row in ClickHouse after merges; 0 if not measured.
    pub(super) fn stored_bytes(&self, codec: &str) -> f64 {
        let found = self.stored.codecs.iter().find(|one| one.codec == codec);
        found.map_or(0.0, |one| one.bytes_per_row_merged)
    }

    fn markdown(&self) -> String {
        let Machine { cpu, cpus, kernel, commit, command, date_utc, .. } = &self.machine;
        let Collected { hosts, polls, visited, records, closes } = self.collected;
        let mut text = format!(
            "# The records of a fleet\n\n{cpu}, {cpus} processors, {kernel}; commit {commit}; {date_utc}\n\n    {command}\n\n\
             {hosts} hosts with {} connections each were polled {polls} times, 10 s apart: {visited} sockets were listed, {records} records \
             made, {closes} of them of closes. That is **{:.2} records for each socket and poll**; the others had not changed.\n\n",
            self.connections_per_host,
            self.records_per_socket(),
        );
        self.put_sizes(&mut text);
        self.put_broker(&mut text);
        self.put_store(&mut text);
        let _ = write!(text, "## What 20,000 hosts need\n\n{}", table(self));
        text
    }

    fn put_sizes(&self, text: &mut String) {
        text.push_str(
            "## Bytes of a record\n\nCompressed is one host's poll at a time.\n\n\
             | encoding | not compressed | lz4 | zstd -1 | zstd -3 |\n|---|---:|---:|---:|---:|\n",
        );
        for Sizes { encoding, none, lz4, zstd_1, zstd_3 } in &self.sizes {
            let cells = [none, lz4, zstd_1, zstd_3].map(|bytes| format!("{bytes:.0}"));
            let _ = writeln!(text, "| {encoding} | {} |", cells.join(" | "));
        }
        let _ = writeln!(
            text,
            "\nAll in one Parquet file (zstd, 100,000 rows in a group): {:.0}.\n",
            self.parquet_bytes
        );
    }

    fn put_broker(&self, text: &mut String) {
        text.push_str(
            "## On a Kafka broker\n\nA message for each record, 12 partitions, a producer for each host, which sends each poll at once. Disk of one \
             replica.\n\n| compression | key | bytes of a message | messages/s |\n|---|---|---:|---:|\n",
        );
        for one in &self.brokered {
            let Brokered { compression, key, bytes_per_message, messages_per_second, .. } = one;
            let rate = grouped(*messages_per_second);
            let _ = writeln!(text, "| {compression} | {key} | {bytes_per_message:.0} | {rate} |");
        }
        text.push('\n');
    }

    fn put_store(&self, text: &mut String) {
        let Stored { engine, codecs, with_rollup, rollup_rows, rollup_bytes_per_row } =
            &self.stored;
        let _ = writeln!(
            text,
            "## In ClickHouse\n\nEngine {engine}, the tables of deploy/clickhouse, rows as protobuf; {:.0} rows an insert, and {:.1} parts.\n\n\
             | codec | bytes of a row as inserted | merged | rows/s | rows/s of processor time |\n|---|---:|---:|---:|---:|",
            with_rollup.rows_per_insert, with_rollup.parts_per_insert,
        );
        let rows = codecs.iter().map(|one| (one.codec.clone(), one));
        for (name, one) in rows.chain([("ZSTD(1), with rollup.sql".to_owned(), with_rollup)]) {
            let rates = [one.rows_per_second, one.rows_per_cpu_second].map(grouped).join(" | ");
            let (inserted, merged) = (one.bytes_per_row_as_inserted, one.bytes_per_row_merged);
            let _ = writeln!(text, "| {name} | {inserted:.0} | {merged:.0} | {rates} |");
        }
        let share = rollup_rows / with_rollup.rows;
        let _ = writeln!(
            text,
            "\nThe rollup has {} rows for each record, of {rollup_bytes_per_row:.0} bytes.\n",
            figures(share)
        );
    }

    pub(super) fn print(&self) -> anyhow::Result<()> {
        std::io::stdout().lock().write_all(self.markdown().as_bytes()).context("standard output")
    }

    pub(super) fn save(&self, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("README.md"), self.markdown())?;
        fs::write(folder.join("raw.json"), serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// docs/fleet.md has the tables of the published run exactly as the program wrote them.
    #[test]
    fn the_document_has_the_tables_of_the_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let run = fs::read_to_string(root.join("bench/runs/2026-11-22-fleet/README.md"));
        let document = fs::read_to_string(root.join("docs/fleet.md")).expect("the document");
        let run = run.expect("the run");
        let rows: Vec<&str> = run.lines().filter(|line| line.starts_with('|')).collect();
        assert!(rows.len() > 25, "{rows:?}");
        for row in rows {
            assert!(document.lines().any(|line| line == row), "docs/fleet.md has no {row}");
        }
    }
}
