//! The table for ClickHouse.

use crate::{GENERATED, unit_and_kernel};
use record::{Field, Kind, SocketRecord};
use std::fmt::Write;

/// Fields that sort the table or that every record has; the others may be absent, which is NULL.
const ALWAYS: &[&str] = &["record_kind", "time_unix_ns", "cookie", "host", "boot_id", "tags"];

/// Texts of which a host has many different ones; the others are kept as a dictionary.
const VARIED: &[&str] = &["cgroup_path", "pod_uid", "container_id"];

pub(crate) fn text() -> String {
    let mut out = format!("-- {GENERATED}\n--\n");
    out.push_str(HEAD);
    for group in SocketRecord::GROUPS {
        let _ = writeln!(out, "    -- {}", group.meaning);
        for field in SocketRecord::FIELDS.iter().filter(|field| field.group == group.name) {
            column(field, &mut out);
        }
    }
    out.truncate(out.trim_end().trim_end_matches(',').len());
    out.push_str(TAIL);
    out
}

const HEAD: &str = "\
-- Polls and closes of sockets, one row each. How to insert, with weir.proto in the server's format_schema_path:
--
--   clickhouse-client --query \"INSERT INTO sockets SETTINGS format_schema = 'weir.proto:SocketRecord' FORMAT Protobuf\" < sockets.pb
--   clickhouse-client --query 'INSERT INTO sockets FORMAT JSONEachRow' < sockets.jsonl
--
-- Leave totals out of such files (or delete rows with record_kind = 'totals'): they are no sockets.
-- Times come as nanoseconds, and once more as DateTime64 in a column without the unit.

CREATE TABLE IF NOT EXISTS sockets
(
";

const TAIL: &str = "
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (host, boot_id, cookie, time_unix_ns)
-- To drop old rows:
-- TTL toDateTime(time) + INTERVAL 30 DAY
;
";

fn column(field: &Field, out: &mut String) {
    let unit = unit_and_kernel(field);
    let unit = if unit.is_empty() { unit } else { format!(" [{unit}]") };
    let comment = format!("{}{unit}", field.meaning).replace('\\', "\\\\").replace('\'', "\\'");
    let _ = writeln!(
        out,
        "    `{}` {} COMMENT '{comment}'{},",
        field.name,
        type_of(field),
        codec(field)
    );
    if let Some(name) = field.name.strip_suffix("_unix_ns") {
        let moment = if is_nullable(field) {
            "Nullable(DateTime64(9, 'UTC'))"
        } else {
            "DateTime64(9, 'UTC')"
        };
        let value = format!("fromUnixTimestamp64Nano(toInt64({}))", field.name);
        let _ = writeln!(
            out,
            "    `{name}` {moment} MATERIALIZED {value} CODEC(DoubleDelta, ZSTD(1)),"
        );
    }
}

fn is_nullable(field: &Field) -> bool {
    !ALWAYS.contains(&field.name)
}

fn type_of(field: &Field) -> String {
    let name = match field.kind {
        Kind::U8 => "UInt8".to_owned(),
        Kind::U16 => "UInt16".to_owned(),
        Kind::U32 => "UInt32".to_owned(),
        Kind::U64 | Kind::Fixed64 => "UInt64".to_owned(),
        Kind::Bool => "Bool".to_owned(),
        Kind::Bytes => "String".to_owned(),
        Kind::Address => "IPv6".to_owned(),
        Kind::Text if VARIED.contains(&field.name) => "String".to_owned(),
        Kind::Text if is_nullable(field) => return "LowCardinality(Nullable(String))".to_owned(),
        Kind::Text => return "LowCardinality(String)".to_owned(),
        Kind::Tags => return "Map(LowCardinality(String), String)".to_owned(),
        Kind::Word(words) => {
            let entries: Vec<String> =
                words.entries.iter().map(|(value, word)| format!("'{word}' = {value}")).collect();
            format!("Enum8({})", entries.join(", "))
        }
    };
    if is_nullable(field) { format!("Nullable({name})") } else { name }
}

/// Rows of one connection lie beside each other in the order of time, so that times and counters are small steps.
fn codec(field: &Field) -> &'static str {
    match field.kind {
        Kind::Fixed64 => " CODEC(DoubleDelta, ZSTD(1))",
        Kind::U64 => " CODEC(Delta(8), ZSTD(1))",
        Kind::U32 => " CODEC(Delta(4), ZSTD(1))",
        _ => " CODEC(ZSTD(1))",
    }
}
