//! `weir sockets`: the kernel's TCP and UDP sockets, for people and for programs.

mod args;
mod assemble;
mod cells;
mod closed;
mod columns;
mod live;
mod out;
mod rates;
mod read;
mod receive;
mod show;
mod shown;
mod stream;
mod summary;
mod table;
mod write;

pub(crate) use args::Args;
#[cfg(feature = "store")]
pub(crate) use args::tell;

use crate::exit::{self, Failure};
use crate::live::{Next, wait};
use crate::screen::Room;
use assemble::Assembler;
use live::Live;
use read::Capture;
use show::Printer;
use sockets::Transport;
use sockets::filter::{Filter, Needs};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use sys::signal::stop_flag;
use write::CaptureFile;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.columns.as_deref() == Some("help") {
        return exit::print_and_end(
            &Room::of(&io::stdout()).folded(&shown::help()),
            ExitCode::SUCCESS,
        );
    }
    if args.count.is_some() && args.watch.is_none() && !args.closed && args.receive.is_none() {
        return Err(Failure::Usage
            .error("--count ends --watch, --closed or --receive. Fix: add --watch 1s"));
    }

    if let Some(listen) = &args.receive {
        return receive::run(args, listen);
    }

    let filter = args.filter()?;
    if args.explain {
        return explain(args, &filter);
    }
    // A filter word that cannot work here is an error before anything is read.
    filter.check_known(known(args)).map_err(|error| Failure::Usage.error(error))?;

    if args.closed {
        return closed::run(args, &filter);
    }
    if let Some(path) = &args.read {
        return from_file(args, &filter, path);
    }

    let mut live = Live::new(args, &filter)?;
    live.check()?;

    match args.watch {
        Some(interval) => watch(args, &mut live, interval),
        None => list(args, &mut live),
    }
}

/// What a filter may use here.
fn known(args: &Args) -> Needs {
    if args.read.is_some() {
        // A capture has no names and no facts beyond its messages, and its ids belong to the host it was made on.
        let of_messages = Needs::TCP_INFO.with(Needs::CONGESTION).with(Needs::MEMORY);
        return of_messages.with(Needs::MARK).with(Needs::TYPE_OF_SERVICE);
    }
    let mut all = if live::is_admin() { Needs::ALL } else { Needs::ALL.without(Needs::MARK) };
    if !args.transports().contains(&Transport::Tcp) {
        all = all.without(Needs::TCP_INFO.with(Needs::CONGESTION));
    }
    match (args.closed, args.watch) {
        (true, _) => all.without(Needs::PROCESSES),
        (false, Some(_)) => all,
        (false, None) => all.without(Needs::AGE),
    }
}

/// Prints which part of the filter runs where.
fn explain(args: &Args, filter: &Filter) -> anyhow::Result<ExitCode> {
    let lines = match &args.read {
        None => live::explain(filter, args.states(args.transports()[0])),
        Some(_) => vec![read::explain(filter)],
    };
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    exit::print_and_end(&text, ExitCode::SUCCESS)
}

/// Runs one poll.
fn list(args: &Args, live: &mut Live<'_>) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.write {
        let mut file = CaptureFile::create(args, path)?;
        live.poll(&mut file)?;
        file.finish()?;
    } else {
        let mut printer = Printer::new(args)?;
        for (at, &transport) in args.transports().iter().enumerate() {
            live.turn_to(args, transport);
            if at > 0 {
                printer.turn_to(args, transport)?;
            }
            live.poll(&mut printer)?;
            // A title without rows would look like an answer.
            if live.failure().is_none() || live.assembler.counts.shown > 0 {
                printer.end_of_poll(&live.assembler.counts);
            }
        }
        printer.finish()?;
        hint_at_unconnected(args, live);
    }

    live.tell_unseen();
    Ok(verdict(live))
}

/// As in `ss`, unconnected UDP sockets are not shown by default. Points that out if nothing was shown.
fn hint_at_unconnected(args: &Args, live: &Live<'_>) {
    let is_by_itself = args.udp && !args.tcp && !args.listening && !args.all && !args.summary;
    if is_by_itself && live.assembler.counts.shown == 0 {
        args::tell(format_args!(
            "only connected UDP sockets were looked for: -l shows those that receive from anybody, -a both"
        ));
    }
}

/// Shows the contents of a capture.
fn from_file(args: &Args, filter: &Filter, path: &Path) -> anyhow::Result<ExitCode> {
    // Before anything is created: the output may be the same file.
    let capture = Capture::open(path)?;

    let mut assembler = Assembler::of_file(filter);

    let report = if let Some(to) = &args.write {
        let mut file = CaptureFile::create(args, to)?;
        let report = capture.read(args, filter, &mut assembler, &mut file)?;
        match report.is_whole() {
            true => file.finish()?,
            false => file.finish_without_end()?,
        }
        report
    } else {
        let mut printer = Printer::new(args)?;
        let report = capture.read(args, filter, &mut assembler, &mut printer)?;
        printer.end_of_poll(&assembler.counts);
        printer.finish()?;
        report
    };

    for line in report.lines() {
        args::tell(format_args!("{}: {line}", path.display()));
    }

    Ok(if report.is_whole() { ExitCode::SUCCESS } else { Failure::BadData.code() })
}

/// Polls until interrupted.
fn watch(args: &Args, live: &mut Live<'_>, interval: Duration) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let &[transport] = args.transports() else {
        return Err(Failure::Usage.error("--watch looks at one protocol: leave out --tcp or --udp"));
    };
    live.turn_to(args, transport);
    let mut printer = Printer::new(args)?;
    let mut due = Instant::now();

    loop {
        live.poll(&mut printer)?;
        printer.end_of_poll(&live.assembler.counts);
        printer.flush();
        live.tell_unseen();

        let is_last = args.count.is_some_and(|count| live.assembler.poll() >= count);
        if is_last || printer.is_over() {
            break;
        }

        // A poll that takes longer than the interval is followed by one poll at once, not by several.
        due = (due + interval).max(Instant::now());
        if wait(stop, due) == Next::Stop {
            crate::live::end();
            break;
        }
    }

    printer.finish()?;
    Ok(verdict(live))
}

fn verdict(live: &Live<'_>) -> ExitCode {
    live.failure().map_or(ExitCode::SUCCESS, Failure::code)
}
