//! Settings from flags and the environment, which override the file.

use crate::Config;
use crate::admin::{AdminConfig, AdminListen};
use crate::daemon::{DaemonConfig, LogFormat, LogLevel, drain_grace};
use crate::errors::ConfigError;
use crate::keys::Key;
use std::time::Duration;

/// Environment variable of `admin.listen`. (`WEIR_ADMIN` is another one: the daemon that commands query, which may be remote.)
pub const ENV_ADMIN_LISTEN: &str = "WEIR_ADMIN_LISTEN";
/// Environment variable of `daemon.log_level`.
pub const ENV_LOG_LEVEL: &str = "WEIR_LOG_LEVEL";
/// Environment variable of `daemon.log_format`.
pub const ENV_LOG_FORMAT: &str = "WEIR_LOG_FORMAT";
/// Environment variable of `daemon.drain_grace`.
pub const ENV_DRAIN_GRACE: &str = "WEIR_DRAIN_GRACE";

/// Variables that begin with `WEIR_` and are not ours, each with the one that it most resembles.
pub fn mistyped_variables(names: impl Iterator<Item = String>) -> Vec<(String, &'static str)> {
    let known = [ENV_ADMIN_LISTEN, ENV_LOG_LEVEL, ENV_LOG_FORMAT, ENV_DRAIN_GRACE];
    let others = names.filter(|name| name.starts_with("WEIR_") && !known.contains(&name.as_str()));
    let near = |name: &str| {
        let distance = |known: &str| strsim::osa_distance(&name.to_uppercase(), known);
        known.into_iter().find(|known| distance(known) <= MISTYPED_LETTERS_MAX)
    };
    others.filter_map(|name| near(&name).map(|known| (name, known))).collect()
}

/// Most letters by which a mistyped variable differs from the one meant.
const MISTYPED_LETTERS_MAX: usize = 2;

/// Settings from flags and the environment, which override the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--admin`, `WEIR_ADMIN_LISTEN`.
    pub admin_listen: Option<AdminListen>,
    /// `--log-level`, `WEIR_LOG_LEVEL`.
    pub log_level: Option<LogLevel>,
    /// `--log-format`, `WEIR_LOG_FORMAT`.
    pub log_format: Option<LogFormat>,
    /// `--drain-grace`, `WEIR_DRAIN_GRACE`.
    pub drain_grace: Option<Duration>,
}

impl Overrides {
    /// Reads the environment.
    ///
    /// # Errors
    /// Every value that is wrong.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Overrides, Vec<ConfigError>> {
        fn one<T>(
            name: &str,
            text: Option<String>,
            parse: impl Fn(&str) -> Result<T, String>,
            errors: &mut Vec<ConfigError>,
        ) -> Option<T> {
            let text = text.filter(|text| !text.is_empty())?;
            let wrong = |message| ConfigError {
                origin: "environment".to_owned(),
                line: None,
                key: name.to_owned(),
                message: format!("\"{}\": {message}", text.escape_debug()),
            };
            parse(&text).map_err(|message| errors.push(wrong(message))).ok()
        }

        let mut errors = Vec::new();
        let value = |name: &str| variable(name);
        let overrides = Overrides {
            admin_listen: one(ENV_ADMIN_LISTEN, value(ENV_ADMIN_LISTEN), str::parse, &mut errors),
            log_level: one(ENV_LOG_LEVEL, value(ENV_LOG_LEVEL), str::parse, &mut errors),
            log_format: one(ENV_LOG_FORMAT, value(ENV_LOG_FORMAT), str::parse, &mut errors),
            drain_grace: one(ENV_DRAIN_GRACE, value(ENV_DRAIN_GRACE), drain_grace, &mut errors),
        };
        if errors.is_empty() { Ok(overrides) } else { Err(errors) }
    }

    /// The keys that are overridden, each with its variable.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (Key, &'static str)> {
        let all = [
            (AdminConfig::listen, ENV_ADMIN_LISTEN, self.admin_listen.is_some()),
            (DaemonConfig::log_level, ENV_LOG_LEVEL, self.log_level.is_some()),
            (DaemonConfig::log_format, ENV_LOG_FORMAT, self.log_format.is_some()),
            (DaemonConfig::drain_grace, ENV_DRAIN_GRACE, self.drain_grace.is_some()),
        ];
        all.into_iter().filter(|(_, _, is_set)| *is_set).map(|(key, variable, _)| (key, variable))
    }
}

impl Config {
    /// The configuration with the values of flags and environment in place of those of the file.
    #[must_use]
    pub fn overridden_by(mut self, overrides: &Overrides) -> Config {
        if let Some(listen) = overrides.admin_listen {
            self.admin.listen = listen;
        }
        if let Some(level) = overrides.log_level {
            self.daemon.log_level = level;
        }
        if let Some(format) = overrides.log_format {
            self.daemon.log_format = format;
        }
        if let Some(grace) = overrides.drain_grace {
            self.daemon.drain_grace = grace;
        }
        self
    }
}
