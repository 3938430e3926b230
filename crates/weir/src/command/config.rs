//! `weir config`: checks a file, shows what it means, and prints an example with every key.

mod inputs;

use crate::allowed::users;
use crate::command::doctor::{self, Host};
use crate::command::run::unreadable;
use crate::exit::{self, Failure};
use config::{
    self, Budget, Config, ConfigError, Finding, Input, Origins, Overrides, ServiceMemory, Severity,
    Sources,
};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use text::{plural, size};

/// Check, show or write a configuration file
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Check(CheckArgs),
    Show(ShowArgs),
    /// Print a commented file with every key; it passes `weir config check`
    Example,
}

/// Check a file: report all its mistakes at once, and what it needs from the host
///
/// Exits with 1 if the file has mistakes. Changes nothing, and does not disturb a running relay.
#[derive(clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    which: Which,
    /// Check this host too: names, paths, interfaces, privileges, limits
    #[arg(long)]
    environment: bool,
    /// Print the memory limits that a service with this file needs, as a drop-in for its unit (weir.service unless another is named)
    #[arg(long, value_name = "UNIT", num_args = 0..=1, require_equals = true, default_missing_value = "weir.service", conflicts_with_all = ["json", "environment"])]
    systemd: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Print a file as it is understood: every key, its value, and where the value came from
#[derive(clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    which: Which,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// A complete file with every key, commented.
const EXAMPLE: &str = include_str!("config/example.toml");

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        Action::Check(args) => check(args),
        Action::Show(args) => show(args),
        Action::Example => exit::print_and_end(EXAMPLE, ExitCode::SUCCESS),
    }
}

