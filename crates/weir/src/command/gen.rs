//! `weir gen`: numbered, stamped and checksummed datagrams at a fixed rate.

mod sflow;

use crate::addresses;
use crate::exit::{self, Failure};
use crate::progress::{ProgressMode, with_progress};
use crate::refused::by_sender;
use crate::screen::Room;
use ::load::Payload;
use ::load::generate::{self, Limit, Options, Pacing, Progress, Rate, Report, Segmentation, Sizes};
use clap::ValueEnum;
use config::{ListenAddress, TargetAddress};
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use sys::signal::stop_flag;
use text::units::{
    parse_bit_rate, parse_count, parse_count_of, parse_duration, parse_per_sec, parse_size,
};
use text::{bit_rate, grouped};

/// Send datagrams that `weir verify` can account for, at a fixed rate
///
/// Every datagram carries a run id, a sequence number, a time stamp and a checksum; heartbeats carry the number sent so
/// far, so that loss at the end shows too. Rate, count and duration are those of the whole run, shared evenly.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Where to send: udp://HOST:PORT, HOST:PORT or unix:/path; may be given several times
    #[arg(long, value_name = "ADDR", required = true)]
    to: Vec<TargetAddress>,
    /// Send each line of standard input to every target instead, without check data, until it ends: stdin: or -
    #[arg(long, value_name = "ADDR", value_parser = parse_from, conflicts_with_all =
        ["size", "payload", "flows", "senders", "burst", "heartbeat", "gso"])]
    from: Option<ListenAddress>,
    /// Datagrams per second (100k), payload bits per second (100Mbit), or max
    #[arg(long, default_value = "1k", value_parser = parse_rate)]
    rate: Rate,
    /// Stop after N datagrams
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    count: Option<u64>,
    /// Stop after this time; 10s if there is no --count either; 0s to go on until it is interrupted
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Bytes of a datagram: 200, a range 64..1400, or sizes with weights 64:7,576:4,1500:1 [default: 200]
    #[arg(long, default_value = "200", hide_default_value = true, value_parser = parse_sizes)]
    size: Sizes,
    /// What the datagrams look like
    #[arg(long, value_enum, default_value_t = PayloadKind::Binary)]
    payload: PayloadKind,
    /// Source sockets to each target, at least one for each sender
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count_of::<1, 65_536, usize>)]
    flows: usize,
    /// Sending threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count_of::<1, 65_536, usize>)]
    senders: usize,
    /// Datagrams sent back to back, at the same average rate
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count::<u64>)]
    burst: u64,
    /// How often each flow reports the number sent so far, or off
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_heartbeat)]
    heartbeat: Heartbeat,
    /// Address to send from
    #[arg(long, value_name = "IP")]
    source_address: Option<IpAddr>,
    /// Port to send from; for one flow
    #[arg(long, value_name = "PORT")]
    source_port: Option<u16>,
    /// Send buffer to ask for
    #[arg(long, value_name = "SIZE", value_parser = parse_size::<usize>)]
    send_buffer: Option<usize>,
    /// Hand datagrams of one fixed size to the kernel as runs of up to 64 (UDP_SEGMENT)
    #[arg(long)]
    gso: bool,
    /// Busy-wait for the next datagram, for exact spacing
    #[arg(long)]
    spin: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// No report for people and no progress
    #[arg(long, short)]
    quiet: bool,
    /// Progress on standard error
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
}

#[derive(clap::Subcommand)]
enum What {
    Sflow(sflow::Args),
}

#[derive(Clone, Copy, Debug)]
struct Heartbeat(Option<Duration>);

/// The payloads' names on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PayloadKind {
    /// A header of 48 bytes and filler
    Binary,
    /// A line of text; at least 102 bytes
    Text,
    /// A syslog message of RFC 5424; at least 170 bytes
    #[value(alias = "syslog-5424")]
    Syslog,
    /// A syslog message of RFC 3164; at least 138 bytes
    #[value(name = "syslog-3164")]
    Syslog3164,
    /// A StatsD counter with a tag; at least 116 bytes
    Statsd,
}

