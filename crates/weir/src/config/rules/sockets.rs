//! What no value of the socket collector shows alone.

use super::super::build::PlacedSockets;
use super::super::paths::{is_same_file, real_path};
use super::super::section::{Report, Section};
use super::super::sockets::{SinkConfig, SocketsConfig};
use super::super::{SinkAddress, TargetAddress};
use super::{Placed, is_rotated, kept_files, named_at};
use sockets::helper::EVENT_BUFFER_BYTES_MAX;
use std::path::{Path, PathBuf};
use text::units::{display_duration, display_size};

/// Keys of a sink that mean something for files only.
pub(in super::super) const FILE_SINK_KEYS: &[&str] =
    &["rotate_size", "rotate_interval", "rotate_keep"];

/// Rules within `[sockets]`.
pub(in super::super) fn collector(section: &Section<'_>, config: &SocketsConfig) {
    if config.jitter > config.interval {
        let (jitter, interval) =
            (display_duration(config.jitter), display_duration(config.interval));
        let message = format!(
            "{jitter} is longer than the interval of {interval}, so that polls would overtake each other; write \
             {interval} at most"
        );
        section.error("jitter", message);
    }
    if config.helper.is_some() && config.event_buffer_bytes > EVENT_BUFFER_BYTES_MAX as usize {
        let most = display_size(EVENT_BUFFER_BYTES_MAX.into());
        let message =
            format!("a helper grants {most} at most; write \"{most}\", or leave helper out");
        section.error("event_buffer", message);
    }
}

/// Rules within a sink.
pub(in super::super) fn sink(section: &Section<'_>, sink: &SinkConfig) {
    let is_file = matches!(sink.to, SinkAddress::File(_));
    let is_udp = matches!(sink.to, SinkAddress::Udp(_));
    for key in FILE_SINK_KEYS.iter().filter(|key| !is_file && section.has(key)) {
        let message = format!("it is for files only and this one is {}; remove the key", sink.to);
        section.error(key, message);
    }
    if is_udp && section.has("format") {
        section.error("format", "datagrams have a form of their own; remove the key");
    }
    let is_off = |key| section.is_absent_or(key, "off");
    let rotates = !is_off("rotate_size") || !is_off("rotate_interval");
    if is_file && section.has("rotate_keep") && !rotates {
        section.error("rotate_keep", "nothing is rotated; add rotate_size = \"64MiB\"");
    }
}

/// Rules between the collector, its sinks and the listeners.
pub(in super::super) fn sockets(report: &Report, listeners: &[Placed], placed: &PlacedSockets) {
    let sinks = || placed.sink_places.iter().zip(&placed.config.sinks);
    for (at, (place, sink)) in sinks().enumerate() {
        let earlier = || placed.config.sinks.iter().take(at);
        if earlier().any(|other| other.name == sink.name) {
            let message =
                format!("\"{}\" is the name of another sink too; give each its own", sink.name);
            report.error(named_at(report, place, "to"), "sockets.sink.name", message);
        } else if sink.to == SinkAddress::Stdout
            && let Some(other) = earlier().find(|other| other.to == SinkAddress::Stdout)
        {
            let message = format!(
                "standard output belongs to sink {} already; choose another place",
                other.name
            );
            report.error(report.line_of(place, "to"), "sockets.sink.to", message);
        }
    }
    files(report, listeners, placed);
}

/// A file with the names that it is set aside under.
struct Written {
    path: PathBuf,
    keeps: u32,
    owner: String,
}

impl Written {
    fn clashes(&self, path: &Path, keeps: u32) -> bool {
        is_same_file(&self.path, path)
            || is_rotated(&self.path, self.keeps, path)
            || is_rotated(path, keeps, &self.path)
    }
}

fn files(report: &Report, listeners: &[Placed], placed: &PlacedSockets) {
    let targets = listeners.iter().flat_map(|placed| &placed.listener.targets);
    let mut seen: Vec<Written> = targets
        .filter_map(|target| match &target.to {
            TargetAddress::File(path) => Some(Written {
                path: real_path(path),
                keeps: kept_files(target),
                owner: format!("target {}", target.name),
            }),
            _ => None,
        })
        .collect();
    for (place, sink) in placed.sink_places.iter().zip(&placed.config.sinks) {
        let SinkAddress::File(path) = &sink.to else { continue };
        let path = real_path(path);
        let keeps = if sink.rotates() { sink.rotate_keep } else { 0 };
        if let Some(other) = seen.iter().find(|other| other.clashes(&path, keeps)) {
            let message = format!(
                "{} is written by {} already, or set aside under that name; choose another path",
                sink.to, other.owner
            );
            report.error(report.line_of(place, "to"), "sockets.sink.to", message);
        }
        seen.push(Written { path, keeps, owner: format!("sink {}", sink.name) });
    }
}
