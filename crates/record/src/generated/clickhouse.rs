//! The ClickHouse tables, and those into which files of records are inserted.

use super::{GENERATED, unit_and_kernel};
use crate::native::{self, Presence};
use crate::{
    CounterRecord, DatagramRecord, Field, FlowRecord, FlowTotals, Kind, PollTotals, RecordKind,
    RowKind, SocketRecord, Words,
};
use std::fmt::Write;

/// Texts with many different values per host; the others are dictionary-encoded.
const VARIED: &[&str] =
    &["cgroup_path", "pod_uid", "container_id", "proc_id", "msg_id", "src_mac", "dst_mac"];

/// `sockets.sql`.
pub(crate) fn tables() -> String {
    let mut out = format!("-- {GENERATED}\n--\n{TABLES_HEAD}");
    out.push_str(
        "\n-- Polls and closes of sockets, one row each.\nCREATE TABLE IF NOT EXISTS sockets\n(\n",
    );
    for group in SocketRecord::GROUPS {
        columns(SocketRecord::FIELDS, group, &mut out);
    }
    out.push_str(SOCKETS_TAIL);
    out.push_str("\n-- Totals of polls, one row each.\nCREATE TABLE IF NOT EXISTS polls\n(\n");
    for group in PollTotals::GROUPS {
        columns(PollTotals::FIELDS, group, &mut out);
    }
    out.push_str(POLLS_TAIL);
    out
}

/// `datagrams.sql`.
pub(crate) fn datagrams() -> String {
    let mut out = format!("-- {GENERATED}\n--\n{DATAGRAMS_HEAD}");
    out.push_str("\n-- Datagrams, one row each.\nCREATE TABLE IF NOT EXISTS datagrams\n(\n");
    for group in DatagramRecord::GROUPS {
        columns(DatagramRecord::FIELDS, group, &mut out);
    }
    out.push_str(DATAGRAMS_TAIL);
    json_landing(RowKind::Datagram, RecordKind::DATAGRAM, &mut out);
    out
}

/// `flows.sql`.
pub(crate) fn flows() -> String {
    let mut out = format!("-- {GENERATED}\n--\n{FLOWS_HEAD}");
    out.push_str("\n-- What came of flows.\nCREATE TABLE IF NOT EXISTS flows\n(\n");
    for group in FlowRecord::GROUPS {
        columns(FlowRecord::FIELDS, group, &mut out);
    }
    out.push_str(FLOWS_TAIL);

    out.push_str("\n-- Counters of interfaces, and figures of agents.\nCREATE TABLE IF NOT EXISTS counters\n(\n");
    for group in CounterRecord::GROUPS {
        columns(CounterRecord::FIELDS, group, &mut out);
    }
    out.push_str(COUNTERS_TAIL);

    out.push_str(
        "\n-- Totals of both, one row each time.\nCREATE TABLE IF NOT EXISTS flow_totals\n(\n",
    );
    for group in FlowTotals::GROUPS {
        columns(FlowTotals::FIELDS, group, &mut out);
    }
    out.push_str(POLLS_TAIL);

    json_landing(RowKind::Flow, RecordKind::FLOW, &mut out);
    json_landing(RowKind::Counters, RecordKind::COUNTERS, &mut out);
    json_landing(RowKind::FlowTotals, RecordKind::FLOW_TOTALS, &mut out);
    out
}

/// `files.sql`.
pub(crate) fn files() -> String {
    let mut out = format!("-- {GENERATED}\n--\n{FILES_HEAD}");
    let totals: Vec<String> = plain_columns(PollTotals::FIELDS, Form::Binary);
    landing("records_protobuf", Form::Binary, &format!("Tuple({})", totals.join(", ")), &mut out);
    landing("records_json", Form::Text, "String", &mut out);
    out
}

