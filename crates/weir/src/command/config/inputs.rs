//! Whether the files that a configuration names can be used: each is read as a daemon would read it.

use crate::daemon::{check_link_keys, check_places, check_token};
use config::{Config, Finding, Input, Severity, readable};
use ledger::Trouble;
use sink::SecretSource;

/// A finding for each file that cannot be used.
pub(super) fn examine(config: &Config, severity: Severity) -> Vec<Finding> {
    let inputs = config.inputs();
    let unusable = |input: &Input| match readable(input, severity) {
        Err(finding) => Some(finding),
        Ok(()) => well_formed(input, &inputs).err().map(|Trouble { what, fix }| {
            let finding = input.unusable(severity, what);
            if fix.is_empty() { finding } else { finding.fixed_by(fix) }
        }),
    };
    inputs.iter().filter_map(unusable).collect()
}

/// Reads the content of a file. `all` are those of the same configuration, as a certificate needs its key.
fn well_formed(input: &Input, all: &[Input]) -> Result<(), Trouble> {
    let path = &input.path;
    match (input.section.as_str(), input.key) {
        ("flows", "mmdb") => check_places(path).map_err(in_words),
        (section, "keys" | "key") if section.starts_with("listener") => {
            check_link_keys(path).map_err(in_words)
        }
        ("admin", "token_file") => check_token(path).map_err(in_words),
        (_, key) if key.ends_with("_ca") => authorities(input),
        (_, key) if key.ends_with("_cert") => pair(input, all),
        (_, key) if key.ends_with("_key") => Ok(()),
        _ => SecretSource::File(path.clone()).read().map(drop),
    }
}

/// An error of the daemon, taken apart.
fn in_words(error: anyhow::Error) -> Trouble {
    let text = format!("{error:#}");
    let (what, fix) = text.split_once(". Fix: ").unwrap_or((&text, ""));
    Trouble { what: what.to_owned(), fix: fix.to_owned() }
}

#[cfg(feature = "tls")]
fn authorities(input: &Input) -> Result<(), Trouble> {
    tls::authorities(Some(&input.path), input.key).map(drop)
}

/// A certificate and its key, which the same section names.
#[cfg(feature = "tls")]
fn pair(certificate: &Input, all: &[Input]) -> Result<(), Trouble> {
    let name = certificate.key.strip_suffix("_cert").unwrap_or_default();
    let key = all.iter().find(|input| {
        input.section == certificate.section && input.key.strip_suffix("_key") == Some(name)
    });
    match key.filter(|key| readable(key, Severity::Error).is_ok()) {
        Some(key) => tls::Identity::read(&certificate.path, &key.path).map(drop),
        // What is wrong with the key is said there.
        None => Ok(()),
    }
}

/// A build without TLS refuses a configuration with any of it.
#[cfg(not(feature = "tls"))]
fn authorities(_input: &Input) -> Result<(), Trouble> {
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn pair(_certificate: &Input, _all: &[Input]) -> Result<(), Trouble> {
    Ok(())
}
