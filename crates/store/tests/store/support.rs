//! Rows for a store, and queries on it.

use record::{
    Chunk, ChunkBuilder, CloseReason, ConnectionRole, RecordKind, RowKind, SocketRecord,
    SocketState,
};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;
use store::{Answer, Error, Inserted, Limits, Options, Reader, Value, Writer};
use sys::clock::Now;
use testkit::wait_for;

/// 2026-11-25 17:00:00 UTC.
pub(crate) const START_NS: u64 = 1_795_626_000_000_000_000;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// A store that keeps everything and seals on request.
pub(crate) fn options(folder: &Path) -> Options {
    Options {
        folder: folder.to_owned(),
        keep_age: None,
        keep_bytes: None,
        segment_age: Duration::from_secs(3_600),
        keys_max: 1_000,
    }
}

/// Opens a store that no other process writes to. For a moment, one that another test has started holds a copy of a lock.
pub(crate) fn open(options: &Options) -> Result<Writer, Error> {
    wait_for("the lock of the store", || match Writer::open(options.clone()) {
        Err(Error::Locked(_)) => None,
        opened => Some(opened),
    })
}

/// The record of a poll for one of several connections.
pub(crate) fn record(poll: u64, connection: u64) -> SocketRecord<'static> {
    const UNITS: [&str; 3] = ["web.service", "db.service", "cron.service"];
    let unit = connection as usize % UNITS.len();
    SocketRecord {
        record_kind: Some(RecordKind::POLL),
        time_unix_ns: Some(START_NS + poll * SECOND_NS + connection),
        cookie: Some(1_000 + connection),
        poll: Some(poll),
        sequence: Some(poll * 1_000 + connection),
        run_id: Some(7),
        host: Some("host-1"),
        src_address: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))),
        src_port: Some(443),
        dst_address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, (connection % 5) as u8, 9))),
        dst_port: Some(40_000 + connection as u16),
        role: Some(ConnectionRole::ACCEPTOR),
        state: Some(SocketState::ESTABLISHED),
        systemd_unit: Some(UNITS[unit]),
        rtt_us: Some((100 + connection * 37 + poll * 11) as u32),
        rttvar_us: Some(20),
        min_rtt_us: connection.is_multiple_of(2).then_some(90),
        snd_wnd_bytes: Some(if connection == 3 { 0 } else { 65_535 }),
        bytes_sent: Some(poll * 1_000),
        bytes_sent_delta: (poll > 0).then_some(1_000),
        bytes_retrans_delta: (poll > 0).then_some(connection % 3),
        ..SocketRecord::default()
    }
}

/// The closing record of the same connection.
pub(crate) fn close(poll: u64, connection: u64) -> SocketRecord<'static> {
    SocketRecord {
        record_kind: Some(RecordKind::CLOSE),
        state: Some(SocketState::CLOSE),
        close_reason: Some(CloseReason::TIMED_OUT),
        ..record(poll, connection)
    }
}

/// These records in the form in which a source delivers them.
pub(crate) fn chunk(records: &[SocketRecord<'_>]) -> Chunk {
    let mut builder = ChunkBuilder::new(1, [0; 16]);
    records.iter().for_each(|record| builder.record(record));
    builder.cut(None).unwrap()
}

/// This time on both clocks.
pub(crate) fn at(unix_ns: u64) -> Now {
    Now { monotonic_ns: unix_ns, realtime_ns: unix_ns }
}

/// Inserts records into a store, as one batch, when the first of them was made.
pub(crate) fn insert(writer: &mut Writer, records: &[SocketRecord<'_>]) -> Inserted {
    let chunk = chunk(records);
    let rows: Vec<(RowKind, &[u8])> = chunk.rows().map(|row| (row.kind, row.bytes)).collect();
    let unix_ns = records.first().and_then(|first| first.time_unix_ns).unwrap_or(START_NS);
    writer.insert(rows.into_iter(), at(unix_ns)).unwrap()
}

/// Inserts a poll of `connections` connections into a store.
pub(crate) fn insert_poll(writer: &mut Writer, poll: u64, connections: u64) {
    let records: Vec<_> = (0..connections).map(|connection| record(poll, connection)).collect();
    assert!(insert(writer, &records).unreadable.is_empty());
}

/// The answer to a statement.
pub(crate) fn ask(folder: &Path, statement: &str) -> Answer {
    Reader::open(folder)
        .unwrap()
        .ask(
            statement,
            Limits { time: Duration::from_secs(60), rows_max: 1_000_000, ..Limits::default() },
        )
        .unwrap()
}

/// The only number in the answer to a statement.
pub(crate) fn number(folder: &Path, statement: &str) -> i64 {
    match ask(folder, statement).rows.as_slice() {
        [row] => match row.as_slice() {
            [Value::Integer(number)] => *number,
            other => panic!("{statement}: {other:?}"),
        },
        other => panic!("{statement}: {} rows", other.len()),
    }
}
