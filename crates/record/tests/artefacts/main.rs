//! The files that others read follow the table: schemas, the database's table, the field reference, and the list of
//! numbers that were ever given. `UPDATE_RECORDS=1 cargo test -p record` writes them anew.

mod clickhouse;
mod json_schema;
mod numbers;
mod proto;
mod reference;

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The first line of each, after its comment sign.
const GENERATED: &str =
    "Generated from the table in crates/record; UPDATE_RECORDS=1 cargo test -p record writes it.";

#[test]
fn the_protobuf_schema_follows_the_table() {
    check("proto/weir.proto", &proto::text());
}

#[test]
fn the_protobuf_schema_for_stores_follows_the_table() {
    check("proto/weir_store.proto", &proto::store_text());
}

#[test]
fn the_field_reference_follows_the_table() {
    check("docs/records.md", &reference::text());
}

#[test]
fn the_json_schema_follows_the_table() {
    check("docs/record.schema.json", &json_schema::text());
}

#[test]
fn the_clickhouse_tables_follow_the_table() {
    check("deploy/clickhouse/sockets.sql", &clickhouse::tables());
    check("deploy/clickhouse/files.sql", &clickhouse::files());
}

#[test]
fn numbers_are_given_once() {
    let path = root().join("crates/record/tests/numbers.txt");
    let given = fs::read_to_string(&path).unwrap_or_default();
    let list = numbers::extend(&given).unwrap_or_else(|broken| panic!("{broken}"));
    check("crates/record/tests/numbers.txt", &list);
}

fn check(path: &str, wanted: &str) {
    let file = root().join(path);
    if env::var_os("UPDATE_RECORDS").is_some_and(|value| value == "1") {
        fs::create_dir_all(file.parent().expect("it is in a folder"))
            .expect("the folder can be made");
        fs::write(&file, wanted).expect("the file can be written");
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    if found != wanted {
        let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
        panic!(
            "{path} is not what the table says; UPDATE_RECORDS=1 writes it. First difference: {differs:?}"
        );
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Unit and kernel of a field, as words for a comment; empty if there is nothing to say.
fn unit_and_kernel(field: &record::Field) -> String {
    let kernel =
        if field.kernel.is_empty() { String::new() } else { format!("Linux {}", field.kernel) };
    let parts: Vec<&str> =
        [field.unit, &kernel].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}
