//! `weir syslog`: shows how lines of syslog are read.

use crate::exit::{self, Failure, Reader};
use anyhow::Context as _;
use config::{TimeZone, is_standard_input};
use record::{DatagramRecord, Encoder, Encoding};
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;
use text::{escaped, rfc3339};
use wire::syslog::{Arrival, Syslog, parse};

/// Show how lines of syslog are read
///
/// Reads each line as a sink with parse = "syslog" reads a datagram, and prints the form of its header and the fields that its row has
/// (docs/records.md). Empty lines are left out, and a line that is longer than a datagram counts as several.
///
/// Example: weir syslog --read /var/log/devices.log --time-zone Europe/Vienna
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File with a message on each line; - is standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    read: PathBuf,
    /// Zone of times that name none: Europe/Vienna, +02:00, or local for that of this host
    #[arg(long, value_name = "ZONE", default_value = "UTC", allow_hyphen_values = true)]
    time_zone: TimeZone,
    /// When the lines were received, such as 2026-11-28T12:00:00Z: a time without a year has the nearest one; else now
    #[arg(long, value_name = "TIME", value_parser = moment)]
    received: Option<u64>,
    /// Print an object for each line, with the names of the row's fields
    #[arg(long)]
    json: bool,
}

/// The longest payload of a UDP datagram over IPv4.
const LINE_BYTES_MAX: u64 = 65_507;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut input: Box<dyn BufRead> = match is_standard_input(&args.read) {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(&args.read).map_err(|error| {
            let fix = "name a file with a message on each line, or - for standard input";
            let message = format!("cannot read {}: {error}. Fix: {fix}", args.read.display());
            Failure::of(&error).error(message)
        })?)),
    };

    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.with_context(|| format!("cannot read {}", args.read.display()))? == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(message) =
            line.strip_suffix(b"\n").or(Some(&line)).filter(|one| !one.is_empty())
        {
            let unix_ns = args.received.unwrap_or_else(now);
            let arrival = Arrival { unix_ns, zone: args.time_zone.zone(), zone_words: &[] };
            let syslog = parse(message, arrival);
            let shown = if args.json { object(message, &syslog) } else { table(message, &syslog) };
            if exit::print(&shown).context("cannot write to standard output")? == Reader::Gone {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads a time as RFC 5424 has it.
fn moment(text: &str) -> Result<u64, String> {
    let line = format!("<0>1 {text} - - - - -");
    let syslog = parse(line.as_bytes(), Arrival::utc(0));
    let time = syslog.time_unix_ns.filter(|_| syslog.fault.is_none());
    time.ok_or_else(|| "it is not a time. Fix: write for example 2026-11-28T12:00:00Z".to_owned())
}

fn form(syslog: &Syslog<'_>) -> &'static str {
    syslog.form.map_or("unparsed", |form| form.document().name)
}

/// The fields of the row, as a sink writes them.
fn row(message: &[u8], syslog: &Syslog<'_>) -> Vec<u8> {
    let mut record = DatagramRecord { payload: Some(message), ..DatagramRecord::default() };
    record.fill_syslog(syslog);
    let mut out = Vec::new();
    Encoder::of_datagrams(Encoding::Jsonl).datagram(&record, &mut out);
    out
}

/// The row with what it has no field for: the form, and the time for people.
fn object(message: &[u8], syslog: &Syslog<'_>) -> String {
    let mut out = format!("{{\"form\":\"{}\",", form(syslog));
    if let Some(time) = syslog.time_unix_ns {
        let _ = write!(out, "\"time\":\"{}\",", rfc3339(time));
    }
    let row = row(message, syslog);
    out.push_str(String::from_utf8_lossy(&row).strip_prefix('{').unwrap_or_default());
    out
}

/// The line, and below it a line for each field.
fn table(message: &[u8], syslog: &Syslog<'_>) -> String {
    let mut out = format!("{}\n", escaped(&String::from_utf8_lossy(message)));
    let _ = writeln!(out, "  {:<16} {}", "form", form(syslog));
    let row: Map<String, Value> = serde_json::from_slice(&row(message, syslog)).unwrap_or_default();
    for field in DatagramRecord::FIELDS.iter().filter(|field| field.name != "payload") {
        let (name, value) = match (field.name, row.get(field.name)) {
            (_, None) => continue,
            ("syslog_time_unix_ns", _) => {
                ("time", syslog.time_unix_ns.map(rfc3339).unwrap_or_default())
            }
            (name, Some(Value::String(text))) => (name, escaped(text)),
            (name, Some(value)) => (name, value.to_string()),
        };
        let _ = writeln!(out, "  {name:<16} {value}");
    }
    out.push('\n');
    out
}
