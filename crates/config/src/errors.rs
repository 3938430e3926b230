//! What is wrong with a configuration, where, and what fixes it.

use serde::Serialize;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// One mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigError {
    /// The file's name, or the other source of the configuration.
    pub origin: String,
    /// Line in the file, from 1.
    pub line: Option<usize>,
    /// The key with its section: `listener.target.rate_limit`. Empty for the file as a whole.
    pub key: String,
    /// What is wrong, with the value, and what fixes it.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

/// Why a configuration could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    // The error is in the text, in front of the fix.
    #[error("cannot read {}: {error}{}", crate::file_name(path), fix(path, error))]
    Read { path: PathBuf, error: io::Error },
    #[error("{}", list(.0))]
    Invalid(Vec<ConfigError>),
}

impl LoadError {
    /// Whether the file is not a configuration at all, as opposed to one that cannot be read at the moment.
    pub fn is_no_configuration(&self) -> bool {
        use io::ErrorKind::{InvalidData, IsADirectory};
        match self {
            LoadError::Read { error, .. } => matches!(error.kind(), IsADirectory | InvalidData),
            LoadError::Invalid(_) => true,
        }
    }
}

/// What to do about a file that cannot be read.
fn fix(path: &Path, error: &io::Error) -> String {
    let path = path.display();

    match error.kind() {
        io::ErrorKind::NotFound => {
            format!(". Fix: weir config example > {path}")
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                ". Fix: sudo chmod a+r {path}; `namei -l {path}` shows whether its folder can be entered"
            )
        }
        io::ErrorKind::IsADirectory => {
            ", and folders in a folder of files are not read. Fix: move its files up".to_owned()
        }
        io::ErrorKind::InvalidData => {
            format!(
                ". Fix: iconv -f latin1 -t utf8 {path} > utf8.toml, if `file {path}` says ISO-8859"
            )
        }
        io::ErrorKind::FileTooLarge => ". Fix: name a file of at most 16MiB".to_owned(),
        _ => String::new(),
    }
}

/// All mistakes, one a line.
pub fn list(errors: &[ConfigError]) -> String {
    errors.iter().map(ConfigError::to_string).collect::<Vec<_>>().join("\n")
}

/// The candidate that `typed` most likely means, if one is close enough.
pub(crate) fn nearest<'a>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A mistyped key may be very long; the cut bounds the time spent on it.
    let text: String = typed.to_lowercase().replace('-', "_").chars().take(64).collect();
    // `rate` for `rate_limit`, `rings` for `ring_size`.
    let part_distance = |part: &str| match () {
        () if part.len() < 3 || text.len() < 3 => usize::MAX,
        () if part == text => 1,
        () if part.starts_with(&text) || text.starts_with(part) => 2,
        () => usize::MAX,
    };

    let near = |candidate: &str| {
        let whole = strsim::osa_distance(&text, candidate);
        candidate.split('_').map(part_distance).fold(whole, usize::min)
    };

    let best = candidates.into_iter().map(|name| (near(name), name)).min_by_key(|(d, _)| *d)?;
    (best.0 <= best.1.len().max(text.chars().count()).div_ceil(3)).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(typed: &str, expected: Option<&str>) {
        let keys = ["name", "listen", "receive_buffer", "ring_size", "rate_limit", "to", "ttl"];
        assert_eq!(nearest(typed, keys), expected, "{typed}");
    }

    #[test]
    fn the_nearest_key() {
        check("nmae", Some("name"));
        check("listne", Some("listen"));
        check("ringsize", Some("ring_size"));
        check("ring-size", Some("ring_size"));
        check("Ring_Size", Some("ring_size"));
        check("rate", Some("rate_limit"));
        check("buffer", Some("receive_buffer"));
        check("tll", Some("ttl"));
        check("completely_different", None);
        check("", None);
    }
}
