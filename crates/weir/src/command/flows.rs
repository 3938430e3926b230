//! `weir flows`: sFlow into live traffic figures.

mod daemon_events;
mod daemon_flows;
mod dump;
mod events;
mod input;
mod json;
mod page;

use crate::ask::Daemon;
use crate::exit::{self, Failure, Reader};
use crate::live;
use crate::progress::rewrites_lines;
use crate::refused;
use crate::screen::Room;
use ::flows::{
    Aggregation, Analysis, Definition, Direction, Engine, Filter, Groups, Limits, Measure, Moment,
    Network, Part, Traffic,
};
use ::text::units::{parse_count, parse_duration, parse_size};
use clap::ValueEnum;
use config::ListenAddress;
use input::{Input, Turn};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use sys::signal::stop_flag;

/// Receive sFlow and show the traffic that it reports
///
/// Figures are scaled by the samples that arrived, so that they stay right when datagrams are lost, and each has the
/// interval that holds the truth in 95 of 100 cases. What was lost is shown for each agent by where it was lost.
///
/// Example: weir flows --listen :6343 --keys src,dst_port --filter 'protocol = udp'
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to receive: udp://HOST:PORT, HOST:PORT or :PORT; without it and --pcap, the definitions of the running daemon at --admin
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<ListenAddress>,
    /// Read a pcap or pcapng instead
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    pcap: Option<PathBuf>,
    /// The port of sFlow in the capture
    #[arg(long, value_name = "PORT", default_value_t = 6343)]
    port: u16,
    /// What flows are distinguished by: fields, networks as src/24/48, group(src), asn(src), country(src); none for everything together
    #[arg(long, value_name = "KEYS", default_value = KEYS_DEFAULT)]
    keys: String,
    /// What to add up
    #[arg(long, value_name = "VALUE", value_enum, default_value_t = Value::Bytes)]
    value: Value,
    /// Which samples count, such as 'protocol = udp and src_port = 53 and not src in 10.0.0.0/8'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// A group of networks, such as lab=10.0.0.0/8,192.0.2.0/24; may be given several times
    #[arg(long, value_name = "NAME=NETWORKS")]
    group: Vec<String>,
    /// A file in MaxMind's format (MMDB) that says who routes addresses and where they are, for asn(src) and country(src); may be given
    /// several times, and the first that knows an address decides
    #[arg(long, value_name = "FILE")]
    mmdb: Vec<PathBuf>,
    /// Side of an interface whose samples count
    #[arg(long, value_name = "SIDE", value_enum, default_value_t = Side::Any)]
    direction: Side,
    /// How to count a frame that several agents see; the ports of one always add up
    #[arg(long, value_name = "HOW", value_enum, default_value_t = How::Max)]
    aggregate: How,
    /// Dropped packets that agents report, instead of sampled traffic
    #[arg(long)]
    drops: bool,
    /// Time constant of the rates
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    smoothing: Duration,
    /// How many flows are shown
    #[arg(long, value_name = "N", default_value = "20", value_parser = parse_count::<usize>)]
    top: usize,
    /// How many flows are kept; the lightest make room for new ones
    #[arg(long, value_name = "N", default_value = "100k", value_parser = parse_count::<usize>)]
    flows_max: usize,
    /// Show agents and their samplers: what was received, what was lost, and where
    #[arg(long, conflicts_with_all = ["counters", "dump"])]
    agents: bool,
    /// Show interfaces by their counters
    #[arg(long, conflicts_with = "dump")]
    counters: bool,
    /// Print when a --threshold is exceeded, and when it no longer is; without --listen and --pcap, the events of the running daemon at --admin
    #[arg(long, conflicts_with_all = ["agents", "counters", "dump"])]
    events: bool,
    #[command(flatten)]
    daemon: Daemon,
    /// What is an event, such as 'flow > 1Gbit/s for 2s', 'uplinks: interface in_use > 90%' or 'agent silent > 30s'; may be given several times
    #[arg(long, value_name = "THRESHOLD", requires = "events")]
    threshold: Vec<String>,
    /// Print every datagram's structures as JSON, one line each
    #[arg(long)]
    dump: bool,
    /// Print JSON: one line at each interval
    #[arg(long)]
    json: bool,
    /// How often figures are shown
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    interval: Duration,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Receive buffer to ask the kernel for
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_size::<usize>)]
    receive_buffer: usize,
    /// List the fields that keys and filters may have
    #[arg(long)]
    fields: bool,
}

const KEYS_DEFAULT: &str = "src,dst";

/// Most events kept between two looks.
const EVENTS_MAX: usize = 10_000;

