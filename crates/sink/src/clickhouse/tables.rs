//! The tables of `deploy/clickhouse`, which this build's rows are written for.

use record::{RowBinary, RowKind};

const SOCKETS: &str = include_str!("../../../../deploy/clickhouse/sockets.sql");
const DATAGRAMS: &str = include_str!("../../../../deploy/clickhouse/datagrams.sql");
const FLOWS: &str = include_str!("../../../../deploy/clickhouse/flows.sql");

/// How many of the last inserts a table remembers by their token: hours of batches of the usual age from one host, minutes from
/// hundreds.
const WINDOW_INSERTS: u32 = 10_000;

/// The file of `deploy/clickhouse` that makes the table for rows of this kind.
pub(super) fn file_of(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Record | RowKind::Totals => "sockets.sql",
        RowKind::Datagram => "datagrams.sql",
        RowKind::Flow | RowKind::Counters | RowKind::FlowTotals => "flows.sql",
    }
}

/// What makes the table for rows of this kind, under the name `quoted`.
pub(super) fn creation(kind: RowKind, quoted: &str) -> String {
    let definition = definition(kind);
    let columns = definition.find('(').map_or("", |start| &definition[start..]);
    // Without the window a plain MergeTree looks at no token.
    format!(
        "CREATE TABLE IF NOT EXISTS {quoted}\n{columns}\nSETTINGS non_replicated_deduplication_window = {WINDOW_INSERTS}"
    )
}

/// What stands before rows of `RowBinaryWithNamesAndTypes`: a table that differs is refused with the name of the column, where rows
/// alone would be read as something else.
pub(super) fn header(kind: RowKind) -> Vec<u8> {
    let columns = RowBinary::columns(kind);
    let names: Vec<&str> = columns.split(',').collect();
    let definition = definition(kind);
    let types = names.iter().map(|name| type_of(definition, name));

    let mut header = Vec::new();
    put_number(names.len(), &mut header);
    for text in names.iter().copied().chain(types) {
        put_number(text.len(), &mut header);
        header.extend_from_slice(text.as_bytes());
    }
    header
}

/// From `CREATE` on, without the semicolon.
fn definition(kind: RowKind) -> &'static str {
    let file = match kind {
        RowKind::Record | RowKind::Totals => SOCKETS,
        RowKind::Datagram => DATAGRAMS,
        RowKind::Flow | RowKind::Counters | RowKind::FlowTotals => FLOWS,
    };
    let start = format!("CREATE TABLE IF NOT EXISTS {}\n", RowBinary::table(kind));
    let definition = file.find(&start).and_then(|at| file[at..].split("\n;").next());
    definition.unwrap_or_default()
}

/// The type of a column, whose blanks stand in brackets.
fn type_of<'a>(definition: &'a str, name: &str) -> &'a str {
    let start = format!("\n    `{name}` ");
    let Some((_, rest)) = definition.split_once(&start) else { return "" };
    let mut depth = 0;
    let end = rest.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0 && (c == ' ' || c == ',')
    });
    end.map_or(rest, |end| &rest[..end])
}

/// LEB128, as ClickHouse writes lengths.
fn put_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_every_table_has_its_type() {
        for kind in RowKind::ALL {
            for name in RowBinary::columns(kind).split(',') {
                let found = type_of(definition(kind), name);
                assert!(found.starts_with(|c: char| c.is_ascii_uppercase()), "{name}: {found:?}");
                assert_eq!(
                    found.matches('(').count(),
                    found.matches(')').count(),
                    "{name}: {found}"
                );
            }
        }
        let sockets = definition(RowKind::Record);
        assert_eq!(type_of(sockets, "tags"), "Map(LowCardinality(String), String)");
        assert_eq!(type_of(sockets, "cookie"), "UInt64");
    }

    #[test]
    fn lengths() {
        let of = |number| {
            let mut out = Vec::new();
            put_number(number, &mut out);
            out
        };
        assert_eq!(of(127), [0x7f]);
        assert_eq!(of(128), [0x80, 1]);
    }
}
