//! The tables of `deploy/clickhouse`, for which this build's rows are made.

use record::{Native, RowKind};

const SOCKETS: &str = include_str!("../../../../deploy/clickhouse/sockets.sql");
const DATAGRAMS: &str = include_str!("../../../../deploy/clickhouse/datagrams.sql");
const FLOWS: &str = include_str!("../../../../deploy/clickhouse/flows.sql");

/// How many of the last inserts a table remembers by token: hours of batches of the usual age from one host, minutes from
/// hundreds of hosts.
const WINDOW_INSERTS: u32 = 10_000;

/// The file in `deploy/clickhouse` that creates the table for rows of this kind.
pub(super) fn file_of(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Record | RowKind::Totals => "sockets.sql",
        RowKind::Datagram => "datagrams.sql",
        RowKind::Flow | RowKind::Counters | RowKind::FlowTotals => "flows.sql",
    }
}

/// The statement that creates the table for rows of this kind, under the name `quoted`.
pub(super) fn creation(kind: RowKind, quoted: &str) -> String {
    let definition = definition(kind);
    let columns = definition.find('(').map_or("", |start| &definition[start..]);
    // Without the window, a plain MergeTree ignores tokens.
    format!(
        "CREATE TABLE IF NOT EXISTS {quoted}\n{columns}\nSETTINGS non_replicated_deduplication_window = {WINDOW_INSERTS}"
    )
}

/// The statement from `CREATE` on, without the semicolon.
fn definition(kind: RowKind) -> &'static str {
    let file = match kind {
        RowKind::Record | RowKind::Totals => SOCKETS,
        RowKind::Datagram => DATAGRAMS,
        RowKind::Flow | RowKind::Counters | RowKind::FlowTotals => FLOWS,
    };
    let start = format!("CREATE TABLE IF NOT EXISTS {}\n", Native::table(kind));
    let definition = file.find(&start).and_then(|at| file[at..].split("\n;").next());
    definition.unwrap_or_default()
}
