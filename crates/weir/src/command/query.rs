//! `weir query`: SQL on this machine's history, or on a fleet's.

#[cfg_attr(not(feature = "http"), path = "query/no_at.rs")]
mod at;
mod print;

use crate::daemon::served_store;
use crate::exit::{self, Failure};
use crate::question::{LIMIT_DEFAULT, SINCE_DEFAULT, moment, with_units};
use crate::screen::Room;
use anyhow::Context as _;
use print::Format;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use store::{
    Answer, ClickHouse, Error, Limits, NAMED, Named, Parameters, Reader, expand, expand_for,
    row_tables, socket_columns,
};
use text::units::{display_duration, parse_count, parse_duration};

/// The folder of the quickstart's history.
const QUICKSTART_FOLDER: &str = "weir-data/history";

/// The time that `--around` adds before and after.
const AROUND: Duration = Duration::from_secs(15 * 60);

/// Ask this machine's history, or a fleet's: by name, or in SQL
///
/// Without a question it lists those that have a name. Reads the files of a sink `store:/folder`, whether a daemon runs or not, or with
/// --at the tables that the sinks of many hosts fill in ClickHouse; it can change neither. In SQL, {since}, {until} and {limit} stand for
/// the flags. The data goes to standard output, how many rows there were and how long it took to standard error.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A question's name, a SELECT, or - for standard input
    #[arg(value_name = "NAME|SQL")]
    question: Option<String>,
    /// Read the SQL from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "question")]
    file: Option<PathBuf>,
    /// The store; else the one that the configuration names, else weir-data/history
    #[arg(long, value_name = "FOLDER", env = "WEIR_STORE")]
    store: Option<PathBuf>,
    /// A fleet's ClickHouse: its address, with the keys of a sink as options, or the name of a sink in the configuration
    #[arg(long, value_name = "ADDRESS|NAME", conflicts_with = "store")]
    at: Option<String>,
    /// One host of the fleet; else all of them
    #[arg(long, value_name = "NAME", requires = "at")]
    host: Option<String>,
    /// The configuration that names the store
    #[arg(short, long, value_name = "FILE", env = "WEIR_CONFIG", default_value = "weir.toml")]
    config: PathBuf,
    /// From when on: how long ago (1h), a time (14:05) or a date (2026-11-25T14:05), in UTC
    #[arg(long, value_name = "WHEN", default_value = "1h")]
    since: String,
    /// Until when, likewise; else now
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// A quarter of an hour before and after this moment
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["since", "until"])]
    around: Option<String>,
    /// Rows that a named question answers with
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT, value_parser = parse_count::<u32>)]
    limit: u32,
    /// The connection's number, for connection
    #[arg(long, value_name = "NUMBER")]
    cookie: Option<u64>,
    /// The inode of its network namespace
    #[arg(long, value_name = "INODE")]
    namespace: Option<u64>,
    /// table, json, jsonl, csv or tsv
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parse)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// List the tables and their columns, with unit and meaning
    #[arg(long, conflicts_with_all = ["question", "file"])]
    schema: bool,
    /// Print the SQL and its query plan, instead of the answer
    #[arg(long)]
    explain: bool,
    /// Longest time for the answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
    /// Most rows of an answer
    #[arg(long, value_name = "N", default_value = "10k", value_parser = parse_count::<usize>)]
    max_rows: usize,
}

/// The query to run.
struct Question {
    named: Option<&'static Named>,
    statement: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.schema {
        return match &args.at {
            Some(at) => at::schema(args, at),
            None => exit::print_and_end(&schema(), ExitCode::SUCCESS),
        };
    }
    let Some(text) = text_of(args)? else {
        let is_asked = |named: &&Named| args.at.is_none() || !named.is_of_one_machine();
        let list = list(NAMED.iter().filter(is_asked));
        return exit::print_and_end(&list, ExitCode::SUCCESS);
    };
    if let Some(at) = &args.at {
        return at::run(args, at, args.host.as_deref(), &text);
    }
    let question = question(args, &text, None)?;
    let reader = Reader::open(&folder(args)?).map_err(failed)?;

