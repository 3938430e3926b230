//! `weir doctor`: the limits of this host that will lose data, each with the command that fixes it.

mod buffers;
mod cards;
mod host;
mod namespaces;
mod network;
mod process;

pub(crate) use host::Host;

use crate::command::run::unreadable;
use crate::exit::{self, Failure};
use crate::screen;
use config::{Config, Finding, ListenerConfig, Severity, TargetConfig, UdpListener, UdpTarget};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use text::{Tint, plural};

/// Find limits of this host that will lose data, with the command that fixes each
///
/// Reads a few files of /proc and changes nothing; needs no privilege. Run it as the user that runs the relay, since the
/// answer depends on what that user may do. Exits with 1 if there is a warning.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The relay's configuration (- is standard input); without it, a listener with the defaults is assumed
    #[arg(short, long, value_name = "FILE", env = "WEIR_CONFIG")]
    config: Option<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// All findings on a host for a configuration, worst first.
pub(crate) fn examine(host: &Host, config: Option<&Config>) -> Vec<Finding> {
    let mut findings = Vec::new();
    process::examine(host, config, &mut findings);
    buffers::examine(host, config, &mut findings);
    network::examine(host, config, &mut findings);
    cards::examine(host, config, &mut findings);
    namespaces::examine(host, config, &mut findings);
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// All UDP targets.
fn udp_targets(config: &Config) -> impl Iterator<Item = (&TargetConfig, &UdpTarget)> {
    let targets = config.listeners.iter().flat_map(|listener| &listener.targets);
    targets.filter_map(|target| Some((target, target.udp()?)))
}

/// All UDP listeners.
fn udp_listeners(config: &Config) -> impl Iterator<Item = (&ListenerConfig, &UdpListener)> {
    config.listeners.iter().filter_map(|listener| Some((listener, listener.udp()?)))
}

/// Loads a file for a command that needs a valid one.
pub(crate) fn load(path: &Path) -> anyhow::Result<Config> {
    Config::load(path).map_err(|error| unreadable(error, Failure::Config))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = args.config.as_deref().map(load).transpose()?;
    let findings = examine(&Host::this(), config.as_ref());
    let result = if args.json {
        format!("{:#}\n", serde_json::json!({ "findings": findings }))
    } else {
        for_people(&(text(&findings) + &summary(&findings)))
    };
    let loses = findings.iter().any(|finding| finding.severity <= Severity::Warning);
    let verdict = if loses { Failure::CheckFailed.code() } else { ExitCode::SUCCESS };
    exit::print_and_end(&result, verdict)
}

/// The findings for people: one line each, and below it why it matters and what fixes it.
pub(crate) fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let severity = match finding.severity {
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
            Severity::Advice => "advice",
            Severity::Ok => "ok",
        };

        let mut line = |text: std::fmt::Arguments<'_>| {
            writeln!(out, "{text}").expect("writing to a string does not fail");
        };

        line(format_args!("{severity:<8} {}: {}", finding.what, finding.value));
        if finding.severity == Severity::Ok {
            continue;
        }

        line(format_args!("         {}", finding.why));
        if let Some(command) = &finding.fix {
            line(format_args!("         Fix: {command}"));
        }
    }
    out
}

/// The findings folded to the terminal's width and with its colors.
pub(crate) fn for_people(text: &str) -> String {
    let tint = |line: &str| match line.split_whitespace().next() {
        Some("ERROR") => Tint::Alarm,
        Some("WARNING") => Tint::Notice,
        Some("ok") => Tint::Good,
        _ => Tint::Plain,
    };
    screen::for_people(&io::stdout(), text, tint)
}

fn summary(findings: &[Finding]) -> String {
    let count =
        |severity| findings.iter().filter(|finding| finding.severity == severity).count() as u64;
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let verdict = match errors + warnings {
        0 => "nothing here loses data".to_owned(),
        _ => format!(
            "{}, {}",
            plural(errors, "error", "errors"),
            plural(warnings, "warning", "warnings")
        ),
    };
    format!("\n{} looked at: {verdict}\n", plural(findings.len() as u64, "thing", "things"))
}

#[cfg(test)]
mod tests;