const TABLES_HEAD: &str = "\
-- A table of records and one of totals, which together tell whether all records are there: see complete.sql.
--
--   clickhouse-client --multiquery < sockets.sql
--
-- Rows of one kind can be inserted directly, with weir_store.proto in the server's format_schema_path:
--
--   INSERT INTO sockets SETTINGS format_schema = 'weir_store.proto:SocketRecord' FORMAT Protobuf
--   INSERT INTO polls SETTINGS format_schema = 'weir_store.proto:PollTotals' FORMAT Protobuf
--
-- Files of Weir have both kinds: files.sql makes what takes those.
--
-- NULL is not known. Words are numbers, since a newer kernel may have one that has no name here; each has its text, or the number as
-- text, in a second column `_word`. Times come as nanoseconds, and once more as DateTime64 in a column without the unit. Bytes are
-- bytes. An IPv4 address is `::ffff:a.b.c.d`. A column that sorts the table is 0 or empty where the field was not chosen.
-- The partition is the day of the insert, not that of the record, so that a host with a wrong clock does no harm to others.
";

const DATAGRAMS_HEAD: &str = "\
-- A table of datagrams that listeners received, with what they say as syslog. It is like the tables of sockets.sql, which explains how
-- columns are kept, and needs none of them.
--
--   clickhouse-client --multiquery < datagrams.sql
--
-- Rows can be inserted directly, with weir_store.proto in the server's format_schema_path; lines of JSON go into `datagrams_json`, which
-- keeps nothing and hands each row on:
--
--   INSERT INTO datagrams SETTINGS format_schema = 'weir_store.proto:DatagramRecord' FORMAT Protobuf
--   INSERT INTO datagrams_json FORMAT JSONEachRow
--
-- `payload` is what was received, `message` the text of syslog without what stands before it.
";

const DATAGRAMS_TAIL: &str = "
    -- When the row was inserted.
    `ingest_time` DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ingest_time)
ORDER BY (listener, toStartOfInterval(time, INTERVAL 10 MINUTE), source_address, time_unix_ns)
-- To drop old rows:
-- TTL ingest_time + INTERVAL 30 DAY
;
";

const FLOWS_HEAD: &str = "\
-- Tables of what sFlow says: flows, counters of interfaces with figures of agents, and totals, which tell whether all rows are there: see
-- complete_flows.sql. They are like the tables of sockets.sql, which explains how columns are kept, and need none of them.
--
--   clickhouse-client --multiquery < flows.sql
--
-- Rows of one kind can be inserted directly, with weir_store.proto in the server's format_schema_path; lines of JSON of all three kinds go
-- into `flows_json`, `counters_json` or `flow_totals_json`, which keep nothing, take the rows of their kind and hand them on:
--
--   INSERT INTO flows SETTINGS format_schema = 'weir_store.proto:FlowRecord' FORMAT Protobuf
--   INSERT INTO flows_json FORMAT JSONEachRow
--
-- Rows of a flow add up: none has what another has. `bytes` is scaled by what arrived; `raw_bytes` is what a multiplication by the
-- configured rate gives.
";

const FLOWS_TAIL: &str = "
    -- When the row was inserted.
    `ingest_time` DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ingest_time)
ORDER BY (definition, toStartOfInterval(time, INTERVAL 10 MINUTE), time_unix_ns)
-- To drop old rows:
-- TTL ingest_time + INTERVAL 30 DAY
;
";

const COUNTERS_TAIL: &str = "
    -- When the row was inserted.
    `ingest_time` DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ingest_time)
ORDER BY (agent, toStartOfInterval(time, INTERVAL 10 MINUTE), time_unix_ns)
-- To drop old rows:
-- TTL ingest_time + INTERVAL 30 DAY
;
";

const SOCKETS_TAIL: &str = "
    -- When the row was inserted.
    `ingest_time` DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ingest_time)
ORDER BY (toStartOfInterval(time, INTERVAL 10 MINUTE), host, cookie, time_unix_ns)
-- To drop old rows:
-- TTL ingest_time + INTERVAL 30 DAY
;
";

