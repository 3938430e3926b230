//! What `weir sink check` finds in the tables.

use super::{record, to};
use record::{Chunk, ChunkBuilder, SocketRecord};
use sink::batch::{Batch, BatchId, Encoded};
use sink::{ClickHouseOptions, ReadBack, Step};
use std::time::Duration;
use testkit::readback;
use testkit::servers::{Server, unique};

const WAIT: Duration = Duration::from_secs(30);

fn chunk(record: &SocketRecord<'_>) -> Chunk {
    let mut builder = ChunkBuilder::new(1, [7; 16]);
    builder.record(record);
    builder.cut(None).unwrap()
}

/// The result of the last step.
#[track_caller]
fn last(steps: &[Step]) -> (&'static str, Result<String, String>) {
    let Some(Step { what, result, .. }) = steps.last() else { panic!("there was no step") };
    (what, result.clone().map_err(|trouble| trouble.what))
}

#[test]
fn a_record_that_was_taken_is_found_by_its_time() {
    let Some(server) = Server::ClickHouse.shared() else { return };
    let to = ClickHouseOptions { table_prefix: "net_".into(), ..to(server, &unique("weir")) };
    let check =
        |row: &SocketRecord<'_>| sink::check(sink::clickhouse(to.clone()), chunk(row), WAIT);
    assert_eq!(last(&check(&record(1))), ("read back", Ok("the same is there".to_owned())));

    let timeless = SocketRecord { time_unix_ns: None, ..record(2) };
    let (step, result) = last(&check(&timeless));
    assert_eq!(step, "read back");
    assert!(result.as_ref().is_ok_and(|says| says.contains("no time")), "{result:?}");
}

#[test]
fn a_record_that_is_not_there_is_not_found() {
    let Some(server) = Server::ClickHouse.shared() else { return };
    let database = unique("weir");
    let to = to(server, &database);
    let steps = sink::check(sink::clickhouse(to.clone()), chunk(&record(1)), WAIT);
    assert_eq!(last(&steps).1, Ok("the same is there".to_owned()));

    let at = |oldest_unix_ns| {
        let encoded = Encoded { bytes: Vec::new(), parts: Vec::new() };
        let id = BatchId(1);
        let batch = Batch { id, kind: None, token: 0, encoded, rows: 1, oldest_unix_ns };
        let mut destination = (sink::clickhouse(to.clone()).destination)().unwrap();
        destination.read_back(&batch, WAIT)
    };
    let time = record(1).time_unix_ns.unwrap();
    assert_eq!(at(time), ReadBack::Found);
    let ReadBack::Missing(what) = at(time + 1) else { panic!("it cannot be there") };
    assert!(what.contains(&(time + 1).to_string()), "{what}");

    // Likewise without a table: the server's message then says so.
    readback::clickhouse(server, &format!("DROP TABLE `{database}`.sockets"));
    let ReadBack::Missing(what) = at(time) else { panic!("there is no table") };
    assert!(what.contains("UNKNOWN_TABLE"), "{what}");
}