    if args.explain {
        let mut text = format!("{}\n\n", question.statement.trim());
        for line in reader.explain(&question.statement).map_err(failed)? {
            let _ = writeln!(text, "{line}");
        }
        return exit::print_and_end(&text, ExitCode::SUCCESS);
    }

    let limits = Limits { time: args.timeout, rows_max: args.max_rows, ..Limits::default() };
    let answer = reader.ask(&question.statement, limits).map_err(failed)?;
    finish(args, answer, question.named)
}

/// Prints an answer.
fn finish(args: &Args, answer: Answer, named: Option<&Named>) -> anyhow::Result<ExitCode> {
    let answer = with_units(answer, named);
    let format = if args.json { Format::Json } else { args.format };
    let code = exit::print_and_end(
        &print::answer(&answer, format, Room::of(&io::stdout())),
        ExitCode::SUCCESS,
    )?;
    super::sockets::tell(format_args!("{}", print::footer(&answer)));
    Ok(code)
}

/// The query's text from the file or the command line; `None` if there is none.
fn text_of(args: &Args) -> anyhow::Result<Option<String>> {
    if let Some(path) = &args.file {
        let read = std::fs::read_to_string(path);
        let read = read.with_context(|| format!("cannot read {}", path.display()));
        return read.map(Some).map_err(|error| Failure::InputMissing.error(format!("{error:#}")));
    }
    match args.question.as_deref() {
        Some("-") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            Ok(Some(text))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

/// The question for this machine's store, or for a fleet's tables.
fn question(args: &Args, text: &str, fleet: Option<&ClickHouse>) -> anyhow::Result<Question> {
    let parameters = parameters(args)?;
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_word {
        let statement = match fleet {
            Some(tables) => expand_for(tables, text, &parameters),
            None => expand(text, &parameters),
        };
        return Ok(Question { named: None, statement });
    }
    let Some(named) = Named::find(text) else {
        let nearest = NAMED
            .iter()
            .max_by(|a, b| strsim::jaro(a.name, text).total_cmp(&strsim::jaro(b.name, text)));
        let nearest = nearest.map_or("", |named| named.name);
        return Err(Failure::Usage.error(format!(
            "no question is called {text}; did you mean {nearest}? `weir query` lists them, and SQL begins with SELECT"
        )));
    };
    let statement = match fleet {
        Some(tables) => named.statement_for(tables, &parameters),
        None => named.statement(&parameters),
    };
    let statement = statement.map_err(|error| Failure::Usage.error(error))?;
    Ok(Question { named: Some(named), statement })
}

fn parameters(args: &Args) -> anyhow::Result<Parameters> {
    let now = sys::clock::realtime_ns();
    let read = |text: &str| moment(text, now).map_err(|why| Failure::Usage.error(why));
    let (since_unix_ns, until_unix_ns) = match &args.around {
        Some(around) => {
            let (around, side) = (read(around)?, AROUND.as_nanos() as u64);
            (around.saturating_sub(side), around.saturating_add(side))
        }
        None => (read(&args.since)?, args.until.as_deref().map_or(Ok(now), read)?),
    };
    if since_unix_ns >= until_unix_ns {
        return Err(Failure::Usage.error("--until lies before --since"));
    }
    Ok(Parameters {
        since_unix_ns,
        until_unix_ns,
        limit: args.limit,
        cookie: args.cookie,
        namespace: args.namespace,
    })
}

/// The folder of the store.
fn folder(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(folder) = &args.store {
        return Ok(folder.clone());
    }
    if !args.config.is_file() {
        return Ok(PathBuf::from(QUICKSTART_FOLDER));
    }
    let config = super::run::load(&args.config)?;
    served_store(&config).map(Path::to_owned).ok_or_else(|| {
        Failure::Config.error(format!(
            "{} has no store. Fix: add a [[sink]] with from = [\"sockets\"] and to = \"store:/var/lib/weir/history\", or name one \
             with --store",
            args.config.display()
        ))
    })
}

fn failed(error: Error) -> anyhow::Error {
    let failure = match &error {
        Error::NoStore(_) => Failure::InputMissing,
        Error::Statement(_) | Error::Refused(_) => Failure::Usage,
        Error::Timeout { .. } | Error::OutOfMemory => Failure::Unavailable,
        Error::Newer { .. } | Error::Foreign(_) => Failure::BadData,
        _ => Failure::Io,
    };
    let fix = match &error {
        Error::NoStore(_) => {
            ". Fix: name one with --store, or start a daemon that has a sink store:/folder"
        }
        Error::Newer { .. } => ". Fix: use the Weir that wrote it, or another folder",
        _ => "",
    };
    failure.error(format!("{:#}{fix}", anyhow::Error::new(error)))
}

/// The list of named queries.
fn list<'n>(all: impl Iterator<Item = &'n Named>) -> String {
    let width = NAMED.iter().map(|named| named.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for named in all {
        let flags: Vec<String> = named.parameters().map(|name| format!("--{name}")).collect();
        let _ = writeln!(text, "{:width$}  {}", named.name, named.title());
        let _ = writeln!(text, "{:width$}    {}", "", flags.join(" "));
    }
    let _ = writeln!(
        text,
        "\nThe last {} unless --since says otherwise. `weir query --schema` lists tables for SQL of your own.",
        display_duration(SINCE_DEFAULT)
    );
    text
}

/// Tables and columns.
fn schema() -> String {
    let mut text =
        String::from("sockets: raw rows, one for each socket and poll, and one for each close\n");
    for field in socket_columns() {
        let unit = if field.unit.is_empty() { String::new() } else { format!(" ({})", field.unit) };
        let _ = writeln!(text, "  {}{unit}: {}", field.name, field.meaning);
    }
    text.push_str(TABLES);
    for (table, fields) in row_tables() {
        let about =
            ROW_TABLES.iter().find(|(name, _)| *name == table).map_or("", |(_, about)| about);
        let names: Vec<_> = fields.iter().map(|field| field.name).collect();
        let _ =
            writeln!(text, "\n{table}: {about}; docs/records.md has the meaning of each column");
        text.push_str(&::text::folded(&format!("  {}\n", names.join(", ")), 130));
    }
    text.push_str(FUNCTIONS);
    text
}

/// What a row is of each table that has records as they arrive.
const ROW_TABLES: &[(&str, &str)] = &[
    ("closes", "how each connection ended"),
    ("polls", "totals of each poll"),
    ("datagrams", "what listeners received"),
    ("flows", "estimates of the heaviest flows"),
    ("counters", "counters of interfaces, from sFlow"),
    ("flow_totals", "what became of the samples of each agent"),
];

/// Tables of the store's own.
const TABLES: &str = "
sockets_minute, sockets_hour: sums of records by dimension (all, unit, peer, service, path)
  dimension, time_unix_ns, unit, service (port), peer (network), records, bytes_sent, bytes_received, bytes_retrans, segs_out,
  retrans_segments, busy_time_us, rwnd_limited_us, sndbuf_limited_us, zero_windows, closes, aborts,
  rtt, rttvar (sketches: sketch_merge(rtt), sketch_quantile(SKETCH, 0.99), sketch_count(SKETCH), sketch_between(SKETCH, LOW, HIGH))

ledger: what was added at each hop, every 10 s
  time_unix_ns, hop, origin, target, way (received, delivered, dropped, skipped because a setting asks for it, rejected, uncertain, kept), reason, count, bytes

events: what thresholds raised and cleared
  time_unix_ns, raised_id (the event that this one clears, or its own), change (raised, cleared), threshold, subject (JSON), value, level, peak,
  text (a line for people), host
";

const FUNCTIONS: &str = "
Functions: ts(UNIX_NS) is a time as text; quantile(COLUMN, 0.99) is that of numbers. Times are nanoseconds since 1970, UTC.
";