const POLLS_TAIL: &str = "
    -- When the row was inserted.
    `ingest_time` DateTime('UTC') DEFAULT now() CODEC(DoubleDelta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ingest_time)
ORDER BY (toStartOfInterval(time, INTERVAL 10 MINUTE), host, time_unix_ns)
-- TTL ingest_time + INTERVAL 30 DAY
;
";

const FILES_HEAD: &str = "\
-- What takes the files that Weir writes, records and totals between each other. Nothing is kept here: each row goes on to `sockets` or
-- `polls`, which sockets.sql makes. With weir_store.proto in the server's format_schema_path:
--
--   clickhouse-client --query \"INSERT INTO records_protobuf SETTINGS format_schema = 'weir_store.proto:SocketRecord' FORMAT Protobuf\" < sockets.pb
--   clickhouse-client --query 'INSERT INTO records_json FORMAT JSONEachRow' < sockets.jsonl
--
-- Both mean the same: base64 becomes bytes, words become their numbers.
";

/// Writes the columns of a group.
fn columns(fields: &[Field], group: &crate::Group, out: &mut String) {
    let _ = writeln!(out, "    -- {}", group.meaning);
    for field in fields.iter().filter(|field| field.group == group.name) {
        column(field, out);
    }
}

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
    if let Kind::Word(words) = field.kind {
        let name = field.name;
        let (numbers, texts) = words_of(words);
        let text = if is_nullable(field) { "Nullable(String)" } else { "String" };
        let _ = writeln!(
            out,
            "    `{name}_word` {text} ALIAS transform({name}, [{numbers}], [{texts}], toString({name})),"
        );
    }
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

/// The numbers and the texts of words, as lists.
fn words_of(words: &Words) -> (String, String) {
    let numbers: Vec<String> = words.entries.iter().map(|(value, _)| value.to_string()).collect();
    let texts: Vec<String> = words.entries.iter().map(|(_, word)| format!("'{word}'")).collect();
    (numbers.join(", "), texts.join(", "))
}

fn is_nullable(field: &Field) -> bool {
    field.presence != Presence::Always
}

fn type_of(field: &Field) -> String {
    match field.kind {
        Kind::Text if VARIED.contains(&field.name) => "Nullable(String)".to_owned(),
        Kind::Text if field.presence == Presence::NullableUuid => "Nullable(UUID)".to_owned(),
        Kind::Text if is_nullable(field) => "LowCardinality(Nullable(String))".to_owned(),
        Kind::Text => "LowCardinality(String)".to_owned(),
        Kind::Tags => "Map(LowCardinality(String), String)".to_owned(),
        _ => plain_type(field, Form::Binary),
    }
}

/// How values are represented in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Protobuf: words as numbers, bytes as they are.
    Binary,
    /// JSON: words as text, bytes in base64.
    Text,
}

/// The type of a value on its way into a table.
fn plain_type(field: &Field, form: Form) -> String {
    let name = match field.kind {
        Kind::Word(_) if form == Form::Text => "String",
        Kind::Tags => return native::type_of(field.kind).to_owned(),
        kind => native::type_of(kind),
    };
    if is_nullable(field) { format!("Nullable({name})") } else { name.to_owned() }
}

fn plain_columns(fields: &[Field], form: Form) -> Vec<String> {
    fields.iter().map(|field| format!("`{}` {}", field.name, plain_type(field, form))).collect()
}

/// The kinds of rows that belong to other tables.
const OTHER_KINDS: &[RecordKind] =
    &[RecordKind::DATAGRAM, RecordKind::FLOW, RecordKind::COUNTERS, RecordKind::FLOW_TOTALS];

