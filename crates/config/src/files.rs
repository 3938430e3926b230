//! Finds files that two targets or sinks would write.

use crate::listener::ReadListener;
use crate::paths::{is_same_file, real_path};
use crate::reader::{Placed, Report};
use crate::sink::{Sink, SinkConfig};
use crate::target::{Target, TargetConfig};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A file, with the number of rotated files kept next to it.
struct Written {
    path: PathBuf,
    keeps: u32,
    owner: String,
}

impl Written {
    fn clashes(&self, other: &Written) -> bool {
        is_same_file(&self.path, &other.path)
            || is_rotated(&self.path, self.keeps, &other.path)
            || is_rotated(&other.path, other.keeps, &self.path)
    }
}

/// The path of standard output. Two writers would cut into each other's lines.
const STANDARD_OUTPUT: &str = "/dev/stdout";

/// Reports every file that another target or sink already writes or rotates to.
pub(crate) fn check(report: &Report, listeners: &[ReadListener], sinks: &[Placed<SinkConfig>]) {
    let mut seen: Vec<Written> = Vec::new();
    let mut clash = |path: &Path, keeps: u32, owner: String, to: &dyn Display| {
        let this = Written { path: real_path(path), keeps, owner };
        let other = seen.iter().find(|other| other.clashes(&this));
        let message = other.map(|Written { owner, .. }| {
            format!(
                "{to} is written by {owner} already, or set aside under that name. Fix: choose another path"
            )
        });
        seen.push(this);
        message
    };

    for ReadListener { listener, targets } in listeners {
        for target in targets {
            let TargetConfig { name, to, .. } = &target.thing;
            let Target::File(file) = to else { continue };
            let owner = format!("target {name} of listener {}", listener.thing.name);
            let path = file.path.as_deref().unwrap_or(Path::new(STANDARD_OUTPUT));
            if let Some(message) = clash(path, file.kept_files(), owner, to) {
                target.error(report, &TargetConfig::to, message);
            }
        }
    }

    for sink in sinks {
        let SinkConfig { name, to, .. } = &sink.thing;
        let Sink::File(file) = to else { continue };
        if let Some(message) = clash(&file.path, file.kept_files(), format!("sink {name}"), to) {
            sink.error(report, &SinkConfig::to, message);
        }
    }

    // Only the first: the rules of sinks report a second one.
    if let Some(sink) = sinks.iter().find(|sink| matches!(sink.thing.to, Sink::Stdout(_))) {
        let SinkConfig { name, to, .. } = &sink.thing;
        if let Some(message) = clash(Path::new(STANDARD_OUTPUT), 0, format!("sink {name}"), to) {
            sink.error(report, &SinkConfig::to, message);
        }
    }
}

/// Whether `path` is one of the `keeps` names that rotated files of `base` get.
fn is_rotated(base: &Path, keeps: u32, path: &Path) -> bool {
    let (Some(base), Some(path)) = (base.to_str(), path.to_str()) else { return false };
    let number = path.strip_prefix(base).and_then(|tail| tail.strip_prefix('.'));
    let number = number.and_then(|number| number.parse::<u32>().ok());
    number.is_some_and(|number| (1..=keeps).contains(&number))
}