/// Which file is looked at.
#[derive(clap::Args)]
struct Which {
    /// The file, or a folder whose *.toml files count together; - is standard input [default: weir.toml]
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The file, as for the other commands [env: WEIR_CONFIG]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Which {
    /// Reads the file, or the files of the folder. `failure` is the exit code if it cannot be a configuration.
    fn read(&self, failure: Failure) -> anyhow::Result<Sources> {
        let named = self.file.as_ref().or(self.config.as_ref()).cloned();
        // Not through clap, which would report a conflict between the variable and the file on the command line.
        let named = named.or_else(|| std::env::var_os("WEIR_CONFIG").map(PathBuf::from));
        let file = named.unwrap_or_else(|| "weir.toml".into());
        Sources::read(&file).map_err(|error| unreadable(error, failure))
    }
}

/// The configuration as a daemon started from here would have it, or every mistake.
fn effective(sources: &Sources) -> Result<(Config, Origins), Vec<ConfigError>> {
    let variable = |name: &str| std::env::var(name).ok();
    let file = Config::parse_sources(sources, &variable);
    let environment = Overrides::from_environment(variable);
    match (file, environment) {
        (Ok((config, origins)), Ok(overrides)) => {
            Ok((config.overridden_by(&overrides), origins.overridden_by(&overrides)))
        }
        (file, environment) => {
            let errors = [file.err(), environment.err()];
            Err(errors.into_iter().flatten().flatten().collect())
        }
    }
}

fn wrong(name: &str, errors: &[ConfigError], failure: Failure) -> anyhow::Error {
    let count = match errors.len() {
        1 => "one mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    failure.error(format!("{count} in {name}:\n{}", config::list(errors)))
}

fn show(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let sources = args.which.read(Failure::Config)?;
    let (config, origins) =
        effective(&sources).map_err(|errors| wrong(sources.name(), &errors, Failure::Config))?;
    let result = if args.json {
        format!("{:#}\n", config.to_json(&origins))
    } else {
        config.to_toml(Some(&origins))
    };
    exit::print_and_end(&result, ExitCode::SUCCESS)
}

fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let sources = args.which.read(Failure::CheckFailed)?;
    let name = sources.name();
    let config = match effective(&sources) {
        Ok((config, _)) => config,
        Err(errors) if args.json => {
            let result = json!({ "file": name, "errors": errors });
            return exit::print_and_end(&format!("{result:#}\n"), Failure::CheckFailed.code());
        }
        Err(errors) => return Err(wrong(name, &errors, Failure::CheckFailed)),
    };

    if let Some(unit) = &args.systemd {
        return exit::print_and_end(&drop_in(unit, &config.budget()), ExitCode::SUCCESS);
    }

    let host = Host::this();
    let findings = match args.environment {
        true => examine(&host, &config),
        // The file may be for another host.
        false => [inputs::examine(&config, Severity::Warning), config.examine_secrets()].concat(),
    };
    let fails = findings.iter().any(|finding| finding.severity == Severity::Error);

    let result = if args.json {
        let budget = budget_as_json(&config.budget());
        let result = json!({ "file": name, "errors": [], "memory": budget, "findings": findings });
        format!("{result:#}\n")
    } else {
        let verdict = verdict(name, &config, &findings, host.sysctl("net.core.rmem_max"));
        doctor::for_people(&(verdict + &doctor::text(&findings)))
    };
    let code = if fails { Failure::CheckFailed.code() } else { ExitCode::SUCCESS };
    exit::print_and_end(&result, code)
}

/// The memory limits of a service with this budget, as a drop-in for its unit.
fn drop_in(unit: &str, budget: &Budget) -> String {
    let ServiceMemory { high_bytes, max_bytes } = ServiceMemory::of(budget);
    format!(
        "# Memory limits of {unit}. Its configuration needs at most {} of the process and {} of the kernel; `weir config check`\n\
         # shows the parts. When the configuration has changed, install limits for it:\n\
         #\n\
         #   sudo mkdir -p /etc/systemd/system/{unit}.d\n\
         #   weir config check --systemd={unit} FILE | sudo tee /etc/systemd/system/{unit}.d/10-memory.conf\n\
         #   sudo systemctl daemon-reload\n\
         [Service]\n\
         # Above MemoryHigh the kernel slows the service down, above MemoryMax it kills it.\n\
         MemoryHigh={}M\n\
         MemoryMax={}M\n\
         # When the host runs out of memory, the kernel kills others first. That is right only for a service with a limit.\n\
         OOMScoreAdjust=-500\n",
        size(budget.process_bytes()),
        size(budget.kernel_bytes()),
        high_bytes >> 20,
        max_bytes >> 20,
    )
}

/// All findings on this host, worst first.
fn examine(host: &Host, config: &Config) -> Vec<Finding> {
    let mut findings = config.examine_host();
    findings.extend(inputs::examine(config, Severity::Error));
    findings.extend(config.examine_secrets());
    if let Err(error) = users(&config.admin.socket_users) {
        let finding = Finding::new(Severity::Error, "admin socket", error.to_string());
        let why = "the daemon looks its users up when it starts";
        findings.push(finding.because(why));
    }
    findings.extend(doctor::examine(host, Some(config)));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// What a valid file means for the host.
fn verdict(name: &str, config: &Config, findings: &[Finding], rmem_max: Option<u64>) -> String {
    let mut out = String::new();
    let targets: usize = config.listeners.iter().map(|listener| listener.targets.len()).sum();
    let budget = config.budget();
    let mut line = |text: std::fmt::Arguments<'_>| {
        writeln!(out, "{text}").expect("writing to a string does not fail");
    };

    let mut parts = Vec::new();
    if !config.listeners.is_empty() {
        parts.push(plural(config.listeners.len() as u64, "listener", "listeners"));
        parts.push(plural(targets as u64, "target", "targets"));
    }
    if config.sockets.is_some() {
        parts.push("the socket collector".to_owned());
    }
    if !config.sinks.is_empty() {
        parts.push(plural(config.sinks.len() as u64, "sink", "sinks"));
    }
    let last = parts.pop().unwrap_or_default();
    let others = if parts.is_empty() { String::new() } else { parts.join(", ") + " and " };
    let is_input = |finding: &&Finding| {
        config
            .inputs()
            .iter()
            .any(|input| input.place() == finding.what && finding.why == Input::WHY)
    };
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let unusable = findings.iter().filter(is_input).count();
    let word = match (errors, unusable) {
        (0, 0) => "correct".to_owned(),
        (0, 1) => "no mistake in it, but one file that it names cannot be used here".to_owned(),
        (0, count) => {
            format!("no mistake in it, but {count} files that it names cannot be used here")
        }
        (1, _) => "no mistake in it, but it cannot run here: one error".to_owned(),
        (count, _) => format!("no mistake in it, but it cannot run here: {count} errors"),
    };
    line(format_args!("{name}: {word}; {others}{last}"));

    line(format_args!(
        "memory: at most {} of the process and {} of the kernel",
        size(budget.process_bytes()),
        size(budget.kernel_bytes())
    ));
    if budget.disk_bytes() > 0 {
        line(format_args!("disk: at most {} of spools", size(budget.disk_bytes())));
    }
    line(format_args!("{}", shares(&budget).trim_end()));

    let largest = budget.listeners.iter().map(|listener| listener.kernel_receive_bytes);
    let largest = largest.chain(budget.sockets.iter().map(|one| one.kernel_receive_bytes)).max();
    // The kernel clamps the requested size and then doubles it (net/core/sock.c).
    let needed = largest.unwrap_or(0).div_ceil(2);
    match rmem_max {
        Some(max) if max >= needed => {
            line(format_args!(
                "sysctl: net.core.rmem_max is {max}, enough for the receive buffers"
            ));
        }
        Some(max) => line(format_args!(
            "sysctl: without CAP_NET_ADMIN the receive buffers need net.core.rmem_max = {needed} and it is {max}. Fix: sudo sysctl -w \
             net.core.rmem_max={needed}"
        )),
        None => line(format_args!(
            "sysctl: without CAP_NET_ADMIN the receive buffers need net.core.rmem_max = {needed}"
        )),
    }
    out
}

/// One line for each user of memory.
fn shares(budget: &Budget) -> String {
    let mut out = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        writeln!(out, "{text}").expect("writing to a string does not fail");
    };
    for listener in &budget.listeners {
        line(format_args!(
            "  {}: ring {} + descriptors {}{} + receiving {} + files {}{}; kernel: receive buffer {} + send buffers {}",
            listener.name,
            size(listener.ring_bytes),
            size(listener.descriptor_bytes),
            match listener.member_bytes {
                0 => String::new(),
                bytes => format!(" + rings of sockets {}", size(bytes)),
            },
            size(listener.batch_bytes),
            size(listener.file_bytes),
            match listener.link_bytes {
                0 => String::new(),
                bytes => format!(" + links {}", size(bytes)),
            },
            size(listener.kernel_receive_bytes),
            size(listener.kernel_send_bytes)
        ));
    }
    if let Some(sockets) = &budget.sockets {
        line(format_args!(
            "  sockets: table {} + held closes {} + cgroups {} + answers {}; kernel: event buffer {}",
            size(sockets.table_bytes),
            size(sockets.held_bytes),
            size(sockets.cgroup_bytes),
            size(sockets.answer_bytes),
            size(sockets.kernel_receive_bytes)
        ));
    }
    if let Some(admin) = &budget.admin {
        line(format_args!(
            "  admin: followers {} + questions {}",
            size(admin.followers_bytes),
            size(admin.questions_bytes)
        ));
    }
    if let Some(flows) = &budget.flows {
        line(format_args!("  flows: agents and flows {}", size(flows.figures_bytes)));
    }

