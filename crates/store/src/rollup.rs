//! Sums of records by minute and hour: overall, by unit, by peer network, by service, and by the combination of the three.

mod admitted;
mod key;
mod sums;

pub(crate) use admitted::Admitted;

use admitted::Group;
use key::{Dimension, Key, Units};
use record::{SocketRecord, SocketState};
use rusqlite::{Connection, Statement};
use std::collections::HashMap;
use sums::Sums;

pub(crate) const MINUTE_NS: i64 = 60_000_000_000;
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;

/// The names of the dimensions, as in the tables.
pub(crate) fn dimensions() -> impl Iterator<Item = &'static str> {
    Dimension::ALL.into_iter().map(Dimension::name)
}

/// The sums of one batch.
#[derive(Default)]
pub(crate) struct Rollup {
    units: Units,
    /// Keyed by minute and path.
    sums: HashMap<(i64, Key), Sums>,
}

impl Rollup {
    /// Adds a record.
    pub(crate) fn add(&mut self, record: &SocketRecord<'_>, time_unix_ns: i64) {
        if record.state == Some(SocketState::LISTEN) {
            return;
        }
        let path = Key::of(record, &mut self.units);
        self.sums.entry((span_of(time_unix_ns, MINUTE_NS), path)).or_default().add(record);
    }

    /// Adds the sums to the rows of the tables.
    pub(crate) fn write(
        &self,
        connection: &Connection,
        admitted: &mut Admitted,
    ) -> rusqlite::Result<()> {
        let mut minute_upsert = connection.prepare_cached(&upsert("sockets_minute"))?;
        let mut hour_upsert = connection.prepare_cached(&upsert("sockets_hour"))?;
        for dimension in Dimension::ALL {
            let paths =
                self.sums.iter().map(|((minute, path), sums)| (*minute, dimension.of(path), sums));
            let minutes = admitted.group(("sockets_minute", dimension), paths);
            // From the bounded rows of the minute: an hour has no key that its minutes lack.
            let rows =
                minutes.iter().map(|row| (span_of(row.span, HOUR_NS), row.key.clone(), &row.sums));
            let hours = admitted.group(("sockets_hour", dimension), rows);

            minutes.iter().try_for_each(|row| write_row(&mut minute_upsert, dimension, row))?;
            hours.iter().try_for_each(|row| write_row(&mut hour_upsert, dimension, row))?;
        }
        Ok(())
    }
}

fn span_of(time_unix_ns: i64, span_ns: i64) -> i64 {
    time_unix_ns.div_euclid(span_ns) * span_ns
}

fn write_row(
    upsert: &mut Statement<'_>,
    dimension: Dimension,
    Group { span, key, sums }: &Group,
) -> rusqlite::Result<()> {
    upsert.raw_bind_parameter(1, dimension.name())?;
    upsert.raw_bind_parameter(2, span)?;
    upsert.raw_bind_parameter(3, &*key.unit)?;
    upsert.raw_bind_parameter(4, key.service)?;
    upsert.raw_bind_parameter(5, key.peer.text())?;
    for (place, number) in (6..).zip(&sums.numbers) {
        upsert.raw_bind_parameter(place, i64::try_from(*number).unwrap_or(i64::MAX))?;
    }
    let blobs_at = 6 + sums.numbers.len();
    upsert.raw_bind_parameter(blobs_at, sums.rtt.to_blob())?;
    upsert.raw_bind_parameter(blobs_at + 1, sums.rttvar.to_blob())?;
    upsert.raw_execute()?;
    Ok(())
}

/// Inserts a row, or adds to the row with the same key.
fn upsert(table: &str) -> String {
    format!(
            "INSERT INTO {table} VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
             ON CONFLICT DO UPDATE SET records = records + excluded.records, bytes_sent = bytes_sent + excluded.bytes_sent,
             bytes_received = bytes_received + excluded.bytes_received, bytes_retrans = bytes_retrans + excluded.bytes_retrans,
             segs_out = segs_out + excluded.segs_out, retrans_segments = retrans_segments + excluded.retrans_segments,
             busy_time_us = busy_time_us + excluded.busy_time_us, rwnd_limited_us = rwnd_limited_us + excluded.rwnd_limited_us,
             sndbuf_limited_us = sndbuf_limited_us + excluded.sndbuf_limited_us, zero_windows = zero_windows + excluded.zero_windows,
             closes = closes + excluded.closes, aborts = aborts + excluded.aborts,
             rtt = sketch_add(rtt, excluded.rtt), rttvar = sketch_add(rttvar, excluded.rttvar)"
        )
}
