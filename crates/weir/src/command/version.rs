//! `weir version`: what this program was built from, and with which features.

use crate::exit;
use crate::screen::Room;
use serde_json::json;
use std::io;
use std::process::ExitCode;

/// Print the version, the commit, the target and the features of this build
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// The package's version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that the program was built from, or `unknown`.
pub(crate) const COMMIT: &str = env!("WEIR_COMMIT");
/// Version and commit, as `weir --version` prints them.
pub(crate) const VERSION_AND_COMMIT: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("WEIR_COMMIT"), ")");

/// Every part that a build may leave out, and whether this build has it, by the names of cargo's features.
const FEATURES: [(&str, bool); 11] = [
    ("gobgp", cfg!(feature = "gobgp")),
    ("grpc", cfg!(feature = "grpc")),
    ("http", cfg!(feature = "http")),
    ("kafka", cfg!(feature = "kafka")),
    ("lab", cfg!(feature = "lab")),
    ("nats", cfg!(feature = "nats")),
    ("parquet", cfg!(feature = "parquet")),
    ("redis", cfg!(feature = "redis")),
    ("s3", cfg!(feature = "s3")),
    ("store", cfg!(feature = "store")),
    ("tls", cfg!(feature = "tls")),
];

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let names = |wanted: bool| {
        let chosen = FEATURES.iter().filter(move |(_, is_in)| *is_in == wanted);
        chosen.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    let (with, without) = (names(true), names(false));
    let target = env!("WEIR_TARGET");

    let text = if args.json {
        let result = json!({
            "version": VERSION,
            "commit": COMMIT,
            "target": target,
            "features": with,
            "features_left_out": without,
        });
        format!("{result:#}\n")
    } else {
        let list = |names: Vec<&str>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(" "),
        };
        let text = format!(
            "weir {VERSION}\ncommit    {COMMIT}\ntarget    {target}\nfeatures  {}\nleft out  {}\n",
            list(with),
            list(without)
        );
        Room::of(&io::stdout()).folded(&text)
    };
    exit::print_and_end(&text, ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_feature_of_the_manifest_is_listed() {
        let manifest = fs::read_to_string(testkit::root().join("crates/weir/Cargo.toml")).unwrap();
        let (_, features) = manifest.split_once("\n[features]\n").unwrap();
        let (features, _) = features.split_once("\n[").unwrap();
        let names = features.lines().filter_map(|line| line.split_once(" = "));
        let mut names: Vec<_> = names.map(|(name, _)| name).collect();
        names.retain(|name| !["default", "all-sinks"].contains(name) && !name.starts_with('#'));
        names.sort_unstable();
        assert_eq!(names, FEATURES.map(|(name, _)| name));
    }
}