    for sink in &budget.sinks {
        let disk = match sink.disk_bytes {
            0 => String::new(),
            bytes => format!("; disk: spool {}", size(bytes)),
        };
        line(format_args!(
            "  {}: queue {} + gathering {} + batches {}{disk}",
            sink.name,
            size(sink.queue_bytes),
            size(sink.gather_bytes),
            size(sink.batch_bytes)
        ));
    }
    out
}

fn budget_as_json(budget: &Budget) -> serde_json::Value {
    let ServiceMemory { high_bytes, max_bytes } = ServiceMemory::of(budget);
    json!({
        "service": { "high_bytes": high_bytes, "max_bytes": max_bytes },
        "process_bytes": budget.process_bytes(),
        "kernel_bytes": budget.kernel_bytes(),
        "disk_bytes": budget.disk_bytes(),
        "listeners": budget.listeners,
        "sockets": budget.sockets,
        "flows": budget.flows,
        "sinks": budget.sinks,
        "admin": budget.admin,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::keys::SECTIONS;

    #[test]
    fn the_example_passes() {
        let config = Config::parse(EXAMPLE, "example").map_err(|errors| config::list(&errors));
        let config = config.unwrap();
        assert_eq!(config.listeners.len(), 1);
    }

    #[test]
    fn the_example_passes_with_everything_uncommented_but_what_needs_a_group() {
        let all = EXAMPLE.replace("#: ", "").replace("#:", "");
        let without_groups: Vec<_> =
            all.lines().filter(|line| !line.starts_with("multicast_")).collect();
        let config = Config::parse(&without_groups.join("\n"), "example");
        let config = config.map_err(|errors| config::list(&errors)).unwrap();
        assert_eq!(config.listeners[0].targets.len(), 5);
        assert!(config.statsd.is_some());
        assert_eq!(config.sinks.len(), 3);
    }

    #[test]
    fn the_example_has_every_key() {
        let mut header = "";
        let mut found = Vec::new();
        // Kinds of sinks that a build may lack stay commented out above; take their keys too.
        let plain = |line: &'static str| line.trim_start_matches("#: ").trim_start_matches("#+ ");
        for line in EXAMPLE.lines().map(plain) {
            if line.starts_with('[') {
                header = line;
            } else if let Some((key, _)) = line.split_once(" = ") {
                found.push((header, key));
            }
        }
        for section in SECTIONS {
            for key in section.keys() {
                assert!(
                    found.contains(&(section.header, key.name)),
                    "{} {}",
                    section.header,
                    key.name
                );
            }
        }
    }

    #[test]
    fn the_parts_of_the_memory_add_up() {
        let config = Config::parse(EXAMPLE, "example").unwrap();
        let json = budget_as_json(&config.budget());
        let parts = json["listeners"][0].as_object().unwrap().iter();
        let sum: u64 = parts.filter_map(|(_, part)| part.as_u64()).sum();
        let number = |key: &str| json[key].as_u64().unwrap();
        assert_eq!(sum, number("process_bytes") + number("kernel_bytes"), "{json:#}");
    }

    #[test]
    fn the_verdict_names_the_memory_and_the_sysctl() {
        let config = Config::parse(EXAMPLE, "example").unwrap();
        let text = verdict("weir.toml", &config, &[], Some(212_992));
        assert!(text.starts_with("weir.toml: correct; 1 listener and 2 targets\n"), "{text}");
        assert!(
            text.ends_with(
                "sysctl: without CAP_NET_ADMIN the receive buffers need net.core.rmem_max = 8388608 and it is 212992. \
                 Fix: sudo sysctl -w net.core.rmem_max=8388608\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn generated_screens() {
        let config = Config::parse(EXAMPLE, "example").unwrap();
        crate::screen::check("config-check-right", |_| {
            verdict("weir.toml", &config, &[], Some(212_992))
        });
    }
}
