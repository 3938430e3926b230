//! `--receive`: the receiving end of a UDP sink.

use super::args::{Args, tell};
use super::out::Out;
use super::stream::Stream;
use crate::addresses;
use crate::exit::Failure;
use crate::refused::{Wanted, refused};
use ::load::Address;
use config::ListenAddress;
use sink::receive::{Received, Receiver, ReceiverCounts, ReceiverOptions, StreamReport};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use sys::signal::stop_flag;
use sys::socket::{LocalAddress, local_address};
use text::{escaped, plural};

pub(super) fn run(args: &Args, listen: &ListenAddress) -> anyhow::Result<ExitCode> {
    if !args.filter.is_empty() {
        return Err(Failure::Usage.error(
            "a filter is for sockets of this host or of a file. Fix: leave it out, as records that are received are all shown",
        ));
    }

    let Address::Udp(listen) = addresses::listener(listen)? else {
        return Err(Failure::Usage
            .error("records come by UDP. Fix: write for example --receive 127.0.0.1:9000"));
    };

    let stop = stop_flag()?;
    let mut stream = Stream::new(args)?;
    let mut receiver = Receiver::open(&ReceiverOptions::new(listen)).map_err(|error| {
        refused(format!("cannot listen on udp://{listen}"), Wanted::Udp(listen), &error)
    })?;

    // Show the bound port: the requested one may be 0, which means any.
    let bound = match local_address(receiver.socket()) {
        Some(LocalAddress::Inet(bound)) => bound,
        _ => listen,
    };
    tell(format_args!("listening on udp://{bound}"));

    let mut out = Out::to_stdout();
    out.with(|buffer| stream.begin(buffer));
    out.flush();

    let mut polls = 0;
    while !stop.load(Ordering::Relaxed)
        && !out.is_over()
        && args.count.is_none_or(|count| polls < count)
    {
        let received = receiver.receive(Duration::from_millis(100), |received| match received {
            Received::Record(record) => out.with(|buffer| stream.record(record, buffer)),
            Received::Totals(report, totals) => {
                polls += 1;
                out.with(|buffer| stream.totals(totals, buffer));
                tell(format_args!("{}", poll_text(report, totals.poll, totals.host)));
            }
        });

        match received {
            Ok(0) => {}
            Ok(_) => out.flush(),
            Err(error) => return Err(anyhow::Error::new(error).context("cannot receive")),
        }
    }

    out.with(|buffer| stream.end(buffer));
    out.finish()?;
    crate::live::end();
    Ok(verdict(args, &mut receiver))
}

fn poll_text(report: &StreamReport, poll: Option<u64>, host: Option<&str>) -> String {
    let host_text = escaped(host.unwrap_or("an unnamed host"));
    format!(
        "poll {} of {host_text} at {}: {} of {} records so far, {} missing",
        poll.unwrap_or_default(),
        report.source,
        report.records_received,
        report.records_sent,
        report.records_missing(),
    )
}

/// Reports what arrived and what did not, stream by stream.
fn verdict(args: &Args, receiver: &mut Receiver) -> ExitCode {
    let counts = receiver.counts();
    let mut missing = counts.evicted_records_missing;
    let mut streams: Vec<StreamReport> = receiver.streams().collect();
    streams.sort_by_key(|report| (report.source, report.stream_id));

    for report in &streams {
        missing += report.records_missing();
        tell(format_args!("{}", stream_text(report)));
    }
    for line in counts_text(&counts) {
        tell(format_args!("{line}"));
    }

    let streams = plural(streams.len() as u64, "stream", "streams");
    tell(format_args!("{streams}, {} missing", plural(missing, "record", "records")));

    if args.fail_on_loss && missing + counts.malformed_records + counts.malformed_datagrams > 0 {
        return Failure::CheckFailed.code();
    }
    ExitCode::SUCCESS
}

fn stream_text(report: &StreamReport) -> String {
    let mut text = format!(
        "stream {:016x} of {}: {} records in {} datagrams arrived, {} records in {} datagrams are missing",
        report.stream_id,
        report.source,
        report.records_received,
        report.datagrams_received,
        report.records_missing(),
        report.datagrams_missing(),
    );

    let mut add = |count: u64, what: &str| {
        if count > 0 {
            text += &format!("; {count} {what}");
        }
    };

    add(
        report.records_before_first,
        "of them from before the first datagram that arrived: lost, or sent before this receiver listened",
    );
    add(report.records_too_big, "records were larger than a datagram may be, and not sent");
    add(report.duplicate_datagrams, "datagrams came twice");
    add(report.reordered_datagrams, "datagrams were overtaken");
    add(report.late_datagrams, "datagrams came too late to be distinguished from copies");

    text
}

fn counts_text(counts: &ReceiverCounts) -> Vec<String> {
    let lines = [
        (
            counts.dropped_by_kernel,
            "dropped at this socket, whose buffer was full: raise net.core.rmem_max",
        ),
        (counts.malformed_datagrams, "datagrams that are none of a UDP sink's, or damaged"),
        (counts.malformed_records, "records that could not be read"),
        (counts.evicted_streams, "streams dropped for newer ones"),
    ];
    let lines = lines.iter().filter(|(count, _)| *count > 0);
    lines.map(|(count, what)| format!("{count} {what}")).collect()
}
