//! Tables whose rows are records as they arrive, with a column for each field.

use crate::sockets::fields;
use record::{Cell, CellReader, Field, Kind, RowKind};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql};
use std::fmt::Write;

/// The fields of a closing record in `closes`. All fields are in `sockets`.
const CLOSE_NAMES: &[&str] = &[
    "time_unix_ns",
    "cookie",
    "src_address",
    "src_port",
    "dst_address",
    "dst_port",
    "role",
    "close_reason",
    "last_state",
    "netns_inode",
    "netns_name",
    "systemd_unit",
    "container_id",
    "pod_uid",
    "process_name",
    "process_id",
    "first_seen_unix_ns",
    "seen_ns",
    "polls_seen",
    "counters_from",
    "rtt_us",
    "min_rtt_us",
    "total_retrans_segments",
    "bytes_sent",
    "bytes_received",
    "bytes_retrans",
    "busy_time_us",
    "rwnd_limited_us",
    "sndbuf_limited_us",
];

/// The fields of `closes`.
pub(crate) fn close_columns() -> Vec<&'static Field> {
    fields(CLOSE_NAMES)
}

/// An SQLite table for rows of one kind.
pub(crate) struct Rows {
    pub(crate) name: &'static str,
    fields: Vec<&'static Field>,
    reader: CellReader,
    insert: String,
    /// The values of the row being inserted.
    values: Vec<Value>,
}

/// Names of all these tables. Each has a column `time_unix_ns`, by which it is pruned.
pub(crate) const NAMES: [&str; 6] =
    ["closes", "polls", "datagrams", "flows", "counters", "flow_totals"];

/// The statements that create the tables.
pub(crate) fn definitions() -> Vec<String> {
    let rows = Rows::all();
    let tables = rows.iter().map(Rows::definition);
    tables.chain([rollup("minute"), rollup("hour"), EVENTS.to_owned()]).collect()
}

/// Events of thresholds, as `GET /flows/events` has them. They are stored as payloads of a listener that no file can name; a payload
/// is checked all the same, because one that is no JSON would end a statement.
const EVENTS: &str = "CREATE VIEW IF NOT EXISTS events AS
    SELECT time_unix_ns, json ->> '$.raised_id' AS raised_id, json ->> '$.change' AS change, json ->> '$.threshold' AS threshold,
           json -> '$.of' AS subject, json ->> '$.figure.value' AS value, json ->> '$.limit' AS level, json ->> '$.peak' AS peak,
           json ->> '$.text' AS \"text\", host
    FROM (SELECT time_unix_ns, host, CAST(payload AS TEXT) AS json FROM datagrams WHERE listener = 'events')
    WHERE json_valid(json)";

/// The tables that have rows as they arrive, each with its columns.
pub fn row_tables() -> Vec<(&'static str, Vec<&'static Field>)> {
    Rows::all().into_iter().map(|rows| (rows.name, rows.fields)).collect()
}

/// Adds the columns that the tables of an older store lack; its rows have no value in them.
pub(crate) fn add_missing_columns(connection: &Connection) -> rusqlite::Result<()> {
    Rows::all().iter().try_for_each(|rows| rows.add_missing_columns(connection))
}

/// A table of sums: `sockets_minute` or `sockets_hour`.
fn rollup(span: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS sockets_{span} (
            dimension TEXT NOT NULL,
            time_unix_ns INTEGER NOT NULL,
            unit TEXT NOT NULL,
            service INTEGER NOT NULL,
            peer TEXT NOT NULL,
            records INTEGER NOT NULL,
            bytes_sent INTEGER NOT NULL,
            bytes_received INTEGER NOT NULL,
            bytes_retrans INTEGER NOT NULL,
            segs_out INTEGER NOT NULL,
            retrans_segments INTEGER NOT NULL,
            busy_time_us INTEGER NOT NULL,
            rwnd_limited_us INTEGER NOT NULL,
            sndbuf_limited_us INTEGER NOT NULL,
            zero_windows INTEGER NOT NULL,
            closes INTEGER NOT NULL,
            aborts INTEGER NOT NULL,
            rtt BLOB NOT NULL,
            rttvar BLOB NOT NULL,
            PRIMARY KEY (dimension, time_unix_ns, unit, service, peer)
        ) WITHOUT ROWID"
    )
}

