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
    /// What flags say, else the environment.
    ///
    /// # Errors
    /// Wrong values in the environment.
    pub(crate) fn overrides(&self) -> anyhow::Result<Overrides> {
        let environment = Overrides::from_environment(|name| std::env::var(name).ok())
            .map_err(|errors| invalid(&errors))?;
        let log_format = self.log_format.or(environment.log_format);
        // At once: what is wrong with the file is said this way too.
        log_format.into_iter().for_each(crate::log::choose);
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for (name, meant) in config::mistyped_variables(names) {
            // The log does not begin before its level is known, which such a variable may be about.
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

/// The configuration of a file, or of a folder.
///
/// # Errors
/// It cannot be read, or every mistake in it.
pub(crate) fn load(file: &Path) -> anyhow::Result<Config> {
    Config::load(file).map_err(|error| match error {
        LoadError::Invalid(errors) => invalid(&errors),
        error => unreadable(error, Failure::Config),
    })
}

/// A file that gives no configuration; `failure` is for one that cannot be one.
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
