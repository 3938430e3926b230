//! The engine killed, slow and hanging, with tables that deduplicate batches and with some that do not.

use super::{count, sink, to};
use crate::outage::{Killed, Outage, beside, with_spool, without_spool};
use ledger::Event;
use sink::{ClickHouseOptions, Compression, SinkOptions};
use std::time::Duration;
use testkit::proxy::Fault;
use testkit::readback;
use testkit::servers::{Own, Server};

/// Its tables deduplicate batches: any duplicate would exceed the sink's count, which is zero.
fn away() -> Option<(impl Outage, SinkOptions)> {
    let server = Server::ClickHouse.start()?;
    // As in the default settings: after the outage the engine ingests few large batches at half the cost of many small
    // ones.
    let options = sink(to(server.addr(), "weir"), 100_000);
    let read = |server: &Own| {
        let rows = readback::clickhouse(server, "SELECT sequence FROM weir.sockets");
        rows.iter().map(|row| row["sequence"].as_u64().unwrap()).collect()
    };
    Some((Killed { server, read, rows_per_sec: 20_000 }, options))
}

#[test]
fn an_outage_without_a_spool_loses_what_it_says() {
    let Some((away, options)) = away() else { return };
    without_spool(away, || options);
}

#[test]
fn an_outage_with_a_spool_loses_nothing_and_doubles_nothing() {
    let Some((away, options)) = away() else { return };
    with_spool(away, || options);
}

#[test]
fn a_slow_hanging_or_resetting_server_holds_no_other_sink_and_a_table_has_each_row_once() {
    let Some((server, proxy)) = Server::ClickHouse.start_with_proxy() else { return };
    let to = ClickHouseOptions {
        request_timeout: Duration::from_secs(2),
        compression: Compression::None,
        ..to(proxy.addr(), "weir")
    };
    let hop = beside(
        sink(to, 500),
        &proxy,
        &[
            Fault::Slow { bytes_per_sec: 200_000 },
            Fault::Hang,
            Fault::ResetAfter { sent_bytes: 30_000 },
            Fault::CloseAfter { answered_bytes: 100 },
            Fault::Refuse,
        ],
    );
    assert!(hop.event(Event::Retries) > 0, "{hop:?}");
    assert_eq!(hop.event(Event::PossibleDuplicates), 0, "{hop:?}");
    assert_eq!(count(server.addr(), "weir", "sockets"), hop.received.count);
}
