//! `bench fleet`: what the records of many hosts cost in bytes, messages, parts and processor time, and what 20,000 hosts need
//! according to these figures.

mod needs;
mod play;
mod report;
mod traffic;

pub(crate) use traffic::{TrafficArgs, traffic};

use crate::machine::Machine;
use crate::sockets::Namespace;
use anyhow::Context;
use play::{Collected, ENCODINGS};
use report::{Brokered, Report, Sizes, Stored};
use serde::de::DeserializeOwned;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Measures what the records of many hosts take in every encoding, on a Kafka broker and in ClickHouse, and works out what 20,000
/// hosts need. Needs root, zstd(1) and lz4(1), and `make tools`.
#[derive(clap::Args)]
pub(crate) struct FleetArgs {
    /// Hosts to play; each is a network namespace with traffic of its own.
    #[arg(long, default_value_t = 24)]
    hosts: u64,
    /// Connections of a host; each is two sockets.
    #[arg(long, default_value_t = 200)]
    connections: usize,
    /// Polls to collect, ten seconds apart.
    #[arg(long, default_value_t = 12)]
    polls: u32,
    /// The weir binary.
    #[arg(long, default_value = "target/release/weir")]
    weir: PathBuf,
    /// Folder of the test tools' programs (`make tools`).
    #[arg(long, default_value = "target/tools/bin")]
    tools: PathBuf,
    /// Folder for README.md and raw.json of this run.
    #[arg(long)]
    save: Option<PathBuf>,
}

const POLL_INTERVAL: Duration = Duration::from_secs(10);
const BROKER_PORT: u16 = 19_092;

pub(crate) fn run(args: &FleetArgs) -> anyhow::Result<()> {
    let weir =
        args.weir.canonicalize().with_context(|| format!("{} is missing", args.weir.display()))?;
    let tools = args.tools.canonicalize().context("the test tools are missing: make tools")?;
    let (machine, folder) = (Machine::read(), Folder::new()?);

    let file = collect(args, &weir, &folder.0)?;
    let batches = folder.0.join("batches");
    fs::create_dir(&batches)?;
    let collected = play::play(&fs::read(file)?, &batches)?;
    anyhow::ensure!(collected.polls > 0 && collected.records > 0, "too few polls: {collected:?}");

    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/fleet");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let stored: Stored = answer(
        Command::new(tools.join("weir-clickhouse"))
            .arg(scripts.join("store.py"))
            .arg(root)
            .arg(&batches),
    )?;
    let brokered: Vec<Brokered> = answer(
        Command::new(tools.join("weir-python"))
            .arg(scripts.join("broker.py"))
            .arg(tools.join("weir-kafka"))
            .arg(&batches)
            .arg(BROKER_PORT.to_string()),
    )?;

    let report = Report {
        machine,
        connections_per_host: args.connections,
        sizes: sizes(&batches, &collected)?,
        parquet_bytes: fs::metadata(batches.join("all.parquet"))?.len() as f64
            / collected.records as f64,
        collected,
        stored,
        brokered,
    };
    report.print()?;
    args.save.as_deref().map_or(Ok(()), |folder| report.save(folder))
}

/// A folder for temporary files, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Folder> {
        let path = std::env::temp_dir().join(format!("weir-bench-fleet-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs one collector over all hosts for the requested number of polls, and returns its file.
fn collect(args: &FleetArgs, weir: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let mut hosts = Vec::new();
    for number in 0..args.hosts {
        let namespace = Namespace::new(&format!("host-{number}"))?;
        // Makes every address in 10.0.0.0/8 local to this host.
        let local = ["-n", namespace.name(), "route", "add", "local", "10.0.0.0/8", "dev", "lo"];
        anyhow::ensure!(
            Command::new("ip").args(local).status()?.success(),
            "no route in a namespace"
        );

        let traffic = Command::new("ip")
            .args(["netns", "exec", namespace.name()])
            .arg(std::env::current_exe()?)
            .args(["traffic", &args.connections.to_string(), &number.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut traffic = Running(traffic);
        traffic
            .0
            .stdout
            .as_mut()
            .context("no pipe")?
            .read_exact(&mut [0])
            .context("a host has no traffic")?;
        hosts.push((traffic, namespace));
    }

    let file = folder.join("collected.pb");
    let names: Vec<String> =
        hosts.iter().map(|(_, namespace)| format!("{:?}", namespace.name())).collect();
    let config = format!(
        "[admin]\nlisten = \"off\"\n[sockets]\ninterval = \"{}s\"\njitter = \"0s\"\nnamespaces = [{}]\n\
         [[sink]]\nfrom = [\"sockets\"]\nto = \"file:{}\"\n",
        POLL_INTERVAL.as_secs(),
        names.join(", "),
        file.display(),
    );
    fs::write(folder.join("weir.toml"), config)?;

    let mut command = Command::new(weir);
    command
        .args(["run", "-c"])
        .arg(folder.join("weir.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut collector = Running(command.stderr(fs::File::create(folder.join("log"))?).spawn()?);

    // The first poll is not used, and the last one must have ended.
    let end = Instant::now() + POLL_INTERVAL * (args.polls + 1) + POLL_INTERVAL / 2;
    while Instant::now() < end {
        let ended = collector.0.try_wait()?;
        anyhow::ensure!(ended.is_none(), "{}", fs::read_to_string(folder.join("log"))?);
        std::thread::sleep(Duration::from_millis(200));
    }

    let id = collector.0.id().to_string();
    anyhow::ensure!(Command::new("kill").args(["-s", "TERM", &id]).status()?.success());
    anyhow::ensure!(collector.0.wait()?.success(), "{}", fs::read_to_string(folder.join("log"))?);
    Ok(file)
}

/// The JSON that a script prints to standard output.
fn answer<T: DeserializeOwned>(command: &mut Command) -> anyhow::Result<T> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("{command:?}"))?;
    anyhow::ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Bytes per record, by encoding and compression; one host's poll is compressed at a time.
fn sizes(batches: &Path, collected: &Collected) -> anyhow::Result<Vec<Sizes>> {
    let mut extensions: Vec<(String, &str)> = ENCODINGS
        .iter()
        .map(|encoding| (encoding.name().to_owned(), encoding.extension()))
        .collect();
    extensions.push(("RowBinary".to_owned(), "rowbinary"));

    let per_record = |bytes: u64| bytes as f64 / collected.records as f64;
    let mut sizes = Vec::new();
    for (encoding, extension) in extensions {
        sizes.push(Sizes {
            encoding,
            none: per_record(sum(batches, extension)?),
            lz4: per_record(compressed(batches, extension, "lz4", &["-q", "-m", "-1"])?),
            zstd_1: per_record(compressed(batches, extension, "zst", &["-q", "-1"])?),
            zstd_3: per_record(compressed(batches, extension, "zst", &["-q", "-3"])?),
        });
    }
    Ok(sizes)
}

/// Total size of the files with this extension.
fn sum(folder: &Path, extension: &str) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|found| found == extension) {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// Total size of the same files after compression, each on its own.
fn compressed(folder: &Path, extension: &str, to: &str, args: &[&str]) -> anyhow::Result<u64> {
    let program = if to == "lz4" { "lz4" } else { "zstd" };
    let files: Vec<PathBuf> = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    let status = Command::new(program)
        .args(args)
        .args(&files)
        .status()
        .with_context(|| format!("running {program}"))?;
    anyhow::ensure!(status.success(), "{program} failed");

    let bytes = sum(folder, to)?;
    for file in &files {
        fs::remove_file(file.with_extension(format!("{extension}.{to}")))?;
    }
    Ok(bytes)
}