#[derive(Clone, Copy, ValueEnum)]
enum Value {
    Bytes,
    Frames,
    Samples,
}

#[derive(Clone, Copy, ValueEnum)]
enum Side {
    Any,
    Ingress,
    Egress,
}

#[derive(Clone, Copy, ValueEnum)]
enum How {
    /// The figure of the agent that saw most of a flow
    Max,
    /// The sum over all agents
    Sum,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.fields {
        return exit::print_and_end(
            &Room::of(&io::stdout()).folded(&page::fields()),
            ExitCode::SUCCESS,
        );
    }
    let has_input = args.listen.is_some() || args.pcap.is_some();
    if args.events && !has_input {
        return daemon_events::follow(args);
    }
    if args.events && args.threshold.is_empty() {
        let wanted =
            "--events needs a --threshold, or a daemon's: then without --listen and --pcap";
        return Err(Failure::Usage.error(wanted));
    }
    if args.interval.is_zero() {
        return Err(
            Failure::Usage.error("--interval 0s is nothing. Fix: write for example --interval 1s")
        );
    }
    if !has_input {
        return daemon_flows::show(args);
    }
    let mut groups = groups(&args.group)?;
    for path in &args.mmdb {
        add_places(&mut groups, path)?;
    }
    let definition = definition(args, &groups)?;
    let limits = Limits::default();
    let unit = config::LevelUnit::of_measure(definition.measure);
    let engine = Engine::new(limits, groups, HashSet::new(), vec![definition]);
    let mut analysis = Analysis::new(engine, EVENTS_MAX);
    for text in &args.threshold {
        let (of, threshold) = events::threshold(text, unit)?;
        analysis.watch(of, threshold);
    }

    match &args.pcap {
        Some(path) => read(args, analysis, Input::open(path, args.port)?),
        None => {
            let listen = args.listen.as_ref().ok_or_else(|| Failure::Usage.error("--listen"))?;
            receive(args, analysis, Input::listen(listen, args.receive_buffer)?)
        }
    }
}

/// Reads a file. Figures are those at its end; events carry the file's own times.
fn read(args: &Args, mut analysis: Analysis, mut input: Input) -> anyhow::Result<ExitCode> {
    let (mut ticked_ns, mut told) = (0, 0);
    let mut failed = None;
    let mut take = |datagram: &input::Datagram<'_>| {
        if datagram.at_ns.saturating_sub(ticked_ns) >= events::TICK.as_nanos() as u64 {
            ticked_ns = datagram.at_ns;
            let now = Moment { clock_ns: datagram.at_ns, unix_ns: datagram.unix_ns };
            analysis.tick(now, &mut ());
            match events(args, &analysis, &mut told) {
                Ok(Reader::Listens) => {}
                Ok(Reader::Gone) => return Reader::Gone,
                Err(error) => failed = Some(error),
            }
        }
        take(args, &mut analysis, datagram)
    };
    loop {
        match input.turn(&mut take)? {
            Turn::Stopped => return Ok(ExitCode::SUCCESS),
            Turn::Ended => break,
            Turn::Quiet | Turn::Took => {}
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    if !args.dump && !args.events {
        show(args, analysis.engine(), &input, None)?;
    }
    input.tell_end(analysis.engine());
    Ok(if input.is_broken() { Failure::BadData.code() } else { ExitCode::SUCCESS })
}

/// Receives on a socket until Ctrl-C, --duration, or the reader of the output goes away.
fn receive(args: &Args, mut analysis: Analysis, mut input: Input) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let start = Instant::now();
    let end = args.duration.map(|duration| start + duration);
    let interval = if args.events { events::TICK } else { args.interval };
    let (mut due, mut told) = (start + interval, 0);
    let mut before = page::Before::of(analysis.engine());
    input.tell_start();

    loop {
        let turn = input.turn(&mut |datagram| take(args, &mut analysis, datagram))?;
        let now = Instant::now();
        let is_over = stop.load(std::sync::atomic::Ordering::Relaxed)
            || end.is_some_and(|end| now >= end)
            || turn == Turn::Stopped;
        if is_over {
            break;
        }
        if now < due {
            continue;
        }

        // Missed intervals are not made up for one by one.
        due = now + interval;
        let (clock_ns, unix_ns) = (sys::clock::monotonic_ns(), sys::clock::realtime_ns());
        analysis.tick(Moment { clock_ns, unix_ns }, &mut ());
        let shown = match (args.dump, args.events) {
            (true, _) => Reader::Listens,
            (_, true) => events(args, &analysis, &mut told)?,
            _ => show(args, analysis.engine(), &input, Some(&before))?,
        };
        before = page::Before::of(analysis.engine());
        if shown == Reader::Gone {
            break;
        }
    }

    live::end();
    // Datagrams queued at the socket count as received too.
    input.refuse_more();
    while input.turn(&mut |datagram| take(args, &mut analysis, datagram))? == Turn::Took {}
    if !args.dump && !args.events {
        show(args, analysis.engine(), &input, Some(&before))?;
    }
    input.tell_end(analysis.engine());
    Ok(ExitCode::SUCCESS)
}

