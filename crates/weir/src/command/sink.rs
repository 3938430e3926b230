//! `weir sink`: checks that a destination takes what a sink would send.

use crate::command::run::load;
use crate::exit::{self, Failure};
use crate::screen;
use config::{Config, Opening, SinkConfig, Source};
use ledger::Trouble;
use record::{
    Chunk, ChunkBuilder, DatagramRecord, FieldSet, RecordKind, SCHEMA_VERSION, SocketRecord, Tags,
};
use serde_json::json;
use sink::{HostChanges, Remote, Step};
use sockets::attribution::{Host, HostOptions};
use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use text::units::parse_duration;
use text::{Tint, short_time};

/// Test a sink of a configuration file
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Check(CheckArgs),
}

/// Connect as the sink would, send one test record, and check that it arrived
///
/// Needs no daemon, and does not disturb one that runs. The record has the tag weir_check; a store takes it back.
/// Exits with 69 if the destination does not take it, 77 if a permission is missing, 78 if the configuration is wrong.
#[derive(clap::Args)]
struct CheckArgs {
    /// The sink's name; not needed if there is only one
    name: Option<String>,
    /// The configuration; - is standard input
    #[arg(short, long, value_name = "FILE", env = "WEIR_CONFIG", default_value = "weir.toml")]
    config: PathBuf,
    /// Longest time for each step
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Action::Check(args) = &args.action;
    let config = load(&args.config)?;
    let sink = named(&config, args.name.as_deref())?;
    if matches!(sink.to, config::Sink::Stdout(_)) {
        return Err(Failure::Usage.error(format!(
            "sink {} writes to standard output, which is where this result goes: there is nothing to check",
            sink.name
        )));
    }

    let id = format!("{:016x}", RandomState::new().build_hasher().finish());
    let steps = check(&config, sink, &id, args.timeout)?;
    let failed = steps.iter().find_map(|step| step.result.as_ref().err());
    let to = sink.to.to_string();
    let result = match args.json {
        true => as_json(sink, &id, &steps),
        false => {
            let mut text = as_text(&sink.name, &to, &id, &steps);
            if failed.is_none() && keeps_what_it_gets(&sink.to) {
                text += &format!("  stays there: the row with weir_check = {id}\n");
            }
            screen::for_people(&io::stdout(), &text, tint)
        }
    };
    let code = failed.map_or(ExitCode::SUCCESS, |trouble| failure_of(trouble).code());
    exit::print_and_end(&result, code)
}

/// Whether the row of a check stays at a destination: a store gives it back, and the others that do not keep it have no place for it.
fn keeps_what_it_gets(to: &config::Sink) -> bool {
    !matches!(to, config::Sink::Store(_) | config::Sink::Null(_))
}

/// The sink with this name, or the only one.
fn named<'c>(config: &'c Config, name: Option<&str>) -> anyhow::Result<&'c SinkConfig> {
    let names: Vec<_> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
    let found = match (name, config.sinks.as_slice()) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (Some(name), all) => all.iter().find(|sink| sink.name == name),
    };
    found.ok_or_else(|| {
        let what = match (name, names.is_empty()) {
            (_, true) => "the configuration has no [[sink]]. Fix: add one; `weir config example` shows several".to_owned(),
            (None, false) => format!("there are several sinks. Fix: weir sink check {}", names.join(", or ")),
            (Some(name), false) => {
                format!("there is no sink {name:?}. Fix: weir sink check {}", names.join(", or "))
            }
        };
        Failure::Usage.error(what)
    })
}

fn check(
    config: &Config,
    sink: &SinkConfig,
    id: &str,
    timeout: Duration,
) -> anyhow::Result<Vec<Step>> {
    let takes_records = sink.from.contains(&Source::Sockets);
    let sockets = config.sockets.as_ref().filter(|_| takes_records);
    let remote = Remote::default();
    if let Some(receiver) = sink.to.receiver() {
        let known = config::resolve(receiver).map_err(|error| {
            let command = "getent hosts";
            let host = receiver.to_string();
            Failure::Unavailable.error(format!("{}: {host}: {error}. Fix: {command}", sink.name))
        })?;
        known.first().into_iter().for_each(|addr| remote.set(*addr));
    }

    let fields = sockets.map(|sockets| sockets.fields_of(sink).with(&identity()));
    let takes_flows = sink.from.contains(&Source::Flows);
    let (name, durability) = (sink.name.clone(), sink.durability());
    let host = HostChanges::default();
    let opening = Opening { name, fields, takes_flows, ledger: None, durability, remote, host };
    let connector = sink.to.open_to_check(&opening)?;
    Ok(sink::check(connector, test_row(config, sink, id), timeout))
}