impl From<PayloadKind> for Payload {
    fn from(kind: PayloadKind) -> Payload {
        match kind {
            PayloadKind::Binary => Payload::Binary,
            PayloadKind::Text => Payload::Text,
            PayloadKind::Syslog => Payload::Syslog,
            PayloadKind::Syslog3164 => Payload::SyslogRfc3164,
            PayloadKind::Statsd => Payload::Statsd,
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(What::Sflow(args)) = &args.what {
        return sflow::run(args);
    }
    let options = options(args)?;
    // Not the standard library's stdin: its buffer would read ahead of a poll on the descriptor.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stop = stop_flag()?;
    let progress = Progress::default();
    let start = Instant::now();
    let mode = if args.quiet { ProgressMode::Off } else { args.progress };
    let report = with_progress(
        mode,
        || progress_line(&progress, start.elapsed()),
        || match args.from {
            Some(_) => generate::lines(&options, &input, stop, &progress),
            None => generate::run(&options, stop, &progress),
        },
    )
    .map_err(|error| by_sender(&error, args.source_address, args.source_port))?;

    let text = match (args.json, args.quiet) {
        (true, _) => serde_json::to_string_pretty(&report)? + "\n",
        (false, true) => String::new(),
        (false, false) => Room::of(&io::stdout()).folded(&report_text(&report)),
    };

    let has_failed = report.failed_datagrams > 0;
    let verdict = if has_failed { Failure::CheckFailed.code() } else { ExitCode::SUCCESS };
    exit::print_and_end(&text, verdict)
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let duration = match args.duration {
        Some(Duration::ZERO) => None,
        None if args.count.is_none() && args.from.is_none() => Some(Duration::from_secs(10)),
        given => given,
    };

    Ok(Options {
        targets: args.to.iter().map(addresses::target).collect::<Result<_, _>>()?,
        rate: args.rate,
        limit: Limit { count: args.count, duration },
        sizes: args.size.clone(),
        payload: args.payload.into(),
        flows: args.flows.max(args.senders),
        senders: args.senders,
        burst: args.burst,
        heartbeat: args.heartbeat.0,
        source_address: args.source_address,
        source_port: args.source_port,
        send_buffer_bytes: args.send_buffer,
        segmentation: if args.gso { Segmentation::Gso } else { Segmentation::Off },
        pacing: if args.spin { Pacing::Spin } else { Pacing::Sleep },
        run: None,
    })
}

fn parse_from(text: &str) -> Result<ListenAddress, String> {
    match text.parse() {
        Ok(ListenAddress::Stdin) => Ok(ListenAddress::Stdin),
        _ => Err("lines come from standard input: write stdin: or -".to_owned()),
    }
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    if text == "max" {
        return Ok(Rate::Max);
    }

    // A number without a unit is a datagram rate.
    let rate = match (parse_per_sec(text), parse_bit_rate(text)) {
        (Ok(datagrams), _) => Rate::DatagramsPerSec(datagrams),
        (_, Ok(bits)) => Rate::BitsPerSec(bits),
        (Err(error), Err(_)) => return Err(format!("{error}; or bit/s and B/s for bandwidth")),
    };

    match rate {
        Rate::DatagramsPerSec(0) | Rate::BitsPerSec(0) => {
            Err("it is nothing. Fix: write for example 1k".to_owned())
        }
        rate => Ok(rate),
    }
}

fn parse_sizes(text: &str) -> Result<Sizes, String> {
    if let Some((from, to)) = text.split_once("..") {
        let to = to.strip_prefix('=').unwrap_or(to);
        let (from, to) = (parse_size(from)?, parse_size(to)?);
        return if from <= to {
            Ok(Sizes::Uniform(from, to))
        } else {
            Err("the range ends before it begins. Fix: write the smaller size first".to_owned())
        };
    }

    if !text.contains(':') {
        return Ok(Sizes::Fixed(parse_size(text)?));
    }

    let mixed = text.split(',').map(|part| {
        let (size, weight) = part.split_once(':').unwrap_or((part, "1"));
        Ok::<_, String>((parse_size(size)?, parse_count(weight)?))
    });
    let mixed = mixed.collect::<Result<Vec<_>, _>>()?;

    if mixed.iter().all(|(_, weight)| *weight == 0) {
        return Err("all weights are 0".to_owned());
    }
    Ok(Sizes::Mixed(mixed))
}

fn parse_heartbeat(text: &str) -> Result<Heartbeat, String> {
    match text {
        "off" => Ok(Heartbeat(None)),
        _ => match parse_duration(text)? {
            Duration::ZERO => Err("it is nothing. Fix: write for example 100ms, or off".to_owned()),
            every => Ok(Heartbeat(Some(every))),
        },
    }
}

fn progress_line(progress: &Progress, elapsed: Duration) -> String {
    let sent = progress.sent_datagrams.load(Ordering::Relaxed);
    let failed = progress.failed_datagrams.load(Ordering::Relaxed);
    let mut line = format!(
        "{:.1} s  sent {}  {}/s",
        elapsed.as_secs_f64(),
        grouped(sent),
        grouped((sent as f64 / elapsed.as_secs_f64()) as u64),
    );
    if failed > 0 {
        let _ = write!(line, "  given up {}", grouped(failed));
    }
    line
}

fn report_text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "run {}: sent {} datagrams, {} bytes in {:.2} s: {}/s, {}",
        report.run,
        grouped(report.sent_datagrams),
        grouped(report.sent_bytes),
        report.elapsed_seconds,
        grouped(report.datagrams_per_sec as u64),
        bit_rate(report.bits_per_sec),
    );

