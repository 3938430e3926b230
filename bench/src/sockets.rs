//! `bench sockets`: the cost of a poll of the socket collector, in a running daemon, on real sockets.

mod population;
mod report;

pub(crate) use population::{HoldArgs, Namespace, hold};

use crate::machine::Machine;
use crate::process::{cpu_ns, resident};
use anyhow::Context;
use population::Population;
use report::{Case, Report};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use sys::clock::thread_cpu_ns;
use sys::namespace::OpenNamespace;
use sys::netlink::{DUMP_BUFFER_BYTES, Protocol, Socket};
use wire::inet_diag::{Extensions, Request, States};
use wire::netlink::{Messages, NLMSG_DONE};

/// Measures polls of the socket collector: CPU, time and memory at 10,000, 50,000 and 100,000 sockets, and over 1,000
/// namespaces. Needs root.
#[derive(clap::Args)]
pub(crate) struct SocketsArgs {
    /// Numbers of sockets in one namespace.
    #[arg(long, value_delimiter = ',', default_value = "10000,50000,100000")]
    sockets: Vec<usize>,
    /// Number of namespaces with three sockets each; 0 leaves them out.
    #[arg(long, default_value_t = 1_000)]
    namespaces: usize,
    /// Polls that are measured, after four that warm up.
    #[arg(long, default_value_t = 20)]
    polls: u64,
    /// The weir binary.
    #[arg(long, default_value = "target/release/weir")]
    weir: PathBuf,
    /// Folder for README.md and raw.json of this run.
    #[arg(long)]
    save: Option<PathBuf>,
}

