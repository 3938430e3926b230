//! Reports about spools: what one held when it was opened, and what remains in one that no sink uses any longer.

use super::Running;
use config::SinkConfig;
use ledger::{Amount, HopKind, Meter, Reason, Trouble};
use sink::spool::{Ended, Recovered};
use sink::{SinkEnd, SpoolFound};
use std::path::PathBuf;
use std::sync::Arc;
use text::{grouped, short_time, size};

/// Reports once what a sink's spool held, when it has been opened.
pub(super) fn tell(one: &mut Running) {
    if one.is_spool_told {
        return;
    }
    let Some(found) = one.sink.spool_found() else { return };
    one.is_spool_told = true;

    let line =
        format!("sink {}: {}", one.config.name, found_line(&found, sys::clock::realtime_ns()));
    match found.recovered.ended {
        Ended::Closed => tracing::info!("{line}"),
        Ended::Crashed => tracing::warn!("{line}"),
    }
}

fn found_line(found: &SpoolFound, now_unix_ns: u64) -> String {
    let SpoolFound { recovered, oldest_unix_ns } = found;
    let Recovered { waiting, cut_bytes, ended, .. } = recovered;
    let mut line = match waiting.rows {
        0 => "its spool is empty".to_owned(),
        rows => format!(
            "its spool has {} records ({}), which are delivered first",
            grouped(rows),
            size(waiting.row_bytes)
        ),
    };
    if waiting.rows > 0 && *oldest_unix_ns > 0 {
        let age_us = now_unix_ns.saturating_sub(*oldest_unix_ns) / 1_000;
        line.push_str(&format!("; the oldest is {} old", short_time(age_us)));
    }
    if *ended == Ended::Crashed {
        line.push_str(
            ". It was not closed: records that were written to it after its last sync may be missing (spool_sync), and those that \
             it has may have been delivered",
        );
    }
    if *cut_bytes > 0 {
        line.push_str(&format!(
            "; {} of a record that was not whole were cut off",
            size(*cut_bytes)
        ));
    }
    line
}

/// The amount that an ended sink left in its spool.
pub(super) fn kept(meter: &Arc<dyn Meter>) -> Amount {
    let mut hops = Vec::new();
    meter.read(&mut hops);
    hops.iter().filter(|hop| hop.hop == HopKind::Sink).map(|hop| hop.kept).sum()
}

/// Reports that a spool could not be made durable, or not be closed, when its sink ended.
pub(super) fn tell_trouble(name: &str, end: &SinkEnd, meter: &Arc<dyn Meter>) {
    let Some(Trouble { what, fix }) = end.spool_trouble() else { return };
    let mut hops = Vec::new();
    meter.read(&mut hops);
    let lost: u64 = hops.iter().map(|hop| hop.dropped_for(Reason::SpoolUnsynced).count).sum();
    let lost = match lost {
        0 => "all its records are there".to_owned(),
        lost => format!("{} records may be missing, and are counted as lost", grouped(lost)),
    };
    tracing::error!("sink {name}: {what}; {lost}. Fix: {fix}");
}

/// Reports what remains in a spool that no sink uses any longer.
pub(super) fn tell_orphan<'a>(
    name: &str,
    folder: &PathBuf,
    kept: Amount,
    mut sinks: impl Iterator<Item = &'a SinkConfig>,
) {
    if kept.is_zero() || sinks.any(|sink| sink.spool_folder.as_ref() == Some(folder)) {
        return;
    }
    tracing::warn!(
        "sink {name} is gone, and {} records ({}) stay in its spool: nothing delivers them. Fix: add a sink with spool = \"{}\", or \
         remove the folder",
        grouped(kept.count),
        size(kept.bytes),
        folder.display()
    );
}