    let _ = writeln!(
        text,
        "heartbeats {}, {} bytes; datagrams and heartbeats together {}",
        grouped(report.heartbeats),
        grouped(report.heartbeat_bytes),
        grouped(report.sent_datagrams + report.heartbeats),
    );

    if report.lateness.samples > 0 {
        let time = |ns: u64| text::time(ns as f64);
        let _ = writeln!(
            text,
            "sent late by p50 {}, p99 {}, max {}",
            time(report.lateness.p50_ns),
            time(report.lateness.p99_ns),
            time(report.lateness.max_ns),
        );
    }

    if report.slots_behind > 0 {
        let _ = writeln!(
            text,
            "{} datagrams behind the schedule at its end: the rate is more than this sender or its target can take",
            grouped(report.slots_behind),
        );
    }

    for target in &report.targets {
        let _ = write!(
            text,
            "  {}  sent {}  heartbeats {}",
            target.to,
            grouped(target.sent_datagrams),
            grouped(target.heartbeats),
        );
        for (label, counts) in [("given up", &target.failed), ("send errors", &target.errors)] {
            if counts.total() > 0 {
                let list = counts.iter().map(|(name, n)| format!("{name} {}", grouped(n)));
                let _ = write!(text, "  {label}: {}", list.collect::<Vec<_>>().join(", "));
            }
        }
        text.push('\n');
        if target.errors.iter().any(|(name, _)| name == "ECONNREFUSED") {
            let _ = writeln!(
                text,
                "  nobody listens at {}: what was refused is lost. Fix: start the receiver, or correct the address",
                target.to
            );
        }
    }

    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::load::LatencyReport;
    use ::load::generate::{ErrorCounts, TargetReport};

    #[test]
    fn rates() {
        assert_eq!(parse_rate("100k"), Ok(Rate::DatagramsPerSec(100_000)));
        assert_eq!(parse_rate("100k/s"), Ok(Rate::DatagramsPerSec(100_000)));
        assert_eq!(parse_rate("100Mbit"), Ok(Rate::BitsPerSec(100_000_000)));
        assert_eq!(parse_rate("100Mbit/s"), Ok(Rate::BitsPerSec(100_000_000)));
        assert_eq!(parse_rate("max"), Ok(Rate::Max));
        assert_eq!(parse_rate("1MB/s"), Ok(Rate::BitsPerSec(8_000_000)));
        for text in ["", "0", "0bit", "fast", "100Mb"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_sizes("200"), Ok(Sizes::Fixed(200)));
        assert_eq!(parse_sizes("64..1400"), Ok(Sizes::Uniform(64, 1_400)));
        let mixed = Sizes::Mixed(vec![(64, 7), (576, 4), (1_500, 1)]);
        assert_eq!(parse_sizes("64:7,576:4,1500:1"), Ok(mixed));
        for text in ["", "a", "9..8", "64:0", "64:", "64:1,,"] {
            assert!(parse_sizes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn generated_screens() {
        let many = 12_345_678_901;
        let progress = Progress::default();
        progress.sent_datagrams.store(many, Ordering::Relaxed);
        progress.failed_datagrams.store(345, Ordering::Relaxed);
        let to = |to: &str| TargetReport {
            to: to.to_owned(),
            sent_datagrams: many / 2,
            sent_bytes: many * 100,
            heartbeats: 6_172,
            heartbeat_bytes: 1_234_400,
            failed: ErrorCounts::default(),
            errors: ErrorCounts::default(),
        };
        let report = Report {
            run: "0123456789abcdef".to_owned(),
            elapsed_seconds: 61_728.39,
            sent_datagrams: many,
            sent_bytes: many * 200,
            heartbeats: 12_345,
            heartbeat_bytes: 2_468_800,
            failed_datagrams: 0,
            slots_behind: 678,
            datagrams_per_sec: 200_000.0,
            bits_per_sec: 320_000_000.0,
            lateness: LatencyReport {
                samples: many,
                p50_ns: 12_000,
                p99_ns: 345_000,
                max_ns: 6_780_000,
                ..LatencyReport::default()
            },
            process_cpu_seconds: 1.0,
            targets: vec![
                to("udp://collector-17.eu-west.a-rather-long-domain.example.com:5514"),
                to("udp://127.0.0.1:5514"),
            ],
        };
        crate::screen::check("gen", |_| {
            format!(
                "{}\n{}",
                progress_line(&progress, Duration::from_secs(61_728)),
                report_text(&report)
            )
        });
    }
}