/// Writes a table that stores nothing, and the two views that distribute the rows inserted into it.
fn landing(name: &str, form: Form, totals: &str, out: &mut String) {
    let columns = plain_columns(SocketRecord::FIELDS, form).join(",\n    ");
    let kind = |kind: RecordKind| match (form, kind.word()) {
        (Form::Text, Some(word)) => format!("'{word}'"),
        _ => kind.0.to_string(),
    };
    let others: Vec<String> = OTHER_KINDS.iter().map(|other| kind(*other)).collect();
    let (kind, others) = (kind(RecordKind::TOTALS), others.join(", "));
    let record = |field: &Field| stored(field, form, format!("`{}`", field.name));
    let total = |field: &Field| match form {
        Form::Binary => format!("totals.{0} AS `{0}`", field.name),
        Form::Text => {
            let kind = plain_type(field, form);
            let value = format!("JSONExtract(totals, '{}', '{kind}')", field.name);
            stored(field, form, value)
        }
    };
    let records: Vec<String> = SocketRecord::FIELDS.iter().map(record).collect();
    let totals_of: Vec<String> = PollTotals::FIELDS.iter().map(total).collect();
    let _ = write!(
        out,
        "\nCREATE TABLE IF NOT EXISTS {name}\n(\n    {columns},\n    `totals` {totals}\n)\nENGINE = Null;\n\n\
         CREATE MATERIALIZED VIEW IF NOT EXISTS {name}_to_sockets TO sockets AS\nSELECT\n    {}\n\
         FROM {name} AS landed WHERE landed.record_kind NOT IN ({kind}, {others});\n\n\
         CREATE MATERIALIZED VIEW IF NOT EXISTS {name}_to_polls TO polls AS\nSELECT\n    {}\n\
         FROM {name} AS landed WHERE landed.record_kind = {kind};\n",
        records.join(",\n    "),
        totals_of.join(",\n    ")
    );
}

/// Writes a table that stores nothing, and the view that passes lines of JSON on.
fn json_landing(rows: RowKind, kind: RecordKind, out: &mut String) {
    let (table, word) = (rows.table(), kind.word().unwrap_or_default());
    let (mut columns, mut values) = (Vec::new(), Vec::new());
    for field in rows.fields() {
        let (name, kind) = (field.name, plain_type(field, Form::Text));
        columns.push(format!("`{name}` {kind}"));
        if field.kind == Kind::Data {
            // One of the two is present.
            columns.push(format!("`{name}_base64` Nullable(String)"));
            let bytes = format!("base64Decode(`{name}_base64`)");
            values.push(format!("if(`{name}_base64` IS NULL, `{name}`, {bytes}) AS `{name}`"));
        } else {
            values.push(stored(field, Form::Text, format!("`{name}`")));
        }
    }

    let _ = write!(
        out,
        "\nCREATE TABLE IF NOT EXISTS {table}_json\n(\n    {}\n)\nENGINE = Null;\n\n\
         CREATE MATERIALIZED VIEW IF NOT EXISTS {table}_json_to_{table} TO {table} AS\nSELECT\n    {}\n\
         FROM {table}_json AS landed WHERE landed.record_kind = '{word}';\n",
        columns.join(",\n    "),
        values.join(",\n    ")
    );
}

/// A value as the table stores it, under the field's name.
fn stored(field: &Field, form: Form, value: String) -> String {
    let value = match (field.kind, form) {
        (Kind::Word(words), Form::Text) => {
            let (numbers, texts) = words_of(words);
            let number = if is_nullable(field) { "toUInt8OrNull" } else { "toUInt8OrZero" };
            format!("transform({value}, [{texts}], [{numbers}], {number}({value}))")
        }
        (Kind::Bytes, Form::Text) => format!("base64Decode({value})"),
        _ if value == format!("`{}`", field.name) => return value,
        _ => value,
    };
    format!("{value} AS `{}`", field.name)
}

/// Rows of one connection are stored next to each other in order of time, so times and counters are small steps.
fn codec(field: &Field) -> &'static str {
    match field.kind {
        Kind::Fixed64 => " CODEC(DoubleDelta, ZSTD(1))",
        Kind::U64 => " CODEC(Delta(8), ZSTD(1))",
        Kind::U32 => " CODEC(Delta(4), ZSTD(1))",
        _ => " CODEC(ZSTD(1))",
    }
}