/// Prints the events that were not printed yet, if they are requested.
fn events(args: &Args, analysis: &Analysis, told: &mut u64) -> anyhow::Result<Reader> {
    if !args.events {
        return Ok(Reader::Listens);
    }
    let (last, reader) = events::print(analysis, *told, args.json)?;
    *told = last;
    Ok(reader)
}

/// Processes one datagram.
fn take(args: &Args, analysis: &mut Analysis, datagram: &input::Datagram<'_>) -> Reader {
    analysis.datagram(datagram.bytes, datagram.source, datagram.at_ns, &mut ());
    if !args.dump {
        return Reader::Listens;
    }
    exit::print(&dump::line(datagram)).unwrap_or(Reader::Gone)
}

fn show(
    args: &Args,
    engine: &Engine,
    input: &Input,
    before: Option<&page::Before>,
) -> anyhow::Result<Reader> {
    let now_ns = input.now_ns();
    let text = if args.json {
        json::line(engine, input, now_ns)
    } else {
        let room = Room::of(&io::stdout());
        let head = page::head(engine, input, before);
        let body = if args.agents {
            page::agents(engine, room)
        } else if args.counters {
            page::counters(engine, room)
        } else {
            page::flows(&engine.counting()[0], engine.groups(), now_ns, room)
        };
        let page = room.folded(&format!("{head}\n{body}"));
        match before.is_some() && rewrites_lines(&io::stdout()) {
            true => format!("\x1b[H\x1b[J{}", room.filled(&page)),
            false => page,
        }
    };
    Ok(exit::print(&text)?)
}

fn groups(texts: &[String]) -> anyhow::Result<Groups> {
    let mut groups = Groups::default();
    for text in texts {
        let wrong = || {
            let expected = "it is not a name with networks. Fix: write for example lab=10.0.0.0/8,192.0.2.0/24";
            Failure::Usage.error(format!("--group '{text}': {expected}"))
        };
        let (name, networks) = text.split_once('=').ok_or_else(wrong)?;
        for network in networks.split(',') {
            groups.add(name.trim(), Network::parse(network.trim()).ok_or_else(wrong)?);
        }
    }
    Ok(groups)
}

/// Adds a file in MaxMind's format. The whole file is read into memory.
pub(crate) fn add_places(groups: &mut Groups, path: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(path).map_err(|error| refused::unreadable(path, &error))?;
    let wrong = |error| Failure::BadData.error(format!("{}: {error}", path.display()));
    groups.add_places(bytes).map_err(wrong)
}

fn definition(args: &Args, groups: &Groups) -> anyhow::Result<Definition> {
    let keys = args.keys.split(',').map(str::trim).filter(|key| !key.is_empty() && *key != "none");
    let keys = keys.map(Part::parse).collect::<Result<Vec<_>, _>>();
    let keys = keys.map_err(|error| Failure::Usage.error(format!("--keys: {error}")))?;
    if let Some(part) = keys.iter().find(|part| part.needs_places() && !groups.has_places()) {
        let wanted = format!(
            "--keys: {} needs an ASN or country database. Fix: add --mmdb FILE",
            part.word()
        );
        return Err(Failure::Usage.error(wanted));
    }
    let filter = args.filter.as_deref().map(|text| Filter::parse(text, groups)).transpose();
    let filter = filter.map_err(|error| Failure::Usage.error(format!("--filter: {error}")))?;

    Ok(Definition {
        name: events::FLOWS.into(),
        keys,
        traffic: if args.drops { Traffic::Dropped } else { Traffic::Sampled },
        measure: match args.value {
            Value::Bytes => Measure::Bytes,
            Value::Frames => Measure::Frames,
            Value::Samples => Measure::Samples,
        },
        filter,
        direction: match args.direction {
            Side::Any => Direction::Any,
            Side::Ingress => Direction::Ingress,
            Side::Egress => Direction::Egress,
        },
        aggregation: match args.aggregate {
            How::Max => Aggregation::Max,
            How::Sum => Aggregation::Sum,
        },
        smoothing: args.smoothing,
        top: args.top,
        active_timeout: Duration::from_secs(60),
        flows_max: args.flows_max,
    })
}
