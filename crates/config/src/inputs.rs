//! Files that the configuration names and Weir reads.

use crate::host::{Finding, Severity};
use crate::keys::Key;
use crate::{Config, show};
use serde_json::Value as Json;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// How the names of keys end whose value is the path of a file that is read, in any section.
const ENDINGS: [&str; 11] = [
    "token_file",
    "password_file",
    "credentials_file",
    "nkey_file",
    "header_files",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "registry_ca",
    "registry_cert",
    "registry_key",
];
/// The keys of links, and databases of addresses.
const OTHERS: [&str; 3] = ["listener.keys", "listener.target.key", "flows.mmdb"];

fn is_input(key: &Key) -> bool {
    ENDINGS.iter().any(|ending| key.name.ends_with(ending)) || OTHERS.contains(&key.path().as_str())
}

/// A file that is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// Its section, such as `sink[0]`.
    pub section: String,
    /// The key that names it.
    pub key: &'static str,
    pub path: PathBuf,
}

impl Input {
    /// Why it matters that a file cannot be used.
    pub const WHY: &str = "a daemon that starts with this configuration reads it";

    /// The key with its section.
    pub fn place(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// The finding for a file that cannot be used.
    pub fn unusable(&self, severity: Severity, why: String) -> Finding {
        let finding = Finding::new(severity, self.place(), why);
        finding.because(Input::WHY)
    }
}

impl Config {
    /// The files that a daemon with this configuration reads, in the order of the file.
    pub fn inputs(&self) -> Vec<Input> {
        let mut inputs = Vec::new();
        for section in show::sections(self) {
            for (key, value) in section.values.iter().filter(|(key, _)| is_input(key)) {
                let paths: Vec<&str> = match value {
                    Json::Array(all) => all.iter().filter_map(Json::as_str).collect(),
                    Json::Object(all) => all.values().filter_map(Json::as_str).collect(),
                    one => one.as_str().into_iter().collect(),
                };
                inputs.extend(paths.into_iter().map(|path| Input {
                    section: section.place.clone(),
                    key: key.name,
                    path: path.into(),
                }));
            }
        }
        inputs
    }
}

/// Why a file cannot be read, if it cannot.
///
/// # Errors
/// It is not there, is no file, is empty, or this user may not read it.
pub fn readable(input: &Input, severity: Severity) -> Result<(), Finding> {
    let shown = input.path.display();
    let read = File::open(&input.path).and_then(|mut file| {
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Nothing of it stays: it may be a secret.
        match file.read(&mut [0])? {
            0 => Err(io::Error::other("it is empty")),
            _ => Ok(()),
        }
    });
    read.map_err(|error| {
        let finding = input.unusable(severity, format!("{shown} cannot be read: {error}"));
        finding.fixed_by(format!("ls -l {shown}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SECTIONS;

    /// Keys that name what is written, or a socket.
    const NOT_READ: [&str; 7] = [
        "admin.socket",
        "daemon.helper",
        "listener.state",
        "listener.target.state",
        "sockets.helper",
        "sink.spool",
        "mitigation.audit_log",
    ];

    #[test]
    fn every_key_that_names_a_path_is_read_or_not() {
        for section in SECTIONS {
            // An address may have a path, and is none.
            let is_path = |form: String| form.starts_with("path") || form.contains("paths");
            for key in section.keys().filter(|key| is_path((key.form)())) {
                let is_known = is_input(key) != NOT_READ.contains(&key.path().as_str());
                assert!(is_known, "{}: {}", key.path(), (key.form)());
            }
        }
    }
}
