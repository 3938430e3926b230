//! Files generated from the table: schemas, the database's tables, the field reference, and the list of all numbers
//! ever assigned. `make generated` regenerates them.

mod clickhouse;
mod json_schema;
mod numbers;
mod proto;
mod reference;

use testkit::{generated, root};

/// The first line of each file, after its comment sign.
const GENERATED: &str = "Generated from the table in crates/record; `make generated` writes it.";

#[test]
fn the_protobuf_schema_follows_the_table() {
    generated("proto/weir.proto", &proto::text());
}

#[test]
fn the_protobuf_schema_for_stores_follows_the_table() {
    generated("proto/weir_store.proto", &proto::store_text());
}

#[test]
fn the_field_reference_follows_the_table() {
    generated("docs/records.md", &reference::text());
}

#[test]
fn the_json_schemas_follow_the_table() {
    generated("docs/record.schema.json", &json_schema::text());
    generated("docs/datagram.schema.json", &json_schema::datagram());
    generated("docs/flow.schema.json", &json_schema::flow());
    generated("docs/counters.schema.json", &json_schema::counters());
    generated("docs/flow_totals.schema.json", &json_schema::flow_totals());
}

#[test]
fn the_clickhouse_tables_follow_the_table() {
    generated("deploy/clickhouse/sockets.sql", &clickhouse::tables());
    generated("deploy/clickhouse/files.sql", &clickhouse::files());
    generated("deploy/clickhouse/datagrams.sql", &clickhouse::datagrams());
    generated("deploy/clickhouse/flows.sql", &clickhouse::flows());
}

#[test]
fn numbers_are_given_once() {
    let path = root().join("crates/record/tests/numbers.txt");
    let given = std::fs::read_to_string(&path).unwrap_or_default();
    let list = numbers::extend(&given).unwrap_or_else(|broken| panic!("{broken}"));
    generated("crates/record/tests/numbers.txt", &list);
}

/// A field's unit and kernel version as words for a comment; empty if there is nothing to say.
fn unit_and_kernel(field: &crate::Field) -> String {
    let kernel =
        if field.kernel.is_empty() { String::new() } else { format!("Linux {}", field.kernel) };
    let parts: Vec<&str> =
        [field.unit, &kernel].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}