impl Rows {
    fn all() -> Vec<Rows> {
        let kinds = RowKind::ALL.into_iter().filter(|kind| *kind != RowKind::Record);
        [Rows::closes()].into_iter().chain(kinds.map(Rows::of)).collect()
    }

    /// Closing records.
    pub(crate) fn closes() -> Rows {
        Rows::new("closes", close_columns())
    }

    /// Rows of this kind, with all fields.
    pub(crate) fn of(kind: RowKind) -> Rows {
        Rows::new(kind.table(), kind.fields().iter().collect())
    }

    fn new(name: &'static str, fields: Vec<&'static Field>) -> Rows {
        let places = vec!["?"; fields.len()].join(", ");
        let names: Vec<_> = fields.iter().map(|field| field.name).collect();
        Rows {
            name,
            reader: CellReader::new(&fields),
            // By name, because columns added later come last in an older store.
            insert: format!("INSERT INTO {name} ({}) VALUES ({places})", names.join(", ")),
            values: vec![Value::Null; fields.len()],
            fields,
        }
    }

    fn add_missing_columns(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let present = columns.query_map([self.name], |row| row.get(0))?;
        let present = present.collect::<rusqlite::Result<Vec<String>>>()?;
        for field in
            self.fields.iter().filter(|field| !present.iter().any(|name| name == field.name))
        {
            let (table, name, kind) = (self.name, field.name, sql_type(field.kind));
            connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {name} {kind}"))?;
        }
        Ok(())
    }

    fn definition(&self) -> String {
        let mut text = format!("CREATE TABLE IF NOT EXISTS {} (", self.name);
        for (at, field) in self.fields.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            // Writing into a String cannot fail.
            let _ = write!(text, "{comma}{} {}", field.name, sql_type(field.kind));
        }
        let name = self.name;
        text + &format!("); CREATE INDEX IF NOT EXISTS {name}_time ON {name} (time_unix_ns)")
    }

    /// The name of the table.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Inserts a row. Returns whether the message is valid for this table.
    pub(crate) fn insert(
        &mut self,
        connection: &Connection,
        message: &[u8],
    ) -> rusqlite::Result<bool> {
        let Rows { fields, values, reader, .. } = self;
        values.fill(Value::Null);
        let read = reader.read(message, |column, cell| {
            if let Some((value, field)) = values.get_mut(column).zip(fields.get(column)) {
                *value = value_of(field.kind, &cell);
            }
        });
        if read.is_err() {
            return Ok(false);
        }

        let mut statement = connection.prepare_cached(&self.insert)?;
        statement.execute(rusqlite::params_from_iter(self.values.iter().map(Borrowed)))?;
        Ok(true)
    }
}

/// A value bound without a copy.
struct Borrowed<'v>(&'v Value);

impl ToSql for Borrowed<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::from(self.0)))
    }
}

/// The SQL type of a field.
pub(crate) fn sql_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool | Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 | Kind::Fixed64 => "INTEGER",
        Kind::Text | Kind::Address | Kind::Tags | Kind::Word(_) => "TEXT",
        Kind::Bytes | Kind::Data => "BLOB",
    }
}

fn value_of(kind: Kind, cell: &Cell<'_>) -> Value {
    match (kind, cell) {
        (Kind::Word(words), Cell::Number(number)) => {
            let word = u8::try_from(*number).ok().and_then(|number| words.word(number));
            Value::Text(word.map_or_else(|| number.to_string(), str::to_owned))
        }
        // No field has values of 2^63 or more; such a number would keep its bits, as in Parquet.
        (_, Cell::Number(number)) => Value::Integer(*number as i64),
        (Kind::Bytes | Kind::Data, Cell::Bytes(bytes)) => Value::Blob(bytes.to_vec()),
        (_, cell) => {
            let mut text = Vec::new();
            cell.put_text(&mut text);
            Value::Text(String::from_utf8_lossy(&text).into_owned())
        }
    }
}
