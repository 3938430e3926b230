//! `weir run`: the daemon, configured by a file.

use crate::daemon::{self, LastLedger, LedgerForm, OnLoss, Setup, Source};
use crate::exit::Failure;
use crate::progress::ProgressMode;
use config::{
    AdminListen, Config, ConfigError, LoadError, LogFormat, LogLevel, Overrides, drain_grace, list,
};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Run the daemon: every listener and target that the file names.
///
/// SIGHUP reads the file again: what did not change is not touched, and a file with a mistake changes nothing.
/// SIGTERM and Ctrl-C send what was received, for at most drain_grace, and print the last ledger.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration, as TOML (`weir config example` prints one), or a folder whose *.toml files count together; - is standard input.
    #[arg(short, long, value_name = "FILE", env = "WEIR_CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// What both ways to run a daemon share.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// Least important messages to log: error, warn, info or debug.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
    /// What messages look like: text, json (an object per line), journald (priorities), or auto: journald where the journal reads them, else text.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// How long to go on sending what was received when stopped, such as 10s.
    #[arg(long, value_name = "DURATION", value_parser = drain_grace)]
    drain_grace: Option<Duration>,
    /// Address of the admin server (/ledger, /sockets, /flows, /metrics, /healthz, /readyz), or off.
    #[arg(long = "admin", value_name = "ADDR|off")]
    admin_listen: Option<AdminListen>,
    /// Print the last ledger as JSON on standard output too.
    #[arg(long)]
    json: bool,
    /// Exit with 1 if anything was lost that no setting asked for.
    #[arg(long)]
    fail_on_loss: bool,
}

impl Common {
    /// The values of flags, or else of the environment.
    ///
    /// # Errors
    /// A value in the environment is wrong.
    pub(crate) fn overrides(&self) -> anyhow::Result<Overrides> {
        let environment = Overrides::from_environment(|name| std::env::var(name).ok())
            .map_err(|errors| invalid(&errors))?;
        let log_format = self.log_format.or(environment.log_format);
        // Set the log format at once: mistakes in the file are reported in this format too.
        log_format.into_iter().for_each(crate::log::choose);
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for (name, meant) in config::mistyped_variables(names) {
            // The log starts only when its level is known, and the mistyped variable may be the one that sets it.
            let _ = writeln!(
                io::stderr(),
                "weir: {name} is not a variable that Weir reads. Fix: did you mean {meant}?"
            );
        }
        Ok(Overrides {
            log_format,
            admin_listen: self.admin_listen.or(environment.admin_listen),
            log_level: self.log_level.or(environment.log_level),
            drain_grace: self.drain_grace.or(environment.drain_grace),
        })
    }

    pub(crate) fn last_ledger(&self) -> LastLedger {
        LastLedger {
            form: if self.json { LedgerForm::Json } else { LedgerForm::Text },
            on_loss: if self.fail_on_loss { OnLoss::Fail } else { OnLoss::Ignore },
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let overrides = args.common.overrides()?;
    let config = load(&args.config)?.overridden_by(&overrides);
    let source = match config::is_standard_input(&args.config) {
        true => Source::ReadOnce,
        false => Source::File { path: args.config.clone(), overrides },
    };
    daemon::run(Setup {
        config,
        source,
        progress: ProgressMode::Off,
        last_ledger: args.common.last_ledger(),
    })
}

/// Loads the configuration from a file or a folder.
///
/// # Errors
/// It cannot be read, or contains mistakes; all are listed.
pub(crate) fn load(file: &Path) -> anyhow::Result<Config> {
    Config::load(file).map_err(|error| match error {
        LoadError::Invalid(errors) => invalid(&errors),
        error => unreadable(error, Failure::Config),
    })
}

/// The error for a file that yields no configuration; `failure` is the exit code if it cannot be one.
pub(crate) fn unreadable(error: LoadError, failure: Failure) -> anyhow::Error {
    match &error {
        LoadError::Read { error: why, .. } if !error.is_no_configuration() => {
            Failure::of(why).error(&error)
        }
        _ => failure.error(&error),
    }
}

fn invalid(errors: &[ConfigError]) -> anyhow::Error {
    let count = errors.len();
    let mistakes = if count == 1 { "mistake" } else { "mistakes" };
    Failure::Config.error(format!("the configuration has {count} {mistakes}\n{}", list(errors)))
}