/// The identity fields, so that a test record is recognizable whatever the sink's fields are.
fn identity() -> FieldSet {
    FieldSet::named("identity").unwrap_or(FieldSet::ALL)
}

/// A row that says it is a test.
fn test_row(config: &Config, sink: &SinkConfig, id: &str) -> Chunk {
    let about = config.sockets.as_ref();
    let host = Host::read(HostOptions {
        name: about.and_then(|one| one.host.clone()),
        host_id: about.and_then(|one| one.host_id.clone()),
        tags: Vec::new(),
    });
    let tags = [("weir_check", id)];
    let stream = (RandomState::new().build_hasher().finish() >> 1).max(1);
    let now = sys::clock::realtime_ns();

    let mut builder = ChunkBuilder::new(stream, [0; 16]);
    if sink.from.contains(&Source::Sockets) {
        builder.record(&SocketRecord {
            record_kind: Some(RecordKind::POLL),
            schema_version: Some(SCHEMA_VERSION),
            time_unix_ns: Some(now),
            run_id: Some(stream),
            sequence: Some(0),
            host: host.name(),
            host_id: host.host_id(),
            boot_id: host.boot_id(),
            tags: Some(Tags::new(&tags)),
            ..SocketRecord::default()
        });
    } else {
        let payload = format!("weir sink check {id}");
        let record = DatagramRecord {
            time_unix_ns: Some(now),
            run_id: Some(stream),
            sequence: Some(0),
            host: host.name(),
            host_id: host.host_id(),
            tags: Some(Tags::new(&tags)),
            payload: Some(payload.as_bytes()),
            ..DatagramRecord::new()
        };
        builder.datagram(&record, 0, now);
    }
    builder.cut(None).expect("a row was added")
}

/// The tint of a step's line.
fn tint(line: &str) -> Tint {
    match line.split_whitespace().nth(1) {
        Some("ok") => Tint::Good,
        Some("FAILED") => Tint::Alarm,
        _ => Tint::Plain,
    }
}

fn as_text(name: &str, to: &str, id: &str, steps: &[Step]) -> String {
    let mut out = format!("sink {name}: {to} (weir_check = {id})\n");
    for Step { what, took, result } in steps {
        let took = short_time(took.as_micros() as u64);
        let line = match result {
            Ok(says) => format!("  {what:<10} ok      {took:>10}  {says}\n"),
            Err(Trouble { what: says, fix }) => {
                format!("  {what:<10} FAILED  {took:>10}  {says}\n  Fix: {fix}\n")
            }
        };
        out.write_str(&line).expect("writing to a string does not fail");
    }
    out
}

fn as_json(sink: &SinkConfig, id: &str, steps: &[Step]) -> String {
    let step = |Step { what, took, result }: &Step| {
        let (says, fix) = match result {
            Ok(says) => (says, None),
            Err(trouble) => (&trouble.what, Some(&trouble.fix)),
        };
        json!({ "step": what, "ok": result.is_ok(), "us": took.as_micros() as u64, "says": says, "fix": fix })
    };
    let is_ok = steps.iter().all(|step| step.result.is_ok());
    let steps: Vec<_> = steps.iter().map(step).collect();
    let result = json!({
        "sink": sink.name,
        "to": sink.to.to_string(),
        "weir_check": id,
        "ok": is_ok,
        "steps": steps,
    });
    format!("{result:#}\n")
}

/// The exit code: a file or folder that this user may not use, or anything else.
fn failure_of(trouble: &Trouble) -> Failure {
    match trouble.what.contains("Permission denied") {
        true => Failure::Permission,
        false => Failure::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_screens() {
        let step = |what, ms, result| Step { what, took: Duration::from_millis(ms), result };
        let steps = [
            step("encode", 1, Ok("1 record in 412 bytes of weir.v1.SocketRecord".to_owned())),
            step("connect", 12, Ok("3 brokers; the topic has 12 partitions".to_owned())),
            step(
                "deliver",
                30_000,
                Err(Trouble {
                    what: "kafka://broker-1.eu-west.example.com:9092: the broker did not answer within 30 s".into(),
                    fix: "see that the broker is up and that its advertised listeners can be reached from here".into(),
                }),
            ),
        ];
        let to = "kafka://broker-1.eu-west.example.com:9092/telemetry.sockets";
        crate::screen::check("sink-check", |_| as_text("archive", to, "0123456789abcdef", &steps));
    }
}