pub(crate) fn run(args: &SocketsArgs) -> anyhow::Result<()> {
    let weir = args.weir.canonicalize().with_context(|| {
        format!("{} is missing: cargo build --release -p weir", args.weir.display())
    })?;

    let mut cases = Vec::new();
    for &count in &args.sockets {
        crate::say(&format!("{count} sockets"))?;
        let namespace = Namespace::new("many")?;
        let population = Population::in_one(&namespace, count)?;
        for fields in [Fields::Default, Fields::All] {
            cases.extend(beside_least_work(&weir, &namespace, count, fields, args.polls)?);
        }
        cases.push(ss(&namespace, count)?);
        drop(population);
    }

    if args.namespaces > 0 {
        crate::say(&format!("{} namespaces", args.namespaces))?;
        let population = Population::in_namespaces(args.namespaces)?;
        let daemon = Daemon::start(&weir, None, "all", "false", Fields::Default)?;
        let sockets = args.namespaces as u64 * 3;
        let label = format!("{} namespaces with 3 idle sockets each", args.namespaces);
        cases.push(measure(&daemon, label, sockets, args.polls)?);
        let label = format!("{} namespaces with 3 sockets each that send", args.namespaces);
        cases.push(population.sending(|| measure(&daemon, label, sockets, args.polls))?);
        drop(population);
    }

    let report = Report { machine: Machine::read(), cases };
    report.print()?;
    match &args.save {
        Some(folder) => report.save(folder),
        None => Ok(()),
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The fields of the records, and thereby the attributes that the kernel is asked for.
#[derive(Clone, Copy)]
enum Fields {
    Default,
    All,
}

impl Fields {
    /// The line in the configuration.
    fn line(self) -> &'static str {
        match self {
            Fields::Default => "",
            Fields::All => "fields = [\"all\"]\n",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Fields::Default => "default fields",
            Fields::All => "all fields",
        }
    }

    fn extensions(self) -> Extensions {
        match self {
            Fields::Default => {
                Extensions::INFO.with(Extensions::CONGESTION).with(Extensions::MEMORY)
            }
            Fields::All => Extensions::ALL,
        }
    }
}

/// Measures a daemon's polls and the least work of such a poll: half of its samples before them, half after.
fn beside_least_work(
    weir: &Path,
    namespace: &Namespace,
    sockets: usize,
    fields: Fields,
    polls: u64,
) -> anyhow::Result<Vec<Case>> {
    let mut samples = least_work(namespace, fields, polls.div_ceil(2))?;

    let mut cases = Vec::new();
    for (skips, label) in [("false", "every socket encoded"), ("true", "unchanged ones left out")] {
        let daemon = Daemon::start(weir, Some(namespace.name()), "own", skips, fields)?;
        let label = format!("{sockets} sockets, {}, {label}", fields.label());
        cases.push(measure(&daemon, label, sockets as u64, polls)?);
    }

    samples.extend(least_work(namespace, fields, polls.div_ceil(2))?);
    let mean =
        |of: &dyn Fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / samples.len() as f64;
    let least_ms = mean(&|sample| sample.cpu_ms);
    for case in &mut cases {
        case.least_ms = Some(least_ms);
    }

    cases.push(Case {
        label: format!("{sockets} sockets, {}, the answer read and thrown away", fields.label()),
        sockets: sockets as f64,
        namespaces: 1,
        polls: samples.len() as u64,
        cpu_ms: least_ms,
        walk_ms: mean(&|sample| sample.elapsed_ms),
        ..Case::default()
    });
    Ok(cases)
}

/// A running `weir run` with a collector whose records are encoded as protobuf and discarded.
struct Daemon {
    child: Child,
    namespace: Option<String>,
    weir: PathBuf,
    port: u16,
    folder: PathBuf,
}

impl Daemon {
    fn start(
        weir: &Path,
        namespace: Option<&str>,
        scope: &str,
        skips: &str,
        fields: Fields,
    ) -> anyhow::Result<Daemon> {
        let folder = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let port = 19_464;
        let file = folder.join("weir.toml");
        let fields = fields.line();

        let config = format!(
            "[admin]\nlisten = \"127.0.0.1:{port}\"\n\n[sockets]\ninterval = \"500ms\"\njitter = \"0s\"\nnamespaces = \"{scope}\"\n\
             states = [\"connected\", \"listening\"]\nlisten_every = 1\nskip_unchanged = {skips}\nkeyframe_every = 100000\n{fields}\n[[sink]]\nfrom = [\"sockets\"]\nname = \"nowhere\"\nto = \"null:\"\nformat = \"protobuf\"\n"
        );
        std::fs::write(&file, config)?;

        let mut command = within(namespace, weir);
        command.args(["run", "-c"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(folder.join("log"))?);
        let child = command.spawn().context("starting weir")?;

        let namespace = namespace.map(str::to_owned);
        Ok(Daemon { child, namespace, weir: weir.to_owned(), port, folder })
    }

    /// The poll hop of the ledger.
    fn poll_hop(&self) -> anyhow::Result<serde_json::Value> {
        let url = format!("http://127.0.0.1:{}", self.port);
        let output = within(self.namespace.as_deref(), &self.weir)
            .args(["ledger", "--json", "--admin", &url])
            .output()?;
        let ledger: serde_json::Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        let hops = ledger["hops"].as_array().context("no hops")?;
        hops.iter().find(|hop| hop["hop"] == "poll").cloned().context("no poll hop")
    }

    fn wait_for_polls(&self, polls: u64) -> anyhow::Result<serde_json::Value> {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            match self.poll_hop() {
                Ok(hop) if event(&hop, "polls") >= polls => return Ok(hop),
                Err(error) if Instant::now() > deadline => return Err(error),
                _ => anyhow::ensure!(Instant::now() < deadline, "the daemon does not poll"),
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A command in a namespace. `ip netns exec` replaces itself with the program, so the child's id is the program's.
fn within(namespace: Option<&str>, program: &Path) -> Command {
    match namespace {
        Some(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

fn event(hop: &serde_json::Value, name: &str) -> u64 {
    number(&hop["events"][name])
}

fn count(hop: &serde_json::Value, what: &str) -> u64 {
    number(&hop[what]["count"])
}

/// The ledger's JSON has numbers as strings; values of 0 are left out.
fn number(value: &serde_json::Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Waits while the daemon polls, and divides the cost by the number of polls.
fn measure(daemon: &Daemon, label: String, expected: u64, polls: u64) -> anyhow::Result<Case> {
    let pid = daemon.child.id();

    // The collector must see a namespace twice before it knows that nothing happens there.
    let first = daemon.wait_for_polls(4)?;
    let cpu_before_ns = cpu_ns(pid)?;
    // Requests for the ledger cost the daemon time that counts toward the polls, so wait until the polls should be over.
    std::thread::sleep(POLL_INTERVAL * u32::try_from(polls)?);
    let last = daemon.wait_for_polls(event(&first, "polls") + polls)?;
    let cpu_after_ns = cpu_ns(pid)?;

    let done = event(&last, "polls") - event(&first, "polls");
    let per_poll =
        |of: &dyn Fn(&serde_json::Value) -> u64| (of(&last) - of(&first)) as f64 / done as f64;
    let phase_ms = |name: &str| per_poll(&|hop| event(hop, &format!("{name}_us"))) / 1e3;
    let visited = per_poll(&|hop| count(hop, "received"));

    // The ledger may be read in the middle of a poll, and then includes a part of it.
    let polls_seen = visited * done as f64 / expected as f64;
    anyhow::ensure!(
        polls_seen > done as f64 - 1.0,
        "{label}: {visited} of {expected} sockets a poll"
    );

    Ok(Case {
        label,
        sockets: visited,
        namespaces: number(&last["gauges"]["namespaces"]),
        polls: done,
        cpu_ms: (cpu_after_ns - cpu_before_ns) as f64 / 1e6 / done as f64,
        discover_ms: phase_ms("discover"),
        open_ms: phase_ms("open"),
        walk_ms: phase_ms("walk"),
        records_ms: phase_ms("records"),
        resident_kib: resident(pid)?.peak_kib,
        least_ms: None,
    })
}

/// One dump.
struct Sample {
    cpu_ms: f64,
    elapsed_ms: f64,
}

/// Measures the kernel's part alone: sends the same request, reads the answer into one buffer, and discards it.
fn least_work(namespace: &Namespace, fields: Fields, dumps: u64) -> anyhow::Result<Vec<Sample>> {
    let open = OpenNamespace::open(format!("/run/netns/{}", namespace.name()).as_ref())?;

    let mut request = Vec::new();
    Request {
        states: States::CONNECTED | States::LISTENING,
        extensions: fields.extensions(),
        ..Request::dump(1)
    }
    .encode(&mut request);

    let mut buffer = vec![0; DUMP_BUFFER_BYTES];
    let mut samples = Vec::new();
    for _ in 0..dumps {
        // At the interval of the daemon's polls, so that the processor's caches are equally cold.
        std::thread::sleep(POLL_INTERVAL);
        let socket =
            open.run(|| Socket::open(Protocol::SockDiag))?.map_err(std::io::Error::from)?;

        let (began, cpu_ns) = (Instant::now(), thread_cpu_ns());
        socket.send(&request).map_err(std::io::Error::from)?;
        while !is_done(socket.receive(&mut buffer).map_err(std::io::Error::from)?.bytes) {}
        samples.push(Sample {
            cpu_ms: (thread_cpu_ns() - cpu_ns) as f64 / 1e6,
            elapsed_ms: began.elapsed().as_secs_f64() * 1e3,
        });
    }
    Ok(samples)
}

/// Whether a datagram of a dump contains its end.
fn is_done(datagram: &[u8]) -> bool {
    Messages::new(datagram).flatten().any(|message| message.kind == NLMSG_DONE)
}

/// Measures `ss` on the same sockets, with its text output discarded.
fn ss(namespace: &Namespace, sockets: usize) -> anyhow::Result<Case> {
    let mut times_ms = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let status = within(Some(namespace.name()), Path::new("ss"))
            .arg("-tinmHO")
            .stdout(Stdio::null())
            .status()
            .context("running ss")?;
        anyhow::ensure!(status.success(), "ss failed");
        times_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }

    times_ms.sort_by(f64::total_cmp);
    Ok(Case {
        label: format!("{sockets} sockets, `ss -tinmHO` (elapsed, start included)"),
        sockets: sockets as f64,
        namespaces: 1,
        polls: 5,
        cpu_ms: times_ms[2],
        ..Case::default()
    })
}
